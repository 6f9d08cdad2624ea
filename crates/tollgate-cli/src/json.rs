//! One JSON object on one line.
//!
//! Written by hand because it is all there is: strings, numbers and nulls, never nested.

use std::fmt::Write;

/// An object that is being written.
#[derive(Debug, Default)]
pub(crate) struct Object {
    text: String,
}

impl Object {
    /// Adds a string.
    pub(crate) fn text(self, name: &str, value: &str) -> Object {
        let mut quoted = String::with_capacity(value.len() + 2);
        quote(value, &mut quoted);
        self.raw(name, &quoted)
    }

    /// Adds a string, or null.
    pub(crate) fn maybe_text(self, name: &str, value: Option<&str>) -> Object {
        match value {
            Some(value) => self.text(name, value),
            None => self.raw(name, "null"),
        }
    }

    /// Adds a whole number.
    pub(crate) fn number(self, name: &str, value: u64) -> Object {
        self.raw(name, &value.to_string())
    }

    /// Adds a whole number, or null.
    pub(crate) fn maybe_number(self, name: &str, value: Option<u64>) -> Object {
        match value {
            Some(value) => self.number(name, value),
            None => self.raw(name, "null"),
        }
    }

    /// The object as text.
    pub(crate) fn finish(mut self) -> String {
        if self.text.is_empty() {
            self.text.push('{');
        }
        self.text.push('}');
        self.text
    }

    fn raw(mut self, name: &str, value: &str) -> Object {
        self.text.push(if self.text.is_empty() { '{' } else { ',' });
        quote(name, &mut self.text);
        self.text.push(':');
        self.text.push_str(value);
        self
    }
}

/// RFC 8259: quotes, backslashes and control characters are escaped, everything else stands as it is.
fn quote(value: &str, out: &mut String) {
    out.push('"');
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c < ' ' => {
                // Writing to a string does not fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_one_line_of_json() {
        let object = Object::default()
            .text("key", "alice")
            .maybe_text("none", None)
            .number("cost", u64::MAX)
            .maybe_number("delay", None);
        assert_eq!(
            object.finish(),
            r#"{"key":"alice","none":null,"cost":18446744073709551615,"delay":null}"#
        );
        assert_eq!(Object::default().finish(), "{}");
    }

    #[test]
    fn strings_are_escaped_so_that_no_value_can_end_them() {
        let object = Object::default().text("k\"", "a\"b\\c\n\t\r\u{1}\u{7f}é…");
        assert_eq!(
            object.finish(),
            "{\"k\\\"\":\"a\\\"b\\\\c\\n\\t\\r\\u0001\u{7f}é…\"}"
        );
    }
}
