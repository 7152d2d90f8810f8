//! What hosts tell each other, and what time it is.

use tokio::sync::mpsc;

use super::*;
use crate::store::Store;

async fn connected(database: &TestDatabase) -> Store {
    let url = database.url().to_owned();
    tokio::task::spawn_blocking(move || connect(&url)).await.unwrap()
}

pub(super) fn listening(store: &Store) -> mpsc::UnboundedReceiver<Hint> {
    let (send, heard) = mpsc::unbounded_channel();
    store.listen(move |hint| {
        let _ = send.send(hint);
    });
    heard
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_told_to_other_hosts() {
    let Some(database) = fresh_database() else { return };
    let (here, there) = (connected(&database).await, connected(&database).await);
    let (mut own, mut other) = (listening(&here), listening(&there));
    // Whoever begins to listen may have missed something.
    assert_eq!(own.recv().await, Some(Hint::Anything));
    assert_eq!(other.recv().await, Some(Hint::Anything));
    here.identity_key(&tenant("acme")).await.unwrap();
    // The tenant is new here, and has no number yet.
    assert_eq!(other.recv().await, Some(Hint::Anything));
    here.secrets_version(&tenant("acme")).await.unwrap();
    let number = here.number_of(&tenant("acme")).unwrap();
    let act = |_: &Tx<'_>| Ok(());
    here.write(&tenant("acme"), "test", act).await.unwrap();
    assert_eq!(other.recv().await, Some(Hint::Tenant(number)));
    // Nobody is told of what it did itself.
    there.write(&tenant("acme"), "test", act).await.unwrap();
    assert_eq!(own.recv().await, Some(Hint::Tenant(number)));
    assert!(other.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_lost_hints_is_told() {
    let Some(database) = fresh_database() else { return };
    let store = connected(&database).await;
    let mut heard = listening(&store);
    assert_eq!(heard.recv().await, Some(Hint::Anything));
    database.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    assert_eq!(heard.recv().await, Some(Hint::Anything));
    drop(store);
    // The last who could tell is gone.
    assert_eq!(heard.recv().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_is_that_of_the_database() {
    let Some(database) = fresh_database() else { return };
    let store = connected(&database).await;
    let asked = || {
        let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
        database.rows(sql)[0][0].clone().unwrap().parse::<i64>().unwrap()
    };
    // The middle of a round trip may be off by half of it.
    let slack = 1000;
    let before = asked();
    let told = store.clock().unwrap().0;
    let after = asked();
    assert!(before - slack <= told && told <= after + slack, "{before} {told} {after}");
}
