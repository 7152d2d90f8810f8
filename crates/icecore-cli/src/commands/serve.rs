//! `icecore serve`: the host.

use std::path::PathBuf;

use icecore::config::{OpenwopSettings, ServeSettings};
use icecore_openwop::{AgentsError, Host, HostSettings};
use icecore_server::{Limits, ListenError, Listener, ServeError, ServerOptions, ensure_admin_key};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::app::App;
use crate::args::ServeArgs;
use crate::failure::{Failure, Outcome, Status};

/// Serves until it is told to stop, and then finishes what it accepted.
pub async fn run(args: ServeArgs, app: &App) -> Outcome<Status> {
    let settings = &app.settings.file.serve;
    let protocol = host_settings(&app.settings.file.openwop, args.conformance);
    let host = Host::open(app.memory.clone(), protocol).map_err(uninstalled)?;
    let wanted = args.listen.as_deref().unwrap_or(&settings.listen);
    let listener = Listener::bind(wanted).await.map_err(unheard)?;
    // From here on a signal ends it well.
    let shutdown = stopped()?;
    let key = ensure_admin_key(&app.memory, &app.settings.data).await.map_err(failure)?;
    if key.created {
        app.printer.talk(&format!("A new admin key is in {}", key.path.display()));
    }
    if let Some(address) = listener.address().filter(|address| !address.ip().is_loopback()) {
        app.printer.warn(&format!(
            "{address} can be reached from other machines, and keys travel unencrypted; put TLS in front of it"
        ));
    }
    for warning in host.agents().warnings(&host.capabilities(settings.body_bytes)) {
        app.printer.warn(&warning);
    }
    let shown = listener.shown();
    if app.printer.is_json() {
        app.printer
            .json(&json!({ "listening": shown, "keyFile": key.path.display().to_string() }))?;
    }
    app.printer.talk(&format!("Listening on {shown}"));
    let options = ServerOptions {
        listen: shown,
        allowed_hosts: settings.allowed_hosts.clone(),
        limits: limits(settings),
    };
    icecore_server::serve(host, listener, options, shutdown).await.map_err(failure)?;
    app.printer.talk("Stopped; everything accepted is stored");
    Ok(Status::Done)
}

fn uninstalled(error: AgentsError) -> Failure {
    Failure::refused(error.to_string(), error.hint())
}

fn unheard(error: ListenError) -> Failure {
    let hint = match &error {
        ListenError::NoAddress(_) => {
            "write an address and a port, like 127.0.0.1:7433, or unix:PATH"
        }
        ListenError::NoSocket(_) => "choose a path where nothing is yet",
        _ => "choose another with --listen; port 0 takes a free one",
    };
    Failure::refused(error.to_string(), hint)
}

/// Resolves at SIGTERM or SIGINT.
fn stopped() -> Outcome<impl Future<Output = ()>> {
    let failed =
        |error: std::io::Error| Failure::Broken(format!("cannot listen for signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

fn failure(error: ServeError) -> Failure {
    match error {
        ServeError::Memory(error) => Failure::Memory(error),
        ServeError::KeyFile { path, source } => Failure::refused(
            format!("cannot use the key file `{}`: {source}", path.display()),
            "make it readable for this user, or remove it to get a new one",
        ),
        other => Failure::Broken(other.to_string()),
    }
}

fn host_settings(settings: &OpenwopSettings, conformance: bool) -> HostSettings {
    HostSettings {
        conformance,
        read_only: settings.read_only,
        run_retention_seconds: settings.run_retention_seconds,
        run_input_bytes: settings.run_input_bytes,
        runs_unfinished: settings.runs_unfinished,
        agents: (!settings.agents.is_empty()).then(|| PathBuf::from(&settings.agents)),
    }
}

fn limits(settings: &ServeSettings) -> Limits {
    Limits {
        body_bytes: settings.body_bytes,
        page: settings.page,
        page_default: settings.page_default,
        page_bytes: settings.page_bytes,
        turns_per_request: settings.turns_per_request,
        context_tokens: settings.context_tokens,
        idempotency_key_bytes: settings.idempotency_key_bytes,
        concurrent_requests: settings.concurrent_requests,
        queue_seconds: settings.queue_seconds,
        buffered_bytes: settings.buffered_bytes,
        answer_bytes: settings.answer_bytes,
        answers_bytes: settings.answers_bytes,
        tenant_percent: settings.tenant_percent,
        connections: settings.connections,
        rate_per_second: settings.rate_per_second,
        rate_burst: settings.rate_burst,
        rate_denied_per_second: settings.rate_denied_per_second,
        rate_denied_burst: settings.rate_denied_burst,
        idempotency_wait_seconds: settings.idempotency_wait_seconds,
        event_streams: settings.event_streams,
        request_seconds: settings.request_seconds,
        idle_seconds: settings.idle_seconds,
        header_seconds: settings.header_seconds,
        header_bytes: settings.header_bytes,
        body_seconds: settings.body_seconds,
        write_seconds: settings.write_seconds,
        shutdown_seconds: settings.shutdown_seconds,
        ready_pending: settings.ready_pending,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_and_the_door_have_the_same_defaults() {
        let settings = ServeSettings::default();
        assert_eq!(limits(&settings), Limits::default());
        let options = ServerOptions::default();
        assert_eq!(settings.listen, options.listen);
        assert_eq!(settings.allowed_hosts, options.allowed_hosts);
        let protocol = host_settings(&OpenwopSettings::default(), false);
        assert_eq!(protocol, HostSettings::default());
    }
}
