//! The real gateway: `tollgate gateway` as a process of its own, what it tells and how much memory it takes.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::allow_connections;
use crate::patience::{Look, wait_until};
use crate::servers::{HOST, Process};
use crate::service::{binary, exchange, port_of};
use crate::trouble::{Outcome, Trouble};

/// How long it may take until it listens.
const PATIENCE: Duration = Duration::from_secs(15);
/// What every trial needs.
const USUAL_CONNECTIONS: usize = 4096;
const POLICY: &str = "tollgate.yaml";

/// A gateway that runs until this is dropped.
#[derive(Debug)]
pub(super) struct Gateway {
    process: Process,
    port: u16,
    admin: u16,
}

/// A certificate and its key, as files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tls<'a> {
    pub(super) cert: &'a Path,
    pub(super) key: &'a Path,
}

impl Gateway {
    /// Starts it with this policy, which has a section `gateway`.
    pub(super) fn start(policy: &str) -> Outcome<Gateway> {
        Gateway::start_with(policy, None)
    }

    /// The same, speaking TLS.
    pub(super) fn start_with(policy: &str, tls: Option<Tls<'_>>) -> Outcome<Gateway> {
        allow_connections(USUAL_CONNECTIONS)?;
        let mut arguments: Vec<String> = [
            "gateway",
            "--policy",
            POLICY,
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
        ]
        .map(str::to_owned)
        .into();
        if let Some(Tls { cert, key }) = tls {
            for (flag, file) in [("--tls-cert", cert), ("--tls-key", key)] {
                arguments.extend([flag.to_owned(), file.display().to_string()]);
            }
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let process = Process::prepare("the gateway".into(), binary()?, &arguments)?;
        fs::write(process.folder().join(POLICY), policy)
            .map_err(Trouble::system("write the policy"))?;
        process.start()?;
        let (port, admin) = wait_until(
            "the gateway listens",
            PATIENCE,
            || process.log(),
            || {
                process.check()?;
                let said = process.log();
                let ports = port_of(&said, "gateway").zip(port_of(&said, "admin"));
                Ok(match ports {
                    Some(ports) => Look::There(ports),
                    None => Look::NotYet("it does not say where".into()),
                })
            },
        )?;
        Ok(Gateway {
            process,
            port,
            admin,
        })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The end of its log.
    pub(super) fn log(&self) -> String {
        self.process.log()
    }

    /// An error if it is no longer there.
    pub(super) fn check(&self) -> Outcome<()> {
        self.process.check()
    }

    /// The sum of the series of a metric whose lines begin so and contain all of `labels`. An error if there is none:
    /// a promise about a metric that is not there would always be kept.
    pub(super) fn metric(&self, series: &str, labels: &[&str]) -> Outcome<u64> {
        let port = self.admin;
        let request =
            format!("GET /metrics HTTP/1.1\r\nhost: {HOST}:{port}\r\nconnection: close\r\n\r\n");
        let text = exchange(port, &request)?;
        let is_wanted = |line: &&str| {
            let rest = line.strip_prefix(series);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        };
        let lines = text.lines().filter(is_wanted);
        let values: Vec<u64> = lines
            .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
            .collect();
        match values.as_slice() {
            [] => Err(Trouble::Odd {
                asked: format!("the metric `{series}`"),
                answer: "there is none".into(),
            }),
            values => Ok(values.iter().sum()),
        }
    }

    /// Its resident memory in bytes.
    pub(super) fn memory(&self) -> Outcome<u64> {
        let gone = || Trouble::Impossible("the gateway is gone".into());
        let pid = self.process.pid().ok_or_else(gone)?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))
            .map_err(Trouble::system("read the memory of the gateway"))?;
        let mut lines = status.lines();
        let kib = lines.find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next());
        let kib: Option<u64> = kib.and_then(|kib| kib.parse().ok());
        Ok(kib.ok_or_else(gone)? * 1024)
    }
}

/// The section `gateway` of a policy for trials: everybody is on this machine, so one address may have many
/// connections.
pub(super) fn before(upstream: u16) -> String {
    format!(
        "gateway:\n  accept: {{ connections: 19_000, per_address: 19_000 }}\n  \
         upstreams: http://{HOST}:{upstream}\n"
    )
}

/// Bytes as people read them.
pub(super) fn mebibytes(bytes: u64) -> String {
    format!("{}.{} MiB", bytes >> 20, ((bytes & 0xF_FFFF) * 10) >> 20)
}
