//! Workspace files, as a caller meets them.

use std::path::Path;

use icecore::ids::Position;
use icecore::{ForgetRequest, Memory, Millis, Principal, Tenant};
use icecore_host::settings::WorkspaceSettings;
use icecore_host::workspace::{FileMatch, FileWrite, WorkspaceError, WorkspaceFile};
use icecore_host::{Host, HostSettings};
use zeroize::Zeroizing;

use crate::bench::{Bench, START, me};

const VALUE: &str = "kumquat4711zebraParade";

fn write(path: &str, content: &str) -> FileWrite {
    FileWrite { path: path.to_owned(), content: content.to_owned(), ..FileWrite::default() }
}

fn tag(file: &WorkspaceFile) -> FileMatch {
    FileMatch::Tags(vec![file.info.etag.clone()])
}

async fn put(bench: &Bench, path: &str, content: &str) -> WorkspaceFile {
    bench.host.files.put(&me(), write(path, content)).await.unwrap()
}

/// Why it was refused, by the host and not by the memory.
fn refusal<T: std::fmt::Debug>(result: Result<T, WorkspaceError>) -> WorkspaceError {
    match result {
        Err(WorkspaceError::Memory(error)) => panic!("{error:?}"),
        Err(error) => error,
        other => panic!("{other:?}"),
    }
}

/// A host with such limits.
async fn limited(dir: &Path, workspace: WorkspaceSettings) -> Host {
    let memory = Memory::open(dir).await.unwrap();
    Host::new(memory, HostSettings { workspace, ..HostSettings::default() })
}

#[tokio::test]
async fn a_file_is_written_read_listed_and_deleted() {
    let bench = Bench::new().await;
    let first = put(&bench, "behavior/CRUD.md", "first").await;
    assert_eq!((first.info.version, first.info.content_type.as_str()), (1, "text/markdown"));
    assert_eq!(first.info.updated_at, Millis(START));
    assert!(first.info.etag.starts_with('"') && first.info.etag.ends_with('"'));
    let second = put(&bench, "behavior/CRUD.md", "second").await;
    assert_ne!(first.info.etag, second.info.etag);
    let read = async |version| bench.host.files.get(&me(), "behavior/CRUD.md", version).await;
    assert_eq!(read(None).await.unwrap(), second);
    assert_eq!(read(Some(1)).await.unwrap(), first);
    assert!(matches!(refusal(read(Some(3)).await), WorkspaceError::NotFound { .. }));
    let listed = bench.host.files.list(&me(), "behavior/").await.unwrap();
    assert_eq!(listed, std::slice::from_ref(&second.info));
    bench.host.files.delete(&me(), "behavior/CRUD.md", &FileMatch::Anything).await.unwrap();
    assert!(matches!(refusal(read(None).await), WorkspaceError::NotFound { .. }));
    let again = bench.host.files.delete(&me(), "behavior/CRUD.md", &FileMatch::Anything).await;
    assert!(matches!(refusal(again), WorkspaceError::NotFound { .. }));
    // A new life of the path has tags of its own.
    let anew = put(&bench, "behavior/CRUD.md", "first").await;
    assert_eq!(anew.info.version, 1);
    assert_ne!(anew.info.etag, first.info.etag);
    bench.check().await;
}

#[tokio::test]
async fn two_who_read_the_same_cannot_both_write() {
    let bench = Bench::new().await;
    let put_if = async |content: &str, expect: FileMatch| {
        bench.host.files.put(&me(), FileWrite { expect, ..write("a.md", content) }).await
    };
    for expect in [FileMatch::Present, FileMatch::Tags(vec!["\"x\"".to_owned()])] {
        let refused = refusal(put_if("ghost", expect).await);
        assert!(matches!(refused, WorkspaceError::Conflict { current: 0 }));
    }
    let mut last = put_if("start", FileMatch::Absent).await.unwrap();
    let refused = refusal(put_if("twice", FileMatch::Absent).await);
    assert!(matches!(refused, WorkspaceError::Conflict { current: 1 }));
    for version in 2..8 {
        let (one, other) = tokio::join!(put_if("one", tag(&last)), put_if("other", tag(&last)));
        let (won, lost) = if one.is_ok() { (one, other) } else { (other, one) };
        let (won, lost) = (won.unwrap(), refusal(lost));
        assert_eq!(won.info.version, version);
        assert!(matches!(lost, WorkspaceError::Conflict { current } if current == version));
        last = won;
    }
    let stale = FileMatch::Tags(vec!["\"gone\"".to_owned()]);
    let kept = refusal(bench.host.files.delete(&me(), "a.md", &stale).await);
    assert!(matches!(kept, WorkspaceError::Conflict { current: 7 }));
    bench.host.files.delete(&me(), "a.md", &tag(&last)).await.unwrap();
}

#[tokio::test]
async fn limits_are_kept_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let limits = WorkspaceSettings { enabled: true, file_bytes: 8, files: 2, versions: 2 };
    let host = limited(dir.path(), limits).await;
    let put = async |path: &str, content: &str| host.files.put(&me(), write(path, content)).await;
    put("a", "12345678").await.unwrap();
    let large = refusal(put("a", "123456789").await);
    assert!(matches!(large, WorkspaceError::TooLarge { bytes: 9, most: 8 }));
    assert!(large.to_string().contains("workspace.file_bytes"));
    put("b", "").await.unwrap();
    let many = refusal(put("c", "").await);
    assert!(matches!(many, WorkspaceError::TooMany { most: 2 }));
    assert!(many.to_string().contains("workspace.files") && many.hint().is_some());
    put("a", "2").await.unwrap();
    put("a", "3").await.unwrap();
    let purged = refusal(host.files.get(&me(), "a", Some(1)).await);
    assert!(matches!(purged, WorkspaceError::NotFound { .. }));
    assert_eq!(host.files.get(&me(), "a", Some(2)).await.unwrap().content, "2");
    for path in ["", "../a", "a/../b", "/a", "a b", "a//b", "a/"] {
        assert!(matches!(refusal(put(path, "x").await), WorkspaceError::Path(_)), "{path}");
    }
    let typed = FileWrite { content_type: Some("nothing".to_owned()), ..write("a", "x") };
    assert!(matches!(refusal(host.files.put(&me(), typed).await), WorkspaceError::ContentType));
}

#[tokio::test]
async fn what_is_switched_off_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let off = WorkspaceSettings { enabled: false, ..WorkspaceSettings::default() };
    let host = limited(dir.path(), off).await;
    assert!(matches!(refusal(host.files.list(&me(), "").await), WorkspaceError::Off));
    assert!(matches!(refusal(host.files.get(&me(), "a", None).await), WorkspaceError::Off));
    assert!(matches!(refusal(host.files.put(&me(), write("a", "x")).await), WorkspaceError::Off));
    let gone = host.files.delete(&me(), "a", &FileMatch::Anything).await;
    assert!(matches!(refusal(gone), WorkspaceError::Off));
}

#[tokio::test]
async fn tenants_are_apart() {
    let bench = Bench::new().await;
    let other = Principal::local_operator(Tenant::new("other").unwrap());
    put(&bench, "a.md", "mine").await;
    let read = bench.host.files.get(&other, "a.md", None).await;
    assert!(matches!(refusal(read), WorkspaceError::NotFound { .. }));
    assert_eq!(bench.host.files.list(&other, "").await.unwrap(), []);
    bench.host.files.put(&other, write("a.md", "theirs")).await.unwrap();
    assert_eq!(bench.host.files.get(&me(), "a.md", None).await.unwrap().content, "mine");
}

#[tokio::test]
async fn a_secret_is_not_shown_from_when_it_is_registered() {
    let bench = Bench::new().await;
    let clean = put(&bench, "clean.md", "nothing here").await;
    let telling = put(&bench, "a.md", &format!("the code {VALUE}")).await;
    put(&bench, &format!("of-{VALUE}.md"), "text").await;
    let value = Zeroizing::new(VALUE.to_owned());
    let added = bench.memory.add_secret(me().tenant(), "fruit", value, false).await.unwrap();
    assert!(added.has_earlier);
    let mut tags = Vec::new();
    for is_rescanned in [false, true] {
        let file = bench.host.files.get(&me(), "a.md", None).await.unwrap();
        assert_eq!(file.content, "the code [REDACTED:fruit]");
        tags.push(file.info.etag.clone());
        let listed = bench.host.files.list(&me(), "").await.unwrap();
        let mut paths: Vec<_> = listed.iter().map(|info| info.path.as_str()).collect();
        assert!(listed.contains(&file.info) && listed.contains(&clean.info), "{listed:?}");
        paths.retain(|path| path.starts_with("redacted"));
        assert_eq!(paths.len(), usize::from(is_rescanned), "{paths:?}");
        let done = bench.memory.rescan(&me(), false, |_, _| {}).await.unwrap();
        assert_eq!(done.files, if is_rescanned { 0 } else { 2 });
    }
    assert_eq!(tags, [telling.info.etag.as_str(); 2], "it is the same version all the time");
    // Who read it before the rescan may write after it.
    let next = FileWrite { expect: FileMatch::Tags(tags), ..write("a.md", "next") };
    assert_eq!(bench.host.files.put(&me(), next).await.unwrap().info.version, 2);
    let events = bench.memory.events(me().tenant(), None, Position(0), 99).await.unwrap();
    assert!(events.iter().all(|event| !event.payload.contains(VALUE)), "{events:?}");
    bench.check().await;
}

#[tokio::test]
async fn to_forget_leaves_files() {
    let bench = Bench::new().await;
    put(&bench, "a.md", "text").await;
    let all = ForgetRequest::Before(Millis(i64::MAX));
    bench.memory.forget(&me(), None, &all, false).await.unwrap();
    assert_eq!(bench.host.files.get(&me(), "a.md", None).await.unwrap().content, "text");
    bench.check().await;
}
