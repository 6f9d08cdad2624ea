//! Names of verdicts, roles and reasons: the same in JSON, RESP, metrics and logs.

use tollgate::Verdict;
use tollgate_policy::{Reason, Role};

/// The name of a verdict.
pub const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Wait { .. } => "wait",
        Verdict::Refuse { .. } => "refuse",
        Verdict::Never => "never",
    }
}

/// The name of a limit's role in a decision.
pub const fn role(role: Role) -> &'static str {
    match role {
        Role::Enforced => "enforced",
        Role::Shadow => "shadow",
        Role::Candidate => "candidate",
        Role::Unlimited => "unlimited",
    }
}

/// The name of the reason of a decision.
pub const fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::AllowList(_) => "allow-list",
        Reason::DenyList(_) => "deny-list",
        Reason::Unmatched => "unmatched",
        Reason::OnlyCounted => "only-counted",
        Reason::SwitchedOff => "switched-off",
        Reason::Path(_) => "path",
        Reason::MissingKey(_) => "missing-key",
        Reason::Blocked(_) => "blocked",
        Reason::TooManyLimits => "too-many-limits",
        Reason::StoreError(_) => "store-error",
        _ => "limit",
    }
}
