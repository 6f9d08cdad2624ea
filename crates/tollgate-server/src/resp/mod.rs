//! The door for Redis clients: limits without a new library, in any language.
//!
//! # Theory
//!
//! Two kinds of questions come in. `throttle`: the caller brings its own limits, as users of redis-cell do;
//! they have a table of their own, apart from all limits of the policy, and can be switched off. `by_policy`:
//! the same as over HTTP, decided by the same code. Around them stands what client libraries send before they
//! ask anything (`session`).
//!
//! A connection stays on the thread that accepted it (`connection`); what came in one read is answered in
//! one write.
//!
//! # Who may ask
//!
//! Nobody, until an address is given. On an address that is not loopback only who shows a password. Whoever
//! may ask chooses keys, and limits too unless that is switched off: the door is for programs that are
//! trusted, not for the public.
//!
//! # Files
//!
//! | file | what |
//! |---|---|
//! | `codec` | bytes to commands |
//! | `reply`, `serialize` | answers to bytes |
//! | `session` | what clients send when they connect |
//! | `about` | what the server tells about itself: `COMMAND`, `CONFIG`, `INFO` |
//! | `transaction` | `MULTI` … `EXEC` |
//! | `password` | who may come in |
//! | `throttle` | `CL.THROTTLE`, `THROTTLE` |
//! | `by_policy` | `TOLLGATE.CHECK`, `.PEEK`, `.SETTLE`, `.EXPLAIN` |
//! | `connection`, `answers`, `stock` | read, answer, write; what waits to be read, and how much may |

mod about;
mod answers;
mod by_policy;
mod codec;
pub(crate) mod connection;
mod password;
mod pattern;
mod reply;
mod serialize;
mod session;
mod stock;
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
use tollgate::{Limit, LimitError, Rate, Single, Throttle};

use crate::engine::{EngineSource, Protocol};
use crate::http::Service;
use crate::listen::pulse::Pulse;
use crate::listen::{self, ListenLimits};
use crate::metrics::{Collector, Exposition, Kind, Striped};
use password::Password;
use stock::Stock;

/// The port for Redis clients, unless told otherwise.
pub const RESP_PORT: u16 = 6390;
/// Keys with limits of their own, unless told otherwise.
pub const RESP_KEYS: usize = 1_000_000;

/// Where Redis clients ask, and who may.
#[derive(Clone)]
pub struct RespBind {
    /// The address to listen on.
    pub address: SocketAddr,
    /// What clients have to show. Required unless the address is loopback.
    pub password: Option<String>,
    /// Keys at once whose limits callers choose themselves. None: they may not choose.
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

/// Why the door does not open.
#[derive(Debug)]
#[non_exhaustive]
pub enum RespError {
    /// It would be open to a network without a password.
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// The password cannot be used.
    Password(PasswordError),
    /// There is no room for as many keys.
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

/// The door before anything was listened on: what is wrong with it is told first.
#[derive(Debug)]
pub(crate) struct RespDoor {
    /// The address to listen on.
    pub(crate) address: SocketAddr,
    password: Option<Password>,
    throttle: Option<Throttle>,
}

impl RespDoor {
    /// Looks at the settings.
    pub(crate) fn of(bind: &RespBind) -> Result<RespDoor, RespError> {
        let password = bind.password.as_deref().map(Password::new).transpose();
        let password = password.map_err(RespError::Password)?;
        if password.is_none() && !bind.address.ip().to_canonical().is_loopback() {
            return Err(RespError::Open {
                address: bind.address,
            });
        }
        let throttle = bind.keys.map(Throttle::new).transpose();
        Ok(RespDoor {
            address: bind.address,
            password,
            throttle: throttle.map_err(RespError::Keys)?,
        })
    }

    /// The door that asks `service`.
    pub(crate) fn opens(self, service: Service) -> Resp {
        let line = Limit::token_bucket(Rate::per_second(NonZeroU64::MIN), 1).ok();
        Resp(Arc::new(Shared {
            source: EngineSource::new(Arc::clone(service.engine()), Protocol::Resp),
            service,
            password: self.password,
            throttle: self.throttle,
            counts: Counts::default(),
            stock: Stock::default(),
            ids: AtomicU64::new(1),
            lines: line.and_then(|limit| Single::new(limit).ok()),
        }))
    }
}

/// The door, to be served by as many threads as there are. Clones are the same door.
#[derive(Clone, Debug)]
pub(crate) struct Resp(Arc<Shared>);

/// Everything that connections share.
struct Shared {
    service: Service,
    /// The engine for questions by policy.
    source: EngineSource,
    password: Option<Password>,
    throttle: Option<Throttle>,
    counts: Counts,
    stock: Stock,
    ids: AtomicU64,
    lines: Option<Single>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

/// Connections of Redis clients are kept in pools and may be idle for long; the rest is as for everybody.
fn limits() -> ListenLimits {
    ListenLimits {
        head: Duration::from_secs(10),
        idle: Duration::from_secs(600),
        ..ListenLimits::default()
    }
}

impl Resp {
    /// Serves on `listener` until `stop` says so, as one of so many threads that share the bounds.
    pub(crate) async fn serve(
        self,
        listener: TcpListener,
        threads: usize,
        stop: watch::Receiver<bool>,
    ) {
        let limits = limits();
        let limits = ListenLimits {
            connections: limits.connections.div_ceil(threads.max(1)),
            ..limits
        };
        self.serve_within(listener, limits, stop).await;
    }

    async fn serve_within(
        self,
        listener: TcpListener,
        limits: ListenLimits,
        stop: watch::Receiver<bool>,
    ) {
        let begin = |(stream, peer, permit): listen::Accepted| {
            let pulse = Arc::new(Pulse::beginning(true));
            let served = connection::serve(stream, peer, Arc::clone(&pulse), Arc::clone(&self.0));
            let task = tokio::spawn(async move {
                served.await;
                drop(permit);
            });
            Some((pulse, task.abort_handle()))
        };
        listen::accept_until(listener, limits.connections, || limits, stop, begin).await;
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

    /// Says that somebody spoke HTTP, once a second at the most.
    fn note_http(&self, peer: IpAddr) {
        if self
            .lines
            .as_ref()
            .is_some_and(|lines| lines.check().is_admitted())
        {
            tracing::warn!(
                target: "tollgate::resp",
                %peer,
                "HTTP was spoken on the port for Redis clients; the connection was closed"
            );
        }
    }

    /// What `INFO` tells about us.
    fn told(&self) -> String {
        let [passed, limited, failed] = self.counts.sums();
        let overflow = self.throttle.as_ref().map_or(0, Throttle::overflowed);
        format!(
            "throttle_pass:{passed}\r\nthrottle_refuse:{limited}\r\nthrottle_error:{failed}\r\n\
             throttle_overflow:{overflow}\r\n"
        )
    }
}

/// What became of calls with their own limits.
#[derive(Debug, Default)]
struct Counts(Striped<3>);

impl Counts {
    fn add(&self, passed: u64, limited: u64, failed: u64) {
        for (at, more) in [passed, limited, failed].into_iter().enumerate() {
            if more > 0 {
                self.0.add(at, more);
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
                .zip(self.counts.sums()),
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
