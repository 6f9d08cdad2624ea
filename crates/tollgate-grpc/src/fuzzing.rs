//! The limits that the fuzz targets check. No part of the interface.

use crate::frame;

/// Largest output of a session, besides the responses to one frame.
pub const MAX_OUTPUT_BYTES: usize = crate::MAX_OUTPUT_BYTES;
/// Largest incomplete frame.
pub const MAX_FRAME_BYTES: usize = frame::HEADER + frame::PAYLOAD;
/// The client's connection preface.
pub const PREFACE: &[u8] = frame::PREFACE;
