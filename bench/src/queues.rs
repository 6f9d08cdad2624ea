//! Compares the fair queue with a queue that is not fair, and the admission queue with a semaphore.
//!
//! # Method
//!
//! The fair queue enqueues, dispatches and completes each item; the bounded channel of tokio sends and receives it. Both run
//! on this one thread, hold numbers, and have as many items waiting all the time:
//!
//! - *idle*: each item goes through alone, so the queue falls idle after every one;
//! - *one in flight*: the same while one item is never completed, so flows that have been served are remembered until the
//!   others have caught up;
//! - *all backlogged*: every flow has two items waiting all the time, and items have weights 1 to 4.
//!
//! Items come from all flows in turn. The fair queue is measured with the hasher of the admission queue, whose flows are keyed
//! hashes already, and with the default one.
//!
//! The admission queue admits requests that need not wait, and the semaphore of tokio gives permits.
//!
//! Contestants are interleaved; reported are medians, and the ratio of each pass.

use std::hash::BuildHasher;
use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, mpsc};
use tollgate::shape::fair_queue::NumberHasher;
use tollgate::shape::{FairQueue, FairQueueConfig};
use tollgate_policy::{QueueConcurrency, QueuePlace, QueueRule};
use tollgate_tower::admission::{AdmissionQueue, BackendOutcome};

use crate::args::QueueArgs;
use crate::figures::{Figures, interleave};
use crate::keys::id;
use crate::output::{Output, Row, range, short_count};

/// Items in each turn without `--ops`.
const ITEMS: usize = 1_000_000;

/// Items of each flow that wait if all are backlogged.
const WAITING_EACH: usize = 2;

/// What waits all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backlog {
    Idle,
    OneInFlight,
    All,
}

impl Backlog {
    const ALL: [Self; 3] = [Self::Idle, Self::OneInFlight, Self::All];

    fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::OneInFlight => "one in flight",
            Self::All => "all backlogged",
        }
    }
}

/// The size of every turn.
#[derive(Clone, Copy, Debug)]
struct Work {
    items: usize,
    flows: usize,
    /// Flows that always have something waiting.
    backlogged: usize,
}

/// How long a turn took, and whether all items went through.
type Timing = (Duration, bool);

/// A queue and its name.
type QueueContestant<'a> = (&'static str, &'a dyn Fn() -> Timing);

/// Compares in all situations; returns whether all items went through.
pub(crate) fn run(args: &QueueArgs, out: &mut Output<'_>) -> io::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut all_correct = true;
    for backlog in Backlog::ALL {
        let work = Work {
            items: args.repeats.ops.unwrap_or(ITEMS),
            flows: args.flows,
            backlogged: if backlog == Backlog::All {
                args.flows
            } else {
                0
            },
        };
        let mut contestants: [QueueContestant<'_>; 3] = [
            ("tokio mpsc", &|| channel(&runtime, work)),
            ("fair queue", &|| fair(work, backlog, NumberHasher::new())),
            ("fair queue, std hasher", &|| {
                fair(work, backlog, std::hash::RandomState::new())
            }),
        ];
        all_correct &= compare(backlog.name(), work, &mut contestants, args, out)?;
    }
    let work = Work {
        items: args.repeats.ops.unwrap_or(ITEMS),
        flows: args.flows,
        backlogged: 0,
    };
    let mut contestants: [QueueContestant<'_>; 2] = [
        ("tokio semaphore", &|| semaphore(&runtime, work)),
        ("admission queue", &|| admission_queue(&runtime, work)),
    ];
    all_correct &= compare("admission without wait", work, &mut contestants, args, out)?;
    Ok(all_correct)
}

fn compare(
    situation: &str,
    work: Work,
    contestants: &mut [QueueContestant<'_>],
    args: &QueueArgs,
    out: &mut Output<'_>,
) -> io::Result<bool> {
    let passes = args.repeats.passes;
    let turns = interleave(passes, contestants, |(_, turn), _| Ok(turn()))?;
    let all_through = turns
        .iter()
        .flatten()
        .all(|(_, went_through)| *went_through);
    let per_item = |(took, _): &Timing| Some(took.as_nanos() as f64 / work.items as f64);
    let times: Vec<Figures> = turns
        .iter()
        .map(|turns| Figures::collect(turns, per_item))
        .collect();
    let row = |((name, _), ns): (&QueueContestant<'_>, &Figures)| {
        let ratios = ns.over(&times[0]);
        let (least, most) = ratios.range().unzip();
        Row::new("queues", name)
            .json("situation", situation)
            .json("flows", work.flows)
            .json("backlogged", work.backlogged)
            .json("items", work.items)
            .figure("median_ns", "ns", ns.median(), 1)
            .figure("ratio", "ratio", ratios.median(), 2)
            .json("ratio_least", least)
            .json("ratio_most", most)
            .column("pass by pass", range(ratios.range()))
            .json("passes", passes)
            .json("all_went_through", all_through)
    };
    let rows: Vec<Row> = contestants.iter().zip(&times).map(row).collect();
    let [items, flows, backlogged] = [work.items, work.flows, work.backlogged].map(short_count);
    let title = format!(
        "{situation}: {items} items over {flows} flows, {backlogged} of them backlogged; medians of {passes} passes"
    );
    out.rows(&title, &rows)?;
    if !all_through {
        out.line("  ! some items did not go through: the time is of other work")?;
    }
    Ok(all_through)
}

/// Sends and receives each item.
fn channel(runtime: &Runtime, work: Work) -> Timing {
    let waiting = work.backlogged * WAITING_EACH;
    runtime.block_on(async {
        let (sender, mut receiver) = mpsc::channel(waiting + 64);
        for _ in 0..waiting {
            let _ = sender.send(0).await;
        }
        let mut received = 0;
        let begin = Instant::now();
        for item in 0..work.items {
            let _ = sender.send(item).await;
            received += usize::from(black_box(receiver.recv().await).is_some());
        }
        (begin.elapsed(), received == work.items)
    })
}

/// Enqueues, dispatches and completes each item.
fn fair<S: BuildHasher>(work: Work, backlog: Backlog, hasher: S) -> Timing {
    let flows = flow_ids(work.flows);
    let waiting = work.backlogged * WAITING_EACH;
    let config = FairQueueConfig {
        depth: 64,
        max_running_per_flow: usize::MAX,
        max_queued_per_flow: 64,
        max_queued_total: waiting + 64,
    };
    let Ok(mut queue) = FairQueue::with_hasher(config, hasher) else {
        return (Duration::ZERO, false);
    };
    if backlog == Backlog::OneInFlight {
        let _ = queue.enqueue(0, 1, 1, 0);
        let _ = queue.dispatch();
    }
    for &flow in flows.iter().cycle().take(waiting) {
        let _ = queue.enqueue(flow, 1, 1, 0);
    }
    let mut completed = 0;
    let begin = Instant::now();
    for (item, &flow) in (0..work.items).zip(flows.iter().cycle()) {
        let _ = black_box(queue.enqueue(flow, 1 + (item as u64 & 3), 1, item));
        if let Some(next) = black_box(queue.dispatch()) {
            completed += usize::from(queue.complete(next.ticket, next.cost));
        }
    }
    let took = begin.elapsed();
    (took, completed == work.items && queue.queued() == waiting)
}

/// Numbers in no order, as keyed hashes are.
fn flow_ids(flows: usize) -> Vec<u64> {
    (0..flows).map(|number| id(number as u32)).collect()
}

fn semaphore(runtime: &Runtime, work: Work) -> Timing {
    let semaphore = Arc::new(Semaphore::new(64));
    runtime.block_on(async {
        let mut given = 0;
        let begin = Instant::now();
        for _ in 0..work.items {
            let permit = Arc::clone(&semaphore).acquire_owned().await;
            given += usize::from(black_box(permit).is_ok());
        }
        (begin.elapsed(), given == work.items)
    })
}

fn admission_queue(runtime: &Runtime, work: Work) -> Timing {
    let flows = flow_ids(work.flows);
    let Ok(queue) = AdmissionQueue::new(&QueueRule::new("bench", QueueConcurrency::Fixed(64)))
    else {
        return (Duration::ZERO, false);
    };
    runtime.block_on(async {
        let mut given = 0;
        let begin = Instant::now();
        for (_, &flow) in (0..work.items).zip(flows.iter().cycle()) {
            let place = QueuePlace {
                queue: 0,
                flow,
                tier: None,
                weight: 1,
                cost: 1,
            };
            if let Ok(permit) = queue.acquire(&place).await {
                permit.finish(BackendOutcome::Answered);
                given += 1;
            }
        }
        (begin.elapsed(), given == work.items)
    })
}
