//! The store is killed and comes back with nothing in it. The service knows what it let pass itself, so what is
//! forgotten is one burst of each key at most.

use std::time::Duration;

use super::Setting;
use super::worlds::{back_soon, little_too_much, usual_guests};
use crate::patience::rest;
use crate::policy::{Policy, one_server};
use crate::servers::Server;
use crate::service::Service;
use crate::trouble::Outcome;
use crate::verdicts::Verdicts;

pub(super) fn run(setting: &Setting, verdicts: &mut Verdicts) -> Outcome<()> {
    let store = Server::start(setting.kind, &[])?;
    let service = Service::start(&Policy::on(one_server(store.port())))?;
    let guests = usual_guests();
    let crowd = setting.crowd(service.port(), guests.clone())?;
    rest(setting.span(1_500, 5_000));
    store.kill9();
    rest(Duration::from_millis(500));
    store.restart()?;
    let started = crowd.elapsed();
    back_soon(verdicts, &crowd, started, "after it is there again");
    rest(setting.span(1_000, 5_000));
    let seen = crowd.end()?;
    verdicts.all_answered(&seen);
    verdicts.in_time(&seen);
    little_too_much(verdicts, &seen, &guests, 1);
    verdicts.figures_of(&seen);
    Ok(())
}
