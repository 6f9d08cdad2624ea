//! HTTP/1: one check of heads, one framer, one reader of unread bytes, one way to write a response.
//!
//! | file | what it does |
//! |---|---|
//! | `head` | checks a request head byte by byte; knows the fields that frame a request |
//! | `framer` | cuts a stream into checked requests for hyper |
//! | `unread` | reads and keeps the bytes of a fast path |
//! | `fast_path` | requests that are answered in memory: the ports of the service |
//! | `upgrade` | whether a request turns its connection into a tunnel |
//! | `body` | reads bodies that hyper receives |
//! | `response` | a response before it is written |
//!
//! The gateway has a fast path of its own (`gateway/client/fast_path`) over the same files. It differs in what makes it fast: a
//! request becomes a `http::Request` for the layers of the middleware, and its response is streamed from an upstream. A
//! decision borrows its request from the read buffer and is written together with others. A common loop would have to
//! build both.

pub(crate) mod body;
pub(crate) mod fast_path;
pub(crate) mod framer;
pub(crate) mod head;
pub(crate) mod response;
pub(crate) mod server;
pub(crate) mod unread;
pub(crate) mod upgrade;
