//! Tests of key hashing.

use super::*;
use std::collections::HashSet;

#[test]
fn parts_are_framed_so_that_no_two_lists_share_a_key() {
    assert_ne!(Key::from_parts(["a", "bc"]), Key::from_parts(["ab", "c"]));
    assert_ne!(Key::from_parts(["a", ""]), Key::from_parts(["a"]));
    assert_ne!(Key::from_parts(["a_b", "c"]), Key::from_parts(["a", "b_c"]));
}

#[test]
fn similar_keys_have_different_hashes() {
    let secret = KeySecret::random();
    let mut seen = HashSet::new();
    for len in 0..700 {
        assert!(
            seen.insert(secret.hash(&vec![0u8; len])),
            "{len} zero bytes"
        );
    }
    for len in 1..700 {
        assert!(
            seen.insert(secret.hash("x".repeat(len).as_str())),
            "{len} times x"
        );
    }
    seen.clear(); // keys of different types may be equal
    for i in 0..10_000u64 {
        assert!(seen.insert(secret.hash(&i)));
    }
}

#[test]
fn every_byte_of_a_long_key_counts() {
    let secret = KeySecret::random();
    let long = vec![7u8; 10_000];
    let hash = secret.hash(&long);
    for i in (0..long.len()).step_by(97) {
        let mut other = long.clone();
        other[i] ^= 1;
        assert_ne!(secret.hash(&other), hash, "byte {i}");
    }
}

#[test]
fn keys_of_one_type_that_differ_feed_something_different() {
    let secret = KeySecret::random();
    assert_ne!(secret.hash(&("a", "bc")), secret.hash(&("ab", "c")));
    assert_ne!(secret.hash(&("", "a")), secret.hash(&("a", "")));
    assert_ne!(secret.hash(&(1u8, 255u8)), secret.hash(&(255u8, 1u8)));
    assert_ne!(secret.hash(&None::<u8>), secret.hash(&Some(0u8)));
    assert_ne!(secret.hash(&Hashed([1, 2])), secret.hash(&Hashed([2, 1])));
    assert_ne!(secret.hash("12345678"), secret.hash("123456781"));
    assert_ne!(secret.hash("aaaaaaaa"), secret.hash("aaaaaaaaaaaaaaaa"));
}

#[test]
fn an_address_and_its_mapped_form_are_one_key() {
    let secret = KeySecret::random();
    let v4: IpAddr = "203.0.113.7".parse().unwrap();
    let mapped: IpAddr = "::ffff:203.0.113.7".parse().unwrap();
    let other: IpAddr = "203.0.113.8".parse().unwrap();
    assert_eq!(secret.hash(&v4), secret.hash(&mapped));
    assert_ne!(secret.hash(&v4), secret.hash(&other));
}

#[test]
fn two_limiters_hash_differently() {
    assert_ne!(
        KeySecret::random().hash("key"),
        KeySecret::random().hash("key")
    );
    assert_eq!(
        KeySecret::from_seed(7).hash("key"),
        KeySecret::from_seed(7).hash("key")
    );
}

#[test]
fn hashes_of_a_sequence_spread_evenly_over_lines() {
    // A chi-square over 256 cells: 255 degrees of freedom, 8 sigma above the mean is 436.
    for stride in [1u64, 2, 64, 1 << 20, 1 << 48] {
        let secret = KeySecret::from_seed(stride);
        for shift in [0, 24, 48, 56] {
            let mut cells = [0u32; 256];
            for i in 0..65_536u64 {
                cells[(secret.hash(&(i * stride)) >> shift & 255) as usize] += 1;
            }
            let square = |c: &u32| u64::from(c.abs_diff(256).pow(2));
            let chi = cells.iter().map(square).sum::<u64>() / 256;
            assert!(chi < 436, "stride {stride} shift {shift}: {chi}");
        }
    }
}
