//! A client of Envoy's rate limit service that can also misbehave.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::{Builder, SendRequest};
use http::{HeaderMap, Request};
use prost::Message;
use tokio::net::TcpStream;
use tollgate_server::rls::messages::{
    Code, Entry, LimitOverrideMessage, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
    UnitMessage,
};

const METHOD: &str = "http://tollgate/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// How long any call may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A connection.
#[derive(Clone, Debug)]
pub(crate) struct Grpc {
    send: SendRequest<Bytes>,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CallResult {
    /// An answer.
    Answer(RateLimitResponse),
    /// A status of gRPC that is not OK, and its words.
    Status(u32, String),
    /// No answer: the stream or the connection ended.
    Ended(String),
}

impl CallResult {
    /// The overall code of an answer, and what is left of each descriptor.
    #[track_caller]
    pub(crate) fn answer(self) -> (Code, Vec<u32>) {
        let CallResult::Answer(answer) = self else {
            panic!("no answer: {self:?}");
        };
        let left = answer.statuses.iter().map(|s| s.limit_remaining).collect();
        (answer.overall_code(), left)
    }

    #[track_caller]
    pub(crate) fn code(self) -> Code {
        self.answer().0
    }
}

/// Runs a test that waits for many things at once.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.unwrap_or_else(|error| panic!("{error}"));
    runtime.block_on(async {
        let test = tokio::time::timeout(4 * TIMEOUT, test);
        test.await.unwrap_or_else(|_| panic!("the test hangs"))
    })
}

impl Grpc {
    /// Connects to this port.
    pub(crate) async fn to(port: u16) -> Grpc {
        Grpc::with(port, Builder::new()).await
    }

    /// The same with other settings of HTTP/2.
    pub(crate) async fn with(port: u16, settings: Builder) -> Grpc {
        let stream = TcpStream::connect(("127.0.0.1", port)).await;
        let stream = stream.unwrap_or_else(|error| panic!("{error}"));
        let _ = stream.set_nodelay(true);
        let (send, connection) = settings
            .handshake(stream)
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        tokio::spawn(connection);
        Grpc { send }
    }

    /// Asks with these descriptors in the domain `edge`.
    pub(crate) async fn edge(&self, descriptors: &[RateLimitDescriptor]) -> CallResult {
        self.asks(descriptors, None).await
    }

    /// The same, and says how long it waits: `20m` are 20 milliseconds.
    pub(crate) async fn asks(
        &self,
        descriptors: &[RateLimitDescriptor],
        timeout: Option<&str>,
    ) -> CallResult {
        let asked = RateLimitRequest {
            domain: "edge".into(),
            descriptors: descriptors.to_vec(),
            hits_addend: 0,
        };
        self.sends(framed(&asked.encode_to_vec()), timeout).await
    }

    /// Sends these bytes as the body of a call, and reads what is said to them.
    pub(crate) async fn sends(&self, body: Bytes, timeout: Option<&str>) -> CallResult {
        let said = tokio::time::timeout(TIMEOUT, self.calls(body, timeout)).await;
        let said = said.unwrap_or_else(|_| panic!("a call hangs"));
        said.unwrap_or_else(|error| CallResult::Ended(error.to_string()))
    }

    async fn calls(&self, body: Bytes, timeout: Option<&str>) -> Result<CallResult, h2::Error> {
        let (response, mut to) = self.opens(timeout).await?;
        // A server may have said all it has to say before it has read everything.
        let _ = to.send_data(body, true);
        let response = response.await?;
        if let Some(said) = status(response.headers()) {
            return Ok(said);
        }
        let mut from = response.into_body();
        let mut read = BytesMut::new();
        while let Some(data) = from.data().await {
            let data = data?;
            let _ = from.flow_control().release_capacity(data.len());
            read.extend_from_slice(&data);
        }
        let trailers = from.trailers().await?.unwrap_or_default();
        if let Some(said) = status(&trailers) {
            return Ok(said);
        }
        let message = read.get(5..).unwrap_or_default();
        let answer = RateLimitResponse::decode(message);
        Ok(answer.map_or_else(|e| CallResult::Ended(e.to_string()), CallResult::Answer))
    }

    /// Opens a call and says nothing yet.
    pub(crate) async fn opens(
        &self,
        timeout: Option<&str>,
    ) -> Result<(h2::client::ResponseFuture, h2::SendStream<Bytes>), h2::Error> {
        let mut head = Request::post(METHOD)
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if let Some(timeout) = timeout {
            head = head.header("grpc-timeout", timeout);
        }
        let head = head.body(()).unwrap_or_else(|error| panic!("{error}"));
        self.send.clone().ready().await?.send_request(head, false)
    }
}

/// The status in these fields, if it is there and is an error.
fn status(of: &HeaderMap) -> Option<CallResult> {
    let text = |name: &str| of.get(name).and_then(|value| value.to_str().ok());
    let code: u32 = text("grpc-status")?.parse().ok()?;
    let words = text("grpc-message").unwrap_or_default().to_owned();
    (code != 0).then_some(CallResult::Status(code, words))
}

/// A message as gRPC sends it.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    framed_as(0, length, message)
}

/// The same with any flag and any length.
pub(crate) fn framed_as(flag: u8, length: u32, message: &[u8]) -> Bytes {
    let mut framed = BytesMut::new();
    framed.put_u8(flag);
    framed.put_u32(length);
    framed.put_slice(message);
    framed.freeze()
}

/// A descriptor of one entry.
pub(crate) fn descriptor(key: &str, value: &str) -> RateLimitDescriptor {
    RateLimitDescriptor {
        entries: vec![Entry {
            key: key.into(),
            value: value.into(),
        }],
        ..RateLimitDescriptor::default()
    }
}

/// The same with this many hits.
pub(crate) fn hits(key: &str, value: &str, count: u64) -> RateLimitDescriptor {
    RateLimitDescriptor {
        hits_addend: Some(count),
        ..descriptor(key, value)
    }
}

/// The same with a limit of this many in a year.
pub(crate) fn brings(most: u32, descriptor: RateLimitDescriptor) -> RateLimitDescriptor {
    RateLimitDescriptor {
        limit: Some(LimitOverrideMessage {
            requests_per_unit: most,
            unit: UnitMessage::Year.into(),
        }),
        ..descriptor
    }
}
