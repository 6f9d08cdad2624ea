//! Tests of the built binary: arguments and standard input in, complete outputs and exit codes out.

#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]
#![allow(clippy::expect_used, reason = "a test that cannot run has failed")]

mod bench;
mod check;
mod convert;
mod faults;
mod limit_faults;
mod limits;
mod policy_test;
mod run;
mod start;
mod trial;
