//! A run: threads with their connections, started together and put together at the end.

use std::cell::RefCell;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use tokio::sync::{Barrier, watch};
use tokio::task::{JoinSet, LocalSet};

use crate::audit::{EACH_MAX, Ledger};
use crate::clock::{Watch, nanos};
use crate::connection::{Caller, Route};
use crate::keys::Keys;
use crate::pace::Pace;
use crate::plan::Plan;
use crate::report::Report;
use crate::tally::Tally;
use crate::tls::Trust;
use crate::wrong::Wrong;

/// How often the caller is told how it goes.
const TELL_EVERY: Duration = Duration::from_millis(200);
const SEED: u64 = 0x746f_6c6c_6761_7465;

/// How a run goes.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    answers: AtomicU64,
    begin: OnceLock<u64>,
}

impl Progress {
    /// A count for people: nothing else depends on its order.
    pub(crate) fn add(&self, answers: u64) {
        self.answers.fetch_add(answers, Relaxed);
    }
}

/// What every thread of a run needs.
struct Shared {
    plan: Plan,
    addresses: Vec<SocketAddr>,
    watch: Watch,
    progress: Arc<Progress>,
    /// Nobody begins before all are connected.
    connected: Barrier,
    stop: watch::Sender<Stop>,
    /// Who is believed over TLS, if it is spoken.
    trust: Option<Trust>,
}

/// Whether a run ends before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    No,
    /// Somebody has seen enough. What was counted counts.
    Enough,
    /// No further answer would be worth anything.
    Worthless,
}

/// Does what was planned. `tell` is called a few times a second: answers so far, and the time since the begin.
///
/// # Errors
/// A plan that makes no sense, a server that cannot be reached at the begin or never answers, or answers of another protocol.
/// A server that is lost later is part of the report.
pub fn run(plan: Plan, tell: &mut dyn FnMut(u64, Duration)) -> Result<Report, Wrong> {
    run_while(plan, &mut |answers, passed| {
        tell(answers, passed);
        ControlFlow::Continue(())
    })
}

/// As [`run()`], for as long as `tell` says to go on. After that what was measured so far is reported.
///
/// # Errors
/// As [`run()`].
pub fn run_while(
    plan: Plan,
    tell: &mut dyn FnMut(u64, Duration) -> ControlFlow<()>,
) -> Result<Report, Wrong> {
    plan.check()?;
    let addresses = plan.targets.iter().map(|target| resolve(&target.host));
    let addresses = addresses.collect::<Result<Vec<SocketAddr>, Wrong>>()?;
    let trust = plan.targets.iter().any(|target| target.is_tls);
    let trust = trust
        .then(|| Trust::new(plan.roots.as_deref()))
        .transpose()?;
    let threads = plan.thread_count();
    let shared = Arc::new(Shared {
        addresses,
        watch: Watch::start(),
        progress: Arc::default(),
        connected: Barrier::new(threads),
        stop: watch::Sender::new(Stop::No),
        trust,
        plan,
    });
    let (send, receive) = mpsc::channel();
    for thread in 0..threads {
        let (mine, send) = (Arc::clone(&shared), send.clone());
        let named = std::thread::Builder::new().name(format!("load-{thread}"));
        let started = named.spawn(move || {
            let done = work(&mine, thread, threads);
            if done.is_err() {
                mine.stop.send_replace(Stop::Worthless);
            }
            // Nobody listens any more if another thread has failed.
            let _ = send.send(done);
        });
        if let Err(error) = started {
            shared.stop.send_replace(Stop::Worthless);
            let hint = "raise the limits of the process, or use fewer `--threads`";
            return Err(Wrong::new(
                format!("no thread can be started: {error}"),
                hint,
            ));
        }
    }
    drop(send);
    let tally = gather(&shared, &receive, threads, tell)?;
    let begin = shared.progress.begin.get().copied().unwrap_or(0);
    let warm_until = begin.saturating_add(nanos(shared.plan.warm_up));
    let is_broken_off = *shared.stop.borrow() == Stop::Enough;
    Report::of(&shared.plan, tally, (begin, warm_until), is_broken_off)
}

/// Waits for all threads.
fn gather(
    shared: &Shared,
    receive: &mpsc::Receiver<Result<Option<Tally>, Wrong>>,
    threads: usize,
    tell: &mut dyn FnMut(u64, Duration) -> ControlFlow<()>,
) -> Result<Tally, Wrong> {
    let mut all = Tally::of(shared.plan.targets.len());
    let mut ended = 0;
    let mut wrong = None;
    while ended < threads {
        match receive.recv_timeout(TELL_EVERY) {
            Ok(Ok(tally)) => {
                ended += 1;
                tally.into_iter().for_each(|tally| all.add(tally));
            }
            Ok(Err(error)) => {
                ended += 1;
                wrong = wrong.or(Some(error));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let begin = shared.progress.begin.get().copied();
                let now = shared.watch.nanos();
                let passed = now.saturating_sub(begin.unwrap_or(now));
                let answers = shared.progress.answers.load(Relaxed);
                if tell(answers, Duration::from_nanos(passed)).is_break() {
                    // Unless it is worthless already.
                    shared.stop.send_if_modified(|stop| {
                        let goes_on = *stop == Stop::No;
                        *stop = if goes_on { Stop::Enough } else { *stop };
                        goes_on
                    });
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                let what = "a thread of the load ended without a word";
                wrong = wrong.or(Some(Wrong::new(
                    what,
                    "report it: this is a mistake of the tool",
                )));
                break;
            }
        }
    }
    wrong.map_or(Ok(all), Err)
}

/// All that one thread does; `None` if another one has stopped the run.
fn work(shared: &Arc<Shared>, thread: usize, threads: usize) -> Result<Option<Tally>, Wrong> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| {
        let hint = "raise the limits of the process (`ulimit -n`)";
        Wrong::new(format!("no events can be waited for: {error}"), hint)
    })?;
    let mut stopped = shared.stop.subscribe();
    let tally = Rc::new(RefCell::new(Tally::default()));
    let local = LocalSet::new();
    let counts = local.block_on(&runtime, async {
        tokio::select! {
            done = converse(shared, thread, threads, &tally) => done.map(|()| true),
            stop = stopped.wait_for(|stop| *stop != Stop::No) => {
                Ok(stop.is_ok_and(|stop| *stop == Stop::Enough))
            }
        }
    });
    // Connections that were broken off count what they have to as they go.
    drop(local);
    counts.map(|counts| counts.then(|| tally.take()))
}

/// Opens the connections of a thread, waits for the other threads, and lets them call.
async fn converse(
    shared: &Arc<Shared>,
    thread: usize,
    threads: usize,
    tally: &Rc<RefCell<Tally>>,
) -> Result<(), Wrong> {
    let plan = &shared.plan;
    let mut streams = Vec::new();
    for number in (thread..plan.connections).step_by(threads) {
        let at = number % shared.addresses.len().max(1);
        let (Some(address), Some(target)) = (shared.addresses.get(at), plan.targets.get(at)) else {
            continue;
        };
        let route = Route {
            address: *address,
            tls: shared
                .trust
                .as_ref()
                .filter(|_| target.is_tls)
                .map(|trust| trust.of(target))
                .transpose()?,
            timeout: plan.timeout,
        };
        let stream = route.connect().await.map_err(|error| {
            Wrong::new(format!("{target} cannot be reached: {error}"), hint(&error))
        })?;
        streams.push((number, at, route, target, stream));
    }
    shared.connected.wait().await;
    let begin = *shared.progress.begin.get_or_init(|| shared.watch.nanos());
    let warm_until = begin.saturating_add(nanos(plan.warm_up));
    let audited = plan
        .allowance
        .is_some()
        .then(|| usize::try_from(plan.keys).unwrap_or(0));
    *tally.borrow_mut() = Tally {
        counts_from: warm_until,
        ledger: audited.map(|keys| Ledger::new(keys, EACH_MAX / threads.max(1))),
        ..Tally::of(plan.targets.len())
    };
    let mut calls = JoinSet::new();
    for (number, at, route, target, stream) in streams {
        let lane = number as u64;
        let caller = Caller {
            route,
            target: at,
            name: target.to_string(),
            codec: plan.codec(target)?,
            keys: Keys::new(
                plan.keys,
                plan.zipf,
                SEED ^ lane.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            ),
            pace: pace(plan, begin, warm_until, lane),
            pipeline: plan.pipeline,
            watch: shared.watch,
            tally: Rc::clone(tally),
            progress: Arc::clone(&shared.progress),
            is_given_up: false,
        };
        calls.spawn_local(caller.call(stream));
    }
    while let Some(ended) = calls.join_next().await {
        ended.map_err(|error| {
            let what = format!("a connection ended with a mistake of the tool: {error}");
            Wrong::new(what, "report it, with the command line")
        })??;
    }
    Ok(())
}

/// What helps against a connection that could not be opened.
fn hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::InvalidData => {
            "see that the server speaks TLS there, that its certificate names the host of the target, and that who signed it is \
             believed: `--ca FILE`"
        }
        _ => {
            "start the server, or name the address that it listens on; for many connections raise `ulimit -n`"
        }
    }
}

fn pace(plan: &Plan, begin: u64, warm_until: u64, lane: u64) -> Pace {
    let lanes = plan.connections as u64;
    let length = plan.length().map_or(u64::MAX, nanos);
    Pace {
        begin,
        warm_until,
        stop: warm_until.saturating_add(length),
        quota: plan
            .requests
            .map_or(u64::MAX, |all| all / lanes + u64::from(lane < all % lanes)),
        rate: plan.rate,
        lane,
        lanes,
        asked: 0,
        counted: 0,
        is_held_back: false,
    }
}

fn resolve(host: &str) -> Result<SocketAddr, Wrong> {
    let wrong = |why: &str| {
        let hint = "write a host that can be found, such as `127.0.0.1`";
        Wrong::new(format!("`{host}` is no address: {why}"), hint)
    };
    let found = host.to_socket_addrs();
    let mut found = found.map_err(|error| wrong(&error.to_string()))?;
    found.next().ok_or_else(|| wrong("nothing has that name"))
}
