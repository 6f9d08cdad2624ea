//! Shuffle sharding: a small hand of queues for each client, dealt from its hash.
//!
//! # Theory
//!
//! Clients are many and unknown (one per address), queues are few. Each client's hash deals it a
//! *hand* of `hand` distinct queues from a *deck* of `deck`, and each of its requests waits in the
//! shortest of them. The dealer needs no table: for `i` in `0..hand`
//!
//! ```text
//! r_i = h mod (deck - i)        h := h div (deck - i)
//! card_i = r_i, then for j = i, i-1 .. 1: if card_i >= r_(j-1) then card_i += 1
//! ```
//!
//! `r_i` picks among the cards not yet dealt; the second line turns that rank into a card by stepping
//! over those that were.
//!
//! # Invariant
//!
//! A hand holds `hand` distinct cards, all below `deck`, and depends on the hash alone: the same
//! client gets the same hand in every process. One loud client fills all queues of a quiet one with
//! probability `1 / C(deck, hand)`.
//!
//! The hash must hold more than the hand uses, or some hands come up more often than others. We ask
//! for `deck^hand <= 2^60`, the same as `ceil(log2(deck) * hand) <= 60`: four spare bits of 64, so
//! no hand is more than 1/16 likelier than it should be. With that rule and `hand <= deck` a hand
//! never exceeds [`MAX_HAND`] cards, which is why it fits in an array.
//!
//! # Why not one hashed queue per client
//!
//! With a hand of one, a quiet client that lands beside a loud one suffers for as long as both live:
//! one client in `deck` does. With 128 queues and a hand of 8 it is one in 10^12.
//!
//! This module knows nothing of queues, clocks, threads or hash functions. It must be given a hash
//! that a client cannot choose: with an unkeyed one, a client can deal itself another's hand.

#![deny(clippy::float_arithmetic)]

use std::error::Error;
use std::fmt;

/// The most cards a hand can hold: 16 queues, hand of 15, is exactly 60 bits; every larger hand
/// needs more.
pub const MAX_HAND: usize = 15;

/// How many bits of the hash a hand may use. The four that remain keep the deal nearly even.
pub const MAX_BITS: u32 = 60;

/// A dealer for one size of deck and hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShuffleShard {
    deck: usize,
    hand: usize,
}

impl ShuffleShard {
    /// A dealer of `hand` queues out of `deck`.
    ///
    /// # Errors
    ///
    /// When the hand is empty, is larger than the deck, or needs more than [`MAX_BITS`] bits of hash.
    pub fn new(deck: usize, hand: usize) -> Result<Self, ShuffleError> {
        if hand == 0 {
            return Err(ShuffleError::EmptyHand);
        }
        if hand > deck {
            return Err(ShuffleError::HandAboveDeck { deck, hand });
        }
        if largest_hand(deck) < hand {
            return Err(ShuffleError::TooManyBits { deck, hand });
        }
        Ok(Self { deck, hand })
    }

    /// How many queues there are.
    pub fn deck(&self) -> usize {
        self.deck
    }

    /// How many of them each client gets.
    pub fn hand(&self) -> usize {
        self.hand
    }

    /// The queues of the client with this hash, in the order dealt.
    pub fn deal(&self, hash: u64) -> Hand {
        let mut rest = hash;
        let mut ranks = [0_usize; MAX_HAND];
        let mut cards = [0_usize; MAX_HAND];
        for (i, card) in cards.iter_mut().enumerate().take(self.hand) {
            // At least 1, because `i < hand <= deck`.
            let undealt = (self.deck - i) as u64;
            // Below `deck`, which is a `usize`.
            let rank = (rest % undealt) as usize;
            rest /= undealt;
            *card = rank;
            for &earlier in ranks.iter().take(i).rev() {
                if *card >= earlier {
                    *card += 1;
                }
            }
            if let Some(slot) = ranks.get_mut(i) {
                *slot = rank;
            }
        }
        Hand {
            cards,
            len: self.hand,
        }
    }

    /// The queue of this client's hand with the least queued cost; the first dealt wins a tie.
    ///
    /// `queued_cost` is asked once for each card of the hand.
    pub fn shortest<C: Ord>(&self, hash: u64, mut queued_cost: impl FnMut(usize) -> C) -> usize {
        self.deal(hash)
            .cards()
            .min_by_key(|&queue| queued_cost(queue))
            // A hand is never empty, so this is never used; it is a queue that exists all the same.
            .unwrap_or(0)
    }
}

/// The queues dealt to one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hand {
    /// Only the first `len` are dealt; the others are zero.
    cards: [usize; MAX_HAND],
    len: usize,
}

impl Hand {
    /// The queues, in the order dealt. All distinct, never none.
    pub fn cards(&self) -> impl Iterator<Item = usize> + '_ {
        self.cards.iter().take(self.len).copied()
    }
}

/// Why a deck and a hand do not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShuffleError {
    /// A hand of no queues leaves a request nowhere to wait.
    EmptyHand,
    /// More cards were asked for than there are.
    HandAboveDeck {
        /// Queues there are.
        deck: usize,
        /// Queues asked for.
        hand: usize,
    },
    /// The hash has too few bits to deal this hand evenly.
    TooManyBits {
        /// Queues there are.
        deck: usize,
        /// Queues asked for.
        hand: usize,
    },
}

impl ShuffleError {
    /// What the operator can do now, in one imperative sentence.
    pub fn hint(&self) -> String {
        match self {
            Self::EmptyHand => "set `hand` to at least 1; 6 of 512 queues is a good start".into(),
            Self::HandAboveDeck { deck: 0, .. } => "set `deck` to at least 1".into(),
            Self::HandAboveDeck { deck, hand } => {
                format!("lower `hand` to at most {deck}, or raise `deck` to at least {hand}")
            }
            Self::TooManyBits { deck, .. } => match largest_hand(*deck) {
                0 => "use fewer queues".into(),
                most => format!("lower `hand` to at most {most}, or use fewer queues"),
            },
        }
    }
}

impl fmt::Display for ShuffleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyHand => {
                write!(
                    f,
                    "`hand` is 0, so a request would have no queue to wait in"
                )
            }
            Self::HandAboveDeck { deck, hand } => write!(
                f,
                "`hand` is {hand}, but `deck` has only {deck} queues to deal from"
            ),
            Self::TooManyBits { deck, hand } => write!(
                f,
                "`hand` of {hand} from a `deck` of {deck} needs more than {MAX_BITS} bits of hash"
            ),
        }
    }
}

impl Error for ShuffleError {}

/// The largest hand with `deck^hand <= 2^60` and `hand <= deck`.
fn largest_hand(deck: usize) -> usize {
    let mut hands = 1_u128;
    let mut hand = 0;
    while hand < deck {
        // At most 2^60 times 2^64: fits in 128 bits.
        hands *= deck as u128;
        if hands > 1 << MAX_BITS {
            break;
        }
        hand += 1;
    }
    hand
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]
mod tests {
    use super::*;

    #[test]
    fn every_golden_deal_comes_out_the_same() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../timelines/shuffle.public.csv"
        );
        let text = std::fs::read_to_string(path).unwrap();
        let mut dealt = 0;
        for line in text.lines().skip(1) {
            let row: Vec<&str> = line.split(',').collect();
            if row[2] != "deal" {
                continue;
            }
            let arg = |name: &str| -> u64 {
                row[6]
                    .split(' ')
                    .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
                    .unwrap()
                    .parse()
                    .unwrap()
            };
            let dealer = ShuffleShard::new(arg("deck") as usize, arg("hand") as usize).unwrap();
            let cards: Vec<String> = dealer
                .deal(arg("hash"))
                .cards()
                .map(|c| c.to_string())
                .collect();
            assert_eq!(cards.join(" "), row[12], "{line}");
            dealt += 1;
        }
        assert!(dealt > 0);
    }

    #[test]
    fn a_hand_holds_distinct_cards_of_the_deck() {
        for deck in 1..=40 {
            for hand in 1..=deck {
                let Ok(dealer) = ShuffleShard::new(deck, hand) else {
                    continue;
                };
                for i in 0..200_u64 {
                    let hash = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (i << 60);
                    let mut cards: Vec<usize> = dealer.deal(hash).cards().collect();
                    assert_eq!(cards.len(), hand);
                    cards.sort_unstable();
                    cards.dedup();
                    assert_eq!(cards.len(), hand, "deck {deck} hash {hash}");
                    assert!(cards.iter().all(|&card| card < deck));
                }
            }
        }
    }

    #[test]
    fn every_ordered_hand_is_dealt_exactly_once_in_a_full_cycle_of_hashes() {
        let dealer = ShuffleShard::new(6, 3).unwrap();
        let hands: std::collections::BTreeSet<Vec<usize>> = (0..6 * 5 * 4)
            .map(|hash| dealer.deal(hash).cards().collect())
            .collect();
        assert_eq!(hands.len(), 6 * 5 * 4);
    }

    #[test]
    fn no_allowed_hand_overflows_its_array() {
        let most = (0..=1 << 16).map(largest_hand).max();
        assert_eq!(most, Some(MAX_HAND));
        assert_eq!(largest_hand(16), MAX_HAND);
        assert!(ShuffleShard::new(16, 15).is_ok(), "exactly 60 bits");
        assert!(ShuffleShard::new(1 << 10, 6).is_ok(), "exactly 60 bits");
        assert!(ShuffleShard::new((1 << 10) + 1, 6).is_err());
        assert_eq!(largest_hand(usize::MAX), 0);
    }

    #[test]
    fn a_deck_of_one_deals_its_only_queue() {
        let dealer = ShuffleShard::new(1, 1).unwrap();
        assert_eq!(dealer.deal(u64::MAX).cards().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn a_request_waits_in_the_shortest_queue_of_its_hand_and_the_first_dealt_wins_a_tie() {
        let dealer = ShuffleShard::new(10, 3).unwrap();
        assert_eq!(dealer.deal(1).cards().collect::<Vec<_>>(), [1, 0, 2]);
        assert_eq!(dealer.shortest(1, |_| 7), 1);
        assert_eq!(dealer.shortest(1, |queue| [5, 5, 4][queue]), 2);
        assert_eq!(dealer.shortest(1, |queue| [4, 5, 4][queue]), 0);
    }

    #[test]
    fn a_deck_and_hand_that_do_not_fit_are_refused_with_a_way_out() {
        assert_eq!(ShuffleShard::new(8, 0), Err(ShuffleError::EmptyHand));
        assert_eq!(
            ShuffleShard::new(0, 1),
            Err(ShuffleError::HandAboveDeck { deck: 0, hand: 1 })
        );
        assert_eq!(
            ShuffleShard::new(2, 3),
            Err(ShuffleError::HandAboveDeck { deck: 2, hand: 3 })
        );
        let error = ShuffleShard::new(512, 7).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`hand` of 7 from a `deck` of 512 needs more than 60 bits of hash"
        );
        assert_eq!(
            error.hint(),
            "lower `hand` to at most 6, or use fewer queues"
        );
    }
}
