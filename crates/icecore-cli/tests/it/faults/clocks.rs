//! Hosts with wrong clocks.

use std::time::SystemTime;

use super::*;

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
