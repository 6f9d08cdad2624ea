//! The cases of each suite: work, contestants, goals.

use super::contestant::Contestant::{self, *};
use super::load::RequestShape;

/// Cases whose servers stay up together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Suite {
    /// Decisions over HTTP and forward-auth beside a no-op HTTP server, throttlecrab and nginx.
    Http,
    /// The gateway beside nginx as a reverse proxy, both with a limit.
    Gateway,
    /// The Redis protocol beside a constant answer, redis-cell, a Lua script and throttlecrab.
    Resp,
    /// The rate limit service beside bare tonic, limitador and throttlecrab.
    Rls,
    /// Requests through an Envoy with our rate limit service, and one with limitador.
    Envoy,
    /// One round trip on one connection, ours and peers.
    Unloaded,
    /// Resident bytes of a server per live key, ours and peers.
    Footprint,
}

impl Suite {
    pub(crate) const ALL: [Suite; 7] = [
        Suite::Http,
        Suite::Gateway,
        Suite::Resp,
        Suite::Rls,
        Suite::Envoy,
        Suite::Unloaded,
        Suite::Footprint,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Suite::Http => "http",
            Suite::Gateway => "gateway",
            Suite::Resp => "resp",
            Suite::Rls => "rls",
            Suite::Envoy => "envoy",
            Suite::Unloaded => "unloaded",
            Suite::Footprint => "footprint",
        }
    }

    pub(crate) fn cases(self) -> &'static [Case] {
        match self {
            Suite::Http => &HTTP,
            Suite::Gateway => &GATEWAY,
            Suite::Resp => &RESP,
            Suite::Rls => &RLS,
            Suite::Envoy => &ENVOY,
            Suite::Unloaded => &UNLOADED,
            Suite::Footprint => &[],
        }
    }
}

/// The same work for all contestants, interleaved.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) title: &'static str,
    pub(crate) connections: usize,
    /// Requests in flight on each.
    pub(crate) depth: usize,
    pub(crate) keys: Keys,
    pub(crate) expected: Expected,
    pub(crate) contestants: &'static [Contestant],
    pub(crate) goals: &'static [Goal],
}

/// How many keys are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// The number of `--keys`, all live before anything is measured.
    Live,
    /// A tenth of it, not live beforehand.
    Some,
    One,
}

impl Keys {
    pub(crate) fn count(self, live: u64) -> u64 {
        match self {
            Keys::Live => live,
            Keys::Some => (live / 10).max(1),
            Keys::One => 1,
        }
    }
}

/// The verdict that every answer must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The limit is out of reach and recovers slowly, so that every key stays live.
    Admitted,
    /// A few at once and one more per day, so that everything after is refused.
    Refused,
}

/// A ratio or figure, and its target. `None` only reports it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// Requests per second of the first over the second, at least; by CPU time where a server was not kept busy.
    Rate(Contestant, Contestant, Option<f64>),
    /// The same where the load's core does part of the work, so that the server's CPU time means nothing.
    RateOnly(Contestant, Contestant, Option<f64>),
    /// The median latency of the first over the second, at most.
    P50(Contestant, Contestant, Option<f64>),
    /// The 99th percentile of the first over the second, at most.
    P99(Contestant, Contestant, Option<f64>),
    /// The 99th percentile in microseconds, at most.
    P99Micros(Contestant, f64),
}

/// The bound of a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    pub(crate) fn first(self) -> Contestant {
        let (Goal::Rate(first, ..)
        | Goal::RateOnly(first, ..)
        | Goal::P50(first, ..)
        | Goal::P99(first, ..)
        | Goal::P99Micros(first, _)) = self;
        first
    }

    pub(crate) fn second(self) -> Option<Contestant> {
        match self {
            Goal::Rate(_, second, _)
            | Goal::RateOnly(_, second, _)
            | Goal::P50(_, second, _)
            | Goal::P99(_, second, _) => Some(second),
            Goal::P99Micros(..) => None,
        }
    }

    pub(crate) fn target(self) -> Option<Target> {
        match self {
            Goal::Rate(.., least) | Goal::RateOnly(.., least) => least.map(Target::AtLeast),
            Goal::P50(.., most) | Goal::P99(.., most) => most.map(Target::AtMost),
            Goal::P99Micros(_, most) => Some(Target::AtMost(most)),
        }
    }
}

impl Case {
    pub(crate) fn shape(&self, contestant: Contestant) -> RequestShape {
        RequestShape {
            connections: self.connections,
            depth: self.depth,
            // Streams of gRPC do not wait for each other.
            in_batches: !contestant.has_streams(),
            quick_ack: contestant.stalls_in_pipelines(),
        }
    }
}

const fn admitted(
    title: &'static str,
    (connections, depth): (usize, usize),
    keys: Keys,
    contestants: &'static [Contestant],
    goals: &'static [Goal],
) -> Case {
    Case {
        title,
        connections,
        depth,
        keys,
        expected: Expected::Admitted,
        contestants,
        goals,
    }
}

const HTTP: [Case; 3] = [
    admitted(
        "POST, JSON",
        (50, 1),
        Keys::Some,
        &[HttpNoop, Check, CheckNamed, CrabHttp],
        &[
            Goal::Rate(Check, HttpNoop, None),
            Goal::Rate(Check, CrabHttp, None),
            Goal::Rate(CheckNamed, CrabHttp, None),
        ],
    ),
    admitted(
        "GET, headers",
        (50, 1),
        Keys::Some,
        &[HttpNoopGet, Auth, Nginx],
        &[
            Goal::Rate(Auth, HttpNoopGet, None),
            Goal::Rate(Auth, Nginx, None),
        ],
    ),
    admitted(
        "POST, JSON, by the size of the policy",
        (50, 1),
        Keys::Some,
        &[TenLimits, ThousandLimits],
        &[Goal::Rate(ThousandLimits, TenLimits, None)],
    ),
];

const GATEWAY: [Case; 1] = [admitted(
    "reverse proxies with a limit",
    (50, 1),
    Keys::Some,
    &[UpstreamAlone, NginxGateway, Gateway],
    &[
        Goal::RateOnly(Gateway, NginxGateway, Some(0.90)),
        Goal::P50(Gateway, NginxGateway, None),
        Goal::P99(Gateway, NginxGateway, Some(1.3)),
    ],
)];

const RESP: [Case; 3] = [
    admitted(
        "RESP, one at a time, live keys",
        (50, 1),
        Keys::Live,
        &[RespNoop, Resp, Cell, CrabResp],
        &[
            Goal::Rate(Resp, Cell, Some(1.6)),
            Goal::Rate(Resp, CrabResp, Some(1.3)),
            Goal::Rate(Resp, RespNoop, Some(0.95)),
        ],
    ),
    admitted(
        "RESP, pipelines of 32, live keys",
        (50, 32),
        Keys::Live,
        &[RespNoop, Resp, Cell, Lua, CrabResp],
        &[
            Goal::Rate(Resp, Cell, Some(10.0)),
            Goal::Rate(Resp, Lua, Some(20.0)),
            Goal::Rate(Resp, CrabResp, None),
            Goal::Rate(Resp, RespNoop, None),
            Goal::P99Micros(Resp, 1_500.0),
        ],
    ),
    Case {
        title: "RESP, pipelines of 32, one hot key that is refused",
        connections: 50,
        depth: 32,
        keys: Keys::One,
        expected: Expected::Refused,
        contestants: &[Resp, Cell, CrabResp],
        goals: &[
            Goal::Rate(Resp, Cell, Some(3.0)),
            Goal::Rate(Resp, CrabResp, None),
        ],
    },
];

const RLS_ALL: &[Contestant] = &[RlsNoop, Rls, RlsNoFields, Limitador, CrabRls];

const RLS: [Case; 2] = [
    admitted(
        "rate limit service, 8 connections of 16 streams",
        (8, 16),
        Keys::Some,
        RLS_ALL,
        &[
            Goal::Rate(Rls, Limitador, Some(2.6)),
            Goal::Rate(Rls, CrabRls, Some(1.25)),
            Goal::Rate(Rls, RlsNoop, Some(0.9)),
            Goal::Rate(RlsNoFields, Limitador, None),
            Goal::Rate(RlsNoFields, CrabRls, None),
            Goal::Rate(RlsNoFields, RlsNoop, None),
            Goal::Rate(RlsNoop, Limitador, None),
        ],
    ),
    admitted(
        "rate limit service, 50 connections of one stream",
        (50, 1),
        Keys::Some,
        RLS_ALL,
        &[
            Goal::Rate(Rls, Limitador, Some(1.7)),
            Goal::Rate(Rls, CrabRls, None),
            Goal::Rate(Rls, RlsNoop, None),
            Goal::Rate(RlsNoFields, Limitador, None),
            Goal::Rate(RlsNoop, Limitador, None),
        ],
    ),
];

const ENVOY: [Case; 1] = [admitted(
    "through Envoy, which calls the service for every request",
    (50, 1),
    Keys::Some,
    &[EnvoyNoop, EnvoyOurs, EnvoyOursNoFields, EnvoyLimitador],
    &[
        Goal::RateOnly(EnvoyOurs, EnvoyLimitador, Some(1.25)),
        Goal::RateOnly(EnvoyOursNoFields, EnvoyLimitador, None),
        Goal::RateOnly(EnvoyOurs, EnvoyNoop, None),
        Goal::RateOnly(EnvoyNoop, EnvoyLimitador, None),
    ],
)];

const UNLOADED: [Case; 1] = [admitted(
    "round trips, one connection, one at a time",
    (1, 1),
    Keys::Some,
    &[
        RespNoop, Resp, Cell, CrabResp, Auth, Nginx, RlsNoop, Rls, Limitador, CrabRls,
    ],
    &[
        Goal::P50(Resp, Cell, Some(1.0)),
        Goal::P50(Auth, Nginx, Some(1.0)),
        Goal::P50(Rls, Cell, Some(1.0)),
        Goal::P50(Rls, Nginx, Some(1.0)),
        Goal::P50(Rls, RlsNoop, None),
    ],
)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_goal_is_of_contestants_in_its_case() {
        for case in Suite::ALL.iter().flat_map(|suite| suite.cases()) {
            for goal in case.goals {
                let all = [Some(goal.first()), goal.second()];
                for contestant in all.into_iter().flatten() {
                    assert!(case.contestants.contains(&contestant), "{goal:?}");
                }
            }
        }
    }

    #[test]
    fn pipelines_are_answered_whole_and_streams_are_not() {
        assert!(RESP[1].shape(Resp).in_batches);
        assert!(!RLS[0].shape(Rls).in_batches);
        assert!(RESP[1].shape(CrabResp).quick_ack);
    }
}
