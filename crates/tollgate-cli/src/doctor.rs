//! `tollgate doctor`: connects to the store of a policy, and reports what it finds.

use std::io::Write;
use std::process::ExitCode;

use serde::Serialize;
use tollgate_config::StoreSpec;
use tollgate_redis::{DoctorFinding, DoctorSeverity, doctor};

use crate::cli::Doctor;
use crate::fault::Stop;
use crate::input;
use crate::json;
use crate::wiring;

/// Checks the store and prints the findings.
pub(crate) fn run(asked: &Doctor, out: &mut impl Write) -> Result<ExitCode, Stop> {
    let loaded = tollgate_config::parse(&asked.file, &input::file(&asked.file)?);
    let loaded = loaded.map_err(|problems| Stop::Policy(Box::new(problems)))?;
    let spec = match loaded.store {
        StoreSpec::Shared(spec) => spec,
        StoreSpec::Memory => {
            let words = "the policy counts in memory: there is no store to check";
            print_no_store(asked.json, words, out)?;
            return Ok(ExitCode::from(2));
        }
    };
    let events = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|cause| Stop::Other {
            what: format!("the event loop cannot be started: {cause}"),
            hint: "raise the resource limits of the process".into(),
        })?;
    let mut findings = events.block_on(doctor(&wiring::settings(&spec)));
    findings.push(descriptors());
    print(asked.json, &findings, out)?;
    let is_bad = |finding: &DoctorFinding| match finding.severity {
        DoctorSeverity::Error => true,
        DoctorSeverity::Warning => asked.deny_warnings,
        DoctorSeverity::Ok | DoctorSeverity::Note => false,
    };
    Ok(match findings.iter().any(is_bad) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// Each port is bounded to 10 000 connections unless the limit of file descriptors is lower.
const CONNECTIONS: usize = 10_000;

fn descriptors() -> DoctorFinding {
    let report = tollgate_server::descriptor_report();
    let (limit, connections) = (report.limit, report.connections);
    let is_low = connections < CONNECTIONS;
    DoctorFinding {
        severity: match is_low {
            true => DoctorSeverity::Note,
            false => DoctorSeverity::Ok,
        },
        code: "descriptors",
        message: format!(
            "a server that starts here may open {limit} files: {connections} connections on all ports together"
        ),
        hint: is_low.then(|| "raise it with `ulimit -Hn` or `LimitNOFILE=`".into()),
    }
}

fn print(as_json: bool, findings: &[DoctorFinding], out: &mut impl Write) -> Result<(), Stop> {
    for finding in findings {
        match as_json {
            true => json::line(&Record::new(finding), out),
            false => writeln!(out, "{finding}"),
        }
        .map_err(Stop::Write)?;
    }
    if as_json {
        return Ok(());
    }
    let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
    let counted = |count: usize, one: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    };
    let summary = match (count(DoctorSeverity::Error), count(DoctorSeverity::Warning)) {
        (0, 0) => "nothing is wrong".into(),
        (0, warnings) => counted(warnings, "warning"),
        (errors, 0) => counted(errors, "error"),
        (errors, warnings) => format!(
            "{}, {}",
            counted(errors, "error"),
            counted(warnings, "warning")
        ),
    };
    writeln!(out, "\n{summary}").map_err(Stop::Write)
}

fn print_no_store(as_json: bool, words: &str, out: &mut impl Write) -> Result<(), Stop> {
    let finding = DoctorFinding {
        severity: DoctorSeverity::Ok,
        code: "memory",
        message: words.into(),
        hint: None,
    };
    match as_json {
        true => json::line(&Record::new(&finding), out),
        false => writeln!(out, "{words}"),
    }
    .map_err(Stop::Write)
}

/// A finding for programs.
#[derive(Serialize)]
struct Record<'a> {
    severity: &'static str,
    code: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

impl<'a> Record<'a> {
    fn new(finding: &'a DoctorFinding) -> Record<'a> {
        Record {
            severity: match finding.severity {
                DoctorSeverity::Ok => "ok",
                DoctorSeverity::Note => "note",
                DoctorSeverity::Warning => "warning",
                DoctorSeverity::Error => "error",
            },
            code: finding.code,
            message: &finding.message,
            hint: finding.hint.as_deref(),
        }
    }
}
