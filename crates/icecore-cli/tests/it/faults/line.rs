//! A line to the database that is slow, or cut.

use std::net::{Shutdown, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::*;

/// A line to the server on which everything may take a while, each way, and that may be cut.
struct Line {
    port: u16,
    delay: Arc<AtomicU64>,
    /// What goes over it now.
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Line {
    fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (delay, open) = (Arc::new(AtomicU64::new(0)), Arc::<Mutex<Vec<TcpStream>>>::default());
        let (shared, connected) = (Arc::clone(&delay), Arc::clone(&open));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                connected.lock().unwrap().push(client.try_clone().unwrap());
                let (back, there) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let delay = Arc::clone(&shared);
                std::thread::spawn(move || pass_on(client, server, &delay));
                let delay = Arc::clone(&shared);
                std::thread::spawn(move || pass_on(there, back, &delay));
            }
        });
        Self { port, delay, open }
    }

    fn url(&self, database: &TestDatabase) -> String {
        let port = database.server().port().unwrap();
        let url = database.url().replace(&format!(":{port}/"), &format!(":{}/", self.port));
        format!("{url}?sslmode=disable")
    }

    /// Cuts every connection, wherever it is.
    fn cut(&self) {
        for connection in self.open.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
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

#[test]
fn a_slow_line_to_the_database_doubles_nothing_and_loses_nothing() {
    let Some(database) = prepared_database() else { return };
    if database.server().port().is_none() {
        say_skipped("the line to a server that is not ours cannot be slowed");
        return;
    }
    let line = Line::to(database.server().port().unwrap());
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

/// How often the line is cut; `ICECORE_CUTS=2000` for long.
fn cuts() -> u64 {
    std::env::var("ICECORE_CUTS").ok().and_then(|count| count.parse().ok()).unwrap_or(40)
}

#[test]
fn a_line_that_is_cut_again_and_again_doubles_nothing_and_loses_nothing() {
    let Some(database) = prepared_database() else { return };
    let Some(port) = database.server().port() else {
        say_skipped("the line to a server that is not ours cannot be cut");
        return;
    };
    let line = Line::to(port);
    let site = Site::new(&line.url(&database));
    let host = site.host();
    let (door, ends) = (Mutex::new(Door::of(&host)), AtomicBool::new(false));
    // What has no id of its own is told apart by its key.
    let put = || {
        let (door, mut stored) = (Door::of(&host), 0);
        while !ends.load(Ordering::SeqCst) {
            let content = format!("Entry number {stored} is kept.");
            let body = json!({ "content": content }).to_string();
            let key = format!("entry-{stored}");
            while !matches!(
                door.asked_as(&key, "POST", "/entries", &body, PATIENCE),
                Ok((200 | 201, _, told)) if told["content"] == content
            ) {
                std::thread::sleep(Duration::from_millis(20));
            }
            stored += 1;
        }
        stored
    };
    let (stored, entries) = std::thread::scope(|scope| {
        let write = |name| write_until(&ends, &door, name);
        let writers = ["a", "b"].map(|name| (name, scope.spawn(move || write(name))));
        let putter = scope.spawn(put);
        let mut state = 2_718;
        for _ in 0..cuts() {
            std::thread::sleep(Duration::from_millis(20 + random(&mut state) % 60));
            line.cut();
        }
        std::thread::sleep(Duration::from_millis(300));
        ends.store(true, Ordering::SeqCst);
        let stored = writers.map(|(name, writer)| (name, writer.join().unwrap()));
        (stored, putter.join().unwrap())
    });
    Door::of(&host).settled();
    let found = Door::of(&host).get("/entries?limit=500");
    let mut found: Vec<&str> = found["entries"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|entry| entry["content"].as_str())
        .collect();
    found.sort_unstable();
    let mut expected: Vec<String> =
        (0..entries).map(|number| format!("Entry number {number} is kept.")).collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    end(host);
    for (name, stored) in stored {
        assert!(stored.len() > 10, "{name} wrote only {}", stored.len());
        assert_eq!(site.ids(name), stored);
    }
    site.is_whole();
}
