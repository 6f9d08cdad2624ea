//! A running `tollgate gateway`, and nginx as the server behind it.

use std::process::{Command, ExitStatus};

use super::client::Client;
use super::process::{Process, free_port, program};
use super::scratch::Scratch;
use super::server::{binary, eventually_all, port_of};
use super::time::{eventually, until};

/// nginx that serves, as the upstream of a gateway.
#[derive(Debug)]
pub(crate) struct Nginx {
    _process: Process,
    port: u16,
    _scratch: Scratch,
}

impl Nginx {
    /// On a free port.
    pub(crate) fn start() -> Nginx {
        let scratch = Scratch::new();
        let port = free_port();
        let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let here = kinds.map(|kind| format!("{kind}_temp_path {kind};"));
        let text = format!(
            "events {{}}
             http {{
               access_log off; {}
               limit_req_zone $http_x_api_key zone=keys:1m rate=100r/s;
               server {{
                 listen 127.0.0.1:{port};
                 location /limited {{
                   limit_req zone=keys burst=10 nodelay; limit_req_status 429; limit_req_log_level info;
                   empty_gif;
                 }}
                 location / {{ return 200 \"from nginx\\n\"; }}
                 location /length {{ return 200 \"$content_length\\n\"; }}
                 location /forwarded {{ return 200 \"$http_x_forwarded_for $http_x_forwarded_proto\\n\"; }}
               }}
             }}",
            here.join(" ")
        );
        let conf = scratch.write("nginx.conf", &text);
        let mut command = Command::new(program("nginx"));
        command
            .arg("-p")
            .arg(scratch.path())
            .arg("-c")
            .arg(conf)
            .args(["-e", "stderr"])
            .args([
                "-g",
                "daemon off; master_process off; pid nginx.pid; error_log stderr;",
            ]);
        let mut process = Process::start(&mut command);
        until("nginx listens", || {
            if let Some(status) = process.ended() {
                panic!("nginx ended with {status}: {}", process.err());
            }
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Nginx {
            _process: process,
            port,
            _scratch: scratch,
        }
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

/// A running gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    process: Process,
    port: u16,
}

impl Gateway {
    /// In front of nginx, with these arguments as well.
    pub(crate) fn start(nginx: &Nginx, args: &[&str]) -> Gateway {
        let upstream = format!("http://127.0.0.1:{}", nginx.port);
        let mut command = binary();
        command.args(["gateway", "--upstream", &upstream]);
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        let mut process = Process::start(command.args(args));
        let port = eventually("the gateway listens", || {
            let out = process.out();
            // The last line is what is to be tried.
            let found = port_of(&out, "gateway").filter(|_| out.contains("\ntry "));
            if found.is_none()
                && let Some(status) = process.ended()
            {
                panic!("it ended with {status}: {out}{}", process.err());
            }
            found
        });
        Gateway { process, port }
    }

    /// Runs it although it should not start; its standard error and exit code.
    pub(crate) fn fails(args: &[&str]) -> (String, Option<i32>) {
        let mut command = binary();
        command.args(["gateway", "--listen", "127.0.0.1:0", "--admin", "off"]);
        let mut process = Process::start(command.args(args));
        let status = process.end();
        (eventually_all(&process), status.code())
    }

    /// Where clients connect.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        Client::to(self.port)
    }

    /// What it printed.
    pub(crate) fn out(&self) -> String {
        self.process.out()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        self.process.end()
    }
}
