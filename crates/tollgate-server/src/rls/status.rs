//! The status of each descriptor: its tightest limit, what is left of it, and until when.
//!
//! Envoy knows limits as a number of requests per unit of time. A window that is no such unit, and a bucket, are reported as the
//! same rate in the smallest unit that expresses it exactly. A bucket may hold more than the units of its rate, so
//! `limit_remaining` may exceed `requests_per_unit`.

use prost_types::Duration;
use tollgate::{Algorithm, QuotaStatus, Span, Verdict};
use tollgate_policy::pattern::TextPattern;
use tollgate_policy::{BatchPart, LimitRule, Match, Op, PolicyDecision, Quota, Reason, Role};

use super::messages::{Code, DescriptorStatus, RateLimit, UnitMessage};
use super::request::HitMode;
use crate::engine::EngineGate;

const SECOND: u64 = 1_000_000_000;
const UNITS: [(UnitMessage, u64); 7] = [
    (UnitMessage::Second, SECOND),
    (UnitMessage::Minute, 60 * SECOND),
    (UnitMessage::Hour, 3_600 * SECOND),
    (UnitMessage::Day, 86_400 * SECOND),
    (UnitMessage::Week, 7 * 86_400 * SECOND),
    (UnitMessage::Month, 30 * 86_400 * SECOND),
    (UnitMessage::Year, 365 * 86_400 * SECOND),
];

/// The status of one descriptor, whose hits were handled by `mode` and `op`.
pub(super) fn status(
    gate: &EngineGate,
    answer: &PolicyDecision,
    part: &BatchPart,
    mode: HitMode,
    op: Op,
) -> DescriptorStatus {
    let is_refund = matches!(mode, HitMode::Refund(_));
    if let Some((verdict, reason)) = part.ended {
        return match (verdict.is_admitted(), reason) {
            (true, Reason::AllowList(_)) => unlimited(),
            (true, _) => without_limit(Code::Ok),
            (false, _) if is_refund => without_limit(Code::Ok),
            (false, Reason::DenyList(at)) if is_zero_limit(gate, at) => zero_limit(),
            (false, _) => without_limit(Code::OverLimit),
        };
    }
    let limits = part.charges.iter().filter_map(|at| {
        let charge = answer.charges.get(*at)?;
        let (verdict, status) = match is_refund {
            true => (Verdict::Pass, gate.charge_status(answer, *at)?),
            false => gate.charge_outcome(answer, *at, op == Op::Charge)?,
        };
        let is_enforced = charge.role == Role::Enforced;
        let refuses = match answer.reason {
            Reason::TooManyLimits => true,
            Reason::StoreError(rule) => rule == charge.rule,
            _ => !verdict.is_admitted(),
        };
        Some(LimitStatus {
            quota: gate.quota(charge.limit)?,
            rule: gate.rule(charge.rule)?,
            max: charge.most,
            is_enforced,
            is_over: is_enforced && !answer.is_admitted() && refuses && !is_refund,
            verdict,
            status,
        })
    });
    match limits.min_by_key(LimitStatus::room) {
        Some(limit) => limit.descriptor_status(answer),
        None if part.charges.is_empty() => without_limit(Code::Ok),
        // An override exempts this key.
        None => unlimited(),
    }
}

fn without_limit(code: Code) -> DescriptorStatus {
    DescriptorStatus {
        code: code.into(),
        ..DescriptorStatus::default()
    }
}

/// True if an entry of the deny list is what the importer of Envoy's files makes of a limit of 0.
fn is_zero_limit(gate: &EngineGate, at: usize) -> bool {
    let entry = gate.policy().deny.get(at);
    entry.is_some_and(|entry| is_generated_name(&entry.name, &entry.matches))
}

/// A limit of nothing per unit, as the reference service reports it. It never has anything, so there is no reset.
fn zero_limit() -> DescriptorStatus {
    DescriptorStatus {
        current_limit: Some(RateLimit {
            requests_per_unit: 0,
            unit: UnitMessage::Second.into(),
            name: String::new(),
        }),
        ..without_limit(Code::OverLimit)
    }
}

fn unlimited() -> DescriptorStatus {
    DescriptorStatus {
        limit_remaining: u32::MAX,
        ..without_limit(Code::Ok)
    }
}

/// One limit of a descriptor.
struct LimitStatus<'g> {
    quota: &'g Quota,
    rule: &'g LimitRule,
    /// The limit that the request sent.
    max: Option<u32>,
    is_enforced: bool,
    /// It refuses the request.
    is_over: bool,
    verdict: Verdict,
    status: QuotaStatus,
}

impl LimitStatus<'_> {
    /// Orders limits by tightness: those that refuse, those that can, those that are only counted; then by what is left.
    fn room(&self) -> (u8, u64) {
        let rank = match (self.is_over, self.is_enforced) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        };
        (rank, self.status.remaining)
    }

    fn descriptor_status(&self, answer: &PolicyDecision) -> DescriptorStatus {
        let (code, remaining) = match self.is_over {
            true => (Code::OverLimit, 0),
            false => (Code::Ok, self.status.remaining),
        };
        DescriptorStatus {
            current_limit: Some(self.current_limit()),
            limit_remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
            duration_until_reset: self.reset(answer).map(|span| self.whole_seconds(span)),
            ..without_limit(code)
        }
    }

    /// If the limit is over, the time until the same request passes; otherwise until everything is back, or the window ends.
    fn reset(&self, answer: &PolicyDecision) -> Option<Span> {
        match (self.is_over, self.verdict, self.quota.limit.algorithm()) {
            (true, Verdict::Never, _) => None,
            (true, verdict, _) if answer.binding().is_none() => {
                answer.verdict.wait().or(verdict.wait())
            }
            (true, verdict, _) => verdict.wait(),
            (false, _, Algorithm::FixedWindow { window, .. })
                if self.status.full_after.is_zero() && self.quota.periods.is_none() =>
            {
                let into = answer.issued.as_nanos().checked_rem(window.as_nanos())?;
                Some(Span::from_nanos(window.as_nanos() - into))
            }
            _ => Some(self.status.full_after),
        }
    }

    /// Rounded up, and at least one second for a limit that is over: Envoy drops fractions, and a client that returns after
    /// 0 s is refused again.
    fn whole_seconds(&self, span: Span) -> Duration {
        let seconds = span.as_secs_ceil().max(u64::from(self.is_over));
        Duration {
            seconds: i64::try_from(seconds).unwrap_or(i64::MAX),
            nanos: 0,
        }
    }

    fn current_limit(&self) -> RateLimit {
        let (units, per) = match *self.quota.limit.algorithm() {
            Algorithm::TokenBucket { rate, .. }
            | Algorithm::Gcra { rate, .. }
            | Algorithm::LeakyBucket { rate, .. } => (rate.units(), Some(rate.per())),
            // Permits have no unit of time.
            Algorithm::Concurrency { limit, .. } => (limit, None),
            _ => {
                let (units, window) = self.quota.advertised();
                (self.max.map_or(units, u64::from), Some(window))
            }
        };
        let (count, unit) = match per {
            Some(per) => per_unit(units, per.as_nanos()),
            None => (units, UnitMessage::Unknown),
        };
        RateLimit {
            requests_per_unit: u32::try_from(count).unwrap_or(u32::MAX),
            unit: unit.into(),
            name: match is_generated_name(&self.rule.name, &self.rule.matches) {
                true => String::new(),
                false => self.rule.name.to_string(),
            },
        }
    }
}

/// True if the importer of Envoy's files generated the name, `domain.key.value`: the reference service reports none then.
fn is_generated_name(name: &str, matches: &Match) -> bool {
    let domain = matches.domain.as_ref().and_then(TextPattern::exact);
    let path = domain.and_then(|domain| name.strip_prefix(domain)?.strip_prefix('.'));
    let first_key = matches.entries.first().map(|(key, _)| key.as_str());
    path.zip(first_key)
        .is_some_and(|(path, key)| path.starts_with(key))
}

/// A rate in the smallest unit that expresses it exactly; otherwise in the smallest in which it is at least one.
fn per_unit(units: u64, per: u64) -> (u64, UnitMessage) {
    let within = |unit: u64| {
        let product = u128::from(units) * u128::from(unit);
        let per = u128::from(per.max(1));
        let count = u64::try_from(product / per).unwrap_or(u64::MAX);
        (count, product % per == 0 && count <= u64::from(u32::MAX))
    };
    if let Some((unit, _)) = UNITS.iter().find(|(_, length)| *length == per) {
        return (units, *unit);
    }
    let exact = UNITS.iter().find(|(_, length)| within(*length).1);
    let near = || UNITS.iter().find(|(_, length)| within(*length).0 > 0);
    match exact.or_else(near) {
        Some((unit, length)) => (within(*length).0, *unit),
        None => (1, UnitMessage::Year),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_reported_in_the_smallest_unit_that_expresses_it() {
        let s = SECOND;
        for (units, per, reported) in [
            (10, s, (10, UnitMessage::Second)),
            (100, 60 * s, (100, UnitMessage::Minute)),
            (100, 10 * s, (10, UnitMessage::Second)),
            (7, 3 * s, (140, UnitMessage::Minute)),
            (1, 10 * s, (6, UnitMessage::Minute)),
            (5, 7 * 86_400 * s, (5, UnitMessage::Week)),
            (1, 7 * s, (86_400, UnitMessage::Week)),
            (1, 1_000 * 86_400 * s, (1, UnitMessage::Year)),
        ] {
            assert_eq!(per_unit(units, per), reported, "{units} per {per}");
        }
    }
}
