//! The shape of the store, and of what happens without it.

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

/// `redis://host:6379/0`, `redis+sentinel://s1,s2,s3/service/0` or `redis+cluster://c1,c2,c3`; `rediss` for
/// TLS; `valkey` and `valkeys` mean the same.
#[derive(JsonSchema)]
#[schemars(transparent, inline)]
pub(super) struct Address(
    #[schemars(regex(pattern = r"^(redis|rediss|valkey|valkeys)(\+sentinel|\+cluster)?://"))]
    String,
);

/// A store that several processes share.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Store {
    /// The address: `redis://host:6379/0`, `redis+sentinel://s1,s2,s3/service/0` or `redis+cluster://c1,c2,c3`;
    /// `rediss` for TLS; `valkey` and `valkeys` mean the same.
    url: Address,
    /// The user of the servers' access list; the default user unless told otherwise.
    username: Option<String>,
    /// The variable of the environment that holds its password.
    #[schemars(regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))]
    password_env: Option<String>,
    /// The file that holds its password.
    password_file: Option<String>,
    /// The user of the sentinels.
    sentinel_username: Option<String>,
    /// The variable of the environment that holds the password of the sentinels.
    #[schemars(regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))]
    sentinel_password_env: Option<String>,
    /// The file that holds the password of the sentinels.
    sentinel_password_file: Option<String>,
    /// TLS: certificates of whom to trust; those that the system trusts unless told otherwise.
    ca_file: Option<String>,
    /// TLS: the certificate to show, together with `key_file`.
    cert_file: Option<String>,
    /// TLS: the key of `cert_file`.
    key_file: Option<String>,
    /// How long a decision may take, from `1ms` to `1s`; `8ms` unless told otherwise.
    deadline: Option<String>,
    /// What the names of all keys begin with; `tg` unless told otherwise.
    #[schemars(regex(pattern = r"^[A-Za-z0-9._-]{1,32}$"))]
    prefix: Option<String>,
    /// How many nodes share the store, from 1 to 1000; they are counted unless told otherwise.
    nodes: Option<Number>,
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
