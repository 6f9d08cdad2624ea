//! The trials: each injects one fault under load, and checks whether the promises hold.

mod blackhole;
mod common;
mod race;
mod reshard;
mod shared_store;
mod sharing;
mod store_faults;

use std::time::Duration;

use crate::load::{Client, Load, Plan};
use crate::policy::TrialPolicy;
use crate::service::Service;
use crate::shaping;
use crate::verdicts::Verdicts;
use tollgate_testkit::Result;
use tollgate_testkit::servers::Kind;

/// How a trial runs.
#[derive(Clone, Copy, Debug)]
pub struct TrialOptions {
    /// The kind of servers.
    pub kind: Kind,
    /// Short, and without promises about time.
    pub quick: bool,
    /// The seed of all randomness.
    pub seed: u64,
    /// How long the main part takes; none for the default.
    pub seconds: Option<u64>,
    /// Requests in a second.
    pub rate: u64,
}

impl TrialOptions {
    /// How long the main part of a trial takes.
    pub(crate) fn span(&self, quick_ms: u64, full_ms: u64) -> Duration {
        let usual = if self.quick { quick_ms } else { full_ms };
        Duration::from_millis(self.seconds.map_or(usual, |s| s.saturating_mul(1000)))
    }

    /// One of two values.
    pub(crate) fn quick_or_full<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// A load on the service at this port.
    fn load(&self, port: u16, clients: Vec<Client>) -> Result<Load> {
        Load::start(Plan {
            port,
            rate: self.rate,
            clients,
            seed: self.seed,
        })
    }

    /// A service with this policy under the load of these clients.
    fn load_on(
        &self,
        policy: &TrialPolicy,
        clients: Vec<Client>,
    ) -> Result<(Service, Vec<Client>, Load)> {
        let service = Service::start(policy)?;
        let load = self.load(service.port(), clients.clone())?;
        Ok((service, clients, load))
    }
}

/// A trial.
#[derive(Clone, Copy)]
pub struct Trial {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    run: fn(&TrialOptions, &mut Verdicts) -> Result<()>,
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
        summary: "kill -9 of the primary under Sentinel",
        run: store_faults::kill,
    },
    Trial {
        name: "failover",
        summary: "the primary becomes a replica and keeps its connections, again and again",
        run: store_faults::failover,
    },
    Trial {
        name: "freeze",
        summary: "the store is stopped (SIGSTOP) and continues",
        run: store_faults::freeze,
    },
    Trial {
        name: "blackhole",
        summary: "a network that drops, delays, cuts, duplicates and loses",
        run: blackhole::run,
    },
    Trial {
        name: "flush",
        summary: "SCRIPT FLUSH, a hundred times a second",
        run: store_faults::flush,
    },
    Trial {
        name: "restart",
        summary: "the store is killed and restarts empty",
        run: store_faults::restart,
    },
    Trial {
        name: "reshard",
        summary: "slots of a cluster move all the time, and the counts are exact",
        run: reshard::run,
    },
    Trial {
        name: "node-loss",
        summary: "kill -9 of one primary of a cluster",
        run: store_faults::node_loss,
    },
    Trial {
        name: "race",
        summary: "eight nodes charge the same keys, and the counts are exact",
        run: race::run,
    },
    Trial {
        name: "shared-store",
        summary: "two services behind nginx on one store, and the counts are exact",
        run: shared_store::run,
    },
    Trial {
        name: "sharing",
        summary: "four services share hot keys exactly, by leases and by copies, and one is killed",
        run: sharing::run,
    },
    Trial {
        name: "flap",
        summary: "the store goes down and up every second",
        run: store_faults::flap,
    },
    Trial {
        name: "constant-rate",
        summary: "waves of requests leave the gateway's queue at a constant rate",
        run: shaping::constant_rate::run,
    },
    Trial {
        name: "noisy-neighbor",
        summary: "one tenant sends 50 times its share, and 99 others are not affected",
        run: shaping::noisy_neighbor::run,
    },
    Trial {
        name: "weights",
        summary: "three tiers that are all backlogged are served 1:4:16",
        run: shaping::weights::run,
    },
    Trial {
        name: "aborts",
        summary: "clients abort at every moment of a request, and nothing leaks",
        run: shaping::aborts::run,
    },
    Trial {
        name: "abuse",
        summary: "slow and flooding clients, and all other clients are answered",
        run: shaping::abuse::run,
    },
    Trial {
        name: "clients",
        summary: "nginx, curl, h2load and a WebSocket through the gateway",
        run: shaping::clients::run,
    },
];

impl Trial {
    /// The trial of this name.
    pub fn named(name: &str) -> Option<&'static Trial> {
        ALL.iter().find(|trial| trial.name == name)
    }

    /// Runs it. An error is a broken promise, too.
    pub fn run(&self, options: &TrialOptions) -> Verdicts {
        let mut verdicts = Verdicts::new(options.quick);
        if let Err(error) = (self.run)(options, &mut verdicts) {
            verdicts.promise("the trial runs to its end", false, error);
        }
        verdicts
    }
}
