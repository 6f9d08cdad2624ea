//! The no-op Redis server: one thread on epoll that finds the end of every command and answers a constant.
//!
//! The constant is the answer of `CL.THROTTLE` when a request passes. All commands of one read are answered in one write.
//!
//! # What it does not know
//!
//! Inline commands, bounds, and clients that do not read: its only client is the load of this program.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

const ANSWER: &[u8] = b"*5\r\n:0\r\n:100001\r\n:100000\r\n:-1\r\n:3600\r\n";
const LISTENER: Token = Token(usize::MAX);
const READ: usize = 64 << 10;

struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
    come: usize,
    out: Vec<u8>,
}

/// Serves on this port until the process is killed.
pub(crate) fn run(port: u16) -> io::Result<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut listener = TcpListener::bind(address)?;
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(256);
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            polled => polled?,
        }
        for event in &events {
            if event.token() == LISTENER {
                accept(&listener, &poll, &mut connections)?;
                continue;
            }
            let place = connections.get_mut(event.token().0);
            let Some(place) = place else { continue };
            let is_gone = place.as_mut().is_some_and(|open| open.answer().is_err());
            if is_gone {
                // Closing it takes it out of the poll.
                *place = None;
            }
        }
    }
}

fn accept(
    listener: &TcpListener,
    poll: &Poll,
    connections: &mut Vec<Option<Connection>>,
) -> io::Result<()> {
    loop {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        stream.set_nodelay(true)?;
        let free = connections.iter().position(Option::is_none);
        let at = free.unwrap_or(connections.len());
        if free.is_none() {
            connections.push(None);
        }
        poll.registry()
            .register(&mut stream, Token(at), Interest::READABLE)?;
        connections[at] = Some(Connection {
            stream,
            read: vec![0; READ],
            come: 0,
            out: Vec::new(),
        });
    }
}

impl Connection {
    /// Answers all that has come; an error is the end of the connection.
    fn answer(&mut self) -> io::Result<()> {
        loop {
            let space = self.read.len() - self.come;
            let len = match self.stream.read(&mut self.read[self.come..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            self.come += len;
            let mut used = 0;
            while let Some(len) = command(&self.read[used..self.come])? {
                used += len;
                self.out.extend_from_slice(ANSWER);
            }
            self.read.copy_within(used..self.come, 0);
            self.come -= used;
            self.stream.write_all(&self.out)?;
            self.out.clear();
            // What comes after a read that was not full raises an event of its own.
            if len < space {
                return Ok(());
            }
        }
    }
}

/// The length of the first command, if it is complete.
fn command(bytes: &[u8]) -> io::Result<Option<usize>> {
    let mut at = 0;
    let Some(words) = header(bytes, &mut at, b'*')? else {
        return Ok(None);
    };
    for _ in 0..words {
        let Some(len) = header(bytes, &mut at, b'$')? else {
            return Ok(None);
        };
        at += len + 2;
        if at > bytes.len() {
            return Ok(None);
        }
    }
    Ok(Some(at))
}

/// A sign, a number and the end of a line.
fn header(bytes: &[u8], at: &mut usize, sign: u8) -> io::Result<Option<usize>> {
    let Some((&first, rest)) = bytes.get(*at..).and_then(<[u8]>::split_first) else {
        return Ok(None);
    };
    if first != sign {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut number = 0;
    for (place, &byte) in rest.iter().enumerate() {
        match byte {
            b'0'..=b'9' if place < 6 => number = number * 10 + usize::from(byte - b'0'),
            b'\r' => {
                if rest.len() < place + 2 {
                    return Ok(None);
                }
                *at += place + 3;
                return Ok(Some(number));
            }
            _ => return Err(ErrorKind::InvalidData.into()),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_delimited_only_when_it_is_complete() {
        let one = b"*3\r\n$3\r\nGET\r\n$2\r\nab\r\n$0\r\n\r\n";
        for len in 0..one.len() {
            assert_eq!(command(&one[..len]).unwrap(), None, "after {len}");
        }
        let two = [&one[..], &one[..]].concat();
        assert_eq!(command(&two).unwrap(), Some(one.len()));
        assert!(command(b"PING\r\n").is_err());
        assert!(command(b"*1\r\n$-1\r\n").is_err());
    }
}
