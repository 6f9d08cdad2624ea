//! The dealer of shuffle sharding as subject: `why` is the cards, in the order dealt.

use super::super::given::Given;
use super::super::unsupported;
use crate::replay::{Observed, Subject};
use crate::timeline::{Case, Step};
use tollgate::shape::shuffle::ShuffleShard;

/// Deals hands from any deck: each step says which.
#[derive(Clone, Copy, Debug)]
pub struct Dealer;

impl Dealer {
    /// A dealer, who has no parameters.
    ///
    /// # Errors
    ///
    /// If the case has some.
    pub fn open(case: &Case) -> Result<Self, String> {
        Given::of_case(case, &[]).map(|_| Self)
    }
}

impl Subject for Dealer {
    fn apply(&mut self, step: &Step) -> Result<Observed, String> {
        if step.op != "deal" {
            return Err(unsupported(step));
        }
        let given = Given::of_step(step, &["hash", "deck", "hand"])?;
        let dealer = ShuffleShard::new(given.need("deck")?, given.need("hand")?)
            .map_err(|error| error.to_string())?;
        let hand = dealer.deal(given.need("hash")?);
        let cards: Vec<String> = hand.cards().map(|card| card.to_string()).collect();
        Ok(Observed {
            why: Some(cards.join(" ")),
            ..Observed::default()
        })
    }
}
