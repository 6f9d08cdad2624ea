//! Runs the built binary.

use tollgate_testkit::tollgate::command;

pub(crate) use tollgate_testkit::Ran;

/// Runs `tollgate` with these arguments and nothing on standard input.
pub(crate) fn tollgate(args: &[&str]) -> Ran {
    fed(args, b"")
}

/// Runs `tollgate` with these arguments and this standard input.
pub(crate) fn fed(args: &[&str], input: &[u8]) -> Ran {
    tollgate_testkit::run(command().unwrap().args(args), input).unwrap()
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
