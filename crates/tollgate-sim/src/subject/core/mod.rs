//! The core's pure steps as subject: state in, decision and new state out, and nothing around them.
//!
//! Each file drives one part of the core. What the core leaves to its callers is done here the way its
//! documentation says, and nowhere else: a word is read with the era it was written in
//! ([`word::Kept`]), a new limit converts the state of each key, and several limits are charged all or
//! none ([`together`]).

pub mod adaptive;
pub mod credits;
pub mod fair_queue;
pub mod log;
pub mod spec;
pub mod together;
pub mod told;
pub mod word;

pub use self::credits::CreditSteps;
pub use self::log::LogSteps;
pub use self::word::WordSteps;

use super::given::Given;
use super::keyed::Keyed;
use super::together::{credits_of, limits_of};
use crate::replay::{CannotOpen, Subject, SubjectFactory};
use crate::timeline::Case;
use spec::{CounterSpec, GcraSpec, QueueSpec, SpanSpec, TokenBucketSpec, WindowSpec};

/// Opens cases on the core's pure steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoreFactory;

impl SubjectFactory for CoreFactory {
    fn start(&self, case: &Case) -> Result<Box<dyn Subject>, CannotOpen> {
        Ok(match case.algorithm.as_str() {
            "token_bucket" => Keyed::subject(WordSteps::new(TokenBucketSpec::of(case)?)?),
            "gcra" => Keyed::subject(WordSteps::new(GcraSpec::of(case)?)?),
            "leaky_queue" => Keyed::subject(WordSteps::new(QueueSpec::of(case)?)?),
            "fixed_window" => Keyed::subject(WordSteps::new(WindowSpec::of(case)?)?),
            "sliding_counter" => Keyed::subject(WordSteps::new(CounterSpec::of(case)?)?),
            "span_counter" => Keyed::subject(WordSteps::new(SpanSpec::of(case)?)?),
            "sliding_log" => {
                let given = Given::of_case(case, &["limit", "window_ns"])?;
                Keyed::subject(LogSteps::new(
                    given.need("limit")?,
                    given.need("window_ns")?,
                )?)
            }
            "burst_credits" => {
                let credits = credits_of(case)?;
                Keyed::subject(CreditSteps::new(&credits)?)
            }
            "concurrency" => {
                let what = "permits by the name of their holder are granted by the store";
                return Err(CannotOpen::NotExpressible(what.to_owned()));
            }
            "all_token_bucket" => Box::new(together::TogetherSteps::new(&limits_of(case)?)?),
            "aimd" | "gradient2" => adaptive::open(case)?,
            "sfq" => Box::new(fair_queue::FairQueueSubject::open(case)?),
            other => return Err(format!("the core has no `{other}`").into()),
        })
    }
}
