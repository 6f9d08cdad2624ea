//! Checks a store and reports problems with their remedies.
//!
//! It makes its own connections and checks one thing after the other: name resolution, connection, authentication, role,
//! persistence, permissions, results of the scripts, latency.
//!
//! # Invariant
//!
//! It always ends: every step has a timeout. It writes only below `<prefix>:doctor`, and everything it writes expires.
//!
//! # What it does not know
//!
//! The behaviour of the store under load.

mod probe;
mod script_check;

use std::fmt;
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use self::probe::ServerProbe;
use crate::error_action::SLOTS;
use crate::link::connect::{self, DownReason};
use crate::link::connector::{Account, Address, Connector};
use crate::settings::{Settings, Topology};
use crate::topology::{parse_primary, parse_slots};

/// Timeout of one step.
pub(crate) const STEP_TIMEOUT: Duration = Duration::from_secs(1);
/// Bound of checked servers of a cluster.
const SERVERS_MAX: usize = 64;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DoctorSeverity {
    /// No problem.
    Ok,
    /// Good to know.
    Note,
    /// It works, but will fail in some situations.
    Warning,
    /// It does not work.
    Error,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorFinding {
    /// The severity.
    pub severity: DoctorSeverity,
    /// The check; the same in every run.
    pub code: &'static str,
    /// What was found, and at which server.
    pub message: String,
    /// The remedy.
    pub hint: Option<String>,
}

impl fmt::Display for DoctorFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            DoctorSeverity::Ok => "ok",
            DoctorSeverity::Note => "note",
            DoctorSeverity::Warning => "warning",
            DoctorSeverity::Error => "error",
        };
        write!(f, "{severity}: {}: {}", self.code, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// Collects findings about one server, or about the store as a whole.
#[derive(Debug)]
struct DoctorFindings<'a> {
    list: &'a mut Vec<DoctorFinding>,
    /// The start of every message: the server.
    prefix: String,
}

impl DoctorFindings<'_> {
    fn for_server(&mut self, address: &Address) -> DoctorFindings<'_> {
        DoctorFindings {
            list: self.list,
            prefix: format!("{address}: "),
        }
    }

    fn add(
        &mut self,
        severity: DoctorSeverity,
        code: &'static str,
        message: &str,
        hint: Option<&str>,
    ) {
        self.list.push(DoctorFinding {
            severity,
            code,
            message: format!("{}{message}", self.prefix),
            hint: hint.map(str::to_owned),
        });
    }

    fn ok(&mut self, code: &'static str, message: impl AsRef<str>) {
        self.add(DoctorSeverity::Ok, code, message.as_ref(), None);
    }

    fn note(&mut self, code: &'static str, message: impl AsRef<str>) {
        self.add(DoctorSeverity::Note, code, message.as_ref(), None);
    }

    fn warning(&mut self, code: &'static str, message: impl AsRef<str>, hint: &str) {
        self.add(DoctorSeverity::Warning, code, message.as_ref(), Some(hint));
    }

    fn error(&mut self, code: &'static str, message: impl AsRef<str>, hint: &str) {
        self.add(DoctorSeverity::Error, code, message.as_ref(), Some(hint));
    }

    /// Adds an error of the server.
    fn down(&mut self, code: &'static str, reason: &DownReason) {
        let hint = reason.warning.map(|(_, hint)| hint);
        self.error(
            code,
            &reason.message,
            hint.unwrap_or("see the log of the server"),
        );
    }
}

/// Checks the store.
pub async fn doctor(settings: &Settings) -> Vec<DoctorFinding> {
    let mut list = Vec::new();
    let mut findings = DoctorFindings {
        list: &mut list,
        prefix: String::new(),
    };
    match Connector::new(settings.clone()) {
        Err(error) => findings.error("settings", error.to_string(), error.hint()),
        Ok(connector) => {
            findings.ok("settings", "the settings are valid");
            check(&connector, &mut findings).await;
        }
    }
    list
}

async fn check(connector: &Connector, findings: &mut DoctorFindings<'_>) {
    // Primaries, each with a slot that it serves in a cluster.
    let mut servers: Vec<(Address, Option<u16>)> = Vec::new();
    match &connector.settings.topology {
        Topology::Standalone {
            server: (host, port),
        } => servers.push((Address::new(host, *port), None)),
        Topology::Sentinel { sentinels, service } => {
            let primary = check_sentinels(connector, sentinels, service, findings).await;
            servers.extend(primary.map(|primary| (primary, None)));
        }
        Topology::Cluster { servers: seeds } => {
            for (first, _, address) in check_cluster(connector, seeds, findings).await {
                if servers.iter().all(|(known, _)| *known != address) {
                    servers.push((address, Some(first)));
                }
            }
            servers.truncate(SERVERS_MAX);
        }
    }
    for (address, slot) in servers {
        let mut findings = findings.for_server(&address);
        if let Some(connection) = reach(connector, &address, Account::Server, &mut findings).await {
            let mut probe = ServerProbe {
                connector,
                slot,
                connection,
                findings,
            };
            probe.run().await;
        }
    }
}

/// A connection, or findings that explain its absence.
async fn reach(
    connector: &Connector,
    address: &Address,
    account: Account,
    findings: &mut DoctorFindings<'_>,
) -> Option<MultiplexedConnection> {
    let resolver = "check the name, and the resolver of this machine";
    let resolved = timeout(
        STEP_TIMEOUT,
        lookup_host((address.host.as_str(), address.port)),
    );
    let resolved: Vec<_> = match resolved.await {
        Ok(Ok(resolved)) => resolved.collect(),
        Ok(Err(error)) => {
            findings.error(
                "resolve",
                format!("the name does not resolve: {error}"),
                resolver,
            );
            return None;
        }
        Err(_) => {
            findings.error(
                "resolve",
                "the name does not resolve within a second",
                resolver,
            );
            return None;
        }
    };
    findings.ok("resolve", format!("its address is {resolved:?}"));
    let listens =
        "start the server, check its `bind` and `port`, and allow the port in the firewall";
    match timeout(STEP_TIMEOUT, TcpStream::connect(&*resolved)).await {
        Ok(Ok(_)) => findings.ok("connect", "it accepts connections"),
        Ok(Err(error)) => {
            findings.error("connect", format!("no connection: {error}"), listens);
            return None;
        }
        Err(_) => {
            findings.error("connect", "no connection within a second", listens);
            return None;
        }
    }
    let has_tls = connector.settings.tls.is_some();
    match connector.connect(address, account).await {
        Ok(connection) => {
            let secured = if has_tls { "with" } else { "without" };
            findings.ok(
                "handshake",
                format!("authentication succeeds, {secured} TLS"),
            );
            Some(connection)
        }
        Err(error) => {
            let reason = DownReason::from_client_error(&error);
            let code = match reason.code() {
                "wrong-password" => "auth",
                "bad-certificate" => "tls",
                _ => "handshake",
            };
            findings.down(code, &reason);
            if code == "handshake" && has_tls {
                findings.note("tls", "check that the server uses TLS on this port");
            }
            None
        }
    }
}

fn command(words: &[&str]) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(*word);
    }
    command
}

async fn check_sentinels(
    connector: &Connector,
    sentinels: &[(String, u16)],
    service: &str,
    all: &mut DoctorFindings<'_>,
) -> Option<Address> {
    let mut primaries: Vec<Address> = Vec::new();
    for (host, port) in sentinels {
        let address = Address::new(host, *port);
        let mut findings = all.for_server(&address);
        let connection = reach(connector, &address, Account::Sentinel, &mut findings).await;
        let Some(mut connection) = connection else {
            continue;
        };
        let get_primary = command(&["SENTINEL", "get-master-addr-by-name", service]);
        match connect::query(&mut connection, &get_primary, STEP_TIMEOUT).await {
            Ok(Value::Nil) => {
                let message = format!("it has no primary called {service:?}");
                findings.error(
                    "sentinel",
                    message,
                    "use the name that `SENTINEL MASTERS` shows",
                );
            }
            Ok(value) => match parse_primary(&value, &address) {
                Some(primary) => {
                    findings.ok("sentinel", format!("it reports {primary}"));
                    primaries.push(primary);
                }
                None => {
                    let message = format!("unexpected reply {value:?}");
                    findings.error("sentinel", message, "is it a sentinel?");
                }
            },
            Err(reason) => findings.down("sentinel", &reason),
        }
        let quorum = command(&["SENTINEL", "CKQUORUM", service]);
        match connect::query(&mut connection, &quorum, STEP_TIMEOUT).await {
            Ok(_) => findings.ok("quorum", "it can elect another primary"),
            Err(reason) => findings.warning(
                "quorum",
                &reason.message,
                "without a quorum no sentinel replaces a primary that dies: bring the other sentinels back",
            ),
        }
    }
    if sentinels.len() < 3 {
        let count = sentinels.len();
        all.note(
            "sentinel",
            format!("{count} sentinels: with three, one may die"),
        );
    }
    let first = primaries.first()?;
    if primaries.iter().any(|other| other != first) {
        let primaries: Vec<String> = primaries.iter().map(ToString::to_string).collect();
        all.warning(
            "sentinel",
            format!("the sentinels disagree: {}", primaries.join(", ")),
            "wait for a failover to end; otherwise `SENTINEL RESET` the wrong ones",
        );
    }
    Some(first.clone())
}

async fn check_cluster(
    connector: &Connector,
    seeds: &[(String, u16)],
    all: &mut DoctorFindings<'_>,
) -> Vec<(u16, u16, Address)> {
    let mut owners = Vec::new();
    for (host, port) in seeds {
        let address = Address::new(host, *port);
        let mut findings = all.for_server(&address);
        let connection = reach(connector, &address, Account::Server, &mut findings).await;
        let Some(mut connection) = connection else {
            continue;
        };
        let info = command(&["CLUSTER", "INFO"]);
        match connect::query(&mut connection, &info, STEP_TIMEOUT).await {
            Ok(info) => {
                let info = connect::text(&info);
                if info.contains("cluster_state:ok") {
                    findings.ok("cluster", "it reports a complete cluster");
                } else {
                    let state: Vec<&str> = info.lines().take(5).collect();
                    let hint = "every slot must be served: see `redis-cli --cluster check`";
                    findings.error("cluster", state.join(", "), hint);
                }
            }
            Err(reason) if reason.message.contains("NOPERM") => {
                let message = "no permission to read the state of the cluster (`+cluster|info`)";
                findings.note("cluster", message);
            }
            Err(reason) => findings.down("cluster", &reason),
        }
        let slots = command(&["CLUSTER", "SLOTS"]);
        match connect::query(&mut connection, &slots, STEP_TIMEOUT).await {
            Ok(value) => match parse_slots(&value, &address) {
                Some(map) => {
                    let size = |(first, last, _): &(u16, u16, Address)| {
                        u32::from(last.saturating_sub(*first)) + 1
                    };
                    let served: u32 = map.iter().map(size).sum();
                    if served == u32::from(SLOTS) {
                        findings.ok("slots", "all slots are served");
                    } else {
                        let message = format!("only {served} of {SLOTS} slots are served");
                        findings.error("slots", message, "see `redis-cli --cluster fix`");
                    }
                    owners = map;
                }
                None => {
                    findings.error(
                        "slots",
                        "it reports no slots",
                        "it belongs to no cluster yet",
                    );
                }
            },
            Err(reason) => findings.down("slots", &reason),
        }
    }
    owners
}
