//! Watches the policy file.
//!
//! # Theory
//!
//! A file is replaced in several ways: written in place, renamed over, deleted and created again, or reached
//! through a symbolic link that is swapped, as Kubernetes does. A watch on the file is lost when another file takes
//! its place. So the *directories* are watched: that of the name, and that of the target of the link. Notifications are
//! missing on network file systems and beyond kernel limits. So the content is also read every two seconds.
//!
//! Events come in groups. After the first, the watcher waits until none came for a moment, so that a file that
//! is being written is read once. A file that was read too early is read again, because its writer changes it again.
//!
//! # Invariant
//!
//! An event only triggers a read. [`Engine::reload`] compares the content.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

use super::reload::ReloadCause;
use super::{Engine, PolicyOrigin};

/// The file is read after this time without an event.
const QUIET: Duration = Duration::from_millis(150);
/// The file is read after this time even if events continue.
const QUIET_MAX: Duration = Duration::from_secs(1);
/// Interval of reads without an event.
const POLL_EVERY: Duration = Duration::from_secs(2);

/// Reloads the policy when its file changes, until `stop`. Returns at once if the policy is not a file.
pub async fn watch(engine: Arc<Engine>, stop: impl Future<Output = ()>) {
    let path = match &engine.source {
        PolicyOrigin::Text { .. } => return,
        PolicyOrigin::File(path) => path.clone(),
        // Any name in the folder, because directories are watched.
        PolicyOrigin::Envoy { folder, .. } => folder.join("config.yaml"),
    };
    let (sender, mut events) = mpsc::channel(1);
    let mut watcher = DirectoryWatcher::new(sender);
    let mut looks = tokio::time::interval(POLL_EVERY);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    tokio::pin!(stop);
    loop {
        watcher.listen_around(&path);
        tokio::select! {
            () = &mut stop => return,
            _ = looks.tick() => {}
            Some(()) = events.recv() => quiet(&mut events).await,
        }
        let engine = Arc::clone(&engine);
        // The reload logs its result itself.
        let _ =
            tokio::task::spawn_blocking(move || engine.reload(ReloadCause::Watch).is_ok()).await;
    }
}

/// Waits until no event came for a moment.
async fn quiet(events: &mut mpsc::Receiver<()>) {
    let until_quiet =
        async { while let Ok(Some(())) = tokio::time::timeout(QUIET, events.recv()).await {} };
    let _ = tokio::time::timeout(QUIET_MAX, until_quiet).await;
}

/// A watcher of directories.
struct DirectoryWatcher {
    watcher: Option<RecommendedWatcher>,
    listening: Vec<PathBuf>,
}

impl DirectoryWatcher {
    fn new(sender: mpsc::Sender<()>) -> DirectoryWatcher {
        let on_event = move |event: notify::Result<notify::Event>| {
            if event.map_or(true, |event| is_change(event.kind)) {
                // A pending event covers this one too.
                let _ = sender.try_send(());
            }
        };
        let watcher = notify::recommended_watcher(on_event).map_err(|error| {
            tracing::warn!(
                target: "tollgate_policy", %error,
                "no change notifications for the policy file; it is read every two seconds"
            );
        });
        DirectoryWatcher {
            watcher: watcher.ok(),
            listening: Vec::new(),
        }
    }

    /// Watches the directories that the file is in now. Each is registered again every time: a directory that was
    /// deleted and created again is another one.
    fn listen_around(&mut self, path: &Path) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let wanted = directories(path);
        for gone in self.listening.iter().filter(|d| !wanted.contains(d)) {
            let _ = watcher.unwatch(gone);
        }
        self.listening.retain(|d| wanted.contains(d));
        for directory in wanted {
            // Fails if the directory does not exist. The next call tries again.
            if watcher
                .watch(&directory, RecursiveMode::NonRecursive)
                .is_ok()
                && !self.listening.contains(&directory)
            {
                self.listening.push(directory);
            }
        }
    }
}

/// Reads by this process must not trigger a read.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    }
}

/// The directory of the name and that of its target.
fn directories(path: &Path) -> Vec<PathBuf> {
    let directory_of = |path: &Path| match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let mut directories = vec![directory_of(path)];
    let resolved = std::fs::canonicalize(path).map(|resolved| directory_of(&resolved));
    directories.extend(resolved.ok().filter(|d| !directories.contains(d)));
    directories
}
