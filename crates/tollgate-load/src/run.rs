//! A run: threads with connections that start together, and the sum of their counters.

use std::cell::RefCell;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use tokio::sync::{Barrier, watch};
use tokio::task::{JoinSet, LocalSet};

use crate::audit::{AdmissionLog, MAX_ADMISSIONS};
use crate::connection::{Connection, Endpoint};
use crate::counters::Counters;
use crate::error::LoadError;
use crate::keys::KeyPicker;
use crate::plan::LoadPlan;
use crate::report::LoadReport;
use crate::schedule::Schedule;
use crate::stopwatch::{Stopwatch, nanos};
use crate::tls::TlsRoots;

/// Interval of progress callbacks.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
const SEED: u64 = 0x746f_6c6c_6761_7465;

/// Progress of a run.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    responses: AtomicU64,
    begin: OnceLock<u64>,
}

impl Progress {
    /// For display only, so no ordering is needed.
    pub(crate) fn add(&self, responses: u64) {
        self.responses.fetch_add(responses, Relaxed);
    }
}

/// What all threads of a run share.
struct Shared {
    plan: LoadPlan,
    addresses: Vec<SocketAddr>,
    stopwatch: Stopwatch,
    progress: Arc<Progress>,
    /// All threads start when all connections are open.
    connected: Barrier,
    stop: watch::Sender<Stop>,
    /// The trusted certificates, if a target uses TLS.
    tls_roots: Option<TlsRoots>,
}

/// Whether a run ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    No,
    /// The caller has interrupted it. The counters are reported.
    Requested,
    /// It has failed. The counters are dropped.
    Failed,
}

/// Runs a plan. `on_progress` is called a few times a second, with the responses so far and the time since the start.
///
/// # Errors
/// An invalid plan, a server that cannot be reached at the start or never responds, or a protocol violation. A server that is lost
/// later is part of the report.
pub fn run(
    plan: LoadPlan,
    on_progress: &mut dyn FnMut(u64, Duration),
) -> Result<LoadReport, LoadError> {
    run_while(plan, &mut |answers, passed| {
        on_progress(answers, passed);
        ControlFlow::Continue(())
    })
}

/// Like [`run()`], until `on_progress` returns [`ControlFlow::Break`]. The report then has what was measured so far.
///
/// # Errors
/// As [`run()`].
pub fn run_while(
    plan: LoadPlan,
    on_progress: &mut dyn FnMut(u64, Duration) -> ControlFlow<()>,
) -> Result<LoadReport, LoadError> {
    plan.validate()?;
    let addresses = plan.targets.iter().map(|target| resolve(&target.host));
    let addresses = addresses.collect::<Result<Vec<SocketAddr>, LoadError>>()?;
    let tls_roots = plan.targets.iter().any(|target| target.is_tls);
    let tls_roots = tls_roots
        .then(|| TlsRoots::new(plan.ca_certificates.as_deref()))
        .transpose()?;
    let threads = plan.thread_count();
    let shared = Arc::new(Shared {
        addresses,
        stopwatch: Stopwatch::start(),
        progress: Arc::default(),
        connected: Barrier::new(threads),
        stop: watch::Sender::new(Stop::No),
        tls_roots,
        plan,
    });
    let (send, receive) = mpsc::channel();
    for thread in 0..threads {
        let (mine, send) = (Arc::clone(&shared), send.clone());
        let named = std::thread::Builder::new().name(format!("load-{thread}"));
        let started = named.spawn(move || {
            let done = run_thread(&mine, thread, threads);
            if done.is_err() {
                mine.stop.send_replace(Stop::Failed);
            }
            // The receiver is gone if another thread has failed.
            let _ = send.send(done);
        });
        if let Err(error) = started {
            shared.stop.send_replace(Stop::Failed);
            let hint = "raise the limits of the process, or use fewer `--threads`";
            return Err(LoadError::new(
                format!("no thread can be started: {error}"),
                hint,
            ));
        }
    }
    drop(send);
    let counters = collect(&shared, &receive, threads, on_progress)?;
    let begin = shared.progress.begin.get().copied().unwrap_or(0);
    let warm_until = begin.saturating_add(nanos(shared.plan.warm_up));
    let is_interrupted = *shared.stop.borrow() == Stop::Requested;
    LoadReport::new(&shared.plan, counters, (begin, warm_until), is_interrupted)
}

/// Waits for all threads and sums their counters.
fn collect(
    shared: &Shared,
    receive: &mpsc::Receiver<Result<Option<Counters>, LoadError>>,
    threads: usize,
    on_progress: &mut dyn FnMut(u64, Duration) -> ControlFlow<()>,
) -> Result<Counters, LoadError> {
    let mut all = Counters::new(shared.plan.targets.len());
    let mut ended = 0;
    let mut wrong = None;
    while ended < threads {
        match receive.recv_timeout(PROGRESS_INTERVAL) {
            Ok(Ok(counters)) => {
                ended += 1;
                counters.into_iter().for_each(|counters| all.add(counters));
            }
            Ok(Err(error)) => {
                ended += 1;
                wrong = wrong.or(Some(error));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let begin = shared.progress.begin.get().copied();
                let now = shared.stopwatch.nanos();
                let passed = now.saturating_sub(begin.unwrap_or(now));
                let answers = shared.progress.responses.load(Relaxed);
                if on_progress(answers, Duration::from_nanos(passed)).is_break() {
                    // Unless it has failed already.
                    shared.stop.send_if_modified(|stop| {
                        let continues = *stop == Stop::No;
                        *stop = if continues { Stop::Requested } else { *stop };
                        continues
                    });
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                let what = "a thread of the load generator ended unexpectedly";
                wrong = wrong.or(Some(LoadError::new(what, "report it: this is a bug")));
                break;
            }
        }
    }
    wrong.map_or(Ok(all), Err)
}

/// Runs one thread; `None` if the run has failed elsewhere.
fn run_thread(
    shared: &Arc<Shared>,
    thread: usize,
    threads: usize,
) -> Result<Option<Counters>, LoadError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| {
        let hint = "raise the limits of the process (`ulimit -n`)";
        LoadError::new(format!("cannot start the event loop: {error}"), hint)
    })?;
    let mut stopped = shared.stop.subscribe();
    let counters = Rc::new(RefCell::new(Counters::default()));
    let local = LocalSet::new();
    let counts = local.block_on(&runtime, async {
        tokio::select! {
            done = run_connections(shared, thread, threads, &counters) => done.map(|()| true),
            stop = stopped.wait_for(|stop| *stop != Stop::No) => {
                Ok(stop.is_ok_and(|stop| *stop == Stop::Requested))
            }
        }
    });
    // Interrupted connections add their counters on drop.
    drop(local);
    counts.map(|counts| counts.then(|| counters.take()))
}

/// Opens the connections of a thread, waits for the other threads, and runs them.
async fn run_connections(
    shared: &Arc<Shared>,
    thread: usize,
    threads: usize,
    counters: &Rc<RefCell<Counters>>,
) -> Result<(), LoadError> {
    let plan = &shared.plan;
    let mut streams = Vec::new();
    for number in (thread..plan.connections).step_by(threads) {
        let at = number % shared.addresses.len().max(1);
        let (Some(address), Some(target)) = (shared.addresses.get(at), plan.targets.get(at)) else {
            continue;
        };
        let endpoint = Endpoint {
            address: *address,
            tls: shared
                .tls_roots
                .as_ref()
                .filter(|_| target.is_tls)
                .map(|roots| roots.endpoint_for(target))
                .transpose()?,
            timeout: plan.timeout,
        };
        let stream = endpoint.connect().await.map_err(|error| {
            LoadError::new(format!("{target} cannot be reached: {error}"), hint(&error))
        })?;
        streams.push((number, at, endpoint, target, stream));
    }
    shared.connected.wait().await;
    let begin = *shared
        .progress
        .begin
        .get_or_init(|| shared.stopwatch.nanos());
    let warm_until = begin.saturating_add(nanos(plan.warm_up));
    let audited = plan
        .allowance
        .is_some()
        .then(|| usize::try_from(plan.keys).unwrap_or(0));
    *counters.borrow_mut() = Counters {
        measured_from: warm_until,
        log: audited.map(|keys| AdmissionLog::new(keys, MAX_ADMISSIONS / threads.max(1))),
        ..Counters::new(plan.targets.len())
    };
    let mut calls = JoinSet::new();
    for (number, at, endpoint, target, stream) in streams {
        let connection = number as u64;
        let connection = Connection {
            endpoint,
            target: at,
            name: target.to_string(),
            codec: plan.codec(target)?,
            keys: KeyPicker::new(
                plan.keys,
                plan.zipf,
                SEED ^ connection.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            ),
            schedule: schedule(plan, begin, warm_until, connection),
            pipeline: plan.pipeline,
            stopwatch: shared.stopwatch,
            counters: Rc::clone(counters),
            progress: Arc::clone(&shared.progress),
            is_given_up: false,
        };
        calls.spawn_local(connection.run(stream));
    }
    while let Some(ended) = calls.join_next().await {
        ended.map_err(|error| {
            let what = format!("a connection ended with a bug: {error}");
            LoadError::new(what, "report it, with the command line")
        })??;
    }
    Ok(())
}

/// The hint for a connection that could not be opened.
fn hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::InvalidData => {
            "check that the server uses TLS on this port, that its certificate names the host of the target, and that its \
             issuer is trusted: `--ca FILE`"
        }
        _ => {
            "start the server, or name the address that it listens on; for many connections raise `ulimit -n`"
        }
    }
}

fn schedule(plan: &LoadPlan, begin: u64, warm_until: u64, connection: u64) -> Schedule {
    let connections = plan.connections as u64;
    let length = plan.run_time().map_or(u64::MAX, nanos);
    Schedule {
        begin,
        warm_until,
        stop: warm_until.saturating_add(length),
        quota: plan.requests.map_or(u64::MAX, |all| {
            all / connections + u64::from(connection < all % connections)
        }),
        rate: plan.rate,
        connection,
        connections,
        sent: 0,
        measured: 0,
        is_delayed: false,
    }
}

fn resolve(host: &str) -> Result<SocketAddr, LoadError> {
    let wrong = |why: &str| {
        let hint = "write a host that can be resolved, such as `127.0.0.1`";
        LoadError::new(format!("`{host}` cannot be resolved: {why}"), hint)
    };
    let found = host.to_socket_addrs();
    let mut found = found.map_err(|error| wrong(&error.to_string()))?;
    found
        .next()
        .ok_or_else(|| wrong("no address has that name"))
}
