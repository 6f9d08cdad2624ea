//! The access log: one line for each request, when the head of its response is known.
//!
//! A policy with `key_privacy: hashed` hides the path and the client.

use std::net::IpAddr;

use hyper::{Method, Request, StatusCode, Version};
use tokio::time::Instant;
use tollgate_policy::Privacy;

use super::ListenerState;

/// A request that is logged when it is answered.
pub(super) struct AccessEntry {
    began: Instant,
    method: Method,
    version: Version,
    /// Path and client, unless the policy hides them.
    shown: Option<(String, IpAddr)>,
}

impl AccessEntry {
    /// `None` if there is no access log.
    pub(super) fn new<B>(
        listening: &ListenerState,
        request: &Request<B>,
        peer: IpAddr,
    ) -> Option<AccessEntry> {
        let engine = listening.access_log.as_ref()?;
        let is_plain = engine.active().gate.policy().privacy == Privacy::Plain;
        Some(AccessEntry {
            began: Instant::now(),
            method: request.method().clone(),
            version: request.version(),
            shown: is_plain.then(|| (request.uri().path().to_owned(), peer)),
        })
    }

    pub(super) fn log(self, status: StatusCode) {
        let (path, peer) = self.shown.unzip();
        let took = self.began.elapsed();
        tracing::info!(
            target: "tollgate::access",
            method = self.method.as_str(),
            path,
            status = status.as_u16(),
            peer = peer.map(tracing::field::display),
            version = ?self.version,
            took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            "request"
        );
    }
}
