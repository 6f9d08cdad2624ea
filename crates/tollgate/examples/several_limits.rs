//! Several limits that a request must pass together: all are charged, or none.
//!
//! ```text
//! cargo run -p tollgate --example several_limits
//! ```

#![allow(clippy::print_stdout, reason = "an example")]

use tollgate::{Admission, Gate, LimitId};

/// Limits of the user, and of the organisation that the user belongs to.
pub(crate) struct Limits {
    gate: Gate,
}

impl Limits {
    const USER: LimitId = LimitId::new(0);
    const ORGANISATION: LimitId = LimitId::new(1);

    pub(crate) fn new() -> Result<Limits, Box<dyn std::error::Error>> {
        let gate = Gate::with_limits([
            "user: 2/s burst 3".parse()?,
            "organisation: 100/min burst 5".parse()?,
        ])?;
        Ok(Limits { gate })
    }

    pub(crate) fn check(&self, user: &str, organisation: &str) -> Admission {
        self.gate.admit(&[
            self.gate.charge(Self::USER, user, 1),
            self.gate.charge(Self::ORGANISATION, organisation, 1),
        ])
    }

    /// The name of the limit that decided.
    pub(crate) fn name(&self, limit: LimitId) -> String {
        self.gate.limiter(limit).limit().name().to_owned()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limits = Limits::new()?;
    for user in ["ada", "ada", "ada", "ada", "bob", "bob", "bob"] {
        let admission = limits.check(user, "acme");
        let limit = admission.binding.map(|limit| limits.name(limit));
        println!(
            "{user}: {:?} by {}",
            admission.decision.verdict,
            limit.unwrap_or_default()
        );
    }
    Ok(())
}
