//! Four services share hot keys on one store: exactly, by leases, by synced counters. Then one of them is killed.
//!
//! Every key gets requests at every node, together above its limit. What passes is compared with the bucket in
//! every stretch of time ([`audit`]) and with the stated bound (`max_overshoot`); the store counts its own calls.
//!
//! A node that is killed takes its blocks with it. They were charged, so no other node gets those units; but no
//! block is larger than what a bucket earns in a term, so they are missing no longer. This is checked with a bucket that
//! earns little compared to its size, where the leased units of the dead node show.

mod audit;
mod fleet;

use std::time::Duration;

use tollgate_policy::Sharing;

use self::audit::FleetResponses;
use self::fleet::{Fleet, end, total};
use super::TrialOptions;
use crate::load::{Allowance, Client};
use crate::policy::{TrialPolicy, TrialQuota};
use crate::verdicts::Verdicts;
use tollgate_testkit::servers::Server;
use tollgate_testkit::sleep;
use tollgate_testkit::{Error, Result};

/// Services.
const NODES: u32 = 4;
/// Hot keys. The usual rate at each node sends twice the limit of the least of them.
const KEYS: usize = 5;
/// What each may.
const HOT: TrialQuota = TrialQuota {
    allow: "250/s",
    burst: 250,
};
const ALLOWANCE: Allowance = Allowance {
    per_second: 250,
    burst: 250,
};
/// The term of a lease.
const TERM: Duration = Duration::from_secs(1);
/// A bucket that takes twenty seconds to fill.
const SLOW: TrialQuota = TrialQuota {
    allow: "20/s",
    burst: 400,
};
/// Requests within which a node has borrowed.
const BORROWED_WITHIN: usize = 100;
/// Requests that empty the slow bucket, whatever it earns meanwhile.
const AT_ONCE: usize = 800;
/// Leases admit at least this percentage of what exact sharing admits.
const LEAST_PERCENT: u64 = 97;

pub(super) fn run(options: &TrialOptions, verdicts: &mut Verdicts) -> Result<()> {
    let store = Server::start(options.kind, &[])?;
    let mut used = Vec::new();
    for sharing in Sharing::ALL {
        let fleet = Fleet::start(&store, sharing, HOT)?;
        used.push((sharing, share(options, verdicts, &fleet, sharing)?));
        if sharing == Sharing::Lease {
            kill(options, verdicts, &fleet)?;
        }
    }
    leases_expire(verdicts, &Fleet::start(&store, Sharing::Lease, SLOW)?)?;
    let of = |wanted| {
        let found = used.iter().find(|(sharing, _)| *sharing == wanted);
        found.map_or(0, |(_, used)| *used)
    };
    let (exact, lease) = (of(Sharing::Exact), of(Sharing::Lease));
    verdicts.promise_undisturbed(
        &format!("lease: at least {LEAST_PERCENT} % of what passes exactly passes"),
        lease * 100 >= exact * LEAST_PERCENT,
        format!("{} of what may pass, exactly {}", part(lease), part(exact)),
    );
    Ok(())
}

/// Runs one sharing mode, and returns the admitted part of what may pass, in millionths.
fn share(
    options: &TrialOptions,
    verdicts: &mut Verdicts,
    fleet: &Fleet<'_>,
    sharing: Sharing,
) -> Result<u64> {
    let name = sharing.name();
    let overshoot = max_overshoot(&fleet.policy, sharing)?;
    let run = fleet.run(options, options.span(800, 30_000))?;
    let all = total(&run.seen);
    let degraded: usize = run.seen.iter().map(|(_, seen)| seen.degraded()).sum();
    let unanswered: usize = run.seen.iter().map(|(_, seen)| seen.unanswered()).sum();
    verdicts.promise(
        &format!("{name}: every request is answered, and with the store"),
        degraded == 0 && unanswered == 0,
        format!("{unanswered} not answered, {degraded} without it"),
    );
    let may = ALLOWANCE.in_time(all.time());
    verdicts.promise(
        &format!("{name}: every key gets more requests than its limit"),
        all.sent_least() > may,
        format!("at least {} times, {may} may pass", all.sent_least()),
    );
    let over = all.excess(ALLOWANCE);
    // Overshoot of synced counters at the very end is not compensated yet.
    let most = if sharing == Sharing::Sync {
        overshoot
    } else {
        0
    };
    verdicts.promise(
        &format!("{name}: in all the time no key has more than {most} above its limit"),
        over <= most,
        format!("at most {over}"),
    );
    let over = all.excess_in_a_stretch(ALLOWANCE);
    verdicts.promise(
        &format!("{name}: in no stretch of time has a key more than {overshoot} above its limit"),
        over <= overshoot,
        format!("at most {over}"),
    );
    check_store_calls(verdicts, sharing, &all, run.store_calls);
    let may = may * KEYS as u64;
    verdicts.figure(
        &format!("{name}: admitted"),
        format!("{} of {may} that may pass", all.admitted()),
    );
    Ok(all.admitted() * 1_000_000 / may.max(1))
}

/// Checks the number of store calls.
fn check_store_calls(
    verdicts: &mut Verdicts,
    sharing: Sharing,
    all: &FleetResponses,
    store_calls: u64,
) {
    let (name, asked) = (sharing.name(), all.sent_all());
    let seen = format!(
        "{store_calls} for {asked} decisions, {}",
        part(store_calls * 1_000_000 / asked.max(1))
    );
    match sharing {
        Sharing::Exact => verdicts.promise(
            "exact: the store decides every request",
            store_calls >= asked,
            seen,
        ),
        _ => verdicts.promise(
            &format!("{name}: the store gets less than a quarter of the decisions"),
            store_calls * 4 < asked,
            seen,
        ),
    }
}

/// `kill -9` of the last of four that borrow.
fn kill(options: &TrialOptions, verdicts: &mut Verdicts, fleet: &Fleet<'_>) -> Result<()> {
    // Until nothing is leased any more: what passes from now on was granted from now on.
    sleep(TERM + TERM / 4);
    let overshoot = max_overshoot(&fleet.policy, Sharing::Lease)?;
    let loads = fleet.loads(options)?;
    sleep(options.span(800, 5_000));
    if let Some(victim) = fleet.services.last() {
        victim.kill();
    }
    let killed = loads.first().map(crate::load::Load::elapsed);
    let killed = killed.unwrap_or_default();
    let after = options.span(1_000, 5_000);
    sleep(TERM + after);
    let seen = end(loads)?;
    let others = seen.split_last().map_or(&[][..], |(_, others)| others);
    let missing: usize = others
        .iter()
        .map(|(_, s)| s.unanswered() + s.unexpected())
        .sum();
    let degraded: usize = others.iter().map(|(_, seen)| seen.degraded()).sum();
    verdicts.promise(
        "killed: the others answer every request, and with the store",
        missing == 0 && degraded == 0,
        format!("{missing} not answered, {degraded} without it"),
    );
    let all = total(&seen);
    let over = all.excess(ALLOWANCE);
    verdicts.promise(
        "killed: in all the time no key has more than its limit",
        over == 0,
        format!("at most {over} more"),
    );
    let over = all.excess_in_a_stretch(ALLOWANCE);
    verdicts.promise(
        &format!("killed: in no stretch of time has a key more than {overshoot} above its limit"),
        over <= overshoot,
        format!("at most {over}"),
    );
    let begin = killed + TERM;
    let passed = all.admitted_between(begin, begin + after);
    let earned = u128::from(ALLOWANCE.per_second) * KEYS as u128 * after.as_millis() / 1000;
    let earned = u64::try_from(earned).unwrap_or(u64::MAX);
    verdicts.promise_undisturbed(
        &format!(
            "killed: a term later the others use at least {LEAST_PERCENT} % of what is earned"
        ),
        passed * 100 >= earned * LEAST_PERCENT,
        format!("{passed} of {earned}"),
    );
    Ok(())
}

/// Leased units of a killed node can be used by the others a term later.
fn leases_expire(verdicts: &mut Verdicts, fleet: &Fleet<'_>) -> Result<()> {
    let Some((victim, others)) = fleet.services.split_last() else {
        return Err(Error::Invalid("a fleet without nodes".into()));
    };
    let calm = |cost| Client {
        key: "calm".into(),
        cost,
    };
    let (mut spent, mut leased) = (0, 0);
    // What is neither spent nor left is leased; refill meanwhile only lowers the number.
    for other in others.iter().cycle().take(BORROWED_WITHIN) {
        spent += u64::from(victim.check(&calm(1))?.admitted);
        let left = other.check(&calm(0))?.remaining.unwrap_or(SLOW.burst);
        leased = SLOW.burst.saturating_sub(spent + left);
        if leased > 0 && spent >= 20 {
            break;
        }
    }
    victim.kill();
    verdicts.promise(
        "killed: it really had leased units",
        leased > 0,
        format!("at least {leased}"),
    );
    sleep(TERM);
    let mut passed = 0;
    for service in others.iter().cycle().take(AT_ONCE) {
        passed += u64::from(service.check(&calm(1))?.admitted);
    }
    verdicts.promise(
        "killed: its leased units can be used by the others a term later",
        spent + passed >= SLOW.burst,
        format!(
            "{spent} passed there and {passed} then, the bucket holds {}",
            SLOW.burst
        ),
    );
    Ok(())
}

/// What may pass above the limit, as it is stated.
fn max_overshoot(policy: &TrialPolicy, sharing: Sharing) -> Result<u64> {
    let loaded = tollgate_config::parse("sharing.yaml", policy.text().as_bytes())
        .map_err(|problems| Error::Invalid(problems.to_string()))?;
    let limit = loaded.policy.limits.first();
    let limit = limit.ok_or_else(|| Error::Invalid("a policy without limits".into()))?;
    Ok(limit.quota.max_overshoot(sharing, NODES))
}

/// Millionths as hundredths.
fn part(millionths: u64) -> String {
    format!("{}.{:02} %", millionths / 10_000, millionths / 100 % 100)
}
