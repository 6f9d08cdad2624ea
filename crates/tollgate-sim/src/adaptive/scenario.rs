//! Scenarios: how backends change, and how many requests arrive.

use super::backend::BackendCondition;

/// The service time of one request alone, on average.
pub const SERVICE_NS: f64 = 20e6;

/// A stretch in which the backend and the load are of one kind.
#[derive(Clone, Copy, Debug)]
pub struct BackendPhase {
    /// What it is.
    pub name: &'static str,
    /// How long, in seconds.
    pub secs: u64,
    /// What the backend is like when it begins.
    pub from: BackendCondition,
    /// And at its end; in between all numbers move evenly.
    pub to: BackendCondition,
    /// How many requests come, in hundredths of the capacity it begins with, or ends with if that is more.
    pub load: u64,
    /// Whether it is something that a limit can be right for. A stall is not.
    pub is_judged: bool,
}

/// A backend's history.
#[derive(Clone, Debug)]
pub struct BackendScenario {
    /// What it is called.
    pub name: &'static str,
    /// One sentence on it.
    pub about: &'static str,
    /// In order.
    pub phases: Vec<BackendPhase>,
    /// Whether one of ten requests takes eleven times as long as the others; with the same mean.
    pub is_bimodal: bool,
}

impl BackendPhase {
    /// What the backend is like `at_ns` after the phase began.
    pub fn at(&self, at_ns: u64) -> BackendCondition {
        let share = at_ns as f64 / (self.secs.max(1) as f64 * 1e9);
        let between = |from: f64, to: f64| from + (to - from) * share.clamp(0.0, 1.0);
        BackendCondition {
            servers: between(self.from.servers, self.to.servers),
            slow: between(self.from.slow, self.to.slow),
            ..self.from
        }
    }

    /// Whether the backend stays as it is.
    pub fn is_level(&self) -> bool {
        self.from == self.to
    }
}

/// Requests per second that the backend can serve at the most.
pub fn capacity(condition: BackendCondition) -> f64 {
    if condition.stalled {
        return 0.0;
    }
    let pool = condition.pool.map_or(f64::INFINITY, f64::from);
    condition.servers.min(pool) / (SERVICE_NS * condition.slow) * 1e9
}

/// A healthy backend.
const fn servers(servers: f64) -> BackendCondition {
    BackendCondition {
        servers,
        slow: 1.0,
        stalled: false,
        pool: None,
    }
}

const fn level(name: &'static str, secs: u64, condition: BackendCondition) -> BackendPhase {
    BackendPhase {
        name,
        secs,
        from: condition,
        to: condition,
        load: 1000,
        is_judged: true,
    }
}

/// Every scenario, each phase of `secs` seconds.
pub fn all(secs: u64) -> Vec<BackendScenario> {
    let usual = servers(40.0);
    let slow = BackendCondition { slow: 3.0, ..usual };
    let scenario = |name, about, phases| BackendScenario {
        name,
        about,
        phases,
        is_bimodal: false,
    };
    vec![
        scenario(
            "step",
            "Capacity halves, comes back, and doubles, each from one moment to the next.",
            vec![
                level("start", secs, usual),
                level("half", secs, servers(20.0)),
                level("back", secs, usual),
                level("double", secs, servers(80.0)),
            ],
        ),
        scenario(
            "ramp",
            "Capacity falls evenly to a quarter, and rises again.",
            vec![
                level("start", secs, usual),
                BackendPhase {
                    to: servers(10.0),
                    ..level("falls", secs, usual)
                },
                level("quarter", secs, servers(10.0)),
                BackendPhase {
                    to: usual,
                    ..level("rises", secs, servers(10.0))
                },
            ],
        ),
        scenario(
            "stall",
            "Nothing finishes for 5 s; then all is as before.",
            vec![
                level("start", secs, usual),
                BackendPhase {
                    is_judged: false,
                    ..level(
                        "stalled",
                        5,
                        BackendCondition {
                            stalled: true,
                            ..usual
                        },
                    )
                },
                level("recovered", secs, usual),
            ],
        ),
        scenario(
            "stuck",
            "What starts while 20 are being served hangs until its timeout, always equally long.",
            vec![
                level("start", secs, usual),
                level(
                    "stuck",
                    secs,
                    BackendCondition {
                        pool: Some(20),
                        ..usual
                    },
                ),
                level("recovered", secs, usual),
            ],
        ),
        scenario(
            "outage",
            "Every single request hangs until its timeout, for 20 s.",
            vec![
                level("start", secs, usual),
                BackendPhase {
                    is_judged: false,
                    ..level(
                        "outage",
                        20,
                        BackendCondition {
                            pool: Some(0),
                            ..usual
                        },
                    )
                },
                level("recovered", secs, usual),
            ],
        ),
        BackendScenario {
            is_bimodal: true,
            ..scenario(
                "bimodal",
                "One request of ten takes eleven times as long as the others; capacity halves.",
                vec![
                    level("start", secs, usual),
                    level("half", secs, servers(20.0)),
                ],
            )
        },
        scenario(
            "slower",
            "Every request takes three times as long, first bit by bit, later at once; the best limit stays.",
            vec![
                level("start", secs, usual),
                BackendPhase {
                    to: slow,
                    ..level("drifts", secs, usual)
                },
                level("slow", secs, slow),
                level("quick", secs, usual),
                level("slow again", secs, slow),
            ],
        ),
        scenario(
            "idle",
            "Almost no requests arrive for a while; meanwhile capacity halves.",
            vec![
                level("busy", secs, usual),
                BackendPhase {
                    load: 2,
                    is_judged: false,
                    ..level("idle", secs, servers(20.0))
                },
                level("busy again", secs, servers(20.0)),
            ],
        ),
        scenario(
            "loads",
            "The same backend under half its capacity, nearly all of it, twice and ten times.",
            vec![
                level("ten times", secs, usual),
                BackendPhase {
                    load: 50,
                    ..level("half", secs, usual)
                },
                BackendPhase {
                    load: 90,
                    ..level("nearly all", secs, usual)
                },
                BackendPhase {
                    load: 200,
                    ..level("twice", secs, usual)
                },
            ],
        ),
        scenario(
            "small",
            "A backend that bears only four at once.",
            vec![
                level("start", secs, servers(4.0)),
                level("half", secs, servers(2.0)),
            ],
        ),
        scenario(
            "large",
            "A backend that bears three hundred at once, and later half of that.",
            vec![
                level("start", secs, servers(300.0)),
                level("half", secs, servers(150.0)),
            ],
        ),
    ]
}
