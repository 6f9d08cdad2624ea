//! Requests, the queue, the limit and the backend: one run in virtual time.
//!
//! Requests come at random moments, whatever becomes of the others (a Poisson process), from four
//! flows. They wait in the product's own fair queue, at most 1000 of them and at most half a second.
//! As many as the limit allows are in the backend. A client waits for one second in all: a later answer
//! does not count.

use super::backend::Backend;
use super::control::{Control, TIMEOUT_NS};
use super::scenario::{BackendScenario, SERVICE_NS, capacity};
use crate::rng::Rng;
use std::collections::VecDeque;
use tollgate::shape::{FairQueue, FairQueueConfig, FairQueueError, Sample, Ticket};

/// How often the backend moves along its ramps, and what is seen is written down.
pub const TICK_NS: u64 = 100_000_000;
/// How long a client waits.
const DEADLINE_NS: u64 = 1_000_000_000;
/// How long a request waits in the queue.
const MAX_WAIT_NS: u64 = 500_000_000;
/// How many wait.
const MAX_QUEUED: usize = 1000;
const FLOWS: u64 = 4;

/// What was seen in one tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tick {
    /// When it ended.
    pub at_ns: u64,
    /// The limit then.
    pub limit: u32,
    /// The least and the greatest limit in it.
    pub range: (u32, u32),
    /// Answers in time.
    pub good: u64,
    /// Requests that came.
    pub came: u64,
    /// Requests rejected for lack of room or time.
    pub refused: u64,
    /// What the backend could have answered.
    pub capacity: f64,
}

#[derive(Clone, Copy, Debug)]
struct QueuedRequest {
    came_ns: u64,
    /// In the backend when it started, itself included.
    inflight: u32,
    ticket: Ticket,
}

/// Runs a scenario from its start to its end.
///
/// # Errors
///
/// None: the queue's bounds are constants that it takes.
pub fn run(
    scenario: &BackendScenario,
    control: &mut Control,
    seed: u64,
) -> Result<Vec<Tick>, FairQueueError> {
    let first = scenario.phases.first().map(|phase| phase.from);
    let Some(first) = first else {
        return Ok(Vec::new());
    };
    let mut simulation = BackendSimulation {
        queue: FairQueue::new(FairQueueConfig {
            depth: usize::MAX,
            max_running_per_flow: usize::MAX,
            max_queued_per_flow: MAX_QUEUED,
            max_queued_total: MAX_QUEUED,
        })?,
        waiting: VecDeque::new(),
        backend: Backend::new(first, TIMEOUT_NS),
        rng: Rng::new(seed),
        work_rng: Rng::new(seed.wrapping_add(1)),
        is_bimodal: scenario.is_bimodal,
        now_ns: 0,
        tick: Tick {
            at_ns: 0,
            limit: control.limit(),
            range: (control.limit(), control.limit()),
            good: 0,
            came: 0,
            refused: 0,
            capacity: 0.0,
        },
    };
    let mut ticks = Vec::new();
    let mut began_ns = 0;
    for phase in &scenario.phases {
        // The load is open: arrivals do not depend on the state of the backend.
        let most = capacity(phase.from).max(capacity(phase.to));
        let usual = if most > 0.0 { most } else { capacity(first) };
        let gap_ns = 1e9 / (usual * phase.load as f64 / 100.0);
        for step in 0..phase.secs * 1_000_000_000 / TICK_NS {
            let condition = phase.at(step * TICK_NS);
            simulation.backend.change(simulation.now_ns, condition);
            let until_ns = began_ns + (step + 1) * TICK_NS;
            simulation.pass(until_ns, gap_ns, control);
            let mut tick = simulation.tick;
            tick.at_ns = until_ns;
            tick.capacity = capacity(condition) * TICK_NS as f64 / 1e9;
            ticks.push(tick);
            simulation.tick = Tick {
                good: 0,
                came: 0,
                refused: 0,
                range: (tick.limit, tick.limit),
                ..tick
            };
        }
        began_ns += phase.secs * 1_000_000_000;
    }
    Ok(ticks)
}

struct BackendSimulation {
    queue: FairQueue<u64, u64>,
    /// Arrivals that may still be in the queue.
    waiting: VecDeque<(u64, Ticket)>,
    backend: Backend<QueuedRequest>,
    rng: Rng,
    /// Its own, so that the same requests take the same work under every limit.
    work_rng: Rng,
    is_bimodal: bool,
    now_ns: u64,
    tick: Tick,
}

impl BackendSimulation {
    /// Lives until `until_ns`, with a request every `gap_ns` on average.
    fn pass(&mut self, until_ns: u64, gap_ns: f64, control: &mut Control) {
        // A Poisson process has no memory, so each tick may draw its first arrival anew.
        let mut arrival_ns = self
            .now_ns
            .saturating_add(exponential(&mut self.rng, gap_ns));
        loop {
            let leave_ns = self.backend.next_ns().unwrap_or(u64::MAX);
            let expire_ns = self.waiting.front().map_or(u64::MAX, |w| w.0 + MAX_WAIT_NS);
            let next_ns = arrival_ns.min(leave_ns).min(expire_ns);
            if next_ns >= until_ns {
                break;
            }
            self.now_ns = next_ns;
            if next_ns == leave_ns {
                while let Some((job, is_done)) = self.backend.next_finished(next_ns) {
                    self.left(job.started_ns, job.item, is_done, control);
                }
            } else if next_ns == expire_ns {
                if let Some((_, ticket)) = self.waiting.pop_front() {
                    self.tick.refused += u64::from(self.queue.cancel(ticket).is_some());
                }
            } else {
                self.arrive();
                arrival_ns = next_ns.saturating_add(exponential(&mut self.rng, gap_ns));
            }
            self.pump(control);
        }
        self.now_ns = until_ns;
        control.tick(until_ns, self.backend.oldest_ns(until_ns));
        self.pump(control);
    }

    fn arrive(&mut self) {
        self.tick.came += 1;
        let flow = self.rng.below(FLOWS);
        match self.queue.enqueue(flow, 1, 1, self.now_ns) {
            Ok(enqueued) => {
                self.tick.refused += u64::from(enqueued.displaced.is_some());
                self.waiting.push_back((self.now_ns, enqueued.ticket));
            }
            Err(_) => self.tick.refused += 1,
        }
    }

    /// Starts as many as the limit allows.
    fn pump(&mut self, control: &Control) {
        let limit = control.limit();
        self.tick.limit = limit;
        self.tick.range.0 = self.tick.range.0.min(limit);
        self.tick.range.1 = self.tick.range.1.max(limit);
        while self.backend.in_flight() < limit as usize {
            let Some(next) = self.queue.dispatch() else {
                break;
            };
            let request = QueuedRequest {
                came_ns: next.item,
                inflight: u32::try_from(self.backend.in_flight() + 1).unwrap_or(u32::MAX),
                ticket: next.ticket,
            };
            let (rng, is_bimodal) = (&mut self.work_rng, self.is_bimodal);
            self.backend
                .start(self.now_ns, || work(rng, is_bimodal), request);
        }
    }

    fn left(
        &mut self,
        started_ns: u64,
        request: QueuedRequest,
        is_done: bool,
        control: &mut Control,
    ) {
        self.queue.complete(request.ticket, 1);
        let is_in_time = self.now_ns.saturating_sub(request.came_ns) <= DEADLINE_NS;
        self.tick.good += u64::from(is_done && is_in_time);
        let sample = Sample {
            rtt_ns: self.now_ns.saturating_sub(started_ns),
            inflight: request.inflight,
            dropped: !is_done,
        };
        control.sample(self.now_ns, sample);
    }
}

/// What one request takes: of two kinds, or exponential.
fn work(rng: &mut Rng, is_bimodal: bool) -> f64 {
    if is_bimodal {
        let quick = SERVICE_NS / 2.0;
        return if rng.one_in(10) { quick * 11.0 } else { quick };
    }
    exponential(rng, SERVICE_NS) as f64
}

fn exponential(rng: &mut Rng, mean_ns: f64) -> u64 {
    // The upper 53 bits are a number in `[0, 1)` that an `f64` holds exactly; its mirror is above 0.
    let uniform = 1.0 - (rng.bits() >> 11) as f64 / (1_u64 << 53) as f64;
    (-uniform.ln() * mean_ns) as u64
}
