//! The gateway beside nginx: the same upstream, the same load, the same work.
//!
//! # Method
//!
//! The upstream is an nginx with one worker that answers a few bytes. Before it stands either nginx with one worker, or
//! `tollgate gateway` with one thread; both keep their connections to the upstream, and both count every request in one
//! limit by a header of 100,000 values that lets everything pass. The front is pinned to one core, the upstream and
//! the load share the other. All stay up and take turns, in an order that moves on by one with every pass.
//!
//! # What the numbers are, and are not
//!
//! The ratios are the figures, not the rates: the load and the upstream share a core, and the requests pass the loopback
//! twice. Where a front used less than about 95 % of its core the other side was the slower one, and then *CPU µs/req*
//! is the fair figure. *Direct* has nothing in front; it tells what the other core could do.

mod report;
mod texts;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::args::Gateways;
use crate::doors::cores::{Cores, command_on, pin_this_thread};
use crate::doors::lineup::beside_this_program;
use crate::doors::load::Question;
use crate::doors::request::Template;
use crate::doors::server::{Folder, Server, free_address, on_path};
use crate::doors::turn;
use crate::turns::{Figure, Figures, Turn, figures, others};

/// Distinct keys that are asked about.
const KEYS: usize = 100_000;

/// Who passes requests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Front {
    Direct,
    Nginx,
    Tollgate,
}

impl Front {
    fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx limit_req",
            Self::Tollgate => "tollgate gateway",
        }
    }
}

/// All turns of a front.
#[derive(Debug)]
struct Line {
    front: Front,
    turns: Vec<Turn>,
}

impl Line {
    fn figures(&self, figure: Figure) -> Figures {
        figures(&self.turns, figure)
    }

    fn others(&self) -> u64 {
        others(&self.turns)
    }
}

/// Measures all fronts; returns whether every request passed.
pub(crate) fn run(wanted: &Gateways, out: &mut dyn Write) -> io::Result<bool> {
    let cores = Cores::find();
    // A thread of its own, so that only the load is pinned and not what this process does next.
    let lines = thread::scope(|scope| {
        let load = scope.spawn(|| {
            if let Some(cores) = cores {
                pin_this_thread(cores.load)?;
            }
            take_turns(wanted, cores)
        });
        match load.join() {
            Ok(lines) => lines,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })?;
    if wanted.json {
        report::print_json(&lines, cores.is_some(), out)?;
    } else {
        report::print(wanted, &lines, cores, out)?;
    }
    Ok(lines.iter().all(|line| line.others() == 0))
}

fn take_turns(wanted: &Gateways, cores: Option<Cores>) -> io::Result<Vec<Line>> {
    let folder = Folder::new()?;
    let nginx = on_path("nginx").ok_or_else(|| missing("nginx", "apt-get install nginx-light"))?;
    let tollgate = wanted.tollgate.clone().or_else(beside_this_program);
    let tollgate = tollgate.filter(|path| path.is_file());
    let tollgate =
        tollgate.ok_or_else(|| missing("tollgate", "cargo build --release -p tollgate-cli"))?;
    let (front_core, load_core) = (cores.map(|c| c.server), cores.map(|c| c.load));

    let address = free_address()?;
    let text = texts::upstream(address.port());
    let upstream = start_nginx("upstream", &nginx, load_core, address, &text, &folder)?;
    let behind = upstream.address.port();

    let address = free_address()?;
    let text = texts::nginx(address.port(), behind);
    let limiting = start_nginx("nginx", &nginx, front_core, address, &text, &folder)?;
    let ours = start_tollgate(&tollgate, front_core, behind, &folder)?;

    let mut fronts = [
        (Front::Direct, upstream),
        (Front::Nginx, limiting),
        (Front::Tollgate, ours),
    ];
    let mut lines = [Front::Direct, Front::Nginx, Front::Tollgate].map(|front| Line {
        front,
        turns: Vec::new(),
    });
    let key = format!("{}: k######", texts::KEY_HEADER);
    let question = Question {
        template: Template::get("/api/rides", &[&key], &[KEYS]),
        passes: texts::ANSWER,
    };
    for _ in 0..wanted.passes {
        for (front, server) in &fronts {
            let turn = turn(server, &question, wanted.warm_up, wanted.time).map_err(|error| {
                let name = front.name();
                io::Error::other(format!("`{name}`: {error}"))
            })?;
            let mut mine = lines.iter_mut().filter(|line| line.front == *front);
            if let Some(line) = mine.next() {
                line.turns.push(turn);
            }
        }
        // Who comes after whom must not matter.
        fronts.rotate_left(1);
    }
    Ok(lines.into())
}

fn missing(program: &str, mend: &str) -> io::Error {
    io::Error::other(format!("`{program}` is missing: {mend}"))
}

fn start_nginx(
    name: &str,
    program: &Path,
    core: Option<usize>,
    address: std::net::SocketAddr,
    text: &str,
    folder: &Folder,
) -> io::Result<Server> {
    let config: PathBuf = folder.write(&format!("{name}.conf"), text)?;
    let place = |command: &mut Command| {
        command.args(["-e", "stderr", "-p"]).arg(folder.path());
        command.arg("-c").arg(&config);
    };
    let mut command = command_on(core, program);
    place(&mut command);
    let mut stop = Command::new(program);
    place(&mut stop);
    stop.args(["-s", "stop"]);
    Server::start(name, command, Some(stop), address, folder)
}

fn start_tollgate(
    program: &Path,
    core: Option<usize>,
    behind: u16,
    folder: &Folder,
) -> io::Result<Server> {
    let address = free_address()?;
    let policy = folder.write("gateway.yaml", &texts::policy(behind))?;
    let mut command = command_on(core, program);
    command.arg("gateway").arg("--policy").arg(policy);
    command.args(["--listen", &address.to_string(), "--admin", "off"]);
    command.args(["--threads", "1"]);
    Server::start("tollgate", command, None, address, folder)
}
