//! `tollgate explain`: the decision for one request, from a policy file and from a running server.

use serde_json::Value;

use tollgate_testkit::tollgate::TOKEN;
use tollgate_testkit::{Directory, Ran, free_port};

use crate::harness::serve;
use crate::harness::tollgate;

const POLICY: &str = "default: pass
tiers: { pro: { times: 10 } }
limits:
  - { name: riders, match: { path: '/rides/**' }, key: header.rider, allow: 2/h, burst: 2, tier: header.plan }
  - { name: post, match: { method: POST, path: '/rides/**' }, allow: 1/h }
  - { name: shadow, allow: 1/h, mode: shadow }
deny: [ { name: bad, match: { ip: 192.0.2.0/24 } } ]
";

fn explain(args: &[&str]) -> Ran {
    tollgate(&[&["explain"], args].concat())
}

fn text(ran: &Ran) -> String {
    format!("{}{}", ran.out, ran.err)
}

#[test]
fn a_file_explains_which_limits_a_request_meets_and_why_not_the_others() {
    let scratch = Directory::new();
    let file = scratch.write("policy.yaml", POLICY);
    let file = file.to_string_lossy();
    let explained = explain(&[
        &file,
        "--path",
        "//rides/7/",
        "--header",
        "rider: ann",
        "--header",
        "plan: pro",
    ]);
    let said = text(&explained);
    assert_eq!(explained.code, Some(0), "{said}");
    for line in [
        "the path counts as /rides/7",
        "riders  yes, tier pro       ann",
        "post    no: another method",
        "shadow  shadow              all requests",
        "19 of token bucket 20/h burst 20",
        "verdict: pass (`riders` decides)",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    let denied = explain(&[&file, "--ip", "192.0.2.7", "--json"]);
    assert_eq!(denied.code, Some(1));
    let json: Value = serde_json::from_str(&denied.out).expect("one object");
    assert_eq!(
        (&json["reason"], &json["rule"]),
        (&"deny-list".into(), &"bad".into())
    );
}

#[test]
fn a_running_server_explains_with_its_state() {
    let server = serve(POLICY);
    for _ in 0..2 {
        server
            .check(r#"{"path":"/rides/7","headers":{"rider":"ann"}}"#)
            .expect(200);
    }
    let scratch = Directory::new();
    let token = scratch.write("token", TOKEN);
    let url = format!("http://127.0.0.1:{}", server.admin_port());
    let explained = explain(&[
        "--server",
        &url,
        "--token-file",
        &token.to_string_lossy(),
        "--path",
        "/rides/7",
        "--header",
        "rider: ann",
    ]);
    let said = text(&explained);
    assert_eq!(explained.code, Some(1), "{said}");
    assert!(said.contains("0 of token bucket 2/h burst 2"), "{said}");
    assert!(said.contains("verdict: refuse, retry after"), "{said}");
    let refused = explain(&["--server", &url]);
    let said = text(&refused);
    assert_eq!(refused.code, Some(2), "{said}");
    assert!(said.contains("TOLLGATE_ADMIN_TOKEN"), "{said}");
}

#[test]
fn a_server_without_its_store_reports_that_it_decides_locally() {
    let away = free_port().unwrap();
    let server = serve(&format!(
        "store: redis://127.0.0.1:{away}\non_store_error: local\n{POLICY}"
    ));
    let scratch = Directory::new();
    let token = scratch.write("token", TOKEN);
    let (url, token) = (
        format!("http://127.0.0.1:{}", server.admin_port()),
        token.to_string_lossy(),
    );
    let args = [
        "--server",
        &url,
        "--token-file",
        &token,
        "--path",
        "/rides/7",
    ];
    let args = [&args[..], &["--header", "rider: ann"]].concat();
    let said = text(&explain(&args));
    assert!(said.contains("the store does not answer"), "{said}");
    let explained = explain(&[&args[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&explained.out).expect("one object");
    assert_eq!(json["degraded"], true);
}

#[test]
fn errors_in_the_arguments_are_reported() {
    for (args, said) in [
        (&["--header", "no colon"][..], "is not a name and a value"),
        (&["--server", "http://127.0.0.1:1"][..], "cannot be asked"),
        (&["no-such-file.yaml"][..], "no-such-file.yaml"),
        (&["--ip", "unknown"][..], "unknown"),
    ] {
        let explained = explain(args);
        assert_ne!(explained.code, Some(0));
        assert!(
            text(&explained).contains(said),
            "{args:?}: {}",
            text(&explained)
        );
    }
}

#[test]
fn a_file_explains_the_queue_of_an_admitted_request() {
    const QUEUES: &str = "default: pass
tiers: { pro: { weight: 4 } }
limits: [ { name: riders, match: { path: /rides/** }, key: header.rider, allow: 2/h, burst: 2 } ]
deny: [ { name: bad, match: { ip: 192.0.2.0/24 } } ]
queues:
  - { name: api, match: { path: /rides/** }, flow: header.rider, tier: header.plan, cost: 3, at_once: 4 }
  - { name: rest, match: { path: /rest }, at_once: 4 }
";
    let scratch = Directory::new();
    let file = scratch.write("policy.yaml", QUEUES);
    let file = file.to_string_lossy();
    for (args, line) in [
        (
            &[
                "--path",
                "/rides/7",
                "--header",
                "rider: ann",
                "--header",
                "plan: pro",
            ][..],
            "then: it waits in queue `api` as ann, tier pro, weight 4, cost 3",
        ),
        (
            &["--path", "/rides/7", "--ip", "203.0.113.7"],
            "queue `api` as 203.0.113.7 (the client's address, because the key is missing), weight 1, cost 3",
        ),
        (
            &["--path", "/rest"],
            "queue `rest` as all requests, weight 1, cost 1",
        ),
    ] {
        let explained = explain(&[&[&*file], args].concat());
        let said = text(&explained);
        assert_eq!(explained.code, Some(0), "{said}");
        assert!(said.contains(line), "{line}\n{said}");
    }
    for args in [
        &["--path", "/other"][..],
        &["--path", "/rest", "--ip", "192.0.2.7"],
    ] {
        let said = text(&explain(&[&[&*file], args].concat()));
        assert!(
            said.contains("verdict: ") && !said.contains("queue"),
            "{said}"
        );
    }
    let explained = explain(&[&*file, "--path", "/rest", "--json"]);
    let json: Value = serde_json::from_str(&explained.out).expect("one object");
    assert_eq!(json["queue"]["name"], "rest");
    assert_eq!(json["queue"]["weight"], 1);
}

#[test]
fn a_tier_that_the_policy_does_not_have_is_explained_and_counted() {
    let server = serve(POLICY);
    let request = [
        "--path",
        "/rides/7",
        "--header",
        "rider: ann",
        "--header",
        "plan: gold",
    ];
    let scratch = Directory::new();
    let file = scratch.write("policy.yaml", POLICY);
    let ran = explain(&[&[&*file.to_string_lossy()], &request[..]].concat());
    assert!(
        ran.out.contains("riders  yes, unknown tier gold  ann"),
        "{}",
        ran.out
    );
    let body = r#"{"path":"/rides/7","headers":{"rider":"ann","plan":"gold"}}"#;
    server.check(body).expect(200);
    let series = "tollgate_unknown_tier_requests_total{limit=\"riders\"}";
    assert_eq!(server.metric(series), Some(1));
}
