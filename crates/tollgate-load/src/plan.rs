//! What is to be done: where to, what is asked, how hard and for how long. Checked before anything is sent.

use std::time::Duration;

use tollgate::{Algorithm, Rate, Span};

use crate::audit::Allowance;
use crate::codec::Codec;
use crate::grpc::{Grpc, GrpcAsk};
use crate::http::{Http, HttpAsk};
use crate::resp::{Login, Resp};
use crate::rule::{Rule, has_terms, only_looks};
use crate::target::{Protocol, Target};
use crate::template::Spelling;
use crate::words;
use crate::wrong::Wrong;

/// What redis-cell answers, with a hundred a second for each key.
pub const DEFAULT_COMMAND: &str = "CL.THROTTLE {key} 99 100 1 {cost}";

/// More file descriptors than most systems give a process.
const CONNECTIONS_MAX: usize = 10_000;
const PIPELINE_MAX: usize = 10_000;
const KEYS_MAX: u64 = 1_000_000_000;
/// Each thread keeps 24 bytes for each key that is audited.
const AUDITED_KEYS_MAX: u64 = 10_000_000;
const TEXT_MAX: usize = 16 << 10;

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The servers; connections are dealt out to them in turn.
    pub targets: Vec<Target>,
    /// Connections in all.
    pub connections: usize,
    /// Requests under way on each connection at once.
    pub pipeline: usize,
    /// Threads; `None` leaves it to the number of connections and processors.
    pub threads: Option<usize>,
    /// Different keys.
    pub keys: u64,
    /// What every key begins with.
    pub key_prefix: String,
    /// The exponent of Zipf's law; all keys are alike without it.
    pub zipf: Option<f64>,
    /// Units that each request takes.
    pub cost: u64,
    /// How long it goes on, after the warm-up.
    pub duration: Option<Duration>,
    /// How many requests are sent, after the warm-up.
    pub requests: Option<u64>,
    /// Requests by the clock; each connection goes on as fast as it is answered without it.
    pub rate: Option<Rate>,
    /// What comes before anything is counted, except by the audit.
    pub warm_up: Duration,
    /// How long a server may say nothing while something is asked of it.
    pub timeout: Duration,
    /// The command for `resp://`.
    pub command: String,
    /// How its reply says yes; by the command if it is one that is known. Otherwise replies are counted and not judged.
    pub rule: Option<Rule>,
    /// What is shown to `resp://` before anything is asked.
    pub login: Option<Login>,
    /// Who is believed over TLS, as certificates in PEM; whom the system believes without it.
    pub roots: Option<Vec<u8>>,
    /// The request for `http://`.
    pub http: HttpAsk,
    /// The call for `grpc://`.
    pub grpc: GrpcAsk,
    /// What the limiter is held to; none is no audit.
    pub allowance: Option<Allowance>,
}

impl Plan {
    /// Ten seconds on 50 connections to these servers, one request at a time on each, over a thousand keys.
    pub fn new(targets: Vec<Target>) -> Plan {
        Plan {
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
            rule: None,
            login: None,
            roots: None,
            http: HttpAsk::default(),
            grpc: GrpcAsk::default(),
            allowance: None,
        }
    }

    /// The key with this number, as servers see it.
    pub fn key(&self, number: u64) -> String {
        self.spelling().key(number)
    }

    /// How long it goes on: ten seconds if nothing else ends it.
    pub fn length(&self) -> Option<Duration> {
        let default = self.requests.is_none().then_some(Duration::from_secs(10));
        self.duration.or(default)
    }

    /// Threads that there will be: one for 32 connections, and never more than there are processors.
    pub fn thread_count(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let wanted = self.threads.unwrap_or(self.connections.div_ceil(32));
        wanted.clamp(1, processors).min(self.connections.max(1))
    }

    /// Connections that the target with this number gets.
    pub(crate) fn connections_of(&self, target: usize) -> u64 {
        let each = self.targets.len().max(1);
        let more = usize::from(target < self.connections % each);
        (self.connections / each + more) as u64
    }

    /// The allowance that `CL.THROTTLE` and `THROTTLE` have in themselves, if that is what is asked.
    ///
    /// # Errors
    /// Another command, or terms that are no numbers.
    pub fn allowance_in_command(&self) -> Result<Algorithm, Wrong> {
        let words = words::split(&self.command)?;
        let wrong = |what: String| {
            let hint = "say what the limiter enforces: `--allow 100/s --burst 100`";
            Wrong::new(what, hint)
        };
        let [name, _, burst, count, period, ..] = words.as_slice() else {
            return Err(wrong("the command does not say what it allows".into()));
        };
        if !has_terms(name) {
            return Err(wrong(format!("`{name}` does not say what it allows")));
        }
        let number = |word: &String| {
            let number = word.parse::<u64>().ok();
            number.ok_or_else(|| wrong(format!("`{word}` in the command is no number")))
        };
        let period = Span::from_secs(number(period)?);
        let rate = Rate::new(number(count)?, period).map_err(|error| wrong(error.to_string()))?;
        // What may come at once is one more than what redis-cell calls the burst, and just that for throttlecrab.
        let more = u64::from(name.eq_ignore_ascii_case("CL.THROTTLE"));
        Ok(Algorithm::TokenBucket {
            rate,
            burst: number(burst)?.saturating_add(more),
        })
    }

    pub(crate) fn spelling(&self) -> Spelling {
        Spelling::new(&self.key_prefix, self.keys, self.cost)
    }

    /// How one of the targets is spoken with.
    pub(crate) fn codec(&self, target: &Target) -> Result<Box<dyn Codec>, Wrong> {
        let spelling = self.spelling();
        Ok(match target.protocol {
            Protocol::Resp => {
                let words = words::split(&self.command)?;
                let name = words.first().map_or("", String::as_str);
                let rule = self.rule.or_else(|| Rule::of(name));
                Box::new(Resp::new(&words, rule, &spelling, self.login.as_ref()))
            }
            Protocol::Http => {
                Box::new(Http::new(&self.http, &target.host, &target.path, &spelling))
            }
            Protocol::Grpc => Box::new(Grpc::new(&self.grpc, target, self.cost, &spelling)),
        })
    }

    /// Looks for what would make the run senseless.
    pub(crate) fn check(&self) -> Result<(), Wrong> {
        if self.targets.is_empty() {
            return Err(Wrong::new(
                "there is no target",
                "name one, such as `resp://127.0.0.1:6379`",
            ));
        }
        self.check_numbers()?;
        self.check_texts()?;
        self.targets
            .iter()
            .try_for_each(|target| self.check_asked(target))
    }

    fn check_numbers(&self) -> Result<(), Wrong> {
        let within = |flag: &str, number: u64, least: u64, most: u64| match number {
            number if (least..=most).contains(&number) => Ok(()),
            number => Err(Wrong::new(
                format!("`{flag} {number}` is out of range"),
                format!("use {least} to {most}"),
            )),
        };
        let least = self.targets.len() as u64;
        within(
            "--connections",
            self.connections as u64,
            least,
            CONNECTIONS_MAX as u64,
        )?;
        within("--pipeline", self.pipeline as u64, 1, PIPELINE_MAX as u64)?;
        let audited = self.allowance.is_some();
        let keys_max = if audited { AUDITED_KEYS_MAX } else { KEYS_MAX };
        within("--keys", self.keys, 1, keys_max)?;
        within("--cost", self.cost, 1, u64::from(u32::MAX))?;
        if let Some(requests) = self.requests {
            within("--requests", requests, 1, u64::MAX)?;
        }
        if let Some(zipf) = self.zipf.filter(|zipf| !(0.0..=10.0).contains(zipf)) {
            return Err(Wrong::new(
                format!("`--zipf {zipf}` is out of range"),
                "use 0 (all keys alike) to 10; 1 is what is often seen",
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
                return Err(Wrong::new(
                    format!("`{flag}` is out of range"),
                    "use a span of time up to a day, such as `10s`",
                ));
            }
        }
        Ok(())
    }

    fn check_texts(&self) -> Result<(), Wrong> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        if self.key_prefix.len() > 64 || !self.key_prefix.chars().all(is_plain) {
            return Err(Wrong::new(
                "`--key-prefix` cannot be part of every request",
                "use up to 64 letters, digits, `-`, `_`, `.` and `:`",
            ));
        }
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if self.http.method.is_empty() || !self.http.method.chars().all(is_token) {
            return Err(Wrong::new(
                "`--method` is none of HTTP",
                "write one such as `POST`",
            ));
        }
        for (name, value) in &self.http.headers {
            if name.is_empty() || !name.chars().all(is_token) || value.contains(char::is_control) {
                return Err(Wrong::new(
                    "`--header` is no name and value of HTTP",
                    "write one such as `--header 'x-api-key: {key}'`",
                ));
            }
            if name.eq_ignore_ascii_case("content-length")
                || name.eq_ignore_ascii_case("transfer-encoding")
            {
                return Err(Wrong::new(
                    format!("`--header '{name}: …'` would contradict the request"),
                    "leave it out: it is sent where it is needed",
                ));
            }
        }
        let entries = &self.grpc.descriptor;
        let mut texts = vec![&self.command, &self.http.body, &self.grpc.domain];
        texts.extend(entries.iter().flat_map(|(key, value)| [key, value]));
        texts.extend(self.http.headers.iter().map(|(_, value)| value));
        if texts.iter().map(|text| text.len()).sum::<usize>() > TEXT_MAX {
            return Err(Wrong::new(
                "a request of more than 16 KiB",
                "send a shorter one",
            ));
        }
        if self.grpc.domain.is_empty()
            || entries.is_empty()
            || entries.iter().any(|(key, _)| key.is_empty())
        {
            return Err(Wrong::new(
                "a domain or a key of a descriptor is empty",
                "write `--domain edge --descriptor user={key}`",
            ));
        }
        Ok(())
    }

    /// Do requests say what they are meant to say?
    fn check_asked(&self, target: &Target) -> Result<(), Wrong> {
        let (asked, place) = match target.protocol {
            Protocol::Resp => (self.command.clone(), "--command"),
            Protocol::Http => {
                let values = self.http.headers.iter().map(|(_, value)| value.as_str());
                let values: String = values.collect();
                (
                    format!("{} {} {values}", target.path, self.http.body),
                    "the path, --header or --body",
                )
            }
            Protocol::Grpc => {
                let values = self.grpc.descriptor.iter().map(|(_, value)| value.as_str());
                (values.collect(), "--descriptor")
            }
        };
        if self.keys > 1 && !asked.contains("{key}") {
            return Err(Wrong::new(
                format!("no request to {target} would have its key in it"),
                format!("write `{{key}}` in {place}, or `--keys 1` if all are meant to be alike"),
            ));
        }
        let says_cost = target.protocol == Protocol::Grpc || asked.contains("{cost}");
        if self.cost != 1 && !says_cost {
            return Err(Wrong::new(
                format!("no request to {target} would have its cost in it"),
                format!("write `{{cost}}` in {place}, or leave `--cost` out"),
            ));
        }
        if target.protocol == Protocol::Resp && self.allowance.is_some() {
            return self.check_audited();
        }
        Ok(())
    }

    /// Can what the command is answered be held against a limit?
    fn check_audited(&self) -> Result<(), Wrong> {
        let words = words::split(&self.command)?;
        let name = words.first().map_or("", String::as_str);
        if only_looks(name) {
            return Err(Wrong::new(
                format!("`{name}` takes nothing, so there is nothing to audit"),
                "ask `TOLLGATE.CHECK`, or leave out `--allow` and `--audit`",
            ));
        }
        match self.rule.or_else(|| Rule::of(name)) {
            Some(_) => Ok(()),
            None => Err(Wrong::new(
                format!("how `{name}` says yes is not known"),
                "look at one of its replies and say it: `--admitted nonzero`, `zero` or `at-most:100` by its first \
                 number, `verdict` by its field of that name, or `any`",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(target: &str) -> Plan {
        Plan::new(vec![Target::parse(target).unwrap()])
    }

    #[test]
    fn the_allowance_of_a_command_is_its_burst_and_that_of_redis_cell_one_more() {
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
                    assert_eq!(plan.connections_of(target), dealt.count() as u64);
                }
            }
        }
    }

    #[test]
    fn the_plan_as_it_comes_is_good_for_redis_and_envoy() {
        for target in ["resp://h", "grpc://h", "http://h/{key}"] {
            assert_eq!(plan(target).check(), Ok(()));
        }
    }

    #[test]
    fn what_would_make_a_run_senseless_is_told_before_it() {
        type Change = fn(&mut Plan);
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
            ("its key", |plan| plan.command = "PING".into()),
            ("its cost", |plan| {
                (plan.cost, plan.command) = (2, "INCR {key}".into());
            }),
            ("16 KiB", |plan| plan.http.body = "x".repeat(20_000)),
        ];
        for (why, change) in changes {
            let mut plan = plan("resp://h");
            change(&mut plan);
            let wrong = plan.check().unwrap_err();
            assert!(wrong.what.contains(why), "{why}: {wrong}");
        }
    }

    #[test]
    fn an_audit_needs_to_know_what_yes_is() {
        let mut plan = plan("resp://h");
        plan.command = "INCRBY {key} {cost}".into();
        assert_eq!(plan.check(), Ok(()));
        plan.allowance = Some(Allowance {
            algorithm: Algorithm::SlidingLog {
                limit: 5,
                window: Span::from_secs(1),
            },
            slack: Span::ZERO,
        });
        assert!(plan.check().is_err());
        plan.rule = Some(Rule::AtMost(5));
        assert_eq!(plan.check(), Ok(()));
        plan.rule = None;
        plan.command = "tollgate.check path / header.x-org {key}".into();
        assert_eq!(plan.check(), Ok(()));
        plan.command = "TOLLGATE.PEEK path / header.x-org {key}".into();
        let wrong = plan.check().unwrap_err();
        assert!(wrong.what.contains("takes nothing"), "{wrong}");
    }
}
