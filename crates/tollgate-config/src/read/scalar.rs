//! Single values: texts, numbers, shares, spans of time, words of a choice.
//!
//! Numbers are digits, with `_` between them if there are many. No floats, no exponents, no signs: what
//! a limit promises is exact, and so is how it is written.

use tollgate::{Rate, Span};

use crate::near::nearest;
use crate::report::{Read, Report, Reported, either, quoted};
use crate::yaml::{Node, Value};

/// A text, whatever it looks like.
pub(crate) fn text<'n>(node: &'n Node, report: &Report<'_>) -> Read<&'n str> {
    match &node.value {
        Value::Scalar { text, .. } => Ok(text),
        Value::Bad => Err(Reported),
        _ => Err(report.error(
            node.place,
            "not-a-value",
            format!("this is {}, but one value belongs here", node.kind()),
            "write a single value behind the colon",
        )),
    }
}

/// A text that people read: not empty, of one line's length.
pub(crate) fn prose(node: &Node, report: &Report<'_>) -> Read<String> {
    const MOST: usize = 1000;
    let text = text(node, report)?;
    if text.chars().count() > MOST {
        return Err(report.error(
            node.place,
            "too-long",
            format!("this text is longer than {MOST} characters"),
            "say it shorter, or link to where it is explained",
        ));
    }
    if text.chars().any(|c| c.is_control() && c != '\n') {
        return Err(report.error(
            node.place,
            "control-character",
            "there is a control character in this text",
            "remove it: the text is shown in logs and terminals",
        ));
    }
    Ok(text.to_owned())
}

/// A whole number between two; `sample` is how one is written.
pub(crate) fn whole(
    node: &Node,
    least: u64,
    most: u64,
    sample: &str,
    report: &Report<'_>,
) -> Read<u64> {
    let text = text(node, report)?;
    let wrong =
        |message: String, hint: String| report.error(node.place, "bad-number", message, hint);
    match digits(text) {
        Ok(number) if number < least => Err(wrong(
            format!("{} is below {least}", quoted(text)),
            format!("write at least {least}, such as `{sample}`"),
        )),
        Ok(number) if number > most => Err(wrong(
            format!("{} is above {most}", quoted(text)),
            format!("write at most {most}"),
        )),
        Ok(number) => Ok(number),
        Err(why @ NotDigits::TooLarge) => {
            Err(wrong(why.message(text), "write a smaller number".into()))
        }
        Err(why @ NotDigits::Exponent) => Err(wrong(
            why.message(text),
            "write the digits out, such as `1_000`".into(),
        )),
        Err(why) => Err(wrong(
            why.message(text),
            format!("write digits only, such as `{sample}`"),
        )),
    }
}

/// Why a text is no whole number.
pub(crate) enum NotDigits {
    Negative,
    Fraction,
    Exponent,
    NotFinite,
    Other,
    TooLarge,
}

impl NotDigits {
    fn message(&self, text: &str) -> String {
        let text = quoted(text);
        match self {
            NotDigits::Negative => format!("{text} is negative"),
            NotDigits::Fraction => format!("{text} is not a whole number"),
            NotDigits::Exponent => format!("{text} is written with an exponent"),
            NotDigits::NotFinite => format!("{text} is not a number"),
            NotDigits::Other => format!("{text} is not a whole number"),
            NotDigits::TooLarge => format!("{text} is more than can be counted"),
        }
    }
}

/// The number that these digits stand for.
pub(crate) fn digits(text: &str) -> Result<u64, NotDigits> {
    let plain = text.replace('_', "");
    let all_digits = !plain.is_empty() && plain.bytes().all(|b| b.is_ascii_digit());
    if all_digits && !text.starts_with('_') && !text.ends_with('_') {
        return plain.parse().map_err(|_| NotDigits::TooLarge);
    }
    let lower = plain.to_lowercase();
    let unsigned = lower.trim_start_matches(['+', '-', '.']);
    Err(match () {
        () if unsigned == "nan" || unsigned == "inf" || unsigned == "infinity" => {
            NotDigits::NotFinite
        }
        () if !unsigned.starts_with(|c: char| c.is_ascii_digit()) => NotDigits::Other,
        () if lower.starts_with('-') => NotDigits::Negative,
        () if unsigned
            .bytes()
            .all(|b| b.is_ascii_digit() || b"e+-.".contains(&b)) =>
        {
            if unsigned.contains('e') {
                NotDigits::Exponent
            } else {
                NotDigits::Fraction
            }
        }
        () => NotDigits::Other,
    })
}

/// `true` or `false`.
pub(crate) fn yes(node: &Node, report: &Report<'_>) -> Read<bool> {
    let text = text(node, report)?;
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
            Err(report.error(node.place, "not-a-boolean", message, hint))
        }
    }
}

/// One of a few words; `what` is what they are called.
pub(crate) fn choice<T: Copy>(
    node: &Node,
    what: &str,
    words: &[(&'static str, T)],
    report: &Report<'_>,
) -> Read<T> {
    let text = text(node, report)?;
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let names = || words.iter().map(|(word, _)| *word);
    let spelt = text.to_lowercase().replace(['_', ' '], "-");
    let near = names().find(|name| *name == spelt);
    let hint = match near.or_else(|| nearest(&spelt, names())) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("write {}", either(names())),
    };
    let message = format!("{} is not {what}", quoted(text));
    Err(report.error(node.place, "unknown-word", message, hint))
}

/// A share of a hundred, in ten-thousandths: `25%`, `0.5%`.
pub(crate) fn share(node: &Node, report: &Report<'_>) -> Read<u32> {
    let text = text(node, report)?;
    let wrong = |message: String, hint: &str| report.error(node.place, "bad-share", message, hint);
    let Some(number) = text.strip_suffix('%') else {
        let hint = match digits(text) {
            Ok(number @ 0..=100) => format!("write `{number}%`"),
            _ => "write a share of a hundred, such as `25%`".into(),
        };
        return Err(wrong(format!("{} has no `%`", quoted(text)), &hint));
    };
    let sample = "write a share from `0%` to `100%`, with two decimals at the most: `25%`, `0.5%`";
    let (units, decimals) = decimal(number.trim()).ok_or_else(|| {
        wrong(
            format!("{} is not a share of a hundred", quoted(text)),
            sample,
        )
    })?;
    let scaled = match decimals {
        0 => units.checked_mul(100),
        1 => units.checked_mul(10),
        2 => Some(units),
        _ => None,
    };
    match scaled.and_then(|s| u32::try_from(s).ok()) {
        Some(share @ 0..=10_000) => Ok(share),
        _ if decimals > 2 => Err(wrong(format!("{} is too fine", quoted(text)), sample)),
        _ => Err(wrong(format!("{} is more than all", quoted(text)), sample)),
    }
}

/// A decimal number as digits and how many of them stand behind the point.
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

/// A span of time.
pub(crate) fn span(node: &Node, report: &Report<'_>) -> Read<Span> {
    text(node, report)?
        .parse()
        .map_err(|e: tollgate::SpanError| {
            report.error(node.place, "bad-span", e.to_string(), e.hint())
        })
}

/// A span from `least` to `most`, both of which are spans that people write.
pub(crate) fn span_within(
    node: &Node,
    least: Span,
    most: Span,
    sample: &str,
    report: &Report<'_>,
) -> Read<Span> {
    let found = span(node, report)?;
    let (side, bound) = match found {
        found if found < least => ("below", least),
        found if found > most => ("above", most),
        found => return Ok(found),
    };
    Err(report.error(
        node.place,
        "bad-span",
        format!("{found} is {side} {bound}"),
        format!("write a span from {least} to {most}, such as `{sample}`"),
    ))
}

/// A whole number that fits into 32 bits, as `most` has to.
pub(crate) fn whole_u32(
    node: &Node,
    least: u32,
    most: u32,
    sample: &str,
    report: &Report<'_>,
) -> Read<u32> {
    let found = whole(node, least.into(), most.into(), sample, report)?;
    Ok(u32::try_from(found).unwrap_or(most))
}

/// A number of things that are held in memory.
pub(crate) fn count(node: &Node, most: u32, sample: &str, report: &Report<'_>) -> Read<usize> {
    let found = whole_u32(node, 1, most, sample, report)?;
    Ok(usize::try_from(found).unwrap_or(usize::MAX))
}

/// A rate.
pub(crate) fn rate(node: &Node, report: &Report<'_>) -> Read<Rate> {
    text(node, report)?
        .parse()
        .map_err(|e: tollgate::RateError| {
            report.error(node.place, "bad-rate", e.to_string(), e.hint())
        })
}
