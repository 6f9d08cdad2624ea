//! `tollgate convert`: turns files of other rate limiters into policies that `tollgate check` accepts.

use tollgate_testkit::Directory;

use crate::run::{Ran, fed, tollgate};

/// The path of a file with this text.
fn file(directory: &Directory, name: &str, text: &str) -> String {
    directory.write(name, text).display().to_string()
}

const EDGE: &str = "\
domain: edge
descriptors:
  - key: remote_address
    rate_limit: { unit: second, requests_per_unit: 10 }
  - key: remote_address
    value: 50.0.0.5
    rate_limit: { unit: second, requests_per_unit: 0 }
  - key: user
    detailed_metric: true
    shadow_mode: true
    rate_limit: { name: per-user, unit: minute, requests_per_unit: 5 }
";

fn checked(policy: &str) -> Ran {
    fed(&["check", "-"], policy.as_bytes())
}

#[test]
fn files_of_the_reference_service_become_a_policy_that_can_be_read() {
    let directory = Directory::new();
    let edge = file(&directory, "edge.yaml", EDGE);
    let ran = tollgate(&["convert", "envoy", &edge]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let (_, rules) = ran.out.split_once("version: 1").expect("a policy");
    let expected = "
default: pass

deny:
  - name: edge.remote_address.50.0.0.5
    match: { domain: \"edge\", entries: [{ \"remote_address\": \"50.0.0.5\" }] }

limits:
  - name: edge.remote_address
    match: { domain: \"edge\", entries: [{ \"remote_address\": true }] }
    except: { entries: [{ \"remote_address\": [\"50.0.0.5\"] }] }
    key: [\"descriptor.remote_address\"]
    algorithm: fixed-window
    allow: 10/s
  # `detailed_metric` is left out: metrics have the name of the limit
  - name: per-user
    match: { domain: \"edge\", entries: [{ \"user\": true }] }
    key: [\"descriptor.user\"]
    algorithm: fixed-window
    allow: 5/min
    mode: shadow
";
    assert_eq!(rules, expected);
    assert!(ran.err.contains("edge.yaml:9:5"), "{}", ran.err);
    let check = checked(&ran.out);
    assert_eq!(check.code, Some(0), "{}", check.out);
    assert!(
        check
            .out
            .ends_with("ok: 2 limits, 1 entry in `deny`; everything else passes\n")
    );
}

#[test]
fn errors_in_a_file_are_reported_with_their_place() {
    let directory = Directory::new();
    let wrong = file(
        &directory,
        "wrong.yaml",
        &EDGE.replace("unit: minute", "unit: minuet"),
    );
    let ran = tollgate(&["convert", "envoy", &wrong]);
    assert_eq!((ran.out.as_str(), ran.code), ("", Some(2)));
    assert!(
        ran.err.contains("invalid rate limit unit 'minuet'"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("wrong.yaml:11:"), "{}", ran.err);
    let (edge, again) = (
        file(&directory, "a.yaml", EDGE),
        file(&directory, "b.yaml", EDGE),
    );
    let ran = tollgate(&["convert", "envoy", &edge, &again]);
    assert!(ran.err.contains("duplicate domain 'edge'"), "{}", ran.err);
    let ran = tollgate(&["convert", "envoy", "/nowhere/at/all.yaml"]);
    assert_eq!(ran.code, Some(2));
}

#[test]
fn limits_of_limitador_become_a_policy_and_what_does_not_is_said() {
    let directory = Directory::new();
    let limits = file(
        &directory,
        "limits.yaml",
        "\
- namespace: api
  name: per-user
  max_value: 10
  seconds: 60
  conditions: [\"descriptors[0]['req.method'] == 'GET'\"]
  variables: [\"descriptors[0].user_id\"]
- namespace: api
  max_value: 1
  seconds: 1
  conditions: [\"descriptors[0].a.matches('x')\"]
  variables: []
",
    );
    let ran = tollgate(&["convert", "limitador", &limits]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("this limit is left out"), "{}", ran.err);
    assert!(ran.out.contains("# LEFT OUT, line 10:"), "{}", ran.out);
    let written = "  - name: per-user
    match: { domain: \"api\", descriptor: { \"req.method\": \"GET\", \"user_id\": true } }
    key: [\"descriptor.user_id\"]
    algorithm: fixed-window
    allow: 10/60s
";
    assert!(ran.out.ends_with(written), "{}", ran.out);
    assert_eq!(checked(&ran.out).code, Some(0));
}
