//! A memory in a temporary directory, and turns to put in.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use icecore::ingest::Timestamp;
use icecore::layers::{ChunkInfo, Level};
use icecore::{
    Clock, Memory, MemorySettings, Millis, Principal, RawTurn, Scope, Seq, StoredTurn, Tenant,
};
use icecore_domain::workspace::{DEFAULT_CONTENT_TYPE, FilePath};
use icecore_store::{Expect, NewFile};

/// A clock that stands still until it is moved.
#[derive(Default)]
pub(crate) struct HandClock(AtomicI64);

impl HandClock {
    pub(crate) fn move_to(&self, at: i64) {
        self.0.store(at, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Millis {
        Millis(self.0.load(Ordering::SeqCst))
    }
}

/// 2026-01-01T00:00:00Z.
pub(crate) const START: i64 = 1_767_225_600_000;

pub(crate) struct Bench {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) memory: Memory,
    pub(crate) scope: Scope,
    pub(crate) clock: Arc<HandClock>,
    settings: MemorySettings,
}

pub(crate) fn me() -> Principal {
    Principal::local_operator(Tenant::new("me").unwrap())
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with(MemorySettings::default()).await
    }

    pub(crate) async fn with(settings: MemorySettings) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(HandClock::default());
        clock.move_to(START);
        let memory = open(dir.path(), &settings, &clock).await;
        let scope = memory.scope(&me(), "m").await.unwrap();
        Self { dir, memory, scope, clock, settings }
    }

    /// Closes the memory and opens it again, as a restart would.
    pub(crate) async fn reopen(self) -> Self {
        let Bench { dir, memory, scope, clock, settings } = self;
        drop(memory);
        let memory = open(dir.path(), &settings, &clock).await;
        Self { dir, memory, scope, clock, settings }
    }

    /// The same store under other settings.
    pub(crate) async fn reopen_with(mut self, settings: MemorySettings) -> Self {
        self.settings = settings;
        self.reopen().await
    }

    pub(crate) async fn add(&self, session: &str, turns: Vec<RawTurn>) {
        self.memory.remember(&self.scope, session, turns).await.unwrap();
    }

    /// Adds `count` numbered turns, one by one, and settles.
    pub(crate) async fn talk(&self, session: &str, count: usize) {
        self.add(session, numbered(count)).await;
        self.settle().await;
    }

    pub(crate) async fn settle(&self) {
        self.memory.settle(|_, _| {}).await.unwrap();
    }

    pub(crate) async fn turns(&self, session: &str) -> Vec<StoredTurn> {
        self.memory.turns(&self.scope, session, Seq(0), usize::MAX >> 1).await.unwrap()
    }

    pub(crate) async fn texts(&self, session: &str) -> Vec<String> {
        self.turns(session).await.iter().map(text).collect()
    }

    pub(crate) async fn chunks(&self, session: &str, level: Level) -> Vec<ChunkInfo> {
        let mut chunks = self.memory.chunks(&self.scope, Some(session)).await.unwrap();
        chunks.retain(|chunk| chunk.id.level == level);
        chunks
    }

    /// Everything that can be verified is whole.
    pub(crate) async fn check(&self) {
        let report = self.memory.check(false, |_, _| {}).await.unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
    }
}

async fn open(dir: &std::path::Path, settings: &MemorySettings, clock: &Arc<HandClock>) -> Memory {
    let clock: Arc<dyn Clock> = Arc::clone(clock) as Arc<dyn Clock>;
    Memory::builder().settings(settings.clone()).clock(clock).open(dir).await.unwrap()
}

pub(crate) fn text(turn: &StoredTurn) -> String {
    turn.turn.as_ref().map(|turn| turn.fields().content.text().into_owned()).unwrap_or_default()
}

pub(crate) fn numbered(count: usize) -> Vec<RawTurn> {
    (1..=count).map(|n| said(n, &format!("Number {n} speaks of glacier {}.", n % 7))).collect()
}

/// A turn by one of two speakers, a minute after the one before.
pub(crate) fn said(number: usize, content: &str) -> RawTurn {
    let mut turn = RawTurn::new(if number % 2 == 1 { "user" } else { "assistant" }, content);
    turn.id = Some(format!("n{number}"));
    turn.name = Some(if number % 2 == 1 { "Mira" } else { "Firn" }.to_owned());
    let at = Millis(START + number as i64 * 60_000).to_rfc3339();
    turn.timestamp = Some(Timestamp::parse(at).unwrap());
    turn
}

/// A file beside a tenant's memories, such as their index.
pub(crate) struct StoredFile {
    pub(crate) content: String,
    pub(crate) version: u64,
}

/// A version of a file, or its last.
pub(crate) async fn file(
    memory: &Memory,
    who: &Principal,
    path: &str,
    version: Option<u64>,
) -> Option<StoredFile> {
    let redactor = memory.redactor(who.tenant()).await.unwrap().redactor;
    let path = FilePath::new(redactor.text(path)).unwrap();
    let found =
        icecore::extend::store(memory).file(&who.workspace(), &path, version).await.unwrap()?;
    let content = redactor.text(found.content.as_str()).into_string();
    Some(StoredFile { content, version: found.head.version })
}

/// Writes a file, as a host does.
pub(crate) async fn put_file(memory: &Memory, who: &Principal, path: &str, content: &str) {
    let known = memory.redactor(who.tenant()).await.unwrap();
    let (content, hidden) = known.redactor.text_counted(content);
    let file = NewFile {
        path: FilePath::new(known.redactor.text(path)).unwrap(),
        content,
        content_type: known.redactor.text(DEFAULT_CONTENT_TYPE),
        expect: Expect::Anything,
        versions_kept: 20,
        most_files: 256,
        now: memory.now(),
        secrets_seen: known.version,
        hidden,
        claim: None,
    };
    icecore::extend::store(memory).put_file(&who.workspace(), file).await.unwrap();
}
