//! Who is refused most: a sketch of fixed size.
//!
//! # Theory
//!
//! Space-saving (Metwally, Agrawal, El Abbadi, 2005): of `n` entries the least is taken over by every
//! newcomer, together with its count, and the count it took over is remembered as what may be wrong.
//!
//! # Invariant
//!
//! An entry's count is never below the truth, and above it by at most its `at_most_over`. Whoever was
//! refused more than a 128th of the time is in it. It never grows, whatever clients send.

use std::sync::Arc;

use serde::Serialize;
use tollgate::Moment;

use super::seconds;

/// Keys that are kept.
const ENTRIES: usize = 128;
/// Bytes of a key that are kept.
pub(super) const KEY_BYTES: usize = 128;

/// Someone who was refused often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopKey {
    /// The limit that refused.
    pub limit: Arc<str>,
    /// The key, part by part; a hash if the policy does not let keys be shown.
    pub key: Vec<String>,
    /// How often it was refused, at the most.
    pub refused: u64,
    /// How many of these may have been somebody else's.
    pub at_most_over: u64,
    /// When it was last refused, in seconds since 1970.
    pub last_at: u64,
}

/// The sketch.
#[derive(Debug, Default)]
pub(super) struct Top {
    entries: Vec<TopKey>,
}

impl Top {
    pub(super) fn note(&mut self, limit: &Arc<str>, key: &[String], now: Moment) {
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
            at_most_over: 0,
            last_at,
        };
        if self.entries.len() < ENTRIES {
            self.entries.push(entry);
        } else if let Some(least) = self.entries.iter_mut().min_by_key(|e| e.refused) {
            entry.at_most_over = least.refused;
            entry.refused += least.refused;
            *least = entry;
        }
    }

    /// The most refused first.
    pub(super) fn list(&self) -> Vec<TopKey> {
        let mut list = self.entries.clone();
        list.sort_by_key(|entry| std::cmp::Reverse(entry.refused - entry.at_most_over));
        list
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }
}

/// A text without anything that could steer a terminal or break a line, and not longer than `most`
/// bytes.
pub(super) fn shown(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        let before = shown.len();
        if c.is_control() || is_invisible(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
        if shown.len() > most {
            shown.truncate(before);
            break;
        }
    }
    shown
}

/// Marks that turn the direction of text around, and separators of lines.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(top: &mut Top, key: &str, times: usize) {
        for _ in 0..times {
            top.note(&Arc::from("a"), &[key.to_owned()], Moment::ORIGIN);
        }
    }

    #[test]
    fn whoever_is_refused_most_is_found_among_a_hundred_thousand_others() {
        let mut top = Top::default();
        for i in 0..100_000 {
            note(&mut top, &i.to_string(), 1);
            if i % 20 == 0 {
                note(&mut top, "culprit", 1);
            }
        }
        let list = top.list();
        assert_eq!(list.len(), ENTRIES);
        let culprit = list.iter().find(|e| e.key == ["culprit"]).unwrap();
        assert!(culprit.refused >= 5_000);
        assert!(culprit.refused - culprit.at_most_over <= 5_000);
        assert_eq!(list[0].key, ["culprit"]);
    }

    #[test]
    fn the_same_key_of_two_limits_is_two_entries() {
        let mut top = Top::default();
        top.note(&Arc::from("a"), &["k".into()], Moment::ORIGIN);
        top.note(&Arc::from("b"), &["k".into()], Moment::ORIGIN);
        assert_eq!(top.list().len(), 2);
    }

    #[test]
    fn nothing_that_steers_a_terminal_is_kept() {
        assert_eq!(
            shown("a\x1b[2J\r\nb\u{202e}", 128),
            "a\\u{1b}[2J\\u{d}\\u{a}b\\u{202e}"
        );
    }

    #[test]
    fn a_long_key_is_cut_between_two_characters() {
        let text = shown(&"ä".repeat(100), 128);
        assert_eq!(text, "ä".repeat(64));
        assert!(shown(&"\0".repeat(100), 128).len() <= 128);
    }
}
