//! The words that CONTRIBUTING.md bans do not come back in names, comments, logs, help and docs.
//!
//! Identifiers are split at `_` and at capitals, so `TurnedDoor` and `look_after` are found as well as prose.

use std::path::Path;

/// Metaphors, people, and words with a standard term (`report`, `untrusted client`, `front end`, `fix`, `lease`).
const BANNED: &[&str] = &[
    "anybody",
    "anyone",
    "believed",
    "borrower",
    "brisk",
    "crowd",
    "crowded",
    "crowds",
    "dice",
    "door",
    "doorkeeper",
    "doors",
    "everybody",
    "everyone",
    "guest",
    "guests",
    "hear",
    "heard",
    "hears",
    "heir",
    "house",
    "houses",
    "lent",
    "loan",
    "loans",
    "mend",
    "mended",
    "mending",
    "mends",
    "newcomer",
    "newcomers",
    "nobody",
    "patience",
    "people",
    "purse",
    "purses",
    "somebody",
    "stranger",
    "strangers",
    "tell",
    "telling",
    "tells",
    "tended",
    "tending",
    "told",
    "turnstile",
    "untold",
    "warden",
    "weather",
    "whoever",
    "whom",
    "whomever",
];

/// The same for several words. Compared with the words of a line, joined by one space.
const BANNED_PHRASES: &[&str] = &[
    "borrow ahead",
    "broken off",
    "carries on",
    "carry on",
    "go on",
    "goes away",
    "goes on",
    "held up",
    "in force",
    "its turn",
    "lets pass",
    "look after",
    "looked after",
    "looks after",
    "made up",
    "so many",
    "stands still",
    "their turn",
    "turned away",
    "under way",
    "went away",
    "word to stop",
];

/// Text that may stay: start of the path, part of the line. An empty part allows every line.
const ALLOWED: &[(&str, &str)] = &[
    // The rule itself.
    (
        "CONTRIBUTING.md",
        "People and metaphors do not name software",
    ),
    // Names of the past beside those of today.
    ("CHANGELOG.md", "| "),
    // This list.
    ("crates/tollgate-sim/tests/suite/vocabulary.rs", ""),
];

/// What is searched: by the end of the file name.
const ENDINGS: &[&str] = &[
    ".rs", ".md", ".yaml", ".yml", ".lua", ".toml", ".json", ".sh", ".py", ".mjs", "Makefile",
];

/// The words of a line in lower case: identifiers split at `_`, `-` and where a capital follows a small letter.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in line.chars() {
        if !c.is_alphabetic() || (c.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        was_lower = c.is_lowercase();
        if c.is_alphabetic() {
            words.last_mut().unwrap().extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The banned words in one line.
fn banned_in(line: &str) -> Vec<&'static str> {
    let words = words(line);
    let text = format!(" {} ", words.join(" "));
    let single = BANNED
        .iter()
        .filter(|banned| words.iter().any(|word| word == *banned));
    let phrases = BANNED_PHRASES
        .iter()
        .filter(|phrase| text.contains(&format!(" {phrase} ")));
    single.chain(phrases).copied().collect()
}

fn search(directory: &Path, root: &Path, found: &mut Vec<String>, files: &mut usize) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with('.') || name == "target" || name == "node_modules" {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            search(&path, root, found, files);
        } else if ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            *files += 1;
            let short = path.strip_prefix(root).unwrap().to_str().unwrap();
            let text = std::fs::read(&path).unwrap();
            for (number, line) in String::from_utf8_lossy(&text).lines().enumerate() {
                let mut allowed = ALLOWED.iter().filter(|(start, _)| short.starts_with(start));
                if allowed.any(|(_, part)| line.contains(part)) {
                    continue;
                }
                for word in banned_in(line) {
                    found.push(format!("{short}:{}: `{word}`: {}", number + 1, line.trim()));
                }
            }
        }
    }
}

#[test]
fn banned_words_do_not_come_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().unwrap();
    let (mut found, mut files) = (Vec::new(), 0);
    search(&root, &root, &mut found, &mut files);
    assert!(files > 500, "only {files} files under {}", root.display());
    let shown = found
        .iter()
        .take(100)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n");
    assert!(
        found.is_empty(),
        "{} banned words; CONTRIBUTING.md has the rules:\n{shown}",
        found.len()
    );
}

#[test]
fn a_banned_word_is_found_in_names_and_prose() {
    for line in [
        "fn look_after() {}",
        "struct OpenDoor;",
        "// Nobody waits.",
        "a-door: 1",
        "TOLD",
    ] {
        assert!(!banned_in(line).is_empty(), "{line}");
    }
    for line in ["fn outdoor() {}", "excellent", "recommend", "intellij"] {
        assert!(banned_in(line).is_empty(), "{line}");
    }
}
