//! The scripts and the arithmetic around them on a manual clock, for tests and measurements.
//! Not part of the public interface: it may change at any time.

use std::fmt;

use redis::{Connection, Value};
use tollgate::LimitError;
use tollgate::Moment;
use tollgate_policy::shared::{SharedLimit, SharedOutcome, SharedRequest, SharedSettle};

use crate::limits::clock::ScriptClock;
use crate::limits::fleet::{heartbeat_call, read_heartbeat};
use crate::limits::{BadReply, ChargeGroup, GroupReply, LimitSet};
use crate::script::Scripts;
use crate::script_call::{ScriptCall, ScriptName};

/// Limits on a server, on the server's clock or on a manual one.
pub struct ScriptClient {
    connection: Connection,
    limits: LimitSet,
    scripts: Scripts,
    /// Nanoseconds in a unit of a manual clock.
    unit: Option<u64>,
    /// Nanoseconds by which the node's clock is ahead of a manual clock.
    ahead: i64,
    number: u64,
}

impl fmt::Debug for ScriptClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptClient")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// An operation on the limits.
#[derive(Clone, Debug)]
pub enum ScriptOp {
    /// Charges a request.
    Charge(SharedRequest),
    /// Settles a charge.
    Settle(SharedSettle),
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptOpResult {
    /// Of a request: an outcome for each charge, whether the script took them, and whether the core's arithmetic disagrees.
    Charged(Vec<SharedOutcome>, bool, bool),
    /// Of a settlement: units without room.
    Settled(u64),
    /// Of either: the script's error.
    Failed(String),
}

/// A script with its keys and arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptCommand {
    /// The text of the script.
    pub script: String,
    /// Its hash in hexadecimal digits.
    pub sha: String,
    /// The names of its keys.
    pub keys: Vec<Vec<u8>>,
    /// Its arguments, not always text, without the number of the call.
    pub args: Vec<Vec<u8>>,
}

/// Why a client could not connect or got no reply.
#[derive(Debug)]
pub struct ScriptClientError(pub String);

impl fmt::Display for ScriptClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScriptClientError {}

impl From<redis::RedisError> for ScriptClientError {
    fn from(error: redis::RedisError) -> ScriptClientError {
        ScriptClientError(error.to_string())
    }
}

impl From<BadReply> for ScriptClientError {
    fn from(error: BadReply) -> ScriptClientError {
        ScriptClientError(error.to_string())
    }
}

impl From<(usize, LimitError)> for ScriptClientError {
    fn from((place, error): (usize, LimitError)) -> ScriptClientError {
        ScriptClientError(format!("limit {place}: {error}"))
    }
}

impl ScriptClient {
    /// Limits at the server on this port of this machine. With a unit, the clock is manual and counts in this many nanoseconds;
    /// without, it is the server's.
    ///
    /// # Errors
    /// No such server, or limits that cannot be enforced on such a clock.
    pub fn connect(
        port: u16,
        prefix: &str,
        unit: Option<u64>,
        limits: &[SharedLimit<'_>],
    ) -> Result<ScriptClient, ScriptClientError> {
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}/"))?;
        let mut connection = client.get_connection()?;
        let scripts = match unit {
            Some(_) => Scripts::with_manual_clock(),
            None => Scripts::new(),
        };
        for script in ScriptName::ALL {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(scripts.text(script));
            load.query::<String>(&mut connection)?;
        }
        let clock = unit.map_or(ScriptClock::SERVER, ScriptClock::manual);
        Ok(ScriptClient {
            connection,
            limits: LimitSet::with_clock(prefix, limits, clock)?,
            scripts,
            unit,
            ahead: 0,
            number: 0,
        })
    }

    /// Replaces the limits, like a reload of a policy.
    ///
    /// # Errors
    /// Limits that cannot be enforced.
    pub fn reload(
        &mut self,
        prefix: &str,
        limits: &[SharedLimit<'_>],
    ) -> Result<(), ScriptClientError> {
        let clock = self.unit.map_or(ScriptClock::SERVER, ScriptClock::manual);
        self.limits = LimitSet::with_clock(prefix, limits, clock)?;
        Ok(())
    }

    /// Sets the node's clock ahead of a manual clock by this many nanoseconds.
    pub fn set_node_ahead(&mut self, nanos: i64) {
        self.ahead = nanos;
    }

    /// Runs operations in order in one batch, each at its time (in units). The server's clock ignores the times.
    ///
    /// # Errors
    /// The connection broke, or a reply does not match its call.
    pub fn run(
        &mut self,
        ops: &[(u64, ScriptOp)],
    ) -> Result<Vec<ScriptOpResult>, ScriptClientError> {
        let mut sent = Vec::with_capacity(ops.len());
        let mut packed = Vec::new();
        for (now, op) in ops {
            self.set_node_time(*now);
            let (group, calls) = match op {
                ScriptOp::Charge(request) => {
                    let mut group = self.limits.groups(request, false).remove(0);
                    let calls = std::mem::take(&mut group.calls);
                    (Some(group), calls)
                }
                ScriptOp::Settle(settle) => (None, self.limits.settle(settle).1),
            };
            for call in &calls {
                let command = self.command(call, *now);
                packed.extend_from_slice(&command);
            }
            sent.push((group, calls.len()));
        }
        self.connection.send_packed_command(&packed)?;
        let count = sent.iter().map(|(_, calls)| calls).sum();
        // All replies are read before an error ends the batch.
        let replies: Vec<_> = (0..count).map(|_| self.reply()).collect();
        let mut replies = replies.into_iter();
        let mut results = Vec::with_capacity(ops.len());
        for ((now, op), (group, calls)) in ops.iter().zip(sent) {
            self.set_node_time(*now);
            let own: Vec<_> = replies.by_ref().take(calls).collect();
            let own: Result<Vec<Value>, String> = own.into_iter().collect();
            results.push(match (op, group, own) {
                (_, _, Err(error)) => ScriptOpResult::Failed(error),
                (ScriptOp::Charge(request), Some(group), Ok(replies)) => {
                    let reply = self.limits.read(request, &group, &replies)?;
                    ScriptOpResult::Charged(reply.outcomes, reply.took, reply.disagrees)
                }
                (_, _, Ok(replies)) => ScriptOpResult::Settled(self.limits.read_settle(&replies)?),
            });
        }
        Ok(results)
    }

    fn set_node_time(&mut self, now: u64) {
        if let Some(unit) = self.unit {
            let nanos = now.saturating_mul(unit).saturating_add_signed(self.ahead);
            self.limits.set_node_time(Moment::from_nanos(nanos));
        }
    }

    fn command(&mut self, call: &ScriptCall, now: u64) -> Vec<u8> {
        self.number += 1;
        let mut command = call.command(&self.scripts, self.number, false);
        if let Some(unit) = self.unit {
            command.arg(1_000_000_000_u64.div_ceil(unit)).arg(now);
        }
        command.get_packed_command()
    }

    fn reply(&mut self) -> Result<Value, String> {
        match self.connection.recv_response() {
            Ok(Value::ServerError(error)) => Err(format!("{error:?}")),
            Ok(value) => Ok(value),
            Err(error) => Err(error.to_string()),
        }
    }

    fn call(&mut self, call: &ScriptCall, now: u64) -> Result<Value, ScriptClientError> {
        let command = self.command(call, now);
        self.connection.send_packed_command(&command)?;
        self.reply().map_err(ScriptClientError)
    }

    fn charge_group(
        &mut self,
        now: u64,
        request: &SharedRequest,
        group: &ChargeGroup,
    ) -> Result<GroupReply, ScriptClientError> {
        let calls = group.calls.iter();
        let replies: Result<Vec<Value>, _> = calls.map(|call| self.call(call, now)).collect();
        Ok(self.limits.read(request, group, &replies?)?)
    }

    /// Charges a request and refunds it, as when another server refused its part. Returns whether anything was taken.
    ///
    /// # Errors
    /// As [`ScriptClient::run`], or a script's error.
    pub fn charge_and_refund(
        &mut self,
        now: u64,
        request: &SharedRequest,
    ) -> Result<bool, ScriptClientError> {
        let mut took = false;
        for group in self.limits.groups(request, true) {
            let reply = self.charge_group(now, request, &group)?;
            took |= reply.took;
            for call in self.limits.refunds(request, &group, &reply) {
                self.call(&call, now)?;
            }
        }
        Ok(took)
    }

    /// Reports that a node is alive, and returns how many are.
    ///
    /// # Errors
    /// As [`ScriptClient::run`], or a script's error.
    pub fn heartbeat(
        &mut self,
        now: u64,
        node: &str,
        ttl_ms: u64,
    ) -> Result<u32, ScriptClientError> {
        let secret = "0f".repeat(32);
        let reply = self.call(&heartbeat_call("tg", node, ttl_ms, &secret), now)?;
        Ok(read_heartbeat(&reply)?.nodes)
    }

    /// The commands that decide a request, for other tools.
    pub fn commands(&self, request: &SharedRequest) -> Vec<ScriptCommand> {
        let groups = self.limits.groups(request, false);
        let command = |call: &ScriptCall| ScriptCommand {
            script: self.scripts.text(call.script).to_owned(),
            sha: self.scripts.sha(call.script).to_owned(),
            keys: call.keys.iter().map(<[u8]>::to_vec).collect(),
            args: call.args.iter().map(<[u8]>::to_vec).collect(),
        };
        let calls = groups.iter().flat_map(|group| &group.calls);
        calls.map(command).collect()
    }

    /// The encoded command that decides a request.
    pub fn encoded(&self, request: &SharedRequest) -> Vec<u8> {
        let groups = self.limits.groups(request, false);
        let call = groups.first().and_then(|group| group.calls.last());
        call.map_or_else(Vec::new, |call| {
            let command = call.command(&self.scripts, 1_234_567, false);
            command.get_packed_command()
        })
    }

    /// Whether every limit counts in units of the clock, none in coarser ones.
    pub fn is_fine(&self) -> bool {
        self.limits.is_fine()
    }

    /// The connection.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }
}
