//! Conditions and variables of Limitador: the part of CEL that a policy can express.
//!
//! ```text
//! condition    = clause { "&&" clause }
//! clause       = test | "(" test { "||" test } ")" | test { "||" test }   (the last one alone, without "&&")
//! test         = operand ("==" | "!=") operand | entry "in" "[" text { "," text } "]" | [ "!" ] "has(" entry ")"
//!              | entry "." ("startsWith" | "endsWith" | "contains") "(" text ")"
//! operand      = entry | text | "limit.name" | "limit.id"
//! entry        = "descriptors[0].user" | "descriptors[0]['req.method']" | "req.method"   (the last one in older files)
//! ```
//!
//! Tests that are joined by `||` must be about one entry. Everything else is reported.

/// A condition on an entry of the descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) entry: String,
    pub(super) test: Test,
}

/// What must hold for an entry. Values are patterns of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// It is like one of these.
    Is(Vec<String>),
    /// It is present, and not this.
    IsNot(String),
    Present,
    Absent,
}

/// The limit that a condition belongs to. CEL sees it as `limit`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnLimit<'t> {
    pub(super) name: Option<&'t str>,
    pub(super) id: Option<&'t str>,
}

/// Reads a condition. None: it never holds for this limit.
///
/// # Errors
/// Why a policy cannot express it.
pub(super) fn condition(text: &str, limit: OwnLimit<'_>) -> Result<Option<Vec<Condition>>, String> {
    let mut rest = Reader { rest: text, limit };
    let mut all = Vec::new();
    let mut holds = true;
    let mut has_bare_or = false;
    for number in 1.. {
        let (clause, is_bare_or) = rest.clause()?;
        has_bare_or |= is_bare_or;
        match clause {
            Clause::Always(value) => holds &= value,
            Clause::Entry(condition) => all.push(condition),
        }
        rest.skip();
        if rest.rest.is_empty() {
            if has_bare_or && number > 1 {
                return Err("`||` beside `&&` needs brackets around it".into());
            }
            break;
        }
        if !rest.eat("&&") {
            return Err(rest.unsupported());
        }
    }
    Ok(holds.then_some(all))
}

/// Reads a variable: the name of an entry. None: it is the same for all requests of this limit.
///
/// # Errors
/// Why a policy cannot count by it.
pub(super) fn variable(text: &str, limit: OwnLimit<'_>) -> Result<Option<String>, String> {
    let mut rest = Reader { rest: text, limit };
    let operand = rest.operand()?;
    rest.skip();
    match operand {
        _ if !rest.rest.is_empty() => Err(rest.unsupported()),
        Operand::Entry(name) => Ok(Some(name)),
        Operand::Own(_) => Ok(None),
        Operand::Text(_) => Err("a text is not the name of an entry".into()),
    }
}

struct Reader<'t> {
    /// The part that is not read yet.
    rest: &'t str,
    limit: OwnLimit<'t>,
}

enum Operand {
    Entry(String),
    Text(String),
    /// A property of the limit itself.
    Own(String),
}

enum Clause {
    Entry(Condition),
    /// The same for all requests.
    Always(bool),
}

impl Reader<'_> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, word: &str) -> bool {
        self.skip();
        let rest = self.rest.strip_prefix(word);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, word: &str) -> Result<(), String> {
        match self.eat(word) {
            true => Ok(()),
            false => Err(format!("`{word}` is missing")),
        }
    }

    fn unsupported(&self) -> String {
        format!("a policy cannot express `{}`", self.rest)
    }

    /// Reads tests with `||` between them, and whether there are several without brackets around them.
    fn clause(&mut self) -> Result<(Clause, bool), String> {
        let has_brackets = self.eat("(");
        let mut clause = self.test()?;
        let mut count = 1;
        while self.eat("||") {
            clause = either(clause, self.test()?)?;
            count += 1;
        }
        if has_brackets {
            self.expect(")")?;
        }
        Ok((clause, count > 1 && !has_brackets))
    }

    fn test(&mut self) -> Result<Clause, String> {
        self.skip();
        let is_negated = self.eat("!");
        if self.eat("has(") {
            let entry = match self.operand()? {
                Operand::Entry(entry) => entry,
                _ => return Err("`has` takes an entry".into()),
            };
            self.expect(")")?;
            let test = if is_negated {
                Test::Absent
            } else {
                Test::Present
            };
            return Ok(Clause::Entry(Condition { entry, test }));
        }
        if is_negated {
            return Err("a policy cannot express `!` before anything but `has`".into());
        }
        let left = self.operand()?;
        let is_equal = self.eat("==");
        if is_equal || self.eat("!=") {
            let right = self.operand()?;
            return compare(left, right, is_equal);
        }
        let Operand::Entry(entry) = left else {
            return Err("it does not compare an entry with a text".into());
        };
        let values = if self.eat("in ") || self.eat("in[") {
            let _ = self.eat("[");
            let mut values = vec![self.value()?];
            while self.eat(",") {
                values.push(self.value()?);
            }
            self.expect("]")?;
            values
        } else if self.eat(".startsWith(") {
            vec![format!("{}*", self.argument()?)]
        } else if self.eat(".endsWith(") {
            vec![format!("*{}", self.argument()?)]
        } else if self.eat(".contains(") {
            vec![format!("*{}*", self.argument()?)]
        } else {
            return Err(self.unsupported());
        };
        let test = Test::Is(values);
        Ok(Clause::Entry(Condition { entry, test }))
    }

    fn operand(&mut self) -> Result<Operand, String> {
        self.skip();
        if self.rest.starts_with(['\'', '"']) {
            return self.text().map(Operand::Text);
        }
        self.entry()
    }

    /// A text that has no meaning as a pattern.
    fn value(&mut self) -> Result<String, String> {
        plain(self.text()?)
    }

    /// A text as the last argument of a function.
    fn argument(&mut self) -> Result<String, String> {
        let value = self.value()?;
        self.expect(")").map(|()| value)
    }

    /// A text in quotes of either kind, without escapes.
    fn text(&mut self) -> Result<String, String> {
        self.skip();
        let quote = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"'));
        let quote = quote.ok_or("a text in quotes is missing")?;
        let inner = self.rest.get(1..).unwrap_or_default();
        let (text, rest) = inner.split_once(quote).ok_or("a quote is not closed")?;
        if text.contains('\\') {
            return Err("escapes in texts are not supported".into());
        }
        self.rest = rest;
        Ok(text.to_owned())
    }

    fn word(&mut self) -> Result<String, String> {
        self.skip();
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let end = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        if word.is_empty() || word.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(format!("`{}` is not the name of an entry", self.rest));
        }
        self.rest = rest;
        Ok(word.to_owned())
    }

    /// Reads `.word`, unless it is the name of a function.
    fn member(&mut self) -> Result<Option<String>, String> {
        let Some(rest) = self.rest.strip_prefix('.') else {
            return Ok(None);
        };
        let before = std::mem::replace(&mut self.rest, rest);
        let word = self.word()?;
        if self.rest.starts_with('(') {
            self.rest = before;
            return Ok(None);
        }
        Ok(Some(word))
    }

    fn entry(&mut self) -> Result<Operand, String> {
        let mut name = self.word()?;
        if name == "limit" {
            let own = match self.member()?.as_deref() {
                Some("name") => self.limit.name,
                Some("id") => self.limit.id,
                _ => return Err("only `limit.name` and `limit.id` are known".into()),
            };
            let own = own.ok_or("the limit does not have that property")?;
            return Ok(Operand::Own(own.to_owned()));
        }
        if name != "descriptors" {
            // Older files have the names of entries alone.
            while let Some(word) = self.member()? {
                name = format!("{name}.{word}");
            }
            return match self.rest.starts_with(['(', '[']) {
                true => Err(self.unsupported()),
                false => countable(name).map(Operand::Entry),
            };
        }
        if !self.eat("[0]") {
            return Err("a limit is for one descriptor, so only the first one can be named".into());
        }
        if let Some(word) = self.member()? {
            name = word;
        } else if self.eat("[") {
            name = self.text()?;
            self.expect("]")?;
        } else {
            return Err("it names a whole descriptor, not one of its entries".into());
        }
        countable(name).map(Operand::Entry)
    }
}

fn compare(left: Operand, right: Operand, is_equal: bool) -> Result<Clause, String> {
    let (entry, value) = match (left, right) {
        (Operand::Own(own), Operand::Text(text)) | (Operand::Text(text), Operand::Own(own)) => {
            return Ok(Clause::Always((own == text) == is_equal));
        }
        (Operand::Entry(entry), Operand::Text(text) | Operand::Own(text))
        | (Operand::Text(text) | Operand::Own(text), Operand::Entry(entry)) => {
            (entry, plain(text)?)
        }
        _ => return Err("it does not compare an entry with a text".into()),
    };
    let test = match is_equal {
        true => Test::Is(vec![value]),
        false => Test::IsNot(value),
    };
    Ok(Clause::Entry(Condition { entry, test }))
}

/// Two tests of which one must hold.
fn either(one: Clause, other: Clause) -> Result<Clause, String> {
    const DIFFERENT: &str = "a policy can express `||` only for values of one entry";
    match (one, other) {
        (Clause::Always(one), Clause::Always(other)) => Ok(Clause::Always(one || other)),
        (Clause::Always(true), _) | (_, Clause::Always(true)) => Ok(Clause::Always(true)),
        (Clause::Always(false), clause) | (clause, Clause::Always(false)) => Ok(clause),
        (Clause::Entry(one), Clause::Entry(other)) if one.entry == other.entry => {
            let (Test::Is(mut values), Test::Is(more)) = (one.test, other.test) else {
                return Err(DIFFERENT.into());
            };
            values.extend(more);
            let test = Test::Is(values);
            Ok(Clause::Entry(Condition {
                entry: one.entry,
                test,
            }))
        }
        _ => Err(DIFFERENT.into()),
    }
}

/// A value that a policy does not read as a pattern.
fn plain(value: String) -> Result<String, String> {
    match value.contains('*') {
        true => Err("a policy reads `*` in a value as a pattern".into()),
        false => Ok(value),
    }
}

/// A name that a policy can count by.
fn countable(name: String) -> Result<String, String> {
    let is_odd = |c: char| c.is_control() || c.is_whitespace() || c == '|';
    if name.is_empty() || name.len() > 128 || name.contains(is_odd) {
        return Err("a policy cannot name that entry".into());
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Vec<Condition>>, String> {
        let limit = OwnLimit {
            name: Some("gold"),
            id: None,
        };
        condition(text, limit)
    }

    fn has(entry: &str, test: Test) -> Condition {
        let entry = entry.to_owned();
        Condition { entry, test }
    }

    fn is(entry: &str, values: &[&str]) -> Condition {
        let values = values.iter().map(|value| (*value).to_owned());
        has(entry, Test::Is(values.collect()))
    }

    #[test]
    fn tests_of_entries_are_read() {
        let is_not = |entry: &str, value: &str| has(entry, Test::IsNot(value.into()));
        for (text, expected) in [
            ("descriptors[0].user == 'ann'", vec![is("user", &["ann"])]),
            (
                "descriptors[0]['req.method'] == \"GET\"",
                vec![is("req.method", &["GET"])],
            ),
            ("req.method=='POST'", vec![is("req.method", &["POST"])]),
            ("'x' == a", vec![is("a", &["x"])]),
            (
                "a == 'x' && descriptors[0].b != 'y'",
                vec![is("a", &["x"]), is_not("b", "y")],
            ),
            (
                "descriptors[0].path.startsWith('/api')",
                vec![is("path", &["/api*"])],
            ),
            (
                "descriptors[0]['p'].endsWith(\".pdf\")",
                vec![is("p", &["*.pdf"])],
            ),
            ("req.path.contains('x')", vec![is("req.path", &["*x*"])]),
            ("m in ['GET', \"PUT\"]", vec![is("m", &["GET", "PUT"])]),
            ("descriptors[0].m in ['GET']", vec![is("m", &["GET"])]),
            ("a == 'x' || a == 'y'", vec![is("a", &["x", "y"])]),
            (
                "(a == 'x' || 'y' == a || a.startsWith('z')) && b == 'w'",
                vec![is("a", &["x", "y", "z*"]), is("b", &["w"])],
            ),
            ("(a == 'x')", vec![is("a", &["x"])]),
            ("has(descriptors[0].user)", vec![has("user", Test::Present)]),
            ("!has(descriptors[0].user)", vec![has("user", Test::Absent)]),
        ] {
            assert_eq!(read(text), Ok(Some(expected)), "{text}");
        }
    }

    #[test]
    fn the_limit_itself_is_known() {
        assert_eq!(read("limit.name == 'gold'"), Ok(Some(Vec::new())));
        assert_eq!(read("limit.name != 'gold'"), Ok(None));
        assert_eq!(read("'silver' == limit.name && a == 'x'"), Ok(None));
        assert_eq!(
            read("limit.name == 'gold' && a == 'x'"),
            Ok(Some(vec![is("a", &["x"])]))
        );
        assert_eq!(
            read("descriptors[0].plan == limit.name"),
            Ok(Some(vec![is("plan", &["gold"])]))
        );
        assert!(read("limit.id == 'gold'").is_err());
        assert!(read("limit.max_value == '5'").is_err());
    }

    #[test]
    fn variables_are_entries_or_the_same_for_all() {
        let limit = OwnLimit {
            name: Some("gold"),
            id: None,
        };
        assert_eq!(
            variable(" descriptors[0].user ", limit),
            Ok(Some("user".into()))
        );
        assert_eq!(variable("limit.name", limit), Ok(None));
        assert!(variable("descriptors[0][\"a b\"]", limit).is_err());
        assert!(variable("'x'", limit).is_err());
        assert!(variable("a == 'x'", limit).is_err());
    }

    #[test]
    fn everything_else_is_refused_with_a_reason() {
        for text in [
            "",
            "a",
            "a == b",
            "a == 'x' || b == 'y'",
            "a == 'x' || a != 'y'",
            "a == 'x' || a == 'y' && b == 'z'",
            "a.matches('x')",
            "a.startsWith(b)",
            "a in []",
            "a in ['x'",
            "has(a",
            "has('a')",
            "descriptors[1].a == 'x'",
            "descriptors[0] == 'x'",
            "size(a) == 3",
            "a > 'x'",
            "!a",
            "!(a == 'x')",
            "a == 'x",
            "a == 'x*'",
            "a.startsWith('x*')",
            "a == 'it\\'s'",
            "(a == 'x'",
            "(a == 'x') || (b == 'y')",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
