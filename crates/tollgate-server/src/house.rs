//! What every server of ours has, whatever it serves: the looks after the policy, the state and the pressure,
//! the door for operators, threads that serve, and an orderly end.
//!
//! # The end
//!
//! All listeners stop accepting, requests in flight are answered (for ten seconds at the most), and then the
//! state file is written a last time: nothing is counted after it.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::admin::{self, AdminSettings};
use crate::engine::watch::watch as watch_policy;
use crate::engine::{Engine, divide_every, step_every, tend_every, write_every};
use crate::run::{AdminBind, RunError, admin_of, bind, local_address, reload_on_hangup, until};

/// A server that is being put together.
pub(crate) struct House {
    engine: Arc<Engine>,
    end: watch::Sender<bool>,
    ended: watch::Receiver<bool>,
    background: JoinSet<()>,
    serving: JoinSet<bool>,
    admin: Option<(TcpListener, AdminSettings)>,
}

/// The door for operators, before anything was listened on: what is wrong with it is told first.
pub(crate) struct AdminDoor {
    door: Option<(SocketAddr, AdminSettings)>,
    /// The token that was made up because none was given.
    pub(crate) generated_token: Option<String>,
}

impl AdminDoor {
    pub(crate) fn of(bind: Option<AdminBind>) -> Result<AdminDoor, RunError> {
        let (door, generated_token) = match bind {
            Some(bind) => {
                let (address, settings, generated) = admin_of(bind)?;
                (Some((address, settings)), generated)
            }
            None => (None, None),
        };
        Ok(AdminDoor {
            door,
            generated_token,
        })
    }
}

impl House {
    /// Listens for operators, and begins to look after what an engine needs.
    pub(crate) async fn of(engine: Arc<Engine>, admin: AdminDoor) -> Result<House, RunError> {
        let admin = match admin.door {
            Some((address, settings)) => Some((bind("operators", address).await?, settings)),
            None => None,
        };
        let (end, ended) = watch::channel(false);
        let mut background = JoinSet::new();
        background.spawn(watch_policy(Arc::clone(&engine), until(&ended)));
        background.spawn(write_every(Arc::clone(&engine), until(&ended)));
        background.spawn(divide_every(Arc::clone(&engine), until(&ended)));
        background.spawn(tend_every(Arc::clone(&engine), until(&ended)));
        background.spawn(step_every(Arc::clone(&engine), until(&ended)));
        #[cfg(unix)]
        background.spawn(reload_on_hangup(Arc::clone(&engine), ended.clone()));
        Ok(House {
            engine,
            end,
            ended,
            background,
            serving: JoinSet::new(),
            admin,
        })
    }

    /// Says when it ends.
    pub(crate) fn ended(&self) -> &watch::Receiver<bool> {
        &self.ended
    }

    /// Where operators ask.
    pub(crate) fn admin_address(&self) -> Result<Option<SocketAddr>, RunError> {
        let admin = self.admin.as_ref();
        let address = admin.map(|(listener, _)| local_address(listener, "operators"));
        address.transpose()
    }

    /// Looks after something else, too, which has to end by itself.
    pub(crate) fn also(&mut self, look: impl Future<Output = ()> + Send + 'static) {
        self.background.spawn(look);
    }

    /// Serves on so many threads, each with a loop of its own: a connection stays on one processor, and
    /// nothing is handed between them. All accept from one listener. `what` is what it is for.
    pub(crate) fn serve_on<S, F>(
        &mut self,
        what: &'static str,
        listener: TcpListener,
        count: usize,
        server: impl Fn(usize) -> S,
    ) -> Result<(), RunError>
    where
        S: FnOnce(TcpListener) -> F + Send + 'static,
        F: Future<Output = ()>,
    {
        let address = local_address(&listener, what)?;
        let failed = |cause| RunError::Bind {
            what,
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
                        Err(error) => tracing::error!(%error, "a thread cannot listen"),
                    }
                });
            };
            std::thread::Builder::new()
                .name(format!("{what}-{number}"))
                .spawn(serve)
        };
        let threads = (0..count).map(thread).collect::<io::Result<Vec<_>>>();
        for thread in threads.map_err(failed)? {
            self.serving.spawn_blocking(move || thread.join().is_ok());
        }
        Ok(())
    }

    /// Serves operators, says that everything has started, and ends in order after `stop`.
    pub(crate) async fn run(mut self, started: impl FnOnce(), stop: impl Future<Output = ()>) {
        if let Some((listener, settings)) = self.admin.take() {
            let served = admin::serve(listener, Arc::clone(&self.engine), settings, self.ended);
            self.serving.spawn(async move {
                served.await;
                true
            });
        }
        started();
        stop.await;

        // Nobody listens any more if all have ended already.
        let _ = self.end.send(true);
        while self.serving.join_next().await.is_some() {}
        while self.background.join_next().await.is_some() {}
        // After everything was settled with it.
        let store = self.engine.epoch().gate.store().cloned();
        if let Some(store) = store {
            store.leave().await;
        }
        let _ = tokio::task::spawn_blocking(move || self.engine.persist()).await;
    }
}

/// As many threads as were asked for, or as there are processors.
pub(crate) fn threads(asked: Option<usize>) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, |count| count.get());
    asked.unwrap_or_else(processors).max(1)
}
