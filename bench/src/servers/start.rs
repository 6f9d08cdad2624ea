//! Starts contestants: on one core the server that is measured, on the other what it needs.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::contestant::{Contestant, Program, find};
use super::cores::{Cores, command_on};
use super::server::{Folder, Server, free_address};
use super::texts;
use crate::args::{FloorProtocol, Servers};

const CONNECT_TIMEOUT: Duration = Duration::from_millis(100);

/// A contestant that is up.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) contestant: Contestant,
    pub(crate) server: Server,
    /// What the server calls: on the other core, and not counted as its time.
    pub(crate) helpers: Vec<Server>,
}

/// What is needed to start any of them.
pub(crate) struct Starter<'a> {
    pub(crate) options: &'a Servers,
    pub(crate) cores: Option<Cores>,
    pub(crate) folder: &'a Folder,
}

impl Starter<'_> {
    pub(crate) fn start(&self, contestant: Contestant) -> io::Result<Running> {
        use Contestant::*;
        let name = contestant.name();
        let core = self.cores.map(|cores| cores.server);
        let other_core = self.cores.map(|cores| cores.load);
        let log = |what: &str| format!("{name} {what}");
        let service = match contestant {
            EnvoyFloor => Some(RlsFloor),
            EnvoyOurs => Some(Rls),
            EnvoyOursNoFields => Some(RlsNoFields),
            EnvoyLimitador => Some(Limitador),
            _ => None,
        };
        let (server, helpers) = match (contestant, service) {
            (_, Some(service)) => {
                let service = self.single(service, &log("service"), other_core)?;
                let upstream = self.floor(FloorProtocol::Http, &log("upstream"), other_core)?;
                let server = self.envoy(name, core, &service, &upstream)?;
                (server, vec![service, upstream])
            }
            (NginxGateway | Gateway, _) => {
                let upstream = self.nginx(&log("upstream"), other_core, texts::Nginx::Upstream)?;
                let port = upstream.address.port();
                let server = match contestant {
                    Gateway => self.gateway(name, core, port)?,
                    _ => self.nginx(name, core, texts::Nginx::Proxy(port))?,
                };
                (server, vec![upstream])
            }
            (UpstreamAlone, _) => {
                let server = self.nginx(name, other_core, texts::Nginx::Upstream)?;
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
    fn single(&self, contestant: Contestant, log: &str, core: Option<usize>) -> io::Result<Server> {
        use Contestant::*;
        let address = free_address()?;
        let port = address.port().to_string();
        let on = |program: Program| find(program, self.options).map(|path| command_on(core, &path));
        let mut command;
        match contestant {
            HttpFloor | HttpFloorGet => return self.floor(FloorProtocol::Http, log, core),
            RespFloor => return self.floor(FloorProtocol::Resp, log, core),
            RlsFloor => return self.floor(FloorProtocol::Rls, log, core),
            Nginx => return self.nginx(log, core, texts::Nginx::Limit),
            Cell | Lua => {
                command = on(Program::Redis)?;
                command.args(["--port", &port, "--bind", "127.0.0.1"]);
                command.args(["--save", "", "--appendonly", "no", "--dir"]);
                command.arg(self.folder.path());
                if contestant == Cell {
                    command.arg("--loadmodule");
                    command.arg(find(Program::Cell, self.options)?);
                }
            }
            CrabHttp | CrabResp | CrabRls => {
                let protocol = match contestant {
                    CrabHttp => "http",
                    CrabResp => "redis",
                    _ => "grpc",
                };
                command = on(Program::Crab)?;
                command.arg(format!("--{protocol}"));
                command.args([&format!("--{protocol}-host"), "127.0.0.1"]);
                command.args([&format!("--{protocol}-port"), port.as_str()]);
                command.args(["--log-level", "error"]);
            }
            Limitador => {
                command = on(Program::Limitador)?;
                command.args([port.as_str(), texts::CAPACITY]);
            }
            _ => {
                command = on(Program::Tollgate)?;
                self.serve(contestant, address, &mut command)?;
            }
        }
        Server::start(log, command, None, address, self.folder, listens)
    }

    fn serve(
        &self,
        contestant: Contestant,
        address: SocketAddr,
        command: &mut Command,
    ) -> io::Result<()> {
        let text = match contestant {
            Contestant::TenLimits => texts::policy_of(10),
            Contestant::ThousandLimits => texts::policy_of(1000),
            _ => texts::policy(contestant != Contestant::RlsNoFields),
        };
        let policy = format!("serve-{}.yaml", address.port());
        let policy = self.folder.write(&policy, &text)?;
        command.arg("serve").arg("--policy").arg(policy);
        command.args(["--admin", "off"]);
        let (address, other) = (address.to_string(), free_address()?.to_string());
        match contestant {
            Contestant::Resp => {
                command.args(["--resp", &address, "--resp-max-keys", texts::CAPACITY]);
                command.args(["--listen", &other]);
            }
            Contestant::Rls | Contestant::RlsNoFields => {
                command.args(["--rls", &address, "--listen", &other]);
            }
            _ => {
                command.args(["--listen", &address]);
            }
        }
        Ok(())
    }

    fn gateway(&self, log: &str, core: Option<usize>, upstream: u16) -> io::Result<Server> {
        let address = free_address()?;
        let policy = texts::gateway_policy(upstream);
        let policy = self.folder.write("gateway.yaml", &policy)?;
        let mut command = command_on(core, &find(Program::Tollgate, self.options)?);
        command.arg("gateway").arg("--policy").arg(policy);
        command.args(["--listen", &address.to_string(), "--admin", "off"]);
        command.args(["--threads", "1"]);
        Server::start(log, command, None, address, self.folder, listens)
    }

    fn floor(&self, protocol: FloorProtocol, log: &str, core: Option<usize>) -> io::Result<Server> {
        let address = free_address()?;
        let protocol = match protocol {
            FloorProtocol::Http => "http",
            FloorProtocol::Resp => "resp",
            FloorProtocol::Rls => "rls",
        };
        let mut command = command_on(core, &find(Program::Own, self.options)?);
        command.args(["floor", protocol, &address.port().to_string()]);
        Server::start(log, command, None, address, self.folder, listens)
    }

    fn nginx(&self, log: &str, core: Option<usize>, what: texts::Nginx) -> io::Result<Server> {
        let address = free_address()?;
        let name = format!("nginx-{}", address.port());
        let config = texts::nginx(&name, address.port(), what);
        let config = self.folder.write(&format!("{name}.conf"), &config)?;
        let program = find(Program::Nginx, self.options)?;
        let with_paths = |mut command: Command| {
            command.args(["-e", "stderr", "-p"]).arg(self.folder.path());
            command.arg("-c").arg(&config);
            command
        };
        let command = with_paths(command_on(core, &program));
        let mut stop = with_paths(Command::new(&program));
        stop.args(["-s", "stop"]);
        Server::start(log, command, Some(stop), address, self.folder, listens)
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
        let config = self.folder.write(&name, &text)?;
        let mut command = command_on(core, Path::new(&find(Program::Envoy, self.options)?));
        command.args(["--concurrency", "1", "--disable-hot-restart"]);
        command.args(["--log-level", "error", "-c"]);
        command.arg(config);
        Server::start(log, command, None, address, self.folder, listens)
    }
}

fn listens(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok()
}
