//! The plan of a run: targets, requests, rate and duration. Validated before the first request.

use std::time::Duration;

use tollgate::{Algorithm, Rate, Span};

use crate::admit_rule::{AdmitRule, has_inline_limit, is_read_only};
use crate::audit::Allowance;
use crate::codec::Codec;
use crate::command_line;
use crate::error::LoadError;
use crate::grpc::{Grpc, GrpcTemplate, UnaryCall};
use crate::http::{Http, HttpTemplate};
use crate::resp::{Credentials, Resp};
use crate::target::{Target, TargetProtocol};
use crate::template::KeyFormat;

/// A command of redis-cell, with a hundred per second for each key.
pub const DEFAULT_COMMAND: &str = "CL.THROTTLE {key} 99 100 1 {cost}";

/// More file descriptors than most systems grant a process.
const MAX_CONNECTIONS: usize = 10_000;
const MAX_PIPELINE: usize = 10_000;
const MAX_KEYS: u64 = 1_000_000_000;
/// Each thread keeps 24 bytes for each audited key.
const MAX_AUDITED_KEYS: u64 = 10_000_000;
const MAX_TEXT: usize = 16 << 10;

/// A run.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// The servers; connections are assigned to them in turn.
    pub targets: Vec<Target>,
    /// Connections in all.
    pub connections: usize,
    /// Requests in flight on each connection.
    pub pipeline: usize,
    /// Threads; `None`: by the number of connections and processors.
    pub threads: Option<usize>,
    /// Different keys.
    pub keys: u64,
    /// The prefix of all keys.
    pub key_prefix: String,
    /// The exponent of Zipf's law; without it keys are uniform.
    pub zipf: Option<f64>,
    /// The cost of each request.
    pub cost: u64,
    /// The duration after the warm-up.
    pub duration: Option<Duration>,
    /// The number of requests after the warm-up.
    pub requests: Option<u64>,
    /// Requests by the clock (open loop); without it each connection sends as fast as it gets responses (closed loop).
    pub rate: Option<Rate>,
    /// The time before requests are counted, except by the audit.
    pub warm_up: Duration,
    /// How long a server may be silent while requests are in flight.
    pub timeout: Duration,
    /// The command for `resp://`.
    pub command: String,
    /// How its reply admits; by default the rule of a known command. Otherwise replies are counted as unjudged.
    pub admit_rule: Option<AdmitRule>,
    /// The credentials for `resp://`.
    pub credentials: Option<Credentials>,
    /// The trusted certificates for TLS, in PEM; by default those of the system.
    pub ca_certificates: Option<Vec<u8>>,
    /// The request for `http://`.
    pub http: HttpTemplate,
    /// The call for `grpc://`.
    pub grpc: GrpcTemplate,
    /// What the limiter may admit; `None`: no audit.
    pub allowance: Option<Allowance>,
}

impl LoadPlan {
    /// Ten seconds on 50 connections to these servers, one request at a time on each, over a thousand keys.
    pub fn new(targets: Vec<Target>) -> LoadPlan {
        LoadPlan {
            targets,
            connections: 50,
            pipeline: 1,
            threads: None,
            keys: 1000,
            key_prefix: "bench-".into(),
            zipf: None,
            cost: 1,
            duration: None,
            requests: None,
            rate: None,
            warm_up: Duration::ZERO,
            timeout: Duration::from_secs(5),
            command: DEFAULT_COMMAND.into(),
            admit_rule: None,
            credentials: None,
            ca_certificates: None,
            http: HttpTemplate::default(),
            grpc: GrpcTemplate::default(),
            allowance: None,
        }
    }

    /// The key with this number, as it is sent.
    pub fn key(&self, number: u64) -> String {
        self.key_format().key(number)
    }

    /// The duration: ten seconds if nothing else ends the run.
    pub fn run_time(&self) -> Option<Duration> {
        let default = self.requests.is_none().then_some(Duration::from_secs(10));
        self.duration.or(default)
    }

    /// The number of threads: one for 32 connections, at most one for each processor.
    pub fn thread_count(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let wanted = self.threads.unwrap_or(self.connections.div_ceil(32));
        wanted.clamp(1, processors).min(self.connections.max(1))
    }

    /// The number of connections to the target with this index.
    pub(crate) fn connections_to(&self, target: usize) -> u64 {
        let each = self.targets.len().max(1);
        let more = usize::from(target < self.connections % each);
        (self.connections / each + more) as u64
    }

    /// The limit that `CL.THROTTLE` and `THROTTLE` state in their arguments.
    ///
    /// # Errors
    /// Another command, or arguments that are no numbers.
    pub fn allowance_in_command(&self) -> Result<Algorithm, LoadError> {
        let words = command_line::split(&self.command)?;
        let wrong = |what: String| {
            let hint = "state what the limiter enforces: `--allow 100/s --burst 100`";
            LoadError::new(what, hint)
        };
        let [name, _, burst, count, period, ..] = words.as_slice() else {
            return Err(wrong("the command does not state its limit".into()));
        };
        if !has_inline_limit(name) {
            return Err(wrong(format!("`{name}` does not state its limit")));
        }
        let number = |word: &String| {
            let number = word.parse::<u64>().ok();
            number.ok_or_else(|| wrong(format!("`{word}` in the command is no number")))
        };
        let period = Span::from_secs(number(period)?);
        let rate = Rate::new(number(count)?, period).map_err(|error| wrong(error.to_string()))?;
        // The capacity is one more than what redis-cell calls the burst, and equal to it for throttlecrab.
        let more = u64::from(name.eq_ignore_ascii_case("CL.THROTTLE"));
        Ok(Algorithm::TokenBucket {
            rate,
            burst: number(burst)?.saturating_add(more),
        })
    }

    pub(crate) fn key_format(&self) -> KeyFormat {
        KeyFormat::new(&self.key_prefix, self.keys, self.cost)
    }

    /// The codec for one of the targets.
    ///
    /// # Errors
    /// An invalid command.
    pub fn codec(&self, target: &Target) -> Result<Box<dyn Codec>, LoadError> {
        let key_format = self.key_format();
        Ok(match target.protocol {
            TargetProtocol::Resp => {
                let words = command_line::split(&self.command)?;
                let name = words.first().map_or("", String::as_str);
                let rule = self.admit_rule.or_else(|| AdmitRule::for_command(name));
                Box::new(Resp::new(
                    &words,
                    rule,
                    &key_format,
                    self.credentials.as_ref(),
                ))
            }
            TargetProtocol::Http => Box::new(Http::new(
                &self.http,
                &target.host,
                &target.path,
                &key_format,
            )),
            TargetProtocol::Grpc => Box::new(Grpc::new(&self.grpc, target, self.cost, &key_format)),
        })
    }

    /// The codec for unary calls of another service, with the keys of this plan.
    pub fn unary_codec(&self, call: &UnaryCall, host: &str) -> Box<dyn Codec> {
        Box::new(Grpc::unary(call, host, &self.key_format()))
    }

    /// Validates the plan.
    pub(crate) fn validate(&self) -> Result<(), LoadError> {
        if self.targets.is_empty() {
            return Err(LoadError::new(
                "there is no target",
                "name one, such as `resp://127.0.0.1:6379`",
            ));
        }
        self.validate_numbers()?;
        self.validate_texts()?;
        self.targets
            .iter()
            .try_for_each(|target| self.validate_request(target))
    }

    fn validate_numbers(&self) -> Result<(), LoadError> {
        let within = |flag: &str, number: u64, least: u64, most: u64| match number {
            number if (least..=most).contains(&number) => Ok(()),
            number => Err(LoadError::new(
                format!("`{flag} {number}` is out of range"),
                format!("use {least} to {most}"),
            )),
        };
        let least = self.targets.len() as u64;
        within(
            "--connections",
            self.connections as u64,
            least,
            MAX_CONNECTIONS as u64,
        )?;
        within("--pipeline", self.pipeline as u64, 1, MAX_PIPELINE as u64)?;
        let audited = self.allowance.is_some();
        let keys_max = if audited { MAX_AUDITED_KEYS } else { MAX_KEYS };
        within("--keys", self.keys, 1, keys_max)?;
        within("--cost", self.cost, 1, u64::from(u32::MAX))?;
        if let Some(requests) = self.requests {
            within("--requests", requests, 1, u64::MAX)?;
        }
        if let Some(zipf) = self.zipf.filter(|zipf| !(0.0..=10.0).contains(zipf)) {
            return Err(LoadError::new(
                format!("`--zipf {zipf}` is out of range"),
                "use 0 (uniform) to 10; 1 is common",
            ));
        }
        let day = Duration::from_secs(86_400);
        let spans = [
            ("--duration", self.duration, true),
            ("--warm-up", Some(self.warm_up), false),
            ("--timeout", Some(self.timeout), true),
        ];
        for (flag, span, needs_some) in spans {
            let is_wrong = span.is_some_and(|span| span > day || needs_some && span.is_zero());
            if is_wrong {
                return Err(LoadError::new(
                    format!("`{flag}` is out of range"),
                    "use a span of time up to a day, such as `10s`",
                ));
            }
        }
        Ok(())
    }

    fn validate_texts(&self) -> Result<(), LoadError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        if self.key_prefix.len() > 64 || !self.key_prefix.chars().all(is_plain) {
            return Err(LoadError::new(
                "`--key-prefix` cannot be part of every request",
                "use up to 64 letters, digits, `-`, `_`, `.` and `:`",
            ));
        }
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if self.http.method.is_empty() || !self.http.method.chars().all(is_token) {
            return Err(LoadError::new(
                "`--method` is not an HTTP method",
                "write one such as `POST`",
            ));
        }
        for (name, value) in &self.http.headers {
            if name.is_empty() || !name.chars().all(is_token) || value.contains(char::is_control) {
                return Err(LoadError::new(
                    "`--header` is not an HTTP field",
                    "write one such as `--header 'x-api-key: {key}'`",
                ));
            }
            if name.eq_ignore_ascii_case("content-length")
                || name.eq_ignore_ascii_case("transfer-encoding")
            {
                return Err(LoadError::new(
                    format!("`--header '{name}: …'` conflicts with the request"),
                    "leave it out: it is sent where needed",
                ));
            }
        }
        let entries = &self.grpc.descriptor;
        let mut texts = vec![&self.command, &self.http.body, &self.grpc.domain];
        texts.extend(entries.iter().flat_map(|(key, value)| [key, value]));
        texts.extend(self.http.headers.iter().map(|(_, value)| value));
        if texts.iter().map(|text| text.len()).sum::<usize>() > MAX_TEXT {
            return Err(LoadError::new(
                "the request is larger than 16 KiB",
                "send a shorter one",
            ));
        }
        if self.grpc.domain.is_empty()
            || entries.is_empty()
            || entries.iter().any(|(key, _)| key.is_empty())
        {
            return Err(LoadError::new(
                "a domain or a key of a descriptor is empty",
                "write `--domain edge --descriptor user={key}`",
            ));
        }
        Ok(())
    }

    /// Validates that the requests contain their key and cost.
    fn validate_request(&self, target: &Target) -> Result<(), LoadError> {
        let (text, place) = match target.protocol {
            TargetProtocol::Resp => (self.command.clone(), "--command"),
            TargetProtocol::Http => {
                let values = self.http.headers.iter().map(|(_, value)| value.as_str());
                let values: String = values.collect();
                (
                    format!("{} {} {values}", target.path, self.http.body),
                    "the path, --header or --body",
                )
            }
            TargetProtocol::Grpc => {
                let values = self.grpc.descriptor.iter().map(|(_, value)| value.as_str());
                (values.collect(), "--descriptor")
            }
        };
        if self.keys > 1 && !text.contains("{key}") {
            return Err(LoadError::new(
                format!("no request to {target} contains its key"),
                format!("write `{{key}}` in {place}, or use `--keys 1`"),
            ));
        }
        let has_cost = target.protocol == TargetProtocol::Grpc || text.contains("{cost}");
        if self.cost != 1 && !has_cost {
            return Err(LoadError::new(
                format!("no request to {target} contains its cost"),
                format!("write `{{cost}}` in {place}, or leave `--cost` out"),
            ));
        }
        if target.protocol == TargetProtocol::Resp && self.allowance.is_some() {
            return self.validate_audit();
        }
        Ok(())
    }

    /// Validates that the audit can classify replies.
    fn validate_audit(&self) -> Result<(), LoadError> {
        let words = command_line::split(&self.command)?;
        let name = words.first().map_or("", String::as_str);
        if is_read_only(name) {
            return Err(LoadError::new(
                format!("`{name}` takes nothing, so there is nothing to audit"),
                "use `TOLLGATE.CHECK`, or leave out `--allow` and `--audit`",
            ));
        }
        match self.admit_rule.or_else(|| AdmitRule::for_command(name)) {
            Some(_) => Ok(()),
            None => Err(LoadError::new(
                format!("the replies of `{name}` cannot be classified: the command is unknown"),
                "state the rule by one of its replies: `--admitted nonzero`, `zero` or `at-most:100` by its first \
                 number, `verdict` by its field of that name, or `any`",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(target: &str) -> LoadPlan {
        LoadPlan::new(vec![Target::parse(target).unwrap()])
    }

    #[test]
    fn the_capacity_of_a_command_is_its_burst_and_one_more_for_redis_cell() {
        let mut plan = plan("resp://h");
        let allowed = Algorithm::TokenBucket {
            rate: Rate::new(100, Span::from_secs(1)).unwrap(),
            burst: 100,
        };
        assert_eq!(plan.allowance_in_command(), Ok(allowed));
        plan.command = "throttle {key} 100 100 1".into();
        assert_eq!(plan.allowance_in_command(), Ok(allowed));
        for command in [
            "INCR {key}",
            "CL.THROTTLE {key}",
            "CL.THROTTLE {key} x 1 1",
            "CL.THROTTLE {key} 1 0 1",
            "TOLLGATE.CHECK limit 1 2 3 key {key}",
        ] {
            plan.command = command.into();
            assert!(plan.allowance_in_command().is_err(), "{command}");
        }
    }

    #[test]
    fn every_connection_belongs_to_one_target() {
        let mut plan = plan("resp://h");
        for targets in 1..6 {
            for connections in targets..20 {
                plan.targets = vec![plan.targets[0].clone(); targets];
                plan.connections = connections;
                for target in 0..targets {
                    let dealt = (0..connections).filter(|number| number % targets == target);
                    assert_eq!(plan.connections_to(target), dealt.count() as u64);
                }
            }
        }
    }

    #[test]
    fn the_default_plan_is_valid_for_all_protocols() {
        for target in ["resp://h", "grpc://h", "http://h/{key}"] {
            assert_eq!(plan(target).validate(), Ok(()));
        }
    }

    #[test]
    fn an_invalid_plan_is_an_error_before_the_run() {
        type Change = fn(&mut LoadPlan);
        let changes: [(&str, Change); 16] = [
            ("no target", |plan| plan.targets.clear()),
            ("--connections", |plan| plan.connections = 0),
            ("--connections", |plan| plan.connections = 10_001),
            ("--pipeline", |plan| plan.pipeline = 0),
            ("--keys", |plan| plan.keys = 0),
            ("--cost", |plan| plan.cost = 0),
            ("--requests", |plan| plan.requests = Some(0)),
            ("--zipf", |plan| plan.zipf = Some(f64::NAN)),
            ("--duration", |plan| plan.duration = Some(Duration::ZERO)),
            ("--timeout", |plan| plan.timeout = Duration::ZERO),
            ("--key-prefix", |plan| plan.key_prefix = "a b".into()),
            ("--method", |plan| plan.http.method = "GET /".into()),
            ("--header", |plan| {
                plan.http.headers = vec![("a b".into(), String::new())];
            }),
            ("contains its key", |plan| plan.command = "PING".into()),
            ("contains its cost", |plan| {
                (plan.cost, plan.command) = (2, "INCR {key}".into());
            }),
            ("16 KiB", |plan| plan.http.body = "x".repeat(20_000)),
        ];
        for (why, change) in changes {
            let mut plan = plan("resp://h");
            change(&mut plan);
            let wrong = plan.validate().unwrap_err();
            assert!(wrong.problem.contains(why), "{why}: {wrong}");
        }
    }

    #[test]
    fn an_audit_needs_a_rule() {
        let mut plan = plan("resp://h");
        plan.command = "INCRBY {key} {cost}".into();
        assert_eq!(plan.validate(), Ok(()));
        plan.allowance = Some(Allowance {
            algorithm: Algorithm::SlidingLog {
                limit: 5,
                window: Span::from_secs(1),
            },
            slack: Span::ZERO,
        });
        assert!(plan.validate().is_err());
        plan.admit_rule = Some(AdmitRule::AtMost(5));
        assert_eq!(plan.validate(), Ok(()));
        plan.admit_rule = None;
        plan.command = "tollgate.check path / header.x-org {key}".into();
        assert_eq!(plan.validate(), Ok(()));
        plan.command = "TOLLGATE.PEEK path / header.x-org {key}".into();
        let wrong = plan.validate().unwrap_err();
        assert!(wrong.problem.contains("takes nothing"), "{wrong}");
    }
}
