//! `MULTI` … `EXEC`: what runs, what does not, and what is answered.

use super::*;

const QUEUED: &str = "+QUEUED\r\n";
const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.\r\n";

/// A call that passes three times.
const CALL: [&str; 5] = ["CL.THROTTLE", "k", "2", "1", "3600"];
/// The same, and takes nothing.
const PEEK: [&str; 6] = ["CL.THROTTLE", "k", "2", "1", "3600", "0"];

#[track_caller]
fn nothing_was_taken(client: &mut Client) {
    client.ask(&PEEK, five([0, 3, 3, -1, 0]));
}

#[test]
fn exec_runs_queued_commands_and_answers_in_order() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    // A call like these was just decided: its pattern must not let them through.
    client.ask(&PEEK, five([0, 3, 3, -1, 0]));
    client.ask(&["MULTI"], "+OK\r\n");
    for _ in 0..4 {
        client.ask(&CALL, QUEUED);
    }
    client.ask(&["PING"], QUEUED);
    nothing_was_taken(&mut other);
    client.send(array(&["exec"]));
    client.expect("*5\r\n");
    client.expect(five([0, 3, 2, -1, 3600]));
    client.expect(five([0, 3, 1, -1, 7200]));
    client.expect(five([0, 3, 0, -1, 10_800]));
    client.expect(five([1, 3, 0, 3600, 10_800]));
    client.expect("+PONG\r\n");
    client.ask(&["EXEC"], "-ERR EXEC without MULTI\r\n");
    client.ask(&CALL, five([1, 3, 0, 3600, 10_800]));
}

#[test]
fn a_pipeline_with_a_transaction_is_answered_in_order_in_both_forms() {
    let server = Server::start();
    let mut client = server.client();
    client.send(
        "PING\nMULTI\nSELECT 1\nECHO \"a b\"\nCL.THROTTLE k x 1 60\nCLIENT NOPE\nEXEC\nPING\n",
    );
    client.expect(
        "+PONG\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*4\r\n+OK\r\n$3\r\na b\r\n",
    );
    client.expect("-Cell error: Store error: Couldn't parse as integer: x\r\n");
    client.expect("-ERR unknown subcommand 'NOPE'. Try CLIENT HELP.\r\n+PONG\r\n");
    client.send("MULTI\nEXEC\nMULTI\nUNWATCH\nEXEC\n");
    client.expect("+OK\r\n*0\r\n+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n");
}

#[test]
fn discarded_and_abandoned_commands_never_run() {
    let server = Server::start();
    let mut client = server.client();
    for end in [&["DISCARD"][..], &["RESET"], &["QUIT"]] {
        client.ask(&["MULTI"], "+OK\r\n");
        client.ask(&CALL, QUEUED);
        let expected = match end {
            ["RESET"] => "+RESET\r\n",
            _ => "+OK\r\n",
        };
        client.ask(end, expected);
        if end != ["QUIT"] {
            client.ask(&["DISCARD"], "-ERR DISCARD without MULTI\r\n");
            nothing_was_taken(&mut client);
        }
    }
    client.expect_end();
    let mut gone = server.client();
    gone.ask(&["MULTI"], "+OK\r\n");
    gone.ask(&CALL, QUEUED);
    drop(gone);
    let mut closed = server.client();
    closed.ask(&["MULTI"], "+OK\r\n");
    closed.send("GET / HTTP/1.1\r\n");
    closed.expect_end();
    nothing_was_taken(&mut server.client());
}

#[test]
fn after_a_command_that_cannot_be_queued_nothing_runs() {
    let server = Server::start();
    let mut client = server.client();
    for (words, expected) in [
        (
            &["NOPE", "a"][..],
            "ERR unknown command 'NOPE', with args beginning with: 'a' ",
        ),
        (
            &["ECHO"],
            "ERR wrong number of arguments for 'echo' command",
        ),
        (
            &["SELECT"],
            "ERR wrong number of arguments for 'select' command",
        ),
        (
            &["CL.THROTTLE", "k", "1"],
            "Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]",
        ),
        (
            &["THROTTLE", "k", "1", "1", "1", "1", "1"],
            "ERR wrong number of arguments for 'throttle' command",
        ),
        (
            &["TOLLGATE.NOPE"],
            "ERR unknown command 'TOLLGATE.NOPE', with args beginning with: ",
        ),
        (
            &["MULTI", "x"],
            "ERR wrong number of arguments for 'multi' command",
        ),
        (
            &["DISCARD", "x"],
            "ERR wrong number of arguments for 'discard' command",
        ),
        (
            &["WATCH"],
            "ERR wrong number of arguments for 'watch' command",
        ),
        (
            &["AUTH", "x"],
            "ERR AUTH and HELLO are not allowed inside MULTI",
        ),
        (
            &["hello", "3"],
            "ERR AUTH and HELLO are not allowed inside MULTI",
        ),
    ] {
        client.ask(&["MULTI"], "+OK\r\n");
        client.ask(&CALL, QUEUED);
        client.ask(words, error(expected));
        client.ask(&CALL, QUEUED);
        client.ask(&["EXEC"], ABORTED);
        client.ask(&["EXEC"], "-ERR EXEC without MULTI\r\n");
        nothing_was_taken(&mut client);
    }
    client.ask(&["MULTI"], "+OK\r\n");
    client.ask(&CALL, QUEUED);
    let expected = "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n";
    client.ask(&["EXEC", "x"], expected);
    client.ask(&["EXEC", "x"], expected);
    client.ask(&["EXEC"], "-ERR EXEC without MULTI\r\n");
    nothing_was_taken(&mut client);
}

#[test]
fn nested_and_watched_transactions_are_answered_as_by_redis() {
    let server = Server::start();
    let mut client = server.client();
    for (words, expected) in [
        (&["WATCH", "k", "l"][..], "+OK\r\n"),
        (&["UNWATCH"], "+OK\r\n"),
        (
            &["UNWATCH", "k"],
            "-ERR wrong number of arguments for 'unwatch' command\r\n",
        ),
        (
            &["MULTI", "k"],
            "-ERR wrong number of arguments for 'multi' command\r\n",
        ),
        (&["MULTI"], "+OK\r\n"),
        (&["MULTI"], "-ERR MULTI calls can not be nested\r\n"),
        (
            &["WATCH", "k"],
            "-ERR WATCH inside MULTI is not allowed\r\n",
        ),
        (&["PING"], QUEUED),
        (&["EXEC"], "*1\r\n+PONG\r\n"),
    ] {
        client.ask(words, expected);
    }
}

#[test]
fn nothing_is_queued_before_the_password() {
    let server = Server::with(Open {
        password: Some(PASSWORD.into()),
        ..Open::default()
    });
    let mut client = server.client();
    let no = "-NOAUTH Authentication required.\r\n";
    for words in [&["MULTI"][..], &CALL, &["EXEC"], &["WATCH", "k"]] {
        client.ask(words, no);
    }
    client.ask(&["AUTH", PASSWORD], "+OK\r\n");
    client.ask(&["EXEC"], "-ERR EXEC without MULTI\r\n");
    client.ask(&["MULTI"], "+OK\r\n");
    client.ask(&["RESET"], "+RESET\r\n");
    client.ask(&CALL, no);
}

#[test]
fn without_caller_limits_no_part_of_a_transaction_runs() {
    let server = Server::with(Open {
        policy: "limits:\n  - { name: all, allow: 1/h, burst: 5 }\n",
        keys: None,
        ..Open::default()
    });
    let mut client = server.client();
    client.ask(&["MULTI"], "+OK\r\n");
    client.ask(&["TOLLGATE.CHECK", "path", "/"], QUEUED);
    client.send(array(&CALL));
    client.expect("-ERR callers may not send limits to this server; use TOLLGATE.CHECK, or start the server without --resp-policy-only\r\n");
    client.ask(&["EXEC"], ABORTED);
    client.ask(&["MULTI"], "+OK\r\n");
    client.ask(&["TOLLGATE.CHECK", "path", "/"], QUEUED);
    client.send(array(&["EXEC"]));
    client.expect("*1\r\n*14\r\n$7\r\nverdict\r\n$4\r\npass\r\n$5\r\nlimit\r\n$3\r\nall\r\n");
    client.expect("$6\r\nreason\r\n$5\r\nlimit\r\n$9\r\nremaining\r\n:4\r\n");
}

#[expect(
    clippy::disallowed_methods,
    reason = "what is waited for is that nothing happens any more"
)]
fn wait_a_second() {
    std::thread::sleep(Duration::from_secs(1));
}

#[test]
fn a_transaction_pauses_until_its_answers_are_read() {
    let server = Server::start();
    let mut client = server.client();
    let word = "x".repeat(60_000);
    let mut sent = array(&["MULTI"]);
    for _ in 0..4 {
        sent.extend(array(&["ECHO", &word]));
    }
    sent.extend(array(&["EXEC"]));
    let answer = format!(
        "+OK\r\n{}*4\r\n{}",
        QUEUED.repeat(4),
        format!("$60000\r\n{word}\r\n").repeat(4)
    );
    // More than a connection may ever keep: without reading on, these do not all run.
    let rounds = 150;
    let mut writer = Client(client.0.try_clone().unwrap());
    let writing = std::thread::spawn(move || {
        for _ in 0..rounds {
            writer.send(&sent);
        }
    });
    // Nothing is read before the server has answered as much as it may.
    wait_a_second();
    for _ in 0..rounds {
        client.expect(&answer);
    }
    writing.join().unwrap();
    client.ask(&["PING"], "+PONG\r\n");
}
