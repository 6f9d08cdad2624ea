//! `SCRIPT FLUSH`, a hundred times a second: the server forgets the scripts, and nobody notices.

use std::time::Duration;

use super::Setting;
use super::worlds::usual_guests;
use crate::policy::{PATIENT, Policy, one_server};
use crate::service::Service;
use crate::verdicts::Verdicts;
use tollgate_testkit::Result;
use tollgate_testkit::servers::Server;
use tollgate_testkit::{now, sleep};

/// How long between two flushes.
const EVERY: Duration = Duration::from_millis(10);

pub(super) fn run(setting: &Setting, verdicts: &mut Verdicts) -> Result<()> {
    let store = Server::start(setting.kind, &[])?;
    let policy = Policy::on(one_server(store.port())).deadline(PATIENT);
    let service = Service::start(&policy)?;
    let crowd = setting.crowd(service.port(), usual_guests())?;
    let (start, span) = (now(), setting.span(3_000, 20_000));
    let mut flushes: u32 = 0;
    while start.elapsed() < span {
        store.ask(&["SCRIPT", "FLUSH"])?;
        flushes += 1;
        sleep((EVERY * flushes).saturating_sub(start.elapsed()));
    }
    let seen = crowd.end()?;
    let reloaded = service.metric("tollgate_store_script_reloads_total")?;
    let errors = service.metric("tollgate_store_script_errors_total")?;
    verdicts.all_answered(&seen);
    let degraded = seen.degraded();
    verdicts.promise(
        "no request is decided without the store",
        degraded == 0,
        format!("{degraded} are"),
    );
    verdicts.promise("no script fails", errors == 0, format!("{errors} do"));
    verdicts.promise(
        "the scripts were really forgotten",
        reloaded > 0,
        format!("sent again {reloaded} times"),
    );
    verdicts.figures_of(&seen);
    verdicts.figure("flushes", flushes);
    Ok(())
}
