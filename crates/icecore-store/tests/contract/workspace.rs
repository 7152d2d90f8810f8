//! Workspace files: versions, expectations, and what a redactor makes of them.

use icecore_domain::ids::{Position, Principal};
use icecore_domain::redact::{Hidden, RedactedText, SecretName};
use icecore_domain::time::Millis;
use icecore_domain::workspace::{FilePath, Workspace};

use super::fixtures::*;
use crate::error::Result;
use crate::error::StoreError;
use crate::store::Store;
use crate::*;

const FIRST: &str = "q8Zk2Lm9Xw";

fn of(name: &str) -> Workspace {
    Principal::local_operator(tenant(name)).workspace()
}

fn path(name: &str) -> FilePath {
    FilePath::new(text(name)).unwrap()
}

pub(crate) fn file(name: &str, content: &str) -> NewFile {
    NewFile {
        path: path(name),
        content: text(content),
        content_type: text("text/markdown"),
        expect: Expect::Anything,
        versions_kept: 20,
        most_files: 256,
        now: NOW,
        secrets_seen: 1,
        hidden: Hidden::new(),
        claim: None,
    }
}

async fn put(store: &Store, name: &str, content: &str) -> FileRecord {
    store.put_file(&of("acme"), file(name, content)).await.unwrap()
}

async fn read(store: &Store, name: &str, version: Option<u64>) -> Option<FileRecord> {
    store.file(&of("acme"), &path(name), version).await.unwrap()
}

/// `2 second` for the second version, which holds `second`.
fn shown(file: Option<FileRecord>) -> String {
    file.map(|file| format!("{} {}", file.head.version, file.content)).unwrap_or_default()
}

/// Paths and versions of a list.
async fn listed(store: &Store, workspace: &Workspace, prefix: &str) -> String {
    let found = store.files(workspace, prefix).await.unwrap();
    let shown: Vec<_> =
        found.iter().map(|head| format!("{} {}", head.path, head.version)).collect();
    shown.join(", ")
}

async fn payloads(store: &Store) -> Vec<String> {
    let found = store.events(&tenant("acme"), None, Position(0), 99).await.unwrap();
    let of_files = found.into_iter().filter(|event| event.kind == "workspace.updated");
    of_files.map(|event| event.payload).collect()
}

pub(super) async fn a_file_has_versions_from_one(store: &Store) {
    assert_eq!(read(store, "a.md", None).await, None);
    assert!(store.tenants().await.unwrap().is_empty(), "asking makes no tenant");
    let first = put(store, "a.md", "first").await;
    assert_eq!(first.head.version, 1);
    let later = Millis(NOW.0 + 5);
    let second = NewFile { content_type: text("a/b"), now: later, ..file("a.md", "second") };
    let second = store.put_file(&of("acme"), second).await.unwrap();
    assert_eq!((second.head.version, second.head.updated_at), (2, later));
    assert!(second.head.position > first.head.position);
    assert_ne!(second.head.digest, first.head.digest);
    assert_eq!(read(store, "a.md", None).await, Some(second.clone()));
    assert_eq!(read(store, "a.md", Some(2)).await, Some(second));
    assert_eq!(read(store, "a.md", Some(1)).await, Some(first));
    for version in [0, 3, u64::MAX] {
        assert_eq!(read(store, "a.md", Some(version)).await, None);
    }
    // The same content is a version of its own, and has the same digest.
    let (third, again) = (put(store, "a.md", "x").await, put(store, "a.md", "x").await);
    assert_eq!((again.head.version, again.head.digest), (4, third.head.digest));
    assert_eq!(store.stats(&tenant("acme"), None, NOW).await.unwrap().files, 1);
    clean(store).await;
}

pub(super) async fn so_many_versions_are_kept(store: &Store) {
    for n in 1..=5 {
        let file = NewFile { versions_kept: 3, ..file("a.md", &format!("no {n}")) };
        store.put_file(&of("acme"), file).await.unwrap();
        put(store, "b.md", "x").await;
    }
    let mut kept = Vec::new();
    for version in 1..=5 {
        kept.push(shown(read(store, "a.md", Some(version)).await));
    }
    assert_eq!(kept, ["", "", "3 no 3", "4 no 4", "5 no 5"]);
    assert_eq!(shown(read(store, "b.md", Some(1)).await), "1 x");
    // Nobody keeps none.
    let only = NewFile { versions_kept: 0, ..file("a.md", "only") };
    store.put_file(&of("acme"), only).await.unwrap();
    assert_eq!(shown(read(store, "a.md", None).await), "6 only");
    assert_eq!(read(store, "a.md", Some(5)).await, None);
    clean(store).await;
}

pub(super) async fn a_file_is_written_as_expected(store: &Store) {
    let try_put = async |expect: Expect| {
        let put = store.put_file(&of("acme"), NewFile { expect, ..file("a.md", "x") }).await;
        put.map(|file| file.head)
    };
    let conflict = |result: Result<FileHead>| match result {
        Err(StoreError::FileConflict { current }) => current,
        other => panic!("{other:?}"),
    };
    assert_eq!(conflict(try_put(Expect::Present).await), 0);
    assert_eq!(conflict(try_put(Expect::At(Position(1))).await), 0);
    assert!(store.tenants().await.unwrap().is_empty(), "a refused write leaves nothing");
    let first = try_put(Expect::Absent).await.unwrap();
    assert_eq!(conflict(try_put(Expect::Absent).await), 1);
    assert_eq!(conflict(try_put(Expect::At(Position(99))).await), 1);
    let second = try_put(Expect::At(first.position)).await.unwrap();
    assert_eq!(conflict(try_put(Expect::At(first.position)).await), 2);
    assert_eq!(try_put(Expect::Present).await.unwrap().version, 3);
    let delete = async |expect| store.delete_file(&of("acme"), &path("a.md"), expect, NOW).await;
    let refused = delete(Expect::At(second.position)).await;
    assert!(matches!(refused, Err(StoreError::FileConflict { current: 3 })));
    assert_eq!(payloads(store).await.len(), 3, "what was refused is not logged");
    assert!(delete(Expect::Present).await.unwrap());
    let refused = delete(Expect::Present).await;
    assert!(matches!(refused, Err(StoreError::FileConflict { current: 0 })));
    clean(store).await;
}

pub(super) async fn one_of_two_writers_wins(store: &Store) {
    let mut expect = Expect::At(put(store, "a.md", "start").await.head.position);
    for round in 2..12 {
        let workspace = of("acme");
        let write = |who: &str| store.put_file(&workspace, NewFile { expect, ..file("a.md", who) });
        let (one, other) = tokio::join!(write("one"), write("other"));
        let won: Vec<FileRecord> = [one, other].into_iter().filter_map(Result::ok).collect();
        assert_eq!((won.len(), won[0].head.version), (1, round));
        assert_eq!(read(store, "a.md", None).await.as_ref(), Some(&won[0]));
        expect = Expect::At(won[0].head.position);
    }
    clean(store).await;
}

pub(super) async fn files_are_listed_by_path(store: &Store) {
    let acme = of("acme");
    assert_eq!(store.files(&acme, "").await.unwrap(), []);
    for name in ["b/two.md", "a.md", "b/one.md", "B.md", "b/one.md", "b-c"] {
        put(store, name, name).await;
    }
    assert_eq!(listed(store, &acme, "").await, "B.md 1, a.md 1, b-c 1, b/one.md 2, b/two.md 1");
    assert_eq!(listed(store, &acme, "b/").await, "b/one.md 2, b/two.md 1");
    assert_eq!(listed(store, &acme, "b/one.md").await, "b/one.md 2");
    for nothing in ["%", "_", "b/one.mdx", "ü", "'"] {
        assert_eq!(listed(store, &acme, nothing).await, "", "{nothing}");
    }
    let heads = store.files(&acme, "b/one").await.unwrap();
    assert_eq!(heads, [read(store, "b/one.md", None).await.unwrap().head]);
}

pub(super) async fn a_deleted_file_begins_anew(store: &Store) {
    let delete = async || {
        store.delete_file(&of("acme"), &path("a.md"), Expect::Anything, NOW).await.unwrap()
    };
    assert!(!delete().await);
    assert!(store.tenants().await.unwrap().is_empty());
    put(store, "a.md", "first").await;
    put(store, "a.md", "second").await;
    put(store, "b.md", "other").await;
    assert!(delete().await);
    assert!(!delete().await, "it is gone already");
    for version in [None, Some(1), Some(2), Some(3)] {
        assert_eq!(read(store, "a.md", version).await, None);
    }
    assert_eq!(listed(store, &of("acme"), "").await, "b.md 1");
    let anew = put(store, "a.md", "anew").await;
    assert_eq!(anew.head.version, 1);
    assert_eq!(read(store, "a.md", Some(2)).await, None);
    assert_eq!(store.stats(&tenant("acme"), None, NOW).await.unwrap().files, 2);
    clean(store).await;
}

pub(super) async fn a_workspace_has_so_many_files(store: &Store) {
    let try_put = async |name: &str| {
        let file = NewFile { most_files: 2, ..file(name, "x") };
        store.put_file(&of("acme"), file).await.map(|file| file.head.version)
    };
    assert_eq!((try_put("a").await.unwrap(), try_put("b").await.unwrap()), (1, 1));
    let full = try_put("c").await.unwrap_err();
    assert!(matches!(full, StoreError::TooManyFiles { most: 2 }) && full.is_refusal());
    assert_eq!(try_put("b").await.unwrap(), 2, "what is there may change");
    assert_eq!(store.put_file(&of("rival"), file("c", "x")).await.unwrap().head.version, 1);
    store.delete_file(&of("acme"), &path("a"), Expect::Anything, NOW).await.unwrap();
    assert_eq!(try_put("c").await.unwrap(), 1);
    clean(store).await;
}

pub(super) async fn workspaces_are_apart(store: &Store) {
    put(store, "a.md", "of acme").await;
    let rival = of("rival");
    assert_eq!(store.file(&rival, &path("a.md"), None).await.unwrap(), None);
    assert_eq!(listed(store, &rival, "").await, "");
    let gone = store.delete_file(&rival, &path("a.md"), Expect::Anything, NOW).await.unwrap();
    assert!(!gone);
    let theirs = store.put_file(&rival, file("a.md", "of rival")).await.unwrap();
    assert_eq!(theirs.head.version, 1);
    assert_eq!(shown(read(store, "a.md", None).await), "1 of acme");
    store.delete_file(&rival, &path("a.md"), Expect::Anything, NOW).await.unwrap();
    assert_eq!(shown(read(store, "a.md", None).await), "1 of acme");
    assert_eq!(payloads(store).await.len(), 1);
    clean(store).await;
}

pub(super) async fn writing_a_file_is_logged(store: &Store) {
    let hidden = Hidden::from([("jwt".to_owned(), 2)]);
    store.put_file(&of("acme"), NewFile { hidden, ..file("a.md", "content") }).await.unwrap();
    put(store, "a.md", "content").await;
    store.delete_file(&of("acme"), &path("a.md"), Expect::Anything, NOW).await.unwrap();
    put(store, "a.md", "content").await;
    let payload = |version: u64| format!(r#"{{"path":"a.md","version":{version}}}"#);
    assert_eq!(payloads(store).await, [payload(1), payload(2), payload(3), payload(1)]);
    let of_memory = store.events(&tenant("acme"), Some("notes"), Position(0), 9).await.unwrap();
    assert_eq!(of_memory, [], "files belong to no memory");
}

pub(super) async fn files_are_redacted_with_the_secrets_of_now(store: &Store) {
    let try_put = async |seen: u64| {
        let file = NewFile { secrets_seen: seen, ..file("a.md", "x") };
        store.put_file(&of("acme"), file).await.map(drop)
    };
    let refused = |result| assert!(matches!(result, Err(StoreError::SecretsChanged)));
    refused(try_put(2).await);
    assert!(store.tenants().await.unwrap().is_empty(), "it made nothing");
    try_put(0).await.unwrap();
    refused(try_put(0).await);
    store.put_secret(&tenant("acme"), secret("db", FIRST), false, NOW).await.unwrap();
    refused(try_put(1).await);
    try_put(2).await.unwrap();
    let name = SecretName::new("db").unwrap();
    assert!(store.remove_secret(&tenant("acme"), &name, NOW).await.unwrap());
    refused(try_put(2).await);
    clean(store).await;
}

pub(super) async fn what_was_hidden_in_files_is_counted(store: &Store) {
    let hiding = |name: &str, kind: &str, count| NewFile {
        hidden: Hidden::from([(kind.to_owned(), count)]),
        versions_kept: 2,
        ..file(name, "x")
    };
    let hidden = async |memory| store.stats(&tenant("acme"), memory, NOW).await.unwrap().hidden;
    for (name, kind, count) in [("a", "jwt", 1), ("a", "db", 2), ("b", "jwt", 4)] {
        store.put_file(&of("acme"), hiding(name, kind, count)).await.unwrap();
    }
    let counts = |counts: &[(&str, u64)]| -> Hidden {
        counts.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
    };
    assert_eq!(hidden(None).await, counts(&[("db", 2), ("jwt", 5)]));
    assert_eq!(hidden(Some("notes")).await, Hidden::new());
    store.put_file(&of("acme"), hiding("a", "mail", 8)).await.unwrap();
    assert_eq!(hidden(None).await, counts(&[("db", 2), ("jwt", 4), ("mail", 8)]));
    store.delete_file(&of("acme"), &path("a"), Expect::Anything, NOW).await.unwrap();
    assert_eq!(hidden(None).await, counts(&[("jwt", 4)]));
    clean(store).await;
}

async fn retell(store: &Store) -> RewriteCounts {
    let redactor = redactor_of(&[FIRST]);
    let told = store.rewrite_stored_text(&tenant("acme"), redactor.clone(), NOW).await.unwrap();
    let again = store.rewrite_stored_text(&tenant("acme"), redactor, NOW).await.unwrap();
    assert_eq!(again, RewriteCounts::default(), "there is nothing left to hide");
    clean(store).await;
    told
}

pub(super) async fn files_are_redacted_again(store: &Store) {
    put(store, "a.md", &format!("{FIRST} and {FIRST}")).await;
    let first = read(store, "a.md", None).await.unwrap();
    put(store, "a.md", "nothing").await;
    let typed = NewFile { content_type: text(&format!("x/{FIRST}")), ..file("b.md", "text") };
    store.put_file(&of("acme"), typed).await.unwrap();
    store.put_file(&of("rival"), file("a.md", FIRST)).await.unwrap();
    let (before, head) = (payloads(store).await, store.head(&tenant("acme")).await.unwrap());
    let told = retell(store).await;
    assert_eq!((told.files, told.events, told.hidden["v1"]), (2, 0, 3));
    assert_eq!((payloads(store).await, store.head(&tenant("acme")).await.unwrap()), (before, head));
    let clean = read(store, "a.md", Some(1)).await.unwrap();
    assert_eq!(clean.content.as_str(), "[REDACTED:v1] and [REDACTED:v1]");
    assert_ne!(clean.head.digest, first.head.digest);
    assert_eq!(FileHead { digest: first.head.digest, ..clean.head }, first.head, "all else stays");
    let typed = read(store, "b.md", None).await.unwrap();
    assert_eq!(typed.head.content_type.as_str(), "text/markdown");
    let theirs = store.file(&of("rival"), &path("a.md"), None).await.unwrap().unwrap();
    assert_eq!(theirs.content.as_str(), FIRST);
    let hidden = store.stats(&tenant("acme"), None, NOW).await.unwrap().hidden;
    assert_eq!(hidden["v1"], 3);
}

pub(super) async fn a_path_that_tells_is_another(store: &Store) {
    let telling = format!("notes/{FIRST}.md");
    put(store, &telling, "first").await;
    put(store, &telling, FIRST).await;
    put(store, "redacted-1", "taken").await;
    put(store, "plain.md", "text").await;
    let told = retell(store).await;
    assert_eq!((told.files, told.events), (2, 2));
    let names = "plain.md 1, redacted-1 1, redacted-2 2";
    assert_eq!(listed(store, &of("acme"), "").await, names);
    assert_eq!(shown(read(store, "redacted-2", Some(1)).await), "1 first");
    assert_eq!(shown(read(store, "redacted-2", None).await), "2 [REDACTED:v1]");
    assert_eq!(read(store, &telling, None).await, None);
    let told = payloads(store).await;
    assert_eq!(told[0], r#"{"path":"redacted-2","version":1}"#);
    assert!(told.iter().all(|payload| !payload.contains(FIRST)));
    // What is said of it in the log is none of the redactor's business.
    let text: RedactedText = redactor_of(&[FIRST]).text(&told.join(" "));
    assert_eq!(text.as_str(), told.join(" "));
}

pub(super) async fn a_file_keeps_its_claim(store: &Store) {
    let operation = "PUT /v1/host/workspace/files";
    let claimed = |name: &str| NewFile {
        claim: Some(Claim {
            operation: operation.to_owned(),
            key: "k".to_owned(),
            request: [3; 32],
            code: 200,
        }),
        ..file(name, "text")
    };
    let kept = async || store.outcome(&tenant("acme"), operation, "k", NOW).await.unwrap();
    // What fails keeps no outcome.
    let refused = NewFile { expect: Expect::Present, ..claimed("a.md") };
    assert!(store.put_file(&of("acme"), refused).await.is_err());
    assert_eq!(kept().await, None);
    put(store, "a.md", "first").await;
    store.put_file(&of("acme"), claimed("a.md")).await.unwrap();
    let ids: serde_json::Value = serde_json::from_str(&kept().await.unwrap().body).unwrap();
    assert_eq!(ids["version"], 2);
    // Also where the file is not as expected any more.
    for expect in [Expect::Anything, Expect::Absent] {
        let again = NewFile { expect, ..claimed("a.md") };
        let again = store.put_file(&of("acme"), again).await;
        assert!(matches!(again, Err(StoreError::ClaimTaken)));
    }
    assert_eq!(shown(read(store, "a.md", None).await), "2 text");
}
