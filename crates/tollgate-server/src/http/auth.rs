//! Forward-auth: a proxy asks about the request that it holds.
//!
//! # Theory
//!
//! The proxy tells the request in headers, and which ones depends on the proxy. Each of the two modes
//! reads one family and no other, because a proxy overwrites only its own and lets those of the other
//! pass as the client sent them:
//!
//! | | Traefik, Caddy: `/v1/auth` | nginx: `/v1/auth/nginx`, or `?deny=403` |
//! |---|---|---|
//! | method | `X-Forwarded-Method` | `X-Original-Method` |
//! | path and query, which must be there | `X-Forwarded-Uri` | `X-Original-URI` |
//! | host | `X-Forwarded-Host` | `Host` |
//! | client | the policy's forwarding header | `X-Real-IP`; without it, the policy's header |
//! | refused | 429 and its like | 403, with the true status in `X-Tollgate-Status` |
//!
//! Method and host, if absent, are those of the request itself. A path that is not told is an error:
//! otherwise every request would look the same, and a proxy that forgets the header would switch all limits
//! by path off. nginx knows no refusals but 401 and 403, and tells nothing by itself.
//!
//! # Invariant
//!
//! These headers are believed only of a peer that the policy trusts, or of one on this machine, which is
//! where a proxy usually is. From anybody else they are an error, not a fact.
//!
//! A delay is served here: the answer comes when the request may go on. Who would have to wait for longer
//! than [`LONGEST_WAIT`] gives its place back and is refused.
//!
//! # What it does not know
//!
//! When the request ends. A place of a concurrency limit is freed only by its time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use tollgate::policy::address::{Cidr, CidrSet, ForwardedHeader, Proxies};
use tollgate::policy::fields::{PROBLEM_TYPE, problem as explain, status};
use tollgate::policy::{Answer, Begun, Facts, Headers, Policy, Settlement};
use tollgate::{Clock, Span, Verdict};

use super::Decisions;
use super::answer::Sheet;
use super::problems::{Answered, problem};
use crate::engine::{Door, Epoch, carry};
use crate::listen::stopped;

/// Nobody is held for longer.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

const TRUE_STATUS: HeaderName = HeaderName::from_static("x-tollgate-status");
/// What only a proxy may say.
const TOLD: [&str; 8] = [
    "x-forwarded-method",
    "x-forwarded-uri",
    "x-forwarded-host",
    "x-forwarded-for",
    "forwarded",
    "x-original-method",
    "x-original-uri",
    "x-real-ip",
];

/// Headers as they came.
struct Received<'a>(&'a HeaderMap);

impl Headers for Received<'_> {
    fn visit<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        for value in self.0.get_all(name) {
            each(value.as_bytes());
        }
    }
}

/// Whose word is taken at this door under one policy: its proxies, and whoever is on this machine.
#[derive(Debug)]
pub(super) struct Trust {
    version: u64,
    chain: Proxies,
    real_ip: Proxies,
}

impl Trust {
    pub(super) fn nobody() -> Trust {
        Trust {
            version: 0,
            chain: Proxies::default(),
            real_ip: Proxies::default(),
        }
    }

    fn of(version: u64, policy: &Policy) -> Trust {
        let here = [
            Cidr::new(Ipv4Addr::new(127, 0, 0, 0).into(), 8),
            Cidr::new(Ipv6Addr::LOCALHOST.into(), 128),
        ];
        let listed = policy.proxies.trusted.networks().iter().copied();
        let trusted: CidrSet = listed.chain(here.into_iter().flatten()).collect();
        let by = |header| Proxies {
            trusted: trusted.clone(),
            header,
        };
        Trust {
            version,
            chain: by(policy.proxies.header),
            real_ip: by(ForwardedHeader::XRealIp),
        }
    }

    fn under(kept: &ArcSwap<Trust>, epoch: &Epoch) -> Arc<Trust> {
        let trust = kept.load();
        if trust.version == epoch.version {
            return Arc::clone(&trust);
        }
        let trust = Arc::new(Trust::of(epoch.version, epoch.gate.policy()));
        kept.store(Arc::clone(&trust));
        trust
    }
}

/// A request of a proxy: what it is about stands in its headers.
pub(super) struct Told<'a> {
    pub(super) method: &'a str,
    pub(super) headers: &'a dyn Headers,
    pub(super) peer: IpAddr,
    pub(super) nginx: bool,
}

impl Decisions {
    /// `/v1/auth` and `/v1/auth/nginx`.
    pub(super) async fn auth(&self, parts: &Parts, peer: IpAddr, nginx: bool) -> Answered {
        let epoch = self.engine.epoch_for_long();
        let asked = match epoch.gate.store() {
            None => {
                let headers = Received(&parts.headers);
                self.ask_for(&epoch, &told(parts, &headers, peer, nginx))
            }
            Some(_) => self.ask_elsewhere(&epoch, parts, peer, nginx).await,
        };
        let (delay, answer) = match asked {
            Err(detail) => return problem(StatusCode::BAD_REQUEST, &detail),
            Ok(answer) => (delay(&answer), written(&epoch, &answer, nginx)),
        };
        let Some(delay) = delay else {
            return answer;
        };
        let begun = tokio::time::Instant::now();
        let mut stop = self.stop.clone();
        tokio::select! {
            () = tokio::time::sleep(delay) => answer,
            // Letting everybody in at once would be the very flood that the queue is there for.
            () = stopped(&mut stop) => unserved(delay.saturating_sub(begun.elapsed()), nginx),
        }
    }

    /// Decides the request that a proxy tells of.
    ///
    /// # Errors
    /// What is wrong with how it tells it; nothing was taken then.
    pub(super) fn ask_for(&self, epoch: &Epoch, told: &Told<'_>) -> Result<Answer, String> {
        let gate = &epoch.gate;
        let before = gate.clock().now();
        self.with_facts(epoch, told, |facts| {
            let mut answer = gate.admit(facts);
            if is_held_too_long(&answer) {
                // A slot that somebody stands behind already stays idle; nobody here can move them up.
                for slot in gate.queue_slots(&answer) {
                    let _ = slot.leave([]);
                }
                let beside = gate.reserve_beside_queues(&answer);
                beside.settle(Settlement::Cancelled);
                refuse(&mut answer);
            }
            let took = gate.clock().now().since(before).into();
            self.engine.observe(epoch, Door::Auth, facts, &answer, took);
            answer
        })
    }

    /// The same, in the store that a fleet shares.
    async fn ask_elsewhere(
        &self,
        epoch: &Arc<Epoch>,
        parts: &Parts,
        peer: IpAddr,
        nginx: bool,
    ) -> Result<Answer, String> {
        let gate = &epoch.gate;
        let before = gate.clock().now();
        let begun = {
            let headers = Received(&parts.headers);
            let told = told(parts, &headers, peer, nginx);
            self.with_facts(epoch, &told, |facts| gate.begin(facts, true))?
        };
        let mut answer = match begun {
            Begun::Decided(answer) => answer,
            Begun::Asks(asking) => carry::finish(epoch, asking).await,
        };
        if is_held_too_long(&answer) {
            let reservation = gate.reserve(&answer);
            reservation.settle_everywhere(Settlement::Cancelled).await;
            refuse(&mut answer);
        }
        let took = gate.clock().now().since(before).into();
        let headers = Received(&parts.headers);
        let told = told(parts, &headers, peer, nginx);
        self.with_facts(epoch, &told, |facts| {
            self.engine.observe(epoch, Door::Auth, facts, &answer, took);
        })?;
        Ok(answer)
    }

    /// The facts of the request that a proxy tells of.
    fn with_facts<R>(
        &self,
        epoch: &Epoch,
        told: &Told<'_>,
        f: impl FnOnce(&Facts<'_>) -> R,
    ) -> Result<R, String> {
        let trust = Trust::under(&self.trust, epoch);
        let Told {
            headers,
            peer,
            nginx,
            ..
        } = *told;
        if !trust.chain.trusts(peer)
            && let Some(told) = TOLD.iter().find(|name| is_there(headers, name))
        {
            return Err(format!(
                "{peer} is not a trusted proxy, so its `{told}` is not believed; add it to `trusted_proxies` of the policy, or call without such headers"
            ));
        }
        let client = if nginx && is_there(headers, "x-real-ip") {
            trust.real_ip.client(peer, headers)
        } else {
            trust.chain.client(peer, headers)
        };
        let (method, uri, host) = if nginx {
            let uri = one(headers, "x-original-uri")?;
            let uri = uri.ok_or("the request does not say what it is about; set it in nginx: `proxy_set_header X-Original-URI $request_uri;`")?;
            (one(headers, "x-original-method")?, uri, None)
        } else {
            let uri = one(headers, "x-forwarded-uri")?;
            let uri = uri.ok_or("the request does not say what it is about; let the proxy send `X-Forwarded-Uri`, as Traefik and Caddy do (nginx: ask /v1/auth/nginx)")?;
            (
                one(headers, "x-forwarded-method")?,
                uri,
                one(headers, "x-forwarded-host")?,
            )
        };
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let host = match host {
            Some(host) => host,
            None => one(headers, "host")?.unwrap_or_default(),
        };
        let facts = Facts {
            method: method.unwrap_or(told.method),
            path,
            query,
            host,
            client: Some(client),
            headers,
            ..Facts::default()
        };
        Ok(f(&facts))
    }
}

fn told<'a>(parts: &'a Parts, headers: &'a Received<'a>, peer: IpAddr, nginx: bool) -> Told<'a> {
    Told {
        method: parts.method.as_str(),
        headers,
        peer,
        nginx,
    }
}

fn is_held_too_long(answer: &Answer) -> bool {
    delay(answer).is_some_and(|delay| delay > LONGEST_WAIT)
}

/// Whoever would wait for too long has given its place back.
fn refuse(answer: &mut Answer) {
    let retry_after = answer.verdict.wait().unwrap_or_default();
    answer.verdict = Verdict::Refuse { retry_after };
}

/// How long the request has to be held.
pub(super) fn delay(answer: &Answer) -> Option<Duration> {
    match answer.verdict {
        Verdict::Wait { delay } => Some(delay.into()),
        _ => None,
    }
}

fn is_there(headers: &dyn Headers, name: &str) -> bool {
    let mut found = false;
    headers.visit(name, &mut |_| found = true);
    found
}

/// The only value of a header; who says two things says nothing that can be believed.
fn one<'h>(headers: &'h dyn Headers, name: &str) -> Result<Option<&'h str>, String> {
    let (mut first, mut count) = (None, 0);
    headers.visit(name, &mut |value| {
        first.get_or_insert(value);
        count += 1;
    });
    if count > 1 {
        return Err(format!(
            "`{name}` is there more than once; let the proxy set it once"
        ));
    }
    let text = first.map(std::str::from_utf8).transpose();
    text.map_err(|_| format!("`{name}` is not UTF-8; send it percent-encoded"))
}

fn written(epoch: &Epoch, answer: &Answer, nginx: bool) -> Answered {
    let mut sheet = Sheet::with_fields(epoch, answer);
    let body = sheet.text.len();
    let truth = status(answer);
    let mut media = None;
    if !answer.is_admitted() && epoch.gate.policy().answers.problem {
        explain(&epoch.gate, answer, &mut sheet.text);
        media = Some(PROBLEM_TYPE);
    }
    let status = StatusCode::from_u16(truth).unwrap_or(StatusCode::OK);
    told_to(sheet.finish(status, body, media), nginx)
}

/// nginx is told 403 for every refusal.
fn told_to(mut answer: Answered, nginx: bool) -> Answered {
    let truth = answer.status();
    if nginx && !truth.is_success() {
        let headers = answer.headers_mut();
        headers.insert(TRUE_STATUS, HeaderValue::from(truth.as_u16()));
        *answer.status_mut() = StatusCode::FORBIDDEN;
    }
    answer
}

/// The server stops before the delay is over.
pub(super) fn unserved(rest: Duration, nginx: bool) -> Answered {
    let mut answer: Response<_> = problem(
        StatusCode::SERVICE_UNAVAILABLE,
        "the server is stopping before this request's turn came; try again",
    );
    let seconds = Span::from(rest).as_secs_ceil().max(1);
    let headers = answer.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    told_to(answer, nginx)
}
