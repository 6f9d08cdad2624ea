//! The store stands still: its connections stay open and nothing is answered. Then it goes on, and answers all
//! that was asked meanwhile, when nobody waits for it any more.

use std::time::Duration;

use super::Setting;
use super::worlds::{MARKED, back_soon, little_too_much, mixed_guests, none_crossed};
use crate::policy::{Policy, marked, one_server};
use crate::service::Service;
use crate::verdicts::Verdicts;
use tollgate_testkit::Result;
use tollgate_testkit::servers::Server;
use tollgate_testkit::sleep;

pub(super) fn run(setting: &Setting, verdicts: &mut Verdicts) -> Result<()> {
    let store = Server::start(setting.kind, &[])?;
    let policy = Policy::on(one_server(store.port())).mark(&marked(MARKED));
    let service = Service::start(&policy)?;
    let guests = mixed_guests();
    let crowd = setting.crowd(service.port(), guests.clone())?;
    sleep(Duration::from_secs(setting.either(1, 3)));
    store.freeze()?;
    sleep(setting.span(1_500, 10_000));
    store.thaw()?;
    let thawed = crowd.elapsed();
    back_soon(verdicts, &crowd, thawed, "after it goes on");
    sleep(Duration::from_millis(500));
    let seen = crowd.end()?;
    verdicts.all_answered(&seen);
    verdicts.in_time(&seen);
    none_crossed(verdicts, &seen);
    little_too_much(verdicts, &seen, &guests, 1);
    verdicts.figures_of(&seen);
    Ok(())
}
