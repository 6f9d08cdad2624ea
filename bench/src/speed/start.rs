//! Starts a contestant: one server on the core of the servers, and what stands beside it on the core of the load.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::texts;
use super::who::{Program, Who, find};
use crate::args::{BARE_CHILD, BARE_RESP_CHILD, BARE_RLS_CHILD, Speed};
use crate::doors::cores::{Cores, command_on};
use crate::doors::server::{Folder, Server, free_address};

const PATIENCE: Duration = Duration::from_millis(100);

/// A contestant that is up.
#[derive(Debug)]
pub(crate) struct Up {
    pub(crate) who: Who,
    pub(crate) server: Server,
    /// What the server asks: on the other core, and not counted as its time.
    pub(crate) beside: Vec<Server>,
}

/// What is needed to start any of them.
pub(crate) struct Place<'a> {
    pub(crate) wanted: &'a Speed,
    pub(crate) cores: Option<Cores>,
    pub(crate) folder: &'a Folder,
}

impl Place<'_> {
    pub(crate) fn start(&self, who: Who) -> io::Result<Up> {
        let core = self.cores.map(|cores| cores.server);
        let beside = self.cores.map(|cores| cores.load);
        let asked = match who {
            Who::EnvoyBare => Some(Who::BareRls),
            Who::EnvoyOurs => Some(Who::Rls),
            Who::EnvoyOursPlain => Some(Who::RlsPlain),
            Who::EnvoyLimitador => Some(Who::Limitador),
            _ => None,
        };
        let Some(asked) = asked else {
            let server = self.one(who, who.name(), core)?;
            return Ok(Up {
                who,
                server,
                beside: Vec::new(),
            });
        };
        let log = |what: &str| format!("{}-{what}", who.name());
        let service = self.one(asked, &log("service"), beside)?;
        let upstream = self.upstream(&log("upstream"), beside)?;
        let server = self.envoy(who.name(), core, &service, &upstream)?;
        Ok(Up {
            who,
            server,
            beside: vec![service, upstream],
        })
    }

    /// One server that stands alone.
    fn one(&self, who: Who, log: &str, core: Option<usize>) -> io::Result<Server> {
        let address = free_address()?;
        let port = address.port().to_string();
        let program = |program: Program| find(program, self.wanted);
        let on = |path: &Path| command_on(core, path);
        let mut stop = None;
        let mut command;
        match who {
            Who::BareResp | Who::BareRls => {
                let name = if who == Who::BareResp {
                    BARE_RESP_CHILD
                } else {
                    BARE_RLS_CHILD
                };
                command = on(&program(Program::Own)?);
                command.args([name, &port]);
            }
            Who::Resp | Who::Rls | Who::RlsPlain | Who::Auth => {
                command = on(&program(Program::Tollgate)?);
                self.tollgate(who, address, &mut command)?;
            }
            Who::Cell | Who::Lua => {
                command = on(&program(Program::Redis)?);
                command.args(["--port", &port, "--bind", "127.0.0.1"]);
                command.args(["--save", "", "--appendonly", "no", "--dir"]);
                command.arg(self.folder.path());
                if who == Who::Cell {
                    command.arg("--loadmodule").arg(program(Program::Cell)?);
                }
            }
            Who::CrabResp | Who::CrabRls => {
                let door = if who == Who::CrabResp {
                    "redis"
                } else {
                    "grpc"
                };
                command = on(&program(Program::Crab)?);
                command.arg(format!("--{door}"));
                command.args([&format!("--{door}-host"), "127.0.0.1"]);
                command.args([&format!("--{door}-port"), port.as_str()]);
                command.args(["--log-level", "error"]);
            }
            Who::Limitador => {
                command = on(&program(Program::Limitador)?);
                command.args([port.as_str(), texts::ROOM]);
            }
            Who::Nginx => {
                let nginx = program(Program::Nginx)?;
                let text = crate::doors::texts::nginx(address.port());
                let config = self.folder.write("speed-nginx.conf", &text)?;
                let place = |command: &mut Command| {
                    command.args(["-e", "stderr", "-p"]).arg(self.folder.path());
                    command.arg("-c").arg(&config);
                };
                command = on(&nginx);
                place(&mut command);
                let mut ask = Command::new(&nginx);
                place(&mut ask);
                ask.args(["-s", "stop"]);
                stop = Some(ask);
            }
            Who::EnvoyBare | Who::EnvoyOurs | Who::EnvoyOursPlain | Who::EnvoyLimitador => {
                return Err(io::Error::other("Envoy does not stand alone"));
            }
        }
        Server::start_when(log, command, stop, address, self.folder, listens)
    }

    fn tollgate(&self, who: Who, address: SocketAddr, command: &mut Command) -> io::Result<()> {
        let policy = self.folder.write(
            &format!("speed-{}.yaml", address.port()),
            &texts::policy(who != Who::RlsPlain),
        )?;
        command.arg("serve").arg("--policy").arg(policy);
        command.args(["--admin", "off"]);
        let (address, other) = (address.to_string(), free_address()?.to_string());
        match who {
            Who::Resp => {
                command.args(["--resp", &address, "--resp-max-keys", texts::ROOM]);
                command.args(["--listen", &other]);
            }
            Who::Rls | Who::RlsPlain => {
                command.args(["--rls", &address, "--listen", &other]);
            }
            _ => {
                command.args(["--listen", &address]);
            }
        }
        Ok(())
    }

    /// A few bytes for every request.
    fn upstream(&self, log: &str, core: Option<usize>) -> io::Result<Server> {
        let address = free_address()?;
        let mut command = command_on(core, &find(Program::Own, self.wanted)?);
        command.args([BARE_CHILD, &address.port().to_string()]);
        Server::start_when(log, command, None, address, self.folder, listens)
    }

    fn envoy(
        &self,
        log: &str,
        core: Option<usize>,
        service: &Server,
        upstream: &Server,
    ) -> io::Result<Server> {
        let address = free_address()?;
        let (service, upstream) = (service.address.port(), upstream.address.port());
        let text = texts::envoy(address.port(), service, upstream);
        let name = format!("envoy-{}.yaml", address.port());
        let mut command = command_on(core, &find(Program::Envoy, self.wanted)?);
        command.args(["--concurrency", "1", "--disable-hot-restart"]);
        command.args(["--log-level", "error", "-c"]);
        command.arg(self.folder.write(&name, &text)?);
        Server::start_when(log, command, None, address, self.folder, listens)
    }
}

fn listens(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, PATIENCE).is_ok()
}
