//! Keys, and where in a request a text is found: `ip`, `header.x-rider-id`, `path.ride`.

use std::ops::RangeInclusive;

use tollgate_policy::{KEY_PARTS_MAX, KeyPart, Source};

use super::fields::each;
use super::item::Item;
use super::scalar::text;
use crate::report::{Read, list, quoted};
use crate::suggest::{did_you_mean, suggest};
use crate::yaml::Value;

/// Sources without a name.
const UNNAMED: [&str; 4] = ["ip", "path", "method", "host"];
/// A source with a name: how it is written, an example, and its constructor.
type NamedSource = (&'static str, &'static str, fn(String) -> Source);

const NAMED: [NamedSource; 6] = [
    ("header", "header.x-rider-id", Source::Header),
    ("query", "query.api_key", Source::Query),
    ("cookie", "cookie.session", Source::Cookie),
    ("path", "path.ride", Source::Capture),
    (
        "descriptor",
        "descriptor.remote_address",
        Source::Descriptor,
    ),
    ("field", "field.user", Source::Field),
];
const ALL: &str = "write `ip`, `header.NAME`, `query.NAME`, `cookie.NAME`, `path`, `path.CAPTURE`, `method`, `host`, \
    `descriptor.NAME` or `field.NAME`";
const FOLDS: [&str; 2] = ["trim", "lowercase"];
/// Bits of an IPv6 address that can be counted by. A client can rotate the lower 64; below 32 a key is a whole provider.
pub(crate) const V6_BITS: RangeInclusive<u64> = 32..=64;

/// Reads a key: `none`, one part, or a list of parts.
pub(crate) fn key(node: Item<'_>, v6: u8) -> Read<Vec<KeyPart>> {
    if let Value::Scalar { text, .. } = &node.value
        && text == "none"
    {
        return Ok(Vec::new());
    }
    let nodes = node.one_or_many();
    if nodes.is_empty() || nodes.len() > KEY_PARTS_MAX {
        let message = format!("a key has 1 to {KEY_PARTS_MAX} parts, not {}", nodes.len());
        let hint = "name what requests are counted by, such as `ip`; without `key` all requests share one allowance";
        return Err(node.error("bad-key", message, hint));
    }
    let parts = each(nodes.iter().copied(), |node| part(node, v6))?;
    for (at, (part, node)) in parts.iter().zip(&nodes).enumerate() {
        if parts.iter().take(at).any(|earlier| earlier == part) {
            return Err(node.error(
                "bad-key",
                "this part of the key is there already",
                "remove it: a repeated part separates no requests",
            ));
        }
    }
    Ok(parts)
}

/// Reads one part: a source and how its text is folded.
fn part(node: Item<'_>, v6: u8) -> Read<KeyPart> {
    let mut words = text(node)?.split('|').map(str::trim);
    let mut part = KeyPart {
        source: parse(node, words.next().unwrap_or_default(), v6)?,
        trim: false,
        lowercase: false,
    };
    for word in words {
        match word {
            "trim" => part.trim = true,
            "lowercase" => part.lowercase = true,
            _ => {
                let hint = did_you_mean(word, FOLDS)
                    .unwrap_or_else(|| format!("after `|` a key takes {}", list(FOLDS)));
                let message = format!("{} is not a way to fold a key", quoted(word));
                return Err(node.error("bad-key", message, hint));
            }
        }
    }
    Ok(part)
}

/// Reads a source, without folds.
pub(crate) fn source(node: Item<'_>, v6: u8) -> Read<Source> {
    parse(node, text(node)?, v6)
}

fn parse(node: Item<'_>, word: &str, v6: u8) -> Read<Source> {
    let wrong = |message: String, hint: String| Err(node.error("bad-source", message, hint));
    if let Some(bits) = word.strip_prefix("ip/") {
        return match bits.parse::<u8>() {
            Ok(bits) if V6_BITS.contains(&u64::from(bits)) => {
                Ok(Source::Address { v4: 32, v6: bits })
            }
            _ => wrong(
                format!("{} is not a supported prefix of addresses", quoted(word)),
                "write `ip/56`: 32 to 64 bits of an IPv6 address; IPv4 addresses are counted whole"
                    .into(),
            ),
        };
    }
    match word {
        "ip" => return Ok(Source::Address { v4: 32, v6 }),
        "path" => return Ok(Source::Path),
        "method" => return Ok(Source::Method),
        "host" => return Ok(Source::Host),
        _ => {}
    }
    let kinds = || NAMED.iter().map(|(kind, ..)| *kind);
    let unknown = format!("{} is not a part of a request", quoted(word));
    let Some((kind, name)) = word.split_once('.') else {
        let hint = match suggest(word, UNNAMED.into_iter().chain(kinds())) {
            Some(near) if near == word => format!("add a name: `{word}.NAME`"),
            Some(near) if UNNAMED.contains(&near) => format!("did you mean `{near}`?"),
            Some(near) => format!("did you mean `{near}.NAME`?"),
            None => ALL.into(),
        };
        return wrong(unknown, hint);
    };
    let Some((_, sample, source)) = NAMED.iter().find(|(known, ..)| *known == kind) else {
        let hint = match suggest(kind, kinds()) {
            Some(near) => format!("did you mean `{near}.{name}`?"),
            None => ALL.into(),
        };
        return wrong(unknown, hint);
    };
    let is_blank = |c: char| c.is_control() || c.is_whitespace();
    if name.is_empty() || name.len() > 128 || name.contains(is_blank) {
        let message = format!("{} does not name a {kind}", quoted(word));
        return wrong(message, format!("write `{kind}.NAME`, such as `{sample}`"));
    }
    match kind {
        "header" if !is_token(name) => wrong(
            format!("{} is not the name of a header", quoted(name)),
            "write letters, digits and hyphens, such as `header.x-rider-id`".into(),
        ),
        "header" => Ok(Source::Header(name.to_ascii_lowercase())),
        _ => Ok(source(name.into())),
    }
}

/// Can this be the name of a header or a method? (a token of RFC 9110)
pub(crate) fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// The source as the file has it.
pub(crate) fn source_text(source: &Source) -> String {
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
