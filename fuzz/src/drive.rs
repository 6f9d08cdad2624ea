//! The commands of the program without libFuzzer.

use std::fs;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tollgate_fuzz::mutate::mutated;
use tollgate_fuzz::split::generator;
use tollgate_fuzz::{Target, named, targets};

/// Feeds random bytes to every parser of untrusted input.
#[derive(Parser)]
#[command(name = "tollgate-fuzz")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the targets and their properties
    List,
    /// Run all targets over their seeds and over mutations of them
    Quick {
        /// Mutations for each target
        #[arg(default_value_t = 2_000)]
        inputs: u64,
        /// The seed of all randomness
        #[arg(default_value_t = 1)]
        seed: u64,
    },
    /// Run one target over files
    Run {
        #[arg(value_parser = target)]
        target: &'static Target,
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

/// Runs the command.
pub(crate) fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::List => list(),
        Command::Quick { inputs, seed } => quick(inputs, seed),
        Command::Run { target, files } => run(target, &files),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::from(2)
        }
    }
}

fn target(name: &str) -> io::Result<&'static Target> {
    named(name).ok_or_else(|| {
        io::Error::other(format!(
            "there is no target `{name}`; `list` names all of them"
        ))
    })
}

fn list() -> io::Result<bool> {
    let mut out = io::stdout().lock();
    for target in &targets::ALL {
        writeln!(out, "{:<14} {}", target.name, target.holds)?;
    }
    Ok(true)
}

fn run(target: &Target, files: &[PathBuf]) -> io::Result<bool> {
    for file in files {
        (target.run)(&fs::read(file)?);
    }
    Ok(true)
}

/// All targets, two at a time. Each has a generator of its own, so that one does not depend on another.
fn quick(inputs: u64, seed: u64) -> io::Result<bool> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || -> io::Result<bool> {
        let mut holds = true;
        loop {
            // Relaxed: only the number matters.
            let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(target) = targets::ALL.get(at) else {
                return Ok(holds);
            };
            holds &= try_all(target, inputs, seed)?;
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let mine = work()?;
        let ended = other.join();
        Ok(mine & ended.map_err(|_| io::Error::other("a thread panicked"))??)
    })
}

fn try_all(target: &Target, inputs: u64, seed: u64) -> io::Result<bool> {
    let (seeds, words) = (seeds(target)?, dictionary(target)?);
    let mut rng = generator(target.name.as_bytes(), seed);
    let made = (0..inputs).map(|_| mutated(&seeds, &words, &mut rng));
    let mut most = 0;
    for input in seeds.iter().cloned().chain(made) {
        most = most.max(input.len());
        // A target keeps no state between inputs.
        if catch_unwind(AssertUnwindSafe(|| (target.run)(&input))).is_err() {
            let path = save(target, &input)?;
            let mut out = io::stderr().lock();
            writeln!(
                out,
                "{}: a property does not hold for {}\nhint: run it alone with `tollgate-fuzz run {} {}`",
                target.name,
                path.display(),
                target.name,
                path.display()
            )?;
            return Ok(false);
        }
    }
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{:<14} {} seeds, {inputs} inputs of up to {most} bytes: ok",
        target.name,
        seeds.len()
    )?;
    Ok(true)
}

fn data(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(kind)
}

/// The words of a target's format, from its libFuzzer dictionary: `"word"` on each line, with `\xNN` escapes.
fn dictionary(target: &Target) -> io::Result<Vec<Vec<u8>>> {
    let path = data("dictionaries").join(format!("{}.dict", target.name));
    let text = fs::read_to_string(&path)?;
    let invalid = || io::Error::other(format!("invalid word in {}", path.display()));
    let word = |line: &str| {
        let quoted = line.strip_prefix('"')?.strip_suffix('"')?;
        let mut parts = quoted.split("\\x");
        let mut word = parts.next()?.as_bytes().to_vec();
        for part in parts {
            let (digits, rest) = part.split_at_checked(2)?;
            word.push(u8::from_str_radix(digits, 16).ok()?);
            word.extend_from_slice(rest.as_bytes());
        }
        Some(word)
    };
    text.lines()
        .map(|line| word(line).ok_or_else(invalid))
        .collect()
}

/// The seeds of a target, in the order of their names. A target without seeds is an error.
fn seeds(target: &Target) -> io::Result<Vec<Vec<u8>>> {
    let folder = data("corpus").join(target.name);
    let missing = |error: io::Error| {
        io::Error::other(format!(
            "there are no seeds in {}: {error}",
            folder.display()
        ))
    };
    let mut paths = fs::read_dir(&folder)
        .map_err(missing)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<PathBuf>>>()?;
    paths.sort();
    if paths.is_empty() {
        return Err(missing(io::ErrorKind::NotFound.into()));
    }
    paths.iter().map(fs::read).collect()
}

/// Saves an input that breaks a property.
fn save(target: &Target, input: &[u8]) -> io::Result<PathBuf> {
    let folder = std::env::temp_dir().join("tollgate-fuzz");
    fs::create_dir_all(&folder)?;
    let name = generator(input, 0).u64(..);
    let path = folder.join(format!("{}-{name:016x}", target.name));
    fs::write(&path, input)?;
    Ok(path)
}
