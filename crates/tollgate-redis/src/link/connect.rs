//! Connects to a server and checks that it can serve decisions: it accepts the credentials, is a primary, has the
//! scripts, and answers in time.

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, ServerError, Value};
use tokio::time::timeout;
use tollgate_policy::shared::FaultKind;

use super::Context;
use super::connector::{Account, Address};
use crate::error_action::{self, ErrorAction, Hint, WRONG_PASSWORD};
use crate::script_call::ScriptName;

/// Timeout of each step after the handshake.
const STEP_TIMEOUT: Duration = Duration::from_millis(500);

const BAD_CERTIFICATE: Hint = (
    "bad-certificate",
    "the server's certificate must be valid, contain the name of the server and be signed by ca_file; so must ours, if the \
     server requires one",
);

/// Why a server cannot be used.
#[derive(Clone, Debug)]
pub(crate) struct DownReason {
    pub(crate) kind: FaultKind,
    pub(crate) message: String,
    pub(crate) warning: Option<Hint>,
}

impl fmt::Display for DownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.warning {
            None => f.write_str(&self.message),
            Some((_, hint)) => write!(f, "{}; {hint}", self.message),
        }
    }
}

impl DownReason {
    pub(crate) fn new(kind: FaultKind, message: impl Into<String>) -> DownReason {
        DownReason {
            kind,
            message: message.into(),
            warning: None,
        }
    }

    fn with_hint(self, hint: Hint) -> DownReason {
        DownReason {
            warning: Some(hint),
            ..self
        }
    }

    /// The code of its warning, or nothing.
    pub(crate) fn code(&self) -> &'static str {
        self.warning.map_or("", |(code, _)| code)
    }

    pub(crate) fn from_client_error(error: &RedisError) -> DownReason {
        let message = error.to_string();
        if error.kind() == ErrorKind::AuthenticationFailed {
            return DownReason::new(FaultKind::Refused, message).with_hint(WRONG_PASSWORD);
        }
        let mut tls = ["certificate", "TLS", "tls", "fatal alert"].iter();
        if tls.any(|word| message.contains(word)) {
            return DownReason::new(FaultKind::Refused, message).with_hint(BAD_CERTIFICATE);
        }
        DownReason::new(FaultKind::Away, message)
    }

    pub(crate) fn from_server_error(error: &ServerError) -> DownReason {
        let message = error_action::message(error);
        match error_action::classify(error) {
            ErrorAction::Fail(fault) => DownReason {
                kind: fault.kind,
                message,
                warning: fault.warning,
            },
            _ => DownReason::new(FaultKind::Unable, message),
        }
    }
}

/// Makes a connection to a server that passes all checks.
pub(crate) async fn connect(
    context: &Context,
    address: &Address,
) -> Result<MultiplexedConnection, DownReason> {
    let connected = context.connector.connect(address, Account::Server).await;
    let mut connection = connected.map_err(|error| DownReason::from_client_error(&error))?;
    check_primary(&query(&mut connection, &redis::cmd("ROLE"), STEP_TIMEOUT).await?)?;
    load_scripts(context, &mut connection).await?;
    let deadline = context.settings().deadline;
    query(&mut connection, &redis::cmd("PING"), deadline).await?;
    Ok(connection)
}

/// Sends one command and returns its reply.
pub(crate) async fn query(
    connection: &mut MultiplexedConnection,
    command: &redis::Cmd,
    within: Duration,
) -> Result<Value, DownReason> {
    match timeout(within, connection.send_packed_command(command)).await {
        Err(_) => Err(DownReason::new(
            FaultKind::Late,
            format!("no reply within {} ms", within.as_millis()),
        )),
        Ok(Err(error)) => Err(DownReason::from_client_error(&error)),
        Ok(Ok(Value::ServerError(error))) => Err(DownReason::from_server_error(&error)),
        Ok(Ok(value)) => Ok(value),
    }
}

/// Loads the scripts.
pub(crate) async fn load_scripts(
    context: &Context,
    connection: &mut MultiplexedConnection,
) -> Result<(), DownReason> {
    for script in ScriptName::ALL {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(context.scripts.text(script));
        let sha = text(&query(connection, &load, STEP_TIMEOUT).await?);
        if sha != context.scripts.sha(script) {
            let message = format!("the script {script:?} has the unexpected hash {sha:?}");
            return Err(DownReason::new(FaultKind::Garbled, message));
        }
    }
    Ok(())
}

/// Checks that the reply of `ROLE` is that of a primary.
pub(crate) fn check_primary(role: &Value) -> Result<(), DownReason> {
    let parts = match role {
        Value::Array(parts) => parts.as_slice(),
        _ => &[],
    };
    let part = |place| parts.get(place).map(text).unwrap_or_default();
    match part(0).as_str() {
        "master" => Ok(()),
        "slave" => {
            let message = format!("it is a replica of {}:{}", part(1), part(2));
            let hint = "limits need a primary: configure that one, or its sentinels";
            Err(DownReason::new(FaultKind::Unable, message).with_hint(("not-primary", hint)))
        }
        "sentinel" => {
            let hint = "configure it as a sentinel of the store";
            let reason = DownReason::new(FaultKind::Refused, "it is a sentinel");
            Err(reason.with_hint(("not-primary", hint)))
        }
        _ => Err(DownReason::new(
            FaultKind::Garbled,
            format!("unexpected reply to ROLE: {role:?}"),
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
