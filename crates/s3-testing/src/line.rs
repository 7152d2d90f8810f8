//! A line to a server, over TCP, that can fail in the ways that lines and servers do.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// The most of a request's head.
const HEAD_BYTES: usize = 64 << 10;

/// What becomes of a request. Each connection has one request, so that faults are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It passes.
    None,
    /// The connection is cut before the server hears of it.
    Cut,
    /// The server does it, and the answer is lost.
    LoseAnswer,
    /// The answer is this status, and the server does not hear of it.
    Status(u16),
    /// The server does it, and the answer is this status.
    StatusAfter(u16),
    /// The answer's body ends after so many bytes, and the connection with it.
    Truncate(usize),
    /// The answer's body ends after so many bytes, and its head says that this is all.
    Shorten(usize),
    /// No answer comes until the line is told to go on.
    Hang,
}

/// The line.
pub struct Line {
    address: SocketAddr,
    shared: Arc<Shared>,
    passing: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    go_on: Notify,
    /// Told when a request hangs.
    hangs: Notify,
}

#[derive(Default)]
struct State {
    /// For the next requests that match, in order.
    faults: VecDeque<(String, Fault)>,
    /// For every other that matches.
    always: Option<(String, Fault)>,
    /// The first lines of requests.
    seen: Vec<String>,
}

impl Line {
    /// A line to `server` from a free port.
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::<Shared>::default();
        let passing = tokio::spawn(pass_all(listener, server, Arc::clone(&shared)));
        Self { address, shared, passing }
    }

    /// Where it begins, as an endpoint.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What becomes of the next request whose first line begins with `request`, such as
    /// `PUT`. Those that were said before come first.
    pub fn once(&self, request: &str, fault: Fault) {
        self.shared.state().faults.push_back((request.to_owned(), fault));
    }

    /// What becomes of all others from now on; [`Fault::None`] mends the line.
    pub fn always(&self, request: &str, fault: Fault) {
        self.shared.state().always = Some((request.to_owned(), fault));
    }

    /// Lets requests that hang end.
    pub fn go_on(&self) {
        self.shared.go_on.notify_waiters();
    }

    /// Waits until a request hangs.
    pub async fn until_hanging(&self) {
        self.shared.hangs.notified().await;
    }

    /// The first lines of requests until now, and forgets them.
    pub fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.state().seen)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.passing.abort();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault_of(&self, first_line: &str) -> Fault {
        let mut state = self.state();
        state.seen.push(first_line.to_owned());
        let is_meant = |(request, _): &(String, Fault)| first_line.starts_with(request.as_str());
        if let Some(place) = state.faults.iter().position(is_meant) {
            return state.faults.remove(place).map_or(Fault::None, |(_, fault)| fault);
        }
        state.always.clone().filter(is_meant).map_or(Fault::None, |(_, fault)| fault)
    }
}

async fn pass_all(listener: TcpListener, server: SocketAddr, shared: Arc<Shared>) {
    let mut open = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        open.spawn(async move {
            // A line that breaks is what it is for.
            pass(client, server, &shared).await.ok();
        });
        while open.try_join_next().is_some() {}
    }
}

/// One request and its answer.
async fn pass(mut client: TcpStream, server: SocketAddr, shared: &Shared) -> std::io::Result<()> {
    let Some((head, body)) = read_message(&mut client).await? else { return Ok(()) };
    let fault = shared.fault_of(head.lines().next().unwrap_or_default());
    match fault {
        Fault::Cut => return Ok(()),
        Fault::Status(status) => return client.write_all(&refusal(status)).await,
        Fault::Hang => {
            let goes_on = shared.go_on.notified();
            shared.hangs.notify_one();
            goes_on.await;
            return Ok(());
        }
        _ => {}
    }
    // The server closes after its answer, so that the answer's end is known.
    let mut to_server = TcpStream::connect(server).await?;
    to_server.write_all(closing(&head).as_bytes()).await?;
    to_server.write_all(&body).await?;
    let mut answer = Vec::new();
    to_server.read_to_end(&mut answer).await?;
    match fault {
        Fault::LoseAnswer => Ok(()),
        Fault::StatusAfter(status) => client.write_all(&refusal(status)).await,
        Fault::Truncate(bytes) => {
            let end = body_start(&answer).map_or(answer.len(), |start| start + bytes);
            client.write_all(&answer[..end.min(answer.len())]).await
        }
        Fault::Shorten(bytes) => client.write_all(&shortened(&answer, bytes)).await,
        _ => client.write_all(&answer).await,
    }
}

/// The head and the body of a request, or nothing where none comes.
async fn read_message(from: &mut TcpStream) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let mut read = Vec::new();
    let start = loop {
        if let Some(start) = body_start(&read) {
            break start;
        }
        if read.len() > HEAD_BYTES || from.read_buf(&mut read).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&read[..start]).into_owned();
    let mut body = read.split_off(start);
    let length = header(&head, "content-length").and_then(|length| length.parse().ok());
    while body.len() < length.unwrap_or(0) {
        if from.read_buf(&mut body).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some((head, body)))
}

fn body_start(message: &[u8]) -> Option<usize> {
    message.windows(4).position(|four| four == b"\r\n\r\n").map(|place| place + 4)
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.into_iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim())
}

/// A head that asks for the connection's end.
fn closing(head: &str) -> String {
    let is_other = |line: &&str| !line.to_ascii_lowercase().starts_with("connection:");
    let mut lines: Vec<&str> = head.trim_end().lines().filter(is_other).collect();
    lines.push("connection: close");
    lines.join("\r\n") + "\r\n\r\n"
}

fn refusal(status: u16) -> Vec<u8> {
    let body = "<Error><Code>InternalError</Code></Error>";
    let length = body.len();
    format!(
        "HTTP/1.1 {status} Trouble\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

/// An answer that is shorter, and says so.
fn shortened(answer: &[u8], bytes: usize) -> Vec<u8> {
    let Some(start) = body_start(answer) else { return answer.to_vec() };
    let head = String::from_utf8_lossy(&answer[..start]).into_owned();
    let bytes = bytes.min(answer.len() - start);
    let is_other = |line: &&str| !line.to_ascii_lowercase().starts_with("content-length:");
    let mut lines: Vec<String> =
        head.trim_end().lines().filter(is_other).map(str::to_owned).collect();
    lines.push(format!("content-length: {bytes}"));
    let mut short = (lines.join("\r\n") + "\r\n\r\n").into_bytes();
    short.extend(&answer[start..start + bytes]);
    short
}
