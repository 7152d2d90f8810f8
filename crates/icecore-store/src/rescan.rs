//! Redacts a tenant's stored text again, in every table but those of turns.
//!
//! Each kind of text has rules of its own for what else changes with it. They run in an order
//! in which each finds what the earlier ones left: first what is in a memory, then what names
//! memories, files and facts, which may have got new names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Scope, Tenant};
use icecore_domain::redact::{Hidden, Redactor};
use icecore_domain::text::normalise;
use icecore_domain::time::Millis;

use crate::bounds::{Change, entry_bytes, tags_json};
use crate::engine::prelude::*;
use crate::entries::{EntryRecord, commitments};
use crate::erase::dreams as dream_loss;
use crate::erase::dreams::Touched;
use crate::host::runs::Renamed;
use crate::host::{api_keys, runs, workspace};
use crate::log::hidden;
use crate::outcomes::OUTCOME_KEPT_MILLIS;
use crate::reredact::{Reredactor, RewriteCounts, RewrittenEntry, add};
use crate::store::Store;
use crate::turns::{recalled, rows};
use crate::{answers, dreams, entries, erase, facts, handoffs, layers, scopes, usage};

/// Derived rows that are read at a time.
const PAGE: usize = 500;

impl Store {
    /// Redacts all stored text of a tenant but its turns again, in one step: names of
    /// sessions, memories and API keys, entries, verdicts, all stored versions of files,
    /// runs, commitments, handoffs, the log, and outcomes of idempotent requests.
    ///
    /// - A new name that is taken gets a number. A file whose path holds a secret becomes
    ///   `redacted-1`, or the next number that is free, also in runs; a run drops such a
    ///   file from its list if that no longer exists.
    /// - Of verdicts that say the same afterwards the last stays.
    /// - Entries made of one whose content changes are dropped as by
    ///   [`Store::erase_entries`], because they may hold a part of a secret, which no
    ///   redactor finds; what they replaced is in force again. Handoffs made of one whose
    ///   text changes are dropped too; counts of its tokens stay.
    /// - If a summary or fact holds something to hide, all derived data of its scope is
    ///   dropped as by [`Store::drop_derived`].
    /// - If anything changes but names of keys, the log and outcomes, all cached answers of
    ///   models are dropped. Epochs of the scopes touched rise.
    pub async fn rewrite_stored_text(
        &self,
        tenant: &Tenant,
        redactor: Arc<Redactor>,
        now: Millis,
    ) -> Result<RewriteCounts> {
        self.write(tenant, "rewrite_stored_text", move |tx| {
            let Some((tenant, key)) = scopes::find_tenant(tx, tx.tenant()?)? else {
                return Ok(RewriteCounts::default());
            };
            let rescan = Rescan {
                tx,
                tenant,
                key: key.identity_key(),
                redactor: Reredactor(&redactor),
                now,
                fact_ids: BTreeMap::new(),
                memories: BTreeMap::new(),
                touched: BTreeSet::new(),
                counts: RewriteCounts::default(),
            };
            rescan.run()
        })
        .await
    }
}

struct Rescan<'a> {
    tx: &'a Tx<'a>,
    tenant: i64,
    key: IdentityKey,
    redactor: Reredactor<'a>,
    now: Millis,
    fact_ids: BTreeMap<String, String>,
    /// Old and new names of renamed memories, by their numbers.
    memories: BTreeMap<i64, (String, String)>,
    touched: BTreeSet<i64>,
    counts: RewriteCounts,
}

impl Rescan<'_> {
    fn run(mut self) -> Result<RewriteCounts> {
        let (tx, tenant, now) = (self.tx, self.tenant, self.now);
        let scopes = "SELECT scope FROM scopes WHERE tenant = ?1 ORDER BY scope";
        for scope in tx.all(scopes, [tenant], column)? {
            self.scope(ScopeNo { tenant, scope })?;
        }
        let renamed = Renamed {
            memories: self.memories.values().cloned().collect(),
            files: workspace::rewrite(tx, tenant, &self.redactor, &mut self.counts)?,
        };
        self.counts.runs = runs::rewrite(tx, tenant, &self.redactor, &renamed, now)?;
        self.counts.commitments = commitments::rewrite(tx, tenant, &self.redactor, now)?;
        if self.counts != RewriteCounts::default() || answers::hides(tx, tenant, &self.redactor)? {
            answers::forget_all(tx, tenant)?;
        }
        recalled::lose_all(tx, tenant)?;
        handoffs::lose_usage(tx, tenant, self.redactor.0)?;
        self.events()?;
        self.key_names()?;
        for scope in std::mem::take(&mut self.touched) {
            rows::raise_epoch(tx, ScopeNo { tenant, scope })?;
            self.counts.touched.push(scopes::scope_of(tx, tenant, scope)?);
        }
        // Last, since a risen epoch deletes many of them.
        self.outcomes()?;
        Ok(self.counts)
    }

    fn scope(&mut self, at: ScopeNo) -> Result<()> {
        let scope = scopes::scope_of(self.tx, at.tenant, at.scope)?;
        let mut dreams = self.derived(at, &scope)?;
        self.sessions(at)?;
        dreams.extend(self.entries(at)?);
        dreams.extend(self.verdicts(at, &scope)?);
        self.dreams(at, &scope, dreams)?;
        self.handoffs(at)?;
        self.memory_name(at, &scope)
    }

    fn changed(&mut self, at: ScopeNo, hidden: &Hidden) {
        add(&mut self.counts.hidden, hidden);
        self.touched.insert(at.scope);
    }

    /// Drops the derived data of a scope if any of it holds something to hide. Returns the
    /// dreams that may have read it.
    fn derived(&mut self, at: ScopeNo, scope: &Scope) -> Result<Touched> {
        if !self.hides_in_summaries(scope)? && !self.hides_in_facts(scope)? {
            return Ok(Touched::new());
        }
        self.counts.derived += layers::drop_all(self.tx, at)?;
        self.touched.insert(at.scope);
        dream_loss::after(self.tx, at, Some(0))
    }

    fn hides_in_summaries(&self, scope: &Scope) -> Result<bool> {
        let found = any_in_pages(
            |after| layers::summaries_after(self.tx, scope, after, PAGE),
            |(number, _)| *number,
            |(_, chunk)| chunk.summary.as_ref().is_some_and(|it| self.redactor.finds_in(it)),
        );
        match found {
            // An unreadable summary may hold anything, and can be made anew.
            Err(error) if error.is_damage() => Ok(true),
            found => found,
        }
    }

    fn hides_in_facts(&self, scope: &Scope) -> Result<bool> {
        any_in_pages(
            |after| facts::after(self.tx, scope, after, PAGE),
            |record| record.number,
            |record| self.redactor.fact(&record.fact).is_some(),
        )
    }

    fn sessions(&mut self, at: ScopeNo) -> Result<()> {
        let named: Vec<(i64, String)> = self.tx.all(
            "SELECT session, name FROM sessions WHERE tenant = ?1 AND scope = ?2
               AND name IS NOT NULL ORDER BY session",
            [at.tenant, at.scope],
            tuple,
        )?;
        for (session, old) in named {
            let hash = |name: &str| self.key.hash_name("session", name);
            let new = self.redactor.name(&old, |name| {
                self.tx.finds(
                    "SELECT 1 FROM sessions WHERE tenant = ?1 AND scope = ?2 AND name_hash = ?3",
                    params![at.tenant, at.scope, hash(name)],
                )
            })?;
            let Some((name, hidden)) = new else { continue };
            self.tx.change(
                "UPDATE sessions SET name = ?3, name_hash = ?4 WHERE tenant = ?1 AND session = ?2",
                params![at.tenant, session, name, hash(&name)],
            )?;
            self.counts.sessions += 1;
            self.changed(at, &hidden);
        }
        Ok(())
    }

    /// Returns the dreams that wrote entries that are dropped or change.
    fn entries(&mut self, at: ScopeNo) -> Result<Touched> {
        let mut changed = Vec::new();
        for entry in entries::kept(self.tx, at)? {
            if let Some(new) = self.redactor.entry(&entry.content, &entry.tags) {
                changed.push((entry, new));
            }
        }
        let dropped = self.drop_entries_made_of(at, &changed)?;
        let ids = changed.iter().map(|(entry, _)| &entry.id).chain(&dropped);
        let touched = dream_loss::by_entries(self.tx, at, ids.map(String::as_str))?;
        changed.retain(|(entry, _)| !dropped.contains(&entry.id));
        for (entry, (content, tags, hidden)) in changed {
            let larger = entry_bytes(&content, &tags) - entry_bytes(&entry.content, &entry.tags);
            usage::change(self.tx, at.tenant, Change::bytes(larger))?;
            let content = content.as_str().as_bytes();
            self.tx.change(
                "UPDATE entries SET content = ?4, tags = ?5
                 WHERE tenant = ?1 AND scope = ?2 AND id = ?3",
                params![at.tenant, at.scope, entry.id, content, tags_json(&tags)],
            )?;
            hidden::put_hidden(self.tx, at, number(entry.began.0), &hidden)?;
            self.counts.entries += 1;
            self.changed(at, &hidden);
        }
        Ok(touched)
    }

    /// Drops the entries that were made of others whose content changes: they may hold a
    /// part of a secret, which no redactor finds. Returns their ids.
    fn drop_entries_made_of(
        &mut self,
        at: ScopeNo,
        changed: &[(EntryRecord, RewrittenEntry)],
    ) -> Result<BTreeSet<String>> {
        let has_new_content =
            |(old, (content, ..)): &&(EntryRecord, RewrittenEntry)| old.content != *content;
        let sources: Vec<String> =
            changed.iter().filter(has_new_content).map(|(old, _)| old.id.clone()).collect();
        let dropped = erase::entries::drop_quoting(self.tx, at, &sources)?;
        self.counts.derived += dropped.len() as u64;
        Ok(dropped)
    }

    /// Returns the dreams that may have read verdicts that change.
    fn verdicts(&mut self, at: ScopeNo, scope: &Scope) -> Result<Touched> {
        let mut first = None;
        for verdict in facts::verdicts(self.tx, scope)? {
            let Some((fact, hidden)) = self.redactor.fact(&verdict.fact) else { continue };
            let (old, new) = (verdict.fact.key(), fact.key());
            self.fact_ids.insert(old.to_string(), new.to_string());
            let position = number(verdict.position.0);
            first = first.or(Some(position));
            let stays = self.delete_older_verdict(at, position, new.0)?;
            let (subject, fact) = (normalise(fact.subject.as_str()), facts::write_fact(&fact));
            self.tx.change(
                "UPDATE verdicts SET key = ?4, subject = ?5, fact = ?6
                 WHERE tenant = ?1 AND scope = ?2 AND position = ?3",
                params![at.tenant, at.scope, position, new.0, subject, fact],
            )?;
            self.counts.verdicts += 1;
            self.touched.insert(at.scope);
            if stays {
                hidden::put_hidden(self.tx, at, position, &hidden)?;
                add(&mut self.counts.hidden, &hidden);
            }
        }
        dream_loss::after(self.tx, at, first)
    }

    /// Deletes the older of two verdicts that come to share a key: the one at `position`,
    /// which is about to get it, or the one that has it. Returns whether the former stays.
    fn delete_older_verdict(&self, at: ScopeNo, position: i64, key: [u8; 8]) -> Result<bool> {
        let other: Option<i64> = self.tx.first(
            "SELECT position FROM verdicts
             WHERE tenant = ?1 AND scope = ?2 AND key = ?3 AND position != ?4",
            params![at.tenant, at.scope, key, position],
            column,
        )?;
        let Some(other) = other else { return Ok(true) };
        let older = position.min(other);
        for table in ["verdicts", "hidden"] {
            self.tx.change(
                &format!("DELETE FROM {table} WHERE tenant = ?1 AND scope = ?2 AND position = ?3"),
                [at.tenant, at.scope, older],
            )?;
        }
        Ok(older != position)
    }

    /// Drops the dreams that read what changed, or whose own text holds something to hide.
    fn dreams(&mut self, at: ScopeNo, scope: &Scope, mut touched: Touched) -> Result<()> {
        for (number, texts) in dreams::texts(self.tx, at)? {
            if texts.iter().any(|text| self.redactor.json(text).is_some()) {
                touched.insert(number);
            }
        }
        if !touched.is_empty() {
            let going = dream_loss::Going::Erased;
            self.counts.derived +=
                dream_loss::lose(self.tx, (scope, at), &touched, going, self.now)?;
            self.touched.insert(at.scope);
        }
        Ok(())
    }

    fn handoffs(&mut self, at: ScopeNo) -> Result<()> {
        let done = handoffs::rewrite(self.tx, at, &self.redactor)?;
        self.counts.derived += done.dropped;
        if done.rewritten > 0 {
            self.counts.handoffs += done.rewritten;
            self.changed(at, &done.hidden);
        }
        Ok(())
    }

    fn memory_name(&mut self, at: ScopeNo, scope: &Scope) -> Result<()> {
        let old = scope.memory();
        let new = self.redactor.name(old, |name| {
            let sql = "SELECT 1 FROM scopes WHERE tenant = ?1 AND memory = ?2";
            self.tx.finds(sql, params![at.tenant, name])
        })?;
        let Some((name, hidden)) = new else { return Ok(()) };
        self.tx.change(
            "UPDATE scopes SET memory = ?3 WHERE tenant = ?1 AND scope = ?2",
            params![at.tenant, at.scope, name],
        )?;
        self.counts.memories.push(old.to_owned());
        self.memories.insert(at.scope, (old.to_owned(), name));
        self.changed(at, &hidden);
        Ok(())
    }

    fn events(&mut self) -> Result<()> {
        let mut changed: Vec<(i64, String)> = Vec::new();
        let sql = "SELECT position, scope, payload FROM log WHERE tenant = ?1";
        self.tx.all(sql, [self.tenant], |row| {
            let (position, scope, payload): (_, Option<i64>, String) = tuple(row)?;
            let memory = scope.and_then(|scope| self.memories.get(&scope));
            let memory = memory.map(|(_, new)| new.as_str());
            let clean = self.redactor.payload(&payload, &self.fact_ids, memory);
            changed.extend(clean.map(|clean| (position, clean)));
            Ok(())
        })?;
        for (position, payload) in &changed {
            self.tx.change(
                "UPDATE log SET payload = ?3 WHERE tenant = ?1 AND position = ?2",
                params![self.tenant, position, payload],
            )?;
        }
        self.counts.events += changed.len() as u64;
        Ok(())
    }

    fn key_names(&mut self) -> Result<()> {
        for key in api_keys::list(self.tx, Some(self.tx.tenant()?))? {
            let new = key.name.as_ref().and_then(|name| self.redactor.text(name.as_str()));
            let Some((name, hidden)) = new else { continue };
            api_keys::rename(self.tx, &key.id, &name)?;
            add(&mut self.counts.hidden, &hidden);
            self.counts.keys += 1;
        }
        Ok(())
    }

    fn outcomes(&mut self) -> Result<()> {
        let (tx, tenant) = (self.tx, self.tenant);
        tx.change(
            "DELETE FROM outcomes WHERE tenant = ?1 AND at <= ?2",
            [tenant, self.now.0.saturating_sub(OUTCOME_KEPT_MILLIS)],
        )?;
        // In order of time, so that of two that come to share a key the last stays.
        let outcomes: Vec<(String, String, Vec<u8>)> = tx.all(
            "SELECT operation, key, body FROM outcomes WHERE tenant = ?1 ORDER BY at, operation, key",
            [tenant],
            tuple,
        )?;
        for (operation, key, body) in outcomes {
            let body = String::from_utf8_lossy(&body).into_owned();
            let (new_key, new_body) = (self.redactor.text(&key), self.redactor.json(&body));
            if new_key.is_none() && new_body.is_none() {
                continue;
            }
            let new_key = new_key.map_or_else(|| key.clone(), |(key, _)| key.into_string());
            if new_key != key {
                tx.change(
                    "DELETE FROM outcomes WHERE tenant = ?1 AND operation = ?2 AND key = ?3",
                    params![tenant, operation, new_key],
                )?;
            }
            let new_body = new_body.unwrap_or(body);
            tx.change(
                "UPDATE outcomes SET key = ?4, body = ?5
                 WHERE tenant = ?1 AND operation = ?2 AND key = ?3",
                params![tenant, operation, key, new_key, new_body.as_bytes()],
            )?;
            self.counts.outcomes += 1;
        }
        Ok(())
    }
}

/// Whether any row satisfies `hides`; `page` reads a page of rows after a number.
fn any_in_pages<T>(
    page: impl Fn(u64) -> Result<Vec<T>>,
    number: impl Fn(&T) -> u64,
    hides: impl Fn(&T) -> bool,
) -> Result<bool> {
    let mut after = 0;
    loop {
        let rows = page(after)?;
        let Some(last) = rows.last() else { return Ok(false) };
        if rows.iter().any(&hides) {
            return Ok(true);
        }
        after = number(last);
    }
}

#[cfg(test)]
mod tests {

    use crate::engine::tx::Isolation;
    use icecore_domain::ids::Principal;

    use super::{Tx, column};
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
        let failed = store.rewrite_stored_text(&tenant("acme"), redactor.clone(), NOW).await;
        assert!(matches!(failed, Err(StoreError::Database(_))));
        let name = async || {
            store.sessions(&scope(), None, 1).await.unwrap().remove(0).name.unwrap().to_string()
        };
        assert_eq!(name().await, "of q8Zk2Lm9Xw");
        assert_eq!(stats(&store).await.epoch, 0);
        change(&store, "DELETE FROM facts").await;
        store.rewrite_stored_text(&tenant("acme"), redactor.clone(), NOW).await.unwrap();
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
        let told = store.rewrite_stored_text(&tenant("acme"), redactor, NOW).await.unwrap();
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
            let told = store.rewrite_stored_text(&acme, redactor, NOW).await.unwrap();
            assert_eq!((told.runs, told.commitments, told.sessions), (2, 2, 1), "{sql}");
            let left = "SELECT (SELECT count(*) FROM workflow_runs WHERE workflow LIKE '%q8Zk%')
                 + (SELECT count(*) FROM commitments
                    WHERE tag LIKE '%q8Zk%' OR mentions LIKE '%q8Zk%')";
            let count = |tx: &Tx<'_>| tx.one(left, [], column::<i64>);
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
