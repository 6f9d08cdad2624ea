//! The most refused keys: a sketch of fixed size.
//!
//! # Theory
//!
//! Space-saving (Metwally, Agrawal, El Abbadi, 2005): a new key replaces the entry with the lowest count and inherits that
//! count, which is remembered as the possible error.
//!
//! # Invariant
//!
//! The count of an entry is never below the truth, and above it by at most `max_error`. A key with more than a 128th of
//! all refusals is in the sketch. The sketch never grows, whatever clients send.

use std::sync::Arc;

use serde::Serialize;
use tollgate::Moment;

use super::seconds;

/// Entries of the sketch.
const ENTRIES: usize = 128;
/// Most bytes of a key.
pub(super) const MAX_KEY_BYTES: usize = 128;

/// A key that was refused often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopKey {
    /// The limit that refused it.
    pub limit: Arc<str>,
    /// The parts of the key; a hash if the policy hides keys.
    pub key: Vec<String>,
    /// How often it was refused, at most.
    pub refused: u64,
    /// How many of these refusals may be of other keys.
    pub max_error: u64,
    /// When it was last refused, in seconds since 1970.
    pub last_at: u64,
}

/// The sketch.
#[derive(Debug, Default)]
pub(super) struct Top {
    entries: Vec<TopKey>,
}

impl Top {
    pub(super) fn record(&mut self, limit: &Arc<str>, key: &[String], now: Moment) {
        let last_at = seconds(now);
        let same = |entry: &&mut TopKey| *entry.limit == **limit && entry.key == key;
        if let Some(entry) = self.entries.iter_mut().find(same) {
            entry.refused += 1;
            entry.last_at = last_at;
            return;
        }
        let mut entry = TopKey {
            limit: Arc::clone(limit),
            key: key.to_vec(),
            refused: 1,
            max_error: 0,
            last_at,
        };
        if self.entries.len() < ENTRIES {
            self.entries.push(entry);
        } else if let Some(least) = self.entries.iter_mut().min_by_key(|e| e.refused) {
            entry.max_error = least.refused;
            entry.refused += least.refused;
            *least = entry;
        }
    }

    /// The entries, most refused first.
    pub(super) fn list(&self) -> Vec<TopKey> {
        let mut list = self.entries.clone();
        list.sort_by_key(|entry| std::cmp::Reverse(entry.refused - entry.max_error));
        list
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }
}

/// A text without characters that control a terminal or break a line, and at most `max` bytes long.
pub(super) fn printable(text: &str, max: usize) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        let before = shown.len();
        if c.is_control() || is_invisible(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
        if shown.len() > max {
            shown.truncate(before);
            break;
        }
    }
    shown
}

/// Marks that change the direction of text, and line separators.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(top: &mut Top, key: &str, times: usize) {
        for _ in 0..times {
            top.record(&Arc::from("a"), &[key.to_owned()], Moment::ORIGIN);
        }
    }

    #[test]
    fn the_most_refused_key_is_found_among_a_hundred_thousand_others() {
        let mut top = Top::default();
        for i in 0..100_000 {
            record(&mut top, &i.to_string(), 1);
            if i % 20 == 0 {
                record(&mut top, "culprit", 1);
            }
        }
        let list = top.list();
        assert_eq!(list.len(), ENTRIES);
        let culprit = list.iter().find(|e| e.key == ["culprit"]).unwrap();
        assert!(culprit.refused >= 5_000);
        assert!(culprit.refused - culprit.max_error <= 5_000);
        assert_eq!(list[0].key, ["culprit"]);
    }

    #[test]
    fn the_same_key_of_two_limits_is_two_entries() {
        let mut top = Top::default();
        top.record(&Arc::from("a"), &["k".into()], Moment::ORIGIN);
        top.record(&Arc::from("b"), &["k".into()], Moment::ORIGIN);
        assert_eq!(top.list().len(), 2);
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(
            printable("a\x1b[2J\r\nb\u{202e}", 128),
            "a\\u{1b}[2J\\u{d}\\u{a}b\\u{202e}"
        );
    }

    #[test]
    fn a_long_key_is_cut_between_two_characters() {
        let text = printable(&"ä".repeat(100), 128);
        assert_eq!(text, "ä".repeat(64));
        assert!(printable(&"\0".repeat(100), 128).len() <= 128);
    }
}
