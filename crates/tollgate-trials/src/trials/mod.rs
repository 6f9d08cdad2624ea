//! The trials: each breaks one thing while a crowd asks, and looks whether the promises hold.
//!
//! Each is a file of its own that says what it does and what it promises.

mod blackhole;
mod failover;
mod flap;
mod flush;
mod freeze;
mod kill;
mod node_loss;
mod race;
mod reshard;
mod restart;
mod sharing;
mod together;
mod worlds;

use std::time::Duration;

use crate::crowd::{Crowd, Guest, Plan};
use crate::shaping;
use crate::verdicts::Verdicts;
use tollgate_testkit::Result;
use tollgate_testkit::servers::Kind;

pub use race::{Race, work};

/// How a trial is carried out.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// On which servers.
    pub kind: Kind,
    /// Short, and without promises about time.
    pub quick: bool,
    /// Where all randomness comes from.
    pub seed: u64,
    /// How long the main part takes; none for what is usual.
    pub seconds: Option<u64>,
    /// Requests in a second.
    pub rate: u64,
}

impl Setting {
    /// How long the main part of a trial takes.
    pub(crate) fn span(&self, quick_ms: u64, full_ms: u64) -> Duration {
        let usual = if self.quick { quick_ms } else { full_ms };
        Duration::from_millis(self.seconds.map_or(usual, |s| s.saturating_mul(1000)))
    }

    /// One of two numbers.
    pub(crate) fn either<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// A crowd before this port.
    fn crowd(&self, port: u16, guests: Vec<Guest>) -> Result<Crowd> {
        Crowd::start(Plan {
            port,
            rate: self.rate,
            guests,
            seed: self.seed,
        })
    }
}

/// A trial that can be asked for.
#[derive(Clone, Copy)]
pub struct Trial {
    /// What it is called.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    run: fn(&Setting, &mut Verdicts) -> Result<()>,
}

impl std::fmt::Debug for Trial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trial").field("name", &self.name).finish()
    }
}

/// All of them.
pub const ALL: [Trial; 18] = [
    Trial {
        name: "kill",
        about: "kill -9 of the primary under Sentinel",
        run: kill::run,
    },
    Trial {
        name: "failover",
        about: "the primary becomes a replica and keeps its connections, again and again",
        run: failover::run,
    },
    Trial {
        name: "freeze",
        about: "the store stands still (SIGSTOP) and goes on",
        run: freeze::run,
    },
    Trial {
        name: "blackhole",
        about: "a network that swallows, delays, cuts, repeats and loses",
        run: blackhole::run,
    },
    Trial {
        name: "flush",
        about: "SCRIPT FLUSH, a hundred times a second",
        run: flush::run,
    },
    Trial {
        name: "restart",
        about: "the store is killed and comes back empty",
        run: restart::run,
    },
    Trial {
        name: "reshard",
        about: "slots of a cluster move all the time, and the counts are exact",
        run: reshard::run,
    },
    Trial {
        name: "node-loss",
        about: "kill -9 of one primary of a cluster",
        run: node_loss::run,
    },
    Trial {
        name: "race",
        about: "eight processes charge the same keys, and the counts are exact",
        run: race::run,
    },
    Trial {
        name: "together",
        about: "two services behind nginx on one store, and the counts are exact",
        run: together::run,
    },
    Trial {
        name: "sharing",
        about: "four services share hot keys exactly, by loans and by copies, and one is killed",
        run: sharing::run,
    },
    Trial {
        name: "flap",
        about: "the store comes and goes twice a second",
        run: flap::run,
    },
    Trial {
        name: "constant-rate",
        about: "waves of requests leave the gateway's queue at a constant rate",
        run: shaping::constant_rate::run,
    },
    Trial {
        name: "neighbour",
        about: "one tenant asks for 50 times its share, and 99 others notice nothing",
        run: shaping::neighbour::run,
    },
    Trial {
        name: "weights",
        about: "three tiers that are all backlogged are served 1:4:16",
        run: shaping::weights::run,
    },
    Trial {
        name: "aborts",
        about: "clients go away at every moment of a request, and nothing is left behind",
        run: shaping::aborts::run,
    },
    Trial {
        name: "abuse",
        about: "slow and flooding clients, and everybody else is answered",
        run: shaping::abuse::run,
    },
    Trial {
        name: "clients",
        about: "nginx, curl, h2load and a WebSocket through the gateway",
        run: shaping::clients::run,
    },
];

impl Trial {
    /// The trial of this name.
    pub fn named(name: &str) -> Option<&'static Trial> {
        ALL.iter().find(|trial| trial.name == name)
    }

    /// Carries it out. What could not be carried out is a broken promise, too.
    pub fn carry_out(&self, setting: &Setting) -> Verdicts {
        let mut verdicts = Verdicts::new(setting.quick);
        if let Err(error) = (self.run)(setting, &mut verdicts) {
            verdicts.promise("the trial can be carried out", false, error);
        }
        verdicts
    }
}
