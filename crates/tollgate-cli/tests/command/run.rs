//! Runs the built binary.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// What a run came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
    /// The exit code.
    pub(crate) code: Option<i32>,
}

/// Runs `tollgate` with these arguments and nothing on standard input.
pub(crate) fn tollgate(args: &[&str]) -> Ran {
    fed(args, b"")
}

/// Runs `tollgate` with these arguments and this standard input.
pub(crate) fn fed(args: &[&str], input: &[u8]) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    // A program that stops at the first mistake does not read the rest.
    let _ = child.stdin.take().expect("piped").write_all(input);
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().expect("it ends");
    Ran {
        out: String::from_utf8(stdout).expect("UTF-8"),
        err: String::from_utf8(stderr).expect("UTF-8"),
        code: status.code(),
    }
}

/// The run went well and printed this, line for line; the first line of `out` is left empty so that
/// the rest stands in a column.
pub(crate) fn assert_prints(ran: &Ran, out: &str) {
    let out = out.strip_prefix('\n').unwrap_or(out);
    assert_eq!(ran.err, "");
    assert!(ran.out == out, "expected:\n{out}\nprinted:\n{}", ran.out);
    assert_eq!(ran.code, Some(0));
}

/// The run failed with exit code 2 and said this.
pub(crate) fn assert_says(ran: &Ran, err: &str) {
    let err = err.strip_prefix('\n').unwrap_or(err);
    assert_eq!(ran.out, "");
    assert!(ran.err == err, "expected:\n{err}\nsaid:\n{}", ran.err);
    assert_eq!(ran.code, Some(2));
}
