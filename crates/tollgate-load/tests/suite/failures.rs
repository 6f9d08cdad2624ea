//! Faulty servers: no run hangs, and every fault is reported.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tollgate_load::{AdmitRule, LoadError, LoadPlan, LoadReport, Target, run};

/// Does this with every connection, each on a thread of its own; gives the port.
fn server(serve: fn(TcpStream)) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    port
}

fn plan(scheme: &str, port: u16) -> LoadPlan {
    let path = if scheme == "http" { "/{key}" } else { "" };
    let target = Target::parse(&format!("{scheme}://127.0.0.1:{port}{path}")).unwrap();
    let mut plan = LoadPlan::new(vec![target]);
    plan.connections = 4;
    plan.command = "PING {key}".into();
    plan.admit_rule = Some(AdmitRule::Any);
    plan.duration = Some(Duration::from_millis(200));
    plan.timeout = Duration::from_millis(300);
    plan
}

fn ran(plan: LoadPlan) -> Result<LoadReport, LoadError> {
    run(plan, &mut |_, _| {})
}

/// Reads whole commands of two words and says how many have come.
fn commands(stream: &TcpStream) -> impl Iterator<Item = u64> + use<'_> {
    let mut lines = BufReader::new(stream).lines();
    (1..).take_while(move |_| (0..5).all(|_| matches!(lines.next(), Some(Ok(_)))))
}

/// Reads until nothing more comes, and says nothing.
fn listen_only(mut stream: TcpStream) {
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn a_silent_server_is_given_up_at_the_end_of_the_run() {
    for scheme in ["resp", "http", "grpc"] {
        let report = ran(plan(scheme, server(listen_only))).unwrap();
        assert_eq!(report.responses(), 0);
        let lost = if scheme == "grpc" { 0 } else { 4 };
        assert_eq!(report.error_count(), lost, "{scheme}: {:?}", report.errors);
    }
}

#[test]
fn a_run_by_requests_ends_though_a_server_is_silent() {
    for scheme in ["resp", "grpc"] {
        let mut plan = plan(scheme, server(listen_only));
        (plan.duration, plan.requests) = (None, Some(1000));
        let error = ran(plan).unwrap_err();
        assert!(
            error.problem.contains("does not respond, 3 times"),
            "{error}"
        );
    }
}

#[test]
fn a_server_that_closes_at_once_is_an_error() {
    for scheme in ["resp", "http", "grpc"] {
        let mut plan = plan(scheme, server(drop));
        plan.duration = Some(Duration::from_secs(60));
        let error = ran(plan).unwrap_err();
        // What was sent and never read makes a reset of the end, if it arrives in time.
        let what = &error.problem;
        assert!(what.contains(" connections without a response"), "{error}");
        assert!(what.ends_with(", 3 times in a row"), "{error}");
    }
}

#[test]
fn unanswered_requests_count_and_the_rest_continues() {
    // Every tenth command is the last: half an answer, then the end.
    fn leaves(mut stream: TcpStream) {
        let reading = stream.try_clone().unwrap();
        for number in commands(&reading) {
            let answer: &[u8] = if number == 10 { b"+PO" } else { b"+PONG\r\n" };
            if stream.write_all(answer).is_err() || number == 10 {
                break;
            }
        }
    }
    let mut plan = plan("resp", server(leaves));
    (plan.duration, plan.requests) = (None, Some(400));
    let report = ran(plan).unwrap();
    assert_eq!((report.admitted, report.error_count()), (360, 40));
    assert_eq!(report.errors.get("closed before the response"), Some(&40));
    // The last one on each connection is the last of all.
    assert_eq!(report.reconnects, 36);
}

#[test]
fn responses_of_another_protocol_end_the_run_with_a_hint() {
    fn web(mut stream: TcpStream) {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        listen_only(stream);
    }
    fn redis(mut stream: TcpStream) {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"-ERR unknown command\r\n");
        listen_only(stream);
    }
    fn http2(mut stream: TcpStream) {
        let _ = stream.write_all(b"\0\0\0\x04\0\0\0\0\0");
        listen_only(stream);
    }
    type Serve = fn(TcpStream);
    for (scheme, serve, right) in [
        ("resp", web as Serve, "http://"),
        ("grpc", web, "http://"),
        ("http", redis, "resp://"),
        ("grpc", redis, "resp://"),
        ("resp", http2, "grpc://"),
        ("http", http2, "grpc://"),
    ] {
        let mut plan = plan(scheme, server(serve));
        plan.duration = Some(Duration::from_secs(60));
        let error = ran(plan).unwrap_err();
        assert!(error.hint.contains(right), "{scheme}: {error}");
    }
}

#[test]
fn a_response_to_no_request_ends_the_run() {
    fn twice(mut stream: TcpStream) {
        let reading = stream.try_clone().unwrap();
        for _ in commands(&reading) {
            let _ = stream.write_all(b"+PONG\r\n+PONG\r\n");
        }
    }
    let error = ran(plan("resp", server(twice))).unwrap_err();
    assert!(error.problem.contains("to no request"), "{error}");
}

#[test]
fn a_server_that_falls_silent_gains_no_rate() {
    fn tires(mut stream: TcpStream) {
        let reading = stream.try_clone().unwrap();
        for number in commands(&reading) {
            if number <= 10 {
                let _ = stream.write_all(b"+PONG\r\n");
            }
        }
    }
    let report = ran(plan("resp", server(tires))).unwrap();
    assert_eq!((report.admitted, report.error_count()), (40, 4));
    assert!(report.elapsed >= Duration::from_millis(200), "{report:?}");
}

#[test]
fn responses_on_unopened_streams_are_not_kept() {
    // Settings, then a piece of an answer on stream 99.
    fn odd(mut stream: TcpStream) {
        let _ = stream.write_all(b"\0\0\0\x04\0\0\0\0\0\0\0\x01\0\0\0\0\0\x63x");
        listen_only(stream);
    }
    let error = ran(plan("grpc", server(odd))).unwrap_err();
    assert!(error.problem.contains("to no request"), "{error}");
}

#[test]
fn an_unreachable_server_is_an_error_at_once() {
    let port = TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let error = ran(plan("resp", port)).unwrap_err();
    assert!(error.problem.contains("cannot be reached"), "{error}");
}

/// Answers every command, but stalls once for a tenth of a second.
fn stalls(mut stream: TcpStream) {
    let reading = stream.try_clone().unwrap();
    for number in commands(&reading) {
        if number == 20 {
            #[expect(clippy::disallowed_methods, reason = "the stall is what is measured")]
            std::thread::sleep(Duration::from_millis(100));
        }
        if stream.write_all(b"+PONG\r\n").is_err() {
            break;
        }
    }
}

#[test]
fn in_an_open_loop_a_stall_counts_for_all_requests_due_in_it() {
    const MILLIS: u64 = 1_000_000;
    let mut closed = plan("resp", server(stalls));
    (closed.connections, closed.requests, closed.duration) = (1, Some(200), None);
    let mut open = closed.clone();
    open.rate = Some("1000/s".parse().unwrap());
    let slow = |report: &LoadReport| {
        let share = (1..=1000).find(|share| report.times.quantile(share * 10) > 40 * MILLIS);
        200 - share.map_or(200, |share| share * 200 / 1000)
    };
    let (closed, open) = (ran(closed).unwrap(), ran(open).unwrap());
    assert!(closed.times.max() >= 100 * MILLIS && open.times.max() >= 100 * MILLIS);
    // One request met the stall; a hundred were due while it lasted, sixty of them for more than 40 ms.
    assert!(slow(&closed) <= 20, "{}", slow(&closed));
    assert!(slow(&open) >= 50, "{}", slow(&open));
}

#[test]
fn requests_due_and_never_sent_are_reported() {
    let mut plan = plan("resp", server(listen_only));
    plan.connections = 1;
    plan.rate = Some("1000/s".parse().unwrap());
    let report = ran(plan).unwrap();
    assert_eq!((report.unsent, report.error_count()), (199, 1));
}

/// Answers every command.
fn answers(mut stream: TcpStream) {
    let reading = stream.try_clone().unwrap();
    for _ in commands(&reading) {
        if stream.write_all(b"+PONG\r\n").is_err() {
            break;
        }
    }
}

/// Answers as many commands as are left, on all connections together, and then none and closes every connection.
fn dies(mut stream: TcpStream, left: &AtomicU64) {
    let reading = stream.try_clone().unwrap();
    for _ in commands(&reading) {
        let is_alive = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        if is_alive.is_err() || stream.write_all(b"+PONG\r\n").is_err() {
            break;
        }
    }
}

fn with_another(mut plan: LoadPlan, port: u16) -> LoadPlan {
    let target = Target::parse(&format!("resp://127.0.0.1:{port}")).unwrap();
    plan.targets.push(target);
    plan
}

#[test]
fn a_server_that_dies_is_reported_and_the_others_run_to_the_end() {
    static LEFT: AtomicU64 = AtomicU64::new(100);
    let mut plan = with_another(
        plan("resp", server(answers)),
        server(|stream| dies(stream, &LEFT)),
    );
    (plan.duration, plan.requests) = (None, Some(600));
    let report = ran(plan).unwrap();
    assert_eq!((report.admitted, report.targets.len()), (400, 2));
    let (lives, died) = (&report.targets[0], &report.targets[1]);
    assert_eq!((lives.admitted, lives.errors), (300, 0));
    assert_eq!((lives.is_lost(), &lives.loss), (false, &None));
    assert_eq!((died.admitted, died.connections), (100, 2));
    assert_eq!(died.errors, report.error_count());
    assert!(died.is_lost(), "{died:?}");
    let loss = died.loss.as_ref().unwrap();
    assert_eq!(loss.connections, 2);
    assert!(loss.reason.ends_with(", 3 times in a row"), "{loss:?}");
    assert!(died.last_response.unwrap() < loss.after, "{died:?}");
}

#[test]
fn requests_due_at_a_dead_server_count_as_unsent() {
    static LEFT: AtomicU64 = AtomicU64::new(10);
    let mut plan = with_another(
        plan("resp", server(answers)),
        server(|stream| dies(stream, &LEFT)),
    );
    plan.rate = Some("1000/s".parse().unwrap());
    plan.duration = Some(Duration::from_millis(600));
    let report = ran(plan).unwrap();
    assert!(report.targets[1].is_lost(), "{:?}", report.targets);
    assert!(report.unsent > 0 && report.targets[1].admitted == 10);
    assert_eq!(report.admitted + report.error_count() + report.unsent, 600);
}

#[test]
fn when_the_last_server_dies_the_run_ends_with_a_report() {
    static LEFT: AtomicU64 = AtomicU64::new(50);
    let mut plan = plan("resp", server(|stream| dies(stream, &LEFT)));
    plan.duration = Some(Duration::from_secs(60));
    let report = ran(plan).unwrap();
    assert_eq!(report.admitted, 50);
    assert!(report.targets[0].is_lost(), "{:?}", report.targets);
    assert!(report.elapsed < Duration::from_secs(30), "{report:?}");
}

#[test]
fn a_connection_given_up_does_not_lose_its_server() {
    // Only the first connection is answered.
    static COME: AtomicU64 = AtomicU64::new(0);
    fn serves_one(stream: TcpStream) {
        if COME.fetch_add(1, Relaxed) == 0 {
            answers(stream);
        }
    }
    let mut plan = plan("resp", server(serves_one));
    plan.duration = Some(Duration::from_millis(600));
    let report = ran(plan).unwrap();
    let target = &report.targets[0];
    assert!(target.admitted > 0 && !target.is_lost(), "{target:?}");
    assert_eq!(target.loss.as_ref().map(|loss| loss.connections), Some(3));
}

#[test]
fn without_a_rule_responses_are_counted_and_unjudged() {
    let mut plan = plan("resp", server(answers));
    (plan.admit_rule, plan.duration, plan.requests) = (None, None, Some(40));
    let report = ran(plan).unwrap();
    assert_eq!((report.responses(), report.unjudged), (40, 40));
    assert_eq!((report.admitted, report.refused), (0, 0));
    assert_eq!((report.error_count(), report.times.total()), (0, 40));
}
