//! `icecore serve`: the host.

use icecore_host::agents::Agents;
use icecore_host::{AgentsError, Host};
use icecore_server::{ListenError, Listener, ServeError, ServerOptions, ensure_admin_key};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::app::{App, Needs, Talk};
use crate::args::ServeArgs;
use crate::failure::{Failure, Outcome, Status};
use crate::printer::Printer;
use crate::settings::Settings;

/// Serves until it is told to stop, and then finishes what it accepted.
pub async fn run(args: &ServeArgs, mut settings: Settings, printer: Printer) -> Outcome<Status> {
    settings.file.host.conformance = args.conformance;
    // What is wrong with the settings is found before anything is written.
    check_keys(&settings)?;
    if let Some(dir) = &settings.file.host.agents {
        Agents::load(dir).map_err(uninstalled)?;
    }
    let listener = Listener::bind(&settings.file.server.listen).await.map_err(unheard)?;
    let app = App::open(settings, printer, Needs { vectors: true, talk: Talk::Yes }).await?;
    let done = serve(&app, listener).await;
    app.host.bounds.write().await;
    done
}

async fn serve(app: &App, listener: Listener) -> Outcome<Status> {
    let host = Host::open(app.memory.clone(), app.settings.file.host.clone());
    let host = host.map_err(uninstalled)?;
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
    let options = options(&app.settings);
    for warning in host.agents().warnings(&host.capabilities(options.limits.body_bytes)) {
        app.printer.warn(&warning);
    }
    let shown = listener.shown();
    if app.printer.is_json() {
        app.printer
            .json(&json!({ "listening": shown, "keyFile": key.path.display().to_string() }))?;
    }
    app.printer.talk(&format!("Listening on {shown}"));
    icecore_server::serve(host, listener, options, shutdown).await.map_err(failure)?;
    app.printer.talk("Stopped; everything accepted is stored");
    Ok(Status::Done)
}

fn uninstalled(error: AgentsError) -> Failure {
    Failure::refused(error.to_string(), error.hint())
}

pub(super) fn unheard(error: ListenError) -> Failure {
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
pub(super) fn stopped() -> Outcome<impl Future<Output = ()>> {
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

pub(super) fn failure(error: ServeError) -> Failure {
    match error {
        ServeError::Memory(error) => Failure::Memory(error),
        ServeError::KeyFile { path, source } => Failure::refused(
            format!("cannot use the key file `{}`: {source}", path.display()),
            "make it readable for this user, or remove it to get a new one",
        ),
        other => Failure::Broken(other.to_string()),
    }
}

/// Every variable that is named to hold a provider's key must.
fn check_keys(settings: &Settings) -> Outcome<()> {
    match &settings.missing_upstream_key {
        None => Ok(()),
        Some(name) => Err(Failure::refused(
            format!("the environment variable `{name}` is not set"),
            "the settings under `[proxy]` say that it holds a provider's key",
        )),
    }
}

/// The server's options, with the windows of models that are declared.
pub(super) fn options(settings: &Settings) -> ServerOptions {
    let mut options = settings.file.server.clone();
    let tables = settings.file.models.tables.values().filter(|table| table.window > 0);
    options.proxy.windows = tables.map(|table| (table.model.clone(), table.window)).collect();
    options
}

#[cfg(test)]
mod tests {
    use icecore_models::ApiKey;
    use icecore_server::UpstreamKey;

    use super::*;
    use crate::args::Global;
    use crate::settings::{Env, resolve};

    #[test]
    fn providers_and_their_keys_come_from_the_settings() {
        let text = "[proxy]\nopenai_url = \"https://a/v1\"\nopenai_key_env = \"K\"\nwindow = 7\n\
             [proxy.tenants.acme]\nanthropic_url = \"https://b/v1\"\nanthropic_key_secret = \"s\"\n\
             [models.small]\nurl = \"http://h/v1\"\nmodel = \"m-1\"\nwindow = 9000";
        let env = Env { data_home: Some("data".into()), ..Env::default() };
        let mut settings = resolve(Global::default(), &[], &env, Some(text)).unwrap();
        settings.missing_upstream_key = settings.file.server.proxy.find_keys(|_| None).err();
        let refused = check_keys(&settings).unwrap_err();
        assert!(refused.message().contains("`K` is not set"), "{}", refused.message());
        let key = |name: &str| (name == "K").then(|| ApiKey::new("a-key-of-tests"));
        settings.missing_upstream_key = settings.file.server.proxy.find_keys(key).err();
        check_keys(&settings).unwrap();
        let options = options(&settings).proxy;
        assert!(matches!(options.upstreams.openai.key, UpstreamKey::Given(_)));
        assert_eq!(options.upstreams.openai.url.as_deref(), Some("https://a/v1"));
        let UpstreamKey::Secret(name) = &options.tenants["acme"].anthropic.key else { panic!() };
        assert_eq!((name.as_str(), options.window, options.reserve), ("s", Some(7), None));
        assert_eq!(options.windows.get("m-1"), Some(&9_000));
        assert!(!format!("{options:?}").contains("a-key-of-tests"));
    }
}
