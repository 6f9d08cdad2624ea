//! An independent reader of replies of the Redis protocol, both versions: as much of it as a test needs.

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`.
    Simple(Vec<u8>),
    /// `-ERR ...`.
    Error(Vec<u8>),
    /// A number, which depends on the time in most replies.
    Number(i64),
    /// A text.
    Bulk(Vec<u8>),
    /// A null.
    Nil,
    /// A boolean.
    Boolean(bool),
    /// An array, or a map as pairs one after the other.
    Array(Vec<Reply>),
}

/// All replies of a stream; none if one is incomplete.
pub fn all(mut bytes: &[u8]) -> Option<Vec<Reply>> {
    let mut replies = Vec::new();
    while !bytes.is_empty() {
        replies.push(one(&mut bytes)?);
    }
    Some(replies)
}

fn one(bytes: &mut &[u8]) -> Option<Reply> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let (line, rest) = (bytes.get(1..end)?, bytes.get(end + 2..)?);
    let kind = *bytes.first()?;
    *bytes = rest;
    let number = || std::str::from_utf8(line).ok()?.parse::<i64>().ok();
    let size = || usize::try_from(number()?).ok();
    Some(match kind {
        b'+' => Reply::Simple(line.to_vec()),
        b'-' if line.iter().all(|byte| *byte >= b' ') => Reply::Error(line.to_vec()),
        b':' => Reply::Number(number()?),
        b'_' if line.is_empty() => Reply::Nil,
        b'#' => Reply::Boolean(match line {
            b"t" => true,
            b"f" => false,
            _ => return None,
        }),
        b'$' if line == b"-1" => Reply::Nil,
        b'$' => {
            let (text, rest) = rest.split_at_checked(size()?)?;
            *bytes = rest.strip_prefix(b"\r\n")?;
            Reply::Bulk(text.to_vec())
        }
        b'*' => array(size()?, bytes)?,
        b'%' => array(size()?.checked_mul(2)?, bytes)?,
        _ => return None,
    })
}

fn array(count: usize, bytes: &mut &[u8]) -> Option<Reply> {
    let items = (0..count).map(|_| one(bytes));
    items.collect::<Option<Vec<_>>>().map(Reply::Array)
}

impl Reply {
    /// Without parts that depend on time or chance: numbers, and names of reservations.
    pub fn timeless(self) -> Reply {
        let is_name = |text: &[u8]| text.len() == 32 && text.iter().all(u8::is_ascii_hexdigit);
        match self {
            Reply::Number(_) => Reply::Number(0),
            Reply::Bulk(text) if is_name(&text) => Reply::Bulk(b"a name".to_vec()),
            Reply::Array(items) => Reply::Array(items.into_iter().map(Reply::timeless).collect()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_both_versions_are_read_and_incomplete_ones_are_none() {
        let text = b"+OK\r\n$-1\r\n_\r\n%1\r\n$1\r\na\r\n#t\r\n*2\r\n:-3\r\n-ERR x\r\n";
        let replies = all(text).unwrap();
        assert_eq!(replies.len(), 5);
        let pairs = vec![Reply::Bulk(b"a".to_vec()), Reply::Boolean(true)];
        assert_eq!(replies[3], Reply::Array(pairs));
        assert_eq!(all(&text[..text.len() - 1]), None);
        assert_eq!(all(b"x\r\n"), None);
    }
}
