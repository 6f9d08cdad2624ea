//! Starts contestants: the measured server on one core, the servers that it needs on the other.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use tollgate_testkit::{Check, Process, Signal, free_port, program, wait_for};

use super::contestant::{Contestant, Program, find};
use super::files;
use crate::args::{NoopProtocol, Servers};
use crate::system::{Cores, ProcessTree};

/// How long a server may take until it listens.
const READY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server may take to stop after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// Name of the configuration in the directory of a server.
const CONFIG: &str = "config.yaml";

/// A running server, stopped on drop.
#[derive(Debug)]
pub(crate) struct Server {
    process: Process,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// All processes of the server. `None` where there is no `/proc`.
    pub(crate) fn tree(&self) -> Option<ProcessTree> {
        ProcessTree::new(self.process.pid()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A master process stops its workers on SIGTERM; killed, it would leave them behind.
        if self.process.signal(Signal::TERM).is_ok() {
            let _ = self.process.wait(STOP_TIMEOUT);
        }
    }
}

/// A contestant that is up.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) contestant: Contestant,
    pub(crate) server: Server,
    /// Servers that it calls: on the other core, and not counted as its time.
    pub(crate) helpers: Vec<Server>,
}

/// Starts contestants.
pub(crate) struct Starter<'a> {
    pub(crate) args: &'a Servers,
    pub(crate) cores: Option<Cores>,
}

/// A name for errors, a core if servers are pinned, and a free port.
#[derive(Clone, Copy)]
struct ServerSlot<'a> {
    name: &'a str,
    core: Option<usize>,
    port: u16,
}

impl Starter<'_> {
    pub(crate) fn start(&self, contestant: Contestant) -> io::Result<Running> {
        use Contestant::*;
        let name = contestant.name();
        let core = self.cores.map(|cores| cores.server);
        let other_core = self.cores.map(|cores| cores.load);
        let service = match contestant {
            EnvoyNoop => Some(RlsNoop),
            EnvoyOurs => Some(Rls),
            EnvoyOursNoFields => Some(RlsNoFields),
            EnvoyLimitador => Some(Limitador),
            _ => None,
        };
        let upstream = format!("{name} upstream");
        let (server, helpers) = match (contestant, service) {
            (_, Some(service)) => {
                let service = self.single(service, &format!("{name} service"), other_core)?;
                let upstream = self.noop(NoopProtocol::Http, slot(&upstream, other_core)?)?;
                let server = self.envoy(slot(name, core)?, &service, &upstream)?;
                (server, vec![service, upstream])
            }
            (NginxGateway | Gateway, _) => {
                let upstream = self.nginx(slot(&upstream, other_core)?, files::Nginx::Upstream)?;
                let port = upstream.address.port();
                let server = match contestant {
                    Gateway => self.gateway(slot(name, core)?, port)?,
                    _ => self.nginx(slot(name, core)?, files::Nginx::Proxy(port))?,
                };
                (server, vec![upstream])
            }
            (UpstreamAlone, _) => {
                let server = self.nginx(slot(name, other_core)?, files::Nginx::Upstream)?;
                (server, Vec::new())
            }
            _ => (self.single(contestant, name, core)?, Vec::new()),
        };
        Ok(Running {
            contestant,
            server,
            helpers,
        })
    }

    /// A server that needs no other.
    fn single(
        &self,
        contestant: Contestant,
        name: &str,
        core: Option<usize>,
    ) -> io::Result<Server> {
        use Contestant::*;
        let slot = slot(name, core)?;
        let port = slot.port.to_string();
        match contestant {
            HttpNoop | HttpNoopGet => self.noop(NoopProtocol::Http, slot),
            RespNoop => self.noop(NoopProtocol::Resp, slot),
            RlsNoop => self.noop(NoopProtocol::Rls, slot),
            Nginx => self.nginx(slot, files::Nginx::Limit),
            Cell | Lua => {
                let mut arguments = vec!["--port", &port, "--bind", "127.0.0.1"];
                arguments.extend(["--save", "", "--appendonly", "no"]);
                let module;
                if contestant == Cell {
                    module = find(Program::Cell, self.args)?.display().to_string();
                    arguments.extend(["--loadmodule", &module]);
                }
                self.launch(Program::Redis, &slot, &arguments, "")
            }
            CrabHttp | CrabResp | CrabRls => {
                let protocol = match contestant {
                    CrabHttp => "http",
                    CrabResp => "redis",
                    _ => "grpc",
                };
                let [on, host, with_port] =
                    ["", "-host", "-port"].map(|option| format!("--{protocol}{option}"));
                let arguments = [&on, &host, "127.0.0.1", &with_port, &port];
                let quiet = ["--log-level", "error"];
                self.launch(Program::Crab, &slot, &[&arguments[..], &quiet].concat(), "")
            }
            Limitador => {
                let arguments = [port.as_str(), files::CAPACITY];
                self.launch(Program::Limitador, &slot, &arguments, "")
            }
            _ => self.serve(contestant, &slot),
        }
    }

    fn serve(&self, contestant: Contestant, slot: &ServerSlot<'_>) -> io::Result<Server> {
        let policy = match contestant {
            Contestant::TenLimits => files::policy_with(10),
            Contestant::ThousandLimits => files::policy_with(1000),
            _ => files::policy(contestant != Contestant::RlsNoFields),
        };
        let address = format!("127.0.0.1:{}", slot.port);
        let other = format!("127.0.0.1:{}", free_port().map_err(io::Error::other)?);
        let mut arguments = vec!["serve", "--policy", CONFIG, "--admin", "off", "--listen"];
        arguments.extend(match contestant {
            Contestant::Resp => {
                let capacity = files::CAPACITY;
                vec![&other, "--resp", &address, "--resp-max-keys", capacity]
            }
            Contestant::Rls | Contestant::RlsNoFields => vec![&other, "--rls", &address],
            _ => vec![address.as_str()],
        });
        self.launch(Program::Tollgate, slot, &arguments, &policy)
    }

    fn gateway(&self, slot: ServerSlot<'_>, upstream: u16) -> io::Result<Server> {
        let address = format!("127.0.0.1:{}", slot.port);
        let mut arguments = vec!["gateway", "--policy", CONFIG, "--listen", &address];
        arguments.extend(["--admin", "off", "--threads", "1"]);
        let policy = files::gateway_policy(upstream);
        self.launch(Program::Tollgate, &slot, &arguments, &policy)
    }

    fn noop(&self, protocol: NoopProtocol, slot: ServerSlot<'_>) -> io::Result<Server> {
        let protocol = match protocol {
            NoopProtocol::Http => "http",
            NoopProtocol::Resp => "resp",
            NoopProtocol::Rls => "rls",
        };
        let arguments = ["noop", protocol, &slot.port.to_string()];
        self.launch(Program::Own, &slot, &arguments, "")
    }

    fn nginx(&self, slot: ServerSlot<'_>, task: files::Nginx) -> io::Result<Server> {
        let arguments = ["-e", "stderr", "-p", ".", "-c", CONFIG];
        let config = files::nginx(slot.port, task);
        self.launch(Program::Nginx, &slot, &arguments, &config)
    }

    fn envoy(
        &self,
        slot: ServerSlot<'_>,
        service: &Server,
        upstream: &Server,
    ) -> io::Result<Server> {
        let mut arguments = vec!["--concurrency", "1", "--disable-hot-restart"];
        arguments.extend(["--log-level", "error", "-c", CONFIG]);
        let (service, upstream) = (service.address.port(), upstream.address.port());
        let config = files::envoy(slot.port, service, upstream);
        self.launch(Program::Envoy, &slot, &arguments, &config)
    }

    /// Starts a program in a directory of its own with this configuration, and waits until it listens.
    fn launch(
        &self,
        program: Program,
        slot: &ServerSlot<'_>,
        arguments: &[&str],
        config: &str,
    ) -> io::Result<Server> {
        let path = find(program, self.args)?;
        self::launch(slot, &path, arguments, config).map_err(io::Error::other)
    }
}

fn slot(name: &str, core: Option<usize>) -> io::Result<ServerSlot<'_>> {
    let port = free_port().map_err(io::Error::other)?;
    Ok(ServerSlot { name, core, port })
}

fn launch(
    slot: &ServerSlot<'_>,
    path: &std::path::Path,
    arguments: &[&str],
    config: &str,
) -> tollgate_testkit::Result<Server> {
    let process = match slot.core {
        None => Process::prepare(slot.name, path, arguments)?,
        // `taskset` becomes the program, so its process id is the same.
        Some(core) => {
            let (core, path) = (core.to_string(), path.display().to_string());
            let arguments = [&["-c", &core, &path], arguments].concat();
            Process::prepare(slot.name, &program("taskset")?, &arguments)?
        }
    };
    process.write(CONFIG, config)?;
    process.start()?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, slot.port));
    let what = format!("{} listens", slot.name);
    wait_for(
        &what,
        READY_TIMEOUT,
        || process.log(),
        || {
            process.check()?;
            Ok(Check::from(TcpStream::connect(address).is_ok()))
        },
    )?;
    Ok(Server { process, address })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_server_that_exits_at_once_is_reported_with_its_log() {
        let slot = slot("short lived", None).unwrap();
        let script = ["-c", "echo the policy is wrong >&2; exit 3"];
        let error = launch(&slot, Path::new("/bin/sh"), &script, "").unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with("short lived exited"), "{message}");
        assert!(message.contains("the policy is wrong"), "{message}");
    }
}
