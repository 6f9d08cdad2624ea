//! Forward-auth: a proxy asks for the decision about the request that it holds.
//!
//! # Theory
//!
//! The proxy sends the request in headers that depend on the proxy. Each of the two modes reads one family and no
//! other, because a proxy overwrites only its own and passes those of the other as the client sent them:
//!
//! | | Traefik, Caddy: `/v1/auth` | nginx: `/v1/auth/nginx`, or `?deny=403` |
//! |---|---|---|
//! | method | `X-Forwarded-Method` | `X-Original-Method` |
//! | path and query, which must be there | `X-Forwarded-Uri` | `X-Original-URI` |
//! | host | `X-Forwarded-Host` | `Host` |
//! | client | the policy's forwarding header | `X-Real-IP`; without it, the policy's header |
//! | refused | 429 and its like | 403, with the true status in `X-Tollgate-Status` |
//!
//! Method and host, if absent, are those of the request itself. A missing path is an error: otherwise every request would look
//! the same, and a proxy without the header would switch all limits by path off. nginx accepts no refusals but 401 and 403.
//!
//! # Invariant
//!
//! These headers are accepted only from a peer that the policy trusts, or from loopback, where a proxy usually is. From any
//! other peer they are an error.
//!
//! A wait is served here: the response is sent when the request may pass. A wait above [`MAX_WAIT`] is refused and
//! refunded.
//!
//! # Limits
//!
//! The end of the request is unknown here, so a permit of a concurrency limit expires by its `ttl`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper::StatusCode;
use tollgate::{Span, Verdict};
use tollgate_policy::address::{Cidr, CidrSet, ForwardedHeader, Proxies};
use tollgate_policy::fields::{PROBLEM_TYPE, problem as explain, status};
use tollgate_policy::{
    DecisionRequest, Facts, Headers, Op, Policy, PolicyDecision, RefundOnDrop, Subject,
};

use super::problems::write_problem;
use super::{Call, HttpApi, write_fields};
use crate::engine::{ActivePolicy, Decide};
use crate::net::http1::fast_path::Respond;
use crate::net::http1::response::ResponseBuffer;
use crate::net::stopped;

/// Longest wait that is served.
const MAX_WAIT: Span = Span::from_secs(30);

const STATUS_HEADER: &str = "x-tollgate-status";
/// Headers that only a trusted proxy may send.
const PROXY_HEADERS: [&str; 8] = [
    "x-forwarded-method",
    "x-forwarded-uri",
    "x-forwarded-host",
    "x-forwarded-for",
    "forwarded",
    "x-original-method",
    "x-original-uri",
    "x-real-ip",
];

/// The trusted peers under one policy: its proxies, and loopback.
#[derive(Debug)]
pub(super) struct Trust {
    version: u64,
    chain: Proxies,
    real_ip: Proxies,
}

impl Trust {
    pub(super) fn none() -> Trust {
        Trust {
            version: 0,
            chain: Proxies::default(),
            real_ip: Proxies::default(),
        }
    }

    fn new(version: u64, policy: &Policy) -> Trust {
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

    fn for_policy(kept: &ArcSwap<Trust>, active: &ActivePolicy) -> Arc<Trust> {
        let trust = kept.load();
        if trust.version == active.version {
            return Arc::clone(&trust);
        }
        let trust = Arc::new(Trust::new(active.version, active.gate.policy()));
        kept.store(Arc::clone(&trust));
        trust
    }
}

impl HttpApi {
    /// `/v1/auth` and `/v1/auth/nginx`.
    pub(super) fn auth(
        &self,
        call: &Call<'_>,
        nginx: bool,
        response: &mut ResponseBuffer,
    ) -> Respond {
        let policy = self.engine().active();
        let decided = self.with_facts(&policy, call, nginx, |facts| {
            let request = DecisionRequest {
                longest_wait: Some(MAX_WAIT),
                ..DecisionRequest::new(Subject::Request(facts), Op::Charge)
            };
            self.0.auth.decide(&policy, &request)
        });
        let answer = match decided {
            Err(detail) => {
                write_problem(response, StatusCode::BAD_REQUEST, &detail);
                return Respond::Ready;
            }
            Ok(Decide::Ready(answer)) => answer,
            Ok(Decide::Pending(pending)) => {
                let service = self.clone();
                return Respond::Pending(Box::pin(async move {
                    let policy = Arc::clone(pending.policy());
                    let answer = pending.await;
                    service.answer_in_time(&policy, &answer, nginx).await
                }));
            }
        };
        if delay(&answer).is_none() {
            write_answer(response, &policy, &answer, nginx);
            return Respond::Ready;
        }
        let (service, policy) = (self.clone(), Arc::clone(&policy));
        Respond::Pending(Box::pin(async move {
            service.answer_in_time(&policy, &answer, nginx).await
        }))
    }

    /// The response, after the delay of the decision. Dropping it earlier refunds the charges.
    async fn answer_in_time(
        &self,
        policy: &Arc<ActivePolicy>,
        answer: &PolicyDecision,
        nginx: bool,
    ) -> ResponseBuffer {
        let mut response = ResponseBuffer::default();
        write_answer(&mut response, policy, answer, nginx);
        let Some(delay) = delay(answer) else {
            return response;
        };
        let refund = RefundOnDrop::new(&policy.gate, answer);
        let begun = tokio::time::Instant::now();
        let mut stop = self.0.stop.clone();
        tokio::select! {
            () = tokio::time::sleep(delay) => {
                refund.commit();
                // The date is that of sending.
                response.clear_second();
                response
            }
            // Admitting all waiting requests at once would exceed the rate that the limit paces.
            () = stopped(&mut stop) => unserved(delay.saturating_sub(begun.elapsed()), nginx),
        }
    }

    /// Calls `f` with the facts of the request that the proxy describes.
    fn with_facts<R>(
        &self,
        policy: &ActivePolicy,
        call: &Call<'_>,
        nginx: bool,
        f: impl FnOnce(&Facts<'_>) -> R,
    ) -> Result<R, String> {
        let trust = Trust::for_policy(&self.0.trust, policy);
        let Call { headers, peer, .. } = *call;
        if !trust.chain.trusts(peer)
            && let Some(name) = PROXY_HEADERS.iter().find(|name| has_field(headers, name))
        {
            return Err(format!(
                "{peer} is not a trusted proxy, so it may not send `{name}`; add it to `trusted_proxies` of the policy, or omit such headers"
            ));
        }
        let client = if nginx && has_field(headers, "x-real-ip") {
            trust.real_ip.client(peer, headers)
        } else {
            trust.chain.client(peer, headers)
        };
        let (method, uri, host) = if nginx {
            let uri = one(headers, "x-original-uri")?;
            let uri = uri.ok_or("missing header `X-Original-URI`; set it in nginx: `proxy_set_header X-Original-URI $request_uri;`")?;
            (one(headers, "x-original-method")?, uri, None)
        } else {
            let uri = one(headers, "x-forwarded-uri")?;
            let uri = uri.ok_or("missing header `X-Forwarded-Uri`; configure the proxy to send it, as Traefik and Caddy do (nginx: use /v1/auth/nginx)")?;
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
            method: method.unwrap_or(call.method),
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

/// The delay of a decision.
fn delay(answer: &PolicyDecision) -> Option<Duration> {
    match answer.verdict {
        Verdict::Wait { delay } => Some(delay.into()),
        _ => None,
    }
}

fn has_field(headers: &dyn Headers, name: &str) -> bool {
    let mut found = false;
    headers.visit(name, &mut |_| found = true);
    found
}

/// The only value of a header. A repeated header is an error: which value counts would be ambiguous.
fn one<'h>(headers: &'h dyn Headers, name: &str) -> Result<Option<&'h str>, String> {
    let (mut first, mut count) = (None, 0);
    headers.visit(name, &mut |value| {
        first.get_or_insert(value);
        count += 1;
    });
    if count > 1 {
        return Err(format!(
            "`{name}` occurs more than once; configure the proxy to set it once"
        ));
    }
    let text = first.map(std::str::from_utf8).transpose();
    text.map_err(|_| format!("`{name}` is not UTF-8; send it percent-encoded"))
}

fn write_answer(
    response: &mut ResponseBuffer,
    policy: &ActivePolicy,
    answer: &PolicyDecision,
    nginx: bool,
) {
    write_fields(response, policy, answer);
    response.set_status(status(answer));
    if !answer.is_admitted() && policy.gate.policy().answers.problem {
        response.set_media(PROBLEM_TYPE);
        response.write_text(|text| explain(&policy.gate, answer, text));
    }
    if nginx {
        hide_status(response);
    }
}

/// nginx gets 403 for every refusal, and the true status in a field.
fn hide_status(response: &mut ResponseBuffer) {
    let status = response.status();
    if status >= 300 {
        response.push_number(STATUS_HEADER, u64::from(status));
        response.set_status(403);
    }
}

/// The server stops before the delay is over.
fn unserved(rest: Duration, nginx: bool) -> ResponseBuffer {
    let mut response = ResponseBuffer::default();
    write_problem(
        &mut response,
        StatusCode::SERVICE_UNAVAILABLE,
        "the server is shutting down before the wait ended; try again",
    );
    let seconds = Span::from(rest).as_secs_ceil().max(1);
    response.push_number("retry-after", seconds);
    if nginx {
        hide_status(&mut response);
    }
    response
}
