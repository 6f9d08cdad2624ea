//! A network that drops, delays, cuts, duplicates and loses.
//!
//! Black holes first, both ways and one way: the connection is open and no byte arrives. Then all other faults, one
//! after the other, each followed by a time without faults in which the store has to be used again. Half of the clients
//! are tagged, so that an answer to another request shows. At the end each tagged client sends one more request, and the
//! count of the store is compared with what the client sent and what passed.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::TrialOptions;
use super::common::{DEADLINE, Promises, TAGGED, mixed_clients};
use crate::load::{Client, Load, Responses};
use crate::policy::{TAG, TrialPolicy, capacity, one_server, tagged};
use crate::service::Service;
use crate::verdicts::{SOON, Verdicts, time};
use tollgate_testkit::Result;
use tollgate_testkit::proxy::{Fault, Faults, Link, Proxy, Slices, Then};
use tollgate_testkit::servers::Server;
use tollgate_testkit::{now, sleep};

/// Time between two injected faults.
const INJECT_EVERY: Duration = Duration::from_millis(40);
/// The time without faults before each case. The breaker stays open longer, on purpose, for a server that fails within a
/// second of its return, and then the next fault would hit no request.
const SETTLED: Duration = Duration::from_millis(1_100);
/// Time between two reads of the metrics.
const POLL_EVERY: Duration = Duration::from_millis(20);

/// A fault that lasts, and one that is injected again and again.
struct FaultCase {
    name: &'static str,
    faults: Faults,
    inject: Option<Fault>,
}

/// The result of a case.
struct FaultResult {
    name: &'static str,
    from: Duration,
    until: Duration,
    /// How long until the store was used again.
    back: Option<Duration>,
    /// How long until the breaker opened, for a black hole.
    abandoned: Option<Option<Duration>>,
    /// How many injected faults took effect, if they wait for traffic.
    injected: Option<u64>,
}

pub(super) fn run(options: &TrialOptions, verdicts: &mut Verdicts) -> Result<()> {
    let store = Server::start(options.kind, &[])?;
    let proxy = Proxy::start_seeded(store.port(), options.seed)?;
    let policy = TrialPolicy::on(one_server(proxy.port())).tag(&tagged(TAGGED));
    let service = Service::start(&policy)?;
    let clients = mixed_clients();
    let load = options.load(service.port(), clients.clone())?;
    let mut results = Vec::new();
    for case in holes().into_iter().chain(all_kinds()) {
        sleep(SETTLED);
        results.push(run_case(options, &service, &proxy, &load, case)?);
    }
    let responses = load.end()?;
    for result in &results {
        report(verdicts, result, &responses);
    }
    let promises = Promises::in_time().with_bursts(0).with_tags();
    promises.check(verdicts, &responses, &clients);
    all_charged(verdicts, &service, &responses, &clients)?;
    verdicts.figure("connections to the store", proxy.observed().connections);
    Ok(())
}

/// Runs one case, and waits until the store is used again.
fn run_case(
    options: &TrialOptions,
    service: &Service,
    proxy: &Proxy,
    load: &Load,
    case: FaultCase,
) -> Result<FaultResult> {
    let broken = service.metric("tollgate_store_breaker_opens_total")?;
    let injected = proxy.observed().injected;
    let is_hole = case.faults.to_client.black_hole;
    proxy.set(case.faults)?;
    let (began, from) = (now(), load.elapsed());
    let mut abandoned = None;
    if is_hole {
        abandoned = Some(is_abandoned(service, broken)?.then(|| began.elapsed()));
    }
    while began.elapsed() < options.span(500, 3_000) {
        if let Some(fault) = case.inject {
            proxy.inject(fault);
        }
        sleep(INJECT_EVERY);
    }
    let waits = case.inject.filter(|fault| *fault != Fault::Reset);
    let injected = waits.map(|_| proxy.observed().injected.saturating_sub(injected));
    proxy.set(Faults::none())?;
    let until = load.elapsed();
    Ok(FaultResult {
        name: case.name,
        from,
        until,
        back: load.recovered_after(until, DEADLINE),
        abandoned,
        injected,
    })
}

/// Reports one case and checks its promises.
fn report(verdicts: &mut Verdicts, result: &FaultResult, responses: &Responses) {
    let FaultResult { name, back, .. } = result;
    let during = responses.between(result.from, result.until);
    let degraded = during.degraded();
    let mut did = format!("{degraded} of {} decided without the store", during.len());
    if let Some(injected) = result.injected {
        did.push_str(&format!(", injected {injected} times"));
    }
    let happened = result.injected.unwrap_or(1) > 0;
    verdicts.promise(
        &format!("{name}: it is survived, and the store is used again"),
        happened && back.is_some(),
        format!("after {}; {did}", back.map_or("never".into(), time)),
    );
    if let Some(abandoned) = result.abandoned {
        let promised = |what: &str| format!("{name}: {what} within {}", time(SOON));
        verdicts.promise_time(&promised("the store is abandoned"), SOON, abandoned);
        verdicts.promise_time(&promised("the store is used again"), SOON, *back);
    }
}

fn holes() -> [FaultCase; 2] {
    let hole = |name, faults| FaultCase {
        name,
        faults,
        inject: None,
    };
    let one_way = Faults {
        to_client: Link::black_hole(),
        ..Faults::none()
    };
    [
        hole("a black hole both ways", Faults::black_hole()),
        hole("a black hole for answers", one_way),
    ]
}

fn all_kinds() -> Vec<FaultCase> {
    let ms = Duration::from_millis;
    let faults = |name, lane| FaultCase {
        name,
        faults: Faults::both(lane),
        inject: None,
    };
    let inject = |name, inject| FaultCase {
        name,
        faults: Faults::none(),
        inject: Some(inject),
    };
    let jitter = Link {
        jitter: ms(20),
        ..Link::default()
    };
    let slices = Link {
        slices: Some(Slices {
            bytes: NonZeroUsize::MIN.saturating_add(12),
            pause: Duration::from_micros(200),
        }),
        ..Link::default()
    };
    let truncate = |then| Fault::TruncateReply { bytes: 3, then };
    vec![
        faults("latency above the deadline", Link::latency(ms(20))),
        faults("jitter", jitter),
        faults("tiny pieces", slices),
        inject("resets", Fault::Reset),
        inject("resets within replies", Fault::ResetAfter { bytes: 100 }),
        inject("duplicated replies", Fault::DuplicateReply),
        inject("replies cut off and closed", truncate(Then::Close)),
        inject("replies cut off and stalled", truncate(Then::Stall)),
        inject("lost replies", Fault::DropReply),
    ]
}

/// Whether the breaker opened since it had opened `before` times.
fn is_abandoned(service: &Service, before: u64) -> Result<bool> {
    let start = now();
    while start.elapsed() < SOON * 3 {
        if service.metric("tollgate_store_breaker_opens_total")? > before {
            return Ok(true);
        }
        sleep(POLL_EVERY);
    }
    Ok(false)
}

/// Promises that the count of the store lies between what passed and what may have reached it: each request once, and
/// once more what was admitted without an answer, because it may have been charged before.
fn all_charged(
    verdicts: &mut Verdicts,
    service: &Service,
    responses: &Responses,
    clients: &[Client],
) -> Result<()> {
    let (mut more, mut less, mut worst) = (0_u32, 0_u32, None);
    let (mut most_all, mut passed_all, mut counted_all) = (0, 0, 0);
    let number_of = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    for (place, client) in clients
        .iter()
        .enumerate()
        .take_while(|(_, g)| g.cost == TAG)
    {
        // One more, without faults: with it the service reports its debt.
        let last = service.check(client)?;
        let (sent, passed) = responses.of_client(place);
        let degraded = responses.count(|r| r.client == place && r.degraded && r.admitted);
        let most = sent + 1 + number_of(degraded);
        let passed = passed + u64::from(last.admitted);
        let left = last.remaining.unwrap_or_default();
        let counted = capacity(number_of(place)).saturating_sub(left) / TAG;
        most_all += most;
        passed_all += passed;
        counted_all += counted;
        more += u32::from(counted > most);
        less += u32::from(counted < passed);
        worst = worst.max(Some((counted.saturating_sub(most), counted, most)));
    }
    verdicts.figure("tagged: passed", passed_all);
    verdicts.figure("tagged: charged at most", most_all);
    verdicts.figure("tagged: charged in the store", counted_all);
    let (_, counted, most) = worst.unwrap_or_default();
    verdicts.promise(
        "no request is charged more than once if it was answered, twice if it was not",
        more == 0,
        format!("{more} keys are; at worst {counted} times instead of at most {most}"),
    );
    verdicts.promise(
        "everything that passed is charged in the end",
        less == 0,
        format!("{less} keys passed more than they were charged"),
    );
    Ok(())
}
