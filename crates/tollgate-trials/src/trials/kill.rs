//! `kill -9` of the primary while sentinels watch.
//!
//! Until they have chosen another one, the service decides alone, with its share of every limit. What the old
//! primary had not told its replicas is lost with it: one burst of each key at most.

use super::Setting;
use super::worlds::{DEADLINE, back_soon, little_too_much, usual_guests};
use crate::policy::{Policy, behind_sentinels};
use crate::service::Service;
use crate::verdicts::{Verdicts, time};
use tollgate_testkit::Result;
use tollgate_testkit::servers::{HOST, Sentinels};
use tollgate_testkit::sleep;

/// After how much silence a sentinel calls a server dead.
const DOWN_AFTER_MS: u32 = 1_500;

pub(super) fn run(setting: &Setting, verdicts: &mut Verdicts) -> Result<()> {
    let world = Sentinels::start(setting.kind, 2, 3, DOWN_AFTER_MS)?;
    let service = Service::start(&Policy::on(behind_sentinels(&world)))?;
    let guests = usual_guests();
    let crowd = setting.crowd(service.port(), guests.clone())?;
    sleep(setting.span(1_000, 5_000));
    let killed = crowd.elapsed();
    let old = world.kill_primary()?;
    world.wait_for_another_primary(old, DEADLINE)?;
    let switched = crowd.elapsed();
    back_soon(verdicts, &crowd, switched, "after the sentinels switched");
    sleep(setting.span(500, 5_000));
    let new = world.primary()?.port();
    let is_up = service.metric(&format!("tollgate_store_up{{server=\"{HOST}:{new}\"}}"))?;
    let seen = crowd.end()?;
    verdicts.promise(
        "it is the new primary that is asked",
        is_up == 1,
        format!(
            "that at port {new} {}",
            if is_up == 1 { "is" } else { "is not" }
        ),
    );
    verdicts.all_answered(&seen);
    verdicts.in_time(&seen);
    little_too_much(verdicts, &seen, &guests, 1);
    verdicts.figures_of(&seen);
    verdicts.figure("from the kill to the switch", time(switched - killed));
    Ok(())
}
