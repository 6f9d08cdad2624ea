//! The JSON of decisions without its sockets, for the fuzz targets.

use std::net::Ipv4Addr;

use super::request::{Batch, Settle};
use super::*;

/// The content of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One question.
    CheckRequest,
    /// Several.
    Batch,
    /// The end of a reservation.
    Settle,
}

/// What was read of a body, as text.
///
/// # Errors
/// What is wrong with it.
pub fn read(kind: Kind, body: &[u8]) -> Result<String, String> {
    match kind {
        Kind::CheckRequest => request::read::<CheckRequest<'_>>(body).map(|ask| format!("{ask:?}")),
        Kind::Batch => request::read::<Batch<'_>>(body).map(|batch| format!("{batch:?}")),
        Kind::Settle => request::read::<Settle<'_>>(body).map(|settle| format!("{settle:?}")),
    }
}

/// The front end without a listener.
#[derive(Debug)]
pub struct FrontEnd {
    service: HttpApi,
    // Dropping the sender is the shutdown signal.
    _stop: watch::Sender<bool>,
}

impl FrontEnd {
    /// A front end with this policy.
    pub fn new(policy: &str) -> FrontEnd {
        let (stop, stopped) = watch::channel(false);
        FrontEnd {
            service: HttpApi::new(crate::engine::for_tests(policy), stopped),
            _stop: stop,
        }
    }

    /// The answer to a body: its status and its body. None if it would wait, which it must not without a shared store.
    pub fn answer(&self, kind: Kind, body: &[u8]) -> Option<(u16, Vec<u8>)> {
        let target = match kind {
            Kind::CheckRequest => "/v1/check",
            Kind::Batch => "/v1/check/batch",
            Kind::Settle => "/v1/settle",
        };
        let mut response = self.respond(target, body)?;
        let status = response.status();
        Some((status, std::mem::take(response.body())))
    }

    /// The same question on the fast path: what is written to the client.
    pub fn answer_fast(&self, body: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.respond("/v1/check", body)?.append_to(&mut out, false);
        Some(out)
    }

    fn respond(&self, target: &str, body: &[u8]) -> Option<ResponseBuffer> {
        let request = fast_path::Request {
            method: "POST",
            target,
            headers: &[],
            body,
        };
        let mut response = ResponseBuffer::default();
        match Handler::respond(
            &self.service,
            &request,
            Ipv4Addr::LOCALHOST.into(),
            &mut response,
        ) {
            Respond::Ready => Some(response),
            Respond::Pending(_) | Respond::Declined => None,
        }
    }
}
