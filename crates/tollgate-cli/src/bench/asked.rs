//! Builds a load plan from the arguments.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use tollgate::{Algorithm, Estimate, Limit, Rate, Span};
use tollgate_load::{AdmitRule, Allowance, Credentials, LoadPlan, Target, TargetProtocol};

use super::args::{Bench, Counting};
use crate::fault::{Stop, shown};
use crate::serve::from_file;

/// Most bytes of a file of certificates.
const CA_MAX: u64 = 16 << 20;

/// The load plan.
///
/// # Errors
/// An unreadable file, or arguments that do not fit the targets.
pub(super) fn plan(asked: &Bench) -> Result<LoadPlan, Stop> {
    let targets = asked.targets.iter().map(|text| Target::parse(text));
    let mut targets = targets.collect::<Result<Vec<Target>, _>>().map_err(wrong)?;
    for target in &mut targets {
        target.is_tls |= asked.tls;
    }
    fits(asked, &targets)?;
    let mut plan = LoadPlan::new(targets);
    plan.credentials = credentials(asked)?;
    plan.ca_certificates = asked.ca.as_deref().map(certificates).transpose()?;
    plan.connections = asked.connections;
    plan.pipeline = asked.pipeline;
    plan.threads = asked.threads;
    plan.keys = asked.keys;
    plan.key_prefix.clone_from(&asked.key_prefix);
    plan.zipf = asked.zipf;
    plan.cost = asked.cost;
    plan.requests = asked.requests;
    let duration = asked.duration.as_deref();
    plan.duration = duration.map(|text| time("--duration", text)).transpose()?;
    plan.warm_up = time("--warm-up", &asked.warm_up)?;
    plan.timeout = time("--timeout", &asked.timeout)?;
    let rate = asked.rate.as_deref();
    plan.rate = rate.map(|text| rate_of("--rate", text)).transpose()?;
    requests(asked, &mut plan)?;
    plan.allowance = allowance(asked, &plan)?;
    Ok(plan)
}

/// The credentials for the targets.
fn credentials(asked: &Bench) -> Result<Option<Credentials>, Stop> {
    let Some(path) = asked.password_file.as_deref() else {
        return Ok(None);
    };
    let password = from_file(path)?;
    if password.is_empty() {
        return Err(Stop::Other {
            what: format!(
                "`--password-file {}` is empty",
                shown(&path.to_string_lossy())
            ),
            hint: "write only the password into it".into(),
        });
    }
    Ok(Some(Credentials {
        user: asked.user.clone(),
        password,
    }))
}

/// Reads a file of certificates, up to a bound.
fn certificates(path: &Path) -> Result<Vec<u8>, Stop> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(CA_MAX).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(bytes),
        Err(cause) => Err(Stop::File {
            name: path.display().to_string(),
            cause,
        }),
    }
}

/// Fills in the content of each request.
fn requests(asked: &Bench, plan: &mut LoadPlan) -> Result<(), Stop> {
    if let Some(command) = &asked.command {
        plan.command.clone_from(command);
    }
    let rule = asked.admitted.as_deref();
    plan.admit_rule = rule.map(rule_of).transpose()?;
    plan.http.body = asked.body.clone().unwrap_or_default();
    plan.http.method = match (&asked.method, &asked.body) {
        (Some(method), _) => method.clone(),
        (None, Some(_)) => "POST".into(),
        (None, None) => "GET".into(),
    };
    plan.http.headers = pairs("--header", ':', "x-api-key: {key}", &asked.header)?;
    if !asked.refused_status.is_empty() {
        plan.http.refused.clone_from(&asked.refused_status);
    }
    if let Some(domain) = &asked.domain {
        plan.grpc.domain.clone_from(domain);
    }
    if !asked.descriptor.is_empty() {
        plan.grpc.descriptor = pairs("--descriptor", '=', "user={key}", &asked.descriptor)?;
    }
    Ok(())
}

/// Rejects a flag for a protocol that no target uses, because it would be ignored.
fn fits(asked: &Bench, targets: &[Target]) -> Result<(), Stop> {
    let flags = [
        ("--command", TargetProtocol::Resp, asked.command.is_some()),
        ("--admitted", TargetProtocol::Resp, asked.admitted.is_some()),
        (
            "--password-file",
            TargetProtocol::Resp,
            asked.password_file.is_some(),
        ),
        ("--method", TargetProtocol::Http, asked.method.is_some()),
        ("--header", TargetProtocol::Http, !asked.header.is_empty()),
        ("--body", TargetProtocol::Http, asked.body.is_some()),
        (
            "--refused-status",
            TargetProtocol::Http,
            !asked.refused_status.is_empty(),
        ),
        ("--domain", TargetProtocol::Grpc, asked.domain.is_some()),
        (
            "--descriptor",
            TargetProtocol::Grpc,
            !asked.descriptor.is_empty(),
        ),
    ];
    if asked.ca.is_some() && !targets.iter().any(|target| target.is_tls) {
        return Err(Stop::Other {
            what: "`--ca` is for TLS, which no target uses".into(),
            hint: "leave it out, or add `--tls`".into(),
        });
    }
    let lost = flags.iter().find(|(_, protocol, is_set)| {
        *is_set && !targets.iter().any(|target| target.protocol == *protocol)
    });
    match lost {
        None => Ok(()),
        Some((flag, protocol, _)) => Err(Stop::Other {
            what: format!("`{flag}` is for {}://, which no target is", protocol.name()),
            hint: format!(
                "omit it, or name a target such as `{}://127.0.0.1:8080`",
                protocol.name()
            ),
        }),
    }
}

fn allowance(asked: &Bench, plan: &LoadPlan) -> Result<Option<Allowance>, Stop> {
    let slack: Span = span("--slack", &asked.slack)?;
    let algorithm = match &asked.allow {
        Some(text) => algorithm(asked, rate_of("--allow", text)?)?,
        None if !asked.audit => return Ok(None),
        None if plan
            .targets
            .iter()
            .all(|target| target.protocol == TargetProtocol::Resp) =>
        {
            plan.allowance_in_command().map_err(wrong)?
        }
        None => {
            return Err(Stop::Other {
                what: "`--audit` needs the limit that the target should enforce".into(),
                hint: "add `--allow 5/s --burst 10`, and `--algorithm` if it is not a token bucket"
                    .into(),
            });
        }
    };
    Limit::new(algorithm).map_err(|error| Stop::Other {
        what: format!("`--allow` and `--burst` make no limit: {error}"),
        hint: "write the limit of the target, such as `--allow 5/s --burst 10`".into(),
    })?;
    Ok(Some(Allowance { algorithm, slack }))
}

fn algorithm(asked: &Bench, rate: Rate) -> Result<Algorithm, Stop> {
    let (limit, window) = (rate.units(), rate.per());
    let burst = asked.burst.unwrap_or(limit);
    let algorithm = match asked.algorithm {
        Counting::TokenBucket => Algorithm::TokenBucket { rate, burst },
        Counting::LeakyBucket => Algorithm::LeakyBucket {
            rate,
            queue: burst,
            max_wait: None,
        },
        Counting::FixedWindow => Algorithm::FixedWindow {
            limit,
            window,
            anchor: Span::ZERO,
        },
        Counting::SlidingLog => Algorithm::SlidingLog { limit, window },
        Counting::SlidingWindow => Algorithm::SlidingWindow {
            limit,
            window,
            estimate: Estimate::default(),
        },
    };
    let has_burst = matches!(
        asked.algorithm,
        Counting::TokenBucket | Counting::LeakyBucket
    );
    match asked.burst {
        Some(_) if !has_burst => Err(Stop::Other {
            what: "a limit by windows has no `--burst`".into(),
            hint: "omit it: `--allow 10/min` has the number and the window".into(),
        }),
        _ => Ok(algorithm),
    }
}

fn rule_of(text: &str) -> Result<AdmitRule, Stop> {
    match text {
        "zero" => Ok(AdmitRule::Zero),
        "nonzero" => Ok(AdmitRule::NonZero),
        "verdict" => Ok(AdmitRule::VerdictField),
        "any" => Ok(AdmitRule::Any),
        text => {
            let most = text
                .strip_prefix("at-most:")
                .and_then(|most| most.parse().ok());
            most.map(AdmitRule::AtMost).ok_or_else(|| Stop::Other {
                what: format!("`--admitted {}` is no rule", shown(text)),
                hint: "write `zero`, `nonzero`, `at-most:100`, `verdict` or `any`".into(),
            })
        }
    }
}

fn span(flag: &str, text: &str) -> Result<Span, Stop> {
    text.parse()
        .map_err(|error: tollgate::SpanError| Stop::Other {
            what: format!("`{flag} {}`: {}", shown(text), shown(&error.to_string())),
            hint: error.hint(),
        })
}

fn time(flag: &str, text: &str) -> Result<Duration, Stop> {
    Ok(Duration::from_nanos(span(flag, text)?.as_nanos()))
}

/// A rate; a number alone is per second.
fn rate_of(flag: &str, text: &str) -> Result<Rate, Stop> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let whole = if is_number {
        format!("{text}/s")
    } else {
        text.to_owned()
    };
    whole
        .parse()
        .map_err(|error: tollgate::RateError| Stop::Other {
            what: format!("`{flag} {}`: {}", shown(text), shown(&error.to_string())),
            hint: error.hint(),
        })
}

fn pairs(
    flag: &str,
    between: char,
    sample: &str,
    texts: &[String],
) -> Result<Vec<(String, String)>, Stop> {
    let cut = |text: &String| match text.split_once(between) {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(Stop::Other {
            what: format!("`{flag} {}` is not a name and a value", shown(text)),
            hint: format!("write it as `{flag} '{sample}'`"),
        }),
    };
    texts.iter().map(cut).collect()
}

pub(super) fn wrong(error: tollgate_load::LoadError) -> Stop {
    Stop::Other {
        what: error.problem,
        hint: error.hint,
    }
}
