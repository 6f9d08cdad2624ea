//! One direction of one connection: bytes wait in a queue until the faults let them pass.
//!
//! # Invariant
//!
//! Bytes stay in order, and when they are due follows from the faults of *now*, not from those at their arrival: new faults
//! apply at once to bytes that are already queued.

use std::collections::VecDeque;
use std::io;
use std::net::Shutdown;
use std::time::Duration;

use fastrand::Rng;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::faults::{Direction, Link};
use super::shaper::{Piece, Shaper};
use super::state::ActiveFaults;

/// Bound of queued bytes. Above it the sender waits: its own buffers fill.
const QUEUE: usize = 1 << 20;
/// How much is read at once.
const READ: usize = 64 << 10;
/// Longer than any test.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// How often in a second a link with a limited bandwidth passes bytes.
const TICKS: u64 = 50;

/// How a direction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PipeEnd {
    /// Its sender closed it, and so did the proxy towards the receiver. The other direction may continue.
    Closed,
    /// The whole connection is closed.
    Over,
    /// The whole connection is reset.
    Reset,
}

pub(super) struct Pipe<'a> {
    direction: Direction,
    from: &'a TcpStream,
    to: &'a TcpStream,
    state: watch::Receiver<ActiveFaults>,
    /// The faults at the start of the connection, to detect later resets and closes.
    first: ActiveFaults,
    shaper: Shaper,
    rng: Rng,
    queue: VecDeque<QueuedPiece>,
    queued_bytes: usize,
    /// When the sender closed its side, or failed.
    ended: Option<(Instant, PipeEnd)>,
    /// The receiver gets nothing more; further bytes are dropped.
    mute: bool,
    /// When the last bytes went, and how many.
    last: Option<(Instant, usize)>,
}

struct QueuedPiece {
    piece: Piece,
    received_at: Instant,
    /// Fraction of the jitter that it gets, in 2^-32.
    jitter_fraction: u32,
}

/// What can be done next.
#[derive(Clone, Copy)]
enum PipeAction {
    Write,
    Take,
    End,
}

impl<'a> Pipe<'a> {
    pub(super) fn new(
        direction: Direction,
        (from, to): (&'a TcpStream, &'a TcpStream),
        state: watch::Receiver<ActiveFaults>,
        first: ActiveFaults,
        shaper: Shaper,
        rng: Rng,
    ) -> Pipe<'a> {
        Pipe {
            direction,
            from,
            to,
            state,
            first,
            shaper,
            rng,
            queue: VecDeque::new(),
            queued_bytes: 0,
            ended: None,
            mute: false,
            last: None,
        }
    }

    /// Forwards bytes until the direction ends.
    pub(super) async fn run(mut self) -> PipeEnd {
        loop {
            let active = *self.state.borrow_and_update();
            if active.resets != self.first.resets {
                return PipeEnd::Reset;
            }
            if active.closes(self.direction) != self.first.closes(self.direction) && !self.mute {
                self.silence();
                self.close();
            }
            let link = active.link(self.direction);
            let next = self.next(&link);
            let may_read = self.ended.is_none() && self.queued_bytes < QUEUE;
            let (from, to) = (self.from, self.to);
            tokio::select! {
                changed = self.state.changed() => {
                    if changed.is_err() {
                        return PipeEnd::Over;
                    }
                }
                _ = from.readable(), if may_read => self.read(),
                action = ready_action(next, to), if next.is_some() => {
                    if let Some(end) = self.action(action, &link) {
                        return end;
                    }
                }
            }
        }
    }

    /// The next action and its time; `None` as long as the faults forbid it.
    fn next(&self, link: &Link) -> Option<(Instant, PipeAction)> {
        if link.black_hole {
            return None;
        }
        // A reset overtakes everything: it is no part of the stream.
        if let Some((at, PipeEnd::Reset)) = self.ended {
            return Some((at, PipeAction::End));
        }
        let free = self.last.map(|(at, bytes)| later(at, pause(link, bytes)));
        if let Some(queued) = self.queue.front() {
            let due = later(
                later(queued.received_at, link.latency),
                part(link.jitter, queued.jitter_fraction),
            );
            let due = free.map_or(due, |free| free.max(due));
            let action = match queued.piece {
                Piece::Bytes(_) => PipeAction::Write,
                _ => PipeAction::Take,
            };
            return Some((due, action));
        }
        let (at, _) = self.ended?;
        Some((
            later(later(at, link.latency), link.slow_close),
            PipeAction::End,
        ))
    }

    fn action(&mut self, action: PipeAction, link: &Link) -> Option<PipeEnd> {
        match action {
            PipeAction::Write => self.write(link),
            PipeAction::Take => match self.queue.pop_front()?.piece {
                Piece::Bytes(_) => None,
                Piece::Close => Some(PipeEnd::Over),
                Piece::Reset => Some(PipeEnd::Reset),
                Piece::Stall => {
                    self.silence();
                    None
                }
            },
            PipeAction::End => {
                let (_, end) = self.ended?;
                if end == PipeEnd::Closed && !self.mute {
                    self.close();
                }
                Some(end)
            }
        }
    }

    fn read(&mut self) {
        let mut bytes = [0; READ];
        let now = Instant::now();
        match self.from.try_read(&mut bytes) {
            Ok(0) => self.ended = Some((now, PipeEnd::Closed)),
            Ok(length) => {
                let pieces = self.shaper.shape(bytes.get(..length).unwrap_or_default());
                if self.mute {
                    return;
                }
                for piece in pieces {
                    if let Piece::Bytes(bytes) = &piece {
                        self.queued_bytes = self.queued_bytes.saturating_add(bytes.len());
                    }
                    self.queue.push_back(QueuedPiece {
                        piece,
                        received_at: now,
                        jitter_fraction: u32::try_from(self.rng.u64(..) >> 32).unwrap_or_default(),
                    });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.ended = Some((now, PipeEnd::Reset)),
        }
    }

    fn write(&mut self, link: &Link) -> Option<PipeEnd> {
        let Some(Piece::Bytes(bytes)) = self.queue.front_mut().map(|queued| &mut queued.piece)
        else {
            return None;
        };
        let most = most_at_once(link).min(bytes.len());
        match self.to.try_write(bytes.get(..most).unwrap_or_default()) {
            Ok(written) => {
                bytes.drain(..written.min(bytes.len()));
                let empty = bytes.is_empty();
                self.queued_bytes = self.queued_bytes.saturating_sub(written);
                self.last = Some((Instant::now(), written));
                self.shaper.passed(written);
                if empty {
                    self.queue.pop_front();
                }
                None
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            // The receiver is gone; the sender sees a reset, as it would without a proxy.
            Err(_) => Some(PipeEnd::Reset),
        }
    }

    /// Drops all bytes from now on.
    fn silence(&mut self) {
        self.mute = true;
        self.queue.clear();
        self.queued_bytes = 0;
    }

    /// Closes the direction towards the receiver.
    fn close(&self) {
        // It may be gone already.
        let _ = SockRef::from(self.to).shutdown(Shutdown::Write);
    }
}

/// Waits until the action can be done.
async fn ready_action(next: Option<(Instant, PipeAction)>, to: &TcpStream) -> PipeAction {
    let Some((due, action)) = next else {
        return std::future::pending().await;
    };
    // Timers have whole milliseconds. A timer for a past moment waits for the next one, and then at most a thousand pieces would
    // pass in a second.
    if due > Instant::now() {
        sleep_until(due).await;
    }
    if let PipeAction::Write = action {
        // An error shows at the write.
        let _ = to.writable().await;
    }
    action
}

/// This long after `at`; a moment that cannot be represented is never.
pub(super) fn later(at: Instant, time: Duration) -> Instant {
    at.checked_add(time.min(NEVER)).unwrap_or(at)
}

/// The pause after this many bytes.
fn pause(link: &Link, bytes: usize) -> Duration {
    let slices = link.slices.map_or(Duration::ZERO, |slices| slices.pause);
    let Some(rate) = link.bytes_per_second else {
        return slices;
    };
    let nanos = u128::try_from(bytes).unwrap_or_default() * 1_000_000_000 / u128::from(rate.get());
    slices.max(Duration::from_nanos(
        u64::try_from(nanos).unwrap_or(u64::MAX),
    ))
}

/// How many bytes may go at once.
fn most_at_once(link: &Link) -> usize {
    let slice = link.slices.map_or(usize::MAX, |slices| slices.bytes.get());
    let narrow = link.bytes_per_second.map_or(usize::MAX, |rate| {
        usize::try_from(rate.get() / TICKS)
            .unwrap_or(usize::MAX)
            .max(1)
    });
    slice.min(narrow)
}

/// A part of a time, in 2^-32.
fn part(whole: Duration, jitter_fraction: u32) -> Duration {
    let nanos = (whole.as_nanos().min(u128::from(u64::MAX)) * u128::from(jitter_fraction)) >> 32;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::num::{NonZeroU64, NonZeroUsize};

    use super::super::faults::Slices;
    use super::*;

    #[test]
    fn a_limited_bandwidth_passes_few_bytes_at_a_time_and_keeps_its_rate() {
        let link = Link {
            bytes_per_second: NonZeroU64::new(1_000),
            ..Link::default()
        };
        assert_eq!(most_at_once(&link), 20);
        assert_eq!(pause(&link, 20), Duration::from_millis(20));
        assert_eq!(most_at_once(&Link::default()), usize::MAX);
        assert_eq!(pause(&Link::default(), 1 << 30), Duration::ZERO);
    }

    #[test]
    fn the_slower_of_slices_and_rate_counts() {
        let link = Link {
            bytes_per_second: NonZeroU64::new(1_000),
            slices: NonZeroUsize::new(3).map(|bytes| Slices {
                bytes,
                pause: Duration::from_millis(1),
            }),
            ..Link::default()
        };
        assert_eq!(most_at_once(&link), 3);
        assert_eq!(pause(&link, 3), Duration::from_millis(3));
    }

    #[test]
    fn jitter_is_drawn_from_nothing_to_almost_all_of_it() {
        let second = Duration::from_secs(1);
        assert_eq!(part(second, 0), Duration::ZERO);
        assert_eq!(part(second, 1 << 31), Duration::from_millis(500));
        assert!(part(second, u32::MAX) < second);
    }
}
