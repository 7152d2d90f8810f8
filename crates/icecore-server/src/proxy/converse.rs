//! The life of a request: understood, matched, made to fit, sent, and kept.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use icecore::formats::json::{JsonText, TextPlace};
use icecore::models::{Protocol, Usage};
use icecore::privacy::Redactor;
use icecore::sessions::{
    ExceedsWindow, FittedHistory, FollowRequest, Followed, Following, HistoryFit, SessionWindow,
};
use icecore::{MemoryError, Principal, Scope};
use icecore_models::known_window;
use tokio::sync::Semaphore;

use super::asked::{Asked, NotUnderstood};
use super::headers::{self, told};
use super::relay::{Keeper, Relay, Stream};
use super::upstream::{Begun, Sent, Upstream};
use super::{media, words};
use crate::app::{App, Shared};
use crate::error::ApiError;
use crate::work::{Work, beside};

/// Compactions of one request.
const MOST_COMPACTIONS: usize = 2;

/// What takes longer than this to fit is no work of ours any more: a model is asked.
const OWN_WORK: Duration = Duration::from_millis(500);

/// Of a window, at most this share is kept free where a request does not say how much.
const RESERVED_SHARE: u64 = 4;

/// Of a window, at most this share is kept free in any case: a client may allow an answer
/// more than there is.
const MOST_RESERVED_SHARE: u64 = 2;

/// A client's request.
pub(crate) struct Asking {
    pub(crate) app: Shared,
    pub(crate) work: Work,
    pub(crate) principal: Principal,
    pub(crate) protocol: Protocol,
    pub(crate) method: Method,
    /// The address behind the version path, with its query.
    pub(crate) rest: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Why a request does not go on as it should.
enum Trouble {
    /// It cannot be made to fit.
    Exceeds(ExceedsWindow),
    /// It was not made to fit in time.
    Late(ApiError),
    /// The client is wrong.
    Refused(ApiError),
    /// Our store is.
    Failed(ApiError),
}

impl From<MemoryError> for Trouble {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::RequestExceedsWindow(told) => Trouble::Exceeds(told),
            MemoryError::Name(error) => {
                Trouble::Refused(ApiError::invalid(format!("`X-Icecore-Session`: {error}")))
            }
            error => Trouble::Failed(error.into()),
        }
    }
}

impl Asking {
    /// Sends the request as it came and hands the answer back as it comes.
    pub(crate) async fn pass(self) -> Result<Response, ApiError> {
        let stream = self.take_stream()?;
        let upstream = self.upstream().await?;
        self.through(&upstream, stream, HeaderMap::new()).await
    }

    /// Answers a request with memory behind it.
    pub(crate) async fn converse(self) -> Result<Response, ApiError> {
        let stream = self.take_stream()?;
        let upstream = self.upstream().await?;
        let (protocol, body) = (self.protocol, self.body.clone());
        let read = beside(body.len(), move || Asked::read(protocol, body)).await?;
        let asked = match read {
            Ok(asked) => asked,
            Err(NotUnderstood(reason)) => {
                let mut headers = HeaderMap::new();
                headers.insert(headers::PASSTHROUGH, told(reason));
                return self.through(&upstream, stream, headers).await;
            }
        };
        if asked.messages.iter().any(|message| message.turn.check().is_err()) {
            return self.warned(&upstream, stream, "message-too-large").await;
        }
        let scope = self.scope().await;
        let begun = match scope {
            Ok(scope) => Exchange::begin(&self, scope, asked).await,
            Err(trouble) => Err((trouble, None)),
        };
        match begun {
            Ok(exchange) => exchange.run(&self, &upstream, stream).await,
            Err((trouble, exchange)) => match trouble {
                Trouble::Exceeds(told) => {
                    self.keep_unsent(exchange).await;
                    self.app.metrics.proxied(self.protocol, "exceeds_window");
                    Ok(words::exceeds(self.protocol, &told))
                }
                Trouble::Late(error) => {
                    self.keep_unsent(exchange).await;
                    self.app.metrics.proxied(self.protocol, "not_compacted");
                    Err(error)
                }
                Trouble::Refused(error) => Err(error),
                Trouble::Failed(error) if self.app.proxy.options.fail_open => {
                    self.warned(&upstream, stream, &store_failed(error.code())).await
                }
                Trouble::Failed(error) => Err(error),
            },
        }
    }

    /// Nothing is sent, and nothing lost.
    async fn keep_unsent(&self, exchange: Option<Box<Exchange>>) {
        if let Some(mut exchange) = exchange
            && let Err(Trouble::Failed(error)) = exchange.keep(&self.app).await
        {
            tracing::warn!(?error, "a request that does not fit was not kept");
        }
    }

    async fn upstream(&self) -> Result<Upstream, ApiError> {
        Upstream::of(&self.app, self.principal.tenant(), self.protocol, &self.headers).await
    }

    /// The memory that the client names, or the usual one.
    async fn scope(&self) -> Result<Scope, Trouble> {
        let named = text(&self.headers, &headers::MEMORY).map_err(Trouble::Refused)?;
        let usual = self.app.proxy.alone.as_ref().map_or("default", |alone| alone.memory.as_str());
        let scope = self.app.memory.scope(&self.principal, named.unwrap_or(usual)).await;
        scope.map_err(|error| match error {
            MemoryError::Name(error) => {
                Trouble::Refused(ApiError::invalid(format!("`X-Icecore-Memory`: {error}")))
            }
            error => Trouble::Failed(error.into()),
        })
    }

    /// A stream of the tenant's share, and of all.
    fn take_stream(&self) -> Result<Stream, ApiError> {
        let (app, limits) = (&self.app, &self.app.limits);
        let share = app.shares.of(self.principal.tenant());
        let take = |of: &Arc<Semaphore>, most: usize, names: &str| {
            Arc::clone(of).try_acquire_owned().map_err(|_| {
                let message = format!("{most} requests are with their providers ({names})");
                ApiError::later("overloaded", message)
            })
        };
        let own = "of one tenant: `tenant_percent` of `proxy.streams`";
        let own = take(&share.proxies, limits.tenant_proxies(), own)?;
        let one = take(&app.proxy.streams, limits.proxy_streams, "`proxy.streams`")?;
        Ok(Stream { _share: share, _permits: [own, one] })
    }

    async fn warned(
        &self,
        upstream: &Upstream,
        stream: Stream,
        warning: &str,
    ) -> Result<Response, ApiError> {
        let mut headers = HeaderMap::new();
        headers.insert(headers::WARNING, told(warning));
        self.through(upstream, stream, headers).await
    }

    /// The request as it came, without memory.
    async fn through(
        &self,
        upstream: &Upstream,
        stream: Stream,
        headers: HeaderMap,
    ) -> Result<Response, ApiError> {
        let body = hidden(&self.app, self.principal.tenant(), self.body.clone()).await?;
        self.work.leave();
        let begun = self.send(upstream, body, false).await?;
        let outcome = if begun.status.is_success() { "passed" } else { "refused" };
        self.app.metrics.proxied(self.protocol, outcome);
        Ok(self.respond(begun, None, stream, headers))
    }

    /// Sends a body; `is_again` where another went before it for the same request.
    async fn send(
        &self,
        upstream: &Upstream,
        body: Bytes,
        is_again: bool,
    ) -> Result<Begun, ApiError> {
        let began = std::time::Instant::now();
        let (method, rest) = (self.method.clone(), self.rest.as_str());
        let mut headers = std::borrow::Cow::Borrowed(&self.headers);
        if is_again {
            // It stands for the body that it came with.
            headers.to_mut().remove(headers::IDEMPOTENCY_KEY);
        }
        let begun = upstream.send(Sent { method, rest, headers: &headers, body }).await;
        self.app.metrics.upstream(self.protocol, began.elapsed());
        if begun.is_err() {
            self.app.metrics.proxied(self.protocol, "unreachable");
        }
        begun
    }

    fn respond(
        &self,
        begun: Begun,
        keeper: Option<Keeper>,
        stream: Stream,
        headers: HeaderMap,
    ) -> Response {
        let (app, protocol) = (Arc::clone(&self.app), self.protocol);
        let mut response = Relay { app, protocol, begun, keeper, stream }.respond();
        response.headers_mut().extend(headers);
        response
    }
}

/// A request that is understood, on its way.
struct Exchange {
    scope: Scope,
    asked: Asked,
    followed: Followed,
    fit: HistoryFit,
    fitted: Option<FittedHistory>,
    spent: Usage,
    is_kept: bool,
    compactions: usize,
    /// The last compaction that was made for it.
    compaction: Option<String>,
}

impl Exchange {
    /// Matches the history and makes it fit. With an error comes what there is by then.
    async fn begin(
        asking: &Asking,
        scope: Scope,
        asked: Asked,
    ) -> Result<Self, (Trouble, Option<Box<Self>>)> {
        let app = &asking.app;
        let counted = super::counts::of(app, asked).await;
        let (asked, beside_tokens) = counted.map_err(|error| (Trouble::Failed(error), None))?;
        let fit = HistoryFit {
            window: Some(window(app, &asked)),
            beside_tokens,
            model: asked.model.clone(),
            overflowed: None,
            attempts: 0,
            recall_tokens: app.proxy.options.recall_tokens,
        };
        let followed = follow(asking, &scope, &asked).await.map_err(|trouble| (trouble, None))?;
        let mut exchange = Self {
            scope,
            asked,
            followed,
            fit,
            fitted: None,
            spent: Usage::default(),
            is_kept: true,
            compactions: 0,
            compaction: None,
        };
        match exchange.refit(asking).await {
            Ok(_) => Ok(exchange),
            Err(trouble) => Err((trouble, Some(Box::new(exchange)))),
        }
    }

    /// Makes the history fit; whether anything was compacted for that.
    async fn refit(&mut self, asking: &Asking) -> Result<bool, Trouble> {
        let app = &asking.app;
        self.fit.attempts = self.compactions;
        let fitting = app
            .memory
            .fit_history(&self.scope, &mut self.followed, &self.asked.messages, &self.fit);
        let (fitted, spent) = in_time(asking, icecore::models::spending(fitting)).await?;
        self.spent.input += spent.input;
        self.spent.output += spent.output;
        let fitted = fitted?;
        self.compactions += fitted.compactions.len();
        app.metrics.compacted(fitted.compactions.len());
        let is_compacted = !fitted.compactions.is_empty();
        if let Some(last) = fitted.compactions.last() {
            self.compaction = Some(last.handoff.id.clone());
        }
        self.fitted = Some(fitted);
        Ok(is_compacted)
    }

    async fn keep(&mut self, app: &App) -> Result<(), Trouble> {
        let kept =
            app.memory.keep_history(&self.scope, &mut self.followed, &self.asked.messages).await;
        Ok(kept?)
    }

    /// The body as it goes upstream.
    async fn body(&self, app: &App) -> Result<Bytes, ApiError> {
        let body = match &self.fitted {
            Some(fitted) => self.asked.sent(fitted),
            None => self.asked.body().clone(),
        };
        hidden(app, self.scope.tenant(), body).await
    }

    /// Sends it, again after a compaction where it did not fit, and brings the answer back.
    async fn run(
        mut self,
        asking: &Asking,
        upstream: &Upstream,
        stream: Stream,
    ) -> Result<Response, ApiError> {
        let app = &asking.app;
        let mut warning = None;
        let begun = loop {
            let body = self.body(app).await?;
            asking.work.leave();
            // What is new is durable before the client sees anything of an answer.
            let is_again = self.fit.overflowed.is_some();
            let (begun, kept) = tokio::join!(asking.send(upstream, body, is_again), self.keep(app));
            if let Err(trouble) = kept {
                match trouble {
                    Trouble::Failed(error) if app.proxy.options.fail_open => {
                        warning = Some(error.code());
                        self.is_kept = false;
                    }
                    Trouble::Failed(error) | Trouble::Refused(error) | Trouble::Late(error) => {
                        return Err(error);
                    }
                    Trouble::Exceeds(told) => return Ok(words::exceeds(asking.protocol, &told)),
                }
            }
            let begun = begun?;
            let Some(window) = begun.overflow else { break begun };
            if self.compactions >= MOST_COMPACTIONS || !self.is_kept {
                break begun;
            }
            asking.work.begin().await?;
            self.fit.overflowed = Some(window);
            match self.refit(asking).await {
                Ok(true) => {}
                Ok(false) => break begun,
                Err(Trouble::Exceeds(told)) => {
                    app.metrics.proxied(asking.protocol, "exceeds_window");
                    return Ok(words::exceeds(asking.protocol, &told));
                }
                Err(Trouble::Late(error)) => {
                    app.metrics.proxied(asking.protocol, "not_compacted");
                    return Err(error);
                }
                Err(Trouble::Failed(error) | Trouble::Refused(error)) => {
                    warning = Some(error.code());
                    break begun;
                }
            }
        };
        let mut headers = if self.is_kept { self.told() } else { HeaderMap::new() };
        if let Some(warning) = warning {
            headers.insert(headers::WARNING, told(&store_failed(warning)));
        }
        if !begun.status.is_success() {
            app.metrics.proxied(asking.protocol, "refused");
        }
        let keeper = self.is_kept.then(|| Keeper {
            memory: app.memory.clone(),
            counted: self.fitted.as_ref().map_or(0, |fitted| fitted.counted),
            scope: self.scope,
            followed: self.followed,
            model: self.asked.model,
        });
        Ok(asking.respond(begun, keeper, stream, headers))
    }

    /// What a client may want to know of it.
    fn told(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let following = match self.followed.following {
            Following::Continues => "continues",
            Following::Forks => "forks",
            Following::Begins => "begins",
        };
        headers.insert(headers::SESSION, told(&self.followed.session));
        headers.insert(headers::FOLLOWING, told(following));
        if let Some(fitted) = &self.fitted {
            headers.insert(headers::REQUEST_TOKENS, fitted.request_tokens.into());
        }
        if let Some(compaction) = &self.compaction {
            headers.insert(headers::COMPACTION, told(compaction));
        }
        let Usage { input, output, .. } = self.spent;
        if input + output > 0 {
            let spent = format!("input={input}, output={output}");
            headers.insert(headers::DISTILLATION, told(&spent));
        }
        headers
    }
}

/// Fits in our own time and place. What takes longer waits for a model: no place is held
/// for that, and it has a limit of its own.
async fn in_time<T>(asking: &Asking, fitting: impl Future<Output = T>) -> Result<T, Trouble> {
    let options = &asking.app.proxy.options;
    let deadline = tokio::time::Instant::now() + options.compaction_time();
    tokio::pin!(fitting);
    if let Ok(fitted) = tokio::time::timeout(OWN_WORK, &mut fitting).await {
        return Ok(fitted);
    }
    asking.work.leave();
    tokio::time::timeout_at(deadline, fitting).await.map_err(|_| {
        let seconds = options.compaction_seconds;
        Trouble::Late(ApiError::new(
            StatusCode::GATEWAY_TIMEOUT,
            "compaction_timeout",
            format!(
                "the history could not be made to fit within {seconds} s (`proxy.compaction_seconds`); nothing was sent, and what is new is kept; ask again, or give handoffs a faster model"
            ),
        ))
    })
}

/// What a client is told of a store that fails.
fn store_failed(code: &str) -> String {
    format!("store-failed ({code})")
}

async fn follow(asking: &Asking, scope: &Scope, asked: &Asked) -> Result<Followed, Trouble> {
    let session = text(&asking.headers, &headers::SESSION).map_err(Trouble::Refused)?;
    let retries = asking.headers.get(headers::RETRY_COUNT).and_then(|count| count.to_str().ok());
    let new_session = new_session(asking)?;
    let request = FollowRequest {
        messages: &asked.messages,
        session,
        is_retry: retries.and_then(|count| count.parse().ok()).is_some_and(|count: u32| count > 0),
        new_session: &new_session,
    };
    Ok(asking.app.memory.follow(scope, &request).await?)
}

/// A name for a session that begins: when it did, and what no other has.
fn new_session(asking: &Asking) -> Result<String, Trouble> {
    let mut random = [0; 6];
    getrandom::fill(&mut random).map_err(|error| Trouble::Failed(ApiError::internal(&error)))?;
    let now = asking.app.memory.now().to_rfc3339();
    let day = now.split('T').next().unwrap_or_default();
    Ok(format!("{}-{day}-{}", asking.protocol.as_str(), hex::encode(random)))
}

/// A header of ours, which must be text.
fn text<'a>(
    headers: &'a HeaderMap,
    name: &axum::http::HeaderName,
) -> Result<Option<&'a str>, ApiError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    // Names may be of any script, and a header is bytes.
    std::str::from_utf8(value.as_bytes())
        .map(|text| Some(text).filter(|text| !text.is_empty()))
        .map_err(|_| ApiError::invalid(format!("the header `{name}` must be UTF-8")))
}

/// The window of a request: declared, known of its model, or the usual one; and what is
/// kept free of it.
fn window(app: &App, asked: &Asked) -> SessionWindow {
    let options = &app.proxy.options;
    let usual = app.memory.session_window();
    let model = asked.model.as_deref().unwrap_or_default();
    let declared = options.window.or_else(|| options.windows.get(model).copied());
    let window = declared.or_else(|| known_window(model)).unwrap_or(usual.window);
    let free = options.reserve.unwrap_or(usual.reserve.min(window / RESERVED_SHARE));
    let reserve = asked.answer_tokens.unwrap_or(free).min(window / MOST_RESERVED_SHARE).max(1);
    SessionWindow { window, reserve }
}

/// The body without secrets, where the settings want it so. Then nothing goes on that
/// could not be looked through.
async fn hidden(app: &App, tenant: &icecore::Tenant, body: Bytes) -> Result<Bytes, ApiError> {
    if !app.proxy.options.redact_upstream || body.is_empty() {
        return Ok(body);
    }
    let redactor = app.memory.redactor(tenant).await?.redactor;
    // No text of a client's is taken for it.
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| ApiError::internal(&error))?;
    let marker = format!("icecore-file-{}-", hex::encode(random));
    let hide = move || {
        let text = std::str::from_utf8(&body).ok()?;
        Some(match JsonText::parse(text) {
            Ok(json) => Bytes::from(without_secrets(&redactor, &json, &marker).as_str().to_owned()),
            Err(_) => Bytes::from(redactor.text(text).into_string()),
        })
    };
    let hidden = beside(usize::MAX, hide).await?;
    hidden.ok_or_else(|| {
        ApiError::invalid("the body is not text, and secrets must be hidden in what goes upstream (`proxy.redact_upstream`)")
    })
}

/// The bytes of files stay as they are: no picture survives a marker in it. Meanwhile
/// `marker` and a number stand for each.
fn without_secrets(redactor: &Redactor, json: &JsonText, marker: &str) -> JsonText {
    let is_file = |place: &TextPlace<'_>, text: &str| match place {
        TextPlace::Under(key) => media::placeholder(Some(key), text).is_some(),
        _ => false,
    };
    let mut files = Vec::new();
    let marked = json.map_text(|place, text| {
        is_file(&place, text).then(|| {
            files.push(text.to_owned());
            format!("{marker}{}", files.len() - 1)
        })
    });
    if files.is_empty() {
        return redactor.json(json);
    }
    redactor.json(&marked).map_text(|place, text| match place {
        TextPlace::Under(_) => {
            files.get(text.strip_prefix(marker)?.parse::<usize>().ok()?).cloned()
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: &str = "icecore-file-0f5a1c2e9b7d4a6688c3e1f0a2b4c6d8-";

    #[test]
    fn what_looks_like_a_file_of_ours_stays_as_it_is() {
        let data = "QUJD".repeat(100);
        let body = format!(
            r#"{{"data":"{data}","a":"icecore-file-0","{MARKER}0":"b","c":"{MARKER}1","d":["x"]}}"#
        );
        let json = JsonText::parse(&body).unwrap();
        assert_eq!(without_secrets(&Redactor::standard(), &json, MARKER).as_str(), body);
    }

    #[test]
    fn pictures_stay_whole_where_secrets_are_hidden() {
        let token = format!("ghp_{}", "a1B2".repeat(9));
        let data = "QUJD".repeat(100);
        let body = format!(
            r#"{{"messages":[{{"content":[{{"text":"it is {token}"}},{{"image_url":{{"url":"data:image/png;base64,{data}"}}}}]}}]}}"#
        );
        let json = JsonText::parse(&body).unwrap();
        let clean = without_secrets(&Redactor::standard(), &json, MARKER);
        let expected = body.replace(&token, "[REDACTED:github-token]");
        assert_eq!(clean.as_str(), expected);
    }
}
