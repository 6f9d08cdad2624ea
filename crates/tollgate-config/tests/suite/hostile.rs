//! Hostile files: each is accepted or rejected in bounded time, without a panic.

use fastrand::Rng;
use tollgate_config::{EXAMPLE, parse};

const FLEET: &str = include_str!("../../../../examples/fleet/tollgate.yaml");
const GATEWAY: &str = include_str!("../../../../examples/gateway/tollgate.yaml");

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
        "queues:",
        "at_once: {",
        "at_once: { adaptive: aimd, min: 0 }",
        "pressure:",
        "gateway:",
        "upstreams: http://",
        "10MB",
        "0%",
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
    let mut rng = Rng::with_seed(1);
    let rounds = std::env::var("HOSTILE_ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(3000);
    for _ in 0..rounds {
        let mut text: Vec<u8> = match rng.usize(..4) {
            0 => FLEET.into(),
            1 => GATEWAY.into(),
            _ => EXAMPLE.into(),
        };
        let from = rng.usize(..text.len());
        text.truncate((from + 1 + rng.usize(..600)).min(text.len()));
        let keep = if rng.usize(..2) == 0 { 0 } else { from };
        text.drain(..keep);
        for _ in 0..=rng.usize(..6) {
            let at = rng.usize(..=text.len());
            match rng.usize(..3) {
                0 => drop(text.splice(at..at, WORDS[rng.usize(..WORDS.len())].bytes())),
                1 => drop(text.drain(at..(at + rng.usize(..9)).min(text.len()))),
                _ => {
                    if let Some(byte) = text.get_mut(at) {
                        *byte = rng.u8(..);
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
        loaded.warnings.count(tollgate_config::Severity::Warning),
        10_000
    );
}

#[test]
fn every_word_in_every_place_of_the_new_sections_is_answered() {
    const VALUES: &[&str] = &[
        "",
        "~",
        "[]",
        "{}",
        "[[]]",
        "[~]",
        "{ a: b }",
        "0",
        "-1",
        "1",
        "18446744073709551615",
        "99999999999999999999999999",
        "1e999",
        ".nan",
        "100%",
        "0.00%",
        "99999999999%",
        "5/s",
        "1/0s",
        "18446744073709551615/18446744073709551615h",
        "0s",
        "213503982334601d",
        "18446744073709551615GiB",
        "ip",
        "none",
        "path.x",
        "true",
        "http://",
        "http://[",
        "http://]:",
        "http://@",
        "'http://u:p@h:'",
        "/",
        "/**",
        "\"\\0\"",
        "\"\\u2028\"",
        "&a b",
        "*a",
        "!!int 5",
    ];
    let lines: Vec<&str> = GATEWAY.lines().collect();
    let mut tried = 0;
    for (at, line) in lines.iter().enumerate() {
        let Some((name, _)) = line.split_once(": ") else {
            continue;
        };
        if name.trim_start().starts_with('#') {
            continue;
        }
        for value in VALUES {
            let mut text = lines.clone();
            let changed = format!("{name}: {value}");
            text[at] = &changed;
            tried += 1;
            if let Err(problems) = parse("x", text.join("\n").as_bytes()) {
                assert!(problems.iter().count() > 0);
                assert!(!problems.to_string().is_empty());
            }
        }
    }
    assert!(tried > 1000, "{tried}");
}

#[test]
fn a_thousand_queues_and_upstreams_are_read_soon() {
    let mut text =
        String::from("default: pass\nlimits: [{ name: a, key: ip, allow: 5/s }]\nqueues:\n");
    for number in 0..1000 {
        text.push_str(&format!(
            "- {{ name: q{number}, match: {{ path: /p{number} }}, flow: ip, at_once: 5 }}\n"
        ));
    }
    text.push_str("gateway:\n  upstreams:\n");
    for number in 0..1000 {
        text.push_str(&format!(
            "  - {{ name: u{number}, match: {{ path: /p{number} }}, servers: http://h{number} }}\n"
        ));
    }
    let loaded = parse("x", text.as_bytes()).unwrap();
    assert!(loaded.warnings.is_empty());
    assert_eq!(loaded.policy.queues.len(), 1000);
    assert_eq!(loaded.gateway.upstreams.len(), 1000);
}
