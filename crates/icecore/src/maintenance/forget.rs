//! Erasure that walks every copy, with a receipt.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::chunk::ChunkId;
use icecore_domain::ids::{Ordinal, Principal, Scope, Seq, SessionName, Tenant, TurnId};
use icecore_domain::redact::{RedactedTurn, Redactor};
use icecore_domain::time::Millis;
use icecore_index::Source;
use icecore_store::{
    BodyPlace, Erasure, LogKind, MicroBody, NewPack, PackMember, PackRecord, Selected, Selector,
    TextBody, TextFormat,
};
use sha2::{Digest, Sha256};

use crate::error::{MemoryError, Result};
use crate::layers::bodies::{decode, decode_text, encode};
use crate::layers::{let_go, write_pack};
use crate::maintenance::Upkeep;
use crate::privacy::secrets::swapped;
use crate::privacy::session_name;
use crate::recall::indexing::look_at;

/// What to forget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForgetRequest {
    /// A whole session, name and all.
    Session(String),
    /// Turns whose `name` this is, entries tagged `subject:NAME`, facts about them.
    Subject(String),
    /// Turns, entries and facts whose own time is before this; of a whole tenant also
    /// what runs hold that were made before this and have ended.
    Before(Millis),
    /// One entry, or one fact.
    Entry(String),
}

/// How much went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Erased {
    /// Turns that became tombstones.
    pub turns: u64,
    /// Entries.
    pub entries: u64,
    /// Chunks whose body and summary held any of them.
    pub chunks: u64,
    /// Facts about them or drawn from them, and what people said of those.
    pub facts: u64,
    /// Turns whose vectors were in the index.
    pub vectors: u64,
    /// Packs that were rewritten or deleted, their keys destroyed.
    pub packs: u64,
    /// Runs whose inputs, variables and events went.
    pub runs: u64,
    /// Archives of dreams that had read any of it, their keys destroyed.
    pub archives: u64,
    /// Handoffs that had covered any of it, and those that were made of these.
    pub handoffs: u64,
}

/// Proof of an erasure, without what was erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Names it.
    pub id: String,
    /// `session`, `subject`, `before` or `entry`.
    pub kind: &'static str,
    /// When.
    pub at: Millis,
    /// How much.
    pub erased: Erased,
    /// Memories that were distilled anew, without what was forgotten. Not part of what
    /// the hash covers: where it could not be done at once it is done later.
    pub distilled_anew: u64,
    /// Whether it only says what would be erased.
    pub dry_run: bool,
    /// SHA-256, in hex, of [`Receipt::statement`].
    pub sha256: String,
}

/// Turns may be added while others are erased: so often it is looked for more.
const SELECTIONS: usize = 8;

impl Receipt {
    fn new(kind: &'static str, at: Millis, erased: Erased, dry_run: bool) -> Self {
        let mut receipt = Self {
            id: String::new(),
            kind,
            at,
            erased,
            distilled_anew: 0,
            dry_run,
            sha256: String::new(),
        };
        receipt.sha256 = hex::encode(Sha256::digest(receipt.statement()));
        receipt.id = format!("forget-{}", &receipt.sha256[..16]);
        receipt
    }

    /// The text that the hash covers.
    pub fn statement(&self) -> String {
        let Erased { turns, entries, chunks, facts, vectors, packs, runs, archives, handoffs } =
            self.erased;
        format!(
            "icecore erasure by {} at {}: {turns} turns, {entries} entries, {chunks} chunks, {facts} facts, {vectors} vectors, {packs} packs, {runs} runs, {archives} archives, {handoffs} handoffs{}",
            self.kind,
            self.at,
            if self.dry_run { " (dry run)" } else { "" }
        )
    }
}

impl Upkeep {
    /// Erases what a request names: of one memory where `memory` is given, else
    /// of the whole tenant. Every copy of ours goes: rows, texts, packs,
    /// summaries, facts, index and side files. Backups are out of reach.
    #[tracing::instrument(skip_all, fields(dry_run = dry_run))]
    pub async fn forget(
        &self,
        principal: &Principal,
        memory: Option<&str>,
        request: &ForgetRequest,
        dry_run: bool,
    ) -> Result<Receipt> {
        let tenant = principal.tenant();
        let redactor = self.redactor(tenant).await?.redactor;
        let memory = memory.map(|name| redactor.name(name).into_string());
        let (kind, selector) = self.selector(tenant, &redactor, request).await?;
        let now = self.clock.now();
        let mut work = Erasing::default();
        let selector = &selector;
        let archives = self.archive_keys(tenant).await?;
        self.erase_turns(tenant, memory.as_deref(), selector, dry_run, now, &mut work).await?;
        for scope in self.scopes(principal, memory.as_deref()).await? {
            self.erase_told(&scope, selector, dry_run, &mut work).await?;
            if dry_run && !archives.is_empty() {
                let turns = work.turns.get(&scope).map_or(&[][..], Vec::as_slice);
                let store = &self.store;
                work.erased.archives +=
                    store.archives_lost_with(&scope, selector, turns, now).await?;
            }
        }
        if !dry_run {
            work.erased.archives = self.archives_erased(tenant, &archives).await?;
        }
        // A run is of no memory, and quotes nothing of one: it goes by its time alone.
        if let (Selector::Before(at), None) = (selector, &memory) {
            work.erased.runs = self.store.erase_runs(tenant, *at, now, dry_run).await?;
        }
        let mut receipt = Receipt::new(kind, now, work.erased, dry_run);
        if !dry_run {
            for scope in &work.touched {
                self.store.log(scope, LogKind::Forgotten, receipt.payload(scope), now).await?;
            }
            // Also when nothing was found: an erasure that was cut short by a
            // crash may have left its old pages behind.
            self.pack_texts.clear();
            for scope in &work.touched {
                self.drop_index(scope).await?;
            }
            // Bodies whose keys are gone tell nobody anything; the files might.
            let bodies = self.delete_lost_bodies(tenant).await;
            self.store.scrub().await?;
            if let Err(error) = bodies {
                work.failed.get_or_insert(error);
            }
            self.wake.notify_one();
            // What is left is distilled anew; what of that fails, the worker does later.
            receipt.distilled_anew = self.redream_now(tenant).await.unwrap_or_else(|error| {
                tracing::warn!(error = %error, "what is left could not be distilled anew yet");
                0
            });
        }
        match work.failed {
            // What could be erased has been; what could not is said.
            Some(error) => Err(error),
            None => Ok(receipt),
        }
    }

    /// Erases the turns that a selector names, until it names no more: a turn may
    /// have been added meanwhile. One session that cannot be erased (a damaged
    /// pack, say) does not keep the others.
    async fn erase_turns(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        selector: &Selector,
        dry_run: bool,
        now: Millis,
        work: &mut Erasing,
    ) -> Result<()> {
        for _ in 0..SELECTIONS {
            let mut all = self.store.select(tenant, memory, selector).await?;
            // A name without turns is left when its last branch is erased.
            if !work.touched.is_empty() {
                all.retain(|selected| !selected.turns.is_empty());
            }
            if all.is_empty() {
                break;
            }
            self.erase_drawn(selector, &all, dry_run, work).await?;
            for selected in &all {
                if dry_run {
                    let turn =
                        |(seq, _): &(Seq, Ordinal)| TurnId { session: selected.session, seq: *seq };
                    let turns = work.turns.entry(selected.scope.clone()).or_default();
                    turns.extend(selected.turns.iter().map(turn));
                }
                work.touched.insert(selected.scope.clone());
                let done = self.erase_selected(selected, &mut work.erased, dry_run, now).await;
                if let Err(error) = done {
                    work.failed.get_or_insert(error);
                }
            }
            if dry_run || work.failed.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Counts the facts and handoffs that turns are about to take with them, and the facts
    /// that the selector names besides. None of them goes before the turns do: after a
    /// crash between, nobody would draw them again. The index goes: it is made anew from
    /// what is left.
    async fn erase_drawn(
        &self,
        selector: &Selector,
        all: &[Selected],
        dry_run: bool,
        work: &mut Erasing,
    ) -> Result<()> {
        let mut scopes: BTreeMap<&Scope, Vec<&Selected>> = BTreeMap::new();
        all.iter().for_each(|one| scopes.entry(&one.scope).or_default().push(one));
        for (scope, selected) in scopes {
            let of = |one: &Selected| {
                let session = one.session;
                one.turns
                    .iter()
                    .map(move |(seq, _)| TurnId { session, seq: *seq })
                    .collect::<Vec<_>>()
            };
            let quoting: Vec<TurnId> = selected.iter().flat_map(|one| of(one)).collect();
            work.erased.vectors += self.vectors_of(scope, &selected).await?;
            work.erased.handoffs += self.store.handoffs_lost_with(scope, &quoting).await?;
            if !dry_run {
                self.drop_index(scope).await?;
            }
            let (store, now) = (&self.store, self.clock.now());
            let facts = store.erase_facts(scope, selector, &quoting, true, now).await?;
            // What the selector names was counted the first time.
            let counted = match work.touched.contains(scope) {
                true => store.erase_facts(scope, selector, &[], true, now).await?,
                false => 0,
            };
            work.erased.facts += facts.saturating_sub(counted);
            work.touched.insert(scope.clone());
        }
        Ok(())
    }

    /// Erases entries and facts that the selector itself names.
    async fn erase_told(
        &self,
        scope: &Scope,
        selector: &Selector,
        dry_run: bool,
        work: &mut Erasing,
    ) -> Result<()> {
        let store = &self.store;
        let now = self.clock.now();
        let entries = store.erase_entries(scope, selector, true, now).await?;
        let facts = store.erase_facts(scope, selector, &[], true, now).await?;
        // With turns they were counted already.
        work.erased.facts += if work.touched.contains(scope) { 0 } else { facts };
        if dry_run {
            work.erased.entries += entries;
        } else if entries + facts == 0 {
            // Commitments go too, and are no entries.
            work.erased.entries += store.erase_entries(scope, selector, false, now).await?;
        } else {
            self.drop_index(scope).await?;
            work.erased.entries += store.erase_entries(scope, selector, false, now).await?;
            store.erase_facts(scope, selector, &[], false, now).await?;
        }
        if entries + facts > 0 {
            work.touched.insert(scope.clone());
        }
        Ok(())
    }

    /// How many of these turns have vectors in the index.
    async fn vectors_of(&self, scope: &Scope, selected: &[&Selected]) -> Result<u64> {
        let index = self.open_index(scope).await?;
        let sources = selected.iter().flat_map(|one| {
            let source = |seq| Source::Turn { session: one.session, seq, branch: one.branch };
            one.turns.iter().map(move |(seq, _)| source(*seq))
        });
        let sources: Vec<Source> = sources.collect();
        look_at(&index, move |index| {
            let snapshot = index.read();
            let has_vector = |doc: u32| doc < snapshot.docs_with_vectors();
            let docs = sources.iter().filter_map(|source| snapshot.doc_of(*source));
            docs.filter(|doc| has_vector(*doc)).count() as u64
        })
        .await
    }

    async fn selector(
        &self,
        tenant: &Tenant,
        redactor: &Redactor,
        request: &ForgetRequest,
    ) -> Result<(&'static str, Selector)> {
        Ok(match request {
            ForgetRequest::Session(name) => {
                ("session", Selector::Session(self.session_stored(tenant, redactor, name).await?))
            }
            ForgetRequest::Subject(name) => {
                let hash = self.identity_key(tenant).await?.hash_name("subject", name);
                let tag = redactor.text(&format!("subject:{name}"));
                ("subject", Selector::Subject { hash, tag })
            }
            ForgetRequest::Before(at) => ("before", Selector::Before(*at)),
            ForgetRequest::Entry(id) => ("entry", Selector::Entry(id.clone())),
        })
    }

    /// The name under which a tenant's session is stored.
    async fn session_stored(
        &self,
        tenant: &Tenant,
        redactor: &Redactor,
        session: &str,
    ) -> Result<SessionName> {
        let name = session_name(redactor, session)?;
        if name.as_str() != session {
            for scope in self.store.scopes(tenant).await? {
                let stored = self.session_to_append(&scope, redactor, session).await?;
                if stored != name {
                    return Ok(stored);
                }
            }
        }
        Ok(name)
    }

    async fn scopes(&self, principal: &Principal, memory: Option<&str>) -> Result<Vec<Scope>> {
        match memory {
            Some(name) => Ok(vec![self.scope(principal, name).await?]),
            None => Ok(self.store.scopes(principal.tenant()).await?),
        }
    }

    async fn erase_selected(
        &self,
        selected: &Selected,
        erased: &mut Erased,
        dry_run: bool,
        now: Millis,
    ) -> Result<()> {
        let done = swapped!(async {
            let plan = self.plan_erasure(selected, dry_run, now).await?;
            let (erasure, old_packs, chunks) = (plan.erasure, plan.old_packs, plan.chunks);
            let new_packs: Vec<String> = erasure
                .packs
                .iter()
                .filter_map(|(_, _, new)| new.as_ref().map(|pack| pack.name.clone()))
                .collect();
            if dry_run || self.store.erase(&selected.scope, erasure).await? {
                erased.turns += selected.turns.len() as u64;
                erased.chunks += chunks;
                erased.packs += old_packs.len() as u64;
                for name in old_packs.iter().filter(|_| !dry_run) {
                    let_go(&self.packs, name).await?;
                }
                return Ok(Some(()));
            }
            for name in new_packs {
                let_go(&self.packs, &name).await?;
            }
            Ok(None)
        });
        let changing = "the session kept changing while it was erased; run it again";
        done?.ok_or_else(|| MemoryError::Internal(changing.to_owned()))
    }

    /// Reads every body that holds any of the turns and makes it anew without
    /// them.
    async fn plan_erasure(&self, selected: &Selected, dry_run: bool, now: Millis) -> Result<Plan> {
        let scope = &selected.scope;
        let gone: BTreeSet<Ordinal> = selected.turns.iter().map(|(_, ordinal)| *ordinal).collect();
        let (first, last) = match (gone.first(), gone.last()) {
            (Some(first), Some(last)) => (*first, *last),
            _ => (Ordinal(1), Ordinal(0)),
        };
        let mut bodies =
            self.store.bodies(scope, selected.session, selected.branch, first, last).await?;
        bodies.retain(|body| gone.range(body.id.first..=body.id.last).next().is_some());

        let mut plan = Plan::new(selected, now);
        let mut packed: BTreeMap<String, (PackRecord, Vec<MicroBody>)> = BTreeMap::new();
        for body in bodies {
            let keeps = surviving(&body, &gone);
            if keeps.is_empty() {
                plan.erasure.emptied.push((body.id.first, body.id.last));
            }
            let text = match &body.place {
                BodyPlace::Text(text) if !keeps.is_empty() && !dry_run => {
                    Some(without(&body.id, text, &keeps)?)
                }
                _ => None,
            };
            plan.erasure.micros.push((body.id, body.revision, text));
            if let BodyPlace::Pack(pack) = &body.place {
                let held =
                    packed.entry(pack.name.clone()).or_insert_with(|| (pack.clone(), Vec::new()));
                held.1.push(body.clone());
            }
        }
        plan.chunks = plan.erasure.micros.len() as u64;
        for (name, (pack, micros)) in packed {
            let new = match dry_run {
                true => None,
                false => self.repack(scope, &pack, &micros, &gone).await?,
            };
            plan.erasure.packs.push((pack.id, name.clone(), new));
            plan.old_packs.push(name);
        }
        Ok(plan)
    }

    /// A new pack without the erased turns, or none if nothing is left.
    async fn repack(
        &self,
        scope: &Scope,
        pack: &PackRecord,
        micros: &[MicroBody],
        gone: &BTreeSet<Ordinal>,
    ) -> Result<Option<NewPack>> {
        // If nothing of it stays it need not be read, and may be damaged.
        let (first, last) = (pack.id.first, pack.id.last);
        let store = &self.store;
        let held = store.bodies(scope, pack.id.session, pack.id.branch, first, last).await?;
        let mut stays = false;
        for body in held.iter().filter(|body| matches!(body.place, BodyPlace::Pack(_))) {
            stays = stays || !surviving(body, gone).is_empty();
        }
        if !stays {
            return Ok(None);
        }
        let mut members = Vec::new();
        for member in self.open_pack(pack).await?.members()? {
            match micros.iter().find(|body| body.id == member.id) {
                None => members.push(member),
                Some(body) => {
                    let keeps = surviving(body, gone);
                    if !keeps.is_empty() {
                        let turns = keeps.of(decode_text(&member.id, member.format, &member.text)?);
                        let text = encode(&member.id, member.format, &turns)?.text.into_string();
                        members.push(PackMember { text, ..member });
                    }
                }
            }
        }
        match members.is_empty() {
            true => Ok(None),
            false => Ok(Some(write_pack(&self.packs, members).await?)),
        }
    }
}

/// For each turn that a micro's body holds, whether it stays.
fn surviving(body: &MicroBody, gone: &BTreeSet<Ordinal>) -> Keeps {
    Keeps(body.present.iter().map(|ordinal| !gone.contains(ordinal)).collect())
}

/// An erasure under way.
#[derive(Default)]
struct Erasing {
    erased: Erased,
    touched: BTreeSet<Scope>,
    /// Of a dry run, the turns that would go.
    turns: BTreeMap<Scope, Vec<TurnId>>,
    /// The first thing that went wrong.
    failed: Option<MemoryError>,
}

/// An erasure ready to be committed.
struct Plan {
    erasure: Erasure,
    old_packs: Vec<String>,
    chunks: u64,
}

impl Plan {
    fn new(selected: &Selected, now: Millis) -> Self {
        let seqs: Vec<Seq> = selected.turns.iter().map(|(seq, _)| *seq).collect();
        Self {
            erasure: Erasure {
                session: selected.session,
                branch: selected.branch,
                seqs,
                emptied: Vec::new(),
                forget_name: selected.whole_session,
                micros: Vec::new(),
                packs: Vec::new(),
                now,
            },
            old_packs: Vec::new(),
            chunks: 0,
        }
    }
}

/// Which turns of a body stay, in its order.
struct Keeps(Vec<bool>);

impl Keeps {
    fn is_empty(&self) -> bool {
        !self.0.iter().any(|keep| *keep)
    }

    fn of(&self, turns: Vec<RedactedTurn>) -> Vec<RedactedTurn> {
        turns.into_iter().zip(&self.0).filter(|(_, keep)| **keep).map(|(turn, _)| turn).collect()
    }
}

fn without(id: &ChunkId, text: &TextBody, keeps: &Keeps) -> Result<TextBody> {
    let format: TextFormat = text.format;
    encode(id, format, &keeps.of(decode(id, text)?))
}

impl Receipt {
    /// What the log says of it: no content.
    fn payload(&self, scope: &Scope) -> String {
        serde_json::json!({
            "memoryRef": scope.memory(),
            "receiptId": self.id,
            "kind": self.kind,
            "turns": self.erased.turns,
            "entries": self.erased.entries,
            "facts": self.erased.facts,
            "archives": self.erased.archives,
            "handoffs": self.erased.handoffs,
        })
        .to_string()
    }
}
