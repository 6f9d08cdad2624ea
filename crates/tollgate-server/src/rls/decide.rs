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
use tollgate::policy::fields::{Field, fields};
use tollgate::policy::{Answer, Basis, Begun, Facts, Part, Settlement};
use tollgate::{Clock, Moment};

use super::Limits;
use super::ask::{self, Wish};
use super::messages::{
    Code, DescriptorStatus, HeaderValue, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
};
use super::status::{Done, status};
use crate::engine::{Door, Epoch, carry};
use crate::metrics::Rls;

/// What is left of a deadline for writing the answer.
const TO_WRITE: Duration = Duration::from_millis(1);

/// Some descriptors of a request, and their common answer.
struct Group {
    /// The descriptors, by their places.
    places: Vec<usize>,
    answer: Answer,
    parts: Vec<Part>,
    take: bool,
}

impl Limits {
    /// Decides. `until` is when the caller stops waiting.
    pub(super) async fn decide(
        &self,
        request: RateLimitRequest,
        until: Option<Instant>,
    ) -> RateLimitResponse {
        let epoch = self.engine.epoch_for_long();
        let gate = &epoch.gate;
        let before = gate.clock().now();
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
        self.engine.count_rls(Rls::OverrideIgnored, ignored);

        let mut groups = Vec::new();
        let peeks = those(|wish| *wish == Wish::Peek);
        let mut passes = true;
        if !peeks.is_empty() {
            let peeked = decided(&epoch, &request, &wishes, peeks, false, until).await;
            passes = peeked.answer.is_admitted();
            groups.push(peeked);
        }
        let takes = those(|wish| matches!(wish, Wish::Take(_)));
        if !takes.is_empty() {
            let taken = decided(&epoch, &request, &wishes, takes, passes, until).await;
            passes = passes && taken.answer.is_admitted();
            groups.push(taken);
        }
        let backs = those(|wish| matches!(wish, Wish::GiveBack(_)));
        if !backs.is_empty() {
            let given = decided(&epoch, &request, &wishes, backs, false, until).await;
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
        self.observe(&epoch, &request, &wishes, &groups, before);
        answered(&epoch, &wishes, &groups, passes)
    }

    /// Counts what was decided, as other doors do: what was only asked is not.
    fn observe(
        &self,
        epoch: &Epoch,
        request: &RateLimitRequest,
        wishes: &[Wish],
        groups: &[Group],
        before: Moment,
    ) {
        let gate = &epoch.gate;
        let took = gate.clock().now().since(before).into();
        let decides = |group: &&Group| {
            let is_back = |at: &usize| matches!(wishes.get(*at), Some(Wish::GiveBack(_)));
            !group.places.iter().any(is_back) && (group.take || !group.answer.is_admitted())
        };
        let refused = groups.iter().filter(decides);
        if let Some(group) = refused.min_by_key(|group| group.answer.is_admitted()) {
            let binding = match group.answer.basis {
                Basis::Charge(at) => group.parts.iter().position(|p| p.charges.contains(&at)),
                basis => {
                    let is_its = |part: &Part| part.ended.is_some_and(|(_, b)| b == basis);
                    group.parts.iter().position(is_its)
                }
            };
            let place = group.places.get(binding.unwrap_or(0)).copied();
            with_facts(request, wishes, place.as_slice(), |facts| {
                if let Some(facts) = facts.first() {
                    let engine = &self.engine;
                    engine.observe(epoch, Door::Rls, facts, &group.answer, took);
                }
            });
        }
        let is_free = |part: &Part| part.charges.is_empty() && part.ended.is_none();
        let all_free = groups.iter().all(|group| group.parts.iter().all(is_free));
        if all_free && !self.domains.are_known(epoch, &request.domain) {
            self.engine.count_rls(Rls::UnknownDomain, 1);
        }
    }
}

/// Decides these descriptors together.
async fn decided(
    epoch: &Arc<Epoch>,
    request: &RateLimitRequest,
    wishes: &[Wish],
    places: Vec<usize>,
    take: bool,
    until: Option<Instant>,
) -> Group {
    let gate = &epoch.gate;
    let begin = || {
        with_facts(request, wishes, &places, |facts| {
            gate.begin_together(facts, take)
        })
    };
    let (begun, parts) = begin();
    let answer = match begun {
        Begun::Decided(answer) => answer,
        Begun::Asks(asking) => carry::finish_before(epoch, asking, over(until), || begin().0).await,
    };
    Group {
        places,
        answer,
        parts,
        take,
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
                _ if group.take => Done::Taken,
                _ => Done::Asked,
            };
            *told = status(gate, &group.answer, part, done);
        }
    }
    // Whatever refuses is told; of a request that passes, what was taken.
    let told = groups.iter().find(|group| match passes {
        true => group.take,
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
