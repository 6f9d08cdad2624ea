//! A disagreement between product and oracle, with the seed and the last steps, which repeat and explain it.

use std::collections::VecDeque;
use std::fmt;

/// Steps of a history that a failure shows.
const SHOWN: usize = 20;

/// Product and oracle disagree, or a promise is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which algorithm.
    pub algorithm: &'static str,
    /// The seed of the history.
    pub seed: u64,
    /// Steps up to the failure.
    pub steps: u64,
    /// The numbers of the limit.
    pub params: String,
    /// The last steps before it, oldest first.
    pub history: Vec<String>,
    /// Which check failed.
    pub what: String,
    /// The answer of the oracle, or the promise.
    pub expected: String,
    /// The answer of the product.
    pub got: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} (seed {}): {}",
            self.algorithm, self.seed, self.params
        )?;
        for step in &self.history {
            writeln!(f, "    {step}")?;
        }
        writeln!(f, "  {}", self.what)?;
        writeln!(f, "  expected {}", self.expected)?;
        writeln!(f, "  got      {}", self.got)?;
        write!(
            f,
            "  again: cargo run --release -p tollgate-sim -- steps --each {} --seed {} --only {}",
            self.steps, self.seed, self.algorithm
        )
    }
}

/// The last few steps of a history, and the numbers of its limit.
#[derive(Clone, Debug)]
pub struct Recent {
    params: String,
    steps: VecDeque<String>,
    count: u64,
}

impl Recent {
    /// No steps yet of the limit with these numbers.
    pub fn new(params: String) -> Self {
        Self {
            params,
            steps: VecDeque::with_capacity(SHOWN),
            count: 0,
        }
    }

    /// Adds a step and drops the oldest.
    pub fn push(&mut self, step: &dyn fmt::Display) {
        if self.steps.len() == SHOWN {
            self.steps.pop_front();
        }
        self.steps.push_back(step.to_string());
        self.count += 1;
    }

    /// The number of steps of the history, including those that were dropped.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The failure of a limit that could not be set up.
    pub fn setup_failure(&self, error: impl fmt::Display) -> Box<Failure> {
        self.failure(&format!("setup: {error}"), "a limit", "none")
    }

    /// The failure of the last step; `super::history` adds the algorithm and the seed.
    pub fn failure(
        &self,
        what: &str,
        expected: impl fmt::Debug,
        got: impl fmt::Debug,
    ) -> Box<Failure> {
        Box::new(Failure {
            algorithm: "",
            seed: 0,
            steps: self.count.max(1),
            params: self.params.clone(),
            history: self.steps.iter().cloned().collect(),
            what: what.to_owned(),
            expected: format!("{expected:?}"),
            got: format!("{got:?}"),
        })
    }
}
