//! A temporary directory.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A temporary directory, removed when this is dropped.
#[derive(Debug)]
pub struct Directory(TempDir);

impl Directory {
    /// An empty one.
    #[track_caller]
    pub fn new() -> Directory {
        let made = tempfile::Builder::new().prefix("tollgate-").tempdir();
        Directory(made.unwrap_or_else(|error| panic!("no temporary directory: {error}")))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Its path as an argument of a program.
    pub fn argument(&self) -> String {
        self.path().display().to_string()
    }

    /// Path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a file in one step: a program that watches it never reads half of it.
    #[track_caller]
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let (path, beside) = (self.file(name), self.file(".beside"));
        let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &path));
        written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        path
    }
}

impl Default for Directory {
    fn default() -> Directory {
        Directory::new()
    }
}
