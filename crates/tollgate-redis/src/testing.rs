//! The scripts and the arithmetic around them on a clock that is told the time, for tests and measurements.
//! No part of the interface: it may change at any time.

use std::fmt;

use redis::{Connection, Value};
use tollgate::algorithm::LimitError;
use tollgate::time::Moment;
use tollgate_policy::shared::{SharedLimit, SharedOutcome, SharedRequest, SharedSettle};

use crate::call::{Call, Which};
use crate::limits::clock::Timing;
use crate::limits::{Group, Limits};
use crate::script::Scripts;

/// Limits on a server, whose clock is told the time if it is to be.
pub struct Desk {
    connection: Connection,
    limits: Limits,
    scripts: Scripts,
    /// Nanoseconds in a unit of the clock, if it is told the time.
    unit: Option<u64>,
    /// By how many nanoseconds the node's clock is ahead of the server's, if that is told the time.
    ahead: i64,
    tag: u64,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Something to be done.
#[derive(Clone, Debug)]
pub enum Op {
    /// A request.
    Charge(SharedRequest),
    /// A correction.
    Settle(SharedSettle),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    /// Of a request: an outcome for each charge, whether the script took them, and whether the core's
    /// arithmetic comes to something else.
    Ruled(Vec<SharedOutcome>, bool, bool),
    /// Of a correction: units that could not be taken.
    Settled(u64),
    /// Of either: the script's error.
    Failed(String),
}

/// What is sent to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The text of the script.
    pub script: String,
    /// Its name in hexadecimal digits.
    pub sha: String,
    /// The names of its keys.
    pub keys: Vec<Vec<u8>>,
    /// Its arguments, not always text, without the number that comes before them.
    pub args: Vec<Vec<u8>>,
}

/// Why a desk could not be had or did not answer.
#[derive(Debug)]
pub struct DeskError(pub String);

impl fmt::Display for DeskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DeskError {}

impl From<redis::RedisError> for DeskError {
    fn from(error: redis::RedisError) -> DeskError {
        DeskError(error.to_string())
    }
}

/// What a reply is to.
enum Asked {
    Group(Group),
    Settle,
    /// A call before the one that decides.
    Before,
}

impl Desk {
    /// Limits at the server on this port of this machine. With a unit, times are told in so many
    /// nanoseconds; without, they are the server's.
    ///
    /// # Errors
    /// No such server, or limits that cannot be enforced on such a clock.
    pub fn connect(
        port: u16,
        prefix: &str,
        unit: Option<u64>,
        limits: &[SharedLimit<'_>],
    ) -> Result<Desk, DeskError> {
        let mut connection =
            redis::Client::open(format!("redis://127.0.0.1:{port}/"))?.get_connection()?;
        let scripts = match unit {
            Some(_) => Scripts::on_a_given_clock(),
            None => Scripts::new(),
        };
        for which in Which::ALL {
            redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(scripts.text(which))
                .query::<String>(&mut connection)?;
        }
        let limits = Desk::limits(prefix, unit, limits)
            .map_err(|(place, error)| DeskError(format!("limit {place}: {error}")))?;
        Ok(Desk {
            connection,
            limits,
            scripts,
            unit,
            ahead: 0,
            tag: 0,
        })
    }

    fn limits(
        prefix: &str,
        unit: Option<u64>,
        limits: &[SharedLimit<'_>],
    ) -> Result<Limits, (usize, LimitError)> {
        Limits::on(prefix, limits, unit.map_or(Timing::SERVER, Timing::given))
    }

    /// Other limits from now on, as when a policy is changed.
    ///
    /// # Errors
    /// Limits that cannot be enforced.
    pub fn change(&mut self, prefix: &str, limits: &[SharedLimit<'_>]) -> Result<(), DeskError> {
        self.limits = Desk::limits(prefix, self.unit, limits)
            .map_err(|(place, error)| DeskError(format!("limit {place}: {error}")))?;
        Ok(())
    }

    /// Does things in order, each at its time (in units), all in one go. Without a unit the times are not
    /// looked at.
    ///
    /// # Errors
    /// The connection broke, or a reply is none.
    pub fn run(&mut self, ops: &[(u64, Op)]) -> Result<Vec<Came>, DeskError> {
        let mut asked = Vec::new();
        let mut packed = Vec::new();
        for (now, op) in ops {
            self.think_it_is(*now);
            match op {
                Op::Charge(request) => {
                    let groups = self.limits.groups(request, false);
                    for mut group in groups {
                        let calls = std::mem::take(&mut group.calls);
                        for (i, call) in calls.iter().enumerate() {
                            self.pack(call, *now, &mut packed);
                            if i + 1 < calls.len() {
                                asked.push(Asked::Before);
                            }
                        }
                        asked.push(Asked::Group(group));
                    }
                }
                Op::Settle(settle) => {
                    for call in self.limits.settle(settle).1 {
                        self.pack(&call, *now, &mut packed);
                        asked.push(Asked::Settle);
                    }
                }
            }
        }
        self.connection.send_packed_command(&packed)?;
        let mut replies = Vec::with_capacity(asked.len());
        for _ in &asked {
            replies.push(self.connection.recv_response());
        }
        let mut came = Vec::with_capacity(ops.len());
        let mut answers = asked.iter().zip(replies);
        for (now, op) in ops {
            self.think_it_is(*now);
            came.push(match op {
                Op::Settle(settle) if settle.taken == settle.used => Came::Settled(0),
                op => {
                    let mut replies = Vec::new();
                    loop {
                        let Some((asked, reply)) = answers.next() else {
                            return Err(DeskError("there is a reply too few".into()));
                        };
                        match (Self::answered(reply), asked) {
                            (Err(error), Asked::Before) => {
                                return Err(DeskError(error));
                            }
                            (Ok(reply), Asked::Before) => replies.push(reply),
                            (Err(error), _) => break Came::Failed(error),
                            (Ok(reply), asked) => {
                                replies.push(reply);
                                break self.came(op, asked, &replies)?;
                            }
                        }
                    }
                }
            });
        }
        Ok(came)
    }

    /// Sets the node's clock apart from the server's, if that is told the time: ahead by so many nanoseconds.
    pub fn set_node_ahead(&mut self, nanos: i64) {
        self.ahead = nanos;
    }

    fn think_it_is(&mut self, now: u64) {
        if let Some(unit) = self.unit {
            let there = now.saturating_mul(unit).saturating_add_signed(self.ahead);
            self.limits.think_it_is(Moment::from_nanos(there));
        }
    }

    fn answered(reply: Result<Value, redis::RedisError>) -> Result<Value, String> {
        match reply {
            Ok(Value::ServerError(error)) => Err(format!("{error:?}")),
            Ok(value) => Ok(value),
            Err(error) => Err(error.to_string()),
        }
    }

    fn came(&self, op: &Op, asked: &Asked, replies: &[Value]) -> Result<Came, DeskError> {
        let told = match (op, asked) {
            (Op::Charge(request), Asked::Group(group)) => self
                .limits
                .read(request, group, replies)
                .map(|ruling| Came::Ruled(ruling.outcomes, ruling.took, ruling.disagrees)),
            _ => self.limits.read_settle(replies).map(Came::Settled),
        };
        told.map_err(|garbled| DeskError(garbled.to_string()))
    }

    fn pack(&mut self, call: &Call, now: u64, to: &mut Vec<u8>) {
        self.tag += 1;
        let mut command = redis::cmd("EVALSHA");
        command
            .arg(self.scripts.sha(call.script))
            .arg(call.keys.len());
        for text in call.keys.iter() {
            command.arg(text);
        }
        command.arg(self.tag);
        for text in call.args.iter() {
            command.arg(text);
        }
        if let Some(unit) = self.unit {
            command.arg(1_000_000_000_u64.div_ceil(unit)).arg(now);
        }
        to.extend_from_slice(&command.get_packed_command());
    }

    /// Charges a request and gives back what that took, as when another server refused its part. Returns
    /// whether anything was taken.
    ///
    /// # Errors
    /// As [`Desk::run`], or a script's error.
    pub fn charge_and_undo(
        &mut self,
        now: u64,
        request: &SharedRequest,
    ) -> Result<bool, DeskError> {
        let mut took = false;
        for group in self.limits.groups(request, true) {
            let mut replies = Vec::new();
            for call in &group.calls {
                replies.push(self.call(call, now)?);
            }
            let ruling = self
                .limits
                .read(request, &group, &replies)
                .map_err(|garbled| DeskError(garbled.to_string()))?;
            took |= ruling.took;
            for call in self.limits.undo(request, &group, &ruling) {
                self.call(&call, now)?;
            }
        }
        Ok(took)
    }

    /// Tells that a node is alive, and returns how many are.
    ///
    /// # Errors
    /// As [`Desk::run`], or a script's error.
    pub fn beat(&mut self, now: u64, node: &str, ttl_ms: u64) -> Result<u32, DeskError> {
        let reply = self.call(&crate::limits::beat("tg", node, ttl_ms), now)?;
        crate::limits::read_beat(&reply).map_err(|garbled| DeskError(garbled.to_string()))
    }

    fn call(&mut self, call: &Call, now: u64) -> Result<Value, DeskError> {
        let mut packed = Vec::new();
        self.pack(call, now, &mut packed);
        self.connection.send_packed_command(&packed)?;
        Self::answered(self.connection.recv_response()).map_err(DeskError)
    }

    /// The commands that decide a request, for other tools.
    pub fn commands(&self, request: &SharedRequest) -> Vec<Command> {
        let groups = self.limits.groups(request, false);
        let command = |call: &Call| Command {
            script: self.scripts.text(call.script).to_owned(),
            sha: self.scripts.sha(call.script).to_owned(),
            keys: call.keys.iter().map(<[u8]>::to_vec).collect(),
            args: call.args.iter().map(<[u8]>::to_vec).collect(),
        };
        let calls = groups.iter().flat_map(|group| &group.calls);
        calls.map(command).collect()
    }

    /// Is every limit counted in units of the clock, none in coarser ones?
    pub fn is_fine(&self) -> bool {
        self.limits.is_fine()
    }

    /// The connection itself.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

/// For measurements.
impl Desk {
    /// The words of the command that decides a request.
    pub fn words(&self, request: &SharedRequest) -> Vec<Vec<u8>> {
        let groups = self.limits.groups(request, false);
        let Some(call) = groups.first().and_then(|group| group.calls.last()) else {
            return Vec::new();
        };
        let mut words = vec![
            b"EVALSHA".to_vec(),
            self.scripts.sha(call.script).as_bytes().to_vec(),
            call.keys.len().to_string().into_bytes(),
        ];
        words.extend(call.keys.iter().map(<[u8]>::to_vec));
        words.push(b"1234567".to_vec());
        words.extend(call.args.iter().map(<[u8]>::to_vec));
        words
    }

    /// Makes another script known, and tells its name.
    ///
    /// # Errors
    /// The server does not take it.
    pub fn load(&mut self, script: &str) -> Result<String, DeskError> {
        let mut load = redis::cmd("SCRIPT");
        Ok(load.arg("LOAD").arg(script).query(&mut self.connection)?)
    }

    /// What the key of a request takes in the server once it is charged, and what a string of eight
    /// letters with the same name and an expiry takes.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn weigh(&mut self, request: &SharedRequest) -> Result<(u64, u64), DeskError> {
        let groups = self.limits.groups(request, false);
        let name = groups.first().and_then(|group| group.calls.last());
        let name = name.and_then(|call| call.keys.iter().next().map(<[u8]>::to_vec));
        let Some(name) = name else {
            return Err(DeskError("the request has no key".into()));
        };
        self.run(&[(0, Op::Charge(request.clone()))])?;
        let mut usage = redis::cmd("MEMORY");
        usage.arg("USAGE").arg(&name).arg("SAMPLES").arg(0);
        let taken = usage.query(&mut self.connection)?;
        let mut set = redis::cmd("SET");
        set.arg(&name).arg("abcdefgh").arg("PX").arg(60_000);
        set.query::<()>(&mut self.connection)?;
        let plain = usage.query(&mut self.connection)?;
        redis::cmd("DEL")
            .arg(&name)
            .query::<()>(&mut self.connection)?;
        Ok((taken, plain))
    }
}
