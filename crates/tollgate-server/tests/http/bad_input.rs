//! Untrusted input: never a 500, always a response, and the server continues.

use std::io::{Read, Write};

use super::client::{Server, parse};

const POLICY: &str = "
default: pass
limits:
  - { name: per-ip, key: ip, algorithm: fixed-window, allow: 1000000/h }
";

#[test]
fn a_malformed_body_names_the_error_and_its_place() {
    let server = Server::start(POLICY);
    let deep = format!("{{\"headers\":{}", "[".repeat(5_000));
    let deep_objects = "{\"fields\":".repeat(1_000);
    let table: &[(&str, &str)] = &[
        ("", "empty"),
        ("   ", "EOF"),
        ("{", "EOF"),
        ("[]", "expected an object"),
        ("null", "expected an object"),
        ("7", "expected an object"),
        ("\"text\"", "expected an object"),
        (r#"{"path":"/"} {}"#, "trailing"),
        (r#"{"path":"/"}x"#, "trailing"),
        ("{\"pth\":\"/\"}", "did you mean `path`?"),
        ("{\"hdrs\":{}}", "unknown field"),
        ("{\"path\":\"/\",\"path\":\"/\"}", "is repeated"),
        ("{\"path\":7}", "expected a text"),
        ("{\"path\":null}", "expected a text"),
        ("{\"method\":[\"GET\"]}", "expected a text"),
        ("{\"cost\":-1}", "0 or more"),
        ("{\"cost\":1.5}", "0 or more"),
        ("{\"cost\":1e3}", "0 or more"),
        ("{\"cost\":NaN}", "line 1 column"),
        ("{\"cost\":Infinity}", "line 1 column"),
        ("{\"cost\":18446744073709551616}", "0 or more"),
        ("{\"cost\":\"1\"}", "0 or more"),
        ("{\"cost\":true}", "0 or more"),
        ("{\"reserve\":1}", "expected a boolean"),
        ("{\"ip\":\"1.2.3\"}", "no IP address"),
        ("{\"ip\":\"1.2.3.4/32\"}", "no IP address"),
        ("{\"ip\":7}", "expected a text"),
        ("{\"headers\":[]}", "an object of headers"),
        ("{\"headers\":{\"a\":7}}", "a text, or a list of texts"),
        ("{\"headers\":{\"a\":[7]}}", "expected a text"),
        ("{\"headers\":{\"a\":\"1\",\"a\":\"2\"}}", "is repeated"),
        ("{\"fields\":{\"a\":1.5}}", "a text or a whole number"),
        ("{\"fields\":{\"a\":{}}}", "a text or a whole number"),
        ("{\"descriptor\":7}", "an object of texts"),
        (
            "{\"descriptor\":[{\"key\":\"a\"}]}",
            "a `key` and a `value`",
        ),
        (
            "{\"descriptor\":[{\"key\":\"a\",\"value\":\"b\",\"x\":1}]}",
            "unknown field",
        ),
        ("{\"key\":\"a\"}", "`key` needs `limit`"),
        (
            "{\"limit\":\"per-ip\",\"path\":\"/\"}",
            "`limit` excludes facts",
        ),
        (
            "{\"limit\":\"per-ip\",\"key\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"]}",
            "more than 8",
        ),
        ("{\"limit\":\"per-ip\",\"key\":7}", "a text, or a list"),
        ("{\"path\":\"\\ud800\"}", "line 1 column"),
        ("{\"path\":\"a\nb\"}", "line 2 column"),
        (&deep, "an object of headers"),
        (&deep_objects, "a text or a whole number"),
    ];
    for (body, expected) in table {
        let reply = server.check(body);
        assert_eq!(reply.status, 400, "{body}: {}", reply.body);
        assert_eq!(
            reply.header("content-type"),
            Some("application/problem+json"),
            "{body}"
        );
        let detail = reply.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(expected), "{body}: {detail}");
    }
    let reply = server.send("POST", "/v1/check", &[], b"{\"path\":\"/\xff\xfe\"}");
    assert_eq!(reply.status, 400);
    assert_eq!(server.check(r#"{"path":"/"}"#).status, 200);
}

#[test]
fn a_request_without_facts_is_an_error() {
    let server = Server::start(POLICY);
    for body in ["{}", r#"{"cost":1}"#, r#"{"reserve":true}"#] {
        for target in ["/v1/check", "/v1/peek"] {
            let reply = server.post(target, body);
            assert_eq!(reply.status, 400, "{target} {body}");
            let detail = reply.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains("has no facts"), "{detail}");
        }
    }
    let batch = server.post("/v1/check/batch", r#"{"requests":[{"path":"/"},{}]}"#);
    assert_eq!(batch.status, 400);
}

#[test]
fn batches_and_settlements_are_read_as_strictly() {
    let server = Server::start(POLICY);
    let one = r#"{"path":"/"}"#;
    let many = format!("{{\"requests\":[{}{one}]}}", format!("{one},").repeat(256));
    for (target, body, expected) in [
        ("/v1/check/batch", "{}", "`requests` is missing"),
        (
            "/v1/check/batch",
            "{\"request\":[]}",
            "did you mean `requests`?",
        ),
        (
            "/v1/check/batch",
            "{\"requests\":{}}",
            "a list of at most 256",
        ),
        ("/v1/check/batch", many.as_str(), "more than 256"),
        (
            "/v1/check/batch",
            "{\"requests\":[{\"path\":\"/\"},{\"cost\":-1}]}",
            "line 1 column 36",
        ),
        ("/v1/settle", "{}", "`reservation` is missing"),
        ("/v1/settle", "{\"reservation\":7}", "expected a text"),
        (
            "/v1/settle",
            "{\"reservation\":\"x\",\"actual\":-1}",
            "0 or more",
        ),
        (
            "/v1/settle",
            "{\"reservation\":\"x\",\"actual\":1,\"cancel\":true}",
            "send one of them",
        ),
    ] {
        let reply = server.post(target, body);
        assert_eq!(reply.status, 400, "{body}: {}", reply.body);
        assert!(reply.body.contains(expected), "{body}: {}", reply.body);
    }
}

#[test]
fn wrong_paths_methods_and_types_are_client_errors() {
    let server = Server::start(POLICY);
    let lost = server.get("/v1/chek");
    assert_eq!(lost.status, 404);
    assert!(
        lost.body.contains("did you mean `/v1/check`?"),
        "{}",
        lost.body
    );
    let wrong = server.get("/v1/check");
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("POST")));
    let wrong = server.send("DELETE", "/v1/limits", &[], b"");
    assert_eq!(
        (wrong.status, wrong.header("allow")),
        (405, Some("GET, HEAD"))
    );
    for (media, status) in [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("text/plain", 415),
        ("application/jsonx", 415),
    ] {
        let reply = server.send(
            "POST",
            "/v1/check",
            &[("content-type", media)],
            br#"{"path":"/"}"#,
        );
        assert_eq!(reply.status, status, "{media}");
    }
    assert_eq!(server.send("TRACE", "/health", &[], b"").status, 405);
    assert!(
        server
            .raw(b"CONNECT x:1 HTTP/1.1\r\nhost: x:1\r\nconnection: close\r\n\r\n")
            .starts_with(b"HTTP/1.1 404")
    );
    assert!(
        server
            .raw(b"OPTIONS * HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .starts_with(b"HTTP/1.1 404")
    );
}

#[test]
fn an_oversized_request_is_refused_and_the_response_arrives() {
    let server = Server::start(POLICY);
    let large = format!("{{\"path\":\"{}\"}}", "a".repeat(70_000));
    assert_eq!(server.check(&large).status, 413);
    // Ten megabytes to a path that does not want them: the answer is read all the same.
    let huge = vec![b'x'; 10 << 20];
    assert_eq!(server.send("POST", "/nowhere", &[], &huge).status, 404);
    assert_eq!(server.send("POST", "/v1/check", &[], &huge).status, 413);
    let long = format!("/v1/limits?{}", "a".repeat(9_000));
    assert_eq!(server.get(&long).status, 414);
    let longer = format!("/v1/limits?{}", "a".repeat(80_000));
    assert!(matches!(server.get(&longer).status, 414 | 431));
    let mut fields = b"GET /health HTTP/1.1\r\nhost: x\r\n".to_vec();
    for n in 0..100_000 {
        fields.extend_from_slice(format!("x-{n}: 1\r\n").as_bytes());
    }
    fields.extend_from_slice(b"\r\n");
    assert!(server.raw(&fields).starts_with(b"HTTP/1.1 431"));
    let mut fields = b"GET /health HTTP/1.1\r\nhost: x\r\n".to_vec();
    for n in 0..120 {
        fields.extend_from_slice(format!("x-{n}: 1\r\n").as_bytes());
    }
    fields.extend_from_slice(b"\r\n");
    assert!(server.raw(&fields).starts_with(b"HTTP/1.1 431"));
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn bytes_that_are_not_http_are_refused() {
    let server = Server::start(POLICY);
    for sent in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"*1\r\n$4\r\nPING\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: x\r\nbad header\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: x\r\n\xff\xfe: 1\r\n\r\n",
        b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
        b"POST /v1/check HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\n\r\n",
        b"POST /v1/check HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"G\x00T / HTTP/1.1\r\n\r\n",
    ] {
        let answer = server.raw(sent);
        let shown = String::from_utf8_lossy(&answer).into_owned();
        assert!(
            shown.starts_with("HTTP/1.1 4"),
            "{:?}: {shown}",
            String::from_utf8_lossy(sent)
        );
    }
    // What stands behind the last request does not cost it its answer.
    let sent = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\nleft over";
    assert!(server.raw(sent).starts_with(b"HTTP/1.1 200"));
    // Headers are bytes: one that no rule reads need not be UTF-8.
    assert!(
        server
            .raw(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-a: \xff\xfe\r\n\r\n")
            .starts_with(b"HTTP/1.1 200")
    );
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn chunked_bodies_are_read() {
    let server = Server::start(POLICY);
    let sent = b"POST /v1/check HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\nb\r\n\"path\":\"/\"}\r\n0\r\n\r\n";
    assert_eq!(parse(&server.raw(sent)).status, 200);
}

#[test]
fn split_bodies_and_pipelined_requests_are_read() {
    let server = Server::start(POLICY);
    let mut stream = server.connect();
    for piece in [
        "POST /v1/che",
        "ck HTTP/1.1\r\nhost: x\r\ncontent-le",
        "ngth: 12\r\n\r\n",
        "{\"path\"",
        ":\"/\"}",
    ] {
        stream.write_all(piece.as_bytes()).unwrap();
        #[expect(clippy::disallowed_methods, reason = "so that the pieces arrive apart")]
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let mut first = [0; 15];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    // A refused body does not become the next request.
    let smuggled = "GET /v1/limits HTTP/1.1\r\nhost: x\r\n\r\n";
    let sent = format!(
        "POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{smuggled}GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        smuggled.len()
    );
    let answer = String::from_utf8(server.raw(sent.as_bytes())).unwrap();
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 2, "{answer}");
    assert!(
        answer.contains("404 Not Found") && answer.ends_with(r#"{"status":"ok"}"#),
        "{answer}"
    );
}

#[test]
fn one_packet_with_many_requests_admits_exactly_what_is_allowed() {
    let server = Server::start(
        "default: pass\nlimits: [{ name: once, algorithm: fixed-window, allow: 1/h }]\n",
    );
    let mut sent =
        "POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 12\r\n\r\n{\"path\":\"/\"}"
            .repeat(64);
    sent += "POST /v1/check HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 12\r\n\r\n{\"path\":\"/\"}";
    let answer = String::from_utf8(server.raw(sent.as_bytes())).unwrap();
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 1);
    assert_eq!(answer.matches("HTTP/1.1 429 ").count(), 64);
}
