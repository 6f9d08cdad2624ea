//! Random histories: the product against the oracle, step by step, every number equal.
//!
//! # Theory
//!
//! Golden timelines cover what their author thought of. A random history covers more: random limits,
//! costs from nothing to more than ever fits, and a stopped clock, moves by a
//! nanosecond, lands exactly on the end of a wait or just before it, sleeps for long, or steps back a
//! little or a lot. In every step product and oracle must give the same answer: verdict, wait, what
//! remains, when it resets and when more is left. Every refusal is checked, too: repeated
//! after its wait the request passes, a nanosecond earlier it does not.
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
pub mod groups;
pub mod history;
pub mod input_profile;
pub mod permits;

pub use self::failure::Failure;

use self::draw::Side;
use self::failure::Recent;
use crate::rng::Rng;
use crate::subject::{core_model, oracle_model, store_model};

/// Steps of a history before it starts anew with other numbers.
pub const HISTORY_STEPS: u64 = 300;

/// The algorithms that are compared, by the names that timelines use; those with a `store_` before it
/// through the public interface, the others by pure steps.
pub const ALGORITHMS: [&str; 21] = [
    "token_bucket",
    "token_debt",
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
/// If product and oracle disagree, or there is no such algorithm.
pub fn history(algorithm: &'static str, seed: u64, steps: u64) -> Walked {
    let mut rng = Rng::new(seed);
    let steps = steps.min(HISTORY_STEPS);
    let (side, plain) = match algorithm.strip_prefix("store_") {
        Some(plain) => (Side::Store, plain),
        None => (Side::Core, algorithm),
    };
    let walked = match plain {
        "concurrency" if side == Side::Store => permits::walk(&mut rng, steps),
        "all_token_bucket" => groups::walk(&mut rng, steps),
        _ => compare(plain, side, &mut rng, steps),
    };
    walked.map_err(|mut failure| {
        (failure.algorithm, failure.seed) = (algorithm, seed);
        failure
    })
}

/// One history of a limit for one key.
fn compare(algorithm: &str, side: Side, rng: &mut Rng, steps: u64) -> Walked {
    let Some((numbers, profile)) = draw::limit(rng, algorithm, side) else {
        let what = format!("no algorithm `{algorithm}`");
        return Err(Recent::new(String::new()).setup_failure(what));
    };
    let params = format!("{numbers:?}");
    let product = match side {
        Side::Core => core_model(&numbers),
        Side::Store => store_model(&numbers),
    };
    let failed = |error| Recent::new(params.clone()).setup_failure(error);
    let (oracle, mut product) = (
        oracle_model(&numbers).map_err(failed)?,
        product.map_err(failed)?,
    );
    history::walk(oracle, product.as_mut(), (profile, params), rng, steps)
}
