//! JSON for programs: one object on one line.

use std::io::{self, Write};

use serde::Serialize;

/// Writes the value and ends the line.
pub(crate) fn line(value: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}
