//! The core answers every golden timeline, and the store all that it can express.

use std::error::Error;
use std::path::{Path, PathBuf};
use tollgate_sim::replay::{CaseRunner, OpenCase, Opened, ReplayReport, replay};
use tollgate_sim::subject::{open_core, open_store};
use tollgate_sim::timeline::{Observation, Timeline, TimelineCase, TimelineStep};

const TIMELINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../timelines");

fn files() -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(Path::new(TIMELINES))? {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == "csv") {
            files.push(file);
        }
    }
    files.sort();
    assert!(files.len() >= 12, "only {} timelines", files.len());
    Ok(files)
}

fn assert_nothing_failed(report: &ReplayReport) {
    let listed: Vec<String> = report.mismatches.iter().map(ToString::to_string).collect();
    assert_eq!(report.failed, 0, "{}", listed.join("\n"));
}

#[test]
fn the_pure_steps_keep_every_timeline_but_that_of_permits() -> Result<(), Box<dyn Error>> {
    for file in files()? {
        let timeline = Timeline::read(&file)?;
        let report = replay(&timeline, &open_core);
        assert_nothing_failed(&report);
        let is_of_store = timeline.name.starts_with("concurrency");
        assert_eq!(report.skipped > 0, is_of_store, "{}", timeline.name);
        assert_eq!(report.passed > 0, !is_of_store, "{}", timeline.name);
    }
    Ok(())
}

#[test]
fn the_store_keeps_every_timeline_that_it_can_express() -> Result<(), Box<dyn Error>> {
    for file in files()? {
        let timeline = Timeline::read(&file)?;
        let report = replay(&timeline, &open_store);
        assert_nothing_failed(&report);
        let steps: usize = timeline.cases.iter().map(|case| case.steps.len()).sum();
        assert_eq!(report.passed + report.skipped, steps);
        let has_store = !["adaptive", "sfq"]
            .iter()
            .any(|without| timeline.name.starts_with(without));
        assert_eq!(report.passed > 0, has_store, "{}", timeline.name);
    }
    Ok(())
}

/// Answers like the core, but every so often one number is off by one.
struct Planted {
    inner: Box<dyn CaseRunner>,
    steps: u64,
}

impl CaseRunner for Planted {
    fn apply(&mut self, step: &TimelineStep) -> Result<Observation, String> {
        let mut observed = self.inner.apply(step)?;
        self.steps += 1;
        match self.steps % 12 {
            4 => observed.remaining = observed.remaining.map(|units| units + 1),
            8 => observed.reset_after = observed.reset_after.map(|ns| ns + 1),
            0 => observed.retry_after = observed.retry_after.map(|ns| ns + 1),
            _ => {}
        }
        Ok(observed)
    }
}

fn open_planted(case: &TimelineCase) -> Opened {
    let inner = open_core(case)?;
    Ok(Box::new(Planted { inner, steps: 0 }))
}

#[test]
fn a_core_that_is_off_by_one_now_and_then_is_caught_by_the_timelines() -> Result<(), Box<dyn Error>>
{
    let timeline = Timeline::read(&Path::new(TIMELINES).join("token_bucket.public.csv"))?;
    let report = replay(&timeline, &open_planted);
    assert!(report.failed > 0 && report.passed > report.failed);
    for column in [
        "`remaining` is",
        "`reset_after_ns` is",
        "`retry_after_ns` is",
    ] {
        let caught = report.mismatches.iter().any(|m| m.what.contains(column));
        assert!(caught, "no mismatch for {column}");
    }
    Ok(())
}

/// What is tested: the pure steps and the store.
const PRODUCT: [OpenCase; 2] = [open_core, open_store];

fn run(rows: &str, open: &dyn Fn(&TimelineCase) -> Opened) -> Result<ReplayReport, Box<dyn Error>> {
    let text = format!("{}\n{rows}", tollgate_sim::timeline::HEADER);
    Ok(replay(&Timeline::parse("t.csv", &text)?, open))
}

#[test]
fn an_unknown_parameter_fails_the_case_and_is_not_ignored() -> Result<(), Box<dyn Error>> {
    for open in PRODUCT {
        let report = run(
            "a,0,new,,,,token_bucket cap=2 n=1 p_ns=10 warm=1,,,,,,\n\
             a,1,check,0,k,1,,1,,,,,\n\
             b,0,new,,,,token_bucket cap=2 n=1 p_ns=10,,,,,,\n\
             b,1,check,0,k,1,twice=1,1,,,,,\n\
             b,2,check,0,k,1,,1,,,,,\n",
            &open,
        )?;
        assert_eq!((report.passed, report.failed), (1, 2));
        for (mismatch, unknown) in report.mismatches.iter().zip(["`warm`", "`twice`"]) {
            let what = format!("unknown field {unknown}");
            assert!(mismatch.what.starts_with(&what), "{mismatch}");
        }
    }
    Ok(())
}

#[test]
fn a_new_limit_holds_for_keys_that_come_later() -> Result<(), Box<dyn Error>> {
    for open in PRODUCT {
        let report = run(
            "a,0,new,,,,token_bucket cap=2 n=1 p_ns=10,,,,,,\n\
             a,1,check,0,k,1,,1,1,0,10,,\n\
             a,2,set_cap,0,k,,cap=5,1,4,0,10,,\n\
             a,3,check,0,other,4,,1,1,0,40,,\n",
            &open,
        )?;
        assert_eq!(
            (report.passed, report.failed),
            (3, 0),
            "{:?}",
            report.mismatches
        );
    }
    Ok(())
}

#[test]
fn an_unknown_algorithm_fails_everywhere() -> Result<(), Box<dyn Error>> {
    for open in PRODUCT {
        let report = run("a,0,new,,,,abacus,,,,,,\na,1,check,0,k,1,,1,,,,,\n", &open)?;
        assert_eq!((report.passed, report.failed, report.skipped), (0, 1, 0));
    }
    Ok(())
}
