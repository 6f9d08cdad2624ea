//! The limit layer: admitted, waiting and refused requests, their header fields, and a policy that is replaced.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body as _;
use http_body_util::{Empty, Full};
use tollgate::{ManualClock, Span};
use tollgate_policy::HostFuture;
use tollgate_policy::address::Proxies;
use tollgate_policy::{
    DecisionHost, KeyPart, LimitRule, Mode, Observed, Policy, PolicyGate, Quota, Source,
};
use tollgate_tower::admission::QueueSet;
use tollgate_tower::{
    ClientAddr, LimitLayer, PeerAddr, PolicyHandle, PolicySource, RejectedByLayer,
};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{NoBody, bucket, get, header, policy, policy_handle, rule, text};

/// Says what the policy makes of the client, and sets a field that we set, too.
async fn hello(request: Request<NoBody>) -> Result<Response<Full<Bytes>>, Infallible> {
    let client = request.extensions().get::<ClientAddr>();
    let text = client.map_or("unknown".to_owned(), |client| client.0.to_string());
    let response = Response::builder()
        .header("ratelimit", "mine")
        .header("retry-after", "77")
        .header("cache-control", "max-age=5");
    Ok(response.body(Full::from(text)).unwrap())
}

#[tokio::test]
async fn admitted_responses_report_what_is_left_and_refusals_the_reason() {
    let (policy_handle, clock) = policy_handle([rule("rides", bucket("5/s", 2))]);
    let service = LimitLayer::new(policy_handle).layer(service_fn(hello));
    let ask = || service.clone().oneshot(get("/", "a"));

    let first = ask().await.unwrap();
    assert_eq!(first.status(), 200);
    assert_eq!(header(&first, "x-ratelimit-limit"), Some("2"));
    assert_eq!(header(&first, "x-ratelimit-remaining"), Some("1"));
    assert_eq!(
        header(&first, "ratelimit-policy"),
        Some("\"rides\";q=2;w=1")
    );
    assert_eq!(header(&first, "ratelimit"), Some("\"rides\";r=1;t=1"));
    // These two are the service's own as long as nothing is refused.
    assert_eq!(header(&first, "retry-after"), Some("77"));
    assert_eq!(header(&first, "cache-control"), Some("max-age=5"));
    assert_eq!(first.headers().get_all("ratelimit").iter().count(), 1);
    assert_eq!(text(first).await, "unknown");

    assert_eq!(ask().await.unwrap().status(), 200);
    let refused = ask().await.unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(header(&refused, "retry-after"), Some("1"));
    assert_eq!(header(&refused, "ratelimit"), Some("\"rides\";r=0;t=1"));
    assert_eq!(header(&refused, "cache-control"), Some("no-store"));
    let media = header(&refused, "content-type");
    assert_eq!(media, Some("application/problem+json"));
    assert!(refused.extensions().get::<RejectedByLayer>().is_some());
    let size = refused.body().size_hint().exact();
    let body = text(refused).await;
    assert_eq!(size, Some(body.len() as u64));
    assert!(body.contains("\"status\":429"), "{body}");
    assert!(body.contains("\"violated-policies\":[\"rides\"]"), "{body}");
    assert!(body.contains("\"retry_after_ms\":200"), "{body}");

    // Another key has its own allowance, and the first one refills.
    let other = service.clone().oneshot(get("/", "b")).await.unwrap();
    assert_eq!(other.status(), 200);
    clock.advance(Span::from_millis(200));
    assert_eq!(ask().await.unwrap().status(), 200);
}

#[tokio::test]
async fn the_answer_to_head_has_no_body() {
    let (policy_handle, _clock) = policy_handle([rule("rides", bucket("5/s", 1))]);
    let service = LimitLayer::new(policy_handle).layer(service_fn(hello));
    let head = || {
        let mut request = get("/", "a");
        *request.method_mut() = Method::HEAD;
        request
    };
    assert_eq!(service.clone().oneshot(head()).await.unwrap().status(), 200);
    let refused = service.oneshot(head()).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert!(refused.body().is_end_stream());
}

#[tokio::test]
async fn a_policy_without_fields_adds_none() {
    let mut quiet = policy([rule("rides", bucket("5/s", 1))]);
    quiet.answers.retry_after = false;
    quiet.answers.ratelimit = false;
    quiet.answers.problem = false;
    quiet.answers.x_ratelimit = tollgate_policy::XRateLimit::Off;
    let policy_handle = PolicyHandle::with_clock(quiet, ManualClock::new()).unwrap();
    let service = LimitLayer::new(policy_handle).layer(service_fn(hello));
    let passed = service.clone().oneshot(get("/", "a")).await.unwrap();
    assert_eq!(passed.headers().len(), 3, "{:?}", passed.headers());
    assert_eq!(header(&passed, "ratelimit"), Some("mine"));
    let refused = service.oneshot(get("/", "a")).await.unwrap();
    assert_eq!(refused.headers().len(), 1, "{:?}", refused.headers());
    assert_eq!(header(&refused, "cache-control"), Some("no-store"));
    assert_eq!(text(refused).await, "");
}

#[tokio::test]
async fn a_policy_may_choose_the_older_names_of_header_fields() {
    let mut older = policy([rule("rides", bucket("5/s", 10))]);
    older.answers.x_ratelimit = tollgate_policy::XRateLimit::Unprefixed;
    let policy_handle = PolicyHandle::with_clock(older, ManualClock::new()).unwrap();
    let service = LimitLayer::new(policy_handle).layer(service_fn(hello));
    let passed = service.oneshot(get("/", "a")).await.unwrap();
    assert_eq!(header(&passed, "ratelimit-limit"), Some("10"));
    assert_eq!(header(&passed, "ratelimit-remaining"), Some("9"));
    assert_eq!(header(&passed, "ratelimit-reset"), Some("1"));
    assert_eq!(header(&passed, "x-ratelimit-limit"), None);
}

#[tokio::test]
async fn other_refusals_have_their_own_status() {
    let mut rules = policy([rule("rides", bucket("5/s", 1))]);
    rules.limits[0].missing_key = tollgate_policy::MissingKey::Deny;
    let policy_handle = PolicyHandle::with_clock(rules, ManualClock::new()).unwrap();
    let layer = LimitLayer::new(policy_handle).with_cost(|parts| {
        let cost = parts.headers.get("x-cost")?;
        cost.to_str().ok()?.parse().ok()
    });
    let service = layer.layer(service_fn(hello));
    let status =
        async |request: Request<NoBody>| service.clone().oneshot(request).await.unwrap().status();
    let plain = |path: &str| Request::get(path).body(Empty::new()).unwrap();
    assert_eq!(status(plain("/")).await, 403);
    assert_eq!(status(plain("/%2f")).await, 400);
    let mut costly = get("/", "a");
    costly.headers_mut().insert("x-cost", 2.into());
    assert_eq!(status(costly).await, 422);
    assert_eq!(status(get("/", "a")).await, 200);
}

#[tokio::test]
async fn a_refusal_of_an_inner_layer_keeps_its_numbers() {
    let (outer, _) = policy_handle([rule("outer", bucket("5/s", 100))]);
    let (inner, _) = policy_handle([rule("inner", bucket("5/s", 1))]);
    let service = LimitLayer::new(inner).layer(service_fn(hello));
    let service = LimitLayer::new(outer).layer(service);
    let passed = service.clone().oneshot(get("/", "a")).await.unwrap();
    assert_eq!(header(&passed, "ratelimit"), Some("\"outer\";r=99;t=20"));
    let refused = service.oneshot(get("/", "a")).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(header(&refused, "ratelimit"), Some("\"inner\";r=0;t=1"));
}

#[tokio::test]
async fn the_client_is_resolved_through_trusted_proxies_for_inner_services() {
    let mut by_address = LimitRule::new("clients", Quota::plain(bucket("1/s", 1)));
    by_address.key = vec![KeyPart::new(Source::Address { v4: 32, v6: 64 })];
    let rules = Policy {
        proxies: Proxies {
            trusted: ["10.0.0.0/8".parse().unwrap()].into_iter().collect(),
            ..Proxies::default()
        },
        ..policy([by_address])
    };
    let policy_handle = PolicyHandle::with_clock(rules, ManualClock::new()).unwrap();
    let service = LimitLayer::new(policy_handle.clone()).layer(service_fn(hello));
    let from = |peer: [u8; 4], client: &str| {
        let mut request = get("/", "a");
        let headers = request.headers_mut();
        headers.insert("x-forwarded-for", client.parse().unwrap());
        request.extensions_mut().insert(PeerAddr(peer.into()));
        request
    };
    let ask = |request| service.clone().oneshot(request);
    let first = ask(from([10, 0, 0, 1], "203.0.113.7")).await.unwrap();
    assert_eq!(text(first).await, "203.0.113.7");
    let again = ask(from([10, 0, 0, 2], "203.0.113.7")).await.unwrap();
    assert_eq!(again.status(), 429);
    // The header of an untrusted peer is ignored.
    let liar = ask(from([192, 0, 2, 1], "203.0.113.8")).await.unwrap();
    assert_eq!(text(liar).await, "192.0.2.1");

    // A function of the program finds the peer.
    #[derive(Clone)]
    struct Socket(IpAddr);
    let layer = LimitLayer::new(policy_handle).with_peer(|e| e.get::<Socket>().map(|s| s.0));
    let mut request = get("/", "a");
    request
        .extensions_mut()
        .insert(Socket([192, 0, 2, 9].into()));
    let found = layer.layer(service_fn(hello)).oneshot(request).await;
    assert_eq!(text(found.unwrap()).await, "192.0.2.9");
}

#[tokio::test]
async fn a_request_waits_for_its_slot_and_a_wait_above_the_maximum_is_refused() {
    let line = tollgate::Limit::leaky_bucket("10/s".parse().unwrap(), 100).unwrap();
    let policy_handle = PolicyHandle::new(policy([rule("line", line)])).unwrap();
    let layer = LimitLayer::new(policy_handle).with_max_wait(Span::from_millis(250));
    let service = layer.layer(service_fn(hello));
    let begun = tokio::time::Instant::now();
    let asked: Vec<_> = (0..5)
        .map(|_| {
            let mut service = service.clone();
            // Called here, so that they stand in this order.
            let response = service.call(get("/", "a"));
            tokio::spawn(async move { (response.await.unwrap().status(), begun.elapsed()) })
        })
        .collect();
    let mut statuses = Vec::new();
    for (nth, asked) in asked.into_iter().enumerate() {
        let (status, after) = asked.await.unwrap();
        let slot = Duration::from_millis(100 * nth as u64);
        assert!(
            status != 200 || after + Duration::from_millis(5) >= slot,
            "{nth}: {after:?}"
        );
        statuses.push(status.as_u16());
    }
    // Refused requests refund their slots, so both would have got the same one.
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    let next = service.clone().oneshot(get("/", "a")).await.unwrap();
    assert_eq!(next.status(), 200);
}

#[tokio::test]
async fn every_decision_is_observed() {
    /// Whether a request was admitted, and the key of its first limit.
    type Decided = (bool, Option<Vec<String>>);
    #[derive(Clone)]
    struct Observing {
        policy_handle: PolicyHandle<ManualClock>,
        decisions: Arc<Mutex<Vec<Decided>>>,
    }
    impl DecisionHost for Observing {
        type Clock = ManualClock;
        type Policy = <PolicyHandle<ManualClock> as DecisionHost>::Policy;

        fn gate(policy: &Self::Policy) -> &PolicyGate<ManualClock> {
            policy.gate()
        }
        fn observe(&self, _: &Self::Policy, observed: &Observed<'_>) {
            let decisions = (observed.answer.is_admitted(), observed.key(0));
            self.decisions.lock().unwrap().push(decisions);
        }
        fn sleep_until(&self, deadline: Instant) -> HostFuture {
            tollgate_tower::sleep_until(deadline)
        }
    }
    impl PolicySource for Observing {
        fn active_policy(&self) -> Arc<Self::Policy> {
            self.policy_handle.active_policy()
        }
        fn queues(policy: &Self::Policy) -> &QueueSet {
            policy.queues()
        }
    }
    let (policy_handle, _clock) = policy_handle([rule("rides", bucket("5/s", 1))]);
    let decisions = Arc::default();
    let observing = Observing {
        policy_handle,
        decisions: Arc::clone(&decisions),
    };
    let service = LimitLayer::new(observing).layer(service_fn(hello));
    for path in ["/a", "/b"] {
        service.clone().oneshot(get(path, "a")).await.unwrap();
    }
    let decisions = decisions.lock().unwrap();
    let key = Some(vec![String::from("a")]);
    assert_eq!(*decisions, [(true, key.clone()), (false, key)]);
}

#[tokio::test]
async fn a_policy_is_replaced_under_a_running_service() {
    let (policy_handle, _clock) = policy_handle([rule("rides", bucket("5/s", 1))]);
    let mut service = LimitLayer::new(policy_handle.clone()).layer(service_fn(hello));
    let mut ask = async || {
        let service = service.ready().await.unwrap();
        service.call(get("/", "a")).await.unwrap().status()
    };
    assert_eq!(ask().await, 200);
    assert_eq!(ask().await, 429);
    let mut shadow = rule("rides", bucket("5/s", 1));
    shadow.mode = Mode::Shadow;
    policy_handle.replace(policy([shadow])).unwrap();
    assert_eq!(ask().await, 200);
    policy_handle
        .replace(policy([rule("rides", bucket("5/s", 3))]))
        .unwrap();
    // What was used before counts; what only the shadow refused was never taken.
    assert_eq!(ask().await, 200);
    assert_eq!(ask().await, 200);
    assert_eq!(ask().await, 429);
}
