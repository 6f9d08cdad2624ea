//! Names of verdicts, roles and reasons: the same in JSON, RESP, metrics and logs.

use tollgate::Verdict;
use tollgate_policy::{Basis, Role};

/// The name of a verdict.
pub(crate) const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Wait { .. } => "wait",
        Verdict::Refuse { .. } => "refuse",
        Verdict::Never => "never",
    }
}

/// The name of a limit's role in a decision.
pub(crate) const fn role(role: Role) -> &'static str {
    match role {
        Role::Enforced => "enforced",
        Role::Shadow => "shadow",
        Role::Candidate => "candidate",
        Role::Unlimited => "unlimited",
    }
}

/// The name of the reason of a decision.
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
