//! Archives: read back, verified, let go, and reached by erasure.

use std::path::PathBuf;

use icecore::dreams::dream::{Archive, INDEX_PATH, MemoryIndex};
use icecore::dreams::{Checksum, Dream, DreamQuery, DreamRequest, DreamState, DreamTrigger};
use icecore::knowledge::NewEntryRequest;
use icecore::settings::DreamSettings;
use icecore::{ForgetRequest, MemoryError, MemorySettings};

use crate::support::{Bench, START, file, me, put_file, said};

const DAY: i64 = 24 * 3600 * 1000;

async fn dream(bench: &Bench) -> Dream {
    bench.memory.dream(&bench.scope, DreamRequest::manual(None), |_| {}).await.unwrap()
}

async fn put(bench: &Bench, content: &str) -> String {
    let entry = NewEntryRequest { content: content.to_owned(), ..NewEntryRequest::default() };
    bench.memory.put_entry(&bench.scope, entry).await.unwrap().id
}

async fn read(bench: &Bench, checksum: Checksum) -> Result<Vec<u8>, MemoryError> {
    bench.memory.archive(me().tenant(), Some("m"), checksum).await
}

async fn text(bench: &Bench, checksum: Checksum) -> String {
    Archive::parse(&read(bench, checksum).await.unwrap()).unwrap().distillate.text()
}

async fn index(bench: &Bench) -> MemoryIndex {
    let file = file(&bench.memory, &me(), INDEX_PATH, None).await.unwrap();
    MemoryIndex::read(&file.content).unwrap()
}

fn bodies(bench: &Bench) -> Vec<PathBuf> {
    let dir = bench.dir.path().join("archives");
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

async fn in_force(bench: &Bench) -> Option<icecore::dreams::DreamRecord> {
    let query = DreamQuery { in_force: true, limit: 2, ..DreamQuery::default() };
    let mut found = bench.memory.dreams(me().tenant(), &query).await.unwrap();
    assert!(found.len() <= 1);
    found.pop()
}

#[tokio::test]
async fn an_archive_is_read_by_its_address_and_by_its_own_tenant_alone() {
    let bench = Bench::new().await;
    put(&bench, "The build server is called Osprey.").await;
    let checksum = dream(&bench).await.record.archive;
    let bytes = read(&bench, checksum).await.unwrap();
    assert_eq!(Checksum::of(&bytes), checksum);
    let listed = bench.memory.archives(me().tenant(), None).await.unwrap();
    assert_eq!(listed.iter().map(|one| one.checksum).collect::<Vec<_>>(), [checksum]);
    assert!(bench.memory.archives(me().tenant(), Some("other")).await.unwrap().is_empty());

    let other = icecore::Tenant::new("other").unwrap();
    let gone = |found: Result<Vec<u8>, MemoryError>| {
        assert!(matches!(found, Err(MemoryError::NoArchive { .. })), "{found:?}");
    };
    gone(bench.memory.archive(&other, None, checksum).await);
    gone(bench.memory.archive(me().tenant(), Some("other"), checksum).await);
    gone(read(&bench, Checksum([7; 32])).await);
    let report = bench.memory.verify_archives(None, |_, _| {}).await.unwrap();
    assert_eq!((report.sound, report.orphans, report.damaged), (1, 0, Vec::new()));
}

#[tokio::test]
async fn a_flipped_bit_is_named_by_verify_and_check_and_refused_by_reads() {
    let bench = Bench::new().await;
    put(&bench, "The build server is called Osprey.").await;
    let checksum = dream(&bench).await.record.archive;
    let body = bodies(&bench).pop().unwrap();
    let whole = std::fs::read(&body).unwrap();
    for at in [0, 9, whole.len() / 2, whole.len() - 1] {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        std::fs::write(&body, &changed).unwrap();
        let told = read(&bench, checksum).await.unwrap_err();
        assert!(matches!(told, MemoryError::ArchiveDamaged { .. }), "{at}: {told}");
        let report = bench.memory.verify_archives(Some(me().tenant()), |_, _| {}).await.unwrap();
        assert_eq!(report.damaged.iter().map(|(sum, _)| *sum).collect::<Vec<_>>(), [checksum]);
        let report = bench.memory.check(false, |_, _| {}).await.unwrap();
        assert!(report.problems.iter().any(|problem| problem.contains(&checksum.to_string())));
    }
    std::fs::remove_file(&body).unwrap();
    let told = read(&bench, checksum).await.unwrap_err().to_string();
    assert!(told.contains("missing"), "{told}");
    assert!(!bench.memory.check(false, |_, _| {}).await.unwrap().is_ok());
    std::fs::write(&body, &whole).unwrap();
    assert_eq!(Checksum::of(&read(&bench, checksum).await.unwrap()), checksum);
    bench.check().await;
}

#[tokio::test]
async fn a_body_that_nothing_names_is_no_failure() {
    let bench = Bench::new().await;
    put(&bench, "The build server is called Osprey.").await;
    dream(&bench).await;
    let orphan = bench.dir.path().join("archives/00000000000000000000000000000000.icearchive");
    std::fs::write(&orphan, "left by a crash").unwrap();
    let report = bench.memory.verify_archives(None, |_, _| {}).await.unwrap();
    assert_eq!((report.sound, report.orphans, report.damaged.len()), (1, 1, 0));
    let report = bench.memory.check(true, |_, _| {}).await.unwrap();
    let archives = |report: &icecore::maintenance::CheckReport| {
        (report.orphan_archives, report.removed_archives)
    };
    assert_eq!((report.problems.len(), report.orphans, archives(&report)), (0, 0, (1, 0)));
    assert!(orphan.exists(), "it may be somebody's who writes right now");
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    std::fs::File::options().write(true).open(&orphan).unwrap().set_modified(old).unwrap();
    let report = bench.memory.check(true, |_, _| {}).await.unwrap();
    assert_eq!((report.orphans, report.removed, archives(&report)), (0, 0, (1, 1)));
    assert!(!orphan.exists());
}

#[tokio::test]
async fn a_secret_registered_since_closes_the_archive_until_a_rescan_distils_it_anew() {
    let bench = Bench::new().await;
    put(&bench, "The door code of the hut is kumquat4711.").await;
    put(&bench, "The build server is called Osprey.").await;
    let first = dream(&bench).await.record;
    assert!(text(&bench, first.archive).await.contains("kumquat4711"));
    let value = "kumquat4711".to_owned().into();
    bench.memory.add_secret(me().tenant(), "fruit", value, false).await.unwrap();
    let told = read(&bench, first.archive).await.unwrap_err();
    assert!(matches!(told, MemoryError::ArchiveTells { .. }), "{told}");
    let report = bench.memory.verify_archives(None, |_, _| {}).await.unwrap();
    assert_eq!((report.sound, report.damaged.len()), (1, 0));

    let done = bench.memory.rescan(&me(), false, |_, _| {}).await.unwrap();
    assert_eq!(done.distilled_anew, 1);
    let told = read(&bench, first.archive).await.unwrap_err();
    assert!(matches!(told, MemoryError::ArchiveGone { .. }), "{told}");
    let anew = in_force(&bench).await.unwrap();
    let text = text(&bench, anew.archive).await;
    assert!(text.contains("[REDACTED:fruit]") && text.contains("Osprey"), "{text}");
    assert_eq!(anew.trigger, DreamTrigger::Anew);
    assert_eq!(bodies(&bench).len(), 1);
    bench.check().await;
}

#[tokio::test]
async fn superseded_archives_past_their_retention_leave_the_index_then_the_disk() {
    let dreams = DreamSettings {
        archive_retention_days: 30,
        index_markdown: true,
        ..DreamSettings::default()
    };
    let bench = Bench::with(MemorySettings { dreams, ..MemorySettings::default() }).await;
    put(&bench, "The build server is called Osprey.").await;
    let first = dream(&bench).await.record.archive;
    bench.clock.move_to(START + 10 * DAY);
    put(&bench, "Deploys happen on Tuesdays only.").await;
    let second = dream(&bench).await.record.archive;
    let named = |index: MemoryIndex| -> Vec<Checksum> {
        index.memories[0].archives.iter().map(|archive| archive.checksum).collect()
    };
    bench.settle().await;
    assert_eq!(named(index(&bench).await), [second, first]);
    let markdown =
        async || file(&bench.memory, &me(), "MEMORY-INDEX.md", None).await.unwrap().content;
    assert!(markdown().await.contains(&first.to_string()));

    bench.clock.move_to(START + 31 * DAY);
    bench.settle().await;
    assert_eq!(named(index(&bench).await), [second]);
    let told = markdown().await;
    assert!(told.contains(&second.to_string()) && !told.contains(&first.to_string()), "{told}");
    assert_eq!(bodies(&bench).len(), 1);
    let told = read(&bench, first).await.unwrap_err();
    assert!(matches!(told, MemoryError::ArchiveGone { .. }), "{told}");
    // What answers is never too old.
    bench.clock.move_to(START + 400 * DAY);
    bench.settle().await;
    assert!(text(&bench, second).await.contains("Osprey"));
    let report = bench.memory.verify_archives(None, |_, _| {}).await.unwrap();
    assert_eq!((report.sound, report.expired, report.erased), (1, 1, 0));
    bench.check().await;
}

#[tokio::test]
async fn forgetting_a_session_destroys_what_was_distilled_of_it_and_distils_the_rest_anew() {
    let bench = Bench::new().await;
    bench.add("keep", vec![said(1, "We decided to use Rust for the ferry project.")]).await;
    bench.add("go", vec![said(3, "I live in Zanzibarquux now.")]).await;
    bench.settle().await;
    let first = dream(&bench).await.record;
    bench.add("keep", vec![said(5, "The ferry project is due on Friday.")]).await;
    let second = dream(&bench).await.record;
    assert!(text(&bench, second.archive).await.contains("Zanzibarquux"));

    let asked = ForgetRequest::Session("go".into());
    let dry = bench.memory.forget(&me(), None, &asked, true).await.unwrap();
    assert_eq!((dry.erased.archives, dry.distilled_anew), (2, 0));
    assert!(read(&bench, second.archive).await.is_ok());
    let receipt = bench.memory.forget(&me(), None, &asked, false).await.unwrap();
    assert_eq!(receipt.erased, dry.erased);
    assert_eq!(receipt.distilled_anew, 1);
    assert!(receipt.statement().ends_with(", 2 archives, 0 handoffs"), "{}", receipt.statement());

    for gone in [first.archive, second.archive] {
        let told = read(&bench, gone).await.unwrap_err();
        assert!(matches!(told, MemoryError::ArchiveGone { .. }), "{told}");
    }
    let record = bench.memory.dream_record(me().tenant(), &second.run).await.unwrap().unwrap();
    assert_eq!(record.state, DreamState::Erased);
    let anew = in_force(&bench).await.unwrap();
    let told = text(&bench, anew.archive).await;
    assert!(told.contains("Rust") && !told.contains("Zanzibarquux"), "{told}");
    let index = index(&bench).await;
    assert_eq!(index.memories[0].archives[0].checksum, anew.archive);
    assert!(!format!("{index:?}").to_lowercase().contains("zanzibar"), "{index:?}");
    assert_eq!(bodies(&bench).len(), 1, "the bodies of the others are deleted");
    let report = bench.memory.verify_archives(None, |_, _| {}).await.unwrap();
    assert_eq!((report.sound, report.erased, report.orphans), (1, 2, 0));
    assert_eq!(crate::forgetting::on_disk(&bench, "Zanzibarquux"), Vec::<PathBuf>::new());
    bench.settle().await;
    bench.check().await;
}

#[tokio::test]
async fn what_a_crash_left_undreamt_the_worker_dreams_anew() {
    let bench = Bench::new().await;
    let gone = put(&bench, "The door code of the hut is four.").await;
    put(&bench, "The build server is called Osprey.").await;
    let first = dream(&bench).await.record;
    // Killed after the entry was erased and before anything else.
    bench.memory.delete_entry(&bench.scope, &gone).await.unwrap();
    assert!(in_force(&bench).await.is_none());
    let bench = bench.reopen().await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let memory = bench.memory.clone();
    let worker = tokio::spawn(async move {
        memory
            .work_until(async {
                let _ = stopped.await;
            })
            .await;
    });
    let anew = loop {
        match in_force(&bench).await {
            Some(dream) => break dream,
            None => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
        }
    };
    stop.send(()).unwrap();
    worker.await.unwrap();
    assert_ne!(anew.archive, first.archive);
    assert_eq!(bodies(&bench).len(), 1);
    let told = text(&bench, anew.archive).await;
    assert!(told.contains("Osprey") && !told.contains("door code"), "{told}");
    assert_eq!(index(&bench).await.memories[0].archives[0].checksum, anew.archive);
    bench.check().await;
}

#[tokio::test]
async fn a_memory_that_is_forgotten_whole_leaves_an_index_without_it() {
    let bench = Bench::new().await;
    bench.add("go", vec![said(3, "I live in Porto now.")]).await;
    let other = bench.memory.scope(&me(), "other").await.unwrap();
    let entry = NewEntryRequest {
        content: "The build server is called Osprey.".to_owned(),
        ..NewEntryRequest::default()
    };
    bench.memory.put_entry(&other, entry).await.unwrap();
    dream(&bench).await;
    bench.memory.dream(&other, DreamRequest::manual(None), |_| {}).await.unwrap();
    let asked = ForgetRequest::Session("go".into());
    let receipt = bench.memory.forget(&me(), None, &asked, false).await.unwrap();
    assert_eq!((receipt.erased.archives, receipt.distilled_anew), (1, 0));
    let named: Vec<String> =
        index(&bench).await.memories.into_iter().map(|section| section.memory).collect();
    assert_eq!(named, ["other"]);
    bench.settle().await;
    bench.check().await;
}

#[tokio::test]
async fn a_long_chain_that_is_lost_is_dreamt_anew_to_its_end() {
    let dreams =
        DreamSettings { output_tokens: 200, max_token_budget: 900, ..DreamSettings::default() };
    let bench = Bench::with(MemorySettings { dreams, ..MemorySettings::default() }).await;
    let gone = put(&bench, "The door code of the hut is four.").await;
    for n in 0..160 {
        bench.clock.move_to(START + n * 1_000);
        put(&bench, &format!("Station {n} of the northern line keeps {} spare lamps.", n * 7))
            .await;
    }
    while dream(&bench).await.record.figures.remaining > 0 {}
    assert!(in_force(&bench).await.unwrap().number > 1);
    let asked = ForgetRequest::Entry(gone);
    let receipt = bench.memory.forget(&me(), None, &asked, false).await.unwrap();
    assert_eq!(receipt.distilled_anew, 1);
    assert_eq!(in_force(&bench).await.unwrap().figures.remaining, 0);
    assert!(icecore::extend::store(&bench.memory).lost_dreams(9).await.unwrap().is_empty());
    bench.check().await;
}

#[tokio::test]
async fn a_full_workspace_goes_without_its_index_and_keeps_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let files = icecore::dreams::IndexFile { files: 2, ..icecore::dreams::IndexFile::default() };
    let memory = icecore::Memory::builder().index_file(Some(files)).open(dir.path()).await.unwrap();
    let others = ["a", "z"]
        .map(|name| icecore::Principal::local_operator(icecore::Tenant::new(name).unwrap()));
    let mut scopes = Vec::new();
    for who in &others {
        let scope = memory.scope(who, "m").await.unwrap();
        let mut ids = Vec::new();
        for content in ["The door code is four.", "The build server is called Osprey."] {
            let entry =
                NewEntryRequest { content: content.to_owned(), ..NewEntryRequest::default() };
            ids.push(memory.put_entry(&scope, entry).await.unwrap().id);
        }
        memory.dream(&scope, DreamRequest::manual(None), |_| {}).await.unwrap();
        memory.delete_entry(&scope, &ids[0]).await.unwrap();
        scopes.push(scope);
    }
    for path in ["one.md", "two.md"] {
        put_file(&memory, &others[0], path, "text").await;
    }
    assert_eq!(icecore::extend::store(&memory).lost_indexes(9).await.unwrap().len(), 2);
    for who in &others {
        let asked = ForgetRequest::Entry("nothing".to_owned());
        let receipt = memory.forget(who, None, &asked, false).await.unwrap();
        assert_eq!(receipt.distilled_anew, 1);
    }
    assert!(icecore::extend::store(&memory).lost_indexes(9).await.unwrap().is_empty());
    assert!(file(&memory, &others[0], INDEX_PATH, None).await.is_none());
    assert!(file(&memory, &others[1], INDEX_PATH, None).await.is_some());
}

#[tokio::test]
async fn a_secret_in_the_archive_of_turns_that_have_expired_is_dreamt_out_of_it() {
    let settings = MemorySettings { cold_retention_days: 30, ..MemorySettings::default() };
    let bench = Bench::with(settings).await;
    let mut turns = crate::support::numbered(130);
    turns[2] = said(3, "We decided that the gate of the hut opens with kumquat4711.");
    bench.add("s", turns).await;
    bench.settle().await;
    let first = dream(&bench).await.record;
    assert!(text(&bench, first.archive).await.contains("kumquat4711"));
    bench.clock.move_to(START + 31 * DAY);
    bench.settle().await;
    let value = "kumquat4711".to_owned().into();
    bench.memory.add_secret(me().tenant(), "fruit", value, false).await.unwrap();
    let done = bench.memory.rescan(&me(), false, |_, _| {}).await.unwrap();
    let told = read(&bench, first.archive).await.unwrap_err();
    assert!(matches!(told, MemoryError::ArchiveGone { .. }), "{told}");
    assert_eq!(done.distilled_anew, 1);
    let anew = in_force(&bench).await.unwrap();
    assert!(!text(&bench, anew.archive).await.contains("kumquat4711"));
    assert!(icecore::extend::store(&bench.memory).lost_dreams(9).await.unwrap().is_empty());
    assert_eq!(bodies(&bench).len(), 1);
}

#[tokio::test]
async fn a_dream_goes_on_from_its_entry_where_the_archive_is_damaged() {
    let bench = Bench::new().await;
    put(&bench, "The build server is called Osprey.").await;
    put(&bench, "Deploys happen on Tuesdays only.").await;
    let first = dream(&bench).await.record;
    let body = bodies(&bench).pop().unwrap();
    let whole = std::fs::read(&body).unwrap();
    std::fs::write(&body, &whole[1..]).unwrap();
    let bench = bench.reopen().await;
    put(&bench, "Mira prefers tea over coffee.").await;
    let second = dream(&bench).await.record;
    assert_eq!(second.previous, Some(first.run));
    let told = text(&bench, second.archive).await;
    for word in ["Osprey", "Tuesdays", "tea"] {
        assert!(told.contains(word), "{told}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn the_files_are_scrubbed_also_where_bodies_cannot_be_deleted() {
    let bench = Bench::new().await;
    put(&bench, "I live in Zanzibarquux now.").await;
    let gone = bench
        .memory
        .entries(&bench.scope, &icecore::knowledge::EntryQuery::default())
        .await
        .unwrap();
    dream(&bench).await;
    // A name that cannot be listed.
    let odd = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff.icearchive");
    std::fs::write(bench.dir.path().join("archives").join(odd), "in the way").unwrap();
    let asked = ForgetRequest::Entry(gone.entries[0].id.clone());
    let refused = bench.memory.forget(&me(), None, &asked, false).await;
    assert!(refused.is_err(), "what could not be done is said");
    assert_eq!(crate::forgetting::on_disk(&bench, "Zanzibarquux"), Vec::<PathBuf>::new());
}
