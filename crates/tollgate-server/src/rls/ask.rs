//! What is asked, and what is too much to ask.

use tollgate_policy::{self, Brought};
use tonic::Status;

use super::messages::{RateLimitDescriptor, RateLimitRequest, Unit};

/// Bytes of a message.
pub(super) const MESSAGE_BYTES: usize = 64 * 1024;
/// Descriptors of a request.
const DESCRIPTORS: usize = 64;
/// Entries of a descriptor.
const ENTRIES: usize = 16;
/// Bytes of a key or value.
const TEXT_BYTES: usize = 4 * 1024;

/// What a descriptor wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// So much.
    Take(u64),
    /// To know whether one more would pass.
    Peek,
    /// So much back.
    GiveBack(u64),
}

impl Wish {
    pub(super) fn of(request: &RateLimitRequest, descriptor: &RateLimitDescriptor) -> Wish {
        let usual = u64::from(request.hits_addend.max(1));
        match (
            descriptor.hits_addend.unwrap_or(usual),
            descriptor.is_negative_hits,
        ) {
            (0, _) => Wish::Peek,
            (hits, true) => Wish::GiveBack(hits),
            (hits, false) => Wish::Take(hits),
        }
    }

    /// What is charged, or asked about.
    pub(super) fn cost(self) -> u64 {
        match self {
            Wish::Take(hits) | Wish::GiveBack(hits) => hits,
            Wish::Peek => 1,
        }
    }
}

/// The limit that a descriptor brings along, if it is one that we know: a unit that is not, is none.
pub(super) fn brought(descriptor: &RateLimitDescriptor) -> Option<Brought> {
    let limit = descriptor.limit.as_ref()?;
    let unit = match Unit::try_from(limit.unit).ok()? {
        Unit::Second => tollgate_policy::Unit::Second,
        Unit::Minute => tollgate_policy::Unit::Minute,
        Unit::Hour => tollgate_policy::Unit::Hour,
        Unit::Day => tollgate_policy::Unit::Day,
        Unit::Month => tollgate_policy::Unit::Month,
        Unit::Year => tollgate_policy::Unit::Year,
        // A week is only told, never asked for.
        Unit::Unknown | Unit::Week => return None,
    };
    Some(Brought {
        most: limit.requests_per_unit,
        unit,
    })
}

/// Is it a request that can be decided?
///
/// # Errors
/// What is wrong with it, and how to mend it.
pub(super) fn check(request: &RateLimitRequest) -> Result<(), Status> {
    let wrong = |what: String| Err(Status::invalid_argument(what));
    if request.domain.is_empty() {
        return wrong("rate limit domain must not be empty; set `domain` in the filter".into());
    }
    if request.domain.len() > TEXT_BYTES {
        return wrong(format!("`domain` is longer than {TEXT_BYTES} bytes"));
    }
    let descriptors = &request.descriptors;
    if descriptors.is_empty() {
        return wrong(
            "rate limit descriptor list must not be empty; send one descriptor at least".into(),
        );
    }
    if descriptors.len() > DESCRIPTORS {
        return wrong(format!(
            "there are {} descriptors, and {DESCRIPTORS} are read; send fewer",
            descriptors.len()
        ));
    }
    for (number, descriptor) in descriptors.iter().enumerate() {
        let entries = &descriptor.entries;
        if entries.len() > ENTRIES {
            return wrong(format!(
                "descriptor {number} has {} entries, and {ENTRIES} are read; send fewer",
                entries.len()
            ));
        }
        for (at, entry) in entries.iter().enumerate() {
            if entry.key.is_empty() {
                return wrong(format!(
                    "entry {at} of descriptor {number} has no key; give it one"
                ));
            }
            if entry.key.len() > TEXT_BYTES || entry.value.len() > TEXT_BYTES {
                return wrong(format!(
                    "entry {at} of descriptor {number} is longer than {TEXT_BYTES} bytes; shorten it"
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

    fn asked(entries: usize, length: usize, descriptors: usize) -> RateLimitRequest {
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
    fn what_is_too_much_is_refused_with_its_bound() {
        assert!(check(&asked(16, 4096, 64)).is_ok());
        for (too_much, bound) in [
            (asked(17, 1, 1), "16"),
            (asked(1, 4097, 1), "4096"),
            (asked(1, 1, 65), "64"),
        ] {
            let error = check(&too_much).unwrap_err();
            assert_eq!(error.code(), tonic::Code::InvalidArgument);
            assert!(error.message().contains(bound), "{error}");
        }
    }

    #[test]
    fn hits_are_those_of_the_descriptor_then_of_the_request_then_one() {
        let mut request = asked(1, 1, 1);
        let mut of = RateLimitDescriptor::default();
        assert_eq!(Wish::of(&request, &of), Wish::Take(1));
        request.hits_addend = 5;
        assert_eq!(Wish::of(&request, &of), Wish::Take(5));
        of.hits_addend = Some(7);
        assert_eq!(Wish::of(&request, &of), Wish::Take(7));
        of.is_negative_hits = true;
        assert_eq!(Wish::of(&request, &of), Wish::GiveBack(7));
        of.hits_addend = Some(0);
        assert_eq!(Wish::of(&request, &of), Wish::Peek);
    }
}
