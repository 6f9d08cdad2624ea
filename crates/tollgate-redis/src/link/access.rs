//! How a server is reached: addresses, TLS, who we are.
//!
//! What can never work (a file of certificates that is not there, a secret that no variable holds, a prefix that would
//! break the names of keys) is found when a store is opened. Everything else is found when a connection is made.
//!
//! Secrets and certificates in files are read again for every connection, because both are changed while programs run. Certificates
//! that cannot be read or used then (somebody is just writing them) are taken as they were last.

use std::fmt;
use std::io::ErrorKind as Io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo,
    IntoConnectionInfo, RedisConnectionInfo, RedisError, TlsCertificates,
};
use tokio::time::timeout;

use crate::settings::{Secret, Settings, Tls, Topology};

/// How long a handshake may take: TCP, TLS and AUTH.
pub(crate) const CONNECT: Duration = Duration::from_millis(250);
/// How long it may take with the name resolved before.
const RESOLVE_AND_CONNECT: Duration = Duration::from_secs(1);
/// Data that nobody acknowledges for so long ends the connection.
const USER_TIMEOUT: Duration = Duration::from_secs(1);
/// Names of keys begin with at most so many bytes.
const PREFIX_MAX: usize = 64;

/// Why a store cannot be opened: it could never work.
#[derive(Debug, PartialEq, Eq)]
pub struct OpenError {
    what: String,
    hint: String,
}

impl OpenError {
    fn new(what: impl Into<String>, hint: impl Into<String>) -> OpenError {
        OpenError {
            what: what.into(),
            hint: hint.into(),
        }
    }

    /// How to mend it.
    pub fn hint(&self) -> &str {
        &self.hint
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for OpenError {}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    pub(crate) fn new(host: &str, port: u16) -> Address {
        Address {
            host: host.to_owned(),
            port,
        }
    }

    /// The same server, unless it did not say which host: then it is the one that was asked.
    pub(crate) fn or_host_of(host: &str, port: u16, asked: &Address) -> Address {
        Address::new(if host.is_empty() { &asked.host } else { host }, port)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Whom we connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum As {
    /// A server that holds limits.
    Server,
    /// A sentinel, with a user and a password of its own.
    Sentinel,
}

/// How servers are reached.
pub(crate) struct Access {
    pub(crate) settings: Settings,
    kept: Mutex<Kept>,
}

/// The last certificates that could be used.
#[derive(Default)]
struct Kept {
    certificates: Option<TlsCertificates>,
    /// Could those that are there now not be? Then that was said.
    is_old: bool,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Access {
    /// Looks whether it could ever work.
    ///
    /// # Errors
    /// What can never work.
    pub(crate) fn new(settings: Settings) -> Result<Access, OpenError> {
        check_prefix(&settings.prefix)?;
        check_topology(&settings)?;
        for secret in [&settings.password, &settings.sentinel_password]
            .into_iter()
            .flatten()
        {
            read_secret(secret).map_err(|what| {
                OpenError::new(what, "set it, or name another place for the password")
            })?;
        }
        settings.tls.as_ref().map(read_certificates).transpose()?;
        let access = Access {
            settings,
            kept: Mutex::default(),
        };
        if access.settings.tls.is_some() {
            // The first to choose wins. If the program chose another before, that one is used.
            let _ = rustls::crypto::ring::default_provider().install_default();
            access
                .client(&Address::new("localhost", 1), As::Server)
                .map_err(|error| {
                    OpenError::new(
                        format!("the certificates cannot be used: {error}"),
                        "they must be PEM: ca_file, and cert_file with its key_file",
                    )
                })?;
        }
        Ok(access)
    }

    /// A new connection: the name is resolved, secrets and certificates in files are read again.
    pub(crate) async fn connect(
        &self,
        address: &Address,
        to: As,
    ) -> Result<MultiplexedConnection, RedisError> {
        let client = self.client(address, to)?;
        let handshake = match to {
            As::Server => CONNECT,
            // It may be far away, and no decision waits for it.
            As::Sentinel => RESOLVE_AND_CONNECT,
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(handshake))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(super::IN_FLIGHT_MAX);
        timeout(
            RESOLVE_AND_CONNECT,
            client.get_multiplexed_async_connection_with_config(&config),
        )
        .await
        .unwrap_or_else(|_| {
            let words =
                "no connection within a second: the name does not resolve, or nobody answers";
            Err(std::io::Error::new(Io::TimedOut, words).into())
        })
    }

    fn client(&self, address: &Address, to: As) -> Result<Client, RedisError> {
        let (host, port) = (address.host.clone(), address.port);
        let place = match self.settings.tls {
            None => ConnectionAddr::Tcp(host, port),
            Some(_) => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            },
        };
        let settings = &self.settings;
        let (username, password, database) = match to {
            As::Server => (&settings.username, &settings.password, settings.database),
            As::Sentinel => (&settings.sentinel_username, &settings.sentinel_password, 0),
        };
        let mut who = RedisConnectionInfo::default()
            .set_skip_set_lib_name()
            .set_db(i64::from(database));
        if let Some(username) = username {
            who = who.set_username(username);
        }
        if let Some(password) = password {
            let text = read_secret(password).map_err(std::io::Error::other)?;
            who = who.set_password(text);
        }
        let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        let tcp = tcp.set_user_timeout(USER_TIMEOUT);
        let info = place
            .into_connection_info()?
            .set_redis_settings(who)
            .set_tcp_settings(tcp);
        match &self.settings.tls {
            None => Client::open(info),
            Some(tls) => self.client_over_tls(tls, info),
        }
    }

    fn client_over_tls(&self, tls: &Tls, info: ConnectionInfo) -> Result<Client, RedisError> {
        let read = read_certificates(tls)
            .map_err(|error| error.to_string())
            .and_then(|certificates| {
                let client = Client::build_with_tls(info.clone(), certificates.clone());
                let client = client.map_err(|error| error.to_string())?;
                Ok((client, certificates))
            });
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let words = match read {
            Ok((client, certificates)) => {
                *kept = Kept {
                    certificates: Some(certificates),
                    is_old: false,
                };
                return Ok(client);
            }
            Err(words) => words,
        };
        let Some(certificates) = kept.certificates.clone() else {
            return Err(std::io::Error::other(words).into());
        };
        if !std::mem::replace(&mut kept.is_old, true) {
            tracing::warn!("the certificates are used as they were before: {words}");
        }
        Client::build_with_tls(info, certificates)
    }
}

fn check_prefix(prefix: &str) -> Result<(), OpenError> {
    let fits = (1..=PREFIX_MAX).contains(&prefix.len());
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    if fits && prefix.bytes().all(plain) {
        return Ok(());
    }
    Err(OpenError::new(
        format!("the prefix {prefix:?} cannot begin the name of a key"),
        format!("1 to {PREFIX_MAX} letters, digits, and any of . _ : -"),
    ))
}

fn check_topology(settings: &Settings) -> Result<(), OpenError> {
    let nobody = |what: &str| OpenError::new(format!("no {what} is named"), "name at least one");
    match &settings.topology {
        Topology::Standalone { .. } => {}
        Topology::Sentinel { sentinels, .. } if sentinels.is_empty() => {
            return Err(nobody("sentinel"));
        }
        Topology::Sentinel { service, .. } if service.is_empty() => {
            return Err(OpenError::new(
                "the sentinels are not told which primary to name",
                "set the name that `SENTINEL MASTERS` shows",
            ));
        }
        Topology::Sentinel { .. } => {}
        Topology::Cluster { servers } if servers.is_empty() => {
            return Err(nobody("server of the cluster"));
        }
        Topology::Cluster { .. } if settings.database != 0 => {
            return Err(OpenError::new(
                format!("a cluster has no database {}", settings.database),
                "leave the database out",
            ));
        }
        Topology::Cluster { .. } => {}
    }
    if settings.deadline.is_zero() {
        return Err(OpenError::new(
            "a deadline of nothing: no decision could be in time",
            "8ms is the default",
        ));
    }
    Ok(())
}

fn read_secret(secret: &Secret) -> Result<String, String> {
    match secret {
        Secret::Text(text) => Ok(text.clone()),
        Secret::Env(name) => std::env::var(name)
            .map_err(|_| format!("the variable {name} of the environment holds no password")),
        Secret::File(path) => std::fs::read_to_string(path)
            .map(|text| text.trim().to_owned())
            .map_err(|error| format!("the password in {} cannot be read: {error}", path.display())),
    }
}

fn read_certificates(tls: &Tls) -> Result<TlsCertificates, OpenError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|error| {
            OpenError::new(
                format!("{} cannot be read: {error}", path.display()),
                "name a file in PEM that this process may read",
            )
        })
    };
    let root_cert = tls.ca_file.as_deref().map(read).transpose()?;
    let client_tls = match (&tls.cert_file, &tls.key_file) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(ClientTlsConfig {
            client_cert: read(certificate)?,
            client_key: read(key)?,
        }),
        _ => {
            return Err(OpenError::new(
                "a certificate and its key go together, and one of them is missing",
                "set both cert_file and key_file, or neither",
            ));
        }
    };
    Ok(TlsCertificates {
        client_tls,
        root_cert,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(change: impl FnOnce(&mut Settings)) -> Result<Access, OpenError> {
        let mut settings = Settings::standalone("localhost", 6379);
        change(&mut settings);
        Access::new(settings)
    }

    #[test]
    fn what_can_never_work_is_said_at_once() {
        assert!(open(|_| {}).is_ok());
        for prefix in ["", "a{b", "a b", "tg*", &"x".repeat(65)] {
            assert!(
                open(|settings| settings.prefix = prefix.into()).is_err(),
                "{prefix:?}"
            );
        }
        let missing = Secret::Env("TOLLGATE_NO_SUCH_VARIABLE".into());
        let error = open(|settings| settings.password = Some(missing)).unwrap_err();
        assert!(error.to_string().contains("TOLLGATE_NO_SUCH_VARIABLE"));
        let tls = |ca: Option<&str>, certificate: Option<&str>| Tls {
            ca_file: ca.map(Into::into),
            cert_file: certificate.map(Into::into),
            key_file: None,
        };
        assert!(open(|settings| settings.tls = Some(tls(Some("/no/such/ca.pem"), None))).is_err());
        assert!(open(|settings| settings.tls = Some(tls(None, Some("/no/such/c.pem")))).is_err());
        assert!(open(|settings| settings.deadline = Duration::ZERO).is_err());
        assert!(
            open(|settings| settings.topology = Topology::Cluster { servers: vec![] }).is_err()
        );
        assert!(
            open(|settings| {
                settings.database = 1;
                settings.topology = Topology::Cluster {
                    servers: vec![("a".into(), 1)],
                };
            })
            .is_err()
        );
    }

    #[test]
    fn a_password_is_never_shown() {
        let access = open(|settings| settings.password = Some(Secret::Text("hunter2".into())));
        assert!(!format!("{:?}", access.unwrap()).contains("hunter2"));
    }

    #[test]
    fn a_server_that_names_no_host_is_where_it_was_asked() {
        let asked = Address::new("::1", 7000);
        assert_eq!(
            Address::or_host_of("", 7001, &asked).to_string(),
            "[::1]:7001"
        );
        assert_eq!(Address::or_host_of("b", 7001, &asked).to_string(), "b:7001");
    }
}
