//! The tables and what was reached of the goals, for people and for machines.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::cases::{Case, Goal, Part};
use super::{Line, Who};
use crate::args::Speed;
use crate::doors::cores::Cores;
use crate::table::{Table, short_count};
use crate::turns::{Figure, Figures, Turn, cells, shown};

/// A server that used less of its core waited for something.
const BUSY: f64 = 0.95;

pub(super) fn print_head(
    wanted: &Speed,
    cores: Option<Cores>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let keys = usize::try_from(wanted.keys).unwrap_or(usize::MAX);
    let (keys, passes, time) = (short_count(keys), wanted.passes, wanted.time);
    writeln!(
        out,
        "{keys} live keys; passes: {passes}, interleaved, of {time:?}; medians"
    )?;
    match cores {
        Some(Cores { server, load }) => {
            writeln!(
                out,
                "each server pinned to core {server}, the load to core {load}"
            )
        }
        None => writeln!(
            out,
            "not pinned (that takes two cores and `taskset`): servers and load share all cores"
        ),
    }
}

pub(super) fn print(
    part: Part,
    case: &Case,
    lines: &[Line],
    wanted: &Speed,
    cores: Option<Cores>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let reached: Vec<Reached> = case
        .goals
        .iter()
        .filter_map(|goal| Reached::of(goal, lines))
        .collect();
    if !wanted.json {
        return print_tables(case, lines, &reached, out);
    }
    for line in lines {
        writeln!(out, "{}", line_json(part, case, line, wanted, cores))?;
    }
    for reached in &reached {
        writeln!(out, "{}", reached.json(part, case))?;
    }
    Ok(())
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
        "wrong",
        "others",
    ]);
    for line in lines.iter().filter(|line| line.turns.is_ok()) {
        table.row(cells(line.who.name(), line.turns()));
    }
    table.print(out)?;
    for line in lines {
        let name = line.who.name();
        if let Err(why) = &line.turns {
            writeln!(out, "  {name}: {why}")?;
        }
        if line.others() > 0 {
            let what = line.trouble.as_deref().unwrap_or("answers were wrong");
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

/// What was reached of a goal. Only where all who are named in it took part.
#[derive(Debug)]
struct Reached {
    of: Who,
    over: Option<Who>,
    /// What is held against the target.
    figure: Option<f64>,
    by_pass: Figures,
    /// What kind of figure that is.
    by: &'static str,
    rate: Option<f64>,
    /// Of the second over the first, so that more is better here as well.
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
    fn of(goal: &Goal, lines: &[Line]) -> Option<Reached> {
        let line = |who: Who| {
            let mut measured = lines.iter().filter(|line| line.turns.is_ok());
            measured.find(|line| line.who == who)
        };
        let (of, over) = match *goal {
            Goal::Rate(of, over, _) | Goal::RateAlone(of, over, _) | Goal::Median(of, over, _) => {
                (of, Some(over))
            }
            Goal::P99(of, _) => (of, None),
        };
        let first = line(of)?;
        let Goal::P99(_, most) = *goal else {
            return Some(Reached::ratio(goal, first, line(over?)?));
        };
        let times = first.figures(Turn::p99_us);
        Some(Reached {
            of,
            over: None,
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
        let by_rate = (rate, by_pass(Turn::rate), "req/s");
        let (figure, by_pass, by) = match goal {
            Goal::Median(..) => (of_medians(Turn::p50_us), by_pass(Turn::p50_us), "p50"),
            Goal::Rate(..) if !is_busy(first) || !is_busy(second) => {
                let inverse = second.figures(Turn::cpu_us);
                (cpu, inverse.over(&first.figures(Turn::cpu_us)), "CPU")
            }
            _ => by_rate,
        };
        let target = match *goal {
            Goal::Rate(.., least) | Goal::RateAlone(.., least) => least.map(Bound::Least),
            Goal::Median(.., most) => most.map(Bound::Most),
            Goal::P99(_, most) => Some(Bound::Most(most)),
        };
        Reached {
            of: first.who,
            over: Some(second.who),
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
        let range = self.by_pass.least_and_most();
        let over = self.over.map(|over| format!(" / {}", over.name()));
        [
            format!("{}{}", self.of.name(), over.unwrap_or_default()),
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
            "command": part.name(),
            "case": case.title,
            "ratio": [self.of.name(), self.over.map(Who::name)],
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

fn line_json(part: Part, case: &Case, line: &Line, wanted: &Speed, cores: Option<Cores>) -> Value {
    let (command, contestant) = (part.name(), line.who.name());
    if let Err(missing) = &line.turns {
        return json!({
            "command": command,
            "case": case.title,
            "contestant": contestant,
            "missing": missing,
        });
    }
    let median = |figure: Figure| line.figures(figure).median();
    let rate = line.figures(Turn::rate);
    json!({
        "command": command,
        "case": case.title,
        "contestant": contestant,
        "connections": case.connections,
        "depth": case.depth,
        "keys": case.keys.count(wanted.keys),
        "pinned": cores.is_some(),
        "req_per_s": rate.median(),
        "req_per_s_by_pass": rate.0,
        "spread": rate.spread(),
        "p50_us": median(Turn::p50_us),
        "p99_us": median(Turn::p99_us),
        "server_cpu": median(Turn::cpu_share),
        "cpu_us_per_req": median(Turn::cpu_us),
        "wrong": line.others(),
        "trouble": line.trouble,
        "cores_elsewhere": median(Turn::cores_elsewhere),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// So many answers in a second, for so many milliseconds of CPU.
    fn line(who: Who, answers: u64, cpu: u64) -> Line {
        let turn = Turn {
            answers,
            others: 0,
            elapsed: Duration::from_secs(1),
            p50: Duration::from_micros(100),
            p99: Duration::from_micros(200),
            cpu: Some(Duration::from_millis(cpu)),
            cpu_elsewhere: Some(Duration::ZERO),
        };
        Line {
            who,
            turns: Ok(vec![turn; 3]),
            trouble: None,
        }
    }

    const GOAL: Goal = Goal::Rate(Who::Resp, Who::Cell, Some(3.0));

    #[test]
    fn servers_that_were_busy_are_compared_by_their_rates() {
        let lines = [line(Who::Resp, 4_000, 990), line(Who::Cell, 1_000, 1_000)];
        let reached = Reached::of(&GOAL, &lines).unwrap();
        assert_eq!((reached.figure, reached.by), (Some(4.0), "req/s"));
        assert_eq!(reached.is_met(), Some(true));
    }

    #[test]
    fn a_server_that_waited_for_the_load_is_compared_by_its_time() {
        let lines = [line(Who::Resp, 2_000, 500), line(Who::Cell, 1_000, 1_000)];
        let reached = Reached::of(&GOAL, &lines).unwrap();
        assert_eq!((reached.figure, reached.by), (Some(4.0), "CPU"));
        assert_eq!(reached.rate, Some(2.0));
        let alone = Goal::RateAlone(Who::Resp, Who::Cell, Some(3.0));
        let reached = Reached::of(&alone, &lines).unwrap();
        assert_eq!((reached.figure, reached.is_met()), (Some(2.0), Some(false)));
    }

    #[test]
    fn who_is_missing_is_named_and_has_no_ratio() {
        let mut cell = line(Who::Cell, 1, 1);
        cell.turns = Err("not built: try harder".to_owned());
        let lines = [line(Who::Resp, 2_000, 500), cell];
        assert!(Reached::of(&GOAL, &lines).is_none());
        let case = &Part::Resp.cases()[0];
        let mut out = Vec::new();
        print(Part::Resp, case, &lines, &Speed::default(), None, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("redis-cell: not built: try harder"), "{text}");
        assert!(!text.contains("/ redis-cell"), "{text}");
    }

    #[test]
    fn every_line_for_machines_is_an_object_that_says_what_it_is() {
        let lines = [line(Who::Resp, 2_000, 500), line(Who::Cell, 1_000, 1_000)];
        let wanted = Speed {
            json: true,
            ..Speed::default()
        };
        let case = &Part::Resp.cases()[0];
        let mut out = Vec::new();
        print(Part::Resp, case, &lines, &wanted, None, &mut out).unwrap();
        for object in String::from_utf8(out).unwrap().lines() {
            let object: Value = serde_json::from_str(object).unwrap();
            assert_eq!(object["command"], "resp");
        }
    }
}
