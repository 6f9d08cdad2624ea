//! Requests that are written once and then only patched.
//!
//! Every key has the same length: a prefix, and a number with leading zeros. So lengths that are part of a request
//! (of a bulk string, of a body, of a message) never change, and the next request is a copy and a few digits.
//!
//! `{key}` and `{cost}` are filled in, and `{key%100}` with the number of the key modulo 100. Other braces stand as they
//! are: JSON and Lua are full of them.

/// How keys are spelt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spelling {
    prefix: String,
    digits: usize,
    cost: u64,
}

impl Spelling {
    /// For this many keys.
    pub(crate) fn new(prefix: &str, keys: u64, cost: u64) -> Spelling {
        Spelling {
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
    /// Bytes that never change.
    pub(crate) fn fixed(bytes: impl Into<Vec<u8>>) -> Template {
        Template {
            bytes: bytes.into(),
            ..Template::default()
        }
    }

    /// What was typed, with `{cost}` filled in and a hole at each `{key}`.
    pub(crate) fn typed(text: &str, spelling: &Spelling) -> Template {
        let text = text.replace("{cost}", &spelling.cost.to_string());
        let mut template = Template::default();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("{key") {
            template.push(before.as_bytes());
            if let Some(after) = after.strip_prefix('}') {
                template.push(spelling.prefix.as_bytes());
                template.push_hole(spelling.digits, u64::MAX);
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

    /// Adds bytes that never change.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds another, with its holes.
    pub(crate) fn append(&mut self, other: &Template) {
        let at = self.bytes.len();
        let moved = |hole: &Hole| Hole {
            at: hole.at + at,
            ..*hole
        };
        self.holes.extend(other.holes.iter().map(moved));
        self.push(&other.bytes);
    }

    /// How long every request is.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds the request for this key to `out`.
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

/// Reads `%N}` with an `N` of at least 2.
fn modulus(text: &str) -> Option<(u64, &str)> {
    let (digits, rest) = text.strip_prefix('%')?.split_once('}')?;
    let modulus = digits.parse().ok().filter(|modulus| *modulus > 1)?;
    Some((modulus, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str, key: u64) -> String {
        let template = Template::typed(text, &Spelling::new("k", 100_000, 3));
        let mut out = b">".to_vec();
        template.write(key, &mut out);
        assert_eq!(out.len(), template.len() + 1);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_key_fills_every_hole_and_leaves_nothing_of_the_one_before() {
        assert_eq!(written("{key}/{key}!", 99_999), ">k99999/k99999!");
        assert_eq!(written("{key}/{key}!", 12), ">k00012/k00012!");
    }

    #[test]
    fn a_cost_is_filled_in_and_other_braces_stand() {
        let text = r#"{"key":"{key}","cost":{cost},"x":{}} {keys} {"#;
        let filled = r#">{"key":"k00001","cost":3,"x":{}} {keys} {"#;
        assert_eq!(written(text, 1), filled);
    }

    #[test]
    fn a_modulus_is_filled_in_with_as_many_digits_as_it_needs() {
        assert_eq!(written("p{key%10}/{key}", 123), ">p3/k00123");
        assert_eq!(written("p{key%1000}", 90_012), ">p012");
        assert_eq!(written("{key%1}{key%x}{key%", 1), ">{key%1}{key%x}{key%");
    }

    #[test]
    fn a_part_keeps_its_holes_where_it_is_put() {
        let spelling = Spelling::new("k", 10, 1);
        let mut whole = Template::fixed("ab");
        whole.append(&Template::typed("<{key}>", &spelling));
        whole.append(&Template::typed("{key}", &spelling));
        let mut out = Vec::new();
        whole.write(7, &mut out);
        assert_eq!(out, b"ab<k7>k7");
    }

    #[test]
    fn what_is_written_is_the_key_as_it_is_told() {
        for keys in [1, 10, 11, 1_000_000] {
            let spelling = Spelling::new("bench-", keys, 1);
            let template = Template::typed("{key}", &spelling);
            for key in [0, keys / 2, keys - 1] {
                let mut out = Vec::new();
                template.write(key, &mut out);
                assert_eq!(out, spelling.key(key).as_bytes());
            }
        }
    }
}
