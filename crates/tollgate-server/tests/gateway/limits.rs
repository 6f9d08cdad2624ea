//! Limits and queues in front of a server.

use crate::upstream::Upstream;
use crate::world::World;
use tollgate_testkit::wait;

#[test]
fn what_is_over_its_limit_is_refused_and_never_seen() {
    let upstream = Upstream::start();
    let policy = "default: pass\nlimits:\n  - { name: all, key: ip, allow: 1/h, burst: 5 }\n";
    let world = World::before(policy, upstream.port);
    let statuses: Vec<_> = (0..20).map(|_| world.get("/").status).collect();
    assert_eq!(statuses.iter().filter(|s| **s == 200).count(), 5);
    assert_eq!(statuses.iter().filter(|s| **s == 429).count(), 15);
    assert_eq!(upstream.count(), 5);
    assert_eq!(world.admitted(), 5);
    let refused = world.get("/");
    assert_eq!(refused.header("cache-control"), Some("no-store"));
    assert!(refused.header("retry-after").is_some());
    assert!(refused.body.contains("\"status\":429"), "{refused:?}");
}

#[test]
fn a_place_is_free_again_when_the_answer_has_ended() {
    let upstream = Upstream::start();
    let policy =
        "default: pass\nlimits:\n  - { name: all, algorithm: concurrency, allow: 2, ttl: 60s }\n";
    let world = World::before(policy, upstream.port);
    for _ in 0..50 {
        assert_eq!(world.get("/").status, 200);
    }
    std::thread::scope(|scope| {
        let slow: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| world.get("/slow").status))
            .collect();
        wait("both are there", || upstream.count() == 52);
        assert_eq!(world.get("/").status, 429);
        for slow in slow {
            assert_eq!(slow.join().unwrap(), 200);
        }
    });
    assert_eq!(world.get("/").status, 200);
}

#[test]
fn a_request_without_an_upstream_is_404() {
    let upstream = Upstream::start();
    let only_api = |spec: &mut tollgate_config::UpstreamSpec| {
        spec.matches.methods = vec!["POST".into()];
    };
    let world = World::with(crate::world::OPEN, only_api, &[upstream.port]);
    assert_eq!(world.get("/").status, 404);
    assert_eq!(upstream.count(), 0);
}
