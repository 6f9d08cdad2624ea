//! The front end for Redis clients: limits without a new library, in any language.
//!
//! # Theory
//!
//! There are two kinds of commands about limits. `throttle`: the caller sends its own limits, as users of redis-cell do.
//! They have a table apart from the limits of the policy, and can be switched off. `policy_commands`: the same decisions
//! as over HTTP, by the same code. `session` has what client libraries send when they connect.
//!
//! A connection stays on the thread that accepted it (`connection`). What arrives in one read is answered in one write.
//!
//! # Trust
//!
//! The listener is off until an address is given. On an address that is not loopback a password is required. A client
//! chooses keys, and limits unless that is switched off: the front end is for trusted programs, not for the public.
//!
//! | file | content |
//! |---|---|
//! | `codec` | parser of commands |
//! | `reply`, `serialize` | writer of replies |
//! | `session`, `password` | connection set-up, authentication |
//! | `introspection` | `COMMAND`, `CONFIG`, `INFO` |
//! | `transaction` | `MULTI` … `EXEC` |
//! | `throttle`, `repeat_cache` | `CL.THROTTLE`, `THROTTLE` |
//! | `policy_commands` | `TOLLGATE.CHECK`, `.PEEK`, `.SETTLE`, `.EXPLAIN` |
//! | `connection`, `output` | reads, replies, writes; unsent output and its bounds |

mod codec;
pub(crate) mod connection;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod introspection;
mod output;
mod password;
mod policy_commands;
mod repeat_cache;
mod reply;
mod serialize;
mod session;
mod throttle;
mod transaction;

pub use password::PasswordError;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tollgate::{Limit, LimitError, Rate, Throttle, UnkeyedLimiter};

use crate::engine::{EngineSource, Protocol};
use crate::http::HttpApi;
use crate::metrics::{Collector, Exposition, Kind, Striped};
use crate::net::{Accepted, ListenLimits, admit_all, serve_connections};
use output::OutputBudget;
use password::Password;

/// The default port for Redis clients.
pub const RESP_PORT: u16 = 6390;
/// The default number of keys with limits of the caller.
pub const RESP_KEYS: usize = 1_000_000;

/// The listener for Redis clients.
#[derive(Clone)]
pub struct RespBind {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The password of clients. Required unless the address is loopback.
    pub password: Option<String>,
    /// Live keys with limits of the caller. `None`: callers may not send limits.
    pub keys: Option<usize>,
}

impl fmt::Debug for RespBind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RespBind")
            .field("address", &self.address)
            .field("password", &self.password.is_some())
            .field("keys", &self.keys)
            .finish()
    }
}

/// Why the listener for Redis clients cannot start.
#[derive(Debug)]
#[non_exhaustive]
pub enum RespError {
    /// The address is not loopback, and there is no password.
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// The password cannot be used.
    Password(PasswordError),
    /// There is no memory for as many keys.
    Keys(LimitError),
}

impl fmt::Display for RespError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { address } => write!(
                f,
                "the port for Redis clients would be open to the network on {address} without a password\n\
                 hint: give one with --resp-password-file (make it with `openssl rand -hex 16`), or listen on 127.0.0.1"
            ),
            Self::Password(error) => error.fmt(f),
            Self::Keys(error) => write!(
                f,
                "the keys of Redis clients: {error}\nhint: {}",
                error.hint()
            ),
        }
    }
}

impl std::error::Error for RespError {}

/// A validated configuration, before anything listens.
#[derive(Debug)]
pub(crate) struct RespConfig {
    /// The address to listen on.
    pub(crate) address: SocketAddr,
    password: Option<Password>,
    throttle: Option<Throttle>,
}

impl RespConfig {
    /// Validates the settings.
    pub(crate) fn new(bind: &RespBind) -> Result<RespConfig, RespError> {
        let password = bind.password.as_deref().map(Password::new).transpose();
        let password = password.map_err(RespError::Password)?;
        if password.is_none() && !bind.address.ip().to_canonical().is_loopback() {
            return Err(RespError::Open {
                address: bind.address,
            });
        }
        let throttle = bind.keys.map(Throttle::new).transpose();
        Ok(RespConfig {
            address: bind.address,
            password,
            throttle: throttle.map_err(RespError::Keys)?,
        })
    }

    /// The front end that decides by `service`.
    pub(crate) fn build(self, service: HttpApi) -> RespService {
        let log_limit = Limit::token_bucket(Rate::per_second(NonZeroU64::MIN), 1).ok();
        RespService(Arc::new(Shared {
            source: {
                service.engine().set_served(Protocol::Resp);
                EngineSource::new(Arc::clone(service.engine()), Protocol::Resp)
            },
            service,
            password: self.password,
            throttle: self.throttle,
            counters: ThrottleCounters::default(),
            output_budget: OutputBudget::default(),
            ids: AtomicU64::new(1),
            log_lines: log_limit.and_then(|limit| UnkeyedLimiter::new(limit).ok()),
        }))
    }
}

/// The front end. Clones share its state, so each thread serves one.
#[derive(Clone, Debug)]
pub(crate) struct RespService(Arc<Shared>);

/// What all connections share.
struct Shared {
    service: HttpApi,
    /// The engine for policy commands.
    source: EngineSource,
    password: Option<Password>,
    throttle: Option<Throttle>,
    counters: ThrottleCounters,
    output_budget: OutputBudget,
    ids: AtomicU64,
    log_lines: Option<UnkeyedLimiter>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

/// Redis clients keep pools of idle connections; other limits are the common ones.
fn limits() -> ListenLimits {
    ListenLimits {
        head: Duration::from_secs(10),
        idle: Duration::from_secs(600),
        ..ListenLimits::default()
    }
}

impl RespService {
    /// Serves `listener` until the shutdown signal, with at most this many connections at once.
    pub(crate) async fn serve(
        self,
        listener: TcpListener,
        connections: usize,
        stop: watch::Receiver<bool>,
    ) {
        let limits = ListenLimits {
            connections,
            ..limits()
        };
        self.serve_within(listener, limits, stop).await;
    }

    async fn serve_within(
        self,
        listener: TcpListener,
        limits: ListenLimits,
        stop: watch::Receiver<bool>,
    ) {
        serve_connections(
            listener,
            || limits,
            admit_all,
            stop,
            |accepted| {
                let Accepted {
                    stream,
                    peer,
                    state,
                } = accepted;
                connection::serve(stream, peer, state, Arc::clone(&self.0))
            },
        )
        .await;
    }

    /// Its metrics.
    pub(crate) fn collector(&self) -> Arc<dyn Collector> {
        Arc::clone(&self.0) as Arc<dyn Collector>
    }
}

impl Shared {
    fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Relaxed)
    }

    /// Logs that a client spoke HTTP, at most once a second.
    fn log_http(&self, peer: IpAddr) {
        let log_lines = self.log_lines.as_ref();
        if log_lines.is_some_and(|lines| lines.check().is_admitted()) {
            tracing::warn!(
                target: "tollgate::resp",
                %peer,
                "HTTP request on the port for Redis clients; connection closed"
            );
        }
    }

    /// The section `Tollgate` of `INFO`.
    fn info(&self) -> String {
        let [passed, refused, failed] = self.counters.sums();
        let overflow = self.throttle.as_ref().map_or(0, Throttle::overflowed);
        format!(
            "throttle_pass:{passed}\r\nthrottle_refuse:{refused}\r\nthrottle_error:{failed}\r\n\
             throttle_overflow:{overflow}\r\n"
        )
    }
}

/// Counts of calls with limits of the caller: passed, refused, failed.
#[derive(Debug, Default)]
struct ThrottleCounters(Striped<3>);

impl ThrottleCounters {
    fn add(&self, counts: [u64; 3]) {
        for (at, count) in counts.into_iter().enumerate() {
            if count > 0 {
                self.0.add(at, count);
            }
        }
    }

    fn sums(&self) -> [u64; 3] {
        [0, 1, 2].map(|at| self.0.sum(at))
    }
}

impl Collector for Shared {
    fn collect(&self, out: &mut Exposition) {
        if let Some(password) = &self.password {
            let reasons = ["wrong-password", "rate-limited"].into_iter();
            out.family(
                "tollgate_resp_auth_failures_total",
                Kind::Counter,
                "Failed authentications of Redis clients, by reason.",
                reasons
                    .map(|reason| [("reason", reason)])
                    .zip(password.failures()),
            );
        }
        let Some(throttle) = &self.throttle else {
            return;
        };
        let verdicts = ["pass", "refuse", "error"].into_iter();
        out.family(
            "tollgate_throttle_decisions_total",
            Kind::Counter,
            "Calls of Redis clients with limits of their own, by verdict.",
            verdicts
                .map(|verdict| [("verdict", verdict)])
                .zip(self.counters.sums()),
        );
        out.value(
            "tollgate_throttle_keys",
            Kind::Gauge,
            "Live keys with limits of the caller.",
            throttle.live_keys() as u64,
        );
        out.value(
            "tollgate_throttle_overflow_decisions_total",
            Kind::Counter,
            "Calls decided on a shared quota because the table was full.",
            throttle.overflowed(),
        );
    }
}

#[cfg(test)]
mod tests;
