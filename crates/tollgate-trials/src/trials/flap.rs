//! The store comes and goes: there for half a second, away for half a second, by turns as a server that is gone
//! and as a network that swallows everything.

use std::time::Duration;

use super::Setting;
use super::worlds::{DEADLINE, little_too_much, usual_guests};
use crate::policy::{Policy, one_server};
use crate::service::Service;
use crate::verdicts::{Verdicts, time};
use tollgate_testkit::Result;
use tollgate_testkit::proxy::{Fault, Faults, Proxy};
use tollgate_testkit::servers::Server;
use tollgate_testkit::{now, sleep};

/// How long it is there, and how long it is away.
const HALF: Duration = Duration::from_millis(500);

pub(super) fn run(setting: &Setting, verdicts: &mut Verdicts) -> Result<()> {
    let store = Server::start(setting.kind, &[])?;
    let proxy = Proxy::start_seeded(store.port(), setting.seed)?;
    let service = Service::start(&Policy::on(one_server(proxy.port())))?;
    let guests = usual_guests();
    let crowd = setting.crowd(service.port(), guests.clone())?;
    let gone = Faults {
        refuse: true,
        ..Faults::none().and(Fault::Reset)
    };
    let mut ways = [gone, Faults::black_hole()].into_iter().cycle();
    let (start, span) = (now(), setting.span(4_000, 20_000));
    let mut times = 0_u32;
    while start.elapsed() < span {
        sleep(HALF);
        proxy.set(ways.next().unwrap_or_default())?;
        sleep(HALF);
        proxy.set(Faults::none())?;
        times += 1;
    }
    let steady = crowd.elapsed();
    // Not within a second: who comes and goes is left alone for up to two.
    let back = crowd.back_after(steady, DEADLINE);
    verdicts.promise(
        "the store is used again when it stays",
        back.is_some(),
        back.map_or("never".into(), time),
    );
    let seen = crowd.end()?;
    verdicts.all_answered(&seen);
    verdicts.in_time(&seen);
    little_too_much(verdicts, &seen, &guests, 1);
    verdicts.figures_of(&seen);
    verdicts.figure("times away", times);
    Ok(())
}
