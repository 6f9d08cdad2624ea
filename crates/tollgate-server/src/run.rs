//! Starts the service: its settings, the errors of a start, and its ports.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::admin::TokenError;
use crate::engine::{Engine, EngineSettings, PolicyOrigin, ReloadCause, StartError};
use crate::http::HttpApi;
use crate::net::{ListenLimits, stopped};
use crate::resp::{RespBind, RespConfig, RespError};
use crate::rls;
use crate::supervisor::{AdminListener, Supervisor};

/// Settings of the service.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// The policy and the state.
    pub engine: EngineSettings,
    /// Address of the HTTP API.
    pub http: SocketAddr,
    /// Address of the rate limit service for Envoy; `None`: not served.
    pub rls: Option<SocketAddr>,
    /// Admin port; `None`: not served.
    pub admin: Option<AdminBind>,
    /// Port of the Redis protocol; `None`: not served.
    pub resp: Option<RespBind>,
    /// Threads that serve each port. `None`: one for each processor.
    pub threads: Option<usize>,
    /// Lets logged refusals show method, path and client address.
    pub access_log: bool,
}

/// Address and access of the admin port.
#[derive(Clone)]
pub struct AdminBind {
    /// The address to listen on.
    pub address: SocketAddr,
    /// Valid tokens, one or two. Without any, one is generated if the address is loopback.
    pub tokens: Vec<String>,
    /// Further host names of the port, beside those of loopback and its address.
    pub hosts: Vec<String>,
}

impl fmt::Debug for AdminBind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminBind")
            .field("address", &self.address)
            .field("tokens", &self.tokens.len())
            .field("hosts", &self.hosts)
            .finish()
    }
}

/// Default port of the HTTP API.
pub const HTTP_PORT: u16 = 8080;
/// Default admin port of the service. Not 9090, which is the port of Prometheus.
pub const ADMIN_PORT: u16 = 9070;

impl Default for ServerSettings {
    /// The built-in example policy on loopback, without a state file.
    fn default() -> ServerSettings {
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        ServerSettings {
            engine: EngineSettings {
                source: PolicyOrigin::built_in(),
                state: None,
                open_store: None,
            },
            http: loopback(HTTP_PORT),
            rls: None,
            admin: Some(AdminBind {
                address: loopback(ADMIN_PORT),
                tokens: Vec::new(),
                hosts: Vec::new(),
            }),
            resp: None,
            threads: None,
            access_log: false,
        }
    }
}

/// Addresses of a started service.
#[derive(Clone)]
#[non_exhaustive]
pub struct Started {
    /// Address of the HTTP API.
    pub http: SocketAddr,
    /// Address of the rate limit service for Envoy.
    pub rls: Option<SocketAddr>,
    /// Address of the admin port.
    pub admin: Option<SocketAddr>,
    /// Address of the Redis protocol.
    pub resp: Option<SocketAddr>,
    /// The token that was generated because none was given.
    pub generated_token: Option<String>,
    /// The engine, for use in the same process.
    pub engine: Arc<Engine>,
}

impl fmt::Debug for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Started")
            .field("http", &self.http)
            .field("rls", &self.rls)
            .field("admin", &self.admin)
            .field("resp", &self.resp)
            .field("generated_token", &self.generated_token.is_some())
            .finish_non_exhaustive()
    }
}

/// Why a server does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// The policy or the state file is invalid.
    Start(StartError),
    /// A port cannot be opened.
    Bind {
        /// The protocol.
        port: &'static str,
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        cause: io::Error,
    },
    /// A token is invalid.
    Token(TokenError),
    /// The admin port would be open to a network without a token.
    AdminOpen {
        /// The address.
        address: SocketAddr,
    },
    /// The settings of the Redis protocol are invalid.
    Resp(RespError),
    /// A thread of the server panicked.
    Broken,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => error.fmt(f),
            Self::Bind {
                port,
                address,
                cause,
            } => {
                write!(f, "cannot listen on {address} for {port}: {cause}\nhint: ")?;
                f.write_str(match cause.kind() {
                    io::ErrorKind::AddrInUse => {
                        "stop the process that listens there, or choose another port"
                    }
                    io::ErrorKind::PermissionDenied => "choose a port above 1023",
                    _ => "choose an address of this machine",
                })
            }
            Self::Token(error) => error.fmt(f),
            Self::AdminOpen { address } => write!(
                f,
                "the admin port would be open to the network on {address} without a token\n\
                 hint: give a token (make one with `openssl rand -hex 16`), or listen on 127.0.0.1"
            ),
            Self::Resp(error) => error.fmt(f),
            Self::Broken => f.write_str("the server failed while starting\nhint: see the log"),
        }
    }
}

impl std::error::Error for RunError {}

/// Runs the service until `stop`, then ends it in order.
///
/// # Errors
/// What keeps it from starting. There are none after `started` was called.
pub async fn run(
    settings: ServerSettings,
    started: impl FnOnce(&Started),
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let ServerSettings {
        engine,
        http,
        rls,
        admin,
        resp,
        threads,
        access_log,
    } = settings;
    let admin = AdminListener::new(admin)?;
    let resp = resp.as_ref().map(RespConfig::new).transpose();
    let resp = resp.map_err(RunError::Resp)?;
    let generated_token = admin.generated_token.clone();
    let engine = tokio::task::spawn_blocking(|| Engine::start(engine)).await;
    let engine = engine.map_err(|_| RunError::Broken)?;
    let engine = engine.map_err(RunError::Start)?;
    if access_log {
        engine.log_requests();
    }
    engine.wait_for_store().await;
    let http = bind("http", http).await?;
    let rls = match rls {
        Some(address) => Some(bind("rls", address).await?),
        None => None,
    };
    let resp = match resp {
        Some(settings) => Some((bind("resp", settings.address).await?, settings)),
        None => None,
    };
    let resp_address = resp
        .as_ref()
        .map(|(listener, _)| local_address(listener, "resp"));
    let mut supervisor = Supervisor::start(Arc::clone(&engine), admin, threads).await?;
    let addresses = Started {
        http: local_address(&http, "http")?,
        rls: rls
            .as_ref()
            .map(|listener| local_address(listener, "rls"))
            .transpose()?,
        admin: supervisor.admin_address()?,
        resp: resp_address.transpose()?,
        generated_token,
        engine: Arc::clone(&engine),
    };
    let ports = 1 + usize::from(rls.is_some()) + usize::from(resp.is_some());
    let wanted = ListenLimits::default().connections;
    let connections = supervisor.connections("service", ports, wanted);
    if let Some(rls) = rls {
        let service = rls::RlsService::new(Arc::clone(&engine), supervisor.ended().clone());
        supervisor.serve_on("rls", rls, |_| {
            let service = service.clone();
            async move |listener| service.serve(listener, connections).await
        })?;
    }
    let service = HttpApi::new(Arc::clone(&engine), supervisor.ended().clone());
    supervisor.serve_on("http", http, |_| {
        let service = service.clone();
        async move |listener| service.serve(listener, connections).await
    })?;
    if let Some((listener, settings)) = resp {
        let resp = settings.build(service);
        engine.add_collector(resp.collector());
        let ended = supervisor.ended().clone();
        supervisor.serve_on("resp", listener, |_| {
            let (resp, ended) = (resp.clone(), ended.clone());
            async move |listener| resp.serve(listener, connections, ended).await
        })?;
    }
    supervisor.run(|| started(&addresses), stop).await;
    Ok(())
}

pub(crate) async fn bind(port: &'static str, address: SocketAddr) -> Result<TcpListener, RunError> {
    let failed = |cause| RunError::Bind {
        port,
        address,
        cause,
    };
    TcpListener::bind(address).await.map_err(failed)
}

pub(crate) fn local_address(
    listener: &TcpListener,
    port: &'static str,
) -> Result<SocketAddr, RunError> {
    listener.local_addr().map_err(|cause| RunError::Bind {
        port,
        address: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        cause,
    })
}

pub(crate) fn until(ended: &watch::Receiver<bool>) -> impl Future<Output = ()> + Send + 'static {
    let mut ended = ended.clone();
    async move { stopped(&mut ended).await }
}

/// Reloads the policy at each SIGHUP. Registers the handler at once, because without one the signal ends the process.
#[cfg(unix)]
pub(crate) fn reload_on_hangup(
    engine: Arc<Engine>,
    mut ended: watch::Receiver<bool>,
) -> impl Future<Output = ()> + Send + 'static {
    use tokio::signal::unix::{SignalKind, signal};
    let hangups = signal(SignalKind::hangup()).inspect_err(|error| {
        tracing::warn!(%error, "cannot handle SIGHUP; the policy file is still watched");
    });
    async move {
        let Ok(mut hangups) = hangups else {
            return;
        };
        loop {
            tokio::select! {
                () = stopped(&mut ended) => return,
                signal = hangups.recv() => if signal.is_none() { return },
            }
            let engine = Arc::clone(&engine);
            // The engine logs the result.
            let _ = tokio::task::spawn_blocking(move || engine.reload(ReloadCause::Signal).is_ok())
                .await;
        }
    }
}
