//! Tests of the load generator: faulty servers, an independent HTTP/2 server, and servers with TLS.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

mod failures;
mod grpc;
mod tls;
