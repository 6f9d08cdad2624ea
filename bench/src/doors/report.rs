//! What was measured, for people and for machines.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::cores::Cores;
use super::lineup::{Contestant, Group};
use super::load::CONNECTIONS;
use super::{KEYS, Line};
use crate::args::Doors;
use crate::table::{Table, short_count};
use crate::turns::{Figure, Figures, Turn, cells, shown};

pub(super) fn print_head(
    wanted: &Doors,
    cores: Option<Cores>,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(
        out,
        "{CONNECTIONS} connections in closed loops, {} random keys; passes: {}, interleaved, of {:?}; medians",
        short_count(KEYS),
        wanted.passes,
        wanted.time,
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

pub(super) fn print_table(group: &Group, lines: &[Line], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n{}", group.title)?;
    let mut table = Table::new([
        "",
        "req/s",
        "spread",
        "p50 us",
        "p99 us",
        "server CPU",
        "CPU us/req",
        "not passed",
        "others",
    ]);
    for line in lines.iter().filter(|line| line.turns.is_ok()) {
        table.row(cells(line.contestant.name(), line.turns()));
    }
    if lines.iter().any(|line| line.turns.is_ok()) {
        table.print(out)?;
    }
    for line in lines {
        if let Err(message) = &line.turns {
            writeln!(out, "  {}: {message}", line.contestant.name())?;
        }
        if !line.is_well() {
            let name = line.contestant.name();
            writeln!(
                out,
                "  ! `{name}` did not pass everything: its time is of other work"
            )?;
        }
    }
    let ratios = ratios(group, lines);
    if !ratios.is_empty() {
        writeln!(out)?;
        let mut table = Table::new(["ratio", "req/s", "pass by pass", "p99", "CPU/req"]);
        for ratio in &ratios {
            table.row(ratio.cells());
        }
        table.print(out)?;
    }
    Ok(())
}

/// One contestant over another. `None` where a figure is not known.
#[derive(Debug)]
struct Ratio {
    of: Contestant,
    over: Contestant,
    rate: Option<f64>,
    rate_by_pass: Figures,
    p99: Option<f64>,
    cpu: Option<f64>,
}

/// The ratios of medians for which both contestants took part.
fn ratios(group: &Group, lines: &[Line]) -> Vec<Ratio> {
    let line = |contestant: Contestant| {
        let mut measured = lines.iter().filter(|line| line.turns.is_ok());
        measured.find(|line| line.contestant == contestant)
    };
    let ratio = |&(of, over): &(Contestant, Contestant)| {
        let (first, second) = line(of).zip(line(over))?;
        let medians = |figure: Figure| {
            Some(first.figures(figure).median()? / second.figures(figure).median()?)
        };
        Some(Ratio {
            of,
            over,
            rate: medians(Turn::rate),
            rate_by_pass: first.figures(Turn::rate).over(&second.figures(Turn::rate)),
            p99: medians(Turn::p99_us),
            cpu: medians(Turn::cpu_us),
        })
    };
    group.ratios.iter().filter_map(ratio).collect()
}

impl Ratio {
    fn cells(&self) -> [String; 5] {
        let two_digits = |figure: Option<f64>| shown(figure, |figure| format!("{figure:.2}"));
        let range = self.rate_by_pass.least_and_most();
        [
            format!("{} / {}", self.of.name(), self.over.name()),
            two_digits(self.rate),
            range.map_or_else(
                || "-".to_owned(),
                |(least, most)| format!("{least:.2} to {most:.2}"),
            ),
            two_digits(self.p99),
            two_digits(self.cpu),
        ]
    }

    fn json(&self, group: &Group) -> Value {
        json!({
            "command": "doors",
            "group": group.title,
            "ratio": [self.of.name(), self.over.name()],
            "req_per_s": self.rate,
            "req_per_s_by_pass": self.rate_by_pass.0,
            "p99": self.p99,
            "cpu": self.cpu,
        })
    }
}

pub(super) fn print_json(
    group: &Group,
    lines: &[Line],
    cores: Option<Cores>,
    out: &mut dyn Write,
) -> io::Result<()> {
    for line in lines {
        writeln!(out, "{}", line_json(group, line, cores))?;
    }
    for ratio in ratios(group, lines) {
        writeln!(out, "{}", ratio.json(group))?;
    }
    Ok(())
}

fn line_json(group: &Group, line: &Line, cores: Option<Cores>) -> Value {
    let (group, contestant) = (group.title, line.contestant.name());
    if let Err(missing) = &line.turns {
        return json!({
            "command": "doors",
            "group": group,
            "contestant": contestant,
            "missing": missing,
        });
    }
    let median = |figure: Figure| line.figures(figure).median();
    let rate = line.figures(Turn::rate);
    json!({
        "command": "doors",
        "group": group,
        "contestant": contestant,
        "connections": CONNECTIONS,
        "keys": KEYS,
        "pinned": cores.is_some(),
        "req_per_s": rate.median(),
        "req_per_s_by_pass": rate.0,
        "spread": rate.spread(),
        "p50_us": median(Turn::p50_us),
        "p99_us": median(Turn::p99_us),
        "server_cpu": median(Turn::cpu_share),
        "cpu_us_per_req": median(Turn::cpu_us),
        "not_passed": line.others(),
        "cores_elsewhere": median(Turn::cores_elsewhere),
    })
}

#[cfg(test)]
mod tests {
    use super::super::lineup::GROUPS;
    use super::*;
    use std::time::Duration;

    fn line(contestant: Contestant, answers: u64) -> Line {
        let turn = Turn {
            answers,
            others: 0,
            elapsed: Duration::from_secs(1),
            p50: Duration::from_micros(100),
            p99: Duration::from_micros(200),
            cpu: Some(Duration::from_millis(500)),
            cpu_elsewhere: Some(Duration::ZERO),
        };
        Line {
            contestant,
            turns: Ok(vec![turn; 3]),
        }
    }

    fn missing(contestant: Contestant) -> Line {
        Line {
            contestant,
            turns: Err("not installed: try harder".to_owned()),
        }
    }

    #[test]
    fn a_missing_contestant_is_named_and_has_no_ratio() {
        let lines = [
            line(Contestant::Bare, 2_000),
            line(Contestant::Check, 1_000),
            missing(Contestant::Throttlecrab),
        ];
        let mut out = Vec::new();
        print_table(&GROUPS[0], &lines, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("throttlecrab: not installed: try harder"),
            "{text}"
        );
        assert!(text.contains("tollgate check / bare"), "{text}");
        assert!(!text.contains("/ throttlecrab"), "{text}");
    }

    #[test]
    fn a_ratio_is_the_first_over_the_second() {
        let lines = [
            line(Contestant::Bare, 2_000),
            line(Contestant::Check, 1_000),
        ];
        let ratios = ratios(&GROUPS[0], &lines);
        let [ratio] = ratios.as_slice() else {
            unreachable!("two lines have one ratio")
        };
        assert_eq!(
            (ratio.rate, ratio.p99, ratio.cpu),
            (Some(0.5), Some(1.0), Some(2.0))
        );
    }

    #[test]
    fn every_line_for_machines_is_an_object_that_says_what_it_is() {
        let lines = [line(Contestant::Check, 1_000), missing(Contestant::Bare)];
        let mut out = Vec::new();
        print_json(&GROUPS[0], &lines, None, &mut out).unwrap();
        let objects: Vec<Value> = String::from_utf8(out)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(objects[0]["req_per_s"], 1_000.0);
        assert_eq!(objects[0]["cpu_us_per_req"], 500.0);
        assert_eq!(objects[1]["missing"], "not installed: try harder");
    }
}
