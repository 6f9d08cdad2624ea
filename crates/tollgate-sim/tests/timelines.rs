//! The core answers every golden timeline, and the store all that it can express.

use std::error::Error;
use std::path::{Path, PathBuf};
use tollgate_sim::replay::{CannotOpen, Observed, Report, Subject, SubjectFactory, replay};
use tollgate_sim::subject::{CoreFactory, StoreFactory};
use tollgate_sim::timeline::{Case, Step, Timeline};

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

fn assert_nothing_failed(report: &Report) {
    let listed: Vec<String> = report.mismatches.iter().map(ToString::to_string).collect();
    assert_eq!(report.failed, 0, "{}", listed.join("\n"));
}

#[test]
fn the_pure_steps_keep_every_timeline_but_that_of_permits() -> Result<(), Box<dyn Error>> {
    for file in files()? {
        let timeline = Timeline::read(&file)?;
        let report = replay(&timeline, &CoreFactory);
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
        let report = replay(&timeline, &StoreFactory);
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
    inner: Box<dyn Subject>,
    steps: u64,
}

impl Subject for Planted {
    fn apply(&mut self, step: &Step) -> Result<Observed, String> {
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

struct PlantedFactory;

impl SubjectFactory for PlantedFactory {
    fn start(&self, case: &Case) -> Result<Box<dyn Subject>, CannotOpen> {
        let inner = CoreFactory.start(case)?;
        Ok(Box::new(Planted { inner, steps: 0 }))
    }
}

#[test]
fn a_core_that_is_off_by_one_now_and_then_is_caught_by_the_timelines() -> Result<(), Box<dyn Error>>
{
    let timeline = Timeline::read(&Path::new(TIMELINES).join("token_bucket.public.csv"))?;
    let report = replay(&timeline, &PlantedFactory);
    assert!(report.failed > 0 && report.passed > report.failed);
    for column in [
        "`remaining` is",
        "`reset_after_ns` is",
        "`retry_after_ns` is",
    ] {
        let caught = report.mismatches.iter().any(|m| m.what.contains(column));
        assert!(caught, "nothing says that {column} wrong");
    }
    Ok(())
}

fn run(rows: &str, factory: &dyn SubjectFactory) -> Result<Report, Box<dyn Error>> {
    let text = format!("{}\n{rows}", tollgate_sim::timeline::HEADER);
    Ok(replay(&Timeline::parse("t.csv", &text)?, factory))
}

#[test]
fn a_parameter_that_nobody_understands_fails_the_case_and_is_not_ignored()
-> Result<(), Box<dyn Error>> {
    let subjects: [&dyn SubjectFactory; 2] = [&CoreFactory, &StoreFactory];
    for factory in subjects {
        let report = run(
            "a,0,new,,,,token_bucket cap=2 n=1 p_ns=10 warm=1,,,,,,\n\
             a,1,check,0,k,1,,1,,,,,\n\
             b,0,new,,,,token_bucket cap=2 n=1 p_ns=10,,,,,,\n\
             b,1,check,0,k,1,twice=1,1,,,,,\n\
             b,2,check,0,k,1,,1,,,,,\n",
            factory,
        )?;
        assert_eq!((report.passed, report.failed), (1, 2));
        assert_eq!(report.mismatches[0].what, "`warm` is not understood");
        assert_eq!(report.mismatches[1].what, "`twice` is not understood");
    }
    Ok(())
}

#[test]
fn a_new_limit_holds_for_keys_that_come_later() -> Result<(), Box<dyn Error>> {
    let subjects: [&dyn SubjectFactory; 2] = [&CoreFactory, &StoreFactory];
    for factory in subjects {
        let report = run(
            "a,0,new,,,,token_bucket cap=2 n=1 p_ns=10,,,,,,\n\
             a,1,check,0,k,1,,1,1,0,10,,\n\
             a,2,set_cap,0,k,,cap=5,1,4,0,10,,\n\
             a,3,check,0,other,4,,1,1,0,40,,\n",
            factory,
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
fn an_algorithm_that_nobody_has_fails_everywhere() -> Result<(), Box<dyn Error>> {
    let subjects: [&dyn SubjectFactory; 2] = [&CoreFactory, &StoreFactory];
    for factory in subjects {
        let report = run(
            "a,0,new,,,,abacus,,,,,,\na,1,check,0,k,1,,1,,,,,\n",
            factory,
        )?;
        assert_eq!((report.passed, report.failed, report.skipped), (0, 1, 0));
    }
    Ok(())
}
