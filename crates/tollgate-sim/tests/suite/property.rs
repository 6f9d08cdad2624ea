//! A modest number of random histories; the command runs many more.

use tollgate::algorithm::bucket::Bucket;
use tollgate_sim::model::{KeyModel, KeyedModel, ModelChange};
use tollgate_sim::oracle::{OracleDecision, OracleVerdict};
use tollgate_sim::parameters::Parameters;
use tollgate_sim::property::history::walk;
use tollgate_sim::property::input_profile::InputProfile;
use tollgate_sim::property::{ALGORITHMS, Failure, history};
use tollgate_sim::rng::Rng;
use tollgate_sim::subject::oracle_model;
use tollgate_sim::subject::packed_algorithm::PackedModel;

const STEPS: u64 = 100_000;

/// Makes the steps of one algorithm; panics at the first that fails.
fn agree(algorithm: &'static str) {
    assert!(ALGORITHMS.contains(&algorithm));
    let (mut made, mut seed) = (0, 1_000_000);
    while made < STEPS {
        match history(algorithm, seed, STEPS - made) {
            Ok(steps) => made += steps,
            Err(failure) => panic!("{failure}"),
        }
        seed += 1;
    }
}

macro_rules! core_and_oracle_agree {
    ($($sentence:ident: $algorithm:literal;)*) => {$(
        #[test]
        fn $sentence() {
            agree($algorithm);
        }
    )*};
}

core_and_oracle_agree! {
    the_token_bucket_answers_as_the_oracle: "token_bucket";
    the_token_bucket_with_a_debt_answers_as_the_oracle: "token_debt";
    the_meter_answers_as_the_oracle: "gcra";
    the_leaky_queue_answers_as_the_oracle: "leaky_queue";
    the_fixed_window_answers_as_the_oracle: "fixed_window";
    the_sliding_log_answers_as_the_oracle: "sliding_log";
    the_sliding_counter_answers_as_the_oracle: "sliding_counter";
    the_strict_counter_answers_as_the_oracle: "strict_counter";
    the_span_counter_answers_as_the_oracle: "span_counter";
    burst_credits_answer_as_the_oracle: "burst_credits";
    permits_in_the_store_answer_as_the_oracle: "store_concurrency";
    the_gate_answers_as_the_oracle: "all_token_bucket";
    the_token_bucket_in_the_store_answers_as_the_oracle: "store_token_bucket";
    the_meter_in_the_store_answers_as_the_oracle: "store_gcra";
    the_leaky_queue_in_the_store_answers_as_the_oracle: "store_leaky_queue";
    the_fixed_window_in_the_store_answers_as_the_oracle: "store_fixed_window";
    the_sliding_log_in_the_store_answers_as_the_oracle: "store_sliding_log";
    the_sliding_counter_in_the_store_answers_as_the_oracle: "store_sliding_counter";
    the_strict_counter_in_the_store_answers_as_the_oracle: "store_strict_counter";
    the_span_counter_in_the_store_answers_as_the_oracle: "store_span_counter";
    burst_credits_in_the_store_answer_as_the_oracle: "store_burst_credits";
}

/// The core, but one step in 97 is wrong.
#[derive(Clone, Debug)]
struct Planted {
    inner: PackedModel<Bucket>,
    steps: u64,
    wrong: fn(&mut Planted, u64, &mut OracleDecision),
}

impl KeyModel for Planted {
    fn check(&mut self, t: u64, cost: u64) -> OracleDecision {
        let mut answer = self.inner.check(t, cost);
        self.steps += 1;
        if self.steps.is_multiple_of(97) {
            (self.wrong)(self, t, &mut answer);
        }
        answer
    }

    fn change(&mut self, t: u64, change: ModelChange) -> Result<OracleDecision, String> {
        self.inner.change(t, change)
    }
}

/// Walks the planted core until a check fails, and returns the failure.
fn caught(wrong: fn(&mut Planted, u64, &mut OracleDecision)) -> Failure {
    let numbers = Parameters::TokenBucket {
        cap: 7,
        n: 7,
        p_ns: 3_000,
    };
    for seed in 0..100 {
        let mut planted = KeyedModel::new(Planted {
            inner: PackedModel::new(numbers).unwrap(),
            steps: 0,
            wrong,
        });
        let profile = InputProfile {
            cap_max: 14,
            has_rate: true,
            ..InputProfile::bucket(7, 7, 3_000)
        };
        let oracle = oracle_model(&numbers).unwrap();
        let mut rng = Rng::new(seed);
        let limit = (profile, "planted".to_owned());
        if let Err(failure) = walk(oracle, &mut planted, limit, &mut rng, 300) {
            return *failure;
        }
    }
    panic!("no check failed");
}

#[test]
fn a_reset_reported_one_nanosecond_late_is_caught() {
    let failure = caught(|_, _, answer| answer.reset_after += 1);
    assert_eq!(failure.what, "core and oracle disagree");
    assert!(!failure.history.is_empty() && failure.history.len() <= 20);
}

#[test]
fn one_unit_too_many_left_is_caught() {
    caught(|_, _, answer| answer.remaining += 1);
}

#[test]
fn a_wait_one_nanosecond_short_is_caught() {
    caught(|_, _, answer| {
        if let OracleVerdict::Refuse { retry_after } = &mut answer.verdict {
            *retry_after -= 1;
        }
    });
}

#[test]
fn a_silently_refunded_unit_is_caught() {
    // Only the state is wrong, and only a later answer shows it.
    let failure = caught(|core, t, _| {
        let refund = ModelChange::Refund { cost: 1, issued: t };
        core.inner.change(t, refund).unwrap();
    });
    assert!(failure.steps > 0);
}

#[test]
fn a_failure_prints_the_command_that_replays_it() {
    let mut failure = caught(|_, _, answer| answer.remaining += 1);
    (failure.algorithm, failure.seed, failure.steps) = ("token_bucket", 17, 97);
    let text = failure.to_string();
    assert!(
        text.ends_with("steps --each 97 --seed 17 --only token_bucket"),
        "{text}"
    );
    assert!(text.contains("expected Ok(OracleDecision"), "{text}");
}

#[test]
fn a_history_is_the_same_for_the_same_seed() {
    for algorithm in ALGORITHMS {
        assert_eq!(history(algorithm, 7, 50), history(algorithm, 7, 50));
        assert_eq!(history(algorithm, 7, 50), Ok(50), "{algorithm}");
    }
    assert!(history("abacus", 1, 1).is_err());
}
