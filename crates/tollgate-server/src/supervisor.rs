//! Common parts of every server: background work of the engine, the admin port, serving threads, and an orderly end.
//!
//! # End
//!
//! All listeners stop accepting. Requests in flight are answered, for [`crate::net::ListenLimits::drain`] at most. Then the
//! store is left and the state file is written for the last time, because nothing is counted any more.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::admin::{self, AdminSettings, Tokens};
use crate::engine::watch::watch as watch_policy;
use crate::engine::{
    Engine, follow_wall_clock, rebalance_every, step_every, sync_leases_every, write_every,
};
use crate::net::descriptors::DescriptorBudget;
use crate::run::{AdminBind, RunError, bind, local_address, reload_on_hangup, until};

/// A server that is being started.
pub(crate) struct Supervisor {
    engine: Arc<Engine>,
    end: watch::Sender<bool>,
    ended: watch::Receiver<bool>,
    background: JoinSet<()>,
    serving: JoinSet<bool>,
    admin: Option<(TcpListener, AdminSettings)>,
    threads: usize,
    budget: DescriptorBudget,
}

/// Checked settings of the admin port. They are checked before any port is opened.
pub(crate) struct AdminListener {
    listener: Option<(SocketAddr, AdminSettings)>,
    /// The token that was generated because none was given.
    pub(crate) generated_token: Option<String>,
}

impl AdminListener {
    pub(crate) fn new(bind: Option<AdminBind>) -> Result<AdminListener, RunError> {
        let Some(AdminBind {
            address,
            tokens,
            hosts,
        }) = bind
        else {
            return Ok(AdminListener {
                listener: None,
                generated_token: None,
            });
        };
        let is_loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
        let (tokens, generated_token) = match tokens.is_empty() {
            false => (Tokens::new(&tokens).map_err(RunError::Token)?, None),
            true if is_loopback(address.ip()) => {
                let (tokens, text) = Tokens::generate().map_err(RunError::Token)?;
                (tokens, Some(text))
            }
            true => return Err(RunError::AdminOpen { address }),
        };
        Ok(AdminListener {
            listener: Some((address, AdminSettings { tokens, hosts })),
            generated_token,
        })
    }
}

impl Supervisor {
    /// Opens the admin port and starts the background work of the engine. `threads` serve each port; by default one for
    /// each processor.
    pub(crate) async fn start(
        engine: Arc<Engine>,
        admin: AdminListener,
        threads: Option<usize>,
    ) -> Result<Supervisor, RunError> {
        let admin = match admin.listener {
            Some((address, settings)) => Some((bind("admin", address).await?, settings)),
            None => None,
        };
        let (end, ended) = watch::channel(false);
        let mut background = JoinSet::new();
        background.spawn(watch_policy(Arc::clone(&engine), until(&ended)));
        background.spawn(write_every(Arc::clone(&engine), until(&ended)));
        background.spawn(rebalance_every(Arc::clone(&engine), until(&ended)));
        background.spawn(sync_leases_every(Arc::clone(&engine), until(&ended)));
        background.spawn(step_every(Arc::clone(&engine), until(&ended)));
        background.spawn(follow_wall_clock(Arc::clone(&engine), until(&ended)));
        #[cfg(unix)]
        background.spawn(reload_on_hangup(Arc::clone(&engine), ended.clone()));
        let threads = thread_count(threads);
        Ok(Supervisor {
            engine,
            end,
            ended,
            background,
            serving: JoinSet::new(),
            admin,
            threads,
            budget: DescriptorBudget::claim(threads),
        })
    }

    /// Becomes true at the shutdown.
    pub(crate) fn ended(&self) -> &watch::Receiver<bool> {
        &self.ended
    }

    pub(crate) fn admin_address(&self) -> Result<Option<SocketAddr>, RunError> {
        let admin = self.admin.as_ref();
        let address = admin.map(|(listener, _)| local_address(listener, "admin"));
        address.transpose()
    }

    /// Connections of each thread for one of `ports` that would have `wanted` in all.
    pub(crate) fn connections(&self, port: &str, ports: usize, wanted: usize) -> usize {
        let connections = self.budget.connections(port, ports, wanted);
        connections.div_ceil(self.threads)
    }

    /// Runs further background work, which has to end by itself at the shutdown.
    pub(crate) fn spawn(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.background.spawn(work);
    }

    /// Serves a port on all threads, each with an event loop of its own: a connection stays on one thread. All accept
    /// from one listener.
    pub(crate) fn serve_on<S, F>(
        &mut self,
        port: &'static str,
        listener: TcpListener,
        server: impl Fn(usize) -> S,
    ) -> Result<(), RunError>
    where
        S: FnOnce(TcpListener) -> F + Send + 'static,
        F: Future<Output = ()>,
    {
        let address = local_address(&listener, port)?;
        let failed = |cause| RunError::Bind {
            port,
            address,
            cause,
        };
        let listener = listener.into_std().map_err(failed)?;
        let thread = |number: usize| {
            let (listener, serve) = (listener.try_clone()?, server(number));
            let events = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let serve = move || {
                events.block_on(async {
                    match TcpListener::from_std(listener) {
                        Ok(listener) => serve(listener).await,
                        Err(error) => tracing::error!(%error, port, "a thread cannot listen"),
                    }
                });
            };
            std::thread::Builder::new()
                .name(format!("{port}-{number}"))
                .spawn(serve)
        };
        let threads = (0..self.threads)
            .map(thread)
            .collect::<io::Result<Vec<_>>>();
        for thread in threads.map_err(failed)? {
            self.serving.spawn_blocking(move || thread.join().is_ok());
        }
        Ok(())
    }

    /// Serves the admin port, calls `started`, and ends in order after `stop`.
    pub(crate) async fn run(mut self, started: impl FnOnce(), stop: impl Future<Output = ()>) {
        if let Some((listener, settings)) = self.admin.take() {
            let engine = Arc::clone(&self.engine);
            let served = admin::serve(listener, engine, settings, self.budget.admin, self.ended);
            self.serving.spawn(async move {
                served.await;
                true
            });
        }
        started();
        stop.await;

        // An error means that every server has ended already.
        let _ = self.end.send(true);
        while self.serving.join_next().await.is_some() {}
        while self.background.join_next().await.is_some() {}
        // After the last settlement with it.
        let store = self.engine.active().gate.store().cloned();
        if let Some(store) = store {
            store.leave().await;
        }
        let _ = tokio::task::spawn_blocking(move || self.engine.persist()).await;
    }
}

/// The given number of threads, or the number of processors.
pub(crate) fn thread_count(given: Option<usize>) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, |count| count.get());
    given.unwrap_or_else(processors).max(1)
}
