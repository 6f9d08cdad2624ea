//! Adaptive limits in front of backends that change, in virtual time.
//!
//! [`backend`] is a machine that shares itself among what it serves and gets worse when it has too much to
//! do. [`scenario`] is how it changes: steps, ramps, stalls and so on. [`run`] puts the product's own
//! queue and its own limit in front of it and sends requests, far too many of them. [`measure`] finds the
//! best fixed limit for each phase and compares.
//!
//! Everything follows from the seed: the same seed gives the same figures. Nothing here reads a
//! clock.
//!
//! What it does not know: networks, several limiters in front of one backend, and clients that try
//! again.

pub mod backend;
pub mod control;
pub mod measure;
pub mod run;
pub mod scenario;
