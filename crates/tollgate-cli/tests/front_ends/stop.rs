//! Shutdown of the service, and starts that fail.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tollgate_testkit::http::Client;
use tollgate_testkit::tollgate::Start;
use tollgate_testkit::{Directory, Signal, now, wait};

use crate::harness::{policy_with, serve};

const ASK: &str = r#"{"path":"/"}"#;

/// Stops a server right after these many clients have sent a request, each on a connection that it has
/// used before or on a new one, and returns what the clients got that is no answer.
fn unanswered(clients: usize, is_new: bool) -> Vec<String> {
    let server = serve(&policy_with("  - { name: one, allow: 1/h, burst: 9999 }"));
    let mut clients: Vec<Client> = (0..clients).map(|_| server.client()).collect();
    if !is_new {
        for client in &mut clients {
            client.post("/v1/check", ASK).expect(200);
        }
    }
    for client in &mut clients {
        let bytes = client.request("POST", "/v1/check", &[], ASK);
        client.write(bytes.as_bytes()).expect("it listens");
    }
    server.signal(Signal::TERM).unwrap();
    let answers: Vec<_> = clients.iter_mut().map(Client::read).collect();
    assert_eq!(server.wait_for_exit().unwrap().code(), Some(0));
    let numbered = answers.into_iter().enumerate();
    numbered
        .filter_map(|(at, answer)| match answer {
            Ok(reply) if reply.status == 200 => None,
            Ok(reply) => Some(format!("{at}: {reply:?}")),
            Err(error) => Some(format!("{at}: {error}")),
        })
        .collect()
}

#[test]
fn a_request_that_was_sent_before_the_stop_is_answered() {
    for _ in 0..5 {
        let lost = unanswered(100, false);
        assert!(lost.is_empty(), "{} of 100: {lost:?}", lost.len());
    }
}

#[test]
fn a_request_on_a_new_connection_that_was_sent_before_the_stop_is_answered() {
    for _ in 0..5 {
        let lost = unanswered(100, true);
        assert!(lost.is_empty(), "{} of 100: {lost:?}", lost.len());
    }
}

#[test]
fn a_shutdown_under_load_answers_all_earlier_requests() {
    let server = serve(&policy_with("  - { name: one, allow: 1000000/s }"));
    let stopping = AtomicBool::new(false);
    let port = server.port();
    let answered = std::thread::scope(|scope| {
        let work = || {
            let mut answered = 0_u32;
            loop {
                // A new connection each: on a kept one it is unknown whether the other end has just
                // closed it.
                let mut client = Client::new(port);
                let close = [("Connection", "close")];
                let bytes = client.request("POST", "/v1/check", &close, ASK);
                let sent = client.write(bytes.as_bytes());
                let is_before_the_stop = !stopping.load(SeqCst);
                match sent.and_then(|()| client.read()) {
                    Ok(reply) => {
                        reply.expect(200);
                        answered += 1;
                    }
                    Err(error) if is_before_the_stop => panic!("sent before the stop: {error}"),
                    Err(_) => return answered,
                }
            }
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        wait("there is load", || {
            let series = r#"tollgate_decisions_total{limit="one",verdict="pass",reason="limit",protocol="http"}"#;
            server.metric(series).is_some_and(|count| count > 500)
        });
        stopping.store(true, SeqCst);
        server.signal(Signal::TERM).unwrap();
        let answers = threads.into_iter().map(|t| t.join().expect("no failure"));
        answers.sum::<u32>()
    });
    assert!(answered > 500);
    assert_eq!(server.wait_for_exit().unwrap().code(), Some(0));
}

#[test]
fn an_idle_connection_does_not_hold_up_the_stop() {
    let server = serve(&policy_with("  - { name: one, allow: 1/h }"));
    let mut idle = server.client();
    idle.get("/health").expect(200);
    let mut half = server.client();
    half.write(b"POST /v1/check HTTP/1.1\r\nHost: a\r\n")
        .expect("it listens");
    let watch = now();
    server.signal(Signal::TERM).unwrap();
    assert_eq!(server.wait_for_exit().unwrap().code(), Some(0));
    assert!(watch.elapsed().as_secs() < 12, "{:?}", watch.elapsed());
}

#[test]
fn a_server_that_cannot_start_says_why_and_fails() {
    let scratch = Directory::new();
    let bad = scratch.write("bad.yaml", "limits:\n  - { name: a, allow: 5/fortnight }\n");
    let (said, code) = Start::serve().policy_file(&bad).fails().unwrap();
    assert!(
        said.contains("bad.yaml") && said.contains("fortnight"),
        "{said}"
    );
    assert_eq!(code, Some(2), "{said}");
    let (said, code) = Start::serve()
        .policy_file(&scratch.file("gone.yaml"))
        .fails()
        .unwrap();
    assert!(
        said.contains("gone.yaml") && said.contains("hint"),
        "{said}"
    );
    assert!(code.is_some_and(|code| code != 0), "{said}");
    let server = serve("default: pass\nlimits: []\n");
    let (said, code) = Start::serve().port(server.port()).fails().unwrap();
    assert!(said.contains(&server.port().to_string()), "{said}");
    let hint = format!(
        "another port with `--listen 127.0.0.1:{}`",
        server.port() + 1
    );
    assert!(said.contains(&hint), "{said}");
    assert_eq!(code, Some(2), "{said}");
    let taken = format!("127.0.0.1:{}", server.port());
    for flag in ["--admin", "--rls", "--resp"] {
        let (said, code) = Start::serve().args(&[flag, &taken]).fails().unwrap();
        assert!(
            said.contains(&format!("another port with `{flag} ")),
            "{said}"
        );
        assert_eq!(code, Some(2), "{said}");
    }
}
