//! One keep-alive connection, spoken by hand, that knows when the first byte came.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Result;

/// A proxy that answers nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection.
pub struct Line {
    stream: TcpStream,
    address: SocketAddr,
    read: Vec<u8>,
}

/// What came back.
pub struct Reply {
    pub status: u16,
    head: String,
    pub body: Vec<u8>,
    /// Until the first byte of the body.
    pub first: Duration,
}

impl Reply {
    /// The value of a header, named in small letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let mut values = lines.filter(|(one, _)| one.eq_ignore_ascii_case(name));
        values.next().map(|(_, value)| value.trim())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl Line {
    pub async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, address, read: Vec::new() })
    }

    /// Sends a body and reads the whole answer.
    pub async fn post(&mut self, path: &str, key: &str, body: &[u8]) -> Result<Reply> {
        self.post_with(path, key, &[], body).await
    }

    /// The same, with more headers.
    pub async fn post_with(
        &mut self,
        path: &str,
        key: &str,
        more: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Reply> {
        let more: String =
            more.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {key}\r\n{more}\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        tokio::time::timeout(PATIENCE, self.exchange(head.as_bytes(), body)).await?
    }

    pub async fn get(&mut self, path: &str, key: &str) -> Result<Reply> {
        let host = self.address;
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n\r\n");
        tokio::time::timeout(PATIENCE, self.exchange(head.as_bytes(), b"")).await?
    }

    async fn exchange(&mut self, head: &[u8], body: &[u8]) -> Result<Reply> {
        let begun = Instant::now();
        self.stream.write_all(&[head, body].concat()).await?;
        let end = loop {
            match self.read.windows(4).position(|part| part == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None => self.more().await?,
            }
        };
        let head = String::from_utf8_lossy(&self.read[..end]).into_owned();
        self.read.drain(..end);
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or("an answer without a status")?;
        let mut reply = Reply { status, head, body: Vec::new(), first: Duration::ZERO };
        let length = reply.header("content-length").and_then(|length| length.parse().ok());
        if length != Some(0) && self.read.is_empty() {
            self.more().await?;
        }
        reply.first = begun.elapsed();
        reply.body = match length {
            Some(length) => self.take(length).await?,
            None => self.chunks().await?,
        };
        Ok(reply)
    }

    async fn chunks(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = loop {
                match self.read.windows(2).position(|part| part == b"\r\n") {
                    Some(at) => break self.take(at + 2).await?,
                    None => self.more().await?,
                }
            };
            let size = usize::from_str_radix(String::from_utf8_lossy(&line).trim(), 16)?;
            let chunk = self.take(size + 2).await?;
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    async fn take(&mut self, count: usize) -> Result<Vec<u8>> {
        while self.read.len() < count {
            self.more().await?;
        }
        Ok(self.read.drain(..count).collect())
    }

    async fn more(&mut self) -> Result<()> {
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err("the connection was closed".into()),
            _ => Ok(()),
        }
    }
}
