//! The thread that every child is born in.
//!
//! # Theory
//!
//! A child shall not outlive its parent, however the parent ends. Linux can send a signal to a child when its
//! parent dies (`PR_SET_PDEATHSIG`), and `setpriv` from util-linux asks for it and then becomes the program, so
//! that no `unsafe` is needed here. But to Linux the parent is a *thread*: a server that a test's thread started
//! would die when that thread ends, even if another test still uses it. So one thread starts all children and
//! lives as long as the process.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;

use crate::trouble::{Outcome, Trouble};

/// A child to be, and where to bring it.
type Order = (Command, Sender<io::Result<Child>>);

static NURSERY: LazyLock<Mutex<Sender<Order>>> = LazyLock::new(|| {
    let (send, receive) = channel::<Order>();
    // If no thread can be had, the other end is gone, and `start` says so.
    let _ = thread::Builder::new()
        .name("nursery".into())
        .spawn(move || bear(&receive));
    Mutex::new(send)
});

fn bear(orders: &Receiver<Order>) {
    for (mut command, bring) in orders {
        // Who ordered it may have panicked meanwhile: then the child is not wanted.
        if let Err(unwanted) = bring.send(command.spawn())
            && let Ok(mut child) = unwanted.0
        {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The command that runs `program` as a child that dies with this process.
pub(crate) fn mortal(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command.stdin(Stdio::null());
    // A child is told what it needs by its arguments, not by what its user has set for a server of his own.
    let told = std::env::vars_os().map(|(name, _)| name);
    for name in told.filter(|name| name.to_string_lossy().starts_with("TOLLGATE_")) {
        command.env_remove(name);
    }
    command
}

/// Starts a child.
pub(crate) fn start(command: Command) -> Outcome<Child> {
    let (bring, born) = channel();
    let gone = || Trouble::Impossible("the thread that starts servers is gone".into());
    {
        let nursery = NURSERY.lock().unwrap_or_else(PoisonError::into_inner);
        nursery.send((command, bring)).map_err(|_| gone())?;
    }
    born.recv()
        .map_err(|_| gone())?
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Trouble::Missing {
                program: "setpriv",
                looked: vec!["the folders of PATH".into()],
            },
            _ => Trouble::System {
                doing: "start a server".into(),
                error,
            },
        })
}
