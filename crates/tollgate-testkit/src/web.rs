//! nginx, Caddy and Envoy, each with a configuration for the port that it listens on.

use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use crate::HOST;
use crate::error::{Error, Result};
use crate::http::Client;
use crate::ports::free_port;
use crate::process::{CONFIG, Process};
use crate::programs::program;
use crate::wait::{Check, wait_for};

/// How long a server may take until it listens.
const DEADLINE: Duration = Duration::from_secs(20);

/// A web server or proxy, killed when this is dropped.
#[derive(Debug)]
pub struct WebServer {
    process: Process,
    port: u16,
}

impl WebServer {
    /// nginx with this configuration, as one process. It logs no requests unless the configuration names a file.
    pub fn nginx(configuration: impl FnOnce(u16) -> String) -> Result<WebServer> {
        let global = "daemon off; master_process off; pid nginx.pid; error_log stderr;";
        let arguments = ["-p", ".", "-c", CONFIG, "-e", "stderr", "-g", global];
        let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let directories = kinds.map(|kind| format!("{kind}_temp_path {kind};"));
        let directories = directories.join(" ");
        let process = Process::prepare("nginx", &program("nginx")?, &arguments)?;
        WebServer::start(process, CONFIG, |port| {
            let text = configuration(port);
            // `off` would also cancel a log that the configuration names.
            let log = match text.contains("access_log") {
                true => "",
                false => "access_log off;",
            };
            text.replacen("http {", &format!("http {{ {log} {directories}"), 1)
        })
    }

    /// Caddy with this Caddyfile.
    pub fn caddy(configuration: impl FnOnce(u16) -> String) -> Result<WebServer> {
        let arguments = ["run", "--adapter", "caddyfile", "--config", CONFIG];
        // It keeps its last configuration in the home of its user.
        let process = Process::prepare("Caddy", &program("caddy")?, &arguments)?
            .with_directory_as(&["XDG_CONFIG_HOME", "XDG_DATA_HOME", "HOME"]);
        WebServer::start(process, CONFIG, configuration)
    }

    /// Envoy with this configuration.
    pub fn envoy(configuration: impl FnOnce(u16) -> String) -> Result<WebServer> {
        // The name of the file selects its format.
        let file = "envoy.yaml";
        let options = [
            "--concurrency",
            "1",
            "--disable-hot-restart",
            "--log-level",
            "warn",
            "-c",
            file,
        ];
        let process = Process::prepare("Envoy", &program("envoy")?, &options)?;
        WebServer::start(process, file, configuration)
    }

    fn start(
        process: Process,
        file: &str,
        configuration: impl FnOnce(u16) -> String,
    ) -> Result<WebServer> {
        let port = free_port()?;
        process.write(file, &configuration(port))?;
        process.start()?;
        let what = format!("{} listens", process.name());
        let check = || {
            process.check()?;
            Ok(match TcpStream::connect((HOST, port)) {
                Ok(_) => Check::Ready(()),
                Err(error) => Check::Pending(error.to_string()),
            })
        };
        wait_for(&what, DEADLINE, || process.log(), check)?;
        Ok(WebServer { process, port })
    }

    /// Port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A client of it.
    pub fn client(&self) -> Client {
        Client::new(self.port)
    }

    /// What it logged.
    pub fn log(&self) -> String {
        self.process.log()
    }
}

/// A file of `examples/` with other ports: each of these addresses, which must be in it, gets this port.
pub fn example(name: &str, ports: &[(&str, u16)]) -> Result<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(name);
    let reading = Error::io(format!("read {}", file.display()));
    let mut text = std::fs::read_to_string(&file).map_err(reading)?;
    for (usual, port) in ports {
        let front = usual.trim_end_matches(|c: char| c.is_ascii_digit());
        if !text.contains(usual) {
            return Err(Error::Invalid(format!("{name} does not contain {usual}")));
        }
        text = text.replace(usual, &format!("{front}{port}"));
    }
    Ok(text)
}
