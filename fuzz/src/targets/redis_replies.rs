//! Fuzzes replies of a shared store: of scripts, of a cluster, of sentinels, and errors.

use std::sync::LazyLock;

use tollgate::{Algorithm, Estimate, Limit, LimitId, Span};
use tollgate_policy::Quota;
use tollgate_policy::shared::{KeyKind, SharedCharge, SharedKey, SharedLimit, SharedRequest};
use tollgate_redis::fuzzing::{
    ReplyReader, Value, classify, is_primary, nodes, primary, slots, value,
};

use crate::{Target, memory};

pub(super) const TARGET: Target = Target {
    name: "redis_replies",
    holds: "a reply is an outcome for every charge or none at all; a charge is taken if it is admitted, unless the script disagrees; \
            nothing is left beyond the limit; slots are those of a cluster; keys of clients do not appear in errors; memory grows \
            with the bytes sent",
    run,
};

const LIMIT: u64 = 10;

fn kinds() -> Vec<Quota> {
    let second = Span::from_secs(1);
    let bucket = |rate: &str| {
        let rate = rate.parse().ok()?;
        Some(Algorithm::TokenBucket { rate, burst: LIMIT })
    };
    let sliding = |estimate| {
        Some(Algorithm::SlidingWindow {
            limit: LIMIT,
            window: second,
            estimate,
        })
    };
    let all = [
        bucket("5/s"),
        bucket("11/s"),
        Some(Algorithm::FixedWindow {
            limit: LIMIT,
            window: second,
            anchor: Span::ZERO,
        }),
        sliding(Estimate::Span),
        sliding(Estimate::Strict),
        Some(Algorithm::SlidingLog {
            limit: LIMIT,
            window: second,
        }),
        Some(Algorithm::Concurrency {
            limit: LIMIT,
            ttl: second,
        }),
    ];
    let quota = |algorithm| {
        let limit = Limit::new(algorithm).ok()?;
        Some(Quota::plain(limit))
    };
    all.into_iter().flatten().filter_map(quota).collect()
}

static READER: LazyLock<(Option<ReplyReader>, usize)> = LazyLock::new(|| {
    let quotas = kinds();
    let ids: Vec<String> = (0..quotas.len()).map(|at| format!("limit-{at}")).collect();
    let limits = quotas.iter().zip(&ids).map(|(quota, id)| SharedLimit {
        id,
        quota,
        before: &[],
        plain: true,
    });
    let reader = ReplyReader::new(&limits.collect::<Vec<_>>());
    (reader.ok(), quotas.len())
});

fn key() -> SharedKey {
    let mut key = SharedKey::new(KeyKind::Own);
    key.push(b"k");
    key
}

fn run(bytes: &[u8]) {
    let Ok(reply) = value(bytes) else { return };
    if let Value::ServerError(error) = &reply {
        let (_, words) = classify(error);
        assert!(!words.contains(":{"), "{words}");
    }
    let (Some(reader), kinds) = &*READER else {
        panic!("the limits of this target are wrong")
    };
    let charge = |limit: usize, enforced| SharedCharge {
        limit: LimitId::new(limit),
        key: key(),
        cost: 1,
        enforced,
        with_next: limit == 0,
        owed: 0,
        most: None,
    };
    for take in [true, false] {
        for limit in 0..*kinds {
            check_outcomes(reader, take, vec![charge(limit, true)], &reply, bytes);
        }
        // The first two are charged together, the others alone.
        let all = (0..*kinds).map(|limit| charge(limit, limit > 1 && limit % 3 > 0));
        check_outcomes(reader, take, all.collect(), &reply, bytes);
    }
    let _ = reader.read_settle(std::slice::from_ref(&reply));
    let _ = (nodes(&reply), primary(&reply), is_primary(&reply));
    if let Some(owners) = slots(&reply) {
        assert!(!owners.is_empty() && owners.len() <= 16_384);
        assert!(
            owners
                .iter()
                .all(|(first, last, _)| *first < 16_384 && *last < 16_384)
        );
    }
}

fn check_outcomes(
    reader: &ReplyReader,
    take: bool,
    charges: Vec<SharedCharge>,
    reply: &Value,
    bytes: &[u8],
) {
    let request = SharedRequest {
        take,
        waited: tollgate::Span::ZERO,
        charges,
    };
    let (ruled, taken) = memory::peak(|| reader.read(&request, reply));
    // Names and arguments for each charge, and the text of an error.
    let room = 64 * 1024 + bytes.len().saturating_mul(64);
    assert!(taken <= room, "{taken} bytes of memory");
    let Ok(ruled) = ruled else { return };
    assert_eq!(ruled.outcomes.len(), request.charges.len());
    let passes = ruled
        .outcomes
        .iter()
        .zip(&request.charges)
        .all(|(outcome, charge)| !charge.enforced || outcome.verdict.is_admitted());
    if take && !ruled.disagrees {
        assert_eq!(ruled.took, passes, "{ruled:?}");
    }
    for outcome in &ruled.outcomes {
        assert!(outcome.status.remaining <= LIMIT, "{outcome:?}");
    }
}
