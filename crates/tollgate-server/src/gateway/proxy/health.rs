//! Probes servers, so that no client request has to.
//!
//! A server with a [`tollgate_config::HealthSpec`] is asked for its path all the time. One without is probed only while it
//! is ejected, by a connection.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::{http1, http2};
use hyper::header::{HOST, USER_AGENT};
use hyper::{Request, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::timeout;
use tollgate_config::Protocol;

use super::stream::connect;
use super::upstream::{Upstream, now_ms};
use super::{RoutingTable, Server};

/// How often servers are checked for a due probe.
const TICK: Duration = Duration::from_millis(100);
/// Timeout of a probe by a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Probes servers until `stop`.
pub(crate) async fn watch_servers(
    routes: Arc<ArcSwap<RoutingTable>>,
    stop: impl Future<Output = ()>,
) {
    let mut stop = pin!(stop);
    // When each server was last probed, by its address in memory, which stays while it is part of the policy.
    let mut probed: HashMap<usize, u64> = HashMap::new();
    loop {
        let now = now_ms();
        let mut current = HashMap::new();
        for upstream in routes.load().upstreams.iter() {
            for server in &upstream.servers {
                let id = Arc::as_ptr(server).addr();
                let last = probed.get(&id).copied();
                let is_due = match &upstream.spec.health {
                    Some(health) => {
                        let every = Duration::from(health.every).as_millis();
                        let every = u64::try_from(every).unwrap_or(u64::MAX);
                        last.is_none_or(|last| now.saturating_sub(last) >= every)
                    }
                    None => server.is_probe_due(now),
                };
                let last = if is_due { now } else { last.unwrap_or(now) };
                current.insert(id, last);
                if is_due {
                    if upstream.spec.health.is_none() {
                        server.schedule_probe(now);
                    }
                    tokio::spawn(probe(Arc::clone(upstream), Arc::clone(server)));
                }
            }
        }
        probed = current;
        tokio::select! {
            () = &mut stop => return,
            () = tokio::time::sleep(TICK) => {}
        }
    }
}

async fn probe(upstream: Arc<Upstream>, server: Arc<Server>) {
    if let Some(health) = &upstream.spec.health {
        let response = is_healthy(&upstream, &server, &health.path);
        match timeout(health.timeout.into(), response).await {
            Ok(Ok(true)) => server.record_good_probe(health, now_ms()),
            _ if server.record_failed_probe(health) => upstream.log_ejected(&server),
            _ => {}
        }
        return;
    }
    if let Ok(Ok(_)) = timeout(CONNECT_TIMEOUT, connect(&server)).await {
        server.reinstate();
    }
}

/// Is the response to the health path a success or a redirection?
async fn is_healthy(upstream: &Upstream, server: &Server, path: &str) -> io::Result<bool> {
    let io = TokioIo::new(connect(server).await?);
    let request = |uri: String| {
        Request::get(uri.parse::<Uri>().map_err(io::Error::other)?)
            .header(HOST, server.authority())
            .header(USER_AGENT, "tollgate")
            .body(Empty::<Bytes>::new())
            .map_err(io::Error::other)
    };
    let response = match upstream.spec.protocol {
        Protocol::Http1 => {
            let handshake = http1::handshake(io).await.map_err(io::Error::other)?;
            let (mut sender, connection) = handshake;
            with_connection(sender.send_request(request(path.to_owned())?), connection).await
        }
        Protocol::Http2 => {
            let handshake = http2::handshake(TokioExecutor::new(), io).await;
            let (mut sender, connection) = handshake.map_err(io::Error::other)?;
            let scheme = if server.spec.tls { "https" } else { "http" };
            let uri = format!("{scheme}://{}{path}", server.authority());
            let mut request = request(uri)?;
            request.headers_mut().remove(HOST);
            with_connection(sender.send_request(request), connection).await
        }
    };
    let status = response.map_err(io::Error::other)?.status();
    Ok(status.is_success() || status.is_redirection())
}

/// The output of `response` over a connection that has to be driven meanwhile.
///
/// A server may close the connection with its response, so both can be ready at once. Then `response` has the result.
async fn with_connection<T>(response: impl Future<Output = T>, connection: impl Future) -> T {
    let mut response = pin!(response);
    tokio::select! {
        output = &mut response => output,
        _ = connection => response.await,
    }
}
