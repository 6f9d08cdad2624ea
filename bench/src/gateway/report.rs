//! The table and the ratios, for people and for machines.

use std::io::{self, Write};

use serde_json::json;

use super::{Front, Line};
use crate::args::Gateways;
use crate::doors::cores::Cores;
use crate::doors::load::CONNECTIONS;
use crate::table::Table;
use crate::turns::{Figure, Figures, Turn, cells, shown};

/// What the gateway shall reach of the requests a second of nginx, and the most that its p99 may be of that of nginx.
const RATE_LEAST: f64 = 0.90;
const P99_MOST: f64 = 1.3;

/// One figure of a front over that of another: by medians, and pass by pass.
struct Ratio {
    of_medians: Option<f64>,
    by_pass: Figures,
}

fn ratio(lines: &[Line], of: Front, over: Front, figure: Figure) -> Ratio {
    let figures = |front: Front| {
        let line = lines.iter().find(|line| line.front == front);
        line.map_or(Figures(Vec::new()), |line| line.figures(figure))
    };
    let (first, second) = (figures(of), figures(over));
    let medians = first.median().zip(second.median());
    Ratio {
        of_medians: medians.map(|(a, b)| a / b),
        by_pass: first.over(&second),
    }
}

const RATIOS: [(&str, Figure); 4] = [
    ("req/s", Turn::rate),
    ("p50", Turn::p50_us),
    ("p99", Turn::p99_us),
    ("CPU/req", Turn::cpu_us),
];

pub(super) fn print(
    wanted: &Gateways,
    lines: &[Line],
    cores: Option<Cores>,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(
        out,
        "\nreverse proxies: {} passes of {:?} each, {CONNECTIONS} connections, {}",
        wanted.passes,
        wanted.time,
        match cores {
            Some(cores) => format!(
                "front on core {}, upstream and load on {}",
                cores.server, cores.load
            ),
            None => "nothing is pinned".to_owned(),
        }
    )?;
    let mut table = Table::new([
        "",
        "req/s",
        "spread",
        "p50 us",
        "p99 us",
        "front CPU",
        "CPU us/req",
        "not passed",
        "others",
    ]);
    for line in lines {
        table.row(cells(line.front.name(), &line.turns));
    }
    table.print(out)?;
    writeln!(out)?;
    let mut table = Table::new([
        "tollgate gateway / nginx",
        "ratio",
        "pass by pass",
        "target",
    ]);
    for (name, figure) in RATIOS {
        let ratio = ratio(lines, Front::Tollgate, Front::Nginx, figure);
        let range = ratio.by_pass.least_and_most();
        let target = match name {
            "req/s" => format!(">= {RATE_LEAST:.2}"),
            "p99" => format!("<= {P99_MOST:.2}"),
            _ => String::new(),
        };
        table.row([
            name.to_owned(),
            shown(ratio.of_medians, |ratio| format!("{ratio:.2}")),
            range.map_or_else(
                || "-".to_owned(),
                |(least, most)| format!("{least:.2} to {most:.2}"),
            ),
            target,
        ]);
    }
    table.print(out)
}

pub(super) fn print_json(lines: &[Line], pinned: bool, out: &mut dyn Write) -> io::Result<()> {
    for line in lines {
        let median = |figure: Figure| line.figures(figure).median();
        let object = json!({
            "command": "gateway",
            "front": line.front.name(),
            "connections": CONNECTIONS,
            "pinned": pinned,
            "req_per_s": median(Turn::rate),
            "p50_us": median(Turn::p50_us),
            "p99_us": median(Turn::p99_us),
            "front_cpu": median(Turn::cpu_share),
            "cpu_us_per_req": median(Turn::cpu_us),
            "not_passed": line.others(),
            "cores_elsewhere": median(Turn::cores_elsewhere),
        });
        writeln!(out, "{object}")?;
    }
    for (name, figure) in RATIOS {
        let ratio = ratio(lines, Front::Tollgate, Front::Nginx, figure);
        let object = json!({
            "command": "gateway",
            "ratio": ["tollgate gateway", "nginx limit_req"],
            "figure": name,
            "of_medians": ratio.of_medians,
            "by_pass": ratio.by_pass.0,
        });
        writeln!(out, "{object}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn line(front: Front, answers: u64) -> Line {
        let turn = Turn {
            answers,
            others: 0,
            elapsed: Duration::from_secs(1),
            p50: Duration::from_micros(100),
            p99: Duration::from_micros(200),
            cpu: None,
            cpu_elsewhere: None,
        };
        Line {
            front,
            turns: vec![turn; 3],
        }
    }

    #[test]
    fn the_ratio_is_of_ours_over_nginx() {
        let lines = [line(Front::Nginx, 2_000), line(Front::Tollgate, 1_900)];
        let rate = ratio(&lines, Front::Tollgate, Front::Nginx, Turn::rate);
        assert_eq!(rate.of_medians, Some(0.95));
        let unknown = ratio(&lines, Front::Tollgate, Front::Nginx, Turn::cpu_us);
        assert_eq!(unknown.of_medians, None);
    }
}
