//! A directory that is gone afterwards, a client for one request, and a log that can be read.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use serde_json::Value;
use tollgate::policy::{Answer, DecisionRequest, Facts, Op, Subject};
use tollgate_server::engine::{
    Decide, Door, Engine, EngineSettings, EngineSource, PolicySource, StateSettings,
};

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A directory of this test alone.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Dir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Relaxed);
        let name = format!("tollgate-server-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Dir(path)
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.at(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A policy with one limit of a slow bucket for each user: what is admitted at once is `burst`.
pub(crate) fn policy(burst: u64) -> String {
    format!(
        "default: pass\nlimits:\n  - {{ name: users, key: header.x-user, allow: 1/h, burst: {burst} }}\n"
    )
}

pub(crate) fn settings(policy: &Path, state: Option<&Path>) -> EngineSettings {
    EngineSettings {
        open_store: None,
        source: PolicySource::File(policy.into()),
        state: state.map(|path| StateSettings {
            path: path.into(),
            every: Duration::from_millis(50),
        }),
    }
}

pub(crate) fn start(policy: &Path, state: Option<&Path>) -> Arc<Engine> {
    Engine::start(settings(policy, state)).unwrap_or_else(|error| panic!("{error}"))
}

/// Decides as a door would.
pub(crate) fn ask(engine: &Arc<Engine>, user: &str) -> Answer {
    let facts_headers = [("x-user", user)];
    let facts = Facts {
        method: "GET",
        path: "/",
        headers: &facts_headers,
        client: Some([192, 0, 2, 1].into()),
        ..Facts::default()
    };
    decide(engine, Door::Http, &facts)
}

/// Decides as the front end of this protocol would.
pub(crate) fn decide(engine: &Arc<Engine>, door: Door, facts: &Facts<'_>) -> Answer {
    let source = EngineSource::new(Arc::clone(engine), door);
    let request = DecisionRequest::new(Subject::Request(facts), Op::Charge);
    match source.decide(&engine.epoch(), &request) {
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

/// An answer over a socket.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Got {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }
}

/// Sends one request and reads the answer to its end. Headers that are given twice count last.
pub(crate) fn send(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Got {
    let mut stream = TcpStream::connect(to).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    let standard = [("Host", "localhost"), ("Content-Type", "application/json")];
    let given = |name: &str| headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    for (name, value) in standard
        .iter()
        .filter(|(name, _)| !given(name))
        .chain(headers)
    {
        if *value != "-" {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    request.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    Got {
        status: head.split(' ').nth(1).unwrap_or_default().parse().unwrap(),
        head: head.to_ascii_lowercase(),
        body: body.into(),
    }
}

/// The same, as an operator with a token.
pub(crate) fn operate(to: SocketAddr, method: &str, path: &str, body: &str) -> Got {
    let bearer = format!("Bearer {TOKEN}");
    send(to, method, path, &[("Authorization", &bearer)], body)
}

/// Waits until it holds, three seconds at the most.
pub(crate) async fn soon(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..150 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("not within three seconds: {what}");
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
