//! A limit on trial: are the script's answers right, and in time?

use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;
use tollgate::{Limit, LimitId, Rate, Span};
use tollgate_policy::Quota;
use tollgate_policy::shared::{KeyKind, SharedCharge, SharedKey, SharedLimit, SharedRequest};

use super::patient::Patient;
use super::{Findings, STEP};
use crate::call::Which;
use crate::limits::Limits;
use crate::link::rise;
use crate::script::Scripts;

/// How often the script is timed.
const TIMES: usize = 200;
/// And for how long at the most.
const WITHIN: Duration = Duration::from_secs(5);

/// Charges a limit of two three times, and then asks it often.
pub(super) async fn run(
    patient: &Patient<'_>,
    connection: &mut MultiplexedConnection,
    findings: &mut Findings,
) {
    let at = &patient.address;
    let prefix = format!("{}:doctor", patient.access.settings.prefix);
    let Some(limits) = limit_of_two(&prefix) else {
        return;
    };
    let mut key = SharedKey::new(KeyKind::Own);
    key.push(patient.tag().as_bytes());
    let request = |take| SharedRequest {
        take,
        waited: tollgate::Span::ZERO,
        charges: vec![SharedCharge {
            limit: LimitId::at(0),
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
        match ask(&limits, &request(true), &scripts, connection).await {
            Ok(passes) => passed.push(passes),
            Err(words) => {
                findings.error(
                    "script",
                    format!("{at}: {words}"),
                    "the server must run Lua scripts as Redis does",
                );
                return;
            }
        }
    }
    if passed == [true, true, false] {
        findings.ok("script", format!("{at}: a limit of two lets two pass"));
    } else {
        findings.error(
            "script",
            format!("{at}: of three charges on a limit of two, {passed:?} passed"),
            "the server must run Lua scripts as Redis does",
        );
        return;
    }
    for which in Which::ALL {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(scripts.text(which));
        if let Err(low) = rise::ask(connection, &load, STEP).await {
            findings.low("script", at, &low);
            return;
        }
    }
    let mut took = Vec::with_capacity(TIMES);
    let since = Instant::now();
    while took.len() < TIMES && since.elapsed() < WITHIN {
        let asked = Instant::now();
        if ask(&limits, &request(false), &scripts, connection)
            .await
            .is_err()
        {
            break;
        }
        took.push(asked.elapsed());
    }
    took.sort_unstable();
    let at_rank = |percent: usize| {
        took.get((took.len() * percent / 100).min(took.len().saturating_sub(1)))
            .copied()
    };
    let (Some(middle), Some(late)) = (at_rank(50), at_rank(99)) else {
        findings.error(
            "latency",
            format!("{at} stopped answering"),
            "see the log of the server",
        );
        return;
    };
    let deadline = patient.access.settings.deadline;
    let words = format!(
        "{at}: a decision takes {} us, and {} us at the 99th percentile; the deadline is {} us",
        middle.as_micros(),
        late.as_micros(),
        deadline.as_micros()
    );
    if late * 2 <= deadline {
        findings.ok("latency", words);
    } else if middle <= deadline {
        findings.warning(
            "latency",
            words,
            "some decisions will be late: bring the server nearer, or raise the deadline",
        );
    } else {
        findings.error(
            "latency",
            words,
            "most decisions will be late: bring the server nearer, or raise the deadline",
        );
    }
}

/// Nothing is earned while it is looked at, and it is forgotten soon after.
fn limit_of_two(prefix: &str) -> Option<Limits> {
    let rate = Rate::new(2, Span::from_secs(60)).ok()?;
    let quota = Quota::plain(Limit::token_bucket(rate, 2).ok()?);
    let limit = SharedLimit {
        id: "trial",
        quota: &quota,
        before: &[],
        plain: true,
    };
    Limits::new(prefix, &[limit]).ok()
}

async fn ask(
    limits: &Limits,
    request: &SharedRequest,
    scripts: &Scripts,
    connection: &mut MultiplexedConnection,
) -> Result<bool, String> {
    let groups = limits.groups(request, true);
    let group = groups.first().ok_or("no call was made")?;
    let mut last = Value::Nil;
    for call in &group.calls {
        // What is charged teaches the server the script; what is only asked is timed as decisions are.
        let mut eval = redis::cmd(if request.take { "EVAL" } else { "EVALSHA" });
        eval.arg(if request.take {
            scripts.text(call.script)
        } else {
            scripts.sha(call.script)
        });
        eval.arg(call.keys.len());
        for key in call.keys.iter() {
            eval.arg(key);
        }
        eval.arg(1);
        for arg in call.args.iter() {
            eval.arg(arg);
        }
        last = rise::ask(connection, &eval, STEP)
            .await
            .map_err(|low| low.to_string())?;
    }
    let ruling = limits
        .read(request, group, std::slice::from_ref(&last))
        .map_err(|garbled| garbled.to_string())?;
    if ruling.disagrees {
        return Err("its arithmetic does not agree with ours".into());
    }
    Ok(ruling
        .outcomes
        .iter()
        .all(|outcome| outcome.verdict.is_admitted()))
}
