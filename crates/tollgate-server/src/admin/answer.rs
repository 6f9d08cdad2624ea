//! Answers to operators: JSON, and problems with how to mend them (RFC 9457).

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

pub(super) type Answer = Response<Full<Bytes>>;

/// Something that is wrong with a request. Boxed, because it is the rare end of many functions.
#[derive(Debug)]
pub(super) struct Problem(Box<Told>);

#[derive(Debug)]
struct Told {
    status: StatusCode,
    code: &'static str,
    detail: String,
    hint: String,
    more: Option<(&'static str, Value)>,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Problem {
    pub(super) fn new(
        status: StatusCode,
        code: &'static str,
        detail: impl Into<String>,
        hint: impl Into<String>,
    ) -> Problem {
        Problem(Box::new(Told {
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
    ) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, code, detail, hint)
    }

    pub(super) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Problem {
        self.0.header = Some((name, value));
        self
    }

    /// With all that is wrong with something that was read.
    pub(super) fn with_problems(mut self, problems: &tollgate_config::Problems) -> Problem {
        let name = problems.name();
        let list = problems.iter().map(|problem| problem.to_json(name));
        let list = list.filter_map(|json| serde_json::from_str(&json).ok());
        self.0.more = Some(("problems", Value::Array(list.collect())));
        self
    }

    pub(super) fn answer(self) -> Answer {
        let told = *self.0;
        let mut body = json!({
            "type": "about:blank",
            "title": told.status.canonical_reason().unwrap_or_default(),
            "status": told.status.as_u16(),
            "code": told.code,
            "detail": told.detail,
            "hint": told.hint,
        });
        if let (Some((name, value)), Some(object)) = (told.more, body.as_object_mut()) {
            object.insert(name.into(), value);
        }
        let kind = HeaderValue::from_static("application/problem+json");
        let mut answer = with_body(told.status, kind, body.to_string());
        if let Some((name, value)) = told.header {
            answer.headers_mut().insert(name, value);
        }
        answer
    }
}

/// A value, as JSON.
pub(super) fn value(value: &Value) -> Answer {
    let kind = HeaderValue::from_static("application/json");
    with_body(StatusCode::OK, kind, value.to_string())
}

/// A text of some kind.
pub(super) fn with_body(status: StatusCode, kind: HeaderValue, body: String) -> Answer {
    let mut answer = Response::new(Full::from(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    answer
}
