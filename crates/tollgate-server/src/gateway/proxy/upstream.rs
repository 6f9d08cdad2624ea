//! Upstreams and their servers, replaced as a whole with the policy.
//!
//! A request goes to the first upstream that matches, and there to the server with the fewest requests in flight among
//! those that are up. A recent failure counts as load. Equal servers take turns. A server that is in the next policy too
//! keeps its connections, and an upstream its statistics.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::time::Instant;
use tollgate_config::{Protocol, UpstreamSpec};
use tollgate_policy::path::PathRules;
use tollgate_policy::{Facts, Match};

use super::server::Server;
use crate::gateway::tls::{self, TlsError};
use crate::metrics::UpstreamLatency;

/// Statistics of one upstream. All counters only grow.
#[derive(Debug, Default)]
pub struct UpstreamStats {
    /// Requests that were passed on to a server, whether it could be reached or not; once for each server tried.
    pub requests: AtomicU64,
    /// Answered requests, whatever the status, and those that the client abandoned after a significant time.
    pub answers: AtomicU64,
    /// Requests without an answer (no connection, no response in time, connection lost), and those answered with 502, 503
    /// or 504, which count as answers, too.
    pub failed: AtomicU64,
    /// Those of them without an answer.
    pub unanswered: AtomicU64,
    /// Sum over all answers of the nanoseconds from the last byte of the request to the head of the response, or until the
    /// client abandoned it.
    pub latency_ns: AtomicU64,
    /// The same times, by length.
    pub(crate) latency: UpstreamLatency,
}

impl UpstreamStats {
    pub(super) fn record_request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    pub(super) fn record_response(&self, took: Duration, is_failure: bool) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.answers.fetch_add(1, Relaxed);
        self.latency_ns.fetch_add(took, Relaxed);
        self.latency.record(Duration::from_nanos(took));
        if is_failure {
            self.failed.fetch_add(1, Relaxed);
        }
    }

    /// A client abandoned its request after this time. The response would have taken longer, so this counts as a
    /// measurement only if it is not much less than the average. Otherwise impatient clients would make a server look fast.
    pub(super) fn record_abandoned(&self, after: Duration) {
        let answers = u128::from(self.answers.load(Relaxed));
        let all = u128::from(self.latency_ns.load(Relaxed));
        if after.as_nanos().saturating_mul(answers).saturating_mul(2) >= all {
            self.record_response(after, false);
        }
    }

    pub(super) fn record_unanswered(&self) {
        self.unanswered.fetch_add(1, Relaxed);
        self.failed.fetch_add(1, Relaxed);
    }
}

/// The upstreams of one policy.
#[derive(Debug, Default)]
pub(crate) struct Upstreams {
    list: Vec<Arc<Upstream>>,
    paths: PathRules,
}

/// Servers for the same requests.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) spec: UpstreamSpec,
    /// The conditions; patterns normalise paths by the rules of the policy.
    matches: Match,
    is_catch_all: bool,
    /// Contents of its `ca_file`.
    trusted: Option<Vec<u8>>,
    pub(crate) servers: Vec<Arc<Server>>,
    pub(crate) observed: Arc<UpstreamStats>,
    next_server: AtomicUsize,
}

/// Why upstreams are invalid.
#[derive(Debug)]
#[non_exhaustive]
pub enum UpstreamError {
    /// A certificate file is invalid.
    Tls {
        /// The upstream.
        upstream: String,
        /// What is wrong.
        cause: TlsError,
    },
    /// A TLS server has a name that no certificate can have.
    Name {
        /// The upstream.
        upstream: String,
        /// The name.
        host: String,
    },
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls { upstream, cause } => write!(f, "the upstream `{upstream}`: {cause}"),
            Self::Name { upstream, host } => write!(
                f,
                "the upstream `{upstream}` names `{host}`, which no certificate can be for\nhint: write a host name or an address"
            ),
        }
    }
}

impl std::error::Error for UpstreamError {}

impl Upstreams {
    /// The upstreams of a policy that replaces `before`. Reads certificate files.
    pub(crate) fn new(
        specs: &[UpstreamSpec],
        paths: PathRules,
        threads: usize,
        before: &Upstreams,
    ) -> Result<Upstreams, UpstreamError> {
        let upstream = |spec: &UpstreamSpec| {
            let old = before.list.iter().find(|old| old.spec.name == spec.name);
            upstream(spec, paths, threads, old.map(|old| &**old)).map(Arc::new)
        };
        let list = specs.iter().map(upstream).collect::<Result<_, _>>()?;
        Ok(Upstreams { list, paths })
    }

    /// The upstream for a request.
    pub(super) fn find(&self, facts: &Facts<'_>) -> Option<&Arc<Upstream>> {
        if let Some(first) = self.list.first().filter(|first| first.is_catch_all) {
            return Some(first);
        }
        let path = self.paths.normalise(facts.path).ok()?;
        let is_match = |upstream: &&Arc<Upstream>| {
            upstream.is_catch_all || upstream.matches.holds(facts, &path)
        };
        self.list.iter().find(is_match)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.list.iter()
    }
}

fn upstream(
    spec: &UpstreamSpec,
    paths: PathRules,
    threads: usize,
    old: Option<&Upstream>,
) -> Result<Upstream, UpstreamError> {
    let trusted = trusted(spec)?;
    // By the contents of the file, not by its name: certificates are renewed in place.
    let is_same_tls =
        old.is_some_and(|old| old.trusted == trusted && old.spec.protocol == spec.protocol);
    let connector = connector(spec, trusted.as_deref())?;
    let server = |server: &tollgate_config::ServerSpec| {
        let known = old.filter(|_| is_same_tls).and_then(|old| {
            let mut servers = old.servers.iter();
            servers.find(|known| known.spec == *server)
        });
        if let Some(known) = known {
            return Ok(Arc::clone(known));
        }
        let tls = match (&connector, server.tls) {
            (Some(connector), true) => {
                let name = ServerName::try_from(server.host.clone());
                let name = name.map_err(|_| UpstreamError::Name {
                    upstream: spec.name.clone(),
                    host: server.host.clone(),
                })?;
                Some((Arc::clone(connector), name))
            }
            _ => None,
        };
        Ok(Arc::new(Server::new(server.clone(), tls, threads)))
    };
    let servers = spec.servers.iter().map(server).collect::<Result<_, _>>()?;
    let mut matches = spec.matches.clone();
    for path in &mut matches.paths {
        *path = path.with_rules(paths);
    }
    Ok(Upstream {
        is_catch_all: is_catch_all(&matches),
        matches,
        trusted,
        servers,
        observed: old.map_or_else(Arc::default, |old| Arc::clone(&old.observed)),
        next_server: AtomicUsize::new(0),
        spec: spec.clone(),
    })
}

/// Contents of the file of trusted certificates, if any server uses TLS.
fn trusted(spec: &UpstreamSpec) -> Result<Option<Vec<u8>>, UpstreamError> {
    let is_used = spec.servers.iter().any(|server| server.tls);
    let file = spec.ca_file.as_deref().filter(|_| is_used);
    file.map(tls::read).transpose().map_err(tls_error(spec))
}

fn connector(
    spec: &UpstreamSpec,
    trusted: Option<&[u8]>,
) -> Result<Option<Arc<ClientConfig>>, UpstreamError> {
    if !spec.servers.iter().any(|server| server.tls) {
        return Ok(None);
    }
    let protocol: &[u8] = match spec.protocol {
        Protocol::Http1 => b"http/1.1",
        Protocol::Http2 => b"h2",
    };
    let ca = spec.ca_file.as_deref().zip(trusted);
    let connector = tls::client_config(ca, protocol).map_err(tls_error(spec))?;
    Ok(Some(connector))
}

fn tls_error(spec: &UpstreamSpec) -> impl Fn(TlsError) -> UpstreamError {
    let upstream = spec.name.clone();
    move |cause| UpstreamError::Tls {
        upstream: upstream.clone(),
        cause,
    }
}

fn is_catch_all(matches: &Match) -> bool {
    let Match {
        methods,
        paths,
        hosts,
        headers,
        query,
        addresses,
        domain,
        descriptor,
        entries,
    } = matches;
    methods.is_empty()
        && paths.is_empty()
        && hosts.is_empty()
        && headers.is_empty()
        && query.is_empty()
        && addresses.is_empty()
        && domain.is_none()
        && descriptor.is_empty()
        && entries.is_empty()
}

impl Upstream {
    /// The server for the next request, other than those already tried. `None`: all were tried.
    pub(super) fn choose(&self, tried: &[Arc<Server>]) -> Option<&Arc<Server>> {
        if let ([only], []) = (&self.servers[..], tried) {
            return Some(only);
        }
        let is_new = |server: &&Arc<Server>| !tried.iter().any(|t| Arc::ptr_eq(t, server));
        let next = self.next_server.fetch_add(1, Relaxed);
        let from = next.checked_rem(self.servers.len()).unwrap_or(0);
        // Starts at another server each time, because the first of equals is taken.
        let rotated = || {
            let (before, after) = self.servers.split_at(from.min(self.servers.len()));
            after.iter().chain(before).filter(is_new)
        };
        let least = |server: &&Arc<Server>| server.load();
        let up = rotated().filter(|server| !server.is_ejected());
        up.min_by_key(least).or_else(|| rotated().min_by_key(least))
    }
}

impl Upstream {
    /// Are all servers ejected? Requests are still sent to them.
    pub(crate) fn is_down(&self) -> bool {
        self.servers.iter().all(|server| server.is_ejected())
    }

    /// A server left a request unanswered.
    pub(super) fn record_failure(&self, server: &Server) {
        self.observed.record_unanswered();
        if server.record_failure(self.spec.health.as_ref(), now_ms()) {
            self.log_ejected(server);
        }
    }

    pub(super) fn log_ejected(&self, server: &Server) {
        let (upstream, server) = (&self.spec.name, server.authority());
        if self.is_down() {
            tracing::error!(
                target: "tollgate::gateway", upstream, server,
                "upstream is down: none of its servers answers; requests are still sent to them"
            );
        } else {
            tracing::warn!(
                target: "tollgate::gateway", upstream, server,
                "server does not answer; requests go to the other servers of its upstream"
            );
        }
    }
}

/// Milliseconds since the first call.
pub(super) fn now_ms() -> u64 {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(BEGAN.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_config::ServerSpec;

    fn servers(ports: &[u16]) -> Vec<ServerSpec> {
        let server = |port: &u16| ServerSpec {
            tls: false,
            host: "127.0.0.1".into(),
            port: *port,
        };
        ports.iter().map(server).collect()
    }

    fn one(ports: &[u16]) -> Upstreams {
        let spec = UpstreamSpec::new("a", servers(ports));
        Upstreams::new(&[spec], PathRules::default(), 1, &Upstreams::default()).unwrap()
    }

    fn chosen(upstream: &Upstream, tried: &[Arc<Server>]) -> u16 {
        upstream.choose(tried).unwrap().spec.port
    }

    #[test]
    fn equal_servers_take_turns_and_busy_ones_are_avoided() {
        let all = one(&[1, 2, 3]);
        let upstream = &all.list[0];
        let mut ports: Vec<_> = (0..6).map(|_| chosen(upstream, &[])).collect();
        ports.sort_unstable();
        assert_eq!(ports, [1, 1, 2, 2, 3, 3]);
        let _busy = (
            upstream.servers[0].start_request(),
            upstream.servers[2].start_request(),
        );
        assert!((0..6).all(|_| chosen(upstream, &[]) == 2));
    }

    #[test]
    fn an_ejected_server_is_avoided_unless_all_are_ejected() {
        let all = one(&[1, 2]);
        let upstream = &all.list[0];
        let fail = |at: usize| {
            for _ in 0..MAX_FAILURES {
                upstream.servers[at].record_failure(None, 0);
            }
        };
        fail(0);
        assert!((0..6).all(|_| chosen(upstream, &[]) == 2));
        fail(1);
        let mut ports: Vec<_> = (0..4).map(|_| chosen(upstream, &[])).collect();
        ports.sort_unstable();
        assert_eq!(ports, [1, 1, 2, 2]);
        upstream.servers[0].reinstate();
        assert!((0..6).all(|_| chosen(upstream, &[]) == 1));
    }

    const MAX_FAILURES: usize = 3;

    #[test]
    fn a_tried_server_is_not_tried_again() {
        let all = one(&[1, 2]);
        let upstream = &all.list[0];
        let tried = [Arc::clone(&upstream.servers[1])];
        assert!((0..6).all(|_| chosen(upstream, &tried) == 1));
        assert!(upstream.choose(&upstream.servers).is_none());
    }

    #[test]
    fn impatient_clients_do_not_make_a_slow_server_look_fast() {
        let observed = UpstreamStats::default();
        let numbers = || {
            let latency = observed.latency_ns.load(Relaxed) / 1_000_000;
            (observed.answers.load(Relaxed), latency)
        };
        observed.record_response(Duration::from_millis(400), false);
        (0..9).for_each(|_| observed.record_abandoned(Duration::from_millis(199)));
        assert_eq!(numbers(), (1, 400));
        observed.record_abandoned(Duration::from_millis(800));
        assert_eq!(numbers(), (2, 1200));
        assert_eq!(observed.failed.load(Relaxed), 0);
    }

    #[test]
    fn a_server_that_failed_recently_is_chosen_when_others_are_much_busier() {
        let all = one(&[1, 2]);
        let upstream = &all.list[0];
        upstream.servers[0].record_failure(None, now_ms());
        assert!((0..6).all(|_| chosen(upstream, &[]) == 2));
        let _busy: Vec<_> = (0..17)
            .map(|_| upstream.servers[1].start_request())
            .collect();
        assert!((0..6).all(|_| chosen(upstream, &[]) == 1));
    }

    #[test]
    fn servers_and_statistics_survive_a_reload() {
        let before = one(&[1, 2]);
        before.list[0].observed.record_unanswered();
        let spec = UpstreamSpec::new("a", servers(&[2, 3]));
        let after = Upstreams::new(&[spec], PathRules::default(), 1, &before).unwrap();
        assert!(Arc::ptr_eq(
            &before.list[0].servers[1],
            &after.list[0].servers[0]
        ));
        assert_eq!(after.list[0].observed.failed.load(Relaxed), 1);
    }

    /// Two self-signed certificates whose keys were discarded.
    const ONE: &str = "-----BEGIN CERTIFICATE-----
MIIBMjCB5aADAgECAhR5y4hogSThZg/nK7wl8XbHE+V8vzAFBgMrZXAwDjEMMAoG
A1UEAwwDb25lMCAXDTI2MTExNjA0MzQxM1oYDzIxMjYxMDIzMDQzNDEzWjAOMQww
CgYDVQQDDANvbmUwKjAFBgMrZXADIQAVGPVpKRNlCKdvuiG+y6957niZ0CNCBf64
WVPq0NoWpaNTMFEwHQYDVR0OBBYEFFgRRdJWgIjJgs2c+lAuI0fFL6BPMB8GA1Ud
IwQYMBaAFFgRRdJWgIjJgs2c+lAuI0fFL6BPMA8GA1UdEwEB/wQFMAMBAf8wBQYD
K2VwA0EAI3IChaWPMf6hRgKSYJiqlLbWWNOcSdhsOT6eDjceJQ9D6/301xWrjLDk
h0k0+iJ+fTkOgb3hRmGTrVBelm5cDg==
-----END CERTIFICATE-----
";
    const TWO: &str = "-----BEGIN CERTIFICATE-----
MIIBMjCB5aADAgECAhQEc0JqI8p2jN/zcfaU4NtxlyumPTAFBgMrZXAwDjEMMAoG
A1UEAwwDdHdvMCAXDTI2MTExNjA0MzQxM1oYDzIxMjYxMDIzMDQzNDEzWjAOMQww
CgYDVQQDDAN0d28wKjAFBgMrZXADIQBQqWDvxenzcKB1/u1WuqtBjYi4/3kYbc0O
c6MIpKj8G6NTMFEwHQYDVR0OBBYEFMY8R+6yDg7iGzOq8SmlpTcTzm42MB8GA1Ud
IwQYMBaAFMY8R+6yDg7iGzOq8SmlpTcTzm42MA8GA1UdEwEB/wQFMAMBAf8wBQYD
K2VwA0EAQGnBm+dKIIWijE9Je4gQ4xz7UAGDGPKFwUcrZPy4td6a2y/17c04gB8k
eq/5EWonpe66eh8AWULA/7T2kIaJAw==
-----END CERTIFICATE-----
";

    #[test]
    fn a_server_survives_a_reload_only_with_the_same_certificates() {
        let name = format!("tollgate-upstream-{}.pem", std::process::id());
        let file = std::env::temp_dir().join(name);
        let mut spec = UpstreamSpec::new("a", servers(&[1]));
        spec.servers[0].tls = true;
        spec.ca_file = Some(file.clone());
        let next = |before: &Upstreams| {
            let specs = std::slice::from_ref(&spec);
            Upstreams::new(specs, PathRules::default(), 1, before).unwrap()
        };
        let is_same = |a: &Upstreams, b: &Upstreams| {
            Arc::ptr_eq(&a.list[0].servers[0], &b.list[0].servers[0])
        };
        std::fs::write(&file, ONE).unwrap();
        let first = next(&Upstreams::default());
        let again = next(&first);
        assert!(is_same(&first, &again));
        // Renewed in place, under the same name.
        std::fs::write(&file, TWO).unwrap();
        let renewed = next(&again);
        assert!(!is_same(&again, &renewed));
        std::fs::remove_file(&file).unwrap();
        let gone = Upstreams::new(&[spec], PathRules::default(), 1, &renewed);
        let message = gone.unwrap_err().to_string();
        assert!(message.contains("upstream `a`"), "{message}");
        assert!(message.contains("cannot be read"), "{message}");
    }
}
