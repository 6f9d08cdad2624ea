//! Requests that are rendered once and then patched.
//!
//! All keys have the same length: a prefix, and a number with leading zeros. So lengths inside a request (of a bulk string, a
//! body, a message) never change, and the next request is a copy and a few digits.
//!
//! `{key}` and `{cost}` are replaced, and `{key%100}` by the number of the key modulo 100. Other braces stay: JSON and Lua are
//! full of them.

/// The format of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyFormat {
    prefix: String,
    digits: usize,
    cost: u64,
}

impl KeyFormat {
    /// The format for this many keys.
    pub(crate) fn new(prefix: &str, keys: u64, cost: u64) -> KeyFormat {
        KeyFormat {
            prefix: prefix.into(),
            digits: keys.saturating_sub(1).to_string().len(),
            cost,
        }
    }

    /// The key with this number.
    pub(crate) fn key(&self, number: u64) -> String {
        format!("{}{number:0width$}", self.prefix, width = self.digits)
    }
}

/// Bytes with holes for the number of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    holes: Vec<Hole>,
}

/// Where the number of a key is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hole {
    at: usize,
    digits: usize,
    /// The number is written modulo this.
    modulus: u64,
}

impl Template {
    /// Fixed bytes.
    pub(crate) fn fixed(bytes: impl Into<Vec<u8>>) -> Template {
        Template {
            bytes: bytes.into(),
            ..Template::default()
        }
    }

    /// Parses a text: replaces `{cost}`, and makes a hole of each `{key}`.
    pub(crate) fn parse(text: &str, key_format: &KeyFormat) -> Template {
        let text = text.replace("{cost}", &key_format.cost.to_string());
        let mut template = Template::default();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("{key") {
            template.push(before.as_bytes());
            if let Some(after) = after.strip_prefix('}') {
                template.push(key_format.prefix.as_bytes());
                template.push_hole(key_format.digits, u64::MAX);
                rest = after;
            } else if let Some((modulus, after)) = modulus(after) {
                let digits = (modulus - 1).to_string().len();
                template.push_hole(digits, modulus);
                rest = after;
            } else {
                template.push(b"{key");
                rest = after;
            }
        }
        template.push(rest.as_bytes());
        template
    }

    fn push_hole(&mut self, digits: usize, modulus: u64) {
        let at = self.bytes.len();
        self.holes.push(Hole {
            at,
            digits,
            modulus,
        });
        self.push("0".repeat(digits).as_bytes());
    }

    /// Appends fixed bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends another template, with its holes.
    pub(crate) fn append(&mut self, other: &Template) {
        let at = self.bytes.len();
        let moved = |hole: &Hole| Hole {
            at: hole.at + at,
            ..*hole
        };
        self.holes.extend(other.holes.iter().map(moved));
        self.push(&other.bytes);
    }

    /// The length of every request.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Writes the request for a key.
    pub(crate) fn write(&self, key: u64, out: &mut Vec<u8>) {
        let at = out.len();
        out.extend_from_slice(&self.bytes);
        for hole in &self.holes {
            let from = at + hole.at;
            let place = out.get_mut(from..from + hole.digits).unwrap_or_default();
            let mut rest = key % hole.modulus;
            for byte in place.iter_mut().rev() {
                *byte = b"0123456789"
                    .get(usize::try_from(rest % 10).unwrap_or(0))
                    .copied()
                    .unwrap_or(b'0');
                rest /= 10;
            }
        }
    }
}

/// Parses `%N}` with `N` at least 2.
fn modulus(text: &str) -> Option<(u64, &str)> {
    let (digits, rest) = text.strip_prefix('%')?.split_once('}')?;
    let modulus = digits.parse().ok().filter(|modulus| *modulus > 1)?;
    Some((modulus, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str, key: u64) -> String {
        let template = Template::parse(text, &KeyFormat::new("k", 100_000, 3));
        let mut out = b">".to_vec();
        template.write(key, &mut out);
        assert_eq!(out.len(), template.len() + 1);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_key_fills_every_hole_completely() {
        assert_eq!(written("{key}/{key}!", 99_999), ">k99999/k99999!");
        assert_eq!(written("{key}/{key}!", 12), ">k00012/k00012!");
    }

    #[test]
    fn a_cost_is_replaced_and_other_braces_stay() {
        let text = r#"{"key":"{key}","cost":{cost},"x":{}} {keys} {"#;
        let filled = r#">{"key":"k00001","cost":3,"x":{}} {keys} {"#;
        assert_eq!(written(text, 1), filled);
    }

    #[test]
    fn a_modulus_is_written_with_as_many_digits_as_it_needs() {
        assert_eq!(written("p{key%10}/{key}", 123), ">p3/k00123");
        assert_eq!(written("p{key%1000}", 90_012), ">p012");
        assert_eq!(written("{key%1}{key%x}{key%", 1), ">{key%1}{key%x}{key%");
    }

    #[test]
    fn a_part_keeps_its_holes_where_it_is_put() {
        let key_format = KeyFormat::new("k", 10, 1);
        let mut whole = Template::fixed("ab");
        whole.append(&Template::parse("<{key}>", &key_format));
        whole.append(&Template::parse("{key}", &key_format));
        let mut out = Vec::new();
        whole.write(7, &mut out);
        assert_eq!(out, b"ab<k7>k7");
    }

    #[test]
    fn a_written_key_equals_the_reported_one() {
        for keys in [1, 10, 11, 1_000_000] {
            let key_format = KeyFormat::new("bench-", keys, 1);
            let template = Template::parse("{key}", &key_format);
            for key in [0, keys / 2, keys - 1] {
                let mut out = Vec::new();
                template.write(key, &mut out);
                assert_eq!(out, key_format.key(key).as_bytes());
            }
        }
    }
}
