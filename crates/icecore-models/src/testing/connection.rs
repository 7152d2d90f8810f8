//! One connection: requests in, behaviours out.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use icecore_domain::chat::{Protocol, Usage};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::answer::{self, Answer, End};
use super::{Behaviour, ServerKind, Shared, UpstreamRequest, counting, refusals, shape};

/// What becomes of the connection.
enum Then {
    /// It takes another request.
    GoesOn,
    /// It is closed.
    Ends,
}

/// Serves requests, one after the other, until either side has enough.
pub(super) async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let mut line = Line { stream: BufReader::new(stream), shared };
    while let Ok(Some(request)) = line.read().await {
        match line.answer(request).await {
            Ok(Then::GoesOn) => {}
            Ok(Then::Ends) => return,
            Err(_) => {
                line.shared.state().given_up += 1;
                return;
            }
        }
    }
}

struct Line {
    stream: BufReader<TcpStream>,
    shared: Arc<Shared>,
}

impl Line {
    async fn read(&mut self) -> io::Result<Option<UpstreamRequest>> {
        let first = self.line().await?;
        let mut words = first.split(' ');
        let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(None) };
        let mut headers = Vec::new();
        loop {
            let header = self.line().await?;
            let Some((name, value)) = header.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        let json: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (method, path) = (method.to_owned(), path.to_owned());
        Ok(Some(UpstreamRequest { method, path, headers, body, json, tokens: 0, cached_tokens: 0 }))
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line).await?;
        Ok(line.trim_end().to_owned())
    }

    async fn answer(&mut self, mut request: UpstreamRequest) -> io::Result<Then> {
        if !["/chat/completions", "/messages"].iter().any(|end| request.path.ends_with(end)) {
            let (status, body) = self.of_itself(&request);
            return self.json(status, &[], &body).await;
        }
        let counted = counting::counted(&self.shared.config, &request.json);
        request.tokens = counted.iter().map(|(_, tokens)| tokens).sum();
        let behaviour = {
            let mut state = self.shared.state();
            let same = state.seen.iter().zip(&counted).take_while(|(a, b)| a.0 == b.0);
            request.cached_tokens = same.map(|(_, (_, tokens))| tokens).sum();
            state.seen = counted;
            state.requests.push(request.clone());
            state.script.pop_front()
        };
        let behaviour = behaviour.unwrap_or_else(|| self.untold(&request));
        self.behave(behaviour, &request).await
    }

    /// The default behaviour.
    fn untold(&self, request: &UpstreamRequest) -> Behaviour {
        let config = &self.shared.config;
        match &config.otherwise {
            Some(otherwise) => otherwise(request),
            None => Behaviour::Answer((config.answer)(request)),
        }
    }

    /// What it says of itself.
    fn of_itself(&self, request: &UpstreamRequest) -> (u16, Value) {
        let config = &self.shared.config;
        let mut models = config.models.clone();
        if models.is_empty() {
            models.push("scripted".to_owned());
        }
        match (request.path.as_str(), config.kind) {
            ("/v1/models", _) => {
                let models: Vec<Value> = models.iter().map(|id| json!({"id": id})).collect();
                (200, json!({"object": "list", "data": models}))
            }
            ("/props", ServerKind::LlamaCpp) => {
                (200, json!({"default_generation_settings": {"n_ctx": config.window}}))
            }
            ("/api/ps", ServerKind::Ollama) => (200, json!({"models": []})),
            ("/api/show", ServerKind::Ollama) => {
                (200, json!({"parameters": format!("stop \"x\"\nnum_ctx    {}", config.window)}))
            }
            (path, _) if path.ends_with("/messages/count_tokens") => {
                let counted = counting::counted(config, &request.json);
                let tokens: u64 = counted.iter().map(|(_, tokens)| tokens).sum();
                (200, json!({"input_tokens": tokens}))
            }
            _ => (404, json!({"error": "no such path"})),
        }
    }

    async fn behave(
        &mut self,
        behaviour: Behaviour,
        request: &UpstreamRequest,
    ) -> io::Result<Then> {
        if let Some((status, body)) = self.refused(&behaviour, request) {
            return self.json(status, &[], &body).await;
        }
        let protocol = self.shared.config.protocol;
        match behaviour {
            Behaviour::Answer(text) => {
                let answer = self.fitted(request, &text);
                self.stream(request, &answer, "text/event-stream", Duration::ZERO).await
            }
            Behaviour::AnswerBy(by) => {
                let answer = self.fitted(request, &by(request));
                self.stream(request, &answer, "text/event-stream", Duration::ZERO).await
            }
            Behaviour::CallTools(calls) => self.calling(request, "", calls).await,
            Behaviour::SayAndCall(text, calls) => self.calling(request, &text, calls).await,
            Behaviour::Whole(text) => {
                let body = answer::whole(protocol, &self.fitted(request, &text));
                self.json(200, &[], &body).await
            }
            Behaviour::WindowFull(text) => self.ended(request, &text, End::WindowFull).await,
            Behaviour::Length(text) => self.ended(request, &text, End::Length).await,
            Behaviour::EndWith(text, word) => self.ended(request, &text, End::Word(word)).await,
            Behaviour::Filtered => self.ended(request, "", End::Filtered).await,
            Behaviour::Empty => self.ended(request, "", End::Stop).await,
            Behaviour::LieAboutUsage(text, usage) => {
                let answer = Answer { usage: Some(usage), ..self.fitted(request, &text) };
                self.stream(request, &answer, "text/event-stream", Duration::ZERO).await
            }
            Behaviour::WithoutUsage(text) => {
                let answer = Answer { usage: None, ..self.fitted(request, &text) };
                self.stream(request, &answer, "text/event-stream", Duration::ZERO).await
            }
            Behaviour::Slow(text, pause) => {
                let answer = self.fitted(request, &text);
                self.stream(request, &answer, "text/event-stream", pause).await
            }
            Behaviour::WrongType(text, kind) => {
                let answer = self.fitted(request, &text);
                self.stream(request, &answer, kind, Duration::ZERO).await
            }
            Behaviour::OverflowAfter(text) => {
                self.begin(request, &text).await?;
                let named = request.named_max_tokens().unwrap_or(0);
                let (_, body) = refusals::overflow(&self.shared.config, request.tokens, named);
                self.chunk(&answer::error_event(protocol, &body)).await?;
                self.end_chunks().await
            }
            Behaviour::ErrorAfter(text) => {
                self.begin(request, &text).await?;
                let body = refusals::refusal(&self.shared.config, "api_error", "Internal error");
                self.chunk(&answer::error_event(protocol, &body)).await?;
                self.end_chunks().await
            }
            Behaviour::MalformedStream(text) => {
                self.begin(request, &text).await?;
                self.chunk("data: {\"choices\": [{\"delta\"\n\n").await?;
                self.end_chunks().await
            }
            Behaviour::EndEarly(text) => {
                self.begin(request, &text).await?;
                self.end_chunks().await
            }
            Behaviour::CutOff(text) => {
                self.begin(request, &text).await?;
                Ok(Then::Ends)
            }
            Behaviour::StallAfter(text) => {
                self.begin(request, &text).await?;
                self.wait_for_the_end().await
            }
            Behaviour::Stall => self.wait_for_the_end().await,
            Behaviour::HangUp => Ok(Then::Ends),
            Behaviour::Busy { retry_after } => {
                let body =
                    refusals::refusal(&self.shared.config, "rate_limit_error", "Too many requests");
                let headers: Vec<(&str, String)> =
                    retry_after.map(|value| ("retry-after", value)).into_iter().collect();
                self.json(429, &headers, &body).await
            }
            Behaviour::Fail(status) => {
                let message = "The server had an error while processing your request";
                let body = refusals::refusal(&self.shared.config, "api_error", message);
                self.json(status, &[], &body).await
            }
            Behaviour::MalformedJson => {
                self.whole(200, "application/json", &[], "{\"choices\": [{\"mess").await
            }
            Behaviour::Html => {
                self.whole(200, "text/html", &[], "<!doctype html><title>Hello</title>").await
            }
            Behaviour::Redirect(to) => {
                self.whole(302, "text/plain", &[("location", to)], "elsewhere").await
            }
            Behaviour::Endless => {
                self.begin(request, "").await?;
                loop {
                    self.chunk(&answer::piece(protocol, &"on and on ".repeat(1_000))).await?;
                }
            }
            Behaviour::Overflow | Behaviour::UnknownModel | Behaviour::Denied => Ok(Then::Ends),
        }
    }

    /// What a server looks at before it does anything.
    fn refused(&self, behaviour: &Behaviour, request: &UpstreamRequest) -> Option<(u16, Value)> {
        let config = &self.shared.config;
        let model = request.json.get("model").and_then(Value::as_str).unwrap_or_default();
        let is_known = config.models.is_empty() || config.models.iter().any(|one| one == model);
        let key = request.header("x-api-key").or_else(|| {
            request.header("authorization").and_then(|value| value.strip_prefix("Bearer "))
        });
        let is_allowed = config.key.is_none() || config.key.as_deref() == key;
        let answers = matches!(
            behaviour,
            Behaviour::Answer(_)
                | Behaviour::AnswerBy(_)
                | Behaviour::CallTools(_)
                | Behaviour::SayAndCall(..)
                | Behaviour::Whole(_)
                | Behaviour::Slow(..)
                | Behaviour::LieAboutUsage(..)
                | Behaviour::WithoutUsage(_)
        );
        let named = request.named_max_tokens().unwrap_or(0);
        let room = if config.counts_answer { named } else { 0 };
        let is_over = request.tokens.saturating_add(room) > config.window
            || !config.counts_answer && request.tokens >= config.window;
        let is_older = config.is_newer && request.json.get("max_tokens").is_some();
        let wrong = if is_older {
            Some("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.".to_owned())
        } else {
            shape::wrong(config.protocol, &request.json)
        };
        match behaviour {
            Behaviour::Denied => Some((401, self.denied(key))),
            _ if !is_allowed => Some((401, self.denied(key))),
            Behaviour::UnknownModel => Some((404, self.unknown(model))),
            _ if !is_known => Some((404, self.unknown(model))),
            _ if wrong.is_some() => {
                wrong.map(|wrong| (400, refusals::refusal(config, "invalid_request_error", &wrong)))
            }
            Behaviour::Overflow => {
                Some(refusals::overflow(config, request.tokens.max(config.window + 1), named))
            }
            _ if answers && is_over => Some(refusals::overflow(config, request.tokens, named)),
            _ => None,
        }
    }

    /// As some do, it repeats the key.
    fn denied(&self, key: Option<&str>) -> Value {
        let message = format!("Incorrect API key provided: {}", key.unwrap_or("none"));
        refusals::refusal(&self.shared.config, "authentication_error", &message)
    }

    fn unknown(&self, model: &str) -> Value {
        let message = format!("The model `{model}` does not exist");
        let kind = match self.shared.config.protocol {
            Protocol::OpenAi => "model_not_found",
            Protocol::Anthropic => "not_found_error",
        };
        refusals::refusal(&self.shared.config, kind, &message)
    }

    /// The answer as far as its tokens reach: those it may have, and those that are left.
    fn fitted(&self, request: &UpstreamRequest, text: &str) -> Answer {
        let left = self.shared.config.window.saturating_sub(request.tokens);
        let room = request.max_tokens().min(left);
        if counting::tokens(text) <= room {
            return self.said(request, text, End::Stop);
        }
        self.said(request, counting::first_tokens(text, room), End::Length)
    }

    fn said(&self, request: &UpstreamRequest, text: &str, end: End) -> Answer {
        let usage = Usage {
            input: request.tokens,
            cached_input: request.cached_tokens,
            output: counting::tokens(text),
        };
        let chars: Vec<char> = text.chars().collect();
        let size = self.shared.config.piece_chars.max(1);
        let pieces = chars.chunks(size).map(|piece| piece.iter().collect()).collect();
        Answer { pieces, calls: Vec::new(), end, usage: Some(usage) }
    }

    async fn ended(&mut self, request: &UpstreamRequest, text: &str, end: End) -> io::Result<Then> {
        let answer = self.said(request, text, end);
        self.stream(request, &answer, "text/event-stream", Duration::ZERO).await
    }

    async fn calling(
        &mut self,
        request: &UpstreamRequest,
        text: &str,
        calls: Vec<(String, String, String)>,
    ) -> io::Result<Then> {
        let answer = Answer { calls, ..self.said(request, text, End::Tools) };
        self.stream(request, &answer, "text/event-stream", Duration::ZERO).await
    }

    async fn stream(
        &mut self,
        request: &UpstreamRequest,
        answer: &Answer,
        kind: &str,
        pause: Duration,
    ) -> io::Result<Then> {
        let protocol = self.shared.config.protocol;
        if request.json.get("stream") != Some(&Value::Bool(true)) {
            return self.json(200, &[], &answer::whole(protocol, answer)).await;
        }
        self.begin_chunks(kind).await?;
        let mut text = answer::beginning(protocol, answer);
        for piece in &answer.pieces {
            text.push_str(&answer::piece(protocol, piece));
            if !pause.is_zero() {
                self.chunk(&std::mem::take(&mut text)).await?;
                tokio::time::sleep(pause).await;
            }
        }
        text.push_str(&answer::ending(protocol, answer));
        self.chunk(&text).await?;
        self.end_chunks().await
    }

    /// The beginning of a stream that will not end well.
    async fn begin(&mut self, request: &UpstreamRequest, text: &str) -> io::Result<()> {
        let protocol = self.shared.config.protocol;
        let answer = self.said(request, text, End::Stop);
        self.begin_chunks("text/event-stream").await?;
        let pieces = answer.pieces.iter().map(|piece| answer::piece(protocol, piece));
        let text: String =
            std::iter::once(answer::beginning(protocol, &answer)).chain(pieces).collect();
        self.chunk(&text).await
    }

    async fn begin_chunks(&mut self, kind: &str) -> io::Result<()> {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        self.write(&head).await
    }

    async fn chunk(&mut self, text: &str) -> io::Result<()> {
        self.write(&format!("{:x}\r\n{text}\r\n", text.len())).await
    }

    async fn end_chunks(&mut self) -> io::Result<Then> {
        self.write("0\r\n\r\n").await?;
        Ok(Then::GoesOn)
    }

    async fn json(
        &mut self,
        status: u16,
        headers: &[(&str, String)],
        body: &Value,
    ) -> io::Result<Then> {
        self.whole(status, "application/json", headers, &body.to_string()).await
    }

    async fn whole(
        &mut self,
        status: u16,
        kind: &str,
        headers: &[(&str, String)],
        body: &str,
    ) -> io::Result<Then> {
        let more: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        self.write(&format!(
            "HTTP/1.1 {status} -\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n{more}\r\n{body}"
        ))
        .await?;
        Ok(Then::GoesOn)
    }

    async fn write(&mut self, text: &str) -> io::Result<()> {
        self.stream.get_mut().write_all(text.as_bytes()).await?;
        self.stream.get_mut().flush().await
    }

    /// Says nothing until the client goes away.
    async fn wait_for_the_end(&mut self) -> io::Result<Then> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte).await?;
        Ok(Then::Ends)
    }
}
