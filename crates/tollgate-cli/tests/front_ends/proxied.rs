//! Checks that the service passes behind every proxy: decisions, spoofed and repeated fields, spellings of a path.

use tollgate_testkit::tollgate::{Start, Tollgate};
use tollgate_testkit::web::WebServer;
use tollgate_testkit::{Directory, free_port};

use crate::harness::{Upstream, serve};

/// What the tests of proxies limit.
pub(crate) const POLICY: &str = "default: pass
paths: { ignore_case: true }
deny: [{ name: thief, match: { header: { x-user: thief } } }]
limits:
  - { name: per-user, match: { path: /user/** }, key: header.x-user, allow: 1/h, burst: 3 }
  - { name: per-ip, match: { path: /ip/** }, key: ip, allow: 1/h, burst: 3 }
  - { name: per-path, match: { path: /path/** }, key: path, allow: 1/h, burst: 3 }
  - { name: posts, match: { method: POST, path: /post }, allow: 1/h, burst: 1 }
  - { name: host, match: { host: shop.example, path: /host }, allow: 1/h, burst: 1 }
  - { name: dear, match: { path: /dear }, allow: 1/h, burst: 1, cost: 2 }
";

/// A limiter, a service, and what makes a proxy of them.
pub(crate) struct Setting {
    pub(crate) limiter: Tollgate,
    pub(crate) upstream: Upstream,
    pub(crate) proxy: WebServer,
}

impl Setting {
    pub(crate) fn new(proxy: fn(u16, u16) -> WebServer) -> Setting {
        let limiter = serve(POLICY);
        let upstream = Upstream::start();
        let proxy = proxy(limiter.port(), upstream.port());
        Setting {
            limiter,
            upstream,
            proxy,
        }
    }
}

/// Requests pass until the limit, each with its own key; refused ones never reach the service.
pub(crate) fn passes_and_refuses(proxy: fn(u16, u16) -> WebServer) {
    let Setting {
        upstream,
        proxy,
        limiter: _limiter,
    } = Setting::new(proxy);
    let mut client = proxy.client();
    for user in ["ann", "bob"] {
        let headers = [("X-User", user)];
        for _ in 0..3 {
            let passed = client.get_with("/user/a", &headers).expect(200);
            assert!(passed.body.starts_with("GET /user/a "), "{passed:?}");
        }
        let before = upstream.served();
        for _ in 0..3 {
            let refused = client.get_with("/user/a", &headers).expect(429);
            let wait: u64 = refused.must("retry-after").parse().expect("a number");
            assert!((3_590..=3_600).contains(&wait), "{refused:?}");
            let ratelimit = refused.must("ratelimit");
            assert_eq!(ratelimit, format!(r#""per-user";r=0;t={wait}"#));
            assert_eq!(refused.must("content-type"), "application/problem+json");
            assert_eq!(refused.must("cache-control"), "no-store");
            assert_eq!(refused.json()["status"], 429);
        }
        assert_eq!(upstream.served(), before, "a refused request got through");
    }
    assert_eq!(upstream.served(), 6);
}

/// Nothing that a client writes gives it a fresh bucket or another limit.
pub(crate) fn is_not_spoofed(proxy: fn(u16, u16) -> WebServer) {
    let setting = Setting::new(proxy);
    let mut client = setting.proxy.client();
    let mut passed = 0;
    for number in 0..12 {
        let other = format!("6.6.6.{number}");
        let forwarded = format!("for={other}");
        let spoofs: [(&str, &str); 8] = [
            ("X-Forwarded-For", &other),
            ("X-Real-IP", &other),
            ("Forwarded", &forwarded),
            ("X-Forwarded-Uri", "/free"),
            ("X-Original-URI", "/free"),
            ("X-Forwarded-Method", "HEAD"),
            ("X-Original-Method", "HEAD"),
            ("X-Forwarded-Host", "free.example"),
        ];
        let headers = match number {
            8.. => &spoofs[..],
            one => &spoofs[one..=one],
        };
        match client.get_with("/ip/x", headers).status {
            200 => passed += 1,
            429 => {}
            other => panic!("{other} for {headers:?}"),
        }
    }
    assert_eq!(passed, 3);
    assert_eq!(setting.upstream.served(), 3);
}

/// Two values of what only the proxy may say are no way around it either.
pub(crate) fn repeated_headers_are_rejected(proxy: fn(u16, u16) -> WebServer) {
    let setting = Setting::new(proxy);
    let mut client = setting.proxy.client();
    let twice = [
        ("X-Forwarded-For", "6.6.6.6"),
        ("X-Forwarded-For", "7.7.7.7"),
    ];
    let statuses: Vec<u16> = (0..6)
        .map(|_| client.get_with("/ip/x", &twice).status)
        .collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429]);
}

/// Every spelling of a path is the same path.
pub(crate) fn spellings_share_a_bucket(proxy: fn(u16, u16) -> WebServer) {
    let setting = Setting::new(proxy);
    let mut client = setting.proxy.client();
    let mut passed = 0;
    for path in [
        "/path/rides",
        "//path/rides",
        "/path//rides",
        "/path/./rides",
        "/path/%2e/rides",
        "/path/x/../rides",
        "/path/x/%2E%2e/rides",
        "/PATH/Rides",
        "/path/rides/",
        "/path/%72ides",
        "/path/rides?x=1",
        "/path/rides;v=1",
    ] {
        match client.get(path).status {
            200 => passed += 1,
            429 => {}
            other => panic!("{other} for {path}"),
        }
    }
    assert_eq!(passed, 3);
    // What servers read differently never passes.
    let before = setting.upstream.served();
    for path in ["/path%2Frides", "/path/..;/rides"] {
        let status = client.get(path).status;
        assert!((400..500).contains(&status), "{status} for {path}");
    }
    assert_eq!(setting.upstream.served(), before);
}

/// Methods, hosts and the other kinds of refusal arrive as they are.
pub(crate) fn sees_the_original_request(proxy: fn(u16, u16) -> WebServer, host: &str) {
    let setting = Setting::new(proxy);
    let mut client = setting.proxy.client();
    for _ in 0..3 {
        client.get("/post").expect(200);
    }
    let mut post = |body: &str| client.send("POST", "/post", &[], body);
    let passed = post(r#"{"a":1}"#).expect(200);
    assert!(passed.body.starts_with("POST /post "), "{passed:?}");
    post(r#"{"a":1}"#).expect(429);
    client
        .get_with("/user/a", &[("X-User", "thief")])
        .expect(403);
    let never = client.get("/dear").expect(422);
    assert_eq!(never.header("retry-after"), None);
    let named = [("Host", host)];
    let shop = [
        client.get_with("/host", &named),
        client.get_with("/host", &named),
    ];
    let statuses = shop.map(|reply| reply.status);
    assert_eq!(statuses, [200, 429], "for {host}");
}

/// The limiter is killed and comes back; returns what clients saw meanwhile.
pub(crate) fn survives_its_limiter(proxy: fn(u16, u16) -> WebServer) -> u16 {
    let scratch = Directory::new();
    let policy = scratch.write("tollgate.yaml", POLICY);
    let state = scratch.file("tollgate.state");
    let port = free_port().unwrap();
    let start = || {
        Start::serve()
            .policy_file(&policy)
            .state(&state)
            .port(port)
            .start()
            .unwrap()
    };
    let limiter = start();
    let upstream = Upstream::start();
    let proxy = proxy(port, upstream.port());
    let mut client = proxy.client();
    let ann = [("X-User", "ann")];
    client.get_with("/user/a", &ann).expect(200);
    client.get_with("/user/a", &ann).expect(200);
    crate::state::written_after(&state);
    limiter.kill();
    let meanwhile = client.get_with("/user/a", &ann).status;
    let served = upstream.served();
    let _limiter = start();
    // Two were used before: one is left.
    let statuses: Vec<u16> = (0..3)
        .map(|_| client.get_with("/user/a", &ann).status)
        .collect();
    assert_eq!(statuses, [200, 429, 429]);
    client.get_with("/user/a", &[("X-User", "bob")]).expect(200);
    assert_eq!(upstream.served(), served + 2);
    meanwhile
}
