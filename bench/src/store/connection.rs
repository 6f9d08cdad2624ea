//! Encoded commands over one connection, a fixed number at a time. Replies are delimited and not parsed.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use tollgate_testkit::resp::RespFramer;

/// A connection to a server.
pub(crate) struct Connection {
    stream: TcpStream,
    replies: RespFramer,
}

/// Counts of replies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Replies {
    pub(crate) count: u64,
    pub(crate) errors: u64,
}

impl Connection {
    pub(crate) fn new(port: u16) -> io::Result<Connection> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            replies: RespFramer::replies(),
        })
    }

    /// Sends the commands over and over, `depth` at a time, until the time is over.
    pub(crate) fn run(
        &mut self,
        commands: &[Vec<u8>],
        depth: usize,
        time: Duration,
    ) -> io::Result<Replies> {
        let begin = Instant::now();
        let mut replies = Replies::default();
        loop {
            for batch in commands.chunks(depth) {
                self.stream.write_all(&batch.concat())?;
                self.read(batch.len() as u64, &mut replies)?;
                if begin.elapsed() >= time {
                    return Ok(replies);
                }
            }
        }
    }

    fn read(&mut self, count: u64, replies: &mut Replies) -> io::Result<()> {
        let until = replies.count + count;
        let mut buffer = [0; 64 << 10];
        while replies.count < until {
            let read = self.stream.read(&mut buffer)?;
            if read == 0 {
                return Err(io::Error::other("the server closed the connection"));
            }
            let mut bytes = &buffer[..read];
            while let Some(first) = bytes.first() {
                replies.errors += u64::from(self.replies.is_between() && *first == b'-');
                let invalid = |_| io::Error::other("the server does not speak RESP");
                let (used, end) = self.replies.advance(bytes).map_err(invalid)?;
                replies.count += u64::from(end.is_some());
                bytes = &bytes[used..];
            }
        }
        Ok(())
    }
}
