//! `tollgate explain`: explains the decision for one request, limit by limit.
//!
//! The arguments become facts. The policy of a file, or a running server with its state, explains the decision,
//! which is printed as a table. Nothing is taken from any limit.

pub(crate) mod ask;
mod print;

use std::io::Write;
use std::process::ExitCode;

use serde_json::{Map, Value, json};
use tollgate::MonotonicClock;
use tollgate_policy::{Facts, PolicyGate};

use crate::cli::Explain;
use crate::fault::{ArgumentError, Fault, Stop};
use crate::input;

/// Explains and prints. The exit code is 0 if the request would pass, now or after a wait, 1 if not.
pub(crate) fn run(asked: &Explain, out: &mut impl Write) -> Result<ExitCode, Stop> {
    let typed = Typed::read(asked)?;
    let (source, explanation) = match (&asked.server, &asked.file) {
        (Some(server), _) => {
            let token = ask::token(asked.token_file.as_deref())?;
            (
                server.clone(),
                ask::server(
                    server,
                    token.as_deref(),
                    ("POST", "/explain"),
                    &typed.to_json(asked),
                )?,
            )
        }
        (None, Some(file)) => (file.clone(), by_file(file, &typed.facts(asked))?),
        (None, None) => {
            let name = "the built-in example";
            let explanation = by_text(
                name,
                tollgate_config::EXAMPLE.as_bytes(),
                &typed.facts(asked),
            )?;
            (name.to_owned(), explanation)
        }
    };
    let passes = matches!(
        explanation.get("verdict").and_then(Value::as_str),
        Some("pass" | "wait")
    );
    let written = match asked.json {
        true => writeln!(out, "{explanation}"),
        false => print::table(&source, asked, &explanation, out),
    };
    written.map_err(Stop::Write)?;
    Ok(if passes {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn by_file(file: &str, facts: &Facts<'_>) -> Result<Value, Stop> {
    by_text(file, &input::file(file)?, facts)
}

fn by_text(name: &str, text: &[u8], facts: &Facts<'_>) -> Result<Value, Stop> {
    let loaded = tollgate_config::parse(name, text).map_err(|p| Stop::Policy(Box::new(p)))?;
    let gate = PolicyGate::new(loaded.policy, MonotonicClock::with_unix_time());
    let gate = gate.map_err(|cause| Stop::Other {
        what: cause.to_string(),
        hint: "lower `max_keys`, or give the process more memory".into(),
    })?;
    Ok(tollgate_server::explain::explain(&gate, facts))
}

/// The parsed arguments.
struct Typed<'a> {
    path: &'a str,
    query: &'a str,
    headers: Vec<(&'a str, &'a str)>,
    fields: Vec<(&'a str, &'a str)>,
    descriptor: Vec<(&'a str, &'a str)>,
}

impl<'a> Typed<'a> {
    fn read(asked: &'a Explain) -> Result<Typed<'a>, Fault> {
        let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
        Ok(Typed {
            path,
            query,
            headers: pairs("--header", ':', "x-rider-id: 42", &asked.header)?,
            fields: pairs("--field", '=', "tokens=1200", &asked.field)?,
            descriptor: pairs(
                "--descriptor",
                '=',
                "remote_address=203.0.113.7",
                &asked.descriptor,
            )?,
        })
    }

    fn facts(&'a self, asked: &'a Explain) -> Facts<'a> {
        Facts {
            method: &asked.method,
            path: self.path,
            query: self.query,
            host: asked.host.as_deref().unwrap_or(""),
            client: asked.ip,
            headers: &self.headers,
            domain: asked.domain.as_deref().unwrap_or(""),
            descriptor: &self.descriptor,
            fields: &self.fields,
            cost: asked.cost,
            ..Facts::default()
        }
    }

    /// The request as a server parses it.
    fn to_json(&self, asked: &Explain) -> Value {
        let mut headers: Map<String, Value> = Map::new();
        for (name, value) in &self.headers {
            // A repeated header is a list.
            let all = headers
                .entry(name.to_lowercase())
                .or_insert_with(|| json!([]));
            if let Some(all) = all.as_array_mut() {
                all.push(json!(value));
            }
        }
        let map = |pairs: &[(&str, &str)]| -> Map<String, Value> {
            pairs
                .iter()
                .map(|(n, v)| ((*n).to_owned(), json!(v)))
                .collect()
        };
        let mut explanation = json!({
            "method": asked.method,
            "path": asked.path,
            "headers": headers,
        });
        let more = [
            ("host", asked.host.as_ref().map(|host| json!(host))),
            ("ip", asked.ip.map(|ip| json!(ip.to_string()))),
            ("domain", asked.domain.as_ref().map(|domain| json!(domain))),
            ("cost", asked.cost.map(|cost| json!(cost))),
            (
                "fields",
                (!self.fields.is_empty()).then(|| json!(map(&self.fields))),
            ),
            (
                "descriptor",
                (!self.descriptor.is_empty()).then(|| json!(map(&self.descriptor))),
            ),
        ];
        if let Some(object) = explanation.as_object_mut() {
            for (name, value) in more {
                object.extend(value.map(|value| (name.to_owned(), value)));
            }
        }
        explanation
    }
}

/// Texts such as `name: value`, cut at the first `between`.
fn pairs<'a>(
    flag: &'static str,
    between: char,
    sample: &'static str,
    texts: &'a [String],
) -> Result<Vec<(&'a str, &'a str)>, Fault> {
    let cut = |text: &'a String| match text.split_once(between) {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim(), value.trim())),
        _ => Err(Fault::from(ArgumentError::NoPair {
            flag,
            text: text.clone(),
            sample,
        })),
    };
    texts.iter().map(cut).collect()
}
