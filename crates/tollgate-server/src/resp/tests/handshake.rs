//! Commands that clients send when they connect, and authentication.

use super::*;

fn with_password() -> Server {
    Server::with(Open {
        password: Some(PASSWORD.into()),
        ..Open::default()
    })
}

#[test]
fn the_handshakes_of_common_clients_are_answered() {
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
        (&["COMMAND", "COUNT"], ":22\r\n"),
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
fn info_passes_ready_checks() {
    let server = Server::start();
    let mut client = server.client();
    client.send(array(&["INFO"]));
    let mut answer = vec![0; 64];
    client.0.read_exact(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(
        answer.starts_with('$') && answer.contains("redis_version:7.0.15"),
        "{answer}"
    );
}

#[test]
fn info_returns_the_requested_sections() {
    let server = Server::start();
    let mut client = server.client();
    let replication = "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n";
    let both = format!("# Persistence\r\nloading:0\r\n\r\n{replication}");
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    client.ask(&["INFO", "replication"], bulk(replication));
    client.ask(&["INFO", "Replication", "PERSISTENCE"], bulk(&both));
    client.ask(&["INFO", "keyspace"], bulk(""));
    let mut all = Vec::new();
    for words in [&["INFO"][..], &["INFO", "all"], &["INFO", "default"]] {
        client.send(array(words));
        client.send(array(&["PING"]));
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(b"+PONG\r\n") {
            client.0.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        all.push(String::from_utf8(answer).unwrap());
    }
    for section in ["# Server\r\n", &both, "# Tollgate\r\nthrottle_pass:0"] {
        assert!(all[0].contains(section), "{}", all[0]);
    }
    assert!(all[0] == all[1] && all[1] == all[2], "{all:?}");
}

#[test]
fn help_and_client_info_are_answered() {
    let server = Server::start();
    let mut client = server.client();
    client.send(array(&["CLIENT", "HELP"]));
    client.expect("*15\r\n+CLIENT <subcommand>. Subcommands are:\r\n+GETNAME\r\n");
    let mut client = server.client();
    client.send(array(&["COMMAND", "HELP"]));
    client.expect("*11\r\n+COMMAND <subcommand>. Subcommands are:\r\n");
    let mut client = server.client();
    client.send(array(&["CONFIG", "HELP"]));
    client.expect("*3\r\n+CONFIG <subcommand>. Subcommands are:\r\n+GET <name> ...\r\n");
    let mut client = server.client();
    client.ask(&["CLIENT", "SETNAME", "me"], "+OK\r\n");
    let address = client.0.local_addr().unwrap();
    let line = format!("id=4 addr={address} name=me db=0 user=default resp=2\n");
    let answer = format!("${}\r\n{line}\r\n", line.len());
    client.ask(&["CLIENT", "INFO"], answer);
    client.ask(
        &["CLIENT", "LIST"],
        "-ERR unknown subcommand 'LIST'. Try CLIENT HELP.\r\n",
    );
    client.ask(
        &["CLIENT", "INFO", "x"],
        "-ERR wrong number of arguments for 'client|info' command\r\n",
    );
}

#[test]
fn no_command_runs_before_authentication() {
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
fn password_guesses_are_rate_limited_and_authenticated_clients_unaffected() {
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
    client.expect(
        "-ERR too many failed authentications from this address; try again in a few seconds\r\n",
    );
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
        let refused = RespConfig::new(&bind(address, None))
            .unwrap_err()
            .to_string();
        assert!(refused.contains("without a password\nhint: "), "{refused}");
        assert!(RespConfig::new(&bind(address, Some(PASSWORD))).is_ok());
    }
    for address in ["127.0.0.1:6390", "[::1]:6390", "[::ffff:127.0.0.1]:6390"] {
        assert!(RespConfig::new(&bind(address, None)).is_ok(), "{address}");
    }
    assert!(RespConfig::new(&bind("127.0.0.1:1", Some("short"))).is_err());
    assert!(!format!("{:?}", bind("127.0.0.1:1", Some(PASSWORD))).contains(PASSWORD));
}

#[test]
fn without_caller_limits_the_error_says_so() {
    let server = Server::with(Open {
        keys: None,
        ..Open::default()
    });
    let mut client = server.client();
    for name in ["CL.THROTTLE", "THROTTLE"] {
        client.send(array(&[name, "k", "1", "1", "1"]));
        client.expect("-ERR callers may not send limits to this server; use TOLLGATE.CHECK, or start the server without --resp-policy-only\r\n");
    }
    client.ask(&["PING"], "+PONG\r\n");
}
