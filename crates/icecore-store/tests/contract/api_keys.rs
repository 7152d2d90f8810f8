//! API keys: found, listed, ended, replaced.

use icecore_domain::ids::Position;
use icecore_domain::redact::Redactor;
use icecore_domain::time::Millis;
use serde_json::{Value, json};

use super::fixtures::*;
use crate::error::StoreError;
use crate::store::Store;
use crate::*;

fn record(id: &str, role: &str) -> ApiKeyRecord {
    ApiKeyRecord {
        id: id.to_owned(),
        tenant: tenant("acme"),
        role: role.to_owned(),
        name: None,
        created_at: NOW,
        expires_at: None,
        revoked_at: None,
    }
}

fn after(millis: i64) -> Millis {
    Millis(NOW.0 + millis)
}

fn by_root() -> KeyActor {
    KeyActor::Key("root".to_owned())
}

fn revocation(id: &str, of: Option<&str>, keeps_an_admin: bool) -> KeyRevocation {
    KeyRevocation {
        id: id.to_owned(),
        tenant: of.map(tenant),
        keeps_an_admin,
        by: by_root(),
        at: after(5),
    }
}

fn rotation(id: &str, of: Option<&str>, overlap_millis: i64) -> KeyRotation {
    KeyRotation {
        id: id.to_owned(),
        tenant: of.map(tenant),
        new_id: format!("{id}-new"),
        new_hash: [77; 32],
        overlap_millis,
        last_admin_overlap_millis: 0,
        by: by_root(),
        at: after(10),
    }
}

/// A tenant's log, with what it says.
async fn logged(store: &Store, name: &str) -> Vec<(String, Value)> {
    let found = store.events(&tenant(name), None, Position(0), 99).await.unwrap();
    let payload = |event: &EventRecord| serde_json::from_str(&event.payload).unwrap();
    found.iter().map(|event| (event.kind.clone(), payload(event))).collect()
}

async fn ids(store: &Store, of: Option<&str>) -> Vec<String> {
    let of = of.map(tenant);
    store.api_keys(of.as_ref()).await.unwrap().into_iter().map(|key| key.id).collect()
}

pub(super) async fn api_keys_are_found_by_hash(store: &Store) {
    let one = ApiKeyRecord {
        name: Some(Redactor::standard().text("the deploy job")),
        expires_at: Some(after(1000)),
        ..record("one", "writer")
    };
    store.put_api_key(one.clone(), [1; 32], KeyActor::Operator).await.unwrap();
    assert_eq!(store.api_key(&[1; 32]).await.unwrap(), Some(one.clone()));
    assert_eq!(store.api_key(&[2; 32]).await.unwrap(), None);
    assert!(store.put_api_key(record("two", "writer"), [1; 32], KeyActor::Operator).await.is_err());
    assert!(store.put_api_key(one, [2; 32], KeyActor::Operator).await.is_err());
    // Of the tenant and of no memory; neither the hash nor the name is told.
    let ends = after(1000).to_rfc3339();
    let told = json!({"keyId": "one", "role": "writer", "expiresAt": ends, "by": "operator"});
    assert_eq!(logged(store, "acme").await, [("key.created".to_owned(), told)]);
    let of_memory = store.events(&tenant("acme"), Some("notes"), Position(0), 9).await.unwrap();
    assert_eq!(of_memory, []);
}

pub(super) async fn api_keys_are_listed(store: &Store) {
    assert_eq!(ids(store, None).await, [""; 0]);
    for (number, (id, of, at)) in
        [("b", "acme", 1), ("a", "acme", 1), ("c", "acme", 0), ("d", "abc", 9)].iter().enumerate()
    {
        let key =
            ApiKeyRecord { tenant: tenant(of), created_at: after(*at), ..record(id, "reader") };
        store.put_api_key(key, [number as u8; 32], KeyActor::Operator).await.unwrap();
    }
    store.revoke_api_key(revocation("a", None, false)).await.unwrap();
    assert_eq!(ids(store, None).await, ["d", "c", "a", "b"]);
    assert_eq!(ids(store, Some("acme")).await, ["c", "a", "b"]);
    assert_eq!(ids(store, Some("rival")).await, [""; 0]);
    assert_eq!(store.tenants().await.unwrap().len(), 2, "asking makes no tenant");
}

pub(super) async fn a_key_is_valid_until_it_ends(store: &Store) {
    let ends =
        |expires_at, revoked_at| ApiKeyRecord { expires_at, revoked_at, ..record("one", "reader") };
    let check = |key: ApiKeyRecord, at: i64, expected: KeyState| {
        assert_eq!(key.state(after(at)), expected, "{key:?}");
    };
    check(ends(None, None), i64::MAX >> 1, KeyState::Valid);
    check(ends(Some(after(9)), None), 8, KeyState::Valid);
    check(ends(Some(after(9)), None), 9, KeyState::Expired);
    check(ends(Some(after(9)), Some(after(3))), 9, KeyState::Revoked);
    // Whatever the clock says by now.
    check(ends(None, Some(after(3))), 2, KeyState::Revoked);
    // The store answers one that ended too, so that its holder can be told why.
    store.put_api_key(ends(Some(after(-1)), None), [1; 32], KeyActor::Operator).await.unwrap();
    assert!(store.api_key(&[1; 32]).await.unwrap().is_some());
}

pub(super) async fn a_revoked_key_stays_revoked(store: &Store) {
    store.put_api_key(record("one", "writer"), [1; 32], KeyActor::Operator).await.unwrap();
    let none = store.revoke_api_key(revocation("two", None, false)).await.unwrap();
    assert_eq!(none, None);
    let foreign = store.revoke_api_key(revocation("one", Some("rival"), false)).await.unwrap();
    assert_eq!(foreign, None);
    assert_eq!(store.api_key(&[1; 32]).await.unwrap().unwrap().revoked_at, None);
    let revoked = store.revoke_api_key(revocation("one", Some("acme"), false)).await.unwrap();
    let expected = ApiKeyRecord { revoked_at: Some(after(5)), ..record("one", "writer") };
    assert_eq!(revoked, Some(expected.clone()));
    let later = KeyRevocation { at: after(8), ..revocation("one", None, true) };
    assert_eq!(store.revoke_api_key(later).await.unwrap(), Some(expected.clone()));
    assert_eq!(store.api_key(&[1; 32]).await.unwrap(), Some(expected));
    let told = json!({"keyId": "one", "role": "writer", "by": "root"});
    assert_eq!(logged(store, "acme").await[1..], [("key.revoked".to_owned(), told)]);
}

pub(super) async fn the_last_admin_key_can_be_kept(store: &Store) {
    let foreign = ApiKeyRecord { tenant: tenant("rival"), ..record("foreign", "admin") };
    let expired = ApiKeyRecord { expires_at: Some(after(5)), ..record("expired", "admin") };
    for (number, key) in
        [record("one", "admin"), foreign, expired, record("writer", "writer")].iter().enumerate()
    {
        store.put_api_key(key.clone(), [number as u8; 32], KeyActor::Operator).await.unwrap();
    }
    let last = store.revoke_api_key(revocation("one", None, true)).await.unwrap_err();
    assert!(matches!(&last, StoreError::LastAdminKey { id } if id == "one"), "{last}");
    assert!(last.is_refusal());
    assert_eq!(store.api_key(&[0; 32]).await.unwrap(), Some(record("one", "admin")));
    // What is no valid admin key leaves nobody without one.
    for id in ["expired", "writer"] {
        assert!(store.revoke_api_key(revocation(id, None, true)).await.unwrap().is_some());
    }
    store.put_api_key(record("two", "admin"), [9; 32], KeyActor::Operator).await.unwrap();
    assert!(store.revoke_api_key(revocation("one", None, true)).await.unwrap().is_some());
    assert!(store.revoke_api_key(revocation("two", None, true)).await.is_err());
    assert!(store.revoke_api_key(revocation("two", None, false)).await.unwrap().is_some());
}

pub(super) async fn a_rotated_key_has_another_in_its_place(store: &Store) {
    let name = Some(Redactor::standard().text("the deploy job"));
    let old = ApiKeyRecord {
        name: name.clone(),
        expires_at: Some(after(1000)),
        ..record("one", "writer")
    };
    store.put_api_key(old.clone(), [1; 32], KeyActor::Operator).await.unwrap();
    for foreign in [rotation("two", None, 0), rotation("one", Some("rival"), 0)] {
        assert_eq!(store.rotate_api_key(foreign).await.unwrap(), None);
    }
    assert_eq!(ids(store, None).await, ["one"]);
    let rotated = store.rotate_api_key(rotation("one", Some("acme"), 20)).await.unwrap().unwrap();
    assert_eq!(rotated.old, ApiKeyRecord { expires_at: Some(after(30)), ..old.clone() });
    let new = ApiKeyRecord {
        id: "one-new".to_owned(),
        created_at: after(10),
        expires_at: Some(after(1010)),
        ..old
    };
    assert_eq!(rotated.new, new);
    assert_eq!(store.api_key(&[1; 32]).await.unwrap(), Some(rotated.old));
    assert_eq!(store.api_key(&[77; 32]).await.unwrap(), Some(new));
    // Without an overlap the old one is revoked; an earlier end stays.
    let at_once = KeyRotation { new_hash: [78; 32], ..rotation("one-new", None, 0) };
    let rotated = store.rotate_api_key(at_once).await.unwrap().unwrap();
    assert_eq!(rotated.old.revoked_at, Some(after(10)));
    let longer = KeyRotation { new_hash: [79; 32], ..rotation("one-new-new", None, 9000) };
    let rotated = store.rotate_api_key(longer).await.unwrap().unwrap();
    assert_eq!(rotated.old.expires_at, Some(after(1010)));
    let (ends, made_for) = (after(30).to_rfc3339(), after(1010).to_rfc3339());
    let told = json!({"keyId": "one", "newKeyId": "one-new", "role": "writer",
        "expiresAt": made_for, "oldEndsAt": ends, "by": "root"});
    assert_eq!(logged(store, "acme").await[1], ("key.rotated".to_owned(), told));
}

pub(super) async fn the_last_admin_key_is_rotated_with_an_overlap(store: &Store) {
    let rotate = async |id: &str, overlap: i64, hash: u8| {
        let rotation = rotation(id, None, overlap);
        let new_hash = [hash; 32];
        let rotation = KeyRotation { new_hash, last_admin_overlap_millis: 50, ..rotation };
        store.rotate_api_key(rotation).await.unwrap().unwrap().old
    };
    let foreign = ApiKeyRecord { tenant: tenant("rival"), ..record("foreign", "admin") };
    for (number, key) in
        [record("one", "admin"), record("writer", "writer"), foreign].iter().enumerate()
    {
        store.put_api_key(key.clone(), [number as u8; 32], KeyActor::Operator).await.unwrap();
    }
    let writer = rotate("writer", 0, 90).await;
    assert_eq!(writer.revoked_at, Some(after(10)), "it is no admin's");
    let one = rotate("one", 20, 91).await;
    assert_eq!((one.revoked_at, one.expires_at), (None, Some(after(60))));
    // It is not the last while the old one works.
    let next = rotate("one-new", 0, 92).await;
    assert_eq!(next.revoked_at, Some(after(10)));
    let foreign = rotate("foreign", 80, 93).await;
    assert_eq!(foreign.expires_at, Some(after(90)), "a longer one stays");
}

pub(super) async fn a_key_that_ended_is_not_rotated(store: &Store) {
    let expired = ApiKeyRecord { expires_at: Some(after(10)), ..record("expired", "reader") };
    let revoked = ApiKeyRecord { revoked_at: Some(after(10)), ..record("revoked", "reader") };
    store.put_api_key(expired, [1; 32], KeyActor::Operator).await.unwrap();
    store.put_api_key(revoked, [2; 32], KeyActor::Operator).await.unwrap();
    store.put_api_key(record("valid", "reader"), [3; 32], KeyActor::Operator).await.unwrap();
    for id in ["expired", "revoked"] {
        let ended = store.rotate_api_key(rotation(id, None, 0)).await.unwrap_err();
        assert!(matches!(&ended, StoreError::KeyEnded { id: found } if found == id), "{ended}");
    }
    // One step: a new key that cannot be put leaves the old one alone.
    let taken = KeyRotation { new_hash: [1; 32], ..rotation("valid", None, 0) };
    assert!(store.rotate_api_key(taken).await.is_err());
    assert_eq!(store.api_key(&[3; 32]).await.unwrap(), Some(record("valid", "reader")));
    assert_eq!(ids(store, None).await, ["expired", "revoked", "valid"]);
    assert_eq!(logged(store, "acme").await.len(), 3);
}

pub(super) async fn names_of_keys_are_redacted_again(store: &Store) {
    let named = |id: &str, of: &str| ApiKeyRecord {
        tenant: tenant(of),
        name: Some(Redactor::standard().text("job of q8Zk2Lm9Xw")),
        ..record(id, "reader")
    };
    store.put_api_key(named("one", "acme"), [1; 32], KeyActor::Operator).await.unwrap();
    store.put_api_key(named("two", "rival"), [2; 32], KeyActor::Operator).await.unwrap();
    let redactor = redactor_of(&["q8Zk2Lm9Xw"]);
    let told = store.rewrite_stored_text(&tenant("acme"), redactor.clone(), NOW).await.unwrap();
    assert_eq!((told.keys, told.hidden.values().sum::<u64>()), (1, 1));
    let found = store.api_key(&[1; 32]).await.unwrap().unwrap();
    assert_eq!(found.name.unwrap().as_str(), "job of [REDACTED:v1]");
    assert_eq!(store.api_key(&[2; 32]).await.unwrap(), Some(named("two", "rival")));
    let again = store.rewrite_stored_text(&tenant("acme"), redactor, NOW).await.unwrap();
    assert_eq!(again.keys, 0);
}
