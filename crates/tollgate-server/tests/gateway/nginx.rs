//! Wrong requests in front of a real nginx: what it logs is what was admitted, each once.

use std::process::{Child, Command, Stdio};

use crate::framing::{SMUGGLED, corpus};
use crate::world::{Dir, OPEN, World, until};

/// nginx that keeps a log of what it is asked.
struct Nginx {
    process: Child,
    port: u16,
    dir: Dir,
}

impl Nginx {
    fn start() -> Nginx {
        let dir = Dir::new();
        let port = crate::failures::free_port();
        let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let here = kinds.map(|kind| format!("{kind}_temp_path {kind};"));
        let conf = format!(
            "daemon off; master_process off; pid nginx.pid; error_log stderr;
             events {{}}
             http {{
               log_format line '$request'; access_log access.log line; {}
               server {{ listen 127.0.0.1:{port}; location / {{ return 200 \"here\\n\"; }} }}
             }}",
            here.join(" ")
        );
        let conf = dir.write("nginx.conf", &conf);
        let mut command = Command::new("nginx");
        command.arg("-p").arg(dir.path("")).arg("-c").arg(conf);
        command.args(["-e", "stderr"]).stderr(Stdio::null());
        let process = command.spawn().expect("nginx runs; install it");
        until("nginx listens", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Nginx { process, port, dir }
    }

    /// What it was asked.
    fn logged(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.dir.path("access.log")).unwrap();
        log.lines().map(str::to_owned).collect()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn nginx_logs_as_many_requests_as_were_admitted() {
    let nginx = Nginx::start();
    let world = World::before(OPEN, nginx.port);
    let good = "POST /good HTTP/1.1\r\nHost: app.example\r\nContent-Length: 3\r\n\r\nabc";
    let corpus = corpus();
    assert!(corpus.len() >= 200, "{}", corpus.len());
    let mut sent = 0;
    for (at, (name, wrong)) in corpus.iter().enumerate() {
        // Most begin a connection; some stand behind a good request on the same one.
        let is_behind = at % 5 == 0;
        let before = if is_behind { good } else { "" };
        sent += usize::from(is_behind);
        let bytes = [before.as_bytes(), wrong, SMUGGLED.as_bytes()].concat();
        let answer = world.raw(&bytes);
        let passed = answer.matches("HTTP/1.1 200").count();
        assert_eq!(passed, usize::from(is_behind), "{name}: {answer}");
    }
    until("all is logged", || nginx.logged().len() >= sent);
    let logged = nginx.logged();
    assert_eq!(logged, vec!["POST /good HTTP/1.1"; sent]);
    assert_eq!(world.admitted(), sent as u64);
}
