//! One keep-alive connection to a host, spoken by hand so that little of what is
//! measured is our own.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Result;

/// Where the host's own routes live.
const API: &str = "/v1/host/icecore";

/// A host that answers nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where to ask, and as whom.
#[derive(Clone)]
pub struct Door {
    pub address: SocketAddr,
    pub key: String,
}

/// A connection.
pub struct Client {
    stream: TcpStream,
    door: Door,
    read: Vec<u8>,
}

/// What came back, and after how long.
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
    pub took: Duration,
}

impl Client {
    pub async fn connect(door: &Door) -> Result<Self> {
        let stream = TcpStream::connect(door.address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, door: door.clone(), read: Vec::new() })
    }

    /// A request under the host's own prefix.
    pub async fn ask(&mut self, request: &Ask) -> Result<Answer> {
        let bytes = request.bytes(&self.door);
        let begun = Instant::now();
        let (status, body) = tokio::time::timeout(PATIENCE, self.exchange(&bytes)).await??;
        Ok(Answer { status, body, took: begun.elapsed() })
    }

    async fn exchange(&mut self, request: &[u8]) -> Result<(u16, Vec<u8>)> {
        self.stream.write_all(request).await?;
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|part| part == b"\r\n\r\n") {
                break at + 4;
            }
            self.more().await?;
        };
        let head = String::from_utf8_lossy(&self.read[..end]).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
        while self.read.len() < end + length {
            self.more().await?;
        }
        let body = self.read[end..end + length].to_vec();
        self.read.drain(..end + length);
        Ok((status.ok_or("an answer without a status")?, body))
    }

    async fn more(&mut self) -> Result<()> {
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err("the host closed the connection".into()),
            _ => Ok(()),
        }
    }
}

/// A request.
pub struct Ask {
    pub kind: &'static str,
    method: &'static str,
    path: String,
    body: String,
}

impl Ask {
    pub fn add(memory: &str, session: &str, contents: &[String]) -> Self {
        let turn = |content: &String| serde_json::json!({ "role": "user", "content": content });
        let turns: Vec<Value> = contents.iter().map(turn).collect();
        let body = serde_json::json!({ "memoryRef": memory, "turns": turns });
        Self::post("add", format!("/sessions/{session}/turns"), &body)
    }

    pub fn search(memory: &str, query: &str) -> Self {
        let body = serde_json::json!({ "memoryRef": memory, "query": query, "limit": 10 });
        Self::post("search", "/search".to_owned(), &body)
    }

    pub fn context(memory: &str, query: &str, budget: u32) -> Self {
        let body = serde_json::json!({ "memoryRef": memory, "query": query, "budget": budget });
        Self::post("context", "/context".to_owned(), &body)
    }

    /// As many turns as a page has.
    pub fn page(memory: &str, session: &str) -> Self {
        Self::get("page", &format!("/sessions/{session}/turns?memoryRef={memory}&limit=500"))
    }

    pub fn metrics() -> Self {
        Self { kind: "metrics", method: "GET", path: "/metrics".to_owned(), body: String::new() }
    }

    /// Whatever else is asked under the host's own prefix.
    pub fn get(kind: &'static str, path: &str) -> Self {
        Self { kind, method: "GET", path: format!("{API}{path}"), body: String::new() }
    }

    pub fn post(kind: &'static str, path: String, body: &Value) -> Self {
        Self { kind, method: "POST", path: format!("{API}{path}"), body: body.to_string() }
    }

    /// As it goes over the wire.
    pub fn bytes(&self, door: &Door) -> Vec<u8> {
        let Self { method, path, body, .. } = self;
        let Door { address, key } = door;
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\n"
        );
        if *method == "POST" {
            let length = body.len();
            head += &format!("Content-Type: application/json\r\nContent-Length: {length}\r\n");
        }
        (head + "\r\n" + body).into_bytes()
    }
}
