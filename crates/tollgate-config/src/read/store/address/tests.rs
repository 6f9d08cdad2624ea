//! Valid and invalid store addresses.

use super::*;

fn server(host: &str, port: u16) -> (String, u16) {
    (host.to_owned(), port)
}

fn topology(text: &str) -> Topology {
    parse(text)
        .unwrap_or_else(|errors| panic!("{text}: {errors:?}"))
        .topology
}

/// The first error, as `code: message (hint)`.
fn error(text: &str) -> String {
    let errors = parse(text).expect_err(text);
    let first = &errors[0];
    format!("{}: {} ({})", first.code, first.message, first.hint)
}

#[test]
fn every_scheme_names_the_topology_and_tls() {
    for (name, shape, tls) in SCHEMES {
        let path = if *shape == Shape::Sentinel { "/s" } else { "" };
        let found = parse(&format!("{name}://h{path}")).unwrap();
        assert_eq!(found.tls, *tls, "{name}");
        let expected = match shape {
            Shape::Standalone => Topology::Standalone {
                server: server("h", 6379),
            },
            Shape::Sentinel => Topology::Sentinel {
                sentinels: vec![server("h", 26379)],
                service: "s".into(),
            },
            Shape::Cluster => Topology::Cluster {
                servers: vec![server("h", 6379)],
            },
        };
        assert_eq!(found.topology, expected, "{name}");
    }
    assert_eq!(SCHEMES.len(), 12);
}

#[test]
fn hosts_are_names_and_addresses_with_or_without_a_port() {
    for (text, host, port) in [
        ("redis://cache", "cache", 6379),
        ("redis://cache:7000/", "cache", 7000),
        ("redis://10.0.0.5:6379/0", "10.0.0.5", 6379),
        ("redis://[::1]", "::1", 6379),
        ("redis://u:p@[2001:db8::5]:7000/3", "2001:db8::5", 7000),
        ("redis://my_cache.example.com", "my_cache.example.com", 6379),
    ] {
        assert_eq!(
            topology(text),
            Topology::Standalone {
                server: server(host, port)
            },
            "{text}"
        );
    }
    assert_eq!(
        topology("redis+cluster://a,b:7001,[::1]:7002/0"),
        Topology::Cluster {
            servers: vec![server("a", 6379), server("b", 7001), server("::1", 7002)],
        }
    );
    assert_eq!(
        topology("redis+sentinel://s1:26379,s2,s3:5000/mymaster/2"),
        Topology::Sentinel {
            sentinels: vec![server("s1", 26379), server("s2", 26379), server("s3", 5000)],
            service: "mymaster".into(),
        }
    );
}

#[test]
fn the_database_stands_last() {
    for (text, database) in [
        ("redis://h", 0),
        ("redis://h/", 0),
        ("redis://h/7", 7),
        ("redis+sentinel://h/s", 0),
        ("redis+sentinel://h/s/", 0),
        ("redis+sentinel://h/s/3", 3),
        ("redis+cluster://h/0", 0),
    ] {
        assert_eq!(parse(text).unwrap().database, database, "{text}");
    }
}

#[test]
fn user_and_password_are_unescaped() {
    for (text, user, password) in [
        ("redis://h", None, None),
        ("redis://u@h", Some("u"), None),
        ("redis://:p@h", None, Some("p")),
        ("redis://u:p@h", Some("u"), Some("p")),
        ("redis://u%40x:p%2Fw%3ad@h", Some("u@x"), Some("p/w:d")),
        ("redis://u:a:b@h", Some("u"), Some("a:b")),
        ("redis://u:%C3%BC@h", Some("u"), Some("ü")),
    ] {
        let found = parse(text).unwrap();
        assert_eq!(found.username.as_deref(), user, "{text}");
        assert_eq!(found.password.as_deref(), password, "{text}");
    }
}

#[test]
fn an_invalid_address_is_refused_with_a_hint() {
    for (text, part) in [
        ("memroy", "did you mean `memory`?"),
        ("10.0.0.5:6379", "unknown-store"),
        ("redis:h", "write `redis://` before the host"),
        ("rediss//h", "write `rediss://` before the host"),
        ("reddis://h", "did you mean `redis://`?"),
        ("Redis://h", "did you mean `redis://`?"),
        ("redis-sentinel://h/s", "did you mean `redis+sentinel://`?"),
        ("redis+clutser://h", "did you mean `redis+cluster://`?"),
        ("valky://h", "did you mean `valkey://`?"),
        ("tls://h", "did you mean `rediss://`?"),
        ("unix:///run/redis.sock", "127.0.0.1"),
        ("memcached://h", "`valkeys+cluster`"),
        ("redis://", "names no host"),
        ("redis:///0", "names no host"),
        ("redis://u:p@", "names no host"),
        ("redis://h:0", "`0` is not a port"),
        ("redis://h:70000", "`70000` is not a port"),
        ("redis://h:", "the port of `h` is not a number"),
        ("redis://h:+1", "the port of `h` is not a number"),
        ("redis://h/x", "`x` is not the number of a database"),
        ("redis://h/+1", "`+1` is not the number of a database"),
        ("redis://h/99999999999", "is not the number of a database"),
        ("redis://h/0/1", "not expected after the hosts"),
        ("redis://a,b", "for one server, but the address names 2"),
        ("redis://2001:db8::5", "has no brackets"),
        ("redis://[2001:db8::5", "not an IPv6 address in brackets"),
        (
            "redis://[fe80::1%25eth0]",
            "not an IPv6 address in brackets",
        ),
        ("redis://[::1]x", "is not a host"),
        ("redis+cluster://a,,b", "an empty host between two commas"),
        ("redis+cluster://a, b", "without blanks between hosts"),
        ("redis+cluster://a,b,a:6379", "`a:6379` is named twice"),
        ("redis+cluster://a/1", "a cluster has no database 1"),
        ("redis+sentinel://a", "has no name of a service"),
        ("redis+sentinel://a/", "has no name of a service"),
        (
            "redis+sentinel://a/my master",
            "cannot be the name of a service",
        ),
        ("redis+sentinel://a/m/1/2", "not expected after the hosts"),
        ("redis://h?db=1", "no query"),
        ("redis://h/0#x", "no query and no fragment"),
        ("redis://u:%zz@h", "a `%` without two hexadecimal digits"),
        ("redis://u:%2@h", "a `%` without two hexadecimal digits"),
        ("redis://u:%FF@h", "a `%` without two hexadecimal digits"),
        ("redis://u:%00@h", "a `%` without two hexadecimal digits"),
        ("redis://u:@h", "the password in the address is empty"),
    ] {
        let said = error(text);
        assert!(said.contains(part), "{text}: {said}");
    }
}

#[test]
fn all_errors_are_reported_at_once() {
    let errors = parse("redis://u:@a:0,b:x/y?z").unwrap_err();
    assert_eq!(errors.len(), 6, "{errors:?}");
}

#[test]
fn too_many_hosts_are_refused_before_they_are_read() {
    let many = vec!["h"; 65].join(",");
    assert!(error(&format!("redis+cluster://{many}")).contains("65 hosts"));
}

#[test]
fn no_fault_repeats_a_password() {
    for text in [
        "redis://u:hunter2@h:x/y/z?w",
        "redis://u:hunter2/@h",
        "redis://u:hunter2@x@h:0",
        "redis://u:hun%ter2@h",
        "reddis://u:hunter2@h",
        "u:hunter2@h",
        "u:hunter2@redis://h",
        "redis://u:hunter2",
        "redis://h?password=hunter2",
        "redis:u:hunter2@h",
    ] {
        for error in parse(text).unwrap_err() {
            let said = format!("{} {}", error.message, error.hint);
            assert!(!said.contains("ter2"), "{text}: {said}");
        }
    }
    let long = format!("redis://u:{}", "hunter2 ".repeat(50));
    for error in parse(&long).unwrap_err() {
        let said = format!("{} {}", error.message, error.hint);
        assert!(!said.contains("hunter2"), "{said}");
    }
}
