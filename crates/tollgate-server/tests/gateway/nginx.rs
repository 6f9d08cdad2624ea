//! Malformed requests in front of a real nginx: its log has each admitted request once.

use tollgate_testkit::web::WebServer;
use tollgate_testkit::{Directory, wait};

use crate::framing::{SMUGGLED, corpus};
use crate::support::{OPEN, TestGateway};

/// nginx that keeps a log of what it is asked.
struct Nginx {
    server: WebServer,
    dir: Directory,
}

impl Nginx {
    fn start() -> Nginx {
        let dir = Directory::new();
        let log = dir.file("access.log");
        let configuration = |port| {
            format!(
                "events {{}}
                 http {{
                   log_format line '$request'; access_log {} line;
                   server {{ listen 127.0.0.1:{port}; location / {{ return 200 \"here\\n\"; }} }}
                 }}",
                log.display()
            )
        };
        let server = WebServer::nginx(configuration).unwrap();
        Nginx { server, dir }
    }

    /// What it was asked.
    fn logged(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.dir.file("access.log")).unwrap();
        log.lines().map(str::to_owned).collect()
    }
}

#[test]
fn nginx_logs_as_many_requests_as_were_admitted() {
    let nginx = Nginx::start();
    let gateway = TestGateway::before(OPEN, nginx.server.port());
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
        let answer = gateway.raw(&bytes);
        let passed = answer.matches("HTTP/1.1 200").count();
        assert_eq!(passed, usize::from(is_behind), "{name}: {answer}");
    }
    wait("all is logged", || nginx.logged().len() >= sent);
    let logged = nginx.logged();
    assert_eq!(logged, vec!["POST /good HTTP/1.1"; sent]);
    assert_eq!(gateway.admitted(), sent as u64);
}
