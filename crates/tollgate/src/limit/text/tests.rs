//! Tests of limits as text.

use super::*;

fn read(text: &str) -> Limit {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

#[test]
fn limits_are_parsed_in_all_notations() {
    let bucket = |text, burst| Limit::token_bucket(rate(text), burst).unwrap();
    let window = Span::from_secs(60);
    for (text, limit) in [
        ("5/s burst 10", bucket("5/s", 10)),
        ("  5/s   burst 10 ", bucket("5/s", 10)),
        ("100/min", bucket("100/min", 100)),
        ("100k/min", bucket("100000/min", 100_000)),
        ("5 per second burst 10", bucket("5/s", 10)),
        ("7 per 3 seconds", bucket("7/3s", 7)),
        ("7/3s burst 30s", bucket("7/3s", 70)),
        ("7/3s burst 30 s", bucket("7/3s", 70)),
        ("token-bucket 5/s burst 1_000", bucket("5/s", 1000)),
        ("Token Bucket 5/s", bucket("5/s", 5)),
        ("rides: 5/s", bucket("5/s", 5).with_name("rides")),
        ("5/s max keys 64", bucket("5/s", 5).with_max_keys(64)),
        (
            "gcra 10/s tolerance 250ms",
            Limit::gcra(rate("10/s"), Span::from_millis(250)).unwrap(),
        ),
        (
            "leaky bucket 5/s queue 20",
            Limit::leaky_bucket(rate("5/s"), 20).unwrap(),
        ),
        (
            "leaky_bucket 5/s max_wait 2 s queue 20",
            Limit::new(Algorithm::LeakyBucket {
                rate: rate("5/s"),
                queue: 20,
                max_wait: Some(Span::from_secs(2)),
            })
            .unwrap(),
        ),
        (
            "fixed window 10 in 1m",
            Limit::fixed_window(rate("10/min")).unwrap(),
        ),
        (
            "fixed window 10/min",
            Limit::fixed_window(rate("10/min")).unwrap(),
        ),
        (
            "sliding log 10 per minute",
            Limit::sliding_log(rate("10/min")).unwrap(),
        ),
        (
            "sliding window 10/min strict",
            Limit::new(Algorithm::SlidingWindow {
                limit: 10,
                window,
                estimate: Estimate::Strict,
            })
            .unwrap(),
        ),
        (
            "concurrency 20 ttl 1min",
            Limit::concurrency(20, window).unwrap(),
        ),
    ] {
        assert_eq!(read(text), limit, "{text}");
    }
}

#[test]
fn what_is_printed_is_read_back_as_the_same_limit() {
    let mut random = fastrand::Rng::with_seed(7);
    let below_power_of_two = |random: &mut fastrand::Rng, bits: u32| {
        let bound = 1 << random.u32(1..bits);
        random.u64(1..bound)
    };
    let span = |random: &mut fastrand::Rng| Span::from_nanos(below_power_of_two(random, 50));
    for _ in 0..20_000 {
        let (window, limit) = (span(&mut random), below_power_of_two(&mut random, 16));
        let rate = Rate::new(limit, window).unwrap();
        let algorithm = match random.u8(..7) {
            0 => Algorithm::TokenBucket {
                rate,
                burst: random.u64(1..1000),
            },
            1 => Algorithm::Gcra {
                rate,
                tolerance: span(&mut random),
            },
            2 => Algorithm::LeakyBucket {
                rate,
                queue: random.u64(1..1000),
                max_wait: random.bool().then(|| span(&mut random)),
            },
            3 => Algorithm::FixedWindow {
                limit,
                window,
                anchor: if random.bool() {
                    Span::ZERO
                } else {
                    span(&mut random)
                },
            },
            4 => Algorithm::SlidingLog { limit, window },
            5 => Algorithm::SlidingWindow {
                limit,
                window,
                estimate: if random.bool() {
                    Estimate::Span
                } else {
                    Estimate::Strict
                },
            },
            _ => Algorithm::Concurrency { limit, ttl: window },
        };
        // Some spans are too short or too long for an algorithm.
        let Ok(mut limit) = Limit::new(algorithm) else {
            continue;
        };
        if random.bool() {
            limit = limit.with_max_keys(random.usize(1..1 << 40));
        }
        let name = ["", "rides", "a: b", " x ", "gcra 5/s", ":"][random.usize(..6)];
        let limit = limit.with_name(name);
        assert_eq!(read(&limit.to_string()), limit, "{limit}");
    }
}

#[test]
fn a_wrong_limit_says_what_is_wrong_where_and_how_to_fix_it() {
    for (text, column, message) in [
        (
            "",
            1,
            "the limit lacks a quantity at column 1; write a rate such as `5/s`",
        ),
        (
            "a:",
            3,
            "the limit lacks a quantity at column 3; write a rate such as `5/s`",
        ),
        (
            "5",
            1,
            "`5` is not a rate: it has no `/`, at column 1; write `5/s` or `5/min`",
        ),
        (
            "x: 0/s",
            4,
            "a rate of 0 would refuse every request for ever, at column 4; write at least `1`, over a longer period if it must be slow: `1/day`",
        ),
        (
            "5/fortnight",
            1,
            "the period is wrong: a number was expected at `fortnight`, at column 1; write numbers with the units `ns us ms s m h d w`, such as `250ms` or `1h30m`",
        ),
        (
            "tokn bucket 5/s",
            1,
            "`tokn` at column 1 is not an algorithm; write `token bucket`, `gcra`, `leaky bucket`, `fixed window`, `sliding log`, `sliding window`, `concurrency`, or a rate such as `5/s`",
        ),
        (
            "5/s brust 10",
            5,
            "`brust` at column 5 is not a setting of a token bucket; write `burst` or `max keys`",
        ),
        (
            "é: 5/s burst",
            8,
            "`burst` at column 8 has no value; write one such as `burst 10`",
        ),
        (
            "5/s burst ten",
            11,
            "`burst` at column 5: `ten` is not a whole number of units; write a whole number such as `10`, or a span of credit such as `30s`",
        ),
        (
            "5/s burst 0",
            1,
            "a burst of 0 would refuse every request, at column 1; write a burst of at least 1; to block requests, refuse them before they are limited",
        ),
        (
            "5/s burst 1 burst 2",
            13,
            "`burst` at column 13 is written twice; remove one of the two",
        ),
        (
            "gcra 5/s",
            9,
            "a gcra needs a `tolerance`, at column 9; write one such as `tolerance 30s`",
        ),
        (
            "gcra 5/s tolerance 5",
            20,
            "`tolerance` at column 10: `5` has no unit of time; write `5s` or `5ms`",
        ),
        (
            "concurrency many ttl 1s",
            13,
            "`many` is not a whole number of units, at column 13; write a whole number such as `10`",
        ),
        (
            "concurrency 1.5 ttl 1s",
            13,
            "`1.5` is not a whole number of units, at column 13; write a whole number such as `10`",
        ),
        (
            "10 in",
            4,
            "`in` at column 4 has no value; write one such as `in 30s`",
        ),
    ] {
        let error = text.parse::<Limit>().unwrap_err();
        assert_eq!(
            (error.column(), error.to_string().as_str()),
            (column, message),
            "{text}"
        );
    }
}

#[test]
fn no_text_panics() {
    let mut random = fastrand::Rng::with_seed(8);
    let parts = [
        "5/s",
        "burst",
        "10",
        "max",
        "wait",
        "keys",
        ":",
        " ",
        "\u{3000}",
        "é",
        "gcra",
        "in",
        "per",
        "/",
        "18446744073709551615",
        "1w",
        "concurrency",
        "ttl",
        "-",
        "token",
        "bucket",
        "_",
        "k",
        "M",
    ];
    for _ in 0..100_000 {
        let text: String = (0..random.usize(..8))
            .map(|_| parts[random.usize(..parts.len())])
            .collect();
        if let Ok(limit) = text.parse::<Limit>() {
            assert_eq!(read(&limit.to_string()), limit, "{text}");
        }
    }
}
