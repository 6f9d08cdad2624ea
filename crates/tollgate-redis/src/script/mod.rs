//! The texts of the scripts: a clock, shared functions, and a body.
//!
//! # Theory
//!
//! Every script reads the time once, from the server that keeps the state, so that callers whose clocks differ cannot move a
//! state back and forth. The clock is a piece of its own at the front. A test replaces it by one whose time is an argument, and
//! leaves the rest as it is.
//!
//! Lua's numbers are doubles: whole numbers are exact up to 2^53. The arguments are chosen so that no product reaches it
//! ([`crate::limits`]).
//!
//! # Invariant
//!
//! A script that refuses writes nothing, except to repair a state after a backward clock step. One that fails returns an error and
//! writes nothing. The first word of the error is its class:
//!
//! | class | cause |
//! |---|---|
//! | `TOLLGATE` | a state that no limit wrote; it is left as it is |
//! | `TOLLGATE-CLOCK` | a time outside of the periods that the node sent: the clocks differ |
//!
//! An error names the limit, never the key: parts of a key may be secrets, and errors go to logs.

mod unrolled;

use crate::script_call::ScriptName;

const CLOCK: &str = include_str!("clock.lua");
const MANUAL_CLOCK: &str = include_str!("clock_manual.lua");
const STATE: &str = include_str!("state.lua");
const AMEND: &str = include_str!("amend.lua");

/// The message for a state that no limit wrote. It replaces `FOREIGN` in the pieces.
const FOREIGN: &str =
    "has a key with a value that no limit wrote: delete it or choose another prefix";

/// The texts of all scripts, and their hashes.
#[derive(Debug)]
pub(crate) struct Scripts {
    /// In the order of [`ScriptName::ALL`].
    texts: Vec<(String, String)>,
}

impl Scripts {
    /// The scripts on the server's clock.
    pub(crate) fn new() -> Scripts {
        Scripts::with_clock(CLOCK)
    }

    /// The scripts on a clock whose time is an argument.
    pub(crate) fn with_manual_clock() -> Scripts {
        Scripts::with_clock(MANUAL_CLOCK)
    }

    fn with_clock(clock: &str) -> Scripts {
        let texts = ScriptName::ALL.iter().map(|name| {
            let unrolled = unrolled::buckets(match name {
                ScriptName::TwoBuckets => 2,
                ScriptName::ThreeBuckets => 3,
                ScriptName::FourBuckets => 4,
                _ => 1,
            });
            let pieces: &[&str] = match name {
                ScriptName::OneBucket
                | ScriptName::TwoBuckets
                | ScriptName::ThreeBuckets
                | ScriptName::FourBuckets => &[&unrolled],
                ScriptName::Buckets => &[include_str!("buckets.lua")],
                ScriptName::AnyLimits => &[STATE, include_str!("any.lua")],
                ScriptName::Settle => &[STATE, AMEND, include_str!("settle.lua")],
                ScriptName::Migrate => &[STATE, AMEND, include_str!("migrate.lua")],
                ScriptName::Heartbeat => &[include_str!("heartbeat.lua")],
                ScriptName::RecordUse => &[include_str!("record_use.lua")],
                ScriptName::Forget => &[include_str!("forget.lua")],
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
    pub(crate) fn text(&self, name: ScriptName) -> &str {
        self.texts
            .get(name as usize)
            .map_or("", |(text, _)| text.as_str())
    }

    /// The SHA-1 of a script in hexadecimal digits.
    pub(crate) fn sha(&self, name: ScriptName) -> &str {
        self.texts
            .get(name as usize)
            .map_or("", |(_, sha)| sha.as_str())
    }
}

/// The pieces in order, without comment lines and indentation: a server keeps the text for as long as it runs.
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
        let (scripts, manual) = (Scripts::new(), Scripts::with_manual_clock());
        for (place, name) in ScriptName::ALL.into_iter().enumerate() {
            assert_eq!(name as usize, place);
            assert_eq!(scripts.sha(name).len(), 40);
            assert_ne!(scripts.sha(name), manual.sha(name));
            assert!(scripts.text(name).contains("'TIME'"));
            assert!(!manual.text(name).contains("'TIME'"));
            assert!(!scripts.text(name).contains('@'));
            assert!(!scripts.text(name).contains("FOREIGN"));
        }
    }
}
