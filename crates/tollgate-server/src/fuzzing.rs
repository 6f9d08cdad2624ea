//! Parsers of untrusted bytes, for the fuzz targets. No part of the interface: it may change at any time.
//!
//! Each part lies beside what it exposes and reports what was parsed. The targets state what must hold.

/// The gateway: the framer and the fast path.
pub mod gateway_requests {
    pub use crate::gateway::client::fast_path::fuzzing::*;
}

/// The gateway: responses of upstreams.
pub mod upstream_responses {
    pub use crate::gateway::proxy::wire::fuzzing::*;
}

/// The Redis protocol.
pub mod resp {
    pub use crate::resp::fuzzing::*;
}

/// Envoy's rate limit service.
pub mod rls {
    pub use crate::rls::fuzzing::*;
}

/// JSON of the HTTP API.
pub mod http {
    pub use crate::http::fuzzing::*;
}

/// The fast path of the HTTP API.
pub mod fast_path {
    pub use crate::net::http1::fast_path::fuzzing::*;
}
