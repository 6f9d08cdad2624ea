//! What clients read of the layers: header fields, and refusals.
//!
//! All texts of one answer, fields and body, are written into one buffer, of which header values and body
//! are parts.

use std::ops::Range;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use tollgate::policy::fields::{
    Field, PROBLEM_TYPE, detail, fields, problem, push_json_text, push_number, status,
};
use tollgate::policy::{Answer, AnswerStyle, PolicyGate};
use tollgate::{Clock, Span, Verdict};

use crate::grpc::{self, Code};
use crate::turnstile::{Turned, Why};

const LIMIT: HeaderName = HeaderName::from_static(Field::Limit.name());
const REMAINING: HeaderName = HeaderName::from_static(Field::Remaining.name());
const RESET: HeaderName = HeaderName::from_static(Field::Reset.name());
const POLICY: HeaderName = HeaderName::from_static(Field::Policy.name());
const RATELIMIT: HeaderName = HeaderName::from_static(Field::RateLimit.name());
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const PROBLEM: HeaderValue = HeaderValue::from_static(PROBLEM_TYPE);

/// The buffer of the fields of one or two limits.
const FIELDS_ROOM: usize = 192;
/// That of a refusal with its body.
const REFUSAL_ROOM: usize = 640;

/// In the extensions of responses that a layer made because it refused the request. Layers further out
/// leave the fields of such a response as they are: they tell why it was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Header fields, ready to be put into a response.
#[derive(Debug)]
pub(crate) struct Told {
    text: Bytes,
    parts: [(Field, Range<usize>); Field::ALL.len()],
    count: usize,
}

/// Fields while they are written.
struct Sheet {
    text: String,
    parts: [(Field, Range<usize>); Field::ALL.len()],
    count: usize,
}

impl Sheet {
    fn of<C: Clock>(gate: &PolicyGate<C>, answer: &Answer, room: usize) -> Sheet {
        let mut sheet = Sheet {
            text: String::with_capacity(room),
            parts: std::array::from_fn(|_| (Field::CacheControl, 0..0)),
            count: 0,
        };
        let (parts, count) = (&mut sheet.parts, &mut sheet.count);
        fields(gate, answer, &mut sheet.text, &mut |field, part| {
            if let Some(place) = parts.get_mut(*count) {
                *place = (field, part);
                *count += 1;
            }
        });
        sheet
    }

    fn finish(self) -> Told {
        Told {
            text: Bytes::from(self.text),
            parts: self.parts,
            count: self.count,
        }
    }
}

impl Told {
    /// The fields of an answer; none if there is nothing to tell.
    pub(crate) fn of<C: Clock>(gate: &PolicyGate<C>, answer: &Answer) -> Option<Told> {
        if answer.charges.is_empty() {
            return None;
        }
        let sheet = Sheet::of(gate, answer, FIELDS_ROOM);
        (sheet.count > 0).then(|| sheet.finish())
    }

    /// Puts the fields into a response, in place of those of the same name.
    pub(crate) fn write(self, headers: &mut HeaderMap) {
        headers.reserve(self.count);
        for (field, part) in self.parts.into_iter().take(self.count) {
            let name = match field {
                Field::RetryAfter => RETRY_AFTER,
                Field::Limit => LIMIT,
                Field::Remaining => REMAINING,
                Field::Reset => RESET,
                Field::Policy => POLICY,
                Field::RateLimit => RATELIMIT,
                Field::CacheControl => {
                    headers.insert(CACHE_CONTROL, NO_STORE);
                    continue;
                }
                _ => continue,
            };
            // A name of a limit that cannot be written is not told; the rest is.
            if let Ok(value) = HeaderValue::from_maybe_shared(self.text.slice(part)) {
                headers.insert(name, value);
            }
        }
    }
}

/// The response to a request that was not admitted.
#[cold]
pub(crate) fn refusal<C: Clock>(
    gate: &PolicyGate<C>,
    answer: &Answer,
    asked: &Parts,
) -> Response<Bytes> {
    let mut sheet = Sheet::of(gate, answer, REFUSAL_ROOM);
    let status = status(answer);
    if grpc::is_grpc(&asked.headers) {
        let retry_after = match answer.verdict {
            Verdict::Refuse { retry_after } => Some(retry_after),
            _ => None,
        };
        let mut response = empty(StatusCode::OK);
        let headers = response.headers_mut();
        sheet.finish().write(headers);
        let message = detail(gate, answer);
        grpc::refuse(
            headers,
            &asked.headers,
            Code::of(status),
            &message,
            retry_after,
        );
        return response;
    }
    let body = sheet.text.len();
    let explains = gate.policy().answers.problem;
    if explains {
        problem(gate, answer, &mut sheet.text);
    }
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let told = sheet.finish();
    let mut response = with_body(status, asked, explains, told.text.slice(body..));
    told.write(response.headers_mut());
    response
}

/// The response to a request that no turn in a queue will come for.
#[cold]
pub(crate) fn turned_away(
    style: &AnswerStyle,
    queue: &str,
    turned: Turned,
    asked: &Parts,
) -> Response<Bytes> {
    let Turned { why, retry_after } = turned;
    let seconds = HeaderValue::from(retry_after.as_secs_ceil().max(1));
    let (what, how) = reason(why);
    let is_grpc = grpc::is_grpc(&asked.headers);
    let mut response = if is_grpc {
        let mut response = empty(StatusCode::OK);
        let message = format!("The queue `{queue}` {what}; {how}.");
        let headers = response.headers_mut();
        let code = Code::ResourceExhausted;
        grpc::refuse(headers, &asked.headers, code, &message, Some(retry_after));
        response
    } else {
        let mut text = String::new();
        if style.problem {
            push_turned(&mut text, queue, what, how, retry_after);
        }
        let status = StatusCode::SERVICE_UNAVAILABLE;
        with_body(status, asked, style.problem, Bytes::from(text))
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, NO_STORE);
    if style.retry_after {
        headers.insert(RETRY_AFTER, seconds);
    }
    response
}

fn push_turned(text: &mut String, queue: &str, what: &str, how: &str, retry_after: Span) {
    text.push_str("{\"title\":");
    push_json_text(text, &format!("The queue `{queue}` {what}"));
    text.push_str(",\"status\":503,\"detail\":");
    push_json_text(text, &format!("The queue `{queue}` {what}; {how}."));
    text.push_str(",\"queue\":");
    push_json_text(text, queue);
    text.push_str(",\"retry_after_ms\":");
    push_number(text, retry_after.as_nanos().div_ceil(1_000_000));
    text.push('}');
}

/// What is wrong, and how to mend it.
fn reason(why: Why) -> (&'static str, &'static str) {
    match why {
        Why::FlowFull => (
            "holds as many requests of this client as it may",
            "send fewer at once, or try again later",
        ),
        Why::Full => ("is full", "try again later"),
        Why::Displaced => (
            "gave the place of this request to a client with fewer",
            "send fewer at once, or try again later",
        ),
        Why::TooLong => (
            "is longer than anybody waits",
            "try again later, when it is shorter",
        ),
    }
}

fn empty(status: StatusCode) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    response.extensions_mut().insert(Refused);
    response
}

fn with_body(status: StatusCode, asked: &Parts, explains: bool, text: Bytes) -> Response<Bytes> {
    let mut response = empty(status);
    if explains {
        response.headers_mut().insert(CONTENT_TYPE, PROBLEM);
    }
    // The answer to HEAD has no body, whatever it would have said.
    if asked.method != Method::HEAD {
        *response.body_mut() = text;
    }
    response
}
