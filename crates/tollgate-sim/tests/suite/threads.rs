//! Real threads, a modest number of charges; the command makes many more.

use std::error::Error;
use tollgate_sim::command::run;
use tollgate_sim::threads::SCENARIOS;

#[test]
fn two_threads_admit_exactly_what_each_limit_allows() -> Result<(), Box<dyn Error>> {
    let args = ["threads", "--charges", "2_000_000", "--threads", "2"].map(str::to_owned);
    let (mut out, mut progress) = (Vec::new(), Vec::new());
    let tally = run(&args, &mut out, &mut progress)?;
    let text = String::from_utf8_lossy(&out);
    assert!(tally.is_good(), "{text}");
    let last = format!("{} passed, 0 failed", SCENARIOS.len());
    assert_eq!(text.lines().last(), Some(last.as_str()));
    assert!(text.contains("token bucket: 2000000 charges by 2 threads, 200000 admitted"));
    assert!(text.contains("gate of two: 2000000 charges by 2 threads, 150000 admitted"));
    Ok(())
}

#[test]
fn more_threads_than_processors_do_no_worse() -> Result<(), Box<dyn Error>> {
    let args = ["threads", "--charges", "200_000", "--threads", "7"].map(str::to_owned);
    let mut out = Vec::new();
    let tally = run(&args, &mut out, &mut Vec::new())?;
    assert!(tally.is_good(), "{}", String::from_utf8_lossy(&out));
    Ok(())
}
