//! Where a text of a request is found: `ip`, `header.x-rider-id`, `path.ride`.

use tollgate_policy::{KEY_PARTS_MAX as PARTS_MAX, KeyPart, Source};

use super::fields::{each, one_or_many};
use super::scalar::text;
use crate::near::nearest;
use crate::report::{Read, Report, list, quoted};
use crate::yaml::{Node, Value};

/// Sources that stand alone, and those that a name follows.
const ALONE: &[&str] = &["ip", "path", "method", "host"];
const NAMED: &[&str] = &["header", "query", "cookie", "path", "descriptor", "field"];
const FOLDS: &[&str] = &["trim", "lowercase"];
/// Bits of an IPv6 address that may count: more than 64 can be rotated freely, fewer than 32 are a
/// provider.
pub(crate) const V6_BITS: std::ops::RangeInclusive<u64> = 32..=64;

/// Reads a key: nothing, one part or several.
pub(crate) fn key(node: &Node, v6: u8, report: &Report<'_>) -> Read<Vec<KeyPart>> {
    if let Value::Scalar { text, .. } = &node.value
        && text == "none"
    {
        return Ok(Vec::new());
    }
    let parts = one_or_many(node);
    if parts.is_empty() || parts.len() > PARTS_MAX {
        return Err(report.error(
            node.place,
            "bad-key",
            format!("a key has from 1 to {PARTS_MAX} parts, not {}", parts.len()),
            "name what requests are counted by, such as `ip`, or leave `key` out for one allowance for everybody",
        ));
    }
    let read = each(parts.iter().copied(), |node| part(node, v6, report))?;
    for (at, part) in read.iter().enumerate() {
        if let (true, Some(node)) = (read.iter().take(at).any(|p| p == part), parts.get(at)) {
            return Err(report.error(
                node.place,
                "bad-key",
                "this part of the key is there already",
                "name it once; a part that is there twice distinguishes nobody",
            ));
        }
    }
    Ok(read)
}

/// One part: a source and how its text is folded.
fn part(node: &Node, v6: u8, report: &Report<'_>) -> Read<KeyPart> {
    let whole = text(node, report)?;
    let mut words = whole.split('|').map(str::trim);
    let source = named(node, words.next().unwrap_or_default(), v6, report)?;
    let mut part = KeyPart {
        source,
        trim: false,
        lowercase: false,
    };
    for word in words {
        match word {
            "trim" => part.trim = true,
            "lowercase" => part.lowercase = true,
            _ => {
                let hint = match nearest(word, FOLDS.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("behind a `|` stand {}", list(FOLDS.iter().copied())),
                };
                let message = format!("{} is not a way to fold a key", quoted(word));
                return Err(report.error(node.place, "bad-key", message, hint));
            }
        }
    }
    Ok(part)
}

/// A source, without folds.
pub(crate) fn source(node: &Node, v6: u8, report: &Report<'_>) -> Read<Source> {
    named(node, text(node, report)?, v6, report)
}

fn named(node: &Node, word: &str, v6: u8, report: &Report<'_>) -> Read<Source> {
    let wrong =
        |message: String, hint: String| report.error(node.place, "bad-source", message, hint);
    if let Some(bits) = word.strip_prefix("ip/") {
        return match bits.parse::<u8>() {
            Ok(bits) if V6_BITS.contains(&u64::from(bits)) => Ok(Source::Address { v4: 32, v6: bits }),
            _ => Err(wrong(
                format!("{} is not a prefix that addresses are counted by", quoted(word)),
                "write `ip/56`: from 32 to 64 bits of an IPv6 address; IPv4 addresses are counted whole".into(),
            )),
        };
    }
    match word {
        "ip" => return Ok(Source::Address { v4: 32, v6 }),
        "path" => return Ok(Source::Path),
        "method" => return Ok(Source::Method),
        "host" => return Ok(Source::Host),
        _ => {}
    }
    let Some((kind, name)) = word.split_once('.') else {
        let hint = match word {
            "header" | "query" | "cookie" | "descriptor" | "field" => {
                format!("say which one: `{word}.NAME`")
            }
            _ => match nearest(word, ALONE.iter().chain(NAMED).copied()) {
                Some(near) if ALONE.contains(&near) => format!("did you mean `{near}`?"),
                Some(near) => format!("did you mean `{near}.NAME`?"),
                None => sources(),
            },
        };
        return Err(wrong(
            format!("{} is not found in a request", quoted(word)),
            hint,
        ));
    };
    if !NAMED.contains(&kind) {
        let hint = match nearest(kind, NAMED.iter().copied()) {
            Some(near) => format!("did you mean `{near}.{name}`?"),
            None => sources(),
        };
        return Err(wrong(
            format!("{} is not found in a request", quoted(word)),
            hint,
        ));
    }
    if name.is_empty()
        || name.len() > 128
        || name.chars().any(|c| c.is_control() || c.is_whitespace())
    {
        let message = format!("{} does not name a {kind}", quoted(word));
        return Err(wrong(
            message,
            format!("write `{kind}.NAME`, such as `{}`", sample(kind)),
        ));
    }
    Ok(match kind {
        "header" if is_token(name) => Source::Header(name.to_ascii_lowercase()),
        "header" => {
            return Err(wrong(
                format!("{} is not the name of a header", quoted(name)),
                "write letters, digits and hyphens, such as `header.x-rider-id`".into(),
            ));
        }
        "query" => Source::Query(name.into()),
        "cookie" => Source::Cookie(name.into()),
        "path" => Source::Capture(name.into()),
        "descriptor" => Source::Descriptor(name.into()),
        _ => Source::Field(name.into()),
    })
}

fn sample(kind: &str) -> &'static str {
    match kind {
        "header" => "header.x-rider-id",
        "query" => "query.api_key",
        "cookie" => "cookie.session",
        "path" => "path.ride",
        "descriptor" => "descriptor.remote_address",
        _ => "field.user",
    }
}

fn sources() -> String {
    "write `ip`, `header.NAME`, `query.NAME`, `cookie.NAME`, `path`, `path.CAPTURE`, `method`, `host`, `descriptor.NAME` or `field.NAME`".into()
}

/// May a header or method be called this? (RFC 9110, a token)
pub(crate) fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// The source as it is written.
pub(crate) fn spelt(source: &Source) -> String {
    match source {
        Source::Address { v6, .. } => format!("ip/{v6}"),
        Source::Header(name) => format!("header.{name}"),
        Source::Query(name) => format!("query.{name}"),
        Source::Cookie(name) => format!("cookie.{name}"),
        Source::Path => "path".into(),
        Source::Capture(name) => format!("path.{name}"),
        Source::Method => "method".into(),
        Source::Host => "host".into(),
        Source::Descriptor(name) => format!("descriptor.{name}"),
        Source::Field(name) => format!("field.{name}"),
    }
}
