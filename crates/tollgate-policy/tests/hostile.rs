//! Files that nobody wrote for us: whatever is in them, there is an answer, soon, and no panic.

#![allow(clippy::unwrap_used, reason = "a test may")]

use tollgate_policy::{EXAMPLE, parse};

const FLEET: &str = include_str!("../../../examples/fleet/tollgate.yaml");

/// A generator that needs no crate: xorshift.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }
}

#[test]
fn mutated_files_are_answered_and_never_panic() {
    const WORDS: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        ":",
        "- ",
        "\n",
        "  ",
        "\t",
        "\"",
        "'",
        "&a",
        "*a",
        "<<: ",
        "!!x ",
        "|",
        ">",
        "%",
        "---\n",
        "...\n",
        "# ",
        "~",
        "null",
        "-1",
        "1e9",
        ".nan",
        "99999999999999999999",
        "0",
        "\u{feff}",
        "\0",
        "é",
        "limits:",
        "allow:",
        "burst: 0",
        "store: redis://",
        "u:p%zz@",
        "[::1]:",
        "?",
        "/",
        "**",
        ",",
        "? ",
        "@",
        "`",
        "\r",
        "\u{85}",
        "\u{2028}",
    ];
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let rounds = std::env::var("HOSTILE_ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(3000);
    for _ in 0..rounds {
        let mut text: Vec<u8> = if dice.roll(3) == 0 {
            FLEET.into()
        } else {
            EXAMPLE.into()
        };
        let from = dice.roll(text.len());
        text.truncate((from + 1 + dice.roll(600)).min(text.len()));
        let keep = if dice.roll(2) == 0 { 0 } else { from };
        text.drain(..keep);
        for _ in 0..=dice.roll(6) {
            let at = dice.roll(text.len() + 1);
            match dice.roll(3) {
                0 => drop(text.splice(at..at, WORDS[dice.roll(WORDS.len())].bytes())),
                1 => drop(text.drain(at..(at + dice.roll(9)).min(text.len()))),
                _ => {
                    if let Some(byte) = text.get_mut(at) {
                        *byte = u8::try_from(dice.roll(256)).unwrap();
                    }
                }
            }
        }
        if let Err(problems) = parse("x", &text) {
            assert!(problems.iter().count() > 0);
            assert!(!problems.to_string().is_empty());
        }
    }
}

#[test]
fn a_megabyte_of_anything_is_answered() {
    const MOST: usize = 1 << 20;
    for unit in [
        "[",
        "]",
        "{",
        "a: {",
        "- ",
        "? ",
        "&a ",
        "*a ",
        "\"",
        "'",
        "|\n",
        "a",
        "a: 1\n",
        "- a\n",
        "<<: 1\n",
        "\n",
        "\t",
        " ",
        "# \n",
        "!",
        "---\n",
        "{}, ",
        "a,",
        "é",
        "limits: [",
        "x: [1, 2]\n",
    ] {
        let text = unit.repeat(MOST / unit.len());
        assert!(parse("x", text.as_bytes()).is_err(), "{unit}");
    }
}

#[test]
fn ten_thousand_limits_are_read() {
    let mut text = String::from("default: pass\nlimits:\n");
    for number in 0..10_000 {
        text.push_str(&format!(
            "- {{ name: l{number}, match: {{ path: /p{number} }}, key: header.x, allow: 5/s }}\n"
        ));
    }
    let loaded = parse("x", text.as_bytes()).unwrap();
    assert_eq!(loaded.policy.limits.len(), 10_000);
    // Each of them can be passed by changing the header.
    assert_eq!(
        loaded.warnings.count(tollgate_policy::Severity::Warning),
        10_000
    );
}
