//! Applies today's secrets and patterns to what is stored.
//!
//! The one thing that ever rewrites a turn. It works as erasure does: bodies are
//! made anew wherever they are, old packs lose their keys, what was derived is
//! derived again, and the files keep nothing of the old. Positions and identities
//! stay, so nothing is cut again and a re-import still finds its turns.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::ids::{Branch, Ordinal, Principal, Scope, Seq, Tenant};
use icecore_domain::redact::{Hidden, RedactedTurn, Redactor};
use icecore_store::{
    BodyPlace, LogKind, MicroBody, NewPack, PackMember, PackRecord, Rewrite, RewriteCounts,
    RewrittenTurn, SessionRecord, TextBody, TurnQuery, TurnRow, TurnState,
};

use crate::error::{MemoryError, Result, off_thread};
use crate::layers::bodies::{decode_text, encode};
use crate::layers::history::PAGE;
use crate::layers::{let_go, write_pack};
use crate::maintenance::Upkeep;
use crate::privacy::secrets::{TenantRedactor, swapped};

/// What a rescan found and rewrote.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rescanned {
    /// Turns that were looked at.
    pub looked_at: u64,
    /// Turns that were rewritten.
    pub turns: u64,
    /// Packs that were written anew, the keys of the old destroyed.
    pub packs: u64,
    /// Session and memory names that changed.
    pub names: u64,
    /// Entries that were rewritten.
    pub entries: u64,
    /// What people said of facts that was rewritten.
    pub facts: u64,
    /// Versions of workspace files that were rewritten.
    pub files: u64,
    /// Runs that were rewritten.
    pub runs: u64,
    /// Commitments that were rewritten.
    pub commitments: u64,
    /// Handoffs that were rewritten. One that covers a turn that was is gone instead.
    pub handoffs: u64,
    /// Records of the log whose payloads were rewritten.
    pub events: u64,
    /// Memories that were distilled anew, because a dream had read what was rewritten.
    pub distilled_anew: u64,
    /// What was hidden, by kind or name.
    pub hidden: Hidden,
    /// Whether it only says what would be rewritten.
    pub dry_run: bool,
}

impl Upkeep {
    /// Looks through all that a tenant has stored with what is known to be secret
    /// today, and rewrites what holds any of it. `tell` hears how many turns were
    /// looked at and how many there are.
    ///
    /// A rescan that is cut short is finished by the next one: what is clean
    /// already stays as it is.
    #[tracing::instrument(skip_all, fields(dry_run = dry_run))]
    pub async fn rescan(
        &self,
        principal: &Principal,
        dry_run: bool,
        mut tell: impl FnMut(u64, u64),
    ) -> Result<Rescanned> {
        let tenant = principal.tenant();
        let TenantRedactor { redactor, version } = self.redactor(tenant).await?;
        let total = self.store.stats(tenant, None, self.now()).await?.turns;
        let mut done = Rescanned { dry_run, ..Rescanned::default() };
        let mut touched = BTreeSet::new();
        for scope in self.store.scopes(tenant).await? {
            let before = done.turns;
            let mut pass =
                Pass { memory: self, scope: &scope, redactor: &redactor, done: &mut done };
            pass.sessions(|looked_at| tell(looked_at, total)).await?;
            if done.turns > before {
                touched.insert(scope);
            }
        }
        if !dry_run {
            let clean = redactor.clone();
            let told = self.rewrite_stored_text(tenant, redactor, &mut done).await?;
            // A memory that got another name is touched under that one.
            touched.retain(|scope: &Scope| !told.memories.iter().any(|old| old == scope.memory()));
            touched.extend(told.touched);
            self.conclude(touched, &done).await?;
            self.let_go_of_telling(tenant, &clean).await?;
            self.note_rescanned(tenant, version).await?;
            self.delete_lost_bodies(tenant).await?;
            // Dreams that had read what was rewritten are gone with it.
            done.distilled_anew = self.redream_now(tenant).await.unwrap_or_else(|error| {
                tracing::warn!(error = %error, "what was rewritten could not be distilled anew yet");
                0
            });
            self.counters.hidden(&done.hidden);
        }
        Ok(done)
    }

    /// Rewrites what is not in turns: names, entries, verdicts, files, handoffs, the log.
    async fn rewrite_stored_text(
        &self,
        tenant: &Tenant,
        redactor: Redactor,
        done: &mut Rescanned,
    ) -> Result<RewriteCounts> {
        // Under its old name a memory's index would stay behind.
        for scope in self.store.scopes(tenant).await? {
            if redactor.name(scope.memory()).as_str() != scope.memory() {
                self.drop_index(&scope).await?;
            }
        }
        let told = self.store.rewrite_stored_text(tenant, redactor.into(), self.now()).await?;
        done.names += told.sessions + told.memories.len() as u64 + told.keys;
        done.entries += told.entries;
        done.facts += told.verdicts;
        done.files += told.files;
        done.runs += told.runs;
        done.commitments += told.commitments;
        done.handoffs += told.handoffs;
        done.events += told.events;
        add(&mut done.hidden, &told.hidden);
        Ok(told)
    }

    /// Leaves nothing of the old text behind, and says so in the log.
    async fn conclude(&self, touched: BTreeSet<Scope>, done: &Rescanned) -> Result<()> {
        self.pack_texts.clear();
        for scope in &touched {
            self.drop_index(scope).await?;
            let payload = done.payload(scope);
            self.store.log(scope, LogKind::Rescanned, payload, self.now()).await?;
        }
        // Also when nothing was found: a rescan that was cut short by a crash may
        // have left its old pages behind.
        self.store.scrub().await?;
        self.wake.notify_one();
        Ok(())
    }
}

/// A memory being looked through.
struct Pass<'a> {
    memory: &'a Upkeep,
    scope: &'a Scope,
    redactor: &'a Redactor,
    done: &'a mut Rescanned,
}

/// A turn that holds a secret, and what it becomes.
struct Changed {
    row: TurnRow,
    turn: RedactedTurn,
    hidden: Hidden,
    tokens: u32,
}

impl Pass<'_> {
    async fn sessions(&mut self, mut tell: impl FnMut(u64)) -> Result<()> {
        let mut after = None;
        loop {
            let page = self.memory.store.sessions(self.scope, after, PAGE).await?;
            for session in &page {
                for branch in &session.branches {
                    self.branch(session, branch.branch, &mut tell).await?;
                }
            }
            after = page.last().map(|session| session.no);
            if page.len() < PAGE {
                return Ok(());
            }
        }
    }

    /// Looks through one branch, page by page.
    async fn branch(
        &mut self,
        session: &SessionRecord,
        branch: Branch,
        tell: &mut impl FnMut(u64),
    ) -> Result<()> {
        let mut after = Seq(0);
        loop {
            let query =
                TurnQuery { branch: Some(branch), after, ..TurnQuery::all(session.no, PAGE) };
            let Some((read, last)) = self.page(&query).await? else { return Ok(()) };
            self.done.looked_at += read as u64;
            tell(self.done.looked_at);
            if read < PAGE {
                return Ok(());
            }
            after = last;
        }
    }

    /// Rewrites what is secret in a page of turns; answers how many there were and
    /// the last of them.
    async fn page(&mut self, query: &TurnQuery) -> Result<Option<(usize, Seq)>> {
        let page = swapped!(async {
            let rows = self.memory.store.turns(self.scope, query).await?;
            let Some(last) = rows.last().map(|row| row.id.seq) else { return Ok(Some(None)) };
            let read = rows.len();
            let mut rows = self.memory.hydrate_as_stored(self.scope, rows).await?;
            rows.retain(|row| row.state == TurnState::Present);
            let changed = self.changed(rows).await?;
            let is_done = changed.is_empty() || self.rewrite(query, changed).await?;
            Ok(is_done.then_some(Some((read, last))))
        });
        let changing = "the session kept changing while it was rewritten; run it again";
        page?.ok_or_else(|| MemoryError::Internal(changing.to_owned()))
    }

    /// The turns that hold a secret.
    async fn changed(&self, rows: Vec<TurnRow>) -> Result<Vec<Changed>> {
        let redactor = self.redactor.clone();
        let counter = std::sync::Arc::clone(&self.memory.counter);
        off_thread(move || {
            let change = |row: TurnRow| {
                let fields = row.body.as_ref()?.fields();
                let (turn, hidden) = redactor.turn_counted(fields.clone());
                if turn.fields() == fields {
                    return None;
                }
                let tokens = counter.count(&turn.fields().content.text());
                Some(Changed { row, turn, hidden, tokens })
            };
            rows.into_iter().filter_map(change).collect()
        })
        .await
    }

    /// Puts the turns anew, wherever their bodies are; false if they moved
    /// meanwhile.
    async fn rewrite(&mut self, query: &TurnQuery, changed: Vec<Changed>) -> Result<bool> {
        let Some(branch) = query.branch else { return Ok(true) };
        let turns: BTreeMap<Ordinal, &RedactedTurn> =
            changed.iter().map(|change| (change.row.ordinal, &change.turn)).collect();
        let places: Vec<_> =
            turns.keys().map(|ordinal| (query.session, branch, *ordinal)).collect();
        let store = &self.memory.store;
        let bodies = store.bodies_at(self.scope, &places).await?;
        if !self.done.dry_run {
            // After a crash from here on the index is made anew.
            self.memory.drop_index(self.scope).await?;
            let rewrite = self.plan(query, branch, &changed, &turns, bodies).await?;
            let (old, new) = names(&rewrite);
            if !store.rewrite(self.scope, rewrite).await? {
                self.delete(&new).await?;
                return Ok(false);
            }
            self.done.packs += old.len() as u64;
            self.delete(&old).await?;
        }
        self.done.turns += changed.len() as u64;
        changed.iter().for_each(|change| add(&mut self.done.hidden, &change.hidden));
        Ok(true)
    }

    async fn delete(&self, packs: &[String]) -> Result<()> {
        for name in packs {
            let_go(&self.memory.packs, name).await?;
        }
        Ok(())
    }

    async fn plan(
        &self,
        query: &TurnQuery,
        branch: Branch,
        changed: &[Changed],
        turns: &BTreeMap<Ordinal, &RedactedTurn>,
        bodies: Vec<MicroBody>,
    ) -> Result<Rewrite> {
        let mut micros = Vec::new();
        let mut packed: BTreeMap<String, (PackRecord, Vec<MicroBody>)> = BTreeMap::new();
        let mut cold: Vec<(Ordinal, Ordinal)> = Vec::new();
        for body in bodies {
            let text = match &body.place {
                BodyPlace::Text(text) => {
                    cold.push((body.id.first, body.id.last));
                    Some(with(&body, text.format, text.text.as_str(), turns)?)
                }
                BodyPlace::Pack(pack) => {
                    cold.push((body.id.first, body.id.last));
                    let held = packed
                        .entry(pack.name.clone())
                        .or_insert_with(|| (pack.clone(), Vec::new()));
                    held.1.push(body.clone());
                    None
                }
                BodyPlace::Rows | BodyPlace::Gone => None,
            };
            micros.push((body.id, body.revision, text));
        }
        let mut packs = Vec::new();
        for (name, (pack, held)) in packed {
            packs.push((pack.id, name, self.repack(&pack, &held, turns).await?));
        }
        let is_hot = |ordinal: Ordinal| {
            !cold.iter().any(|(first, last)| (*first..=*last).contains(&ordinal))
        };
        let rewritten = |change: &Changed| RewrittenTurn {
            seq: change.row.id.seq,
            tokens: change.tokens,
            hidden: change.hidden.clone(),
            body: is_hot(change.row.ordinal).then(|| change.turn.clone()),
        };
        Ok(Rewrite {
            session: query.session,
            branch,
            turns: changed.iter().map(rewritten).collect(),
            micros,
            packs,
            now: self.memory.now(),
        })
    }

    /// A pack with some of its turns anew.
    async fn repack(
        &self,
        pack: &PackRecord,
        micros: &[MicroBody],
        turns: &BTreeMap<Ordinal, &RedactedTurn>,
    ) -> Result<NewPack> {
        let mut members = Vec::new();
        for member in self.memory.open_pack(pack).await?.members()? {
            match micros.iter().find(|body| body.id == member.id) {
                None => members.push(member),
                Some(body) => {
                    let text = with(body, member.format, &member.text, turns)?;
                    members.push(PackMember { text: text.text.into_string(), ..member });
                }
            }
        }
        write_pack(&self.memory.packs, members).await
    }
}

/// The text of a micro with some of its turns anew.
fn with(
    body: &MicroBody,
    format: icecore_store::TextFormat,
    text: &str,
    turns: &BTreeMap<Ordinal, &RedactedTurn>,
) -> Result<TextBody> {
    let held = decode_text(&body.id, format, text)?.into_iter();
    let anew = body
        .present
        .iter()
        .zip(held)
        .map(|(ordinal, old)| turns.get(ordinal).map_or(old, |turn| (*turn).clone()));
    encode(&body.id, format, &anew.collect::<Vec<_>>())
}

/// The names of the packs that go and of those that come.
fn names(rewrite: &Rewrite) -> (Vec<String>, Vec<String>) {
    rewrite.packs.iter().map(|(_, old, new)| (old.clone(), new.name.clone())).unzip()
}

fn add(sum: &mut Hidden, more: &Hidden) {
    for (name, count) in more {
        *sum.entry(name.clone()).or_default() += count;
    }
}

impl Rescanned {
    /// What the log says of it: no content.
    fn payload(&self, scope: &Scope) -> String {
        serde_json::json!({
            "memoryRef": scope.memory(),
            "turns": self.turns,
            "entries": self.entries,
            "facts": self.facts,
            "redacted": self.hidden,
        })
        .to_string()
    }
}
