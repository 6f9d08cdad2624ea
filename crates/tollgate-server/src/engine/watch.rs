//! Watches the policy file.
//!
//! # Theory
//!
//! A file is replaced in many ways: written in place, renamed over, deleted and made again, or reached
//! through a link that is swapped (Kubernetes does that). Watching the file itself loses it with the
//! first of these that makes another file, so the *directories* are watched: that of the name, and that
//! of what the name resolves to. And because every way of watching goes silent somewhere (network file
//! systems, limits of the kernel), the content is looked at every two seconds whatever was heard.
//!
//! Events come in flocks; after the first one it waits until none came for a moment, so that a file that
//! is being written is read once, when it is whole. A file that was read too early is read again, because
//! its writer changes it again.
//!
//! # Invariant
//!
//! An event is only a reason to look. What counts is the content ([`Engine::reload`] compares it).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

use super::reload::ReloadCause;
use super::{Engine, PolicyOrigin};

/// How long it must be quiet before the file is read.
const QUIET: Duration = Duration::from_millis(150);
/// It is read after this long even if it was never quiet.
const QUIET_MAX: Duration = Duration::from_secs(1);
/// How often the content is looked at, whatever was heard.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Looks for another policy and puts it in force, until the engine should stop. Returns at once if the
/// policy is not a file.
pub async fn watch(engine: Arc<Engine>, stop: impl Future<Output = ()>) {
    let path = match &engine.source {
        PolicyOrigin::Text { .. } => return,
        PolicyOrigin::File(path) => path.clone(),
        // Any name in it: directories are what is listened to.
        PolicyOrigin::Envoy { folder, .. } => folder.join("config.yaml"),
    };
    let (heard, mut events) = mpsc::channel(1);
    let mut watcher = DirectoryWatcher::new(heard);
    let mut looks = tokio::time::interval(LOOK_EVERY);
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
        // What it comes to is told where it happens.
        let _ = tokio::task::spawn_blocking(move || engine.reload(ReloadCause::Watch).is_ok()).await;
    }
}

/// Waits until nothing was heard for a moment.
async fn quiet(events: &mut mpsc::Receiver<()>) {
    let until_quiet =
        async { while let Ok(Some(())) = tokio::time::timeout(QUIET, events.recv()).await {} };
    let _ = tokio::time::timeout(QUIET_MAX, until_quiet).await;
}

/// What listens to directories.
struct DirectoryWatcher {
    watcher: Option<RecommendedWatcher>,
    listening: Vec<PathBuf>,
}

impl DirectoryWatcher {
    fn new(heard: mpsc::Sender<()>) -> DirectoryWatcher {
        let hear = move |event: notify::Result<notify::Event>| {
            if event.map_or(true, |event| is_change(event.kind)) {
                // If one is waiting already it stands for this one too.
                let _ = heard.try_send(());
            }
        };
        let watcher = notify::recommended_watcher(hear).map_err(|error| {
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

    /// Listens to the directories that the file is in now. They are listened to anew every time: one that
    /// was deleted and made again is another.
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
            // Fails where there is no such directory; the next look tries again.
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

/// Our own reading of the file must not be a reason to read it.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    }
}

/// The directory of the name and of what it resolves to.
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
