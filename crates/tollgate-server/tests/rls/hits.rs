//! Hits of a request: how many units it charges, queries or returns.

use tollgate_server::rls::messages::{Code, RateLimitDescriptor, RateLimitRequest};

use super::client::{Server, brief, edge, hits, of};

const POLICY: &str = "
default: pass
limits:
  - { name: bucket, match: { domain: edge, descriptor: { bucket: true } }, key: descriptor.bucket, allow: 1/h, burst: 10 }
  - { name: window, match: { domain: edge, descriptor: { window: true } }, key: descriptor.window, algorithm: fixed-window, allow: 10/day }
  - { name: dear, match: { domain: edge, descriptor: { dear: true } }, algorithm: fixed-window, allow: 10/day, cost: 5 }
";

async fn left(server: &Server, asked: RateLimitDescriptor) -> (Code, u32) {
    let (code, statuses) = brief(&server.edge(&[asked]).await);
    (code, statuses[0].2)
}

#[tokio::test]
async fn hits_of_the_request_and_of_a_descriptor_are_charged() {
    let server = Server::start(POLICY).await;
    for key in ["bucket", "window"] {
        let entries = [(key, "a")];
        assert_eq!(left(&server, of(&entries)).await, (Code::Ok, 9));
        assert_eq!(left(&server, hits(&entries, 3)).await, (Code::Ok, 6));
        let asked = RateLimitRequest {
            hits_addend: 2,
            ..edge(&[of(&entries)])
        };
        let (_, statuses) = brief(&server.ask(asked).await.unwrap());
        assert_eq!(statuses[0].2, 4);
        assert_eq!(left(&server, hits(&entries, 5)).await.0, Code::OverLimit);
        assert_eq!(left(&server, hits(&entries, 4)).await, (Code::Ok, 0));
    }
}

#[tokio::test]
async fn zero_hits_of_a_descriptor_charge_nothing() {
    let server = Server::start(POLICY).await;
    for key in ["bucket", "window"] {
        let entries = [(key, "a")];
        for _ in 0..3 {
            assert_eq!(left(&server, hits(&entries, 0)).await, (Code::Ok, 10));
        }
        assert_eq!(left(&server, hits(&entries, 9)).await, (Code::Ok, 1));
        assert_eq!(left(&server, hits(&entries, 0)).await, (Code::Ok, 1));
        assert_eq!(left(&server, of(&entries)).await, (Code::Ok, 0));
        assert_eq!(left(&server, hits(&entries, 0)).await, (Code::OverLimit, 0));
    }
}

#[tokio::test]
async fn negative_hits_refund_at_most_what_was_used() {
    let server = Server::start(POLICY).await;
    for key in ["bucket", "window"] {
        let entries = [(key, "a")];
        let back = |count| RateLimitDescriptor {
            is_negative_hits: true,
            ..hits(&entries, count)
        };
        assert_eq!(left(&server, hits(&entries, 8)).await, (Code::Ok, 2));
        assert_eq!(left(&server, back(5)).await, (Code::Ok, 7));
        assert_eq!(left(&server, back(500)).await, (Code::Ok, 10));
        assert_eq!(left(&server, hits(&entries, 11)).await.0, Code::OverLimit);
        assert_eq!(left(&server, hits(&entries, 10)).await, (Code::Ok, 0));
        assert_eq!(left(&server, back(1)).await, (Code::Ok, 1));
    }
}

#[tokio::test]
async fn a_refused_request_refunds_nothing() {
    let server = Server::start(POLICY).await;
    assert_eq!(left(&server, hits(&[("window", "a")], 10)).await.1, 0);
    assert_eq!(left(&server, hits(&[("bucket", "a")], 8)).await.1, 2);
    let back = RateLimitDescriptor {
        is_negative_hits: true,
        ..hits(&[("bucket", "a")], 4)
    };
    let (code, statuses) = brief(&server.edge(&[of(&[("window", "a")]), back]).await);
    assert_eq!(code, Code::OverLimit);
    assert_eq!((statuses[1].0, statuses[1].2), (Code::Ok, 2));
}

#[tokio::test]
async fn a_limit_with_a_cost_charges_that_cost() {
    let server = Server::start(POLICY).await;
    assert_eq!(
        left(&server, hits(&[("dear", "a")], 3)).await,
        (Code::Ok, 5)
    );
    assert_eq!(
        left(&server, hits(&[("dear", "a")], 0)).await,
        (Code::Ok, 5)
    );
}
