//! The files of the reference service, as one policy.
//!
//! # What a descriptor matches there, and here
//!
//! The entries of a descriptor are walked in order, one level of the tree for each. At a level the child with the
//! very value is taken, else the first pattern in the file that the value is like, else the child without a value;
//! and nobody goes back up. A limit counts only at the depth of the last entry.
//!
//! Here that is `entries`, which lists all entries in order; and `except`, for what another child takes at some
//! level. So every descriptor matches one rule at the most, and the rules can be read one by one.
//!
//! | there | here |
//! |---|---|
//! | a value | the same in `entries` |
//! | no value, or a pattern | the entry is part of the `key`: one count for each value |
//! | a pattern with `share_threshold` | the entry is not part of the `key` |
//! | `unlimited` | an entry of `allow`; if it replaces others, a limit that is never reached |
//! | 0 requests | an entry of `deny` |
//! | month, year | 30 and 365 days, as there |
//!
//! Where keys and values are told apart by `_` there, two different descriptors can be taken for the same. They
//! are not here.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use tollgate_policy::KEY_PARTS_MAX;
use tollgate_policy::pattern::TextPattern;

use super::Converted;
use super::descriptors::{Config, Descriptor, Quota, config};
use super::write::{Limit, Rule, What, policy, quoted};
use crate::problem::Problems;
use crate::read::Item;
use crate::report::Report;
use crate::{decoded, parse, read_file, yaml};

/// The most that a window counts to: one less than there, which nobody will miss.
const MOST: u64 = 4_294_967_294;
/// Files of one folder.
const FILES: usize = 1_000;

/// Makes a policy of these files, given by their names and texts.
///
/// # Errors
/// Everything in them that is wrong, for each file.
pub fn envoy(files: &[(String, Vec<u8>)]) -> Result<Converted, Vec<Problems>> {
    let mut rules = Rules::default();
    let mut domains: HashMap<String, String> = HashMap::new();
    let (mut notes, mut wrong) = (Vec::new(), Vec::new());
    for (name, bytes) in files {
        let text = match decoded(name, bytes) {
            Ok(text) => text,
            Err(problems) => {
                wrong.push(problems);
                continue;
            }
        };
        let report = Report::new(text);
        let read = yaml::tree(text, &report).and_then(|root| config(Item::new(&root, &report)));
        if let Ok(read) = read {
            match domains.insert(read.domain.clone(), name.clone()) {
                Some(first) => {
                    let message = format!("duplicate domain '{}' in config file", read.domain);
                    let hint = format!("put both into one file; the first is {first}");
                    report.error(read.domain_place, "duplicate-domain", message, hint);
                }
                None => rules.add(&read, &report),
            }
        }
        let failed = report.has_errors();
        let problems = report.finish(name);
        match (failed, problems.is_empty()) {
            (true, _) => wrong.push(problems),
            (false, false) => notes.push(problems),
            (false, true) => {}
        }
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let from: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    let head = [
        format!("Made by `tollgate convert envoy` of {}.", from.join(", ")),
        "A limit is for descriptors with all of its `entries`, in their order, and no other."
            .into(),
    ];
    let text = policy(&head, &rules.all);
    // What comes out can be used, or nothing does.
    match parse("converted policy", text.as_bytes()) {
        Ok(_) => Ok(Converted {
            policy: text,
            notes,
        }),
        Err(problems) => Err(vec![problems]),
    }
}

/// Why the files of a folder are no policy.
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
    /// There is no file of this kind.
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// What is wrong in the files.
    Wrong(Vec<Problems>),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, cause } => write!(
                f,
                "`{}` cannot be read: {cause}\nhint: see that it is there and that this program may read it",
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

/// Makes a policy of all files of a folder that end in `.yaml` or `.yml`, in the order of their names.
///
/// # Errors
/// What cannot be read, or is wrong in what can.
pub fn envoy_folder(folder: &Path) -> Result<Converted, ReadError> {
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |cause| ReadError::Unreadable { path, cause }
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed(folder))? {
        let path = entry.map_err(failed(folder))?.path();
        let is_ours = path.extension().is_some_and(|e| e == "yaml" || e == "yml");
        // Followed, because Kubernetes has links there; what is hidden is not meant.
        let is_hidden = path
            .file_name()
            .is_some_and(|n| n.as_encoded_bytes().starts_with(b"."));
        if is_ours && !is_hidden && path.is_file() {
            paths.push(path);
        }
        if paths.len() > FILES {
            let cause = io::Error::other(format!("there are more than {FILES} files"));
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
    envoy(&files).map_err(ReadError::Wrong)
}

/// A step from a node to one of its children.
#[derive(Clone, Copy)]
struct Level<'c> {
    child: &'c Descriptor,
    siblings: &'c [Descriptor],
}

impl<'c> Level<'c> {
    /// What the entry must be, as it is written in `entries`.
    fn entry(&self) -> String {
        let value = self.child.value.as_deref().map(quoted);
        one(&self.child.key, value.as_deref().unwrap_or("true"))
    }

    /// Values that another child takes before this one does.
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

    /// Is each value counted by itself?
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

/// What replaces what, by names that are not unique.
struct Replacing<'c> {
    rule: usize,
    names: &'c [String],
    of: &'c Descriptor,
}

impl Rules {
    fn add(&mut self, config: &Config, report: &Report<'_>) {
        let mut named: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut replacing = Vec::new();
        let mut path = Vec::new();
        self.walk(
            &config.domain,
            &config.descriptors,
            &mut path,
            report,
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
            for name in names {
                let found = named.get(name.as_str());
                if found.is_none() {
                    let message = format!(
                        "`replaces` names '{name}', and no limit of this domain has that name"
                    );
                    let hint = "it is left out; see whether another name was meant";
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
                    let hint = "what it meets is refused; write a limit above 0, or leave it out";
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
        report: &Report<'_>,
        added: &mut dyn FnMut(usize, &'c Descriptor),
    ) {
        for child in descriptors {
            path.push(Level {
                child,
                siblings: descriptors,
            });
            if let Some(rule) = rule(domain, path, report) {
                added(self.all.len(), child);
                self.all.push(rule);
            }
            self.walk(domain, &child.children, path, report, added);
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
            "" => called(domain, path),
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
            let note = "Unlimited there; here a limit that is never reached, so that it can replace others.";
            rule.notes.push(note.into());
            limited(format!("{MOST}/s"), false)
        }
        Quota::Per(0, _) if node.is_shadow => {
            let message =
                "a limit of 0 in shadow mode is left out: it refuses nobody, and counts nothing";
            let hint = "give it at least 1 if what it would refuse is to be counted";
            report.warn(node.place, "shadow-of-nothing", message, hint);
            return None;
        }
        Quota::Per(0, _) => What::Refuse,
        Quota::Per(count, span) => limited(format!("{}/{span}", count.min(MOST)), node.is_shadow),
    };
    Some(rule)
}

/// `edge.remote_address.50.0.0.5`
fn called(domain: &str, path: &[Level<'_>]) -> String {
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

/// For each level at which other children come first: what they take.
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

/// What is counted by.
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
            "is there at two levels, and the policy cannot tell their values apart"
        } else if !is_fit {
            "is no name that the policy can count by"
        } else if at >= KEY_PARTS_MAX {
            "is one more than a key has parts"
        } else {
            continue;
        };
        let message = format!("the key `{key}` {wrong}");
        let hint = "send it under another key from Envoy, or give it a value here";
        report.error(level.child.place, "uncountable", message, hint);
    }
    keys.iter().map(|key| format!("descriptor.{key}")).collect()
}
