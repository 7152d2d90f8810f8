//! The provider: who it is, what it is shown, and how its answer begins.
//!
//! Nothing is asked twice by itself, and no redirect is followed: the client decides.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use icecore::Tenant;
use icecore::models::Protocol;
use icecore_models::{ApiKey, overflow_of};
use tokio::time::{Instant, timeout_at};

use super::answer::{First, FirstEvent};
use super::options::{ProxyOptions, UpstreamKey};
use super::{Proxy, headers};
use crate::app::App;
use crate::error::ApiError;

/// Of a refusal, this much is read before it goes on (1 MiB).
const MOST_REFUSAL_BYTES: usize = 1 << 20;

/// A first event that comes later is not waited for: its client learns that the provider
/// is at work, and is told itself if the request did not fit.
const FIRST_EVENT: Duration = Duration::from_secs(1);

/// A first event that is larger is no refusal (64 KiB).
const MOST_FIRST_BYTES: usize = 64 << 10;

/// Clients by the address that they are for: each keeps its connections.
#[derive(Default)]
pub(super) struct Clients(Mutex<BTreeMap<String, reqwest::Client>>);

impl Clients {
    fn of(&self, url: &str, options: &ProxyOptions) -> Result<reqwest::Client, ApiError> {
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(url) {
            return Ok(client.clone());
        }
        let client = icecore_http::client(url, options.connect_time()).map_err(|reason| {
            ApiError::internal(&format!("cannot set up connections upstream: {reason}"))
        })?;
        // Addresses come from the settings, so there are few.
        clients.insert(url.to_owned(), client.clone());
        Ok(client)
    }
}

/// A provider, as one request reaches it.
pub(crate) struct Upstream {
    client: reqwest::Client,
    url: String,
    /// Its key, where that is not the client's.
    key: Option<ApiKey>,
    /// What it is shown.
    shown: HeaderMap,
    first_byte: Duration,
}

/// What goes to a provider.
pub(crate) struct Sent<'a> {
    pub(crate) method: Method,
    /// The address behind the version path, with its query.
    pub(crate) rest: &'a str,
    /// Of the client's request.
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: Bytes,
}

/// An answer that has begun.
pub(crate) struct Begun {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Whether it comes in events.
    pub(crate) is_stream: bool,
    /// What came so far.
    pub(crate) pieces: Vec<Bytes>,
    /// What is still to come.
    pub(crate) rest: Option<reqwest::Response>,
    /// Until when the first piece may come, where none has.
    pub(crate) begins_by: Option<Instant>,
    /// That the request did not fit, with the window if it is named.
    pub(crate) overflow: Option<u64>,
}

impl Upstream {
    /// The provider of a tenant.
    pub(crate) async fn of(
        app: &App,
        tenant: &Tenant,
        protocol: Protocol,
        asked: &HeaderMap,
    ) -> Result<Self, ApiError> {
        let Proxy { options, clients, .. } = &app.proxy;
        let named = options.upstream(tenant.as_str(), protocol);
        let url = named.url.ok_or_else(|| not_configured(protocol))?;
        let mut shown = HeaderMap::new();
        let key = match named.key {
            UpstreamKey::Absent => None,
            UpstreamKey::Given(key) => Some(key),
            UpstreamKey::Secret(name) => Some(registered(app, tenant, &name).await?),
            UpstreamKey::Callers => {
                for name in [header::AUTHORIZATION, headers::API_KEY] {
                    shown
                        .extend(asked.get_all(&name).iter().map(|key| (name.clone(), key.clone())));
                }
                None
            }
        };
        if let Some(key) = &key {
            let (name, word) = match protocol {
                Protocol::OpenAi => (header::AUTHORIZATION, "Bearer "),
                Protocol::Anthropic => (headers::API_KEY, ""),
            };
            let mut value = HeaderValue::from_str(&key.after(word)).map_err(|_| {
                unavailable("the key for upstream has characters that no header may have")
            })?;
            value.set_sensitive(true);
            shown.insert(name, value);
        }
        let client = clients.of(&url, options)?;
        let url = url.trim_end_matches('/').to_owned();
        Ok(Self { client, url, key, shown, first_byte: options.first_byte_time() })
    }

    /// Sends a request, and waits for its answer to begin.
    pub(crate) async fn send(&self, sent: Sent<'_>) -> Result<Begun, ApiError> {
        let deadline = Instant::now() + self.first_byte;
        let mut headers = headers::sent(sent.headers);
        headers.extend(self.shown.clone());
        let url = format!("{}{}", self.url, sent.rest);
        let request = self.client.request(sent.method, url).headers(headers).body(sent.body);
        let response = self.in_time(deadline, request.send()).await?;
        self.begin(deadline, response).await
    }

    async fn in_time<T>(
        &self,
        deadline: Instant,
        step: impl Future<Output = reqwest::Result<T>>,
    ) -> Result<T, ApiError> {
        match timeout_at(deadline, step).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(broken(error)),
            Err(_) => {
                let message = not_begun(self.first_byte);
                Err(ApiError::new(StatusCode::GATEWAY_TIMEOUT, "upstream_timeout", message))
            }
        }
    }

    async fn begin(
        &self,
        deadline: Instant,
        mut response: reqwest::Response,
    ) -> Result<Begun, ApiError> {
        let is_stream = is_event_stream(response.headers());
        let mut begun = Begun {
            status: response.status(),
            headers: headers::answered(response.headers()),
            is_stream,
            pieces: Vec::new(),
            rest: None,
            begins_by: None,
            overflow: None,
        };
        let is_refusal = begun.status.is_client_error() || begun.status.is_server_error();
        let mut first = FirstEvent::new();
        let mut bytes = 0;
        let patience = Instant::now() + FIRST_EVENT;
        let is_waited_for = is_stream && !is_refusal && patience < deadline;
        loop {
            let came = match is_waited_for {
                false => self.in_time(deadline, response.chunk()).await?,
                true => match timeout_at(patience, response.chunk()).await {
                    Ok(came) => came.map_err(broken)?,
                    Err(_) => {
                        begun.begins_by = begun.pieces.is_empty().then_some(deadline);
                        begun.rest = Some(response);
                        return Ok(begun);
                    }
                },
            };
            let Some(piece) = came else { break };
            bytes += piece.len();
            let told = if is_stream { first.take(&piece) } else { First::Begun };
            begun.pieces.push(piece);
            let waits = match (is_refusal, told) {
                (true, _) => bytes < MOST_REFUSAL_BYTES,
                (false, First::Awaited) => bytes < MOST_FIRST_BYTES,
                (false, First::Begun) => false,
                (false, First::Overflow(window)) => {
                    begun.overflow = Some(window);
                    false
                }
            };
            if !waits {
                begun.rest = Some(response);
                return Ok(begun);
            }
        }
        if is_refusal {
            self.refused(&mut begun);
        }
        Ok(begun)
    }

    /// Looks at a whole refusal. Some providers repeat the key that they refuse, which is
    /// not for our callers to see.
    fn refused(&self, begun: &mut Begun) {
        let body = begun.pieces.concat();
        let text = String::from_utf8_lossy(&body);
        let overflow = overflow_of(begun.status.as_u16(), &text);
        begun.overflow = overflow.map(|overflow| overflow.limit.unwrap_or(0));
        let Some(key) = &self.key else { return };
        let clean = key.hidden_in(&text);
        if clean != text {
            begun.headers.remove(header::CONTENT_LENGTH);
            begun.pieces = vec![clean.into()];
        }
    }
}

/// That an answer does not begin.
pub(crate) fn not_begun(within: Duration) -> String {
    let seconds = within.as_secs();
    format!("the provider did not begin to answer within {seconds} s (`proxy.first_byte_seconds`)")
}

pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream"))
}

/// The newest value of a tenant's secret. It is looked up each time, for it may be replaced
/// while the host runs.
async fn registered(app: &App, tenant: &Tenant, name: &str) -> Result<ApiKey, ApiError> {
    match app.memory.secret(tenant, name).await? {
        Some(value) => Ok(ApiKey::new(value.as_str())),
        None => Err(ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "upstream_key_missing",
            format!(
                "the key for upstream is the secret `{name}`, and the tenant has none of that name; register it with `icecore secret add {name}`"
            ),
        )),
    }
}

fn not_configured(protocol: Protocol) -> ApiError {
    let name = protocol.as_str();
    ApiError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "upstream_not_configured",
        format!(
            "no provider is set up for this route; say where requests go on to with `proxy.{name}_url` in the settings file"
        ),
    )
}

fn unavailable(message: &'static str) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "upstream_unavailable", message)
}

/// What went wrong between us and the provider, without its address.
fn broken(error: reqwest::Error) -> ApiError {
    let error = error.without_url();
    let (code, message) = match error.is_connect() {
        true => ("upstream_unreachable", "the provider cannot be reached"),
        false => ("upstream_broken", "the connection to the provider broke before it answered"),
    };
    tracing::warn!(%error, "{message}");
    ApiError::new(StatusCode::BAD_GATEWAY, code, message)
}
