//! Names of keys in the store, from the limit and the parts of a key.
//!
//! # Theory
//!
//! ```text
//! tg:rule~5f0c1a:{first part}:second part:...
//! ```
//!
//! The hash tag is the first part of the key, so that the keys of one tenant share a slot when the tenant is the first part of
//! all of them. After the limit follows a fingerprint of the layout of its state (never of the capacity), so that a state is
//! never read as another's.
//!
//! # Invariant
//!
//! Different keys have different names. Parts are escaped, every kind of key has its own mark, and so has a hash.

use std::io::Write;

use tollgate_policy::shared::{KeyKind, SharedKey};

/// Escaped parts longer than this are written as a hash: names cost memory on the server.
const PLAIN_MAX: usize = 200;

/// The names of one limit's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyNames {
    /// `tg:rule~5f0c1a:`
    head: Vec<u8>,
    /// The tag of a key that has no parts.
    id: Vec<u8>,
    plain: bool,
}

impl KeyNames {
    /// The names of the limit `id` whose state has this layout.
    pub(super) fn new(prefix: &str, id: &str, layout: &str, plain: bool) -> KeyNames {
        let mut short = Vec::new();
        match id.split_once('!') {
            // The numbers of an override are long.
            Some((rule, numbers)) => {
                escape(rule.as_bytes(), &mut short);
                short.push(b'!');
                short.extend_from_slice(hash(&[numbers.as_bytes()]).get(..8).unwrap_or_default());
            }
            None => escape(id.as_bytes(), &mut short),
        }
        // The peak of a limit is kept in the slot of the limit.
        let tag = short.split(|byte| *byte == b'/').next();
        let tag = tag.unwrap_or_default().to_vec();
        let mut head: Vec<u8> = prefix
            .bytes()
            .filter(|byte| !matches!(byte, b'{' | b'}'))
            .collect();
        head.push(b':');
        head.extend_from_slice(&short);
        head.push(b'~');
        head.extend_from_slice(hash(&[layout.as_bytes()]).get(..6).unwrap_or_default());
        head.push(b':');
        KeyNames {
            head,
            id: tag,
            plain,
        }
    }

    /// The name of a key.
    pub(super) fn name(&self, key: &SharedKey) -> Vec<u8> {
        let mut name = self.head.clone();
        let start = name.len();
        if self.plain {
            self.write_plain(key, &mut name);
        }
        if !self.plain || name.len() - start > PLAIN_MAX {
            name.truncate(start);
            self.write_hashed(key, &mut name);
        }
        name
    }

    fn write_plain(&self, key: &SharedKey, name: &mut Vec<u8>) {
        let mut parts = key.parts();
        name.push(b'{');
        let first = parts.next();
        match first {
            // An empty tag is no tag; and no part is escaped to this.
            Some([]) => name.push(b'%'),
            Some(part) => escape(part, name),
            None => name.extend_from_slice(&self.id),
        }
        name.push(b'}');
        name.extend_from_slice(mark(key, first.is_some()));
        for part in parts {
            name.push(b':');
            escape(part, name);
        }
    }

    fn write_hashed(&self, key: &SharedKey, name: &mut Vec<u8>) {
        let parts: Vec<&[u8]> = key.parts().collect();
        name.push(b'{');
        match parts.first() {
            Some(first) => name.extend_from_slice(&hash(&[first])),
            None => name.extend_from_slice(&self.id),
        }
        name.push(b'}');
        name.extend_from_slice(mark(key, !parts.is_empty()));
        name.push(b'#');
        if parts.len() > 1 {
            name.extend_from_slice(&hash(&parts));
        }
    }
}

/// The mark of a kind of key.
fn mark(key: &SharedKey, has_parts: bool) -> &'static [u8] {
    match (key.kind(), has_parts) {
        (KeyKind::Own, true) => b"",
        (KeyKind::Own, false) => b"-",
        (KeyKind::Address, true) => b"@",
        (KeyKind::Address, false) => b"@-",
        (KeyKind::Shared, true) => b"*",
        (KeyKind::Shared, false) => b"*-",
    }
}

/// Writes bytes that structure a name, or cannot be printed, as `%XX`.
fn escape(text: &[u8], to: &mut Vec<u8>) {
    for byte in text {
        match byte {
            b'%' | b':' | b'{' | b'}' | 0..=b' ' | 0x7f.. => {
                // Writing to a vector does not fail.
                let _ = write!(to, "%{byte:02X}");
            }
            plain => to.push(*plain),
        }
    }
}

/// 128 bits of a hash of these texts, each with its length, in hexadecimal digits.
fn hash(texts: &[&[u8]]) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    for text in texts {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    let hex = hasher.finalize().to_hex();
    hex.as_bytes().get(..32).unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests {
    use super::super::slot::slot;
    use super::*;
    use std::collections::BTreeMap;

    fn key(kind: KeyKind, parts: &[&[u8]]) -> SharedKey {
        let mut key = SharedKey::new(kind);
        for part in parts {
            key.push(part);
        }
        key
    }

    fn plain(parts: &[&[u8]]) -> String {
        let names = KeyNames::new("tg", "rule", "b 1 2", true);
        String::from_utf8(names.name(&key(KeyKind::Own, parts))).unwrap()
    }

    #[test]
    fn a_name_shows_the_limit_and_the_parts() {
        let name = plain(&[b"org42", b"user:7", "Zoë".as_bytes()]);
        assert!(name.starts_with("tg:rule~"), "{name}");
        assert!(name.ends_with(":{org42}:user%3A7:Zo%C3%AB"), "{name}");
    }

    #[test]
    fn different_keys_have_different_names() {
        let parts: [&[&[u8]]; 14] = [
            &[],
            &[b""],
            &[b"", b""],
            &[b"%"],
            &[b"rule"],
            &[b"rule-"],
            &[b"a", b"b"],
            &[b"a:b"],
            &[b"a%3Ab"],
            &[b"a}", b"b"],
            &[b"a", b"", b"b"],
            &[b"a", b"b", b""],
            &[b"-"],
            &[b"a", b"#"],
        ];
        let mut seen = BTreeMap::new();
        for plain in [true, false] {
            let names = KeyNames::new("tg", "rule", "b 1 2", plain);
            for kind in [KeyKind::Own, KeyKind::Address, KeyKind::Shared] {
                for parts in parts {
                    let name = names.name(&key(kind, parts));
                    let what = format!("{plain} {kind:?} {parts:?}");
                    if let Some(other) = seen.insert(name.clone(), what.clone()) {
                        panic!("{what} and {other} are both {name:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_tenant_has_one_slot_under_all_limits() {
        for plain in [true, false] {
            let (a, b) = (
                KeyNames::new("tg", "per org", "b 1 2", plain),
                KeyNames::new("tg", "per user", "w 5", plain),
            );
            let (org, user) = (
                key(KeyKind::Own, &[b"org42"]),
                key(KeyKind::Own, &[b"org42", b"u"]),
            );
            assert_eq!(slot(&a.name(&org)), slot(&b.name(&user)));
        }
    }

    #[test]
    fn a_long_key_or_a_secret_one_is_written_as_a_hash() {
        let long = plain(&[&[b'x'; 201]]);
        assert!(long.len() < 60, "{long}");
        let hidden = KeyNames::new("tg", "rule", "b", false).name(&key(KeyKind::Own, &[b"secret"]));
        assert!(!String::from_utf8(hidden).unwrap().contains("secret"));
    }

    #[test]
    fn the_numbers_of_an_override_are_short() {
        let id = "rule!TokenBucket { rate: Rate { units: 5 }, burst: 10 }";
        let name = KeyNames::new("tg", id, "b", true).name(&key(KeyKind::Own, &[b"a"]));
        assert!(name.len() < 40, "{name:?}");
    }
}
