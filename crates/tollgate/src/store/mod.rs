//! Where the purses are kept. Whoever holds the state makes the decision.

pub mod memory;
