//! Several descriptors are one decision.

use tollgate_server::rls::messages::{Code, UnitMessage};

use super::client::{Server, brief, hits, of};

const POLICY: &str = "
default: pass
limits:
  - { name: user, match: { domain: edge, entries: [{ user: true }] }, key: descriptor.user, algorithm: fixed-window, allow: 5/day }
  - { name: path, match: { domain: edge, entries: [{ path: true }] }, key: descriptor.path, algorithm: fixed-window, allow: 2/day }
  - name: special
    match: { domain: edge, entries: [{ special: true }] }
    algorithm: fixed-window
    allow: 9/day
    replaces: path
";

#[tokio::test]
async fn a_request_that_one_descriptor_refuses_costs_the_others_nothing() {
    let server = Server::start(POLICY).await;
    let day = Some(UnitMessage::Day as i32);
    let both = [of(&[("user", "ann")]), of(&[("path", "/a")])];
    let mut expected = Vec::new();
    for _ in 0..4 {
        let (code, statuses) = brief(&server.edge(&both).await);
        assert_eq!(statuses[0].1.map(|l| l.1), day);
        let each: Vec<_> = statuses.iter().map(|s| (s.0, s.2)).collect();
        expected.push((code, each));
    }
    let (ok, over) = (Code::Ok, Code::OverLimit);
    assert_eq!(
        expected,
        [
            (ok, vec![(ok, 4), (ok, 1)]),
            (ok, vec![(ok, 3), (ok, 0)]),
            (over, vec![(ok, 3), (over, 0)]),
            (over, vec![(ok, 3), (over, 0)]),
        ]
    );
}

#[tokio::test]
async fn statuses_come_in_the_order_of_the_descriptors() {
    let server = Server::start(POLICY).await;
    let (_, statuses) = brief(
        &server
            .edge(&[
                of(&[("other", "x")]),
                of(&[("path", "/a")]),
                hits(&[("user", "ann")], 0),
                of(&[("user", "bob")]),
            ])
            .await,
    );
    let lefts: Vec<_> = statuses.iter().map(|s| (s.1.is_some(), s.2)).collect();
    assert_eq!(lefts, [(false, 0), (true, 1), (true, 5), (true, 4)]);
}

#[tokio::test]
async fn two_descriptors_with_one_key_charge_both_costs() {
    let server = Server::start(POLICY).await;
    let twice = [of(&[("user", "ann")]), hits(&[("user", "ann")], 2)];
    let (_, statuses) = brief(&server.edge(&twice).await);
    assert_eq!((statuses[0].2, statuses[1].2), (2, 2));
    assert_eq!(brief(&server.edge(&twice).await).0, Code::OverLimit);
}

#[tokio::test]
async fn a_descriptor_with_zero_hits_can_refuse_the_request() {
    let server = Server::start(POLICY).await;
    assert_eq!(
        brief(&server.edge(&[hits(&[("path", "/a")], 2)]).await).0,
        Code::Ok
    );
    let asked = [of(&[("user", "ann")]), hits(&[("path", "/a")], 0)];
    let (code, statuses) = brief(&server.edge(&asked).await);
    assert_eq!(code, Code::OverLimit);
    assert_eq!((statuses[0].0, statuses[0].2), (Code::Ok, 5));
    assert_eq!(statuses[1].0, Code::OverLimit);
}

#[tokio::test]
async fn a_descriptor_matches_only_with_exactly_its_entries() {
    let server = Server::start(POLICY).await;
    for entries in [
        [("user", "ann"), ("path", "/a")].as_slice(),
        &[("x", "y"), ("user", "ann")],
        &[],
    ] {
        let (code, statuses) = brief(&server.edge(&[of(entries)]).await);
        assert_eq!((code, statuses[0].1), (Code::Ok, None), "{entries:?}");
    }
}

#[tokio::test]
async fn a_limit_that_is_replaced_by_one_of_another_descriptor_is_not_charged() {
    let server = Server::start(POLICY).await;
    let both = [of(&[("path", "/a")]), of(&[("special", "1")])];
    for left in [8, 7, 6, 5] {
        let (code, statuses) = brief(&server.edge(&both).await);
        assert_eq!(code, Code::Ok);
        assert_eq!(statuses[0], (Code::Ok, None, 0));
        assert_eq!(statuses[1].2, left);
    }
    let (_, statuses) = brief(&server.edge(&both[..1]).await);
    assert_eq!(statuses[0].2, 1);
}

#[tokio::test]
async fn more_limits_than_can_be_charged_together_are_refused() {
    let server = Server::start(POLICY).await;
    let users: Vec<String> = (0..17).map(|n| n.to_string()).collect();
    let many: Vec<_> = users.iter().map(|u| of(&[("user", u)])).collect();
    let (code, statuses) = brief(&server.edge(&many).await);
    assert_eq!(code, Code::OverLimit);
    assert!(statuses.iter().all(|s| s.0 == Code::OverLimit));
    let (code, statuses) = brief(&server.edge(&many[..16]).await);
    assert_eq!(code, Code::Ok);
    assert!(statuses.iter().all(|s| s.2 == 4));
}
