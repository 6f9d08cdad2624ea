//! The words of a limit: which is what, and where it stands.

use std::num::IntErrorKind;

use tollgate::rate::RateError;
use tollgate::{Burst, Estimate, LimitError, Rate, Span};
use tollgate_policy::near::nearest;

use super::is_limit_word;
use super::kind::{Kind, Word, spelt};
use crate::fault::{Fault, Place, Wrong};

/// The words of a limit, with their places.
pub(super) struct Words<'a> {
    text: &'a str,
    words: Vec<&'a str>,
}

impl<'a> Words<'a> {
    /// The words of `text`.
    pub(super) fn split(text: &'a str) -> Words<'a> {
        Words {
            text,
            words: text.split_whitespace().collect(),
        }
    }

    fn get(&self, index: usize) -> Option<&'a str> {
        self.words.get(index).copied()
    }

    /// Where the word stands; behind the last one if there is no such word.
    fn place(&self, index: usize) -> Place {
        let label = format!("LIMIT, word {}", index + 1);
        match self.get(index) {
            Some(word) => Place::within(label, self.text, word),
            None => {
                let from = self.text.trim_end().chars().count() + 1;
                Place {
                    label,
                    text: self.text.into(),
                    from,
                    width: 1,
                }
            }
        }
    }

    /// Where the words from `first` to `last` stand.
    fn stretch(&self, first: usize, last: usize) -> Place {
        let (place, end) = (self.place(first), self.place(last));
        let width = (end.from + end.width).saturating_sub(place.from);
        Place { width, ..place }
    }

    /// The algorithm, and how many words it took: none for a plain rate, two for `token bucket`.
    pub(super) fn kind(&self) -> Result<(Kind, usize), Fault> {
        let first = self.get(0).ok_or(Wrong::NoLimit)?;
        if let Some(kind) = Kind::named(first) {
            return Ok((kind, 1));
        }
        let joined = self.get(1).map(|second| format!("{first}-{second}"));
        if let Some(kind) = joined.as_deref().and_then(Kind::named) {
            return Ok((kind, 2));
        }
        if first.contains('/') || first.starts_with(|c: char| c.is_ascii_digit()) {
            return Ok((Kind::TokenBucket, 0));
        }
        let names = || Kind::ALL.into_iter().map(Kind::name);
        let near = nearest(&spelt(first), names())
            .or_else(|| joined.and_then(|joined| nearest(&spelt(&joined), names())));
        Err(Wrong::UnknownAlgorithm {
            word: first.into(),
            near,
        }
        .at(self.place(0)))
    }

    /// The rate or number at `index`, and the index behind it.
    pub(super) fn amount(&'a self, kind: Kind, index: usize) -> Result<(Amount<'a>, usize), Fault> {
        let missing = || Wrong::NoAmount { kind }.at(self.place(index));
        let word = self
            .get(index)
            .filter(|word| !is_limit_word(word))
            .ok_or_else(missing)?;
        let (period, last) = match (self.get(index + 1), self.get(index + 2)) {
            (Some("in" | "per"), Some(period)) => (Some(period), index + 2),
            _ => (None, index),
        };
        Ok((
            Amount {
                word,
                period,
                place: self.stretch(index, last),
            },
            last + 1,
        ))
    }

    /// The options from `index` to the end, each known to the algorithm and with a value.
    pub(super) fn options(&'a self, kind: Kind, mut index: usize) -> Result<Options<'a>, Fault> {
        let mut found: Vec<(Word, usize)> = Vec::new();
        while let Some(word) = self.get(index) {
            let place = self.place(index);
            let joined = self.get(index + 1).map(|next| format!("{word}-{next}"));
            let is = |option: &Word, word: &str| option.name() == spelt(word);
            let find = |word: &str| {
                kind.options()
                    .iter()
                    .copied()
                    .find(|option| is(option, word))
            };
            let (option, used) = match (find(word), joined.as_deref().and_then(find)) {
                (Some(option), _) => (option, 1),
                (None, Some(option)) => (option, 2),
                (None, None) => {
                    let owns = |kind: &Kind| kind.options().iter().any(|option| is(option, word));
                    let near = nearest(&spelt(word), kind.options().iter().map(|o| o.name()));
                    let owner = Kind::ALL.into_iter().find(owns);
                    return Err(Wrong::UnknownOption {
                        word: word.into(),
                        kind,
                        near,
                        owner,
                    }
                    .at(place));
                }
            };
            if found.iter().any(|(earlier, _)| *earlier == option) {
                return Err(Wrong::Twice {
                    option: option.name(),
                }
                .at(place));
            }
            if self.get(index + used).is_none() {
                return Err(Wrong::NoValue { option }.at(place));
            }
            found.push((option, index + used));
            index += used + 1;
        }
        Ok(Options {
            kind,
            words: self,
            found,
        })
    }
}

/// What stands behind the algorithm's name.
pub(super) struct Amount<'a> {
    word: &'a str,
    /// The period of a rate that is written `10 in 1m`.
    period: Option<&'a str>,
    place: Place,
}

impl Amount<'_> {
    /// The rate that it stands for.
    pub(super) fn rate(&self) -> Result<Rate, Fault> {
        let rate: Result<Rate, RateError> = match self.period {
            Some(period) => format!("{}/{period}", self.word).parse(),
            None => self.word.parse(),
        };
        rate.map_err(|cause| Wrong::Rate { cause }.at(self.place.clone()))
    }

    /// The whole number that it stands for.
    pub(super) fn number(&self) -> Result<u64, Fault> {
        whole(self.word, "concurrency 20 ttl 30s").map_err(|wrong| wrong.at(self.place.clone()))
    }
}

/// The options of a limit: each is where its value stands.
pub(super) struct Options<'a> {
    kind: Kind,
    words: &'a Words<'a>,
    found: Vec<(Word, usize)>,
}

impl<'a> Options<'a> {
    fn index(&self, option: Word) -> Option<usize> {
        self.found
            .iter()
            .find(|(word, _)| *word == option)
            .map(|(_, index)| *index)
    }

    fn value<T>(
        &self,
        option: Word,
        read: impl Fn(&'a str) -> Result<T, Wrong>,
    ) -> Result<Option<T>, Fault> {
        let Some(index) = self.index(option) else {
            return Ok(None);
        };
        let word = self.words.get(index).unwrap_or_default();
        read(word)
            .map(Some)
            .map_err(|wrong| wrong.at(self.words.place(index)))
    }

    /// An option's value as a whole number, if the option is there.
    pub(super) fn number(&self, option: Word) -> Result<Option<u64>, Fault> {
        self.value(option, |word| whole(word, option.sample()))
    }

    /// An option's value as a burst, in units or as a span of credit, if the option is there.
    pub(super) fn burst(&self, option: Word) -> Result<Option<Burst>, Fault> {
        self.value(option, |word| match word.parse::<Burst>() {
            Ok(burst) => Ok(burst),
            // Neither: say what is wrong with it as a number, which most bursts are.
            Err(_) => whole(word, option.sample()).map(Burst::Units),
        })
    }

    /// An option's value as a whole number of 32 bits, if the option is there.
    pub(super) fn small_number(&self, option: Word) -> Result<Option<u32>, Fault> {
        self.value(option, |word| {
            let too_large = |_| Wrong::TooLarge {
                word: word.into(),
                most: u32::MAX.into(),
            };
            whole(word, option.sample()).and_then(|n| u32::try_from(n).map_err(too_large))
        })
    }

    /// An option's value as a span of time, if the option is there.
    pub(super) fn span(&self, option: Word) -> Result<Option<Span>, Fault> {
        self.value(option, |word| {
            word.parse().map_err(|cause| Wrong::Span { cause })
        })
    }

    /// The value of an option that the algorithm cannot do without.
    pub(super) fn needed<T>(&self, option: Word, value: Option<T>) -> Result<T, Fault> {
        let end = self.words.words.len();
        value.ok_or_else(|| {
            Wrong::Missing {
                kind: self.kind,
                option,
            }
            .at(self.words.place(end))
        })
    }

    /// Two counters are the classic form that everybody knows, so `classic` alone means them. There
    /// is no such custom for `strict`, where the parts decide how much throughput is lost.
    pub(super) fn estimate(&self) -> Result<Estimate, Fault> {
        let parts = self.small_number(Word::Parts)?;
        let form = self.value(Word::Estimate, |word| match spelt(word).as_str() {
            form @ ("span" | "classic" | "strict") => Ok(form.to_owned()),
            other => {
                let near = nearest(other, ["span", "classic", "strict"]);
                Err(Wrong::UnknownEstimate {
                    word: word.into(),
                    near,
                })
            }
        })?;
        match (form.as_deref(), parts) {
            (Some("classic"), parts) => Ok(Estimate::Classic {
                parts: parts.unwrap_or(1),
            }),
            (Some("strict"), Some(parts)) => Ok(Estimate::Strict { parts }),
            (Some("strict"), None) => {
                let index = self.index(Word::Estimate).unwrap_or_default();
                Err(Wrong::PartsMissing.at(self.words.place(index)))
            }
            (_, None) => Ok(Estimate::Span),
            (_, Some(_)) => {
                let index = self.index(Word::Parts).unwrap_or_default();
                Err(Wrong::PartsUnused.at(self.words.place(index.saturating_sub(1))))
            }
        }
    }

    /// The word that the core's complaint is about: an option's value, or else the amount.
    pub(super) fn blamed_for(&self, cause: &LimitError, amount: &Amount<'_>) -> Place {
        let option = match cause {
            LimitError::ZeroCapacity { what: "burst" } if self.kind == Kind::BurstCredits => {
                Some(Word::Slack)
            }
            LimitError::ZeroCapacity { what: "burst" } => Some(Word::Burst),
            LimitError::ZeroCapacity { what: "queue" } => Some(Word::Queue),
            LimitError::ZeroSpan { what: "lease" } => Some(Word::Ttl),
            LimitError::ZeroSpan {
                what: "burst duration",
            } => Some(Word::For),
            LimitError::NoMultiple => Some(Word::Times),
            LimitError::TooManyParts { .. } => Some(Word::Parts),
            _ => None,
        };
        match option.and_then(|option| self.index(option)) {
            Some(index) => self.words.place(index),
            None => amount.place.clone(),
        }
    }
}

/// A whole number, with `_` between digits if it is long.
pub(crate) fn whole(word: &str, sample: &'static str) -> Result<u64, Wrong> {
    word.replace('_', "")
        .parse::<u64>()
        .map_err(|e| match e.kind() {
            IntErrorKind::PosOverflow => Wrong::TooLarge {
                word: word.into(),
                most: u64::MAX,
            },
            _ => Wrong::NotANumber {
                word: word.into(),
                sample,
            },
        })
}
