//! The command line, by hand: some commands and a few lists.

mod doors;
mod fair;
mod fleets;
mod gateways;
mod layer;
mod speed;
mod stores;

use std::ffi::OsString;
use std::time::Duration;

use crate::contestants::{self, Entry};
use crate::measure::Until;
use crate::workload::{KEYS_MAX, Kind, Mode, Spread};

pub(crate) use self::doors::{BARE_CHILD, Doors};
pub(crate) use self::fair::Fairness;
pub(crate) use self::fleets::Fleets;
pub(crate) use self::gateways::Gateways;
pub(crate) use self::layer::Layering;
pub(crate) use self::speed::{BARE_RESP_CHILD, BARE_RLS_CHILD, Speed};
pub(crate) use self::stores::Stores;

pub(crate) const USAGE: &str = "\
Keyed rate limiters side by side.

usage: tollgate-bench compare [--keys 1,10k,1m,10m] [--dist uniform,zipf] [--kind str,u64]
                              [--threads 1,2] [--mode pass,refuse] [--only name,name]
                              [--rounds N] [--ops N] [--json]
       tollgate-bench memory  [--keys 10m] [--kind str] [--only name,name] [--json]
       tollgate-bench gate    [--keys 10k,1m] [--rounds N] [--ops N] [--json]
       tollgate-bench flood   [--keys 100m] [--max-keys 1m] [--json]
       tollgate-bench doors   [--seconds 4] [--passes 5] [--tollgate PATH] [--throttlecrab PATH]
                              [--json]
       tollgate-bench gateway [--seconds 4] [--passes 5] [--tollgate PATH] [--json]
       tollgate-bench resp|rls|envoy|unloaded|footprint|speed
                              [--seconds 4] [--passes 5] [--keys 1m] [--tollgate PATH]
                              [--throttlecrab PATH] [--cell PATH] [--limitador PATH] [--envoy PATH]
                              [--json]
       tollgate-bench store   [--seconds 2] [--passes 5] [--json]
       tollgate-bench fleet   [--keys 200] [--limit 10k] [--seconds 2] [--passes 5] [--json]
       tollgate-bench fair    [--flows 10k] [--items 1m] [--passes 5] [--json]
       tollgate-bench layer   [--rounds N] [--ops N] [--json]
       tollgate-bench quick   [--json]
       tollgate-bench help

compare  the time of one check: every combination of the lists, all of them by default
memory   resident bytes per live key, each contestant in a process of its own
gate     the time of all or none over 2, 3 and 4 limits, against one charge after the other
flood    memory under distinct keys that never come back, and whether a throttled one gains by it
doors    the HTTP doors of `tollgate serve` against a bare server, throttlecrab and nginx, each a
         process on a core of its own; what is not installed is named and left out
gateway  `tollgate gateway` against nginx, both as a reverse proxy with a limit before the same nginx
resp     the door for Redis clients against a constant answer, redis-cell, a script and throttlecrab
rls      the rate limit service against bare tonic, limitador and throttlecrab
envoy    requests through an Envoy that asks ours, and one that asks limitador
unloaded how long one round trip takes on one connection, ours and peers
footprint resident bytes for each live key of a server, ours and peers
speed    these five, one after the other; `tools/peers.sh` installs the peers
store    what a decision costs a real redis-server, how fast one client asks, what a key takes
fleet    four nodes on one redis-server: exact, lease, sync, and each for itself
fair     the fair queue beside the channel of tokio, and the turnstile beside its semaphore
layer    what limits and queues add to a request of an axum server
quick    a little of everything, within about twenty seconds, to see that everything still works

--keys     how many distinct keys; `k` and `m` are thousands and millions
--dist     how often each key comes; one key has no distribution
--max-keys keys that tollgate has room for
--kind     `user:00001234`, or a number
--threads  each asks about its own share of the keys; a single key is shared by all
--mode     nothing is refused, or everything is
--only     these contestants and no others
--rounds   turns that each contestant takes (5); the median is reported
--ops      checks per turn and thread, instead of 0.3 seconds
--seconds  that count in each pass of a server, after half a second to warm up
--passes   over all servers; the median is reported
--tollgate the program to start instead of the one beside this one, and likewise --throttlecrab,
           which is otherwise looked for on PATH as `throttlecrab-server`; --cell is the module of
           redis-cell, --limitador its library behind tonic, both from `tools/peers.sh`
--limit    what each key of `fleet` may in a second
--flows    that items belong to
--items    that pass through the queue in each pass
--json     one object per line

The exit code is 0 if all is well, 1 if a contestant admitted what it should have refused (or the
other way round) or tollgate outgrew the cap it states, and 2 if the command line makes no sense.
";

const ROUNDS_DEFAULT: usize = 5;
const ROUND_TIME: Duration = Duration::from_millis(300);

/// A bound on each, so that a slip of the finger is told and not obeyed.
const ROUNDS_MAX: usize = 1000;
const THREADS_MAX: usize = 256;
const OPS_MAX: usize = 1_000_000_000;

#[derive(Debug)]
pub(crate) enum Command {
    Compare(Comparison),
    Memory(Weighing),
    Gate(Gating),
    Flood(Flooding),
    Doors(Doors),
    Gateway(Gateways),
    Store(Stores),
    Fleet(Fleets),
    Fair(Fairness),
    Layer(Layering),
    Speed(Speed),
    Quick {
        json: bool,
    },
    Help,
    /// What `memory` starts for each contestant; not for people, so not in the usage.
    MemoryChild(Probe),
    /// What `flood` starts for each limiter.
    FloodChild(Flooded, Flooding),
    /// What `doors` holds the others against: a server on this port.
    BareChild(u16),
    /// The floor of the Redis protocol.
    BareRespChild(u16),
    /// The floor of the rate limit service.
    BareRlsChild(u16),
}

/// What `compare` is to do.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) keys: Vec<usize>,
    pub(crate) spreads: Vec<Spread>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) threads: Vec<usize>,
    pub(crate) modes: Vec<Mode>,
    pub(crate) entries: Vec<&'static Entry>,
    pub(crate) rounds: usize,
    pub(crate) until: Until,
    pub(crate) json: bool,
}

/// What `memory` is to do.
#[derive(Debug)]
pub(crate) struct Weighing {
    pub(crate) keys: Vec<usize>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) entries: Vec<&'static Entry>,
    pub(crate) json: bool,
}

/// What `gate` is to do.
#[derive(Debug)]
pub(crate) struct Gating {
    pub(crate) keys: Vec<usize>,
    pub(crate) rounds: usize,
    pub(crate) until: Until,
    pub(crate) json: bool,
}

/// What `flood` is to do.
#[derive(Debug)]
pub(crate) struct Flooding {
    /// Distinct keys that are asked about.
    pub(crate) keys: usize,
    /// Keys that there is room for, in a limiter that has bounds.
    pub(crate) max_keys: usize,
    pub(crate) json: bool,
}

/// Who is flooded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flooded {
    Tollgate,
    Governor,
}

impl Flooded {
    const ALL: [Self; 2] = [Self::Tollgate, Self::Governor];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tollgate => "tollgate",
            Self::Governor => "governor",
        }
    }
}

/// What one child of `memory` is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    pub(crate) entry: &'static Entry,
    pub(crate) keys: usize,
    pub(crate) kind: Kind,
}

impl Default for Comparison {
    fn default() -> Self {
        Self {
            keys: vec![1, 10_000, 1_000_000, 10_000_000],
            spreads: Spread::ALL.into(),
            kinds: Kind::ALL.into(),
            threads: vec![1, 2],
            modes: Mode::ALL.into(),
            entries: contestants::ALL.iter().collect(),
            rounds: ROUNDS_DEFAULT,
            until: Until::Elapsed(ROUND_TIME),
            json: false,
        }
    }
}

impl Default for Weighing {
    fn default() -> Self {
        Self {
            keys: vec![10_000_000],
            kinds: vec![Kind::Str],
            entries: contestants::ALL.iter().collect(),
            json: false,
        }
    }
}

impl Default for Gating {
    fn default() -> Self {
        Self {
            keys: vec![10_000, 1_000_000],
            rounds: ROUNDS_DEFAULT,
            until: Until::Elapsed(ROUND_TIME),
            json: false,
        }
    }
}

impl Default for Flooding {
    fn default() -> Self {
        Self {
            keys: KEYS_MAX,
            max_keys: 1_000_000,
            json: false,
        }
    }
}

/// The name by which `memory` starts its children.
pub(crate) const MEMORY_CHILD: &str = "memory-child";

/// The name by which `flood` starts its children.
pub(crate) const FLOOD_CHILD: &str = "flood-child";

/// Reads the words after the program's name.
pub(crate) fn parse(words: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let words: Vec<String> = words
        .map(|word| {
            word.into_string()
                .map_err(|word| format!("{word:?} is not valid Unicode"))
        })
        .collect::<Result<_, _>>()?;
    let Some((command, rest)) = words.split_first() else {
        return Err("no command was given".to_owned());
    };
    let flags = Flags(rest.iter());
    match command.as_str() {
        "compare" => parse_comparison(flags).map(Command::Compare),
        "memory" => parse_weighing(flags).map(Command::Memory),
        "gate" => parse_gating(flags).map(Command::Gate),
        "flood" => parse_flooding(flags).map(Command::Flood),
        "doors" => doors::parse(flags).map(Command::Doors),
        "gateway" => gateways::parse(flags).map(Command::Gateway),
        "store" => stores::parse(flags).map(Command::Store),
        "fleet" => fleets::parse(flags).map(Command::Fleet),
        "fair" => fair::parse(flags).map(Command::Fair),
        "layer" => layer::parse(flags).map(Command::Layer),
        "quick" => parse_quick(flags),
        name if speed::parts(name).is_some() => speed::parse(name, flags).map(Command::Speed),
        "help" | "--help" | "-h" => Ok(Command::Help),
        MEMORY_CHILD => parse_probe(rest).map(Command::MemoryChild),
        FLOOD_CHILD => parse_flood_child(rest),
        BARE_CHILD => doors::parse_bare_child(rest).map(Command::BareChild),
        BARE_RESP_CHILD => doors::parse_bare_child(rest).map(Command::BareRespChild),
        BARE_RLS_CHILD => doors::parse_bare_child(rest).map(Command::BareRlsChild),
        other => Err(format!("there is no command `{other}`")),
    }
}

fn parse_comparison(mut flags: Flags<'_>) -> Result<Comparison, String> {
    let mut wanted = Comparison::default();
    while let Some(flag) = flags.0.next() {
        match flag.as_str() {
            "--keys" => wanted.keys = flags.list(flag, key_count)?,
            "--dist" => wanted.spreads = flags.list(flag, spread)?,
            "--kind" => wanted.kinds = flags.list(flag, kind)?,
            "--threads" => wanted.threads = flags.list(flag, |word| count(word, THREADS_MAX))?,
            "--mode" => wanted.modes = flags.list(flag, mode)?,
            "--only" => wanted.entries = flags.list(flag, entry)?,
            "--rounds" => wanted.rounds = flags.one(flag, |word| count(word, ROUNDS_MAX))?,
            "--ops" => wanted.until = flags.one(flag, checks)?,
            "--json" => wanted.json = true,
            _ => return Err(unknown(flag, "compare")),
        }
    }
    Ok(wanted)
}

fn parse_weighing(mut flags: Flags<'_>) -> Result<Weighing, String> {
    let mut wanted = Weighing::default();
    while let Some(flag) = flags.0.next() {
        match flag.as_str() {
            "--keys" => wanted.keys = flags.list(flag, key_count)?,
            "--kind" => wanted.kinds = flags.list(flag, kind)?,
            "--only" => wanted.entries = flags.list(flag, entry)?,
            "--json" => wanted.json = true,
            _ => return Err(unknown(flag, "memory")),
        }
    }
    Ok(wanted)
}

fn parse_gating(mut flags: Flags<'_>) -> Result<Gating, String> {
    let mut wanted = Gating::default();
    while let Some(flag) = flags.0.next() {
        match flag.as_str() {
            "--keys" => wanted.keys = flags.list(flag, key_count)?,
            "--rounds" => wanted.rounds = flags.one(flag, |word| count(word, ROUNDS_MAX))?,
            "--ops" => wanted.until = flags.one(flag, checks)?,
            "--json" => wanted.json = true,
            _ => return Err(unknown(flag, "gate")),
        }
    }
    Ok(wanted)
}

fn parse_flooding(mut flags: Flags<'_>) -> Result<Flooding, String> {
    let mut wanted = Flooding::default();
    while let Some(flag) = flags.0.next() {
        match flag.as_str() {
            "--keys" => wanted.keys = flags.one(flag, key_count)?,
            "--max-keys" => wanted.max_keys = flags.one(flag, key_count)?,
            "--json" => wanted.json = true,
            _ => return Err(unknown(flag, "flood")),
        }
    }
    Ok(wanted)
}

fn parse_quick(flags: Flags<'_>) -> Result<Command, String> {
    let mut json = false;
    for flag in flags.0 {
        match flag.as_str() {
            "--json" => json = true,
            _ => return Err(unknown(flag, "quick")),
        }
    }
    Ok(Command::Quick { json })
}

fn parse_probe(words: &[String]) -> Result<Probe, String> {
    let [name, keys, kind_name] = words else {
        return Err(format!(
            "`{MEMORY_CHILD}` takes a name, a number of keys and a kind"
        ));
    };
    Ok(Probe {
        entry: entry(name)?,
        keys: key_count(keys)?,
        kind: kind(kind_name)?,
    })
}

fn parse_flood_child(words: &[String]) -> Result<Command, String> {
    let [name, keys, max_keys] = words else {
        return Err(format!(
            "`{FLOOD_CHILD}` takes a name, a number of keys and room for how many"
        ));
    };
    let wanted = Flooding {
        keys: key_count(keys)?,
        max_keys: key_count(max_keys)?,
        json: false,
    };
    let whom = choose(name, &Flooded::ALL, |whom| whom.name())?;
    Ok(Command::FloodChild(whom, wanted))
}

/// The words not yet read.
struct Flags<'a>(std::slice::Iter<'a, String>);

impl Flags<'_> {
    fn one<T>(
        &mut self,
        flag: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, String> {
        let word = self
            .0
            .next()
            .ok_or_else(|| format!("`{flag}` needs a value after it"))?;
        read(word).map_err(|message| format!("`{flag}`: {message}"))
    }

    fn list<T>(
        &mut self,
        flag: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        self.one(flag, |words| {
            words.split(',').map(|word| read(word.trim())).collect()
        })
    }
}

fn unknown(flag: &str, command: &str) -> String {
    format!("`{command}` has no flag `{flag}`")
}

/// A positive number, perhaps with `k` or `m` behind it.
fn count(word: &str, max: usize) -> Result<usize, String> {
    let (digits, unit) = match word.as_bytes().last() {
        Some(b'k' | b'K') => (&word[..word.len() - 1], 1_000),
        Some(b'm' | b'M') => (&word[..word.len() - 1], 1_000_000),
        _ => (word, 1),
    };
    // `usize` would read a leading `+`; nobody means that.
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "`{word}` is not a count such as `250`, `10k` or `1m`"
        ));
    }
    match digits
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
    {
        Some(number) if (1..=max).contains(&number) => Ok(number),
        _ => Err(format!("`{word}` is not between 1 and {max}")),
    }
}

fn key_count(word: &str) -> Result<usize, String> {
    count(word, KEYS_MAX)
}

fn checks(word: &str) -> Result<Until, String> {
    count(word, OPS_MAX).map(|checks| Until::Checks(checks as u64))
}

fn spread(word: &str) -> Result<Spread, String> {
    choose(word, &Spread::ALL, |spread| spread.name())
}

fn kind(word: &str) -> Result<Kind, String> {
    choose(word, &Kind::ALL, |kind| kind.name())
}

fn mode(word: &str) -> Result<Mode, String> {
    choose(word, &Mode::ALL, |mode| mode.name())
}

fn entry(word: &str) -> Result<&'static Entry, String> {
    let all: Vec<&'static Entry> = contestants::ALL.iter().collect();
    choose(word, &all, |entry| entry.name)
}

fn choose<T: Copy>(word: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T, String> {
    all.iter()
        .copied()
        .find(|&choice| name(choice) == word)
        .ok_or_else(|| {
            let names: Vec<String> = all
                .iter()
                .map(|&choice| format!("`{}`", name(choice)))
                .collect();
            format!("`{word}` is not one of {}", names.join(", "))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn message(line: &str) -> String {
        parse_line(line).map_or_else(|message| message, |command| format!("{command:?}"))
    }

    #[test]
    fn every_flag_of_compare_is_understood() {
        let line = "compare --keys 1,10k,2m --dist zipf --kind u64 --threads 2 --mode refuse \
                    --only governor,floor --rounds 3 --ops 5k --json";
        let Ok(Command::Compare(wanted)) = parse_line(line) else {
            unreachable!("`{line}` is correct")
        };
        assert_eq!(wanted.keys, [1, 10_000, 2_000_000]);
        assert_eq!(wanted.spreads, [Spread::Zipf]);
        assert_eq!(wanted.kinds, [Kind::U64]);
        assert_eq!(wanted.threads, [2]);
        assert_eq!(wanted.modes, [Mode::Refuse]);
        assert_eq!(
            wanted.entries.iter().map(|e| e.name).collect::<Vec<_>>(),
            ["governor", "floor"]
        );
        assert_eq!(wanted.rounds, 3);
        assert_eq!(wanted.until, Until::Checks(5_000));
        assert!(wanted.json);
    }

    #[test]
    fn every_flag_of_gate_and_flood_is_understood() {
        let line = "gate --keys 2k --rounds 3 --ops 5k --json";
        let Ok(Command::Gate(wanted)) = parse_line(line) else {
            unreachable!("`{line}` is correct")
        };
        assert_eq!((wanted.keys, wanted.rounds), (vec![2_000], 3));
        assert_eq!((wanted.until, wanted.json), (Until::Checks(5_000), true));
        let line = "flood --keys 20m --max-keys 2m --json";
        let Ok(Command::Flood(wanted)) = parse_line(line) else {
            unreachable!("`{line}` is correct")
        };
        assert_eq!((wanted.keys, wanted.max_keys), (20_000_000, 2_000_000));
        assert!(wanted.json);
    }

    #[test]
    fn what_makes_no_sense_is_told_and_not_guessed() {
        for (line, expected) in [
            ("", "no command was given"),
            ("race", "there is no command `race`"),
            ("compare --speed 9", "`compare` has no flag `--speed`"),
            ("memory --rounds 9", "`memory` has no flag `--rounds`"),
            ("gate --mode pass", "`gate` has no flag `--mode`"),
            ("flood --only governor", "`flood` has no flag `--only`"),
            (
                "flood --keys 1k,2k",
                "`--keys`: `1k,2k` is not a count such as `250`, `10k` or `1m`",
            ),
            ("quick 9", "`quick` has no flag `9`"),
            ("compare --keys", "`--keys` needs a value after it"),
            (
                "compare --keys 0",
                "`--keys`: `0` is not between 1 and 100000000",
            ),
            (
                "compare --keys 1,",
                "`--keys`: `` is not a count such as `250`, `10k` or `1m`",
            ),
            (
                "compare --keys +1",
                "`--keys`: `+1` is not a count such as `250`, `10k` or `1m`",
            ),
            (
                "compare --keys 1µ",
                "`--keys`: `1µ` is not a count such as `250`, `10k` or `1m`",
            ),
            (
                "compare --ops 99999999999999999999m",
                "`--ops`: `99999999999999999999m` is not between 1 and 1000000000",
            ),
            (
                "compare --mode maybe",
                "`--mode`: `maybe` is not one of `pass`, `refuse`",
            ),
            (
                "memory-child governor",
                "`memory-child` takes a name, a number of keys and a kind",
            ),
        ] {
            assert_eq!(message(line), expected, "for `{line}`");
        }
        assert!(
            message("compare --only me").starts_with("`--only`: `me` is not one of `governor`")
        );
    }
}
