//! `tollgate limits`: every algorithm, how it is written, what it promises and when to use it.
//!
//! The bounds are the invariants that the core states and tests, in its modules under `algorithm`.

use std::io::{self, Write};

use crate::json::Object;
use crate::limit_text::Kind;

/// The most that an algorithm admits.
const fn bound(kind: Kind) -> &'static str {
    match kind {
        Kind::TokenBucket => "burst + w*rate",
        Kind::Gcra => "1 + (tolerance + w)*rate",
        Kind::LeakyBucket => "1 + w*rate start; the others wait their turn",
        Kind::FixedWindow => "2*limit in the length of a window, half on each side of a boundary",
        Kind::SlidingLog => "limit in the length of a window, wherever it begins",
        Kind::SlidingWindow => {
            "limit in (m-1)/m of a window of m parts; 2*limit - 1 in a whole one, limit if strict"
        }
        Kind::BurstCredits => {
            "the lesser of slack + w*times*rate and slack + (times-1)*rate*for + w*rate"
        }
        Kind::Concurrency => "limit at once, however long w is",
    }
}

/// When it is the right choice.
const fn use_for(kind: Kind) -> &'static str {
    match kind {
        Kind::TokenBucket => "the default: clients that burst and then settle",
        Kind::Gcra => "cells that should come evenly, a little early at most",
        Kind::LeakyBucket => {
            "something behind that takes a constant rate: delay rather than refuse"
        }
        Kind::FixedWindow => {
            "quotas that people count by the clock; the boundary lets a double through"
        }
        Kind::SlidingLog => "small limits that must hold to the last request: eight bytes for each",
        Kind::SlidingWindow => {
            "the same in one word, if about right is enough; strict if it is not"
        }
        Kind::BurstCredits => "a multiple of the rate for a while, earned back by idling",
        Kind::Concurrency => "slow requests: what counts is how many run, not how often they come",
    }
}

/// Prints the list.
pub(crate) fn print(json: bool, out: &mut impl Write) -> io::Result<()> {
    if !json {
        writeln!(
            out,
            "`at most` is the most that any window of length w can admit."
        )?;
    }
    for kind in Kind::ALL {
        if json {
            let object = Object::default()
                .text("algorithm", kind.name())
                .text("example", kind.example())
                .text("at_most", bound(kind))
                .text("use_for", use_for(kind));
            writeln!(out, "{}", object.finish())?;
            continue;
        }
        writeln!(out)?;
        for (name, line, text) in [
            (kind.name(), "example", kind.example()),
            ("", "at most", bound(kind)),
            ("", "use for", use_for(kind)),
        ] {
            writeln!(out, "{name:16}{line:9}{text}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit_text;

    #[test]
    fn every_example_of_the_list_is_a_limit() {
        for kind in Kind::ALL {
            assert!(
                limit_text::parse(kind.example()).is_ok(),
                "{}",
                kind.example()
            );
        }
    }

    #[test]
    fn the_list_fits_a_wide_terminal() {
        let mut out = Vec::new();
        print(false, &mut out).unwrap();
        for line in String::from_utf8(out).unwrap().lines() {
            assert!(line.len() <= 110, "{line}");
        }
    }
}
