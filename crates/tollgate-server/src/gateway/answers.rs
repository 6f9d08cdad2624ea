//! What the gateway answers itself: problems (RFC 9457), like the rest of the server.

use hyper::{Response, StatusCode};
use tollgate_tower::queue::NoBackendSample;

use super::check::Refused;
use super::proxy::body::Download;
use crate::http::problems;

pub(super) type Answered = Response<Download>;

/// An answer with this status and a sentence.
pub(super) fn problem(status: StatusCode, detail: &str) -> Answered {
    marked(
        problems::problem(status, detail)
            .into_response()
            .map(Download::own),
    )
}

/// A fault of the client's says nothing of the server behind.
fn marked(mut answer: Answered) -> Answered {
    if answer.status().is_client_error() {
        answer.extensions_mut().insert(NoBackendSample);
    }
    answer
}

/// The same, after which the connection ends: where the next request begins is not known.
pub(super) fn refused((status, detail): Refused) -> Answered {
    let mut response = problems::problem(status, detail);
    problems::close(&mut response);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.push_field("allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    }
    marked(response.into_response().map(Download::own))
}
