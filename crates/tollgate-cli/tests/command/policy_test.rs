//! `tollgate test`: the cases of a policy.

use crate::run::{assert_prints, fed, tollgate};

/// A policy with these cases.
fn policy(cases: &str) -> Vec<u8> {
    format!(
        "
default: pass
limits:
  - {{ name: rides, match: {{ path: /api/rides }}, key: header.x-rider-id, allow: 5/min, burst: 3 }}
  - {{ name: jobs, match: {{ path: /jobs }}, algorithm: concurrency, allow: 2, ttl: 1min }}
  - {{ name: tokens, match: {{ path: /llm }}, cost: {{ from: header.x-tokens, max: 1000 }}, allow: 1000/min }}
  - {{ name: gps, match: {{ path: /gps }}, algorithm: leaky-bucket, allow: 2/s, queue: 3 }}
  - {{ name: monthly, match: {{ path: /month }}, algorithm: fixed-window, allow: 2, calendar: {{ every: month, zone: Europe/Berlin }} }}
  - {{ name: new, match: {{ path: /new }}, key: ip, allow: 1/min, mode: shadow }}
allow:
  - {{ name: health, match: {{ path: /health }} }}
deny:
  - {{ name: scrapers, match: {{ header: {{ user-agent: \"*scrapy*\" }} }} }}
queues:
  - {{ name: app, match: {{ path: /new }}, at_once: 4 }}
expect:
{cases}"
    )
    .into_bytes()
}

#[test]
fn the_cases_of_every_kind_of_limit_pass() {
    let cases = "
  - name: a token bucket by key
    request: { path: /api/rides, headers: { x-rider-id: 42 } }
    steps:
      - { times: 3, verdict: pass, limit: rides, remaining: 0 }
      - { verdict: refuse, limit: rides, reason: limit, retry_after: 12s }
      - { request: { path: /api/rides, headers: { x-rider-id: 43 } }, verdict: pass, remaining: 2 }
      - { advance: 11999ms, verdict: refuse, retry_after: 1ms }
      - { advance: 1ms, verdict: pass, remaining: 0 }
  - name: places that are freed
    request: { path: /jobs }
    steps:
      - { times: 2, verdict: pass }
      - { verdict: refuse, limit: jobs }
      - { settle: done, verdict: pass }
      - { verdict: refuse }
      - { advance: 2min, verdict: pass }
  - name: costs that are settled
    request: { path: /llm, headers: { x-tokens: 900 } }
    steps:
      - { verdict: pass, remaining: 100 }
      - { verdict: refuse }
      - { settle: 100, verdict: pass, remaining: 0 }
      - { settle: cancel, verdict: pass, remaining: 0 }
  - name: requests that wait
    request: { path: /gps }
    steps:
      - { verdict: pass }
      - { times: 2, verdict: wait, limit: gps, delay: 1s }
      - { verdict: refuse, retry_after: 500ms }
  - name: a month of Berlin
    start: 2026-06-30T21:59:00Z
    request: { path: /month }
    steps:
      - { times: 2, verdict: pass }
      - { verdict: refuse, retry_after: 1min }
      - { advance: 1min, verdict: pass }
  - name: limits that only count
    request: { path: /new, ip: 203.0.113.7 }
    steps:
      - { verdict: pass, shadow: [], queue: app, weight: 1 }
      - { verdict: pass, shadow: new }
  - name: lists
    request: { path: /health }
    steps:
      - { times: 100, verdict: pass, reason: allow-list, limit: health }
      - { request: { headers: { user-agent: scrapy/2 } }, verdict: never, reason: deny-list, limit: scrapers }
      - { request: { path: /other }, verdict: pass, reason: unmatched }
";
    let ran = fed(&["test", "-"], &policy(cases));
    assert_prints(
        &ran,
        "
standard input
  pass  a token bucket by key
  pass  places that are freed
  pass  costs that are settled
  pass  requests that wait
  pass  a month of Berlin
  pass  limits that only count
  pass  lists
ok: 7 cases, 129 requests
",
    );
}

#[test]
fn a_case_that_fails_names_its_line_the_request_and_what_differs() {
    let cases = "
  - name: too many
    request: { path: /api/rides, headers: { x-rider-id: 42 } }
    steps:
      - { times: 3, verdict: pass }
      - { advance: 6s, verdict: refuse, limit: jobs, retry_after: 12s }
      - { verdict: pass }
  - name: too few
    request: { path: /api/rides, headers: { x-rider-id: 42 } }
    steps:
      - { times: 5, verdict: pass, limit: rides }
  - name: nothing to settle
    request: { path: /jobs }
    steps: [{ settle: done, verdict: pass }]
  - name: fine
    request: { path: /new, ip: 203.0.113.7 }
    steps: [{ verdict: pass }]
";
    let policy = policy(cases);
    let ran = fed(&["test", "-"], &policy);
    let expected = "standard input
  FAIL  too many
    --> standard input:22
     |  - { advance: 6s, verdict: refuse, limit: jobs, retry_after: 12s }
    GET /api/rides at 6s
    limit: expected jobs, got rides
    retry_after: expected 12s, got 6s
  FAIL  too few
    --> standard input:27
     |  - { times: 5, verdict: pass, limit: rides }
    GET /api/rides at 0s, request 4 of 5
    verdict: expected pass, got refuse
  FAIL  nothing to settle
    --> standard input:30
     |  steps: [{ settle: done, verdict: pass }]
    GET /jobs at 0s
    settle: expected a request that passed and has not ended, got none
  pass  fine
failed: 3 of 4 cases, 9 requests
";
    assert_eq!(ran.out, expected);
    assert_eq!((ran.err.as_str(), ran.code), ("", Some(1)));

    let ran = fed(&["test", "-", "--json"], &policy);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(
        lines[1],
        "{\"file\":\"standard input\",\"case\":\"too few\",\"result\":\"failed\",\"requests\":4,\"line\":27,\
         \"request\":\"GET /api/rides at 0s, request 4 of 5\",\
         \"differences\":[{\"field\":\"verdict\",\"expected\":\"pass\",\"got\":\"refuse\"}]}"
    );
    assert_eq!(
        lines[4],
        "{\"file\":\"standard input\",\"result\":\"failed\",\"cases\":4,\"failed\":3,\"requests\":9}"
    );
    assert_eq!((lines.len(), ran.code), (5, Some(1)));
}

#[test]
fn a_policy_that_cannot_be_tested_is_not_a_success() {
    let ran = fed(
        &["test", "-"],
        b"default: pass\nlimits: [{ name: a, allow: 5 }]\n",
    );
    assert!(ran.err.contains("is not a rate"), "{}", ran.err);
    assert_eq!((ran.out.as_str(), ran.code), ("", Some(2)));

    let ran = fed(&["test", "-"], b"default: pass\n");
    assert!(ran.err.contains("has no cases to test"), "{}", ran.err);
    assert_eq!((ran.out.as_str(), ran.code), ("", Some(2)));

    let ran = tollgate(&["test", "no-such-file.yaml"]);
    assert!(ran.err.contains("cannot be read"), "{}", ran.err);
    assert_eq!((ran.out.as_str(), ran.code), ("", Some(2)));
}
