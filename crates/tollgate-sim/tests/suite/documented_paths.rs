//! The paths and modules that ARCHITECTURE.md and CONTRIBUTING.md name exist.

use std::collections::BTreeSet;
use std::path::Path;

const DOCUMENTS: &[&str] = &["ARCHITECTURE.md", "CONTRIBUTING.md"];

const ENDINGS: &[&str] = &[
    ".rs", ".md", ".toml", ".sh", ".json", ".yaml", ".lua", ".txt", ".py",
];

/// Every file and directory of the repository, relative to its root.
fn repository() -> BTreeSet<String> {
    fn walk(directory: &Path, root: &Path, paths: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if name.starts_with('.') || name == "target" || name == "node_modules" {
                continue;
            }
            paths.insert(path.strip_prefix(root).unwrap().to_str().unwrap().into());
            if path.is_dir() {
                walk(&path, root, paths);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().unwrap();
    let mut paths = BTreeSet::new();
    walk(&root, &root, &mut paths);
    paths
}

/// `src/{a,b}.rs` as `src/a.rs` and `src/b.rs`.
fn expanded(path: &str) -> Vec<String> {
    let Some((start, (names, end))) = path
        .split_once('{')
        .and_then(|(start, rest)| Some((start, rest.split_once('}')?)))
    else {
        return vec![path.into()];
    };
    names
        .split(',')
        .map(|name| format!("{start}{name}{end}"))
        .collect()
}

/// Whether a path, or the module of that name, ends a path of the repository that is below `directory`.
fn exists(path: &str, directory: &str, paths: &BTreeSet<String>) -> bool {
    let path = path.trim_end_matches('/');
    let mut below = paths.iter().filter(|known| known.starts_with(directory));
    below.any(|known| {
        [known.as_str(), known.trim_end_matches(".rs")]
            .iter()
            .any(|known| *known == path || known.ends_with(&format!("/{path}")))
    })
}

/// The paths in one line, each with the directory that it is searched in.
fn named_in(line: &str) -> Vec<(String, &str)> {
    let spans: Vec<&str> = line.split('`').skip(1).step_by(2).map(str::trim).collect();
    // The first span of a row of the table of crates is its directory, the others are its modules.
    let is_row = line.starts_with("| `crates/") && spans[0].matches('/').count() == 1;
    let mut named = Vec::new();
    for span in &spans {
        let is_path = |c: char| c.is_ascii_alphanumeric() || "_-./{},".contains(c);
        if span.starts_with(['/', '-', '.']) || !span.contains(char::is_alphabetic) {
            continue;
        }
        if !span.chars().all(is_path) {
            continue;
        }
        let is_file = ENDINGS.iter().any(|ending| span.ends_with(ending));
        let is_module = span.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        if is_row && is_module {
            named.push((span.to_string(), spans[0]));
        } else if is_file || span.contains('/') {
            named.extend(expanded(span).into_iter().map(|path| (path, "")));
        }
    }
    for link in line.split("](").skip(1) {
        let target = link.split([')', '#']).next().unwrap();
        if !target.is_empty() && !target.contains("://") {
            named.push((target.into(), ""));
        }
    }
    named
}

#[test]
fn every_documented_path_exists() {
    let paths = repository();
    let (mut missing, mut checked) = (Vec::new(), 0);
    for document in DOCUMENTS {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let text = std::fs::read_to_string(root.join(document)).unwrap();
        for (number, line) in text.lines().enumerate() {
            for (path, directory) in named_in(line) {
                checked += 1;
                if !exists(&path, directory, &paths) {
                    missing.push(format!("{document}:{}: {path}", number + 1));
                }
            }
        }
    }
    assert!(checked > 100, "only {checked} paths were found");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn a_missing_path_is_found() {
    let paths = repository();
    let row = "| `crates/tollgate-grpc` | `session`, `no_such_module` and `src/{frame,no_such_file}.rs` |";
    let missing: Vec<String> = named_in(row)
        .into_iter()
        .filter(|(path, directory)| !exists(path, directory, &paths))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(missing, ["no_such_module", "src/no_such_file.rs"]);
}
