//! The fair queue beside a queue that is not fair, and the admission queue beside a semaphore.
//!
//! # Method
//!
//! The fair queue enqueues, dispatches and completes each item; the bounded channel of tokio sends and
//! receives it. Both run on this one thread, hold numbers, and have as many items waiting all the time:
//!
//! - *nobody waits*: each item goes through alone, so the queue falls idle after every one;
//! - *one under way*: the same while one item is never completed, so flows that have been served are
//!   remembered until the others have caught up;
//! - *all backlogged*: every flow has two items waiting all the time, and items have weights 1 to 4.
//!
//! Items come from all flows in turn. The fair queue is measured with the hasher of the admission queue,
//! whose flows are keyed hashes already, and with the one that is the default.
//!
//! The admission queue grants permits without a wait, and the semaphore of tokio gives permits.
//!
//! All contestants take one turn in each pass; reported are medians, and the ratio of each pass.

use std::hash::BuildHasher;
use std::hint::black_box;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, mpsc};
use tollgate::shape::fair_queue::NumberHasher;
use tollgate::shape::{FairQueue, FairQueueConfig};
use tollgate_policy::{QueueConcurrency, QueuePlace, QueueRule};
use tollgate_tower::admission::{AdmissionQueue, BackendOutcome};

use crate::args::Fair;
use crate::table::{Table, short_count};

/// What waits all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backlog {
    Nobody,
    OneUnderWay,
    All,
}

/// Items of each flow that wait if all are backlogged.
const WAITING_EACH: usize = 2;

impl Backlog {
    const ALL: [Self; 3] = [Self::Nobody, Self::OneUnderWay, Self::All];

    fn name(self) -> &'static str {
        match self {
            Self::Nobody => "nobody waits",
            Self::OneUnderWay => "one under way",
            Self::All => "all backlogged",
        }
    }

    /// How many flows always have something waiting.
    fn flows(self, all: usize) -> usize {
        match self {
            Self::All => all,
            Self::Nobody | Self::OneUnderWay => 0,
        }
    }
}

/// What one contestant took in each pass, per item.
#[derive(Debug)]
struct Times {
    name: &'static str,
    ns: Vec<f64>,
}

impl Times {
    fn median(&self) -> f64 {
        median(&self.ns)
    }
}

/// Compares in all situations; returns whether everything that went in came out.
pub(crate) fn run(wanted: &Fair, out: &mut dyn Write) -> io::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut all_well = true;
    for backlog in Backlog::ALL {
        let flows = backlog.flows(wanted.flows);
        let title = format!(
            "{}: {} items over {} flows, {} of them backlogged",
            backlog.name(),
            short_count(wanted.items),
            short_count(wanted.flows),
            short_count(flows),
        );
        let contestants: [(_, &dyn Fn() -> Pass); 3] = [
            ("tokio mpsc", &|| channel(&runtime, wanted, backlog)),
            ("fair queue", &|| fair(wanted, backlog, NumberHasher::new())),
            ("fair queue, std hasher", &|| {
                fair(wanted, backlog, std::hash::RandomState::new())
            }),
        ];
        all_well &= compare(&title, backlog.name(), flows, &contestants, wanted, out)?;
    }
    let contestants: [(_, &dyn Fn() -> Pass); 2] = [
        ("tokio semaphore", &|| semaphore(&runtime, wanted)),
        ("admission queue", &|| admission_queue(&runtime, wanted)),
    ];
    let title = format!("turns at once: {} items", short_count(wanted.items));
    all_well &= compare(&title, "turns at once", 0, &contestants, wanted, out)?;
    Ok(all_well)
}

/// How long a pass took, and whether all went through.
type Pass = (Duration, bool);

fn compare(
    title: &str,
    situation: &str,
    backlogged: usize,
    contestants: &[(&'static str, &dyn Fn() -> Pass)],
    wanted: &Fair,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let mut is_well = true;
    let begin = |(name, _): &(&'static str, _)| Times {
        name,
        ns: Vec::new(),
    };
    let mut lines: Vec<Times> = contestants.iter().map(begin).collect();
    for _ in 0..wanted.passes {
        for (line, (_, pass)) in lines.iter_mut().zip(contestants) {
            let (took, went_through) = pass();
            line.ns.push(took.as_nanos() as f64 / wanted.items as f64);
            is_well &= went_through;
        }
    }
    let mut table = Table::new(["", "ns", "ratio", "least", "most"]);
    for line in &lines {
        let ratios: Vec<f64> = line
            .ns
            .iter()
            .zip(&lines[0].ns)
            .map(|(a, b)| a / b)
            .collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        let (ns, ratio) = (line.median(), median(&ratios));
        if wanted.json {
            writeln!(
                out,
                "{{\"command\":\"fair\",\"situation\":\"{situation}\",\"flows\":{},\
                 \"backlogged\":{backlogged},\"items\":{},\"contestant\":\"{}\",\
                 \"median_ns\":{ns:.3},\"ratio\":{ratio:.4},\"ratio_least\":{least:.4},\
                 \"ratio_most\":{most:.4},\"passes\":{},\"all_went_through\":{is_well}}}",
                wanted.flows, wanted.items, line.name, wanted.passes,
            )?;
        } else {
            table.row([
                line.name.to_owned(),
                format!("{ns:.1}"),
                format!("{ratio:.2}"),
                format!("{least:.2}"),
                format!("{most:.2}"),
            ]);
        }
    }
    if !wanted.json {
        writeln!(out, "\n{title}; medians of {} passes", wanted.passes)?;
        table.print(out)?;
        if !is_well {
            writeln!(
                out,
                "  ! not everything went through: the time is of other work"
            )?;
        }
    }
    out.flush()?;
    Ok(is_well)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Sent and received.
fn channel(runtime: &Runtime, wanted: &Fair, backlog: Backlog) -> Pass {
    let waiting = backlog.flows(wanted.flows) * WAITING_EACH;
    runtime.block_on(async {
        let (sender, mut receiver) = mpsc::channel(waiting + 64);
        for _ in 0..waiting {
            let _ = sender.send(0).await;
        }
        let mut received = 0;
        let begin = Instant::now();
        for item in 0..wanted.items {
            let _ = sender.send(item).await;
            received += usize::from(black_box(receiver.recv().await).is_some());
        }
        (begin.elapsed(), received == wanted.items)
    })
}

/// Enqueued, dispatched and completed.
fn fair<S: BuildHasher>(wanted: &Fair, backlog: Backlog, hasher: S) -> Pass {
    let names = names(wanted.flows);
    let waiting = backlog.flows(wanted.flows) * WAITING_EACH;
    let config = FairQueueConfig {
        depth: 64,
        max_running_per_flow: usize::MAX,
        max_queued_per_flow: 64,
        max_queued_total: waiting + 64,
    };
    let Ok(mut queue) = FairQueue::with_hasher(config, hasher) else {
        return (Duration::ZERO, false);
    };
    if backlog == Backlog::OneUnderWay {
        let _ = queue.enqueue(0, 1, 1, 0);
        let _ = queue.dispatch();
    }
    for &name in names.iter().cycle().take(waiting) {
        let _ = queue.enqueue(name, 1, 1, 0);
    }
    let mut completed = 0;
    let begin = Instant::now();
    for (item, &name) in (0..wanted.items).zip(names.iter().cycle()) {
        let _ = black_box(queue.enqueue(name, 1 + (item as u64 & 3), 1, item));
        if let Some(next) = black_box(queue.dispatch()) {
            completed += usize::from(queue.complete(next.ticket, next.cost));
        }
    }
    let took = begin.elapsed();
    (took, completed == wanted.items && queue.queued() == waiting)
}

/// Numbers in no order, as keyed hashes are.
fn names(flows: usize) -> Vec<u64> {
    let mix = |i: usize| (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..flows).map(|i| mix(i) ^ (mix(i) >> 29)).collect()
}

fn semaphore(runtime: &Runtime, wanted: &Fair) -> Pass {
    let semaphore = Arc::new(Semaphore::new(64));
    runtime.block_on(async {
        let mut given = 0;
        let begin = Instant::now();
        for _ in 0..wanted.items {
            let permit = Arc::clone(&semaphore).acquire_owned().await;
            given += usize::from(black_box(permit).is_ok());
        }
        (begin.elapsed(), given == wanted.items)
    })
}

fn admission_queue(runtime: &Runtime, wanted: &Fair) -> Pass {
    let names = names(wanted.flows);
    let Ok(queue) = AdmissionQueue::new(&QueueRule::new("bench", QueueConcurrency::Fixed(64)))
    else {
        return (Duration::ZERO, false);
    };
    runtime.block_on(async {
        let mut given = 0;
        let begin = Instant::now();
        for (_, &flow) in (0..wanted.items).zip(names.iter().cycle()) {
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
        (begin.elapsed(), given == wanted.items)
    })
}
