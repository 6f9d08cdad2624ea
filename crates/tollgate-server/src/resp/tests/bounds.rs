//! Malformed input, slow clients and greedy ones: no other client is affected.

use super::*;

/// Short bounds, so that a test need not wait.
fn hasty() -> ListenLimits {
    let second = Duration::from_secs(1);
    ListenLimits {
        head: second,
        write: second,
        linger: second,
        ..limits()
    }
}

#[test]
fn a_malformed_command_closes_only_its_connection_with_an_error() {
    let server = Server::start();
    let mut neighbour = server.client();
    let bomb = b"*1\r\n".repeat(128);
    let long_line = vec![b'a'; 70_000];
    for (bytes, expected) in [
        (&b"*x\r\n"[..], "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*2147483648\r\n", "invalid multibulk length"),
        (b"*9223372036854775808\r\n", "invalid multibulk length"),
        (
            b"*99999999999999999999999999999999999\r\n",
            "too big mbulk count string",
        ),
        (b"*1\r\n$x\r\n", "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$-2147483648\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"*1\r\n$9223372036854775808\r\n", "invalid bulk length"),
        (b"*1\r\n+PING\r\n", "expected '$', got '+'"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (&bomb, "expected '$', got '*'"),
        (
            b"*1\r\n$4\r\nPINGPING\r\n",
            "expected the end of a bulk string",
        ),
        (b"PING \"unbalanced\r\n", "unbalanced quotes in request"),
        (&long_line, "too big inline request"),
    ] {
        let mut client = server.client();
        client.send(array(&["PING"]));
        client.send(bytes);
        client.expect("+PONG\r\n");
        client.expect(format!("-ERR Protocol error: {expected}\r\n"));
        client.expect_end();
        neighbour.ask(&["PING"], "+PONG\r\n");
    }
}

#[test]
fn unusual_but_valid_commands_are_answered() {
    let server = Server::start();
    let mut client = server.client();
    client.send(b"*0\r\n*-1\r\n\r\n  \r\nPING\n");
    client.expect("+PONG\r\n");
    client.ask(
        &["\0"],
        "-ERR unknown command ' ', with args beginning with: \r\n",
    );
    client.ask(
        &[""],
        "-ERR unknown command '', with args beginning with: \r\n",
    );
    client.send(array(&[&[0xff, 0xfe][..]]));
    client.expect("-ERR unknown command '\u{fffd}\u{fffd}', with args beginning with: \r\n");
    client.ask(&["PING"], "+PONG\r\n");
}

#[test]
fn unauthenticated_clients_may_send_little() {
    let server = Server::with(Open {
        password: Some(PASSWORD.into()),
        ..Open::default()
    });
    for (bytes, expected) in [
        (&b"*11\r\n"[..], "unauthenticated multibulk length"),
        (b"*1\r\n$16385\r\n", "unauthenticated bulk length"),
    ] {
        let mut client = server.client();
        client.send(bytes);
        client.expect(format!("-ERR Protocol error: {expected}\r\n"));
        client.expect_end();
    }
    let mut known = server.client();
    known.ask(&["AUTH", PASSWORD], "+OK\r\n");
    let long = "x".repeat(60_000);
    known.ask(&["ECHO", &long], format!("$60000\r\n{long}\r\n"));
    let mut asks = server.client();
    for _ in 0..32 {
        asks.ask(&["PING"], "-NOAUTH Authentication required.\r\n");
    }
    asks.expect_end();
}

#[test]
fn a_command_cut_at_every_byte_is_answered_once_it_is_whole() {
    let server = Server::start();
    let mut client = server.client();
    let whole = array(&["ECHO", "hello\r\nworld"]);
    for cut in 1..whole.len() {
        client.send(&whole[..cut]);
        // Another round trip, so that the first part was surely read alone.
        server.client().ask(&["PING"], "+PONG\r\n");
        client.send(&whole[cut..]);
        client.expect("$12\r\nhello\r\nworld\r\n");
    }
}

#[test]
fn http_on_the_port_is_closed_without_an_answer() {
    let server = Server::start();
    for request in [
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30\r\n\r\nCL.THROTTLE k 0 1 60\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "Host: localhost\r\nCL.THROTTLE k 0 1 60\r\n",
        "OPTIONS * HTTP/1.1\r\n\r\n",
    ] {
        let mut client = server.client();
        client.send(request);
        client.expect_end();
    }
    let mut client = server.client();
    client.ask(
        &["CL.THROTTLE", "k", "0", "1", "60"],
        five([0, 1, 0, -1, 60]),
    );
    client.ask(
        &["GET", "k"],
        "-ERR unknown command 'GET', with args beginning with: 'k' \r\n",
    );
}

#[test]
fn slow_commands_close_the_connection_and_idle_ones_do_not() {
    let server = Server::with(Open {
        limits: hasty(),
        ..Open::default()
    });
    let (mut idle, mut half, mut dribble) = (server.client(), server.client(), server.client());
    idle.ask(&["PING"], "+PONG\r\n");
    half.send(b"*1\r\n$4\r\nPI");
    // A byte now and then gains no time.
    let begun = array(&["ECHO", &"x".repeat(1_000)]);
    let mut sent = 0;
    while dribble.0.write_all(&begun[sent..sent + 1]).is_ok() {
        sent += 1;
        assert!(sent < 100, "it still listens");
        std::thread::park_timeout(Duration::from_millis(100));
    }
    half.expect_end();
    idle.ask(&["PING"], "+PONG\r\n");
}

#[test]
fn a_client_that_never_authenticates_is_dropped() {
    let server = Server::with(Open {
        password: Some(PASSWORD.into()),
        limits: hasty(),
        ..Open::default()
    });
    server.client().expect_end();
}

#[test]
fn a_client_that_does_not_read_is_paused_then_dropped_alone() {
    let server = Server::with(Open {
        limits: hasty(),
        ..Open::default()
    });
    let mut greedy = server.client();
    greedy
        .0
        .set_write_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut neighbour = server.client();
    // Every answer is as long as its question: a gigabyte of them is kept nowhere.
    let chunk = array(&["ECHO", &"x".repeat(50_000)]).repeat(20);
    let mut sent = 0;
    while greedy.0.write_all(&chunk).is_ok() {
        sent += chunk.len();
        assert!(sent < 1 << 30, "it never stops reading");
        neighbour.ask(&["PING"], "+PONG\r\n");
    }
    neighbour.ask(&["PING"], "+PONG\r\n");
}

#[test]
fn a_shutdown_answers_commands_sent_before_it() {
    let server = Server::start();
    let mut clients: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for client in &mut clients {
        client.ask(&["PING"], "+PONG\r\n");
        client.send(array(&["CL.THROTTLE", "k", "99", "1", "60"]));
    }
    drop(server);
    for client in &mut clients {
        client.expect("*5\r\n:0\r\n:100\r\n");
        let mut rest = String::new();
        client.0.read_to_string(&mut rest).unwrap();
        assert_eq!(rest.lines().count(), 3, "{rest}");
    }
}

/// Every command that an unauthenticated client may send.
const ANEW: [&[&str]; 3] = [&["RESET"], &["HELLO", "3"], &["AUTH"]];

fn with_password(limits: ListenLimits) -> Server {
    Server::with(Open {
        password: Some(PASSWORD.into()),
        limits,
        ..Open::default()
    })
}

#[test]
#[expect(clippy::disallowed_methods, reason = "time has to pass")]
fn reset_does_not_extend_the_time_to_authenticate() {
    let server = with_password(hasty());
    for words in ANEW {
        let mut client = server.client();
        // It has a second, however often it is answered: less than as many words as it may say take.
        let ended = (0..30).any(|_| {
            std::thread::sleep(Duration::from_millis(200));
            client.is_over_after(words)
        });
        assert!(ended, "{words:?}");
    }
}

#[test]
fn an_unauthenticated_client_may_send_a_bounded_number_of_commands() {
    let server = with_password(limits());
    for words in ANEW {
        let mut client = server.client();
        let call = (0..100).take_while(|_| !client.is_over_after(words));
        // The last reply says why.
        assert_eq!(call.count(), 33, "{words:?}");
    }
    // Who is in may begin anew as often as it likes.
    let mut client = server.client();
    for _ in 0..100 {
        client.ask(&["AUTH", PASSWORD], "+OK\r\n");
        client.ask(&["RESET"], "+RESET\r\n");
    }
}
