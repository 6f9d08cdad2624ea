//! Conditions and variables of Limitador: as much of CEL as a policy can say.
//!
//! A condition is one or several comparisons with `&&` between them; each compares an entry of the descriptor with
//! a text, by `==` or `!=`. An entry is `descriptors[0].user`, `descriptors[0]['req.method']`, or, as older files
//! have it, `req.method`. Everything else is for whoever converts the file to write.

/// What must hold for an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// It is this.
    Is(String, String),
    /// It is there, and not this.
    IsNot(String, String),
}

/// Reads a condition.
///
/// # Errors
/// Why it cannot be said in a policy.
pub(super) fn condition(text: &str) -> Result<Vec<Condition>, String> {
    let mut rest = Reader(text);
    let mut all = Vec::new();
    loop {
        all.push(rest.comparison()?);
        rest.skip();
        if rest.0.is_empty() {
            return Ok(all);
        }
        if !rest.eat("&&") {
            return Err(format!("`{}` cannot be said in a policy", rest.0));
        }
    }
}

/// Reads the name of an entry.
///
/// # Errors
/// Why it cannot be counted by.
pub(super) fn selector(text: &str) -> Result<String, String> {
    let mut rest = Reader(text);
    let name = rest.selector()?;
    rest.skip();
    match rest.0 {
        "" => Ok(name),
        more => Err(format!("`{more}` cannot be said in a policy")),
    }
}

/// What is not read yet.
struct Reader<'t>(&'t str);

enum Operand {
    Entry(String),
    Text(String),
}

impl Reader<'_> {
    fn skip(&mut self) {
        self.0 = self.0.trim_start();
    }

    fn eat(&mut self, word: &str) -> bool {
        self.skip();
        match self.0.strip_prefix(word) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn comparison(&mut self) -> Result<Condition, String> {
        let left = self.operand()?;
        let is = self.eat("==");
        if !is && !self.eat("!=") {
            return Err("only `==` and `!=` can be said in a policy".into());
        }
        let right = self.operand()?;
        let (name, value) = match (left, right) {
            (Operand::Entry(name), Operand::Text(value))
            | (Operand::Text(value), Operand::Entry(name)) => (name, value),
            _ => return Err("it does not compare an entry with a text".into()),
        };
        if value.contains('*') {
            return Err("`*` in a value stands for any characters in a policy".into());
        }
        Ok(match is {
            true => Condition::Is(name, value),
            false => Condition::IsNot(name, value),
        })
    }

    fn operand(&mut self) -> Result<Operand, String> {
        self.skip();
        match self.0.chars().next() {
            Some('\'' | '"') => self.text().map(Operand::Text),
            _ => self.selector().map(Operand::Entry),
        }
    }

    /// A text in quotes of either kind, without escapes.
    fn text(&mut self) -> Result<String, String> {
        self.skip();
        let quote = self.0.chars().next().filter(|c| matches!(c, '\'' | '"'));
        let quote = quote.ok_or("a text in quotes is missing")?;
        let inner = self.0.get(1..).unwrap_or_default();
        let (text, rest) = inner.split_once(quote).ok_or("a quote is not closed")?;
        if text.contains('\\') {
            return Err("escapes in texts are not read".into());
        }
        self.0 = rest;
        Ok(text.to_owned())
    }

    fn word(&mut self) -> Result<String, String> {
        self.skip();
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let end = self.0.find(|c| !is_word(c)).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        if word.is_empty() || word.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(format!("`{}` is not the name of an entry", self.0));
        }
        self.0 = rest;
        Ok(word.to_owned())
    }

    fn selector(&mut self) -> Result<String, String> {
        let mut name = self.word()?;
        if name != "descriptors" {
            // Older files name entries as they are.
            while self.0.starts_with('.') {
                self.0 = self.0.get(1..).unwrap_or_default();
                name = format!("{name}.{}", self.word()?);
            }
            return match self.0.starts_with(['(', '[']) {
                true => Err(format!("`{}` cannot be said in a policy", self.0)),
                false => fit(name),
            };
        }
        if !self.eat("[0]") {
            return Err("only the first descriptor can be named: a limit is for one".into());
        }
        if self.eat(".") {
            name = self.word()?;
        } else if self.eat("[") {
            name = self.text()?;
            if !self.eat("]") {
                return Err("a bracket is not closed".into());
            }
        } else {
            return Err("it names a whole descriptor, not one of its entries".into());
        }
        match self.0.starts_with(['.', '(', '[']) {
            true => Err(format!("`{}` cannot be said in a policy", self.0)),
            false => fit(name),
        }
    }
}

/// A name that a policy can count by.
fn fit(name: String) -> Result<String, String> {
    let is_odd = |c: char| c.is_control() || c.is_whitespace() || c == '|';
    if name.is_empty() || name.len() > 128 || name.contains(is_odd) {
        return Err("the entry has a name that a policy cannot write".into());
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_of_entries_with_texts_are_read() {
        let is = |k: &str, v: &str| Condition::Is(k.into(), v.into());
        let is_not = |k: &str, v: &str| Condition::IsNot(k.into(), v.into());
        for (text, read) in [
            ("descriptors[0].user == 'ann'", vec![is("user", "ann")]),
            (
                "descriptors[0]['req.method'] == \"GET\"",
                vec![is("req.method", "GET")],
            ),
            ("req.method=='POST'", vec![is("req.method", "POST")]),
            ("'x' == a", vec![is("a", "x")]),
            (
                "a == 'x' && descriptors[0].b != 'y'",
                vec![is("a", "x"), is_not("b", "y")],
            ),
        ] {
            assert_eq!(condition(text), Ok(read), "{text}");
        }
        assert_eq!(selector(" descriptors[0].user "), Ok("user".into()));
        assert!(selector("descriptors[0][\"a b\"]").is_err());
    }

    #[test]
    fn whatever_else_cel_can_say_is_refused_with_a_reason() {
        for text in [
            "",
            "a",
            "a == b",
            "a == 'x' || b == 'y'",
            "a.startsWith('x')",
            "descriptors[1].a == 'x'",
            "descriptors[0] == 'x'",
            "size(a) == 3",
            "a > 'x'",
            "!a",
            "a == 'x",
            "a == 'x*'",
            "a == 'it\\'s'",
            "(a == 'x')",
        ] {
            assert!(condition(text).is_err(), "{text}");
        }
    }
}
