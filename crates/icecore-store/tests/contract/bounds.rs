//! Bounds of a tenant: what counts, what is refused, and what goes on.

use icecore_domain::ids::{Principal, Scope};
use icecore_domain::redact::Hidden;
use icecore_domain::time::Millis;

use super::fixtures::*;
use super::workspace::file;
use crate::error::Result;
use crate::error::StoreError;
use crate::store::Store;
use crate::*;

const DAY: i64 = 20_000;

async fn used(store: &Store, name: &str) -> Usage {
    store.tenant_usage(&tenant(name), DAY).await.unwrap()
}

async fn kept(store: &Store) -> (u64, u64) {
    let used = used(store, "acme").await;
    (used.turns, used.bytes)
}

fn bounded(turns: Option<u64>, bytes: Option<u64>) -> Bounds {
    Bounds { everyone: KeptBounds { turns, bytes }, ..Bounds::default() }
}

fn entry(id: &str, content: &str) -> NewEntry {
    NewEntry {
        id: Some(id.to_owned()),
        content: text(content),
        tags: vec![text("größe")],
        expires_at: None,
        now: NOW,
        secrets_seen: 1,
        hidden: Hidden::new(),
        claim: None,
    }
}

async fn put_file(store: &Store, name: &str, content: &str, kept: u64) -> Result<FileRecord> {
    let workspace = Principal::local_operator(tenant("acme")).workspace();
    store.put_file(&workspace, NewFile { versions_kept: kept, ..file(name, content) }).await
}

/// `turns 3 3 1` for a bound, how much is kept, how much was asked for.
fn beyond<T>(result: Result<T>) -> String {
    match result.map(|_| ()) {
        Ok(()) => "done".to_owned(),
        Err(StoreError::BoundReached { tenant, bound, most, used, more }) => {
            format!("{tenant}: {bound} {most} {used} {more}")
        }
        Err(other) => panic!("{other}"),
    }
}

pub(super) async fn what_is_kept_is_counted(store: &Store) {
    assert_eq!(used(store, "acme").await, Usage::default());
    let session = add(store, "s", &say_many(9)).await;
    let (turns, hot) = kept(store).await;
    assert_eq!((turns, hot), (9, stats(store).await.tier_bytes[0]));
    // A turn that is known adds nothing.
    try_add(store, "s", &[say("line 2").nth(1)]).await.unwrap();
    assert_eq!(kept(store).await, (9, hot));

    warm(store, session, 8).await;
    let (turns, warmed) = kept(store).await;
    assert!(turns == 9 && warmed < hot, "{warmed} of {hot}");
    rewrite(store, session, &[3, 9]).await;
    assert!(kept(store).await.1 != warmed);
    cool(store, session, ColdBody::Pack(new_pack("p"))).await;
    let (_, cold) = kept(store).await;
    assert_eq!(cold, 1000 + stats(store).await.tier_bytes[0]);
    erase(store, session, &[9]).await;
    assert_eq!(kept(store).await, (8, 1000));
    let pack = store.packs_older_than(Millis(i64::MAX), 1).await.unwrap().remove(0);
    store.expire_pack(&pack, NOW).await.unwrap();
    assert_eq!(kept(store).await, (0, 0));
    // What was let go is not kept, and is not taken away twice.
    erase(store, session, &[2]).await;
    assert_eq!(kept(store).await, (0, 0));

    let session = add(store, "t", &say_many(8)).await;
    warm(store, session, 8).await;
    cool(store, session, ColdBody::Dropped).await;
    assert_eq!(kept(store).await, (0, 0));
    clean(store).await;
}

pub(super) async fn entries_and_files_are_counted(store: &Store) {
    store.put_entry(&scope(), entry("a", "four")).await.unwrap();
    // With the tags as a list in JSON.
    let tags = "[\"größe\"]".len() as u64;
    assert_eq!(kept(store).await, (0, 4 + tags));
    put_file(store, "a.md", "one", 2).await.unwrap();
    put_file(store, "a.md", "three", 2).await.unwrap();
    assert_eq!(kept(store).await.1, 4 + tags + 3 + 5);
    put_file(store, "a.md", "x", 2).await.unwrap();
    assert_eq!(kept(store).await.1, 4 + tags + 5 + 1);
    let workspace = Principal::local_operator(tenant("acme")).workspace();
    let path = file("a.md", "").path;
    assert!(store.delete_file(&workspace, &path, Expect::Anything, NOW).await.unwrap());
    assert_eq!(kept(store).await.1, 4 + tags);
    // What was deleted is kept for those who read the past, until it is purged.
    assert!(store.end_entry(&scope(), "a", NOW).await.unwrap());
    assert_eq!(kept(store).await.1, 4 + tags);
    store.purge_entries(&scope(), NOW, NOW, 9).await.unwrap();
    assert_eq!(kept(store).await.1, 0);
    clean(store).await;
}

pub(super) async fn no_turn_goes_beyond_a_bound(store: &Store) {
    store.set_bounds(bounded(Some(3), None));
    let session = add(store, "s", &say_many(2)).await;
    let before = store.head(scope().tenant()).await.unwrap();
    let both = [say("third").id("3"), say("fourth").id("4")];
    assert_eq!(beyond(try_add(store, "s", &both).await), "acme: turns 3 2 2");
    assert_eq!(beyond(try_add(store, "new", &both).await), "acme: turns 3 2 2");
    // All or none, and nothing is left of it.
    assert_eq!(store.head(scope().tenant()).await.unwrap(), before);
    assert_eq!((stats(store).await.turns, stats(store).await.sessions), (2, 1));
    add(store, "s", &both[..1]).await;
    assert_eq!(beyond(try_add(store, "s", &both[1..]).await), "acme: turns 3 3 1");
    // What is known is known at the bound too, and erasing makes room.
    assert_eq!(shown(&try_add(store, "s", &both[..1]).await.unwrap()), "Known 3 main");
    erase(store, session, &[1]).await;
    add(store, "s", &both[1..]).await;
    assert_eq!(kept(store).await.0, 3);
    clean(store).await;
}

pub(super) async fn no_byte_goes_beyond_a_bound(store: &Store) {
    add(store, "s", &[say("a turn")]).await;
    let (_, bytes) = kept(store).await;
    let room = 40;
    store.set_bounds(bounded(None, Some(bytes + room)));
    let long = "x".repeat(41);
    let refused = format!("acme: bytes {} {bytes} ", bytes + room);
    assert!(beyond(try_add(store, "s", &[say(&long)]).await).starts_with(&refused));
    assert!(beyond(store.put_entry(&scope(), entry("a", &long)).await).starts_with(&refused));
    assert_eq!(beyond(put_file(store, "a.md", &long, 2).await), format!("{refused}41"));
    assert_eq!(kept(store).await.1, bytes);
    assert!(store.entry(&scope(), "a", None, NOW).await.unwrap().is_none());
    // A file that takes the place of a larger one is no more than before.
    put_file(store, "a.md", &long[..40], 1).await.unwrap();
    put_file(store, "a.md", &long[..39], 1).await.unwrap();
    assert_eq!(kept(store).await.1, bytes + 39);
    clean(store).await;
}

pub(super) async fn what_takes_away_goes_on_at_a_bound(store: &Store) {
    let session = add(store, "s", &say_many(9)).await;
    store.put_entry(&scope(), entry("a", "something")).await.unwrap();
    // Far below what there is.
    store.set_bounds(bounded(Some(1), Some(1)));
    warm(store, session, 8).await;
    rewrite(store, session, &[1]).await;
    cool(store, session, ColdBody::Pack(new_pack("p"))).await;
    erase(store, session, &[2, 9]).await;
    assert!(store.end_entry(&scope(), "a", NOW).await.unwrap());
    assert_eq!(kept(store).await.0, 7);
    assert_eq!(rows(store, session).await.len(), 9);
    clean(store).await;
}

pub(super) async fn bounds_are_of_a_tenant(store: &Store) {
    let bounds = KeptBounds { turns: Some(1), bytes: None };
    store.set_bounds(Bounds { tenants: [(tenant("acme"), bounds)].into(), ..Bounds::default() });
    add(store, "s", &say_many(1)).await;
    let say = async |scope: Scope| store.append(&scope, batch("s", &say_many(2))).await;
    // Whichever of its memories it is.
    assert_eq!(beyond(say(scope_of("acme", "diary")).await), "acme: turns 1 1 2");
    assert_eq!(beyond(say(scope_of("rival", "notes")).await), "done");
    store.set_bounds(Bounds::default());
    assert_eq!(beyond(say(scope_of("acme", "diary")).await), "done");
    let all = store.all_usage(DAY).await.unwrap();
    let bytes = used(store, "acme").await.bytes + used(store, "rival").await.bytes;
    assert_eq!((all.tenants, all.sum.turns, all.sum.bytes), (2, 5, bytes));
}

pub(super) async fn a_day_is_counted_by_itself(store: &Store) {
    let use_of = |requests, tokens| DayUse { requests, tokens };
    let count = async |day, more| store.count_use(&tenant("acme"), day, more).await.unwrap();
    assert_eq!(count(DAY, use_of(2, 30)).await, use_of(2, 30));
    assert_eq!(count(DAY, use_of(1, 4)).await, use_of(3, 34));
    assert_eq!(used(store, "acme").await.day, use_of(3, 34));
    assert_eq!(used(store, "rival").await.day, DayUse::default());
    assert_eq!(store.all_usage(DAY).await.unwrap().sum.day, use_of(3, 34));
    // What models were asked and said counts with it.
    let spent = Spending { day: DAY, input: 10, output: 5, ..Spending::default() };
    store.add_spending(&scope(), vec![spent]).await.unwrap();
    assert_eq!(used(store, "acme").await.day, use_of(3, 49));

    assert_eq!(count(DAY + 1, use_of(1, 1)).await, use_of(1, 1));
    // A clock that is behind counts with the others; one that is far off begins anew.
    assert_eq!(count(DAY, use_of(1, 1)).await, use_of(2, 2));
    assert_eq!(count(DAY + 99, use_of(1, 0)).await, use_of(1, 0));
    assert_eq!(count(DAY, use_of(1, 0)).await, use_of(1, 0));
    assert_eq!(store.tenant_usage(&tenant("acme"), DAY + 1).await.unwrap().day, DayUse::default());
}

pub(super) async fn counts_that_are_right_stay(store: &Store) {
    let session = add(store, "s", &say_many(9)).await;
    erase(store, session, &[4]).await;
    let before = used(store, "acme").await;
    assert_eq!(store.recount_usage().await.unwrap(), 0);
    assert_eq!(used(store, "acme").await, before);
}
