//! One unary gRPC method over HTTP/2, without I/O.
//!
//! ```
//! use std::task::{Context, Waker};
//! use tollgate_grpc::{Fallback, FallbackFuture, Method, Session};
//! use tonic::Status;
//!
//! /// Answers all other methods.
//! #[derive(Clone)]
//! struct Unimplemented;
//!
//! impl Fallback for Unimplemented {
//!     fn serve(&mut self, _: http::Request<tonic::body::Body>) -> FallbackFuture {
//!         Box::pin(async { Ok(Status::unimplemented("no such method").into_http()) })
//!     }
//! }
//!
//! let method = Method { path: "/example.Greeter/Greet", max_message_bytes: 1024 };
//! let greet = |name: String, _deadline| async move { Ok::<String, Status>(format!("hello {name}")) };
//! let (mut session, _events) = Session::new(method, greet, Unimplemented);
//!
//! // The client's preface and its settings. A server feeds everything that it reads from the socket.
//! let received = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
//! let mut context = Context::from_waker(Waker::noop());
//! assert_eq!(session.receive(&mut context, &received), received.len());
//! assert!(!session.output().is_empty()); // the settings of the server, and its acknowledgement
//! ```
//!
//! # Theory
//!
//! A general HTTP/2 server does for every call what any call may need: a task or two, a header map in each direction,
//! a queue for each direction of the body. A short unary call needs none of it: its headers are the same every time,
//! its request is one small message, its response another. A [`Session`] therefore handles one [`Method`] where its
//! frames are read. Responses are written one after the other into one buffer: one read and one write serve all calls
//! that arrived together. Every other call (health, reflection) becomes an HTTP request and goes to a [`Fallback`]
//! service in a task of its own.
//!
//! A session owns no socket and no timer. The caller feeds received bytes into [`Session::receive`] and events of
//! pending calls into [`Session::on_event`], and writes what [`Session::output`] holds.
//!
//! # Why connections are not handed over to a general server
//!
//! A client may wait for the server's settings before it sends its first headers. Once the settings are sent, no
//! other server can take over the connection.
//!
//! | file | content |
//! |---|---|
//! | `session` | frames in, frames out: headers, bodies, responses, control frames |
//! | `handler` | the handler of the method: ready at once, or pending |
//! | `fallback` | all other calls |
//! | `streams` | the open streams |
//! | `request_head`, `message`, `response` | a request's headers, its message, its response |
//! | `hpack`, `huffman`, `frame` | the encoding |
//! | `abuse_budget` | how much work without a result a client may cause |
//! | `timeout` | the `grpc-timeout` header |
//!
//! # Invariant
//!
//! A call ends once: with a response, a gRPC error, or a reset. Responses are sent in the order in which they become
//! ready, so a pending call delays no other.
//!
//! # Limits
//!
//! No TLS, no upgrade from HTTP/1.1, no push. Priorities are parsed and ignored.

mod abuse_budget;
mod fallback;
mod frame;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod handler;
mod hpack;
mod huffman;
mod message;
mod request_head;
mod response;
mod session;
mod streams;
#[cfg(test)]
mod test_client;
mod timeout;

pub use fallback::{Event, Fallback, FallbackFuture};
pub use handler::{FutureHandler, Handler};
pub use session::{Events, Session};

/// The method that a session handles itself.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// The path: `/package.Service/Method`.
    pub path: &'static str,
    /// The largest message, in bytes.
    pub max_message_bytes: usize,
}

/// Open streams of one connection.
const MAX_STREAMS: usize = 1_000;
/// Of these, streams served by the fallback: each has a task and buffers of its own.
const MAX_FALLBACK_STREAMS: usize = 32;
/// Decoded size of a header list.
const MAX_HEADER_BYTES: usize = 16 * 1024;
/// Bytes in flight from the client, for one stream and for the connection.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Bytes buffered for all streams: incomplete messages, and responses that wait for a window.
const MAX_BUFFERED_BYTES: usize = 1024 * 1024;
/// A session with this much unwritten output reads nothing.
const MAX_OUTPUT_BYTES: usize = 64 * 1024;
