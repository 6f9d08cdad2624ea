//! Ctrl-C, and the word to stop that programs send: the run ends, and what was measured is told.
//!
//! Whoever presses it again does not want to wait: the program ends at once. If signals cannot be awaited, the first one ends it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::signal::unix::{SignalKind, signal};

/// What shells take for the end by Ctrl-C.
pub(super) const BROKEN_OFF: u8 = 130;

/// Whether somebody has seen enough.
#[derive(Debug)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on.
    pub(super) fn awaited() -> Interrupt {
        let came = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&came);
        let named = std::thread::Builder::new().name("signals".into());
        // Without it Ctrl-C does what it does to every program.
        let _ = named.spawn(move || wait(&theirs));
        Interrupt(came)
    }

    /// Relaxed: nothing else is told by it.
    pub(super) fn came(&self) -> bool {
        self.0.load(Relaxed)
    }
}

fn wait(came: &AtomicBool) -> io::Result<()> {
    let events = tokio::runtime::Builder::new_current_thread();
    let events = { events }.enable_all().build()?;
    events.block_on(async {
        let mut pressed = signal(SignalKind::interrupt())?;
        let mut told = signal(SignalKind::terminate())?;
        loop {
            tokio::select! {
                _ = pressed.recv() => {}
                _ = told.recv() => {}
            }
            if came.swap(true, Relaxed) {
                std::process::exit(i32::from(BROKEN_OFF));
            }
        }
    })
}
