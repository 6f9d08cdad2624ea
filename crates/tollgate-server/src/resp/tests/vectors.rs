//! `CL.THROTTLE` and `THROTTLE`, byte for byte.

use super::*;

const USAGE: &str = "Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]";
const EXPIRE: &str = "Cell error: Store error: Error while setting key expire";

/// Key, burst, count, period, quantity; and the answer.
const VECTORS: [(&str, [i64; 5]); 23] = [
    ("k 15 30 60", [0, 16, 15, -1, 2]),
    ("k 15 30 60 1", [0, 16, 14, -1, 4]),
    ("k 15 30 60 5", [0, 16, 9, -1, 14]),
    ("k 15 30 60 0", [0, 16, 9, -1, 14]),
    ("fresh 15 30 60 0", [0, 16, 16, -1, 0]),
    ("k 15 30 60 9", [0, 16, 0, -1, 32]),
    ("k 15 30 60 1", [1, 16, 0, 2, 32]),
    ("k 15 30 60 0", [0, 16, 0, -1, 32]),
    ("k2 15 30 60 17", [1, 16, 16, -1, 0]),
    ("k2 15 30 60 16", [0, 16, 0, -1, 32]),
    ("k2 15 30 60 -4", [0, 16, 4, -1, 24]),
    ("k3 0 1 2", [0, 1, 0, -1, 2]),
    ("k3 0 1 2", [1, 1, 0, 2, 2]),
    ("k4 10 1000 1", [0, 11, 10, -1, 1]),
    ("k5 10 10000000 1", [0, 11, 10, -1, 0]),
    ("k6 0 1 86400", [0, 1, 0, -1, 86400]),
    ("k6 0 1 86400", [1, 1, 0, 86400, 86400]),
    ("rc 9 100 60", [0, 10, 9, -1, 1]),
    ("rc 0 1 60", [1, 1, 0, 1, 1]),
    ("+ +15 +30 +60 +1", [0, 16, 15, -1, 2]),
    (
        "wide 9223372036854775807 1 1",
        [0, i64::MAX, i64::MAX, -1, 1],
    ),
    ("fast 0 9223372036854775807 1", [0, 1, 1, -1, 0]),
    ("fast 0 9223372036854775807 1", [0, 1, 1, -1, 0]),
];

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

#[test]
fn the_vectors_hold_in_both_versions_one_by_one_and_in_one_pipeline() {
    for version in ["2", "3"] {
        for is_pipelined in [false, true] {
            let server = Server::start();
            let mut client = server.client();
            if version == "3" {
                client.send(array(&["HELLO", "3"]));
                client.expect("%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n");
            }
            let mut expected = String::new();
            for (line, integers) in &VECTORS {
                let mut command = vec!["cl.THROTTLE"];
                command.extend(words(line));
                client.send(array(&command));
                match is_pipelined {
                    true => expected.push_str(&five(*integers)),
                    false => client.expect(five(*integers)),
                }
            }
            client.expect(expected);
        }
    }
}

#[test]
fn errors_have_exact_texts_and_the_connection_continues() {
    let server = Server::start();
    let mut client = server.client();
    let cell = |text: &str| error(&format!("Cell error: Store error: {text}"));
    for (line, expected) in [
        ("", error(USAGE)),
        ("k", error(USAGE)),
        ("k 15 30", error(USAGE)),
        ("k 15 30 60 1 1", error(USAGE)),
        ("k x 30 60", cell("Couldn't parse as integer: x")),
        ("k 15 30 60.0", cell("Couldn't parse as integer: 60.0")),
        ("k 15 30 60 ", cell("Couldn't parse as integer: ")),
        (
            "k 15 9223372036854775808 60",
            cell("Couldn't parse as integer: 9223372036854775808"),
        ),
        ("k 15 0 60", cell("Zero rates are not supported")),
        ("k 15 30 0", cell("Zero rates are not supported")),
        ("k -1 30 60", cell("A negative burst is not supported")),
        ("fresh 15 30 60 -1", error(EXPIRE)),
        ("k 15 30 60 9223372036854775807", error(EXPIRE)),
        ("k 15 30 60 -9223372036854775808", error(EXPIRE)),
        ("centuries 0 1 9223372037", error(EXPIRE)),
    ] {
        let mut command = vec!["CL.THROTTLE"];
        if !line.is_empty() {
            command.extend(words(line));
        }
        client.ask(&command, expected);
    }
    client.ask(
        &["CL.THROTTLE", "k", " 15", "30", "60"],
        cell("Couldn't parse as integer:  15"),
    );
    client.ask(
        &["CL.THROTTLE", "k", "a\r\n+OK", "30", "60"],
        cell("Couldn't parse as integer: a  +OK"),
    );
    client.ask(
        &["CL.THROTTLE", "k", "15", "30", "60"],
        five([0, 16, 15, -1, 2]),
    );
}

#[test]
fn keys_are_bytes_and_each_database_has_its_own() {
    let server = Server::start();
    let mut client = server.client();
    let keys: [&[u8]; 5] = [b"", b"\0", b"\xff\xfe", b"a\r\nb", &[b'x'; 60_000]];
    for key in keys {
        let command: [&[u8]; 5] = [b"CL.THROTTLE", key, b"0", b"1", b"60"];
        client.send(array(&command));
        client.expect(five([0, 1, 0, -1, 60]));
        client.send(array(&command));
        client.expect(five([1, 1, 0, 60, 60]));
    }
    client.ask(&["SELECT", "3"], "+OK\r\n");
    client.ask(
        &["CL.THROTTLE", "", "0", "1", "60"],
        five([0, 1, 0, -1, 60]),
    );
    client.ask(&["SELECT", "0"], "+OK\r\n");
    client.ask(
        &["CL.THROTTLE", "", "0", "1", "60"],
        five([1, 1, 0, 60, 60]),
    );
}

#[test]
fn the_other_argument_order_uses_the_same_keys() {
    let server = Server::start();
    let mut client = server.client();
    client.ask(
        &["THROTTLE", "k", "10", "100", "60"],
        five([1, 10, 9, 1, 0]),
    );
    client.ask(
        &["throttle", "k", "10", "100", "60", "9"],
        five([1, 10, 0, 6, 0]),
    );
    client.ask(
        &["THROTTLE", "k", "10", "100", "60", "1"],
        five([0, 10, 0, 6, 1]),
    );
    client.ask(
        &["THROTTLE", "k", "10", "100", "60", "0"],
        five([1, 10, 0, 6, 0]),
    );
    client.ask(
        &["CL.THROTTLE", "k", "9", "100", "60"],
        five([1, 10, 0, 1, 6]),
    );
    client.ask(
        &["THROTTLE", "k", "10", "100", "60", "-1"],
        error("ERR negative quantity: -1"),
    );
    client.ask(
        &["THROTTLE", "k"],
        error("ERR wrong number of arguments for 'throttle' command"),
    );
}

#[test]
fn pipelined_commands_of_any_kind_are_answered_in_order() {
    let server = Server::start();
    let mut client = server.client();
    let (mut sent, mut expected) = (Vec::new(), String::new());
    for at in 0..1_000 {
        let text = at.to_string();
        sent.extend(array(&["CL.THROTTLE", &text, "0", "1", "60"]));
        expected.push_str(&five([0, 1, 0, -1, 60]));
        if at % 7 == 0 {
            sent.extend(array(&["ECHO", &text]));
            expected.push_str(&format!("${}\r\n{text}\r\n", text.len()));
        }
        if at % 11 == 0 {
            sent.extend(array(&["THROTTLE", &text, "1", "1", "60"]));
            expected.push_str(&five([0, 1, 0, 60, 60]));
        }
        if at % 13 == 0 {
            sent.extend_from_slice(b"PING\r\n");
            expected.push_str("+PONG\r\n");
        }
        if at % 17 == 0 {
            sent.extend(array(&["CL.THROTTLE", &text]));
            expected.push_str(&error(USAGE));
        }
    }
    client.send(sent);
    client.expect(expected);
}

#[test]
fn a_hundred_thousand_calls_sent_before_the_first_answer_is_read_are_all_answered() {
    let server = Server::start();
    let mut client = server.client();
    let one = array(&["CL.THROTTLE", "key", "49999", "1", "3600"]);
    client.send(one.repeat(100_000));
    let reset = |taken: i64| taken * 3_600;
    for taken in 1..=50_000 {
        client.expect(five([0, 50_000, 50_000 - taken, -1, reset(taken)]));
    }
    for _ in 50_000..100_000 {
        client.expect(five([1, 50_000, 0, 3_600, reset(50_000)]));
    }
}

#[test]
fn sixty_four_connections_on_one_key_get_exactly_what_it_holds() {
    let server = Server::start();
    let passed: usize = std::thread::scope(|scope| {
        let threads = (0..64).map(|_| {
            scope.spawn(|| {
                let mut client = server.client();
                let one = array(&["CL.THROTTLE", "hot", "999", "1", "86400"]);
                let mut passed = 0;
                for _ in 0..5 {
                    client.send(one.repeat(20));
                    for _ in 0..20 {
                        let mut head = [0; 8];
                        client.0.read_exact(&mut head).unwrap();
                        passed += usize::from(head.ends_with(b":0\r\n"));
                        let mut lines = 0;
                        while lines < 4 {
                            let mut byte = [0];
                            client.0.read_exact(&mut byte).unwrap();
                            lines += usize::from(byte == *b"\n");
                        }
                    }
                }
                passed
            })
        });
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(passed, 1_000);
}
