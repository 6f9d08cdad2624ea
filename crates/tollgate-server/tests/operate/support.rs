//! An engine, a client for one request, and a log that can be read.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tollgate_policy::{DecisionRequest, Facts, Op, PolicyDecision, Subject};
use tollgate_server::engine::{
    Decide, Engine, EngineSettings, EngineSource, PolicyOrigin, Protocol, StateSettings,
};
use tollgate_testkit::http::{Client, Reply};

pub(crate) use tollgate_testkit::tollgate::TOKEN;
pub(crate) use tollgate_testkit::{Directory, wait_async};

/// A policy with one limit of a slow bucket for each user: what is admitted at once is `burst`.
pub(crate) fn policy(burst: u64) -> String {
    format!(
        "default: pass\nlimits:\n  - {{ name: users, key: header.x-user, allow: 1/h, burst: {burst} }}\n"
    )
}

pub(crate) fn settings(policy: &Path, state: Option<&Path>) -> EngineSettings {
    EngineSettings {
        open_store: None,
        source: PolicyOrigin::File(policy.into()),
        state: state.map(|path| StateSettings {
            path: path.into(),
            every: Duration::from_millis(50),
        }),
    }
}

pub(crate) fn start(policy: &Path, state: Option<&Path>) -> Arc<Engine> {
    Engine::start(settings(policy, state)).unwrap_or_else(|error| panic!("{error}"))
}

/// Decides as a protocol would.
pub(crate) fn ask(engine: &Arc<Engine>, user: &str) -> PolicyDecision {
    let facts_headers = [("x-user", user)];
    let facts = Facts {
        method: "GET",
        path: "/",
        headers: &facts_headers,
        client: Some([192, 0, 2, 1].into()),
        ..Facts::default()
    };
    decide(engine, Protocol::Http, &facts)
}

/// Decides as the front end of this protocol would.
pub(crate) fn decide(
    engine: &Arc<Engine>,
    protocol: Protocol,
    facts: &Facts<'_>,
) -> PolicyDecision {
    let source = EngineSource::new(Arc::clone(engine), protocol);
    let request = DecisionRequest::new(Subject::Request(facts), Op::Charge);
    match source.decide(&engine.active(), &request) {
        Decide::Ready(answer) => answer,
        Decide::Pending(_) => panic!("there is no store to wait for"),
    }
}

/// How many of `tries` requests of one user pass.
pub(crate) fn admitted(engine: &Arc<Engine>, user: &str, tries: usize) -> usize {
    (0..tries)
        .filter(|_| ask(engine, user).is_admitted())
        .count()
}

/// Sends one request on a connection of its own; a header with the value `-` is left out.
pub(crate) fn send(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Reply {
    let mut all = vec![("Connection", "close")];
    for usual in [("Host", "localhost"), ("Content-Type", "application/json")] {
        let is_usual = |(name, _): &(&str, &str)| name.eq_ignore_ascii_case(usual.0);
        if !headers.iter().any(is_usual) {
            all.push(usual);
        }
    }
    all.extend(headers);
    Client::with_address(to).send(method, path, &all, body)
}

/// The same, as an operator with a token.
pub(crate) fn operate(to: SocketAddr, method: &str, path: &str, body: &str) -> Reply {
    let bearer = format!("Bearer {TOKEN}");
    send(to, method, path, &[("Authorization", &bearer)], body)
}

/// Waits until it holds.
pub(crate) async fn soon(what: &str, holds: impl Fn() -> bool) {
    wait_async(what, Duration::from_secs(3), async || holds()).await;
}

/// The lines that were logged while `during` ran on this thread.
pub(crate) fn logged(during: impl FnOnce()) -> Vec<String> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = Log(Arc::clone(&lines));
    tracing::subscriber::with_default(log, during);
    let lines = lines.lock().unwrap();
    lines.clone()
}

/// Every line that was logged since the first call, on threads that have no log of their own.
pub(crate) fn logged_by_all() -> Vec<String> {
    static LINES: OnceLock<Arc<Mutex<Vec<String>>>> = OnceLock::new();
    let lines = LINES.get_or_init(|| {
        let lines = Arc::new(Mutex::new(Vec::new()));
        tracing::subscriber::set_global_default(Log(Arc::clone(&lines))).unwrap();
        lines
    });
    lines.lock().unwrap().clone()
}

struct Log(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Line(String);
        impl tracing::field::Visit for Line {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0.push_str(&format!(" {field}={value:?}"));
            }
        }
        let mut line = Line(event.metadata().target().into());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
}
