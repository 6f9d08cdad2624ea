//! Settings of a store.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A store that several processes share.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The servers.
    pub topology: Topology,
    /// TLS; `None` for plain TCP.
    pub tls: Option<Tls>,
    /// The user of the servers' access list; `None` for the default user.
    pub username: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
    /// The user of the sentinels.
    pub sentinel_username: Option<String>,
    /// Its password.
    pub sentinel_password: Option<Secret>,
    /// The number of the database; 0 in a cluster.
    pub database: u32,
    /// Deadline of a decision. A request without an answer by then is decided without the store.
    pub deadline: Duration,
    /// Prefix of all keys.
    pub prefix: String,
    /// Minimum number of nodes that share the store. Nodes are counted, too, and the greater number holds.
    pub nodes: Option<u32>,
}

/// The servers of a store.
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
        /// The name of the primary in their configuration.
        service: String,
    },
    /// A cluster.
    Cluster {
        /// Some of its servers; they report the others.
        servers: Vec<(String, u16)>,
    },
}

/// TLS to the servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Certificates of trusted authorities; `None` for those of the system.
    pub ca_file: Option<PathBuf>,
    /// The client certificate.
    pub cert_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
}

/// A secret. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// The secret itself.
    Text(String),
    /// The environment variable that holds it.
    Env(String),
    /// The file that holds it; white space around it is removed. It is read again for every connection.
    File(PathBuf),
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Secret::Text(_) => f.write_str("Text(…)"),
            Secret::Env(name) => f.debug_tuple("Env").field(name).finish(),
            Secret::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

impl Settings {
    /// Default deadline of a decision: Envoy waits for 20 ms.
    pub const DEADLINE: Duration = Duration::from_millis(8);
    /// Default prefix of all keys.
    pub const PREFIX: &str = "tg";

    /// Default settings for these servers.
    pub fn new(topology: Topology) -> Settings {
        Settings {
            topology,
            tls: None,
            username: None,
            password: None,
            sentinel_username: None,
            sentinel_password: None,
            database: 0,
            deadline: Settings::DEADLINE,
            prefix: Settings::PREFIX.into(),
            nodes: None,
        }
    }

    /// Default settings for one server.
    pub fn standalone(host: &str, port: u16) -> Settings {
        Settings::new(Topology::Standalone {
            server: (host.into(), port),
        })
    }
}
