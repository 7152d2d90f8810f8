//! Hosts over PostgreSQL that are killed, run out of disk, have a slow line, or a wrong clock.

mod away;
mod clocks;
mod disk;
mod killed;
mod line;
mod moving;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use icecore_store::testing::postgres::{
    Stop, TestDatabase, TestServer, own_server, prepared_database,
};
use serde_json::{Value, json};

use crate::run::{Place, conversation, is_root};
use crate::serve::{Host, SERVE, started};
use crate::signals::signal;

/// Leases end soon, and what fails is told soon.
const SETTINGS: &str = "[postgres]
statement_seconds = 2
[advanced.postgres]
lock_seconds = 1
connect_seconds = 2
retry_seconds = 1
[advanced.worker]
lease_seconds = 2
[advanced.dreams]
lease_seconds = 2
[advanced.schedules]
lease_seconds = 2
idle_seconds = 0
";

/// Long enough for anything that is not stuck.
const PATIENCE: Duration = Duration::from_secs(30);

/// A data directory whose rows are in a PostgreSQL.
struct Site {
    place: Place,
    url: String,
    config: String,
}

impl Site {
    fn new(url: &str) -> Self {
        let place = Place::new();
        let config = place.file("icecore.toml", SETTINGS);
        Self { place, url: url.to_owned(), config }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.command(args);
        command.env("ICECORE_STORE", &self.url).env("ICECORE_CONFIG", &self.config);
        command
    }

    fn host(&self) -> Host {
        started(self.command(&SERVE).stderr(Stdio::null()))
    }

    fn shown(&self, args: &[&str]) -> String {
        let output = self.command(args).stdin(Stdio::null()).output().unwrap();
        self.place.describe(&output)
    }

    fn ok(&self, args: &[&str]) -> String {
        let output = self.command(args).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", self.place.describe(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Lines of JSON.
    fn lines(&self, args: &[&str]) -> Vec<Value> {
        self.ok(args).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The ids of a session's turns, which are numbered from one without a gap.
    fn ids(&self, session: &str) -> Vec<String> {
        let mut turns = self.lines(&["export", "--all"]);
        turns.retain(|turn| turn["session"] == session);
        for (turn, seq) in turns.iter().zip(1_u64..) {
            assert_eq!(turn["seq"], seq, "{turn}");
        }
        turns.iter().map(|turn| turn["id"].as_str().unwrap().to_owned()).collect()
    }

    /// Everything is settled and whole, and each turn was told of once, in its order.
    fn is_whole(&self) {
        let checked: Value = serde_json::from_str(&self.ok(&["check", "--json"])).unwrap();
        assert_eq!(checked["ok"], true, "{checked}");
        let stats: Value = serde_json::from_str(&self.ok(&["stats", "--json"])).unwrap();
        assert_eq!(stats["pending"], 0, "{stats}");
        let events = self.lines(&["events", "--json"]);
        let mut told: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (event, seq) in events.iter().zip(1_u64..) {
            assert_eq!(event["seq"], seq, "{event}");
            if event["type"] == "turn.appended" {
                let session = event["payload"]["session"].as_str().unwrap().to_owned();
                told.entry(session).or_default().push(event["payload"]["seq"].as_u64().unwrap());
            }
        }
        for (session, told) in told {
            let count = self.ids(&session).len() as u64;
            assert_eq!(told, (1..=count).collect::<Vec<u64>>(), "{session}");
        }
    }
}

/// How to speak to a host.
#[derive(Clone)]
struct Door {
    address: String,
    key: String,
}

impl Door {
    fn of(host: &Host) -> Self {
        Self { address: host.address.clone(), key: host.key.clone() }
    }

    /// The status, the head and the body, if all came in time.
    fn asked(
        &self,
        method: &str,
        path: &str,
        body: &str,
        limit: Duration,
    ) -> io::Result<(u16, String, Value)> {
        self.asked_as("", method, path, body, limit)
    }

    /// As [`Door::asked`], with an `Idempotency-Key` if it is not empty.
    fn asked_as(
        &self,
        once: &str,
        method: &str,
        path: &str,
        body: &str,
        limit: Duration,
    ) -> io::Result<(u16, String, Value)> {
        let once = if once.is_empty() {
            "X-None: none".to_owned()
        } else {
            format!("Idempotency-Key: {once}")
        };
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(limit))?;
        let (address, key, length) = (&self.address, &self.key, body.len());
        let request = format!(
            "{method} /v1/host/icecore{path} HTTP/1.1\r\nHost: {address}\r\n\
             Authorization: Bearer {key}\r\nContent-Type: application/json\r\n{once}\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(cut)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let body = serde_json::from_str(body).map_err(|_| cut())?;
        Ok((status.ok_or_else(cut)?, head.to_ascii_lowercase(), body))
    }

    fn get(&self, path: &str) -> Value {
        let (status, _, body) = self.asked("GET", path, "", PATIENCE).unwrap();
        assert_eq!(status, 200, "{body}");
        body
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, _, body) = self.asked("POST", path, &body.to_string(), PATIENCE).unwrap();
        (status, body)
    }

    /// Adds turns of these ids.
    fn add(&self, session: &str, ids: &[String]) -> io::Result<(u16, Value)> {
        self.add_within(session, ids, PATIENCE)
    }

    fn add_within(
        &self,
        session: &str,
        ids: &[String],
        limit: Duration,
    ) -> io::Result<(u16, Value)> {
        let path = format!("/sessions/{session}/turns");
        let (status, _, body) = self.asked("POST", &path, &turns(ids).to_string(), limit)?;
        Ok((status, body))
    }

    /// Until everything is settled.
    fn settled(&self) -> Duration {
        let begun = Instant::now();
        while self.get("/stats")["pending"] != 0 {
            assert!(begun.elapsed() < PATIENCE, "something is left alone");
            std::thread::sleep(Duration::from_millis(50));
        }
        begun.elapsed()
    }
}

/// Turns that say which they are, and much else that does not compress.
fn turns(ids: &[String]) -> Value {
    let turn = |id: &String| {
        let mut state = id.bytes().fold(7_u64, |all, byte| all * 31 + u64::from(byte));
        let noise: String = (0..60).map(|_| format!("{:x} ", random(&mut state))).collect();
        json!({ "id": id, "role": "user", "content": format!("{id} says {noise}") })
    };
    json!({ "turns": ids.iter().map(turn).collect::<Vec<Value>>() })
}

/// The next of a row of numbers that begins anywhere.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn ids(name: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("{name}-{number}")).collect()
}

/// Past the test harness, which would swallow it.
fn say_skipped(reason: &str) {
    let _ = writeln!(io::stderr(), "skipped: {reason}");
}

fn end(mut host: Host) {
    signal(&host.child, "TERM");
    assert_eq!(host.child.wait().unwrap().code(), Some(0));
}

/// How often a host is killed; `ICECORE_KILLS=100` for long.
fn kills() -> u64 {
    std::env::var("ICECORE_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(4)
}

/// Sends the same until it is taken; whoever is in the way is told as 503.
fn add_until_taken(door: &Door, batch: &[String]) -> Value {
    let begun = Instant::now();
    loop {
        let (status, body) = door.add("s", batch).unwrap();
        if matches!(status, 200 | 201) {
            return body;
        }
        assert_eq!(status, 503, "{body}");
        assert!(begun.elapsed() < PATIENCE, "it did not recover: {body}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Appends turns, three at a time, each until it is taken by whoever is behind the door by
/// then, until all is over. Answers their ids.
fn write_until(ends: &AtomicBool, door: &Mutex<Door>, name: &str) -> Vec<String> {
    let mut stored = Vec::new();
    while !ends.load(Ordering::SeqCst) {
        let batch = ids(name, stored.len()..stored.len() + 3);
        // Nobody answered, or not well: the same again.
        loop {
            let there = door.lock().unwrap().clone();
            match there.add(name, &batch) {
                Ok((201 | 200, _)) => break,
                Ok((status, body)) => assert_eq!(status, 503, "{body}"),
                Err(_) => {}
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        stored.extend(batch);
    }
    stored
}
