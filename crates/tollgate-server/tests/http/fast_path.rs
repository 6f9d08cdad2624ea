//! A request is answered alike whether it is common or not: on the fast path, or through hyper, which it
//! reaches by asking for the connection to end.

use std::io::{Read, Write};

use super::client::Server;

const POLICY: &str = "
default: pass
headers: { x_ratelimit: seconds }
limits:
  - { name: full, match: { path: /full }, allow: 1/h, burst: 5 }
  - { name: used-up, match: { path: /used-up }, allow: 1/h, burst: 1 }
  - { name: small, match: { path: /small }, allow: 5/h, cost: 3, burst: 4 }
  - { name: dear, match: { path: /dear }, allow: 5/h, cost: 30, burst: 40 }
  - { name: keyed, match: { path: /keyed }, key: header.user, missing_key: deny, allow: 1/h }
  - { name: shadow, allow: 1/h, mode: shadow }
deny: [ { name: bad, match: { path: /bad } } ]
allow: [ { name: good, match: { path: /good } } ]
";

/// The answer, without what differs from moment to moment or by the lane.
fn ask(server: &Server, request: &str, closes: bool) -> String {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let close = if closes { "\r\nConnection: close" } else { "" };
    let mut stream = server.connect();
    write!(stream, "{head}{close}\r\n\r\n{body}").unwrap();
    if !closes {
        // The next request ends it.
        write!(stream, "GET /health HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let length = answer.find("content-length: ").unwrap();
    let length = answer[length + 16..].lines().next().unwrap();
    let begins = answer.find("\r\n\r\n").unwrap() + 4;
    let ends = begins + length.parse::<usize>().unwrap();
    let head = answer[..begins].lines();
    // What counts down may count less by now, and be shorter.
    let passes = [
        "date",
        "connection",
        "content-length",
        "retry-after",
        "x-ratelimit-reset",
    ];
    let kept = head.filter(|line| {
        !passes
            .iter()
            .any(|name| line.starts_with(&format!("{name}: ")))
    });
    let until = |line: &str| line.split(";t=").next().unwrap_or_default().to_owned();
    let mut lines: Vec<String> = kept.map(until).collect();
    lines[1..].sort_unstable();
    // Waits get shorter as time passes.
    let body = answer[begins..ends]
        .split(',')
        .filter(|part| !part.contains("_ms\""));
    let body = body.filter(|part| !part.contains("try again in"));
    format!(
        "{}\n{}",
        lines.join("\n"),
        body.collect::<Vec<_>>().join(",")
    )
}

fn check(body: &str) -> String {
    let length = body.len();
    format!("POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}")
}

fn auth(path: &str, uri: &str, more: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nX-Forwarded-Uri: {uri}\r\nX-Original-URI: {uri}{more}\r\n\r\n"
    )
}

#[test]
fn both_paths_write_the_same_response() {
    let mut requests = Vec::new();
    for path in [
        "/full", "/used-up", "/small", "/dear", "/keyed", "/bad", "/good", "/none", "/a%2fb",
    ] {
        requests.push(check(&format!(r#"{{"path":"{path}","cost":0}}"#)));
        requests.push(check(&format!(r#"{{"path":"{path}"}}"#)));
        requests.push(auth("/v1/auth", path, ""));
        requests.push(auth("/v1/auth/nginx", path, ""));
        requests.push(auth("/v1/auth?deny=403", path, "\r\nuser: a"));
    }
    for body in [
        "",
        "{",
        "[]",
        r#"{"paht":"/"}"#,
        r#"{"limit":"none"}"#,
        r#"{"limit":"full"}"#,
        r#"{"cost":-1}"#,
    ] {
        requests.push(check(body));
    }
    requests.push(auth("/v1/auth", "/full", "\r\nX-Forwarded-Uri: /other"));
    requests.push(auth("/v1/auth?deny=x", "/full", ""));
    requests.push("GET /v1/auth/nginx HTTP/1.1\r\nHost: x\r\n\r\n".into());
    requests.push("GET /v1/check HTTP/1.1\r\nHost: x\r\n\r\n".into());
    requests.push(
        "POST /v1/check HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}".into(),
    );
    for request in [
        "GET /nothing",
        "GET /nothing?a=b#c",
        "GET http://x/v1/limits",
        "GET /v1/limits",
        "POST /v1/limits",
        "GET /openapi.json",
        "PUT /v1/auth/nginx",
        "TRACE /v1/auth",
    ] {
        requests.push(format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n"));
    }
    for (path, body) in [
        ("/v1/peek", r#"{"path":"/full"}"#),
        ("/v1/peek", r#"{"reserve":true}"#),
        (
            "/v1/check/batch",
            r#"{"requests":[{"path":"/none"},{"limit":"none"}]}"#,
        ),
        ("/v1/check/batch", "{"),
        ("/v1/settle", r#"{"reservation":"0"}"#),
    ] {
        requests.push(check(body).replace("/v1/check ", &format!("{path} ")));
    }
    let (fast, hyper) = (Server::start(POLICY), Server::start(POLICY));
    for server in [&fast, &hyper] {
        ask(server, &check(r#"{"path":"/used-up"}"#), true);
    }
    for request in &requests {
        let (here, there) = (ask(&fast, request, false), ask(&hyper, request, true));
        assert_eq!(here, there, "{request}");
    }
}

#[test]
fn pipelined_requests_are_answered_in_order_across_both_paths() {
    let server = Server::start(POLICY);
    let one = check(r#"{"path":"/none"}"#);
    let other = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
    let chunked = "POST /v1/check HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nc\r\n{\"path\":\"/\"}\r\n0\r\n\r\n";
    let last = "GET /nothing HTTP/1.1\r\nConnection: close\r\n\r\n";
    let sent = format!("{}{}{other}{}{chunked}{}{last}", one, one, one, one);
    let answer = String::from_utf8(server.raw(sent.as_bytes())).unwrap();
    let statuses: Vec<&str> = answer
        .match_indices("HTTP/1.1 ")
        .map(|(at, _)| &answer[at + 9..at + 12])
        .collect();
    assert_eq!(statuses, ["200", "200", "200", "200", "200", "200", "404"]);
}

#[test]
fn a_request_in_single_bytes_is_answered() {
    let server = Server::start(POLICY);
    let mut stream = server.connect();
    for byte in check(r#"{"path":"/none"}"#).bytes() {
        stream.write_all(&[byte]).unwrap();
    }
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[test]
fn a_client_that_does_not_read_is_paused_and_loses_nothing() {
    let server = Server::start(POLICY);
    let mut stream = server.connect();
    let request = check(r#"{"path":"/good"}"#);
    let count = 20_000;
    let mut writer = stream.try_clone().unwrap();
    let sent = std::thread::spawn(move || {
        for _ in 0..count {
            writer.write_all(request.as_bytes()).unwrap();
        }
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    sent.join().unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), count);
}
