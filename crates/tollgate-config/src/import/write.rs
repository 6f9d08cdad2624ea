//! Writes a converted policy as YAML.

use std::collections::HashSet;
use std::fmt::Write as _;

/// A rule of the policy.
#[derive(Debug, Default)]
pub(super) struct Rule {
    /// Its name, which [`policy`] makes valid and unique.
    pub(super) name: String,
    /// The text of `match`.
    pub(super) matches: String,
    /// The text of each `except`.
    pub(super) except: Vec<String>,
    /// Comments on what the policy cannot express.
    pub(super) notes: Vec<String>,
    /// What happens to requests that match.
    pub(super) what: What,
}

/// What a rule does.
#[derive(Debug, Default)]
pub(super) enum What {
    /// It admits them.
    #[default]
    Pass,
    /// It refuses them.
    Refuse,
    /// It limits them.
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
    /// Indices of the rules that are not charged where this one is.
    pub(super) replaces: Vec<usize>,
}

/// The text of a policy with these rules; `head` is its first comment.
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
    // A comment ends with its line, so it must not contain a line break.
    let line: String = line
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let _ = writeln!(text, "{indent}# {line}");
}

/// A text in quotes, in the notation of YAML and JSON.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Valid and unique names, in the order of the rules.
fn names(rules: &[Rule]) -> Vec<String> {
    let mut taken: HashSet<String> = HashSet::from(["default".to_owned()]);
    let mut fresh = |wanted: &str| {
        let base = valid_name(wanted);
        let mut name = base.clone();
        let mut number = 2u64;
        while !taken.insert(name.clone()) {
            let tail = format!("-{number}");
            let room = 64usize.saturating_sub(tail.len());
            name = base.chars().take(room).collect::<String>() + &tail;
            number += 1;
        }
        name
    };
    rules.iter().map(|rule| fresh(&rule.name)).collect()
}

/// Letters, digits, `-`, `_` and `.`, a letter or digit first, at most 64.
fn valid_name(text: &str) -> String {
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
    fn names_are_made_valid_and_unique() {
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
