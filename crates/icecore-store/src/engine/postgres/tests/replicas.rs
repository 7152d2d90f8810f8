//! Reads on a real streaming replica.

use super::*;
use crate::testing::postgres::{Stop, TestServer, own_server};

/// A read that replicas may serve.
const OP: &str = "turns_at";

struct Pair {
    primary: Arc<TestServer>,
    replica: Arc<TestServer>,
    database: TestDatabase,
    store: Store,
}

fn pair() -> Option<Pair> {
    let primary = own_server()?;
    let database = primary.fresh_database();
    drop(connect(database.url()));
    let replica = primary.replica();
    let url = format!("{}?replica=127.0.0.1:{}", database.url(), replica.port().unwrap());
    let store = connect(&url);
    Some(Pair { primary, replica, database, store })
}

impl Pair {
    /// Who served a read, and what it found.
    fn ask(&self, op: &'static str, note: &str) -> (&'static str, i64) {
        let database = &self.store.postgres().unwrap().database;
        let act = |tx: &Tx<'_>| {
            let sql = "SELECT pg_is_in_recovery(), (SELECT count(*) FROM notes WHERE name = ?1)";
            tx.one(sql, [note], |row| Ok((row.get::<_, bool>(0)?, row.get(1)?)))
        };
        let (is_replica, count) = database.read(&Isolation::Global, op, &act).unwrap();
        (if is_replica { "replica" } else { "primary" }, count)
    }

    fn write(&self, note: &str) {
        write(&self.store, &Isolation::Global, |tx| put_note(tx, note, "")).unwrap();
    }

    /// Until a replica that was left alone is tried again.
    fn until_served_by(&self, who: &str) {
        let served = |_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            self.ask(OP, "").0 == who
        };
        assert!((0..400).any(served), "{who} serves no reads");
    }
}

#[test]
fn a_replica_serves_what_was_just_written() {
    let Some(pair) = pair() else { return };
    pair.until_served_by("replica");
    let mut by_replica = 0;
    for number in 0..50 {
        let note = format!("note {number}");
        pair.write(&note);
        let (who, count) = pair.ask(OP, &note);
        assert_eq!(count, 1, "{note}, read from the {who}");
        by_replica += u32::from(who == "replica");
    }
    assert!(by_replica > 0);
    // Other operations never ask it.
    assert_eq!(pair.ask("session", "note 0"), ("primary", 1));
}

#[test]
fn the_primary_serves_while_a_replica_is_behind() {
    let Some(pair) = pair() else { return };
    pair.until_served_by("replica");
    let on_replica = |sql: &str| pair.replica.run(sql);
    on_replica("SELECT pg_wal_replay_pause()");
    pair.write("late");
    assert_eq!(pair.ask(OP, "late"), ("primary", 1));
    assert_eq!(pair.ask(OP, "late"), ("primary", 1));
    on_replica("SELECT pg_wal_replay_resume()");
    pair.until_served_by("replica");
    assert_eq!(pair.ask(OP, "late"), ("replica", 1));
}

#[test]
fn the_primary_serves_while_a_replica_is_away() {
    let Some(pair) = pair() else { return };
    pair.until_served_by("replica");
    pair.replica.stop(Stop::Immediate);
    pair.write("away");
    assert_eq!(pair.ask(OP, "away"), ("primary", 1));
    pair.replica.start_again();
    pair.until_served_by("replica");
    assert_eq!(pair.ask(OP, "away"), ("replica", 1));
}

#[test]
fn a_promoted_replica_serves_nothing() {
    let Some(pair) = pair() else { return };
    pair.until_served_by("replica");
    pair.replica.promote();
    // It goes its own way from here on.
    let url = pair.database.url().replace(
        &format!(":{}/", pair.primary.port().unwrap()),
        &format!(":{}/", pair.replica.port().unwrap()),
    );
    write(&connect(&url), &Isolation::Global, |tx| put_note(tx, "elsewhere", "")).unwrap();
    for _ in 0..30 {
        assert_eq!(pair.ask(OP, "elsewhere"), ("primary", 0));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}
