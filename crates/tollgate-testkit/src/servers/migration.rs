//! The migration of a slot from one primary to another, step by step.
//!
//! # Theory
//!
//! While a slot moves, its keys are on two servers. The old primary serves the keys that it still has and redirects the others to
//! the new one (`ASK`); a command on keys of both kinds is rejected (`TRYAGAIN`). The new primary serves the slot only after
//! `ASKING`, until it owns the slot.

use std::time::Duration;

use redis::Value;

use super::{Cluster, Server};
use crate::HOST;
use crate::error::{Error, Result};
use crate::wait::{Check, wait_for};

/// Keys that are moved at once.
const BATCH: usize = 100;
/// Timeout of one batch, for the servers.
const MIGRATE_TIMEOUT_MS: &str = "2000";
/// Timeout until all nodes know the new owner.
const DEADLINE: Duration = Duration::from_secs(15);

/// A slot that moves. Dropped before the end, it stays half moved.
#[derive(Debug)]
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: usize,
    to: usize,
}

impl<'a> Migration<'a> {
    pub(super) fn new(cluster: &'a Cluster, slot: u16, from: usize, to: usize) -> Result<Self> {
        let owner = cluster.owner(slot, from)?;
        if owner != from || from == to {
            return Err(Error::Invalid(format!(
                "slot {slot} cannot move from node {from} to node {to}: node {owner} owns it"
            )));
        }
        cluster.node(to)?;
        Ok(Migration {
            cluster,
            slot,
            from,
            to,
        })
    }

    /// All steps.
    pub fn run(self) -> Result<()> {
        self.begin()?;
        while self.move_some(BATCH)? > 0 {}
        self.finish()
    }

    /// Starts the migration on both primaries. Keys stay where they are; new ones go to the new primary.
    pub fn begin(&self) -> Result<()> {
        // The receiver first: the sender must not redirect before the receiver is ready.
        self.set_slot(
            self.receiver()?,
            &["IMPORTING", self.cluster.id(self.from)?],
        )?;
        self.set_slot(self.sender()?, &["MIGRATING", self.cluster.id(self.to)?])
    }

    /// Moves up to `keys` keys and returns how many. Each of them is on exactly one server all the time.
    pub fn move_some(&self, keys: usize) -> Result<usize> {
        let (slot, count) = (self.slot.to_string(), keys.to_string());
        let found = self
            .sender()?
            .ask(&["CLUSTER", "GETKEYSINSLOT", &slot, &count])?;
        let names: Vec<Vec<u8>> = match found {
            Value::Array(values) => values.into_iter().filter_map(name).collect(),
            _ => Vec::new(),
        };
        if names.is_empty() {
            return Ok(0);
        }
        self.move_keys(&names)?;
        Ok(names.len())
    }

    /// Moves these keys.
    pub fn move_keys<K: AsRef<[u8]>>(&self, names: &[K]) -> Result<()> {
        let port = self.receiver()?.port().to_string();
        let head = ["MIGRATE", HOST, &port, "", "0", MIGRATE_TIMEOUT_MS, "KEYS"];
        let mut command: Vec<&[u8]> = head.iter().map(|word| word.as_bytes()).collect();
        command.extend(names.iter().map(AsRef::as_ref));
        self.sender()?.ask(&command).map(drop)
    }

    /// Assigns the slot to the new primary on all primaries, and waits until every running node knows the owner and all epochs: then
    /// no old message can undo it. It is an error if keys were not moved.
    pub fn finish(self) -> Result<()> {
        let new = ["NODE", self.cluster.id(self.to)?];
        self.set_slot(self.receiver()?, &new)?;
        self.set_slot(self.sender()?, &new)?;
        for number in self.cluster.primaries_seen_by(self.to)? {
            if number != self.to && number != self.from {
                self.set_slot(self.cluster.node(number)?, &new)?;
            }
        }
        let log = || self.cluster.logs();
        wait_for("all know the new owner", DEADLINE, log, || {
            for (number, node) in self.cluster.nodes().iter().enumerate() {
                if node.pid().is_some() && self.cluster.owner(self.slot, number)? != self.to {
                    return Ok(Check::Pending(format!("node {number} does not")));
                }
            }
            if let Some(disagreement) = self.cluster.disagreement()? {
                return Ok(Check::Pending(disagreement));
            }
            Ok(Check::Ready(()))
        })
    }

    fn set_slot(&self, node: &Server, what: &[&str]) -> Result<()> {
        let slot = self.slot.to_string();
        let mut question = vec!["CLUSTER", "SETSLOT", &slot];
        question.extend(what);
        node.ask(&question).map(drop)
    }

    fn sender(&self) -> Result<&Server> {
        self.cluster.node(self.from)
    }

    fn receiver(&self) -> Result<&Server> {
        self.cluster.node(self.to)
    }
}

fn name(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(name) => Some(name),
        _ => None,
    }
}
