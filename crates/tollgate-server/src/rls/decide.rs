//! Decides a request and builds its response.
//!
//! # Theory
//!
//! The descriptors of a request are one decision, made in at most three steps:
//!
//! | descriptors | operation | order |
//! |---|---|---|
//! | without hits | test | first: a refusal here refuses the request before anything is charged |
//! | with hits | charge, all or none | second: a refused request costs nothing |
//! | with negative hits | refund | last, and only if the request passes |
//!
//! # Limits sent with a descriptor
//!
//! Where the policy follows the domain, such a limit replaces the policy's limits for this descriptor and is part of the
//! same decision. Elsewhere, or if its unit is unknown, it is counted and ignored.
//!
//! # Deadline
//!
//! A caller that sets `grpc-timeout` does not read a later response. A shared store is waited for until shortly before;
//! then the policy's `on_store_error` decides.

use std::sync::Arc;

use tokio::time::{Duration, Instant, sleep_until};
use tollgate_policy::fields::{Field, fields};
use tollgate_policy::{BatchPart, Facts, Match, Op, PolicyDecision, RefundOnDrop, Settlement};
use tonic::Status;

use super::Limits;
use super::messages::{
    Code, DescriptorStatus, HeaderValue, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
};
use super::request::{HitMode, request_limit, validate};
use super::status::status;
use crate::engine::ActivePolicy;
use crate::metrics::Rls;
use crate::net::contain_panic;

/// The part of a deadline reserved for writing the response.
const WRITE_TIME: Duration = Duration::from_millis(1);

/// Descriptors of a request that are decided together.
struct Group {
    /// The indexes of the descriptors.
    descriptors: Vec<usize>,
    answer: PolicyDecision,
    parts: Vec<BatchPart>,
    op: Op,
}

impl Limits {
    /// The response to a call whose caller waits until `deadline`. A panic is an error of this call and of no other, although
    /// one task may serve all calls of a connection.
    ///
    /// # Errors
    /// A request that cannot be decided.
    pub(super) async fn respond(
        &self,
        request: RateLimitRequest,
        deadline: Option<Instant>,
    ) -> Result<RateLimitResponse, Status> {
        let response = contain_panic(async {
            validate(&request).inspect_err(|_| self.source.count_rls(Rls::Invalid, 1))?;
            Ok(self.decide(request, deadline).await)
        });
        response.await.unwrap_or_else(|| {
            self.source.count_rls(Rls::Panicked, 1);
            Err(Status::internal(
                "the request could not be decided because of a defect in the server; see its log",
            ))
        })
    }

    /// Decides a valid request.
    pub(super) async fn decide(
        &self,
        request: RateLimitRequest,
        deadline: Option<Instant>,
    ) -> RateLimitResponse {
        let policy = self.source.active_owned();
        let gate = &policy.gate;
        let deadline = deadline.map(|at| at.checked_sub(WRITE_TIME).unwrap_or(at));
        let modes = request.descriptors.iter();
        let modes: Vec<HitMode> = modes.map(|d| HitMode::new(&request, d)).collect();
        let with_mode = |is: fn(&HitMode) -> bool| -> Vec<usize> {
            let numbered = modes.iter().enumerate();
            numbered.filter(|(_, m)| is(m)).map(|(at, _)| at).collect()
        };
        let follows = gate.follows(&request.domain);
        let is_ignored = |descriptor: &&RateLimitDescriptor| {
            descriptor.limit.is_some() && !(follows && request_limit(descriptor).is_some())
        };
        let ignored = request.descriptors.iter().filter(is_ignored).count();
        let ignored = u64::try_from(ignored).unwrap_or(u64::MAX);
        self.source.count_rls(Rls::OverrideIgnored, ignored);

        let decide = |descriptors, op| {
            self.decide_group(&policy, &request, &modes, descriptors, op, deadline)
        };
        let mut groups = Vec::new();
        let mut passes = true;
        let peeks = with_mode(|mode| *mode == HitMode::Peek);
        if !peeks.is_empty() {
            let group = decide(peeks, Op::Test).await;
            passes = group.answer.is_admitted();
            groups.push(group);
        }
        let refunds = with_mode(|mode| matches!(mode, HitMode::Refund(_)));
        let charges = with_mode(|mode| matches!(mode, HitMode::Charge(_)));
        // A caller that leaves during the refund has taken nothing.
        let mut undo = None;
        if !charges.is_empty() {
            let op = if passes { Op::Charge } else { Op::Peek };
            let group = decide(charges, op).await;
            passes = passes && group.answer.is_admitted();
            if !refunds.is_empty() && op == Op::Charge {
                undo = Some(RefundOnDrop::new(gate, &group.answer));
            }
            groups.push(group);
        }
        if !refunds.is_empty() {
            let group = decide(refunds, Op::Peek).await;
            if passes {
                let refund = gate.refund_for(&group.answer);
                if refund.is_shared() {
                    tokio::select! {
                        biased;
                        _ = refund.settle_everywhere(Settlement::Cancelled) => {}
                        () = expired(deadline) => {}
                    }
                } else {
                    refund.settle(Settlement::Cancelled);
                }
            }
            groups.push(group);
        }
        if let Some(undo) = undo {
            undo.commit();
        }
        let is_unmatched = |part: &BatchPart| part.charges.is_empty() && part.ended.is_none();
        let all_unmatched = groups
            .iter()
            .all(|group| group.parts.iter().all(is_unmatched));
        if all_unmatched && !is_limited_domain(&policy, &request.domain) {
            self.source.count_rls(Rls::UnknownDomain, 1);
        }
        response(&policy, &modes, &groups, passes)
    }

    /// Decides these descriptors together.
    async fn decide_group(
        &self,
        policy: &Arc<ActivePolicy>,
        request: &RateLimitRequest,
        modes: &[HitMode],
        descriptors: Vec<usize>,
        op: Op,
        deadline: Option<Instant>,
    ) -> Group {
        let deadline = deadline.map(Instant::into_std);
        let (decide, parts) = with_facts(request, modes, &descriptors, |facts| {
            self.source.decide_batch(policy, facts, op, deadline)
        });
        Group {
            descriptors,
            answer: decide.resolve().await,
            parts,
            op,
        }
    }
}

async fn expired(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// True if a limit or a list of the policy can match requests of this domain. A domain for which nothing can is most often
/// misspelt, and everything in it passes. Called only for requests that matched nothing.
fn is_limited_domain(policy: &ActivePolicy, domain: &str) -> bool {
    let policy = policy.gate.policy();
    let is_followed = policy
        .follow
        .iter()
        .flat_map(|follow| &follow.domains)
        .any(|followed| &**followed == domain);
    let limits = policy.limits.iter().map(|rule| &rule.matches);
    let lists = policy.allow.iter().chain(&policy.deny);
    let mut matches = limits.chain(lists.map(|rule| &rule.matches));
    is_followed
        || matches.any(|matches| match &matches.domain {
            Some(pattern) => pattern.matches(domain.as_bytes()),
            None => is_for_descriptors(matches),
        })
}

/// True if a request of this front end can match: it has no path, header or address.
fn is_for_descriptors(matches: &Match) -> bool {
    matches.methods.is_empty()
        && matches.paths.is_empty()
        && matches.hosts.is_empty()
        && matches.headers.is_empty()
        && matches.query.is_empty()
        && matches.addresses.is_empty()
}

/// The facts of these descriptors.
fn with_facts<R>(
    request: &RateLimitRequest,
    modes: &[HitMode],
    descriptors: &[usize],
    f: impl FnOnce(&[Facts<'_>]) -> R,
) -> R {
    let entries = descriptors.iter().map(|at| {
        let descriptor = request.descriptors.get(*at);
        let entries = descriptor.map_or(&[][..], |d| &d.entries).iter();
        let pairs = entries.map(|entry| (entry.key.as_str(), entry.value.as_str()));
        pairs.collect::<Vec<_>>()
    });
    let entries: Vec<_> = entries.collect();
    let facts = entries.iter().zip(descriptors).map(|(entries, at)| Facts {
        domain: &request.domain,
        descriptor: entries,
        cost: modes.get(*at).map(|mode| mode.cost()),
        limit_override: request.descriptors.get(*at).and_then(request_limit),
        ..Facts::default()
    });
    f(&facts.collect::<Vec<_>>())
}

fn response(
    policy: &ActivePolicy,
    modes: &[HitMode],
    groups: &[Group],
    passes: bool,
) -> RateLimitResponse {
    let gate = &policy.gate;
    let mut statuses = vec![DescriptorStatus::default(); modes.len()];
    for group in groups {
        for (part, at) in group.parts.iter().zip(&group.descriptors) {
            if let (Some(to), Some(mode)) = (statuses.get_mut(*at), modes.get(*at)) {
                *to = status(gate, &group.answer, part, *mode, group.op);
            }
        }
    }
    // The headers are those of the refusal, or of what a passing request took.
    let reported = groups.iter().find(|group| match passes {
        true => group.op == Op::Charge,
        false => !group.answer.is_admitted(),
    });
    RateLimitResponse {
        overall_code: match passes {
            true => Code::Ok.into(),
            false => Code::OverLimit.into(),
        },
        statuses,
        response_headers_to_add: reported
            .map_or_else(Vec::new, |group| headers(policy, &group.answer)),
    }
}

/// The header fields for the client, without `X-RateLimit-*`: Envoy makes those of the statuses.
fn headers(policy: &ActivePolicy, answer: &PolicyDecision) -> Vec<HeaderValue> {
    let (mut text, mut parts) = (String::new(), Vec::new());
    fields(&policy.gate, answer, &mut text, &mut |field, part| {
        parts.push((field, part));
    });
    let parts = parts
        .into_iter()
        .filter(|(field, _)| !matches!(field, Field::Limit | Field::Remaining | Field::Reset));
    parts
        .filter_map(|(field, part)| {
            Some(HeaderValue {
                key: field.name().to_owned(),
                value: text.get(part)?.to_owned(),
            })
        })
        .collect()
}
