//! A server on a free port, and a tonic client.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tollgate_server::engine::{Engine, for_tests};
use tollgate_server::rls::RlsService;
use tollgate_server::rls::messages::{
    Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

pub(crate) const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A running server; it stops when this is dropped.
pub(crate) struct Server {
    pub(crate) engine: Arc<Engine>,
    pub(crate) channel: Channel,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) async fn start(policy: &str) -> Server {
        let engine = for_tests(policy);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(RlsService::new(Arc::clone(&engine), stopped).serve(listener, 1000));
        let channel = Channel::from_shared(format!("http://127.0.0.1:{port}")).unwrap();
        Server {
            engine,
            channel: channel.connect().await.unwrap(),
            stop,
            port,
        }
    }

    /// Asks, with this much time.
    pub(crate) async fn ask(&self, asked: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        self.call(Request::new(asked)).await
    }

    pub(crate) async fn call(
        &self,
        asked: Request<RateLimitRequest>,
    ) -> Result<RateLimitResponse, Status> {
        let mut client = Grpc::new(self.channel.clone());
        client.ready().await.unwrap();
        let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
        let answer = client.unary(asked, METHOD.parse().unwrap(), codec).await?;
        Ok(answer.into_inner())
    }

    /// Asks with these descriptors, in the domain `edge`.
    pub(crate) async fn edge(&self, descriptors: &[RateLimitDescriptor]) -> RateLimitResponse {
        self.ask(edge(descriptors)).await.unwrap()
    }

    /// Sends bytes that need not be a message.
    pub(crate) async fn send_bytes(&self, bytes: Vec<u8>) -> Result<Bytes, Status> {
        let mut client = Grpc::new(self.channel.clone());
        client.ready().await.unwrap();
        let asked = Request::new(Bytes::from(bytes));
        let answer = client.unary(asked, METHOD.parse().unwrap(), Raw).await?;
        Ok(answer.into_inner())
    }

    /// The value of a metric.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        let text = self.engine.metrics();
        let mut lines = text.lines();
        let found = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        found
            .unwrap_or_else(|| panic!("no {series}"))
            .parse()
            .unwrap()
    }
}

/// A request in the domain `edge`.
pub(crate) fn edge(descriptors: &[RateLimitDescriptor]) -> RateLimitRequest {
    RateLimitRequest {
        domain: "edge".into(),
        descriptors: descriptors.to_vec(),
        hits_addend: 0,
    }
}

/// A descriptor of these entries.
pub(crate) fn of(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry {
        key: (*key).into(),
        value: (*value).into(),
    };
    RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        ..RateLimitDescriptor::default()
    }
}

/// The same, with this many hits.
pub(crate) fn hits(entries: &[(&str, &str)], hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor {
        hits_addend: Some(hits),
        ..of(entries)
    }
}

/// The overall code, and for each descriptor its code, its limit and what remains.
pub(crate) type Brief = (Code, Vec<(Code, Option<(u32, i32)>, u32)>);

pub(crate) fn brief(answer: &RateLimitResponse) -> Brief {
    let statuses = answer.statuses.iter().map(|status| {
        let limit = status.current_limit.as_ref();
        (
            status.code(),
            limit.map(|l| (l.requests_per_unit, l.unit)),
            status.limit_remaining,
        )
    });
    (answer.overall_code(), statuses.collect())
}

/// Bytes as they are.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
