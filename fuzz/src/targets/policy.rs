//! Fuzzes policy files, and overrides of operators.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use tollgate::{ManualClock, Moment};
use tollgate_config::{Loaded, Problems, Severity, override_from, parse_at};
use tollgate_policy::{Facts, Policy};
use tollgate_tower::PolicyHandle;

use super::POLICY;
use crate::{Target, memory};

pub(super) const TARGET: Target = Target {
    name: "policy",
    holds: "a file always reads as the same, with either kind of line ends and with a byte order mark; every problem has a position \
            in the file, a reason and a hint; a valid file can be activated and decides; memory grows with the bytes sent",
    run,
};

/// A moment in 2025: expiry must not depend on when this runs.
const NOW: Moment = Moment::from_nanos(1_750_000_000 * 1_000_000_000);
/// The keys of a policy that is activated: a larger table is requested memory, not a leak of the parser.
const KEYS_MOST: usize = 100_000;

static LIMITED: LazyLock<Option<Policy>> =
    LazyLock::new(|| parse_at("p", POLICY.as_bytes(), NOW).ok().map(|l| l.policy));

fn run(bytes: &[u8]) {
    let (read, taken) = memory::peak(|| parse_at("p.yaml", bytes, NOW));
    let room = (4 << 20) + bytes.len().saturating_mul(4096);
    assert!(taken <= room, "{taken} bytes of memory");
    assert_eq!(text(&read), text(&parse_at("p.yaml", bytes, NOW)));
    match &read {
        Ok(loaded) => {
            assert_eq!(loaded.warnings.count(Severity::Error), 0);
            have_positions(&loaded.warnings, bytes);
            reads_the_same_from_other_editors(loaded, bytes);
            decides(loaded, bytes);
        }
        Err(problems) => {
            assert!(problems.count(Severity::Error) > 0);
            have_positions(problems, bytes);
        }
    }
    if let Some(rule) = LIMITED.as_ref().and_then(|policy| policy.limits.first())
        && let Err(problems) = override_from(rule, bytes)
    {
        have_positions(&problems, bytes);
    }
}

fn text(read: &Result<Loaded, Problems>) -> String {
    match read {
        Ok(loaded) => format!("{loaded:?}"),
        Err(problems) => problems.to_string(),
    }
}

fn have_positions(problems: &Problems, bytes: &[u8]) {
    let lines = 2 + bytes
        .iter()
        .filter(|byte| matches!(byte, b'\n' | b'\r'))
        .count();
    assert!(problems.iter().count() <= 101);
    for problem in problems {
        assert!(!problem.message.is_empty() && !problem.hint.is_empty());
        assert!(problem.line <= lines, "line {} of {lines}", problem.line);
        assert!(problem.line == 0 || problem.column > 0);
        let json = problem.to_json("p.yaml");
        let json = serde_json::from_str::<serde_json::Value>(&json);
        assert!(json.is_ok_and(|json| json.is_object()));
    }
    assert!(problems.is_empty() || !problems.to_string().is_empty());
}

/// The same file as other editors save it.
fn reads_the_same_from_other_editors(loaded: &Loaded, bytes: &[u8]) {
    let parsed = |loaded: &Loaded| {
        let Loaded {
            policy,
            tiers,
            store,
            gateway,
            ..
        } = loaded;
        format!("{policy:?} {tiers:?} {store:?} {gateway:?}")
    };
    let mut others = vec![[b"\xef\xbb\xbf", bytes].concat()];
    if !bytes.contains(&b'\r') {
        let lines = bytes.split(|byte| *byte == b'\n').collect::<Vec<_>>();
        others.push(lines.join(&b"\r\n"[..]));
    }
    for other in others {
        match parse_at("p.yaml", &other, NOW) {
            Ok(other) => assert_eq!(parsed(&other), parsed(loaded)),
            // It is a few bytes longer.
            Err(problems) => assert!(
                problems.iter().any(|problem| problem.code == "too-large"),
                "{problems}"
            ),
        }
    }
}

/// Activates the policy and requests some decisions.
fn decides(loaded: &Loaded, bytes: &[u8]) {
    let keys = loaded
        .policy
        .limits
        .iter()
        .map(|limit| limit.quota.limit.max_keys());
    if keys.fold(0, usize::saturating_add) > KEYS_MOST {
        return;
    }
    let clock = ManualClock::new();
    clock.set(NOW);
    let policy_handle = match PolicyHandle::with_clock(loaded.policy.clone(), clock) {
        Ok(policy_handle) => policy_handle,
        Err(error) => panic!("a valid policy cannot be activated: {error}"),
    };
    let text = String::from_utf8_lossy(bytes);
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || ",{}[]:".contains(c))
        .filter(|word| !word.is_empty())
        .take(64)
        .collect();
    let policy = policy_handle.active();
    let gate = policy.gate();
    for path in words
        .iter()
        .filter(|word| word.starts_with('/'))
        .chain(&["/", "/a/b"])
    {
        let pairs: Vec<(&str, &str)> = words.iter().map(|word| (*word, "1")).collect();
        let facts = Facts {
            method: "GET",
            path,
            host: "a.example",
            client: Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))),
            domain: words.first().copied().unwrap_or_default(),
            descriptor: &pairs,
            fields: &pairs,
            cost: Some(1),
            ..Facts::default()
        };
        let peeked = gate.peek(&facts).is_admitted();
        let admitted = gate.admit(&facts).is_admitted();
        assert_eq!(peeked, admitted, "{path}");
    }
}
