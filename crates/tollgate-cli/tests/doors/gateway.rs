//! The gateway as people run it: the real binary, nginx behind it, curl in front.

use std::process::Command;

use crate::harness::{Gateway, Nginx, program, run_to_end, until};

/// What curl says: the status, the version of HTTP, and the body.
fn curl(args: &[&str]) -> (String, String, String) {
    let mut command = Command::new(program("curl"));
    command.args(["-sS", "-w", "\n%{http_code} %{http_version}"]);
    let ran = run_to_end(command.args(args));
    assert!(ran.status.success(), "curl {args:?}: {ran:?}");
    let out = String::from_utf8_lossy(&ran.stdout).into_owned();
    let (body, told) = out.rsplit_once('\n').expect("what -w writes");
    let (status, version) = told.split_once(' ').expect("two words");
    (status.into(), version.into(), body.into())
}

#[test]
fn without_a_policy_it_prints_a_line_to_try_and_the_line_works_until_it_is_refused() {
    let nginx = Nginx::start();
    let gateway = Gateway::start(&nginx, &[]);
    let out = gateway.out();
    let line = out.lines().find_map(|l| Some(&l[l.find("curl ")?..]));
    let line = line.unwrap_or_else(|| panic!("no curl line in {out}"));
    let ran = run_to_end(Command::new("sh").args(["-c", &format!("{line} -sS")]));
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
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
    let nginx = Nginx::start();
    let gateway = Gateway::start(&nginx, &[]);
    let url = format!("http://127.0.0.1:{}/", gateway.port());
    for (flag, version) in [("--http1.1", "1.1"), ("--http2-prior-knowledge", "2")] {
        let (status, spoken, body) = curl(&[flag, &url]);
        assert_eq!((status.as_str(), spoken.as_str()), ("200", version));
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
        (&[][..], "nobody said where requests go"),
        (
            &["--upstream", "localhost:3000"][..],
            "hint: write `http://localhost:3000`",
        ),
        (
            &["--upstream", "http://a/path"][..],
            "the address of a server has no path",
        ),
    ] {
        let (err, code) = Gateway::fails(args);
        assert!(err.contains(says), "{err}");
        assert!(err.contains("hint: "), "{err}");
        assert_ne!(code, Some(0));
    }
}

#[test]
fn a_bad_certificate_is_told_with_its_file() {
    let scratch = crate::harness::Scratch::new();
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
    let (err, _) = Gateway::fails(&args);
    assert!(err.contains("bad.pem` has no certificate"), "{err}");
}

#[test]
fn it_follows_its_policy_file_and_connections_go_on() {
    let nginx = Nginx::start();
    let scratch = crate::harness::Scratch::new();
    let policy = |burst: u32| {
        let limit = format!("{{ name: all, allow: 1/h, burst: {burst} }}");
        format!("default: pass\nlimits:\n  - {limit}\n")
    };
    let file = scratch.write("tollgate.yaml", &policy(1));
    let gateway = Gateway::start(&nginx, &["--policy", file.to_str().expect("a path")]);
    let mut client = gateway.client();
    client.get("/").expect(200);
    client.get("/").expect(429);
    scratch.write("tollgate.yaml", &policy(1000));
    gateway.signal("HUP");
    until("the other policy is in force", || {
        client.get("/").status == 200
    });
}

#[test]
fn it_stops_when_it_is_told_to() {
    let nginx = Nginx::start();
    let mut gateway = Gateway::start(&nginx, &[]);
    gateway.client().get("/").expect(200);
    gateway.signal("TERM");
    assert!(gateway.end().success());
}
