//! `tollgate serve`: turns flags into the settings of the decision service, and prints what was started.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use tokio::runtime::Runtime;
use tollgate_server::engine::{EngineSettings, PolicyOrigin, StateSettings};
use tollgate_server::{AdminBind, RespBind, ServerSettings, Started};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::cli::{CommonFlags, LogForm, Resp, Serve};
use crate::color;
use crate::fault::Stop;
use crate::input::{self, AddressOrOff};
use crate::wiring;

/// The environment variable with the admin token.
const TOKEN_VARIABLE: &str = "TOLLGATE_ADMIN_TOKEN";

/// Serves until a shutdown signal.
pub(crate) fn run(asked: &Serve, out: &mut impl Write) -> Result<ExitCode, Stop> {
    let mut settings = settings(asked)?;
    log(&asked.common)?;
    for address in std::iter::once(asked.listen).chain(asked.rls) {
        if !address.ip().to_canonical().is_loopback() {
            tracing::warn!(
                target: "tollgate::listen",
                %address,
                "decisions are open to the network: this port has no TLS and no token; let only your proxies reach it"
            );
        }
    }
    // For the admin API, files and signals. Decisions have their own threads.
    let events = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let events = events.map_err(|cause| Stop::Other {
        what: format!("the event loop cannot be started: {cause}"),
        hint: "raise the resource limits of the process".into(),
    })?;
    settings.engine.open_store = Some(wiring::open_store(events.handle().clone()));
    let mut printed = Ok(());
    let started = |started: &Started| printed = print(asked, started, out);
    let served = events.block_on(tollgate_server::run(settings, started, stop(&events)));
    printed.map_err(Stop::Write)?;
    served.map_err(|error| Stop::start(&error))?;
    Ok(ExitCode::SUCCESS)
}

fn settings(asked: &Serve) -> Result<ServerSettings, Stop> {
    input::check_file(asked.policy.as_deref())?;
    let source = match (&asked.policy, &asked.envoy_config) {
        (_, Some(folder)) => PolicyOrigin::Envoy {
            folder: folder.clone(),
            store: asked.store.clone(),
        },
        (Some(path), None) => PolicyOrigin::File(path.clone()),
        (None, None) => PolicyOrigin::built_in(),
    };
    Ok(ServerSettings {
        engine: EngineSettings {
            source,
            state: state(&asked.common)?,
            open_store: None,
        },
        http: asked.listen,
        rls: asked.rls,
        admin: admin(asked.admin, &asked.common)?,
        resp: resp(&asked.resp)?,
        threads: asked.threads,
        access_log: asked.common.access_log,
    })
}

pub(crate) fn state(asked: &CommonFlags) -> Result<Option<StateSettings>, Stop> {
    let Some(path) = &asked.state else {
        return Ok(None);
    };
    Ok(Some(StateSettings {
        path: path.clone(),
        every: asked.state_every,
    }))
}

pub(crate) fn admin(at: AddressOrOff, asked: &CommonFlags) -> Result<Option<AdminBind>, Stop> {
    let AddressOrOff::At(address) = at else {
        return Ok(None);
    };
    let mut tokens = Vec::new();
    for path in &asked.admin_token_file {
        tokens.push(from_file(path)?);
    }
    tokens.extend(std::env::var(TOKEN_VARIABLE).ok().filter(|t| !t.is_empty()));
    Ok(Some(AdminBind {
        address,
        tokens,
        hosts: asked.admin_host.clone(),
    }))
}

fn resp(asked: &Resp) -> Result<Option<RespBind>, Stop> {
    let Some(address) = asked.address else {
        return Ok(None);
    };
    let password = asked.password_file.as_deref().map(from_file).transpose()?;
    Ok(Some(RespBind {
        address,
        password,
        keys: (!asked.policy_only).then_some(asked.max_keys),
    }))
}

/// Reads a secret from a file.
pub(crate) fn from_file(path: &Path) -> Result<String, Stop> {
    let text = std::fs::read_to_string(path);
    let text = text.map(|text| text.trim().to_owned());
    text.map_err(|cause| Stop::File {
        name: path.display().to_string(),
        cause,
    })
}

/// Starts the log. It goes to standard error; standard output has only what was started.
pub(crate) fn log(asked: &CommonFlags) -> Result<(), Stop> {
    // The parser of the flag accepts nothing else.
    let level = asked.log_level.parse().unwrap_or(LevelFilter::INFO);
    let ours = Targets::new()
        .with_target("tollgate", level)
        .with_default(LevelFilter::WARN);
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let subscriber = tracing_subscriber::registry().with(ours);
    let set = match asked.log {
        LogForm::Text => subscriber
            .with(lines.with_ansi(color::is_on(&io::stderr())))
            .try_init(),
        LogForm::Json => subscriber.with(lines.json()).try_init(),
    };
    set.map_err(|cause| Stop::Other {
        what: format!("the log cannot be written: {cause}"),
        hint: "start it again".into(),
    })
}

/// Resolves at the first SIGTERM or SIGINT; the second ends the process at once. Registers the handlers at once, because listeners
/// answer before the future is polled, and without a handler the signal ends the process without writing the state file.
pub(crate) fn stop(events: &Runtime) -> impl Future<Output = ()> + use<> {
    let _context = events.enter();
    let mut signals = ShutdownSignals::register();
    async move {
        signals.next().await;
        tracing::info!(target: "tollgate::stop", "shutting down; requests in flight are finished first");
        tokio::spawn(async move {
            signals.next().await;
            std::process::exit(130);
        });
    }
}

/// SIGTERM and SIGINT. Without them, the process runs until it is killed.
#[cfg(unix)]
struct ShutdownSignals(Option<[tokio::signal::unix::Signal; 2]>);

#[cfg(unix)]
impl ShutdownSignals {
    fn register() -> ShutdownSignals {
        use tokio::signal::unix::{SignalKind, signal};
        let terminate = signal(SignalKind::terminate()).ok();
        let interrupt = signal(SignalKind::interrupt()).ok();
        ShutdownSignals(terminate.zip(interrupt).map(<[_; 2]>::from))
    }

    async fn next(&mut self) {
        let Some([terminate, interrupt]) = &mut self.0 else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}

/// Ctrl-C.
#[cfg(not(unix))]
struct ShutdownSignals;

#[cfg(not(unix))]
impl ShutdownSignals {
    fn register() -> ShutdownSignals {
        ShutdownSignals
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    }
}

fn print(asked: &Serve, started: &Started, out: &mut impl Write) -> io::Result<()> {
    let policy = asked.envoy_config.as_deref().or(asked.policy.as_deref());
    let limits = started.engine.active().gate.rules().len();
    let source = policy.map_or("the built-in example".into(), |p| p.display().to_string());
    let plural = if limits == 1 { "" } else { "s" };
    writeln!(
        out,
        "tollgate {}: {limits} limit{plural} from {source}",
        env!("CARGO_PKG_VERSION")
    )?;
    writeln!(out, "decisions  http://{}", started.http)?;
    if let Some(rls) = started.rls {
        writeln!(out, "envoy      http://{rls}")?;
    }
    if let Some(admin) = started.admin {
        writeln!(out, "admin      http://{admin}")?;
    }
    if let Some(resp) = started.resp {
        writeln!(out, "redis      redis://{resp}")?;
    }
    if let Some(token) = &started.generated_token {
        writeln!(
            out,
            "token      {token}  (generated for this run; set your own with --admin-token-file)"
        )?;
    }
    if asked.envoy_config.is_some() {
        if started.rls.is_none() {
            writeln!(
                out,
                "note       the Envoy front end is closed; open it with --rls 127.0.0.1:8081"
            )?;
        }
        if asked.store.is_none() {
            writeln!(
                out,
                "note       counts are local to this process; share them with --store redis://…"
            )?;
        }
        // There is no short command that sends a request of Envoy.
        return out.flush();
    }
    let ask = match policy {
        None => r#"{"path":"/api/rides/request","headers":{"x-rider-id":"42"}}"#,
        Some(_) => r#"{"method":"GET","path":"/","ip":"203.0.113.7"}"#,
    };
    writeln!(
        out,
        "\ntry        curl -i --json '{ask}' http://{}/v1/check",
        started.http
    )?;
    out.flush()
}
