//! A policy as text.

use std::collections::HashSet;
use std::fmt::Write as _;

/// A rule that is to be written.
#[derive(Debug, Default)]
pub(super) struct Rule {
    /// Its name; made fit and unique when it is written.
    pub(super) name: String,
    /// Conditions, as they are written behind `match:`.
    pub(super) matches: String,
    /// The same behind `except:`, each.
    pub(super) except: Vec<String>,
    /// What cannot be said in the policy itself.
    pub(super) notes: Vec<String>,
    /// What becomes of whom it is for.
    pub(super) what: What,
}

/// What becomes of requests.
#[derive(Debug, Default)]
pub(super) enum What {
    /// They are never limited.
    #[default]
    Pass,
    /// They are always refused.
    Refuse,
    /// They have a limit.
    Limit(Limit),
}

/// A fixed window.
#[derive(Debug, Default)]
pub(super) struct Limit {
    /// Parts of the key.
    pub(super) key: Vec<String>,
    /// `10/s`.
    pub(super) allow: String,
    pub(super) is_shadow: bool,
    /// Places of the rules that are not charged where this one is.
    pub(super) replaces: Vec<usize>,
}

/// The rules as a policy; `head` is said first.
pub(super) fn policy(head: &[String], rules: &[Rule]) -> String {
    let names = names(rules);
    let mut text = String::new();
    for line in head {
        comment(&mut text, "", line);
    }
    text.push_str("version: 1\ndefault: pass\n");
    let numbered = || rules.iter().zip(&names);
    let of_kind = |is: fn(&What) -> bool| numbered().filter(move |(rule, _)| is(&rule.what));
    for (list, is) in [
        ("deny", (|w| matches!(w, What::Refuse)) as fn(&What) -> bool),
        ("allow", |w| matches!(w, What::Pass)),
        ("limits", |w| matches!(w, What::Limit(_))),
    ] {
        let mut rules = of_kind(is).peekable();
        if rules.peek().is_none() {
            continue;
        }
        let _ = writeln!(text, "\n{list}:");
        for (rule, name) in rules {
            one(&mut text, rule, name, &names);
        }
    }
    text
}

fn one(text: &mut String, rule: &Rule, name: &str, names: &[String]) {
    for note in &rule.notes {
        comment(text, "  ", note);
    }
    let _ = writeln!(text, "  - name: {name}");
    let _ = writeln!(text, "    match: {}", rule.matches);
    match rule.except.as_slice() {
        [] => {}
        [one] => {
            let _ = writeln!(text, "    except: {one}");
        }
        many => {
            text.push_str("    except:\n");
            for one in many {
                let _ = writeln!(text, "      - {one}");
            }
        }
    }
    let What::Limit(limit) = &rule.what else {
        return;
    };
    let replaced: Vec<&str> = limit
        .replaces
        .iter()
        .filter_map(|at| names.get(*at).map(String::as_str))
        .collect();
    if !replaced.is_empty() {
        let _ = writeln!(text, "    replaces: [{}]", replaced.join(", "));
    }
    if !limit.key.is_empty() {
        let key: Vec<String> = limit.key.iter().map(|part| quoted(part)).collect();
        let _ = writeln!(text, "    key: [{}]", key.join(", "));
    }
    let _ = writeln!(text, "    algorithm: fixed-window");
    let _ = writeln!(text, "    allow: {}", limit.allow);
    if limit.is_shadow {
        let _ = writeln!(text, "    mode: shadow");
    }
}

fn comment(text: &mut String, indent: &str, line: &str) {
    // One line whatever is in it: a comment ends where the line does.
    let line: String = line
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let _ = writeln!(text, "{indent}# {line}");
}

/// A text in quotes, as YAML and JSON write it.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Names that are fit and each there once, in the order of the rules.
fn names(rules: &[Rule]) -> Vec<String> {
    let mut taken: HashSet<String> = HashSet::from(["default".to_owned()]);
    let mut fresh = |wanted: &str| {
        let fit = fit(wanted);
        let mut name = fit.clone();
        let mut number = 2u64;
        while !taken.insert(name.clone()) {
            let tail = format!("-{number}");
            let room = 64usize.saturating_sub(tail.len());
            name = fit.chars().take(room).collect::<String>() + &tail;
            number += 1;
        }
        name
    };
    rules.iter().map(|rule| fresh(&rule.name)).collect()
}

/// Letters, digits, `-`, `_` and `.`, a letter or digit first, at most 64.
fn fit(text: &str) -> String {
    let plain = |c: char| match c {
        c if c.is_ascii_alphanumeric() || "_.-".contains(c) => c,
        _ => '-',
    };
    let text: String = text.chars().map(plain).collect();
    let text = text.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let text: String = text.chars().take(64).collect();
    if text.is_empty() {
        "limit".into()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_fit_and_unique() {
        let rule = |name: &str| Rule {
            name: name.into(),
            ..Rule::default()
        };
        let long = "x".repeat(100);
        let rules = ["a b/c", "a b/c", "__", "default", &long, &long].map(rule);
        let names = names(&rules);
        assert_eq!(names[..4], ["a-b-c", "a-b-c-2", "limit", "default-2"]);
        assert!(names.iter().all(|name| name.len() <= 64));
        assert_ne!(names[4], names[5]);
    }

    #[test]
    fn a_comment_stays_in_its_line() {
        let text = policy(&["a\nlimits: []".into()], &[]);
        assert!(text.starts_with("# a limits: []\n"));
    }
}
