//! How much: the fields of a quota, as they are written and as a limit.
//!
//! What is written is kept apart from what it comes to ([`Written`]), because a candidate or an override
//! changes some fields of a limit and takes the others from it: a burst of `30s` is then worth more at
//! a higher rate, and a burst that nobody wrote goes with the rate.

use tollgate::calendar::Periods;
use tollgate::{Algorithm, Burst, Estimate, Limit, LimitError, Rate, Span};
use tollgate_policy::{BurstCredits, Quota};

use super::fields::Fields;
use super::kind::{KINDS, Kind, OWNED, sample};
use super::scalar::{NotDigits, choice, digits, rate, span, text, whole};
use super::when::calendar;
use crate::problem::Place;
use crate::report::{Read, Report, Reported, list};
use crate::yaml::Node;

/// Keys that a limit can have room for.
const MAX_KEYS_MAX: u64 = 1_000_000_000;

/// A value and where it stands.
pub(super) type At<T> = (T, Place);

/// The fields of a quota that were written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    pub(super) algorithm: Option<At<Kind>>,
    pub(super) allow: Option<At<Allow>>,
    pub(super) burst: Option<At<Burst>>,
    pub(super) tolerance: Option<At<Span>>,
    pub(super) queue: Option<At<u64>>,
    pub(super) max_wait: Option<At<Span>>,
    pub(super) estimate: Option<At<Estimate>>,
    pub(super) times: Option<At<u32>>,
    pub(super) duration: Option<At<Span>>,
    pub(super) slack: Option<At<u64>>,
    pub(super) ttl: Option<At<Span>>,
    pub(super) calendar: Option<At<Periods>>,
    pub(super) max_keys: Option<At<usize>>,
}

/// What is allowed: in a period, or at all.
#[derive(Clone, Copy, Debug)]
pub(super) enum Allow {
    Rate(Rate),
    Number(u64),
}

impl Written {
    /// Reads the fields. `base` is what those that are not written are taken from.
    pub(crate) fn read(
        fields: &Fields<'_>,
        base: Option<&Written>,
        what: &str,
        report: &Report<'_>,
    ) -> Read<Written> {
        let kinds = |n: &Node| choice(n, "an algorithm", &KINDS, report);
        let algorithm = at(fields, "algorithm", kinds);
        let periods = at(fields, "calendar", |n| calendar(n, report));
        let named = match (&algorithm, &periods) {
            (Err(_), _) => None,
            (Ok(Some((kind, _))), _) => Some(*kind),
            (Ok(None), Ok(None)) => Some(base.map_or(Kind::TokenBucket, |base| base.kind())),
            (Ok(None), _) => Some(Kind::FixedWindow),
        };
        let fits = match named {
            Some(kind) => belongs(fields, kind, report),
            None => Ok(()),
        };
        let calendars = !matches!(periods, Ok(None))
            || base.is_some_and(|b| b.calendar.is_some() && named == Some(b.kind()));
        // What a wrong algorithm was meant to take as `allow` is anyone's guess.
        let allow = at(fields, "allow", |n| match named {
            Some(kind) => allow(n, kind, calendars, report),
            None => Err(Reported),
        });
        let estimates = [("span", Estimate::Span), ("strict", Estimate::Strict)];
        let number =
            |name: &str, sample: &str| at(fields, name, |n| whole(n, 1, u64::MAX, sample, report));
        let small = |name: &str, least: u64, most: u64, sample: &str| {
            at(fields, name, |n| {
                whole(n, least, most, sample, report).map(|n| u32::try_from(n).unwrap_or(u32::MAX))
            })
        };
        let time = |name: &str| at(fields, name, |n| span(n, report));
        let burst = at(fields, "burst", |n| burst(n, report));
        let (tolerance, queue, max_wait) =
            (time("tolerance"), number("queue", "5000"), time("max_wait"));
        let estimate = at(fields, "estimate", |n| {
            choice(n, "an estimate", &estimates, report)
        });
        let times = small("times", 2, u64::from(u32::MAX), "10");
        let (duration, slack, ttl) = (time("for"), number("slack", "4"), time("ttl"));
        let max_keys = at(fields, "max_keys", |n| {
            whole(n, 1, MAX_KEYS_MAX, "100000", report)
                .map(|n| usize::try_from(n).unwrap_or(usize::MAX))
        });
        fits?;
        let written = Written {
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
            calendar: periods?,
            max_keys: max_keys?,
        };
        let written = match base {
            Some(base) => written.over(base),
            None => written,
        };
        written.check(fields.place, what, report)?;
        Ok(written)
    }

    /// Reads a rate that stands for all fields of a quota.
    pub(crate) fn from_rate(node: &Node, report: &Report<'_>) -> Read<Written> {
        Ok(Written {
            allow: Some((Allow::Rate(rate(node, report)?), node.place)),
            ..Written::default()
        })
    }

    /// The algorithm.
    pub(crate) fn kind(&self) -> Kind {
        match (self.algorithm, &self.calendar) {
            (Some((kind, _)), _) => kind,
            (None, Some(_)) => Kind::FixedWindow,
            (None, None) => Kind::TokenBucket,
        }
    }

    /// Is all there that the algorithm needs?
    fn check(&self, place: Place, what: &str, report: &Report<'_>) -> Read<()> {
        let kind = self.kind();
        let mut done = Ok(());
        let mut missing = |field: &str, hint: String| {
            let message = match field {
                "allow" => format!("{what} does not say how much it allows"),
                _ => format!("{what}: {} needs `{field}`", kind.name()),
            };
            done = Err(report.error(place, "missing-field", message, hint));
        };
        if self.allow.is_none() {
            let hint = match (kind, &self.calendar) {
                (Kind::Concurrency, _) => "write how many at once: `allow: 20`",
                (_, Some(_)) => "write how many in each period: `allow: 100000`",
                _ => "write how many in how long: `allow: 5/s`",
            };
            missing("allow", hint.into());
        }
        for field in kind.fields().iter().take(kind.needed()) {
            let there = match *field {
                "tolerance" => self.tolerance.is_some(),
                "queue" => self.queue.is_some(),
                "times" => self.times.is_some(),
                "for" => self.duration.is_some(),
                "ttl" => self.ttl.is_some(),
                _ => true,
            };
            if !there {
                missing(field, format!("add `{}`", sample(field)));
            }
        }
        done
    }

    /// The quota that these fields make; `name` is that of the rule.
    pub(crate) fn quota(&self, name: &str, report: &Report<'_>) -> Read<Quota> {
        let quota = self.numbers()?;
        let quota = quota
            .map_err(|e| report.error(self.blamed_for(&e), "bad-quota", e.to_string(), e.hint()))?;
        let quota = match self.max_keys {
            Some((max_keys, _)) => quota.with_max_keys(max_keys),
            None => quota,
        };
        Ok(Quota {
            periods: self.calendar.as_ref().map(|(periods, _)| periods.clone()),
            ..quota.named(name)
        })
    }

    /// The algorithm with its numbers. Only what [`Written::check`] has missed and reported is missing.
    fn numbers(&self) -> Read<Result<Quota, LimitError>> {
        fn need<T: Copy>(value: Option<At<T>>) -> Read<T> {
            value.map(|(value, _)| value).ok_or(Reported)
        }
        let number = || match need(self.allow)? {
            Allow::Number(number) => Ok(number),
            Allow::Rate(rate) => Ok(rate.units()),
        };
        let rate = || match need(self.allow)? {
            Allow::Rate(rate) => Ok(rate),
            Allow::Number(_) => Err(Reported),
        };
        let algorithm = match self.kind() {
            Kind::TokenBucket => {
                let rate = rate()?;
                let burst = match need(self.burst) {
                    Ok(Burst::Units(units)) => units,
                    Ok(Burst::Worth(span)) => rate.earned_in(span),
                    Err(_) => rate.units(),
                };
                Algorithm::TokenBucket { rate, burst }
            }
            Kind::Gcra => Algorithm::Gcra {
                rate: rate()?,
                tolerance: need(self.tolerance)?,
            },
            Kind::LeakyBucket => Algorithm::LeakyBucket {
                rate: rate()?,
                queue: need(self.queue)?,
                max_wait: self.max_wait.map(|(wait, _)| wait),
            },
            Kind::FixedWindow => Algorithm::FixedWindow {
                limit: number()?,
                window: match &self.calendar {
                    Some((periods, _)) => periods.window(),
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
                estimate: self
                    .estimate
                    .map(|(estimate, _)| estimate)
                    .unwrap_or_default(),
            },
            Kind::BurstCredits => {
                let credits = BurstCredits {
                    rate: rate()?,
                    times: need(self.times)?,
                    duration: need(self.duration)?,
                    slack: self.slack.map(|(slack, _)| slack),
                };
                return Ok(credits.quota());
            }
            Kind::Concurrency => Algorithm::Concurrency {
                limit: number()?,
                ttl: need(self.ttl)?,
            },
        };
        Ok(Limit::new(algorithm).map(Quota::plain))
    }

    /// The value that the core's complaint is about.
    pub(crate) fn blamed_for(&self, cause: &LimitError) -> Place {
        let blamed = match cause {
            LimitError::ZeroCapacity { what: "burst" } if self.kind() == Kind::BurstCredits => {
                self.slack.map(|(_, at)| at)
            }
            LimitError::ZeroCapacity { what: "burst" } => self.burst.map(|(_, at)| at),
            LimitError::ZeroCapacity { what: "queue" } => self.queue.map(|(_, at)| at),
            LimitError::ZeroSpan { what: "lease" } => self.ttl.map(|(_, at)| at),
            LimitError::ZeroSpan { .. } => self.duration.map(|(_, at)| at),
            LimitError::NoMultiple => self.times.map(|(_, at)| at),
            LimitError::TooSlow => self
                .burst
                .map(|(_, at)| at)
                .or(self.queue.map(|(_, at)| at))
                .or(self.duration.map(|(_, at)| at))
                .or(self.tolerance.map(|(_, at)| at)),
            _ => None,
        };
        blamed
            .or(self.allow.map(|(_, at)| at))
            .unwrap_or(Place::FILE)
    }
}

/// Reads a field and keeps where its value stands.
fn at<T>(
    fields: &Fields<'_>,
    name: &str,
    read: impl FnOnce(&Node) -> Read<T>,
) -> Read<Option<At<T>>> {
    fields.read(name, |node| Ok((read(node)?, node.place)))
}

/// Reports fields of other algorithms.
fn belongs(fields: &Fields<'_>, kind: Kind, report: &Report<'_>) -> Read<()> {
    let mut done = Ok(());
    for field in OWNED {
        let Some(place) = fields.name_place(field) else {
            continue;
        };
        if kind.fields().contains(field) {
            continue;
        }
        let takes = match kind.fields() {
            [] => format!("{} takes only `allow`", kind.name()),
            all => format!("{} takes {}", kind.name(), list(all.iter().copied())),
        };
        let hint = match Kind::owner(field) {
            Some(owner) => format!("it belongs to {}; {takes}", owner.name()),
            None => takes,
        };
        let message = format!("`{field}` is not a field of {}", kind.name());
        done = Err(report.error(place, "misplaced-field", message, hint));
    }
    done
}

fn allow(node: &Node, kind: Kind, calendars: bool, report: &Report<'_>) -> Read<Allow> {
    let plain = match kind {
        Kind::Concurrency => Some((
            "concurrency counts how many run at once",
            "write a plain number, such as `allow: 20`",
        )),
        Kind::FixedWindow if calendars => Some((
            "the calendar says in how long",
            "write a plain number, such as `allow: 100000`",
        )),
        _ => None,
    };
    let Some((why, hint)) = plain else {
        return rate(node, report).map(Allow::Rate);
    };
    if text(node, report)?.contains('/') {
        return Err(report.error(node.place, "bad-rate", why, hint));
    }
    whole(node, 1, u64::MAX, "20", report).map(Allow::Number)
}

/// A number of units or a span of credit.
fn burst(node: &Node, report: &Report<'_>) -> Read<Burst> {
    let text = text(node, report)?;
    let with_unit = text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with(|c: char| c.is_alphabetic());
    if with_unit && matches!(digits(text), Err(NotDigits::Other)) {
        return span(node, report).map(Burst::Worth);
    }
    whole(node, 1, u64::MAX, "10", report).map(Burst::Units)
}
