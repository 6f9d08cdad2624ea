//! The service put together: its settings, what can keep it from starting, and its door for decisions.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::admin::{AdminSettings, TokenError, Tokens};
use crate::engine::{Engine, EngineSettings, PolicySource, StartError, Why};
use crate::house::{AdminDoor, House, threads as threads_of};
use crate::http::Service;
use crate::listen::stopped;
use crate::resp::{RespBind, RespConfig, RespError};
use crate::rls;

/// What a server needs to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The policy and the state.
    pub engine: EngineSettings,
    /// Where decisions are asked for.
    pub http: SocketAddr,
    /// Where Envoy asks its rate limit service, if it can.
    pub rls: Option<SocketAddr>,
    /// Where operators ask, if they can.
    pub admin: Option<AdminBind>,
    /// Where Redis clients ask, if they can.
    pub resp: Option<RespBind>,
    /// Threads that answer decisions. None: as many as there are processors.
    pub threads: Option<usize>,
}

/// Where operators ask, and who may.
#[derive(Clone)]
pub struct AdminBind {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The tokens that are valid, one or two. None: on loopback one is made up.
    pub tokens: Vec<String>,
    /// Names that the listener goes by, beside those of loopback and its address.
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

/// The port for decisions, unless told otherwise.
pub const HTTP_PORT: u16 = 8080;
/// The port for operators, unless told otherwise.
pub const ADMIN_PORT: u16 = 9090;

impl Default for Settings {
    /// The built-in example, on loopback, nothing kept.
    fn default() -> Settings {
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Settings {
            engine: EngineSettings {
                source: PolicySource::built_in(),
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
        }
    }
}

/// What whoever started a server may want to know.
#[derive(Clone)]
#[non_exhaustive]
pub struct Started {
    /// Where decisions are asked for.
    pub http: SocketAddr,
    /// Where Envoy asks its rate limit service.
    pub rls: Option<SocketAddr>,
    /// Where operators ask.
    pub admin: Option<SocketAddr>,
    /// Where Redis clients ask.
    pub resp: Option<SocketAddr>,
    /// The token that was made up because none was given.
    pub generated_token: Option<String>,
    /// The engine, for whoever runs in the same process.
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

/// Why a server does not run.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// The policy or the state cannot be used.
    Start(StartError),
    /// An address cannot be listened on.
    Bind {
        /// For what.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why not.
        cause: io::Error,
    },
    /// A token cannot be used.
    Token(TokenError),
    /// Operators' business would be open to a network without a token.
    AdminOpen {
        /// The address.
        address: SocketAddr,
    },
    /// The door for Redis clients cannot be opened.
    Resp(RespError),
    /// A thread of the server ended on its own.
    Broken,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => error.fmt(f),
            Self::Bind {
                what,
                address,
                cause,
            } => {
                write!(f, "cannot listen on {address} for {what}: {cause}\nhint: ")?;
                f.write_str(match cause.kind() {
                    io::ErrorKind::AddrInUse => "end what listens there, or name another port",
                    io::ErrorKind::PermissionDenied => "name a port above 1023",
                    _ => "name an address of this machine",
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

/// Runs a server until `stop`, then ends it in order.
///
/// # Errors
/// What keeps it from starting; once `started` was called there are none.
pub async fn run(
    settings: Settings,
    started: impl FnOnce(&Started),
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let Settings {
        engine,
        http,
        rls,
        admin,
        resp,
        threads,
    } = settings;
    let admin = AdminDoor::of(admin)?;
    let resp = resp.as_ref().map(RespConfig::new).transpose();
    let resp = resp.map_err(RunError::Resp)?;
    let generated_token = admin.generated_token.clone();
    let engine = tokio::task::spawn_blocking(|| Engine::start(engine)).await;
    let engine = engine.map_err(|_| RunError::Broken)?;
    let engine = engine.map_err(RunError::Start)?;
    engine.wait_for_store().await;
    let http = bind("decisions", http).await?;
    let rls = match rls {
        Some(address) => Some(bind("envoy", address).await?),
        None => None,
    };
    let resp = match resp {
        Some(door) => Some((bind("Redis clients", door.address).await?, door)),
        None => None,
    };
    let resp_address = resp
        .as_ref()
        .map(|(at, _)| local_address(at, "Redis clients"));
    let mut house = House::of(Arc::clone(&engine), admin).await?;
    let told = Started {
        http: local_address(&http, "decisions")?,
        rls: rls
            .as_ref()
            .map(|l| local_address(l, "envoy"))
            .transpose()?,
        admin: house.admin_address()?,
        resp: resp_address.transpose()?,
        generated_token,
        engine: Arc::clone(&engine),
    };
    let count = threads_of(threads);
    if let Some(rls) = rls {
        let service = rls::Service::new(Arc::clone(&engine), house.ended().clone());
        house.serve_on("envoy", rls, count, |_| {
            let service = service.clone();
            async move |listener| service.serve(listener, count).await
        })?;
    }
    let service = Service::new(Arc::clone(&engine), house.ended().clone());
    house.serve_on("decisions", http, count, |_| {
        let service = service.clone();
        async move |listener| service.serve(listener, count).await
    })?;
    if let Some((listener, door)) = resp {
        let door = door.build(service);
        engine.add_collector(door.collector());
        let ended = house.ended().clone();
        house.serve_on("resp", listener, count, |_| {
            let (door, ended) = (door.clone(), ended.clone());
            async move |listener| door.serve(listener, count, ended).await
        })?;
    }
    house.run(|| started(&told), stop).await;
    Ok(())
}

pub(crate) fn admin_of(
    bind: AdminBind,
) -> Result<(SocketAddr, AdminSettings, Option<String>), RunError> {
    let AdminBind {
        address,
        tokens,
        hosts,
    } = bind;
    let is_loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
    let (tokens, generated) = match tokens.is_empty() {
        false => (Tokens::new(&tokens).map_err(RunError::Token)?, None),
        true if is_loopback(address.ip()) => {
            let (tokens, text) = Tokens::generate().map_err(RunError::Token)?;
            (tokens, Some(text))
        }
        true => return Err(RunError::AdminOpen { address }),
    };
    Ok((address, AdminSettings { tokens, hosts }, generated))
}

pub(crate) async fn bind(what: &'static str, address: SocketAddr) -> Result<TcpListener, RunError> {
    let failed = |cause| RunError::Bind {
        what,
        address,
        cause,
    };
    TcpListener::bind(address).await.map_err(failed)
}

pub(crate) fn local_address(
    listener: &TcpListener,
    what: &'static str,
) -> Result<SocketAddr, RunError> {
    listener.local_addr().map_err(|cause| RunError::Bind {
        what,
        address: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        cause,
    })
}

pub(crate) fn until(ended: &watch::Receiver<bool>) -> impl Future<Output = ()> + Send + 'static {
    let mut ended = ended.clone();
    async move { stopped(&mut ended).await }
}

/// Begins to hear hangups at once, so that none ends the server once it has started.
#[cfg(unix)]
pub(crate) fn reload_on_hangup(
    engine: Arc<Engine>,
    mut ended: watch::Receiver<bool>,
) -> impl Future<Output = ()> + Send + 'static {
    use tokio::signal::unix::{SignalKind, signal};
    let hangups = signal(SignalKind::hangup()).inspect_err(|error| {
        tracing::warn!(%error, "SIGHUP cannot be heard; the policy file is watched all the same");
    });
    async move {
        let Ok(mut hangups) = hangups else {
            return;
        };
        loop {
            tokio::select! {
                () = stopped(&mut ended) => return,
                heard = hangups.recv() => if heard.is_none() { return },
            }
            let engine = Arc::clone(&engine);
            // What it comes to is told where it happens.
            let _ = tokio::task::spawn_blocking(move || engine.reload(Why::Signal).is_ok()).await;
        }
    }
}
