//! `tollgate convert`: converts files of other rate limiters to a policy.
//!
//! The policy goes to standard output. What it cannot express is a comment in it, and a problem on standard error.

use std::io::{self, Write};
use std::process::ExitCode;

use tollgate_config::import::{Converted, EnvoyOptions, envoy, limitador};
use tollgate_config::{Problems, Severity};

use crate::cli::Convert;
use crate::fault::Stop;
use crate::input;

/// Converts and prints.
pub(crate) fn run(asked: &Convert, out: &mut impl Write) -> Result<ExitCode, Stop> {
    let (converted, deny_warnings) = match asked {
        Convert::Envoy {
            files,
            merge_domains,
            shadow,
            deny_warnings,
        } => {
            let files = files
                .iter()
                .map(|name| Ok((name.clone(), input::file(name)?)));
            let files = files.collect::<Result<Vec<_>, Stop>>()?;
            let options = EnvoyOptions {
                merge_domains: *merge_domains,
                shadow: *shadow,
            };
            let converted = envoy(&files, options).map_err(|all| {
                let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
                Stop::Plain(texts.join("\n"))
            })?;
            (converted, *deny_warnings)
        }
        Convert::Limitador {
            file,
            deny_warnings,
        } => {
            let converted = limitador(file, &input::file(file)?);
            let converted = converted.map_err(|problems| Stop::Policy(Box::new(problems)))?;
            (converted, *deny_warnings)
        }
    };
    print(&converted, out).map_err(Stop::Write)?;
    let has_warning = |notes: &Problems| notes.count(Severity::Warning) > 0;
    Ok(
        match deny_warnings && converted.notes.iter().any(has_warning) {
            true => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        },
    )
}

fn print(converted: &Converted, out: &mut impl Write) -> io::Result<()> {
    out.write_all(converted.policy.as_bytes())?;
    out.flush()?;
    let mut notes_out = io::stderr().lock();
    for notes in &converted.notes {
        write!(notes_out, "{notes}")?;
    }
    Ok(())
}
