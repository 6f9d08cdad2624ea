//! The messages of the rate limit service, as far as we speak them.
//!
//! Written by hand with their numbers on the wire, so that neither a compiler of protocol files nor a build
//! script is needed. Fields that are not here are skipped when read and not sent. Enumerations are numbers: one
//! that is not known here is no error.

use prost_types::Duration;

/// Where the service is found.
pub(super) const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
/// Where its one method is found.
pub(super) const SHOULD_RATE_LIMIT: &str =
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// What is asked: `envoy.service.ratelimit.v3.RateLimitRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitRequest {
    /// For whom the descriptors mean something.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// What the request is, in several ways.
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// What it takes where a descriptor does not say; 0 is 1.
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitDescriptor {
    /// Keys and values, in order.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// A limit that the caller wishes instead of ours.
    #[prost(message, optional, tag = "2")]
    pub limit: Option<LimitOverrideMessage>,
    /// What it takes; 0 asks and takes nothing. On the wire a `google.protobuf.UInt64Value`.
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<u64>,
    /// Is it given back instead?
    #[prost(bool, tag = "4")]
    pub is_negative_hits: bool,
}

/// One entry of a descriptor.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Entry {
    /// Its key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A limit that a caller wishes.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LimitOverrideMessage {
    /// How many.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// In how long: `envoy.type.v3.RateLimitUnit`.
    #[prost(enumeration = "UnitMessage", tag = "2")]
    pub unit: i32,
}

/// What is answered: `envoy.service.ratelimit.v3.RateLimitResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitResponse {
    /// What becomes of the request.
    #[prost(enumeration = "Code", tag = "1")]
    pub overall_code: i32,
    /// What each descriptor has to do with it, in order.
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    /// For the client.
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<HeaderValue>,
}

/// What one descriptor has to do with an answer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DescriptorStatus {
    /// Is a limit of its own over?
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    /// Its tightest limit, if it has one.
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<RateLimit>,
    /// What is left of it.
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    /// When it is worth asking again, or everything is back.
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<Duration>,
}

/// A limit as it is told.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RateLimit {
    /// How many.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// In how long.
    #[prost(enumeration = "UnitMessage", tag = "2")]
    pub unit: i32,
    /// What it is called.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// A header field: `envoy.config.core.v3.HeaderValue`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HeaderValue {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// What becomes of a request or descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Code {
    /// Nobody knows. Envoy lets such a request pass whatever it is told about failures, so it is never sent.
    Unknown = 0,
    /// It may pass.
    Ok = 1,
    /// It may not.
    OverLimit = 2,
}

/// In how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum UnitMessage {
    /// It has none.
    Unknown = 0,
    /// A second.
    Second = 1,
    /// 60 seconds.
    Minute = 2,
    /// 60 minutes.
    Hour = 3,
    /// 24 hours.
    Day = 4,
    /// 30 days.
    Month = 5,
    /// 365 days.
    Year = 6,
    /// 7 days. Only in answers.
    Week = 7,
}
