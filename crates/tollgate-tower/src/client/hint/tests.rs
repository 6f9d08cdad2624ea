use super::*;

fn said(status: u16, headers: &[(&'static str, &str)]) -> Hint {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    hint(StatusCode::from_u16(status).unwrap(), &map, || 784_111_777)
}

fn hold(seconds: u64) -> Hint {
    Hint {
        hold: Span::from_secs(seconds),
        spread: None,
    }
}

fn ratelimit(line: &str) -> Hint {
    said(200, &[("ratelimit", line)])
}

const NOTHING: Hint = Hint {
    hold: Span::ZERO,
    spread: None,
};

#[test]
fn retry_after_is_seconds_or_a_date_and_only_on_refusals() {
    for status in [429, 503] {
        assert_eq!(said(status, &[("retry-after", "7")]), hold(7));
        let date = ("retry-after", "Sun, 06 Nov 1994 08:49:57 GMT");
        assert_eq!(said(status, &[date]), hold(20));
        // The time of the server counts, if it tells it.
        let its_time = ("date", "Sun, 06 Nov 1994 08:49:52 GMT");
        assert_eq!(said(status, &[date, its_time]), hold(5));
        let past = ("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT");
        assert_eq!(said(status, &[past]), NOTHING);
    }
    for status in [200, 301, 500] {
        assert_eq!(said(status, &[("retry-after", "7")]), NOTHING);
    }
    for bad in ["", "-1", "1.5", "1e3", "soon", "0x10", "9999999999999999"] {
        assert_eq!(said(429, &[("retry-after", bad)]), NOTHING, "{bad}");
    }
    let twice = [("retry-after", "1"), ("retry-after", "2")];
    assert_eq!(said(429, &twice), NOTHING);
}

#[test]
fn nothing_left_holds_and_few_left_are_spread() {
    assert_eq!(ratelimit("\"app\";r=0;t=5"), hold(5));
    assert_eq!(ratelimit("\"app\";t=5;r=0"), hold(5));
    assert_eq!(ratelimit("app;r=0;t=5"), hold(5));
    let spread = Some((Span::from_millis(500), Span::from_secs(2)));
    assert_eq!(ratelimit("\"app\";r=4;t=2").spread, spread);
    assert_eq!(ratelimit("\"app\";r=11;t=2"), NOTHING);
    // Without both numbers nothing is said.
    assert_eq!(ratelimit("\"app\";r=0"), NOTHING);
    assert_eq!(ratelimit("\"app\""), NOTHING);
}

#[test]
fn of_several_items_the_strictest_counts() {
    let both = ratelimit("\"a\";r=100;t=5, \"b\";r=0;t=3 ,\t\"c\";r=0;t=4");
    assert_eq!(both, hold(4));
    assert_eq!(ratelimit("  \"a\";r=0;t=3 "), hold(3));
    assert_eq!(
        ratelimit("\t\"a\";r=0;t=3"),
        NOTHING,
        "a tab may not come first"
    );
    let lines = [
        ("ratelimit", "\"a\";r=0;t=2"),
        ("ratelimit", "\"b\";r=1;t=9"),
    ];
    let said = said(200, &lines);
    assert_eq!(said.hold, Span::from_secs(2));
    assert_eq!(said.spread, Some((Span::from_secs(9), Span::from_secs(9))));
}

#[test]
fn parameters_that_are_not_known_do_not_disturb() {
    let line = "\"a \\\" b\";pk=:aGk=:;x=?1;y;z=-1.25;w=tok/en;r=0;q=\"x;r=9\";t=5";
    assert_eq!(ratelimit(line), hold(5));
    // The last of two counts.
    assert_eq!(ratelimit("\"a\";r=9;r=0;t=1;t=6"), hold(6));
    assert_eq!(ratelimit("\"a\";r=\"0\";t=6"), NOTHING);
    assert_eq!(ratelimit("\"a\";r=-1;t=6"), NOTHING);
}

#[test]
fn a_line_with_a_mistake_says_nothing() {
    for bad in [
        "",
        ",",
        "\"a\";r=0;t=5,",
        "\"a\";r=0;t=5,,\"b\";r=0;t=5",
        "\"a;r=0;t=5",
        "\"a\\x\";r=0;t=5",
        "\"a\" r=0;t=5",
        "\"a\";R=0;t=5",
        "\"a\";r=;t=5",
        "\"a\";r= 0;t=5",
        "\"a\";r=0;t=5 x",
        "\"a\";r=0;t=1234567890123456",
        "\"a\";r=0;t=5.",
        "\"a\";r=0;t=5;",
        "1;r=0;t=5",
        "(\"a\");r=0;t=5",
        "\"a\";r=0;t=5;x=:a",
        "\"a\";r=0;t=5;x=?2",
        "\"é\";r=0;t=5",
    ] {
        assert_eq!(ratelimit(bad), NOTHING, "{bad}");
    }
    let long = format!("\"{}\";r=0;t=5", "a".repeat(LONGEST));
    assert_eq!(ratelimit(&long), NOTHING);
}

#[test]
fn the_older_fields_count_if_the_newer_one_is_not_there() {
    let gone = ("x-ratelimit-remaining", "0");
    assert_eq!(said(200, &[gone, ("x-ratelimit-reset", "9")]), hold(9));
    let moment = ("x-ratelimit-reset", "784111790");
    // Below a thousand million it is read as seconds from now, which the longest hold then bounds.
    assert_eq!(
        said(200, &[gone, moment]).hold,
        Span::from_secs(784_111_790)
    );
    let moment = ("x-ratelimit-reset", "1784111790");
    let its_time = ("date", "Wed, 15 Jul 2026 10:36:20 GMT");
    assert_eq!(said(200, &[gone, moment, its_time]), hold(10));
    let newer = ("ratelimit", "\"a\";r=0;t=2");
    let reset = ("x-ratelimit-reset", "9");
    assert_eq!(said(200, &[gone, reset, newer]), hold(2));
    assert_eq!(said(200, &[("x-ratelimit-remaining", "1"), reset]), NOTHING);
    assert_eq!(said(200, &[gone, ("x-ratelimit-reset", "-9")]), NOTHING);
    assert_eq!(said(200, &[gone]), NOTHING);
}

/// Numbers that look random and are the same in every run.
fn scrambled(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn whatever_is_sent_is_read_without_harm() {
    let pieces: [&[u8]; 20] = [
        b"\"a\"",
        b"a",
        b";",
        b"r=",
        b"t=",
        b"0",
        b"5",
        b"999999999999999",
        b",",
        b" ",
        b"\t",
        b"\\",
        b"\"",
        b"=",
        b":",
        b"?1",
        b"-",
        b".",
        b"\xff",
        b";r=0;t=5",
    ];
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    let mut held = 0;
    for _ in 0..200_000 {
        let count = scrambled(&mut seed) % 12;
        let mut value = Vec::new();
        for _ in 0..count {
            let at = scrambled(&mut seed) as usize % pieces.len();
            value.extend_from_slice(pieces[at]);
        }
        let Ok(value) = HeaderValue::from_bytes(&value) else {
            continue;
        };
        let mut map = HeaderMap::new();
        for name in [RATELIMIT, REMAINING, RESET, RETRY_AFTER, DATE] {
            map.insert(name, value.clone());
        }
        let hint = hint(StatusCode::TOO_MANY_REQUESTS, &map, || 0);
        held += u32::from(!hint.hold.is_zero());
    }
    // Some of it does make sense, so the way to the end is walked, too.
    assert!(held > 100, "{held}");
}
