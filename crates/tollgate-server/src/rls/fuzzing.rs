//! Envoy's rate limit service without its sockets, for the fuzz targets.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

pub use super::wire::fuzzing::*;

/// Bytes of a message.
pub const MESSAGE_MOST: usize = ask::MESSAGE_BYTES;

/// A door that nobody else comes through.
#[derive(Debug)]
pub struct Door(Limits);

impl Door {
    /// Opens one by this policy.
    pub fn open(policy: &str) -> Door {
        Door(Limits {
            engine: crate::engine::for_tests(policy),
            domains: Domains::default(),
        })
    }

    /// The frames in front of it.
    ///
    /// # Errors
    /// If there can be no runtime.
    pub fn wire(self) -> std::io::Result<Wire> {
        Wire::to(self.0)
    }

    /// Decides; None if it would wait, which it must not without a shared store.
    ///
    /// # Errors
    /// What is wrong with the request.
    pub fn answer(&self, request: RateLimitRequest) -> Result<Option<RateLimitResponse>, Status> {
        ask::check(&request)?;
        let decided = pin!(self.0.decide(request, None));
        let polled = decided.poll(&mut Context::from_waker(Waker::noop()));
        Ok(match polled {
            Poll::Ready(response) => Some(response),
            Poll::Pending => None,
        })
    }
}
