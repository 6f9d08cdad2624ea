//! `tollgate gateway` as the trials start it.

use std::path::Path;

use tollgate_testkit::tollgate::{Start, Tollgate};
use tollgate_testkit::{HOST, Result};

use super::allow_connections;

/// The connections of every trial.
const USUAL_CONNECTIONS: usize = 4096;

/// A certificate and its key, as files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tls<'a> {
    pub(super) cert: &'a Path,
    pub(super) key: &'a Path,
}

/// Starts a gateway with this policy, which has a section `gateway`.
pub(super) fn start(policy: &str) -> Result<Tollgate> {
    allow_connections(USUAL_CONNECTIONS)?;
    Start::gateway().policy(policy).start()
}

/// The same with TLS.
pub(super) fn start_with_tls(policy: &str, tls: Tls<'_>) -> Result<Tollgate> {
    allow_connections(USUAL_CONNECTIONS)?;
    let (cert, key) = (
        tls.cert.display().to_string(),
        tls.key.display().to_string(),
    );
    let arguments = ["--tls-cert", &cert, "--tls-key", &key];
    Start::gateway().policy(policy).args(&arguments).start()
}

/// The section `gateway` of a policy for trials: all clients are on this machine, so one address may have many
/// connections.
pub(super) fn before(upstream: u16) -> String {
    format!(
        "gateway:\n  accept: {{ connections: 19_000, per_address: 19_000 }}\n  \
         upstreams: http://{HOST}:{upstream}\n"
    )
}

/// Bytes as text.
pub(super) fn mebibytes(bytes: u64) -> String {
    format!("{}.{} MiB", bytes >> 20, ((bytes & 0xF_FFFF) * 10) >> 20)
}
