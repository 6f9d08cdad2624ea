//! Ambiguous requests. None of them may reach a server, and every request that reaches it was admitted once.
//!
//! The corpus is a table of mutations of well-formed requests; behind each stands another request, which a
//! program that misjudges the first one's end would see.

use std::io::Write;

use tollgate_testkit::wait;

use crate::support::{OPEN, TestGateway, reply};
use crate::upstream::Upstream;

/// What must never be seen: it stands inside or behind a request that is wrong.
pub(crate) const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: app.example\r\n\r\n";

/// Wrong requests, each with a name.
pub(crate) fn corpus() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    let mut add = |name: String, bytes: &str| all.push((name, bytes.as_bytes().to_vec()));
    let host = "Host: app.example\r\n";

    // Two opinions about the length, in every order and spelling.
    let chunked = [
        "Transfer-Encoding: chunked",
        "transfer-encoding:chunked",
        "Transfer-Encoding:\tchunked",
        "TRANSFER-ENCODING: CHUNKED ",
    ];
    for te in chunked {
        for length in [
            "Content-Length: 4",
            "content-length:0",
            "CONTENT-LENGTH: 50",
        ] {
            for (a, b) in [(te, length), (length, te)] {
                add(
                    format!("{a} and {b}"),
                    &format!("POST / HTTP/1.1\r\n{host}{a}\r\n{b}\r\n\r\n0\r\n\r\n"),
                );
            }
        }
    }
    // Lengths that are no numbers, or several.
    for length in [
        "",
        "-1",
        "+4",
        "4 4",
        "4,4",
        "4, 5",
        "0x4",
        "4a",
        "4.0",
        "4e1",
        "\"4\"",
        "४",
        "99999999999999999999",
        "18446744073709551616",
        "1_000",
        "4;",
        "4\t4",
        "٤",
        "NaN",
        "4\u{b}",
    ] {
        add(
            format!("length {length:?}"),
            &format!("POST / HTTP/1.1\r\n{host}Content-Length: {length}\r\n\r\nabcd"),
        );
    }
    for (a, b) in [("4", "5"), ("4", "4"), ("0", "4"), ("4", "0"), ("4", "")] {
        add(
            format!("lengths {a} and {b}"),
            &format!(
                "POST / HTTP/1.1\r\n{host}Content-Length: {a}\r\nContent-Length: {b}\r\n\r\nabcd"
            ),
        );
    }
    // Encodings that are not `chunked` and nothing else.
    for te in [
        "",
        "identity",
        "gzip",
        "gzip, chunked",
        "chunked, gzip",
        "chunked, chunked",
        "xchunked",
        "chunkedx",
        "chunked;",
        "chunked; a=b",
        ", chunked",
        "chunked,",
        "\"chunked\"",
        "'chunked'",
        "chunked\u{b}",
        "chun ked",
        "identity, chunked",
        "cow",
        "chunked\t,",
        "\u{a0}chunked",
        "chunked\u{c}",
        "x, chunked, y",
    ] {
        add(
            format!("encoding {te:?}"),
            &format!("POST / HTTP/1.1\r\n{host}Transfer-Encoding: {te}\r\n\r\n0\r\n\r\n"),
        );
        add(
            format!("encoding {te:?} in two lines"),
            &format!(
                "POST / HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\nTransfer-Encoding: {te}\r\n\r\n0\r\n\r\n"
            ),
        );
    }
    add(
        "encoding in 1.0".into(),
        &format!("POST / HTTP/1.0\r\n{host}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    );
    // Names and lines that are read differently.
    for field in [
        "Transfer-Encoding : chunked",
        "Transfer-Encoding\t: chunked",
        " Transfer-Encoding: chunked",
        "Content-Length : 4",
        "Content Length: 4",
        ": 4",
        "Transfer-Encoding",
        "a b: c",
        "a\u{b}: b",
        "a(b): c",
        "a[b]: c",
        "a{b}: c",
        "a\\b: c",
        "a\"b: c",
        "a/b: c",
        "a;b: c",
        "a<b: c",
        "a=b: c",
        "a?b: c",
        "a@b: c",
        "a,b: c",
        "ä: c",
        "a\0: b",
        "a: b\0c",
        "a: \u{1}",
        "a: b\u{7f}",
        "a: b\r c",
        "a: b\rContent-Length: 4",
        "a: \u{1b}[0m",
        "\u{feff}a: b",
    ] {
        add(
            format!("field {field:?}"),
            &format!("POST / HTTP/1.1\r\n{host}{field}\r\nContent-Length: 0\r\n\r\n"),
        );
        add(
            format!("field {field:?} first"),
            &format!("GET / HTTP/1.1\r\n{field}\r\n{host}\r\n"),
        );
    }
    for fold in [
        " b",
        "\tb",
        " ",
        "\t",
        " Content-Length: 4",
        "\tTransfer-Encoding: chunked",
    ] {
        add(
            format!("folded {fold:?}"),
            &format!("GET / HTTP/1.1\r\n{host}a: b\r\n{fold}\r\n\r\n"),
        );
        add(
            format!("folded first {fold:?}"),
            &format!("GET / HTTP/1.1\r\n{fold}\r\n{host}\r\n"),
        );
    }
    // Ends of lines.
    for (name, bytes) in [
        ("bare LF", "GET / HTTP/1.1\nHost: a\n\n"),
        ("bare LF at the end", "GET / HTTP/1.1\r\nHost: a\r\n\n"),
        (
            "bare LF in fields",
            "GET / HTTP/1.1\r\nHost: a\nx: y\r\n\r\n",
        ),
        ("bare LF after the line", "GET / HTTP/1.1\nHost: a\r\n\r\n"),
        ("bare CR", "GET / HTTP/1.1\rHost: a\r\r\n\r\n"),
        ("CR CR LF", "GET / HTTP/1.1\r\r\nHost: a\r\n\r\n"),
        ("CR CR LF in fields", "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n"),
        ("LF CR", "GET / HTTP/1.1\n\rHost: a\n\r\n\r"),
        ("LF first", "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    ] {
        add(name.into(), bytes);
    }
    // First lines.
    for line in [
        "GET / HTTP/1.2",
        "GET / HTTP/2.0",
        "GET / HTTP/0.9",
        "GET / HTTP/1",
        "GET / HTTP/11",
        "GET / http/1.1",
        "GET / HTTP/1.1 ",
        "GET / HTTP/1.1 x",
        "GET /  HTTP/1.1",
        "GET  / HTTP/1.1",
        " GET / HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "GET /\tHTTP/1.1",
        "GET / XTTP/1.1",
        "GET /",
        "GET",
        "/",
        "GET /a b HTTP/1.1",
        "GET /#a HTTP/1.1",
        "GET /?a#b HTTP/1.1",
        "GET # HTTP/1.1",
        "GET /\u{e4} HTTP/1.1",
        "GET /\u{0} HTTP/1.1",
        "GET /\u{7f} HTTP/1.1",
        "G(T / HTTP/1.1",
        "G\u{e4}T / HTTP/1.1",
        "GET: / HTTP/1.1",
        "GET a HTTP/1.1",
        "GET a/b HTTP/1.1",
        "GET * HTTP/1.1",
        "GET ?a HTTP/1.1",
        "GET http:// HTTP/1.1",
        "GET http:///a HTTP/1.1",
        "GET http://other/ HTTP/1.1",
        "GET http://u@app.example/ HTTP/1.1",
        "GET http://u:p@app.example/ HTTP/1.1",
        "GET http://app.example:99/ HTTP/1.1",
        "GET ftp://app.example/ HTTP/1.1",
        "GET //@app.example HTTP/1.1#",
        "CONNECT app.example HTTP/1.1",
        "CONNECT app.example:80 HTTP/1.1",
        "CONNECT / HTTP/1.1",
        "TRACE / HTTP/1.1",
        "TOLLGATE-BAD-REQUEST /1 HTTP/1.1",
        "TOLLGATE-BAD-REQUEST / HTTP/1.1",
        "PRI * HTTP/2.0",
        "GET app.example HTTP/1.1",
        "GET javascript:a HTTP/1.1",
        "OPTIONS app HTTP/1.1",
    ] {
        add(format!("line {line:?}"), &format!("{line}\r\n{host}\r\n"));
    }
    // Hosts.
    for hosts in [
        "",
        "Host:\r\n",
        "Host: \r\n",
        "Host: a\r\nHost: a\r\n",
        "Host: a\r\nhost: b\r\n",
        "Host: a b\r\n",
        "Host: a, b\r\n",
        "Host: a/b\r\n",
        "Host: u@a\r\n",
        "Host: a?b\r\n",
        "Host: a#b\r\n",
        "Host: ä\r\n",
        "Host: a\\b\r\n",
        "Host: <a>\r\n",
        "Host : a\r\n",
        " Host: a\r\n",
    ] {
        add(
            format!("hosts {hosts:?}"),
            &format!("GET / HTTP/1.1\r\n{hosts}x: y\r\n\r\n"),
        );
    }
    // Heads beyond their bounds.
    add(
        "many fields".into(),
        &format!("GET / HTTP/1.1\r\n{host}{}\r\n", "a: b\r\n".repeat(100)),
    );
    add(
        "a large head".into(),
        &format!(
            "GET / HTTP/1.1\r\n{host}a: {}\r\n\r\n",
            "x".repeat(16 * 1024)
        ),
    );
    add(
        "a long target".into(),
        &format!("GET /{} HTTP/1.1\r\n{host}\r\n", "x".repeat(8 * 1024)),
    );
    add(
        "an expectation".into(),
        &format!("POST / HTTP/1.1\r\n{host}Expect: 200-ok\r\nContent-Length: 0\r\n\r\n"),
    );
    all
}

/// How many answers there are: a version and a status, which no text of ours has.
fn answers(all: &str) -> usize {
    let is_status = |rest: &&str| rest.as_bytes().first().is_some_and(u8::is_ascii_digit);
    all.split("HTTP/1.1 ").skip(1).filter(is_status).count()
}

#[test]
fn an_ambiguous_request_reaches_no_server() {
    let corpus = corpus();
    assert!(corpus.len() >= 200, "{}", corpus.len());
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    for (name, wrong) in &corpus {
        let sent = [wrong, SMUGGLED.as_bytes()].concat();
        let answer = gateway.raw(&sent);
        assert!(
            answers(&answer) <= 1,
            "{name}: more than one answer: {answer}"
        );
        let status = answer.split(' ').nth(1).unwrap_or("none");
        assert!(
            matches!(
                status,
                "400" | "405" | "413" | "414" | "417" | "431" | "505" | "none"
            ),
            "{name}: {answer:?}"
        );
        // Nothing is answered only if the head has no end.
        assert!(status != "none" || name.contains("bare CR"), "{name}");
        if status != "none" {
            let lower = answer.to_ascii_lowercase();
            assert!(lower.contains("connection: close"), "{name}: {answer}");
            assert!(
                lower.contains("application/problem+json"),
                "{name}: {answer}"
            );
            assert!(
                lower.contains("cache-control: no-store"),
                "{name}: {answer}"
            );
        }
    }
    assert_eq!(upstream.count(), 0, "{:?}", upstream.seen());
    assert_eq!(upstream.connections(), 0);
    assert_eq!(gateway.admitted(), 0);
}

#[test]
fn requests_before_a_malformed_one_are_answered_and_none_after_it() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let corpus = corpus();
    // One in seven, for time: where a request stands makes no difference to what is wrong with it.
    let some: Vec<_> = corpus.iter().step_by(7).collect();
    for (name, wrong) in &some {
        let good = "POST /good HTTP/1.1\r\nHost: app.example\r\nContent-Length: 3\r\n\r\nabc";
        let sent = [good.as_bytes(), wrong, SMUGGLED.as_bytes()].concat();
        let answer = gateway.raw(&sent);
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{name}: {answer}");
        assert!(answer.contains("<abc>"), "{name}: {answer}");
        assert!(answers(&answer) <= 2, "{name}: {answer}");
    }
    let seen = upstream.seen();
    assert!(
        seen.iter().all(|seen| seen.line == "POST /good HTTP/1.1"),
        "{seen:?}"
    );
    assert_eq!(seen.len(), some.len());
    assert_eq!(gateway.admitted(), some.len() as u64);
}

fn passed_on(gateway: &TestGateway) -> u64 {
    gateway.metric("tollgate_upstream_requests_total{upstream=\"app\"}")
}

#[test]
fn malformed_chunks_in_the_first_segment_are_400_and_not_charged() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let head = "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for chunks in [
        "x\r\n",
        "\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n",
        "0\r\nx\0: y\r\n\r\n",
        "fffffffffffffffff\r\nhello\r\n",
        "0\r\n\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "0\r\n a: b\r\n\r\n",
    ] {
        let sent = format!("{head}{chunks}{SMUGGLED}");
        let answer = gateway.raw(sent.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 400 "), "{chunks:?}: {answer}");
        assert_eq!(answers(&answer), 1, "{chunks:?}: {answer}");
    }
    // Neither a limit nor the server saw any of them.
    assert_eq!(gateway.admitted(), 0);
    assert_eq!(passed_on(&gateway), 0);
}

#[test]
fn malformed_chunks_behind_a_request_that_is_passed_on_are_400_and_charged() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let mut stream = gateway.connect();
    let head = "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    wait("it is passed on", || passed_on(&gateway) == 1);
    stream.write_all(b"x\r\n").unwrap();
    assert_eq!(reply(&mut stream).status, 400);
    assert_eq!(gateway.admitted(), 1);
    // The server never had a whole request.
    assert_eq!(upstream.count(), 0, "{:?}", upstream.seen());
}

#[test]
fn the_server_sees_as_many_requests_as_were_admitted() {
    let upstream = Upstream::start();
    let gateway = TestGateway::before(OPEN, upstream.port);
    let get = "GET /a HTTP/1.1\r\nHost: app.example\r\n\r\n";
    let post = "POST /b HTTP/1.1\r\nHost: app.example\r\nContent-Length: 26\r\n\r\nGET /c HTTP/1.1\r\nHost: a\r\n\r\n"
        .to_owned();
    let body = post.split("\r\n\r\n").nth(1).unwrap().len() + 4;
    let post = post.replace("26", &body.to_string());
    let chunked = "PUT /d HTTP/1.1\r\nHost: app.example\r\nTransfer-Encoding: chunked\r\n\r\n1c\r\nGET /e HTTP/1.1\r\nHost: a\r\n\r\n\r\n0\r\n\r\n";
    let mut stream = gateway.connect();
    let mut sent = 0;
    for part in [1, 7, 50, 10_000] {
        let all = [get, &post, chunked, "\r\n", get].concat();
        for bytes in all.as_bytes().chunks(part) {
            stream.write_all(bytes).unwrap();
        }
        for _ in 0..4 {
            assert_eq!(reply(&mut stream).status, 200);
        }
        sent += 4;
    }
    let seen = upstream.seen();
    let lines: Vec<_> = seen.iter().map(|seen| seen.line.as_str()).collect();
    let once = [
        "GET /a HTTP/1.1",
        "POST /b HTTP/1.1",
        "PUT /d HTTP/1.1",
        "GET /a HTTP/1.1",
    ];
    assert_eq!(lines, once.repeat(4));
    assert_eq!(gateway.admitted(), sent);
    // One for requests without a body, one for the others.
    assert_eq!(upstream.connections(), 2, "connections are used again");
}
