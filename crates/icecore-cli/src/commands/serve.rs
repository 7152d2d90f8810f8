//! `icecore serve`: the host.

use std::collections::BTreeMap;
use std::path::PathBuf;

use icecore::config::{OpenwopSettings, ProxySettings, ServeSettings, UpstreamSettings};
use icecore_host::{AgentsError, Host, HostSettings};
use icecore_models::ApiKey;
use icecore_server::{
    Limits, ListenError, Listener, ProxyOptions, ServeError, ServerOptions, TenantUpstreams,
    UpstreamKey, UpstreamOptions, ensure_admin_key,
};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::app::App;
use crate::args::ServeArgs;
use crate::failure::{Failure, Outcome, Status};
use crate::settings::Settings;

/// Serves until it is told to stop, and then finishes what it accepted.
pub async fn run(args: ServeArgs, app: &App) -> Outcome<Status> {
    let settings = &app.settings.file.serve;
    check_keys(&app.settings)?;
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
        limits: limits(settings, &app.settings.file.proxy),
        proxy: proxy_options(&app.settings),
    };
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

/// Every variable that is named to hold a provider's key must.
fn check_keys(settings: &Settings) -> Outcome<()> {
    let named = settings.file.proxy.key_variables();
    match named.into_iter().find(|name| !settings.upstream_keys.contains_key(*name)) {
        None => Ok(()),
        Some(name) => Err(Failure::refused(
            format!("the environment variable `{name}` is not set"),
            "the settings under `[proxy]` say that it holds a provider's key",
        )),
    }
}

/// Where chats go on to, as the settings say.
pub(super) fn proxy_options(settings: &Settings) -> ProxyOptions {
    let proxy = &settings.file.proxy;
    let of = |upstreams: &UpstreamSettings| upstreams_of(upstreams, &settings.upstream_keys);
    let declared = |tokens: u64| (tokens > 0).then_some(tokens);
    let tables = settings.file.models.tables.iter();
    let windows = tables.filter_map(|table| Some((table.model.clone(), declared(table.window)?)));
    ProxyOptions {
        upstreams: of(&proxy.upstreams),
        tenants: proxy.tenants.iter().map(|(name, own)| (name.clone(), of(own))).collect(),
        window: declared(proxy.window),
        reserve: declared(proxy.reserve),
        windows: windows.collect(),
        recall_tokens: proxy.recall_tokens,
        fail_open: proxy.fail_open,
        redact_upstream: proxy.redact_upstream,
        kept_answer_bytes: proxy.kept_answer_bytes,
        compaction_seconds: proxy.compaction_seconds,
        connect_seconds: proxy.connect_seconds,
        first_byte_seconds: proxy.first_byte_seconds,
        idle_seconds: proxy.idle_seconds,
    }
}

fn upstreams_of(settings: &UpstreamSettings, keys: &BTreeMap<String, ApiKey>) -> TenantUpstreams {
    let one = |url: &str, variable: &str, secret: &str| UpstreamOptions {
        url: (!url.is_empty()).then(|| url.to_owned()),
        key: match (keys.get(variable), secret) {
            (Some(key), _) => UpstreamKey::Given(key.clone()),
            (None, "") => UpstreamKey::Absent,
            (None, secret) => UpstreamKey::Secret(secret.to_owned()),
        },
    };
    TenantUpstreams {
        openai: one(&settings.openai_url, &settings.openai_key_env, &settings.openai_key_secret),
        anthropic: one(
            &settings.anthropic_url, &settings.anthropic_key_env, &settings.anthropic_key_secret,
        ),
    }
}

pub(super) fn limits(settings: &ServeSettings, proxy: &ProxySettings) -> Limits {
    Limits {
        proxy_body_bytes: proxy.body_bytes,
        proxy_streams: proxy.streams,
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
    use icecore::config::FileConfig;

    use super::*;
    use crate::args::Global;
    use crate::settings::{Env, resolve};

    #[test]
    fn the_settings_and_the_door_have_the_same_defaults() {
        let settings = ServeSettings::default();
        assert_eq!(limits(&settings, &ProxySettings::default()), Limits::default());
        let options = ServerOptions::default();
        assert_eq!(settings.listen, options.listen);
        assert_eq!(settings.allowed_hosts, options.allowed_hosts);
        let protocol = host_settings(&OpenwopSettings::default(), false);
        assert_eq!(protocol, HostSettings::default());
    }

    #[test]
    fn the_settings_and_the_proxy_have_the_same_defaults() {
        let settings = resolve(Global::default(), &env(), None).unwrap();
        let (found, usual) = (proxy_options(&settings), ProxyOptions::default());
        assert_eq!(format!("{found:?}"), format!("{usual:?}"));
    }

    #[test]
    fn providers_and_their_keys_come_from_the_settings() {
        let file = FileConfig::parse(
            "[proxy]\nopenai_url = \"https://a/v1\"\nopenai_key_env = \"K\"\nwindow = 7\n\
             [proxy.tenants.acme]\nanthropic_url = \"https://b/v1\"\nanthropic_key_secret = \"s\"\n\
             [models.small]\nurl = \"http://h/v1\"\nmodel = \"m-1\"\nwindow = 9000",
        );
        let mut settings = resolve(Global::default(), &env(), file.ok()).unwrap();
        let refused = check_keys(&settings).unwrap_err();
        assert!(refused.message().contains("`K` is not set"), "{}", refused.message());
        settings.upstream_keys.insert("K".to_owned(), ApiKey::new("a-key-of-tests"));
        check_keys(&settings).unwrap();
        let options = proxy_options(&settings);
        assert!(matches!(options.upstreams.openai.key, UpstreamKey::Given(_)));
        assert_eq!(options.upstreams.openai.url.as_deref(), Some("https://a/v1"));
        let UpstreamKey::Secret(name) = &options.tenants["acme"].anthropic.key else { panic!() };
        assert_eq!((name.as_str(), options.window, options.reserve), ("s", Some(7), None));
        assert_eq!(options.windows.get("m-1"), Some(&9_000));
        assert!(!format!("{options:?}").contains("a-key-of-tests"));
    }

    fn env() -> Env {
        Env { data_home: Some("data".into()), ..Env::default() }
    }
}
