//! Transactions: alone where they must be, together where they may, once in every case.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};

use super::proxy::{Cut, Proxy};
use super::*;
use crate::engine::tuple;
use crate::store::Store;
use crate::testing::postgres::{Stop, own_server};

/// Fails with a code of the server's.
fn raise(tx: &Tx<'_>, code: &str) -> Result<()> {
    let sql = format!("DO $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = '{code}'; END $$");
    tx.execute_batch(&sql)
}

#[test]
fn what_passes_is_run_again_and_kept_once() {
    let Some((store, _database)) = fresh_store() else { return };
    for code in ["40001", "40P01", "23505", "57P01", "53300", "08006"] {
        let runs = AtomicU32::new(0);
        let answer = write(&store, &Isolation::Global, |tx| {
            put_note(tx, code, "kept")?;
            match runs.fetch_add(1, Ordering::SeqCst) {
                0 => raise(tx, code),
                _ => Ok(()),
            }
        });
        assert!(answer.is_ok(), "{code}: {answer:?}");
        assert_eq!((runs.into_inner(), count_notes(&store, code)), (2, 1), "{code}");
    }
}

#[test]
fn a_failure_counts_whatever_was_made_of_it() {
    let Some((store, _database)) = fresh_store() else { return };
    let runs = AtomicU32::new(0);
    let act = |tx: &Tx<'_>| {
        put_note(tx, "swallowed", "kept")?;
        if runs.fetch_add(1, Ordering::SeqCst) == 0 {
            let _ = raise(tx, "40001");
        }
        Ok(())
    };
    write(&store, &Isolation::Global, act).unwrap();
    assert_eq!((runs.into_inner(), count_notes(&store, "swallowed")), (2, 1));
}

#[test]
fn what_does_not_pass_is_told_at_once() {
    let Some((store, _database)) = fresh_store() else { return };
    let runs = AtomicU32::new(0);
    let answer = write(&store, &Isolation::Global, |tx| {
        runs.fetch_add(1, Ordering::SeqCst);
        put_note(tx, "lost", "no")?;
        raise(tx, "22012")
    });
    assert!(matches!(answer, Err(StoreError::Postgres { .. })), "{answer:?}");
    let refused = write(&store, &Isolation::Global, |tx| {
        put_note(tx, "lost", "no")?;
        Err::<(), _>(StoreError::TooManySecrets)
    });
    assert!(matches!(refused, Err(StoreError::TooManySecrets)));
    assert_eq!((runs.into_inner(), count_notes(&store, "lost")), (1, 0));
}

/// A place that stays taken is no haste of somebody else.
#[test]
fn what_is_always_taken_ends() {
    let Some((store, _database)) = fresh_store() else { return };
    write(&store, &Isolation::Global, |tx| put_note(tx, "taken", "first")).unwrap();
    let runs = AtomicU32::new(0);
    let answer = write(&store, &Isolation::Global, |tx| {
        runs.fetch_add(1, Ordering::SeqCst);
        put_note(tx, "taken", "second")
    });
    assert!(matches!(answer, Err(StoreError::Unavailable { .. })), "{answer:?}");
    assert_eq!(runs.into_inner(), 9);
}

#[test]
fn a_lost_connection_is_replaced() {
    let Some((store, database)) = fresh_store() else { return };
    let hang_up = || {
        database.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        );
    };
    let runs = AtomicU32::new(0);
    write(&store, &of_tenant("acme"), |tx| {
        read_one(tx)?;
        if runs.fetch_add(1, Ordering::SeqCst) == 0 {
            hang_up();
        }
        read_one(tx)
    })
    .unwrap();
    assert_eq!(runs.into_inner(), 2);
    // Also those that are lost while nobody uses them.
    hang_up();
    assert_eq!(count_notes(&store, "none"), 0);
    hang_up();
    write(&store, &Isolation::Global, |tx| put_note(tx, "some", "")).unwrap();
    assert_eq!(count_notes(&store, "some"), 1);
}

#[test]
fn whether_a_lost_commit_happened_is_found_out() {
    let Some(server) = own_server() else { return };
    let database = server.fresh_database();
    let port = server.port().unwrap();
    let proxy = Proxy::to(port);
    let store = connect(&proxy.url(database.url(), port));
    for (cut, expected_runs) in [(Cut::After, 1), (Cut::LongAfter, 1), (Cut::Before, 2)] {
        for time in 0..3 {
            let name = format!("{cut:?} {time}");
            let runs = AtomicU32::new(0);
            proxy.cut_next(cut);
            write(&store, &Isolation::Global, |tx| {
                runs.fetch_add(1, Ordering::SeqCst);
                put_note(tx, &name, "once")
            })
            .unwrap();
            assert!(proxy.was_cut());
            assert_eq!((runs.into_inner(), count_notes(&store, &name)), (expected_runs, 1));
        }
    }
}

/// Nobody is told that it worked, and nobody that it did not.
#[test]
fn an_outcome_that_cannot_be_found_out_is_told() {
    let Some(server) = own_server() else { return };
    let database = server.fresh_database();
    let options = PostgresOptions { retry_seconds: 1, ..PostgresOptions::default() };
    let store = connect_with(database.url(), options).unwrap();
    let answer = write(&store, &Isolation::Global, |tx| {
        put_note(tx, "perhaps", "yes")?;
        // Nobody notices before COMMIT is on its way.
        server.stop(Stop::Immediate);
        Ok(())
    });
    let error = answer.unwrap_err();
    assert!(error.to_string().contains("whether it was committed is not known"), "{error}");
    assert!(error.hint().unwrap().contains("retry with the same ids"));
    server.start_again();
    assert_eq!(count_notes(&store, "perhaps"), 0);
}

#[test]
fn writers_of_a_memory_go_one_after_the_other() {
    const WRITERS: usize = 8;
    const TIMES: usize = 10;
    let Some((store, _database)) = fresh_store() else { return };
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                for _ in 0..TIMES {
                    write(&store, &of_memory("acme", "notes"), |tx| {
                        // Whoever read before another wrote would undo that.
                        let sql = "SELECT max(micro) FROM policies";
                        let last: Option<i64> = tx.one(sql, [], column)?;
                        let next = last.unwrap_or(0) + 1;
                        let sql = "INSERT INTO policies VALUES (?1, ?1, ?2, 0, 0)";
                        let owner = i64::from(std::process::id());
                        tx.run(sql, params![next, owner]).map(drop)
                    })
                    .unwrap();
                }
            });
        }
    });
    let last = read(&store, &Isolation::Global, |tx| {
        tx.one("SELECT max(micro) FROM policies", [], column::<Option<i64>>)
    });
    assert_eq!(last.unwrap(), Some((WRITERS * TIMES) as i64));
    let timings = store.postgres().unwrap().timings();
    // None had to be run again.
    assert_eq!(timings.commits.count(), (WRITERS * TIMES) as u64);
}

#[test]
fn writers_of_different_memories_go_together() {
    let Some((store, _database)) = fresh_store() else { return };
    write(&store, &of_memory("acme", "first"), |tx| make_tenant(tx, "acme")).unwrap();
    let both = Barrier::new(2);
    std::thread::scope(|scope| {
        for memory in ["first", "second"] {
            let (store, both) = (&store, &both);
            scope.spawn(move || {
                write(store, &of_memory("acme", memory), |tx| {
                    read_one(tx)?;
                    // Each is in its transaction when the other is in its own.
                    both.wait();
                    Ok(())
                })
                .unwrap();
            });
        }
    });
}

fn read_one(tx: &Tx<'_>) -> Result<i64> {
    tx.one("SELECT 1", [], column)
}

fn make_tenant(tx: &Tx<'_>, name: &str) -> Result<i64> {
    let make = || -> Result<_> {
        let number = tx.new_tenant_number()?;
        let sql = "INSERT INTO tenants (tenant, name, sealed_key) VALUES (?1, ?2, x'00')";
        tx.run(sql, params![number, name])?;
        Ok(number)
    };
    make()
}

/// The locks that a transaction holds, as the server tells.
fn locks(store: &Store, of: &Isolation) -> Vec<String> {
    write(store, of, |tx| {
        let sql = "SELECT mode FROM pg_locks WHERE locktype = 'advisory'
                   AND pid = pg_backend_pid() ORDER BY mode";
        tx.all(sql, [], column)
    })
    .unwrap()
}

#[test]
fn each_wall_has_its_locks() {
    let Some((store, _database)) = fresh_store() else { return };
    let memory = of_memory("acme", "notes");
    // Who may have to make the tenant keeps all others out.
    assert_eq!(locks(&store, &memory), ["ExclusiveLock", "ExclusiveLock"]);
    write(&store, &memory, |tx| make_tenant(tx, "acme")).unwrap();
    assert_eq!(locks(&store, &of_tenant("acme")), ["ExclusiveLock"]);
    assert_eq!(locks(&store, &memory), ["ExclusiveLock", "ShareLock"]);
    assert_eq!(locks(&store, &Isolation::Global), ["ExclusiveLock"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_is_made_once_by_many() {
    let Some(database) = fresh_database() else { return };
    let here = Arc::new(connect_elsewhere(database.url().to_owned()).await);
    let there = Arc::new(connect_elsewhere(database.url().to_owned()).await);
    let mut asked = tokio::task::JoinSet::new();
    for host in [here, there] {
        for _ in 0..8 {
            let host = Arc::clone(&host);
            asked.spawn(async move { host.identity_key(&tenant("acme")).await.unwrap() });
        }
    }
    let keys = asked.join_all().await;
    assert_eq!(keys.len(), 16);
    assert!(keys.iter().all(|key| key.hash_name("a", "b") == keys[0].hash_name("a", "b")));
}

async fn connect_elsewhere(url: String) -> Store {
    tokio::task::spawn_blocking(move || connect(&url)).await.unwrap()
}

#[test]
fn a_read_sees_one_moment() {
    let Some((store, _database)) = fresh_store() else { return };
    let count = |tx: &Tx<'_>| -> Result<i64> {
        tx.one("SELECT count(*) FROM notes WHERE name = 'moment'", [], column)
    };
    read(&store, &Isolation::Global, |tx| {
        assert_eq!(count(tx)?, 0);
        write(&store, &Isolation::Global, |tx| put_note(tx, "moment", "later")).unwrap();
        assert_eq!(count(tx)?, 0);
        Ok(())
    })
    .unwrap();
    assert_eq!(count_notes(&store, "moment"), 1);
}

/// Its end is not waited for, but it is sent: an open one would keep old rows.
#[test]
fn a_read_leaves_no_transaction_open() {
    let Some((store, database)) = fresh_store() else { return };
    for time in 0..5 {
        read(&store, &Isolation::Global, read_one).unwrap();
        let open = || {
            database.rows(
                "SELECT query FROM pg_stat_activity WHERE datname = current_database()
                 AND pid <> pg_backend_pid() AND state <> 'idle'",
            )
        };
        // The server needs a moment to read it.
        let is_closed = (0..200).any(|_| open().is_empty());
        assert!(is_closed, "{time}: {:?}", open());
    }
}

#[test]
fn many_at_once_are_answered_in_their_order() {
    let Some((store, _database)) = fresh_store() else { return };
    let numbers: Vec<i64> = (0..1000).collect();
    write(&store, &Isolation::Global, |tx| {
        let work = || -> Result<()> {
            use engine::Value::{Blob, Integer, Null, Text};
            let each: Vec<Vec<engine::Value<'_>>> =
                numbers.iter().map(|n| vec![Integer(*n)]).collect();
            let found: Vec<Vec<i64>> = tx.each("SELECT ?1 + 1", each, column)?;
            let expected: Vec<Vec<i64>> = numbers.iter().map(|n| vec![n + 1]).collect();
            assert_eq!(found, expected);
            // None, several in the query's order, and the same twice.
            let each: Vec<_> = [0, 3, 1, 3].map(|n| vec![Integer(n)]).into();
            let down = "SELECT n FROM generate_series(1, ?1) n ORDER BY n DESC";
            let found: Vec<Vec<i64>> = tx.each(down, each, column)?;
            assert_eq!(found, [vec![], vec![3, 2, 1], vec![1], vec![3, 2, 1]]);
            // Nothing is found by what is null, and a value keeps its NUL.
            let each = [vec![Text("a\0"), Integer(1)], vec![Null(engine::Kind::Text), Integer(2)]];
            let same = "SELECT ?1, ?2 WHERE ?1 = ?1";
            let found =
                tx.each(same, each, |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
            assert_eq!(found, [vec![("a\0".to_owned(), 1)], vec![]]);
            let names: Vec<String> = numbers.iter().map(|n| format!("n{n}\0")).collect();
            let rows: Vec<_> = names
                .iter()
                .map(|name| {
                    [
                        Blob(name.as_bytes()),
                        Text(name),
                        Text("t"),
                        Text("r"),
                        Integer(1),
                        Null(engine::Kind::Text),
                    ]
                })
                .collect();
            let columns = ["hash", "id", "tenant", "role", "created_at", "name"];
            tx.insert_all("api_keys", columns, &rows)?;
            tx.insert_all("api_keys", columns, &[])?;
            let found: (i64, i64) = tx.one(
                "SELECT count(*), count(name) FROM api_keys WHERE id = ?1 OR id > ''",
                ["n7\0"],
                tuple,
            )?;
            assert_eq!(found, (1000, 0));
            Ok(())
        };
        work()
    })
    .unwrap();
}

#[test]
fn what_takes_too_long_is_told_by_its_name() {
    let Some(database) = fresh_database() else { return };
    let options =
        PostgresOptions { statement_seconds: 1, lock_seconds: 1, ..PostgresOptions::default() };
    let store = connect_with(database.url(), options).unwrap();
    let slow = read(&store, &Isolation::Global, |tx| tx.execute_batch("SELECT pg_sleep(600)"));
    let error = slow.unwrap_err();
    assert!(error.to_string().contains("`postgres.statement_seconds`"), "{error}");
    // One who waits for a lock that another holds.
    let waiting = PostgresOptions { statement_seconds: 60, ..options };
    let store = connect_with(database.url(), waiting).unwrap();
    let blocked =
        write(&store, &of_tenant("acme"), |_| Ok(write(&store, &of_tenant("acme"), read_one)));
    assert!(matches!(blocked, Ok(Err(StoreError::Busy { seconds: 1 }))), "{blocked:?}");
}

/// None of them has to begin again, for nobody would try again for it here.
#[tokio::test(flavor = "multi_thread")]
async fn memories_of_a_tenant_are_made_at_once() {
    let Some(database) = fresh_database() else { return };
    let url = database.url().to_owned();
    let options = PostgresOptions { retry_seconds: 0, ..PostgresOptions::default() };
    let connected = tokio::task::spawn_blocking(move || connect_with(&url, options));
    let store = Arc::new(connected.await.unwrap().unwrap());
    store.identity_key(&tenant("acme")).await.unwrap();
    let mut made = tokio::task::JoinSet::new();
    for of in 0..8 {
        let store = store.clone();
        made.spawn(async move {
            for number in 0..20 {
                let scope = scope_of("acme", &format!("memory-{of}-{number}"));
                let turns = crate::contract::fixtures::say_many(1);
                store.append(&scope, crate::contract::fixtures::batch("s", &turns)).await.unwrap();
            }
        });
    }
    assert_eq!(made.join_all().await.len(), 8);
}
