//! What a store needs to know.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A store that several processes share.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which servers there are.
    pub topology: Topology,
    /// TLS, if it is spoken.
    pub tls: Option<Tls>,
    /// The user of the servers' access list; none for the default user.
    pub username: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
    /// The user of the sentinels.
    pub sentinel_username: Option<String>,
    /// Its password.
    pub sentinel_password: Option<Secret>,
    /// The number of the database; 0 in a cluster.
    pub database: u32,
    /// How long a decision may take. What is not answered by then is decided without the store.
    pub deadline: Duration,
    /// What the names of all keys begin with.
    pub prefix: String,
    /// How many nodes share the store at the least. They are counted, too, and the greater number holds.
    pub nodes: Option<u32>,
}

/// Which servers there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Standalone {
        /// Its name or address, and its port.
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

/// TLS to the servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Certificates of whom to trust; none for those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The certificate to show.
    pub cert_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
}

/// Something that must not be shown.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// As it is.
    Text(String),
    /// In a variable of the environment.
    Env(String),
    /// In a file, without what is blank around it. Read again for every connection.
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
    /// How long a decision may take unless told otherwise: Envoy waits for 20 ms.
    pub const DEADLINE: Duration = Duration::from_millis(8);
    /// What the names of all keys begin with unless told otherwise.
    pub const PREFIX: &str = "tg";

    /// A store at these servers, and the defaults otherwise.
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

    /// One server at this address.
    pub fn standalone(host: &str, port: u16) -> Settings {
        Settings::new(Topology::Standalone {
            server: (host.into(), port),
        })
    }
}
