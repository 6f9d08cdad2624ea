//! The gateway put together: its settings, what can keep it from starting, and its door for clients.

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
use super::listen::{self, Door, Doorkeeper};
use super::proxy::{Proxy, UpstreamError, Upstreams, Way, watch_servers};
use super::tls::{TlsError, TlsFiles, server_config};
use super::told::Observations;
use crate::engine::{Engine, EngineSettings, EngineSource, Follower, Follows};
use crate::house::{AdminDoor, House, threads as threads_of};
use crate::listen::stopped;
use crate::metrics::Striped;
use crate::run::{AdminBind, RunError, bind, local_address, until};

/// The port for clients, unless told otherwise.
pub const GATEWAY_PORT: u16 = 8000;

/// The policy of a gateway that was given none: enough for people, not for a flood.
pub const POLICY: &str = include_str!("policy.yaml");

/// What a gateway needs to run.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// The policy and the state.
    pub engine: EngineSettings,
    /// Where requests go, in the place of what the policy says. Empty: as the policy says.
    pub upstreams: Vec<UpstreamSpec>,
    /// Where clients connect.
    pub listen: SocketAddr,
    /// What clients are shown, if they speak TLS.
    pub tls: Option<TlsFiles>,
    /// Where operators ask, if they can.
    pub admin: Option<AdminBind>,
    /// Threads that serve. None: as many as there are processors.
    pub threads: Option<usize>,
}

/// What whoever started a gateway may want to know.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GatewayStarted {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where operators ask.
    pub admin: Option<SocketAddr>,
    /// The token that was made up because none was given.
    pub generated_token: Option<String>,
    /// The engine, for whoever runs in the same process.
    pub engine: Arc<Engine>,
    /// What is seen of the upstreams.
    pub observed: Observations,
}

/// Why a gateway does not run.
#[derive(Debug)]
#[non_exhaustive]
pub enum GatewayError {
    /// For a reason that any server may have.
    Run(RunError),
    /// Because of an upstream.
    Upstream(UpstreamError),
    /// Because of the certificate.
    Tls(TlsError),
    /// Nobody said where requests go.
    NoUpstream,
}

impl fmt::Display for GatewayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(error) => error.fmt(f),
            Self::Upstream(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::NoUpstream => f.write_str(
                "nobody said where requests go\nhint: give `--upstream http://127.0.0.1:3000`, or name `upstreams` in the `gateway` of the policy",
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

/// How requests are passed on under this policy.
fn way(
    policy: &Policy,
    gateway: &GatewaySpec,
    given: &[UpstreamSpec],
    threads: usize,
    before: &Upstreams,
) -> Result<Way, GatewayError> {
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
    Ok(Way {
        upstreams: upstreams.map_err(GatewayError::Upstream)?,
        max_body: *max_body,
        body_idle: timeouts.body.into(),
        proxies: policy.proxies.clone(),
    })
}

/// Runs a gateway until `stop`, then ends it in order.
///
/// # Errors
/// What keeps it from starting; once `started` was called there are none.
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
    } = settings;
    let admin = AdminDoor::of(admin)?;
    let generated_token = admin.generated_token.clone();
    let threads = threads_of(threads);
    let starting = move || {
        let engine = Engine::start(engine).map_err(RunError::Start)?;
        let config = tls.as_ref().map(server_config).transpose();
        let config = config.map_err(GatewayError::Tls)?;
        let epoch = engine.epoch();
        let (policy, gateway) = (epoch.gate.policy(), &epoch.gateway);
        let way = way(policy, gateway, &given, threads, &Upstreams::default())?;
        drop(epoch);
        Ok::<_, GatewayError>((engine, config, way, given, tls))
    };
    let began = tokio::task::spawn_blocking(starting).await;
    let (engine, config, way, given, tls) = began.map_err(|_| RunError::Broken)??;
    engine.wait_for_store().await;
    let listener = bind("clients", listen).await?;
    let mut house = House::of(Arc::clone(&engine), admin).await?;
    let epoch = engine.epoch_for_long();
    let trusted = epoch.gate.policy().proxies.trusted.clone();
    let door = Arc::new(Door {
        keeper: ArcSwap::from_pointee(Doorkeeper::new(&epoch.gateway.accept, trusted)),
        timeouts: ArcSwap::from_pointee(epoch.gateway.timeouts),
        tls: ArcSwapOption::from(config),
        way: Arc::new(ArcSwap::from_pointee(way)),
        turned_away: Striped::default(),
    });
    engine.add_collector(Arc::clone(&door) as _);
    engine.follow_by(Arc::new(FollowsPolicy {
        door: Arc::clone(&door),
        given,
        threads,
    }));
    engine.watch_backends(Arc::new(Observations::of(Arc::clone(&door.way))));

    house.also(watch_servers(Arc::clone(&door.way), until(house.ended())));
    #[cfg(unix)]
    if let Some(files) = tls {
        house.also(renew_on_hangup(
            files,
            Arc::clone(&door),
            house.ended().clone(),
        ));
    }
    let told = GatewayStarted {
        listen: local_address(&listener, "clients")?,
        admin: house.admin_address()?,
        generated_token,
        engine: Arc::clone(&engine),
        observed: Observations::of(Arc::clone(&door.way)),
    };
    let connections = epoch.gateway.accept.connections.div_ceil(threads);
    let tells_wait = epoch.gateway.tell_wait;
    drop(epoch);
    // One for all threads: who waits for a slot of a leaky bucket may wait on any of them.
    let front = EngineSource::new(engine, crate::engine::Protocol::Gateway);
    let ended = house.ended().clone();
    house.serve_on("clients", listener, threads, |number| {
        let queues = QueueLayer::new(front.clone()).with_wait_header(tells_wait);
        let proxy = Proxy::new(Arc::clone(&door.way), number);
        let stack: Stack = LimitLayer::new(front.clone()).layer(queues.layer(proxy));
        let (door, stop) = (Arc::clone(&door), ended.clone());
        async move |listener| listen::serve(listener, connections, door, stack, stop).await
    })?;
    house.run(|| started(&told), stop).await;
    Ok(())
}

/// Has the gateway follow the policy.
#[derive(Debug)]
struct FollowsPolicy {
    door: Arc<Door>,
    given: Vec<UpstreamSpec>,
    threads: usize,
}

impl Follower for FollowsPolicy {
    fn prepare(&self, policy: &Policy, gateway: &GatewaySpec) -> Result<Follows, String> {
        let door = Arc::clone(&self.door);
        let before = door.way.load();
        let next = way(
            policy,
            gateway,
            &self.given,
            self.threads,
            &before.upstreams,
        );
        let next = Arc::new(next.map_err(|error| error.to_string())?);
        let trusted = policy.proxies.trusted.clone();
        let keeper = door.keeper.load().changed(&gateway.accept, trusted);
        let (keeper, timeouts) = (Arc::new(keeper), Arc::new(gateway.timeouts));
        drop(before);
        Ok(Box::new(move || {
            door.keeper.store(keeper);
            door.timeouts.store(timeouts);
            door.way.store(next);
        }))
    }
}

/// Reads the certificate again at every hangup; a bad one changes nothing.
#[cfg(unix)]
async fn renew_on_hangup(files: TlsFiles, door: Arc<Door>, mut ended: watch::Receiver<bool>) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut hangups) = signal(SignalKind::hangup()) else {
        return;
    };
    loop {
        tokio::select! {
            () = stopped(&mut ended) => return,
            heard = hangups.recv() => if heard.is_none() { return },
        }
        match server_config(&files) {
            Ok(config) => {
                door.tls.store(Some(config));
                tracing::info!(target: "tollgate::gateway", "the certificate was read again");
            }
            Err(error) => tracing::error!(
                target: "tollgate::gateway",
                "the certificate stays as it was: {error}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_policy_of_a_gateway_without_one_is_clean() {
        let loaded = tollgate_config::parse("built-in", super::POLICY.as_bytes()).unwrap();
        assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
        assert_eq!(loaded.policy.queues.len(), 1);
    }
}
