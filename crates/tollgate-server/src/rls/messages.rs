//! Protocol buffer messages of Envoy's rate limit service.
//!
//! They are written by hand with their field numbers, so that neither `protoc` nor a build script is needed. Unknown
//! fields are skipped. An unknown enum number is no error.

use prost_types::Duration;

/// The name of the service.
pub(super) const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
/// The path of its method.
pub(super) const SHOULD_RATE_LIMIT: &str =
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// `envoy.service.ratelimit.v3.RateLimitRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitRequest {
    /// The namespace of the descriptors.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// Descriptions of the request. Each is limited.
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// Cost of descriptors without `hits_addend`. 0 means 1.
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitDescriptor {
    /// Keys and values, in order.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// A limit that replaces those of the policy.
    #[prost(message, optional, tag = "2")]
    pub limit: Option<LimitOverrideMessage>,
    /// Cost. 0 checks and charges nothing. On the wire a `google.protobuf.UInt64Value`.
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<u64>,
    /// Refund the cost instead of charging it.
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

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LimitOverrideMessage {
    /// Requests per unit.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// `envoy.type.v3.RateLimitUnit`.
    #[prost(enumeration = "UnitMessage", tag = "2")]
    pub unit: i32,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitResponse {
    /// The verdict on the request.
    #[prost(enumeration = "Code", tag = "1")]
    pub overall_code: i32,
    /// The status of each descriptor, in order.
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    /// Fields for the response to the client.
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<HeaderValue>,
}

/// The status of one descriptor.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DescriptorStatus {
    /// Whether a limit of it is exceeded.
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    /// Its tightest limit, if it has one.
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<RateLimit>,
    /// What remains of it.
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    /// Time until the same request passes, or else until the limit is full again.
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<Duration>,
}

/// `RateLimitResponse.RateLimit`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RateLimit {
    /// Requests per unit.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// The unit.
    #[prost(enumeration = "UnitMessage", tag = "2")]
    pub unit: i32,
    /// The name of the limit.
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

/// The verdict on a request or descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Code {
    /// Never sent: Envoy admits such a request even with `failure_mode_deny`.
    Unknown = 0,
    /// Admitted.
    Ok = 1,
    /// Refused.
    OverLimit = 2,
}

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum UnitMessage {
    /// None.
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
    /// 7 days. Only in responses.
    Week = 7,
}
