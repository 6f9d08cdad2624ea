//! Behind a real Envoy, with the filter and the policy of `examples/envoy`.

use std::path::PathBuf;

use tollgate_testkit::servers::{Kind, Server};

use tollgate_testkit::tollgate::{Start, Tollgate};
use tollgate_testkit::web::WebServer;
use tollgate_testkit::{Directory, wait};

use crate::harness::{Upstream, envoy, serve_with, tollgate};

fn policy() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/envoy/tollgate.yaml")
}

/// A limiter, a service, and an Envoy before it.
struct Setting {
    limiter: Tollgate,
    upstream: Upstream,
    proxy: WebServer,
}

impl Setting {
    fn new(change: impl FnOnce(String) -> String) -> Setting {
        let limiter = Start::serve()
            .policy_file(&policy())
            .args(&["--rls", "127.0.0.1:0"])
            .start()
            .unwrap();
        let upstream = Upstream::start();
        let proxy = envoy(limiter.port_of("envoy").unwrap(), upstream.port(), change);
        Setting {
            limiter,
            upstream,
            proxy,
        }
    }
}

#[test]
fn behind_envoy_a_bucket_refuses_with_429_and_its_own_headers_are_filled() {
    let setting = Setting::new(|recipe| recipe);
    let mut client = setting.proxy.client();
    for user in ["ann", "bob"] {
        let headers = [("x-user", user)];
        for left in ["2", "1", "0"] {
            let passed = client.get_with("/a", &headers).expect(200);
            let limit = passed.must("x-ratelimit-limit");
            // Those of the descriptor with the least left come first, then all of them.
            assert!(limit.contains(r#"60;w=3600;name="per-user""#), "{limit}");
            if user == "ann" {
                assert_eq!(passed.must("x-ratelimit-remaining"), left);
            }
            assert!(passed.must("ratelimit").contains("\"per-user\";r="));
        }
        let before = setting.upstream.served();
        let refused = client.get_with("/a", &headers).expect(429);
        assert_eq!(refused.must("x-envoy-ratelimited"), "true");
        assert_eq!(refused.must("x-ratelimit-remaining"), "0");
        if user == "ann" {
            // Later the shadow limit has nothing left either, and Envoy reports the first of the two.
            let reset: u64 = refused.must("x-ratelimit-reset").parse().expect("seconds");
            assert!((1..=60).contains(&reset), "{reset}");
        }
        let wait: u64 = refused.must("retry-after").parse().expect("seconds");
        assert!((1..=60).contains(&wait), "{wait}");
        assert_eq!(
            setting.upstream.served(),
            before,
            "a refused one got through"
        );
    }
    let admitted = "tollgate_decisions_total{limit=\"per-user\",verdict=\"pass\",reason=\"limit\",protocol=\"rls\"}";
    assert_eq!(setting.limiter.metric(admitted), Some(6));
}

#[test]
fn behind_envoy_a_sliding_window_refuses_and_the_other_limits_pay_nothing_for_it() {
    let setting = Setting::new(|recipe| recipe);
    let mut client = setting.proxy.client();
    let ann = [("x-user", "ann")];
    for status in [200, 200, 429, 429, 429, 429] {
        client.get_with("/search?q=1", &ann).expect(status);
    }
    // Two of three were taken from the bucket, and one is left for other paths.
    client.get_with("/a", &ann).expect(200);
    client.get_with("/a", &ann).expect(429);
}

#[test]
fn behind_envoy_a_shadow_limit_is_counted_and_refuses_nothing() {
    let setting = Setting::new(|recipe| recipe);
    let mut client = setting.proxy.client();
    for left in ["3", "2", "1", "0", "0", "0"] {
        let passed = client.get("/a").expect(200);
        assert_eq!(passed.must("x-ratelimit-remaining"), left);
        let limit = passed.must("x-ratelimit-limit");
        assert_eq!(limit, r#"4, 4;w=86400;name="per-address""#);
    }
    let refused = "tollgate_shadow_refusals_total{limit=\"per-address\",role=\"shadow\"}";
    assert_eq!(setting.limiter.metric(refused), Some(2));
    assert_eq!(setting.upstream.served(), 6);
}

#[test]
fn while_the_limiter_is_down_envoy_follows_its_failure_mode() {
    for (change, meanwhile) in [
        ("failure_mode_deny: false", 200),
        ("failure_mode_deny: true", 500),
    ] {
        let setting = Setting::new(|recipe| {
            let usual = "failure_mode_deny: false";
            assert!(recipe.contains(usual));
            recipe.replace(usual, change)
        });
        let mut client = setting.proxy.client();
        let ann = [("x-user", "ann")];
        for status in [200, 200, 200, 429] {
            client.get_with("/a", &ann).expect(status);
        }
        setting.limiter.kill();
        for _ in 0..3 {
            client.get_with("/a", &ann).expect(meanwhile);
        }
    }
}

#[test]
fn files_of_the_reference_service_are_served_and_followed() {
    let scratch = Directory::new();
    let config = |count: u32| {
        format!(
            "domain: edge\ndescriptors:\n  - key: user\n    rate_limit: {{ unit: day, requests_per_unit: {count} }}\n"
        )
    };
    scratch.write("edge.yaml", &config(2));
    let folder = scratch.path().to_str().expect("UTF-8");
    let limiter = Start::serve()
        .args(&["--envoy-config", folder, "--rls", "127.0.0.1:0"])
        .start()
        .unwrap();
    let ask = r#"{"domain":"edge","descriptor":[{"key":"user","value":"ann"}]}"#;
    let statuses =
        |count: usize| -> Vec<u16> { (0..count).map(|_| limiter.check(ask).status).collect() };
    assert_eq!(statuses(3), [200, 200, 429]);
    // The change is noticed without a request.
    scratch.write("edge.yaml", &config(3));
    let changed = || limiter.metric("tollgate_policy_version") == Some(2);
    wait("the change is noticed", changed);
    assert_eq!(statuses(2), [200, 429]);
    // What is wrong changes nothing.
    scratch.write("more.yaml", "domain: edge\n");
    wait("the error is reported", || {
        limiter.ready()["status"] == "degraded"
    });
    assert!(limiter.log().contains("duplicate domain 'edge'"));
    assert_eq!(statuses(1), [429]);
}

#[test]
fn services_with_files_of_the_reference_service_count_in_one_store() {
    let store = Server::start(Kind::Redis, &[]).unwrap_or_else(|error| panic!("{error}"));
    let scratch = Directory::new();
    let config = "domain: edge
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 4 } }
  - { key: path, value: /a, rate_limit: { unit: year, requests_per_unit: 9 } }
";
    scratch.write("edge.yaml", config);
    let folder = scratch.path().to_str().expect("UTF-8");
    let url = format!("redis://127.0.0.1:{}", store.port());
    let args = ["--envoy-config", folder, "--store", &url];
    let services = [(); 2].map(|()| Start::serve().args(&args).start().unwrap());
    for service in &services {
        wait("the store is up", || {
            service.ready()["store"]["status"] == "up"
        });
        assert!(
            service.out().contains("open it with --rls"),
            "{}",
            service.out()
        );
    }
    let ask = r#"{"domain":"edge","descriptor":[{"key":"user","value":"ann"}]}"#;
    let asked = (0..20).map(|turn| services[turn % 2].check(ask).json());
    let passed: Vec<_> = asked.filter(|said| said["verdict"] == "pass").collect();
    // On a busy machine an answer may be late, and then it is decided alone; each for itself would be eight.
    let by_store = passed.iter().filter(|said| said["degraded"] != true);
    assert!(by_store.count() <= 4 && passed.len() >= 4, "{passed:?}");
    // The keys of each limit are listed.
    let listed = services[0].client().get("/v1/limits").json();
    let matches = |at: usize| listed["limits"][at]["match"]["entries"][0].clone();
    assert_eq!([matches(0), matches(1)], ["user", "path=/a"]);
    // Counted by each for itself, and said so.
    let alone = Start::serve().args(&args[..2]).start().unwrap();
    assert!(
        alone.out().contains("counts are local to this process"),
        "{}",
        alone.out()
    );
}

#[test]
fn what_is_not_carried_over_can_be_denied() {
    let scratch = Directory::new();
    let limits = "- { namespace: a, max_value: 1, seconds: 60, conditions: [\"req.path.matches('^/x')\"], variables: [] }\n";
    let file = scratch.write("limits.yaml", limits);
    let convert = |args: &[&str]| {
        let ran = tollgate(&[&["convert", "limitador", &file.to_string_lossy()], args].concat());
        assert!(ran.out.contains("LEFT OUT"));
        ran.code
    };
    assert_eq!(convert(&[]), Some(0));
    assert_eq!(convert(&["--deny-warnings"]), Some(1));
}

#[test]
fn a_folder_without_files_is_not_served() {
    let scratch = Directory::new();
    let folder = scratch.path().to_str().expect("UTF-8");
    let (said, code) = Start::serve()
        .args(&["--envoy-config", folder])
        .fails()
        .unwrap();
    assert!(said.contains("no file that ends in .yaml"), "{said}");
    assert_eq!(code, Some(2));
}

/// A limiter with this policy, a service, and an Envoy before it whose `rate_limits` are these.
fn setting(policy: &str, rate_limits: &str, change: impl FnOnce(String) -> String) -> Setting {
    let limiter = serve_with(policy, &["--rls", "127.0.0.1:0"]);
    let upstream = Upstream::start();
    let proxy = envoy(
        limiter.port_of("envoy").unwrap(),
        upstream.port(),
        |recipe| {
            let (before, rest) = recipe.split_once("rate_limits:").expect("rate limits");
            let (_, after) = rest.split_once("routes:").expect("routes");
            change(format!(
                "{before}rate_limits: {rate_limits}\n                      routes:{after}"
            ))
        },
    );
    Setting {
        limiter,
        upstream,
        proxy,
    }
}

#[test]
fn a_cost_that_envoy_reports_when_the_stream_is_done_is_taken() {
    // Before: is anything left? Afterwards: what it took, as the request says.
    let asks = "{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }], hits_addend: { number: 0 } }";
    let reports = "{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }], hits_addend: { format: '%REQ(x-cost)%' }, apply_on_stream_done: true }";
    let rate_limits = format!("[{asks}, {reports}]");
    for (when_over, then) in [("take-rest", 429), ("take-nothing", 200)] {
        let policy = format!(
            "default: pass\nlimits: [{{ name: tokens, match: {{ domain: edge }}, key: descriptor.user, algorithm: fixed-window, allow: 100/365d, when_over: {when_over} }}]\n"
        );
        // Envoy does it for what its filter says, not for what a virtual host says.
        let setting = setting(&policy, "[]", |recipe| {
            let domain = "                      domain: edge\n";
            assert!(recipe.contains(domain));
            let more = format!("{domain}                      rate_limits: {rate_limits}\n");
            recipe.replace(domain, &more)
        });
        let mut client = setting.proxy.client();
        let mut get = |user: &str, cost: &str| {
            let headers = [("x-user", user), ("x-cost", cost)];
            client.get_with("/a", &headers).status
        };
        let decisions = |verdict: &str| {
            let labels =
                format!("limit=\"tokens\",verdict=\"{verdict}\",reason=\"limit\",protocol=\"rls\"");
            let series = format!("tollgate_decisions_total{{{labels}}}");
            setting.limiter.metric(&series).unwrap_or(0)
        };
        assert_eq!(get("ann", "60"), 200);
        // It is reported when the stream is done, which may be after the client has its answer.
        wait("the cost is reported", || decisions("pass") == 1);
        // More than is left, and more than there ever is: that cannot pass whole.
        assert_eq!(get("ann", "5000"), 200);
        wait("the cost is reported", || decisions("never") == 1);
        assert_eq!(get("ann", "5000"), then, "{when_over}");
        assert_eq!(get("bob", "1"), 200);
    }
}

#[test]
fn a_limit_that_envoy_sends_along_is_followed_where_the_policy_says_so() {
    let filter = r#"http_filters:
                  - name: envoy.filters.http.set_metadata
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
                      metadata:
                        - metadata_namespace: plans
                          value: { limit: { requests_per_unit: 2, unit: YEAR } }
"#;
    let rate_limits = "[{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }], limit: { dynamic_metadata: { metadata_key: { key: plans, path: [{ key: limit }] } } } }]";
    let limits = "limits: [{ name: own, match: { domain: edge }, key: descriptor.user, algorithm: fixed-window, allow: 3/365d }]\n";
    let ignored = "tollgate_rls_ignored_overrides_total";
    for (follows, passes) in [(true, 2), (false, 3)] {
        let domains = format!("domains: [{{ name: edge, follow_request_limits: {follows} }}]\n");
        let policy = format!("default: pass\n{domains}{limits}");
        let setting = setting(&policy, rate_limits, |recipe| {
            assert!(recipe.contains("http_filters:\n"));
            recipe.replace("http_filters:\n", filter)
        });
        let mut client = setting.proxy.client();
        let ann = [("x-user", "ann")];
        for turn in 0..5 {
            let answer = client.get_with("/a", &ann);
            assert_eq!(answer.status == 200, turn < passes, "follows: {follows}");
            let limit = answer.must("x-ratelimit-limit");
            let (name, most) = if follows {
                ("request-limits", 2)
            } else {
                ("own", 3)
            };
            let expected = format!("{most};w=31536000;name=\"{name}\"");
            assert!(limit.contains(&expected), "{limit}");
        }
        let count = setting.limiter.metric(ignored);
        assert_eq!(count, Some(if follows { 0 } else { 5 }));
    }
}
