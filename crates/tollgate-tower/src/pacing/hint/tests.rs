//! Tests of rate limit hints in response headers.

use super::*;

fn read(status: u16, headers: &[(&'static str, &str)]) -> RateLimitHint {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    let status = StatusCode::from_u16(status).unwrap();
    RateLimitHint::read(status, &map, || 784_111_777)
}

fn backoff(seconds: u64) -> RateLimitHint {
    RateLimitHint {
        backoff: Span::from_secs(seconds),
        spread: None,
    }
}

fn ratelimit(line: &str) -> RateLimitHint {
    read(200, &[("ratelimit", line)])
}

fn spread(interval_ms: u64, period_ms: u64) -> Option<Spread> {
    Some(Spread {
        interval: Span::from_millis(interval_ms),
        period: Span::from_millis(period_ms),
    })
}

const NOTHING: RateLimitHint = RateLimitHint {
    backoff: Span::ZERO,
    spread: None,
};

#[test]
fn retry_after_is_seconds_or_a_date_and_only_on_refusals() {
    for status in [429, 503] {
        assert_eq!(read(status, &[("retry-after", "7")]), backoff(7));
        let date = ("retry-after", "Sun, 06 Nov 1994 08:49:57 GMT");
        assert_eq!(read(status, &[date]), backoff(20));
        // The date of the server takes precedence.
        let server_date = ("date", "Sun, 06 Nov 1994 08:49:52 GMT");
        assert_eq!(read(status, &[date, server_date]), backoff(5));
        let past = ("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT");
        assert_eq!(read(status, &[past]), NOTHING);
    }
    for status in [200, 301, 500] {
        assert_eq!(read(status, &[("retry-after", "7")]), NOTHING);
    }
    for bad in ["", "-1", "1.5", "1e3", "soon", "0x10", "9999999999999999"] {
        assert_eq!(read(429, &[("retry-after", bad)]), NOTHING, "{bad}");
    }
    let twice = [("retry-after", "1"), ("retry-after", "2")];
    assert_eq!(read(429, &twice), NOTHING);
}

#[test]
fn nothing_left_backs_off_and_few_left_are_spread() {
    assert_eq!(ratelimit("\"app\";r=0;t=5"), backoff(5));
    assert_eq!(ratelimit("\"app\";t=5;r=0"), backoff(5));
    assert_eq!(ratelimit("app;r=0;t=5"), backoff(5));
    assert_eq!(ratelimit("\"app\";r=4;t=2").spread, spread(500, 2000));
    assert_eq!(ratelimit("\"app\";r=11;t=2"), NOTHING);
    // Both numbers are needed.
    assert_eq!(ratelimit("\"app\";r=0"), NOTHING);
    assert_eq!(ratelimit("\"app\""), NOTHING);
}

#[test]
fn the_strictest_of_several_items_counts() {
    let both = ratelimit("\"a\";r=100;t=5, \"b\";r=0;t=3 ,\t\"c\";r=0;t=4");
    assert_eq!(both, backoff(4));
    assert_eq!(ratelimit("  \"a\";r=0;t=3 "), backoff(3));
    assert_eq!(
        ratelimit("\t\"a\";r=0;t=3"),
        NOTHING,
        "a tab may not come first"
    );
    let lines = [
        ("ratelimit", "\"a\";r=0;t=2"),
        ("ratelimit", "\"b\";r=1;t=9"),
    ];
    let hint = read(200, &lines);
    assert_eq!(hint.backoff, Span::from_secs(2));
    assert_eq!(hint.spread, spread(9000, 9000));
}

#[test]
fn unknown_parameters_are_ignored() {
    let line = "\"a \\\" b\";pk=:aGk=:;x=?1;y;z=-1.25;w=tok/en;r=0;q=\"x;r=9\";t=5";
    assert_eq!(ratelimit(line), backoff(5));
    // The last of two counts.
    assert_eq!(ratelimit("\"a\";r=9;r=0;t=1;t=6"), backoff(6));
    assert_eq!(ratelimit("\"a\";r=\"0\";t=6"), NOTHING);
    assert_eq!(ratelimit("\"a\";r=-1;t=6"), NOTHING);
}

#[test]
fn a_malformed_line_is_ignored() {
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
    let long = format!("\"{}\";r=0;t=5", "a".repeat(MAX_LINE_BYTES));
    assert_eq!(ratelimit(&long), NOTHING);
}

#[test]
fn the_older_fields_count_without_the_newer_one() {
    let gone = ("x-ratelimit-remaining", "0");
    assert_eq!(read(200, &[gone, ("x-ratelimit-reset", "9")]), backoff(9));
    let moment = ("x-ratelimit-reset", "784111790");
    // Below 10^9 it is read as seconds from now, which `max_backoff` then bounds.
    assert_eq!(
        read(200, &[gone, moment]).backoff,
        Span::from_secs(784_111_790)
    );
    let moment = ("x-ratelimit-reset", "1784111790");
    let server_date = ("date", "Wed, 15 Jul 2026 10:36:20 GMT");
    assert_eq!(read(200, &[gone, moment, server_date]), backoff(10));
    let newer = ("ratelimit", "\"a\";r=0;t=2");
    let reset = ("x-ratelimit-reset", "9");
    assert_eq!(read(200, &[gone, reset, newer]), backoff(2));
    assert_eq!(read(200, &[("x-ratelimit-remaining", "1"), reset]), NOTHING);
    assert_eq!(read(200, &[gone, ("x-ratelimit-reset", "-9")]), NOTHING);
    assert_eq!(read(200, &[gone]), NOTHING);
}

/// A xorshift generator.
fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn any_bytes_are_read_without_panic() {
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
    let mut backoffs = 0;
    for _ in 0..200_000 {
        let count = random(&mut seed) % 12;
        let mut value = Vec::new();
        for _ in 0..count {
            let at = random(&mut seed) as usize % pieces.len();
            value.extend_from_slice(pieces[at]);
        }
        let Ok(value) = HeaderValue::from_bytes(&value) else {
            continue;
        };
        let mut map = HeaderMap::new();
        for name in [RATELIMIT, REMAINING, RESET, RETRY_AFTER, DATE] {
            map.insert(name, value.clone());
        }
        let hint = RateLimitHint::read(StatusCode::TOO_MANY_REQUESTS, &map, || 0);
        backoffs += u32::from(!hint.backoff.is_zero());
    }
    // Some of the values are well formed.
    assert!(backoffs > 100, "{backoffs}");
}
