//! The memory itself: opening it, and giving it turns.

use lru::LruCache;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use icecore_domain::embed::{Embedder, ModelId};
use icecore_domain::identity::{IdentityKey, Link};
use icecore_domain::ids::{Principal, Scope, Seq, SessionName, Tenant, TurnId, check_memory};
use icecore_domain::redact::{Hidden, Redactor};
use icecore_domain::time::{Clock, Millis};
use icecore_domain::tokens::TokenCounter;
use icecore_domain::turn::RawTurn;
use icecore_index::{Index, IndexSettings};
use icecore_store::{
    AppendBatch, Appended, Claim, Fence, NewTurn, ObjectKeys, ObjectSettings, Outcome, Packs,
    ParentRef, Store,
};
use tokio::sync::{Notify, Semaphore, watch};

use crate::admission::Admission;
use crate::archives::ArchiveCache;
use crate::bodies::PackCache;
use crate::compaction::Resting;
use crate::consolidation::Consolidating;
use crate::counters::Counting;
use crate::distiller::{DistilledCache, Distiller};
use crate::error::{MemoryError, Result, off_thread};
use crate::handoffs::LearnedWindows;
use crate::histories::MessageCounts;
use crate::indexing::Indexing;
use crate::learn::LearnedCache;
use crate::leases::Leases;
use crate::memory_index::IndexFile;
use crate::models::{Asking, Models};
#[cfg(feature = "postgres")]
use crate::opening::Shared;
use crate::opening::clock_or_own;
use crate::secrets::{LogRedactor, Redactors, TenantRedactor};
use crate::secrets::{TENANTS_AT_HAND, write_redacted};
use crate::settings::MemorySettings;

/// A memory of any number of tenants, over one store.
///
/// Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Memory {
    pub(crate) inner: Arc<Inner>,
}

/// A store, and all that stays the same under whichever lease it is written to.
pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) parts: Arc<Parts>,
    /// For one request: a tenant, and what hid its secrets when the request began.
    pub(crate) sight: Option<(Tenant, TenantRedactor)>,
}

impl Deref for Inner {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

pub(crate) struct Parts {
    pub(crate) packs: Packs,
    /// Where the bodies of archives are kept.
    pub(crate) archives: Packs,
    pub(crate) opened_archives: ArchiveCache,
    pub(crate) distiller: Option<Arc<dyn Distiller>>,
    pub(crate) distilled: DistilledCache,
    pub(crate) models: Models,
    pub(crate) asking: Asking,
    pub(crate) learned_windows: LearnedWindows,
    pub(crate) message_counts: MessageCounts,
    pub(crate) redactors: Redactors,
    pub(crate) counter: Arc<dyn TokenCounter>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: MemorySettings,
    /// How the index of a tenant's memories is kept; `None` where it is not.
    pub(crate) index_file: Option<IndexFile>,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) wake: Notify,
    /// Rises whenever something may have changed.
    pub(crate) news: watch::Sender<u64>,
    /// Places to rank and pack at.
    pub(crate) ranking: Semaphore,
    pub(crate) pack_texts: PackCache,
    pub(crate) indexing: Indexing,
    pub(crate) learned: LearnedCache,
    pub(crate) embedder: Option<Arc<dyn Embedder>>,
    pub(crate) counters: Counting,
    pub(crate) resting: Resting,
    pub(crate) consolidating: Consolidating,
    pub(crate) leases: Leases,
    has_noticed_settings: AtomicBool,
    identity_keys: Mutex<LruCache<Tenant, IdentityKey>>,
    pub(crate) admission: Option<Arc<dyn Admission>>,
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> Millis {
        Millis(jiff::Timestamp::now().as_millisecond())
    }
}

/// What a memory is made of. Every part has a default but the counter, which
/// comes with the feature `models`.
pub struct MemoryBuilder {
    settings: MemorySettings,
    index_file: Option<IndexFile>,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    counter: Option<Arc<dyn TokenCounter>>,
    pub(crate) master_key: Option<String>,
    #[cfg(feature = "postgres")]
    pub(crate) shared: Option<Shared>,
    embedder: Option<Arc<dyn Embedder>>,
    distiller: Option<Arc<dyn Distiller>>,
    models: Models,
    index: IndexSettings,
    redactor: Redactor,
    logs: LogRedactor,
    pub(crate) archives: Option<Packs>,
    pub(crate) may_be_half_moved: bool,
    pub(crate) objects: ObjectSettings,
    pub(crate) object_keys: Option<ObjectKeys>,
    admission: Option<Arc<dyn Admission>>,
}

impl Default for MemoryBuilder {
    fn default() -> Self {
        Self {
            settings: MemorySettings::default(),
            index_file: Some(IndexFile::default()),
            clock: None,
            #[cfg(feature = "models")]
            counter: Some(Arc::new(icecore_models::O200k::default())),
            #[cfg(not(feature = "models"))]
            counter: None,
            master_key: None,
            #[cfg(feature = "postgres")]
            shared: None,
            #[cfg(feature = "models")]
            embedder: Some(icecore_models::StaticEmbedder::bundled()),
            #[cfg(not(feature = "models"))]
            embedder: None,
            distiller: None,
            models: Models::default(),
            index: IndexSettings::default(),
            redactor: Redactor::standard(),
            logs: LogRedactor::default(),
            archives: None,
            may_be_half_moved: false,
            objects: ObjectSettings::default(),
            object_keys: None,
            admission: None,
        }
    }
}

impl MemoryBuilder {
    /// How the memory behaves.
    pub fn settings(mut self, settings: MemorySettings) -> Self {
        self.settings = settings;
        self
    }

    /// How dreams keep the index of a tenant's memories; `None` keeps none.
    pub fn index_file(mut self, index_file: Option<IndexFile>) -> Self {
        self.index_file = index_file;
        self
    }

    /// What decides whether a tenant may take in more; everything is admitted by default.
    pub fn admission(mut self, admission: Arc<dyn Admission>) -> Self {
        self.admission = Some(admission);
        self
    }

    /// Where the time comes from.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// What counts tokens.
    pub fn counter(mut self, counter: Arc<dyn TokenCounter>) -> Self {
        self.counter = Some(counter);
        self
    }

    /// The master key as 64 hex digits, instead of the file in the directory.
    pub fn master_key(mut self, key: Option<String>) -> Self {
        self.master_key = key;
        self
    }

    /// What makes vectors; `None` searches by words alone.
    pub fn embedder(mut self, embedder: Option<Arc<dyn Embedder>>) -> Self {
        self.embedder = embedder;
        self
    }

    /// The model that dreams ask; `None` dreams without one.
    pub fn distiller(mut self, distiller: Option<Arc<dyn Distiller>>) -> Self {
        self.distiller = distiller;
        self
    }

    /// The models that summaries, handoffs, dreams and consolidation ask; none by
    /// default.
    pub fn models(mut self, models: Models) -> Self {
        self.models = models;
        self
    }

    /// What bounds the index.
    pub fn index(mut self, settings: IndexSettings) -> Self {
        self.index = settings;
        self
    }

    /// What hides secrets, before a tenant's own are added.
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    /// What hides secrets in logs, so that it learns those of tenants.
    pub fn logs(mut self, logs: LogRedactor) -> Self {
        self.logs = logs;
        self
    }

    /// Where the bodies of archives are kept; without, where the packs are.
    pub fn archives(mut self, archives: Packs) -> Self {
        self.archives = Some(archives.archives());
        self
    }

    /// A memory over any store.
    pub fn over(self, store: Store, packs: Packs, data_dir: Option<PathBuf>) -> Memory {
        let counter = self.counter.unwrap_or_else(|| Arc::new(icecore_domain::tokens::CharCounter));
        let index = Index::open(data_dir.as_ref().map(|dir| dir.join("index")), self.index);
        let auto_embed = self.settings.auto_embed;
        let clock = clock_or_own(self.clock);
        if let Some(admission) = &self.admission {
            admission.opened(&store, &clock);
        }
        let parts = Parts {
            archives: self.archives.unwrap_or_else(|| packs.archives()),
            packs,
            opened_archives: ArchiveCache::default(),
            distiller: self.distiller,
            distilled: DistilledCache::default(),
            models: self.models,
            asking: Asking::default(),
            learned_windows: LearnedWindows::default(),
            message_counts: MessageCounts::default(),
            redactors: Redactors::new(self.redactor, self.logs),
            counter,
            clock,
            settings: self.settings,
            index_file: self.index_file,
            data_dir,
            wake: Notify::new(),
            news: watch::Sender::new(0),
            ranking: Semaphore::new(std::thread::available_parallelism().map_or(2, usize::from)),
            pack_texts: PackCache::default(),
            indexing: Indexing::new(index),
            learned: LearnedCache::default(),
            embedder: self.embedder.filter(|_| auto_embed),
            counters: Counting::default(),
            resting: Resting::default(),
            consolidating: Consolidating::default(),
            leases: Leases::default(),
            has_noticed_settings: AtomicBool::new(false),
            identity_keys: Mutex::new(LruCache::new(TENANTS_AT_HAND)),
            admission: self.admission,
        };
        Memory { inner: Arc::new(Inner { store, parts: Arc::new(parts), sight: None }) }
    }
}

/// Note under which the settings that branches were settled with are kept.
const SETTINGS_NOTE: &str = "settled-with";

/// Note under which the model that vectors were made with is kept.
const MODEL_NOTE: &str = "embedded-with";

/// Batches larger than this are prepared off the async threads.
pub const INLINE_BYTES: usize = 16 << 10;

/// A turn to append, with how it is to be recognised.
#[derive(Debug, Clone)]
pub struct TurnInput {
    /// The turn.
    pub turn: RawTurn,
    /// For a turn without id: it is the nth with its body. 0: it is new.
    pub occurrence: u32,
    /// Whether its line named the session.
    pub session_given: bool,
}

impl From<RawTurn> for TurnInput {
    fn from(turn: RawTurn) -> Self {
        Self { turn, occurrence: 0, session_given: false }
    }
}

/// Turns for one session.
pub struct Append {
    /// The session's name as the client gave it.
    pub session: String,
    /// The turns.
    pub turns: Vec<TurnInput>,
    /// Adds turns even if they were forgotten.
    pub insist: bool,
    /// What else the transaction stores, so that the request can be repeated safely.
    pub claim: Option<Claim>,
}

/// Turns to append before they are redacted.
struct Batch<'a> {
    turns: Vec<TurnInput>,
    after: Option<Link>,
    insist: bool,
    claim: Option<Claim>,
    /// Of a client's history, the message of each turn.
    links: &'a [LinkedMessage],
}

/// What became of remembered turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    /// Their ids, the client's where it gave them, in order.
    pub turn_ids: Vec<String>,
    /// The smallest `seq` among them.
    pub first_seq: Seq,
    /// The largest `seq` among them.
    pub last_seq: Seq,
    /// How many are new.
    pub added: usize,
    /// How many were there.
    pub known: usize,
    /// How many were forgotten earlier and stay so.
    pub forgotten: usize,
}

/// A message of a client's history as it is kept.
#[derive(Debug, Clone)]
pub(crate) struct LinkedMessage {
    pub(crate) turn: RawTurn,
    pub(crate) link: Link,
    /// Whether it is an answer that went through us.
    pub(crate) is_answer: bool,
    /// Whether its words are left out, because they were forgotten.
    pub(crate) is_hollow: bool,
}

impl Memory {
    /// Opens the memory in `dir` with everything at its default.
    pub async fn open(dir: &Path) -> Result<Memory> {
        MemoryBuilder::default().open(dir).await
    }

    /// A memory that is gone when it is dropped.
    pub fn in_memory() -> Memory {
        MemoryBuilder::default().over(Store::in_memory([0; 32]), Packs::in_memory(), None)
    }

    /// Begins a memory with parts of one's own.
    pub fn builder() -> MemoryBuilder {
        MemoryBuilder::default()
    }

    /// This memory for whoever holds a lease: nothing is written once another does.
    pub(crate) fn fenced(&self, fence: Fence) -> Memory {
        let (store, parts) = (self.inner.store.fenced(fence), Arc::clone(&self.inner.parts));
        Memory { inner: Arc::new(Inner { store, parts, sight: None }) }
    }

    /// This memory for one request of a tenant: its secrets are looked at once, and what
    /// was secret then is hidden throughout.
    pub(crate) async fn seeing(&self, tenant: &Tenant) -> Result<Memory> {
        let sight = Some((tenant.clone(), self.redactor(tenant).await?));
        let (store, parts) = (self.inner.store.clone(), Arc::clone(&self.inner.parts));
        Ok(Memory { inner: Arc::new(Inner { store, parts, sight }) })
    }

    /// One memory of a principal's tenant.
    pub async fn scope(&self, principal: &Principal, memory: &str) -> Result<Scope> {
        check_memory(memory)?;
        let redactor = self.redactor(principal.tenant()).await?.redactor;
        Ok(principal.scope(redactor.name(memory))?)
    }

    /// Takes in turns: hides their secrets, then appends them to a session.
    /// Once this resolves they survive a crash.
    pub async fn remember(
        &self,
        scope: &Scope,
        session: &str,
        turns: Vec<RawTurn>,
    ) -> Result<Remembered> {
        let turns = turns.into_iter().map(TurnInput::from).collect();
        self.append(
            scope,
            Append { session: session.to_owned(), turns, insist: false, claim: None },
        )
        .await
    }

    /// As [`Memory::remember`], with every choice in the caller's hand.
    #[tracing::instrument(skip_all, fields(turns = append.turns.len()))]
    pub async fn append(&self, scope: &Scope, append: Append) -> Result<Remembered> {
        if append.turns.is_empty() {
            return Err(MemoryError::NoTurns);
        }
        let (session, turns) = (append.session.as_str(), append.turns.as_slice());
        let batch = |turns| Batch {
            turns,
            after: None,
            insist: append.insist,
            claim: append.claim.clone(),
            links: &[],
        };
        let (appended, ids) = self.append_batch(scope, session, || batch(turns.to_vec())).await?;
        Ok(Remembered::new(&appended, &ids))
    }

    /// Appends messages of a client's history, each with its link, behind the one that has
    /// the link `after`, or as a tree of their own.
    pub(crate) async fn append_linked(
        &self,
        scope: &Scope,
        session: &str,
        after: Option<Link>,
        links: &[LinkedMessage],
    ) -> Result<Appended> {
        let turns = || links.iter().map(|one| TurnInput::from(one.turn.clone())).collect();
        let batch = || Batch { turns: turns(), after, insist: false, claim: None, links };
        Ok(self.append_batch(scope, session, batch).await?.0)
    }

    /// Redacts and appends; answers what became of it, and the ids that clients gave.
    async fn append_batch<'a>(
        &self,
        scope: &Scope,
        session: &str,
        batch: impl Fn() -> Batch<'a>,
    ) -> Result<(Appended, Vec<Option<String>>)> {
        // The store refuses what was redacted with old secrets, so that whether there are
        // newer ones need not be asked before.
        let at_hand = Mutex::new(self.redactor_at_hand(scope.tenant()));
        write_redacted(|| async {
            let at_hand = at_hand.lock().ok().and_then(|mut at_hand| at_hand.take());
            let redactor = match at_hand {
                Some(redactor) => redactor,
                None => self.redactor(scope.tenant()).await?,
            };
            self.append_once(scope, session, batch(), redactor).await
        })
        .await
    }

    async fn append_once(
        &self,
        scope: &Scope,
        session: &str,
        batch: Batch<'_>,
        redactor: TenantRedactor,
    ) -> Result<(Appended, Vec<Option<String>>)> {
        let now = self.now();
        let Batch { turns, after, insist, claim, links } = batch;
        let key = self.identity_key(scope.tenant()).await?;
        let session = self.session_to_append(scope, &redactor.redactor, session).await?;
        let secrets_seen = redactor.version;
        let mut turns = self.prepare(key, redactor, turns, now).await?;
        turns.iter_mut().zip(links).for_each(|(new, one)| {
            (new.link, new.is_answer, new.is_hollow) =
                (Some(one.link), one.is_answer, one.is_hollow);
        });
        let ids = turns.iter().map(|turn| turn.turn.fields().id.clone()).collect();
        let weights: Vec<(u32, Hidden)> =
            turns.iter().map(|turn| (turn.tokens, turn.hidden.clone())).collect();
        let policy = self.inner.settings.cuts.policy();
        let batch = AppendBatch { session, turns, after, insist, policy, now, claim, secrets_seen };
        let admitted = self.admit(scope.tenant(), tokens_of(&weights)).await?;
        let appended = self.written(self.inner.store.append(scope, batch).await)?;
        // Only a hint. The worker works out what is due from the store itself, so
        // a wake lost in a crash costs a delay and no chunk.
        self.inner.wake.notify_one();
        admitted.store(self.count_added(&appended, &weights));
        Ok((appended, ids))
    }

    /// Counts the turns that are new, each with its tokens and what was hidden; answers
    /// their tokens.
    fn count_added(&self, appended: &Appended, weights: &[(u32, Hidden)]) -> u64 {
        let all = appended.turns.iter().zip(weights);
        let mut added = 0;
        for (_, (tokens, hidden)) in all.filter(|(turn, _)| turn.outcome == Outcome::Added) {
            self.inner.counters.turns(1, u64::from(*tokens));
            self.inner.counters.hidden(hidden);
            added += u64::from(*tokens);
        }
        added
    }

    /// Does all that needs no lock: checks, hashes, redacts and counts.
    async fn prepare(
        &self,
        key: IdentityKey,
        redactor: TenantRedactor,
        turns: Vec<TurnInput>,
        now: Millis,
    ) -> Result<Vec<NewTurn>> {
        let bytes: usize = turns.iter().map(|input| input.turn.byte_count()).sum();
        if bytes <= INLINE_BYTES {
            return prepare_all(&self.inner, &key, &redactor.redactor, turns, now);
        }
        let inner = self.inner.clone();
        off_thread(move || prepare_all(&inner, &key, &redactor.redactor, turns, now)).await?
    }

    /// A hash of `parts` under the tenant's own key, without which nothing can be guessed
    /// from it.
    pub async fn keyed_hash(
        &self,
        tenant: &Tenant,
        kind: &str,
        parts: &[&[u8]],
    ) -> Result<[u8; 32]> {
        Ok(self.identity_key(tenant).await?.hash_parts(kind, parts))
    }

    pub(crate) async fn identity_key(&self, tenant: &Tenant) -> Result<IdentityKey> {
        let known =
            self.inner.identity_keys.lock().ok().and_then(|mut keys| keys.get(tenant).cloned());
        if let Some(key) = known {
            return Ok(key);
        }
        let key = self.inner.store.identity_key(tenant).await?;
        if let Ok(mut keys) = self.inner.identity_keys.lock() {
            keys.put(tenant.clone(), key.clone());
        }
        Ok(key)
    }

    /// Forgets keys that may not be the tenants' own any more.
    pub(crate) fn forget_keys(&self) {
        if let Ok(mut keys) = self.inner.identity_keys.lock() {
            keys.clear();
        }
    }

    /// Branches that were settled under other settings are looked at again. Once
    /// a process, before it settles anything: two with different settings must
    /// not send each other round in circles.
    pub(crate) async fn notice_settings(&self) -> Result<()> {
        if self.inner.has_noticed_settings.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mine = self.inner.settings.fingerprint();
        if self.inner.store.note(SETTINGS_NOTE).await?.as_deref() != Some(&mine) {
            self.inner.store.unsettle_all().await?;
            self.inner.store.put_note(SETTINGS_NOTE, &mine).await?;
        }
        // Without a model at hand, vectors that are there stay for one that is.
        if let Some(embedder) = &self.inner.embedder {
            let model = embedder.model().to_string();
            if self.inner.store.note(MODEL_NOTE).await?.as_deref() != Some(&model) {
                self.inner.store.unsettle_all().await?;
                self.inner.store.put_note(MODEL_NOTE, &model).await?;
            }
        }
        // Only now: a store that failed half way is asked again.
        self.inner.has_noticed_settings.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// The counter that all counts are made with.
    pub fn counter(&self) -> &dyn TokenCounter {
        self.inner.counter.as_ref()
    }

    /// The model that vectors are made with, if there is one at hand.
    pub fn model(&self) -> Option<&ModelId> {
        self.inner.embedder.as_ref().map(|embedder| embedder.model())
    }

    /// What bounds dreams.
    pub fn dream_settings(&self) -> &crate::dreams::DreamSettings {
        &self.inner.settings.dreams
    }

    /// The present moment, as the memory sees it.
    pub fn now(&self) -> Millis {
        self.inner.clock.now()
    }

    /// The store, for tests; a release build does not have it. See also [`crate::extend`].
    #[cfg(debug_assertions)]
    #[doc(hidden)]
    pub fn store(&self) -> &Store {
        &self.inner.store
    }
}

impl Remembered {
    /// What an append answered; `ids` are the clients' own.
    pub(crate) fn new(appended: &Appended, ids: &[Option<String>]) -> Self {
        let count = |wanted| appended.turns.iter().filter(|turn| turn.outcome == wanted).count();
        let seqs = || appended.turns.iter().map(|turn| turn.seq);
        let id = |(turn, id): (&icecore_store::AppendedTurn, &Option<String>)| {
            id.clone()
                .unwrap_or_else(|| TurnId { session: appended.session, seq: turn.seq }.to_string())
        };
        Self {
            turn_ids: appended.turns.iter().zip(ids).map(id).collect(),
            first_seq: seqs().min().unwrap_or_default(),
            last_seq: seqs().max().unwrap_or_default(),
            added: count(Outcome::Added),
            known: count(Outcome::Known),
            forgotten: count(Outcome::Forgotten),
        }
    }
}

fn tokens_of(weights: &[(u32, Hidden)]) -> u64 {
    weights.iter().map(|(tokens, _)| u64::from(*tokens)).sum()
}

/// A session's name as it is stored.
pub(crate) fn session_name(redactor: &Redactor, name: &str) -> Result<SessionName> {
    Ok(SessionName::new(redactor.name(name))?)
}

fn prepare_all(
    inner: &Inner,
    key: &IdentityKey,
    redactor: &Redactor,
    turns: Vec<TurnInput>,
    now: Millis,
) -> Result<Vec<NewTurn>> {
    turns
        .into_iter()
        .enumerate()
        .map(|(index, input)| {
            input.turn.check().map_err(|source| MemoryError::Turn { index, source })?;
            Ok(prepare_one(inner, key, redactor, input, now))
        })
        .collect()
}

fn prepare_one(
    inner: &Inner,
    key: &IdentityKey,
    redactor: &Redactor,
    input: TurnInput,
    now: Millis,
) -> NewTurn {
    let raw = input.turn;
    let identity = key.identify(&raw);
    let speaker = raw.name.as_ref().map(|name| key.hash_name("subject", name));
    let parent = |id: &String| ParentRef {
        shown: redactor.name(id).into_string(),
        lookup: key.lookup_of_id(id),
        ours: TurnId::parse(id),
    };
    let parents = raw.parent_ids.iter().flatten().map(parent).collect();
    let at = raw.timestamp.as_ref().map_or(now, |timestamp| timestamp.at());
    let (turn, hidden) = redactor.turn_counted(raw);
    let tokens = inner.counter.count(&turn.fields().content.text());
    NewTurn {
        turn,
        hidden,
        identity,
        speaker,
        parents,
        tokens,
        at,
        occurrence: input.occurrence,
        session_given: input.session_given,
        link: None,
        is_answer: false,
        is_hollow: false,
    }
}
