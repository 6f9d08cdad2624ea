//! Connects to servers: addresses, TLS, credentials.
//!
//! Settings that can never work (a missing file of certificates, an unset variable of a secret, an invalid key prefix) are
//! rejected when a store is opened. Everything else fails when a connection is made.
//!
//! Secrets and certificates in files are read again for every connection, because both change while programs run. Certificates
//! that cannot be read or used then (they are just being written) are replaced by the last usable ones.

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

/// Timeout of a handshake: TCP, TLS and AUTH.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);
/// Timeout of a handshake with name resolution.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(1);
/// Data that is not acknowledged for this long ends the connection.
const USER_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of a key prefix at the most.
const PREFIX_MAX: usize = 64;

/// Why a store cannot be opened: its settings can never work.
#[derive(Debug, PartialEq, Eq)]
pub struct OpenError {
    message: String,
    hint: String,
}

impl OpenError {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> OpenError {
        OpenError {
            message: message.into(),
            hint: hint.into(),
        }
    }

    /// The remedy.
    pub fn hint(&self) -> &str {
        &self.hint
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for OpenError {}

/// Host and port of a server.
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

    /// An address from a server's reply. An empty host is the host of that server.
    pub(crate) fn with_default_host(host: &str, port: u16, replied: &Address) -> Address {
        let host = if host.is_empty() { &replied.host } else { host };
        Address::new(host, port)
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

/// The credentials of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// Those of servers that hold limits.
    Server,
    /// Those of sentinels.
    Sentinel,
}

/// Makes connections.
pub(crate) struct Connector {
    pub(crate) settings: Settings,
    last: Mutex<LastCertificates>,
}

/// The last usable certificates.
#[derive(Default)]
struct LastCertificates {
    certificates: Option<TlsCertificates>,
    /// Whether the present files are unusable. That is logged once.
    is_stale: bool,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Connector {
    /// Checks the settings.
    ///
    /// # Errors
    /// Settings that can never work.
    pub(crate) fn new(settings: Settings) -> Result<Connector, OpenError> {
        check_prefix(&settings.prefix)?;
        check_topology(&settings)?;
        for secret in [&settings.password, &settings.sentinel_password]
            .into_iter()
            .flatten()
        {
            read_secret(secret).map_err(|message| {
                OpenError::new(
                    message,
                    "set it, or configure another source of the password",
                )
            })?;
        }
        settings.tls.as_ref().map(read_certificates).transpose()?;
        let connector = Connector {
            settings,
            last: Mutex::default(),
        };
        if connector.settings.tls.is_some() {
            // The first provider stays. If the program installed another one before, that one is used.
            let _ = rustls::crypto::ring::default_provider().install_default();
            connector
                .client(&Address::new("localhost", 1), Account::Server)
                .map_err(|error| {
                    OpenError::new(
                        format!("the certificates cannot be used: {error}"),
                        "they must be PEM: ca_file, and cert_file with its key_file",
                    )
                })?;
        }
        Ok(connector)
    }

    /// Makes a connection. The name is resolved, and secrets and certificates in files are read again.
    pub(crate) async fn connect(
        &self,
        address: &Address,
        account: Account,
    ) -> Result<MultiplexedConnection, RedisError> {
        let client = self.client(address, account)?;
        let handshake = match account {
            Account::Server => CONNECT_TIMEOUT,
            // A sentinel may be far away, and no decision waits for it.
            Account::Sentinel => RESOLVE_TIMEOUT,
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(handshake))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(super::IN_FLIGHT_MAX);
        timeout(
            RESOLVE_TIMEOUT,
            client.get_multiplexed_async_connection_with_config(&config),
        )
        .await
        .unwrap_or_else(|_| {
            let message =
                "no connection within a second: the name does not resolve, or no server answers";
            Err(std::io::Error::new(Io::TimedOut, message).into())
        })
    }

    fn client(&self, address: &Address, account: Account) -> Result<Client, RedisError> {
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
        let (username, password, database) = match account {
            Account::Server => (&settings.username, &settings.password, settings.database),
            Account::Sentinel => (&settings.sentinel_username, &settings.sentinel_password, 0),
        };
        let mut login = RedisConnectionInfo::default()
            .set_skip_set_lib_name()
            .set_db(i64::from(database));
        if let Some(username) = username {
            login = login.set_username(username);
        }
        if let Some(password) = password {
            let text = read_secret(password).map_err(std::io::Error::other)?;
            login = login.set_password(text);
        }
        let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        let tcp = tcp.set_user_timeout(USER_TIMEOUT);
        let info = place
            .into_connection_info()?
            .set_redis_settings(login)
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
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let message = match read {
            Ok((client, certificates)) => {
                *last = LastCertificates {
                    certificates: Some(certificates),
                    is_stale: false,
                };
                return Ok(client);
            }
            Err(message) => message,
        };
        let Some(certificates) = last.certificates.clone() else {
            return Err(std::io::Error::other(message).into());
        };
        if !std::mem::replace(&mut last.is_stale, true) {
            tracing::warn!(
                "the certificates cannot be used, the former ones stay in use: {message}"
            );
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
        format!("invalid key prefix {prefix:?}"),
        format!("use 1 to {PREFIX_MAX} letters, digits, and any of . _ : -"),
    ))
}

fn check_topology(settings: &Settings) -> Result<(), OpenError> {
    let missing = |what: &str| {
        Err(OpenError::new(
            format!("no {what} is configured"),
            "add one",
        ))
    };
    match &settings.topology {
        Topology::Sentinel { sentinels, .. } if sentinels.is_empty() => missing("sentinel"),
        Topology::Sentinel { service, .. } if service.is_empty() => Err(OpenError::new(
            "the name of the primary is missing",
            "set the name that `SENTINEL MASTERS` shows",
        )),
        Topology::Cluster { servers } if servers.is_empty() => missing("server of the cluster"),
        Topology::Cluster { .. } if settings.database != 0 => Err(OpenError::new(
            format!("a cluster has no database {}", settings.database),
            "remove the database",
        )),
        _ if settings.deadline.is_zero() => Err(OpenError::new(
            "the deadline is zero: every decision would be late",
            "8ms is the default",
        )),
        _ => Ok(()),
    }
}

fn read_secret(secret: &Secret) -> Result<String, String> {
    match secret {
        Secret::Text(text) => Ok(text.clone()),
        Secret::Env(name) => std::env::var(name)
            .map_err(|_| format!("the environment variable {name} for the password is not set")),
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
                "configure a PEM file that this process may read",
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
                "cert_file or key_file is missing",
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

    fn open(change: impl FnOnce(&mut Settings)) -> Result<Connector, OpenError> {
        let mut settings = Settings::standalone("localhost", 6379);
        change(&mut settings);
        Connector::new(settings)
    }

    #[test]
    fn settings_that_can_never_work_are_rejected_at_once() {
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
        let connector = open(|settings| settings.password = Some(Secret::Text("hunter2".into())));
        assert!(!format!("{:?}", connector.unwrap()).contains("hunter2"));
    }

    #[test]
    fn an_empty_host_is_the_host_of_the_replying_server() {
        let replied = Address::new("::1", 7000);
        assert_eq!(
            Address::with_default_host("", 7001, &replied).to_string(),
            "[::1]:7001"
        );
        assert_eq!(
            Address::with_default_host("b", 7001, &replied).to_string(),
            "b:7001"
        );
    }
}
