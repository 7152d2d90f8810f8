//! What the database does for a turn, however many were there before.

use std::time::{Duration, Instant};

use icecore_store::testing::postgres::{TestDatabase, prepared_database};

use crate::run::{Place, conversation};

/// Rows that the server has looked at, once it has counted all of them.
fn rows_read(database: &TestDatabase) -> u64 {
    let sql = "SELECT coalesce(sum(idx_tup_read), 0)
            + (SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables),
        (SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'icecore')
        FROM pg_stat_user_indexes";
    let (begun, mut last) = (Instant::now(), None);
    loop {
        let row = database.rows(sql).remove(0);
        let number = |at: usize| row[at].as_deref().unwrap().parse::<u64>().unwrap();
        // A connection tells what it did when it ends.
        if number(1) == 0 && last == Some(number(0)) {
            return number(0);
        }
        last = Some(number(0));
        assert!(begun.elapsed() < Duration::from_secs(30), "{row:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Plans are made while a table is empty, and are to be good when it is not.
#[test]
fn a_long_session_costs_the_database_no_more_for_each_turn() {
    let each = |turns: usize| {
        let database = prepared_database()?;
        let place = Place::new();
        let file = place.file("c.jsonl", conversation(turns));
        let before = rows_read(&database);
        for args in [
            &["import", &file, "--session", "s", "-q"][..],
            &["events", "--json"],
            &["search", "a glacier and its moraine"],
            &["context", "--session", "s", "--budget", "2000"],
            &["forget", "--session", "s"],
        ] {
            let output = place.command(args).env("ICECORE_STORE", database.url()).output().unwrap();
            assert!(output.status.success(), "{}", place.describe(&output));
        }
        Some((rows_read(&database) - before) as f64 / turns as f64)
    };
    let (Some(few), Some(many)) = (each(1_000), each(4_000)) else { return };
    assert!(many < 1.5 * few, "{few:.1} rows for each of 1,000 turns, {many:.1} of 4,000");
}
