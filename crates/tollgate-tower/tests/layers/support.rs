//! Shared parts of the tests: policies, a controlled backend, and requests.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty};
use tokio::sync::{mpsc, oneshot};
use tollgate::{Clock, Limit, ManualClock};
use tollgate_policy::{
    Decide, DecisionRequest, KeyPart, LimitRule, Op, Policy, Quota, Source, Subject, decide,
};
use tollgate_tower::PolicyHandle;

pub(crate) type NoBody = Empty<Bytes>;

/// `name`, one allowance for each value of `x-key`.
pub(crate) fn rule(name: &str, limit: Limit) -> LimitRule {
    let mut rule = LimitRule::new(name, Quota::plain(limit));
    rule.key = vec![KeyPart::new(Source::Header("x-key".into()))];
    rule
}

pub(crate) fn bucket(rate: &str, burst: u64) -> Limit {
    Limit::token_bucket(rate.parse().unwrap(), burst).unwrap()
}

pub(crate) fn at_once(limit: u64) -> Limit {
    format!("concurrency {limit} ttl 1h").parse().unwrap()
}

pub(crate) fn policy(limits: impl IntoIterator<Item = LimitRule>) -> Policy {
    Policy {
        limits: limits.into_iter().collect(),
        ..Policy::default()
    }
}

pub(crate) fn policy_handle(
    limits: impl IntoIterator<Item = LimitRule>,
) -> (PolicyHandle<ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    let policy_handle = PolicyHandle::with_clock(policy(limits), clock.clone()).unwrap();
    (policy_handle, clock)
}

/// What a limit has left for a key.
pub(crate) fn remaining<C: Clock>(handle: &PolicyHandle<C>, limit: &str, key: &str) -> u64 {
    let policy = handle.active();
    let subject = Subject::Rule {
        rule: policy.gate().rule_named(limit).unwrap(),
        key: &[key],
        cost: 0,
    };
    match decide(handle, &policy, &DecisionRequest::new(subject, Op::Peek)) {
        Decide::Ready(answer) => answer.status.remaining,
        Decide::Pending(_) => panic!("there is no store"),
    }
}

pub(crate) fn get(path: &str, key: &str) -> Request<NoBody> {
    let request = Request::builder().uri(path).header("x-key", key);
    request.body(Empty::new()).unwrap()
}

pub(crate) fn header<'a, B>(response: &'a Response<B>, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|v| v.to_str().unwrap())
}

pub(crate) async fn text<B>(response: Response<B>) -> String
where
    B: Body,
    B::Error: std::fmt::Debug,
{
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A body whose frames are sent by the test; it ends when the sender is dropped.
#[derive(Debug)]
pub(crate) struct Fed(pub(crate) mpsc::Receiver<Bytes>);

impl Body for Fed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.0.poll_recv(context);
        next.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// A request at the backend, which waits for the response of the test.
pub(crate) struct Arrived {
    pub(crate) request: Request<NoBody>,
    pub(crate) answer: oneshot::Sender<Result<Response<Fed>, Broken>>,
}

/// How a backend fails.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken;

impl Arrived {
    /// Answers with this status; the body continues until the returned value is dropped.
    pub(crate) fn answer(self, status: u16) -> mpsc::Sender<Bytes> {
        let (feed, body) = mpsc::channel(4);
        let response = Response::builder().status(status).body(Fed(body)).unwrap();
        assert!(self.answer.send(Ok(response)).is_ok());
        feed
    }
}

/// A backend that hands every request to the test.
#[derive(Clone)]
pub(crate) struct Backend {
    arrives: mpsc::UnboundedSender<Arrived>,
    /// How many were called, whatever became of them.
    pub(crate) calls: Arc<AtomicUsize>,
}

pub(crate) fn backend() -> (Backend, mpsc::UnboundedReceiver<Arrived>) {
    let (arrives, arrived) = mpsc::unbounded_channel();
    let calls = Arc::default();
    (Backend { arrives, calls }, arrived)
}

impl Backend {
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }
}

impl tower::Service<Request<NoBody>> for Backend {
    type Response = Response<Fed>;
    type Error = Broken;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Fed>, Broken>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<NoBody>) -> Self::Future {
        self.calls.fetch_add(1, SeqCst);
        let (answer, answered) = oneshot::channel();
        let _ = self.arrives.send(Arrived { request, answer });
        Box::pin(async move { answered.await.unwrap_or(Err(Broken)) })
    }
}
