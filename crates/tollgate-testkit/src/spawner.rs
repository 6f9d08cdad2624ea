//! One thread starts all children, so that none outlives this process.
//!
//! # Theory
//!
//! Linux sends a signal to a child when its parent dies (`PR_SET_PDEATHSIG`). `setpriv` from util-linux requests it
//! and then becomes the program, so no `unsafe` is needed here. To Linux the parent is a *thread*: a server that a
//! test's thread started would die with that thread, even if another test still uses it. So one thread starts all
//! children and lives as long as the process.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;

use crate::error::{Error, Result};
use crate::process::without_settings;

/// A command, and where to send its child.
type Order = (Command, Sender<io::Result<Child>>);

static SPAWNER: LazyLock<Mutex<Sender<Order>>> = LazyLock::new(|| {
    let (send, receive) = channel::<Order>();
    // If no thread can be started, the other end is gone, and `spawn` reports it.
    let _ = thread::Builder::new()
        .name("spawner".into())
        .spawn(move || run(&receive));
    Mutex::new(send)
});

fn run(orders: &Receiver<Order>) {
    for (mut command, reply) in orders {
        // The test may have panicked meanwhile: then the child is not wanted.
        if let Err(unwanted) = reply.send(command.spawn())
            && let Ok(mut child) = unwanted.0
        {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A command that runs `program` as a child that dies with this process, with an empty standard input.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command.stdin(Stdio::null());
    without_settings(command)
}

/// Starts a child.
pub(crate) fn spawn(command: Command) -> Result<Child> {
    let (reply, started) = channel();
    let gone = || Error::Invalid("the thread that starts programs is gone".into());
    {
        let spawner = SPAWNER.lock().unwrap_or_else(PoisonError::into_inner);
        spawner.send((command, reply)).map_err(|_| gone())?;
    }
    let child = started.recv().map_err(|_| gone())?;
    child.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::Missing {
            program: "setpriv".into(),
            searched: vec!["the directories of PATH".into()],
        },
        _ => Error::io("start a program")(error),
    })
}
