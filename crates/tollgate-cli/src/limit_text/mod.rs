//! Limits as people write them: `5/s burst 10`, `leaky-bucket 3000/s queue 5000 max-wait 2s`.
//!
//! An algorithm (a token bucket if none is named), its rate or number, then options with one value
//! each, in any order. What the core prints for a limit can be read back: names may be written with a
//! space for the hyphen, and a rate as `10 in 1m`.
//!
//! This module knows how limits are spelt. Which numbers make a limit is for the core to say.

mod kind;
mod words;

use tollgate::{Algorithm, Burst, Estimate, Limit};

use crate::fault::{Fault, Wrong};
use kind::spelt;
pub(crate) use kind::{Kind, Word};
pub(crate) use words::whole;
use words::{Amount, Options, Words};

/// Reads a limit.
///
/// # Errors
/// Words that are no limit, or numbers that the core refuses; the fault says which word.
pub(crate) fn parse(text: &str) -> Result<Limit, Fault> {
    let words = Words::split(text);
    let (kind, used) = words.kind()?;
    let (amount, used) = words.amount(kind, used)?;
    let options = words.options(kind, used)?;
    let algorithm = algorithm(kind, &amount, &options)?;
    Limit::new(algorithm).map_err(|cause| {
        let place = options.blamed_for(&cause, &amount);
        Wrong::Limit { cause }.at(place)
    })
}

/// Does this word belong to a limit, and so never to an arrival?
pub(crate) fn is_limit_word(word: &str) -> bool {
    Kind::named(word).is_some()
        || Kind::ALL
            .iter()
            .flat_map(|kind| kind.options())
            .any(|option| option.name() == spelt(word))
}

/// What the core prints, and the options that it leaves out.
pub(crate) fn describe(limit: &Limit) -> String {
    let more = match *limit.algorithm() {
        Algorithm::FixedWindow { anchor, .. } if !anchor.is_zero() => format!(" anchor {anchor}"),
        Algorithm::SlidingWindow {
            estimate: Estimate::Classic { parts },
            ..
        } => {
            format!(" estimate classic parts {parts}")
        }
        Algorithm::SlidingWindow {
            estimate: Estimate::Strict { parts },
            ..
        } => {
            format!(" estimate strict parts {parts}")
        }
        Algorithm::BurstCredits {
            slack: Some(slack), ..
        } => format!(" slack {slack}"),
        _ => String::new(),
    };
    format!("{limit}{more}")
}

fn algorithm(kind: Kind, amount: &Amount<'_>, options: &Options<'_>) -> Result<Algorithm, Fault> {
    let rate = || amount.rate();
    Ok(match kind {
        Kind::TokenBucket => {
            let rate = rate()?;
            let burst = options.burst(Word::Burst)?;
            let burst = match burst.unwrap_or(Burst::Units(rate.units())) {
                Burst::Worth(span) => rate.earned_in(span),
                Burst::Units(units) => units,
            };
            Algorithm::TokenBucket { rate, burst }
        }
        Kind::Gcra => Algorithm::Gcra {
            rate: rate()?,
            tolerance: options.needed(Word::Tolerance, options.span(Word::Tolerance)?)?,
        },
        Kind::LeakyBucket => Algorithm::LeakyBucket {
            rate: rate()?,
            queue: options.needed(Word::Queue, options.number(Word::Queue)?)?,
            max_wait: options.span(Word::MaxWait)?,
        },
        Kind::FixedWindow => Algorithm::FixedWindow {
            limit: rate()?.units(),
            window: rate()?.per(),
            anchor: options.span(Word::Anchor)?.unwrap_or_default(),
        },
        Kind::SlidingLog => Algorithm::SlidingLog {
            limit: rate()?.units(),
            window: rate()?.per(),
        },
        Kind::SlidingWindow => Algorithm::SlidingWindow {
            limit: rate()?.units(),
            window: rate()?.per(),
            estimate: options.estimate()?,
        },
        Kind::BurstCredits => Algorithm::BurstCredits {
            rate: rate()?,
            multiple: options.needed(Word::Times, options.small_number(Word::Times)?)?,
            duration: options.needed(Word::For, options.span(Word::For)?)?,
            slack: options.number(Word::Slack)?,
        },
        Kind::Concurrency => Algorithm::Concurrency {
            limit: amount.number()?,
            ttl: options.needed(Word::Ttl, options.span(Word::Ttl)?)?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::{Rate, Span};

    fn algorithm_of(text: &str) -> Algorithm {
        *parse(text)
            .unwrap_or_else(|fault| panic!("{text}: {fault:?}"))
            .algorithm()
    }

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    #[test]
    fn every_algorithm_is_read_as_people_write_it() {
        let minute = Span::from_secs(60);
        for (text, algorithm) in [
            (
                "5/s",
                Algorithm::TokenBucket {
                    rate: rate("5/s"),
                    burst: 5,
                },
            ),
            (
                "5/s burst 10",
                Algorithm::TokenBucket {
                    rate: rate("5/s"),
                    burst: 10,
                },
            ),
            (
                "Token_Bucket 5/s burst 1_000",
                Algorithm::TokenBucket {
                    rate: rate("5/s"),
                    burst: 1000,
                },
            ),
            (
                "5/s burst 30s",
                Algorithm::TokenBucket {
                    rate: rate("5/s"),
                    burst: 150,
                },
            ),
            (
                "5 per second burst 10",
                Algorithm::TokenBucket {
                    rate: rate("5/s"),
                    burst: 10,
                },
            ),
            (
                "gcra 10/s tolerance 250ms",
                Algorithm::Gcra {
                    rate: rate("10/s"),
                    tolerance: Span::from_millis(250),
                },
            ),
            (
                "leaky-bucket 3000/s max-wait 2s queue 5000",
                Algorithm::LeakyBucket {
                    rate: rate("3000/s"),
                    queue: 5000,
                    max_wait: Some(Span::from_secs(2)),
                },
            ),
            (
                "fixed-window 10/min",
                Algorithm::FixedWindow {
                    limit: 10,
                    window: minute,
                    anchor: Span::ZERO,
                },
            ),
            (
                "fixed-window 10/min anchor 30s",
                Algorithm::FixedWindow {
                    limit: 10,
                    window: minute,
                    anchor: Span::from_secs(30),
                },
            ),
            (
                "sliding-log 100/min",
                Algorithm::SlidingLog {
                    limit: 100,
                    window: minute,
                },
            ),
            (
                "sliding-window 50/min",
                Algorithm::SlidingWindow {
                    limit: 50,
                    window: minute,
                    estimate: Estimate::Span,
                },
            ),
            (
                "sliding-window 50/min estimate classic",
                Algorithm::SlidingWindow {
                    limit: 50,
                    window: minute,
                    estimate: Estimate::Classic { parts: 1 },
                },
            ),
            (
                "sliding-window 50/min parts 3 estimate strict",
                Algorithm::SlidingWindow {
                    limit: 50,
                    window: minute,
                    estimate: Estimate::Strict { parts: 3 },
                },
            ),
            (
                "burst-credits 10/s times 10 for 30s slack 4",
                Algorithm::BurstCredits {
                    rate: rate("10/s"),
                    multiple: 10,
                    duration: Span::from_secs(30),
                    slack: Some(4),
                },
            ),
            (
                "concurrency 20 ttl 30s",
                Algorithm::Concurrency {
                    limit: 20,
                    ttl: Span::from_secs(30),
                },
            ),
        ] {
            assert_eq!(algorithm_of(text), algorithm, "{text}");
        }
    }

    #[test]
    fn what_is_printed_for_a_limit_reads_back_as_the_same_limit() {
        let more = [
            "fixed-window 10/min anchor 30s",
            "sliding-window 50/min estimate classic parts 2",
            "sliding-window 50/min estimate strict parts 3",
            "burst-credits 10/s times 10 for 30s slack 4",
        ];
        for text in Kind::ALL.into_iter().map(Kind::example).chain(more) {
            let limit = parse(text).unwrap();
            assert_eq!(parse(&describe(&limit)), Ok(limit), "{text}");
        }
    }

    #[test]
    fn the_place_of_a_word_counts_characters_and_not_bytes() {
        let Err(Fault {
            place: Some(place), ..
        }) = parse("  5/s   bürst 10")
        else {
            panic!("`bürst` is no option");
        };
        assert_eq!(
            (place.label.as_str(), place.from, place.width),
            ("LIMIT, word 2", 8, 5)
        );
        let Err(Fault {
            place: Some(place), ..
        }) = parse("fixed window 10  in 1x")
        else {
            panic!("`1x` is no period");
        };
        assert_eq!(
            (place.label.as_str(), place.from, place.width),
            ("LIMIT, word 3", 13, 9)
        );
    }

    #[test]
    fn every_option_belongs_to_an_algorithm_and_its_sample_is_read() {
        for kind in Kind::ALL {
            assert_eq!(Kind::named(kind.name()), Some(kind));
            for option in kind.options() {
                assert!(is_limit_word(option.name()));
                let known: Vec<_> = kind.example().split_whitespace().collect();
                if !known.contains(&option.name()) && *option != Word::Parts {
                    parse(&format!("{} {}", kind.example(), option.sample())).unwrap();
                }
            }
        }
        assert!(!is_limit_word("0s"));
    }
}
