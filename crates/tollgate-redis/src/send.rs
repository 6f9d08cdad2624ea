//! Sends calls to the server of their slot and follows redirects.
//!
//! # Invariant
//!
//! A call that ran, or may have run, is not sent again. A call that a server reports as not run is redirected, at most
//! [`REDIRECTS_MAX`] times and within the deadline.

use std::fmt;
use std::sync::Arc;

use redis::Value;
use tokio::time::Instant;
use tollgate_policy::shared::{FaultKind, StoreFault};

use crate::error_action::ErrorAction;
use crate::link::connector::Address;
use crate::link::{CallResult, Link};
use crate::report::count;
use crate::script_call::ScriptCall;
use crate::store::StoreInner;

/// Redirects of one request.
const REDIRECTS_MAX: u32 = 5;

/// Why calls have no replies.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The store failed.
    Fault(StoreFault),
    /// The keys of one call are on two servers: it did not run, and its charges may be sent one by one.
    SplitKeys {
        /// Places of the calls that did run: they must not be sent again.
        ran: Vec<usize>,
    },
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::Fault(fault) => fault.fmt(f),
            SendError::SplitKeys { .. } => f.write_str("the keys of a call are on two servers"),
        }
    }
}

impl From<StoreFault> for SendError {
    fn from(fault: StoreFault) -> SendError {
        SendError::Fault(fault)
    }
}

fn unable(message: impl Into<String>) -> StoreFault {
    StoreFault::new(FaultKind::Unable, message.into())
}

impl StoreInner {
    /// Runs calls whose keys are all in this slot, in order, and returns the reply of each.
    pub(crate) async fn send(
        &self,
        slot: u16,
        calls: &[ScriptCall],
        deadline: Instant,
    ) -> Result<Vec<Value>, SendError> {
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        let mut replies: Vec<Option<Value>> = calls.iter().map(|_| None).collect();
        let mut link = self.routes.link(slot)?;
        let (mut asking, mut redirects, mut was_demoted) = (false, 0, false);
        loop {
            let (places, left): (Vec<usize>, Vec<&ScriptCall>) = calls
                .iter()
                .enumerate()
                .filter(|(place, _)| matches!(replies.get(*place), Some(None)))
                .unzip();
            let generation = link.generation();
            let mut action = None;
            let results = link.run(&left, asking, deadline).await?;
            for (place, result) in places.into_iter().zip(results) {
                match (result, replies.get_mut(place)) {
                    (CallResult::Ran(value), Some(reply)) => *reply = Some(value),
                    // All calls of a slot are rejected for the same reason: the first decides.
                    (CallResult::NotRun(reason), _) if action.is_none() => action = Some(reason),
                    _ => {}
                }
            }
            let Some(action) = action else {
                return Ok(replies.into_iter().flatten().collect());
            };
            if action == ErrorAction::SplitKeys {
                let ran = |place: &usize| matches!(replies.get(*place), Some(Some(_)));
                let ran = (0..replies.len()).filter(ran).collect();
                return Err(SendError::SplitKeys { ran });
            }
            redirects += 1;
            if action == ErrorAction::FindPrimary && std::mem::replace(&mut was_demoted, true) {
                return Err(unable(format!("{} is a replica too", link.address())).into());
            }
            if redirects > REDIRECTS_MAX {
                let message = format!("slot {slot}: more than {REDIRECTS_MAX} redirects");
                return Err(unable(message).into());
            }
            asking = matches!(action, ErrorAction::Ask(_));
            if asking || matches!(action, ErrorAction::Moved(_)) {
                count(&self.context.counters.redirects);
            }
            link = self
                .follow(action, slot, &link, generation, deadline)
                .await?;
        }
    }

    /// The link to send to instead.
    async fn follow(
        &self,
        action: ErrorAction,
        slot: u16,
        from: &Arc<Link>,
        generation: Option<u64>,
        deadline: Instant,
    ) -> Result<Arc<Link>, StoreFault> {
        let link = match action {
            ErrorAction::Moved(_) if !self.routes.by_slot() => {
                let message = "it is part of a cluster: configure the store as a cluster";
                let server = from.address().to_string();
                let warnings = &self.context.warnings;
                warnings.raise_briefly("is-cluster", &server, message);
                return Err(StoreFault::new(FaultKind::Refused, message));
            }
            ErrorAction::Moved(to) => {
                let address = Address::with_default_host(&to.host, to.port, from.address());
                self.routes.moved(to.slot, &address)
            }
            ErrorAction::Ask(to) => {
                let address = Address::with_default_host(&to.host, to.port, from.address());
                self.routes.link_to(&address)
            }
            ErrorAction::FindPrimary => {
                self.context.topology_changed.notify_one();
                let other = self.routes.other(slot, from, generation, deadline).await;
                let gone = || unable(format!("{} is no longer the primary", from.address()));
                return other.ok_or_else(gone);
            }
            ErrorAction::SplitKeys => return Err(unable("its keys are on two servers")),
            ErrorAction::SendScript => {
                let server = from.address();
                return Err(unable(format!("{server} rejects a script sent as a whole")));
            }
            ErrorAction::Fail(fault) => {
                return Err(StoreFault::new(fault.kind, "the server reported an error"));
            }
        };
        let link = link.ok_or_else(|| unable("redirects name more servers than a cluster has"))?;
        link.first_connection(deadline).await;
        Ok(link)
    }
}
