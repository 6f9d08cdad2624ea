//! Tests of the layouts of sliding counters, and of their words.

use super::*;

#[test]
fn the_default_layouts_fit_their_limits() {
    let minute = Span::from_secs(60);
    for (limit, parts, index_bits) in [
        (127, 3, 12),
        (128, 2, 16),
        (1023, 2, 10),
        (1024, 1, 18),
        (65_535, 1, 8),
        ((1 << 24) - 1, 1, 16),
    ] {
        let s = Sliding::new(limit, minute, Estimate::Span).unwrap();
        assert_eq!((s.parts, s.index_bits), (parts, index_bits), "{limit}");
    }
    for (limit, parts, index_bits) in [
        (1, 4, 59),
        (2047, 4, 9),
        (2048, 3, 16),
        (16_383, 3, 8),
        (16_384, 2, 19),
        (262_143, 2, 10),
        (262_144, 1, 26),
        ((1 << 24) - 1, 1, 16),
    ] {
        let s = Sliding::new(limit, minute, Estimate::Strict).unwrap();
        assert_eq!((s.parts, s.index_bits), (parts, index_bits), "{limit}");
    }
}

#[test]
fn a_limit_that_does_not_fit_says_what_does() {
    let minute = Span::from_secs(60);
    let error = Sliding::new(1 << 24, minute, Estimate::Span).unwrap_err();
    assert_eq!(error.hint(), "write a limit of at most 16777215");
    let parts = |parts| {
        let layout = Layout {
            parts,
            divisions: 1,
            tail: Tail::Whole,
        };
        Sliding::with_layout(1000, minute, layout)
    };
    let error = parts(6).unwrap_err();
    assert_eq!(error.to_string(), "the number of parts (from 1) is above 4");
    assert!(parts(0).is_err());
    assert!(parts(4).is_ok());
}

#[test]
fn the_reserved_word_is_never_written() {
    let two_counters = Layout {
        parts: 1,
        divisions: 1,
        tail: Tail::Even,
    };
    let s = Sliding::with_layout(3, Span::from_nanos(8), two_counters).unwrap();
    let mut state = s.state_at(None, Moment::from_nanos(u64::MAX));
    state.index = u64::MAX >> (64 - s.index_bits);
    for cell in state.cells.iter_mut().take(2) {
        cell.count = 3;
    }
    assert_eq!(s.pack(&state), RESERVED ^ 1 << s.cell_bits());
}

#[test]
fn words_pack_and_unpack() {
    let s = Sliding::new(100, Span::from_secs(60), Estimate::Span).unwrap();
    let now = Moment::from_nanos(123_456_789_012);
    let mut state = s.state_at(None, now);
    s.add(&mut state, 7);
    state.cells[2] = Part {
        count: 93,
        first: 2,
        last: 5,
    };
    let state = s.indexed(state);
    let (index, cells) = s.unpack(s.pack(&state));
    assert_eq!((index, cells), (state.index, state.cells));
}
