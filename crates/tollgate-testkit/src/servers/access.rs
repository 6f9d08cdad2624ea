//! Address and credentials of a server, and a client that sends one command at a time.

use std::fs;
use std::sync::Once;
use std::time::Duration;

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo,
    TlsCertificates, Value,
};

use crate::HOST;
use crate::certificates::Certificates;
use crate::error::{Error, Result};

/// How long one command may take, with its connection.
const DEADLINE: Duration = Duration::from_secs(3);
/// How much of a command an error quotes.
const QUOTED: usize = 120;

/// What a client needs to reach a server.
#[derive(Clone, Debug)]
pub struct Access {
    /// The port at 127.0.0.1.
    pub port: u16,
    /// The user; `None` for the default user.
    pub user: Option<String>,
    /// The password, if the server needs one.
    pub password: Option<String>,
    /// The certificates, if the server uses TLS.
    pub certificates: Option<Certificates>,
}

impl Access {
    /// A server on this port without password and TLS.
    pub fn plain(port: u16) -> Access {
        Access {
            port,
            user: None,
            password: None,
            certificates: None,
        }
    }

    /// A client that is not connected yet.
    pub fn client(&self) -> Result<Client> {
        self.build()
            .map_err(|error| self.refused("a client", error))
    }

    /// Sends one command on a connection of its own. An error reply is an error.
    pub fn ask<A: AsRef<[u8]>>(&self, question: &[A]) -> Result<Value> {
        let client = self.client()?;
        ask(&client, question).map_err(|error| self.refused(&quote(question), error))
    }

    fn refused(&self, what: &str, error: redis::RedisError) -> Error {
        Error::Rejected {
            command: format!("{what} at port {}", self.port),
            error,
        }
    }

    fn build(&self) -> redis::RedisResult<Client> {
        let mut settings = RedisConnectionInfo::default();
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        let Some(certificates) = &self.certificates else {
            let address = ConnectionAddr::Tcp(HOST.into(), self.port);
            return Client::open(address.into_connection_info()?.set_redis_settings(settings));
        };
        install_cryptography();
        let address = ConnectionAddr::TcpTls {
            host: HOST.into(),
            port: self.port,
            insecure: false,
            tls_params: None,
        };
        let info = address.into_connection_info()?.set_redis_settings(settings);
        Client::build_with_tls(
            info,
            TlsCertificates {
                client_tls: Some(ClientTlsConfig {
                    client_cert: fs::read(&certificates.client_cert_file)?,
                    client_key: fs::read(&certificates.client_key_file)?,
                }),
                root_cert: Some(fs::read(&certificates.ca_file)?),
            },
        )
    }
}

fn ask<A: AsRef<[u8]>>(client: &Client, question: &[A]) -> redis::RedisResult<Value> {
    let mut connection = client.get_connection_with_timeout(DEADLINE)?;
    connection.set_read_timeout(Some(DEADLINE))?;
    connection.set_write_timeout(Some(DEADLINE))?;
    let mut command = redis::Cmd::new();
    for word in question {
        command.arg(word.as_ref());
    }
    let answer: Value = command.query(&mut connection)?;
    answer.extract_error()
}

fn quote<A: AsRef<[u8]>>(question: &[A]) -> String {
    let words: Vec<_> = question
        .iter()
        .map(|word| String::from_utf8_lossy(word.as_ref()))
        .collect();
    let all = words.join(" ");
    let short: String = all.chars().take(QUOTED).collect();
    if short.len() < all.len() {
        format!("`{short}…`")
    } else {
        format!("`{short}`")
    }
}

/// Installs the cryptography that rustls takes from the process.
fn install_cryptography() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that one is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}
