//! The order of keys: uniform, or by Zipf's law.
//!
//! # Theory
//!
//! By Zipf's law the `k`-th most popular of `n` keys is used in proportion to `1 / k^s`. It is drawn by *rejection-inversion*
//! (Hörmann and Derflinger, 1996): invert the integral of the continuous density, round to the nearest rank, and reject the few
//! draws that rounding would favour. There is no table, so a hundred million keys cost nothing; a key takes less than 1.2 draws on
//! average.
//!
//! # Limits
//!
//! Popularity does not drift with time. Floats are fine here, because nothing is decided by them.

use fastrand::Rng;

/// Draws keys, numbered from 0; by Zipf's law 0 is the most popular.
#[derive(Clone, Debug)]
pub struct KeyPicker {
    rng: Rng,
    count: u64,
    zipf: Option<Zipf>,
}

impl KeyPicker {
    /// Picks from `count` keys: uniformly without an exponent, or by Zipf's law.
    pub fn new(count: u64, exponent: Option<f64>, seed: u64) -> KeyPicker {
        let skewed = exponent.filter(|exponent| *exponent > 0.0 && count > 1);
        KeyPicker {
            rng: Rng::with_seed(seed),
            count,
            zipf: skewed.map(|exponent| Zipf::new(count, exponent)),
        }
    }

    /// The next key.
    pub fn pick(&mut self) -> u64 {
        match &self.zipf {
            Some(zipf) => zipf.pick(&mut self.rng),
            None if self.count <= 1 => 0,
            None => self.rng.u64(..self.count),
        }
    }
}

#[derive(Clone, Debug)]
struct Zipf {
    count: f64,
    exponent: f64,
    /// The integral where the first rank begins and where the last one ends.
    from: f64,
    to: f64,
    /// A draw this close below its rank is right without a further look.
    close: f64,
}

impl Zipf {
    fn new(count: u64, exponent: f64) -> Zipf {
        let mut zipf = Zipf {
            count: count as f64,
            exponent,
            from: 0.0,
            to: 0.0,
            close: 0.0,
        };
        zipf.from = zipf.integral(1.5) - 1.0;
        zipf.to = zipf.integral(zipf.count + 0.5);
        zipf.close = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    fn density(&self, x: f64) -> f64 {
        x.powf(-self.exponent)
    }

    /// Of the density, from 1 to `x`.
    fn integral(&self, x: f64) -> f64 {
        let power = 1.0 - self.exponent;
        let log = x.ln();
        // `expm1` stays exact where the exponent is close to 1 and the quotient would be 0/0.
        if power.abs() < 1e-9 {
            log
        } else {
            (power * log).exp_m1() / power
        }
    }

    fn inverse(&self, area: f64) -> f64 {
        let power = 1.0 - self.exponent;
        if power.abs() < 1e-9 {
            area.exp()
        } else {
            ((power * area).max(-1.0).ln_1p() / power).exp()
        }
    }

    fn pick(&self, rng: &mut Rng) -> u64 {
        loop {
            let area = self.to + rng.f64() * (self.from - self.to);
            let x = self.inverse(area);
            let rank = x.round().clamp(1.0, self.count);
            if rank - x <= self.close || area >= self.integral(rank + 0.5) - self.density(rank) {
                // A whole number between 1 and the count of keys.
                return rank as u64 - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u32 = 200_000;

    fn counts(count: u64, exponent: Option<f64>) -> Vec<u32> {
        let mut keys = KeyPicker::new(count, exponent, 7);
        let mut counts = vec![0; usize::try_from(count).unwrap()];
        for _ in 0..DRAWS {
            counts[usize::try_from(keys.pick()).unwrap()] += 1;
        }
        counts
    }

    /// Pearson's statistic against `1 / k^s`, divided by its degrees of freedom: near 1 if the law holds.
    fn misfit(exponent: f64, counts: &[u32]) -> f64 {
        let weight = |rank: usize| ((rank + 1) as f64).powf(-exponent);
        let whole: f64 = (0..counts.len()).map(weight).sum();
        let part = |(rank, count): (usize, &u32)| {
            let expected = f64::from(DRAWS) * weight(rank) / whole;
            (f64::from(*count) - expected).powi(2) / expected
        };
        let statistic: f64 = counts.iter().enumerate().map(part).sum();
        statistic / (counts.len() - 1) as f64
    }

    #[test]
    fn ranks_come_as_often_as_the_law_says_below_at_and_above_exponent_one() {
        for exponent in [0.5, 0.99, 1.0, 1.2, 2.0] {
            let found = misfit(exponent, &counts(200, Some(exponent)));
            // With 199 degrees of freedom the deviation of this quotient is 0.1.
            assert!((0.6..1.4).contains(&found), "{exponent}: {found}");
        }
    }

    #[test]
    fn the_test_of_the_law_notices_another_exponent() {
        assert!(misfit(1.1, &counts(200, Some(1.0))) > 5.0);
    }

    #[test]
    fn without_an_exponent_keys_are_uniform() {
        for exponent in [None, Some(0.0)] {
            let found = misfit(0.0, &counts(200, exponent));
            assert!((0.6..1.4).contains(&found), "{found}");
        }
    }

    #[test]
    fn every_draw_is_a_key_even_of_one_two_or_very_many() {
        for count in [1, 2, 1_000_000_000] {
            for exponent in [None, Some(0.7), Some(1.0), Some(8.0)] {
                let mut keys = KeyPicker::new(count, exponent, 3);
                assert!((0..10_000).all(|_| keys.pick() < count));
            }
        }
    }
}
