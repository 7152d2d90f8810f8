//! A memory whose packs and archives lie in S3, which goes away and comes back.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use icecore::dreams::DreamRequest;
use icecore::store::{ObjectKeys, ObjectSettings, StoreError};
use icecore::{ForgetRequest, Memory, MemoryError, Millis, Scope, Seq};
use s3_testing::{BUCKET, Fault, KEY_ID, Line, REGION, S3Server, SECRET};
use zeroize::Zeroizing;

use crate::support::{START, me, numbered, text};

/// A server, a line to it, and a memory that keeps its objects there.
struct World {
    root: tempfile::TempDir,
    server: S3Server,
    line: Line,
    settings: ObjectSettings,
    memory: Memory,
    scope: Scope,
}

impl World {
    async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let server = S3Server::start(&root.path().join("server")).await;
        let line = Line::to(server.address()).await;
        let settings = ObjectSettings {
            url: format!("s3://{BUCKET}/team"),
            endpoint: line.endpoint(),
            region: REGION.to_owned(),
            allow_http: true,
            retry_seconds: 0,
            ..ObjectSettings::default()
        };
        let memory = open(&settings, &root.path().join("data")).await.unwrap();
        let scope = memory.scope(&me(), "m").await.unwrap();
        Self { root, server, line, settings, memory, scope }
    }

    fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    /// The files on the server's disk of what lies in `dir`.
    fn lying(&self, dir: &str) -> Vec<PathBuf> {
        files(&self.root.path().join("server").join(BUCKET).join("team").join(dir))
    }

    /// The copies on this machine's disk.
    fn cached(&self) -> Vec<PathBuf> {
        files(&self.data().join("object-cache"))
    }

    /// Adds 250 turns, of which 200 become cold.
    async fn talk(&self) {
        self.memory.remember(&self.scope, "s", numbered(250)).await.unwrap();
        assert_eq!(self.settle().await.failed, 0);
    }

    async fn settle(&self) -> icecore::layers::Settled {
        self.memory.settle(|_, _| {}).await.unwrap()
    }

    async fn texts(&self) -> Result<Vec<String>, MemoryError> {
        let turns = self.memory.turns(&self.scope, "s", Seq(0), 1_000).await?;
        Ok(turns.iter().map(text).collect())
    }

    async fn dream(&self) -> Result<icecore::dreams::Dream, MemoryError> {
        self.memory.dream(&self.scope, DreamRequest::manual(None), |_| {}).await
    }

    async fn forget(&self, request: ForgetRequest) -> Result<icecore::Receipt, MemoryError> {
        self.memory.forget(&me(), None, &request, false).await
    }

    async fn check(&self) -> Vec<String> {
        self.memory.check(false, |_, _| {}).await.unwrap().problems
    }
}

async fn open(settings: &ObjectSettings, data: &Path) -> Result<Memory, MemoryError> {
    let secret = Zeroizing::new(SECRET.to_owned());
    let keys = ObjectKeys { id: KEY_ID.to_owned(), secret, token: None };
    Memory::builder().objects(settings.clone(), Some(keys)).open(data).await
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = dir.read_dir().into_iter().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|ending| ending != "icestore"));
    found.sort();
    found
}

fn said_all() -> Vec<String> {
    numbered(250).iter().map(|turn| turn.content.text().into_owned()).collect()
}

fn is_unavailable<T: std::fmt::Debug>(found: Result<T, MemoryError>) {
    let error = found.unwrap_err();
    assert_eq!(error.code(), "objects_unavailable", "{error:?}");
    assert!(error.hint().is_some_and(|hint| hint.contains("nothing is lost")), "{error:?}");
}

#[tokio::test]
async fn a_whole_life_in_object_storage() {
    let world = World::new().await;
    world.talk().await;
    let dream = world.dream().await.unwrap();
    assert_eq!((world.lying("packs").len(), world.lying("archives").len()), (2, 1));
    assert!(!world.data().join("packs").exists() && !world.data().join("archives").exists());
    for path in world.lying("packs").iter().chain(&world.lying("archives")) {
        let bytes = std::fs::read(path).unwrap();
        assert!(!bytes.windows(7).any(|window| window == b"glacier"), "it is sealed");
    }
    assert_eq!(world.texts().await.unwrap(), said_all());
    assert_eq!(world.cached().len(), 2);
    assert_eq!(world.check().await, [""; 0]);
    let archives = world.memory.verify_archives(None, |_, _| {}).await.unwrap();
    assert_eq!((archives.sound, archives.orphans), (1, 0));
    let tenant = me().tenant().clone();
    world.memory.archive(&tenant, Some("m"), dream.record.archive).await.unwrap();

    // Half a pack is forgotten: it is written anew and the old one is gone everywhere.
    let before = world.lying("packs");
    let cut = Millis(START + 50 * 60_000 + 1);
    let receipt = world.forget(ForgetRequest::Before(cut)).await.unwrap();
    assert_eq!((receipt.erased.turns, receipt.erased.packs), (50, 1));
    let after = world.lying("packs");
    assert_eq!(after.iter().filter(|path| before.contains(path)).count(), 1);
    assert_eq!(after.len(), 2);
    let lying = [after, world.lying("archives")].concat();
    let is_there = |copy: &PathBuf| lying.iter().any(|path| path.file_name() == copy.file_name());
    assert!(world.cached().iter().all(is_there), "no copy outlives its object");
    let gone = world.memory.archive(&tenant, Some("m"), dream.record.archive).await;
    assert!(matches!(gone, Err(MemoryError::ArchiveGone { .. })), "{gone:?}");
    world.settle().await;
    assert_eq!(world.texts().await.unwrap(), said_all()[50..]);
    assert_eq!(world.check().await, [""; 0]);

    // Another host, which has no copies, and the rest.
    let other = open(&world.settings, &world.data()).await.unwrap();
    assert_eq!(other.check(false, |_, _| {}).await.unwrap().packs, 2);
    world.forget(ForgetRequest::Session("s".to_owned())).await.unwrap();
    assert!(world.lying("packs").is_empty() && world.lying("archives").is_empty());
    assert!(world.cached().is_empty());
    assert_eq!(world.check().await, [""; 0]);
}

#[tokio::test]
async fn what_cannot_be_written_stays_due() {
    let mut world = World::new().await;
    world.server.stop().await;
    world.memory.remember(&world.scope, "s", numbered(250)).await.unwrap();
    assert_eq!(world.settle().await.failed, 1);
    assert_eq!(world.texts().await.unwrap(), said_all(), "everything is still warm");
    is_unavailable(world.dream().await);

    world.server.start_again().await;
    for fault in [Fault::Status(503), Fault::Cut] {
        world.line.always("PUT", fault);
        assert_eq!(world.settle().await.failed, 1);
        is_unavailable(world.dream().await);
    }
    // What was written and could not be read back is not relied on.
    world.line.always("GET", Fault::Truncate(9));
    assert_eq!(world.settle().await.failed, 1);
    world.line.always("", Fault::None);
    let done = world.settle().await;
    assert_eq!((done.failed, done.cooled), (0, 2));
    world.dream().await.unwrap();
    assert_eq!(world.texts().await.unwrap(), said_all());
    assert_eq!(world.check().await, [""; 0]);
}

#[tokio::test]
async fn a_server_that_is_gone_keeps_from_reading_what_is_cold_alone() {
    let mut world = World::new().await;
    world.talk().await;
    let checksum = world.dream().await.unwrap().record.archive;
    world.server.stop().await;
    // After a restart nothing is in memory, and on a new disk there are no copies.
    std::fs::remove_dir_all(world.data().join("object-cache")).unwrap();
    let memory = open(&world.settings, &world.data()).await.unwrap();
    let world = World { memory, ..world };
    is_unavailable(world.texts().await);
    is_unavailable(world.forget(ForgetRequest::Before(Millis(START + 50 * 60_000))).await);
    is_unavailable(world.memory.archive(me().tenant(), Some("m"), checksum).await);
    is_unavailable(world.memory.check(false, |_, _| {}).await);
    world.memory.remember(&world.scope, "t", numbered(9)).await.unwrap();
    let found = world.memory.turns(&world.scope, "t", Seq(0), 99).await.unwrap();
    assert_eq!(found.len(), 9);

    let mut world = world;
    world.server.start_again().await;
    assert_eq!(world.texts().await.unwrap(), said_all());
    assert_eq!(world.check().await, [""; 0]);
    // With copies on this disk it does not matter.
    world.server.stop().await;
    let memory = open(&world.settings, &world.data()).await.unwrap();
    let world = World { memory, ..world };
    assert_eq!(world.texts().await.unwrap(), said_all());
}

#[tokio::test]
async fn check_looks_at_what_lies_there() {
    let world = World::new().await;
    world.talk().await;
    world.dream().await.unwrap();
    assert_eq!(world.texts().await.unwrap(), said_all());
    for (dir, told) in [("packs", "pack"), ("archives", "archive")] {
        let path = world.lying(dir).remove(0);
        let whole = std::fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        assert_eq!(world.texts().await.unwrap(), said_all(), "a copy is whole");
        let problems = world.check().await;
        assert!(problems.len() == 1 && problems[0].starts_with(told), "{problems:?}");
        std::fs::remove_file(&path).unwrap();
        let problems = world.check().await;
        assert!(problems.len() == 1 && problems[0].contains("is missing"), "{problems:?}");
        std::fs::write(&path, whole).unwrap();
    }
    assert_eq!(world.check().await, [""; 0]);
}

#[tokio::test]
async fn what_could_not_be_deleted_is_swept() {
    let world = World::new().await;
    world.talk().await;
    world.line.always("DELETE", Fault::Cut);
    let receipt = world.forget(ForgetRequest::Session("s".to_owned())).await.unwrap();
    assert_eq!(receipt.erased.turns, 250, "its keys are destroyed");
    assert_eq!(world.lying("packs").len(), 2);
    world.line.always("DELETE", Fault::None);

    let report = world.memory.check(true, |_, _| {}).await.unwrap();
    assert_eq!((report.orphans, report.removed), (2, 0), "they may be somebody's to come");
    age(&world.lying("packs"));
    let report = world.memory.check(true, |_, _| {}).await.unwrap();
    assert_eq!((report.orphans, report.removed), (2, 2));
    assert!(world.lying("packs").is_empty());
}

fn age(paths: &[PathBuf]) {
    for path in paths {
        File::open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
}

#[tokio::test]
async fn nothing_of_another_store_is_swept() {
    let world = World::new().await;
    world.talk().await;
    assert_eq!(world.check().await, [""; 0]);
    age(&world.lying("packs"));
    let other = open(&world.settings, &world.root.path().join("another")).await.unwrap();
    let refused = other.check(true, |_, _| {}).await.unwrap_err();
    assert!(
        matches!(refused, MemoryError::Store(StoreError::ForeignObjects { .. })),
        "{refused:?}"
    );
    assert!(refused.hint().unwrap().contains("prefix"));
    assert_eq!(world.check().await, [""; 0]);
}
