//! A provider of both protocols that does next to nothing: it reads a request and answers
//! from its last bytes, so that what is measured beside it is not its own work.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::Result;

/// Bytes of a request that decide its answer: the last message, not much more.
const DECIDING_BYTES: usize = 120;

/// What a person says who wants something looked up.
pub const LOOK: &str = "Please look";

/// How it answers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manner {
    /// Before anything.
    pub think: Duration,
    /// Pieces of a stream.
    pub pieces: usize,
    /// Before each piece.
    pub pause: Duration,
}

/// The two protocols, by their paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    OpenAi,
    Anthropic,
}

impl Wire {
    fn of_path(path: &str) -> Self {
        if path.ends_with("/messages") { Self::Anthropic } else { Self::OpenAi }
    }

    /// Where a proxy takes such requests.
    pub fn proxy_path(self) -> &'static str {
        match self {
            Self::OpenAi => "/openai/v1/chat/completions",
            Self::Anthropic => "/anthropic/v1/messages",
        }
    }

    /// Where a provider does.
    pub fn path(self) -> &'static str {
        match self {
            Self::OpenAi => "/v1/chat/completions",
            Self::Anthropic => "/v1/messages",
        }
    }
}

/// What is answered: words, or a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub text: String,
    pub call: Option<String>,
}

/// The answer to a request; the same to the same last bytes.
pub fn said(body: &[u8]) -> Said {
    let tail = &body[body.len().saturating_sub(DECIDING_BYTES)..];
    let mut hasher = DefaultHasher::new();
    tail.hash(&mut hasher);
    let number = hasher.finish();
    let looks = tail.windows(LOOK.len()).any(|part| part == LOOK.as_bytes());
    let text = format!("Answer {number:016x}: the path goes on over the saddle to the next hut.");
    match looks {
        true => Said { text: String::new(), call: Some(format!("call_{number:016x}")) },
        false => Said { text, call: None },
    }
}

/// The whole answer as JSON.
pub fn whole(wire: Wire, said: &Said) -> Value {
    match (wire, &said.call) {
        (Wire::OpenAi, None) => {
            json!({"id": "c-1", "object": "chat.completion", "choices": [{"index": 0,
            "message": {"role": "assistant", "content": said.text, "refusal": null}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}})
        }
        (Wire::OpenAi, Some(id)) => {
            json!({"id": "c-1", "object": "chat.completion", "choices": [{"index": 0,
            "message": {"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function",
            "function": {"name": "lookup", "arguments": "{\"stage\":1}"}}]}, "finish_reason": "tool_calls"}]})
        }
        (Wire::Anthropic, None) => json!({"id": "m-1", "type": "message", "role": "assistant",
            "content": [{"type": "text", "text": said.text}], "stop_reason": "end_turn",
            "usage": {"input_tokens": 10, "output_tokens": 20}}),
        (Wire::Anthropic, Some(id)) => json!({"id": "m-1", "type": "message", "role": "assistant",
            "content": [{"type": "tool_use", "id": id, "name": "lookup", "input": {"stage": 1}}],
            "stop_reason": "tool_use", "usage": {"input_tokens": 10, "output_tokens": 20}}),
    }
}

/// The answer as the events of a stream, in so many pieces.
pub fn events(wire: Wire, said: &Said, pieces: usize) -> Vec<String> {
    let chars: Vec<char> = said.text.chars().collect();
    let size = chars.len().div_ceil(pieces.max(1)).max(1);
    let texts: Vec<String> = chars.chunks(size).map(|piece| piece.iter().collect()).collect();
    match wire {
        Wire::OpenAi => {
            let chunk = |delta: Value, end: Value| {
                let chunk = json!({"id": "c-1", "object": "chat.completion.chunk",
                    "choices": [{"index": 0, "delta": delta, "finish_reason": end}]});
                format!("data: {chunk}\n\n")
            };
            let mut all = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
            all.extend(texts.iter().map(|text| chunk(json!({ "content": text }), Value::Null)));
            all.push(chunk(json!({}), json!("stop")) + "data: [DONE]\n\n");
            all
        }
        Wire::Anthropic => {
            let event = |name: &str, data: Value| format!("event: {name}\ndata: {data}\n\n");
            let start = event(
                "message_start",
                json!({"type": "message_start", "message": {"id": "m-1", "type": "message",
                    "role": "assistant", "content": [], "usage": {"input_tokens": 10, "output_tokens": 1}}}),
            ) + &event(
                "content_block_start",
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            );
            let piece = |text: &String| {
                event(
                    "content_block_delta",
                    json!({"type": "content_block_delta", "index": 0,
                        "delta": {"type": "text_delta", "text": text}}),
                )
            };
            let mut all = vec![start];
            all.extend(texts.iter().map(piece));
            all.push(
                event("content_block_stop", json!({"type": "content_block_stop", "index": 0}))
                    + &event(
                        "message_delta",
                        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
                            "usage": {"output_tokens": 20}}),
                    )
                    + &event("message_stop", json!({"type": "message_stop"})),
            );
            all
        }
    }
}

/// A running provider. It ends when this is dropped.
pub struct Provider {
    pub address: SocketAddr,
    task: AbortHandle,
}

impl Provider {
    pub async fn start(manner: Manner) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let manner = Arc::new(manner);
        let task = tokio::spawn(async move {
            let mut lines = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                lines.spawn(serve(stream, Arc::clone(&manner)));
                while lines.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, task: task.abort_handle() })
    }

    /// Its address up to and with the version path.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Requests of one connection, until the other side has enough.
async fn serve(stream: TcpStream, manner: Arc<Manner>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut first = String::new();
        if stream.read_line(&mut first).await? == 0 {
            return Ok(());
        }
        let wire = Wire::of_path(first.split(' ').nth(1).unwrap_or_default());
        let mut length = 0;
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).await?;
            let header = header.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        answer(stream.get_mut(), wire, &body, &manner).await?;
    }
}

async fn answer(
    stream: &mut TcpStream,
    wire: Wire,
    body: &[u8],
    manner: &Manner,
) -> io::Result<()> {
    if !manner.think.is_zero() {
        tokio::time::sleep(manner.think).await;
    }
    let said = said(body);
    let head = &body[..body.len().min(200)];
    let is_streamed = head.windows(13).any(|part| part == b"\"stream\":true");
    if !is_streamed {
        let body = whole(wire, &said).to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        return stream.write_all((head + &body).as_bytes()).await;
    }
    let mut text =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_owned();
    for event in events(wire, &said, manner.pieces) {
        text += &format!("{:x}\r\n{event}\r\n", event.len());
        if !manner.pause.is_zero() {
            stream.write_all(std::mem::take(&mut text).as_bytes()).await?;
            tokio::time::sleep(manner.pause).await;
        }
    }
    text += "0\r\n\r\n";
    stream.write_all(text.as_bytes()).await
}
