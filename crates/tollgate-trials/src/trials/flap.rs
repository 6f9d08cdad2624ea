//! The store comes and goes: there for half a second, away for half a second, by turns as a server that is gone
//! and as a network that swallows everything.

use std::time::Duration;

use super::Setting;
use super::worlds::{PATIENCE, little_too_much, usual_guests};
use crate::patience::{now, rest};
use crate::policy::{Policy, one_server};
use crate::proxy::{Proxy, Strike, Weather};
use crate::servers::Server;
use crate::service::Service;
use crate::trouble::Outcome;
use crate::verdicts::{Verdicts, time};

/// How long it is there, and how long it is away.
const HALF: Duration = Duration::from_millis(500);

pub(super) fn run(setting: &Setting, verdicts: &mut Verdicts) -> Outcome<()> {
    let store = Server::start(setting.kind, &[])?;
    let proxy = Proxy::start_seeded(store.port(), setting.seed)?;
    let service = Service::start(&Policy::on(one_server(proxy.port())))?;
    let guests = usual_guests();
    let crowd = setting.crowd(service.port(), guests.clone())?;
    let gone = Weather {
        refuse: true,
        ..Weather::clear().and(Strike::Reset)
    };
    let mut ways = [gone, Weather::black_hole()].into_iter().cycle();
    let (start, span) = (now(), setting.span(4_000, 20_000));
    let mut times = 0_u32;
    while start.elapsed() < span {
        rest(HALF);
        proxy.set(ways.next().unwrap_or_default())?;
        rest(HALF);
        proxy.set(Weather::clear())?;
        times += 1;
    }
    let steady = crowd.elapsed();
    // Not within a second: who comes and goes is left alone for up to two.
    let back = crowd.back_after(steady, PATIENCE);
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
