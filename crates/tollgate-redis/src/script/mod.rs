//! The scripts, as they are sent: a clock, what they share, and a body.
//!
//! # Theory
//!
//! Every script reads the time once, from the server that keeps the state, so that callers whose clocks
//! differ cannot move a state back and forth. The clock is a piece of its own that is put in front, so that
//! a test can put one there that is told the time and leave all the rest as it is.
//!
//! Lua's numbers are doubles: whole numbers are exact up to 2^53. Whoever fills in the arguments sees to it
//! that no product gets there ([`crate::limits`]).
//!
//! # Invariant
//!
//! A script that refuses writes nothing, but that a clock was set back is made good. One that cannot go on
//! gives an error and writes nothing. Its first word says why:
//!
//! | first word | what it found |
//! |---|---|
//! | `TOLLGATE` | a state that no limit wrote; it is left as it is |
//! | `TOLLGATE-CLOCK` | a time outside of the periods that the node knows of: the clocks differ |
//!
//! An error names the limit, never the key: parts of a key may be secrets, and errors go to logs.

mod unrolled;

use crate::call::Which;

const CLOCK: &str = include_str!("clock.lua");
const CLOCK_GIVEN: &str = include_str!("clock_given.lua");
const STATES: &str = include_str!("states.lua");
const AMEND: &str = include_str!("amend.lua");

/// What an error for a state that no limit wrote goes on with. It stands for `FOREIGN` in the pieces.
const FOREIGN: &str =
    "has a key that holds something that no limit wrote: delete it or choose another prefix";

/// The texts of all scripts and what the server knows them by.
#[derive(Debug)]
pub(crate) struct Scripts {
    /// In the order of [`Which::ALL`].
    texts: Vec<(String, String)>,
}

impl Scripts {
    /// The scripts on the server's clock.
    pub(crate) fn new() -> Scripts {
        Scripts::on(CLOCK)
    }

    /// The scripts on a clock that is told the time.
    pub(crate) fn on_a_given_clock() -> Scripts {
        Scripts::on(CLOCK_GIVEN)
    }

    fn on(clock: &str) -> Scripts {
        let texts = Which::ALL.iter().map(|which| {
            let unrolled = unrolled::buckets(match which {
                Which::Two => 2,
                Which::Three => 3,
                Which::Four => 4,
                _ => 1,
            });
            let pieces: &[&str] = match which {
                Which::One | Which::Two | Which::Three | Which::Four => &[&unrolled],
                Which::Buckets => &[include_str!("buckets.lua")],
                Which::Any => &[STATES, include_str!("any.lua")],
                Which::Settle => &[STATES, AMEND, include_str!("settle.lua")],
                Which::Move => &[STATES, AMEND, include_str!("move.lua")],
                Which::Beat => &[include_str!("beat.lua")],
            };
            let text = without_comments(&[&[clock], pieces].concat()).replace("FOREIGN", FOREIGN);
            let sha = redis::Script::new(&text).get_hash().to_owned();
            (text, sha)
        });
        Scripts {
            texts: texts.collect(),
        }
    }

    /// The text of a script.
    pub(crate) fn text(&self, which: Which) -> &str {
        self.texts
            .get(which as usize)
            .map_or("", |(text, _)| text.as_str())
    }

    /// The SHA-1 of a script in hexadecimal digits.
    pub(crate) fn sha(&self, which: Which) -> &str {
        self.texts
            .get(which as usize)
            .map_or("", |(_, sha)| sha.as_str())
    }
}

/// The pieces in order, without lines that are only a comment and without what indents them: a server
/// keeps the text for as long as it runs.
fn without_comments(pieces: &[&str]) -> String {
    let mut text = String::new();
    for line in pieces.iter().flat_map(|piece| piece.lines()) {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with("--") {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_has_its_own_text_and_hash() {
        let (scripts, given) = (Scripts::new(), Scripts::on_a_given_clock());
        for (place, which) in Which::ALL.into_iter().enumerate() {
            assert_eq!(which as usize, place);
            assert_eq!(scripts.sha(which).len(), 40);
            assert_ne!(scripts.sha(which), given.sha(which));
            assert!(scripts.text(which).contains("'TIME'"));
            assert!(!given.text(which).contains("'TIME'"));
            assert!(!scripts.text(which).contains('@'));
            assert!(!scripts.text(which).contains("FOREIGN"));
        }
    }
}
