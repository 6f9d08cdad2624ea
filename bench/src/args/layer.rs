//! The command line of `layer`.

use super::{Flags, OPS_MAX, ROUNDS_MAX, count, unknown};

/// What `layer` is to do.
#[derive(Debug)]
pub(crate) struct Layering {
    /// Turns that each service takes.
    pub(crate) rounds: usize,
    /// In each turn.
    pub(crate) requests: usize,
    pub(crate) json: bool,
}

impl Default for Layering {
    fn default() -> Self {
        Self {
            rounds: 15,
            requests: 100_000,
            json: false,
        }
    }
}

pub(super) fn parse(mut flags: Flags<'_>) -> Result<Layering, String> {
    let mut wanted = Layering::default();
    while let Some(flag) = flags.0.next() {
        match flag.as_str() {
            "--rounds" => wanted.rounds = flags.one(flag, |word| count(word, ROUNDS_MAX))?,
            "--ops" => wanted.requests = flags.one(flag, |word| count(word, OPS_MAX))?,
            "--json" => wanted.json = true,
            _ => return Err(unknown(flag, "layer")),
        }
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_of_layer_is_understood_and_no_other() {
        let words = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
        let wanted = parse(Flags(words("--rounds 3 --ops 10k --json").iter())).unwrap();
        assert_eq!(
            (wanted.rounds, wanted.requests, wanted.json),
            (3, 10_000, true)
        );
        let told = parse(Flags(words("--keys 1").iter())).unwrap_err();
        assert_eq!(told, "`layer` has no flag `--keys`");
    }
}
