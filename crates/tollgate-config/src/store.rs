//! The store section of a policy file, as plain data: memory, or a shared store and how to reach it.
//!
//! It opens no connection, no file and no variable. `tollgate-redis` connects by it.
//!
//! # Invariants
//!
//! - A password written in the file is never shown, neither by `Debug` nor in a problem (see [`crate::redact`]).
//! - Two specs are equal exactly if they describe the same store. So a reload can detect a change. The contents of
//!   variables and files are not compared.

use std::fmt;
use std::path::PathBuf;

use tollgate::Span;

/// Where usage is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreSpec {
    /// In the memory of this process.
    #[default]
    Memory,
    /// In a store that several processes share.
    Shared(Box<SharedSpec>),
}

/// A store that several processes share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSpec {
    /// The servers.
    pub topology: Topology,
    /// TLS settings, if TLS is used.
    pub tls: Option<TlsFiles>,
    /// The ACL user of the servers. None: the default user.
    pub username: Option<String>,
    /// The password of that user.
    pub password: Option<SecretSpec>,
    /// The ACL user of the sentinels.
    pub sentinel_username: Option<String>,
    /// The password of that user.
    pub sentinel_password: Option<SecretSpec>,
    /// The number of the database; 0 in a cluster.
    pub database: u32,
    /// The deadline of a decision. After it, the request is decided without the store.
    pub deadline: Span,
    /// The prefix of all keys.
    pub prefix: String,
    /// The number of nodes that share the store. None: nodes are counted.
    pub nodes: Option<u32>,
}

impl SharedSpec {
    /// The default deadline. Envoy waits for 20 ms.
    pub const DEADLINE: Span = Span::from_millis(8);
    /// The default prefix.
    pub const PREFIX: &'static str = "tg";
}

/// The topology of the servers. A host is a name or an address, IPv6 without brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Standalone {
        /// Host and port.
        server: (String, u16),
    },
    /// A primary that sentinels report.
    Sentinel {
        /// The sentinels.
        sentinels: Vec<(String, u16)>,
        /// The name of the service at the sentinels.
        service: String,
    },
    /// A cluster.
    Cluster {
        /// Seed nodes; the client discovers the others.
        servers: Vec<(String, u16)>,
    },
}

impl Topology {
    /// All hosts.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &str> {
        let all = match self {
            Topology::Standalone { server } => std::slice::from_ref(server),
            Topology::Sentinel { sentinels, .. } => sentinels,
            Topology::Cluster { servers } => servers,
        };
        all.iter().map(|(host, _)| host.as_str())
    }
}

/// Certificates and key for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// A file with the trusted CA certificates. None: those of the system.
    pub ca_file: Option<PathBuf>,
    /// The client certificate; requires a key.
    pub cert_file: Option<PathBuf>,
    /// The key of the client certificate.
    pub key_file: Option<PathBuf>,
}

/// Location of a secret.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretSpec {
    /// In the policy file itself.
    Text(String),
    /// In an environment variable.
    Env(String),
    /// In a file.
    File(PathBuf),
}

impl fmt::Debug for SecretSpec {
    /// Shows the location, never the secret.
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
