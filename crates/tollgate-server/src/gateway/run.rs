//! Starts the gateway: its settings, the errors of a start, and its parts.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::watch;
use tollgate_config::{GatewaySpec, UpstreamSpec};
use tollgate_policy::Policy;
use tollgate_tower::{LimitLayer, QueueLayer};
use tower_layer::Layer;

use super::Stack;
use super::client::{self, ListenerState};
use super::metrics::Observations;
use super::proxy::{Proxy, RoutingTable, UpstreamError, Upstreams, watch_servers};
use super::tls::{CertificateFiles, TlsError, server_config};
use crate::engine::{Commit, Engine, EngineSettings, EngineSource, PolicyListener, Protocol};
use crate::metrics::Striped;
use crate::net::limiter::ConnectionLimiter;
use crate::net::stopped;
use crate::run::{AdminBind, RunError, bind, local_address, until};
use crate::supervisor::{AdminListener, Supervisor, thread_count};

/// Default port for clients.
pub const GATEWAY_PORT: u16 = 8000;

/// The policy without a file: enough for ordinary use, not for a flood.
pub const POLICY: &str = include_str!("policy.yaml");

/// Settings of the gateway.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// The policy and the state.
    pub engine: EngineSettings,
    /// Upstreams that replace those of the policy. Empty: those of the policy.
    pub upstreams: Vec<UpstreamSpec>,
    /// Address for clients.
    pub listen: SocketAddr,
    /// Certificate and key; `None`: no TLS.
    pub tls: Option<CertificateFiles>,
    /// Admin port; `None`: not served.
    pub admin: Option<AdminBind>,
    /// Serving threads. `None`: one for each processor.
    pub threads: Option<usize>,
    /// Logs each request, and lets logged refusals show method, path and client address.
    pub access_log: bool,
}

/// Addresses of a started gateway.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GatewayStarted {
    /// Address for clients.
    pub listen: SocketAddr,
    /// Address of the admin port.
    pub admin: Option<SocketAddr>,
    /// The token that was generated because none was given.
    pub generated_token: Option<String>,
    /// The engine, for use in the same process.
    pub engine: Arc<Engine>,
    /// Statistics of the upstreams.
    pub observed: Observations,
}

/// Why a gateway does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum GatewayError {
    /// An error that any server may have.
    Run(RunError),
    /// An upstream is invalid.
    Upstream(UpstreamError),
    /// The certificate or the key is invalid.
    Tls(TlsError),
    /// No upstream is configured.
    NoUpstream,
}

impl fmt::Display for GatewayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(error) => error.fmt(f),
            Self::Upstream(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::NoUpstream => f.write_str(
                "no upstream is configured\nhint: give `--upstream http://127.0.0.1:3000`, or set `gateway.upstreams` in the policy",
            ),
        }
    }
}

impl std::error::Error for GatewayError {}

impl From<RunError> for GatewayError {
    fn from(error: RunError) -> GatewayError {
        GatewayError::Run(error)
    }
}

/// The routing table of a policy. `given` upstreams replace those of the policy.
fn routing_table(
    policy: &Policy,
    gateway: &GatewaySpec,
    given: &[UpstreamSpec],
    threads: usize,
    before: &Upstreams,
) -> Result<RoutingTable, GatewayError> {
    let GatewaySpec {
        upstreams,
        timeouts,
        max_body,
        ..
    } = gateway;
    let specs = if given.is_empty() { upstreams } else { given };
    if specs.is_empty() {
        return Err(GatewayError::NoUpstream);
    }
    let upstreams = Upstreams::new(specs, policy.paths, threads, before);
    Ok(RoutingTable {
        upstreams: upstreams.map_err(GatewayError::Upstream)?,
        max_body: *max_body,
        body_idle: timeouts.body.into(),
        proxies: policy.proxies.clone(),
    })
}

/// Runs the gateway until `stop`, then ends it in order.
///
/// # Errors
/// What keeps it from starting. There are none after `started` was called.
pub async fn run(
    settings: GatewaySettings,
    started: impl FnOnce(&GatewayStarted),
    stop: impl Future<Output = ()>,
) -> Result<(), GatewayError> {
    let GatewaySettings {
        engine,
        upstreams: given,
        listen,
        tls,
        admin,
        threads,
        access_log,
    } = settings;
    let admin = AdminListener::new(admin)?;
    let generated_token = admin.generated_token.clone();
    let count = thread_count(threads);
    let start = move || {
        let engine = Engine::start(engine).map_err(RunError::Start)?;
        let config = tls.as_ref().map(server_config).transpose();
        let config = config.map_err(GatewayError::Tls)?;
        let active = engine.active();
        let (policy, gateway) = (active.gate.policy(), &active.gateway);
        let routes = routing_table(policy, gateway, &given, count, &Upstreams::default())?;
        drop(active);
        Ok::<_, GatewayError>((engine, config, routes, given, tls))
    };
    let parts = tokio::task::spawn_blocking(start).await;
    let (engine, config, routes, given, tls) = parts.map_err(|_| RunError::Broken)??;
    engine.wait_for_store().await;
    let listener = bind("gateway", listen).await?;
    let mut supervisor = Supervisor::start(Arc::clone(&engine), admin, threads).await?;
    if access_log {
        engine.log_requests();
    }
    let active = engine.active_owned();
    let trusted = active.gate.policy().proxies.trusted.clone();
    let listening = Arc::new(ListenerState {
        limiter: ArcSwap::from_pointee(ConnectionLimiter::new(&active.gateway.accept, trusted)),
        timeouts: ArcSwap::from_pointee(active.gateway.timeouts),
        tls: ArcSwapOption::from(config),
        routes: Arc::new(ArcSwap::from_pointee(routes)),
        rejected: Striped::default(),
        access_log: access_log.then(|| Arc::clone(&engine)),
    });
    let routes = &listening.routes;
    engine.add_collector(Arc::clone(&listening) as _);
    engine.set_listener(Arc::new(GatewayReload {
        listening: Arc::clone(&listening),
        given,
        threads: count,
    }));
    engine.watch_backends(Arc::new(Observations::new(Arc::clone(routes))));

    supervisor.spawn(watch_servers(Arc::clone(routes), until(supervisor.ended())));
    #[cfg(unix)]
    if let Some(files) = tls {
        let (listening, ended) = (Arc::clone(&listening), supervisor.ended().clone());
        supervisor.spawn(reload_certificate_on_hangup(files, listening, ended));
    }
    let addresses = GatewayStarted {
        listen: local_address(&listener, "gateway")?,
        admin: supervisor.admin_address()?,
        generated_token,
        engine: Arc::clone(&engine),
        observed: Observations::new(Arc::clone(routes)),
    };
    // Each client may need a connection to an upstream.
    let connections = supervisor.connections("gateway", 2, active.gateway.accept.connections);
    let wait_header = active.gateway.wait_header;
    drop(active);
    // One for all threads: a slot of a leaky bucket is waited for on any of them.
    engine.set_served(Protocol::Gateway);
    let source = EngineSource::new(engine, Protocol::Gateway);
    let ended = supervisor.ended().clone();
    supervisor.serve_on("gateway", listener, |thread| {
        let queues = QueueLayer::new(source.clone()).with_wait_header(wait_header);
        let proxy = Proxy::new(Arc::clone(&listening.routes), thread);
        let stack: Stack = LimitLayer::new(source.clone()).layer(queues.layer(proxy));
        let (listening, stop) = (Arc::clone(&listening), ended.clone());
        async move |listener| client::serve(listener, connections, listening, stack, stop).await
    })?;
    supervisor.run(|| started(&addresses), stop).await;
    Ok(())
}

/// Applies a new policy to the gateway.
#[derive(Debug)]
struct GatewayReload {
    listening: Arc<ListenerState>,
    given: Vec<UpstreamSpec>,
    threads: usize,
}

impl PolicyListener for GatewayReload {
    fn prepare(&self, policy: &Policy, gateway: &GatewaySpec) -> Result<Commit, String> {
        let listening = Arc::clone(&self.listening);
        let before = listening.routes.load();
        let routes = routing_table(
            policy,
            gateway,
            &self.given,
            self.threads,
            &before.upstreams,
        );
        let routes = Arc::new(routes.map_err(|error| error.to_string())?);
        let trusted = policy.proxies.trusted.clone();
        let limiter = listening.limiter.load().with_spec(&gateway.accept, trusted);
        let (limiter, timeouts) = (Arc::new(limiter), Arc::new(gateway.timeouts));
        drop(before);
        Ok(Box::new(move || {
            listening.limiter.store(limiter);
            listening.timeouts.store(timeouts);
            listening.routes.store(routes);
        }))
    }
}

/// Reads the certificate again at each SIGHUP; an invalid one changes nothing.
#[cfg(unix)]
async fn reload_certificate_on_hangup(
    files: CertificateFiles,
    listening: Arc<ListenerState>,
    mut ended: watch::Receiver<bool>,
) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut hangups) = signal(SignalKind::hangup()) else {
        return;
    };
    loop {
        tokio::select! {
            () = stopped(&mut ended) => return,
            signal = hangups.recv() => if signal.is_none() { return },
        }
        match server_config(&files) {
            Ok(config) => {
                listening.tls.store(Some(config));
                tracing::info!(target: "tollgate::gateway", "certificate reloaded");
            }
            Err(error) => tracing::error!(
                target: "tollgate::gateway",
                "certificate not reloaded, the previous one stays in use: {error}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_built_in_policy_has_no_warnings() {
        let loaded = tollgate_config::parse("built-in", super::POLICY.as_bytes()).unwrap();
        assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
        assert_eq!(loaded.policy.queues.len(), 1);
    }
}
