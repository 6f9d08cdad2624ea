//! The access log.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::TestGateway;
use crate::upstream::Upstream;

/// Keeps the lines of two targets.
struct Lines(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        ["tollgate::access", "tollgate::refused"].contains(&metadata.target())
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(event.metadata().target().to_owned());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// All lines since the first call that contain this path.
fn lines_of(path: &str) -> Vec<String> {
    static LINES: OnceLock<Arc<Mutex<Vec<String>>>> = OnceLock::new();
    let lines = LINES.get_or_init(|| {
        let lines = Arc::new(Mutex::new(Vec::new()));
        tracing::subscriber::set_global_default(Lines(Arc::clone(&lines))).unwrap();
        lines
    });
    let lines = lines.lock().unwrap();
    lines
        .iter()
        .filter(|line| line.contains(path))
        .cloned()
        .collect()
}

const POLICY: &str = "default: pass\nlimits: [{ name: all, key: ip, allow: 1/h }]\n";

#[test]
fn every_request_is_logged_with_path_status_and_client_and_refusals_too() {
    assert!(lines_of("/logged").is_empty());
    let upstream = Upstream::start();
    let gateway = TestGateway::before(POLICY, upstream.port);
    assert_eq!(gateway.get("/logged?secret=1").status, 200);
    assert_eq!(gateway.get("/logged").status, 429);
    let lines = lines_of("/logged");
    assert!(
        lines.iter().all(|line| !line.contains("secret")),
        "{lines:#?}"
    );
    let has = |parts: &[&str]| {
        let is_it = |line: &&String| parts.iter().all(|part| line.contains(part));
        lines.iter().filter(is_it).count()
    };
    let common = ["method=\"GET\"", "path=\"/logged\"", "=127.0.0.1"];
    let with = |more: &[&'static str]| has(&[&common, more].concat());
    assert_eq!(with(&["tollgate::access", "status=200"]), 1, "{lines:#?}");
    assert_eq!(with(&["tollgate::access", "status=429"]), 1, "{lines:#?}");
    assert_eq!(
        with(&["tollgate::refused", "limit=\"all\""]),
        1,
        "{lines:#?}"
    );
}

#[test]
fn a_policy_that_hides_keys_hides_path_and_client() {
    assert!(lines_of("/hidden").is_empty());
    let upstream = Upstream::start();
    let gateway = TestGateway::before(&format!("key_privacy: hashed\n{POLICY}"), upstream.port);
    assert_eq!(gateway.get("/hidden").status, 200);
    assert_eq!(gateway.get("/hidden").status, 429);
    assert!(lines_of("/hidden").is_empty());
}
