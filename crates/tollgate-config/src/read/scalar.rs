//! Scalars: texts, numbers, percentages, time spans, enumerated words.
//!
//! Numbers are digits with an optional `_` between them, and an optional `k` or `M` behind them. Floats, exponents and signs are rejected: a limit is exact, and
//! so is its notation.

use std::ops::RangeInclusive;

use tollgate::{Rate, Span};

use super::item::Item;
use crate::report::{Read, Reported, either, quoted};
use crate::suggest::suggest;
use crate::yaml::Value;

/// The text of a scalar.
pub(crate) fn text(node: Item<'_>) -> Read<&str> {
    match &node.node.value {
        Value::Scalar { text, .. } => Ok(text),
        Value::Bad => Err(Reported),
        _ => {
            let message = format!("this is {}, but one value belongs here", node.kind());
            Err(node.error(
                "not-a-value",
                message,
                "write a single value behind the colon",
            ))
        }
    }
}

/// A text for operators, without control characters and of bounded length.
pub(crate) fn prose(node: Item<'_>) -> Read<String> {
    const MOST: usize = 1000;
    let text = text(node)?;
    if text.chars().count() > MOST {
        return Err(node.error(
            "too-long",
            format!("this text is longer than {MOST} characters"),
            "shorten it, or link to an explanation",
        ));
    }
    if text.chars().any(|c| c.is_control() && c != '\n') {
        return Err(node.error(
            "control-character",
            "there is a control character in this text",
            "remove it: the text is shown in logs and terminals",
        ));
    }
    Ok(text.to_owned())
}

/// An integer in `range`; `sample` is one that a hint shows.
pub(crate) fn integer<T: TryFrom<u64>>(
    node: Item<'_>,
    range: RangeInclusive<u64>,
    sample: &str,
) -> Read<T> {
    let text = text(node)?;
    let (min, max) = (range.start(), range.end());
    let (message, hint) = match digits(text) {
        Ok(number) if number < *min => (
            format!("{} is below {min}", quoted(text)),
            format!("write at least {min}, such as `{sample}`"),
        ),
        Ok(number) => match T::try_from(number) {
            Ok(value) if number <= *max => return Ok(value),
            _ => (
                format!("{} is above {max}", quoted(text)),
                format!("write at most {max}"),
            ),
        },
        Err(NotDigits::TooLarge) => (
            format!("{} is too large", quoted(text)),
            "write a smaller number".into(),
        ),
        Err(NotDigits::Exponent) => (
            format!("{} is written with an exponent", quoted(text)),
            "write the digits out, such as `1_000`".into(),
        ),
        Err(why) => (
            match why {
                NotDigits::Negative => format!("{} is negative", quoted(text)),
                _ => format!("{} is not a whole number", quoted(text)),
            },
            format!("write digits only, such as `{sample}`"),
        ),
    };
    Err(node.error("bad-number", message, hint))
}

/// Why a text is not an integer.
pub(crate) enum NotDigits {
    Negative,
    Exponent,
    TooLarge,
    Other,
}

/// The number that these digits represent; `k` and `M` behind them stand for thousands and millions.
pub(crate) fn digits(text: &str) -> Result<u64, NotDigits> {
    for (suffix, scale) in [('k', 1_000_u64), ('K', 1_000), ('M', 1_000_000)] {
        let number = text.strip_suffix(suffix).map(plain_digits);
        if let Some(Ok(number)) = number {
            return number.checked_mul(scale).ok_or(NotDigits::TooLarge);
        }
    }
    plain_digits(text)
}

/// The same without `k` and `M`.
pub(crate) fn plain_digits(text: &str) -> Result<u64, NotDigits> {
    let plain = text.replace('_', "");
    let all_digits = !plain.is_empty() && plain.bytes().all(|b| b.is_ascii_digit());
    if all_digits && !text.starts_with('_') && !text.ends_with('_') {
        return plain.parse().map_err(|_| NotDigits::TooLarge);
    }
    let lower = plain.to_lowercase();
    let unsigned = lower.trim_start_matches(['+', '-', '.']);
    let is_number = |b: u8| b.is_ascii_digit() || b"e+-.".contains(&b);
    Err(match () {
        () if !unsigned.starts_with(|c: char| c.is_ascii_digit()) => NotDigits::Other,
        () if lower.starts_with('-') => NotDigits::Negative,
        () if unsigned.contains('e') && unsigned.bytes().all(is_number) => NotDigits::Exponent,
        () => NotDigits::Other,
    })
}

/// `true` or `false`.
pub(crate) fn boolean(node: Item<'_>) -> Read<bool> {
    let text = text(node)?;
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => {
            let hint = match text.to_lowercase().as_str() {
                "yes" | "on" | "true" | "1" => "write `true`",
                "no" | "off" | "false" | "0" => "write `false`",
                _ => "write `true` or `false`",
            };
            let message = format!("{} is neither `true` nor `false`", quoted(text));
            Err(node.error("not-a-boolean", message, hint))
        }
    }
}

/// One of `words`; `what` names them in the message.
pub(crate) fn choice<T: Copy>(node: Item<'_>, what: &str, words: &[(&'static str, T)]) -> Read<T> {
    choice_or_alias(node, what, words, &[])
}

/// The same, where `aliases` pairs words of other tools with ours, for the hint.
pub(crate) fn choice_or_alias<T: Copy>(
    node: Item<'_>,
    what: &str,
    words: &[(&'static str, T)],
    aliases: &[(&str, &'static str)],
) -> Read<T> {
    let text = text(node)?;
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let names = || words.iter().map(|(word, _)| *word);
    let spelt = text.to_lowercase().replace(['_', ' '], "-");
    let alias = aliases.iter().find(|(alias, _)| *alias == spelt);
    let near = alias.map(|(_, word)| *word);
    let near = near.or_else(|| names().find(|name| *name == spelt));
    let hint = match near.or_else(|| suggest(&spelt, names())) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("write {}", either(names())),
    };
    let message = format!("{} is not {what}", quoted(text));
    Err(node.error("unknown-word", message, hint))
}

/// A percentage in ten-thousandths: `25%`, `0.5%`.
pub(crate) fn percentage(node: Item<'_>) -> Read<u32> {
    let text = text(node)?;
    let wrong = |message: String, hint: &str| node.error("bad-share", message, hint);
    let Some(number) = text.strip_suffix('%') else {
        let hint = match digits(text) {
            Ok(number @ 0..=100) => format!("write `{number}%`"),
            _ => "write a percentage, such as `25%`".into(),
        };
        return Err(wrong(format!("{} has no `%`", quoted(text)), &hint));
    };
    let sample = "write a percentage from `0%` to `100%`, with at most two decimals: `25%`, `0.5%`";
    let (units, decimals) = decimal(number.trim())
        .ok_or_else(|| wrong(format!("{} is not a percentage", quoted(text)), sample))?;
    let scaled = match decimals {
        0 => units.checked_mul(100),
        1 => units.checked_mul(10),
        2 => Some(units),
        _ => None,
    };
    match scaled.and_then(|s| u32::try_from(s).ok()) {
        Some(share @ 0..=10_000) => Ok(share),
        _ if decimals > 2 => Err(wrong(
            format!("{} has too many decimals", quoted(text)),
            sample,
        )),
        _ => Err(wrong(format!("{} is above 100%", quoted(text)), sample)),
    }
}

/// A decimal number: its digits, and how many of them follow the point.
pub(crate) fn decimal(text: &str) -> Option<(u64, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if text.ends_with('.') || whole.is_empty() {
        return None;
    }
    let all = format!("{}{fraction}", whole.replace('_', ""));
    let decimals = u32::try_from(fraction.len()).ok()?;
    (all.bytes().all(|b| b.is_ascii_digit()))
        .then(|| all.parse().ok())
        .flatten()
        .map(|units| (units, decimals))
}

/// A time span.
pub(crate) fn span(node: Item<'_>) -> Read<Span> {
    let parsed = text(node)?.parse::<Span>();
    parsed.map_err(|e| node.error("bad-span", e.to_string(), e.hint()))
}

/// A time span in `range`.
pub(crate) fn span_within(node: Item<'_>, range: RangeInclusive<Span>, sample: &str) -> Read<Span> {
    let found = span(node)?;
    let (min, max) = (range.start(), range.end());
    let message = match found {
        found if found < *min => format!("{found} is below {min}"),
        found if found > *max => format!("{found} is above {max}"),
        found => return Ok(found),
    };
    let hint = format!("write a span from {min} to {max}, such as `{sample}`");
    Err(node.error("bad-span", message, hint))
}

/// A rate.
pub(crate) fn rate(node: Item<'_>) -> Read<Rate> {
    let parsed = text(node)?.parse::<Rate>();
    parsed.map_err(|e| node.error("bad-rate", e.to_string(), e.hint()))
}
