//! Findings of the doctor on healthy and on faulty servers.

use std::time::Duration;

use crate::common::cluster;
use crate::common::{server, server_with_password, settings};
use tokio::time::Instant;
use tollgate_redis::{DoctorFinding, DoctorSeverity, Secret, Settings, Topology, doctor};
use tollgate_testkit::free_port;
use tollgate_testkit::servers::{Cluster, Kind, Sentinels};

fn show(findings: &[DoctorFinding]) -> String {
    findings
        .iter()
        .map(|finding| format!("{finding}\n"))
        .collect()
}

fn has(findings: &[DoctorFinding], severity: DoctorSeverity, code: &str) -> bool {
    let shown = findings
        .iter()
        .any(|finding| finding.severity == severity && finding.code == code);
    let hinted = findings
        .iter()
        .all(|finding| finding.severity < DoctorSeverity::Warning || finding.hint.is_some());
    shown && hinted
}

#[tokio::test]
async fn a_healthy_server_has_no_findings_above_ok() {
    let server = server(&[("appendonly", "yes")]);
    let findings = doctor(&settings(server.port())).await;
    let worst = findings
        .iter()
        .map(|finding| finding.severity)
        .max()
        .unwrap();
    assert!(worst <= DoctorSeverity::Note, "{}", show(&findings));
    for code in [
        "settings",
        "resolve",
        "connect",
        "handshake",
        "role",
        "version",
        "eviction",
        "persistence",
        "permissions",
        "clock",
        "script",
        "latency",
        "expiry",
    ] {
        assert!(
            has(&findings, DoctorSeverity::Ok, code),
            "{code}:\n{}",
            show(&findings)
        );
    }
    for key in server
        .cli(&["keys", "*"])
        .lines()
        .filter(|key| !key.is_empty())
    {
        assert!(key.starts_with("tg:doctor:"), "{key}");
        assert!(
            server.cli(&["pttl", key]).parse::<i64>().unwrap() > 0,
            "{key}"
        );
    }
}

#[tokio::test]
async fn doctor_finds_each_problem() {
    let unreachable = doctor(&settings(free_port().unwrap())).await;
    assert!(
        has(&unreachable, DoctorSeverity::Error, "connect"),
        "{}",
        show(&unreachable)
    );

    let unnamed = doctor(&Settings::standalone("no-such-name.invalid", 6379)).await;
    assert!(
        has(&unnamed, DoctorSeverity::Error, "resolve"),
        "{}",
        show(&unnamed)
    );

    let mut unreadable = settings(1);
    unreadable.prefix = "a b".into();
    assert!(has(
        &doctor(&unreadable).await,
        DoctorSeverity::Error,
        "settings"
    ));

    let locked = server_with_password("right");
    let mut wrong = settings(locked.port());
    assert!(has(&doctor(&wrong).await, DoctorSeverity::Error, "auth"));
    wrong.password = Some(Secret::Text("wrong".into()));
    assert!(has(&doctor(&wrong).await, DoctorSeverity::Error, "auth"));

    let primary = server(&[("maxmemory-policy", "allkeys-lru")]);
    primary.cli(&["set", "tg:foreign", "1"]);
    let findings = doctor(&settings(primary.port())).await;
    assert!(
        has(&findings, DoctorSeverity::Warning, "eviction"),
        "{}",
        show(&findings)
    );
    assert!(
        has(&findings, DoctorSeverity::Warning, "expiry"),
        "{}",
        show(&findings)
    );
    assert!(
        has(&findings, DoctorSeverity::Note, "persistence"),
        "{}",
        show(&findings)
    );

    let replica = server(&[("replicaof", &format!("127.0.0.1 {}", primary.port()))]);
    let findings = doctor(&settings(replica.port())).await;
    assert!(
        has(&findings, DoctorSeverity::Error, "role"),
        "{}",
        show(&findings)
    );

    primary.cli(&[
        "acl", "setuser", "poor", "on", "nopass", "~tg:*", "-@all", "+ping", "+role", "+info",
    ]);
    let mut poor = settings(primary.port());
    poor.username = Some("poor".into());
    poor.password = Some(Secret::Text("any".into()));
    let findings = doctor(&poor).await;
    assert!(
        has(&findings, DoctorSeverity::Error, "permissions"),
        "{}",
        show(&findings)
    );
}

#[tokio::test]
async fn a_key_that_never_expires_is_reported_without_its_text() {
    let server = server(&[]);
    server.cli(&["set", "tg:login~5f0c1a:{s3cr3t}:bob", "1"]);
    let findings = doctor(&settings(server.port())).await;
    let shown = show(&findings);
    assert!(has(&findings, DoctorSeverity::Warning, "expiry"), "{shown}");
    assert!(shown.contains("tg:login~5f0c1a"), "{shown}");
    assert!(
        !shown.contains("s3cr3t") && !shown.contains("bob"),
        "{shown}"
    );
}

#[tokio::test]
async fn doctor_ends_though_the_server_hangs() {
    let server = server(&[]);
    server.freeze().unwrap();
    let since = Instant::now();
    let findings = doctor(&settings(server.port())).await;
    server.thaw().unwrap();
    assert!(
        since.elapsed() < Duration::from_secs(5),
        "{:?}",
        since.elapsed()
    );
    assert!(
        findings
            .iter()
            .any(|finding| finding.severity == DoctorSeverity::Error),
        "{}",
        show(&findings)
    );
}

#[tokio::test]
async fn every_sentinel_is_checked() {
    let fleet = Sentinels::start(Kind::Redis, 0, 1, 500).unwrap();
    // One sentinel cannot be the two that have to agree.
    let quorum = ["sentinel", "set", fleet.service(), "quorum", "2"];
    assert_eq!(fleet.sentinels()[0].cli(&quorum), "OK");
    let with = |service: &str| {
        Settings::new(Topology::Sentinel {
            sentinels: vec![
                fleet.sentinel_addresses()[0].clone(),
                ("127.0.0.1".into(), free_port().unwrap()),
            ],
            service: service.into(),
        })
    };
    let findings = doctor(&with(fleet.service())).await;
    assert!(
        has(&findings, DoctorSeverity::Ok, "sentinel"),
        "{}",
        show(&findings)
    );
    assert!(
        has(&findings, DoctorSeverity::Error, "connect"),
        "{}",
        show(&findings)
    );
    assert!(
        has(&findings, DoctorSeverity::Warning, "quorum"),
        "{}",
        show(&findings)
    );
    assert!(
        has(&findings, DoctorSeverity::Ok, "script"),
        "{}",
        show(&findings)
    );
    let findings = doctor(&with("other")).await;
    assert!(
        has(&findings, DoctorSeverity::Error, "sentinel"),
        "{}",
        show(&findings)
    );
}

#[tokio::test]
async fn every_primary_of_a_cluster_is_checked() {
    let cluster = Cluster::start(Kind::Redis, 3, 0).unwrap();
    let findings = doctor(&cluster::settings(&cluster)).await;
    assert!(
        has(&findings, DoctorSeverity::Ok, "cluster"),
        "{}",
        show(&findings)
    );
    assert!(
        has(&findings, DoctorSeverity::Ok, "slots"),
        "{}",
        show(&findings)
    );
    let scripts = findings
        .iter()
        .filter(|finding| finding.code == "script" && finding.severity == DoctorSeverity::Ok)
        .count();
    assert_eq!(scripts, 3, "{}", show(&findings));
    cluster.nodes()[0].cli(&["cluster", "delslots", "0"]);
    let findings = doctor(&cluster::settings(&cluster)).await;
    assert!(
        has(&findings, DoctorSeverity::Error, "slots"),
        "{}",
        show(&findings)
    );
}
