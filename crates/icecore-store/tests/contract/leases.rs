//! Who does what none but one host may do.

use icecore_domain::ids::Position;
use icecore_domain::time::Millis;

use super::commitments::entry;
use super::fixtures::*;
use crate::error::Result;
use crate::error::StoreError;
use crate::store::Store;
use crate::store::leases::MAX_LEASE_MILLIS;
use crate::*;

const NAME: &str = "settle/acme";

/// Takes the lease for ten milliseconds; answers its number.
async fn take(store: &Store, holder: &str, now: i64) -> Option<u64> {
    let until = Millis(now + 10);
    let fence = store.lease(NAME, holder, until, Millis(now)).await.unwrap();
    fence.inspect(|fence| assert_eq!(fence.name, NAME)).map(|fence| fence.token)
}

fn fence(token: u64) -> Fence {
    Fence { name: NAME.to_owned(), token }
}

fn is_lost<T>(done: Result<T>) -> bool {
    matches!(done, Err(StoreError::LeaseLost { name }) if name == NAME)
}

pub(super) async fn one_holds_a_lease_until_it_is_past(store: &Store) {
    assert_eq!(take(store, "a", 0).await, Some(1));
    assert_eq!(take(store, "b", 9).await, None);
    assert_eq!(take(store, "b", 10).await, Some(2));
    assert_eq!(take(store, "a", 19).await, None);
    // Leases of other names are apart.
    let other = store.lease("sweep", "a", Millis(20), Millis(10)).await.unwrap();
    assert_eq!(other, Some(Fence { name: "sweep".to_owned(), token: 1 }));
}

pub(super) async fn who_renews_keeps_the_number(store: &Store) {
    assert_eq!(take(store, "a", 0).await, Some(1));
    assert_eq!(take(store, "a", 5).await, Some(1));
    assert_eq!(take(store, "b", 14).await, None);
    // It is past, and nobody came.
    assert_eq!(take(store, "a", 100).await, Some(1));
    assert_eq!(take(store, "b", 110).await, Some(2));
    assert_eq!(take(store, "a", 120).await, Some(3));
}

pub(super) async fn a_lease_of_a_wrong_clock_is_nobodys(store: &Store) {
    let (now, far) = (Millis(5), Millis(5 + MAX_LEASE_MILLIS + 1));
    assert!(store.lease(NAME, "a", far, now).await.unwrap().is_some());
    assert_eq!(take(store, "b", 5).await, Some(2));
    let hour = Millis(5 + MAX_LEASE_MILLIS);
    assert!(store.lease(NAME, "b", hour, now).await.unwrap().is_some());
    assert_eq!(take(store, "a", 5).await, None);
}

pub(super) async fn a_lease_that_is_given_back_is_free(store: &Store) {
    assert_eq!(take(store, "a", 0).await, Some(1));
    // Of another's number nothing is given back.
    store.release(&fence(7)).await.unwrap();
    assert_eq!(take(store, "b", 1).await, None);
    store.release(&fence(1)).await.unwrap();
    assert!(is_lost(store.fenced(fence(1)).put_note("late", "x").await));
    // Twice is as once.
    store.release(&fence(1)).await.unwrap();
    let again = take(store, "b", 1).await.unwrap();
    assert!(again > 1);
    store.release(&fence(1)).await.unwrap();
    assert_eq!(take(store, "a", 2).await, None);
    // Whoever gave it back takes it anew like any other.
    store.release(&fence(again)).await.unwrap();
    assert!(take(store, "b", 3).await.unwrap() > again);
}

pub(super) async fn nothing_is_written_under_a_lost_lease(store: &Store) {
    let scope = scope();
    assert_eq!(take(store, "a", 0).await, Some(1));
    let held = store.fenced(fence(1));
    held.append(&scope, batch("s", &[say("one"), say("two")])).await.unwrap();
    // Past, and still nobody else's.
    held.append(&scope, batch("s", &[say("three")])).await.unwrap();
    assert_eq!(take(store, "b", 10).await, Some(2));
    let head = store.head(scope.tenant()).await.unwrap();
    let branch = store.unsettled_beside(&[], 1).await.unwrap().remove(0);
    let (session, main) = (branch.session, branch.branch);

    assert!(is_lost(held.append(&scope, batch("s", &[say("four")])).await));
    assert!(is_lost(held.put_entry(&scope, entry(Some("late"))).await));
    assert!(is_lost(held.settle(&scope, session, main, u64::MAX >> 1).await));
    assert!(is_lost(held.drop_derived(&scope).await));
    assert!(is_lost(held.unsettle_all().await));
    assert!(is_lost(held.put_note("late", "x").await));
    assert!(is_lost(held.log(&scope, LogKind::Forgotten, "{}".to_owned(), NOW).await));
    assert!(is_lost(held.purge_outcomes(NOW).await));
    assert!(is_lost(held.purge_commitments(NOW, 1).await));
    assert!(is_lost(held.purge_ticks(NOW, 1).await));
    assert!(is_lost(held.purge_entries(&scope, NOW, NOW, 1).await));
    let lease = Lease { holder: "a".to_owned(), until: Millis(NOW.0 + 10) };
    assert!(is_lost(held.lease_dream(&scope, lease, NOW).await));

    // What was there is there, and nothing else; to read needs no lease.
    assert_eq!(held.head(scope.tenant()).await.unwrap(), head);
    assert_eq!(store.note("late").await.unwrap(), None);
    assert_eq!(held.unsettled_count(None, None).await.unwrap(), 1);
    assert_eq!(store.events(scope.tenant(), None, Position(0), 10).await.unwrap().len(), 3);
    // Who holds it writes, and who needs none.
    store.fenced(fence(2)).append(&scope, batch("s", &[say("four")])).await.unwrap();
    store.append(&scope, batch("s", &[say("five")])).await.unwrap();
    // Leases themselves need none.
    assert_eq!(take(&held, "b", 12).await, Some(2));
    held.release(&fence(2)).await.unwrap();
    assert!(is_lost(store.fenced(fence(2)).put_note("late", "x").await));
    // A lease that never was is held by nobody.
    let none = Fence { name: "never".to_owned(), token: 1 };
    let refused = store.fenced(none).put_note("late", "x").await;
    assert!(matches!(refused, Err(StoreError::LeaseLost { name }) if name == "never"));
}
