//! The policy file: YAML in, a resolved [`tollgate_policy::Policy`] out, or everything that is wrong
//! with it at once.
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
//! What is wrong is told with its place and how to mend it:
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
//! # The road
//!
//! ```text
//! bytes --> [yaml] --tree with places--> [read] --draft--> [lint] --> Policy + warnings
//!              \________________________________\_____________\____> Problems
//! ```
//!
//! It is a crate of its own so that the core need not see YAML, JSON Schema or time zones. It knows how a
//! policy is written and what is unwise about it; it does not know how requests are decided.

#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

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

/// The policy of a ride-hailing service: every algorithm in its place, with the reason beside it.
///
/// ```
/// let loaded = tollgate_config::parse("example", tollgate_config::EXAMPLE.as_bytes())?;
/// assert!(loaded.warnings.is_empty());
/// # Ok::<(), tollgate_config::Problems>(())
/// ```
pub const EXAMPLE: &str = include_str!("../../../examples/ride-hailing/tollgate.yaml");

/// A file that can be used.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// What it says.
    pub policy: Policy,
    /// What is probably not meant or worth knowing; no errors among them.
    pub warnings: Problems,
    /// The tiers, in the order of the file.
    pub tiers: Vec<Tier>,
    /// Where what was used is to be kept.
    pub store: StoreSpec,
    /// How a gateway behaves, and where requests go; the usual if the file does not say.
    pub gateway: GatewaySpec,
}

/// A class of clients, as the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tier {
    /// Its name.
    pub name: String,
    /// Its share where clients wait in line.
    pub weight: u32,
}

/// Reads a policy file.
///
/// # Errors
/// The file cannot be read, or says something that is no policy.
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

/// The bytes of a file, one more than is read at the most: what is larger is refused, not loaded.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(FILE_MAX + 1).unwrap_or(u64::MAX);
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a policy; `name` is what it is called in problems.
///
/// # Errors
/// Everything in it that is wrong.
pub fn parse(name: &str, text: &[u8]) -> Result<Loaded, Problems> {
    parse_at(name, text, read::when::now())
}

/// Reads a policy as at `now`, which decides what is told about limits that have expired.
///
/// # Errors
/// Everything in it that is wrong.
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
        }),
        _ => Err(problems),
    }
}

/// Reads one override of a limit, as YAML or JSON: `{"key": "acme", "allow": "100/s"}`. What it does not
/// say is taken from the limit.
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
/// Everything in it that is wrong.
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

/// Reads the quota of one limit that stands alone: the fields that say how much, as in the policy file (`allow: 5/s,
/// burst: 10`, with or without braces around them), or a rate alone.
///
/// Problems show the text with its braces, because their columns count them.
///
/// ```
/// let quota = tollgate_config::quota_from("algorithm: gcra, allow: 10/s, tolerance: 250ms")?;
/// assert_eq!(quota.to_string(), "gcra 10/s tolerance 250ms");
/// assert_eq!(tollgate_config::quota_from("5/s")?, tollgate_config::quota_from("{ allow: 5/s }")?);
/// # Ok::<(), tollgate_config::Problems>(())
/// ```
///
/// # Errors
/// Everything in it that is wrong.
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

/// Reads the address of a server as `gateway: upstreams` has it: `http://127.0.0.1:3000`.
///
/// # Errors
/// What is wrong with it, and how to mend it.
pub fn server_from(text: &str) -> Result<ServerSpec, (String, String)> {
    read::server_address(text)
}

/// The text, if it is one and not too long.
fn decoded<'t>(name: &str, text: &'t [u8]) -> Result<&'t str, Problems> {
    if text.len() > FILE_MAX {
        return Err(whole_file(
            name,
            "too-large",
            format!("the file is larger than {} KiB", FILE_MAX >> 10),
            "use a key, tiers or overrides where limits differ only in whom they are for",
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
