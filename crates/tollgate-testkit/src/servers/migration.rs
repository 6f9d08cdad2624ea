//! A slot on its way from one primary to another, step by step.
//!
//! # Theory
//!
//! While a slot moves, its keys are in two places. The old primary serves the keys that it still has and sends
//! for the others to the new one (`ASK`); a question about keys of both kinds is refused (`TRYAGAIN`). The new
//! primary serves the slot only to those who say `ASKING`, until it is told that the slot is its own.

use std::time::Duration;

use redis::Value;

use super::{Cluster, Server};
use crate::HOST;
use crate::error::{Error, Result};
use crate::wait::{Check, wait_for};

/// How many keys go at once when all shall go.
const BATCH: usize = 100;
/// How long one batch may take, as the servers are told.
const MIGRATE_TIMEOUT_MS: &str = "2000";
/// How long all nodes may take to learn of the new owner.
const DEADLINE: Duration = Duration::from_secs(15);

/// A slot that moves. Dropped in the middle, it stays in the middle.
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
                "slot {slot} cannot move from node {from} to node {to}: node {owner} has it"
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
        while self.carry(BATCH)? > 0 {}
        self.finish()
    }

    /// Tells both that the slot is on its way. Keys stay where they are; new ones go to the new primary.
    pub fn begin(&self) -> Result<()> {
        // The receiver first: the sender must not send anybody to who does not know yet.
        self.set_slot(
            self.receiver()?,
            &["IMPORTING", self.cluster.id(self.from)?],
        )?;
        self.set_slot(self.sender()?, &["MIGRATING", self.cluster.id(self.to)?])
    }

    /// Carries up to `keys` keys and says how many went. Each of them is in exactly one place all the time.
    pub fn carry(&self, keys: usize) -> Result<usize> {
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
        self.carry_keys(&names)?;
        Ok(names.len())
    }

    /// Carries these keys.
    pub fn carry_keys<K: AsRef<[u8]>>(&self, names: &[K]) -> Result<()> {
        let port = self.receiver()?.port().to_string();
        let head = ["MIGRATE", HOST, &port, "", "0", MIGRATE_TIMEOUT_MS, "KEYS"];
        let mut question: Vec<&[u8]> = head.iter().map(|word| word.as_bytes()).collect();
        question.extend(names.iter().map(AsRef::as_ref));
        self.sender()?.ask(&question).map(drop)
    }

    /// Tells all primaries that the slot belongs to the new one, and waits until every living node knows, and knows
    /// everybody's epoch: then no old news can undo it. Keys that were not carried make this an error.
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
            if let Some(about) = self.cluster.disagreement()? {
                return Ok(Check::Pending(about));
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
