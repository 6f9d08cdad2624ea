//! Load shedding by an operator.

use std::time::Duration;

use serde_json::json;

use crate::admin::serve_policy;
use crate::support::{Directory, admitted, logged_by_all, operate, policy, send};

const HALF: &str = r#"{"scale": "50%", "for": "10m"}"#;

/// As long as there must be between two steps.
#[expect(
    clippy::disallowed_methods,
    reason = "steps that come too soon change nothing"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(150));
}

#[test]
fn an_operator_halves_all_limits_and_restores_them() {
    let dir = Directory::new();
    let server = serve_policy(&dir.write("p.yaml", &policy(10)));
    let got = operate(server.at, "GET", "/pressure", "").json();
    assert_eq!(
        (&got["scale"], &got["held_until"]),
        (&json!("100%"), &json!(null))
    );
    let got = operate(server.at, "POST", "/pressure", HALF);
    assert_eq!(got.status, 200, "{}", got.body);
    let got = got.json();
    assert_eq!(
        (&got["scale"], &got["plain"]),
        (&json!("50%"), &json!("50%"))
    );
    assert!(got["held_until"].as_u64().is_some());
    assert_eq!(admitted(&server.engine, "ann", 20), 5);
    let ready = send(server.at, "GET", "/ready", &[], "").json();
    assert_eq!(ready["pressure"], json!({"scale": "50%", "held": true}));
    assert_eq!(ready["status"], "ok");
    let metrics = send(server.at, "GET", "/metrics", &[], "").body;
    assert!(
        metrics.contains("\ntollgate_pressure_scale_ratio 0.500000\n"),
        "{metrics}"
    );
    // Whatever is observed.
    server.engine.step_pressure();
    assert_eq!(admitted(&server.engine, "bob", 20), 5);
    // Given back, it grows from where it was.
    let got = operate(server.at, "DELETE", "/pressure", "");
    assert_eq!(got.json()["held_until"], json!(null));
    pause();
    server.engine.step_pressure();
    let got = operate(server.at, "GET", "/pressure", "").json();
    assert_eq!(got["scale"], "51.99%");
    operate(
        server.at,
        "POST",
        "/pressure",
        r#"{"scale": "100%", "for": "1s"}"#,
    );
    assert_eq!(admitted(&server.engine, "cid", 20), 10);
}

#[test]
fn a_reload_keeps_the_scale() {
    let dir = Directory::new();
    let server = serve_policy(&dir.write("p.yaml", &policy(10)));
    operate(server.at, "POST", "/pressure", HALF);
    dir.write("p.yaml", &policy(20));
    assert_eq!(
        operate(server.at, "POST", "/reload", "").json()["outcome"],
        "changed"
    );
    assert_eq!(admitted(&server.engine, "ann", 30), 10);
}

#[test]
fn no_tier_is_scaled_below_its_floor() {
    let dir = Directory::new();
    let server = serve_policy(&dir.write("p.yaml", &policy(100)));
    let body = r#"{"scale": "0.01%", "for": "1h"}"#;
    let got = operate(server.at, "POST", "/pressure", body).json();
    assert_eq!(got["scale"], "10%");
    assert_eq!(admitted(&server.engine, "ann", 30), 10);
}

#[test]
fn an_invalid_scale_is_refused_with_a_hint() {
    let dir = Directory::new();
    let server = serve_policy(&dir.write("p.yaml", &policy(10)));
    for body in [
        "",
        "{}",
        r#"{"scale": "50%"}"#,
        r#"{"scale": 0.5, "for": "10m"}"#,
        r#"{"scale": "0%", "for": "10m"}"#,
        r#"{"scale": "101%", "for": "10m"}"#,
        r#"{"scale": "50%", "for": "0s"}"#,
        r#"{"scale": "50%", "for": "25h"}"#,
        r#"{"scale": "50%", "for": "soon"}"#,
        r#"{"scale": "50%", "for": "10m", "more": 1}"#,
    ] {
        let got = operate(server.at, "POST", "/pressure", body);
        assert_eq!(got.status, 400, "{body}: {}", got.body);
        let hint = got.json()["hint"].to_string();
        assert!(hint.contains("50%") && hint.contains("10m"), "{hint}");
    }
    assert_eq!(admitted(&server.engine, "ann", 20), 10);
}

#[test]
fn every_change_of_the_scale_is_logged() {
    let dir = Directory::new();
    let server = serve_policy(&dir.write("p.yaml", &policy(10)));
    logged_by_all();
    operate(
        server.at,
        "POST",
        "/pressure",
        r#"{"scale": "37.5%", "for": "10m"}"#,
    );
    operate(server.at, "DELETE", "/pressure", "");
    let lines = logged_by_all();
    for says in [
        "action=\"pressure\" old=100% new=37.5",
        "action=\"pressure\" old=\"held\" new=\"automatic\"",
    ] {
        let is = |line: &&String| line.starts_with("tollgate::audit") && line.contains(says);
        assert!(lines.iter().any(|line| is(&line)), "{says}: {lines:#?}");
    }
}
