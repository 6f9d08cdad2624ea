//! The allowed dependencies between crates. A new one changes the architecture: edit the table and state the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

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
    ("tollgate-instructions", &["tollgate"]),
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

/// The crates that each of our crates uses directly, by the manifests. Dependencies for tests and for loom do not count, and
/// neither do those of features that a user turns on.
fn uses() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let counts = |used: &&Value| {
        used["kind"].is_null() && used["target"] != "cfg(loom)" && used["optional"] == false
    };
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .map(|package| {
            let used = package["dependencies"].as_array().unwrap().iter();
            (name(package), used.filter(counts).map(name).collect())
        })
        .collect()
}

#[test]
fn our_crates_use_each_other_only_as_the_architecture_says() {
    let arrows: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let uses = uses();
    let crates: Vec<&str> = uses.keys().map(String::as_str).collect();
    let listed: Vec<&str> = arrows.keys().copied().collect();
    assert_eq!(
        crates, listed,
        "a crate without a row, or a row without a crate"
    );
    for (name, used) in &uses {
        let ours: Vec<&String> = used.iter().filter(|n| n.starts_with("tollgate")).collect();
        let allowed = arrows[name.as_str()];
        assert!(
            ours.iter().all(|n| allowed.contains(&n.as_str())),
            "{name} uses {ours:?}"
        );
    }
}

#[test]
fn the_core_has_no_dependency() {
    assert_eq!(uses()["tollgate"], BTreeSet::new());
}
