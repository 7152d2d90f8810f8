//! `icecore proxy`: the compacting proxy alone, for one person on this machine.

use icecore_server::{Alone, Listener, ServeError, ServerOptions, UpstreamKey};
use icecore_server::{TenantUpstreams, UpstreamOptions};
use serde_json::json;

use super::serve::{self, stopped, unheard};
use crate::app::{App, DEFAULT_MEMORY, Needs, Talk};
use crate::args::ProxyArgs;
use crate::failure::{Failure, Outcome, Status};
use crate::printer::Printer;
use crate::settings::Settings;

/// Where it listens where nothing else is said.
const LISTEN: &str = "127.0.0.1:7434";

/// Hands chats on until it is told to stop, and then finishes what it accepted.
pub async fn run(args: ProxyArgs, settings: Settings, printer: Printer) -> Outcome<Status> {
    let upstream = upstream(&args.upstream)?;
    let wanted = args.listen.as_deref().unwrap_or(LISTEN);
    let listener = Listener::bind(wanted).await.map_err(unheard)?;
    if listener.address().is_some_and(|address| !address.ip().is_loopback()) {
        return Err(not_here(wanted));
    }
    let app = App::open(settings, printer, Needs { vectors: true, talk: Talk::Yes }).await?;
    let done = serve(&app, upstream, listener, wanted).await;
    app.host.bounds.write().await;
    done
}

async fn serve(app: &App, upstream: String, listener: Listener, wanted: &str) -> Outcome<Status> {
    // From here on a signal ends it well.
    let shutdown = stopped()?;
    let shown = listener.shown();
    if app.printer.is_json() {
        let (openai, anthropic) = (format!("{shown}/openai/v1"), format!("{shown}/anthropic"));
        let urls = json!({ "openai": openai, "anthropic": anthropic });
        app.printer.json(&json!({ "listening": shown, "baseUrls": urls }))?;
    }
    app.printer.talk(&format!("Listening on {shown}"));
    app.printer.talk(&format!("  base URL for OpenAI clients:    {shown}/openai/v1"));
    app.printer.talk(&format!("  base URL for Anthropic clients: {shown}/anthropic"));
    let alone = Alone {
        principal: app.principal.clone(),
        memory: app.settings.memory.clone().unwrap_or_else(|| DEFAULT_MEMORY.to_owned()),
    };
    let options = options(&app.settings, upstream);
    let served =
        icecore_server::serve_proxy(app.host.clone(), alone, listener, options, shutdown).await;
    served.map_err(|error| match error {
        ServeError::NotLoopback { .. } => not_here(wanted),
        error => serve::failure(error),
    })?;
    app.printer.talk("Stopped; everything accepted is stored");
    Ok(Status::Done)
}

fn options(settings: &Settings, upstream: String) -> ServerOptions {
    let url = Some(upstream);
    let provider = UpstreamOptions { url, key: UpstreamKey::Callers, ..UpstreamOptions::default() };
    let mut options = serve::options(settings);
    options.proxy.upstreams = TenantUpstreams { openai: provider.clone(), anthropic: provider };
    options.proxy.tenants.clear();
    // All is for the one tenant there is.
    options.limits.tenant_percent = 100;
    options
}

/// The provider's address, if it is one.
fn upstream(given: &str) -> Outcome<String> {
    let hint = "give the provider's address up to and with the version path, like https://api.openai.com/v1";
    let refuse = |why: &str| Err(Failure::refused(format!("--upstream {why}"), hint));
    let Some(rest) = given.strip_prefix("https://").or_else(|| given.strip_prefix("http://"))
    else {
        return refuse("must begin with http:// or https://");
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return refuse("holds credentials; clients send their own key");
    }
    if rest.contains(['?', '#']) {
        return refuse("has more than a path behind its host");
    }
    let is_host = !authority.is_empty() && !authority.starts_with(':');
    let can_be_asked = || {
        let client = icecore_http::client(given, std::time::Duration::from_secs(1));
        client.is_ok_and(|client| client.get(given).build().is_ok())
    };
    match is_host && can_be_asked() {
        true => Ok(given.trim_end_matches('/').to_owned()),
        false => refuse("is no address of a server"),
    }
}

/// Refuses flags that do not go together.
pub fn check(args: &ProxyArgs) -> Outcome<()> {
    match (args.window, args.reserve) {
        (Some(window), Some(reserve)) if reserve >= window => Err(Failure::refused(
            format!("--reserve {reserve} leaves nothing of a window of {window} tokens"),
            "give a smaller reserve, or the window that the model has",
        )),
        _ => Ok(()),
    }
}

fn not_here(wanted: &str) -> Failure {
    Failure::refused(
        format!("a proxy that asks for no key listens on loopback only, and {wanted} is not"),
        "use `icecore serve`, which asks for keys, to be reached from other machines",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_has_an_address() {
        let told = |given: &str| match upstream(given) {
            Ok(url) => url,
            Err(failure) => failure.message(),
        };
        assert_eq!(told("https://api.openai.com/v1/"), "https://api.openai.com/v1");
        assert_eq!(told("http://127.0.0.1:8080/v1"), "http://127.0.0.1:8080/v1");
        for wrong in ["", "api.openai.com", "ftp://a/v1", "file:///etc"] {
            assert!(told(wrong).contains("must begin with http://"), "{wrong}");
        }
        for wrong in ["http://", "http://:80/v1", "http://a b/v1", "https:///v1"] {
            assert!(told(wrong).contains("is no address"), "{wrong}: {}", told(wrong));
        }
        assert!(told("http://me:pw@host/v1").contains("holds credentials"));
        assert!(told("http://host/v1?x=1").contains("more than a path"));
    }
}
