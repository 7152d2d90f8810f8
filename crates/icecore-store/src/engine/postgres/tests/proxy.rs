//! Stands between a store and its server, and cuts the line at a chosen word.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What is further apart was not sent together.
const TOGETHER: Duration = Duration::from_millis(5);

/// How much later the server reads what was sent last.
const LATE: Duration = Duration::from_millis(300);

/// Where the line is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// COMMIT never reaches the server.
    Before,
    /// The server commits, and its answer never reaches us.
    After,
    /// The server reads COMMIT, and whatever was sent together with it, when the line has
    /// long been cut.
    LongAfter,
}

/// A line to the server that can be cut once.
pub(super) struct Proxy {
    port: u16,
    next: Arc<Mutex<Option<Cut>>>,
}

impl Proxy {
    /// Listens, and passes everything on to the server at that port.
    pub(super) fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let next = Arc::new(Mutex::new(None));
        let shared = Arc::clone(&next);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let next = Arc::clone(&shared);
                std::thread::spawn(move || Line::new(client, server, next).run());
            }
        });
        Self { port: own, next }
    }

    /// Where it listens.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The URL by which the line is used, given that of the server.
    pub(super) fn url(&self, url: &str, port: u16) -> String {
        let (from, to) = (format!(":{port}/"), format!(":{}/", self.port));
        let url = url.replace(&from, &to);
        if url.contains('?') { url } else { format!("{url}?sslmode=disable") }
    }

    /// Cuts the next line on which a write is committed.
    pub(super) fn cut_next(&self, cut: Cut) {
        *self.next.lock().unwrap() = Some(cut);
    }

    /// Whether it was cut.
    pub(super) fn was_cut(&self) -> bool {
        self.next.lock().unwrap().is_none()
    }
}

struct Line {
    client: TcpStream,
    server: TcpStream,
    next: Arc<Mutex<Option<Cut>>>,
    /// Prepared statements that commit, and those that come before it in a write.
    commits: BTreeSet<Vec<u8>>,
    witnesses: BTreeSet<Vec<u8>>,
    is_write: bool,
    /// What the server has not been given yet.
    held: Vec<u8>,
}

impl Line {
    fn new(client: TcpStream, server: TcpStream, next: Arc<Mutex<Option<Cut>>>) -> Self {
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let (commits, witnesses) = (BTreeSet::new(), BTreeSet::new());
        Self { client, server, next, commits, witnesses, is_write: false, held: Vec::new() }
    }

    fn run(mut self) {
        let (mut from, mut to) =
            (self.server.try_clone().unwrap(), self.client.try_clone().unwrap());
        let back = std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
        let _ = self.pass_on();
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
        let _ = back.join();
    }

    /// Passes message by message on, until the end or the cut.
    fn pass_on(&mut self) -> std::io::Result<()> {
        let mut length = [0; 4];
        self.client.read_exact(&mut length)?;
        let body = self.body(length)?;
        self.server.write_all(&length)?;
        self.server.write_all(&body)?;
        loop {
            let (kind, message) = self.message()?;
            let words: Vec<&[u8]> = message[5..].split(|byte| *byte == 0).collect();
            match kind {
                b'P' => {
                    self.commits.remove(words[0]);
                    self.witnesses.remove(words[0]);
                    match words[1] {
                        b"COMMIT" => self.commits.insert(words[0].to_vec()),
                        sql if sql.starts_with(b"UPDATE commits") => {
                            self.witnesses.insert(words[0].to_vec())
                        }
                        _ => false,
                    };
                }
                b'B' if self.witnesses.contains(words[1]) => self.is_write = true,
                b'B' if self.commits.contains(words[1]) => {
                    let next = self.is_write.then(|| self.next.lock().unwrap().take());
                    self.is_write = false;
                    match next.flatten() {
                        Some(Cut::Before) => return Ok(()),
                        Some(Cut::After) => {
                            return self.commit_unheard(message, Duration::ZERO);
                        }
                        Some(Cut::LongAfter) => return self.commit_unheard(message, LATE),
                        None => {}
                    }
                }
                _ => {}
            }
            self.held.extend(message);
            if !self.holds_back() || !self.is_followed()? {
                self.server.write_all(&std::mem::take(&mut self.held))?;
            }
        }
    }

    fn holds_back(&self) -> bool {
        *self.next.lock().unwrap() == Some(Cut::LongAfter)
    }

    /// Whether more was sent together with the last message.
    fn is_followed(&self) -> std::io::Result<bool> {
        self.client.set_read_timeout(Some(TOGETHER))?;
        let is_followed = matches!(self.client.peek(&mut [0]), Ok(1..));
        self.client.set_read_timeout(None)?;
        Ok(is_followed)
    }

    /// Lets the server commit, that much later, while nobody hears its answer.
    fn commit_unheard(&mut self, bind: Vec<u8>, later: Duration) -> std::io::Result<()> {
        let mut last = std::mem::take(&mut self.held);
        last.extend(bind);
        loop {
            let (kind, message) = self.message()?;
            last.extend(message);
            if kind == b'S' {
                break;
            }
        }
        self.client.shutdown(Shutdown::Both)?;
        std::thread::sleep(later);
        self.server.write_all(&last)?;
        // The other way reads the answers, fails to pass them on, and ends.
        Ok(())
    }

    fn message(&mut self) -> std::io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.client.read_exact(&mut head)?;
        let body = self.body([head[1], head[2], head[3], head[4]])?;
        Ok((head[0], [&head[..], &body[..]].concat()))
    }

    fn body(&mut self, length: [u8; 4]) -> std::io::Result<Vec<u8>> {
        let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
        self.client.read_exact(&mut body)?;
        Ok(body)
    }
}
