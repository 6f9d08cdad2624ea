//! A converted configuration of the reference service gives the answers that the service documents.

use tollgate_config::import::{EnvoyOptions, envoy};
use tollgate_server::rls::messages::{Code, UnitMessage};

use super::client::{Server, brief, of};

const CONFIG: &str = "
domain: edge
descriptors:
  - key: remote_address
    rate_limit: { unit: day, requests_per_unit: 2 }
  - key: remote_address
    value: 50.0.0.5
    rate_limit: { unit: second, requests_per_unit: 0 }
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit: { unit: day, requests_per_unit: 5 }
  - key: to_number
    rate_limit: { unit: day, requests_per_unit: 100 }
  - key: free
    rate_limit: { unlimited: true }
  - key: named
    rate_limit: { name: per-name, unit: day, requests_per_unit: 9 }
  - key: tried
    shadow_mode: true
    rate_limit: { unit: day, requests_per_unit: 1 }
";

async fn server() -> Server {
    let files = [("config.yaml".to_owned(), CONFIG.as_bytes().to_vec())];
    Server::start(&envoy(&files, EnvoyOptions::default()).unwrap().policy).await
}

#[tokio::test]
async fn descriptors_get_the_statuses_that_the_reference_documents() {
    let server = server().await;
    let day = UnitMessage::Day as i32;
    let (ok, over) = (Code::Ok, Code::OverLimit);
    for (entries, expected) in [
        (
            [("remote_address", "1.1.1.1")].as_slice(),
            (ok, Some((2, day)), 1),
        ),
        (&[("remote_address", "1.1.1.1")], (ok, Some((2, day)), 0)),
        (&[("remote_address", "1.1.1.1")], (over, Some((2, day)), 0)),
        (&[("remote_address", "2.2.2.2")], (ok, Some((2, day)), 1)),
        (
            &[("remote_address", "50.0.0.5")],
            (over, Some((0, UnitMessage::Second as i32)), 0),
        ),
        (
            &[("message_type", "marketing"), ("to_number", "1")],
            (ok, Some((5, day)), 4),
        ),
        (
            &[("message_type", "other"), ("to_number", "1")],
            (ok, None, 0),
        ),
        (&[("message_type", "marketing")], (ok, None, 0)),
        (&[("to_number", "1")], (ok, Some((100, day)), 99)),
        (&[("free", "x")], (ok, None, u32::MAX)),
        (&[("tried", "x")], (ok, Some((1, day)), 0)),
        (&[("tried", "x")], (ok, Some((1, day)), 0)),
    ] {
        let (overall, statuses) = brief(&server.edge(&[of(entries)]).await);
        assert_eq!(statuses, [expected], "{entries:?}");
        assert_eq!(overall, expected.0);
    }
}

#[tokio::test]
async fn a_limit_reports_the_name_that_the_file_gives_it_and_no_other() {
    let server = server().await;
    for (key, name) in [("named", "per-name"), ("to_number", "")] {
        let answer = server.edge(&[of(&[(key, "1")])]).await;
        let limit = answer.statuses[0].current_limit.as_ref().unwrap();
        assert_eq!(limit.name, name, "{key}");
    }
}
