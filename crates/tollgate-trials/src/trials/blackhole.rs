//! A network that swallows, delays, cuts, repeats and loses.
//!
//! Black holes first, both ways and one way: the connection is open and nothing comes. Then all the sleep, one
//! after the other, each followed by a clear sky in which the store has to be used again. Half of the guests are
//! marked, so that an answer that was meant for another would show; at the end each of them is asked about once
//! more, and what the store counted for it is compared with what it sent and what passed.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::Setting;
use super::worlds::{DEADLINE, MARKED, little_too_much, mixed_guests, none_crossed};
use crate::crowd::{Crowd, Guest, Seen};
use crate::policy::{MARK, Policy, capacity, marked, one_server};
use crate::service::Service;
use crate::verdicts::{SOON, Verdicts, time};
use tollgate_testkit::Result;
use tollgate_testkit::proxy::{Fault, Faults, Link, Proxy, Slices, Then};
use tollgate_testkit::servers::Server;
use tollgate_testkit::{now, sleep};

/// How often something strikes.
const STRIKE_EVERY: Duration = Duration::from_millis(40);
/// A clear sky of this length lies before each weather: a server that fails within a second of its return is left alone
/// for longer, on purpose, and then the next weather would meet nobody.
const SETTLED: Duration = Duration::from_millis(1_100);
/// How long to rest between two looks at the metrics.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Bad weather: what holds, and what strikes again and again.
struct Bad {
    name: &'static str,
    weather: Faults,
    strike: Option<Fault>,
}

/// A weather that is over.
struct Past {
    name: &'static str,
    from: Duration,
    until: Duration,
    /// How long afterwards the store was used again.
    back: Option<Duration>,
    /// How long until it was given up, of a black hole.
    abandoned: Option<Option<Duration>>,
    /// How many strikes hit, if they waited for something.
    injected: Option<u64>,
}

pub(super) fn run(setting: &Setting, verdicts: &mut Verdicts) -> Result<()> {
    let store = Server::start(setting.kind, &[])?;
    let proxy = Proxy::start_seeded(store.port(), setting.seed)?;
    let policy = Policy::on(one_server(proxy.port())).mark(&marked(MARKED));
    let service = Service::start(&policy)?;
    let guests = mixed_guests();
    let crowd = setting.crowd(service.port(), guests.clone())?;
    let mut past = Vec::new();
    for bad in holes().into_iter().chain(all_kinds()) {
        sleep(SETTLED);
        past.push(suffer(setting, &service, &proxy, &crowd, bad)?);
    }
    let seen = crowd.end()?;
    for past in &past {
        tell(verdicts, past, &seen);
    }
    verdicts.all_answered(&seen);
    verdicts.in_time(&seen);
    none_crossed(verdicts, &seen);
    little_too_much(verdicts, &seen, &guests, 0);
    all_charged(verdicts, &service, &seen, &guests)?;
    verdicts.figures_of(&seen);
    verdicts.figure("connections to the store", proxy.observed().connections);
    Ok(())
}

/// Lets one weather pass, and waits until the store is used again.
fn suffer(
    setting: &Setting,
    service: &Service,
    proxy: &Proxy,
    crowd: &Crowd,
    bad: Bad,
) -> Result<Past> {
    let broken = service.metric("tollgate_store_breaker_opens_total")?;
    let injected = proxy.observed().injected;
    let is_hole = bad.weather.to_client.black_hole;
    proxy.set(bad.weather)?;
    let (began, from) = (now(), crowd.elapsed());
    let mut abandoned = None;
    if is_hole {
        abandoned = Some(is_abandoned(service, broken)?.then(|| began.elapsed()));
    }
    while began.elapsed() < setting.span(500, 3_000) {
        if let Some(strike) = bad.strike {
            proxy.inject(strike);
        }
        sleep(STRIKE_EVERY);
    }
    let waits = bad.strike.filter(|strike| *strike != Fault::Reset);
    let injected = waits.map(|_| proxy.observed().injected.saturating_sub(injected));
    proxy.set(Faults::none())?;
    let until = crowd.elapsed();
    Ok(Past {
        name: bad.name,
        from,
        until,
        back: crowd.back_after(until, DEADLINE),
        abandoned,
        injected,
    })
}

/// Tells what one weather did, and whether what was promised for it is kept.
fn tell(verdicts: &mut Verdicts, past: &Past, seen: &Seen) {
    let Past { name, back, .. } = past;
    let during = seen.between(past.from, past.until);
    let alone = during.degraded();
    let mut did = format!("{alone} of {} decided without the store", during.len());
    if let Some(injected) = past.injected {
        did.push_str(&format!(", injected {injected} times"));
    }
    let happened = past.injected.unwrap_or(1) > 0;
    verdicts.promise(
        &format!("{name}: it is weathered, and the store is used again"),
        happened && back.is_some(),
        format!("after {}; {did}", back.map_or("never".into(), time)),
    );
    if let Some(abandoned) = past.abandoned {
        let promised = |what: &str| format!("{name}: {what} within {}", time(SOON));
        verdicts.promise_time(&promised("it is given up"), SOON, abandoned);
        verdicts.promise_time(&promised("the store is used again"), SOON, *back);
    }
}

fn holes() -> [Bad; 2] {
    let hole = |name, weather| Bad {
        name,
        weather,
        strike: None,
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

fn all_kinds() -> Vec<Bad> {
    let ms = Duration::from_millis;
    let weather = |name, lane| Bad {
        name,
        weather: Faults::both(lane),
        strike: None,
    };
    let strike = |name, strike| Bad {
        name,
        weather: Faults::none(),
        strike: Some(strike),
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
        weather("latency above the deadline", Link::latency(ms(20))),
        weather("jitter", jitter),
        weather("tiny pieces", slices),
        strike("resets", Fault::Reset),
        strike("resets within replies", Fault::ResetAfter { bytes: 100 }),
        strike("replies that come twice", Fault::DuplicateReply),
        strike("replies cut off and closed", truncate(Then::Close)),
        strike("replies cut off and nothing more", truncate(Then::Stall)),
        strike("replies that never come", Fault::DropReply),
    ]
}

/// Whether the service gave the store up since it had done so `before` times.
fn is_abandoned(service: &Service, before: u64) -> Result<bool> {
    let start = now();
    while start.elapsed() < SOON * 3 {
        if service.metric("tollgate_store_breaker_opens_total")? > before {
            return Ok(true);
        }
        sleep(LOOK_EVERY);
    }
    Ok(false)
}

/// Promises that what the store counted lies between what passed and what it may have heard of: each request once,
/// and once more what was let pass without an answer, because nobody knows whether it had been charged.
fn all_charged(
    verdicts: &mut Verdicts,
    service: &Service,
    seen: &Seen,
    guests: &[Guest],
) -> Result<()> {
    let (mut more, mut less, mut worst) = (0_u32, 0_u32, None);
    let (mut most_all, mut passed_all, mut counted_all) = (0, 0, 0);
    let number_of = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    for (place, guest) in guests
        .iter()
        .enumerate()
        .take_while(|(_, g)| g.cost == MARK)
    {
        // One more, on a clear sky: with it the store is told what it missed.
        let told = service.check(guest)?;
        let (sent, passed) = seen.of_guest(place);
        let alone = seen.count(|r| r.guest == place && r.degraded && r.admitted);
        let most = sent + 1 + number_of(alone);
        let passed = passed + u64::from(told.admitted);
        let left = told.remaining.unwrap_or_default();
        let counted = capacity(number_of(place)).saturating_sub(left) / MARK;
        most_all += most;
        passed_all += passed;
        counted_all += counted;
        more += u32::from(counted > most);
        less += u32::from(counted < passed);
        worst = worst.max(Some((counted.saturating_sub(most), counted, most)));
    }
    verdicts.figure("marked: passed", passed_all);
    verdicts.figure("marked: charged at most", most_all);
    verdicts.figure("marked: charged in the store", counted_all);
    let (_, counted, most) = worst.unwrap_or_default();
    verdicts.promise(
        "nobody is charged more than once for what was answered, twice for what was not",
        more == 0,
        format!("{more} keys are; at worst {counted} times instead of at most {most}"),
    );
    verdicts.promise(
        "whatever passed is charged in the end",
        less == 0,
        format!("{less} keys passed more than they were charged"),
    );
    Ok(())
}
