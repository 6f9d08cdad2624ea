//! Header fields, read by an independent parser.

use sfv::{BareItem, ListEntry, Parser};

use super::client::Server;

const POLICY: &str = "
default: pass
limits:
  - { name: bucket.1, match: { path: /a }, allow: 5/s, burst: 10 }
  - { name: window_2, match: { path: /a }, algorithm: sliding-window, allow: 100/min }
  - { name: jobs, match: { path: /jobs }, algorithm: concurrency, allow: 2, ttl: 1m }
  - { name: many, match: { path: /many }, algorithm: fixed-window, allow: 4000000000/d }
";

/// Names and their integer parameters.
fn read(value: &str) -> Vec<(String, Vec<(String, i64)>)> {
    let list: sfv::List = Parser::new(value)
        .parse()
        .unwrap_or_else(|e| panic!("{e}: {value}"));
    let item = |entry: &ListEntry| {
        let ListEntry::Item(item) = entry else {
            panic!("an inner list: {value}");
        };
        let BareItem::String(name) = &item.bare_item else {
            panic!("not a string: {value}");
        };
        let integers = item.params.iter().filter_map(|(key, value)| match value {
            BareItem::Integer(number) => Some((key.as_str().to_owned(), i64::from(*number))),
            _ => None,
        });
        (name.as_str().to_owned(), integers.collect())
    };
    list.iter().map(item).collect()
}

fn pairs(of: &[(&str, i64)]) -> Vec<(String, i64)> {
    of.iter()
        .map(|(name, value)| ((*name).to_owned(), *value))
        .collect()
}

#[test]
fn ratelimit_fields_are_structured_fields() {
    let server = Server::start(POLICY);
    let reply = server.check(r#"{"path":"/a"}"#);
    let policies = read(reply.header("ratelimit-policy").unwrap());
    assert_eq!(
        policies,
        [
            ("bucket.1".to_owned(), pairs(&[("q", 10), ("w", 2)])),
            ("window_2".to_owned(), pairs(&[("q", 100), ("w", 60)])),
        ]
    );
    let left = read(reply.header("ratelimit").unwrap());
    assert_eq!(
        left,
        [("bucket.1".to_owned(), pairs(&[("r", 9), ("t", 2)]))]
    );
    let refused = (0..20)
        .map(|_| server.check(r#"{"path":"/a"}"#))
        .find(|r| r.status == 429)
        .unwrap();
    let left = read(refused.header("ratelimit").unwrap());
    assert_eq!(
        left,
        [("bucket.1".to_owned(), pairs(&[("r", 0), ("t", 1)]))]
    );
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!(wait >= 1);
    for path in ["/jobs", "/many"] {
        let reply = server.check(&format!(r#"{{"path":"{path}"}}"#));
        read(reply.header("ratelimit-policy").unwrap());
        read(reply.header("ratelimit").unwrap());
    }
}

#[test]
fn families_are_sent_as_the_policy_says() {
    let server = Server::start(
        "default: pass\nheaders: { retry_after: false, x_ratelimit: epoch, ratelimit: false }\nlimits: [{ name: a, algorithm: fixed-window, allow: 1/h }]\n",
    );
    let reply = server.check(r#"{"path":"/"}"#);
    assert!(
        reply
            .header("x-ratelimit-reset")
            .unwrap()
            .parse::<u64>()
            .unwrap()
            > 1_700_000_000
    );
    assert_eq!(reply.header("ratelimit"), None);
    let refused = server.check(r#"{"path":"/"}"#);
    assert_eq!((refused.status, refused.header("retry-after")), (429, None));
}
