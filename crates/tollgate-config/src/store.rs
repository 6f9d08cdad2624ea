//! Where what was used is kept, as the file says it: plain data for whoever opens the store.
//!
//! # Invariant
//!
//! A password that is written in the file is never shown: not by `Debug`, and not in a problem (see
//! `secret.rs`). Two specs are equal if and only if the same store would be opened, so a reload can tell
//! whether it has changed. What a variable or a file holds is not part of that.
//!
//! # What it does not know
//!
//! Whether anybody answers there, how to ask, and what is in the files and variables it names.

use std::fmt;
use std::path::PathBuf;

use tollgate::Span;

/// Where what was used is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreSpec {
    /// In this process alone.
    #[default]
    Memory,
    /// In a store that several processes share.
    Shared(Box<SharedSpec>),
}

/// A store that several processes share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSpec {
    /// Which servers there are.
    pub topology: Topology,
    /// TLS, if it is spoken.
    pub tls: Option<TlsFiles>,
    /// The user of the servers' access list; none for the default user.
    pub username: Option<String>,
    /// Its password.
    pub password: Option<SecretSpec>,
    /// The user of the sentinels.
    pub sentinel_username: Option<String>,
    /// Its password.
    pub sentinel_password: Option<SecretSpec>,
    /// The number of the database; 0 in a cluster.
    pub database: u32,
    /// How long a decision may take. What is not answered by then is decided without the store.
    pub deadline: Span,
    /// What the names of all keys begin with.
    pub prefix: String,
    /// How many nodes share the store; none to count them.
    pub nodes: Option<u32>,
}

impl SharedSpec {
    /// How long a decision may take if the file does not say: Envoy waits for 20 ms.
    pub const DEADLINE: Span = Span::from_millis(8);
    /// What the names of all keys begin with if the file does not say.
    pub const PREFIX: &'static str = "tg";
}

/// Which servers there are. A host is a name or an address, IPv6 without brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Standalone {
        /// Its host and port.
        server: (String, u16),
    },
    /// A primary that sentinels name.
    Sentinel {
        /// The sentinels.
        sentinels: Vec<(String, u16)>,
        /// What they call the primary.
        service: String,
    },
    /// A cluster.
    Cluster {
        /// Some of its servers; they name the others.
        servers: Vec<(String, u16)>,
    },
}

impl Topology {
    /// All hosts that are named.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &str> {
        let all = match self {
            Topology::Standalone { server } => std::slice::from_ref(server),
            Topology::Sentinel { sentinels, .. } => sentinels,
            Topology::Cluster { servers } => servers,
        };
        all.iter().map(|(host, _)| host.as_str())
    }
}

/// TLS to the servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of whom to trust; none for those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The certificate to show; there is a key with it.
    pub cert_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
}

/// Where something is that must not be shown.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretSpec {
    /// In the policy file, as it is.
    Text(String),
    /// In a variable of the environment.
    Env(String),
    /// In a file.
    File(PathBuf),
}

impl fmt::Debug for SecretSpec {
    /// Where it is, never what it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSpec::Text(_) => f.write_str("Text(…)"),
            SecretSpec::Env(name) => f.debug_tuple("Env").field(name).finish(),
            SecretSpec::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_where_it_is_and_never_what_it_is() {
        let shown = format!("{:?}", SecretSpec::Text("hunter2".into()));
        assert_eq!(shown, "Text(…)");
        let shown = format!("{:#?}", Some(SecretSpec::Text("hunter2".into())));
        assert!(!shown.contains("hunter2"), "{shown}");
        let shown = format!("{:?}", SecretSpec::Env("NAME".into()));
        assert_eq!(shown, "Env(\"NAME\")");
    }
}
