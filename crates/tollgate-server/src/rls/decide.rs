//! From a request to its answer.
//!
//! # Theory
//!
//! The descriptors of a request are one decision: those that take are charged all or none, so a request that is
//! refused has cost nothing. Those that only ask go first, because what they find may refuse the request, and
//! then the others must not be charged either. Those that give back come last, and only if the request
//! passes.
//!
//! # Limits that come along
//!
//! A descriptor may bring a limit. Where the policy follows that, it stands in place of the policy's own limits
//! for this descriptor and is part of the same decision; elsewhere, or if its unit is not known, it is counted
//! and the policy decides.
//!
//! # Deadline
//!
//! Whoever sets `grpc-timeout` does not read what comes later. A store that a fleet shares is waited for until
//! a moment before; then the policy's `on_store_error` decides.

use std::sync::Arc;

use tokio::time::{Duration, Instant, sleep_until};
use tollgate_policy::fields::{Field, fields};
use tollgate_policy::{Answer, Facts, Op, Part, RefundOnDrop, Settlement};

use super::Limits;
use super::ask::{self, Wish};
use super::messages::{
    Code, DescriptorStatus, HeaderValue, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
};
use super::status::{Done, status};
use crate::engine::Epoch;
use crate::metrics::Rls;

/// What is left of a deadline for writing the answer.
const TO_WRITE: Duration = Duration::from_millis(1);

/// Some descriptors of a request, and their common answer.
struct Group {
    /// The descriptors, by their places.
    places: Vec<usize>,
    answer: Answer,
    parts: Vec<Part>,
    op: Op,
}

impl Limits {
    /// Decides. `until` is when the caller stops waiting.
    pub(super) async fn decide(
        &self,
        request: RateLimitRequest,
        until: Option<Instant>,
    ) -> RateLimitResponse {
        let epoch = self.source.epoch_for_long();
        let gate = &epoch.gate;
        let until = until.map(|until| until.checked_sub(TO_WRITE).unwrap_or(until));
        let wishes = request.descriptors.iter().map(|d| Wish::of(&request, d));
        let wishes: Vec<Wish> = wishes.collect();
        let those = |is: fn(&Wish) -> bool| -> Vec<usize> {
            let numbered = wishes.iter().enumerate();
            numbered.filter(|(_, w)| is(w)).map(|(at, _)| at).collect()
        };
        let follows = gate.follows(&request.domain);
        let is_ignored = |descriptor: &&RateLimitDescriptor| {
            descriptor.limit.is_some() && !(follows && ask::brought(descriptor).is_some())
        };
        let ignored = request.descriptors.iter().filter(is_ignored).count();
        let ignored = u64::try_from(ignored).unwrap_or(u64::MAX);
        self.source.count_rls(Rls::OverrideIgnored, ignored);

        let mut groups = Vec::new();
        let peeks = those(|wish| *wish == Wish::Peek);
        let mut passes = true;
        if !peeks.is_empty() {
            let peeked = self.decide_group(&epoch, &request, &wishes, peeks, Op::Test, until);
            let peeked = peeked.await;
            passes = peeked.answer.is_admitted();
            groups.push(peeked);
        }
        let backs = those(|wish| matches!(wish, Wish::GiveBack(_)));
        let takes = those(|wish| matches!(wish, Wish::Take(_)));
        // A caller that leaves while something is given back has taken nothing.
        let mut refund = None;
        if !takes.is_empty() {
            let op = if passes { Op::Charge } else { Op::Peek };
            let taken = self.decide_group(&epoch, &request, &wishes, takes, op, until);
            let taken = taken.await;
            passes = passes && taken.answer.is_admitted();
            if !backs.is_empty() && op == Op::Charge {
                refund = Some(RefundOnDrop::new(&self.source, gate, &taken.answer));
            }
            groups.push(taken);
        }
        if !backs.is_empty() {
            let given = self.decide_group(&epoch, &request, &wishes, backs, Op::Peek, until);
            let given = given.await;
            if passes {
                let back = gate.give_back(&given.answer);
                if back.is_shared() {
                    tokio::select! {
                        biased;
                        _ = back.settle_everywhere(Settlement::Cancelled) => {}
                        () = over(until) => {}
                    }
                } else {
                    back.settle(Settlement::Cancelled);
                }
            }
            groups.push(given);
        }
        if let Some(refund) = refund {
            refund.keep();
        }
        let is_free = |part: &Part| part.charges.is_empty() && part.ended.is_none();
        let all_free = groups.iter().all(|group| group.parts.iter().all(is_free));
        if all_free && !self.domains.are_known(&epoch, &request.domain) {
            self.source.count_rls(Rls::UnknownDomain, 1);
        }
        answered(&epoch, &wishes, &groups, passes)
    }

    /// Decides these descriptors together.
    async fn decide_group(
        &self,
        policy: &Arc<Epoch>,
        request: &RateLimitRequest,
        wishes: &[Wish],
        places: Vec<usize>,
        op: Op,
        until: Option<Instant>,
    ) -> Group {
        let deadline = until.map(Instant::into_std);
        let (decide, parts) = with_facts(request, wishes, &places, |facts| {
            self.source.decide_together(policy, facts, op, deadline)
        });
        Group {
            places,
            answer: decide.resolve().await,
            parts,
            op,
        }
    }
}

async fn over(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// The facts of these descriptors.
fn with_facts<R>(
    request: &RateLimitRequest,
    wishes: &[Wish],
    places: &[usize],
    f: impl FnOnce(&[Facts<'_>]) -> R,
) -> R {
    let entries = places.iter().map(|at| {
        let descriptor = request.descriptors.get(*at);
        let entries = descriptor.map_or(&[][..], |d| &d.entries).iter();
        let pairs = entries.map(|entry| (entry.key.as_str(), entry.value.as_str()));
        pairs.collect::<Vec<_>>()
    });
    let entries: Vec<_> = entries.collect();
    let facts = entries.iter().zip(places).map(|(entries, at)| Facts {
        domain: &request.domain,
        descriptor: entries,
        cost: wishes.get(*at).map(|wish| wish.cost()),
        brought: request.descriptors.get(*at).and_then(ask::brought),
        ..Facts::default()
    });
    f(&facts.collect::<Vec<_>>())
}

fn answered(epoch: &Epoch, wishes: &[Wish], groups: &[Group], passes: bool) -> RateLimitResponse {
    let gate = &epoch.gate;
    let mut statuses = vec![DescriptorStatus::default(); wishes.len()];
    for group in groups {
        for (part, place) in group.parts.iter().zip(&group.places) {
            let Some(told) = statuses.get_mut(*place) else {
                continue;
            };
            let done = match wishes.get(*place) {
                Some(Wish::GiveBack(_)) => Done::GivenBack,
                _ if group.op == Op::Charge => Done::Taken,
                _ => Done::Asked,
            };
            *told = status(gate, &group.answer, part, done);
        }
    }
    // Whatever refuses is told; of a request that passes, what was taken.
    let told = groups.iter().find(|group| match passes {
        true => group.op == Op::Charge,
        false => !group.answer.is_admitted(),
    });
    RateLimitResponse {
        overall_code: match passes {
            true => Code::Ok.into(),
            false => Code::OverLimit.into(),
        },
        statuses,
        response_headers_to_add: told.map_or_else(Vec::new, |group| headers(epoch, &group.answer)),
    }
}

/// What the client is told by us. `X-RateLimit-*` are left to Envoy, which makes them of the statuses.
fn headers(epoch: &Epoch, answer: &Answer) -> Vec<HeaderValue> {
    let (mut text, mut parts) = (String::new(), Vec::new());
    fields(&epoch.gate, answer, &mut text, &mut |field, part| {
        parts.push((field, part));
    });
    let is_ours =
        |(field, _): &(Field, _)| !matches!(field, Field::Limit | Field::Remaining | Field::Reset);
    let told = parts.into_iter().filter(is_ours);
    told.filter_map(|(field, part)| {
        Some(HeaderValue {
            key: field.name().to_owned(),
            value: text.get(part)?.to_owned(),
        })
    })
    .collect()
}
