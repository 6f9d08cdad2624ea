//! The messages of Envoy's rate limit service, as far as a no-op server and a peer have to read and write them.

/// `envoy.service.ratelimit.v3.RateLimitRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RateLimitRequest {
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) descriptors: Vec<Descriptor>,
    #[prost(uint32, tag = "3")]
    pub(crate) hits_addend: u32,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<Entry>,
}

/// One entry of a descriptor.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Entry {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse`, of which Envoy needs no more than this.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct RateLimitResponse {
    /// 1 is `OK`, 2 is `OVER_LIMIT`.
    #[prost(int32, tag = "1")]
    pub(crate) overall_code: i32,
}
