//! What a server must show before it is asked: that it lets us in, is a primary, knows the scripts, and answers in time.

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, ServerError, Value};
use tokio::time::timeout;
use tollgate_policy::shared::FaultKind;

use super::Context;
use super::access::{Address, As};
use crate::call::Which;
use crate::fault::{self, Meaning};

/// Each step after the handshake.
const STEP: Duration = Duration::from_millis(500);

/// Why a server is not asked.
#[derive(Clone, Debug)]
pub(crate) struct Low {
    pub(crate) kind: FaultKind,
    pub(crate) words: String,
    /// What somebody should change: a code, and how to mend it.
    pub(crate) warning: Option<(&'static str, &'static str)>,
}

impl fmt::Display for Low {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.warning {
            None => f.write_str(&self.words),
            Some((_, mend)) => write!(f, "{}; {mend}", self.words),
        }
    }
}

impl Low {
    fn new(kind: FaultKind, words: impl Into<String>) -> Low {
        Low {
            kind,
            words: words.into(),
            warning: None,
        }
    }

    fn warn(self, code: &'static str, mend: &'static str) -> Low {
        Low {
            warning: Some((code, mend)),
            ..self
        }
    }

    pub(crate) fn of_error(error: &RedisError) -> Low {
        let words = error.to_string();
        if error.kind() == ErrorKind::AuthenticationFailed {
            return Low::new(FaultKind::Refused, words).warn(
                "wrong-password",
                "set the user and the password of the store",
            );
        }
        let is_tls = |word: &&str| words.contains(*word);
        if ["certificate", "TLS", "tls", "fatal alert"]
            .iter()
            .any(is_tls)
        {
            return Low::new(FaultKind::Refused, words).warn(
                "bad-certificate",
                "the server's certificate must be valid, bear the name that is asked for and be signed by ca_file; so must ours, if it asks for one",
            );
        }
        Low::new(FaultKind::Away, words)
    }

    pub(crate) fn of_answer(error: &ServerError) -> Low {
        let words = fault::words(error);
        match fault::meaning(error) {
            Meaning::Fault(fault) => Low {
                kind: fault.kind,
                words,
                warning: fault.warning,
            },
            _ => Low::new(FaultKind::Unable, words),
        }
    }
}

/// A connection to a server that showed all of it.
pub(crate) async fn rise(
    context: &Context,
    address: &Address,
) -> Result<MultiplexedConnection, Low> {
    let mut connection = context
        .access
        .connect(address, As::Server)
        .await
        .map_err(|error| Low::of_error(&error))?;
    is_primary(&ask(&mut connection, &redis::cmd("ROLE"), STEP).await?)?;
    teach(context, &mut connection).await?;
    let deadline = context.access.settings.deadline;
    ask(&mut connection, &redis::cmd("PING"), deadline).await?;
    Ok(connection)
}

/// One command on a connection, and what it came to.
pub(crate) async fn ask(
    connection: &mut MultiplexedConnection,
    command: &redis::Cmd,
    within: Duration,
) -> Result<Value, Low> {
    match timeout(within, connection.send_packed_command(command)).await {
        Err(_) => Err(Low::new(
            FaultKind::Late,
            format!("no answer within {} ms", within.as_millis()),
        )),
        Ok(Err(error)) => Err(Low::of_error(&error)),
        Ok(Ok(Value::ServerError(error))) => Err(Low::of_answer(&error)),
        Ok(Ok(value)) => Ok(value),
    }
}

/// Makes the scripts known.
pub(crate) async fn teach(
    context: &Context,
    connection: &mut MultiplexedConnection,
) -> Result<(), Low> {
    for which in Which::ALL {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(context.scripts.text(which));
        let sha = text(&ask(connection, &load, STEP).await?);
        if sha != context.scripts.sha(which) {
            return Err(Low::new(
                FaultKind::Garbled,
                format!("the script {which:?} got the name {sha:?}"),
            ));
        }
    }
    Ok(())
}

/// Does `ROLE` say so?
pub(crate) fn is_primary(role: &Value) -> Result<(), Low> {
    let Value::Array(parts) = role else {
        return Err(Low::new(
            FaultKind::Garbled,
            format!("ROLE answered {role:?}"),
        ));
    };
    match parts.first().map(text).unwrap_or_default().as_str() {
        "master" => Ok(()),
        "slave" => {
            let part = |place| parts.get(place).map(text).unwrap_or_default();
            Err(Low::new(
                FaultKind::Unable,
                format!("it is a replica of {}:{}", part(1), part(2)),
            )
            .warn(
                "not-primary",
                "limits are kept on a primary: name that one, or its sentinels",
            ))
        }
        "sentinel" => Err(Low::new(FaultKind::Refused, "it is a sentinel").warn(
            "not-primary",
            "name it among the sentinels of the store's settings",
        )),
        other => Err(Low::new(
            FaultKind::Garbled,
            format!("its role is {other:?}"),
        )),
    }
}

/// A text or number as text.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        Value::Int(number) => number.to_string(),
        Value::Okay => "OK".into(),
        _ => String::new(),
    }
}
