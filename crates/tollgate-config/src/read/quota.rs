//! Reads the fields of a quota: algorithm, rate, burst and the others that define how much a limit allows.
//!
//! The fields as written ([`QuotaFields`]) are separate from the [`Quota`] that they make, because a candidate or an
//! override sets some fields and inherits the others: a burst of `30s` is then larger at a higher rate, and a default
//! burst follows the rate.

use tollgate::Periods;
use tollgate::{Algorithm, Burst, Estimate, Limit, LimitError, Rate, Span};
use tollgate_policy::{BurstCredits, Quota};

use super::fields::{FieldSpans, Fields};
use super::item::Item;
use super::kind::{Kind, OWNED, sample};
use super::scalar::{NotDigits, choice, digits, integer, rate, span, text};
use super::when::calendar;
use crate::problem::Place;
use crate::report::{Read, Report, Reported, list};

/// The largest `max_keys`.
const MAX_KEYS_MAX: u64 = 1_000_000_000;

/// The fields of a quota that are set, by the file or by the limit that they are inherited from.
#[derive(Clone, Debug, Default)]
pub(crate) struct QuotaFields {
    pub(super) spans: FieldSpans,
    pub(super) algorithm: Option<Kind>,
    pub(super) allow: Option<Allow>,
    pub(super) burst: Option<Burst>,
    pub(super) tolerance: Option<Span>,
    pub(super) queue: Option<u64>,
    pub(super) max_wait: Option<Span>,
    pub(super) estimate: Option<Estimate>,
    pub(super) times: Option<u32>,
    pub(super) duration: Option<Span>,
    pub(super) slack: Option<u64>,
    pub(super) ttl: Option<Span>,
    pub(super) calendar: Option<Periods>,
    pub(super) max_keys: Option<usize>,
}

/// The value of `allow`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Allow {
    Rate(Rate),
    Number(u64),
}

impl QuotaFields {
    /// Reads the fields; those that are not set are inherited from `base`.
    pub(crate) fn read(
        fields: &Fields<'_>,
        base: Option<&QuotaFields>,
        what: &str,
    ) -> Read<QuotaFields> {
        let algorithm = fields.read("algorithm", |n| choice(n, "an algorithm", &Kind::ALL));
        let calendar = fields.read("calendar", calendar);
        let kind = match (&algorithm, &calendar) {
            (Err(_), _) => None,
            (Ok(Some(kind)), _) => Some(*kind),
            (Ok(None), Ok(None)) => Some(base.map_or(Kind::TokenBucket, QuotaFields::kind)),
            (Ok(None), _) => Some(Kind::FixedWindow),
        };
        let fits = kind.map_or(Ok(()), |kind| reject_misplaced(fields, kind));
        let has_calendar = !matches!(calendar, Ok(None))
            || base.is_some_and(|b| b.calendar.is_some() && kind == Some(b.kind()));
        // The form of `allow` depends on the algorithm.
        let allow = fields.read("allow", |n| allow(n, kind.ok_or(Reported)?, has_calendar));
        let estimates = [("span", Estimate::Span), ("strict", Estimate::Strict)];
        let number =
            |name: &str, sample: &str| fields.read(name, |n| integer(n, 1..=u64::MAX, sample));
        let time = |name: &str| fields.read(name, span);
        let burst = fields.read("burst", burst);
        let (tolerance, max_wait) = (time("tolerance"), time("max_wait"));
        let queue = number("queue", "5000");
        let estimate = fields.read("estimate", |n| choice(n, "an estimate", &estimates));
        let times = fields.read("times", |n| integer(n, 2..=u64::from(u32::MAX), "10"));
        let (duration, slack, ttl) = (time("for"), number("slack", "4"), time("ttl"));
        let max_keys = fields.read("max_keys", |n| integer(n, 1..=MAX_KEYS_MAX, "100000"));
        fits?;
        let own = QuotaFields {
            spans: fields.spans(),
            algorithm: algorithm?,
            allow: allow?,
            burst: burst?,
            tolerance: tolerance?,
            queue: queue?,
            max_wait: max_wait?,
            estimate: estimate?,
            times: times?,
            duration: duration?,
            slack: slack?,
            ttl: ttl?,
            calendar: calendar?,
            max_keys: max_keys?,
        };
        let all = match base {
            Some(base) => own.inherit(base),
            None => own,
        };
        all.check_complete(fields, what)?;
        Ok(all)
    }

    /// Reads a rate, which is the `allow` of a token bucket.
    pub(crate) fn from_rate(node: Item<'_>) -> Read<QuotaFields> {
        Ok(QuotaFields {
            spans: FieldSpans::scalar(node.place),
            allow: Some(Allow::Rate(rate(node)?)),
            ..QuotaFields::default()
        })
    }

    /// The algorithm.
    pub(crate) fn kind(&self) -> Kind {
        match (self.algorithm, &self.calendar) {
            (Some(kind), _) => kind,
            (None, Some(_)) => Kind::FixedWindow,
            (None, None) => Kind::TokenBucket,
        }
    }

    /// Reports the fields that the algorithm requires and that are not set.
    fn check_complete(&self, fields: &Fields<'_>, what: &str) -> Read<()> {
        let kind = self.kind();
        let mut done = Ok(());
        if self.allow.is_none() {
            let hint = match (kind, &self.calendar) {
                (Kind::Concurrency, _) => "write how many at once: `allow: 20`",
                (_, Some(_)) => "write how many in each period: `allow: 100000`",
                _ => "write how many in how long: `allow: 5/s`",
            };
            let message = format!("{what} has no `allow`");
            done = Err(fields.error("missing-field", message, hint));
        }
        for field in kind.required() {
            let is_set = match *field {
                "tolerance" => self.tolerance.is_some(),
                "queue" => self.queue.is_some(),
                "times" => self.times.is_some(),
                "for" => self.duration.is_some(),
                "ttl" => self.ttl.is_some(),
                _ => true,
            };
            if !is_set {
                let message = format!("{what}: {} needs `{field}`", kind.name());
                let hint = format!("add `{}`", sample(field));
                done = Err(fields.error("missing-field", message, hint));
            }
        }
        done
    }

    /// The quota that these fields make, for the rule called `name`.
    pub(crate) fn quota(&self, name: &str, report: &Report<'_>) -> Read<Quota> {
        let quota = self.resolve()?.map_err(|cause| {
            let place = self.place_of(&cause);
            report.error(place, "bad-quota", cause.to_string(), cause.hint())
        })?;
        let quota = match self.max_keys {
            Some(max_keys) => quota.with_max_keys(max_keys),
            None => quota,
        };
        Ok(Quota {
            periods: self.calendar.clone(),
            ..quota.with_name(name)
        })
    }

    /// The quota without its name. A field is missing only if [`QuotaFields::check_complete`] reported that.
    fn resolve(&self) -> Read<Result<Quota, LimitError>> {
        let number = || match self.allow {
            Some(Allow::Number(number)) => Ok(number),
            Some(Allow::Rate(rate)) => Ok(rate.units()),
            None => Err(Reported),
        };
        let rate = || match self.allow {
            Some(Allow::Rate(rate)) => Ok(rate),
            _ => Err(Reported),
        };
        let algorithm = match self.kind() {
            Kind::TokenBucket => {
                let rate = rate()?;
                let burst = match self.burst {
                    Some(Burst::Units(units)) => units,
                    Some(Burst::Worth(span)) => rate.earned_in(span),
                    None => rate.units(),
                };
                Algorithm::TokenBucket { rate, burst }
            }
            Kind::Gcra => Algorithm::Gcra {
                rate: rate()?,
                tolerance: self.tolerance.ok_or(Reported)?,
            },
            Kind::LeakyBucket => Algorithm::LeakyBucket {
                rate: rate()?,
                queue: self.queue.ok_or(Reported)?,
                max_wait: self.max_wait,
            },
            Kind::FixedWindow => Algorithm::FixedWindow {
                limit: number()?,
                window: match &self.calendar {
                    Some(periods) => periods.window(),
                    None => rate()?.per(),
                },
                anchor: Span::ZERO,
            },
            Kind::SlidingLog => Algorithm::SlidingLog {
                limit: rate()?.units(),
                window: rate()?.per(),
            },
            Kind::SlidingWindow => Algorithm::SlidingWindow {
                limit: rate()?.units(),
                window: rate()?.per(),
                estimate: self.estimate.unwrap_or_default(),
            },
            Kind::BurstCredits => {
                let credits = BurstCredits {
                    rate: rate()?,
                    times: self.times.ok_or(Reported)?,
                    duration: self.duration.ok_or(Reported)?,
                    slack: self.slack,
                };
                return Ok(credits.quota());
            }
            Kind::Concurrency => Algorithm::Concurrency {
                limit: number()?,
                ttl: self.ttl.ok_or(Reported)?,
            },
        };
        Ok(Limit::new(algorithm).map(Quota::plain))
    }

    /// The place of the value that an error of the core is about.
    fn place_of(&self, cause: &LimitError) -> Place {
        let fields: &[&str] = match cause {
            LimitError::ZeroCapacity { what: "burst" } => &["burst"],
            LimitError::ZeroCapacity { what: "queue" } => &["queue"],
            LimitError::ZeroSpan { what: "lease" } => &["ttl"],
            LimitError::ZeroSpan { .. } => &["for"],
            LimitError::NoMultiple => &["times"],
            LimitError::TooSlow => &["burst", "queue", "for", "tolerance"],
            _ => &[],
        };
        let set = fields.iter().find(|field| self.spans.has(field));
        self.spans.at(set.unwrap_or(&"allow"))
    }
}

/// Reports fields that belong to other algorithms.
fn reject_misplaced(fields: &Fields<'_>, kind: Kind) -> Read<()> {
    let mut done = Ok(());
    for field in OWNED.iter().filter(|field| !kind.fields().contains(field)) {
        let Some(place) = fields.name_place(field) else {
            continue;
        };
        let takes = match kind.fields() {
            [] => format!("{} takes only `allow`", kind.name()),
            all => format!("{} takes {}", kind.name(), list(all.iter().copied())),
        };
        let hint = match Kind::owner(field) {
            Some(owner) => format!("it belongs to {}; {takes}", owner.name()),
            None => takes,
        };
        let message = format!("`{field}` is not a field of {}", kind.name());
        let report = fields.report;
        done = Err(report.error(place, "misplaced-field", message, hint));
    }
    done
}

fn allow(node: Item<'_>, kind: Kind, has_calendar: bool) -> Read<Allow> {
    let (why, hint) = match kind {
        Kind::Concurrency => (
            "concurrency counts how many run at once",
            "write a plain number, such as `allow: 20`",
        ),
        Kind::FixedWindow if has_calendar => (
            "the calendar sets the period",
            "write a plain number, such as `allow: 100000`",
        ),
        _ => return rate(node).map(Allow::Rate),
    };
    if text(node)?.contains('/') {
        return Err(node.error("bad-rate", why, hint));
    }
    integer(node, 1..=u64::MAX, "20").map(Allow::Number)
}

/// A number of units or a span of the rate.
fn burst(node: Item<'_>) -> Read<Burst> {
    let text = text(node)?;
    let has_unit = text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with(|c: char| c.is_alphabetic());
    if has_unit && matches!(digits(text), Err(NotDigits::Other)) {
        return span(node).map(Burst::Worth);
    }
    integer(node, 1..=u64::MAX, "10").map(Burst::Units)
}
