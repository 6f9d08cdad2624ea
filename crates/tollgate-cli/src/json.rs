//! Writes values as JSON lines: one object on each line.

use std::io::{self, Write};

use serde::Serialize;

/// Writes the value and ends the line.
pub(crate) fn line(value: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}
