//! The gateway end to end: the real binary, nginx behind it, curl in front.

use std::process::Command;

use tollgate_testkit::tollgate::Start;
use tollgate_testkit::{Directory, Signal, program, run, wait};

use crate::harness::{gateway, nginx_upstream};

/// What curl says: the status, the version of HTTP, and the body.
fn curl(args: &[&str]) -> (String, String, String) {
    let mut command = Command::new(program("curl").unwrap());
    command.args(["-sS", "-w", "\n%{http_code} %{http_version}"]);
    let out = run(command.args(args), b"").unwrap().success();
    let (body, written) = out.rsplit_once('\n').expect("what -w writes");
    let (status, version) = written.split_once(' ').expect("two words");
    (status.into(), version.into(), body.into())
}

#[test]
fn without_a_policy_it_prints_a_line_to_try_and_the_line_works_until_it_is_refused() {
    let nginx = nginx_upstream();
    let gateway = gateway(&nginx, &[]);
    let out = gateway.out();
    let line = out.lines().find_map(|l| Some(&l[l.find("curl ")?..]));
    let line = line.unwrap_or_else(|| panic!("no curl line in {out}"));
    let ran = run(Command::new("sh").args(["-c", &format!("{line} -sS")]), b"");
    let said = ran.unwrap().success();
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    assert!(said.ends_with("from nginx\n"), "{said}");
    let mut client = gateway.client();
    let refused = (0..2000).map(|_| client.get("/")).find(|r| r.status != 200);
    let refused = refused.expect("two thousand at once are too many");
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(refused.must("cache-control"), "no-store");
}

#[test]
fn curl_gets_the_same_through_either_http() {
    let nginx = nginx_upstream();
    let gateway = gateway(&nginx, &[]);
    let url = format!("http://127.0.0.1:{}/", gateway.port());
    for (flag, version) in [("--http1.1", "1.1"), ("--http2-prior-knowledge", "2")] {
        let (status, used, body) = curl(&[flag, &url]);
        assert_eq!((status.as_str(), used.as_str()), ("200", version));
        assert_eq!(body, "from nginx\n");
        let (status, _, body) = curl(&[flag, "-d", "hello", &format!("{url}length")]);
        assert_eq!((status.as_str(), body.as_str()), ("200", "5\n"));
        let (status, _, body) = curl(&[flag, &format!("{url}forwarded")]);
        assert_eq!(
            (status.as_str(), body.as_str()),
            ("200", "127.0.0.1 http\n")
        );
    }
}

#[test]
fn the_upstream_must_be_where_a_server_can_be() {
    for (args, says) in [
        (&[][..], "no upstream is configured"),
        (
            &["--upstream", "localhost:3000"][..],
            "hint: write `http://localhost:3000`",
        ),
        (
            &["--upstream", "http://a/path"][..],
            "the address of a server has no path",
        ),
    ] {
        let (err, code) = Start::gateway().args(args).fails().unwrap();
        assert!(err.contains(says), "{err}");
        assert!(err.contains("hint: "), "{err}");
        assert_ne!(code, Some(0));
    }
}

#[test]
fn a_bad_certificate_is_reported_with_its_file() {
    let scratch = Directory::new();
    let file = scratch.write("bad.pem", "no certificate");
    let file = file.to_str().expect("a path");
    let args = [
        "--upstream",
        "http://127.0.0.1:1",
        "--tls-cert",
        file,
        "--tls-key",
        file,
    ];
    let (err, _) = Start::gateway().args(&args).fails().unwrap();
    assert!(err.contains("bad.pem` has no certificate"), "{err}");
}

#[test]
fn it_follows_its_policy_file_and_keeps_connections() {
    let nginx = nginx_upstream();
    let scratch = Directory::new();
    let policy = |burst: u32| {
        let limit = format!("{{ name: all, allow: 1/h, burst: {burst} }}");
        format!("default: pass\nlimits:\n  - {limit}\n")
    };
    let file = scratch.write("tollgate.yaml", &policy(1));
    let gateway = gateway(&nginx, &["--policy", file.to_str().expect("a path")]);
    let mut client = gateway.client();
    client.get("/").expect(200);
    client.get("/").expect(429);
    scratch.write("tollgate.yaml", &policy(1000));
    gateway.signal(Signal::HUP).unwrap();
    wait("the other policy is active", || {
        client.get("/").status == 200
    });
}

#[test]
fn it_stops_at_a_shutdown_signal() {
    let nginx = nginx_upstream();
    let gateway = gateway(&nginx, &[]);
    gateway.client().get("/").expect(200);
    gateway.signal(Signal::TERM).unwrap();
    assert!(gateway.wait_for_exit().unwrap().success());
}
