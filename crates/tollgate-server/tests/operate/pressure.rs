//! Less for everybody, by an operator's word.

use std::time::Duration;

use serde_json::json;

use crate::admin::desk;
use crate::world::{Directory, admitted, logged_by_all, operate, policy, send};

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
fn an_operator_leaves_half_of_everything_and_gives_it_back() {
    let dir = Directory::new();
    let desk = desk(&dir.write("p.yaml", &policy(10)));
    let got = operate(desk.at, "GET", "/pressure", "").json();
    assert_eq!(
        (&got["scale"], &got["held_until"]),
        (&json!("100%"), &json!(null))
    );
    let got = operate(desk.at, "POST", "/pressure", HALF);
    assert_eq!(got.status, 200, "{}", got.body);
    let got = got.json();
    assert_eq!(
        (&got["scale"], &got["plain"]),
        (&json!("50%"), &json!("50%"))
    );
    assert!(got["held_until"].as_u64().is_some());
    assert_eq!(admitted(&desk.engine, "ann", 20), 5);
    let ready = send(desk.at, "GET", "/ready", &[], "").json();
    assert_eq!(ready["pressure"], json!({"scale": "50%", "held": true}));
    assert_eq!(ready["status"], "ok");
    let metrics = send(desk.at, "GET", "/metrics", &[], "").body;
    assert!(
        metrics.contains("\ntollgate_pressure_scale_ratio 0.500000\n"),
        "{metrics}"
    );
    // Whatever is observed.
    desk.engine.step_pressure();
    assert_eq!(admitted(&desk.engine, "bob", 20), 5);
    // Given back, it grows from where it was.
    let got = operate(desk.at, "DELETE", "/pressure", "");
    assert_eq!(got.json()["held_until"], json!(null));
    pause();
    desk.engine.step_pressure();
    let got = operate(desk.at, "GET", "/pressure", "").json();
    assert_eq!(got["scale"], "51.99%");
    operate(
        desk.at,
        "POST",
        "/pressure",
        r#"{"scale": "100%", "for": "1s"}"#,
    );
    assert_eq!(admitted(&desk.engine, "cid", 20), 10);
}

#[test]
fn a_reload_under_pressure_is_under_pressure() {
    let dir = Directory::new();
    let desk = desk(&dir.write("p.yaml", &policy(10)));
    operate(desk.at, "POST", "/pressure", HALF);
    dir.write("p.yaml", &policy(20));
    assert_eq!(
        operate(desk.at, "POST", "/reload", "").json()["outcome"],
        "changed"
    );
    assert_eq!(admitted(&desk.engine, "ann", 30), 10);
}

#[test]
fn nobody_is_left_with_less_than_the_floor() {
    let dir = Directory::new();
    let desk = desk(&dir.write("p.yaml", &policy(100)));
    let body = r#"{"scale": "0.01%", "for": "1h"}"#;
    let got = operate(desk.at, "POST", "/pressure", body).json();
    assert_eq!(got["scale"], "10%");
    assert_eq!(admitted(&desk.engine, "ann", 30), 10);
}

#[test]
fn what_makes_no_sense_is_told_with_a_hint_and_changes_nothing() {
    let dir = Directory::new();
    let desk = desk(&dir.write("p.yaml", &policy(10)));
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
        let got = operate(desk.at, "POST", "/pressure", body);
        assert_eq!(got.status, 400, "{body}: {}", got.body);
        let hint = got.json()["hint"].to_string();
        assert!(hint.contains("50%") && hint.contains("10m"), "{hint}");
    }
    assert_eq!(admitted(&desk.engine, "ann", 20), 10);
}

#[test]
fn every_change_of_pressure_leaves_a_line() {
    let dir = Directory::new();
    let desk = desk(&dir.write("p.yaml", &policy(10)));
    logged_by_all();
    operate(
        desk.at,
        "POST",
        "/pressure",
        r#"{"scale": "37.5%", "for": "10m"}"#,
    );
    operate(desk.at, "DELETE", "/pressure", "");
    let lines = logged_by_all();
    for says in [
        "action=\"pressure\" old=100% new=37.5",
        "action=\"pressure\" old=\"held\" new=\"automatic\"",
    ] {
        let is = |line: &&String| line.starts_with("tollgate::audit") && line.contains(says);
        assert!(lines.iter().any(|line| is(&line)), "{says}: {lines:#?}");
    }
}
