//! Tables of measurements, and the results of the goals.

use std::io;

use serde_json::json;

use super::CaseResult;
use super::cases::{Case, Goal, Suite, Target};
use super::measurement::{Figure, Measurement};
use crate::args::Servers;
use crate::figures::{Figures, ratio};
use crate::output::{Output, Row, range, shown};

/// A server that used less of its core waited for something.
const BUSY: f64 = 0.95;

pub(super) fn print(
    suite: Suite,
    case: &Case,
    results: &[CaseResult],
    args: &Servers,
    out: &mut Output<'_>,
) -> io::Result<()> {
    let common = json!({
        "suite": suite.name(),
        "case": case.title,
        "connections": case.connections,
        "depth": case.depth,
        "keys": case.keys.count(args.keys),
    });
    let (missing, measured): (Vec<_>, Vec<_>) =
        results.iter().partition(|result| result.turns.is_err());
    let rows: Vec<Row> = measured
        .iter()
        .map(|result| row(result).json_all(common.clone()))
        .collect();
    let title = format!("{} ({} x {})", case.title, case.connections, case.depth);
    out.rows(&title, &rows)?;
    for result in missing {
        let why = result.turns.as_ref().err();
        out.line(&format!(
            "  {}: {}",
            result.contestant.name(),
            why.map_or("", String::as_str)
        ))?;
        if out.json {
            let row = Row::new("servers", result.contestant.name()).json("missing", why);
            out.rows("", &[row.json_all(common.clone())])?;
        }
    }
    for result in measured.iter().filter(|result| result.unexpected() > 0) {
        let what = result.first_unexpected().unwrap_or("unexpected answers");
        out.line(&format!(
            "  ! `{}`: {what}: its time is of other work",
            result.contestant.name()
        ))?;
    }
    let result = case
        .goals
        .iter()
        .filter_map(|goal| GoalResult::new(*goal, results));
    let rows: Vec<Row> = result
        .map(|result| result.row().json_all(common.clone()))
        .collect();
    out.rows("", &rows)
}

fn row(result: &CaseResult) -> Row {
    let rate = result.figures(Measurement::rate);
    let percent =
        |part: Option<f64>, prefix: &str| shown(part, |p| format!("{prefix}{:.0} %", p * 100.0));
    let share = result.median(Measurement::cpu_share);
    Row::new("servers", result.contestant.name())
        .figure("req_per_s", "req/s", rate.median(), 0)
        .json("req_per_s_by_pass", &rate.0)
        .json("spread", rate.spread())
        .column("spread", percent(rate.spread(), "±"))
        .figure("p50_us", "p50 us", result.median(Measurement::p50_us), 0)
        .figure("p99_us", "p99 us", result.median(Measurement::p99_us), 0)
        .json("server_cpu", share)
        .column("server CPU", percent(share, ""))
        .figure(
            "cpu_us_per_req",
            "CPU us/req",
            result.median(Measurement::cpu_us),
            2,
        )
        .count("unexpected", "unexpected", result.unexpected())
        .json("first_unexpected", result.first_unexpected())
        .figure(
            "cores_elsewhere",
            "others",
            result.median(Measurement::cores_elsewhere),
            2,
        )
}

/// The result of a goal whose contestants all took part.
#[derive(Debug)]
struct GoalResult {
    goal: Goal,
    /// What is compared with the target.
    figure: Option<f64>,
    by_pass: Figures,
    /// The kind of figure.
    by: &'static str,
    rate: Option<f64>,
    /// Of the second over the first, so that more is better here too.
    cpu: Option<f64>,
}

impl GoalResult {
    fn new(goal: Goal, results: &[CaseResult]) -> Option<GoalResult> {
        let result = |contestant| {
            let mut measured = results.iter().filter(|result| result.turns.is_ok());
            measured.find(|result| result.contestant == contestant)
        };
        let first = result(goal.first())?;
        let Some(second) = goal.second() else {
            let times = first.figures(Measurement::p99_us);
            return Some(GoalResult {
                goal,
                figure: times.median(),
                by_pass: times,
                by: "p99 us",
                rate: None,
                cpu: None,
            });
        };
        let second = result(second)?;
        let of_medians = |figure: Figure| ratio(&first.figures(figure), &second.figures(figure));
        let by_pass = |figure: Figure| first.figures(figure).over(&second.figures(figure));
        let is_busy = |result: &CaseResult| {
            result
                .median(Measurement::cpu_share)
                .is_none_or(|share| share >= BUSY)
        };
        let rate = of_medians(Measurement::rate);
        let cpu = of_medians(Measurement::cpu_us).map(|ratio| 1.0 / ratio);
        let (figure, by_pass, by) = match goal {
            Goal::P50(..) => (
                of_medians(Measurement::p50_us),
                by_pass(Measurement::p50_us),
                "p50",
            ),
            Goal::P99(..) | Goal::P99Micros(..) => (
                of_medians(Measurement::p99_us),
                by_pass(Measurement::p99_us),
                "p99",
            ),
            Goal::Rate(..) if !is_busy(first) || !is_busy(second) => {
                let inverse = second.figures(Measurement::cpu_us);
                (
                    cpu,
                    inverse.over(&first.figures(Measurement::cpu_us)),
                    "CPU",
                )
            }
            Goal::Rate(..) | Goal::RateOnly(..) => (rate, by_pass(Measurement::rate), "req/s"),
        };
        Some(GoalResult {
            goal,
            figure,
            by_pass,
            by,
            rate,
            cpu,
        })
    }

    fn is_met(&self) -> Option<bool> {
        Some(match (self.goal.target()?, self.figure?) {
            (Target::AtLeast(least), figure) => figure >= least,
            (Target::AtMost(most), figure) => figure <= most,
        })
    }

    fn row(&self) -> Row {
        let second = self.goal.second().map(|second| second.name());
        let mut name = self.goal.first().name().to_owned();
        if let Some(second) = second {
            name += &format!(" / {second}");
        }
        let (least, most, target) = match self.goal.target() {
            Some(Target::AtLeast(least)) => (Some(least), None, format!(">= {least}")),
            Some(Target::AtMost(most)) => (None, Some(most), format!("<= {most}")),
            None => (None, None, String::new()),
        };
        let met = match self.is_met() {
            Some(true) => "met",
            Some(false) => "missed",
            None => "",
        };
        Row::default()
            .json("command", "servers")
            .json("ratio", [Some(self.goal.first().name()), second])
            .column("ratio", name)
            .figure("figure", "", self.figure, 2)
            .json("by_pass", &self.by_pass.0)
            .column("pass by pass", range(self.by_pass.range()))
            .json("by", self.by)
            .column("by", self.by)
            .figure("req_per_s", "req/s", self.rate, 2)
            .figure("cpu", "CPU/req", self.cpu, 2)
            .json("at_least", least)
            .json("at_most", most)
            .column("target", target)
            .json("is_met", self.is_met())
            .column("", met)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;
    use serde_json::Value;

    use super::super::contestant::Contestant;
    use super::*;
    use crate::args::{Cli, Command};

    /// Answers of one second, for milliseconds of CPU.
    fn result(contestant: Contestant, answers: u64, cpu: u64) -> CaseResult {
        let turn = Measurement {
            answers,
            elapsed: Duration::from_secs(1),
            p50: Duration::from_micros(100),
            p99: Duration::from_micros(200),
            cpu: Some(Duration::from_millis(cpu)),
            cpu_elsewhere: Some(Duration::ZERO),
            ..Measurement::default()
        };
        CaseResult {
            contestant,
            turns: Ok(vec![turn; 3]),
        }
    }

    fn printed(results: &[CaseResult], json: bool) -> String {
        let Command::Servers(args) = Cli::parse_from(["tollgate-bench", "servers"]).command else {
            unreachable!("it is `servers`")
        };
        let mut bytes = Vec::new();
        let mut out = Output {
            json,
            writer: &mut bytes,
        };
        let case = &Suite::Resp.cases()[0];
        print(Suite::Resp, case, results, &args, &mut out).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    const GOAL: Goal = Goal::Rate(Contestant::Resp, Contestant::Cell, Some(3.0));

    #[test]
    fn busy_servers_are_compared_by_their_rates() {
        let results = [
            result(Contestant::Resp, 4_000, 990),
            result(Contestant::Cell, 1_000, 1_000),
        ];
        let result = GoalResult::new(GOAL, &results).unwrap();
        assert_eq!((result.figure, result.by), (Some(4.0), "req/s"));
        assert_eq!(result.is_met(), Some(true));
    }

    #[test]
    fn a_server_that_waited_for_the_load_is_compared_by_its_cpu_time() {
        let results = [
            result(Contestant::Resp, 2_000, 500),
            result(Contestant::Cell, 1_000, 1_000),
        ];
        let result = GoalResult::new(GOAL, &results).unwrap();
        assert_eq!((result.figure, result.by), (Some(4.0), "CPU"));
        assert_eq!(result.rate, Some(2.0));
        let rate_only = Goal::RateOnly(Contestant::Resp, Contestant::Cell, Some(3.0));
        let result = GoalResult::new(rate_only, &results).unwrap();
        assert_eq!((result.figure, result.is_met()), (Some(2.0), Some(false)));
    }

    #[test]
    fn a_missing_contestant_is_named_and_has_no_ratio() {
        let mut cell = result(Contestant::Cell, 1, 1);
        cell.turns = Err("not built: try harder".to_owned());
        let results = [result(Contestant::Resp, 2_000, 500), cell];
        assert!(GoalResult::new(GOAL, &results).is_none());
        let text = printed(&results, false);
        assert!(text.contains("redis-cell: not built: try harder"), "{text}");
        assert!(!text.contains("/ redis-cell"), "{text}");
    }

    #[test]
    fn an_unexpected_answer_is_reported() {
        let mut wrong = result(Contestant::Resp, 2_000, 500);
        if let Ok(turns) = &mut wrong.turns {
            turns[0].unexpected = 1;
            turns[0].first_unexpected = Some("ERR no".to_owned());
        }
        assert_eq!(wrong.unexpected(), 1);
        let text = printed(&[wrong], false);
        assert!(text.contains("! `tollgate RESP`: ERR no"), "{text}");
    }

    #[test]
    fn every_line_of_json_is_an_object_that_names_its_suite() {
        let mut missing = result(Contestant::CrabResp, 1, 1);
        missing.turns = Err("not installed".to_owned());
        let results = [
            result(Contestant::Resp, 2_000, 500),
            result(Contestant::Cell, 1_000, 1_000),
            missing,
        ];
        let text = printed(&results, true);
        assert_eq!(text.lines().count(), 4);
        for object in text.lines() {
            let object: Value = serde_json::from_str(object).unwrap();
            assert_eq!(object["suite"], "resp");
        }
    }
}
