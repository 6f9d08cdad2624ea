//! What clients send when they connect, and who may come in.

use super::*;

fn with_password() -> Server {
    Server::with(Open {
        password: Some(PASSWORD.into()),
        ..Open::default()
    })
}

#[test]
fn clients_hear_what_they_expect() {
    let server = Server::start();
    let mut client = server.client();
    for (words, answer) in [
        (&["PING"][..], "+PONG\r\n"),
        (&["ping", "hi"], "$2\r\nhi\r\n"),
        (&["ECHO", "hi"], "$2\r\nhi\r\n"),
        (&["SELECT", "15"], "+OK\r\n"),
        (&["SELECT", "16"], "-ERR DB index is out of range\r\n"),
        (&["SELECT", "99"], "-ERR DB index is out of range\r\n"),
        (&["SELECT", "-1"], "-ERR DB index is out of range\r\n"),
        (
            &["SELECT", "a"],
            "-ERR value is not an integer or out of range\r\n",
        ),
        (&["CLIENT", "GETNAME"], "$-1\r\n"),
        (&["CLIENT", "SETNAME", "me"], "+OK\r\n"),
        (&["client", "getname"], "$2\r\nme\r\n"),
        (
            &["CLIENT", "SETNAME", "a b"],
            "-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
        ),
        (&["CLIENT", "ID"], ":1\r\n"),
        (&["client", "SETINFO", "LIB-NAME", "x"], "+OK\r\n"),
        (&["CLIENT", "NO-EVICT", "ON"], "+OK\r\n"),
        (&["CLIENT", "NO-TOUCH", "ON"], "+OK\r\n"),
        (
            &["CLIENT", "MAINT_NOTIFICATIONS", "ON"],
            "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.\r\n",
        ),
        (&["COMMAND", "DOCS"], "*0\r\n"),
        (&["COMMAND", "COUNT"], ":17\r\n"),
        (
            &["COMMAND", "INFO", "cl.throttle", "nope"],
            "*2\r\n*6\r\n$11\r\ncl.throttle\r\n:-1\r\n*1\r\n+write\r\n:1\r\n:1\r\n:1\r\n$-1\r\n",
        ),
        (&["CONFIG", "GET", "save"], "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        (&["CONFIG", "GET", "maxmemory"], "*0\r\n"),
        (
            &["CONFIG", "SET", "save", ""],
            "-ERR unknown subcommand 'SET'. Try CONFIG HELP.\r\n",
        ),
        (&["HELLO", "4"], "-NOPROTO unsupported protocol version\r\n"),
        (
            &["HELLO", "abc"],
            "-ERR Protocol version is not an integer or out of range\r\n",
        ),
        (
            &["HELLO", "3", "NOPE"],
            "-ERR Syntax error in HELLO option 'NOPE'\r\n",
        ),
        (
            &["AUTH", "x"],
            "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?\r\n",
        ),
        (&["AUTH", "default", "x"], "+OK\r\n"),
        (
            &["FOO", "a", "b"],
            "-ERR unknown command 'FOO', with args beginning with: 'a' 'b' \r\n",
        ),
        (
            &["EVAL", "return 1", "0"],
            "-ERR unknown command 'EVAL', with args beginning with: 'return 1' '0' \r\n",
        ),
        (
            &["PING", "a", "b"],
            "-ERR wrong number of arguments for 'ping' command\r\n",
        ),
        (
            &["HELLO", "3", "SETNAME", "you"],
            "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n",
        ),
        (&["CLIENT", "GETNAME"], "$3\r\nyou\r\n"),
        (&["COMMAND", "DOCS"], "%0\r\n"),
        (&["RESET"], "+RESET\r\n"),
        (&["CLIENT", "GETNAME"], "$-1\r\n"),
        (&["QUIT"], "+OK\r\n"),
    ] {
        client.ask(words, answer);
    }
    client.expect_end();
}

#[test]
fn info_says_what_ready_checks_look_for() {
    let server = Server::start();
    let mut client = server.client();
    client.send(array(&["INFO"]));
    let mut told = vec![0; 64];
    client.0.read_exact(&mut told).unwrap();
    let told = String::from_utf8(told).unwrap();
    assert!(
        told.starts_with('$') && told.contains("redis_version:7.0.15"),
        "{told}"
    );
}

#[test]
fn nobody_asks_before_showing_the_password() {
    let server = with_password();
    let mut client = server.client();
    let no = "-NOAUTH Authentication required.\r\n";
    for words in [
        &["PING"][..],
        &["CL.THROTTLE", "k", "1", "1", "1"],
        &["TOLLGATE.CHECK", "path", "/"],
        &["INFO"],
        &["CONFIG", "GET", "save"],
    ] {
        client.ask(words, no);
    }
    client.send(array(&["HELLO", "3"]));
    client.expect("-NOAUTH HELLO must be called with the client already authenticated");
    client.expect(", otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time\r\n");
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    client.ask(&["AUTH", "nope"], wrong);
    client.ask(&["AUTH", "admin", PASSWORD], wrong);
    client.ask(&["HELLO", "3", "AUTH", "default", "nope"], wrong);
    client.ask(&["AUTH", PASSWORD], "+OK\r\n");
    client.ask(&["PING"], "+PONG\r\n");
    client.ask(&["RESET"], "+RESET\r\n");
    client.ask(&["PING"], no);
    client.send(array(&["HELLO", "3", "AUTH", "default", PASSWORD]));
    client.expect("%7\r\n");
}

#[test]
fn guessing_passwords_is_slow_and_hurts_nobody_who_is_in() {
    let server = with_password();
    let mut inside = server.client();
    inside.ask(&["AUTH", PASSWORD], "+OK\r\n");
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                let mut client = server.client();
                client.send(array(&["AUTH", "guess"]));
                client.expect("-WRONGPASS invalid username-password pair or user is disabled.\r\n");
            });
        }
    });
    let mut client = server.client();
    client.send(array(&["AUTH", "guess"]));
    client.expect("-ERR too many wrong passwords came from this address; wait a few seconds and try again\r\n");
    client.expect_end();
    inside.ask(&["PING"], "+PONG\r\n");
}

#[test]
fn an_address_that_is_open_to_the_network_needs_a_password() {
    let bind = |address: &str, password: Option<&str>| RespBind {
        address: address.parse().unwrap(),
        password: password.map(Into::into),
        keys: Some(100),
    };
    for address in ["0.0.0.0:6390", "[::]:6390", "10.0.0.1:6390"] {
        let refused = RespDoor::of(&bind(address, None)).unwrap_err().to_string();
        assert!(refused.contains("without a password\nhint: "), "{refused}");
        assert!(RespDoor::of(&bind(address, Some(PASSWORD))).is_ok());
    }
    for address in ["127.0.0.1:6390", "[::1]:6390", "[::ffff:127.0.0.1]:6390"] {
        assert!(RespDoor::of(&bind(address, None)).is_ok(), "{address}");
    }
    assert!(RespDoor::of(&bind("127.0.0.1:1", Some("short"))).is_err());
    assert!(!format!("{:?}", bind("127.0.0.1:1", Some(PASSWORD))).contains(PASSWORD));
}

#[test]
fn where_callers_may_not_choose_their_limits_they_are_told_so() {
    let server = Server::with(Open {
        keys: None,
        ..Open::default()
    });
    let mut client = server.client();
    for name in ["CL.THROTTLE", "THROTTLE"] {
        client.send(array(&[name, "k", "1", "1", "1"]));
        client.expect("-ERR callers may not choose their own limits here; ask TOLLGATE.CHECK, or start the server without --resp-policy-only\r\n");
    }
    client.ask(&["PING"], "+PONG\r\n");
}
