//! Commands that the policy decides.

use super::*;

const POLICY: &str = "default: pass
limits:
  - { name: riders, match: { path: /rides }, key: header.x-rider, allow: 1/h, burst: 3 }
  - { name: exports, key: header.x-org, match: { path: /export }, allow: 1/h, burst: 10, cost: { from: field.rows, max: 10 } }
";

fn server() -> Server {
    Server::with(Open {
        policy: POLICY,
        ..Open::default()
    })
}

/// A RESP3 reply as text.
fn reply(client: &mut Client, words: &[&str]) -> String {
    client.send(array(words));
    let mut text = String::new();
    value(client, &mut text);
    text
}

/// Reads one value.
fn value(client: &mut Client, text: &mut String) {
    let line = line(client);
    let (kind, rest) = line.split_at(1);
    let count = || rest.parse::<usize>().unwrap();
    match kind {
        "$" => {
            let mut bytes = vec![0; count() + 2];
            client.0.read_exact(&mut bytes).unwrap();
            text.push_str(std::str::from_utf8(&bytes).unwrap().trim_end());
        }
        "%" | "*" => {
            let items = if kind == "%" { count() * 2 } else { count() };
            text.push(if kind == "%" { '{' } else { '[' });
            for at in 0..items {
                if at > 0 {
                    text.push(if kind == "%" && at % 2 == 1 { '=' } else { ' ' });
                }
                value(client, text);
            }
            text.push(if kind == "%" { '}' } else { ']' });
        }
        "_" => text.push_str("nil"),
        "-" => {
            text.push('!');
            text.push_str(rest);
        }
        _ => text.push_str(rest),
    }
}

fn line(client: &mut Client) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        client.0.read_exact(&mut byte).unwrap();
        line.extend_from_slice(&byte);
    }
    String::from_utf8(line).unwrap().trim_end().into()
}

fn third(server: &Server) -> Client {
    let mut client = server.client();
    assert!(reply(&mut client, &["HELLO", "3"]).starts_with("{server=redis"));
    client
}

const ASK: [&str; 5] = ["TOLLGATE.CHECK", "path", "/rides", "header.X-Rider", "42"];

#[test]
fn a_request_is_decided_by_the_policy_and_peeking_takes_nothing() {
    let server = server();
    let mut client = third(&server);
    let mut peek = ASK;
    peek[0] = "tollgate.peek";
    for left in [2, 2, 2] {
        let answer = reply(&mut client, &peek);
        assert!(answer.contains(&format!("remaining={left} ")), "{answer}");
    }
    for left in [2, 1, 0] {
        let answer = reply(&mut client, &ASK);
        assert!(
            answer.starts_with(&format!(
                "{{verdict=pass limit=riders reason=limit remaining={left} reset_after_ms="
            )),
            "{answer}"
        );
        assert!(
            answer.ends_with(" limits=[{name=riders role=enforced cost=1}] policy_version=1}"),
            "{answer}"
        );
    }
    let refused = reply(&mut client, &ASK);
    assert!(
        refused
            .starts_with("{verdict=refuse limit=riders reason=limit remaining=0 retry_after_ms=3"),
        "{refused}"
    );
    let mut second = server.client();
    second.send(array(&ASK));
    second.expect("*16\r\n$7\r\nverdict\r\n$6\r\nrefuse\r\n$5\r\nlimit\r\n$6\r\nriders\r\n");
}

#[test]
fn limits_by_policy_and_limits_of_callers_do_not_meet() {
    let server = server();
    let mut client = third(&server);
    client.ask(
        &["CL.THROTTLE", "42", "0", "1", "3600"],
        five([0, 1, 0, -1, 3_600]),
    );
    let by_name = [
        "TOLLGATE.CHECK",
        "limit",
        "riders",
        "key",
        "42",
        "cost",
        "3",
    ];
    assert!(reply(&mut client, &by_name).starts_with("{verdict=pass"));
    assert!(reply(&mut client, &by_name).starts_with("{verdict=refuse"));
    client.ask(
        &["CL.THROTTLE", "42", "0", "1", "3600"],
        five([1, 1, 0, 3_600, 3_600]),
    );
}

#[test]
fn a_reservation_is_settled_once_to_what_was_used() {
    let server = server();
    let mut client = third(&server);
    let ask = [
        "TOLLGATE.CHECK",
        "path",
        "/export",
        "header.x-org",
        "acme",
        "field.rows",
        "8",
        "reserve",
        "yes",
    ];
    let answer = reply(&mut client, &ask);
    assert!(answer.contains(" remaining=2 "), "{answer}");
    let name = answer
        .split_once(" reservation=")
        .unwrap()
        .1
        .trim_end_matches('}');
    assert_eq!(name.len(), 32, "{answer}");
    let settle = ["TOLLGATE.SETTLE", name, "actual", "3"];
    assert_eq!(reply(&mut client, &settle), "{unpaid=0}");
    let gone = "!ERR there is no such reservation: it was settled already, is older than ten minutes, or was made at another node";
    assert_eq!(reply(&mut client, &settle), gone);
    let peek = [
        "TOLLGATE.PEEK",
        "path",
        "/export",
        "header.x-org",
        "acme",
        "cost",
        "0",
    ];
    let answer = reply(&mut client, &peek);
    assert!(
        answer.contains(" remaining=6 "),
        "one more would leave six: {answer}"
    );
}

#[test]
fn an_explanation_names_every_limit_and_takes_nothing() {
    let server = server();
    let mut client = third(&server);
    let mut ask = ASK;
    ask[0] = "TOLLGATE.EXPLAIN";
    for _ in 0..2 {
        let answer = reply(&mut client, &ask);
        assert!(answer.contains("name=riders matched=t "), "{answer}");
        assert!(answer.contains("why_not=another path"), "{answer}");
        assert!(answer.contains("verdict=pass"), "{answer}");
    }
    let mut check = ASK;
    check[0] = "TOLLGATE.CHECK";
    assert!(reply(&mut client, &check).contains("remaining=2 "));
}

#[test]
fn a_malformed_request_is_an_error_and_charges_nothing() {
    let server = server();
    let mut client = third(&server);
    for (words, wrong) in [
        (
            &["path"][..],
            "\"path\" has no value; send pairs of a name and a value",
        ),
        (
            &["paht", "/"],
            "unknown name \"paht\"; did you mean `path`?",
        ),
        (&["path", "/", "path", "/"], "`path` is repeated"),
        (&[], crate::http::NO_FACTS),
        (&["cost", "1"], crate::http::NO_FACTS),
        (
            &["ip", "x"],
            "`ip` is \"x\", which is no IP address; write one such as 203.0.113.7, or omit it",
        ),
        (
            &["cost", "-1"],
            "`cost` is \"-1\"; write a whole number of units, 0 or more",
        ),
        (
            &["reserve", "maybe"],
            "`reserve` is \"maybe\"; write `yes` or `no`",
        ),
        (
            &["key", "42"],
            "`key` needs `limit`; add it, or describe the request by its facts",
        ),
        (
            &["limit", "riders", "path", "/"],
            "`limit` excludes facts of a request; with it, send only `key`, `cost` and `reserve`, or omit it",
        ),
        (
            &["limit", "rider", "key", "1"],
            "there is no limit \"rider\"; did you mean `riders`?",
        ),
        (
            &["limit", "riders"],
            "the key of the limit `riders` has 1 parts, and `key` has 0; see /v1/limits",
        ),
    ] {
        let mut command = vec!["TOLLGATE.CHECK"];
        command.extend(words);
        assert_eq!(reply(&mut client, &command), format!("!ERR {wrong}"));
    }
    let latin: [&[u8]; 3] = [b"TOLLGATE.CHECK", b"path", b"/\xff"];
    client.send(array(&latin));
    client.expect("-ERR path is not UTF-8; policies match text\r\n");
    let peek = ["TOLLGATE.PEEK", "path", "/rides", "reserve", "yes"];
    assert!(reply(&mut client, &peek).starts_with("!ERR a peek charges nothing to reserve"));
    let settle = ["TOLLGATE.SETTLE"];
    assert!(reply(&mut client, &settle).starts_with("!ERR the reservation is missing"));
    assert!(reply(&mut client, &ASK).contains("remaining=2 "));
}

#[test]
fn with_limiting_off_every_request_passes_uncharged() {
    let engine = crate::engine::for_tests(POLICY);
    let (_stop, stopped) = watch::channel(false);
    let bind = RespBind {
        address: "127.0.0.1:0".parse().unwrap(),
        password: None,
        keys: Some(100),
    };
    let service = HttpApi::new(Arc::clone(&engine), stopped.clone());
    let resp = RespConfig::new(&bind).unwrap().build(service);
    let events = tokio::runtime::Builder::new_multi_thread();
    let events = { events }.worker_threads(1).enable_all().build().unwrap();
    let listener = events.block_on(TcpListener::bind(bind.address)).unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut client = Client(stream);
    events.spawn(resp.serve(listener, 100, stopped));
    let once = ["CL.THROTTLE", "k", "0", "1", "3600"];
    client.ask(&once, five([0, 1, 0, -1, 3_600]));
    engine.switch(true);
    client.ask(&once, five([0, 1, 0, -1, 3_600]));
    engine.switch(false);
    client.ask(&once, five([1, 1, 0, 3_600, 3_600]));
}
