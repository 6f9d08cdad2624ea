//! `tollgate check`: complete outputs for invalid files, as snapshots beside the files in `tests/bad`.
//!
//! After a change of messages write them anew and read the difference:
//! `UPDATE_SNAPSHOTS=1 cargo test -p tollgate-cli check`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::run::{Ran, assert_prints, fed, tollgate};

const BAD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bad");
const EXAMPLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../examples/ride-hailing/tollgate.yaml"
);
const FLEET: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../examples/fleet/tollgate.yaml"
);
const GATEWAY: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../examples/gateway/tollgate.yaml"
);

/// Runs `tollgate check` beside the bad files, so that no path of this machine is printed.
fn check(args: &[&str]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .arg("check")
        .args(args)
        .current_dir(BAD)
        .output()
        .expect("the binary was built");
    Ran {
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
        code: output.status.code(),
    }
}

/// The names of the bad files, in order.
fn bad_files() -> Vec<String> {
    let entries = fs::read_dir(BAD).expect("the folder is there");
    let names = entries.map(|entry| entry.expect("readable").file_name());
    let names = names.map(|name| name.into_string().expect("UTF-8"));
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".yaml")).collect();
    names.sort();
    names
}

#[test]
fn every_bad_file_is_answered_as_its_snapshot_says() {
    let update = std::env::var_os("UPDATE_SNAPSHOTS").is_some();
    let mut wrong = Vec::new();
    for name in bad_files() {
        let ran = check(&[&name, "--deny-warnings"]);
        assert_eq!(ran.err, "", "{name}");
        let said = format!("{}exit code {}\n", ran.out, ran.code.unwrap_or(-1));
        let kept = Path::new(BAD).join(&name).with_extension("txt");
        if update {
            fs::write(&kept, &said).expect("writable");
        } else if fs::read_to_string(&kept).unwrap_or_default() != said {
            wrong.push(format!("{name} is now answered so:\n{said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_problem_has_a_hint_and_every_bad_file_a_problem() {
    for name in bad_files() {
        let ran = check(&[&name]);
        let hints = ran.out.matches("\nhint: ").count();
        let places = ran.out.matches("\n  --> ").count();
        assert!(hints > 0, "{name}");
        assert_eq!(hints, places, "{name}");
    }
}

#[test]
fn the_example_is_good() {
    assert_prints(
        &tollgate(&["check", EXAMPLE, "--deny-warnings"]),
        "
ok: 12 limits, 3 tiers, 1 entry in `deny`; everything else passes
",
    );
}

#[test]
fn the_example_of_a_fleet_is_good() {
    assert_prints(
        &tollgate(&["check", FLEET, "--deny-warnings"]),
        "
ok: 4 limits; everything else passes
`per-tenant` (lease): in any stretch of time at most 500 more than it allows (2000 at once, and what it earns), with 4 nodes; if the store stops answering, at most 1500 on top of that
`per-user` (lease): in any stretch of time at most 40 more than it allows (600 at once, and what it earns), with 4 nodes; if the store stops answering, at most 450 on top of that
`sign-in` (exact): never more than it allows
`per-network` (lease): in any stretch of time at most 1248 more than it allows (5000 at once, and what it earns), with 4 nodes; if the store stops answering, at most 3750 on top of that
",
    );
}

#[test]
fn the_example_of_a_gateway_is_good() {
    assert_prints(
        &tollgate(&["check", GATEWAY, "--deny-warnings"]),
        "
ok: 2 limits, 2 tiers, 3 queues, 2 upstreams; everything else passes
",
    );
}

/// Every bad file that has a password in it has this one, whole or around a mistake.
#[test]
fn no_answer_repeats_a_password() {
    let mut with_password = 0;
    for name in bad_files() {
        let text = fs::read(Path::new(BAD).join(&name)).expect("readable");
        if !String::from_utf8_lossy(&text).contains("hun") {
            continue;
        }
        with_password += 1;
        for args in [vec![name.as_str()], vec![name.as_str(), "--json"]] {
            let ran = check(&args);
            assert!(!ran.out.contains("hun"), "{}", ran.out);
            assert!(!ran.out.contains("ter2"), "{}", ran.out);
        }
    }
    assert!(with_password >= 8, "{with_password}");
}

#[test]
fn a_policy_on_standard_input_is_read() {
    let text = b"default: pass\nlimits: [{ name: a, key: ip, allow: 5/s }]\n";
    assert_prints(
        &fed(&["check", "-"], text),
        "\nok: 1 limit; everything else passes\n",
    );
}

#[test]
fn warnings_fail_only_if_they_are_to() {
    let ran = check(&["lint-no-default.yaml"]);
    assert_eq!(ran.code, Some(0));
    assert!(
        ran.out
            .ends_with("1 warning\nok: 1 limit; everything else passes\n"),
        "{}",
        ran.out
    );
    assert_eq!(
        check(&["lint-no-default.yaml", "--deny-warnings"]).code,
        Some(1)
    );
}

#[test]
fn problems_are_printed_as_json_one_on_each_line() {
    let ran = check(&["misspelt-limit.yaml", "--json"]);
    assert_eq!(
        ran.out,
        "{\"severity\":\"error\",\"code\":\"unknown-field\",\"file\":\"misspelt-limit.yaml\",\"line\":6,\"column\":5,\"length\":5,\
         \"message\":\"`brust` is not a field of a limit\",\"hint\":\"did you mean `burst`?\"}\n\
         {\"file\":\"misspelt-limit.yaml\",\"result\":\"failed\",\"errors\":1,\"warnings\":0,\"notes\":0,\"limits\":null,\"queues\":null,\"upstreams\":null}\n"
    );
    assert_eq!(ran.code, Some(1));
}

#[test]
fn a_file_that_is_not_there_is_a_mistake_of_the_command() {
    let ran = check(&["nowhere.yaml"]);
    assert_eq!((ran.out.as_str(), ran.code), ("", Some(2)));
    assert!(
        ran.err
            .starts_with("error: `nowhere.yaml` cannot be read: "),
        "{}",
        ran.err
    );
    assert!(
        ran.err
            .ends_with("\nhint: name a file that exists and that this process may read\n")
    );
}

#[test]
fn a_file_that_is_too_large_is_refused_unread() {
    let ran = fed(&["check", "-"], &vec![b'#'; (1 << 20) + 1]);
    assert_eq!(
        ran.out,
        "error: the file is larger than 1024 KiB\n\
         \x20 --> standard input\n\
         hint: use a key, tiers or overrides where limits differ only in the clients that they match\n\n\
         1 error\n"
    );
    assert_eq!(ran.code, Some(1));
}

#[test]
fn too_many_limits_are_refused() {
    let mut text = String::from("default: pass\nlimits:\n");
    for number in 0..10_001 {
        text.push_str(&format!("- {{ name: l{number}, key: ip, allow: 5/s }}\n"));
    }
    let ran = fed(&["check", "-"], text.as_bytes());
    assert!(
        ran.out
            .starts_with("error: there are 10001 limits; the maximum is 10000\n"),
        "{}",
        ran.out
    );
}

#[test]
fn the_schema_is_json() {
    let ran = tollgate(&["schema"]);
    assert!(ran.out.starts_with("{\n  \"$schema\": "));
    assert_eq!(ran.code, Some(0));
}

/// Limits that nodes of a fleet share in every way.
const SHARED: &str = "
version: 1
default: pass
store: { url: 'redis://127.0.0.1:6379/0', nodes: 4 }
on_store_error: local
sharing: lease
tiers: { gold: { times: 10 } }
limits:
  - { name: orgs, key: header.x-org, allow: 1000/s, burst: 1600, tier: header.x-plan }
  - { name: windows, key: header.x-org, algorithm: fixed-window, allow: 1000/s }
  - { name: slow, key: header.x-org, allow: 30/m, burst: 1000 }
  - { name: small, key: header.x-org, allow: 10/s, burst: 15 }
  - { name: synced, key: header.x-org, allow: 1000/s, burst: 1600, sharing: sync }
  - { name: exact, key: header.x-org, allow: 1000/s, sharing: exact }
";

#[test]
fn the_overshoot_bounds_of_a_fleet_are_printed() {
    let ran = fed(&["check", "-"], SHARED.as_bytes());
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    let bounds: Vec<&str> = ran
        .out
        .lines()
        .filter(|line| line.starts_with('`'))
        .collect();
    assert_eq!(
        bounds,
        [
            "`orgs` (lease): in any stretch of time at most 400 more than it allows (1600 at once, and what it earns), with 4 nodes; if the store stops answering, at most 1200 on top of that",
            "`orgs`, tier `gold` (lease): in any stretch of time at most 4000 more than it allows (16000 at once, and what it earns), with 4 nodes; if the store stops answering, at most 12000 on top of that",
            "`windows` (lease): never more than it allows, with 4 nodes; if the store stops answering, at most 750 on top of that",
            "`slow` (lease): too small or too slow to lease to 4 nodes, so the store decides every request; if the store stops answering, at most 750 on top of that",
            "`small` (lease): too small or too slow to lease to 4 nodes, so the store decides every request; if the store stops answering, at most 9 on top of that",
            "`synced` (sync): in any stretch of time at most 2400 more than it allows (1600 at once, and what it earns), with 4 nodes; if the store stops answering, at most 1200 on top of that",
            "`exact` (exact): never more than it allows; if the store stops answering, at most 750 on top of that",
        ]
    );
}

#[test]
fn json_reports_how_each_limit_is_decided() {
    let ran = fed(&["check", "--json", "-"], SHARED.as_bytes());
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    let line = |name: &str| {
        let named = format!("\"limit\":\"{name}\"");
        ran.out.lines().find(|line| line.contains(&named)).unwrap()
    };
    assert!(line("slow").contains("\"sharing\":\"lease\",\"decided\":\"exact\""));
    assert!(line("orgs").contains("\"decided\":\"lease\""));
    assert!(line("synced").contains("\"decided\":\"sync\""));
    assert!(line("exact").contains("\"decided\":\"exact\""));
}
