//! `icecore serve`: the host.

use std::net::SocketAddr;

use icecore::config::ServeSettings;
use icecore_server::{Limits, ServeError, ServerOptions, ensure_admin_key};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::app::App;
use crate::args::ServeArgs;
use crate::failure::{Failure, Outcome, Status};

/// Serves until it is told to stop, and then finishes what it accepted.
pub async fn run(args: ServeArgs, app: &App) -> Outcome<Status> {
    let settings = &app.settings.file.serve;
    let wanted = args.listen.as_deref().unwrap_or(&settings.listen);
    let listener = bind(wanted).await?;
    let address = listener
        .local_addr()
        .map_err(|error| Failure::Broken(format!("cannot listen on {wanted}: {error}")))?;
    // From here on a signal ends it well.
    let shutdown = stopped()?;
    let key = ensure_admin_key(&app.memory, &app.settings.data).await.map_err(failure)?;
    if key.created {
        app.printer.talk(&format!("A new admin key is in {}", key.path.display()));
    }
    if !address.ip().is_loopback() {
        app.printer.warn(&format!(
            "{address} can be reached from other machines, and keys travel unencrypted; put TLS in front of it"
        ));
    }
    let url = format!("http://{address}");
    if app.printer.is_json() {
        app.printer
            .json(&json!({ "listening": url, "keyFile": key.path.display().to_string() }))?;
    }
    app.printer.talk(&format!("Listening on {url}"));
    let options = ServerOptions { listen: address, limits: limits(settings) };
    icecore_server::serve(app.memory.clone(), listener, options, shutdown)
        .await
        .map_err(failure)?;
    app.printer.talk("Stopped; everything accepted is stored");
    Ok(Status::Done)
}

async fn bind(wanted: &str) -> Outcome<TcpListener> {
    // A name such as `localhost` is looked up.
    let found = tokio::net::lookup_host(wanted).await;
    let addresses: Vec<SocketAddr> = found
        .map_err(|_| {
            Failure::refused(
                format!("`{wanted}` is no address to listen on"),
                "write an address and a port, like 127.0.0.1:7433",
            )
        })?
        .collect();
    TcpListener::bind(&addresses[..]).await.map_err(|error| {
        Failure::refused(
            format!("cannot listen on {wanted}: {error}"),
            "choose another with --listen; port 0 takes a free one",
        )
    })
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

fn limits(settings: &ServeSettings) -> Limits {
    Limits {
        body_bytes: settings.body_bytes,
        page: settings.page,
        page_default: settings.page_default,
        turns_per_request: settings.turns_per_request,
        context_tokens: settings.context_tokens,
        idempotency_key_bytes: settings.idempotency_key_bytes,
        concurrent_requests: settings.concurrent_requests,
        connections: settings.connections,
        event_streams: settings.event_streams,
        request_seconds: settings.request_seconds,
        header_seconds: settings.header_seconds,
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
        assert_eq!(settings.listen, ServerOptions::default().listen.to_string());
    }
}
