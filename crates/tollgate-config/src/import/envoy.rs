//! Converts the files of the reference service to one policy.
//!
//! # Matching
//!
//! The reference service walks the entries of a descriptor in order, one level of the tree for each. At a level it takes the
//! child with exactly that value, else the first matching pattern of the file, else the child without a value. It never
//! backtracks. A limit applies only at the depth of the last entry.
//!
//! The policy has `entries`, which lists all entries in order, and `except` for the values that another child takes. So
//! every descriptor matches at most one rule.
//!
//! | file | policy |
//! |---|---|
//! | a value | the same in `entries` |
//! | no value, or a pattern | the entry is part of the `key`: one count for each value |
//! | a pattern with `share_threshold` | the entry is not part of the `key` |
//! | `unlimited` | an entry of `allow`; if it replaces others, a limit that is never reached |
//! | 0 requests | an entry of `deny` |
//! | month, year | 30 and 365 days, as in the reference service |
//! | `quota_mode` | an ordinary limit, with a warning: there a request is refused if all limits in quota mode are over |
//! | `metadata`, names of metrics | left out, with a note |
//!
//! The reference service joins keys and values by `_`, so it can confuse two different descriptors. The policy does not.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use tollgate_policy::KEY_PARTS_MAX;
use tollgate_policy::pattern::TextPattern;

use super::Converted;
use super::descriptors::{Config, Descriptor, Quota, config};
use super::write::{Limit, Rule, What, policy, quoted};
use crate::problem::{Problems, Severity};
use crate::read::Item;
use crate::report::Report;
use crate::{decoded, parse, read_file, yaml};

/// The largest limit of a window: one less than in the reference service.
const MAX: u64 = 4_294_967_294;
/// Files of one folder.
const FILES_MAX: usize = 1_000;

/// Settings of the reference service that are not in its files.
#[derive(Clone, Copy, Debug, Default)]
pub struct EnvoyOptions {
    /// Whether files with the same domain are merged, as with its `MERGE_DOMAIN_CONFIG`. Otherwise they are an error.
    pub merge_domains: bool,
    /// Whether limits are only counted, as with its `SHADOW_MODE`.
    pub shadow: bool,
}

/// Converts these files, given by their names and texts, to a policy.
///
/// # Errors
/// All errors in them, for each file.
pub fn envoy(
    files: &[(String, Vec<u8>)],
    options: EnvoyOptions,
) -> Result<Converted, Vec<Problems>> {
    let mut undecodable = Vec::new();
    let mut reports: Vec<(&str, Report<'_>)> = Vec::new();
    let mut configs: Vec<Config> = Vec::new();
    for (name, bytes) in files {
        let text = match decoded(name, bytes) {
            Ok(text) => text,
            Err(problems) => {
                undecodable.push(problems);
                continue;
            }
        };
        let report = Report::new(text);
        let read = yaml::tree(text, &report).and_then(|root| config(Item::new(&root, &report)));
        let file = reports.len();
        if let Ok(mut read) = read {
            for descriptor in &mut read.descriptors {
                descriptor.set_file(file, options.shadow);
            }
            add(read, &mut configs, options, &report, &reports);
        }
        reports.push((name, report));
    }
    let mut rules = Rules::default();
    for config in &configs {
        rules.add(config, &reports);
    }
    let is_wrong = |problems: &Problems| problems.count(Severity::Error) > 0;
    let problems = reports
        .into_iter()
        .map(|(name, report)| report.finish(name));
    let (mut wrong, notes): (Vec<_>, Vec<_>) = problems
        .filter(|problems| !problems.is_empty())
        .partition(is_wrong);
    wrong.append(&mut undecodable);
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let from: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    let head = [
        format!(
            "Converted by `tollgate convert envoy` from {}.",
            from.join(", ")
        ),
        "A limit applies to descriptors with exactly its `entries`, in their order.".into(),
    ];
    let text = policy(&head, &rules.all);
    // The result is a valid policy, or an error.
    match parse("converted policy", text.as_bytes()) {
        Ok(_) => Ok(Converted {
            policy: text,
            notes,
        }),
        Err(problems) => Err(vec![problems]),
    }
}

/// Adds the configuration of a file, merged into the one of its domain if that is requested.
fn add(
    read: Config,
    configs: &mut Vec<Config>,
    options: EnvoyOptions,
    report: &Report<'_>,
    reports: &[(&str, Report<'_>)],
) {
    let Some(first) = configs.iter_mut().find(|known| known.domain == read.domain) else {
        return configs.push(read);
    };
    if !options.merge_domains {
        let file = first.descriptors.first().map_or(0, |first| first.file);
        let first = reports.get(file).map_or("", |(name, _)| name);
        let message = format!("duplicate domain '{}' in config file", read.domain);
        let hint = format!(
            "put both into one file, or merge them with `--merge-domains`; the first is {first}"
        );
        report.error(read.domain_place, "duplicate-domain", message, hint);
        return;
    }
    for descriptor in read.descriptors {
        let same =
            |known: &&Descriptor| known.key == descriptor.key && known.value == descriptor.value;
        if first.descriptors.iter().any(|known| same(&known)) {
            let message = format!(
                "duplicate descriptor composite key '{}'",
                descriptor.composite()
            );
            let hint = "another file of this domain has it; keep one of the two";
            report.error(descriptor.place, "duplicate-descriptor", message, hint);
        }
        first.descriptors.push(descriptor);
    }
}

/// Why the files of a folder cannot be converted.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The folder or a file in it cannot be read.
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// There is no YAML file.
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// Errors in the files.
    Wrong(Vec<Problems>),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, cause } => write!(
                f,
                "`{}` cannot be read: {cause}\nhint: check that it exists and that this process may read it",
                path.display()
            ),
            Self::Empty { path } => write!(
                f,
                "there is no file that ends in .yaml or .yml in `{}`\nhint: name the folder that holds the files of the rate limit service",
                path.display()
            ),
            Self::Wrong(all) => all.iter().try_for_each(|problems| problems.fmt(f)),
        }
    }
}

impl std::error::Error for ReadError {}

/// Converts all files of a folder that end in `.yaml` or `.yml`, in the order of their names.
///
/// # Errors
/// A file that cannot be read, or errors in the files.
pub fn envoy_folder(folder: &Path) -> Result<Converted, ReadError> {
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |cause| ReadError::Unreadable { path, cause }
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed(folder))? {
        let path = entry.map_err(failed(folder))?.path();
        let is_ours = path.extension().is_some_and(|e| e == "yaml" || e == "yml");
        // Links are followed, because Kubernetes mounts files as links; its hidden files are skipped.
        let is_hidden = path
            .file_name()
            .is_some_and(|n| n.as_encoded_bytes().starts_with(b"."));
        if is_ours && !is_hidden && path.is_file() {
            paths.push(path);
        }
        if paths.len() > FILES_MAX {
            let cause = io::Error::other(format!("there are more than {FILES_MAX} files"));
            return Err(failed(folder)(cause));
        }
    }
    if paths.is_empty() {
        return Err(ReadError::Empty {
            path: folder.into(),
        });
    }
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = read_file(&path).map_err(failed(&path))?;
        Ok((path.display().to_string(), bytes))
    };
    let files = paths.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    envoy(&files, EnvoyOptions::default()).map_err(ReadError::Wrong)
}

/// A step from a node to one of its children.
#[derive(Clone, Copy)]
struct Level<'c> {
    child: &'c Descriptor,
    siblings: &'c [Descriptor],
}

impl<'c> Level<'c> {
    /// The item of `entries` for this level.
    fn entry(&self) -> String {
        let value = self.child.value.as_deref().map(quoted);
        one(&self.child.key, value.as_deref().unwrap_or("true"))
    }

    /// Values that another child matches before this one.
    fn taken_before(&self) -> Vec<&'c str> {
        let child = self.child;
        let Some(value) = &child.value else {
            let others = self.siblings.iter().filter(|s| s.key == child.key);
            return others.filter_map(|s| s.value.as_deref()).collect();
        };
        if !child.is_wildcard() {
            return Vec::new();
        }
        let own = TextPattern::new(value);
        let mut is_before = true;
        let mut taken = Vec::new();
        for other in self.siblings.iter().filter(|s| s.key == child.key) {
            is_before = is_before && !std::ptr::eq(other, child);
            if let Some(value) = &other.value {
                let exact = !other.is_wildcard() && own.matches(value.as_bytes());
                if exact || (other.is_wildcard() && is_before) {
                    taken.push(value.as_str());
                }
            }
        }
        taken
    }

    /// Is each value counted separately?
    fn is_in_key(&self) -> bool {
        match self.child.is_wildcard() {
            true => !self.child.shares,
            false => self.child.value.is_none(),
        }
    }
}

fn one(key: &str, test: &str) -> String {
    format!("{{ {}: {test} }}", quoted(key))
}

/// The rules of all files.
#[derive(Default)]
struct Rules {
    all: Vec<Rule>,
}

/// A rule that replaces others, by names that are not unique.
struct Replacing<'c> {
    rule: usize,
    names: &'c [String],
    of: &'c Descriptor,
}

impl Rules {
    fn add(&mut self, config: &Config, reports: &[(&str, Report<'_>)]) {
        let mut named: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut replacing = Vec::new();
        let mut path = Vec::new();
        self.walk(
            &config.domain,
            &config.descriptors,
            &mut path,
            reports,
            &mut |rule, of| {
                let Some(limit) = &of.limit else { return };
                if !limit.name.is_empty() {
                    named.entry(&limit.name).or_default().push(rule);
                }
                if !limit.replaces.is_empty() {
                    replacing.push(Replacing {
                        rule,
                        names: &limit.replaces,
                        of,
                    });
                }
            },
        );
        for Replacing { rule, names, of } in replacing {
            let Some((_, report)) = reports.get(of.file) else {
                continue;
            };
            for name in names {
                let found = named.get(name.as_str());
                if found.is_none() {
                    let message = format!(
                        "`replaces` names '{name}', and no limit of this domain has that name"
                    );
                    let hint = "it is left out; check the name";
                    report.warn(of.place, "replaces-nothing", message.clone(), hint);
                    if let Some(rule) = self.all.get_mut(rule) {
                        rule.notes.push(message);
                    }
                }
                let refuses = |at: &usize| {
                    let what = self.all.get(*at).map(|rule| &rule.what);
                    matches!(what, Some(What::Refuse))
                };
                if found.is_some_and(|found| found.iter().any(refuses)) {
                    let message = format!(
                        "`replaces` names '{name}', which allows 0 and becomes an entry of `deny`: that cannot be replaced"
                    );
                    let hint =
                        "requests that it matches are refused; write a limit above 0, or remove it";
                    report.warn(of.place, "replaces-nothing", message.clone(), hint);
                    if let Some(rule) = self.all.get_mut(rule) {
                        rule.notes.push(message);
                    }
                }
                let is_limit = |at: &usize| {
                    let what = self.all.get(*at).map(|rule| &rule.what);
                    matches!(what, Some(What::Limit(_)))
                };
                let places: Vec<usize> = found.into_iter().flatten().copied().collect();
                let places: Vec<usize> = places.into_iter().filter(is_limit).collect();
                if let Some(What::Limit(limit)) = self.all.get_mut(rule).map(|r| &mut r.what) {
                    limit
                        .replaces
                        .extend(places.into_iter().filter(|at| *at != rule));
                    limit.replaces.dedup();
                }
            }
        }
    }

    fn walk<'c>(
        &mut self,
        domain: &str,
        descriptors: &'c [Descriptor],
        path: &mut Vec<Level<'c>>,
        reports: &[(&str, Report<'_>)],
        added: &mut dyn FnMut(usize, &'c Descriptor),
    ) {
        for child in descriptors {
            path.push(Level {
                child,
                siblings: descriptors,
            });
            let report = reports.get(child.file).map(|(_, report)| report);
            if let Some(rule) = report.and_then(|report| rule(domain, path, report)) {
                added(self.all.len(), child);
                self.all.push(rule);
            }
            self.walk(domain, &child.children, path, reports, added);
            path.pop();
        }
    }
}

/// The rule of the node at the end of a path, if it has a limit.
fn rule(domain: &str, path: &[Level<'_>], report: &Report<'_>) -> Option<Rule> {
    let node = path.last()?.child;
    let limit = node.limit.as_ref()?;
    let mut rule = Rule {
        name: match limit.name.as_str() {
            "" => default_name(domain, path),
            name => name.to_owned(),
        },
        matches: format!(
            "{{ domain: {}, entries: [{}] }}",
            quoted(domain),
            path.iter().map(Level::entry).collect::<Vec<_>>().join(", ")
        ),
        except: excepted(path),
        notes: node.notes.clone(),
        what: What::Pass,
    };
    let limited = |allow: String, is_shadow| {
        What::Limit(Limit {
            key: key(path, report),
            allow,
            is_shadow,
            replaces: Vec::new(),
        })
    };
    rule.what = match limit.quota {
        Quota::Unlimited if limit.replaces.is_empty() => What::Pass,
        Quota::Unlimited => {
            let note = "Unlimited in the original; a limit that is never reached, so that it can replace others.";
            rule.notes.push(note.into());
            limited(format!("{MAX}/s"), false)
        }
        Quota::Per(0, _) if node.is_shadow => {
            let message =
                "a limit of 0 in shadow mode is left out: it would refuse and count nothing";
            let hint = "write at least 1 to count what it would refuse";
            report.warn(node.place, "shadow-of-nothing", message, hint);
            return None;
        }
        Quota::Per(0, _) => What::Refuse,
        Quota::Per(count, span) => limited(format!("{}/{span}", count.min(MAX)), node.is_shadow),
    };
    Some(rule)
}

/// `edge.remote_address.50.0.0.5`
fn default_name(domain: &str, path: &[Level<'_>]) -> String {
    let mut name = domain.to_owned();
    for level in path {
        name.push('.');
        name.push_str(&level.child.key);
        if let Some(value) = &level.child.value {
            name.push('.');
            name.push_str(value);
        }
    }
    name
}

/// For each level, the values that other children match first.
fn excepted(path: &[Level<'_>]) -> Vec<String> {
    let mut all = Vec::new();
    for (at, level) in path.iter().enumerate() {
        let taken = level.taken_before();
        if taken.is_empty() {
            continue;
        }
        let values: Vec<String> = taken.into_iter().map(quoted).collect();
        let values = format!("[{}]", values.join(", "));
        let entries = path.iter().enumerate().map(|(other, level)| {
            let test = if other == at { values.as_str() } else { "true" };
            one(&level.child.key, test)
        });
        let entries: Vec<String> = entries.collect();
        all.push(format!("{{ entries: [{}] }}", entries.join(", ")));
    }
    all
}

/// The parts of the key.
fn key(path: &[Level<'_>], report: &Report<'_>) -> Vec<String> {
    let counted: Vec<&Level<'_>> = path.iter().filter(|level| level.is_in_key()).collect();
    let keys: Vec<&str> = counted.iter().map(|l| l.child.key.as_str()).collect();
    for (at, level) in counted.iter().enumerate() {
        let key = level.child.key.as_str();
        let is_twice = path.iter().filter(|l| l.child.key == key).count() > 1;
        let is_fit = key.len() <= 128
            && !key.contains('|')
            && !key.chars().any(|c| c.is_control() || c.is_whitespace());
        let wrong = if is_twice {
            "is at two levels, and a policy cannot distinguish their values"
        } else if !is_fit {
            "is not a name that a policy can count by"
        } else if at >= KEY_PARTS_MAX {
            "is beyond the maximum number of parts of a key"
        } else {
            continue;
        };
        let message = format!("the key `{key}` {wrong}");
        let hint = "send it under another key from Envoy, or give it a value here";
        report.error(level.child.place, "uncountable", message, hint);
    }
    keys.iter().map(|key| format!("descriptor.{key}")).collect()
}
