//! How a server is reached, and a plain client that asks one question at a time.

use std::fs;
use std::sync::Once;
use std::time::Duration;

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo,
    TlsCertificates, Value,
};

use super::{Certificates, HOST};
use crate::trouble::{Outcome, Trouble};

/// How long one question may take, the connection included.
const PATIENCE: Duration = Duration::from_secs(3);
/// How much of a question an error repeats.
const QUOTED: usize = 120;

/// What a client needs to know to reach a server.
#[derive(Clone, Debug)]
pub struct Access {
    /// The port at 127.0.0.1.
    pub port: u16,
    /// The user; none for the default user.
    pub user: Option<String>,
    /// The password, if one is wanted.
    pub password: Option<String>,
    /// The certificates, if TLS is spoken.
    pub certificates: Option<Certificates>,
}

impl Access {
    /// A server at this port that wants nothing.
    pub fn plain(port: u16) -> Access {
        Access {
            port,
            user: None,
            password: None,
            certificates: None,
        }
    }

    /// A client that is not connected yet.
    pub fn client(&self) -> Outcome<Client> {
        self.build()
            .map_err(|error| self.refused("a client", error))
    }

    /// Asks one question over a connection of its own. An error reply is an error.
    pub fn ask<A: AsRef<[u8]>>(&self, question: &[A]) -> Outcome<Value> {
        let client = self.client()?;
        ask(&client, question).map_err(|error| self.refused(&quote(question), error))
    }

    fn refused(&self, what: &str, error: redis::RedisError) -> Trouble {
        Trouble::Refused {
            asked: format!("{what} at port {}", self.port),
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
        provide_arithmetic();
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
    let mut connection = client.get_connection_with_timeout(PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
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

/// The client asks for the arithmetic of the whole process and finds none if nobody provided it.
fn provide_arithmetic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that somebody else provided one; that is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}
