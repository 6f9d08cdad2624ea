//! Parameters and arguments by name, none of them overlooked.

use crate::timeline::{Case, Step};
use std::collections::BTreeMap;
use std::str::FromStr;

/// The named numbers of a case or a step. What is written and not understood is an error: a parameter
/// that is ignored makes every answer after it meaningless.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a>(&'a BTreeMap<String, String>);

impl<'a> Given<'a> {
    /// The parameters of `case`, which may be none but `known`; all words must be `name=value`.
    ///
    /// # Errors
    ///
    /// If there are others.
    pub fn of_case(case: &'a Case, known: &[&str]) -> Result<Self, String> {
        let plain = case.words.iter().find(|w| !w.contains('='));
        if let Some(word) = plain {
            return Err(format!("`{word}` is not understood"));
        }
        Self::checked(&case.params, known)
    }

    /// The arguments of `step`, which may be none but `known`.
    ///
    /// # Errors
    ///
    /// If there are others.
    pub fn of_step(step: &'a Step, known: &[&str]) -> Result<Self, String> {
        Self::checked(&step.args, known)
    }

    fn checked(names: &'a BTreeMap<String, String>, known: &[&str]) -> Result<Self, String> {
        match names.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(format!("`{name}` is not understood")),
            None => Ok(Self(names)),
        }
    }

    /// The number called `name`, if it is there.
    ///
    /// # Errors
    ///
    /// If it is there and no such number.
    pub fn find<N: FromStr>(&self, name: &str) -> Result<Option<N>, String> {
        let Some(text) = self.0.get(name) else {
            return Ok(None);
        };
        text.parse()
            .map(Some)
            .map_err(|_| format!("`{name}` is `{text}`, which is no such number"))
    }

    /// The number called `name`.
    ///
    /// # Errors
    ///
    /// If it is missing or no such number.
    pub fn need<N: FromStr>(&self, name: &str) -> Result<N, String> {
        self.find(name)?
            .ok_or_else(|| format!("`{name}` is missing"))
    }

    /// The flag called `name`: 0 or 1, and 0 if it is missing.
    ///
    /// # Errors
    ///
    /// If it is something else.
    pub fn flag(&self, name: &str) -> Result<bool, String> {
        match self.find::<u64>(name)? {
            None | Some(0) => Ok(false),
            Some(1) => Ok(true),
            Some(other) => Err(format!("`{name}` is {other}, neither 0 nor 1")),
        }
    }
}
