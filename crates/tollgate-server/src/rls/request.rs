//! Validation of a request, its hits, and limits sent with a descriptor.

use tollgate_policy::LimitOverride;
use tonic::Status;

use super::messages::{RateLimitDescriptor, RateLimitRequest, UnitMessage};

/// Largest message.
pub(super) const MESSAGE_BYTES: usize = 64 * 1024;
/// Most descriptors of a request.
const MAX_DESCRIPTORS: usize = 64;
/// Most entries of a descriptor.
const MAX_ENTRIES: usize = 16;
/// Largest domain, key or value.
const MAX_TEXT_BYTES: usize = 4 * 1024;

/// What is done with the hits of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HitMode {
    /// Charge them.
    Charge(u64),
    /// Charge nothing, but refuse the request if one more hit would not pass.
    Peek,
    /// Refund them.
    Refund(u64),
}

impl HitMode {
    /// The hits of a descriptor; without any, those of the request; without any, one.
    pub(super) fn new(request: &RateLimitRequest, descriptor: &RateLimitDescriptor) -> HitMode {
        let default = u64::from(request.hits_addend.max(1));
        match (
            descriptor.hits_addend.unwrap_or(default),
            descriptor.is_negative_hits,
        ) {
            (0, _) => HitMode::Peek,
            (hits, true) => HitMode::Refund(hits),
            (hits, false) => HitMode::Charge(hits),
        }
    }

    pub(super) fn cost(self) -> u64 {
        match self {
            HitMode::Charge(hits) | HitMode::Refund(hits) => hits,
            HitMode::Peek => 1,
        }
    }
}

/// The limit sent with a descriptor, if its unit is known.
pub(super) fn request_limit(descriptor: &RateLimitDescriptor) -> Option<LimitOverride> {
    let limit = descriptor.limit.as_ref()?;
    let unit = match UnitMessage::try_from(limit.unit).ok()? {
        UnitMessage::Second => tollgate_policy::Unit::Second,
        UnitMessage::Minute => tollgate_policy::Unit::Minute,
        UnitMessage::Hour => tollgate_policy::Unit::Hour,
        UnitMessage::Day => tollgate_policy::Unit::Day,
        UnitMessage::Month => tollgate_policy::Unit::Month,
        UnitMessage::Year => tollgate_policy::Unit::Year,
        // Only responses have weeks.
        UnitMessage::Unknown | UnitMessage::Week => return None,
    };
    Some(LimitOverride {
        most: limit.requests_per_unit,
        unit,
    })
}

/// Checks that a request can be decided.
///
/// # Errors
/// What is wrong with it, and how to fix it.
pub(super) fn validate(request: &RateLimitRequest) -> Result<(), Status> {
    let invalid = |detail: String| Err(Status::invalid_argument(detail));
    if request.domain.is_empty() {
        return invalid("rate limit domain must not be empty; set `domain` in the filter".into());
    }
    if request.domain.len() > MAX_TEXT_BYTES {
        return invalid(format!(
            "`domain` is longer than {MAX_TEXT_BYTES} bytes; shorten it"
        ));
    }
    let descriptors = &request.descriptors;
    if descriptors.is_empty() {
        return invalid(
            "rate limit descriptor list must not be empty; send one descriptor at least".into(),
        );
    }
    if descriptors.len() > MAX_DESCRIPTORS {
        return invalid(format!(
            "the request has {} descriptors, and at most {MAX_DESCRIPTORS} are accepted; send fewer",
            descriptors.len()
        ));
    }
    for (number, descriptor) in descriptors.iter().enumerate() {
        let entries = &descriptor.entries;
        if entries.len() > MAX_ENTRIES {
            return invalid(format!(
                "descriptor {number} has {} entries, and at most {MAX_ENTRIES} are accepted; send fewer",
                entries.len()
            ));
        }
        for (at, entry) in entries.iter().enumerate() {
            if entry.key.is_empty() {
                return invalid(format!(
                    "entry {at} of descriptor {number} has no key; give it one"
                ));
            }
            if entry.key.len() > MAX_TEXT_BYTES || entry.value.len() > MAX_TEXT_BYTES {
                return invalid(format!(
                    "entry {at} of descriptor {number} is longer than {MAX_TEXT_BYTES} bytes; shorten it"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rls::messages::Entry;

    fn request(entries: usize, length: usize, descriptors: usize) -> RateLimitRequest {
        let entry = Entry {
            key: "k".into(),
            value: "v".repeat(length),
        };
        RateLimitRequest {
            domain: "edge".into(),
            descriptors: vec![
                RateLimitDescriptor {
                    entries: vec![entry; entries],
                    ..RateLimitDescriptor::default()
                };
                descriptors
            ],
            hits_addend: 0,
        }
    }

    #[test]
    fn requests_above_a_bound_are_invalid_and_the_error_names_it() {
        assert!(validate(&request(16, 4096, 64)).is_ok());
        for (too_large, bound) in [
            (request(17, 1, 1), "16"),
            (request(1, 4097, 1), "4096"),
            (request(1, 1, 65), "64"),
        ] {
            let error = validate(&too_large).unwrap_err();
            assert_eq!(error.code(), tonic::Code::InvalidArgument);
            assert!(error.message().contains(bound), "{error}");
        }
    }

    #[test]
    fn hits_are_those_of_the_descriptor_then_of_the_request_then_one() {
        let mut request = request(1, 1, 1);
        let mut descriptor = RateLimitDescriptor::default();
        assert_eq!(HitMode::new(&request, &descriptor), HitMode::Charge(1));
        request.hits_addend = 5;
        assert_eq!(HitMode::new(&request, &descriptor), HitMode::Charge(5));
        descriptor.hits_addend = Some(7);
        assert_eq!(HitMode::new(&request, &descriptor), HitMode::Charge(7));
        descriptor.is_negative_hits = true;
        assert_eq!(HitMode::new(&request, &descriptor), HitMode::Refund(7));
        descriptor.hits_addend = Some(0);
        assert_eq!(HitMode::new(&request, &descriptor), HitMode::Peek);
    }
}
