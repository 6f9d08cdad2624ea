//! What reads bytes of strangers, for the fuzz targets. No part of the interface: it may change at any time.
//!
//! Each part lies beside what it opens, tells what was read, and judges nothing: what must hold is said by the targets.

/// The gateway: the check of framing, and the lane of common requests.
pub mod lane {
    pub use crate::gateway::listen::lane::fuzzing::*;
}

/// The gateway: answers of upstreams.
pub mod wire {
    pub use crate::gateway::proxy::wire::fuzzing::*;
}

/// The front end for Redis clients.
pub mod resp {
    pub use crate::resp::fuzzing::*;
}

/// The front end for Envoy.
pub mod rls {
    pub use crate::rls::fuzzing::*;
}

/// The front end for decisions over HTTP: its JSON.
pub mod http {
    pub use crate::http::fuzzing::*;
}

/// The fast path in front of it.
pub mod brisk {
    pub use crate::listen::fast_path::fuzzing::*;
}
