//! Several services on one real store: one count for all, and decisions while the store does not answer.

use serde_json::Value;
use tollgate_testkit::servers::{Kind, Server};

use tollgate_testkit::tollgate::{Start, Tollgate};
use tollgate_testkit::{Directory, free_port, wait};

use crate::harness::{Upstream, nginx_with, policy_with, serve, tollgate};

const PER_ORG: &str = r#"{"path":"/","headers":{"x-org":"acme"}}"#;

fn store(kind: Kind) -> Server {
    Server::start(kind, &[]).unwrap_or_else(|error| panic!("{error}"))
}

/// A policy on the store at this port, with these lines besides. A machine that runs all tests at once is slow, and so is
/// its store: one answer later than the usual deadline would be a decision without it, and the counts those of two.
fn policy(port: u16, on_error: &str, limits: &str) -> String {
    let limits = policy_with(limits);
    let store = format!("{{ url: 'redis://127.0.0.1:{port}', deadline: 1s }}");
    format!("store: {store}\non_store_error: {on_error}\n{limits}")
}

fn ten_for_each_org(port: u16) -> String {
    let limit = "  - { name: per-org, key: header.x-org, allow: 1/h, burst: 10 }";
    policy(port, "local", limit)
}

/// Waits until the service says that its store is there.
fn connected(service: &Tollgate) {
    wait("the store is up", || {
        service.ready()["store"]["status"] == "up"
    });
}

fn ask(service: &Tollgate, body: &str) -> Value {
    service.check(body).json()
}

fn passes(service: &Tollgate, body: &str, times: usize) -> usize {
    (0..times)
        .filter(|_| ask(service, body)["verdict"] == "pass")
        .count()
}

#[test]
fn two_services_on_one_store_hold_one_limit_together_behind_nginx() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let store = store(kind);
        let text = ten_for_each_org(store.port());
        let services = [serve(&text), serve(&text)];
        services.iter().for_each(connected);
        let [one, other] = services.each_ref().map(Tollgate::port);
        let upstream = Upstream::start();
        let proxy = nginx_with(one, upstream.port(), |recipe| {
            let first = format!("server 127.0.0.1:{one};");
            assert!(recipe.contains(&first));
            recipe.replace(&first, &format!("{first} server 127.0.0.1:{other};"))
        });
        let mut client = proxy.client();
        let asked = (0..40).map(|_| client.get_with("/", &[("X-Org", "acme")]).status);
        let answers: Vec<u16> = asked.collect();
        let passed = answers.iter().filter(|status| **status == 200).count();
        assert_eq!(passed, 10, "{kind:?}: {answers:?}");
        assert_eq!(upstream.served(), 10);
        for service in &services {
            let decisions = |verdict| {
                let labels = format!(
                    "limit=\"per-org\",verdict=\"{verdict}\",reason=\"limit\",protocol=\"auth\""
                );
                let series = format!("tollgate_decisions_total{{{labels}}}");
                service.metric(&series).unwrap_or(0)
            };
            assert!(
                decisions("pass") + decisions("refuse") > 0,
                "both were asked"
            );
        }
    }
}

#[test]
fn a_service_starts_without_its_store_and_finds_it_when_it_comes() {
    let before = store(Kind::Redis);
    let service = serve(&ten_for_each_org(before.port()));
    connected(&service);
    before.kill();
    let late = serve(&ten_for_each_org(before.port()));
    let answer = ask(&late, PER_ORG);
    assert_eq!(
        (&answer["verdict"], &answer["degraded"]),
        (&"pass".into(), &true.into())
    );
    assert_eq!(late.ready()["status"], "degraded");
    assert_eq!(late.ready()["store"]["status"], "away");
    before.restart().unwrap_or_else(|error| panic!("{error}"));
    connected(&late);
    // The other one has to find out that its store is another.
    let series = format!(
        "tollgate_store_connections_total{{server=\"127.0.0.1:{}\"}}",
        before.port()
    );
    wait("it has connected again", || {
        service.metric(&series) >= Some(2)
    });
    wait("nothing was decided alone lately", || {
        late.ready()["status"] == "ok"
    });
    // It admitted one by its share, and has reported it to the store.
    assert_eq!(passes(&late, PER_ORG, 20), 9);
    assert_eq!(passes(&service, PER_ORG, 5), 0);
    assert_eq!(
        late.metric("tollgate_degraded_decisions_total{verdict=\"pass\"}"),
        Some(1)
    );
}

#[test]
fn without_the_store_each_limit_does_as_it_says() {
    let unused_port = free_port().unwrap();
    let limits =
        "  - { name: counted, match: { path: /counted }, key: header.x-org, allow: 1/h, burst: 2 }
  - { name: open, match: { path: /open }, key: header.x-org, allow: 1/h, on_store_error: allow }
  - { name: shut, match: { path: /shut }, key: header.x-org, allow: 1/h, on_store_error: deny }";
    let service = serve(&policy(unused_port, "local", limits));
    let at = |path: &str| format!(r#"{{"path":"{path}","headers":{{"x-org":"acme"}}}}"#);
    assert_eq!(passes(&service, &at("/counted"), 5), 2);
    assert_eq!(passes(&service, &at("/open"), 5), 5);
    let refused = service.check(&at("/shut")).expect(503);
    assert_eq!(refused.must("retry-after"), "1");
    let answer = refused.json();
    assert_eq!(answer["reason"], "store-error");
    assert_eq!(answer["limit"], "shut");
    assert_eq!(answer["degraded"], true);
    // A proxy gets the same response.
    let forwarded = [("X-Forwarded-Uri", "/shut"), ("X-Org", "acme")];
    let refused = service
        .client()
        .get_with("/v1/auth", &forwarded)
        .expect(503);
    assert!(refused.body.contains("does not answer"), "{}", refused.body);
}

#[test]
fn what_a_reservation_did_not_use_is_free_for_every_node() {
    let store = store(Kind::Redis);
    let text = ten_for_each_org(store.port());
    let (one, other) = (serve(&text), serve(&text));
    connected(&one);
    connected(&other);
    let body = r#"{"path":"/","headers":{"x-org":"acme"},"cost":8,"reserve":true}"#;
    let reserved = ask(&one, body);
    let name = reserved["reservation"].as_str().expect("a reservation");
    assert_eq!(passes(&other, PER_ORG, 5), 2);
    let settle = format!(r#"{{"reservation":"{name}","actual":3}}"#);
    let mut client = one.client();
    assert_eq!(
        client.post("/v1/settle", &settle).expect(200).json()["unpaid"],
        0
    );
    client.post("/v1/settle", &settle).expect(409);
    assert_eq!(passes(&other, PER_ORG, 9), 5);
}

#[test]
fn tiers_overrides_and_shadows_are_counted_in_the_store() {
    let store = store(Kind::Redis);
    let limits = "  - { name: plan, match: { path: /plan }, key: header.x-org, allow: 1/h, burst: 2, tier: header.x-plan }
  - { name: own, match: { path: /own }, key: header.x-org, allow: 1/h, overrides: [{ key: vip, burst: 4 }] }
  - { name: shadow, match: { path: /shadow }, key: header.x-org, allow: 1/h, mode: shadow }
  - { name: at-once, match: { path: /at-once }, key: header.x-org, algorithm: concurrency, allow: 2, ttl: 1h }";
    let text = format!(
        "tiers: {{ pro: {{ times: 3 }} }}\n{}",
        policy(store.port(), "local", limits)
    );
    let (one, other) = (serve(&text), serve(&text));
    connected(&one);
    connected(&other);
    let both = |body: &str, times| passes(&one, body, times) + passes(&other, body, times);
    let at = |path: &str, headers: &str| format!(r#"{{"path":"{path}","headers":{{{headers}}}}}"#);
    assert_eq!(both(&at("/plan", r#""x-org":"a""#), 5), 2);
    assert_eq!(both(&at("/plan", r#""x-org":"a","x-plan":"pro""#), 5), 6);
    assert_eq!(both(&at("/own", r#""x-org":"a""#), 5), 1);
    assert_eq!(both(&at("/own", r#""x-org":"vip""#), 5), 4);
    assert_eq!(both(&at("/shadow", r#""x-org":"a""#), 5), 10);
    let shadowed = |service: &Tollgate| {
        let series = "tollgate_shadow_refusals_total{limit=\"shadow\",role=\"shadow\"}";
        service.metric(series).unwrap_or(0)
    };
    assert_eq!(shadowed(&one) + shadowed(&other), 9);
    // The holder releases its permit, and then any node can take it.
    let place = at("/at-once", r#""x-org":"a""#);
    let taken = ask(&one, &place);
    assert_eq!(both(&place, 3), 1);
    let name = taken["reservation"].as_str().expect("a place");
    let free = format!(r#"{{"reservation":"{name}"}}"#);
    one.client().post("/v1/settle", &free).expect(200);
    assert_eq!(passes(&other, &place, 3), 1);
}

#[test]
fn a_reload_keeps_counting_where_it_was_and_does_not_change_the_store() {
    let store = store(Kind::Redis);
    let service = serve(&ten_for_each_org(store.port()));
    connected(&service);
    assert_eq!(passes(&service, PER_ORG, 7), 7);
    let write = |text: &str| {
        std::fs::write(service.policy_file(), text).unwrap_or_else(|error| panic!("{error}"));
        service.operate("POST", "/reload", "{}")
    };
    // Another rate: what was used counts on.
    let slower = ten_for_each_org(store.port()).replace("1/h", "1/2h");
    write(&slower).expect(200);
    assert_eq!(passes(&service, PER_ORG, 9), 3);
    let elsewhere = ten_for_each_org(free_port().unwrap());
    let refused = write(&elsewhere);
    assert_ne!(refused.status, 200);
    assert!(refused.body.contains("another `store`"), "{}", refused.body);
    let health = service.ready();
    assert_eq!(health["policy"]["last_error"]["code"], "policy-other-store");
    assert_eq!(ask(&service, PER_ORG)["verdict"], "refuse");
}

#[test]
fn operators_see_the_usage_in_the_store() {
    let store = store(Kind::Redis);
    let text = ten_for_each_org(store.port());
    let (one, other) = (serve(&text), serve(&text));
    connected(&one);
    connected(&other);
    assert_eq!(passes(&one, PER_ORG, 4), 4);
    let peek = r#"{"limit":"per-org","key":"acme","cost":0}"#;
    assert_eq!(
        other.operate("POST", "/peek", peek).expect(200).json()["remaining"],
        6
    );
    let peeked = other
        .operate("POST", "/explain", PER_ORG)
        .expect(200)
        .json();
    assert_eq!(
        (&peeked["verdict"], &peeked["remaining"]),
        (&"pass".into(), &5.into())
    );
    assert_eq!(peeked["limits"][0]["remaining"], 5);
    let peeked = other.client().post("/v1/peek", PER_ORG);
    assert_eq!(peeked.expect(200).json()["remaining"], 5);
    wait("both know of each other", || {
        other.ready()["store"]["nodes"] == 2
    });
    let up = format!("tollgate_store_up{{server=\"127.0.0.1:{}\"}}", store.port());
    assert_eq!(other.metric(&up), Some(1));
    assert_eq!(other.metric("tollgate_store_nodes"), Some(2));
    assert!(other.metric("tollgate_store_latency_seconds_count") >= Some(3));
}

/// What `tollgate doctor` says of a policy, and its exit code.
fn doctor(text: &str, args: &[&str]) -> (String, Option<i32>) {
    let scratch = Directory::new();
    let file = scratch.write("tollgate.yaml", text);
    let ran = tollgate(&[&["doctor", &file.to_string_lossy()], args].concat());
    (ran.out, ran.code)
}

#[test]
fn the_doctor_says_what_is_wrong_with_the_store() {
    let good = store(Kind::Redis);
    let (out, code) = doctor(&ten_for_each_org(good.port()), &[]);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("nothing is wrong"), "{out}");
    assert!(out.contains("connections on all ports together"), "{out}");

    let (out, code) = doctor(&ten_for_each_org(free_port().unwrap()), &[]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("error: connect"), "{out}");
    assert!(out.contains("start the server"), "{out}");

    let forgetful = Server::start(
        Kind::Redis,
        &[("maxmemory", "50mb"), ("maxmemory-policy", "allkeys-lru")],
    );
    let forgetful = forgetful.unwrap_or_else(|error| panic!("{error}"));
    let (out, code) = doctor(&ten_for_each_org(forgetful.port()), &[]);
    assert!(out.contains("warning: eviction"), "{out}");
    assert_eq!(code, Some(0));
    let (out, code) = doctor(
        &ten_for_each_org(forgetful.port()),
        &["--deny-warnings", "--json"],
    );
    assert_eq!(code, Some(1));
    let first: Value = serde_json::from_str(out.lines().next().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {out}"));
    assert_eq!(first["severity"], "ok");

    let (out, code) = doctor("default: pass\nlimits: []\n", &[]);
    assert_eq!(code, Some(2));
    assert!(out.contains("there is no store"), "{out}");
}

#[test]
fn a_store_that_can_never_be_opened_is_an_error_at_the_start() {
    let text = "\
store: { url: 'redis://127.0.0.1:6379', username: a, password_env: TOLLGATE_NO_SUCH_VARIABLE }
on_store_error: local
default: pass
limits: [{ name: a, allow: 1/s }]
";
    let scratch = Directory::new();
    let file = scratch.write("tollgate.yaml", text);
    let (said, code) = Start::serve().policy_file(&file).fails().unwrap();
    assert_ne!(code, Some(0));
    assert!(said.contains("TOLLGATE_NO_SUCH_VARIABLE"), "{said}");
    assert!(said.contains("hint: "), "{said}");
}
