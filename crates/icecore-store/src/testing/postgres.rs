//! A real PostgreSQL for tests.
//!
//! `ICECORE_TEST_POSTGRES` names a server; without it one is started from the machine's
//! binaries, in a temporary directory, on a free port of the loopback. Where there are
//! none, the test that asked is skipped, and says so.
//!
//! A server never outlives the process that started it, however that ends: a shell waits
//! for the end of its standard input, which only this process holds open, then stops the
//! server and removes its directory.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what a test needs is there or it fails"
)]

use std::io::{Read, Seek, Write};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tempfile::TempDir;
use tokio_postgres::NoTls;

/// Names a server for the tests, by its URL.
pub const SERVER_VARIABLE: &str = "ICECORE_TEST_POSTGRES";

/// The user that a server of ours knows, without a password.
const USER: &str = "icecore_test";

/// A database of its own on a server that the tests of this process share, or `None` where
/// there is no PostgreSQL: then the test has nothing to do.
pub fn fresh_database() -> Option<TestDatabase> {
    shared_server().map(|server| server.fresh_database())
}

/// The server that the tests of this process share. Nobody stops it, so it syncs nothing.
fn shared_server() -> Option<&'static Arc<TestServer>> {
    static SHARED: OnceLock<Option<Arc<TestServer>>> = OnceLock::new();
    let server = SHARED.get_or_init(|| {
        let hasty = || TestServer::start_with(&[("fsync", "off"), ("full_page_writes", "off")]);
        TestServer::named().or_else(hasty).map(Arc::new)
    });
    if server.is_none() {
        say_skipped();
    }
    server.as_ref()
}

/// As [`fresh_database`], with all tables in it, which are copied and not made.
pub fn prepared_database() -> Option<TestDatabase> {
    static TEMPLATE: OnceLock<TestDatabase> = OnceLock::new();
    let server = shared_server()?;
    let template = TEMPLATE.get_or_init(|| {
        let database = server.fresh_database();
        crate::engine::postgres::prepare(database.url()).unwrap();
        database
    });
    Some(server.copy_of(template))
}

/// A server that this test alone may stop, start and configure, or `None` where there are
/// no binaries. It ends with its value.
pub fn own_server() -> Option<Arc<TestServer>> {
    let server = TestServer::start();
    if server.is_none() {
        say_skipped();
    }
    server.map(Arc::new)
}

fn say_skipped() {
    say_skipped_for(&format!("no PostgreSQL (set {SERVER_VARIABLE}, or install its server)"));
}

/// Past the test harness, which would swallow it.
fn say_skipped_for(reason: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped {test}: {reason}");
}

/// How a server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Transactions are rolled back and connections closed, in order.
    Fast,
    /// As if it had crashed.
    Immediate,
}

/// A PostgreSQL server.
pub struct TestServer {
    /// Of a database to begin with, that every server has.
    url: String,
    own: Option<Own>,
}

/// A PgBouncer in transaction mode before a server, which ends with its value.
pub struct Pooler {
    port: u16,
    watcher: Child,
}

impl Pooler {
    /// Passes on to that port of the loopback, or `None` where there is no `pgbouncer`.
    pub fn to(port: u16) -> Option<Self> {
        let Some(program) = find_program("pgbouncer") else {
            say_skipped_for("no `pgbouncer`");
            return None;
        };
        let directory = TempDir::with_prefix("icecore-pgbouncer-").unwrap().keep();
        let own = free_port();
        // Fewer server connections than a store has: each transaction may get another one.
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={port} user={USER}\n[pgbouncer]
             listen_addr = 127.0.0.1\nlisten_port = {own}\nunix_socket_dir =\nauth_type = any
             pool_mode = transaction\ndefault_pool_size = 6\nmax_client_conn = 1000
             server_login_retry = 0.1\nserver_tls_sslmode = disable\nlog_connections = 0
             log_disconnections = 0\n"
        );
        let unindented: Vec<&str> = settings.lines().map(str::trim).collect();
        std::fs::write(directory.join("pgbouncer.ini"), unindented.join("\n")).unwrap();
        give_away(&directory);
        let script = r#"trap '' INT TERM HUP
            "$2" -q "$1/pgbouncer.ini" 2> "$1/log" & pooler=$!
            read -r _
            kill -KILL $pooler; wait $pooler 2>/dev/null
            rm -rf "$1""#;
        let watcher = as_server_user(Path::new("sh"))
            .args(["-c", script, "watcher"])
            .args([&directory, &program])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let listens = |_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            std::net::TcpStream::connect(("127.0.0.1", own)).is_ok()
        };
        assert!((0..500).any(listens), "{:?}", std::fs::read_to_string(directory.join("log")));
        Some(Self { port: own, watcher })
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a database of the server, by way of the pooler.
    pub fn url(&self, database: &TestDatabase) -> String {
        let port = database.server.port().unwrap();
        let url = database.url.replace(&format!(":{port}/"), &format!(":{}/", self.port));
        format!("{url}?sslmode=disable&pooler=transaction")
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }
}

/// What belongs to a server that we started.
struct Own {
    binaries: PathBuf,
    directory: PathBuf,
    port: u16,
    /// Ends the server when its standard input ends.
    watcher: Child,
}

static DATABASES: AtomicU64 = AtomicU64::new(0);

impl TestServer {
    /// The server that the environment names.
    fn named() -> Option<Self> {
        let url = std::env::var(SERVER_VARIABLE).ok().filter(|url| !url.is_empty())?;
        Some(Self { url, own: None })
    }

    /// A new server, if this machine has the binaries.
    fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    fn start_with(settings: &[(&str, &str)]) -> Option<Self> {
        let own = Own::made_by("initdb", |initdb| {
            initdb.args(["-U", USER, "-A", "trust", "-E", "UTF8"]);
            initdb.args(["--no-locale", "--no-sync", "--no-instructions"]);
        })?;
        own.configure("listen_addresses", "127.0.0.1");
        own.configure("unix_socket_directories", "");
        own.configure("max_connections", "200");
        settings.iter().for_each(|(name, value)| own.configure(name, value));
        Some(own.started())
    }

    /// A streaming replica of this server, which is ours.
    pub fn replica(&self) -> Arc<Self> {
        let own = Own::made_by("pg_basebackup", |copy| {
            copy.args(["-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", &self.url]);
        });
        Arc::new(own.unwrap().started())
    }

    /// Makes a primary of a replica.
    pub fn promote(&self) {
        must_run(self.own().pg_ctl("promote").arg("-w"));
    }

    /// The URL of a database that is always there.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its port, if it is ours.
    pub fn port(&self) -> Option<u16> {
        self.own.as_ref().map(|own| own.port)
    }

    /// A new, empty database.
    pub fn fresh_database(self: &Arc<Self>) -> TestDatabase {
        self.copy("template0")
    }

    /// A new database that has what another has.
    pub fn copy_of(self: &Arc<Self>, other: &TestDatabase) -> TestDatabase {
        self.copy(&other.name)
    }

    fn copy(self: &Arc<Self>, template: &str) -> TestDatabase {
        let number = DATABASES.fetch_add(1, Ordering::Relaxed);
        let name = format!("icecore_test_{}_{number}", std::process::id());
        self.run(&format!("DROP DATABASE IF EXISTS {name}"));
        // Whoever filled the template may be about to leave it.
        self.run(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{template}'"
        ));
        self.run(&format!("CREATE DATABASE {name} TEMPLATE {template}"));
        TestDatabase { url: with_database(&self.url, &name), name, server: Arc::clone(self) }
    }

    /// Runs a statement as the user of the URL, in the database of the URL.
    pub fn run(&self, sql: &str) {
        run_sql(&self.url, sql).unwrap();
    }

    /// Stops the server; those who were connected find out by themselves.
    pub fn stop(&self, how: Stop) {
        let mode = match how {
            Stop::Fast => "fast",
            Stop::Immediate => "immediate",
        };
        must_run(self.own().pg_ctl("stop").args(["-m", mode, "-w"]));
    }

    /// Starts a stopped server on the same port and waits until it answers.
    pub fn start_again(&self) {
        must_run(&mut self.own().starting());
    }

    /// Changes a setting; most hold from the next start on.
    pub fn configure(&self, name: &str, value: &str) {
        self.own().configure(name, value);
    }

    /// Connections that it accepts from the next start on.
    pub fn set_max_connections(&self, most: u32) {
        self.configure("max_connections", &most.to_string());
        self.configure("superuser_reserved_connections", "1");
    }

    /// Where its data is, if it is ours.
    pub fn data_directory(&self) -> Option<PathBuf> {
        self.own.as_ref().map(|own| own.directory.join("data"))
    }

    fn own(&self) -> &Own {
        self.own.as_ref().expect("only a server of our own is stopped and configured")
    }
}

impl Own {
    /// A data directory that one of the server's programs makes, if this machine has them.
    fn made_by(program: &str, arguments: impl FnOnce(&mut Command)) -> Option<Self> {
        let binaries = find_binaries()?;
        // The watcher removes it, also when this process is killed.
        let directory = TempDir::with_prefix("icecore-pg-").unwrap().keep();
        give_away(&directory);
        let watcher = watch(&directory);
        let mut making = as_server_user(&binaries.join(program));
        making.arg("-D").arg(directory.join("data"));
        arguments(&mut making);
        must_run(&mut making);
        Some(Self { binaries, directory, port: 0, watcher })
    }

    fn started(mut self) -> TestServer {
        self.start_somewhere();
        let url = format!("postgres://{USER}@127.0.0.1:{}/postgres", self.port);
        TestServer { url, own: Some(self) }
    }

    /// On a free port. Somebody else may take it before the server does.
    fn start_somewhere(&mut self) {
        const TRIES: usize = 5;
        for attempt in 1..=TRIES {
            self.port = free_port();
            self.configure("port", &self.port.to_string());
            match run(&mut self.starting()) {
                Ok(()) => return,
                Err(said) => assert!(attempt < TRIES, "{said}"),
            }
        }
    }

    fn starting(&self) -> Command {
        let mut command = self.pg_ctl("start");
        command.arg("-l").arg(self.directory.join("log")).arg("-w");
        command
    }

    fn pg_ctl(&self, action: &str) -> Command {
        let mut command = as_server_user(&self.binaries.join("pg_ctl"));
        command.arg(action).arg("-s").arg("-D").arg(self.directory.join("data"));
        command
    }

    fn configure(&self, name: &str, value: &str) {
        let path = self.directory.join("data").join("postgresql.conf");
        let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
        writeln!(file, "{name} = '{value}'").unwrap();
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }
}

/// A database that is dropped with its value.
pub struct TestDatabase {
    server: Arc<TestServer>,
    name: String,
    url: String,
}

impl TestDatabase {
    /// Leaves the tables and nothing in them.
    pub fn empty(&self) {
        let tables = "SELECT string_agg(format('icecore.%I', tablename), ', ') FROM pg_tables
            WHERE schemaname = 'icecore' AND tablename != 'migrations'";
        let tables = self.rows(tables).remove(0).remove(0).unwrap_or_default();
        self.run(&format!("TRUNCATE {tables}"));
    }

    /// Its URL, as `--store` takes it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server that it is on.
    pub fn server(&self) -> &Arc<TestServer> {
        &self.server
    }

    /// Runs statements in it, as the user of the URL.
    pub fn run(&self, sql: &str) {
        run_sql(&self.url, sql).unwrap();
    }

    /// The rows of a statement, as text, in the order of its columns.
    pub fn rows(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        ask_sql(&self.url, sql).unwrap()
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        // The server may be stopped; then it goes with the server.
        let drop = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        let _ = run_sql(&self.server.url, &drop);
    }
}

/// Others who hold every connection that the server has, and take each that becomes free,
/// until this is dropped.
pub struct Crowd {
    runtime: Option<tokio::runtime::Runtime>,
    count: Arc<AtomicU64>,
}

impl Crowd {
    /// Returns when there is no place left.
    pub fn gather(url: &str) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (url, count) = (url.to_owned(), Arc::<AtomicU64>::default());
        let (full, is_full) = std::sync::mpsc::channel();
        let counted = Arc::clone(&count);
        runtime.spawn(async move {
            let mut clients = Vec::new();
            loop {
                match tokio_postgres::connect(&url, NoTls).await {
                    Ok((client, connection)) => {
                        tokio::spawn(connection);
                        clients.push(client);
                        counted.store(clients.len() as u64, Ordering::Relaxed);
                    }
                    Err(_) => {
                        let _ = full.send(());
                        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                    }
                }
            }
        });
        is_full.recv().unwrap();
        Self { runtime: Some(runtime), count }
    }

    /// How many connections it holds.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // The test may be async, where a runtime must not wait for its end.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The rows of a statement, as text, at any URL without options of ours.
pub fn rows_at(url: &str, sql: &str) -> Vec<Vec<Option<String>>> {
    ask_sql(url, sql).unwrap()
}

fn run_sql(url: &str, sql: &str) -> Result<(), tokio_postgres::Error> {
    ask_sql(url, sql).map(|_| ())
}

type TextRow = Vec<Option<String>>;

/// On a thread of its own: the test may be async.
fn ask_sql(url: &str, sql: &str) -> Result<Vec<TextRow>, tokio_postgres::Error> {
    let ask = async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        let driven = tokio::spawn(connection);
        let messages = client.simple_query(sql).await?;
        drop(client);
        let _ = driven.await;
        let rows = messages.iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect())
            }
            _ => None,
        });
        Ok(rows.collect())
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(ask)
        });
        thread.join().unwrap()
    })
}

/// The URL of another database on the same server.
fn with_database(url: &str, name: &str) -> String {
    let (address, options) = match url.split_once('?') {
        Some((address, options)) => (address, format!("?{options}")),
        None => (url, String::new()),
    };
    let begin = address.find("://").map_or(0, |at| at + 3);
    let end = address[begin..].find('/').map_or(address.len(), |at| begin + at);
    format!("{}/{name}{options}", &address[..end])
}

/// The directory with the server's programs: where the path finds them, else where Debian
/// puts them, the newest version first.
fn find_binaries() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&paths).collect();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
    versions.sort();
    places.extend(versions.into_iter().rev());
    let has = |place: &PathBuf, name: &str| place.join(name).is_file();
    let found = places
        .into_iter()
        .find(|place| ["initdb", "pg_ctl", "postgres"].iter().all(|name| has(place, name)))?;
    // `initdb` looks for `postgres` beside itself, and not beside a link to it.
    let real = found.join("initdb").canonicalize().ok()?;
    real.parent().map(Path::to_owned)
}

fn find_program(name: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&paths).chain(["/usr/sbin".into()]);
    places.find(|place| place.join(name).is_file()).map(|place| place.join(name))
}

/// As another user where we are root, since the server refuses to run as root.
fn as_server_user(program: &Path) -> Command {
    let Some(user) = server_user() else { return Command::new(program) };
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups", "--"]);
    command.arg(program);
    // Where we are may be closed to that user.
    command.current_dir("/");
    command
}

/// Who runs the server, if we may not.
fn server_user() -> Option<&'static str> {
    static USER: OnceLock<Option<&'static str>> = OnceLock::new();
    *USER.get_or_init(|| {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let is_known =
            |user: &&str| known.lines().any(|line| line.starts_with(&format!("{user}:")));
        // A group of the same name is needed, which `nobody` has not everywhere.
        ["postgres", "daemon", "nobody"].into_iter().find(is_known)
    })
}

fn give_away(directory: &Path) {
    let Some(user) = server_user() else { return };
    let known = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = known.lines().find(|line| line.starts_with(&format!("{user}:"))).unwrap();
    let ids: Vec<&str> = line.split(':').collect();
    chown(directory, ids[2].parse().ok(), ids[3].parse().ok()).unwrap();
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700)).unwrap();
}

/// A shell that outlives us just long enough to clean up. It ignores what a terminal sends
/// to all of its group.
fn watch(directory: &Path) -> Child {
    let script = r#"trap '' INT TERM HUP
        read -r _
        kill -QUIT "$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)" 2>/dev/null
        while [ -s "$1/data/postmaster.pid" ] && kill -0 "$(head -n 1 "$1/data/postmaster.pid")"
        do sleep 0.05; done 2>/dev/null
        rm -rf "$1""#;
    Command::new("sh")
        .args(["-c", script, "watcher"])
        .arg(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn must_run(command: &mut Command) {
    if let Err(said) = run(command) {
        panic!("{said}");
    }
}

/// Runs a command, and answers what it said if it failed.
fn run(command: &mut Command) -> Result<(), String> {
    // A server that a command leaves running would hold a pipe open.
    let mut log = tempfile::tempfile().unwrap();
    command.stdin(Stdio::null());
    command.stdout(log.try_clone().unwrap()).stderr(log.try_clone().unwrap());
    let status = command.status().unwrap();
    if status.success() {
        return Ok(());
    }
    let mut said = String::new();
    log.rewind().and_then(|()| log.read_to_string(&mut said)).unwrap();
    Err(format!("{command:?} ended with {status}: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_keeps_all_but_its_database() {
        let check = |url, expected| assert_eq!(with_database(url, "new"), expected);
        check("postgres://u@h:1/old", "postgres://u@h:1/new");
        check("postgres://u@h:1", "postgres://u@h:1/new");
        check("postgres://u:p@h/old?sslmode=disable", "postgres://u:p@h/new?sslmode=disable");
    }

    #[test]
    fn a_server_stops_and_starts_again_with_what_it_had() {
        let Some(server) = own_server() else { return };
        let database = server.fresh_database();
        database.run("CREATE TABLE kept (n INTEGER); INSERT INTO kept VALUES (1)");
        for how in [Stop::Immediate, Stop::Fast] {
            server.stop(how);
            assert!(run_sql(database.url(), "SELECT 1").is_err());
            server.start_again();
            assert_eq!(database.rows("SELECT n FROM kept"), [[Some("1".to_owned())]]);
        }
        let directory = server.data_directory().unwrap();
        drop((database, server));
        assert!(!directory.exists());
    }
}
