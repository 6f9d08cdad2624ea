//! The store is killed and comes back with nothing in it. The service knows what it let pass itself, so what is
//! forgotten is one burst of each key at most.

use std::time::Duration;

use super::Setting;
use super::worlds::{back_soon, little_too_much, usual_guests};
use crate::policy::{Policy, one_server};
use crate::service::Service;
use crate::verdicts::Verdicts;
use tollgate_testkit::Result;
use tollgate_testkit::servers::Server;
use tollgate_testkit::sleep;

pub(super) fn run(setting: &Setting, verdicts: &mut Verdicts) -> Result<()> {
    let store = Server::start(setting.kind, &[])?;
    let service = Service::start(&Policy::on(one_server(store.port())))?;
    let guests = usual_guests();
    let crowd = setting.crowd(service.port(), guests.clone())?;
    sleep(setting.span(1_500, 5_000));
    store.kill();
    sleep(Duration::from_millis(500));
    store.restart()?;
    let started = crowd.elapsed();
    back_soon(verdicts, &crowd, started, "after it is there again");
    sleep(setting.span(1_000, 5_000));
    let seen = crowd.end()?;
    verdicts.all_answered(&seen);
    verdicts.in_time(&seen);
    little_too_much(verdicts, &seen, &guests, 1);
    verdicts.figures_of(&seen);
    Ok(())
}
