//! The real service: `tollgate serve` as a process of its own.

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::crowd::{Guest, Told};
use crate::patience::{Look, wait_until};
use crate::policy::Policy;
use crate::servers::{HOST, Process};
use crate::trouble::{Outcome, Trouble};

/// The variable that says where the binary is.
const PLACE: &str = "TOLLGATE_BIN";
/// How long it may take until it decides with its store, and how long one answer may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// Keys that are asked for until the store answers for all of them: enough to meet every server of a cluster.
const PROBES: u64 = 32;
/// The longest answer that is read.
const ANSWER_MAX: u64 = 4 << 20;

/// A service that runs until this is dropped.
#[derive(Debug)]
pub struct Service {
    process: Process,
    decisions: u16,
    admin: u16,
}

impl Service {
    /// Starts it with this policy, and waits until it decides with its store.
    pub fn start(policy: &Policy) -> Outcome<Service> {
        let arguments = "serve --policy tollgate.yaml --listen 127.0.0.1:0 --admin 127.0.0.1:0";
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let process = Process::prepare("the service".into(), binary()?, &arguments)?;
        fs::write(process.folder().join("tollgate.yaml"), policy.text())
            .map_err(Trouble::system("write the policy"))?;
        process.start()?;
        let (decisions, admin) = wait_until(
            "the service listens",
            PATIENCE,
            || process.log(),
            || {
                process.check()?;
                let said = process.log();
                Ok(
                    match port_of(&said, "decisions").zip(port_of(&said, "admin")) {
                        Some(ports) => Look::There(ports),
                        None => Look::NotYet("it does not say where".into()),
                    },
                )
            },
        )?;
        let service = Service {
            process,
            decisions,
            admin,
        };
        service.wait_for_the_store()?;
        Ok(service)
    }

    /// The port of decisions.
    pub fn port(&self) -> u16 {
        self.decisions
    }

    /// Ends it at once, as a crash would, and waits until it is gone.
    pub fn kill9(&self) {
        self.process.kill9();
    }

    /// The end of its log.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Asks for one decision over a connection of its own.
    pub fn check(&self, guest: &Guest) -> Outcome<Told> {
        let body = guest.body();
        let head = format!(
            "POST /v1/check HTTP/1.1\r\nhost: {HOST}:{}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n",
            self.decisions,
            body.len()
        );
        let answer = exchange(self.decisions, &format!("{head}{body}"))?;
        Told::read(answer.as_bytes()).ok_or(Trouble::Odd {
            asked: "a decision".into(),
            answer,
        })
    }

    /// The sum of the series of a metric whose lines begin so.
    pub fn metric(&self, series: &str) -> Outcome<u64> {
        let port = self.admin;
        let request =
            format!("GET /metrics HTTP/1.1\r\nhost: {HOST}:{port}\r\nconnection: close\r\n\r\n");
        let text = exchange(port, &request)?;
        let lines = text.lines().filter(|line| line.starts_with(series));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        Ok(values.sum())
    }

    /// Waits until no probe is decided without the store.
    fn wait_for_the_store(&self) -> Outcome<()> {
        let probe = |number| Guest {
            key: format!("probe{number}"),
            cost: 0,
        };
        let log = || self.log();
        wait_until("the service decides with its store", PATIENCE, log, || {
            for number in 0..PROBES {
                if self.check(&probe(number))?.degraded {
                    return Ok(Look::NotYet(format!("probe {number} without it")));
                }
            }
            Ok(Look::There(()))
        })
    }
}

/// Where the binary is.
pub(crate) fn binary() -> Outcome<PathBuf> {
    if let Some(place) = env::var_os(PLACE) {
        return found(&[place.into()]);
    }
    let own = env::current_exe().map_err(Trouble::system("find the own executable"))?;
    // Beside this one, or as a release if this one is for quick tries, or the other way round.
    let beside = own.parent().map(Path::to_path_buf).unwrap_or_default();
    let others = ["../release", "../debug"].map(|other| beside.join(other));
    let folders = [beside].into_iter().chain(others);
    let places: Vec<PathBuf> = folders.map(|folder| folder.join("tollgate")).collect();
    found(&places)
}

fn found(places: &[PathBuf]) -> Outcome<PathBuf> {
    let place = places.iter().find(|place| place.is_file()).cloned();
    place.ok_or_else(|| {
        let looked: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
        Trouble::Impossible(format!(
            "there is no `tollgate` to try: run `cargo build --release -p tollgate-cli`, or say where it is in \
             {PLACE}. Looked for {}",
            looked.join(", ")
        ))
    })
}

/// Sends a request that closes its connection, and gives the body of the answer.
pub(crate) fn exchange(port: u16, request: &str) -> Outcome<String> {
    let ask = || {
        let mut stream = TcpStream::connect((HOST, port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(request.as_bytes())?;
        let mut bytes = Vec::new();
        stream.take(ANSWER_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = ask().map_err(Trouble::system(format!("ask the service at port {port}")))?;
    let text = String::from_utf8_lossy(&bytes);
    match text.split_once("\r\n\r\n") {
        Some((_, body)) => Ok(body.to_owned()),
        None => Err(Trouble::Odd {
            asked: format!("a question to the service at port {port}"),
            answer: text.into_owned(),
        }),
    }
}

/// The port in a line such as `decisions  http://127.0.0.1:8080`.
pub(crate) fn port_of(said: &str, name: &str) -> Option<u16> {
    // Only whole lines: the last may still be on its way.
    let lines = said.split_inclusive('\n').filter(|l| l.ends_with('\n'));
    let mut rest = lines.filter_map(|line| line.trim().strip_prefix(name));
    rest.find_map(|rest| rest.trim().rsplit(':').next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_binary_is_told_with_the_way_to_build_it() {
        let said = found(&["/nowhere/tollgate".into()])
            .unwrap_err()
            .to_string();
        assert!(
            said.contains("cargo build --release -p tollgate-cli"),
            "{said}"
        );
        assert!(said.contains("/nowhere/tollgate"), "{said}");
    }

    #[test]
    fn ports_are_read_from_whole_lines() {
        let said = "decisions  http://127.0.0.1:4711\nadmin      http://127.0.0.1:4";
        assert_eq!(port_of(said, "decisions"), Some(4711));
        assert_eq!(port_of(said, "admin"), None);
    }
}
