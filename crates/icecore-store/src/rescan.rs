//! What a tenant has in words besides turns, put through a redactor again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use icecore_domain::fact::normalise;
use icecore_domain::ids::{Scope, Tenant};
use icecore_domain::redact::{Hidden, RedactedText, Redactor};
use icecore_domain::time::Millis;

use crate::bounds::{Change, entry_bytes};
use crate::engine::tx::{Isolation, ScopeNo, Tx};
use crate::engine::{OptionalExtension, params};
use crate::entries::{EntryRecord, commitments};
use crate::erase::dreams as dream_loss;
use crate::erase::dreams::Touched;
use crate::error::Result;
use crate::host::runs::Renamed;
use crate::host::{api_keys, runs, workspace};
use crate::keys::TenantKey;
use crate::log::hidden;
use crate::outcomes::OUTCOME_KEPT_MILLIS;
use crate::reredact::{Again, Rewritten, Told, add};
use crate::store::Store;
use crate::turns::{recalled, rows};
use crate::{
    answers, dreams, engine, entries, erase, facts, handoffs, layers as pyramid, scopes, usage,
};

/// Derived rows that are read at a time.
const PAGE: usize = 500;

pub(crate) fn rewrite(
    tx: &Tx<'_>,
    tenant: &Tenant,
    redactor: &Redactor,
    now: Millis,
) -> Result<Told> {
    let (Some(no), Some(key)) = (scopes::tenant_no(tx, tenant)?, scopes::tenant_key(tx, tenant)?)
    else {
        return Ok(Told::default());
    };
    let again = Again(redactor);
    let mut work = Work { tx, again, key, touched: BTreeSet::new(), told: Told::default() };
    let scopes: Vec<i64> = tx
        .prepare("SELECT scope FROM scopes WHERE tenant = ?1 ORDER BY scope")
        .and_then(|mut q| q.query_map([no], |row| row.get(0))?.collect())?;
    let mut fact_ids = BTreeMap::new();
    let (mut renamed, mut names) = (BTreeMap::new(), Renamed::default());
    for scope in &scopes {
        let at = ScopeNo { tenant: no, scope: *scope };
        let named = scopes::scope_of(tx, no, *scope)?;
        let mut dreams = work.derived(at, &named)?;
        work.sessions(at)?;
        dreams.extend(work.entries(at)?);
        dreams.extend(work.verdicts(at, &named, &mut fact_ids)?);
        work.dreams(at, &named, dreams, now)?;
        work.handoffs(at)?;
        if let Some(name) = work.memory(at, &named)? {
            names.memories.insert(named.memory().to_owned(), name.clone());
            renamed.insert(*scope, name);
        }
    }
    names.files = workspace::rewrite(tx, no, &work.again, &mut work.told)?;
    work.told.runs = runs::rewrite(tx, no, &work.again, &names, now)?;
    work.told.commitments = commitments::rewrite(tx, no, &work.again, now)?;
    work.answers(no)?;
    recalled::lose_all(tx, no)?;
    handoffs::lose_usage(tx, no, redactor)?;
    work.events(no, &fact_ids, &renamed)?;
    work.key_names(tenant)?;
    for scope in std::mem::take(&mut work.touched) {
        rows::raise_epoch(tx, ScopeNo { tenant: no, scope })?;
        work.told.touched.push(scopes::scope_of(tx, no, scope)?);
    }
    // Last: a risen epoch lets go of many of them.
    work.outcomes(no, now)?;
    Ok(work.told)
}

struct Work<'a> {
    tx: &'a Tx<'a>,
    again: Again<'a>,
    key: TenantKey,
    touched: BTreeSet<i64>,
    told: Told,
}

impl Work<'_> {
    fn hidden_at(&mut self, at: ScopeNo, position: i64, hidden: &Hidden) -> Result<()> {
        add(&mut self.told.hidden, hidden);
        hidden::put_hidden(self.tx, at, position, hidden)
    }

    /// Drops what is derived in the scope, if any of it has something to hide. Answers
    /// the dreams that may have read it.
    fn derived(&mut self, at: ScopeNo, scope: &Scope) -> Result<Touched> {
        if !self.hides_in_summaries(scope)? && !self.hides_in_facts(scope)? {
            return Ok(Touched::new());
        }
        self.told.derived += pyramid::drop_all(self.tx, at)?;
        self.touched.insert(at.scope);
        dream_loss::after(self.tx, at, Some(0))
    }

    /// Loses the dreams that read what changed, or tell of something that is hidden now.
    fn dreams(
        &mut self,
        at: ScopeNo,
        scope: &Scope,
        mut touched: Touched,
        now: Millis,
    ) -> Result<()> {
        for (number, texts) in dreams::texts(self.tx, at)? {
            if texts.iter().any(|text| self.again.json(text).is_some()) {
                touched.insert(number);
            }
        }
        if !touched.is_empty() {
            let going = dream_loss::Going::Erased;
            self.told.derived += dream_loss::lose(self.tx, (scope, at), &touched, going, now)?;
            self.touched.insert(at.scope);
        }
        Ok(())
    }

    fn handoffs(&mut self, at: ScopeNo) -> Result<()> {
        let retold = handoffs::rewrite(self.tx, at, &self.again)?;
        self.told.handoffs += retold.rewritten;
        self.told.derived += retold.dropped;
        add(&mut self.told.hidden, &retold.hidden);
        if retold.rewritten > 0 {
            self.touched.insert(at.scope);
        }
        Ok(())
    }

    /// Drops what models answered, if more is hidden than was when they were asked.
    fn answers(&self, tenant: i64) -> Result<()> {
        let drop = || -> Result<_> {
            if self.told != Told::default() || answers::hides(self.tx, tenant, &self.again)? {
                answers::forget_all(self.tx, tenant)?;
            }
            Ok(())
        };
        drop()
    }

    fn hides_in_summaries(&self, scope: &Scope) -> Result<bool> {
        let mut after = 0;
        loop {
            let page = match pyramid::summaries_after(self.tx, scope, after, PAGE) {
                // Nobody can say what is in it, and it can be made anew.
                Err(error) if error.is_damage() => return Ok(true),
                page => page?,
            };
            let Some((last, _)) = page.last() else { return Ok(false) };
            after = *last;
            let mut summaries = page.iter().filter_map(|(_, chunk)| chunk.summary.as_ref());
            if summaries.any(|summary| self.again.finds_in(summary)) {
                return Ok(true);
            }
        }
    }

    fn hides_in_facts(&self, scope: &Scope) -> Result<bool> {
        let mut after = 0;
        loop {
            let page = facts::after(self.tx, scope, after, PAGE)?;
            let Some(last) = page.last() else { return Ok(false) };
            after = last.number;
            if page.iter().any(|record| self.again.fact(&record.fact).is_some()) {
                return Ok(true);
            }
        }
    }

    fn sessions(&mut self, at: ScopeNo) -> Result<()> {
        let named: Vec<(i64, String)> = self
            .tx
            .prepare(
                "SELECT session, name FROM sessions WHERE tenant = ?1 AND scope = ?2
                   AND name IS NOT NULL ORDER BY session",
            )
            .and_then(|mut q| {
                q.query_map([at.tenant, at.scope], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
            })?;
        for (session, old) in named {
            let is_taken = |name: &str| {
                let hash = self.session_hash(name);
                self.exists(
                    "SELECT 1 FROM sessions WHERE tenant = ?1 AND scope = ?2 AND name_hash = ?3",
                    params![at.tenant, at.scope, hash.as_slice()],
                )
            };
            let Some((name, hidden)) = self.again.name(&old, is_taken)? else { continue };
            let hash = self.session_hash(&name);
            self.tx.execute(
                "UPDATE sessions SET name = ?3, name_hash = ?4 WHERE tenant = ?1 AND session = ?2",
                params![at.tenant, session, name, hash.as_slice()],
            )?;
            add(&mut self.told.hidden, &hidden);
            self.told.sessions += 1;
            self.touched.insert(at.scope);
        }
        Ok(())
    }

    fn key_names(&mut self, tenant: &Tenant) -> Result<()> {
        for key in api_keys::list(self.tx, Some(tenant))? {
            let name = key.name.as_ref().and_then(|name| self.again.text(name.as_str()));
            let Some((name, hidden)) = name else { continue };
            api_keys::rename(self.tx, &key.id, &name)?;
            add(&mut self.told.hidden, &hidden);
            self.told.keys += 1;
        }
        Ok(())
    }

    fn session_hash(&self, name: &str) -> [u8; 16] {
        self.key.identity_key().hash_name("session", name)
    }

    fn exists(&self, sql: &str, values: impl engine::Params) -> Result<bool> {
        let exists = self.tx.prepare_cached(sql).and_then(|mut query| query.exists(values));
        exists
    }

    /// Answers the dreams whose entries are dropped or change.
    fn entries(&mut self, at: ScopeNo) -> Result<Touched> {
        // Also those that have expired or ended, as long as they are there.
        let mut changed = Vec::new();
        for entry in entries::kept(self.tx, at)? {
            if let Some(new) = self.again.entry(&entry.content, &entry.tags) {
                changed.push((entry, new));
            }
        }
        let dropped = self.entries_made_of(at, &changed)?;
        let ids = changed.iter().map(|(entry, _)| &entry.id).chain(&dropped);
        let touched = dream_loss::by_entries(self.tx, at, ids.map(String::as_str))?;
        changed.retain(|(entry, _)| !dropped.contains(&entry.id));
        for (entry, (content, tags, hidden)) in changed {
            let larger = entry_bytes(&content, &tags) - entry_bytes(&entry.content, &entry.tags);
            usage::change(self.tx, at.tenant, Change::bytes(larger))?;
            let tags: Vec<&str> = tags.iter().map(RedactedText::as_str).collect();
            self.tx
                .execute(
                    "UPDATE entries SET content = ?4, tags = ?5 WHERE tenant = ?1 AND scope = ?2 AND id = ?3",
                    params![
                        at.tenant,
                        at.scope,
                        entry.id,
                        content.as_str().as_bytes(),
                        serde_json::json!(tags).to_string()
                    ],
                )?;
            self.hidden_at(at, engine::number(entry.began.0), &hidden)?;
            self.told.entries += 1;
            self.touched.insert(at.scope);
        }
        Ok(touched)
    }

    /// Drops the entries that were made of others whose words change: they may hold a
    /// part of a secret, which nothing finds. Answers which.
    fn entries_made_of(
        &mut self,
        at: ScopeNo,
        changed: &[(EntryRecord, Rewritten)],
    ) -> Result<BTreeSet<String>> {
        let has_new_words =
            |(old, (content, ..)): &&(EntryRecord, Rewritten)| old.content != *content;
        let sources: Vec<String> =
            changed.iter().filter(has_new_words).map(|(old, _)| old.id.clone()).collect();
        let dropped = erase::entries::drop_quoting(self.tx, at, &sources)?;
        self.told.derived += dropped.len() as u64;
        Ok(dropped)
    }

    /// Answers the dreams that may have read what changes.
    fn verdicts(
        &mut self,
        at: ScopeNo,
        scope: &Scope,
        fact_ids: &mut BTreeMap<String, String>,
    ) -> Result<Touched> {
        let mut first = None;
        for verdict in facts::verdicts(self.tx, scope)? {
            let Some((fact, hidden)) = self.again.fact(&verdict.fact) else { continue };
            let (old, new) = (verdict.fact.key(), fact.key());
            fact_ids.insert(old.to_string(), new.to_string());
            let position = engine::number(verdict.position.0);
            first = first.or(Some(position));
            let stands = self.make_way(at, position, new.0.as_slice())?;
            self.tx.execute(
                "UPDATE verdicts SET key = ?4, subject = ?5, fact = ?6
                     WHERE tenant = ?1 AND scope = ?2 AND position = ?3",
                params![
                    at.tenant,
                    at.scope,
                    position,
                    new.0.as_slice(),
                    normalise(fact.subject.as_str()),
                    facts::write_fact(&fact)
                ],
            )?;
            if stands {
                self.hidden_at(at, position, &hidden)?;
            }
            self.told.verdicts += 1;
            self.touched.insert(at.scope);
        }
        dream_loss::after(self.tx, at, first)
    }

    /// Lets the last verdict of a key stand; answers whether that is the one at
    /// `position`, which is about to get the key.
    fn make_way(&self, at: ScopeNo, position: i64, key: &[u8]) -> Result<bool> {
        let other: Option<i64> = self
            .tx
            .query_row(
                "SELECT position FROM verdicts WHERE tenant = ?1 AND scope = ?2 AND key = ?3 AND position != ?4",
                params![at.tenant, at.scope, key, position],
                |row| row.get(0),
            )
            .optional()?;
        let Some(other) = other else { return Ok(true) };
        let loser = position.min(other);
        let gone = [at.tenant, at.scope, loser];
        self.tx.execute(
            "DELETE FROM verdicts WHERE tenant = ?1 AND scope = ?2 AND position = ?3",
            gone,
        )?;
        self.tx.execute(
            "DELETE FROM hidden WHERE tenant = ?1 AND scope = ?2 AND position = ?3",
            gone,
        )?;
        Ok(loser != position)
    }

    /// Answers the memory's new name, if it gets one.
    fn memory(&mut self, at: ScopeNo, scope: &Scope) -> Result<Option<String>> {
        let old = scope.memory();
        let is_taken = |name: &str| {
            let taken = "SELECT 1 FROM scopes WHERE tenant = ?1 AND memory = ?2";
            self.exists(taken, params![at.tenant, name])
        };
        let Some((name, hidden)) = self.again.name(old, is_taken)? else { return Ok(None) };
        self.tx.execute(
            "UPDATE scopes SET memory = ?3 WHERE tenant = ?1 AND scope = ?2",
            params![at.tenant, at.scope, name],
        )?;
        add(&mut self.told.hidden, &hidden);
        self.told.memories.push(old.to_owned());
        self.touched.insert(at.scope);
        Ok(Some(name))
    }

    fn events(
        &mut self,
        tenant: i64,
        fact_ids: &BTreeMap<String, String>,
        renamed: &BTreeMap<i64, String>,
    ) -> Result<()> {
        let rewrite = || -> Result<_> {
            let mut query =
                self.tx.prepare("SELECT position, scope, payload FROM log WHERE tenant = ?1")?;
            let mut rows = query.query([tenant])?;
            let mut changed: Vec<(i64, String)> = Vec::new();
            while let Some(row) = rows.next()? {
                let scope: Option<i64> = row.get(1)?;
                let memory = scope.and_then(|scope| renamed.get(&scope)).map(String::as_str);
                let clean = self.again.payload(row.get_ref(2)?.as_str()?, fact_ids, memory);
                if let Some(clean) = clean {
                    changed.push((row.get(0)?, clean));
                }
            }
            for (position, payload) in &changed {
                self.tx.execute(
                    "UPDATE log SET payload = ?3 WHERE tenant = ?1 AND position = ?2",
                    params![tenant, position, payload],
                )?;
            }
            Ok(changed.len() as u64)
        };
        self.told.events += rewrite()?;
        Ok(())
    }

    fn outcomes(&mut self, tenant: i64, now: Millis) -> Result<()> {
        let rewrite = || -> Result<_> {
            self.tx.execute(
                "DELETE FROM outcomes WHERE tenant = ?1 AND at <= ?2",
                [tenant, now.0.saturating_sub(OUTCOME_KEPT_MILLIS)],
            )?;
            // In order of time, so that of two that come to share a key the last stands.
            let kept: Vec<(String, String, Vec<u8>)> = self
                .tx
                .prepare("SELECT operation, key, body FROM outcomes WHERE tenant = ?1 ORDER BY at, operation, key")?
                .query_map([tenant], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
                .collect::<Result<_>>()?;
            let mut changed = 0;
            for (operation, key, body) in kept {
                let body = String::from_utf8_lossy(&body).into_owned();
                let (new_key, new_body) = (self.again.text(&key), self.again.json(&body));
                if new_key.is_none() && new_body.is_none() {
                    continue;
                }
                let new_key = new_key.map_or_else(|| key.clone(), |(key, _)| key.into_string());
                // One that has that key already gives way.
                if new_key != key {
                    self.tx.execute(
                        "DELETE FROM outcomes WHERE tenant = ?1 AND operation = ?2 AND key = ?3",
                        params![tenant, operation, new_key],
                    )?;
                }
                self.tx.execute(
                    "UPDATE outcomes SET key = ?4, body = ?5
                     WHERE tenant = ?1 AND operation = ?2 AND key = ?3",
                    params![tenant, operation, key, new_key, new_body.unwrap_or(body).as_bytes()],
                )?;
                changed += 1;
            }
            Ok(changed)
        };
        self.told.outcomes = rewrite()?;
        Ok(())
    }
}

impl Store {
    /// Puts everything else that a tenant has in words through a redactor, in one
    /// step: names of sessions and memories, entries, verdicts, all kept versions of
    /// files, runs, commitments, handoffs, the log, kept answers. A name that is taken gets a
    /// number; a file whose path holds a secret becomes `redacted-1`, or the next
    /// number that is free, also in runs, which leave out one that is not there any
    /// more; of verdicts that say the same now the last stands. Entries that were made of
    /// one whose content changes are dropped as with [`Store::erase_entries`], and what
    /// they stood for is in force again: they may hold a part of a secret, which nobody
    /// finds. So are handoffs that were made of one whose text changes; counts of its
    /// tokens stay. Where a summary or fact has something to hide, all that was derived in
    /// its scope is dropped as with [`Store::drop_derived`]. If anything of this changes
    /// but names of keys, the log and kept answers, all that models answered is dropped.
    /// Epochs of the scopes touched rise.
    pub async fn rewrite_told(
        &self,
        tenant: &Tenant,
        redactor: Arc<Redactor>,
        now: Millis,
    ) -> Result<Told> {
        let tenant = tenant.clone();
        self.write(Isolation::from(&tenant), "rewrite_told", move |tx| {
            rewrite(tx, &tenant, &redactor, now)
        })
        .await
    }
}

#[cfg(test)]
mod tests {

    use crate::engine::tx::Isolation;
    use icecore_domain::ids::Principal;

    use super::Tx;
    use crate::StoreError;
    use crate::contract::commitments::new_commitment;
    use crate::contract::fixtures::*;
    use crate::contract::runs::{new_run, write};
    use crate::store::Store;
    use crate::*;

    async fn change(store: &Store, sql: &'static str) {
        store.write(Isolation::Global, "test", move |tx| tx.execute_batch(sql)).await.unwrap();
    }

    #[tokio::test]
    async fn a_failure_on_the_way_leaves_everything_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), None).unwrap();
        add(&store, "of q8Zk2Lm9Xw", &say_many(1)).await;
        let diary = scope_of("acme", "diary");
        let session = store.append(&diary, batch("d", &say_many(1))).await.unwrap().session;
        let source = icecore_domain::ids::TurnId { session, seq: icecore_domain::ids::Seq(1) };
        let facts = vec![drawn_fact(fact("Ana", "x"), source)];
        let batch = FactBatch {
            seen_through: Default::default(),
            through: Default::default(),
            facts,
            secrets_seen: 1,
        };
        assert!(store.put_facts(&diary, batch).await.unwrap());
        change(&store, "UPDATE facts SET kind = 'no such kind'").await;
        let redactor = redactor_of(&["q8Zk2Lm9Xw"]);
        let failed = store.rewrite_told(&tenant("acme"), redactor.clone(), NOW).await;
        assert!(matches!(failed, Err(StoreError::Database(_))));
        let name = async || {
            store.sessions(&scope(), None, 1).await.unwrap().remove(0).name.unwrap().to_string()
        };
        assert_eq!(name().await, "of q8Zk2Lm9Xw");
        assert_eq!(stats(&store).await.epoch, 0);
        change(&store, "DELETE FROM facts").await;
        store.rewrite_told(&tenant("acme"), redactor.clone(), NOW).await.unwrap();
        assert_eq!(name().await, redactor.name("of q8Zk2Lm9Xw").as_str());
    }

    #[tokio::test]
    async fn a_summary_that_cannot_be_read_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), None).unwrap();
        let session = add(&store, "s", &say_many(4)).await;
        summarize(&store, session).await;
        change(&store, "UPDATE summaries SET summary = x'00' WHERE number = 1").await;
        let redactor = redactor_of(&["q8Zk2Lm9Xw"]);
        let told = store.rewrite_told(&tenant("acme"), redactor, NOW).await.unwrap();
        assert_eq!((told.derived, stats(&store).await.summaries), (3, [0; 3]));
        clean(&store).await;
    }

    #[tokio::test]
    async fn a_run_or_a_commitment_that_cannot_be_read_keeps_nothing_from_being_hidden() {
        let acme = tenant("acme");
        let workspace = Principal::local_operator(acme.clone()).workspace();
        for (sql, emptied, voided) in [
            ("UPDATE workflow_runs SET status = 'lost' WHERE run = 'a'", true, false),
            ("UPDATE workflow_runs SET inputs = '{' WHERE run = 'a'", true, false),
            ("UPDATE workflow_runs SET inputs = CAST(x'ff' AS TEXT) WHERE run = 'a'", true, false),
            ("UPDATE run_events SET payload = CAST(x'ff' AS TEXT) WHERE run = 'a'", true, false),
            (
                "UPDATE commitments SET mentions = CAST(x'ff' AS TEXT) WHERE entry = 'a'",
                false,
                true,
            ),
            ("UPDATE commitments SET state = 9 WHERE entry = 'a'", false, false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open(dir.path(), None).unwrap();
            add(&store, "of q8Zk2Lm9Xw", &say_many(1)).await;
            let mut ids = Vec::new();
            for id in ["a", "b"] {
                let workflow = "by q8Zk2Lm9Xw".to_owned();
                let run = NewRun { workflow, ..new_run(id) };
                store.create_run(&workspace, run).await.unwrap();
                let tag = Some(text("for q8Zk2Lm9Xw"));
                let condition = Condition::Predicate { tag: tag.clone(), mentions: tag };
                let new = new_commitment(Intention::New(write("notes", id).entry), condition);
                ids.push(store.put_commitment(&scope(), new).await.unwrap().id);
            }
            change(&store, sql).await;
            let redactor = redactor_of(&["q8Zk2Lm9Xw"]);
            let told = store.rewrite_told(&acme, redactor, NOW).await.unwrap();
            assert_eq!((told.runs, told.commitments, told.sessions), (2, 2, 1), "{sql}");
            let left = "SELECT (SELECT count(*) FROM workflow_runs WHERE workflow LIKE '%q8Zk%')
                 + (SELECT count(*) FROM commitments
                    WHERE tag LIKE '%q8Zk%' OR mentions LIKE '%q8Zk%')";
            let count = |tx: &Tx<'_>| tx.query_row(left, [], |row| row.get::<_, i64>(0));
            assert_eq!(store.read(Isolation::Global, "test", count).await.unwrap(), 0, "{sql}");
            // What cannot be read is given up; the other goes on.
            let run = store.run(&acme, "a").await.unwrap().unwrap();
            let is_over = run.status == RunStatus::Failed && run.expired_at == Some(NOW);
            assert_eq!(is_over, emptied, "{sql}");
            assert_eq!(store.run(&acme, "b").await.unwrap().unwrap().status, RunStatus::Pending);
            if let Ok(found) = store.commitment(&acme, &ids[0]).await {
                assert_eq!(found.unwrap().state == CommitmentState::Void, voided, "{sql}");
                clean(&store).await;
            }
            let other = store.commitment(&acme, &ids[1]).await.unwrap().unwrap();
            assert_eq!(other.state, CommitmentState::Pending, "{sql}");
        }
    }
}
