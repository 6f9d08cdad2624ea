//! Made-up histories: the core against the oracle, step by step, every number equal.
//!
//! # Theory
//!
//! Golden timelines say what their author thought of. A made-up history visits what nobody thought of:
//! random limits, costs from nothing to more than ever fits, and a clock that stands still, moves by a
//! nanosecond, lands exactly on a promised moment or just before it, sleeps for long, or steps back a
//! little or a lot. Whatever comes, core and oracle have to give the same answer: verdict, wait, what
//! remains, when it resets and when more is left. And every refusal has to keep its word: asked again
//! after the wait it told the request passes, a nanosecond earlier it does not.
//!
//! # Repeatable
//!
//! A history is drawn from one seed, and the seeds of a run are consecutive numbers. So a failure is
//! replayed by starting a run at its seed; the failure prints the command.
//!
//! # What it does not know
//!
//! Rates that the core has to round: there the two differ by design, and only the bound holds.

pub mod draw;
pub mod failure;
pub mod gate;
pub mod history;
pub mod leases;
pub mod limits;
pub mod nature;

pub use self::failure::Failure;

use self::draw::Side;
use crate::rng::Rng;

/// Steps of a history before it starts anew with other numbers.
pub const HISTORY_STEPS: u64 = 300;

/// The algorithms that are compared, by the names that timelines use; those with a `store_` before it
/// through the public interface, the others by pure steps.
pub const ALGORITHMS: [&str; 20] = [
    "token_bucket",
    "gcra",
    "leaky_queue",
    "fixed_window",
    "sliding_log",
    "sliding_counter",
    "strict_counter",
    "span_counter",
    "burst_credits",
    "all_token_bucket",
    "store_token_bucket",
    "store_gcra",
    "store_leaky_queue",
    "store_fixed_window",
    "store_sliding_log",
    "store_sliding_counter",
    "store_strict_counter",
    "store_span_counter",
    "store_burst_credits",
    "store_concurrency",
];

/// How one history ended.
pub type Walked = Result<u64, Box<Failure>>;

/// One history of `algorithm` from `seed`, of at most `steps` steps; how many it took.
///
/// # Errors
///
/// If core and oracle disagree, or there is no such algorithm.
pub fn history(algorithm: &'static str, seed: u64, steps: u64) -> Walked {
    let mut rng = Rng::new(seed);
    let steps = steps.min(HISTORY_STEPS);
    let (side, plain) = match algorithm.strip_prefix("store_") {
        Some(plain) => (Side::Store, plain),
        None => (Side::Core, algorithm),
    };
    let walked = match plain {
        "token_bucket" => draw::token_bucket(&mut rng, steps, side),
        "gcra" => draw::gcra(&mut rng, steps, side),
        "leaky_queue" => draw::leaky_queue(&mut rng, steps, side),
        "fixed_window" => draw::fixed_window(&mut rng, steps, side),
        "sliding_log" => draw::sliding_log(&mut rng, steps, side),
        "sliding_counter" => draw::sliding_counter(&mut rng, steps, side, false),
        "strict_counter" => draw::sliding_counter(&mut rng, steps, side, true),
        "span_counter" => draw::span_counter(&mut rng, steps, side),
        "burst_credits" => draw::burst_credits(&mut rng, steps, side),
        "concurrency" if side == Side::Store => leases::walk(&mut rng, steps),
        "all_token_bucket" => gate::walk(&mut rng, steps),
        other => Err(Box::new(Failure::setup(
            "",
            format!("no algorithm `{other}`"),
        ))),
    };
    walked.map_err(|mut failure| {
        (failure.algorithm, failure.seed) = (algorithm, seed);
        failure
    })
}
