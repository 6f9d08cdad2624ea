//! The allowed dependencies between crates. A new arrow is a change of the architecture: edit the table and state the reason.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeSet;
use std::process::Command;

/// Each crate and the crates of ours that it may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("tollgate", &[]),
    ("tollgate-policy", &["tollgate"]),
    ("tollgate-config", &["tollgate", "tollgate-policy"]),
    ("tollgate-redis", &["tollgate", "tollgate-policy"]),
    (
        "tollgate-server",
        &[
            "tollgate",
            "tollgate-grpc",
            "tollgate-config",
            "tollgate-policy",
            "tollgate-tower",
        ],
    ),
    ("tollgate-grpc", &[]),
    ("tollgate-tower", &["tollgate", "tollgate-policy"]),
    ("tollgate-sim", &["tollgate", "tollgate-policy"]),
    ("tollgate-testkit", &[]),
    (
        "tollgate-trials",
        &[
            "tollgate",
            "tollgate-config",
            "tollgate-policy",
            "tollgate-redis",
            "tollgate-sim",
            "tollgate-testkit",
        ],
    ),
    ("tollgate-load", &["tollgate"]),
    (
        "tollgate-cli",
        &[
            "tollgate",
            "tollgate-load",
            "tollgate-config",
            "tollgate-policy",
            "tollgate-redis",
            "tollgate-server",
        ],
    ),
    (
        "tollgate-bench",
        &[
            "tollgate",
            "tollgate-load",
            "tollgate-policy",
            "tollgate-redis",
            "tollgate-testkit",
            "tollgate-tower",
        ],
    ),
    (
        "tollgate-fuzz",
        &[
            "tollgate",
            "tollgate-load",
            "tollgate-config",
            "tollgate-policy",
            "tollgate-redis",
            "tollgate-server",
            "tollgate-tower",
        ],
    ),
];

/// The crates that `name` uses directly, by its manifest.
fn uses(name: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "--depth",
            "1",
            "--prefix",
            "none",
            "--edges",
            "normal",
        ])
        .args(["--package", name])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = String::from_utf8(output.stdout).unwrap();
    let names = lines
        .lines()
        .skip(1)
        .filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

#[test]
fn our_crates_use_each_other_only_as_the_architecture_says() {
    for (name, allowed) in ARROWS {
        let ours = uses(name);
        let ours: Vec<&String> = ours.iter().filter(|n| n.starts_with("tollgate")).collect();
        assert!(
            ours.iter().all(|n| allowed.contains(&n.as_str())),
            "{name} uses {ours:?}"
        );
    }
}

#[test]
fn the_core_has_no_dependency() {
    assert!(uses("tollgate").is_empty(), "{:?}", uses("tollgate"));
}
