//! Looks a store over and says what is wrong with it, and how to mend it.
//!
//! It makes connections of its own and asks for one thing after the other, as whoever sets up a store would: does the
//! name resolve, does anybody answer, are we let in, is it a primary, will it remember, may we do what we must, are its
//! answers right, and are they in time?
//!
//! # Invariant
//!
//! It always ends: every step has a time of its own. It writes only below `<prefix>:doctor`, and everything it writes
//! expires.
//!
//! # What it does not know
//!
//! How the store behaves under load.

mod patient;
mod trial;

use std::fmt;
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;

use self::patient::Patient;
use crate::link::access::{Access, Address, As};
use crate::link::rise::{self, Low};
use crate::settings::{Settings, Topology};
use crate::topology::{primary_named, slots_told};

/// How long one question may take.
pub(crate) const STEP: Duration = Duration::from_secs(1);
/// Servers of a cluster that are looked at.
const SERVERS_MAX: usize = 64;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Note,
    /// It works, and will not always.
    Warning,
    /// It does not work.
    Error,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What was looked at; the same from one run to the next.
    pub code: &'static str,
    /// What was found, and where.
    pub words: String,
    /// How to mend it.
    pub hint: Option<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{word}: {}: {}", self.code, self.words)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// Findings as they are made.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    list: Vec<Finding>,
}

impl Findings {
    fn add(&mut self, severity: Severity, code: &'static str, words: String, hint: Option<&str>) {
        self.list.push(Finding {
            severity,
            code,
            words,
            hint: hint.map(str::to_owned),
        });
    }

    fn ok(&mut self, code: &'static str, words: impl Into<String>) {
        self.add(Severity::Ok, code, words.into(), None);
    }

    fn note(&mut self, code: &'static str, words: impl Into<String>) {
        self.add(Severity::Note, code, words.into(), None);
    }

    fn warning(&mut self, code: &'static str, words: impl Into<String>, hint: &str) {
        self.add(Severity::Warning, code, words.into(), Some(hint));
    }

    fn error(&mut self, code: &'static str, words: impl Into<String>, hint: &str) {
        self.add(Severity::Error, code, words.into(), Some(hint));
    }

    /// What a server said instead of an answer.
    fn low(&mut self, code: &'static str, at: &Address, low: &Low) {
        let hint = low
            .warning
            .map_or("see the log of the server", |(_, mend)| mend);
        self.error(code, format!("{at}: {}", low.words), hint);
    }
}

/// Looks the store over.
pub async fn doctor(settings: &Settings) -> Vec<Finding> {
    let mut findings = Findings::default();
    match Access::new(settings.clone()) {
        Err(error) => findings.error("settings", error.to_string(), error.hint()),
        Ok(access) => {
            findings.ok("settings", "the settings can be used");
            look(&access, &mut findings).await;
        }
    }
    findings.list
}

async fn look(access: &Access, findings: &mut Findings) {
    match &access.settings.topology {
        Topology::Standalone {
            server: (host, port),
        } => {
            Patient::new(access, Address::new(host, *port), None)
                .examine(findings)
                .await;
        }
        Topology::Sentinel { sentinels, service } => {
            if let Some(primary) = look_at_sentinels(access, sentinels, service, findings).await {
                Patient::new(access, primary, None).examine(findings).await;
            }
        }
        Topology::Cluster { servers } => {
            let mut owners = look_at_cluster(access, servers, findings).await;
            owners.dedup_by(|one, other| one.2 == other.2);
            let mut seen = Vec::new();
            for (first, _, address) in owners {
                if !seen.contains(&address) && seen.len() < SERVERS_MAX {
                    seen.push(address.clone());
                    Patient::new(access, address, Some(first))
                        .examine(findings)
                        .await;
                }
            }
        }
    }
}

/// A connection, or what is in the way of one.
async fn reach(
    access: &Access,
    address: &Address,
    to: As,
    findings: &mut Findings,
) -> Option<MultiplexedConnection> {
    let resolved = tokio::net::lookup_host((address.host.as_str(), address.port));
    let places: Vec<_> = match tokio::time::timeout(STEP, resolved).await {
        Ok(Ok(places)) => places.collect(),
        Ok(Err(error)) => {
            let words = format!("{address}: the name does not resolve: {error}");
            findings.error(
                "resolve",
                words,
                "check the name, and the resolver of this machine",
            );
            return None;
        }
        Err(_) => {
            let words = format!("{address}: the name does not resolve within a second");
            findings.error("resolve", words, "check the resolver of this machine");
            return None;
        }
    };
    findings.ok("resolve", format!("{address} is {places:?}"));
    match tokio::time::timeout(STEP, tokio::net::TcpStream::connect(&*places)).await {
        Ok(Ok(_)) => findings.ok("connect", format!("{address} answers")),
        Ok(Err(error)) => {
            let words = format!("{address}: no connection: {error}");
            findings.error(
                "connect",
                words,
                "is it running, does it listen there, is there a firewall?",
            );
            return None;
        }
        Err(_) => {
            let words = format!("{address}: nobody answers within a second");
            findings.error("connect", words, "is the machine up, is there a firewall?");
            return None;
        }
    }
    match access.connect(address, to).await {
        Ok(connection) => {
            let secured = if access.settings.tls.is_some() {
                "over TLS"
            } else {
                "without TLS"
            };
            findings.ok("handshake", format!("{address} lets us in, {secured}"));
            Some(connection)
        }
        Err(error) => {
            let low = Low::of_error(&error);
            let code = match low.warning {
                Some(("wrong-password", _)) => "auth",
                Some(("bad-certificate", _)) => "tls",
                _ => "handshake",
            };
            findings.low(code, address, &low);
            if code == "handshake" && access.settings.tls.is_some() {
                findings.note("tls", format!("{address}: does it speak TLS at this port?"));
            }
            None
        }
    }
}

async fn look_at_sentinels(
    access: &Access,
    sentinels: &[(String, u16)],
    service: &str,
    findings: &mut Findings,
) -> Option<Address> {
    let mut named: Vec<Address> = Vec::new();
    for (host, port) in sentinels {
        let address = Address::new(host, *port);
        let Some(mut connection) = reach(access, &address, As::Sentinel, findings).await else {
            continue;
        };
        let ask = |word: &str| {
            let mut command = redis::cmd("SENTINEL");
            command.arg(word).arg(service);
            command
        };
        match rise::ask(&mut connection, &ask("get-master-addr-by-name"), STEP).await {
            Ok(Value::Nil) => findings.error(
                "sentinel",
                format!("{address} knows no primary called {service:?}"),
                "use the name that `SENTINEL MASTERS` shows",
            ),
            Ok(value) => match primary_named(&value, &address) {
                Some(primary) => {
                    findings.ok("sentinel", format!("{address} names {primary}"));
                    named.push(primary);
                }
                None => findings.error(
                    "sentinel",
                    format!("{address} answers {value:?}"),
                    "is it a sentinel?",
                ),
            },
            Err(low) => findings.low("sentinel", &address, &low),
        }
        match rise::ask(&mut connection, &ask("CKQUORUM"), STEP).await {
            Ok(_) => findings.ok("quorum", format!("{address} can elect another primary")),
            Err(low) => findings.warning(
                "quorum",
                format!("{address}: {}", low.words),
                "without a quorum nobody replaces a primary that dies: bring the other sentinels back",
            ),
        }
    }
    if sentinels.len() < 3 {
        findings.note(
            "sentinel",
            format!("{} sentinels: with three one may die", sentinels.len()),
        );
    }
    let first = named.first().cloned()?;
    if named.iter().any(|other| *other != first) {
        findings.warning(
            "sentinel",
            format!(
                "the sentinels do not agree: {}",
                named
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
            "wait for a failover to end; otherwise `SENTINEL RESET` those that are wrong",
        );
    }
    Some(first)
}

async fn look_at_cluster(
    access: &Access,
    servers: &[(String, u16)],
    findings: &mut Findings,
) -> Vec<(u16, u16, Address)> {
    let mut owners = Vec::new();
    for (host, port) in servers {
        let address = Address::new(host, *port);
        let Some(mut connection) = reach(access, &address, As::Server, findings).await else {
            continue;
        };
        let ask = |word: &str| {
            let mut command = redis::cmd("CLUSTER");
            command.arg(word);
            command
        };
        match rise::ask(&mut connection, &ask("INFO"), STEP).await {
            Ok(info) if rise::text(&info).contains("cluster_state:ok") => {
                findings.ok(
                    "cluster",
                    format!("{address} says that the cluster is whole"),
                );
            }
            Ok(info) => {
                let state: Vec<_> = rise::text(&info)
                    .lines()
                    .take(5)
                    .map(str::to_owned)
                    .collect();
                let words = format!("{address}: {}", state.join(", "));
                findings.error(
                    "cluster",
                    words,
                    "every slot must be served: see `redis-cli --cluster check`",
                );
            }
            Err(low) if low.words.contains("NOPERM") => {
                findings.note(
                    "cluster",
                    format!("{address}: we may not ask how the cluster is (`+cluster|info`)"),
                );
            }
            Err(low) => findings.low("cluster", &address, &low),
        }
        match rise::ask(&mut connection, &ask("SLOTS"), STEP).await {
            Ok(value) => match slots_told(&value, &address) {
                Some(told) => {
                    let covered: u32 = told
                        .iter()
                        .map(|(first, last, _)| u32::from(last.saturating_sub(*first)) + 1)
                        .sum();
                    if covered == u32::from(crate::fault::SLOTS) {
                        findings.ok("slots", format!("{address}: all slots are served"));
                    } else {
                        let words = format!("{address}: only {covered} of 16384 slots are served");
                        findings.error("slots", words, "see `redis-cli --cluster fix`");
                    }
                    owners = told;
                }
                None => findings.error(
                    "slots",
                    format!("{address} tells no slots"),
                    "it belongs to no cluster yet",
                ),
            },
            Err(low) => findings.low("slots", &address, &low),
        }
    }
    owners
}
