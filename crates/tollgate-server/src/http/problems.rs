//! Problem details (RFC 9457) of requests that cannot be decided.

use hyper::StatusCode;
use tollgate_policy::fields::{PROBLEM_TYPE, push_json_text, push_number};

use crate::net::http1::body::BodyError;
use crate::net::http1::response::ResponseBuffer;

/// Why a request has no decision: status and detail.
pub(crate) type Problem = (StatusCode, String);

/// Writes a problem with this status and detail.
#[cold]
pub(super) fn write_problem(response: &mut ResponseBuffer, status: StatusCode, detail: &str) {
    response.set_status(status.as_u16());
    response.set_media(PROBLEM_TYPE);
    response.push_field("cache-control", "no-store");
    response.write_text(|text| push_problem(text, status, detail));
}

/// A response with a problem.
#[cold]
pub(crate) fn problem(status: StatusCode, detail: &str) -> ResponseBuffer {
    let mut response = ResponseBuffer::default();
    write_problem(&mut response, status, detail);
    response
}

/// Appends the body of a problem.
pub(super) fn push_problem(text: &mut String, status: StatusCode, detail: &str) {
    text.push_str("{\"type\":\"about:blank\",\"title\":");
    push_json_text(text, title(status));
    text.push_str(",\"status\":");
    push_number(text, u64::from(status.as_u16()));
    text.push_str(",\"detail\":");
    push_json_text(text, detail);
    text.push('}');
}

/// The reason phrases of RFC 9110. The library has older ones.
fn title(status: StatusCode) -> &'static str {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => "Content Too Large",
        StatusCode::UNPROCESSABLE_ENTITY => "Unprocessable Content",
        _ => status.canonical_reason().unwrap_or("Error"),
    }
}

/// A body that was not read. The connection closes, because the start of the next request is unknown.
#[cold]
pub(super) fn bad_body(fault: BodyError) -> ResponseBuffer {
    let mut response = match fault {
        BodyError::TooLarge => problem(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is larger than 64 KiB; send several requests",
        ),
        BodyError::TooSlow => problem(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time; send it without a pause",
        ),
        BodyError::Broken => problem(
            StatusCode::BAD_REQUEST,
            "the body is incomplete or its chunks are malformed; send it completely",
        ),
    };
    close(&mut response);
    response
}

/// Ends the connection after this answer.
pub(crate) fn close(response: &mut ResponseBuffer) {
    response.push_field("connection", "close");
}

#[cold]
pub(super) fn no_such_path(response: &mut ResponseBuffer, path: &str) {
    let shown: String = path.chars().take(64).collect();
    let suggestion = tollgate_config::suggest::suggest(&shown, super::PATHS);
    let detail = match suggestion {
        Some(path) => format!("nothing is served at {shown:?}; did you mean `{path}`?"),
        None => format!("nothing is served at {shown:?}; /openapi.json lists the paths"),
    };
    write_problem(response, StatusCode::NOT_FOUND, &detail);
}

#[cold]
pub(crate) fn wrong_method(response: &mut ResponseBuffer, allowed: &'static str) {
    let detail = format!("this path accepts {allowed} only");
    write_problem(response, StatusCode::METHOD_NOT_ALLOWED, &detail);
    response.push_field("allow", allowed);
}
