//! The console blocks of the documentation, run in order exactly as they are printed.
//!
//! The language of a code block says what happens to it:
//!
//! - `console`: the block is run. Lines that begin with `$ ` are commands, the lines below are what a command prints. All
//!   blocks of one file are one shell session in an empty directory, with the built `tollgate` first in `PATH`.
//! - any other language: the block is not run, and has no `$ ` prompt. Commands that build, install or measure for minutes are
//!   `sh` blocks; a path after `--path` in them must exist.
//!
//! In printed output `…` stands for any text in a line, and a line with `…` alone for any lines. Output that a block does not
//! print is not compared. A command that fails, fails the test.
//!
//! The documentation uses the default ports, so one test runs all sessions, one after the other. It waits for the ports and
//! fails if one stays taken. After a command with `&` the session waits for the first line that says that the program
//! listens, after `kill` for the end of the job: a reader does both.

#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]
#![allow(clippy::panic, reason = "a test that cannot run has failed")]

mod block;
mod clients;
mod session;

use std::fs;
use std::path::{Path, PathBuf};

use block::Block;

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages, by their paths from the root: the README, docs/, and the READMEs of crates.
fn pages() -> Vec<(String, String)> {
    let root = root().canonicalize().unwrap();
    let mut paths = vec![root.join("README.md")];
    for directory in ["docs", "examples", "examples/clients"] {
        let Ok(entries) = fs::read_dir(root.join(directory)) else {
            continue;
        };
        paths.extend(entries.map(|entry| entry.unwrap().path()));
    }
    let crates = fs::read_dir(root.join("crates")).unwrap();
    paths.extend(crates.map(|entry| entry.unwrap().path().join("README.md")));
    paths.retain(|path| path.extension().is_some_and(|e| e == "md") && path.is_file());
    paths[1..].sort();
    let page = |path: PathBuf| {
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        (name, fs::read_to_string(path).unwrap())
    };
    paths.into_iter().map(page).collect()
}

#[test]
fn every_console_block_runs_as_printed() {
    let mut count = 0;
    for (name, text) in pages() {
        let steps: Vec<_> = block::blocks(&text)
            .iter()
            .filter(|block| block.language == "console")
            .flat_map(|block| block.steps(&name))
            .collect();
        count += steps.len();
        if !steps.is_empty() {
            session::run(&name, &steps, &root());
        }
    }
    assert!(count > 20, "only {count} commands were found");
}

#[test]
fn a_block_with_a_prompt_is_a_console_block() {
    for (name, text) in pages() {
        for Block {
            language,
            line,
            lines,
        } in block::blocks(&text)
        {
            let has_prompt = lines.iter().any(|line| line.starts_with("$ "));
            assert!(
                language == "console" || !has_prompt,
                "{name}:{line}: a `{language}` block has a prompt"
            );
            let mut words = lines.iter().flat_map(|line| line.split_whitespace());
            if language == "sh" && words.any(|word| word == "--path") {
                let path = words.next().unwrap();
                assert!(root().join(path).is_dir(), "{name}:{line}: {path}");
            }
        }
    }
}
