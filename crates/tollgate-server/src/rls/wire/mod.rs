//! HTTP/2 for the one call that matters, and for all others.
//!
//! # Theory
//!
//! A general server does for every call what it must be able to do for any: a task or two, a map of fields in each
//! direction, a queue for each way of the body. A decision needs none of it: a head that says the same every time, one
//! short message, one short answer. So this door speaks HTTP/2 itself, for all connections from their first byte
//! to their last. `ShouldRateLimit` is decided where its frames are read, and its answer is written behind those of the
//! calls before it: one read, one write, however many calls came together. Every other call (health, reflection, what
//! is not here) is made a request of HTTP and given to tonic's services, in a task of its own.
//!
//! # Why not hand connections over
//!
//! The lanes of HTTP/1 give a connection to hyper as soon as something unusual comes. Here that is too late:
//! a client may wait for our settings before it sends its first head, and once they are sent hyper cannot begin. And
//! whoever asks for health on the connection of its calls would leave the lane for good. With the bridge to the
//! services there is nothing to hand over, and one server of HTTP/2 to look after instead of two.
//!
//! | file | what |
//! |---|---|
//! | `serve` | reads, writes, watches the time |
//! | `session` | frames in, frames out: heads, bodies, answers |
//! | `calls` | decisions, at once or later |
//! | `elsewhere` | everything that is not `ShouldRateLimit` |
//! | `stream` | the calls under way |
//! | `head`, `unary`, `answer` | a request's fields, its message, its answer |
//! | `hpack`, `huffman`, `frame` | how they are packed |
//! | `patience` | how much may lead to nothing |
//!
//! # Invariant
//!
//! A call is answered once: by an answer, an error of gRPC, or a reset. Answers come in the order in which decisions
//! are made, so one that waits for a store keeps no other waiting.
//!
//! # What it does not know
//!
//! TLS; the upgrade from HTTP/1.1; push; priorities, which are read and mean nothing.

mod answer;
mod calls;
mod elsewhere;
mod frame;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod head;
mod hpack;
mod huffman;
mod patience;
mod serve;
mod session;
mod stream;
mod unary;

pub(super) use serve::serve;

/// Calls at once on one connection.
const STREAMS: usize = 1_000;
/// Of these, calls that are served elsewhere: each has a task and buffers of its own.
const ELSEWHERE: usize = 32;
/// Bytes of a head.
const HEAD_BYTES: usize = 16 * 1024;
/// Bytes that may be on their way to one call, and to one connection.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Bytes that are kept of calls whose messages are not whole.
const HELD_BYTES: usize = 1024 * 1024;
/// Who has so many bytes of answers to read is not read from.
const OUT_BYTES: usize = 64 * 1024;
