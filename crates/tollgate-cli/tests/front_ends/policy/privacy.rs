//! Privacy of keys in logs, in metrics, and in what operators read.

use super::asked;
use tollgate_testkit::wait;

use crate::harness::serve;

const CANARY: &str = "canary-4f1d";

/// Refuses the canary a few times and returns everything that an operator can read.
fn output_with(privacy: &str) -> String {
    let policy = format!(
        "default: pass\nkey_privacy: {privacy}\nlimits: [{{ name: one, key: header.u, allow: 1/h, burst: 1 }}]\n"
    );
    let server = serve(&policy);
    let ask = format!(r#"{{"path":"/","headers":{{"u":"{CANARY}"}}}}"#);
    asked(&server, &[(1, &ask, 200), (3, &ask, 429)]);
    let body = format!(r#"{{"limit":"one","key":"{CANARY}","burst":2}}"#);
    server.operate("PUT", "/overrides", &body).expect(200);
    wait("the change is in the log", || {
        server.log().contains("override set")
    });
    let top = server.operate("GET", "/top", "").expect(200);
    assert_eq!(top.json()["refused"][0]["limit"], "one", "{top:?}");
    let mut admin = server.admin();
    let open: Vec<String> = ["/metrics", "/ready", "/health"]
        .iter()
        .map(|path| admin.get(path).expect(200).body)
        .collect();
    let limits = server.client().get("/v1/limits").body;
    format!(
        "{}\n{}\n{}\n{limits}",
        top.body,
        open.join("\n"),
        server.log()
    )
}

#[test]
fn a_hashed_key_is_nowhere_to_be_read() {
    let output = output_with("hashed");
    assert!(!output.contains(CANARY), "{output}");
}

#[test]
fn a_plain_key_is_shown_to_operators_and_never_in_metrics() {
    let output = output_with("plain");
    assert!(output.contains(CANARY), "{output}");
    let metrics = output.lines().filter(|line| line.starts_with("tollgate_"));
    for line in metrics {
        assert!(!line.contains(CANARY), "{line}");
    }
}

#[test]
fn a_key_cannot_write_lines_of_its_own_into_the_log() {
    let server =
        serve("default: pass\nlimits: [{ name: one, key: field.u, allow: 1/h, burst: 1 }]\n");
    let ask = r#"{"path":"/","fields":{"u":"a\u001b[2J\r\nFAKE \u202e line"}}"#;
    asked(&server, &[(1, ask, 200), (2, ask, 429)]);
    wait("it is in the log", || server.log().contains("FAKE"));
    let log = server.log();
    let is_plain = |c: char| c == '\n' || !(c.is_control() || c == '\u{202e}');
    assert!(log.chars().all(is_plain), "{log:?}");
    assert!(!log.lines().any(|line| line.starts_with("FAKE")), "{log}");
    let top = server.operate("GET", "/top", "").expect(200);
    assert!(!top.body.contains('\u{202e}'), "{top:?}");
}
