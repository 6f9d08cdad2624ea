//! Reservations and `/v1/settle`.

use super::client::Server;

const POLICY: &str = "
default: pass
limits:
  - { name: tokens, match: { path: /llm }, key: header.who, algorithm: fixed-window, allow: 100/h }
  - { name: jobs, match: { path: /jobs }, algorithm: concurrency, allow: 1, ttl: 1h }
";

const LLM: &str = r#"{"path":"/llm","headers":{"who":"a"},"cost":60,"reserve":true}"#;

#[test]
fn a_reservation_is_corrected_once() {
    let server = Server::start(POLICY);
    let reply = server.check(LLM);
    assert_eq!(reply.json()["remaining"], 40);
    let name = reply.json()["reservation"].as_str().unwrap().to_owned();
    assert_eq!(name.len(), 32);
    let settled = server.post(
        "/v1/settle",
        &format!(r#"{{"reservation":"{name}","actual":10}}"#),
    );
    assert_eq!(
        (settled.status, settled.body.as_str()),
        (200, r#"{"unpaid":0}"#)
    );
    assert_eq!(
        server
            .post("/v1/peek", &LLM.replace(",\"reserve\":true", ""))
            .json()["remaining"],
        30
    );
    let again = server.post(
        "/v1/settle",
        &format!(r#"{{"reservation":"{name}","actual":10}}"#),
    );
    assert_eq!(again.status, 404);
    assert_eq!(
        server
            .post("/v1/settle", r#"{"reservation":"what?"}"#)
            .status,
        404
    );
}

#[test]
fn a_reservation_that_took_more_is_owed_up_to_the_bound() {
    let server = Server::start(
        "
default: pass
limits:
  - { name: tokens, key: header.who, allow: 100/h, when_over: owe, max_debt: 400 }
",
    );
    let settle = |actual: u64| {
        let reply = server.check(LLM);
        let name = reply.json()["reservation"].as_str().unwrap().to_owned();
        let body = format!(r#"{{"reservation":"{name}","actual":{actual}}}"#);
        server.post("/v1/settle", &body).json()["unpaid"].clone()
    };
    assert_eq!(settle(300), 0);
    let refused = server.check(LLM);
    let refused = refused.json();
    assert_eq!(
        (&refused["verdict"], &refused["remaining"]),
        (&"refuse".into(), &0.into())
    );
    // 200 are owed and 60 are asked for, at 36 s each, less the time that this test takes.
    let retry_after = refused["retry_after_ms"].as_u64().unwrap();
    assert!(
        (9_300_000..=9_360_000).contains(&retry_after),
        "{retry_after}"
    );
    // Refusals leave the debt as it is.
    assert_eq!(server.check(LLM).json()["remaining"], 0);
}

#[test]
fn a_reservation_is_cancelled_and_paid_beyond_what_is_left() {
    let server = Server::start(POLICY);
    let name =
        |reply: super::client::Reply| reply.json()["reservation"].as_str().unwrap().to_owned();
    let first = name(server.check(LLM));
    assert_eq!(
        server
            .post(
                "/v1/settle",
                &format!(r#"{{"reservation":"{first}","cancel":true}}"#)
            )
            .status,
        200
    );
    let second = server.check(LLM);
    assert_eq!(second.json()["remaining"], 40);
    let settled = server.post(
        "/v1/settle",
        &format!(r#"{{"reservation":"{}","actual":150}}"#, name(second)),
    );
    assert_eq!(settled.status, 200);
    assert_eq!(server.check(LLM).status, 429);
}

#[test]
fn a_permit_is_always_reserved_and_released_by_settling() {
    let server = Server::start(POLICY);
    let ask = r#"{"path":"/jobs"}"#;
    let first = server.check(ask);
    let name = first.json()["reservation"].as_str().unwrap().to_owned();
    let refused = server.check(ask);
    assert_eq!(refused.status, 429);
    // Not the `ttl`: the place is free after the next release.
    assert_eq!(refused.json()["retry_after_ms"], 1_000);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(
        server
            .post("/v1/settle", &format!(r#"{{"reservation":"{name}"}}"#))
            .status,
        200
    );
    assert_eq!(server.check(ask).status, 200);
}

#[test]
fn an_uncharged_request_has_no_reservation() {
    let server = Server::start(POLICY);
    assert!(server.check(r#"{"path":"/free","reserve":true}"#).json()["reservation"].is_null());
    assert!(
        server
            .check(r#"{"path":"/free"}"#)
            .json()
            .get("reservation")
            .is_none()
    );
    server.check(LLM);
    let refused = server.check(LLM);
    assert_eq!(refused.status, 429);
    assert!(refused.json()["reservation"].is_null());
    assert_eq!(server.post("/v1/peek", LLM).status, 400);
}
