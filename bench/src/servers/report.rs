//! Tables and the goals reached, as text or as JSON.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::cases::{Case, Goal, Part};
use super::cores::Cores;
use super::{Contestant, Line};
use crate::args::Servers;
use crate::table::{Table, short_count};
use crate::turns::{Figure, Figures, Turn, cells, shown};

/// A server that used less of its core waited for something.
const BUSY: f64 = 0.95;

/// How results are reported.
pub(super) struct Report<'a> {
    pub(super) options: &'a Servers,
    pub(super) cores: Option<Cores>,
    pub(super) json: bool,
}

impl Report<'_> {
    pub(super) fn print_head(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        let keys = usize::try_from(self.options.keys).unwrap_or(usize::MAX);
        let (keys, passes) = (short_count(keys), self.options.passes);
        writeln!(
            out,
            "{keys} live keys; {} interleaved passes of {:?}; medians",
            passes.passes, passes.time
        )?;
        match self.cores {
            Some(Cores { server, load }) => {
                writeln!(out, "servers on core {server}, the load on core {load}")
            }
            None => writeln!(
                out,
                "not pinned (that takes two cores and `taskset`): servers and load share all cores"
            ),
        }
    }

    pub(super) fn print(
        &self,
        part: Part,
        case: &Case,
        lines: &[Line],
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let reached = case
            .goals
            .iter()
            .filter_map(|goal| Reached::new(goal, lines));
        let reached: Vec<Reached> = reached.collect();
        if !self.json {
            return print_tables(case, lines, &reached, out);
        }
        for line in lines {
            writeln!(out, "{}", self.line_json(part, case, line))?;
        }
        for reached in &reached {
            writeln!(out, "{}", reached.json(part, case))?;
        }
        Ok(())
    }

    fn line_json(&self, part: Part, case: &Case, line: &Line) -> Value {
        let mut object = json!({
            "command": "servers",
            "part": part.name(),
            "case": case.title,
            "contestant": line.contestant.name(),
        });
        let rest = match &line.turns {
            Err(missing) => json!({ "missing": missing }),
            Ok(_) => {
                let median = |figure: Figure| line.figures(figure).median();
                let rate = line.figures(Turn::rate);
                json!({
                    "connections": case.connections,
                    "depth": case.depth,
                    "keys": case.keys.count(self.options.keys),
                    "pinned": self.cores.is_some(),
                    "req_per_s": rate.median(),
                    "req_per_s_by_pass": rate.0,
                    "spread": rate.spread(),
                    "p50_us": median(Turn::p50_us),
                    "p99_us": median(Turn::p99_us),
                    "server_cpu": median(Turn::cpu_share),
                    "cpu_us_per_req": median(Turn::cpu_us),
                    "unexpected": line.unexpected_count(),
                    "first_unexpected": line.unexpected,
                    "cores_elsewhere": median(Turn::cores_elsewhere),
                })
            }
        };
        if let (Value::Object(object), Value::Object(rest)) = (&mut object, rest) {
            object.extend(rest);
        }
        object
    }
}

fn print_tables(
    case: &Case,
    lines: &[Line],
    reached: &[Reached],
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(
        out,
        "\n{} ({} x {})",
        case.title, case.connections, case.depth
    )?;
    let mut table = Table::new([
        "",
        "req/s",
        "spread",
        "p50 us",
        "p99 us",
        "server CPU",
        "CPU us/req",
        "unexpected",
        "others",
    ]);
    for line in lines.iter().filter(|line| line.turns.is_ok()) {
        table.row(cells(line.contestant.name(), line.turns()));
    }
    table.print(out)?;
    for line in lines {
        let name = line.contestant.name();
        if let Err(why) = &line.turns {
            writeln!(out, "  {name}: {why}")?;
        }
        if line.unexpected_count() > 0 {
            let what = line.unexpected.as_deref().unwrap_or("unexpected answers");
            writeln!(out, "  ! `{name}`: {what}: its time is of other work")?;
        }
    }
    if reached.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut table = Table::new([
        "ratio",
        "",
        "pass by pass",
        "by",
        "req/s",
        "CPU/req",
        "target",
        "",
    ]);
    for reached in reached {
        table.row(reached.cells());
    }
    table.print(out)
}

/// The result of a goal whose contestants all took part.
#[derive(Debug)]
struct Reached {
    first: Contestant,
    second: Option<Contestant>,
    /// What is compared with the target.
    figure: Option<f64>,
    by_pass: Figures,
    /// The kind of figure.
    by: &'static str,
    rate: Option<f64>,
    /// Of the second over the first, so that more is better here too.
    cpu: Option<f64>,
    target: Option<Bound>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    Least(f64),
    Most(f64),
}

impl Bound {
    fn is_met(self, figure: f64) -> bool {
        match self {
            Bound::Least(least) => figure >= least,
            Bound::Most(most) => figure <= most,
        }
    }

    fn text(self) -> String {
        match self {
            Bound::Least(least) => format!(">= {least}"),
            Bound::Most(most) => format!("<= {most}"),
        }
    }
}

impl Reached {
    fn new(goal: &Goal, lines: &[Line]) -> Option<Reached> {
        let line = |contestant: Contestant| {
            let mut measured = lines.iter().filter(|line| line.turns.is_ok());
            measured.find(|line| line.contestant == contestant)
        };
        let (first, second) = goal.contestants();
        let line_of_first = line(first)?;
        if let Some(second) = second {
            return Some(Reached::ratio(goal, line_of_first, line(second)?));
        }
        let times = line_of_first.figures(Turn::p99_us);
        let Goal::P99(_, most) = *goal else {
            return None;
        };
        Some(Reached {
            first,
            second: None,
            figure: times.median(),
            by_pass: times,
            by: "p99 us",
            rate: None,
            cpu: None,
            target: Some(Bound::Most(most)),
        })
    }

    fn ratio(goal: &Goal, first: &Line, second: &Line) -> Reached {
        let by_pass = |figure: Figure| first.figures(figure).over(&second.figures(figure));
        let of_medians = |figure: Figure| {
            let medians = first.figures(figure).median();
            medians
                .zip(second.figures(figure).median())
                .map(|(a, b)| a / b)
        };
        let is_busy = |line: &Line| {
            let share = line.figures(Turn::cpu_share).median();
            share.is_none_or(|share| share >= BUSY)
        };
        let rate = of_medians(Turn::rate);
        let cpu = of_medians(Turn::cpu_us).map(|ratio| 1.0 / ratio);
        let latency = |figure: Figure, by| (of_medians(figure), by_pass(figure), by);
        let (figure, by_pass, by) = match goal {
            Goal::Median(..) => latency(Turn::p50_us, "p50"),
            Goal::P99Ratio(..) | Goal::P99(..) => latency(Turn::p99_us, "p99"),
            Goal::Rate(..) if !is_busy(first) || !is_busy(second) => {
                let inverse = second.figures(Turn::cpu_us);
                (cpu, inverse.over(&first.figures(Turn::cpu_us)), "CPU")
            }
            Goal::Rate(..) | Goal::RateAlone(..) => (rate, by_pass(Turn::rate), "req/s"),
        };
        let target = match *goal {
            Goal::Rate(.., least) | Goal::RateAlone(.., least) => least.map(Bound::Least),
            Goal::Median(.., most) | Goal::P99Ratio(.., most) => most.map(Bound::Most),
            Goal::P99(_, most) => Some(Bound::Most(most)),
        };
        Reached {
            first: first.contestant,
            second: Some(second.contestant),
            figure,
            by_pass,
            by,
            rate,
            cpu,
            target,
        }
    }

    fn is_met(&self) -> Option<bool> {
        Some(self.target?.is_met(self.figure?))
    }

    fn cells(&self) -> [String; 8] {
        let two_digits = |figure: Option<f64>| shown(figure, |figure| format!("{figure:.2}"));
        let range = self.by_pass.range();
        let second = self.second.map(|second| format!(" / {}", second.name()));
        [
            format!("{}{}", self.first.name(), second.unwrap_or_default()),
            two_digits(self.figure),
            range.map_or_else(
                || "-".to_owned(),
                |(least, most)| format!("{least:.2} to {most:.2}"),
            ),
            self.by.to_owned(),
            two_digits(self.rate),
            two_digits(self.cpu),
            self.target.map(Bound::text).unwrap_or_default(),
            match self.is_met() {
                Some(true) => "met",
                Some(false) => "missed",
                None => "",
            }
            .to_owned(),
        ]
    }

    fn json(&self, part: Part, case: &Case) -> Value {
        let (least, most) = match self.target {
            Some(Bound::Least(least)) => (Some(least), None),
            Some(Bound::Most(most)) => (None, Some(most)),
            None => (None, None),
        };
        json!({
            "command": "servers",
            "part": part.name(),
            "case": case.title,
            "ratio": [self.first.name(), self.second.map(Contestant::name)],
            "figure": self.figure,
            "by": self.by,
            "by_pass": self.by_pass.0,
            "req_per_s": self.rate,
            "cpu": self.cpu,
            "at_least": least,
            "at_most": most,
            "is_met": self.is_met(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    /// Answers of one second, for milliseconds of CPU.
    fn line(contestant: Contestant, answers: u64, cpu: u64) -> Line {
        let turn = Turn {
            answers,
            unexpected: 0,
            elapsed: Duration::from_secs(1),
            p50: Duration::from_micros(100),
            p99: Duration::from_micros(200),
            cpu: Some(Duration::from_millis(cpu)),
            cpu_elsewhere: Some(Duration::ZERO),
        };
        Line {
            contestant,
            turns: Ok(vec![turn; 3]),
            unexpected: None,
        }
    }

    fn printed(lines: &[Line], json: bool) -> String {
        let Command::Servers(options) = Cli::parse_from(["tollgate-bench", "servers"]).command
        else {
            unreachable!("it is `servers`")
        };
        let report = Report {
            options: &options,
            cores: None,
            json,
        };
        let mut out = Vec::new();
        let case = &Part::Resp.cases()[0];
        report.print(Part::Resp, case, lines, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    const GOAL: Goal = Goal::Rate(Contestant::Resp, Contestant::Cell, Some(3.0));

    #[test]
    fn busy_servers_are_compared_by_their_rates() {
        let lines = [
            line(Contestant::Resp, 4_000, 990),
            line(Contestant::Cell, 1_000, 1_000),
        ];
        let reached = Reached::new(&GOAL, &lines).unwrap();
        assert_eq!((reached.figure, reached.by), (Some(4.0), "req/s"));
        assert_eq!(reached.is_met(), Some(true));
    }

    #[test]
    fn a_server_that_waited_for_the_load_is_compared_by_its_cpu_time() {
        let lines = [
            line(Contestant::Resp, 2_000, 500),
            line(Contestant::Cell, 1_000, 1_000),
        ];
        let reached = Reached::new(&GOAL, &lines).unwrap();
        assert_eq!((reached.figure, reached.by), (Some(4.0), "CPU"));
        assert_eq!(reached.rate, Some(2.0));
        let alone = Goal::RateAlone(Contestant::Resp, Contestant::Cell, Some(3.0));
        let reached = Reached::new(&alone, &lines).unwrap();
        assert_eq!((reached.figure, reached.is_met()), (Some(2.0), Some(false)));
    }

    #[test]
    fn a_missing_contestant_is_named_and_has_no_ratio() {
        let mut cell = line(Contestant::Cell, 1, 1);
        cell.turns = Err("not built: try harder".to_owned());
        let lines = [line(Contestant::Resp, 2_000, 500), cell];
        assert!(Reached::new(&GOAL, &lines).is_none());
        let text = printed(&lines, false);
        assert!(text.contains("redis-cell: not built: try harder"), "{text}");
        assert!(!text.contains("/ redis-cell"), "{text}");
    }

    #[test]
    fn an_unexpected_answer_is_reported() {
        let mut wrong = line(Contestant::Resp, 2_000, 500);
        wrong.unexpected = Some("ERR no".to_owned());
        if let Ok(turns) = &mut wrong.turns {
            turns[0].unexpected = 1;
        }
        assert_eq!(wrong.unexpected_count(), 1);
        let text = printed(&[wrong], false);
        assert!(text.contains("! `tollgate RESP`: ERR no"), "{text}");
    }

    #[test]
    fn every_line_of_json_is_an_object_that_names_its_part() {
        let mut missing = line(Contestant::CrabResp, 1, 1);
        missing.turns = Err("not installed".to_owned());
        let lines = [
            line(Contestant::Resp, 2_000, 500),
            line(Contestant::Cell, 1_000, 1_000),
            missing,
        ];
        for object in printed(&lines, true).lines() {
            let object: Value = serde_json::from_str(object).unwrap();
            assert_eq!(object["part"], "resp");
        }
    }
}
