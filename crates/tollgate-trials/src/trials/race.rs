//! Eight nodes charge the same keys at once through the store's own crate. Each node has a thread, a runtime and
//! connections of its own; the nodes share nothing but the server. What passes is exactly what
//! the limits hold, and a refused request has changed nothing: also not the limits of a hierarchy that would have let it
//! pass.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::task::JoinSet;
use tollgate::{MonotonicClock, Origin};
use tollgate_policy::shared::SharedStore;
use tollgate_policy::{
    DecisionRequest, Facts, NoHost, Op, PolicyDecision, PolicyGate, PriorState, Subject, decide,
};
use tollgate_redis::{RedisStore, Settings};

use super::TrialOptions;
use crate::verdicts::{Verdicts, time};
use tollgate_testkit::now;
use tollgate_testkit::servers::Server;
use tollgate_testkit::{Error, HOST, Result};

/// How many nodes there are.
const NODES: u64 = 8;
/// How many charges of one node are on their way at once.
const AT_ONCE: u64 = 64;
/// How many users the organisation of a hierarchy has.
const USERS: u64 = 10;
/// A charge may take so long: this trial counts, and many nodes wait for one server.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long the store may take to be there.
const UP_WITHIN: Duration = Duration::from_secs(10);

/// The limits of a race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Race {
    /// One key of one limit.
    OneKey,
    /// Three limits, of which that of each user is the tightest.
    UsersBind,
    /// Three limits, of which that of the organisation is the tightest.
    OrgBinds,
}

impl Race {
    const ALL: [Race; 3] = [Race::OneKey, Race::UsersBind, Race::OrgBinds];

    fn name(self) -> &'static str {
        match self {
            Race::OneKey => "one-key",
            Race::UsersBind => "users-bind",
            Race::OrgBinds => "org-binds",
        }
    }

    /// What the limits hold: the global limit's, the organisation's, each user's. Half of all charges pass.
    fn holds(self, charges: u64) -> Bursts {
        let all = charges * NODES;
        match self {
            Race::OneKey => Bursts {
                global: None,
                org: all / 2,
                user: None,
            },
            Race::UsersBind => Bursts {
                global: Some(all / 4 * 3),
                org: all / 8 * 5,
                user: Some(all / 2 / USERS),
            },
            Race::OrgBinds => Bursts {
                global: Some(all / 4 * 3),
                org: all / 2,
                user: Some(all / 4 * 3 / USERS),
            },
        }
    }
}

/// The bursts of the limits.
struct Bursts {
    global: Option<u64>,
    org: u64,
    user: Option<u64>,
}

impl Bursts {
    fn policy(&self) -> String {
        let limit = |name: &str, key: &str, burst: u64| {
            format!("  - {{ name: {name}, {key}allow: 1/h, burst: {burst} }}\n")
        };
        let mut text = String::from("default: pass\nlimits:\n");
        if let Some(burst) = self.global {
            text.push_str(&limit("global", "", burst));
        }
        text.push_str(&limit("org", "key: header.x-org, ", self.org));
        if let Some(burst) = self.user {
            text.push_str(&limit(
                "user",
                "key: [header.x-org, header.x-user], ",
                burst,
            ));
        }
        text
    }
}

/// The counts of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    admitted: u64,
    refused: u64,
    degraded: u64,
}

type Gate = PolicyGate<MonotonicClock>;

pub(super) fn run(options: &TrialOptions, verdicts: &mut Verdicts) -> Result<()> {
    let store = Server::start(options.kind, &[])?;
    let charges = options.quick_or_full(5_000, 100_000);
    for race in Race::ALL {
        // Each race begins with an empty store.
        store.ask(&["FLUSHALL"])?;
        let start = now();
        let counts = nodes(&store, race, charges)?;
        check(verdicts, race, charges, &counts);
        check_charged(verdicts, &store, race, charges)?;
        let took = start.elapsed();
        verdicts.figure(
            &format!("{}: {} charges", race.name(), charges * NODES),
            time(took),
        );
    }
    Ok(())
}

/// Runs all nodes to their ends.
fn nodes(store: &Server, race: Race, charges: u64) -> Result<Vec<Count>> {
    let port = store.port();
    thread::scope(|scope| {
        let nodes: Vec<_> = (0..NODES)
            .map(|_| scope.spawn(move || node(port, race, charges)))
            .collect();
        let panicked = |_| Err(Error::Invalid("a node panicked".into()));
        let counts = nodes.into_iter();
        counts
            .map(|node| node.join().unwrap_or_else(panicked))
            .collect()
    })
}

fn check(verdicts: &mut Verdicts, race: Race, charges: u64, counts: &[Count]) {
    let sum = |part: fn(&Count) -> u64| -> u64 { counts.iter().map(part).sum() };
    let (admitted, refused) = (sum(|c| c.admitted), sum(|c| c.refused));
    let (degraded, all) = (sum(|c| c.degraded), charges * NODES);
    let name = race.name();
    verdicts.promise(
        &format!("{name}: the store answers every charge"),
        degraded == 0 && admitted + refused == all,
        format!("{} of {all}", all - degraded.min(all)),
    );
    verdicts.promise(
        &format!("{name}: exactly {} pass", all / 2),
        admitted == all / 2,
        admitted,
    );
    let least = counts.iter().map(|c| c.admitted).min().unwrap_or_default();
    verdicts.promise(
        &format!("{name}: all {NODES} nodes had admissions"),
        least > 0,
        format!("each at least {least}"),
    );
}

/// Promises that every limit was charged exactly what passed.
fn check_charged(verdicts: &mut Verdicts, store: &Server, race: Race, charges: u64) -> Result<()> {
    let holds = race.holds(charges);
    let passed = charges * NODES / 2;
    runtime()?.block_on(async {
        let gate = Arc::new(gate(store.port(), &holds)?);
        wait_for_the_store(&gate).await?;
        let mut promise = |limit: &str, charged: u64| {
            verdicts.promise(
                &format!("{}: `{limit}` is charged exactly what passed", race.name()),
                charged == passed,
                charged,
            );
        };
        if let Some(burst) = holds.global {
            promise(
                "global",
                burst.saturating_sub(left(&gate, "global", &[]).await?),
            );
        }
        promise(
            "org",
            holds
                .org
                .saturating_sub(left(&gate, "org", &["acme"]).await?),
        );
        if let Some(burst) = holds.user {
            let mut charged = 0;
            for number in 0..USERS {
                let key = user(number);
                charged += burst.saturating_sub(left(&gate, "user", &["acme", &key]).await?);
            }
            promise("user", charged);
        }
        Ok(())
    })
}

/// What is left of a key.
async fn left(gate: &Arc<Gate>, limit: &str, key: &[&str]) -> Result<u64> {
    let rule = gate.rule_named(limit);
    let rule = rule.ok_or_else(|| Error::Invalid(format!("there is no limit `{limit}`")))?;
    let started = {
        let subject = Subject::Rule { rule, key, cost: 0 };
        decide(
            &NoHost::new(),
            gate,
            &DecisionRequest::new(subject, Op::Peek),
        )
    };
    let answer = started.resolve().await;
    match answer.origin {
        Origin::Degraded => Err(Error::Unexpected {
            command: format!("what is left of `{limit}`"),
            answer: "the store is down".into(),
        }),
        _ => Ok(answer.status.remaining),
    }
}

/// Makes the charges of one node.
fn node(port: u16, race: Race, charges: u64) -> Result<Count> {
    runtime()?.block_on(async {
        let gate = Arc::new(gate(port, &race.holds(charges))?);
        wait_for_the_store(&gate).await?;
        let mut tasks = JoinSet::new();
        for task in 0..AT_ONCE {
            let gate = Arc::clone(&gate);
            let mine = charges / AT_ONCE + u64::from(task < charges % AT_ONCE);
            tasks.spawn(async move { charge(&gate, task, mine).await });
        }
        let mut all = Count::default();
        while let Some(done) = tasks.join_next().await {
            let count = done.map_err(|error| Error::Invalid(error.to_string()))?;
            all.admitted += count.admitted;
            all.refused += count.refused;
            all.degraded += count.degraded;
        }
        Ok(all)
    })
}

/// Charges users in turn, one request after the other.
async fn charge(gate: &Arc<Gate>, first: u64, times: u64) -> Count {
    let mut count = Count::default();
    for time in 0..times {
        let user = user((first + time) % USERS);
        let headers = [("x-org", "acme"), ("x-user", user.as_str())];
        let answer = send(gate, &headers, Op::Charge).await;
        match (answer.origin, answer.is_admitted()) {
            (Origin::Degraded, _) => count.degraded += 1,
            (_, true) => count.admitted += 1,
            (_, false) => count.refused += 1,
        }
    }
    count
}

fn user(number: u64) -> String {
    format!("u{number}")
}

async fn send(gate: &Arc<Gate>, headers: &[(&str, &str); 2], op: Op) -> PolicyDecision {
    let started = {
        let facts = Facts {
            method: "GET",
            path: "/",
            headers,
            ..Facts::default()
        };
        decide(
            &NoHost::new(),
            gate,
            &DecisionRequest::new(Subject::Request(&facts), op),
        )
    };
    started.resolve().await
}

/// Waits until questions are answered by the store.
async fn wait_for_the_store(gate: &Arc<Gate>) -> Result<()> {
    let start = now();
    let headers = [("x-org", "acme"), ("x-user", "u0")];
    while send(gate, &headers, Op::Peek).await.origin == Origin::Degraded {
        if start.elapsed() > UP_WITHIN {
            let why = "the store is down although it was just started";
            return Err(Error::Invalid(why.into()));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

fn gate(port: u16, holds: &Bursts) -> Result<Gate> {
    let mut settings = Settings::standalone(HOST, port);
    settings.deadline = DEADLINE;
    let impossible = |error: String| Error::Invalid(error);
    let store =
        RedisStore::open(settings, &Handle::current()).map_err(|e| impossible(e.to_string()))?;
    let loaded = tollgate_config::parse("race.yaml", holds.policy().as_bytes())
        .map_err(|problems| impossible(problems.to_string()))?;
    let prior = PriorState::new().with_store(Arc::new(store) as Arc<dyn SharedStore>);
    Gate::with_prior(loaded.policy, Vec::new(), MonotonicClock::new(), prior)
        .map_err(|error| impossible(error.to_string()))
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::io("start the runtime of a node"))
}
