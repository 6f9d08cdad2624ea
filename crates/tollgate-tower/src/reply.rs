//! What clients read of the layers: header fields, and refusals.
//!
//! All texts of one answer, fields and body, are written into one buffer, of which header values and body
//! are parts. The fields of an admitted request are short and many: they are cut from a block that the
//! answers of a thread share, so that most of them allocate nothing. A block is used again as soon as
//! nobody holds a part of it, so a response that lives long keeps at most one block of [`BLOCK`] bytes.

use std::cell::RefCell;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use tollgate::{Clock, Span, Verdict};
use tollgate_policy::fields::{
    Field, PROBLEM_TYPE, detail, fields, problem, push_json_text, push_number, small_number, status,
};
use tollgate_policy::{AnswerStyle, PolicyDecision, PolicyGate};

use crate::facts::Head;
use crate::grpc::{self, Code};
use crate::turnstile::{Turned, Why};

const LIMIT: HeaderName = HeaderName::from_static(Field::Limit.name());
const REMAINING: HeaderName = HeaderName::from_static(Field::Remaining.name());
const RESET: HeaderName = HeaderName::from_static(Field::Reset.name());
const POLICY: HeaderName = HeaderName::from_static(Field::Policy.name());
const RATELIMIT: HeaderName = HeaderName::from_static(Field::RateLimit.name());
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const PROBLEM: HeaderValue = HeaderValue::from_static(PROBLEM_TYPE);

/// The buffer of a refusal with its body.
const REFUSAL_ROOM: usize = 640;
/// The block that fields of admitted requests are cut from.
const BLOCK: usize = 2048;
/// Fields that others are likely to add to a response behind us, its length and its date: a map that has to
/// grow does so once, while there is little in it.
const TO_COME: usize = 2;
/// The pad that they are written on first keeps no more room than this.
const PAD_ROOM: usize = 4096;

/// In the extensions of responses that a layer made because it refused the request. Layers further out
/// leave the fields of such a response as they are: they tell why it was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Header fields, ready to be put into a response. Small, because it moves with the request's future.
#[derive(Debug)]
pub(crate) struct Told {
    text: Bytes,
    parts: Parting,
}

/// Which field ends where in a text; each begins where the one before it ends. Fields that end beyond what
/// 16 bits can say are not told: no client takes a head that large.
#[derive(Clone, Copy, Debug)]
struct Parting {
    ends: [(Field, u16); Field::ALL.len()],
    count: u8,
}

impl Parting {
    /// Writes the fields of an answer behind what is in `text`, which is nothing yet.
    fn write<C: Clock>(
        gate: &PolicyGate<C>,
        answer: &PolicyDecision,
        text: &mut String,
    ) -> Parting {
        let mut parts = Parting {
            ends: [(Field::CacheControl, 0); Field::ALL.len()],
            count: 0,
        };
        fields(gate, answer, text, &mut |field, part| {
            let place = parts.ends.get_mut(usize::from(parts.count));
            if let (Some(place), Ok(end)) = (place, u16::try_from(part.end)) {
                *place = (field, end);
                parts.count += 1;
            }
        });
        parts
    }
}

/// Where the fields of admitted requests are written.
#[derive(Debug, Default)]
struct Pad {
    text: String,
    block: BytesMut,
}

impl Pad {
    /// What was written, as a part of the block. The pad is empty again.
    fn cut(&mut self) -> Bytes {
        if self.block.capacity() < self.text.len() {
            self.block.reserve(BLOCK.max(self.text.len()));
        }
        self.block.extend_from_slice(self.text.as_bytes());
        self.text.clear();
        self.text.shrink_to(PAD_ROOM);
        self.block.split().freeze()
    }
}

thread_local! {
    static PAD: RefCell<Pad> = RefCell::default();
}

impl Told {
    /// The fields of an answer; none if there is nothing to tell.
    pub(crate) fn of<C: Clock>(gate: &PolicyGate<C>, answer: &PolicyDecision) -> Option<Told> {
        if answer.charges.is_empty() {
            return None;
        }
        PAD.with_borrow_mut(|pad| {
            pad.text.clear();
            let parts = Parting::write(gate, answer, &mut pad.text);
            (parts.count > 0).then(|| Told {
                text: pad.cut(),
                parts,
            })
        })
    }

    /// Puts the fields into a response, in place of those of the same name.
    pub(crate) fn write(self, headers: &mut HeaderMap) {
        let Parting { ends, count } = self.parts;
        headers.reserve(usize::from(count) + TO_COME);
        let mut start = 0;
        for (field, end) in ends.into_iter().take(usize::from(count)) {
            let end = usize::from(end);
            let part = std::mem::replace(&mut start, end)..end;
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
            if let Some(value) = value(&self.text, part) {
                headers.insert(name, value);
            }
        }
    }
}

/// A part of a text as the value of a field. Small numbers are there already, and nobody has to count who
/// shares them.
fn value(text: &Bytes, part: Range<usize>) -> Option<HeaderValue> {
    let digit = |byte: u8| u64::from(byte - b'0');
    let small = match text.get(part.clone())? {
        [one @ b'0'..=b'9'] => small_number(digit(*one)),
        [ten @ b'1'..=b'9', one @ b'0'..=b'9'] => small_number(digit(*ten) * 10 + digit(*one)),
        _ => None,
    };
    match small {
        Some(small) => Some(HeaderValue::from_static(small)),
        None => HeaderValue::from_maybe_shared(text.slice(part)).ok(),
    }
}

/// The response to a request that was not admitted.
#[cold]
pub(crate) fn refusal<C: Clock>(
    gate: &PolicyGate<C>,
    answer: &PolicyDecision,
    asked: &impl Head,
) -> Response<Bytes> {
    let mut text = String::with_capacity(REFUSAL_ROOM);
    let parts = Parting::write(gate, answer, &mut text);
    let status = status(answer);
    if grpc::is_grpc(asked.headers()) {
        let retry_after = match answer.verdict {
            Verdict::Refuse { retry_after } => Some(retry_after),
            _ => None,
        };
        let mut response = empty(StatusCode::OK);
        let headers = response.headers_mut();
        let text = Bytes::from(text);
        Told { text, parts }.write(headers);
        let message = detail(gate, answer);
        grpc::refuse(
            headers,
            asked.headers(),
            Code::of(status),
            &message,
            retry_after,
        );
        return response;
    }
    let body = text.len();
    let explains = gate.policy().answers.problem;
    if explains {
        problem(gate, answer, &mut text);
    }
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let text = Bytes::from(text);
    let mut response = with_body(status, asked.method(), explains, text.slice(body..));
    Told { text, parts }.write(response.headers_mut());
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
        with_body(status, &asked.method, style.problem, Bytes::from(text))
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

fn with_body(status: StatusCode, method: &Method, explains: bool, text: Bytes) -> Response<Bytes> {
    let mut response = empty(status);
    if explains {
        response.headers_mut().insert(CONTENT_TYPE, PROBLEM);
    }
    // The answer to HEAD has no body, whatever it would have said.
    if *method != Method::HEAD {
        *response.body_mut() = text;
    }
    response
}
