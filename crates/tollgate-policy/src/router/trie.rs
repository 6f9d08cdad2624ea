//! A trie of path patterns by their segments.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::super::pattern::{PathPattern, RemainingSegments, Segment, TextPattern};
use super::{Ids, Map, Quick, put};

/// Deeper segments are not compared: all patterns with an equal start are candidates. Bounds the recursion.
const DEEPEST: usize = 32;

/// A node of the trie.
#[derive(Debug, Default)]
pub(super) struct Trie {
    literal: HashMap<Box<str>, Trie, BuildHasherDefault<Quick>>,
    like: Vec<(TextPattern, Trie)>,
    /// Any one segment.
    one: Option<Box<Trie>>,
    /// Patterns that end here.
    ends: Vec<usize>,
    /// Patterns with `**` here.
    below: Vec<usize>,
    /// Those with `**` that end with a literal segment, by that segment.
    tails: Map<Box<str>>,
}

/// Whether a pattern requires anything that not every path has.
pub(super) fn is_selective(pattern: &PathPattern) -> bool {
    let mut segments = pattern.segments().iter().take(DEEPEST);
    let mut prefix = segments.by_ref().take_while(|s| **s != Segment::Many);
    prefix.any(|s| matches!(s, Segment::Literal(_) | Segment::Like(_)))
        || pattern.segments().is_empty()
        || tail(pattern.segments()).is_some()
}

/// The last literal segment of a pattern with `**`.
fn tail(segments: &[Segment]) -> Option<&str> {
    match segments.last() {
        Some(Segment::Literal(text)) if segments.contains(&Segment::Many) => Some(text),
        _ => None,
    }
}

impl Trie {
    pub(super) fn insert(&mut self, pattern: &PathPattern, id: usize) {
        let mut node = self;
        for (depth, segment) in pattern.segments().iter().enumerate() {
            if depth == DEEPEST {
                return put(&mut node.below, id);
            }
            node = match segment {
                Segment::Literal(text) => node.literal.entry(text.as_str().into()).or_default(),
                Segment::Like(text) => node.like_child(text),
                Segment::One | Segment::Capture(_) => node.one.get_or_insert_default(),
                Segment::Many => {
                    let ids = match tail(pattern.segments()) {
                        Some(word) => node.tails.entry(word.into()).or_default(),
                        None => &mut node.below,
                    };
                    return put(ids, id);
                }
            };
        }
        put(&mut node.ends, id);
    }

    /// Whether no pattern is here.
    pub(super) fn is_empty(&self) -> bool {
        self.literal.is_empty()
            && self.like.is_empty()
            && self.one.is_none()
            && self.ends.is_empty()
            && self.below.is_empty()
            && self.tails.is_empty()
    }

    fn like_child(&mut self, text: &TextPattern) -> &mut Trie {
        let at = self.like.iter().position(|(own, _)| own == text);
        let at = at.unwrap_or(self.like.len());
        if at == self.like.len() {
            self.like.push((text.clone(), Trie::default()));
        }
        let (_, child) = &mut self.like[at];
        child
    }

    /// Finds the patterns that may match a normalised path.
    pub(super) fn find(&self, path: &str, ids: &mut Ids) {
        // The patterns decide whether a trailing slash counts.
        let open = path.strip_suffix('/').filter(|path| !path.is_empty());
        let path = open.unwrap_or(path);
        if let Some(rest) = RemainingSegments::new(path) {
            self.walk(rest, path, ids);
        }
    }

    /// `path` is the whole path, `rest` the remaining segments.
    fn walk(&self, mut rest: RemainingSegments<'_>, path: &str, ids: &mut Ids) {
        ids.add(&self.below);
        if !self.tails.is_empty() {
            let last = path.rsplit_once('/').map_or("", |(_, last)| last);
            ids.add(self.tails.get(last).map_or(&[], Vec::as_slice));
        }
        let Some(segment) = rest.next() else {
            return ids.add(&self.ends);
        };
        if let Some(child) = self.literal.get(segment) {
            child.walk(rest, path, ids);
        }
        if let Some(child) = &self.one {
            child.walk(rest, path, ids);
        }
        for (text, child) in &self.like {
            if text.matches(segment.as_bytes()) {
                child.walk(rest, path, ids);
            }
        }
    }
}
