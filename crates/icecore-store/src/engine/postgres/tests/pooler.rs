//! Behind a PgBouncer in transaction mode.

use std::sync::atomic::AtomicU32;

use super::proxy::{Cut, Proxy};
use super::*;
use crate::testing::postgres::{Pooler, TestServer, own_server};

fn pooled(server: &TestServer) -> Option<Pooler> {
    Pooler::to(server.port()?)
}

#[test]
fn the_contract_holds_behind_a_pooler() {
    let Some(database) = prepared_database() else { return };
    let Some(pooler) = pooled(database.server()) else { return };
    let fresh = || {
        database.empty();
        connect(&pooler.url(&database))
    };
    assert_eq!(broken_sentences(fresh), [""; 0]);
}

/// Transactions of one connection of ours run on several of the server's, from the first on.
#[test]
fn a_store_is_made_and_used_through_a_pooler() {
    let Some(database) = fresh_database() else { return };
    let Some(pooler) = pooled(database.server()) else { return };
    let store = connect(&pooler.url(&database));
    let asked = |_: usize| -> Vec<(i64, String)> {
        read(&store, &Isolation::Global, |tx| {
            let sql = "SELECT pg_backend_pid(), current_setting('search_path')";
            tx.all(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
        })
        .unwrap()
    };
    let mut backends = std::collections::BTreeSet::new();
    for time in 0..200 {
        let barrier = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        read(&store, &Isolation::Global, |tx| {
                            barrier.wait();
                            tx.one("SELECT pg_backend_pid()", [], |row| row.get::<_, i64>(0))
                        })
                        .unwrap()
                    })
                })
                .collect();
            backends.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
        });
        if backends.len() >= 4 && time > 10 {
            break;
        }
    }
    assert!(backends.len() >= 4);
    assert!(asked(0).iter().all(|(_, path)| path == "icecore"));
    // Nothing of ours stays with the server's connections.
    let plain = database.url().replace(
        &format!(":{}/", database.server().port().unwrap()),
        &format!(":{}/", pooler.port()),
    );
    let left = crate::testing::postgres::rows_at(
        &plain,
        "SELECT current_setting('search_path'), current_setting('enable_seqscan'), current_user",
    );
    let left: Vec<&str> = left[0].iter().flatten().map(String::as_str).collect();
    assert_eq!(left, ["\"$user\", public", "on", "icecore_test"]);
    // What was not told of the pooler says so in time.
    write(&store, &Isolation::Global, |tx| put_note(tx, "pooled", "yes")).unwrap();
    assert_eq!(count_notes(&store, "pooled"), 1);
}

/// The witness of a commit is found whichever server connection it was written on, and whether
/// the line breaks before the pooler or behind it.
#[test]
fn a_lost_commit_is_found_out_through_a_pooler() {
    let Some(server) = own_server() else { return };
    let database = server.fresh_database();
    let Some(direct) = pooled(&server) else { return };
    let before = Proxy::to(direct.port());
    let url = before.url(&direct.url(&database), direct.port());
    lose_commits(&before, &connect(&url), "before");

    let port = server.port().unwrap();
    let behind = Proxy::to(port);
    let pooler = Pooler::to(behind.port()).unwrap();
    lose_commits(&behind, &connect(&pooler.url(&database)), "behind");
}

fn lose_commits(proxy: &Proxy, store: &Store, place: &str) {
    for (cut, expected_runs) in [(Cut::After, 1), (Cut::LongAfter, 1), (Cut::Before, 2)] {
        for time in 0..3 {
            let name = format!("{place} {cut:?} {time}");
            let runs = AtomicU32::new(0);
            proxy.cut_next(cut);
            write(store, &Isolation::Global, |tx| {
                runs.fetch_add(1, Ordering::SeqCst);
                put_note(tx, &name, "once")
            })
            .unwrap();
            assert!(proxy.was_cut());
            assert_eq!(
                (runs.into_inner(), count_notes(store, &name)),
                (expected_runs, 1),
                "{name}"
            );
        }
    }
}

#[test]
fn a_server_that_comes_back_is_found_again_through_a_pooler() {
    let Some(server) = own_server() else { return };
    let database = server.fresh_database();
    let Some(pooler) = pooled(&server) else { return };
    let store = connect(&pooler.url(&database));
    faults::lose_the_server(&server, &store);
}

/// Without being told of the pooler, the store says what to do.
#[test]
fn a_pooler_that_the_url_conceals_is_named() {
    let Some(database) = fresh_database() else { return };
    let Some(pooler) = pooled(database.server()) else { return };
    let url = pooler.url(&database).replace("&pooler=transaction", "");
    let options = PostgresOptions { retry_seconds: 0, ..PostgresOptions::default() };
    let mut found = None;
    for _ in 0..20 {
        let stores: Vec<_> = (0..4).map(|_| connect_with(&url, options)).collect();
        let errors = stores.into_iter().filter_map(Result::err);
        found = errors.into_iter().find_map(|error| error.hint().map(|hint| hint.to_string()));
        if found.is_some() {
            break;
        }
    }
    assert!(found.is_some_and(|hint| hint.contains("pooler=transaction")));
}

/// Changes by other hosts are heard of by way of the server itself, or else now and then.
#[tokio::test(flavor = "multi_thread")]
async fn hints_come_by_the_direct_way_or_by_the_clock() {
    let Some(database) = fresh_database() else { return };
    let Some(pooler) = pooled(database.server()) else { return };
    let url = pooler.url(&database);
    let direct = format!("{url}&direct=127.0.0.1:{}", database.server().port().unwrap());
    let connected = |url: String| tokio::task::spawn_blocking(move || connect(&url));
    let (deaf, hears) = (connected(url).await.unwrap(), connected(direct).await.unwrap());
    let (mut polled, mut heard) = (hints::listening(&deaf), hints::listening(&hears));
    assert_eq!(heard.recv().await, Some(Hint::Anything));
    for _ in 0..3 {
        assert_eq!(polled.recv().await, Some(Hint::Anything));
    }
    deaf.write(&tenant("acme"), "test", |_| Ok(())).await.unwrap();
    assert_eq!(heard.recv().await, Some(Hint::Anything));
}
