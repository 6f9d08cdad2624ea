//! Responses of the layers: header fields, and responses to requests that were not admitted.
//!
//! All texts of one response, fields and body, are written into one buffer; header values and body are slices of it. The
//! fields of an admitted request are short and frequent: they are cut from a block that the responses of a thread share, so
//! most of them allocate nothing. A block is reused when no slice of it is left, so a long response keeps at most one block
//! of [`BLOCK_BYTES`].

use std::cell::RefCell;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use tollgate::{Clock, Span, Verdict};
use tollgate_policy::fields::{
    Field, PROBLEM_TYPE, detail, fields, problem, push_json_text, push_number, small_number, status,
};
use tollgate_policy::{AnswerStyle, PolicyDecision, PolicyGate};

use crate::admission::{RejectReason, Rejected};
use crate::facts::MISSING_CLIENT_HINT;
use crate::grpc_status::{self, Code};

const LIMIT: HeaderName = HeaderName::from_static(Field::Limit.name());
const REMAINING: HeaderName = HeaderName::from_static(Field::Remaining.name());
const RESET: HeaderName = HeaderName::from_static(Field::Reset.name());
const UNPREFIXED_LIMIT: HeaderName = HeaderName::from_static(Field::UnprefixedLimit.name());
const UNPREFIXED_REMAINING: HeaderName = HeaderName::from_static(Field::UnprefixedRemaining.name());
const UNPREFIXED_RESET: HeaderName = HeaderName::from_static(Field::UnprefixedReset.name());
const POLICY: HeaderName = HeaderName::from_static(Field::Policy.name());
const RATELIMIT: HeaderName = HeaderName::from_static(Field::RateLimit.name());
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const PROBLEM: HeaderValue = HeaderValue::from_static(PROBLEM_TYPE);

/// Initial size of the buffer of a refusal.
const REFUSAL_BYTES: usize = 640;
/// Size of the block that fields of admitted requests are cut from.
const BLOCK_BYTES: usize = 2048;
/// Fields that the server is likely to add, length and date: the map then grows once, while it is small.
const LATER_FIELDS: usize = 2;
/// The scratch text keeps at most this capacity.
const SCRATCH_BYTES: usize = 4096;

/// In the extensions of a response by which a layer rejected the request. Outer layers leave its header fields as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejectedByLayer;

/// Header fields for a response. Small, because they move with the request's future.
#[derive(Debug)]
pub(crate) struct ResponseFields {
    text: Bytes,
    ends: FieldEnds,
}

/// Where each field ends in a text; it starts where the field before it ends. Fields beyond 64 KiB are left out: no client
/// accepts such a head.
#[derive(Clone, Copy, Debug)]
struct FieldEnds {
    ends: [(Field, u16); Field::PER_RESPONSE],
    count: u8,
}

impl FieldEnds {
    /// Writes the fields of an answer into `text`, which is empty.
    fn write<C: Clock>(
        gate: &PolicyGate<C>,
        answer: &PolicyDecision,
        text: &mut String,
    ) -> FieldEnds {
        let mut fields_written = FieldEnds {
            ends: [(Field::CacheControl, 0); Field::PER_RESPONSE],
            count: 0,
        };
        fields(gate, answer, text, &mut |field, part| {
            let slot = fields_written
                .ends
                .get_mut(usize::from(fields_written.count));
            if let (Some(slot), Ok(end)) = (slot, u16::try_from(part.end)) {
                *slot = (field, end);
                fields_written.count += 1;
            }
        });
        fields_written
    }
}

/// Where a thread writes the fields of admitted requests.
#[derive(Debug, Default)]
struct Scratch {
    text: String,
    block: BytesMut,
}

impl Scratch {
    /// The text as a slice of the block. The scratch text is empty afterwards.
    fn cut(&mut self) -> Bytes {
        if self.block.capacity() < self.text.len() {
            self.block.reserve(BLOCK_BYTES.max(self.text.len()));
        }
        self.block.extend_from_slice(self.text.as_bytes());
        self.text.clear();
        self.text.shrink_to(SCRATCH_BYTES);
        self.block.split().freeze()
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl ResponseFields {
    /// The fields of an answer; `None` if no limit applied.
    pub(crate) fn new<C: Clock>(
        gate: &PolicyGate<C>,
        answer: &PolicyDecision,
    ) -> Option<ResponseFields> {
        if answer.charges.is_empty() {
            return None;
        }
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.text.clear();
            let ends = FieldEnds::write(gate, answer, &mut scratch.text);
            (ends.count > 0).then(|| ResponseFields {
                text: scratch.cut(),
                ends,
            })
        })
    }

    /// Inserts the fields into a response, in place of fields of the same name.
    pub(crate) fn write(self, headers: &mut HeaderMap) {
        let FieldEnds { ends, count } = self.ends;
        headers.reserve(usize::from(count) + LATER_FIELDS);
        let mut start = 0;
        for (field, end) in ends.into_iter().take(usize::from(count)) {
            let end = usize::from(end);
            let part = std::mem::replace(&mut start, end)..end;
            let name = match field {
                Field::RetryAfter => RETRY_AFTER,
                Field::Limit => LIMIT,
                Field::Remaining => REMAINING,
                Field::Reset => RESET,
                Field::UnprefixedLimit => UNPREFIXED_LIMIT,
                Field::UnprefixedRemaining => UNPREFIXED_REMAINING,
                Field::UnprefixedReset => UNPREFIXED_RESET,
                Field::Policy => POLICY,
                Field::RateLimit => RATELIMIT,
                Field::CacheControl => {
                    headers.insert(CACHE_CONTROL, NO_STORE);
                    continue;
                }
                _ => continue,
            };
            // A field with a limit name that is no header value is left out.
            if let Some(value) = value(&self.text, part) {
                headers.insert(name, value);
            }
        }
    }
}

/// A slice of a text as a field value. Small numbers are static: no reference count.
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

/// The response to a request that the limits refused.
#[cold]
pub(crate) fn refusal<C: Clock, B>(
    gate: &PolicyGate<C>,
    answer: &PolicyDecision,
    request: &Request<B>,
) -> Response<Bytes> {
    let mut text = String::with_capacity(REFUSAL_BYTES);
    let ends = FieldEnds::write(gate, answer, &mut text);
    let status = status(answer);
    if grpc_status::is_grpc(request.headers()) {
        let retry_after = match answer.verdict {
            Verdict::Refuse { retry_after } => Some(retry_after),
            _ => None,
        };
        let text = Bytes::from(text);
        let message = detail(gate, answer);
        let mut response = grpc(request, Code::from_http(status), &message, retry_after);
        ResponseFields { text, ends }.write(response.headers_mut());
        return response;
    }
    let body = text.len();
    let has_body = gate.policy().answers.problem;
    if has_body {
        problem(gate, answer, &mut text);
    }
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let text = Bytes::from(text);
    let mut response = with_body(status, request.method(), has_body, text.slice(body..));
    ResponseFields { text, ends }.write(response.headers_mut());
    response
}

/// The response to a request that a queue rejected.
#[cold]
pub(crate) fn queue_rejection<B>(
    style: &AnswerStyle,
    queue: &str,
    rejected: Rejected,
    request: &Request<B>,
) -> Response<Bytes> {
    let retry_after = rejected.retry_after;
    let (problem, hint) = reason(rejected.reason);
    let title = format!("The queue `{queue}` {problem}");
    let detail = format!("{title}; {hint}.");
    let mut response = if grpc_status::is_grpc(request.headers()) {
        grpc(request, Code::ResourceExhausted, &detail, Some(retry_after))
    } else {
        let mut text = String::new();
        if style.problem {
            text.push_str("{\"title\":");
            push_json_text(&mut text, &title);
            text.push_str(",\"status\":503,\"detail\":");
            push_json_text(&mut text, &detail);
            text.push_str(",\"queue\":");
            push_json_text(&mut text, queue);
            text.push_str(",\"retry_after_ms\":");
            push_number(&mut text, retry_after.as_nanos().div_ceil(1_000_000));
            text.push('}');
        }
        let status = StatusCode::SERVICE_UNAVAILABLE;
        with_body(status, request.method(), style.problem, Bytes::from(text))
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, NO_STORE);
    if style.retry_after {
        let seconds = HeaderValue::from(retry_after.as_secs_ceil().max(1));
        headers.insert(RETRY_AFTER, seconds);
    }
    response
}

/// The problem, and what the client can do about it.
fn reason(reason: RejectReason) -> (&'static str, &'static str) {
    match reason {
        RejectReason::FlowFull => (
            "holds as many requests of this client as it may",
            "send fewer at once, or try again later",
        ),
        RejectReason::QueueFull => ("is full", "try again later"),
        RejectReason::Displaced => (
            "gave the place of this request to a client with fewer",
            "send fewer at once, or try again later",
        ),
        RejectReason::MaxWait => (
            "would exceed its maximum wait",
            "try again later, when it is shorter",
        ),
    }
}

/// The response to a request without a client address under a policy that depends on it.
#[cold]
pub(crate) fn missing_client<B>(request: &Request<B>) -> Response<Bytes> {
    let detail = format!(
        "The rate limit depends on the client's address, and the request carries none; {MISSING_CLIENT_HINT}."
    );
    if grpc_status::is_grpc(request.headers()) {
        return grpc(request, Code::Internal, &detail, None);
    }
    let mut text =
        String::from("{\"title\":\"The client's address is unknown\",\"status\":500,\"detail\":");
    push_json_text(&mut text, &detail);
    text.push('}');
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    with_body(status, request.method(), true, Bytes::from(text))
}

fn grpc<B>(
    request: &Request<B>,
    code: Code,
    message: &str,
    retry_after: Option<Span>,
) -> Response<Bytes> {
    let mut response = empty(StatusCode::OK);
    let headers = response.headers_mut();
    grpc_status::write(headers, request.headers(), code, message, retry_after);
    response
}

fn empty(status: StatusCode) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    response.extensions_mut().insert(RejectedByLayer);
    response
}

fn with_body(status: StatusCode, method: &Method, has_body: bool, text: Bytes) -> Response<Bytes> {
    let mut response = empty(status);
    if has_body {
        response.headers_mut().insert(CONTENT_TYPE, PROBLEM);
    }
    // The response to HEAD has no body.
    if *method != Method::HEAD {
        *response.body_mut() = text;
    }
    response
}
