//! Tests that every condition that holds is a candidate, and that few others are.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use super::super::address::CidrSet;
use super::super::path::tests::Random;
use super::super::pattern::PathPattern;
use super::*;

fn on_path(pattern: &str) -> Match {
    Match {
        paths: vec![PathPattern::new(pattern).unwrap()],
        ..Match::default()
    }
}

fn like(values: &[&str]) -> ValueTest {
    ValueTest::Like(values.iter().map(|v| TextPattern::new(v)).collect())
}

fn found(router: &Router, facts: &Facts<'_>, path: &str) -> Vec<usize> {
    let mut ids = Vec::new();
    router.candidates(facts, path, &mut |id| ids.push(id));
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
    ids
}

fn found_on(router: &Router, path: &str) -> Vec<usize> {
    found(router, &Facts::default(), path)
}

const WORDS: [&str; 4] = ["a", "b", "ab", "c"];

fn random_test(random: &mut Random) -> ValueTest {
    match random.below(5) {
        0 => ValueTest::Present,
        1 => ValueTest::Absent,
        2 => like(&[random.pick(&WORDS), "c*"]),
        _ => like(&[random.pick(&WORDS), random.pick(&WORDS)]),
    }
}

fn random_match(random: &mut Random) -> Match {
    let mut m = Match::default();
    if random.one_in(3) {
        m.methods.push(random.pick(&["GET", "POST"]).into());
    }
    if random.one_in(2) {
        for _ in 0..1 + random.below(2) {
            let segments = (0..random.below(4))
                .map(|_| random.pick(&["/a", "/b", "/ab", "/*", "/a*", "/**", "/{x}"]));
            let text: String = segments.collect();
            let end = if text.is_empty() || random.one_in(5) {
                "/"
            } else {
                ""
            };
            if let Ok(pattern) = PathPattern::new(&format!("{text}{end}")) {
                m.paths.push(pattern);
            }
        }
    }
    if random.one_in(4) {
        let hosts = random.pick(&[&["a.b"][..], &["a.b", "c"], &["*.b"]]);
        m.hosts = hosts.iter().map(|h| TextPattern::new(h)).collect();
    }
    if random.one_in(4) {
        m.headers
            .push((random.pick(&["x-a", "x-b"]).into(), random_test(random)));
    }
    if random.one_in(4) {
        m.query
            .push((random.pick(&["p", "q"]).into(), random_test(random)));
    }
    if random.one_in(4) {
        m.descriptor
            .push((random.pick(&["d", "e"]).into(), random_test(random)));
    }
    if random.one_in(6) {
        m.domain = Some(TextPattern::new(random.pick(&["dom", "d*"])));
    }
    if random.one_in(6) {
        let networks = ["10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32", "192.0.2.1"];
        m.addresses = CidrSet::new(vec![random.pick(&networks).parse().unwrap()]);
    }
    m
}

#[test]
fn every_condition_that_holds_is_found() {
    let mut random = Random(9);
    let (mut held, mut looked_at) = (0, 0);
    for _ in 0..2000 {
        let matches: Vec<Match> = (0..random.below(40))
            .map(|_| random_match(&mut random))
            .collect();
        let router = Router::new(matches.iter());
        for _ in 0..30 {
            let mut path: String = (0..random.below(4))
                .map(|_| random.pick(&["/a", "/b", "/ab", "/c"]))
                .collect();
            if path.is_empty() || random.one_in(6) {
                path.push('/');
            }
            let (x, y) = (random.pick(&WORDS), random.pick(&WORDS));
            let headers = [("X-A", x), ("X-A", y), ("x-b", x)];
            let descriptor = [("d", x), ("e", y), ("d", y)];
            let facts = Facts {
                method: random.pick(&["GET", "post", "HEAD"]),
                host: random.pick(&["a.b", "A.B:80", "x.b", "c.", ""]),
                query: random.pick(&["", "p=a", "p=b&p=c", "%70=%61&q", "q=ab&r"]),
                client: random
                    .pick(&[
                        &None,
                        &Some("10.1.2.3"),
                        &Some("::ffff:192.0.2.1"),
                        &Some("2001:db8::1"),
                    ])
                    .map(|a: &str| a.parse().unwrap()),
                domain: random.pick(&["", "dom", "d"]),
                headers: if random.one_in(4) {
                    &super::super::NoHeaders
                } else {
                    &headers
                },
                descriptor: if random.one_in(4) { &[] } else { &descriptor },
                ..Facts::default()
            };
            let ids = found(&router, &facts, &path);
            looked_at += ids.len();
            for (id, m) in matches.iter().enumerate() {
                if m.holds(&facts, &path) {
                    held += 1;
                    assert!(ids.contains(&id), "{m:?} {facts:?} {path}");
                }
            }
        }
    }
    assert!(held > 50_000, "{held}");
    assert!(looked_at < 6 * held, "{looked_at} for {held}");
}

#[test]
fn of_a_thousand_limits_only_the_relevant_are_candidates() {
    let mut matches: Vec<Match> = (0..1000)
        .map(|i| match i % 4 {
            0 => on_path(&format!("/api/v{i}/rides/{{ride}}")),
            1 => on_path(&format!("/svc{i}/**")),
            2 => on_path(&format!("/**/end{i}")),
            _ => on_path(&format!("/files/{i}-*.pdf")),
        })
        .collect();
    matches.push(Match::default());
    let router = Router::new(matches.iter());
    for (path, expected) in [
        ("/api/v40/rides/7", &[40, 1000][..]),
        ("/svc41", &[41, 1000]),
        ("/svc41/a/b/c", &[41, 1000]),
        ("/svc41/end42", &[41, 42, 1000]),
        ("/files/43-x.pdf", &[43, 1000]),
        ("/other", &[1000]),
        ("", &[1000]),
        ("*", &[1000]),
    ] {
        let ids = found_on(&router, path);
        assert_eq!(ids, expected, "{path}");
        let facts = Facts::default();
        assert!(ids.iter().all(|id| matches[*id].holds(&facts, path)));
    }
}

#[test]
fn a_thousand_limits_on_one_path_are_distinguished_by_other_conditions() {
    let on = |change: &dyn Fn(&mut Match)| {
        let mut m = on_path("/api/**");
        change(&mut m);
        m
    };
    let matches: Vec<Match> = (0..1000)
        .map(|i| match i % 5 {
            0 => on(&|m| m.headers.push(("x-tenant".into(), like(&[&i.to_string()])))),
            1 => on(&|m| m.hosts.push(TextPattern::new(&format!("h{i}.example.com")))),
            2 => on(&|m| {
                m.descriptor
                    .push(("tenant".into(), like(&[&i.to_string()])));
            }),
            3 => on(&|m| m.query.push(("tenant".into(), like(&[&i.to_string()])))),
            _ => on(&|m| {
                let network = format!("10.{}.{}.0/24", i / 256, i % 256);
                m.addresses = CidrSet::new(vec![network.parse().unwrap()]);
            }),
        })
        .collect();
    let router = Router::new(matches.iter());
    let facts = Facts {
        headers: &[("X-Tenant", "500"), ("x-tenant", "505")],
        host: "H501.Example.com:443",
        descriptor: &[("tenant", "502")],
        query: "x=y&tenant=%3503",
        client: Some("::ffff:10.1.248.9".parse().unwrap()),
        ..Facts::default()
    };
    assert_eq!(
        found(&router, &facts, "/api/x"),
        [500, 501, 502, 503, 504, 505]
    );
    assert_eq!(found_on(&router, "/api/x"), []);
}

#[test]
fn many_that_are_found_are_still_in_order_and_once() {
    let mut matches: Vec<Match> = (0..100).map(|_| on_path("/a/**")).collect();
    matches[50] = Match::default();
    matches[70].paths.push(PathPattern::new("/*").unwrap());
    matches[70].paths.push(PathPattern::new("/a").unwrap());
    let router = Router::new(matches.iter());
    assert_eq!(found_on(&router, "/a"), (0..100).collect::<Vec<_>>());
}

#[test]
fn paths_deeper_than_the_index_are_found() {
    let deep = "/a".repeat(100);
    let router = Router::new([&on_path(&deep), &on_path("/**"), &on_path("/a/**/{x}")].into_iter());
    assert_eq!(found_on(&router, &deep), [0, 1, 2]);
    assert_eq!(found_on(&router, "/b"), [1]);
}

#[test]
fn methods_match_in_any_case_and_head_is_not_get() {
    let get = Match {
        methods: vec!["GET".into()],
        ..Match::default()
    };
    let with = |method| Facts {
        method,
        ..Facts::default()
    };
    assert!(get.holds(&with("GET"), "/") && get.holds(&with("get"), "/"));
    assert!(!get.holds(&with("HEAD"), "/") && !get.holds(&with(""), "/"));
}

#[test]
fn a_value_cannot_be_hidden_behind_another() {
    let m = Match {
        headers: vec![("x-plan".into(), like(&["free"]))],
        query: vec![("debug".into(), ValueTest::Absent)],
        ..Match::default()
    };
    let mut facts = Facts {
        headers: &[("X-Plan", "gold"), ("x-plan", "free")],
        ..Facts::default()
    };
    assert!(m.holds(&facts, "/"));
    for query in ["debug", "a=b&debug=", "de%62ug=1"] {
        facts.query = query;
        assert!(!m.holds(&facts, "/"), "{query}");
    }
    facts.query = "debugger=1&xdebug";
    assert!(m.holds(&facts, "/"));
}

#[test]
fn query_values_are_compared_as_sent_and_decoded() {
    let m = Match {
        query: vec![("q".into(), like(&["a b", "x%79"]))],
        ..Match::default()
    };
    let with = |query| Facts {
        query,
        ..Facts::default()
    };
    for query in ["q=a+b", "q=a%20b", "q=1&q=a+b", "q=x%79", "&&q=%61%20b"] {
        assert!(m.holds(&with(query), "/"), "{query}");
    }
    for query in ["", "q", "q=a", "Q=a+b", "q=xy"] {
        assert!(!m.holds(&with(query), "/"), "{query}");
    }
    let mut values = Vec::new();
    raw_query_values("k=1&x=2&k=%zz%&k=%ff&k&%6b=a+b", "k", &mut |v| {
        let v = decoded(v);
        values.push(v.into_owned());
    });
    assert_eq!(values, ["1", "%zz%", "\u{fffd}", "", "a b"]);
}

#[test]
fn hosts_are_compared_without_port_case_and_final_dot() {
    for (host, name) in [
        ("a.example.com", "a.example.com"),
        ("a.example.com:80", "a.example.com"),
        ("a.example.com.:80", "a.example.com"),
        ("a:", "a"),
        ("[::1]:80", "::1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
        ("[::1", "[::1"),
        ("", ""),
    ] {
        assert_eq!(host_name(host), name);
    }
    let m = Match {
        hosts: vec![TextPattern::new("*.example.com")],
        ..Match::default()
    };
    let with = |host| Facts {
        host,
        ..Facts::default()
    };
    assert!(m.holds(&with("API.Example.COM.:8443"), "/"));
    assert!(!m.holds(&with("example.com"), "/"));
    let long = format!("{}.Example.com", "X".repeat(1000));
    assert!(m.holds(&with(&long), "/"));
}

#[test]
fn a_cookie_is_found_among_others() {
    let headers = [
        ("Cookie", "a=1; sid=\"x=y\";b"),
        ("cookie", "two=second; c=3;d=; two=third; a=1"),
    ];
    let value =
        |name| cookie_value(&headers, name).map(|v| String::from_utf8_lossy(v).into_owned());
    assert_eq!(value("a").as_deref(), Some("1"));
    assert_eq!(value("sid").as_deref(), Some("x=y"));
    assert_eq!(value("c").as_deref(), Some("3"));
    assert_eq!(value("d").as_deref(), Some(""));
    assert_eq!(value("b"), None);
    assert_eq!(value("two"), None, "which of them counts is ambiguous");
    assert_eq!(value("SID"), None);
}
