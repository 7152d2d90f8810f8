//! Hosts over PostgreSQL that are killed, run out of disk, have a slow line, or a wrong clock.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

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
lock_seconds = 1
connect_seconds = 2
retry_seconds = 1
[worker]
lease_seconds = 2
[dreams]
lease_seconds = 2
[schedules]
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
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(limit))?;
        let (address, key, length) = (&self.address, &self.key, body.len());
        let request = format!(
            "{method} /v1/host/icecore{path} HTTP/1.1\r\nHost: {address}\r\n\
             Authorization: Bearer {key}\r\nContent-Type: application/json\r\n\
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

// Killed

#[test]
fn a_host_that_is_killed_while_it_appends_has_every_acknowledged_turn_once() {
    let Some(database) = prepared_database() else { return };
    let site = Site::new(database.url());
    let mut host = site.host();
    let door = Mutex::new(Door::of(&host));
    let ends = AtomicBool::new(false);
    let write = |name: &str| {
        let mut stored = Vec::new();
        while !ends.load(Ordering::SeqCst) {
            let batch = ids(name, stored.len()..stored.len() + 3);
            // Nobody answered, or not well: the same again, to whoever is there by then.
            loop {
                let there = door.lock().unwrap().clone();
                match there.add(name, &batch) {
                    Ok((201 | 200, _)) => break,
                    Ok((status, body)) => assert_eq!(status, 503, "{body}"),
                    Err(_) => std::thread::sleep(Duration::from_millis(20)),
                }
            }
            stored.extend(batch);
        }
        stored
    };
    let stored = std::thread::scope(|scope| {
        let writers = ["a", "b", "c"].map(|name| (name, scope.spawn(move || write(name))));
        let mut state = 4_711;
        for _ in 0..kills() {
            std::thread::sleep(Duration::from_millis(150 + random(&mut state) % 500));
            host.child.kill().unwrap();
            host.child.wait().unwrap();
            host = site.host();
            *door.lock().unwrap() = Door::of(&host);
        }
        std::thread::sleep(Duration::from_millis(300));
        ends.store(true, Ordering::SeqCst);
        writers.map(|(name, writer)| (name, writer.join().unwrap()))
    });
    Door::of(&host).settled();
    end(host);
    for (name, stored) in stored {
        assert!(stored.len() > 30, "{name} wrote only {}", stored.len());
        assert_eq!(site.ids(name), stored);
    }
    site.is_whole();
}

/// The only tick of a schedule, once it has an end.
fn ended_tick(door: &Door, schedule: &str) -> Value {
    let begun = Instant::now();
    loop {
        let found = door.get(&format!("/schedules/{schedule}"));
        let ticks = found["ticks"].as_array().unwrap();
        assert!(ticks.len() <= 1, "{found}");
        match ticks.first() {
            Some(tick) if tick["outcome"] != "running" => return tick.clone(),
            _ => assert!(begun.elapsed() < PATIENCE, "{found}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_dream_whose_host_is_killed_is_dreamt_once_by_another() {
    let Some(database) = prepared_database() else { return };
    let site = Site::new(database.url());
    let (mut state, mut dreamt, mut taken_over) = (815, Vec::new(), 0);
    for round in 0..kills() {
        let file = site.place.file("c.jsonl", conversation(300));
        site.ok(&["import", &file, "--session", &format!("r{round}"), "-q"]);
        let mut host = site.host();
        let made = Door::of(&host).post("/schedules", &json!({ "delayMs": 100, "budget": 4000 }));
        let id = made.1["id"].as_str().unwrap_or_else(|| panic!("{made:?}")).to_owned();
        std::thread::sleep(Duration::from_millis(100 + random(&mut state) % 250));
        host.child.kill().unwrap();
        host.child.wait().unwrap();
        let other = site.host();
        let tick = ended_tick(&Door::of(&other), &id);
        assert_eq!(tick["outcome"], "ran", "round {round}: {tick}");
        taken_over += u64::from(tick["attempts"].as_u64() > Some(1));
        dreamt.push(tick["runId"].as_str().unwrap_or_else(|| panic!("{tick}")).to_owned());
        end(other);
    }
    eprintln!("{taken_over} of {} dreams were taken over", kills());
    let host = site.host();
    let listed = Door::of(&host).get("/dreams");
    let mut found: Vec<&str> = listed["dreams"]
        .as_array()
        .unwrap_or_else(|| panic!("{listed}"))
        .iter()
        .map(|dream| dream["runId"].as_str().unwrap())
        .collect();
    found.sort_unstable();
    let mut expected: Vec<&str> = dreamt.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    end(host);
    let events = site.lines(&["events", "--json"]);
    let compacted = events.iter().filter(|event| event["type"] == "memory.compacted").count();
    assert_eq!(compacted, dreamt.len());
    site.is_whole();
}

// Out of disk

/// A small file system of its own, if we may mount one.
struct Disk {
    dir: tempfile::TempDir,
    path: PathBuf,
}

impl Disk {
    /// For the user of that server.
    fn mounted(server: &TestServer, size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = dir.path().join("disk");
        std::fs::create_dir(&path).unwrap();
        let options = format!("size={size},mode=700");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&path);
        if !is_root() || !mount.output().is_ok_and(|output| output.status.success()) {
            say_skipped("a small disk can only be mounted by root");
            return None;
        }
        let disk = Self { dir, path };
        give(&disk.path, server);
        Some(disk)
    }

    /// Leaves no more room than so many bytes.
    fn fill(&self, room: u64) {
        let mut file = std::fs::File::create(self.filler()).unwrap();
        let mut written = 0;
        for size in [1 << 16, 1 << 12] {
            while file.write_all(&vec![1; size]).is_ok() {
                written += size as u64;
            }
        }
        file.set_len(written.saturating_sub(room)).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }

    fn make_room(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The server may not have ended yet.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
        let _ = std::fs::remove_dir(&self.path);
        let _ = self.dir.path();
    }
}

fn give(path: &Path, server: &TestServer) {
    let owner = std::fs::metadata(server.data_directory().unwrap()).unwrap();
    std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
}

/// Appends until it is refused: how many turns were stored, and the refusal.
fn append_until_refused(door: &Door) -> (usize, u16, Value) {
    for stored in (0..100_000).step_by(20) {
        let (status, body) = door.add("s", &ids("t", stored..stored + 20)).unwrap();
        if status != 201 {
            return (stored, status, body);
        }
    }
    panic!("the disk was never full");
}

/// Sends what was refused until it is taken, and more.
fn go_on(door: &Door, stored: usize) -> usize {
    let begun = Instant::now();
    for from in (stored..stored + 100).step_by(20) {
        loop {
            let (status, body) = door.add("s", &ids("t", from..from + 20)).unwrap();
            match status {
                200 | 201 => break,
                _ => assert!(begun.elapsed() < PATIENCE, "{status} {body}"),
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    stored + 100
}

#[test]
fn a_database_without_room_refuses_and_goes_on_when_there_is_some() {
    let Some(server) = own_server() else { return };
    let Some(disk) = Disk::mounted(&server, "64m") else { return };
    let database = server.fresh_database();
    server.run(&format!("CREATE TABLESPACE small LOCATION '{}'", disk.path.display()));
    server.run(&format!("ALTER DATABASE {} SET TABLESPACE small", database.name()));
    let site = Site::new(database.url());
    let host = site.host();
    let door = Door::of(&host);
    disk.fill(2 << 20);
    let (stored, status, told) = append_until_refused(&door);
    assert_eq!((status, &told["error"]), (507, &"disk_full".into()), "{told}");
    let said = told["message"].as_str().unwrap();
    assert!(said.contains("disk of the database is full"), "{said}");
    assert!(said.contains("sent again"), "{said}");
    // What was acknowledged can be read meanwhile.
    let seen = door.get("/sessions/s/turns?limit=500");
    assert_eq!(seen["turns"].as_array().unwrap().len(), stored.min(500));
    // A person is told which disk it is, and what to do.
    let file = site.place.file("c.jsonl", conversation(4_000));
    let shown = site.shown(&["import", &file, "--session", "large"]);
    assert!(shown.starts_with("exit 1\n"), "{shown}");
    assert!(shown.contains("error: the database at `127.0.0.1:"), "{shown}");
    assert!(shown.contains("has no room left: could not extend file"), "{shown}");
    assert!(shown.contains("hint: free some space on the database's disk"), "{shown}");
    disk.make_room();
    let stored = go_on(&door, stored);
    door.settled();
    end(host);
    assert_eq!(site.ids("s"), ids("t", 0..stored));
    site.ok(&["import", &file, "--session", "large", "-q"]);
    assert_eq!(site.ids("large").len(), 4_000);
    site.is_whole();
}

#[test]
fn a_database_whose_log_has_no_room_is_away_until_it_has() {
    let Some(server) = own_server() else { return };
    let Some(disk) = Disk::mounted(&server, "128m") else { return };
    let database = server.fresh_database();
    let site = Site::new(database.url());
    let host = site.host();
    let door = Door::of(&host);
    server.stop(Stop::Fast);
    let (log, moved) = (server.data_directory().unwrap().join("pg_wal"), disk.path.join("pg_wal"));
    let copied = Command::new("cp").arg("-a").args([&log, &moved]).status().unwrap();
    assert!(copied.success());
    std::fs::remove_dir_all(&log).unwrap();
    std::os::unix::fs::symlink(&moved, &log).unwrap();
    server.start_again();
    // The next segment of the log finds no place.
    disk.fill(1 << 20);
    let (stored, status, told) = append_until_refused(&door);
    assert_eq!((status, &told["error"]), (503, &"store_unavailable".into()), "{told}");
    disk.make_room();
    // Whether it got up by itself depends on when there was room.
    if !is_up(&database) {
        server.start_again();
    }
    let stored = go_on(&door, stored);
    door.settled();
    end(host);
    assert_eq!(site.ids("s"), ids("t", 0..stored));
    site.is_whole();
}

/// Whether its server answers, or is about to.
fn is_up(database: &TestDatabase) -> bool {
    let data = database.server().data_directory().unwrap();
    let pid = std::fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    let pid = pid.lines().next().unwrap_or_default().to_owned();
    !pid.is_empty() && Path::new("/proc").join(pid).exists()
}

// A slow line

/// A line to the server on which everything takes a while, each way.
struct SlowLine {
    port: u16,
    delay: Arc<AtomicU64>,
}

impl SlowLine {
    fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let delay = Arc::new(AtomicU64::new(0));
        let shared = Arc::clone(&delay);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let (back, there) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let delay = Arc::clone(&shared);
                std::thread::spawn(move || pass_on(client, server, &delay));
                let delay = Arc::clone(&shared);
                std::thread::spawn(move || pass_on(there, back, &delay));
            }
        });
        Self { port, delay }
    }

    fn url(&self, database: &TestDatabase) -> String {
        let port = database.server().port().unwrap();
        let url = database.url().replace(&format!(":{port}/"), &format!(":{}/", self.port));
        format!("{url}?sslmode=disable")
    }

    fn set(&self, delay: Duration) {
        self.delay.store(delay.as_millis() as u64, Ordering::SeqCst);
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, delay: &AtomicU64) {
    let _ = to.set_nodelay(true);
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        // A line that is fast again does not hold back what is on its way.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(delay.load(Ordering::SeqCst)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
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

#[test]
fn a_slow_line_to_the_database_doubles_nothing_and_loses_nothing() {
    let Some(database) = prepared_database() else { return };
    if database.server().port().is_none() {
        say_skipped("the line to a server that is not ours cannot be slowed");
        return;
    }
    let line = SlowLine::to(database.server().port().unwrap());
    let site = Site::new(&line.url(&database));
    let host = site.host();
    let door = Door::of(&host);
    let context = |door: &Door| {
        let answer = door.post("/context", &json!({ "session": "s", "budget": 600 }));
        assert_eq!(answer.0, 200, "{answer:?}");
        answer.1
    };
    // Slow, and right.
    line.set(Duration::from_millis(5));
    let mut expected = ids("t", 0..40);
    for batch in expected.chunks(20) {
        assert_eq!(door.add("s", batch).unwrap().0, 201);
    }
    door.settled();
    let slowly = context(&door);
    line.set(Duration::ZERO);
    assert_eq!(context(&door), slowly);
    // A client that does not wait so long sends the same again, at once.
    line.set(Duration::from_millis(20));
    for from in (40..100).step_by(20) {
        let batch = ids("t", from..from + 20);
        let limit = Duration::from_millis(30);
        assert!(door.add_within("s", &batch, limit).is_err(), "it was not slow");
        let body = add_until_taken(&door, &batch);
        assert_eq!(body["lastSeq"], from + 20, "{body}");
        expected.extend(batch);
    }
    // Slower than the host itself waits.
    line.set(Duration::from_secs(9));
    let late = ids("t", 100..120);
    let begun = Instant::now();
    let sent = turns(&late).to_string();
    let (status, head, told) = door.asked("POST", "/sessions/s/turns", &sent, PATIENCE).unwrap();
    assert_eq!((status, &told["error"]), (503, &"store_unavailable".into()), "{told}");
    assert!(head.contains("\r\nretry-after: "), "{head}");
    // Without the tenant's secrets the host does not know what it may say.
    let said = told["message"].as_str().unwrap();
    let is_known = said.contains("ask again, with the same ids, and nothing is added twice")
        || said == "the host cannot read the secrets of this tenant, and so says no more";
    assert!(is_known, "{said}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    line.set(Duration::ZERO);
    add_until_taken(&door, &late);
    expected.extend(late);
    door.settled();
    end(host);
    assert_eq!(site.ids("s"), expected);
    site.is_whole();
}

// Wrong clocks

/// Makes a program take the machine's clock to be off by `SKEW_SECONDS`.
const SKEW: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long skew(void) { const char *s = getenv("SKEW_SECONDS"); return s ? atol(s) : 0; }
int clock_gettime(clockid_t id, struct timespec *at) {
    int rc = syscall(SYS_clock_gettime, id, at);
    if (rc == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += skew();
    return rc;
}
int gettimeofday(struct timeval *at, void *zone) {
    (void)zone;
    struct timespec now;
    int rc = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec; at->tv_usec = now.tv_nsec / 1000;
    return rc;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"#;

/// The library that does it, if there is a compiler.
fn skewer(place: &Place) -> Option<String> {
    let source = place.file("skew.c", SKEW);
    let library = place.dir.path().join("skew.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source);
    let made = compiler.output().is_ok_and(|output| output.status.success());
    if !made {
        say_skipped("no C compiler to make a wrong clock with");
    }
    made.then(|| library.display().to_string())
}

#[expect(clippy::disallowed_methods, reason = "this is the clock that the hosts do not have")]
fn now_millis() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    since.as_millis() as i64
}

fn millis(value: &Value) -> i64 {
    icecore::Millis::parse_rfc3339(value.as_str().unwrap()).unwrap().0
}

/// No lease ends later than it should by the database's clock.
fn leases_are_short(database: &TestDatabase) {
    let sql = "SELECT name, until - (extract(epoch FROM clock_timestamp()) * 1000)::bigint
        FROM icecore.leases WHERE holder IS NOT NULL";
    for lease in database.rows(sql) {
        let left: i64 = lease[1].as_deref().unwrap().parse().unwrap();
        assert!(left <= 2_500, "{lease:?}");
    }
}

#[test]
fn hosts_whose_clocks_are_ten_hours_apart_share_one_time() {
    let Some(database) = prepared_database() else { return };
    let site = Site::new(database.url());
    let Some(library) = skewer(&site.place) else { return };
    let start = |hours: i64| {
        let mut command = site.command(&SERVE);
        command.env("LD_PRELOAD", &library).env("SKEW_SECONDS", (hours * 3_600).to_string());
        started(command.stderr(Stdio::null()))
    };
    let (mut early, late) = (start(-5), start(5));
    let doors = [Door::of(&early), Door::of(&late)];
    // Their clocks are indeed wrong: they date their answers by them.
    let dates = doors.each_ref().map(|door| {
        let (_, head, _) = door.asked("GET", "/stats", "", PATIENCE).unwrap();
        let date = head.lines().find(|line| line.starts_with("date: ")).unwrap().to_owned();
        date.split(' ').nth(5).unwrap().to_owned()
    });
    assert_ne!(dates[0][..2], dates[1][..2], "{dates:?}");
    // A line of every second, made by one of them.
    let (status, made) =
        doors[0].post("/schedules", &json!({ "cron": "* * * * * *", "task": "consolidate" }));
    assert!(matches!(status, 200 | 201), "{made}");
    let schedule = made["id"].as_str().unwrap().to_owned();
    let begun = Instant::now();
    let mut expected = Vec::new();
    while begun.elapsed() < Duration::from_secs(5) {
        let at = expected.len();
        let id = format!("t-{at}");
        let (status, body) = doors[at % 2].add("s", std::slice::from_ref(&id)).unwrap();
        assert_eq!((status, &body["lastSeq"]), (201, &json!(at + 1)), "{body}");
        // The other host knows it at once.
        let seen = doors[(at + 1) % 2].get(&format!("/sessions/s/turns?after={at}"));
        assert_eq!(seen["turns"][0]["id"], id, "{seen}");
        expected.push(id);
        leases_are_short(&database);
    }
    // Every instant once, at the time that it really was.
    let found = doors[1].get(&format!("/schedules/{schedule}?limit=500"));
    let ticks: Vec<i64> =
        found["ticks"].as_array().unwrap().iter().rev().map(|tick| millis(&tick["at"])).collect();
    assert!(ticks.len() >= 4, "{found}");
    let each: Vec<i64> = (0..).map(|n| ticks[0] + n * 1_000).take(ticks.len()).collect();
    assert_eq!(ticks, each, "each once, and none left out");
    assert!((now_millis() - ticks[0]).abs() < 60_000, "{found}");
    doors[1].asked("DELETE", &format!("/schedules/{schedule}"), "", PATIENCE).unwrap();
    // What a dead host held is taken over after its lease, and not after hours.
    doors[0].add("s", &["last-0".to_owned()]).unwrap();
    early.child.kill().unwrap();
    early.child.wait().unwrap();
    assert_eq!(doors[1].add("s", &["last-1".to_owned()]).unwrap().0, 201);
    assert!(doors[1].settled() < Duration::from_secs(10));
    expected.extend(["last-0".to_owned(), "last-1".to_owned()]);
    end(late);
    assert_eq!(site.ids("s"), expected);
    // What happened is dated by the one time that they share.
    let events = site.lines(&["events", "--json"]);
    let stamps: Vec<i64> = events.iter().map(|event| millis(&event["timestamp"])).collect();
    assert!(stamps.is_sorted(), "{stamps:?}");
    assert!(stamps.iter().all(|at| (now_millis() - at).abs() < 120_000), "{stamps:?}");
    site.is_whole();
}
