//! The policy file of Tollgate: parses YAML or JSON into a resolved [`tollgate_policy::Policy`].
//!
//! ```
//! let text = "
//! default: pass
//! limits:
//!   - { name: app-open, match: { path: /api/rides/** }, key: ip, allow: 5/s, burst: 10 }
//! ";
//! let loaded = tollgate_config::parse("tollgate.yaml", text.as_bytes())?;
//! assert_eq!(&*loaded.policy.limits[0].name, "app-open");
//! assert!(loaded.warnings.is_empty());
//! # Ok::<(), tollgate_config::Problems>(())
//! ```
//!
//! All errors of a file are reported at once, each with its place and a hint:
//!
//! ```
//! let problems = tollgate_config::parse("p.yaml", b"default: pass\nlimits:\n  - { name: a, allow: 5 }\n").unwrap_err();
//! assert_eq!(problems.to_string(), "\
//! error: `5` is not a rate: it has no `/`
//!   --> p.yaml:3:23
//!    |    - { name: a, allow: 5 }
//!    |                        ^
//! hint: write `5/s` or `5/min`
//!
//! 1 error
//! ");
//! ```
//!
//! # How the parts fit
//!
//! ```text
//! bytes --> [yaml] --tree with places--> [read] --draft--> [lint] --> Policy + warnings
//!              \________________________________\_____________\____> Problems
//! ```
//!
//! | item | what it is for |
//! |---|---|
//! | [`load`], [`parse`] | a policy file to a [`Loaded`] policy |
//! | [`override_from`], [`quota_from`], [`server_from`] | single values in the notation of the file, for the admin API and command lines |
//! | [`GatewaySpec`], [`StoreSpec`] | the sections that `tollgate-server` and `tollgate-redis` use |
//! | [`Problems`] | errors, warnings and notes, as text or JSON |
//! | [`schema()`] | the JSON Schema for editors |
//! | [`import`] | conversion of files of Envoy's reference service and of Limitador |
//!
//! # Bounds
//!
//! A file has at most [`FILE_MAX`] bytes and a nesting of 32. The lists in it and their names have maximum lengths. Reading
//! a policy resolves no name, opens no other file and reads no variable, so a policy can be checked on any machine.
//!
//! The crate is separate from `tollgate-policy` so that the policy engine does not depend on YAML, JSON Schema or time
//! zones.

#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

mod expect;
mod gateway;
pub mod import;
mod lint;

mod problem;
mod read;
mod redact;
mod report;
mod schema;
mod shape;
mod store;
pub mod suggest;
mod yaml;
mod yaml_faults;
mod yaml_unread;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use tollgate::Moment;
use tollgate_policy::{LimitRule, Override, Policy, Quota};

pub use crate::expect::{
    ExpectedCase, ExpectedDecision, ExpectedRequest, ExpectedSettlement, ExpectedStep,
};
pub use crate::gateway::{
    AcceptSpec, ClientTimeouts, GatewaySpec, HealthSpec, Protocol, ServerSpec, UpstreamSpec,
};
use crate::problem::Place;
pub use crate::problem::{Problem, Problems, Severity};
use crate::read::Item;
use crate::report::Report;
pub use crate::schema::schema;
pub use crate::store::{SecretSpec, SharedSpec, StoreSpec, TlsFiles, Topology};
pub use crate::yaml::FILE_MAX;

/// A complete policy for a ride-hailing service: every algorithm, with the reason for each choice.
///
/// ```
/// let loaded = tollgate_config::parse("example", tollgate_config::EXAMPLE.as_bytes())?;
/// assert!(loaded.warnings.is_empty());
/// # Ok::<(), tollgate_config::Problems>(())
/// ```
pub const EXAMPLE: &str = include_str!("../../../examples/ride-hailing/tollgate.yaml");

/// A valid policy file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The resolved policy.
    pub policy: Policy,
    /// Warnings and notes; no errors among them.
    pub warnings: Problems,
    /// The tiers, in the order of the file.
    pub tiers: Vec<Tier>,
    /// The store of usage.
    pub store: StoreSpec,
    /// Settings of the gateway; defaults if the file has none.
    pub gateway: GatewaySpec,
    /// The cases that `tollgate test` runs.
    pub expect: Vec<ExpectedCase>,
}

/// A class of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tier {
    /// Its name.
    pub name: String,
    /// The weight in fair queues.
    pub weight: u32,
}

/// Reads and resolves a policy file.
///
/// # Errors
/// The file cannot be read, or is not a valid policy.
pub fn load(path: &Path) -> Result<Loaded, Problems> {
    let name = path.display().to_string();
    match read_file(path) {
        Ok(bytes) => parse(&name, &bytes),
        Err(error) => Err(whole_file(
            &name,
            "unreadable",
            format!("the file cannot be read: {error}"),
            "see that it is there and that this program may read it",
        )),
    }
}

/// Reads a file up to one byte above the maximum: a larger file is refused without being loaded.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(FILE_MAX + 1).unwrap_or(u64::MAX);
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a policy; `name` is the file name that problems show.
///
/// # Errors
/// All errors in it.
pub fn parse(name: &str, text: &[u8]) -> Result<Loaded, Problems> {
    parse_at(name, text, read::when::now())
}

/// Reads a policy as of `now`, which decides which limits have expired.
///
/// # Errors
/// All errors in it.
pub fn parse_at(name: &str, text: &[u8], now: Moment) -> Result<Loaded, Problems> {
    let text = decoded(name, text)?;
    let report = Report::new(text);
    let draft = yaml::tree(text, &report).and_then(|root| read::file(Item::new(&root, &report)));
    if let Ok(draft) = &draft {
        lint::lint(draft, now, &report);
    }
    let failed = report.has_errors();
    let problems = report.finish(name);
    match draft {
        Ok(draft) if !failed => Ok(Loaded {
            policy: draft.policy,
            warnings: problems,
            tiers: draft
                .tiers
                .into_iter()
                .map(|tier| Tier {
                    name: tier.name,
                    weight: tier.weight,
                })
                .collect(),
            store: draft.store.spec,
            gateway: draft.gateway.spec,
            expect: draft.expect,
        }),
        _ => Err(problems),
    }
}

/// Reads one override of a limit, as YAML or JSON: `{"key": "acme", "allow": "100/s"}`. Fields that it does not set
/// are taken from the limit.
///
/// ```
/// let text = b"limits: [{ name: a, key: header.x-org, allow: 5/s }]\ndefault: pass";
/// let loaded = tollgate_config::parse("p.yaml", text)?;
/// let text = br#"{"key": "acme", "allow": "100/s"}"#;
/// let change = tollgate_config::override_from(&loaded.policy.limits[0], text)?;
/// assert_eq!(change.key, ["acme"]);
/// # Ok::<(), tollgate_config::Problems>(())
/// ```
///
/// # Errors
/// All errors in it.
pub fn override_from(rule: &LimitRule, text: &[u8]) -> Result<Override, Problems> {
    const NAME: &str = "override";
    let text = decoded(NAME, text)?;
    let report = Report::new(text);
    let read = yaml::tree(text, &report)
        .and_then(|root| read::one_override(Item::new(&root, &report), rule));
    let failed = report.has_errors();
    match read {
        Ok(read) if !failed => Ok(read),
        _ => Err(report.finish(NAME)),
    }
}

/// Reads the quota of a single limit: fields of the policy file (`allow: 5/s, burst: 10`, with or without braces), or
/// a rate alone.
///
/// Problems show the text in braces, because their columns count them.
///
/// ```
/// let quota = tollgate_config::quota_from("algorithm: gcra, allow: 10/s, tolerance: 250ms")?;
/// assert_eq!(quota.to_string(), "gcra 10/s tolerance 250ms");
/// assert_eq!(tollgate_config::quota_from("5/s")?, tollgate_config::quota_from("{ allow: 5/s }")?);
/// # Ok::<(), tollgate_config::Problems>(())
/// ```
///
/// # Errors
/// All errors in it.
pub fn quota_from(text: &str) -> Result<Quota, Problems> {
    const NAME: &str = "limit";
    let text = decoded(NAME, text.as_bytes())?.trim();
    if text.is_empty() {
        let hint = "write one such as `5/s`, or its fields: `allow: 5/s, burst: 10`";
        return Err(whole_file(
            NAME,
            "empty",
            "the limit is empty".to_owned(),
            hint,
        ));
    }
    let bare = text.contains(':') && !text.starts_with('{') && !text.contains('\n');
    let text = match bare {
        true => format!("{{ {text} }}"),
        false => text.to_owned(),
    };
    let report = Report::new(&text);
    let read =
        yaml::tree(&text, &report).and_then(|root| read::one_limit(Item::new(&root, &report)));
    let failed = report.has_errors();
    match read {
        Ok(quota) if !failed => Ok(quota),
        _ => Err(report.finish(NAME)),
    }
}

/// Reads the address of a server in the format of `gateway: upstreams`: `http://127.0.0.1:3000`.
///
/// # Errors
/// The error in the address, and how to fix it.
pub fn server_from(text: &str) -> Result<ServerSpec, (String, String)> {
    read::server_address(text)
}

/// The text of a file, if it is UTF-8 and within the maximum size.
fn decoded<'t>(name: &str, text: &'t [u8]) -> Result<&'t str, Problems> {
    if text.len() > FILE_MAX {
        return Err(whole_file(
            name,
            "too-large",
            format!("the file is larger than {} KiB", FILE_MAX >> 10),
            "use a key, tiers or overrides where limits differ only in the clients that they match",
        ));
    }
    match std::str::from_utf8(text) {
        // Some editors put a byte order mark first.
        Ok(text) => Ok(text.strip_prefix('\u{feff}').unwrap_or(text)),
        Err(error) => {
            let good = text.get(..error.valid_up_to()).unwrap_or_default();
            let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
            Err(whole_file(
                name,
                "not-utf-8",
                format!("the file is not UTF-8 text: see line {line}"),
                "save it as UTF-8",
            ))
        }
    }
}

fn whole_file(name: &str, code: &'static str, message: String, hint: &str) -> Problems {
    let report = Report::new("");
    report.error(Place::FILE, code, message, hint);
    report.finish(name)
}
