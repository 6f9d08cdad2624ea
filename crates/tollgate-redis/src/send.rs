//! Calls to whoever serves their slot, followed where servers say that it is served now.
//!
//! # Invariant
//!
//! A call that ran, or may have run, is not sent again. What a server says it did not run is sent on, at most
//! [`REDIRECTS`] times and within the deadline.

use std::fmt;
use std::sync::Arc;

use redis::Value;
use tokio::time::Instant;
use tollgate_policy::shared::{FaultKind, StoreFault};

use crate::call::Call;
use crate::fault::Meaning;
use crate::link::access::Address;
use crate::link::{Link, Reply};
use crate::report::count;
use crate::store::Desk;

/// How often calls are sent on.
const REDIRECTS: u32 = 5;

/// Why there are no answers.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// There is none.
    Fault(StoreFault),
    /// Keys of one call are in two places: it did not run, and its parts may be sent by themselves. Those at the places `ran`
    /// did run, and are not to be sent again.
    Split {
        /// Places among the calls.
        ran: Vec<usize>,
    },
}

impl fmt::Display for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsent::Fault(fault) => fault.fmt(f),
            Unsent::Split { .. } => f.write_str("the keys of a call are in two places"),
        }
    }
}

impl From<StoreFault> for Unsent {
    fn from(fault: StoreFault) -> Unsent {
        Unsent::Fault(fault)
    }
}

impl Desk {
    /// Runs calls whose keys are all in this slot, in order, and returns what each script gave back.
    pub(crate) async fn send(
        &self,
        slot: u16,
        calls: &[Call],
        deadline: Instant,
    ) -> Result<Vec<Value>, Unsent> {
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        let mut answers: Vec<Option<Value>> = calls.iter().map(|_| None).collect();
        let mut link = self.routes.link(slot)?;
        let (mut asking, mut sent_on, mut was_demoted) = (false, 0, false);
        loop {
            let (places, left): (Vec<usize>, Vec<&Call>) = calls
                .iter()
                .enumerate()
                .filter(|(place, _)| matches!(answers.get(*place), Some(None)))
                .unzip();
            let generation = link.generation();
            let mut instead = None;
            for (place, reply) in places
                .into_iter()
                .zip(link.run(&left, asking, deadline).await?)
            {
                match (reply, answers.get_mut(place)) {
                    (Reply::Ran(value), Some(answer)) => *answer = Some(value),
                    // Calls of one slot are refused for the same reason: the first is followed.
                    (Reply::NotRun(meaning), _) if instead.is_none() => instead = Some(meaning),
                    _ => {}
                }
            }
            let Some(meaning) = instead else {
                return Ok(answers.into_iter().flatten().collect());
            };
            if meaning == Meaning::TryAgain {
                let ran =
                    (0..answers.len()).filter(|place| matches!(answers.get(*place), Some(Some(_))));
                return Err(Unsent::Split { ran: ran.collect() });
            }
            sent_on += 1;
            if meaning == Meaning::ReadOnly && std::mem::replace(&mut was_demoted, true) {
                let words = format!("{} is no primary either", link.address());
                return Err(StoreFault::new(FaultKind::Unable, words).into());
            }
            if sent_on > REDIRECTS {
                let words = format!("slot {slot} was sent on more than {REDIRECTS} times");
                return Err(StoreFault::new(FaultKind::Unable, words).into());
            }
            asking = matches!(meaning, Meaning::Ask(_));
            if asking || matches!(meaning, Meaning::Moved(_)) {
                count(&self.context.counters.redirects);
            }
            link = self
                .follow(meaning, slot, &link, generation, deadline)
                .await?;
        }
    }

    async fn follow(
        &self,
        meaning: Meaning,
        slot: u16,
        from: &Arc<Link>,
        generation: Option<u64>,
        deadline: Instant,
    ) -> Result<Arc<Link>, Unsent> {
        let unable = |words: String| Unsent::Fault(StoreFault::new(FaultKind::Unable, words));
        let too_many = || unable("the servers name more servers than a cluster has".into());
        match meaning {
            Meaning::Moved(to) => {
                if !self.routes.by_slot() {
                    let about = from.address().to_string();
                    let words = "it is part of a cluster: say so in the settings of the store";
                    self.context.warnings.mention("is-cluster", &about, words);
                    return Err(StoreFault::new(FaultKind::Refused, words).into());
                }
                let address = Address::or_host_of(&to.host, to.port, from.address());
                let link = self.routes.moved(to.slot, &address).ok_or_else(too_many)?;
                link.first_up(deadline).await;
                Ok(link)
            }
            Meaning::Ask(to) => {
                let address = Address::or_host_of(&to.host, to.port, from.address());
                let link = self.routes.named(&address).ok_or_else(too_many)?;
                link.first_up(deadline).await;
                Ok(link)
            }
            Meaning::TryAgain => Err(unable("its keys are in two places".into())),
            Meaning::ReadOnly => {
                self.context.look_again.notify_one();
                let other = self.routes.other(slot, from, generation, deadline).await;
                other.ok_or_else(|| unable(format!("{} is no primary any more", from.address())))
            }
            Meaning::NoScript => {
                let words = format!(
                    "{} does not know a script that it was sent whole",
                    from.address()
                );
                Err(unable(words))
            }
            Meaning::Fault(fault) => {
                Err(StoreFault::new(fault.kind, "a fault that was not noticed").into())
            }
        }
    }
}
