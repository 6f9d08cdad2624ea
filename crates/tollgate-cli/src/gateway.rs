//! `tollgate gateway`: turns flags into the settings of the gateway, and prints what was started.

use std::io::{self, Write};
use std::process::ExitCode;

use tollgate_config::UpstreamSpec;
use tollgate_server::engine::{EngineSettings, PolicyOrigin};
use tollgate_server::gateway::{
    self, CertificateFiles, GatewayError, GatewaySettings, GatewayStarted,
};

use crate::cli::Gateway;
use crate::fault::Stop;
use crate::{input, serve, wiring};

/// The name of the policy of a gateway without a file.
const BUILT_IN: &str = "the built-in policy of gateways";

/// Serves until a shutdown signal.
pub(crate) fn run(asked: &Gateway, out: &mut impl Write) -> Result<ExitCode, Stop> {
    let mut settings = settings(asked)?;
    serve::log(&asked.common)?;
    // For the admin API, files, signals and health checks. Requests have their own threads.
    let events = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let events = events.map_err(|cause| Stop::Other {
        what: format!("the event loop cannot be started: {cause}"),
        hint: "raise the resource limits of the process".into(),
    })?;
    settings.engine.open_store = Some(wiring::open_store(events.handle().clone()));
    let mut printed = Ok(());
    let started = |started: &GatewayStarted| printed = print(asked, started, out);
    let served = events.block_on(gateway::run(settings, started, serve::stop(&events)));
    printed.map_err(Stop::Write)?;
    served.map_err(|error| match error {
        GatewayError::Run(error) => Stop::start(&error),
        other => Stop::Plain(other.to_string()),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn settings(asked: &Gateway) -> Result<GatewaySettings, Stop> {
    input::check_file(asked.policy.as_deref())?;
    let source = match &asked.policy {
        Some(path) => PolicyOrigin::File(path.clone()),
        None => PolicyOrigin::Text {
            name: BUILT_IN.into(),
            text: gateway::POLICY.into(),
        },
    };
    let tls = asked.tls_cert.as_ref().zip(asked.tls_key.as_ref());
    Ok(GatewaySettings {
        engine: EngineSettings {
            source,
            state: serve::state(&asked.common)?,
            open_store: None,
        },
        upstreams: upstreams(&asked.upstream)?,
        listen: asked.listen,
        tls: tls.map(|(cert, key)| CertificateFiles {
            cert: cert.clone(),
            key: key.clone(),
        }),
        admin: serve::admin(asked.admin, &asked.common)?,
        threads: asked.threads,
        access_log: asked.common.access_log,
    })
}

/// All named servers form one upstream for all requests.
fn upstreams(urls: &[String]) -> Result<Vec<UpstreamSpec>, Stop> {
    if urls.is_empty() {
        return Ok(Vec::new());
    }
    let server = |url: &String| {
        tollgate_config::server_from(url).map_err(|(what, hint)| Stop::Other { what, hint })
    };
    let servers = urls.iter().map(server).collect::<Result<_, _>>()?;
    Ok(vec![UpstreamSpec::new("upstream", servers)])
}

fn print(asked: &Gateway, started: &GatewayStarted, out: &mut impl Write) -> io::Result<()> {
    let active = started.engine.active();
    let limits = active.gate.rules().len();
    let queues = active.gate.policy().queues.len();
    let source = asked.policy.as_deref();
    let source = source.map_or(BUILT_IN.into(), |path| path.display().to_string());
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    writeln!(
        out,
        "tollgate {}: {limits} limit{} and {queues} queue{} from {source}",
        env!("CARGO_PKG_VERSION"),
        plural(limits),
        plural(queues),
    )?;
    let scheme = if asked.tls_cert.is_some() {
        "https"
    } else {
        "http"
    };
    writeln!(out, "gateway    {scheme}://{}", started.listen)?;
    if let Some(admin) = started.admin {
        writeln!(out, "admin      http://{admin}")?;
    }
    if let Some(token) = &started.generated_token {
        writeln!(
            out,
            "token      {token}  (generated for this run; set your own with --admin-token-file)"
        )?;
    }
    let insecure = if asked.tls_cert.is_some() { "-k " } else { "" };
    writeln!(
        out,
        "\ntry        curl -i {insecure}{scheme}://{}/",
        started.listen
    )?;
    out.flush()
}
