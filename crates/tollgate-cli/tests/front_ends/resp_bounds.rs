//! Redis clients that are greedy, slow or disconnected: clients that read are not stalled, memory stays within the
//! stated bounds, and other clients are not affected.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{scope, spawn};
use std::time::Duration;

use tollgate_testkit::tollgate::{Start, Tollgate};
use tollgate_testkit::{Directory, now, wait};

use crate::harness::policy_with;

const MB: u64 = 1 << 20;
/// What one connection may keep of answers, what all may borrow, and what each has for itself, as the server states it.
const MOST: u64 = 16 * MB;
const STOCK: u64 = 64 * MB;
const FREE: u64 = MB / 4;
/// What else a busy process takes: tables, what was read, what the allocator keeps.
const BESIDES: u64 = 32 * MB;

fn server() -> (Tollgate, Directory) {
    let scratch = Directory::new();
    let policy = scratch.write("tollgate.yaml", &policy_with("  []"));
    let start = Start::serve().policy_file(&policy).args(&[
        "--resp",
        "127.0.0.1:0",
        "--resp-max-keys",
        "10000",
    ]);
    (start.start().unwrap(), scratch)
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let timeout = Some(Duration::from_secs(60));
    stream.set_read_timeout(timeout).expect("a timeout");
    stream.set_write_timeout(timeout).expect("a timeout");
    stream.set_nodelay(true).expect("an option");
    stream
}

fn ping(stream: &mut TcpStream) -> Duration {
    let watch = now();
    stream.write_all(b"PING\r\n").expect("it reads");
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).expect("it answers");
    assert_eq!(&answer, b"+PONG\r\n");
    watch.elapsed()
}

/// Asks all the time while something else is done: the slowest answer.
fn neighbour<T>(port: u16, work: impl FnOnce() -> T) -> (T, Duration) {
    let is_done = AtomicBool::new(false);
    scope(|scope| {
        let asked = scope.spawn(|| {
            let mut stream = connect(port);
            let mut slowest = Duration::ZERO;
            while !is_done.load(Relaxed) {
                slowest = slowest.max(ping(&mut stream));
                std::thread::park_timeout(Duration::from_millis(2));
            }
            slowest
        });
        let done = work();
        is_done.store(true, Relaxed);
        (done, asked.join().expect("a neighbour"))
    })
}

/// The largest resident memory while something is done, above what it was before.
fn grown<T>(server: &Tollgate, work: impl FnOnce() -> T) -> (T, u64) {
    let before = server.resident().unwrap();
    let is_done = AtomicBool::new(false);
    scope(|scope| {
        let watched = scope.spawn(|| {
            let mut most = 0;
            while !is_done.load(Relaxed) {
                most = most.max(server.resident().unwrap());
                std::thread::park_timeout(Duration::from_millis(5));
            }
            most
        });
        let done = work();
        is_done.store(true, Relaxed);
        let most = watched.join().expect("a watcher");
        (done, most.saturating_sub(before))
    })
}

#[test]
fn clients_that_send_a_hundred_thousand_calls_before_they_read_get_all_their_answers() {
    const CALLS: usize = 100_000;
    const CLIENTS: usize = 4;
    let (server, _scratch) = server();
    let port = server.port_of("redis").unwrap();
    let call = b"*5\r\n$11\r\nCL.THROTTLE\r\n$3\r\nkey\r\n$2\r\n99\r\n$1\r\n1\r\n$5\r\n86400\r\n";
    let ask = |_| {
        move || {
            let mut stream = connect(port);
            // Nothing is read before the last call is sent.
            stream.write_all(&call.repeat(CALLS)).expect("it reads on");
            stream.shutdown(Shutdown::Write).expect("an end");
            let mut answers = String::new();
            stream.read_to_string(&mut answers).expect("all answers");
            answers
        }
    };
    let clients = || {
        let clients: Vec<_> = (0..CLIENTS).map(|client| spawn(ask(client))).collect();
        let joined = clients.into_iter().map(|client| client.join());
        joined.map(|all| all.expect("a client")).collect::<Vec<_>>()
    };
    let ((answers, slowest), more) = grown(&server, || neighbour(port, clients));
    let mut passed = 0;
    for answers in &answers {
        assert_eq!(answers.matches("*5\r\n").count(), CALLS);
        passed += answers.matches("*5\r\n:0\r\n").count();
    }
    assert_eq!(passed, 100, "the burst, and no call twice");
    let most = CLIENTS as u64 * MOST + BESIDES;
    assert!(more < most, "{} MB more", more / MB);
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
}

#[test]
fn clients_that_never_read_share_the_stock_and_are_dropped_by_their_deadline() {
    const CLIENTS: u64 = 10;
    let (server, _scratch) = server();
    let port = server.port_of("redis").unwrap();
    let long = "x".repeat(1000);
    let call = format!("*2\r\n$4\r\nECHO\r\n$1000\r\n{long}\r\n").repeat(1000);
    // A hundred thousand calls each: a gigabyte of replies, if they were buffered.
    let greedy = || {
        let mut stream = connect(port);
        for sent in 0..100 {
            if let Err(error) = stream.write_all(call.as_bytes()) {
                let is_drop = matches!(
                    error.kind(),
                    ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                );
                assert!(is_drop, "{error}");
                return sent;
            }
        }
        100
    };
    let clients = || {
        scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(greedy)).collect();
            let joined = clients.into_iter().map(|client| client.join());
            joined
                .map(|sent| sent.expect("a client"))
                .collect::<Vec<_>>()
        })
    };
    let ((sent, slowest), more) = grown(&server, || neighbour(port, clients));
    assert!(sent.iter().all(|sent| *sent < 100), "{sent:?}");
    let most = STOCK + CLIENTS * FREE + BESIDES;
    assert!(more < most, "{} MB more", more / MB);
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    // What they had borrowed is there again.
    let mut late = connect(port);
    late.write_all(call.as_bytes()).expect("it reads");
    let mut answers = vec![0; 1000 * (7 + 1002)];
    late.read_exact(&mut answers).expect("all answers");
}

#[test]
fn whatever_makes_no_sense_takes_no_memory_however_often_it_comes() {
    let (server, _scratch) = server();
    let port = server.port_of("redis").unwrap();
    let mut hostile: Vec<Vec<u8>> = [
        &b"*x\r\n"[..],
        b"*1048577\r\n",
        b"*9223372036854775808\r\n",
        b"*99999999999999999999999999999999999\r\n",
        b"*1\r\n$x\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$536870913\r\n",
        b"*1\r\n+PING\r\n",
        b"*1\r\n$4\r\nPINGPING\r\n",
        b"PING \"unbalanced\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ]
    .map(<[u8]>::to_vec)
    .into();
    hostile.push(b"*1\r\n".repeat(1000));
    hostile.push(vec![b'a'; 200_000]);
    hostile.push([&b"*1024\r\n"[..], &b"$1\r\nx\r\n".repeat(1024)].concat());
    hostile.push(
        [
            b"*1000\r\n".to_vec(),
            format!("$60000\r\n{}\r\n", "x".repeat(60_000))
                .repeat(3)
                .into(),
        ]
        .concat(),
    );
    hostile.push((0..=255).cycle().take(100_000).collect());
    let mut seen = connect(port);
    ping(&mut seen);
    let rounds = || {
        for _ in 0..100 {
            for bytes in &hostile {
                let mut stream = connect(port);
                // It may end before all was written.
                let _ = stream.write_all(bytes);
                let _ = stream.shutdown(Shutdown::Write);
                let mut answer = Vec::new();
                let _ = stream.read_to_end(&mut answer);
                assert!(answer.len() < 64 * 1024, "{} bytes", answer.len());
            }
        }
    };
    let (((), slowest), more) = grown(&server, || neighbour(port, rounds));
    assert!(more < 16 * MB, "{} MB more", more / MB);
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
}

#[test]
fn a_slow_or_half_open_client_is_dropped_by_its_deadline_and_others_are_not_affected() {
    let (server, _scratch) = server();
    let port = server.port_of("redis").unwrap();
    let mut idle = connect(port);
    ping(&mut idle);
    let open = || {
        // Half a command, and silence: the command has ten seconds.
        let mut half: Vec<TcpStream> = (0..200).map(|_| connect(port)).collect();
        for stream in &mut half {
            stream
                .write_all(b"*2\r\n$4\r\nECHO\r\n$1000\r\nabc")
                .expect("it reads");
        }
        // Who ends its half is answered what it has asked, and the connection ends.
        for _ in 0..50 {
            let mut stream = connect(port);
            stream
                .write_all(b"PING\r\n*2\r\n$4\r\nEC")
                .expect("it reads");
            stream.shutdown(Shutdown::Write).expect("an end");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("an answer");
            assert_eq!(answer, "+PONG\r\n");
        }
        // A client that disconnects silently leaves nothing behind.
        drop((0..200).map(|_| connect(port)).collect::<Vec<_>>());
        let mut waited = now().elapsed();
        let watch = now();
        for mut stream in half {
            let mut rest = Vec::new();
            let ended = stream.read_to_end(&mut rest);
            let is_reset = |error: &std::io::Error| error.kind() == ErrorKind::ConnectionReset;
            assert!(
                ended.as_ref().is_ok_and(|read| *read == 0) || ended.is_err_and(|e| is_reset(&e))
            );
            waited = watch.elapsed();
        }
        waited
    };
    let (waited, slowest) = neighbour(port, open);
    assert!(waited >= Duration::from_secs(5), "{waited:?}");
    assert!(waited < Duration::from_secs(20), "{waited:?}");
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    // Who is only idle is in a pool.
    ping(&mut idle);
    drop(idle);
    wait("it holds nothing of them", || connections(port) == 0);
}

/// Connections at this port of this machine that are not over, as the system counts them.
fn connections(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("a table");
    let local = format!(":{port:04X}");
    let is_open = |line: &&str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (at, state) = (words.next().unwrap_or_default(), words.nth(1));
        at.ends_with(&local) && state == Some("01")
    };
    table.lines().filter(is_open).count()
}
