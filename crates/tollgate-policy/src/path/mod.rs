//! Normalises paths so that they can be compared.
//!
//! # Theory
//!
//! Many spellings reach one handler: `/login`, `//login`, `/%6cogin`, `/x/../login`, `/login;a=b`. A limit that
//! compares spellings is bypassed by another spelling. So every path is normalised before it is matched, and a
//! path without a single meaning is a fault:
//!
//! | sent | becomes | why |
//! |---|---|---|
//! | `?` and what follows | dropped | it is the query |
//! | `http://host/x` | `/x` | the absolute form names the same thing |
//! | `x/y` | `/x/y` | no server serves it as anything else |
//! | an escape of a character that may stand in a path | that character | `%6c` is `l`, `%40` is `@` |
//! | any other character | its escape, in upper case | `é` is `%C3%A9`, `%c3%a9` too |
//! | `//` | `/` | |
//! | `.` and `..`, also as `%2e` | resolved; above the root is the root | |
//! | `;` and what follows in a segment | dropped | see below |
//! | a slash at the end | dropped, unless it counts | |
//! | upper case | lower case, if it does not count | also what is not ASCII, escaped or not |
//! | `\`, `%5C`, `%2F`, a raw `#` or space, `..;x`, `.;x` | a fault | servers disagree |
//! | controls, escapes that are none, more than 8 KiB | a fault | |
//!
//! Servers differ on path parameters: some route `/a;b` as `/a`, some do not. Counting it as `/a` is right
//! for the first and only strict for the second. With dots there is no such safe side (`/a/..;/b` is `/b`
//! for the one and below `/a` for the other), so that is a fault.
//!
//! An empty path and the `*` of `OPTIONS *` stay unchanged: they name no path.
//!
//! # Invariant
//!
//! The normal form is ASCII, is its own normal form, and is the same for all spellings in the table. A path that
//! is in normal form already is borrowed, not copied.
//!
//! # Limits
//!
//! Aliases are unknown here: only the server knows that `/v1/x` is served as `/x`. Servers that decode twice
//! (`%2565`), or that look for parameters after decoding (`%3B`), read paths in a way that no standard describes.

use std::borrow::Cow;
use std::fmt;

/// Longer paths are faults.
const LONGEST: usize = 8 * 1024;

/// Rules of normalisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathRules {
    /// Whether upper and lower case are equal.
    pub ignore_case: bool,
    /// Whether a trailing slash counts.
    pub keep_trailing_slash: bool,
}

/// Why a path cannot be normalised safely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathFault {
    /// An encoded slash or backslash, a backslash, a raw `#` or space, or dots with parameters: servers
    /// disagree on what it means.
    Ambiguous,
    /// A control character, encoded or not.
    Control,
    /// A `%` that two hexadecimal digits do not follow.
    Encoding,
    /// Longer than 8 KiB.
    TooLong,
}

impl PathRules {
    /// The normalised path.
    ///
    /// # Errors
    /// A path that servers would read in different ways.
    pub fn normalise<'a>(&self, path: &'a str) -> Result<Cow<'a, str>, PathFault> {
        // Most are normal already: none of the steps below would change them.
        if path.len() <= LONGEST && self.is_normal(path.as_bytes()) {
            return Ok(Cow::Borrowed(path));
        }
        self.normalise_slowly(path)
    }

    fn normalise_slowly<'a>(&self, path: &'a str) -> Result<Cow<'a, str>, PathFault> {
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        if path.len() > LONGEST {
            return Err(PathFault::TooLong);
        }
        let mut path = without_origin(path)?;
        if !self.keep_trailing_slash && path.len() > 1 {
            path = path.strip_suffix('/').unwrap_or(path);
        }
        if self.is_normal(path.as_bytes()) || path.is_empty() || path == "*" {
            return Ok(Cow::Borrowed(path));
        }
        let normal = self.rebuild(path)?;
        if normal.len() > LONGEST {
            // Escapes made it longer than allowed: it would not be its own normal form.
            return Err(PathFault::TooLong);
        }
        Ok(if normal == path {
            Cow::Borrowed(path)
        } else {
            Cow::Owned(normal)
        })
    }

    /// Whether the path is normal already. Errs on the side of no.
    fn is_normal(&self, path: &[u8]) -> bool {
        if path.first() != Some(&b'/') {
            return false;
        }
        let mut at = 0;
        while let Some(&byte) = path.get(at) {
            let class = class(byte);
            // Checked first, because it holds for nearly all paths.
            if class == Class::Plain {
                at += 1;
                continue;
            }
            match class {
                Class::Upper if !self.ignore_case => at += 1,
                Class::Slash => {
                    match path.get(at + 1..).unwrap_or_default() {
                        [] if at > 0 && !self.keep_trailing_slash => return false,
                        [b'/' | b'.'] | [b'/', ..] | [b'.', b'/', ..] => return false,
                        [b'.', b'.'] | [b'.', b'.', b'/', ..] => return false,
                        _ => {}
                    }
                    at += 1;
                }
                Class::Percent => {
                    let Some([high, low]) = path.get(at + 1..at + 3) else {
                        return false;
                    };
                    let value = match (hex(*high), hex(*low)) {
                        (Some(high), Some(low)) => high << 4 | low,
                        _ => return false,
                    };
                    let upper = !high.is_ascii_lowercase() && !low.is_ascii_lowercase();
                    // Non-ASCII characters may have another case.
                    let stays = stays_escaped(value) && !(self.ignore_case && value >= 0x80);
                    if !upper || !stays {
                        return false;
                    }
                    at += 3;
                }
                _ => return false,
            }
        }
        true
    }

    fn rebuild(&self, path: &str) -> Result<String, PathFault> {
        let mut out = String::with_capacity(path.len() + 16);
        let mut open = false;
        for segment in path.strip_prefix('/').unwrap_or(path).split('/') {
            let start = out.len();
            out.push('/');
            let parameters = self.push_segment(segment, &mut out)?;
            let dots = match out.get(start + 1..) {
                Some("..") => 2,
                Some(".") => 1,
                Some("") | None => 0,
                Some(_) => {
                    open = false;
                    continue;
                }
            };
            if dots > 0 && parameters {
                return Err(PathFault::Ambiguous);
            }
            open = true;
            out.truncate(start);
            if dots == 2 {
                out.truncate(out.rfind('/').unwrap_or(0));
            }
        }
        if out.is_empty() || (open && self.keep_trailing_slash) {
            out.push('/');
        }
        Ok(out)
    }

    /// Writes a segment in normal form, without parameters. Returns whether it had any.
    fn push_segment(&self, segment: &str, out: &mut String) -> Result<bool, PathFault> {
        let mut parameters = false;
        // Consecutive non-ASCII bytes; together they may be characters that have a case.
        let mut wide = Vec::new();
        let mut bytes = segment.bytes();
        while let Some(byte) = bytes.next() {
            let escaped = byte == b'%';
            let value = if escaped {
                let mut digit = || bytes.next().and_then(hex).ok_or(PathFault::Encoding);
                digit()? << 4 | digit()?
            } else {
                byte
            };
            match class(value) {
                Class::Control => return Err(PathFault::Control),
                Class::Slash | Class::Backslash => return Err(PathFault::Ambiguous),
                Class::Delimiter if !escaped => return Err(PathFault::Ambiguous),
                Class::Semicolon if !escaped => parameters = true,
                _ => {}
            }
            if parameters {
                // Checked for faults, but not written.
                continue;
            }
            if value >= 0x80 {
                wide.push(value);
                continue;
            }
            self.push_wide(&mut wide, out);
            self.push_byte(value, out);
        }
        self.push_wide(&mut wide, out);
        Ok(parameters)
    }

    fn push_byte(&self, value: u8, out: &mut String) {
        if stays_escaped(value) {
            push_escape(value, out);
        } else if self.ignore_case {
            out.push(char::from(value.to_ascii_lowercase()));
        } else {
            out.push(char::from(value));
        }
    }

    fn push_wide(&self, wide: &mut Vec<u8>, out: &mut String) {
        if wide.is_empty() {
            return;
        }
        if self.ignore_case {
            for chunk in wide.utf8_chunks() {
                // Character by character, so that the form does not depend on the neighbours.
                for low in chunk.valid().chars().flat_map(char::to_lowercase) {
                    let mut buffer = [0; 4];
                    for byte in low.encode_utf8(&mut buffer).bytes() {
                        // The Kelvin sign is a `k` in lower case.
                        self.push_byte(byte, out);
                    }
                }
                chunk.invalid().iter().for_each(|b| push_escape(*b, out));
            }
        } else {
            wide.iter().for_each(|b| push_escape(*b, out));
        }
        wide.clear();
    }
}

/// The path of a request in absolute form; any other path unchanged.
fn without_origin(path: &str) -> Result<&str, PathFault> {
    if path.starts_with('/') {
        return Ok(path);
    }
    let Some((scheme, rest)) = path.split_once("://") else {
        return Ok(path);
    };
    let in_scheme = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.bytes().all(in_scheme) {
        return Ok(path);
    }
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    for byte in authority.bytes() {
        match class(byte) {
            Class::Control => return Err(PathFault::Control),
            // The end of the host is ambiguous then.
            Class::Backslash | Class::Delimiter => return Err(PathFault::Ambiguous),
            _ => {}
        }
    }
    Ok(if path.is_empty() { "/" } else { path })
}

/// The class of a byte in a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// May stand as it is.
    Plain,
    /// As [`Class::Plain`], in upper case.
    Upper,
    Slash,
    Percent,
    Semicolon,
    /// Ends the path, unless it is escaped.
    Delimiter,
    Backslash,
    Control,
    /// Stands only escaped.
    Other,
}

const CLASSES: [Class; 256] = {
    let mut classes = [Class::Other; 256];
    let mut at = 0;
    while at < 256 {
        classes[at] = match at as u8 {
            b'A'..=b'Z' => Class::Upper,
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => Class::Plain,
            // The characters of RFC 3986 without a meaning of their own within a segment.
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b'=' | b':' | b'@' => {
                Class::Plain
            }
            b'/' => Class::Slash,
            b'%' => Class::Percent,
            b';' => Class::Semicolon,
            b'?' | b'#' | b' ' => Class::Delimiter,
            b'\\' => Class::Backslash,
            0..0x20 | 0x7f => Class::Control,
            _ => Class::Other,
        };
        at += 1;
    }
    classes
};

fn class(byte: u8) -> Class {
    CLASSES[usize::from(byte)]
}

/// Whether the byte is written as an escape.
fn stays_escaped(byte: u8) -> bool {
    matches!(
        class(byte),
        Class::Percent | Class::Semicolon | Class::Delimiter | Class::Other
    )
}

fn push_escape(byte: u8, out: &mut String) {
    const DIGITS: [u8; 16] = *b"0123456789ABCDEF";
    out.push('%');
    out.push(char::from(DIGITS[usize::from(byte >> 4)]));
    out.push(char::from(DIGITS[usize::from(byte & 15)]));
}

pub(super) fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

impl fmt::Display for PathFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ambiguous => "the path has a character that servers read in different ways",
            Self::Control => "the path has a control character",
            Self::Encoding => "the path has a `%` that two hexadecimal digits do not follow",
            Self::TooLong => "the path is longer than 8 KiB",
        })
    }
}

impl PathFault {
    /// What to send instead.
    pub fn hint(&self) -> String {
        match self {
            Self::Ambiguous => {
                "send no `\\`, `%5C`, `%2F` or `..;`, and a space or `#` only as `%20` or `%23`"
            }
            Self::Control => "send no characters below `%20`, and no `%7F`",
            Self::Encoding => "send a percent sign that is meant as such as `%25`",
            Self::TooLong => "send what is long in the body",
        }
        .into()
    }
}

impl std::error::Error for PathFault {}

#[cfg(test)]
pub(super) mod tests;
