//! Compares the clocks once a second, so that calendar periods follow the wall clock.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tollgate::MonotonicClock;

use super::Engine;

/// Interval of comparisons of the clocks.
const COMPARE_EVERY: Duration = Duration::from_secs(1);

/// Has the periods of calendars follow the wall clock, until `stop`.
pub(crate) async fn follow_wall_clock(engine: Arc<Engine>, stop: impl Future<Output = ()>) {
    let mut tick = tokio::time::interval(COMPARE_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => return,
            _ = tick.tick() => {}
        }
        let engine = Arc::clone(&engine);
        // It may have to wait for a reload.
        let _ = tokio::task::spawn_blocking(move || engine.follow_wall_clock()).await;
    }
}

impl Engine {
    fn follow_wall_clock(&self) {
        // Not while a policy is replaced: the next one takes over what this one follows.
        let _in_order = self.state();
        let active = self.active_owned();
        if let Some(ahead) = active.gate.follow_wall_clock(MonotonicClock::wall_clock()) {
            tracing::warn!(
                target: "tollgate_policy",
                seconds = ahead / 1_000_000_000,
                "wall clock stepped: calendars follow it, and each key has the allowance of its present period"
            );
        }
    }
}
