//! The schema of the store: its fields.

use schemars::JsonSchema;

use super::Number;

/// A word, an address, or a map with an address in it.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
pub(super) enum AnyStore {
    Word(StoreWord),
    Address(Address),
    Long(Box<Store>),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
pub(super) enum StoreWord {
    Memory,
}

/// `redis://host:6379/0`, `redis+sentinel://s1,s2,s3/service/0` or `redis+cluster://c1,c2,c3`; `rediss` for TLS;
/// `valkey` and `valkeys` mean the same.
#[derive(JsonSchema)]
#[schemars(transparent, inline)]
pub(super) struct Address(
    #[schemars(regex(pattern = r"^(redis|rediss|valkey|valkeys)(\+sentinel|\+cluster)?://"))]
    String,
);

section! {
    /// A store that several nodes share.
    Store {
        /// The address: `redis://host:6379/0`, `redis+sentinel://s1,s2,s3/service/0` or `redis+cluster://c1,c2,c3`;
        /// `rediss` for TLS; `valkey` and `valkeys` mean the same.
        url: Address,
        /// The user of the servers. Default: the servers' default user.
        username: Option<String>,
        /// The environment variable that holds the user's password.
        #[schemars(regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))]
        password_env: Option<String>,
        /// The file that holds the user's password.
        password_file: Option<String>,
        /// The user of the sentinels. Default: the sentinels' default user.
        sentinel_username: Option<String>,
        /// The environment variable that holds the password of the sentinels.
        #[schemars(regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))]
        sentinel_password_env: Option<String>,
        /// The file that holds the password of the sentinels.
        sentinel_password_file: Option<String>,
        /// TLS: a file with the trusted CA certificates. Default: those of the system.
        ca_file: Option<String>,
        /// TLS: the client certificate, together with `key_file`.
        cert_file: Option<String>,
        /// TLS: the private key of `cert_file`.
        key_file: Option<String>,
        /// How long the store may take for a decision, from `1ms` to `1s`. Default: `8ms`.
        deadline: Option<String>,
        /// The prefix of all keys in the store. Default: `tg`.
        #[schemars(regex(pattern = r"^[A-Za-z0-9._-]{1,32}$"))]
        prefix: Option<String>,
        /// How many nodes share the store, from 1 to 1000. Default: they are counted.
        nodes: Option<Number>,
    }
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
pub(super) enum OnStoreError {
    Local,
    Allow,
    Deny,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", inline)]
pub(super) enum Sharing {
    Exact,
    Lease,
    Sync,
}
