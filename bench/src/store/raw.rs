//! Commands as bytes over one connection, so many at a time. It knows where a reply ends and whether it is an error.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

/// A command as it is sent.
pub(crate) fn encoded<'a>(words: impl IntoIterator<Item = &'a [u8], IntoIter: Clone>) -> Vec<u8> {
    let words = words.into_iter();
    let mut bytes = format!("*{}\r\n", words.clone().count()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A connection to a server.
pub(crate) struct Connection {
    stream: TcpStream,
    /// What was read and is no whole reply yet.
    read: Vec<u8>,
}

/// What was answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) count: u64,
    pub(crate) errors: u64,
}

impl Connection {
    pub(crate) fn to(port: u16) -> io::Result<Connection> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            read: Vec::new(),
        })
    }

    /// Sends the commands over and over, `depth` at a time, until the time is over.
    pub(crate) fn run(
        &mut self,
        commands: &[Vec<u8>],
        depth: usize,
        time: Duration,
    ) -> io::Result<Answers> {
        let begin = Instant::now();
        let mut answers = Answers::default();
        let mut batch = Vec::new();
        loop {
            for chunk in commands.chunks(depth) {
                batch.clear();
                chunk
                    .iter()
                    .for_each(|command| batch.extend_from_slice(command));
                self.stream.write_all(&batch)?;
                self.answers(chunk.len(), &mut answers)?;
                if begin.elapsed() >= time {
                    return Ok(answers);
                }
            }
        }
    }

    fn answers(&mut self, count: usize, answers: &mut Answers) -> io::Result<()> {
        let mut seen = 0;
        let mut from = 0;
        let mut room = [0; 64 << 10];
        while seen < count {
            while seen < count
                && let Some(end) = end_of(self.read.get(from..).unwrap_or_default())
            {
                answers.errors += u64::from(self.read.get(from) == Some(&b'-'));
                from += end;
                seen += 1;
            }
            if seen == count {
                break;
            }
            let read = self.stream.read(&mut room)?;
            if read == 0 {
                return Err(io::Error::other("the server hung up"));
            }
            self.read
                .extend_from_slice(room.get(..read).unwrap_or_default());
        }
        self.read.drain(..from);
        answers.count += count as u64;
        Ok(())
    }
}

/// Where the first reply ends, if it is all there.
fn end_of(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || {
        let text = std::str::from_utf8(bytes.get(1..line - 2)?).ok()?;
        text.parse::<i64>().ok()
    };
    match bytes.first()? {
        b'$' => match usize::try_from(number()?) {
            Ok(length) => Some(line + length + 2).filter(|end| bytes.len() >= *end),
            Err(_) => Some(line),
        },
        b'*' => {
            let mut end = line;
            for _ in 0..number()?.max(0) {
                end += end_of(bytes.get(end..)?)?;
            }
            Some(end)
        }
        _ => Some(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_reply_is_found_only_when_it_is_all_there() {
        let reply = b"*3\r\n:1\r\n*2\r\n$3\r\nabc\r\n$-1\r\n-ERR x\r\n";
        for cut in 0..reply.len() {
            assert_eq!(end_of(&reply[..cut]), None, "cut at {cut}");
        }
        assert_eq!(end_of(reply), Some(reply.len()));
        assert_eq!(end_of(b":1\r\n:2\r\n"), Some(4));
    }

    #[test]
    fn a_command_is_encoded_with_its_lengths() {
        let words: [&[u8]; 2] = [b"GET", b"a\0b"];
        assert_eq!(encoded(words), b"*2\r\n$3\r\nGET\r\n$3\r\na\0b\r\n");
    }
}
