//! Looks at servers, so that no request has to.
//!
//! A server with a [`HealthSpec`] is asked for its path again and again, up or not. One without is looked
//! at only while it is out, and only whether it takes a connection.

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
use tollgate_config::{HealthSpec, Protocol};

use super::stream::connect;
use super::upstream::{Upstream, now_ms};
use super::{Server, Way};

/// How often it is seen whom to look at.
const TICK: Duration = Duration::from_millis(100);
/// How long a connection may take that is made to see whether a server is back.
const PATIENCE: Duration = Duration::from_secs(1);

/// Looks at servers until `stop`.
pub(crate) async fn watch_servers(way: Arc<ArcSwap<Way>>, stop: impl Future<Output = ()>) {
    let mut stop = pin!(stop);
    // When each was last asked, by where it is in memory: the servers of a policy stay while it does.
    let mut asked: HashMap<usize, u64> = HashMap::new();
    loop {
        tokio::select! {
            () = &mut stop => return,
            () = tokio::time::sleep(TICK) => {}
        }
        let now = now_ms();
        let mut seen = HashMap::new();
        for upstream in way.load().upstreams.iter() {
            for server in &upstream.servers {
                match &upstream.spec.health {
                    Some(health) => {
                        let name = Arc::as_ptr(server).addr();
                        let every = Duration::from(health.every).as_millis();
                        let every = u64::try_from(every).unwrap_or(u64::MAX);
                        let last = asked.get(&name).copied();
                        if last.is_none_or(|last| now.saturating_sub(last) >= every) {
                            seen.insert(name, now);
                            tokio::spawn(ask(
                                Arc::clone(upstream),
                                Arc::clone(server),
                                health.clone(),
                            ));
                        } else {
                            seen.insert(name, last.unwrap_or(now));
                        }
                    }
                    None if server.is_due(now) => {
                        server.look_again(now);
                        let server = Arc::clone(server);
                        tokio::spawn(async move {
                            if let Ok(Ok(_)) = timeout(PATIENCE, connect(&server)).await {
                                server.bring_back();
                            }
                        });
                    }
                    None => {}
                }
            }
        }
        asked = seen;
    }
}

async fn ask(upstream: Arc<Upstream>, server: Arc<Server>, health: HealthSpec) {
    let asking = answer(&upstream, &server, &health.path);
    match timeout(health.timeout.into(), asking).await {
        Ok(Ok(true)) => server.looked_well(&health, now_ms()),
        _ => server.looked_ill(&health),
    }
}

/// Is it answered, and well?
async fn answer(upstream: &Upstream, server: &Server, path: &str) -> io::Result<bool> {
    let io = TokioIo::new(connect(server).await?);
    let request = |uri: String| {
        Request::get(uri.parse::<Uri>().map_err(io::Error::other)?)
            .header(HOST, server.authority())
            .header(USER_AGENT, "tollgate")
            .body(Empty::<Bytes>::new())
            .map_err(io::Error::other)
    };
    let answer = match upstream.spec.protocol {
        Protocol::Http1 => {
            let shaken = http1::handshake(io).await.map_err(io::Error::other)?;
            let (mut sender, connection) = shaken;
            first(sender.send_request(request(path.to_owned())?), connection).await
        }
        Protocol::Http2 => {
            let shaken = http2::handshake(TokioExecutor::new(), io).await;
            let (mut sender, connection) = shaken.map_err(io::Error::other)?;
            let scheme = if server.spec.tls { "https" } else { "http" };
            let uri = format!("{scheme}://{}{path}", server.authority());
            let mut request = request(uri)?;
            request.headers_mut().remove(HOST);
            first(sender.send_request(request), connection).await
        }
    };
    let status = answer.map_err(io::Error::other)?.status();
    Ok(status.is_success() || status.is_redirection())
}

/// What is waited for, over a connection that has to be driven meanwhile.
///
/// A server may end the connection with its answer, so that both are there at once: an end alone says
/// nothing. What was waited for then has the answer, or the reason why there is none.
async fn first<T>(waited: impl Future<Output = T>, connection: impl Future) -> T {
    let mut waited = pin!(waited);
    tokio::select! {
        answer = &mut waited => answer,
        _ = connection => waited.await,
    }
}
