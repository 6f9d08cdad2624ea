//! The pacing layer: when calls are sent, and what they are charged.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::time::Instant;
use tollgate::{Clock, Limit, Limiter, Moment, Span};
use tollgate_tower::{PacingError, PacingLayer};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{NoBody, bucket};

/// The clock of the runtime, which tests can stop.
#[derive(Clone, Debug)]
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        let ns = self.0.elapsed().as_nanos();
        Moment::from_nanos(u64::try_from(ns).unwrap())
    }
}

fn clock() -> TokioClock {
    TokioClock(Instant::now())
}

fn own(limit: Limit) -> Limiter<TokioClock> {
    Limiter::with_clock(limit, clock()).unwrap()
}

fn to(uri: &str) -> Request<NoBody> {
    Request::get(uri).body(NoBody::new()).unwrap()
}

/// A server that answers with what stands in the list, then with 200, and notes when it was asked.
#[derive(Clone)]
struct Server {
    answers: Arc<Mutex<Vec<Response<Full<Bytes>>>>>,
    asked: Arc<Mutex<Vec<u64>>>,
    begun: Instant,
}

impl Server {
    fn new(answers: &[(u16, &[(&'static str, &str)])]) -> Server {
        let answers = answers.iter().rev().map(|(status, headers)| {
            let mut response = Response::builder().status(*status);
            for (name, value) in *headers {
                response = response.header(*name, *value);
            }
            response.body(Full::default()).unwrap()
        });
        Server {
            answers: Arc::new(Mutex::new(answers.collect())),
            asked: Arc::default(),
            begun: Instant::now(),
        }
    }

    /// When it was asked, in milliseconds.
    fn asked(&self) -> Vec<u64> {
        self.asked.lock().unwrap().clone()
    }

    async fn answer(self, _: Request<NoBody>) -> Result<Response<Full<Bytes>>, Infallible> {
        let now = self.begun.elapsed().as_millis();
        self.asked.lock().unwrap().push(u64::try_from(now).unwrap());
        let next = self.answers.lock().unwrap().pop();
        Ok(next.unwrap_or_default())
    }

    fn service(
        &self,
    ) -> impl Service<
        Request<NoBody>,
        Response = Response<Full<Bytes>>,
        Error = Infallible,
        Future: Send,
    > + Clone
    + Send
    + 'static {
        let server = self.clone();
        service_fn(move |request| server.clone().answer(request))
    }
}

fn near(asked: &[u64], wanted: &[u64]) {
    let is_near = |(asked, wanted): (&u64, &u64)| (*wanted..wanted + 5).contains(asked);
    let is_so = asked.len() == wanted.len() && asked.iter().zip(wanted).all(is_near);
    assert!(is_so, "{asked:?} is not {wanted:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_wait_for_the_own_limit_of_their_destination() {
    let server = Server::new(&[]);
    let layer = PacingLayer::new(own(bucket("10/s", 2)));
    let service = layer.layer(server.service());
    for _ in 0..4 {
        service
            .clone()
            .oneshot(to("http://a.example/"))
            .await
            .unwrap();
    }
    near(&server.asked(), &[0, 0, 100, 200]);
    // Another host has its own allowance, and so has another port.
    service
        .clone()
        .oneshot(to("http://b.example/"))
        .await
        .unwrap();
    service.oneshot(to("http://a.example:81/")).await.unwrap();
    near(&server.asked(), &[0, 0, 100, 200, 200, 200]);
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_gives_each_call_a_slot_and_a_dropped_one_stays_idle() {
    let server = Server::new(&[]);
    let line = Limit::leaky_bucket("10/s".parse().unwrap(), 10).unwrap();
    let own = own(line);
    let left = || own.peek("http://a.example:80", 0).remaining();
    let service = PacingLayer::new(own.clone()).layer(server.service());
    let calls: Vec<_> = (0..3)
        .map(|_| tokio::spawn(service.clone().oneshot(to("http://a.example/"))))
        .collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let before = left();
    calls[1].abort();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(left(), before);
    for (at, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.is_err(), at == 1);
    }
    near(&server.asked(), &[0, 200]);
}

#[tokio::test(start_paused = true)]
async fn a_call_above_max_wait_fails_at_once_and_takes_nothing() {
    let server = Server::new(&[]);
    let own = own(bucket("1/s", 1));
    let layer = PacingLayer::new(own.clone()).with_max_wait(Span::from_millis(500));
    let service = layer.layer(server.service());
    let call = || service.clone().oneshot(to("http://a.example/"));
    call().await.unwrap();
    let begun = Instant::now();
    let PacingError::MaxWait {
        destination, wait, ..
    } = call().await.unwrap_err()
    else {
        panic!("it is too long");
    };
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(destination, "http://a.example:80");
    assert_eq!(wait, Span::from_secs(1));
    assert_eq!(server.asked().len(), 1);
    tokio::time::sleep(Duration::from_millis(600)).await;
    call().await.unwrap();
    near(&server.asked(), &[0, 1000]);
}

#[tokio::test(start_paused = true)]
async fn a_slot_above_max_wait_is_not_taken() {
    let server = Server::new(&[]);
    let own = own(Limit::leaky_bucket("10/s".parse().unwrap(), 10).unwrap());
    let layer = PacingLayer::new(own.clone()).with_max_wait(Span::from_millis(100));
    let service = layer.layer(server.service());
    let call = || tokio::spawn(service.clone().oneshot(to("http://a.example/")));
    let calls: Vec<_> = (0..5).map(|_| call()).collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let left = own.peek("http://a.example:80", 0).remaining();
    assert_eq!(left, 8, "two slots were taken, not five");
    let mut failed = 0;
    for call in calls {
        failed += usize::from(call.await.unwrap().is_err());
    }
    assert_eq!(failed, 3);
    near(&server.asked(), &[0, 100]);
}

#[tokio::test(start_paused = true)]
async fn server_hints_are_applied_and_no_call_is_repeated() {
    let server = Server::new(&[
        (429, &[("retry-after", "3")]),
        (200, &[("ratelimit", "\"a\";r=0;t=2")]),
        (
            200,
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1")],
        ),
        (503, &[("retry-after", "nonsense")]),
    ]);
    let service = PacingLayer::new(own(bucket("1000/s", 1000))).layer(server.service());
    let call = || service.clone().oneshot(to("http://a.example/"));
    // The refusal is for the caller to see; it is not sent again.
    assert_eq!(call().await.unwrap().status(), 429);
    near(&server.asked(), &[0]);
    for _ in 0..4 {
        call().await.unwrap();
    }
    near(&server.asked(), &[0, 3000, 5000, 6000, 6000]);
}

#[tokio::test(start_paused = true)]
async fn a_backoff_is_for_one_destination_and_at_most_the_maximum() {
    let server = Server::new(&[(503, &[("retry-after", "100000")])]);
    let layer = PacingLayer::new(own(bucket("1000/s", 1000))).with_max_backoff(Span::from_secs(2));
    let service = layer.layer(server.service());
    let call = |uri: &str| service.clone().oneshot(to(uri));
    call("http://a.example/").await.unwrap();
    call("http://b.example/").await.unwrap();
    call("http://a.example/").await.unwrap();
    near(&server.asked(), &[0, 0, 2000]);
}

#[tokio::test(start_paused = true)]
async fn few_remaining_requests_are_spread() {
    let few: (u16, &[(&'static str, &str)]) = (200, &[("ratelimit", "\"a\";r=4;t=2")]);
    let server = Server::new(&[few, few]);
    let service = PacingLayer::new(own(bucket("1000/s", 1000))).layer(server.service());
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let service = service.clone();
            async move { service.oneshot(to("http://a.example/")).await }
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    // The third answer says nothing of the kind, so the fourth need not wait.
    near(&server.asked(), &[0, 500, 1000, 1000]);
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_while_it_waits_is_refunded() {
    let server = Server::new(&[(429, &[("retry-after", "3")])]);
    let own = own(bucket("1/h", 2));
    let left = || own.peek("http://a.example:80", 0).remaining();
    let service = PacingLayer::new(own.clone()).layer(server.service());
    let call = || service.clone().oneshot(to("http://a.example/"));
    call().await.unwrap();
    let waits = tokio::spawn(call());
    tokio::time::sleep(Duration::from_secs(1)).await;
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
    assert_eq!((left(), server.asked().len()), (1, 1));
}
