//! Ctrl-C and SIGTERM: the first ends the run and reports what was measured, the second ends the program at once.
//!
//! If signals cannot be awaited, the first one ends the program.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::signal::unix::{SignalKind, signal};

/// The exit code of shells for a program that Ctrl-C ended.
pub(super) const INTERRUPTED: u8 = 130;

/// Whether a signal has arrived.
#[derive(Debug)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens for signals from now on.
    pub(super) fn awaited() -> Interrupt {
        let is_set = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&is_set);
        let named = std::thread::Builder::new().name("signals".into());
        // Without the thread Ctrl-C ends the program, as by default.
        let _ = named.spawn(move || wait(&theirs));
        Interrupt(is_set)
    }

    /// Relaxed: no other data is published by the flag.
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }
}

fn wait(is_set: &AtomicBool) -> io::Result<()> {
    let events = tokio::runtime::Builder::new_current_thread();
    let events = { events }.enable_all().build()?;
    events.block_on(async {
        let mut pressed = signal(SignalKind::interrupt())?;
        let mut terminated = signal(SignalKind::terminate())?;
        loop {
            tokio::select! {
                _ = pressed.recv() => {}
                _ = terminated.recv() => {}
            }
            if is_set.swap(true, Relaxed) {
                std::process::exit(i32::from(INTERRUPTED));
            }
        }
    })
}
