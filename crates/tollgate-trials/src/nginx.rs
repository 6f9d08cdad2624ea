//! A real nginx before several services, each asked in turn.

use std::env;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::patience::{Look, wait_until};
use crate::servers::{CONFIG, HOST, Process, next_port};
use crate::trouble::{Outcome, Trouble};

/// How long it may take until it listens.
const PATIENCE: Duration = Duration::from_secs(10);

/// An nginx that runs until this is dropped.
#[derive(Debug)]
pub struct Nginx {
    /// Held so that it runs.
    _process: Process,
    port: u16,
}

impl Nginx {
    /// Starts it before the services at these ports.
    pub fn start(services: &[u16]) -> Outcome<Nginx> {
        Nginx::configured(|port| configuration(port, services))
    }

    /// Starts it with a configuration for the port that it is given.
    pub(crate) fn configured(text: impl FnOnce(u16) -> String) -> Outcome<Nginx> {
        let port = next_port()?;
        let arguments = ["-p", ".", "-c", CONFIG, "-e", "stderr"];
        let process = Process::prepare("nginx".into(), program("nginx")?, &arguments)?;
        process.configure(&text(port))?;
        process.start()?;
        wait_until(
            "nginx listens",
            PATIENCE,
            || process.log(),
            || {
                process.check()?;
                Ok(match TcpStream::connect((HOST, port)) {
                    Ok(_) => Look::There(()),
                    Err(error) => Look::NotYet(error.to_string()),
                })
            },
        )?;
        Ok(Nginx {
            _process: process,
            port,
        })
    }

    /// The port it listens at.
    pub fn port(&self) -> u16 {
        self.port
    }
}

fn configuration(port: u16, services: &[u16]) -> String {
    let servers: Vec<String> = services
        .iter()
        .map(|service| format!("server {HOST}:{service} max_fails=0;"))
        .collect();
    let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let folders = folders.map(|kind| format!("{kind}_temp_path {kind};"));
    format!(
        // One process, so that ending it ends all of it. A request goes to one service, never to a second one.
        "daemon off; master_process off; pid nginx.pid; error_log stderr;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n access_log off; {}\n keepalive_requests 1000000;\n \
         upstream services {{ {} keepalive 64; keepalive_requests 1000000; }}\n \
         server {{\n  listen {HOST}:{port};\n  location / {{\n   proxy_pass http://services;\n   \
         proxy_http_version 1.1;\n   proxy_set_header Connection '';\n   proxy_next_upstream off;\n  }}\n }}\n}}\n",
        folders.join(" "),
        servers.join(" "),
    )
}

/// Where a program is. For who is not root nginx is often not in the path.
pub(crate) fn program(name: &'static str) -> Outcome<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let places: Vec<PathBuf> = env::split_paths(&path).chain(more).collect();
    let mut programs = places.iter().map(|folder| folder.join(name));
    let found = programs.find(|program: &PathBuf| Path::is_file(program));
    found.ok_or(Trouble::Missing {
        program: name,
        looked: places,
    })
}
