//! Text patterns, in which `*` stands for any run of bytes.

/// A text with `*` for any run of characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPattern {
    text: String,
    runs: Option<Runs>,
}

/// The texts around the stars of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Runs {
    /// Length of the text before the first star.
    before: usize,
    /// Start of the text after the last star.
    behind: usize,
    /// The non-empty texts between stars, in order.
    between: Box<[Piece]>,
}

/// A text to search, with its Knuth-Morris-Pratt table for linear time, because clients choose the searched text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    text: Box<[u8]>,
    /// For each position: how much of the text is still matched if the next byte differs.
    falls: Box<[usize]>,
}

impl TextPattern {
    /// Reads a pattern; every text is one.
    pub fn new(text: &str) -> TextPattern {
        let runs = text.find('*').zip(text.rfind('*')).map(|(first, last)| {
            let between = text.get(first..last).unwrap_or_default();
            let pieces = between.split('*').filter(|piece| !piece.is_empty());
            Runs {
                before: first,
                behind: last + 1,
                between: pieces.map(|piece| Piece::new(piece.as_bytes())).collect(),
            }
        });
        TextPattern {
            text: text.into(),
            runs,
        }
    }

    /// Whether `text` matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        let own = self.text.as_bytes();
        let Some(runs) = &self.runs else {
            return own == text;
        };
        let (before, behind) = (own.get(..runs.before), own.get(runs.behind..));
        let inner = text
            .strip_prefix(before.unwrap_or_default())
            .and_then(|rest| rest.strip_suffix(behind.unwrap_or_default()));
        let Some(mut rest) = inner else {
            return false;
        };
        for piece in &runs.between {
            match piece.end_in(rest) {
                Some(end) => rest = rest.get(end..).unwrap_or_default(),
                None => return false,
            }
        }
        true
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The text, if it has no `*`.
    pub fn exact(&self) -> Option<&str> {
        self.runs.is_none().then_some(&self.text)
    }

    /// Whether every text matches.
    pub fn is_any(&self) -> bool {
        !self.text.is_empty() && self.text.bytes().all(|b| b == b'*')
    }
}

impl Piece {
    fn new(text: &[u8]) -> Piece {
        let mut falls = vec![0; text.len()];
        let mut read = 0;
        for (at, byte) in text.iter().enumerate().skip(1) {
            read = step(text, &falls, read, *byte);
            if let Some(fall) = falls.get_mut(at) {
                *fall = read;
            }
        }
        Piece {
            text: text.into(),
            falls: falls.into(),
        }
    }

    /// Its first end in `text`.
    fn end_in(&self, text: &[u8]) -> Option<usize> {
        let mut read = 0;
        for (at, byte) in text.iter().enumerate() {
            read = step(&self.text, &self.falls, read, *byte);
            if read == self.text.len() {
                return Some(at + 1);
            }
        }
        None
    }
}

/// How much of `text` is matched after one more byte.
fn step(text: &[u8], falls: &[usize], mut read: usize, byte: u8) -> usize {
    loop {
        if text.get(read) == Some(&byte) {
            return read + 1;
        }
        match read.checked_sub(1).and_then(|last| falls.get(last)) {
            Some(fall) => read = *fall,
            None => return 0,
        }
    }
}
