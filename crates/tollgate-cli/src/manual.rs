//! `tollgate completions` and `tollgate man`: files for shells and for `man`, made from the definition of the flags.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::fault::Stop;

/// The arguments of `tollgate completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate completions bash > ~/.local/share/bash-completion/completions/tollgate
  tollgate completions zsh > ~/.zfunc/_tollgate      with ~/.zfunc in fpath
  tollgate completions fish > ~/.config/fish/completions/tollgate.fish")]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// The arguments of `tollgate man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate man serve | man -l -
  tollgate man --directory ~/.local/share/man/man1   all pages: man tollgate, man tollgate-serve")]
pub(crate) struct Man {
    /// The command; the page of `tollgate` itself if left out
    #[arg(conflicts_with = "directory")]
    command: Option<String>,
    /// Write the pages of all commands to this directory
    #[arg(long, value_name = "FOLDER")]
    directory: Option<PathBuf>,
}

/// Prints the completions of a shell.
pub(crate) fn completions(asked: &Completions, out: &mut impl Write) -> Result<(), Stop> {
    // The generator panics where it cannot write, so it writes to memory.
    let mut text = Vec::new();
    clap_complete::generate(asked.shell, &mut Cli::command(), "tollgate", &mut text);
    out.write_all(&text).map_err(Stop::Write)
}

/// Prints a page, or writes all of them.
pub(crate) fn man(asked: &Man, out: &mut impl Write) -> Result<(), Stop> {
    let mut all = Cli::command();
    if let Some(directory) = &asked.directory {
        return clap_mangen::generate_to(all, directory).map_err(|cause| Stop::Other {
            what: format!("cannot write to `{}`: {cause}", directory.display()),
            hint: "name a directory that exists and that this process may write to".into(),
        });
    }
    all.build();
    let page = match &asked.command {
        None => Some(&all),
        Some(name) => all.find_subcommand(name),
    };
    let Some(page) = page else {
        return Err(Stop::Other {
            what: "there is no such command".into(),
            hint: "`tollgate --help` lists the commands".into(),
        });
    };
    clap_mangen::Man::new(page.clone())
        .render(out)
        .map_err(Stop::Write)
}
