//! Registered secrets, what was redacted with them, and what was hidden.

use icecore_domain::fact::Verdict;
use icecore_domain::ids::{Position, Seq, TurnId};
use icecore_domain::redact::{Hidden, SecretName};
use icecore_domain::time::Millis;

use super::fixtures::*;
use crate::error::Result;
use crate::error::StoreError;
use crate::store::Store;
use crate::*;

const FIRST: &str = "q8Zk2Lm9Xw";
const SECOND: &str = "Pv4tRb7Ncs";

async fn put(store: &Store, name: &str, value: &str, rotate: bool) -> Result<SecretRecord> {
    store.put_secret(&tenant("acme"), secret(name, value), rotate, NOW).await
}

async fn version(store: &Store) -> u64 {
    store.secrets_version(&tenant("acme")).await.unwrap()
}

/// Secrets as `db=value mail=value`.
async fn opened(store: &Store, name: &str) -> String {
    let found = store.secrets(&tenant(name)).await.unwrap();
    assert_eq!(found.version, store.secrets_version(&tenant(name)).await.unwrap());
    let show = |s: &icecore_domain::redact::Secret| format!("{}={}", s.name(), s.value());
    found.secrets.iter().map(show).collect::<Vec<_>>().join(" ")
}

async fn events(store: &Store) -> Vec<String> {
    let found = store.events(&tenant("acme"), None, Position(0), 99).await.unwrap();
    found.iter().map(|event| format!("{} {}", event.kind, event.payload)).collect()
}

pub(super) async fn secrets_are_registered(store: &Store) {
    assert_eq!((opened(store, "acme").await.as_str(), version(store).await), ("", 0));
    assert!(store.tenants().await.unwrap().is_empty(), "asking makes no tenant");
    let made = put(store, "mail", FIRST, false).await.unwrap();
    let record = |name: &str, values, updated_at| SecretRecord {
        name: SecretName::new(name).unwrap(),
        values,
        created_at: NOW,
        updated_at,
    };
    assert_eq!((made, version(store).await), (record("mail", 1, NOW), 2));
    put(store, "db", SECOND, false).await.unwrap();
    assert_eq!(version(store).await, 3);
    assert_eq!(opened(store, "acme").await, format!("db={SECOND} mail={FIRST}"));
    let records = store.secret_records(&tenant("acme")).await.unwrap();
    assert_eq!(records, [record("db", 1, NOW), record("mail", 1, NOW)]);
    let added = [r#"secret.added {"name":"mail"}"#, r#"secret.added {"name":"db"}"#];
    assert_eq!(events(store).await, added);
    // Nothing of it is another tenant's; one without secrets has version 1.
    store.identity_key(&tenant("rival")).await.unwrap();
    assert_eq!(opened(store, "rival").await, "");
    assert_eq!(store.secrets_version(&tenant("rival")).await.unwrap(), 1);
    assert_eq!(store.secret_records(&tenant("rival")).await.unwrap(), []);
    clean(store).await;
}

pub(super) async fn a_rotated_secret_keeps_its_older_values(store: &Store) {
    put(store, "db", FIRST, false).await.unwrap();
    let taken = put(store, "db", SECOND, false).await.unwrap_err();
    assert!(matches!(&taken, StoreError::SecretExists { name } if name.as_str() == "db"));
    assert!(!taken.to_string().contains(SECOND) && taken.hint().is_some());
    let later = Millis(NOW.0 + 1);
    let rotated =
        store.put_secret(&tenant("acme"), secret("db", SECOND), true, later).await.unwrap();
    assert_eq!((rotated.values, rotated.created_at, rotated.updated_at), (2, NOW, later));
    assert_eq!(opened(store, "acme").await, format!("db={FIRST} db={SECOND}"));
    // A value that it has already changes nothing, asked to rotate or not.
    let (seen, told) = (version(store).await, events(store).await);
    for (value, rotate) in [(FIRST, false), (FIRST, true), (SECOND, true)] {
        assert_eq!(put(store, "db", value, rotate).await.unwrap(), rotated);
    }
    assert_eq!((version(store).await, events(store).await), (seen, told));
    // To rotate what is not there is to add it.
    assert_eq!(put(store, "new", FIRST, true).await.unwrap().values, 1);
    clean(store).await;
}

pub(super) async fn a_name_tells_no_value(store: &Store) {
    put(store, "db", FIRST, false).await.unwrap();
    put(store, "the-old-password", SECOND, false).await.unwrap();
    let seen = version(store).await;
    let told = [(format!("x-{FIRST}"), "another-value"), ("new".to_owned(), "old-password")];
    for (name, value) in told {
        let error = put(store, &name, value, false).await.unwrap_err();
        assert!(matches!(error, StoreError::NameTells));
        let shown = format!("{error} {error:?} {}", error.hint().unwrap());
        assert!(!shown.contains(FIRST) && !shown.contains(value));
    }
    assert_eq!(version(store).await, seen);
    clean(store).await;
}

pub(super) async fn secrets_are_removed(store: &Store) {
    let name = SecretName::new("db").unwrap();
    let remove = async |who: &str| store.remove_secret(&tenant(who), &name, NOW).await.unwrap();
    assert!(!remove("acme").await);
    assert!(store.tenants().await.unwrap().is_empty());
    put(store, "db", FIRST, false).await.unwrap();
    put(store, "db", SECOND, true).await.unwrap();
    put(store, "mail", FIRST, false).await.unwrap();
    let seen = version(store).await;
    assert!(!remove("rival").await);
    assert!(remove("acme").await);
    assert!(!remove("acme").await);
    assert_eq!(opened(store, "acme").await, format!("mail={FIRST}"));
    assert_eq!(version(store).await, seen + 1);
    assert_eq!(events(store).await.last().unwrap(), r#"secret.removed {"name":"db"}"#);
    // Its name is free again.
    put(store, "db", SECOND, false).await.unwrap();
    assert_eq!(opened(store, "acme").await, format!("db={SECOND} mail={FIRST}"));
    clean(store).await;
}

fn entry(id: &str) -> NewEntry {
    NewEntry {
        id: Some(id.to_owned()),
        content: text("content"),
        tags: Vec::new(),
        expires_at: None,
        now: NOW,
        secrets_seen: 1,
        hidden: Hidden::new(),
        claim: None,
    }
}

fn verdict(value: &str) -> NewVerdict {
    NewVerdict {
        fact: fact("Ana", value),
        verdict: Verdict::Added,
        source: None,
        now: NOW,
        secrets_seen: 1,
        hidden: Hidden::new(),
    }
}

pub(super) async fn what_was_redacted_with_other_secrets_is_refused(store: &Store) {
    // A tenant that the write makes has none, by either name.
    for (at, seen) in [0, 1].into_iter().enumerate() {
        let scope = scope_of(&format!("new-{at}"), "notes");
        let batch = AppendBatch { secrets_seen: seen, ..batch("s", &say_many(1)) };
        store.append(&scope, batch).await.unwrap();
        let scope = scope_of(&format!("entry-{at}"), "notes");
        store.put_entry(&scope, NewEntry { secrets_seen: seen, ..entry("e") }).await.unwrap();
        let scope = scope_of(&format!("fact-{at}"), "notes");
        let told = NewVerdict { secrets_seen: seen, ..verdict("a") };
        store.put_verdict(&scope, told).await.unwrap();
    }
    let tenants = store.tenants().await.unwrap();
    let try_all = async |seen: u64| {
        let batch = AppendBatch { secrets_seen: seen, ..batch("s", &say_many(2)) };
        let id = format!("e{seen}");
        [
            store.append(&scope(), batch).await.map(|_| ()),
            store
                .put_entry(&scope(), NewEntry { secrets_seen: seen, ..entry(&id) })
                .await
                .map(|_| ()),
            store
                .put_verdict(&scope(), NewVerdict { secrets_seen: seen, ..verdict("a") })
                .await
                .map(|_| ()),
        ]
    };
    let refused = async |seen: u64| {
        for result in try_all(seen).await {
            assert!(matches!(result, Err(StoreError::SecretsChanged)), "{seen}: {result:?}");
        }
    };
    refused(2).await;
    assert_eq!(store.tenants().await.unwrap(), tenants, "it made nothing");
    store.identity_key(&tenant("acme")).await.unwrap();
    refused(0).await;
    put(store, "db", FIRST, false).await.unwrap();
    refused(1).await;
    refused(3).await;
    assert_eq!(store.head(&tenant("acme")).await.unwrap(), Position(1));
    assert!(memories(store, &tenant("acme")).await.is_empty());
    assert!(try_all(2).await.iter().all(Result::is_ok));
    assert!(
        store.remove_secret(&tenant("acme"), &SecretName::new("db").unwrap(), NOW).await.unwrap()
    );
    refused(2).await;
    assert!(try_all(3).await.iter().all(Result::is_ok));
    clean(store).await;
}

fn counts(counts: &[(&str, u64)]) -> Hidden {
    counts.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
}

async fn hidden(store: &Store, memory: Option<&str>) -> Hidden {
    store.stats(&tenant("acme"), memory, NOW).await.unwrap().hidden
}

pub(super) async fn what_was_hidden_is_counted(store: &Store) {
    let turns =
        [say("a").id("a").hiding("jwt", 2).hiding("db", 1), say("b"), say("c").hiding("jwt", 1)];
    add(store, "s", &turns).await;
    // One that is known already is not counted again.
    add(store, "s", &turns[..1]).await;
    let entry = NewEntry { hidden: counts(&[("jwt", 4)]), ..entry("e") };
    store.put_entry(&scope(), entry).await.unwrap();
    let told = NewVerdict { hidden: counts(&[("mail", 8)]), ..verdict("a") };
    store.put_verdict(&scope(), told.clone()).await.unwrap();
    store.put_verdict(&scope_of("acme", "diary"), told).await.unwrap();
    assert_eq!(hidden(store, Some("notes")).await, counts(&[("db", 1), ("jwt", 7), ("mail", 8)]));
    assert_eq!(hidden(store, Some("diary")).await, counts(&[("mail", 8)]));
    assert_eq!(hidden(store, None).await, counts(&[("db", 1), ("jwt", 7), ("mail", 16)]));
    assert_eq!(store.stats(&tenant("rival"), None, NOW).await.unwrap().hidden, Hidden::new());
    let found = store.events(&tenant("acme"), None, Position(0), 9).await.unwrap();
    let redacted: Vec<_> = found
        .iter()
        .map(|event| {
            let payload: serde_json::Value = serde_json::from_str(&event.payload).unwrap();
            payload.get("redacted").map(ToString::to_string).unwrap_or_default()
        })
        .collect();
    let expected = [
        r#"{"db":1,"jwt":2}"#, "", r#"{"jwt":1}"#, r#"{"jwt":4}"#, r#"{"mail":8}"#, r#"{"mail":8}"#,
    ];
    assert_eq!(redacted, expected);
    clean(store).await;
}

pub(super) async fn counts_go_with_what_they_count(store: &Store) {
    let turns = [say("a").hiding("a", 1), say("b").hiding("b", 1), say("c").hiding("c", 1)];
    let session = add(store, "s", &turns).await;
    let id = |seq| TurnId { session, seq: Seq(seq) };
    for (name, count) in [("x", 1), ("y", 2)] {
        let entry = NewEntry { hidden: counts(&[(name, count)]), ..entry(name) };
        store.put_entry(&scope(), entry).await.unwrap();
    }
    let told = |value: &str, kind: &str, source| NewVerdict {
        hidden: counts(&[(kind, 1)]),
        source,
        ..verdict(value)
    };
    for (value, kind, source) in
        [("k", "k", Some(id(2))), ("l", "l", Some(id(3))), ("m", "m", None), ("m", "n", None)]
    {
        store.put_verdict(&scope(), told(value, kind, source)).await.unwrap();
    }
    let left = async || hidden(store, Some("notes")).await.into_keys().collect::<Vec<_>>().join("");
    assert_eq!(left().await, "abcklnxy", "the last verdict stands");
    erase(store, session, &[2]).await;
    assert_eq!(left().await, "aclnxy");
    let found = store.events(&tenant("acme"), None, Position(1), 1).await.unwrap();
    assert!(!found[0].payload.contains("redacted"));
    store.erase_entries(&scope(), &Selector::Entry("x".to_owned()), false, NOW).await.unwrap();
    assert_eq!(left().await, "aclny");
    let by_id = Selector::Entry(fact("Ana", "m").key().to_string());
    store.erase_facts(&scope(), &by_id, &[id(3)], true, NOW).await.unwrap();
    assert_eq!(left().await, "aclny");
    store.erase_facts(&scope(), &by_id, &[id(3)], false, NOW).await.unwrap();
    assert_eq!(left().await, "acy");
    clean(store).await;
}
