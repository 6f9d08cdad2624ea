//! The oracle answers every golden timeline it models.

use std::error::Error;
use std::path::Path;
use tollgate_sim::replay::replay;
use tollgate_sim::subject::open_oracle;
use tollgate_sim::timeline::Timeline;

const TIMELINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../timelines");

/// Replays one file and demands that all of its steps, and some, pass.
fn holds(file: &str) -> Result<(), Box<dyn Error>> {
    let timeline = Timeline::read(&Path::new(TIMELINES).join(file))?;
    let report = replay(&timeline, &open_oracle);
    let listed: Vec<String> = report.mismatches.iter().map(ToString::to_string).collect();
    assert_eq!(report.failed, 0, "{}", listed.join("\n"));
    assert!(report.passed > 0, "{file} holds no step");
    Ok(())
}

macro_rules! timelines_hold {
    ($($sentence:ident: $file:literal;)*) => {$(
        #[test]
        fn $sentence() -> Result<(), Box<dyn Error>> {
            holds($file)
        }
    )*};
}

timelines_hold! {
    the_token_bucket_keeps_its_timeline: "token_bucket.public.csv";
    the_token_bucket_with_a_debt_keeps_its_timeline: "token_debt.public.csv";
    the_meter_keeps_its_timeline: "gcra.public.csv";
    the_leaky_queue_keeps_its_timeline: "leaky_queue.public.csv";
    the_fixed_window_keeps_its_timeline: "fixed_window.public.csv";
    the_sliding_log_keeps_its_timeline: "sliding_log.public.csv";
    the_sliding_counter_keeps_its_timeline: "sliding_counter.public.csv";
    the_span_counter_keeps_its_timeline: "span_counter.public.csv";
    burst_credits_keep_their_timeline: "burst_credits.public.csv";
    leases_keep_their_timeline: "concurrency.public.csv";
    the_hierarchy_keeps_its_timeline: "hierarchy.public.csv";
}

#[test]
fn every_timeline_can_be_read_even_if_the_oracle_does_not_model_it() -> Result<(), Box<dyn Error>> {
    for file in ["adaptive.public.csv", "sfq.public.csv"] {
        let timeline = Timeline::read(&Path::new(TIMELINES).join(file))?;
        let steps: usize = timeline.cases.iter().map(|case| case.steps.len()).sum();
        let report = replay(&timeline, &open_oracle);
        assert!(steps > 0);
        assert_eq!((report.passed, report.failed), (0, steps));
    }
    Ok(())
}
