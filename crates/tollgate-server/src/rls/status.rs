//! What each descriptor is told: its tightest limit, what is left of it, and until when.
//!
//! Envoy knows limits as so many in one unit of time. A window that is no unit, and a bucket, are told as the
//! same rate in the smallest unit that expresses it exactly. A bucket may hold more than its rate says, so
//! `limit_remaining` may be more than `requests_per_unit`.

use prost_types::Duration;
use tollgate::{Algorithm, QuotaStatus, Span, Verdict};
use tollgate_policy::{Answer, Basis, Part, Quota, Role};

use super::messages::{Code, DescriptorStatus, RateLimit, Unit};
use crate::engine::Gate;

const SECOND: u64 = 1_000_000_000;
const UNITS: [(Unit, u64); 7] = [
    (Unit::Second, SECOND),
    (Unit::Minute, 60 * SECOND),
    (Unit::Hour, 3_600 * SECOND),
    (Unit::Day, 86_400 * SECOND),
    (Unit::Week, 7 * 86_400 * SECOND),
    (Unit::Month, 30 * 86_400 * SECOND),
    (Unit::Year, 365 * 86_400 * SECOND),
];

/// What was done for a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// It was charged, if it could be.
    Taken,
    /// It was looked at.
    Asked,
    /// It got something back.
    GivenBack,
}

/// The status of one descriptor.
pub(super) fn status(gate: &Gate, answer: &Answer, part: &Part, done: Done) -> DescriptorStatus {
    if let Some((verdict, basis)) = part.ended {
        return match (verdict.is_admitted(), basis) {
            (true, Basis::AllowList(_)) => unlimited(),
            (true, _) => plain(Code::Ok),
            (false, _) if done == Done::GivenBack => plain(Code::Ok),
            (false, _) => plain(Code::OverLimit),
        };
    }
    let tightest = part
        .charges
        .iter()
        .filter_map(|at| Limited::of(gate, answer, *at, done))
        .min_by_key(Limited::room);
    match tightest {
        Some(limited) => limited.told(answer),
        None if part.charges.is_empty() => plain(Code::Ok),
        // An override says that this key has no limit.
        None => unlimited(),
    }
}

fn plain(code: Code) -> DescriptorStatus {
    DescriptorStatus {
        code: code.into(),
        ..DescriptorStatus::default()
    }
}

fn unlimited() -> DescriptorStatus {
    DescriptorStatus {
        limit_remaining: u32::MAX,
        ..plain(Code::Ok)
    }
}

/// One limit of a descriptor.
struct Limited<'g> {
    quota: &'g Quota,
    name: &'g str,
    /// How many there are, if the request brought that along.
    most: Option<u32>,
    is_enforced: bool,
    /// Does it refuse?
    is_over: bool,
    verdict: Verdict,
    status: QuotaStatus,
}

impl<'g> Limited<'g> {
    fn of(gate: &'g Gate, answer: &Answer, at: usize, done: Done) -> Option<Limited<'g>> {
        let charge = answer.charges.get(at)?;
        let (verdict, status) = match done {
            Done::GivenBack => (Verdict::Pass, gate.stands(answer, at)?),
            _ => gate.telling(answer, at, done == Done::Taken)?,
        };
        let is_enforced = charge.role == Role::Enforced;
        let refuses_all = match answer.basis {
            Basis::TooManyLimits => true,
            Basis::StoreError(rule) => rule == charge.rule,
            _ => !verdict.is_admitted(),
        };
        Some(Limited {
            quota: gate.quota(charge.limit)?,
            name: &gate.rule(charge.rule)?.name,
            most: charge.most,
            is_enforced,
            is_over: is_enforced && !answer.is_admitted() && refuses_all && done != Done::GivenBack,
            verdict,
            status,
        })
    }

    /// The less, the tighter: those that refuse, then those that can, then those that are only counted.
    fn room(&self) -> (u8, u64) {
        let rank = match (self.is_over, self.is_enforced) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        };
        (rank, self.status.remaining)
    }

    fn told(&self, answer: &Answer) -> DescriptorStatus {
        let remaining = if self.is_over {
            0
        } else {
            self.status.remaining
        };
        DescriptorStatus {
            code: match self.is_over {
                true => Code::OverLimit.into(),
                false => Code::Ok.into(),
            },
            current_limit: Some(told_limit(self.quota, self.most, self.name)),
            limit_remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
            duration_until_reset: self.reset(answer).map(duration),
        }
    }

    /// If it is over, when the same passes; otherwise when everything is back, or the window ends.
    fn reset(&self, answer: &Answer) -> Option<Span> {
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
}

fn duration(span: Span) -> Duration {
    let (seconds, rest) = (span.as_nanos() / SECOND, span.as_nanos() % SECOND);
    Duration {
        seconds: i64::try_from(seconds).unwrap_or(i64::MAX),
        nanos: i32::try_from(rest).unwrap_or(0),
    }
}

fn told_limit(quota: &Quota, most: Option<u32>, name: &str) -> RateLimit {
    let (units, per) = match *quota.limit.algorithm() {
        Algorithm::TokenBucket { rate, .. }
        | Algorithm::Gcra { rate, .. }
        | Algorithm::LeakyBucket { rate, .. } => (rate.units(), Some(rate.per())),
        // How many at once has no unit of time.
        Algorithm::Concurrency { limit, .. } => (limit, None),
        _ => {
            let (units, window) = quota.advertised();
            (most.map_or(units, u64::from), Some(window))
        }
    };
    let (count, unit) = match per {
        Some(per) => in_a_unit(units, per.as_nanos()),
        None => (units, Unit::Unknown),
    };
    RateLimit {
        requests_per_unit: u32::try_from(count).unwrap_or(u32::MAX),
        unit: unit.into(),
        name: name.to_owned(),
    }
}

/// So many in so long, in the smallest unit that says it exactly; else in the smallest in which it is one at
/// least.
fn in_a_unit(units: u64, per: u64) -> (u64, Unit) {
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
        None => (1, Unit::Year),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_told_in_the_smallest_unit_that_says_it_exactly() {
        let s = SECOND;
        for (units, per, told) in [
            (10, s, (10, Unit::Second)),
            (100, 60 * s, (100, Unit::Minute)),
            (100, 10 * s, (10, Unit::Second)),
            (7, 3 * s, (140, Unit::Minute)),
            (1, 10 * s, (6, Unit::Minute)),
            (5, 7 * 86_400 * s, (5, Unit::Week)),
            (1, 7 * s, (86_400, Unit::Week)),
            (1, 1_000 * 86_400 * s, (1, Unit::Year)),
        ] {
            assert_eq!(in_a_unit(units, per), told, "{units} in {per}");
        }
    }
}
