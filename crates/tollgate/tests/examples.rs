//! The examples do what they say.
#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(dead_code, reason = "`main` of an example is not called here")]

#[path = "../examples/concurrency.rs"]
mod concurrency;
#[path = "../examples/keyed.rs"]
mod keyed;
#[path = "../examples/several_limits.rs"]
mod several_limits;
#[path = "../examples/test_with_a_clock.rs"]
mod test_with_a_clock;
#[path = "../examples/until_ready.rs"]
mod until_ready;

use std::time::Duration;

use tollgate::{ConcurrencyLimiter, Limiter, ManualClock};

#[test]
fn a_user_reads_what_is_left_and_when_to_come_back() {
    let limiter = Limiter::new("1/h burst 10".parse().unwrap()).unwrap();
    let line = |user, cost| keyed::respond(&limiter, user, cost);
    assert_eq!(line("ada", 4), (200, "6 left".into()));
    assert_eq!(line("ada", 6), (200, "0 left".into()));
    let (status, text) = line("ada", 1);
    assert_eq!(
        (status, text.starts_with("Retry-After: 3")),
        (429, true),
        "{text}"
    );
    assert_eq!(line("bob", 11), (400, "at most 10 at once".into()));
}

#[test]
fn the_limit_of_the_organisation_holds_for_all_its_users() {
    let limits = several_limits::Limits::new().unwrap();
    let decided = |user| {
        let admission = limits.check(user, "acme");
        (
            admission.is_admitted(),
            limits.name(admission.binding.unwrap()),
        )
    };
    for _ in 0..3 {
        assert!(decided("ada").0);
    }
    assert_eq!(decided("ada"), (false, "user".into()));
    assert!(decided("bob").0 && decided("bob").0);
    assert_eq!(decided("bob"), (false, "organisation".into()));
}

#[test]
fn two_jobs_run_at_once() {
    let jobs = ConcurrencyLimiter::new(2, Duration::from_secs(30)).unwrap();
    let first = concurrency::start(&jobs, "ada").unwrap();
    let _second = concurrency::start(&jobs, "ada").unwrap();
    assert!(concurrency::start(&jobs, "ada").is_err());
    drop(first);
    assert!(concurrency::start(&jobs, "ada").is_ok());
}

#[test]
fn an_address_has_one_mail_a_minute() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock("1/min".parse().unwrap(), clock.clone()).unwrap();
    let mailer = test_with_a_clock::Mailer::new(limiter);
    assert!(mailer.send("ada@example.org"));
    clock.advance(Duration::from_secs(59));
    assert!(!mailer.send("ada@example.org"));
    clock.advance(Duration::from_secs(1));
    assert!(mailer.send("ada@example.org"));
}

#[tokio::test]
async fn a_call_that_would_wait_for_too_long_is_not_made() {
    let limiter = Limiter::new("1/h burst 2".parse().unwrap()).unwrap();
    for _ in 0..2 {
        assert_eq!(
            until_ready::call(&limiter, "api.example").await,
            Ok("called")
        );
    }
    let error = until_ready::call(&limiter, "api.example")
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("rate limit exceeded; retry after 59m"),
        "{error}"
    );
}
