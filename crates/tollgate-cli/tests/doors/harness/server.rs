//! A running `tollgate serve`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use serde_json::Value;

use super::client::{Client, Reply};
use super::process::{Process, Signal, run_to_end};
use super::scratch::Scratch;
use super::time::eventually;

/// What the operator's token of every test is.
pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// How a server is started.
#[derive(Debug, Default)]
pub(crate) struct Start {
    policy: Option<PathBuf>,
    state: Option<PathBuf>,
    port: u16,
    more: Vec<String>,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Tollgate {
    process: Process,
    decisions: u16,
    admin: u16,
    /// Where its policy is, if the harness wrote it.
    scratch: Scratch,
}

/// Which of its two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Decisions,
    Admin,
}

impl Start {
    /// With the policy in this file.
    pub(crate) fn with(policy: &Path) -> Start {
        Start {
            policy: Some(policy.into()),
            ..Start::default()
        }
    }

    /// With this state file, written every 100 ms.
    pub(crate) fn state(mut self, file: &Path) -> Start {
        self.state = Some(file.into());
        self.and(&["--state-every", "100ms"])
    }

    /// With decisions on this port.
    pub(crate) fn port(mut self, port: u16) -> Start {
        self.port = port;
        self
    }

    /// With these arguments as well.
    pub(crate) fn and(mut self, args: &[&str]) -> Start {
        self.more.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }

    /// The command line.
    fn command(&self, scratch: &Scratch) -> Command {
        let token = scratch.write("token", TOKEN);
        let mut command = binary();
        command.arg("serve");
        command.args(["--listen", &format!("127.0.0.1:{}", self.port)]);
        command.args(["--admin", "127.0.0.1:0"]);
        command.arg("--admin-token-file").arg(token);
        if let Some(policy) = &self.policy {
            command.arg("--policy").arg(policy);
        }
        if let Some(state) = &self.state {
            command.arg("--state").arg(state);
        }
        command.args(&self.more);
        command
    }

    /// Runs it although it should not start, and returns its standard error and exit code.
    pub(crate) fn fails(&self) -> (String, Option<i32>) {
        let scratch = Scratch::new();
        let mut process = Process::start(&mut self.command(&scratch));
        let status = process.end();
        (eventually_all(&process), status.code())
    }

    /// Starts it and waits until it listens.
    pub(crate) fn go(self) -> Tollgate {
        let scratch = Scratch::new();
        let process = Process::start(&mut self.command(&scratch));
        Tollgate::listening(process, scratch)
    }
}

/// The built binary, told nothing by the environment.
pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let told = std::env::vars_os().map(|(name, _)| name);
    for name in told.filter(|name| name.to_string_lossy().starts_with("TOLLGATE_")) {
        command.env_remove(name);
    }
    command
}

/// Runs `tollgate bench` to its end: standard output, standard error and exit code.
pub(crate) fn bench(args: &[&str]) -> (String, String, Option<i32>) {
    let ran = run_to_end(binary().arg("bench").args(args));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&ran.stdout), text(&ran.stderr), ran.status.code())
}

/// Everything on standard error; the pipe may lag behind the end of its program.
pub(super) fn eventually_all(process: &Process) -> String {
    eventually("it says why", || {
        Some(process.err()).filter(|e| !e.is_empty())
    })
}

impl Tollgate {
    /// With this policy.
    pub(crate) fn start(policy: &str) -> Tollgate {
        Tollgate::start_with(policy, &[])
    }

    /// With this policy and these arguments.
    pub(crate) fn start_with(policy: &str, args: &[&str]) -> Tollgate {
        let scratch = Scratch::new();
        let file = scratch.write("tollgate.yaml", policy);
        let process = Process::start(&mut Start::with(&file).and(args).command(&scratch));
        Tollgate::listening(process, scratch)
    }

    /// Exactly these arguments, and no other.
    pub(crate) fn bare(args: &[&str]) -> Tollgate {
        let mut command = binary();
        Tollgate::listening(Process::start(command.args(args)), Scratch::new())
    }

    fn listening(mut process: Process, scratch: Scratch) -> Tollgate {
        let (decisions, admin) = eventually("the server listens", || {
            let out = process.out();
            let found = port_of(&out, "decisions").zip(port_of(&out, "admin"));
            if found.is_none()
                && let Some(status) = process.ended()
            {
                panic!("it ended with {status}: {out}{}", process.err());
            }
            found
        });
        Tollgate {
            process,
            decisions,
            admin,
            scratch,
        }
    }

    /// The port of decisions.
    pub(crate) fn port(&self) -> u16 {
        self.decisions
    }

    /// The port of Envoy's rate limit service, if it has one.
    pub(crate) fn rls_port(&self) -> u16 {
        port_of(&self.out(), "envoy").expect("started with --rls")
    }

    /// The port of Redis clients, if it was told to have one.
    pub(crate) fn redis_port(&self) -> u16 {
        eventually("it says where Redis clients ask", || {
            port_of(&self.out(), "redis")
        })
    }

    /// Memory that it takes, in bytes.
    pub(crate) fn resident(&self) -> u64 {
        let file = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(file).expect("a running process");
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kilobytes.expect("a size") * 1024
    }

    /// The file of the policy that it was started with by its text.
    pub(crate) fn policy_file(&self) -> PathBuf {
        self.scratch.file("tollgate.yaml")
    }

    /// A client of one of its doors.
    pub(crate) fn client(&self, door: Door) -> Client {
        Client::to(match door {
            Door::Decisions => self.decisions,
            Door::Admin => self.admin,
        })
    }

    /// Where operators ask.
    pub(crate) fn admin_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.admin)
    }

    /// Asks for a decision.
    pub(crate) fn check(&self, ask: &str) -> Reply {
        self.client(Door::Decisions).post("/v1/check", ask)
    }

    /// Does what operators do, with their token.
    pub(crate) fn operate(&self, method: &str, path: &str, body: &str) -> Reply {
        let token = format!("Bearer {TOKEN}");
        let headers = [("Authorization", token.as_str())];
        self.client(Door::Admin).send(method, path, &headers, body)
    }

    /// Has the policy file read, through a connection that is kept.
    pub(crate) fn reload_with(&self, admin: &mut Client) -> Reply {
        let token = format!("Bearer {TOKEN}");
        admin.send(
            "POST",
            "/reload",
            &[("Authorization", token.as_str())],
            "{}",
        )
    }

    /// How it says that it goes.
    pub(crate) fn ready(&self) -> Value {
        self.client(Door::Admin).get("/ready").json()
    }

    /// The value of a metric, by its name and labels as they are written.
    pub(crate) fn metric(&self, series: &str) -> Option<u64> {
        let text = self.client(Door::Admin).get("/metrics").body;
        let mut lines = text.lines();
        let found = lines.find_map(|l| l.strip_prefix(series)?.strip_prefix(' '));
        found.and_then(|value| value.parse().ok())
    }

    /// What it printed.
    pub(crate) fn out(&self) -> String {
        self.process.out()
    }

    /// Its log.
    pub(crate) fn log(&self) -> String {
        self.process.err()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// A signal that is sent without delay once it is wanted.
    pub(crate) fn aim(&self, name: &str) -> Signal {
        self.process.aim(name)
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        self.process.end()
    }
}

/// The port in a line such as `decisions  http://127.0.0.1:8080`.
pub(super) fn port_of(out: &str, name: &str) -> Option<u16> {
    // Only whole lines: the last may still be on its way.
    let lines = out.split_inclusive('\n').filter(|l| l.ends_with('\n'));
    let mut said = lines.filter_map(|line| line.trim().strip_prefix(name));
    said.find_map(|rest| rest.trim().rsplit(':').next()?.parse().ok())
}

/// A policy with these limits, in which nothing else is limited.
pub(crate) fn policy_with(limits: &str) -> String {
    format!("default: pass\nlimits:\n{limits}")
}
