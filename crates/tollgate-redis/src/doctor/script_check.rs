//! Checks the decisions of the scripts, and their latency.

use std::time::Duration;

use redis::Value;
use tokio::time::Instant;
use tollgate::{Limit, LimitId, Rate, Span};
use tollgate_policy::Quota;
use tollgate_policy::shared::{KeyKind, SharedCharge, SharedKey, SharedLimit, SharedRequest};

use super::probe::ServerProbe;
use crate::limits::LimitSet;
use crate::script::Scripts;
use crate::script_call::ScriptName;

/// Decisions that are timed.
const DECISIONS: usize = 200;
/// Bound of the time for them.
const TIME_MAX: Duration = Duration::from_secs(5);

impl ServerProbe<'_> {
    /// Charges a limit of two three times, and then times peeks at it.
    pub(super) async fn check_script(&mut self) {
        let hint = "the server must run Lua scripts like Redis";
        let Some(limits) = limit_of_two(&format!("{}:doctor", self.connector.settings.prefix))
        else {
            return;
        };
        let mut key = SharedKey::new(KeyKind::Own);
        key.push(self.tag().as_bytes());
        let request = |take| SharedRequest {
            take,
            waited: Span::ZERO,
            charges: vec![SharedCharge {
                limit: LimitId::new(0),
                key: key.clone(),
                cost: 1,
                most: None,
                enforced: true,
                with_next: false,
                owed: 0,
            }],
        };
        let scripts = Scripts::new();
        let mut passed = Vec::new();
        for _ in 0..3 {
            match self.decide(&limits, &request(true), &scripts).await {
                Ok(passes) => passed.push(passes),
                Err(message) => {
                    self.findings.error("script", message, hint);
                    return;
                }
            }
        }
        if passed != [true, true, false] {
            let message = format!("of three charges on a limit of two, {passed:?} passed");
            self.findings.error("script", message, hint);
            return;
        }
        self.findings.ok("script", "a limit of two admits two");
        for name in ScriptName::ALL {
            let load = super::command(&["SCRIPT", "LOAD", scripts.text(name)]);
            if let Err(reason) = self.query(&load).await {
                self.findings.down("script", &reason);
                return;
            }
        }
        let mut times = Vec::with_capacity(DECISIONS);
        let start = Instant::now();
        while times.len() < DECISIONS && start.elapsed() < TIME_MAX {
            let begin = Instant::now();
            let decided = self.decide(&limits, &request(false), &scripts).await;
            if decided.is_err() {
                break;
            }
            times.push(begin.elapsed());
        }
        self.report_latency(times);
    }

    fn report_latency(&mut self, mut times: Vec<Duration>) {
        times.sort_unstable();
        let last = times.len().saturating_sub(1);
        let percentile = |percent: usize| times.get((times.len() * percent / 100).min(last));
        let (Some(&median), Some(&p99)) = (percentile(50), percentile(99)) else {
            let hint = "see the log of the server";
            self.findings.error("latency", "it stopped replying", hint);
            return;
        };
        let deadline = self.connector.settings.deadline;
        let message = format!(
            "median latency of a decision {} us, 99th percentile {} us; the deadline is {} us",
            median.as_micros(),
            p99.as_micros(),
            deadline.as_micros()
        );
        if p99 * 2 <= deadline {
            self.findings.ok("latency", message);
        } else if median <= deadline {
            let hint = "some decisions will be late: move the server nearer, or raise the deadline";
            self.findings.warning("latency", message, hint);
        } else {
            let hint = "most decisions will be late: move the server nearer, or raise the deadline";
            self.findings.error("latency", message, hint);
        }
    }

    /// Whether the request passes.
    async fn decide(
        &mut self,
        limits: &LimitSet,
        request: &SharedRequest,
        scripts: &Scripts,
    ) -> Result<bool, String> {
        let groups = limits.groups(request, true);
        let group = groups.first().ok_or("there is no call")?;
        let mut reply = Value::Nil;
        for call in &group.calls {
            // A charge sends the text of the script; a peek is timed like a decision.
            let command = call.command(scripts, 1, request.take);
            let replied = self.query(&command).await;
            reply = replied.map_err(|reason| reason.to_string())?;
        }
        let reply = limits.read(request, group, std::slice::from_ref(&reply));
        let reply = reply.map_err(|error| error.to_string())?;
        if reply.disagrees {
            return Err("the script and this node decide differently".into());
        }
        let mut outcomes = reply.outcomes.iter();
        Ok(outcomes.all(|outcome| outcome.verdict.is_admitted()))
    }
}

/// A limit that earns nothing during the check and expires soon after.
fn limit_of_two(prefix: &str) -> Option<LimitSet> {
    let rate = Rate::new(2, Span::from_secs(60)).ok()?;
    let quota = Quota::plain(Limit::token_bucket(rate, 2).ok()?);
    let limit = SharedLimit {
        id: "trial",
        quota: &quota,
        before: &[],
        plain: true,
    };
    LimitSet::new(prefix, &[limit]).ok()
}
