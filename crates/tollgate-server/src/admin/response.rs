//! Responses to operators: JSON, and problems with a code and a hint (RFC 9457).

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;
use serde_json::Value;

pub(super) type AdminResponse = Response<Full<Bytes>>;

/// A problem with a request. Boxed, because it is the rare result of many functions.
#[derive(Debug)]
pub(super) struct ProblemDetails(Box<Details>);

#[derive(Debug)]
struct Details {
    status: StatusCode,
    code: &'static str,
    detail: String,
    hint: String,
    more: Option<(&'static str, Value)>,
    header: Option<(HeaderName, HeaderValue)>,
}

impl ProblemDetails {
    pub(super) fn new(
        status: StatusCode,
        code: &'static str,
        detail: impl Into<String>,
        hint: impl Into<String>,
    ) -> ProblemDetails {
        ProblemDetails(Box::new(Details {
            status,
            code,
            detail: detail.into(),
            hint: hint.into(),
            more: None,
            header: None,
        }))
    }

    pub(super) fn bad_request(
        code: &'static str,
        detail: impl Into<String>,
        hint: impl Into<String>,
    ) -> ProblemDetails {
        ProblemDetails::new(StatusCode::BAD_REQUEST, code, detail, hint)
    }

    pub(super) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> ProblemDetails {
        self.0.header = Some((name, value));
        self
    }

    /// Adds the problems of a policy or an override.
    pub(super) fn with_problems(mut self, problems: &tollgate_config::Problems) -> ProblemDetails {
        let name = problems.name();
        let list = problems.iter().map(|problem| problem.to_json(name));
        let list = list.filter_map(|json| serde_json::from_str(&json).ok());
        self.0.more = Some(("problems", Value::Array(list.collect())));
        self
    }

    pub(super) fn into_response(self) -> AdminResponse {
        let details = *self.0;
        let mut body = serde_json::json!({
            "type": "about:blank",
            "title": details.status.canonical_reason().unwrap_or_default(),
            "status": details.status.as_u16(),
            "code": details.code,
            "detail": details.detail,
            "hint": details.hint,
        });
        if let (Some((name, value)), Some(object)) = (details.more, body.as_object_mut()) {
            object.insert(name.into(), value);
        }
        let kind = HeaderValue::from_static("application/problem+json");
        let mut answer = with_body(details.status, kind, body.to_string());
        if let Some((name, value)) = details.header {
            answer.headers_mut().insert(name, value);
        }
        answer
    }
}

/// A view as JSON.
pub(super) fn json(view: &impl Serialize) -> AdminResponse {
    let kind = HeaderValue::from_static("application/json");
    // A view has text keys and finite numbers, so it always can be JSON.
    let text = serde_json::to_string(view).unwrap_or_default();
    with_body(StatusCode::OK, kind, text)
}

/// A text of a media type.
pub(super) fn with_body(status: StatusCode, kind: HeaderValue, body: String) -> AdminResponse {
    let mut answer = Response::new(Full::from(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    answer
}
