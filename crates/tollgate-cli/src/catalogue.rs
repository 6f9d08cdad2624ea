//! `tollgate limits`: lists every algorithm, how to write it, what it admits and when to use it.
//!
//! The bounds are the invariants that the core states and tests, in its modules under `algorithm`.

use std::io::{self, Write};

use serde::Serialize;

/// An algorithm, as `tollgate limits` describes it.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    /// Its name in the policy file.
    pub(crate) algorithm: &'static str,
    /// The fields of a limit that uses it, as `tollgate try` reads them.
    pub(crate) example: &'static str,
    /// The most that it admits.
    at_most: &'static str,
    /// When to use it.
    use_for: &'static str,
}

/// All algorithms of the policy file, in the order of its schema.
pub(crate) const ENTRIES: [Entry; 8] = [
    Entry {
        algorithm: "token-bucket",
        example: "allow: 5/s, burst: 10",
        at_most: "burst + w*rate",
        use_for: "the default: clients that burst and then settle",
    },
    Entry {
        algorithm: "gcra",
        example: "algorithm: gcra, allow: 10/s, tolerance: 250ms",
        at_most: "1 + (tolerance + w)*rate",
        use_for: "cells that should come evenly, a little early at most",
    },
    Entry {
        algorithm: "leaky-bucket",
        example: "algorithm: leaky-bucket, allow: 3000/s, queue: 5000, max_wait: 2s",
        at_most: "1 + w*rate start; the others wait",
        use_for: "a backend that takes a constant rate: delay rather than refuse",
    },
    Entry {
        algorithm: "fixed-window",
        example: "algorithm: fixed-window, allow: 10/min",
        at_most: "2*limit in the length of a window, half on each side of a boundary",
        use_for: "quotas by the clock; up to twice the limit around a boundary",
    },
    Entry {
        algorithm: "sliding-log",
        example: "algorithm: sliding-log, allow: 100/min",
        at_most: "limit in the length of a window, wherever it begins",
        use_for: "small limits that must hold to the last request: eight bytes for each",
    },
    Entry {
        algorithm: "sliding-window",
        example: "algorithm: sliding-window, allow: 50/min",
        at_most: "2*limit - 1 in the length of a window; limit if strict",
        use_for: "the same in eight bytes for each key, as an estimate; or strict",
    },
    Entry {
        algorithm: "burst-credits",
        example: "algorithm: burst-credits, allow: 10/s, times: 10, for: 30s",
        at_most: "the lesser of slack + w*times*rate and slack + (times-1)*rate*for + w*rate",
        use_for: "a multiple of the rate for a while, earned back by idling",
    },
    Entry {
        algorithm: "concurrency",
        example: "algorithm: concurrency, allow: 20, ttl: 30s",
        at_most: "limit at once, however long w is",
        use_for: "slow requests: what counts is how many run, not how often they come",
    },
];

/// Prints the list.
pub(crate) fn print(json: bool, out: &mut impl Write) -> io::Result<()> {
    if !json {
        writeln!(
            out,
            "`at most` is the most that any window of length w can admit."
        )?;
    }
    for entry in &ENTRIES {
        if json {
            crate::json::line(entry, out)?;
            continue;
        }
        writeln!(out)?;
        for (name, line, text) in [
            (entry.algorithm, "example", entry.example),
            ("", "at most", entry.at_most),
            ("", "use for", entry.use_for),
        ] {
            writeln!(out, "{name:16}{line:9}{text}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_of_the_policy_file_is_listed() {
        let schema: serde_json::Value = serde_json::from_str(&tollgate_config::schema()).unwrap();
        let listed = &schema["definitions"]["Limit"]["properties"]["algorithm"]["enum"];
        let listed: Vec<&str> = listed
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|name| name.as_str())
            .collect();
        assert_eq!(listed, ENTRIES.map(|entry| entry.algorithm));
    }

    #[test]
    fn every_example_is_a_limit_of_its_algorithm() {
        for entry in &ENTRIES {
            let limit = tollgate_config::quota_from(entry.example).unwrap();
            let name = entry.algorithm.replace('-', " ");
            assert!(limit.to_string().starts_with(&name), "{limit}");
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
