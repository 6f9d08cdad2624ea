//! Opens the store that a policy names, and turns its section of the file into the settings of the store.

use std::sync::Arc;

use tokio::runtime::Handle;
use tollgate_config::{SecretSpec, SharedSpec, TlsFiles, Topology as Named};
use tollgate_policy::shared::SharedStore;
use tollgate_redis::{RedisStore, Secret, Settings, Tls, Topology};
use tollgate_server::engine::OpenStore;

/// Opens the store of a policy; its connections live on this runtime.
pub(crate) fn open_store(runtime: Handle) -> OpenStore {
    OpenStore(Arc::new(move |spec: &SharedSpec| {
        let store = RedisStore::open(settings(spec), &runtime);
        let store = store.map_err(|error| format!("{error}\nhint: {}", error.hint()))?;
        Ok(Arc::new(store) as Arc<dyn SharedStore>)
    }))
}

/// The store of the policy file as settings of the crate that opens it.
pub(crate) fn settings(spec: &SharedSpec) -> Settings {
    let SharedSpec {
        topology,
        tls,
        username,
        password,
        sentinel_username,
        sentinel_password,
        database,
        deadline,
        prefix,
        nodes,
    } = spec.clone();
    let topology = match topology {
        Named::Standalone { server } => Topology::Standalone { server },
        Named::Sentinel { sentinels, service } => Topology::Sentinel { sentinels, service },
        Named::Cluster { servers } => Topology::Cluster { servers },
    };
    let secret = |secret: SecretSpec| match secret {
        SecretSpec::Text(text) => Secret::Text(text),
        SecretSpec::Env(name) => Secret::Env(name),
        SecretSpec::File(path) => Secret::File(path),
    };
    let files = |files: TlsFiles| Tls {
        ca_file: files.ca_file,
        cert_file: files.cert_file,
        key_file: files.key_file,
    };
    Settings {
        topology,
        tls: tls.map(files),
        username,
        password: password.map(secret),
        sentinel_username,
        sentinel_password: sentinel_password.map(secret),
        database,
        deadline: deadline.into(),
        prefix,
        nodes,
    }
}
