//! `tollgate serve` with its store, as the trials start it.

use std::time::Duration;

use tollgate_testkit::tollgate::{Start, Tollgate};
use tollgate_testkit::{Check, Error, Result, wait_for};

use crate::load::{CheckResponse, Client};
use crate::policy::TrialPolicy;

/// The longest start, until it decides with its store.
const DEADLINE: Duration = Duration::from_secs(15);
/// Keys that the store must decide before a trial begins: enough to use every server of a cluster.
const PROBES: u64 = 32;

/// A service that runs until this is dropped.
#[derive(Debug)]
pub struct Service(Tollgate);

impl Service {
    /// Starts it with this policy, and waits until it decides with its store.
    pub fn start(policy: &TrialPolicy) -> Result<Service> {
        let service = Service(Start::serve().policy(&policy.text()).start()?);
        service.wait_for_the_store()?;
        Ok(service)
    }

    /// The port of decisions.
    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&self) {
        self.0.kill();
    }

    /// Its log.
    pub fn log(&self) -> String {
        self.0.log()
    }

    /// Requests one decision over a connection of its own.
    pub fn check(&self, client: &Client) -> Result<CheckResponse> {
        let mut http = self.0.client();
        let answer = http.try_send(
            "POST",
            "/v1/check",
            &[("Connection", "close")],
            &client.body(),
        );
        let body = answer.map_err(Error::io("request a decision"))?.body;
        CheckResponse::read(body.as_bytes()).ok_or(Error::Unexpected {
            command: "a decision".into(),
            answer: body,
        })
    }

    /// The sum of the series of a metric with these labels.
    pub fn metric(&self, series: &str) -> Result<u64> {
        metric(&self.0, series)
    }

    /// Waits until no probe is decided without the store.
    fn wait_for_the_store(&self) -> Result<()> {
        let probe = |number| Client {
            key: format!("probe{number}"),
            cost: 0,
        };
        let log = || self.log();
        wait_for("the service decides with its store", DEADLINE, log, || {
            for number in 0..PROBES {
                if self.check(&probe(number))?.degraded {
                    return Ok(Check::Pending(format!("probe {number} without it")));
                }
            }
            Ok(Check::Ready(()))
        })
    }
}

/// The sum of the series of a metric with these labels. An error if there is none: a promise about it would prove nothing.
pub(crate) fn metric(process: &Tollgate, series: &str) -> Result<u64> {
    process.metric(series).ok_or_else(|| Error::Unexpected {
        command: format!("the metric `{series}`"),
        answer: "there is none".into(),
    })
}
