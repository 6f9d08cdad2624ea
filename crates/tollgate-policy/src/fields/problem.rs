//! Problem details (RFC 9457): the body that explains a refusal.

use super::super::gate::PolicyGate;
use super::super::path::PathFault;
use super::super::policy_decision::{PolicyDecision, Reason};
use super::{push_number, status};
use tollgate::Clock;
use tollgate::Span;
use tollgate::Verdict;

/// The media type of the body.
pub const PROBLEM_TYPE: &str = "application/problem+json";
/// The type of a refusal by an exceeded quota. Kinds other than this and the next are identified by their status:
pub const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
/// The type of a refusal by a limit that is reduced for now.
pub const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// Appends the body of a refusal. It names limits, which clients know from the fields, but neither keys nor lists.
pub fn problem<C: Clock>(gate: &PolicyGate<C>, answer: &PolicyDecision, text: &mut String) {
    let status = status(answer);
    let refused = matches!(answer.verdict, Verdict::Refuse { .. });
    let pressed = refused && gate.is_pressed(answer);
    let (kind, title) = match status {
        429 if pressed => (
            REDUCED_CAPACITY,
            "Request cannot be satisfied due to temporary server capacity constraints",
        ),
        429 if refused => (
            QUOTA_EXCEEDED,
            "Request cannot be satisfied as assigned quota has been exceeded",
        ),
        400 => ("about:blank", "Bad Request"),
        403 => ("about:blank", "Forbidden"),
        503 => ("about:blank", "Service Unavailable"),
        _ => ("about:blank", "Unprocessable Content"),
    };
    text.push_str("{\"type\":\"");
    text.push_str(kind);
    text.push_str("\",\"title\":\"");
    text.push_str(title);
    text.push_str("\",\"status\":");
    push_number(text, u64::from(status));
    text.push_str(",\"detail\":");
    push_json_text(text, &detail(gate, answer));
    if let Some(name) = violated(gate, answer) {
        text.push_str(",\"violated-policies\":[");
        push_json_text(text, name);
        text.push(']');
    }
    if let Verdict::Refuse { retry_after } = answer.verdict {
        text.push_str(",\"retry_after_ms\":");
        push_number(text, retry_after.as_nanos().div_ceil(1_000_000));
    }
    text.push('}');
}

/// The limit that refused.
fn violated<'g, C: Clock>(gate: &'g PolicyGate<C>, answer: &PolicyDecision) -> Option<&'g str> {
    let rule = match answer.reason {
        Reason::Charge(_) => answer.binding()?.rule,
        Reason::MissingKey(rule) | Reason::Blocked(rule) | Reason::StoreError(rule) => rule,
        _ => return None,
    };
    gate.rule(rule).map(|rule| &*rule.name)
}

/// The cause of a refusal and its remedy, in one sentence.
pub fn detail<C: Clock>(gate: &PolicyGate<C>, answer: &PolicyDecision) -> String {
    let name = violated(gate, answer).unwrap_or_default();
    match (answer.verdict, answer.reason) {
        (Verdict::Refuse { .. }, Reason::StoreError(_)) => {
            format!("The store of the limit `{name}` does not answer; try again in a moment.")
        }
        (Verdict::Refuse { retry_after }, _) if gate.is_pressed(answer) => {
            let wait = Span::from_millis(retry_after.as_nanos().div_ceil(1_000_000).max(1));
            format!(
                "The limit `{name}` is lower than usual for now and has nothing left for this request; try again in {wait}."
            )
        }
        (Verdict::Refuse { retry_after }, _) => {
            let wait = Span::from_millis(retry_after.as_nanos().div_ceil(1_000_000).max(1));
            format!("The limit `{name}` has nothing left for this request; try again in {wait}.")
        }
        (_, Reason::Charge(_)) => {
            let binding = answer.binding();
            let cost = binding.map_or(0, |charge| charge.cost);
            let quota = binding.and_then(|charge| gate.quota(charge.limit));
            let most = quota.map_or(0, |quota| quota.advertised().0);
            format!(
                "The request costs {cost}, more than the limit `{name}` ever holds ({most}); split it into smaller ones."
            )
        }
        (_, Reason::MissingKey(_)) => {
            format!("The request lacks a part of the key of the limit `{name}`; send it.")
        }
        (_, Reason::Blocked(_)) => format!("This client is blocked by the limit `{name}`."),
        (_, Reason::DenyList(_)) => "This client is on a deny list.".into(),
        (_, Reason::Unmatched) => {
            "No limit matches this request, and the policy refuses such requests.".into()
        }
        (_, Reason::Path(fault)) => path_detail(fault).into(),
        _ => "More limits match this request than can be charged together.".into(),
    }
}

fn path_detail(fault: PathFault) -> &'static str {
    match fault {
        PathFault::Ambiguous => {
            "Servers disagree on what this path means (an encoded slash, a backslash, a raw `#` or space, or dots with parameters); write it plainly."
        }
        PathFault::Control => "The path has a control character; leave it out.",
        PathFault::Encoding => {
            "The path has a `%` that two hexadecimal digits do not follow; write `%25`."
        }
        PathFault::TooLong => "The path is longer than 8 KiB; shorten it.",
    }
}

/// Appends a text as JSON writes it, quotes included.
pub fn push_json_text(out: &mut String, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push('"');
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(text.get(plain..at).unwrap_or_default());
        plain = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            _ => {
                out.push_str("\\u00");
                for digit in [byte >> 4, byte & 15] {
                    out.push(char::from(*HEX.get(usize::from(digit)).unwrap_or(&b'0')));
                }
            }
        }
    }
    out.push_str(text.get(plain..).unwrap_or_default());
    out.push('"');
}
