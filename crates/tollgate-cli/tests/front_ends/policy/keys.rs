//! `key` and `missing_key`: which requests share one allowance.

use std::fmt::Write;

use super::play_limits;

use crate::harness::{policy_with, serve};

/// A key; a question; questions of the same key; questions of other keys. Paths are behind `/{row}`.
type Row<'a> = (&'a str, &'a str, &'a [&'a str], &'a [&'a str]);

const TABLE: &[Row<'_>] = &[
    (
        "ip",
        r#""ip":"203.0.113.7""#,
        &[r#""ip":"::ffff:203.0.113.7""#],
        &[r#""ip":"203.0.113.8""#, r#""ip":"2001:db8::1""#],
    ),
    (
        "ip",
        r#""ip":"2001:db8:1:2::1""#,
        &[r#""ip":"2001:db8:1:2:ffff::9""#],
        &[r#""ip":"2001:db8:1:3::1""#],
    ),
    (
        "ip/48",
        r#""ip":"2001:db8:1:2::1""#,
        &[r#""ip":"2001:db8:1:3::1""#],
        &[r#""ip":"2001:db8:2::1""#, r#""ip":"203.0.113.7""#],
    ),
    (
        "header.x-rider-id",
        r#""headers":{"x-rider-id":"7"}"#,
        &[r#""headers":{"X-Rider-ID":"7"}"#],
        &[
            r#""headers":{"x-rider-id":"8"}"#,
            r#""headers":{"x-rider-id":["7","8"]}"#,
        ],
    ),
    (
        "query.phone",
        r#""path":"/a/b?phone=1""#,
        &[r#""path":"/a/b?x=y&phone=%31""#],
        &[r#""path":"/a/b?phone=2""#],
    ),
    (
        "cookie.session",
        r#""headers":{"cookie":"session=a"}"#,
        &[r#""headers":{"cookie":"theme=dark; session=a"}"#],
        &[r#""headers":{"cookie":"session=b"}"#],
    ),
    (
        "path.part",
        r#""path":"/7/a""#,
        &[r#""path":"/7/b/c""#, r#""path":"/%37/d""#],
        &[r#""path":"/8/a""#],
    ),
    (
        "path",
        r#""path":"/a/b""#,
        &[
            r#""path":"/a//b/""#,
            r#""path":"/a/./b?x=1""#,
            r#""path":"/a/%62""#,
        ],
        &[r#""path":"/a/c""#],
    ),
    (
        "method",
        r#""method":"GET""#,
        &[r#""method":"GET""#],
        &[r#""method":"POST""#],
    ),
    (
        "host",
        r#""host":"a.example""#,
        &[r#""host":"A.Example:443""#],
        &[r#""host":"b.example""#],
    ),
    (
        "descriptor.user",
        r#""descriptor":{"user":"a"}"#,
        &[r#""descriptor":[{"key":"user","value":"a"}]"#],
        &[r#""descriptor":{"user":"b"}"#],
    ),
    (
        "field.order",
        r#""fields":{"order":7}"#,
        &[r#""fields":{"order":"7"}"#],
        &[r#""fields":{"order":8}"#],
    ),
    (
        r#""header.mail | trim | lowercase""#,
        r#""headers":{"mail":"Al@Example.com"}"#,
        &[r#""headers":{"mail":" al@example.COM "}"#],
        &[r#""headers":{"mail":"bo@example.com"}"#],
    ),
    (
        "[header.a, header.b]",
        r#""headers":{"a":"x","b":"yz"}"#,
        &[r#""headers":{"b":"yz","a":"x"}"#],
        &[
            r#""headers":{"a":"xy","b":"z"}"#,
            r#""headers":{"a":"yz","b":"x"}"#,
        ],
    ),
    (
        "none",
        r#""ip":"203.0.113.7""#,
        &[r#""ip":"203.0.113.8""#, r#""headers":{"a":"b"}"#],
        &[],
    ),
];

/// A question of one row.
fn ask(row: usize, facts: &str) -> String {
    if facts.contains(r#""path":"#) {
        let behind = format!(r#""path":"/{row}/"#);
        format!("{{{}}}", facts.replace(r#""path":"/"#, &behind))
    } else {
        format!(r#"{{"path":"/{row}/a/b",{facts}}}"#)
    }
}

#[test]
fn one_key_has_one_allowance_and_another_key_has_its_own() {
    let mut limits = String::new();
    for (row, (key, ..)) in TABLE.iter().enumerate() {
        let path = format!("\"/{row}/{{part}}/**\"");
        writeln!(
            limits,
            "  - {{ name: k{row}, match: {{ path: {path} }}, key: {key}, allow: 1/h, burst: 1 }}"
        )
        .expect("text");
    }
    let server = serve(&policy_with(&limits));
    for (row, (key, first, same, others)) in TABLE.iter().enumerate() {
        server.check(&ask(row, first)).expect(200);
        for facts in *same {
            let reply = server.check(&ask(row, facts));
            assert_eq!(reply.status, 429, "{key}: {facts} is {first}: {reply:?}");
        }
        for facts in *others {
            let reply = server.check(&ask(row, facts));
            assert_eq!(reply.status, 200, "{key}: {facts} is not {first}");
            let again = server.check(&ask(row, facts));
            assert_eq!(again.status, 429, "{key}: {facts} is itself");
        }
    }
}

#[test]
fn a_request_without_its_key_is_counted_for_its_address() {
    play_limits(
        "  - { name: one, key: header.user, allow: 1/h, burst: 2 }",
        &[
            (2, r#"{"path":"/","ip":"203.0.113.7"}"#, 200),
            (1, r#"{"path":"/","ip":"203.0.113.7"}"#, 429),
            (
                1,
                r#"{"path":"/","ip":"203.0.113.7","headers":{"user":" "}}"#,
                429,
            ),
            (2, r#"{"path":"/","ip":"203.0.113.8"}"#, 200),
            (2, r#"{"path":"/"}"#, 200),
            (1, r#"{"path":"/"}"#, 429),
            (
                2,
                r#"{"path":"/","ip":"203.0.113.7","headers":{"user":"7"}}"#,
                200,
            ),
        ],
    );
}

#[test]
fn a_missing_key_can_be_shared_or_refused() {
    play_limits(
        "  - { name: one, key: header.user, missing_key: shared, allow: 1/h, burst: 2 }",
        &[
            (2, r#"{"path":"/","ip":"203.0.113.7"}"#, 200),
            (1, r#"{"path":"/","ip":"203.0.113.8"}"#, 429),
        ],
    );
    let server = play_limits(
        "  - { name: one, key: header.user, missing_key: deny, allow: 1/h, burst: 2 }",
        &[(1, r#"{"path":"/","headers":{"user":"7"}}"#, 200)],
    );
    let answer = server
        .check(r#"{"path":"/","ip":"203.0.113.7"}"#)
        .expect(403);
    assert_eq!(answer.json()["reason"], "missing-key");
    assert_eq!(answer.json()["limit"], "one");
}

#[test]
fn a_limit_can_be_asked_by_its_name_and_the_parts_of_its_key() {
    let server = play_limits(
        "  - { name: pair, key: [header.a, \"header.b|lowercase\"], allow: 1/h, burst: 3 }
  - { name: net, match: { path: /net }, key: ip, allow: 1/h, burst: 1 }",
        &[
            (1, r#"{"limit":"pair","key":["x","Y"],"cost":2}"#, 200),
            (1, r#"{"limit":"pair","key":["x","y"],"cost":2}"#, 429),
            (1, r#"{"path":"/","headers":{"a":"x","b":"y"}}"#, 200),
            (1, r#"{"path":"/","headers":{"a":"x","b":"y"}}"#, 429),
            (1, r#"{"limit":"net","key":"2001:db8::1"}"#, 200),
            (1, r#"{"limit":"net","key":["2001:db8::2"]}"#, 429),
            (1, r#"{"limit":"pair","key":"x"}"#, 400),
            (1, r#"{"limit":"pairs","key":"x"}"#, 404),
            (1, r#"{"limit":"net","key":"x","path":"/"}"#, 400),
        ],
    );
    let detail = server.check(r#"{"limit":"pairs","key":"x"}"#).json()["detail"].to_string();
    assert!(detail.contains("did you mean `pair`?"), "{detail}");
}
