//! Answers as they are written: JSON for callers of our own protocol, header fields for everybody.
//!
//! All texts of an answer, fields and body, are written into one buffer, of which the answer then holds
//! parts: two allocations and the map of headers, whatever there is to say.

use std::ops::Range;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use tollgate::policy::fields::{Field, fields, push_json_text, push_number, status};
use tollgate::policy::{Answer, Basis, Role, RuleCharge};
use tollgate::{Origin, Span, Verdict};

use super::problems::Answered;
use super::reservations::push_name;
use crate::engine::Epoch;
use crate::words;

const LIMIT: HeaderName = HeaderName::from_static(Field::Limit.name());
const REMAINING: HeaderName = HeaderName::from_static(Field::Remaining.name());
const RESET: HeaderName = HeaderName::from_static(Field::Reset.name());
const POLICY: HeaderName = HeaderName::from_static(Field::Policy.name());
const RATELIMIT: HeaderName = HeaderName::from_static(Field::RateLimit.name());

/// The buffer of one answer: none in our examples needs more.
const ROOM: usize = 768;

/// What became of the wish for a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    /// None was asked for and none is needed.
    Unasked,
    /// Nothing was taken.
    Nothing,
    /// This is its name.
    Kept(u128),
    /// There is no room for another.
    Full,
}

/// An answer while it is written.
pub(super) struct Sheet {
    pub(super) text: String,
    parts: [(Field, Range<usize>); Field::ALL.len()],
    count: usize,
}

impl Sheet {
    /// With the header fields of this answer.
    pub(super) fn with_fields(epoch: &Epoch, answer: &Answer) -> Sheet {
        let mut sheet = Sheet {
            text: String::with_capacity(ROOM),
            parts: std::array::from_fn(|_| (Field::CacheControl, 0..0)),
            count: 0,
        };
        let (parts, count) = (&mut sheet.parts, &mut sheet.count);
        fields(&epoch.gate, answer, &mut sheet.text, &mut |field, part| {
            if let Some(place) = parts.get_mut(*count) {
                *place = (field, part);
                *count += 1;
            }
        });
        sheet
    }

    /// The whole answer; what stands in the text from `body` on is its body.
    pub(super) fn finish(
        self,
        status: StatusCode,
        body: usize,
        media: Option<&'static str>,
    ) -> Answered {
        let whole = Bytes::from(self.text);
        let mut answer = Response::new(Full::new(whole.slice(body.min(whole.len())..)));
        *answer.status_mut() = status;
        let mut headers = HeaderMap::with_capacity(self.count + 4);
        if let Some(media) = media {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        }
        for (field, part) in self.parts.into_iter().take(self.count) {
            let name = match field {
                Field::RetryAfter => RETRY_AFTER,
                Field::Limit => LIMIT,
                Field::Remaining => REMAINING,
                Field::Reset => RESET,
                Field::Policy => POLICY,
                Field::RateLimit => RATELIMIT,
                Field::CacheControl => {
                    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
                    continue;
                }
                _ => continue,
            };
            if let Ok(value) = HeaderValue::from_maybe_shared(whole.slice(part)) {
                headers.insert(name, value);
            }
        }
        *answer.headers_mut() = headers;
        answer
    }
}

/// The answer to one question.
pub(super) fn answered(epoch: &Epoch, answer: &Answer, reserved: Reserved) -> Answered {
    let mut sheet = Sheet::with_fields(epoch, answer);
    let body = sheet.text.len();
    push_answer(&mut sheet.text, epoch, answer, reserved, None);
    let status = StatusCode::from_u16(status(answer)).unwrap_or(StatusCode::OK);
    sheet.finish(status, body, Some("application/json"))
}

/// Writes an answer as JSON, with its status where it has none of its own.
pub(super) fn push_answer(
    text: &mut String,
    epoch: &Epoch,
    answer: &Answer,
    reserved: Reserved,
    status: Option<u16>,
) {
    text.push_str("{\"verdict\":\"");
    text.push_str(words::verdict(answer.verdict));
    text.push('"');
    if let Some(status) = status {
        push_count(text, ",\"status\":", u64::from(status));
    }
    let gate = &epoch.gate;
    let rule = match answer.basis {
        Basis::MissingKey(rule) | Basis::Blocked(rule) | Basis::StoreError(rule) => Some(rule),
        _ => answer.binding().map(|charge| charge.rule),
    };
    text.push_str(",\"limit\":");
    push_optional(
        text,
        rule.and_then(|at| gate.rule(at)).map(|rule| &*rule.name),
    );
    text.push_str(",\"reason\":\"");
    text.push_str(words::reason(answer.basis));
    text.push('"');
    if answer.origin == Origin::Degraded {
        text.push_str(",\"degraded\":true");
    }
    let listed = match answer.basis {
        Basis::AllowList(at) => gate.policy().allow.get(at),
        Basis::DenyList(at) => gate.policy().deny.get(at),
        _ => None,
    };
    if let Some(listed) = listed {
        text.push_str(",\"rule\":");
        push_json_text(text, &listed.name);
    }
    match answer.standing.remaining {
        u64::MAX => text.push_str(",\"remaining\":null"),
        remaining => push_count(text, ",\"remaining\":", remaining),
    }
    match answer.verdict {
        Verdict::Refuse { retry_after } => push_millis(text, ",\"retry_after_ms\":", retry_after),
        Verdict::Wait { delay } => push_millis(text, ",\"delay_ms\":", delay),
        _ => {}
    }
    push_millis(text, ",\"reset_after_ms\":", answer.standing.full_after);
    text.push_str(",\"limits\":[");
    for (at, charge) in answer.charges.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        push_charge(text, epoch, charge);
    }
    text.push(']');
    if let Some(weight) = weight(epoch, answer) {
        push_count(text, ",\"weight\":", u64::from(weight));
    }
    push_count(text, ",\"policy_version\":", epoch.version);
    match reserved {
        Reserved::Unasked => {}
        Reserved::Nothing => text.push_str(",\"reservation\":null"),
        Reserved::Kept(name) => {
            text.push_str(",\"reservation\":\"");
            push_name(text, name);
            text.push('"');
        }
        Reserved::Full => text.push_str(
            ",\"reservation\":null,\"reservation_error\":\"there is no room for another reservation; settle those that are done\"",
        ),
    }
    text.push('}');
}

fn push_charge(text: &mut String, epoch: &Epoch, charge: &RuleCharge) {
    text.push_str("{\"name\":");
    push_optional(text, epoch.gate.rule(charge.rule).map(|rule| &*rule.name));
    text.push_str(",\"role\":\"");
    text.push_str(words::role(charge.role));
    push_count(text, "\",\"cost\":", charge.cost);
    if matches!(charge.role, Role::Shadow | Role::Candidate) && !charge.verdict.is_admitted() {
        text.push_str(",\"would_refuse\":true");
    }
    text.push('}');
}

/// The weight of the tier that the client is in, where the binding limit has tiers.
pub(crate) fn weight(epoch: &Epoch, answer: &Answer) -> Option<u32> {
    let binding = answer.binding()?;
    let tiers = epoch.gate.rule(binding.rule)?.tiers.as_ref()?;
    tiers.tiers.get(binding.tier?).map(|tier| tier.weight)
}

pub(super) fn push_optional(text: &mut String, value: Option<&str>) {
    match value {
        Some(value) => push_json_text(text, value),
        None => text.push_str("null"),
    }
}

pub(super) fn push_count(text: &mut String, name: &str, count: u64) {
    text.push_str(name);
    push_number(text, count);
}

/// Milliseconds, rounded up: whoever waits so long does not come too early.
fn push_millis(text: &mut String, name: &str, span: Span) {
    push_count(text, name, span.as_nanos().div_ceil(1_000_000));
}
