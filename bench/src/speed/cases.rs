//! What is compared: the work, who does it, and what ours is to reach.

use super::load::Shape;
use super::who::{Asked, Who};

/// A command of its own, whose servers stay up for all its cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Resp,
    Rls,
    Envoy,
    Unloaded,
    Footprint,
}

impl Part {
    pub(crate) const ALL: [Part; 5] = [
        Part::Resp,
        Part::Rls,
        Part::Envoy,
        Part::Unloaded,
        Part::Footprint,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Resp => "resp",
            Part::Rls => "rls",
            Part::Envoy => "envoy",
            Part::Unloaded => "unloaded",
            Part::Footprint => "footprint",
        }
    }

    pub(crate) fn cases(self) -> &'static [Case] {
        match self {
            Part::Resp => &RESP,
            Part::Rls => &RLS,
            Part::Envoy => &ENVOY,
            Part::Unloaded => &UNLOADED,
            Part::Footprint => &[],
        }
    }
}

/// The same work for all contestants, in the same minutes.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) title: &'static str,
    pub(crate) connections: usize,
    /// Requests under way on each.
    pub(crate) depth: usize,
    pub(crate) keys: Keys,
    pub(crate) asked: Asked,
    pub(crate) contestants: &'static [Who],
    pub(crate) goals: &'static [Goal],
}

/// How many keys are asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// As many as the command says, and all of them in use before anything is measured.
    Live,
    /// A tenth of it, as they come.
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

/// What is to be reached; `None` only tells.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// Requests a second of the first over those of the second; by CPU time where a server was not kept busy.
    Rate(Who, Who, Option<f64>),
    /// The same where the core of the load does part of the work, so that CPU time of the server says nothing.
    RateAlone(Who, Who, Option<f64>),
    /// The median time of the first over that of the second, at most this.
    Median(Who, Who, Option<f64>),
    /// Of a hundred answers 99 come within so many microseconds.
    P99(Who, f64),
}

impl Case {
    pub(crate) fn shape(&self, who: Who) -> Shape {
        Shape {
            connections: self.connections,
            depth: self.depth,
            in_batches: true,
            acknowledges_at_once: who.stalls_in_pipelines(),
        }
        .streams_apart(who)
    }
}

impl Shape {
    /// Streams do not wait for each other.
    fn streams_apart(self, who: Who) -> Shape {
        let has_streams = matches!(
            who,
            Who::BareRls | Who::Rls | Who::RlsPlain | Who::Limitador | Who::CrabRls
        );
        Shape {
            in_batches: !has_streams,
            ..self
        }
    }
}

const RESP: [Case; 3] = [
    Case {
        title: "RESP, one at a time, live keys",
        connections: 50,
        depth: 1,
        keys: Keys::Live,
        asked: Asked::Pass,
        contestants: &[Who::BareResp, Who::Resp, Who::Cell, Who::CrabResp],
        goals: &[
            Goal::Rate(Who::Resp, Who::Cell, Some(1.6)),
            Goal::Rate(Who::Resp, Who::CrabResp, Some(1.3)),
            Goal::Rate(Who::Resp, Who::BareResp, Some(0.95)),
        ],
    },
    Case {
        title: "RESP, pipelines of 32, live keys",
        connections: 50,
        depth: 32,
        keys: Keys::Live,
        asked: Asked::Pass,
        contestants: &[Who::BareResp, Who::Resp, Who::Cell, Who::Lua, Who::CrabResp],
        goals: &[
            Goal::Rate(Who::Resp, Who::Cell, Some(10.0)),
            Goal::Rate(Who::Resp, Who::Lua, Some(20.0)),
            Goal::Rate(Who::Resp, Who::CrabResp, None),
            Goal::Rate(Who::Resp, Who::BareResp, None),
            Goal::P99(Who::Resp, 1_500.0),
        ],
    },
    Case {
        title: "RESP, pipelines of 32, one hot key that is refused",
        connections: 50,
        depth: 32,
        keys: Keys::One,
        asked: Asked::Refuse,
        contestants: &[Who::Resp, Who::Cell, Who::CrabResp],
        goals: &[
            Goal::Rate(Who::Resp, Who::Cell, Some(3.0)),
            Goal::Rate(Who::Resp, Who::CrabResp, None),
        ],
    },
];

const RLS_ALL: &[Who] = &[
    Who::BareRls,
    Who::Rls,
    Who::RlsPlain,
    Who::Limitador,
    Who::CrabRls,
];

const RLS: [Case; 2] = [
    Case {
        title: "rate limit service, 8 connections of 16 streams",
        connections: 8,
        depth: 16,
        keys: Keys::Some,
        asked: Asked::Pass,
        contestants: RLS_ALL,
        goals: &[
            Goal::Rate(Who::Rls, Who::Limitador, Some(2.6)),
            Goal::Rate(Who::Rls, Who::CrabRls, Some(1.25)),
            Goal::Rate(Who::Rls, Who::BareRls, Some(0.9)),
            Goal::Rate(Who::RlsPlain, Who::Limitador, None),
            Goal::Rate(Who::RlsPlain, Who::CrabRls, None),
            Goal::Rate(Who::RlsPlain, Who::BareRls, None),
            Goal::Rate(Who::BareRls, Who::Limitador, None),
        ],
    },
    Case {
        title: "rate limit service, 50 connections of one stream",
        connections: 50,
        depth: 1,
        keys: Keys::Some,
        asked: Asked::Pass,
        contestants: RLS_ALL,
        goals: &[
            Goal::Rate(Who::Rls, Who::Limitador, Some(1.7)),
            Goal::Rate(Who::Rls, Who::CrabRls, None),
            Goal::Rate(Who::Rls, Who::BareRls, None),
            Goal::Rate(Who::RlsPlain, Who::Limitador, None),
            Goal::Rate(Who::BareRls, Who::Limitador, None),
        ],
    },
];

const ENVOY: [Case; 1] = [Case {
    title: "through Envoy, which asks about every request",
    connections: 50,
    depth: 1,
    keys: Keys::Some,
    asked: Asked::Pass,
    contestants: &[
        Who::EnvoyBare,
        Who::EnvoyOurs,
        Who::EnvoyOursPlain,
        Who::EnvoyLimitador,
    ],
    goals: &[
        Goal::RateAlone(Who::EnvoyOurs, Who::EnvoyLimitador, Some(1.25)),
        Goal::RateAlone(Who::EnvoyOursPlain, Who::EnvoyLimitador, None),
        Goal::RateAlone(Who::EnvoyOurs, Who::EnvoyBare, None),
        Goal::RateAlone(Who::EnvoyBare, Who::EnvoyLimitador, None),
    ],
}];

const UNLOADED: [Case; 1] = [Case {
    title: "round trips, one connection, one at a time",
    connections: 1,
    depth: 1,
    keys: Keys::Some,
    asked: Asked::Pass,
    contestants: &[
        Who::BareResp,
        Who::Resp,
        Who::Cell,
        Who::CrabResp,
        Who::Auth,
        Who::Nginx,
        Who::BareRls,
        Who::Rls,
        Who::Limitador,
        Who::CrabRls,
    ],
    goals: &[
        Goal::Median(Who::Resp, Who::Cell, Some(1.0)),
        Goal::Median(Who::Auth, Who::Nginx, Some(1.0)),
        Goal::Median(Who::Rls, Who::Cell, Some(1.0)),
        Goal::Median(Who::Rls, Who::Nginx, Some(1.0)),
        Goal::Median(Who::Rls, Who::BareRls, None),
    ],
}];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_goal_is_of_contestants_in_its_case() {
        for case in Part::ALL.iter().flat_map(|part| part.cases()) {
            for goal in case.goals {
                let (of, over) = match *goal {
                    Goal::Rate(of, over, _)
                    | Goal::RateAlone(of, over, _)
                    | Goal::Median(of, over, _) => (of, over),
                    Goal::P99(of, _) => (of, of),
                };
                assert!(case.contestants.contains(&of), "{goal:?}");
                assert!(case.contestants.contains(&over), "{goal:?}");
            }
        }
    }

    #[test]
    fn pipelines_are_answered_whole_and_streams_are_not() {
        assert!(RESP[1].shape(Who::Resp).in_batches);
        assert!(!RLS[0].shape(Who::Rls).in_batches);
        assert!(RESP[1].shape(Who::CrabResp).acknowledges_at_once);
    }
}
