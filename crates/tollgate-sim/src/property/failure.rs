//! A disagreement, told so that it can be repeated and understood.

use std::collections::VecDeque;
use std::fmt;

/// Steps of a history that a failure shows.
const SHOWN: usize = 20;

/// Core and oracle disagree, or a promise was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which algorithm.
    pub algorithm: &'static str,
    /// The seed of the history.
    pub seed: u64,
    /// Steps until it showed.
    pub steps: u64,
    /// The numbers of the limit.
    pub params: String,
    /// The last steps before it, oldest first.
    pub history: Vec<String>,
    /// What went wrong.
    pub what: String,
    /// What the oracle says, or the promise was.
    pub expected: String,
    /// What the core says.
    pub got: String,
}

impl Failure {
    /// A limit that could not even be set up.
    pub fn setup(params: impl Into<String>, what: String) -> Self {
        Self {
            algorithm: "",
            seed: 0,
            steps: 1,
            params: params.into(),
            history: Vec::new(),
            what,
            expected: "a limit".to_owned(),
            got: "none".to_owned(),
        }
    }
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

/// The last few steps of a history.
#[derive(Clone, Debug)]
pub struct Recent<S> {
    steps: VecDeque<S>,
    count: u64,
}

impl<S: fmt::Display> Recent<S> {
    /// No steps yet.
    pub fn new() -> Self {
        Self {
            steps: VecDeque::with_capacity(SHOWN),
            count: 0,
        }
    }

    /// Adds a step; the oldest is forgotten.
    pub fn push(&mut self, step: S) {
        if self.steps.len() == SHOWN {
            self.steps.pop_front();
        }
        self.steps.push_back(step);
        self.count += 1;
    }

    /// The last one.
    pub fn last(&self) -> Option<&S> {
        self.steps.back()
    }

    /// How many there were in all.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The failure of the last step; whose algorithm and seed it is, the caller's caller knows.
    pub fn failure(
        &self,
        params: &str,
        what: &str,
        expected: impl fmt::Debug,
        got: impl fmt::Debug,
    ) -> Box<Failure> {
        Box::new(Failure {
            algorithm: "",
            seed: 0,
            steps: self.count,
            params: params.to_owned(),
            history: self.steps.iter().map(ToString::to_string).collect(),
            what: what.to_owned(),
            expected: format!("{expected:?}"),
            got: format!("{got:?}"),
        })
    }
}

impl<S: fmt::Display> Default for Recent<S> {
    fn default() -> Self {
        Self::new()
    }
}
