//! Windows whose limit comes with the request: the scripts decide as the core does.

use super::Rng;
use super::edges::{charge, client, quota, request, ruled};
use crate::server;
use tollgate::algorithm::PackedAlgorithm;
use tollgate::algorithm::window::Window;
use tollgate::{Algorithm, Moment, Span};
use tollgate_policy::shared::SharedCharge;

const SECOND: u64 = 1_000_000_000;
const ROOM: u64 = u32::MAX as u64 - 1;

fn at_most(most: u32, charge: SharedCharge) -> SharedCharge {
    SharedCharge {
        most: Some(most),
        ..charge
    }
}

#[test]
fn limits_that_change_with_every_request_match_the_core() {
    let server = server();
    let second = Span::from_secs(1);
    let limit = Algorithm::FixedWindow {
        limit: ROOM,
        window: second,
        anchor: Span::ZERO,
    };
    // Time is in nanoseconds, so that both use the same unit.
    let mut client = client(&server, Some(1), &[quota(limit)]);
    let core = Window::new(ROOM, second, Span::ZERO).unwrap();
    let (mut word, mut now, mut rng) = (None, 5 * SECOND, Rng::new(7));
    let (mut passed, mut refused) = (0, 0);
    for turn in 0..2_000 {
        now += rng.below(SECOND / 20);
        let most = match rng.below(10) {
            0 => 0,
            1 => u32::MAX,
            _ => u32::try_from(rng.below(60)).unwrap(),
        };
        let cost = 1 + rng.below(5);
        let asked = request(vec![at_most(most, charge(0, cost))]);
        let (outcomes, took) = ruled(&mut client, now, asked);
        let at = Moment::from_nanos(now);
        let here = core.with_max(most);
        let step = here.charge(word, at, cost);
        assert_eq!(outcomes[0].verdict, step.verdict, "turn {turn}");
        assert_eq!(took, step.verdict.is_admitted(), "turn {turn}");
        word = step.write.or(word);
        assert_eq!(outcomes[0].status, here.status(word, at), "turn {turn}");
        passed += u32::from(took);
        refused += u32::from(!took);
    }
    assert!(passed > 200 && refused > 200, "{passed} {refused}");
}

#[test]
fn one_override_that_is_exceeded_refuses_all_charges() {
    let server = server();
    let window = |seconds| {
        quota(Algorithm::FixedWindow {
            limit: ROOM,
            window: Span::from_secs(seconds),
            anchor: Span::ZERO,
        })
    };
    let mut client = client(&server, Some(1), &[window(1), window(60)]);
    let now = 5 * SECOND;
    let both = || request(vec![at_most(9, charge(0, 3)), at_most(2, charge(1, 1))]);
    for taken in [true, true, false, false] {
        assert_eq!(ruled(&mut client, now, both()).1, taken);
    }
    let (outcomes, _) = ruled(&mut client, now, request(vec![at_most(9, charge(0, 3))]));
    assert_eq!(outcomes[0].status.remaining, 0, "six were taken before");
}
