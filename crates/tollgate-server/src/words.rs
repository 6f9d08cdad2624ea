//! The words of the protocol: what is answered, in JSON and to people.

use tollgate::Verdict;
use tollgate_policy::{Basis, Role};

/// What happens to a request.
pub(crate) const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Wait { .. } => "wait",
        Verdict::Refuse { .. } => "refuse",
        Verdict::Never => "never",
    }
}

/// How a limit takes part.
pub(crate) const fn role(role: Role) -> &'static str {
    match role {
        Role::Enforced => "enforced",
        Role::Shadow => "shadow",
        Role::Candidate => "candidate",
        Role::Unlimited => "unlimited",
    }
}

/// Why it happens.
pub(crate) const fn reason(basis: Basis) -> &'static str {
    match basis {
        Basis::AllowList(_) => "allow-list",
        Basis::DenyList(_) => "deny-list",
        Basis::Unmatched => "unmatched",
        Basis::SwitchedOff => "switched-off",
        Basis::Path(_) => "path",
        Basis::MissingKey(_) => "missing-key",
        Basis::Blocked(_) => "blocked",
        Basis::TooManyLimits => "too-many-limits",
        Basis::StoreError(_) => "store-error",
        _ => "limit",
    }
}
