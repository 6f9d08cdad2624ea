//! The built `tollgate`: `serve` and `gateway` as processes of their own.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use serde_json::Value;

use crate::error::{Error, Result};
use crate::http::{Client, Reply};
use crate::process::{Process, without_settings};
use crate::wait::{DEADLINE, wait_for};
use crate::{HOST, Signal};

/// Variable that names the binary.
const VARIABLE: &str = "TOLLGATE_BIN";
/// Token of operators of every `serve`.
pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// Name of the policy in the directory of the process.
const POLICY: &str = "tollgate.yaml";

/// Path of the binary: `TOLLGATE_BIN`, or beside this program, or in another profile.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = env::var_os(VARIABLE) {
        return find(&[path.into()]);
    }
    let own = env::current_exe().map_err(Error::io("find this program"))?;
    let beside = own.parent().map(Path::to_path_buf).unwrap_or_default();
    // A test is one directory below.
    let directories = [".", "..", "../release", "../debug"].map(|other| beside.join(other));
    find(&directories.map(|directory| directory.join("tollgate")))
}

fn find(places: &[PathBuf]) -> Result<PathBuf> {
    let place = places.iter().find(|place| place.is_file()).cloned();
    place.ok_or_else(|| {
        let searched: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
        Error::Invalid(format!(
            "there is no `tollgate`: run `cargo build --release -p tollgate-cli`, or name it in {VARIABLE}. Searched for \
             {}",
            searched.join(", ")
        ))
    })
}

/// A command that runs the binary without settings from the environment.
pub fn command() -> Result<Command> {
    Ok(without_settings(Command::new(binary()?)))
}

/// A `tollgate` to start, on free ports.
#[derive(Clone, Debug)]
pub struct Start {
    subcommand: &'static str,
    port: u16,
    policy: Option<String>,
    arguments: Vec<String>,
}

impl Start {
    /// `tollgate serve`, with [`TOKEN`] for operators.
    pub fn serve() -> Start {
        Start::serve_bare().args(&["--admin-token-file", "token"])
    }

    /// `tollgate serve` with no argument but its addresses.
    pub fn serve_bare() -> Start {
        Start::new("serve")
    }

    /// `tollgate gateway`.
    pub fn gateway() -> Start {
        Start::new("gateway")
    }

    fn new(subcommand: &'static str) -> Start {
        Start {
            subcommand,
            port: 0,
            policy: None,
            arguments: Vec::new(),
        }
    }

    /// With this policy, which is written to a file beside the process.
    #[must_use]
    pub fn policy(mut self, text: &str) -> Start {
        self.policy = Some(text.into());
        self.args(&["--policy", POLICY])
    }

    /// With the policy in this file.
    #[must_use]
    pub fn policy_file(self, file: &Path) -> Start {
        self.args(&["--policy", &file.display().to_string()])
    }

    /// With this state file, written every 100 ms.
    #[must_use]
    pub fn state(self, file: &Path) -> Start {
        let file = file.display().to_string();
        self.args(&["--state", &file, "--state-every", "100ms"])
    }

    /// With its front end on this port.
    #[must_use]
    pub fn port(mut self, port: u16) -> Start {
        self.port = port;
        self
    }

    /// With these arguments.
    #[must_use]
    pub fn args(mut self, arguments: &[&str]) -> Start {
        self.arguments.extend(arguments.iter().map(|&a| a.into()));
        self
    }

    /// Starts it and waits until it listens.
    pub fn start(&self) -> Result<Tollgate> {
        let tollgate = self.launch()?;
        let front_end = tollgate.front_end;
        let ready = || {
            let out = tollgate.out();
            // The gateway prints a request to try as its last line.
            let done = front_end == "decisions" || out.contains("\ntry ");
            let found = port_of(&out, front_end).zip(port_of(&out, "admin"));
            if found.is_none() {
                tollgate.process.check()?;
            }
            Ok(found.filter(|_| done).into())
        };
        let what = format!("{} listens", tollgate.process.name());
        let (port, admin) = wait_for(&what, DEADLINE, || tollgate.process.log(), ready)?;
        Ok(Tollgate {
            port,
            admin,
            ..tollgate
        })
    }

    /// Runs it until it exits, because it must not start, and returns its standard error and exit code.
    pub fn fails(&self) -> Result<(String, Option<i32>)> {
        let tollgate = self.launch()?;
        let status = tollgate.wait_for_exit()?;
        Ok((tollgate.log(), status.code()))
    }

    fn launch(&self) -> Result<Tollgate> {
        let listen = format!("{HOST}:{}", self.port);
        let mut arguments = vec![self.subcommand.into(), "--listen".into(), listen];
        if !self.arguments.iter().any(|argument| argument == "--admin") {
            arguments.extend(["--admin".into(), format!("{HOST}:0")]);
        }
        arguments.extend(self.arguments.iter().cloned());
        let name = format!("tollgate {}", self.subcommand);
        let process = Process::prepare(&name, &binary()?, &arguments)?;
        process.write("token", TOKEN)?;
        if let Some(policy) = &self.policy {
            process.write(POLICY, policy)?;
        }
        process.start()?;
        Ok(Tollgate {
            process,
            front_end: match self.subcommand {
                "serve" => "decisions",
                other => other,
            },
            port: 0,
            admin: 0,
        })
    }
}

/// A running `tollgate`, killed when this is dropped.
#[derive(Debug)]
pub struct Tollgate {
    process: Process,
    front_end: &'static str,
    port: u16,
    admin: u16,
}

impl Tollgate {
    /// Port of the decision API, or of the gateway.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Port of operators.
    pub fn admin_port(&self) -> u16 {
        self.admin
    }

    /// Port of another front end: `envoy`, `redis`. It may be printed after the others.
    pub fn port_of(&self, front_end: &str) -> Result<u16> {
        let what = format!("it prints the port of {front_end}");
        let printed = || Ok(port_of(&self.out(), front_end).into());
        wait_for(&what, DEADLINE, || self.out(), printed)
    }

    /// A client of the decision API, or of the gateway.
    pub fn client(&self) -> Client {
        Client::new(self.port)
    }

    /// A client of the port of operators.
    pub fn admin(&self) -> Client {
        Client::new(self.admin)
    }

    /// The policy file, if it was started with [`Start::policy`].
    pub fn policy_file(&self) -> PathBuf {
        self.process.directory().join(POLICY)
    }

    /// Sends `/v1/check`.
    #[track_caller]
    pub fn check(&self, body: &str) -> Reply {
        self.client().post("/v1/check", body)
    }

    /// Sends a request of an operator, with [`TOKEN`].
    #[track_caller]
    pub fn operate(&self, method: &str, path: &str, body: &str) -> Reply {
        operate(&mut self.admin(), method, path, body)
    }

    /// Answer of `/ready`.
    #[track_caller]
    pub fn ready(&self) -> Value {
        self.admin().get("/ready").json()
    }

    /// The sum of the series of a metric that have these labels: `name`, or `name{label="value",…}`. `None` if there is
    /// no such series.
    #[track_caller]
    pub fn metric(&self, series: &str) -> Option<u64> {
        sum(&self.admin().get("/metrics").body, series)
    }

    /// Resident memory in bytes.
    pub fn resident(&self) -> Result<u64> {
        let gone = || Error::Invalid(format!("{} does not run", self.process.name()));
        let pid = self.process.pid().ok_or_else(gone)?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))
            .map_err(Error::io("read the memory of a process"))?;
        let mut lines = status.lines();
        let kib = lines.find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next());
        let kib: Option<u64> = kib.and_then(|kib| kib.parse().ok());
        Ok(kib.ok_or_else(gone)? * 1024)
    }

    /// Standard output so far.
    pub fn out(&self) -> String {
        self.process.out()
    }

    /// Its log: standard error so far.
    pub fn log(&self) -> String {
        self.process.err()
    }

    /// An error if it exited.
    pub fn is_running(&self) -> Result<()> {
        self.process.check()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Kills it, as a crash would, and waits until it is gone.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Waits until it exits by itself.
    pub fn wait_for_exit(&self) -> Result<ExitStatus> {
        self.process.wait(DEADLINE)
    }
}

/// Sends a request of an operator, with [`TOKEN`], on this connection.
#[track_caller]
pub fn operate(admin: &mut Client, method: &str, path: &str, body: &str) -> Reply {
    let token = format!("Bearer {TOKEN}");
    admin.send(method, path, &[("Authorization", &token)], body)
}

/// The port in a line such as `decisions  http://127.0.0.1:8080`.
pub fn port_of(printed: &str, name: &str) -> Option<u16> {
    // Only whole lines: the last may not be complete.
    let lines = printed
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    let mut rest = lines.filter_map(|line| line.trim().strip_prefix(name));
    rest.find_map(|rest| rest.trim().rsplit(':').next()?.parse().ok())
}

/// The sum of the series in the text of `/metrics` that have this name and these labels.
pub fn sum(metrics: &str, series: &str) -> Option<u64> {
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let labels = labels.trim_end_matches('}').split_inclusive("\",");
    let labels: Vec<&str> = labels.map(|label| label.trim_end_matches(',')).collect();
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let has = |label: &&str| {
            let found = |before: &str| rest.contains(&format!("{before}{label}"));
            label.is_empty() || found("{") || found(",")
        };
        let is_it = rest.starts_with(['{', ' ']) && labels.iter().all(has);
        is_it.then(|| line.rsplit(' ').next()?.parse::<u64>().ok())?
    };
    metrics
        .lines()
        .filter_map(value)
        .reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_binary_names_the_remedy() {
        let error = find(&["/nowhere/tollgate".into()]).unwrap_err();
        let text = error.to_string();
        let remedy = "cargo build --release -p tollgate-cli";
        assert!(text.contains(remedy), "{text}");
        assert!(text.contains("/nowhere/tollgate"), "{text}");
    }

    #[test]
    fn ports_are_read_from_whole_lines() {
        let out = "decisions  http://127.0.0.1:4711\nadmin      http://127.0.0.1:4";
        assert_eq!(port_of(out, "decisions"), Some(4711));
        assert_eq!(port_of(out, "admin"), None);
    }

    #[test]
    fn series_with_all_the_labels_are_added() {
        let text = "# HELP a_total help\na_total{b=\"1\",c=\"x\"} 3\na_total{b=\"2\",c=\"x\"} 4\na_total_more 9\nd 7\n";
        assert_eq!(sum(text, "a_total"), Some(7));
        assert_eq!(sum(text, "a_total{b=\"2\",c=\"x\"}"), Some(4));
        assert_eq!(sum(text, "a_total{c=\"x\"}"), Some(7));
        assert_eq!(sum(text, "d"), Some(7));
        assert_eq!(sum(text, "a_total{b=\"3\"}"), None);
        assert_eq!(sum(text, "a"), None);
    }
}
