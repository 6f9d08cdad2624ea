//! The first run without any configuration.

use std::process::Command;

use tollgate_testkit::http::{Client, Reply};
use tollgate_testkit::run;
use tollgate_testkit::tollgate::Start;

/// Runs a line that begins with `curl`, with curl if it is there, else by sending what it says.
fn run_line(line: &str) -> Reply {
    let has_curl = Command::new("curl").arg("--version").output().is_ok();
    if has_curl {
        let ran = run(Command::new("sh").args(["-c", &format!("{line} -sS")]), b"");
        return Reply::read(&mut ran.unwrap().success().as_bytes())
            .expect("headers: the line has -i");
    }
    let body = line.split('\'').nth(1).expect("a body in quotes");
    let address = line.split("http://").nth(1).expect("an address");
    let (host, path) = address.split_once('/').expect("a path");
    let port = host.rsplit(':').next().and_then(|port| port.parse().ok());
    Client::new(port.expect("a port")).post(&format!("/{path}"), body)
}

#[test]
fn without_a_file_it_prints_a_line_to_try_and_the_line_works_until_it_is_refused() {
    let server = Start::serve_bare().start().unwrap();
    let out = server.out();
    let line = out
        .lines()
        .find_map(|line| Some(&line[line.find("curl ")?..]));
    let line = line.unwrap_or_else(|| panic!("no curl line in {out}"));
    let first = run_line(line);
    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!(first.json()["verdict"], "pass");
    let left = first.must("x-ratelimit-remaining");
    assert_eq!(left, first.json()["remaining"].to_string());
    let refused = (0..200).map(|_| run_line(line)).find(|r| r.status != 200);
    let refused = refused.expect("two hundred times is enough to be refused");
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(refused.must("retry-after"), "1");
    let name = refused.json()["limit"]
        .as_str()
        .expect("a limit")
        .to_owned();
    assert!(
        refused
            .must("ratelimit")
            .starts_with(&format!("\"{name}\";r=0;")),
        "{refused:?}"
    );
}

#[test]
fn the_lines_that_a_browser_is_shown_are_understood() {
    let server = Start::serve_bare().start().unwrap();
    let welcome = server.client().get("/").expect(200).body;
    let here = format!("127.0.0.1:{}", server.port());
    let lines = welcome.lines().map(str::trim_start);
    let lines: Vec<&str> = lines.filter(|line| line.starts_with("curl ")).collect();
    assert!(!lines.is_empty(), "{welcome}");
    for line in lines {
        let with_headers = line.replacen("curl ", "curl -i ", 1);
        let reply = run_line(&with_headers.replace("127.0.0.1:8080", &here));
        assert!(matches!(reply.status, 200 | 429), "{line}: {reply:?}");
    }
}

#[test]
fn the_token_that_it_makes_up_is_the_one_that_operators_need() {
    let server = Start::serve_bare().start().unwrap();
    let out = server.out();
    let token = out.lines().find_map(|line| {
        let rest = line.strip_prefix("token")?;
        rest.split_whitespace().next()
    });
    let bearer = format!("Bearer {}", token.expect("a token"));
    let mut admin = server.admin();
    admin
        .get_with("/top", &[("Authorization", bearer.as_str())])
        .expect(200);
    admin.get("/top").expect(401);
}

#[test]
fn the_example_has_every_limit_that_it_says_and_no_fault() {
    let server = Start::serve_bare().start().unwrap();
    let limits = server.client().get("/v1/limits").json();
    let count = limits["limits"].as_array().map_or(0, Vec::len);
    let said = format!("{count} limits from the built-in example");
    assert!(server.out().contains(&said), "{}", server.out());
    assert_eq!(server.ready()["status"], "ok");
}

#[test]
fn it_listens_on_this_machine_only() {
    let out = Start::serve_bare().start().unwrap().out();
    for line in out.lines().filter(|line| line.contains("http://")) {
        assert!(line.contains("http://127.0.0.1:"), "{line}");
    }
}
