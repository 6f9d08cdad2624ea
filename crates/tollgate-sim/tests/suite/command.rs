//! The command line: the summary, and the errors of invalid calls.

use std::error::Error;
use std::path::PathBuf;
use tollgate_sim::command::{CommandError, Tally, run};

const TIMELINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../timelines");

fn call(args: &[&str]) -> Result<(Tally, Vec<String>), CommandError> {
    let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
    let (mut out, mut progress) = (Vec::new(), Vec::new());
    let tally = run(&args, &mut out, &mut progress)?;
    let text = String::from_utf8_lossy(&out);
    Ok((tally, text.lines().map(str::to_owned).collect()))
}

/// A timeline of one bucket with these rows, where the test may write.
fn file(name: &str, rows: &str) -> Result<PathBuf, Box<dyn Error>> {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let header = tollgate_sim::timeline::HEADER;
    let open = "a,0,new,,,,token_bucket cap=2 n=1 p_ns=10,,,,,,";
    std::fs::write(&path, format!("{header}\n{open}\n{rows}"))?;
    Ok(path)
}

#[test]
fn a_folder_is_all_of_its_timelines_and_the_last_line_counts_the_steps()
-> Result<(), Box<dyn Error>> {
    let (tally, lines) = call(&["vectors", TIMELINES])?;
    assert!(tally.is_good() && tally.passed > 1000);
    let last = format!("{} passed, 0 failed", tally.passed);
    assert_eq!(lines.last(), Some(&last));
    let of_files = lines.iter().filter(|line| line.contains(".csv: core "));
    assert!(of_files.count() >= 12);
    Ok(())
}

#[test]
fn a_wrong_answer_is_reported_with_its_file_case_and_step() -> Result<(), Box<dyn Error>> {
    let path = file(
        "wrong.csv",
        "a,1,check,0,k,1,,1,1,,,,\na,2,check,0,k,1,,1,7,,,,\n",
    )?;
    let (tally, lines) = call(&["vectors", &path.to_string_lossy()])?;
    assert_eq!((tally.passed, tally.failed), (2, 2));
    assert!(!tally.is_good());
    assert_eq!(
        lines[0],
        "FAILED core: wrong.csv, case `a`, step 2: `check` of `k`: `remaining` is 0, expected 7"
    );
    assert_eq!(lines.last().map(String::as_str), Some("2 passed, 2 failed"));
    Ok(())
}

#[test]
fn a_run_without_a_single_step_is_not_good() -> Result<(), Box<dyn Error>> {
    let path = file("empty.csv", "")?;
    let (tally, lines) = call(&["vectors", &path.to_string_lossy()])?;
    assert!(!tally.is_good());
    assert_eq!(lines.last().map(String::as_str), Some("0 passed, 0 failed"));
    Ok(())
}

#[test]
fn a_file_that_is_missing_or_malformed_is_named() -> Result<(), Box<dyn Error>> {
    let Err(CommandError::Input(what)) = call(&["vectors", "no/such.csv"]) else {
        panic!("a missing file was replayed");
    };
    assert!(what.starts_with("no/such.csv: cannot be read"), "{what}");
    let path = file("short.csv", "a,1,check,0\n")?;
    let Err(CommandError::Input(what)) = call(&["vectors", &path.to_string_lossy()]) else {
        panic!("a malformed file was replayed");
    };
    assert!(what.starts_with("short.csv: "), "{what}");
    assert!(
        what.contains("line: 3") && what.contains("4 fields"),
        "{what}"
    );
    Ok(())
}

#[test]
fn a_wrong_call_says_how_to_find_out() {
    for args in [
        &[][..],
        &["vectors"],
        &["vectors", "--fast"],
        &["steps"],
        &["steps", "--each", "x"],
        &["load", "--nodes", "1"],
        &["load", "--seconds", "0"],
        &["load", "--seed"],
        &["load", "--loud"],
        &["dance"],
    ] {
        let Err(error @ CommandError::Usage(_)) = call(args) else {
            panic!("{args:?} was understood");
        };
        assert!(error.to_string().contains("--help"), "{error}");
    }
}

#[test]
fn steps_are_counted_for_each_algorithm() -> Result<(), Box<dyn Error>> {
    let (tally, lines) = call(&[
        "steps",
        "--each",
        "1000",
        "--only",
        "gcra,store_concurrency",
    ])?;
    assert_eq!((tally.passed, tally.failed), (2000, 0));
    assert_eq!(
        lines.last().map(String::as_str),
        Some("2000 passed, 0 failed")
    );
    assert_eq!(lines.len(), 3);
    Ok(())
}

#[test]
fn fleets_are_the_same_on_one_thread_and_on_several() -> Result<(), Box<dyn Error>> {
    let of = |threads| call(&["fleet", "--seeds", "12", "--threads", threads]);
    let (tally, lines) = of("1")?;
    assert!(tally.passed > 12, "{lines:?}");
    assert_eq!(of("3")?, (tally, lines));
    Ok(())
}
