//! Responses of the gateway itself: problem details (RFC 9457), as everywhere in the server.

use hyper::{Response, StatusCode};
use tollgate_tower::queue::NoBackendSample;

use super::check::Refusal;
use super::proxy::body::Download;
use crate::http::problems;

pub(super) type GatewayResponse = Response<Download>;

/// A response with this status and detail.
pub(super) fn problem(status: StatusCode, detail: &str) -> GatewayResponse {
    marked(
        problems::problem(status, detail)
            .into_response()
            .map(Download::own),
    )
}

/// Marks an error of the client, which is no sample of the upstream.
fn marked(mut response: GatewayResponse) -> GatewayResponse {
    if response.status().is_client_error() {
        response.extensions_mut().insert(NoBackendSample);
    }
    response
}

/// The same, and the connection is closed: where the next request begins is not known.
pub(super) fn refused((status, detail): Refusal) -> GatewayResponse {
    let mut response = problems::problem(status, detail);
    problems::close(&mut response);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.push_field("allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    }
    marked(response.into_response().map(Download::own))
}
