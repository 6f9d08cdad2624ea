//! Patterns for texts and paths.
//!
//! # Theory
//!
//! Two small languages instead of regular expressions, so that a dot in a file name needs no escape:
//!
//! - a [`TextPattern`] is a text in which `*` stands for any run of bytes, also an empty one;
//! - a [`PathPattern`] is a path whose segments are texts, patterns of that kind (`*.pdf`), a `*` or
//!   `{name}` for exactly one segment that is not empty, or `**` for any number of segments, also none.
//!
//! Both match without recursion and with one position to return to: when the text after a `*` does not match here,
//! only the last `*` has to take more, because an earlier one taking more could match nothing that the last
//! cannot. A text is matched in linear time. A path costs its segments times those of the pattern at worst.
//! Nothing is copied.
//!
//! # Limits
//!
//! A pattern is read for paths whose case counts and whose trailing slash does not. [`PathPattern::with_rules`] adapts
//! it to other rules.

use std::fmt;

use super::path::PathRules;

mod text;

pub use text::TextPattern;

/// A path with wildcards and captures: `/api/rides/{ride}/cancel`, `/admin/**`, `/files/*.pdf`.
///
/// A slash at the end of the pattern: `/a/` is like `/a` where such slashes do not count (and matches
/// `/a/` too), and is only `/a/` once it is [`with_rules`](PathPattern::with_rules) rules that keep them. `**` at
/// the end also stands for nothing: `/admin/**` matches `/admin`. No pattern matches the empty path or
/// the `*` of `OPTIONS *`, because these name no path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    segments: Vec<Segment>,
    slash: Slash,
}

/// A segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// A literal segment.
    Literal(String),
    /// One segment that matches the pattern.
    Like(TextPattern),
    /// One segment (`*`).
    One,
    /// One named segment (`{name}`).
    Capture(String),
    /// Any number of segments (`**`).
    Many,
}

/// The trailing slash of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slash {
    /// The pattern has none, and the path must have none.
    None,
    /// The path may have one.
    Optional,
    /// The path must have one.
    Required,
}

/// Why a text is not a path pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatternError {
    /// It does not begin with a slash.
    NoSlash,
    /// A `{` without its `}`, or a `}` without its `{`.
    Brace,
    /// A capture with an invalid name.
    CaptureName,
    /// A capture beside other characters of its segment.
    PartialCapture,
    /// Two captures with one name.
    SameCapture,
    /// `**` beside other characters of its segment.
    Globstar,
    /// A path that no request has after normalisation.
    NotNormal {
        /// The pattern that was probably meant.
        meant: Option<String>,
    },
}

impl PathPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// A text that no path can match.
    pub fn new(text: &str) -> Result<PathPattern, PatternError> {
        let body = text.strip_prefix('/').ok_or(PatternError::NoSlash)?;
        let (body, slash) = match body.strip_suffix('/') {
            Some(body) => (body, Slash::Optional),
            None => (body, Slash::None),
        };
        let mut segments = Vec::new();
        let mut normal = true;
        if text != "/" {
            for segment in body.split('/') {
                let (read, as_written) = read_segment(segment)?;
                if let Segment::Capture(name) = &read
                    && segments
                        .iter()
                        .any(|s| matches!(s, Segment::Capture(n) if n == name))
                {
                    return Err(PatternError::SameCapture);
                }
                normal &= as_written;
                segments.push(read);
            }
        }
        if !normal {
            let meant = meant(text).filter(|meant| meant != text);
            return Err(PatternError::NotNormal { meant });
        }
        Ok(PathPattern {
            text: text.into(),
            segments,
            slash,
        })
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a normalised path matches.
    pub fn matches(&self, path: &str) -> bool {
        self.walk(path, None).is_some()
    }

    /// The names of its captures.
    pub fn captures(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Capture(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// The segment of `path` at the capture `name`, if the path matches.
    pub fn capture<'p>(&self, name: &str, path: &'p str) -> Option<&'p str> {
        self.walk(path, Some(name))?
    }

    /// The pattern for paths in lower case. Names of captures stay as they are.
    pub fn lowercased(&self) -> PathPattern {
        let lower = PathRules {
            ignore_case: true,
            ..PathRules::default()
        };
        let segments = self.segments.iter().map(|segment| match segment {
            Segment::Literal(text) => Segment::Literal(folded(lower, text)),
            Segment::Like(text) => Segment::Like(TextPattern::new(&folded(lower, text.as_str()))),
            other => other.clone(),
        });
        PathPattern {
            text: self.text.clone(),
            segments: segments.collect(),
            slash: self.slash,
        }
    }

    /// The pattern for paths that were normalised by these rules.
    pub fn with_rules(&self, rules: PathRules) -> PathPattern {
        let mut pattern = if rules.ignore_case {
            self.lowercased()
        } else {
            self.clone()
        };
        if pattern.slash == Slash::Optional && rules.keep_trailing_slash {
            pattern.slash = Slash::Required;
        }
        pattern
    }

    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// If the path matches, the segment at the capture `name`.
    fn walk<'p>(&self, path: &'p str, name: Option<&str>) -> Option<Option<&'p str>> {
        let path = match self.slash {
            Slash::None => path,
            Slash::Optional => path
                .strip_suffix('/')
                .filter(|p| !p.is_empty())
                .unwrap_or(path),
            Slash::Required => path.strip_suffix('/').filter(|p| !p.is_empty())?,
        };
        let mut rest = RemainingSegments::new(path)?;
        let mut wanted = self.segments.as_slice();
        let mut captured = None;
        // The position to return to if the rest does not match: after the last `**`, one segment later.
        let mut again: Option<(&[Segment], RemainingSegments<'p>)> = None;
        loop {
            match wanted {
                [Segment::Many] => return Some(captured),
                [Segment::Many, behind @ ..] => {
                    again = Some((behind, rest));
                    wanted = behind;
                    continue;
                }
                [first, behind @ ..] => {
                    let mut ahead = rest;
                    if let Some(segment) = ahead.next()
                        && first.is_like(segment)
                    {
                        if let (Segment::Capture(own), Some(name)) = (first, name)
                            && own == name
                        {
                            captured = Some(segment);
                        }
                        (wanted, rest) = (behind, ahead);
                        continue;
                    }
                }
                [] if rest.is_done() => return Some(captured),
                [] => {}
            }
            let (behind, later) = again.as_mut()?;
            later.next()?;
            (wanted, rest) = (*behind, *later);
        }
    }
}

/// The remaining segments of a path.
#[derive(Clone, Copy)]
pub(super) struct RemainingSegments<'p>(Option<&'p str>);

impl<'p> RemainingSegments<'p> {
    /// All segments of a normalised path; the root has none.
    pub(super) fn new(path: &'p str) -> Option<RemainingSegments<'p>> {
        let body = path.strip_prefix('/')?;
        Some(RemainingSegments((!body.is_empty()).then_some(body)))
    }

    pub(super) fn next(&mut self) -> Option<&'p str> {
        let rest = self.0?;
        // Segments are short: checking each byte is faster than a search made for long texts.
        let end = rest.bytes().position(|b| b == b'/');
        let (segment, rest) = match end {
            Some(end) => (rest.get(..end)?, rest.get(end + 1..)),
            None => (rest, None),
        };
        self.0 = rest;
        Some(segment)
    }

    pub(super) fn is_done(self) -> bool {
        self.0.is_none()
    }
}

impl Segment {
    fn is_like(&self, segment: &str) -> bool {
        match self {
            Segment::Literal(text) => text == segment,
            Segment::Like(text) => text.matches(segment.as_bytes()),
            Segment::One | Segment::Capture(_) => !segment.is_empty(),
            Segment::Many => true,
        }
    }
}

/// Reads a segment. Returns also whether it is in normal form, or has only characters that may be written so.
fn read_segment(segment: &str) -> Result<(Segment, bool), PatternError> {
    if let Some(name) = capture_name(segment)? {
        return Ok((Segment::Capture(name.into()), true));
    }
    match segment {
        "**" => return Ok((Segment::Many, true)),
        "*" => return Ok((Segment::One, true)),
        _ if segment.contains("**") => return Err(PatternError::Globstar),
        _ => {}
    }
    let form = normal_segment(segment).unwrap_or_default();
    // A pattern may contain `é`, which paths contain as an escape.
    let mut escaped = String::new();
    for c in segment.chars() {
        if c.is_ascii() {
            escaped.push(c);
        } else {
            let mut buffer = [0; 4];
            for byte in c.encode_utf8(&mut buffer).bytes() {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    let as_written = !segment.is_empty() && form == escaped;
    let read = if form.contains('*') {
        Segment::Like(TextPattern::new(&form))
    } else {
        Segment::Literal(form)
    };
    Ok((read, as_written))
}

/// The name, if the segment is a capture.
fn capture_name(segment: &str) -> Result<Option<&str>, PatternError> {
    let (mut opened, mut closed) = (0, 0);
    for byte in segment.bytes() {
        match byte {
            b'{' => opened += 1,
            b'}' => closed += 1,
            _ => continue,
        }
        if opened < closed || opened > closed + 1 {
            return Err(PatternError::Brace);
        }
    }
    if opened != closed {
        return Err(PatternError::Brace);
    }
    if opened == 0 {
        return Ok(None);
    }
    let name = segment.strip_prefix('{').and_then(|s| s.strip_suffix('}'));
    let name = name
        .filter(|_| opened == 1)
        .ok_or(PatternError::PartialCapture)?;
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let may_follow = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if !starts || !name.bytes().all(may_follow) {
        return Err(PatternError::CaptureName);
    }
    Ok(Some(name))
}

/// A segment in normal form; empty if nothing of it is left.
fn normal_segment(segment: &str) -> Option<String> {
    if segment.contains('?') {
        return None;
    }
    let path = format!("/{segment}");
    let form = PathRules::default().normalise(&path).ok()?;
    Some(form.strip_prefix('/')?.into())
}

/// The normal form of a pattern that is not normal.
fn meant(text: &str) -> Option<String> {
    let mut out: Vec<String> = Vec::new();
    for segment in text.split('/') {
        if segment == "**" || capture_name(segment).ok()?.is_some() {
            out.push(segment.into());
            continue;
        }
        if segment.replace("%2e", ".").replace("%2E", ".") == ".." {
            out.pop();
            continue;
        }
        match normal_segment(segment)? {
            form if form.is_empty() => {}
            form => out.push(form),
        }
    }
    Some(format!("/{}", out.join("/")))
}

/// A text of a segment in lower case, with its escapes as they are in paths.
fn folded(lower: PathRules, text: &str) -> String {
    match lower.normalise(&format!("/{text}")) {
        Ok(form) => form.strip_prefix('/').unwrap_or(&form).into(),
        Err(_) => text.into(),
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSlash => "a path pattern begins with `/`",
            Self::Brace => "a `{` or `}` is alone",
            Self::CaptureName => "the name of a capture is not a name",
            Self::PartialCapture => "a capture is not the whole of its segment",
            Self::SameCapture => "two captures have the same name",
            Self::Globstar => "`**` is not the whole of its segment",
            Self::NotNormal { .. } => "no request has such a path after normalisation",
        })
    }
}

impl PatternError {
    /// What the writer can do now.
    pub fn hint(&self) -> String {
        match self {
            Self::NoSlash => "write `/` first; `/**` is for every path".into(),
            Self::Brace => "write `{name}` for one segment, and `%7B` for a brace".into(),
            Self::CaptureName => {
                "write a letter, then letters, digits, `_` and `-`: `{ride_id}`".into()
            }
            Self::PartialCapture => "write `/{name}/` alone, or `*` within a segment: `v*`".into(),
            Self::SameCapture => "give each capture a name of its own".into(),
            Self::Globstar => "write `*` within a segment, `/**/` for any number of them".into(),
            Self::NotNormal { meant: Some(meant) } => format!("write `{meant}`"),
            Self::NotNormal { meant: None } => {
                "write the path alone, without `?`, `#`, `\\`, spaces and `%2F`".into()
            }
        }
    }
}

impl std::error::Error for PatternError {}

#[cfg(test)]
mod tests;
