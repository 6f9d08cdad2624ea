//! Answers to what cannot be decided (RFC 9457): what is wrong, where, and how to mend it.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use tollgate::policy::fields::{PROBLEM_TYPE, push_json_text, push_number};

use crate::listen::body::BodyFault;

pub(crate) type Answered = Response<Full<Bytes>>;

/// An answer with this status, its own words for a title, and a sentence.
#[cold]
pub(crate) fn problem(status: StatusCode, detail: &str) -> Answered {
    let mut text = String::with_capacity(detail.len() + 96);
    push_problem(&mut text, status, detail);
    let mut answer = Response::new(Full::from(text));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_TYPE));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// The body of such an answer.
pub(super) fn push_problem(text: &mut String, status: StatusCode, detail: &str) {
    text.push_str("{\"type\":\"about:blank\",\"title\":");
    push_json_text(text, title(status));
    text.push_str(",\"status\":");
    push_number(text, u64::from(status.as_u16()));
    text.push_str(",\"detail\":");
    push_json_text(text, detail);
    text.push('}');
}

/// The words of RFC 9110, of which the library has older ones.
fn title(status: StatusCode) -> &'static str {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => "Content Too Large",
        StatusCode::UNPROCESSABLE_ENTITY => "Unprocessable Content",
        _ => status.canonical_reason().unwrap_or("Error"),
    }
}

/// A body that was not read. The connection cannot be kept: nobody knows where its next request begins.
#[cold]
pub(super) fn bad_body(fault: BodyFault) -> Answered {
    let answer = match fault {
        BodyFault::TooLarge => problem(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is larger than 64 KiB; ask in several requests",
        ),
        BodyFault::TooSlow => problem(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time; send it at once",
        ),
        BodyFault::Broken => problem(
            StatusCode::BAD_REQUEST,
            "the body broke off or its chunks make no sense; send it whole",
        ),
    };
    closing(answer)
}

/// The same answer, after which the connection ends.
pub(crate) fn closing(mut answer: Answered) -> Answered {
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

#[cold]
pub(super) fn no_such_path(path: &str) -> Answered {
    let shown: String = path.chars().take(64).collect();
    let meant = tollgate_policy::near::nearest(&shown, super::PATHS);
    let detail = match meant {
        Some(meant) => format!("nothing is served at {shown:?}; did you mean `{meant}`?"),
        None => format!("nothing is served at {shown:?}; see /openapi.json for what is"),
    };
    problem(StatusCode::NOT_FOUND, &detail)
}

#[cold]
pub(crate) fn wrong_method(allowed: &'static str) -> Answered {
    let detail = format!("this path answers to {allowed} only");
    let mut answer = problem(StatusCode::METHOD_NOT_ALLOWED, &detail);
    let headers = answer.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}
