//! What a tenant has in words besides turns, put through a redactor again.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Position, SessionName};
use icecore_domain::redact::{Hidden, Redactor};
use icecore_domain::time::Millis;

use super::derivation::{Going, going_with};
use super::dreams::{self, Touched};
use super::pyramid::drop_all;
use super::state::{TenantState, stored_text};
use crate::runs::Renamed;
use crate::store::*;
use crate::told::{Again, add};

pub(super) fn rewrite(
    tenant: &mut TenantState,
    key: &IdentityKey,
    redactor: &Redactor,
    now: Millis,
) -> Told {
    let mut work = Work { tenant, key, again: Again(redactor), told: Told::default() };
    let mut touched = BTreeSet::new();
    let (mut fact_ids, mut names) = (BTreeMap::new(), Renamed::default());
    for at in 0..work.tenant.scopes.len() {
        let before = work.told.clone();
        let mut dreams = work.derived(at, &mut touched);
        work.sessions(at);
        dreams.extend(work.entries(at));
        dreams.extend(work.verdicts(at, &mut fact_ids));
        let memory = work.tenant.scopes[at].memory.clone();
        super::handoffs::rewrite(work.tenant, &memory, &work.again, &mut work.told);
        if work.dreams(at, dreams, now) {
            touched.insert(at);
        }
        names.memories.extend(work.memory(at));
        if work.told != before {
            touched.insert(at);
        }
    }
    names.files = super::workspace::rewrite(work.tenant, &work.again, &mut work.told);
    work.told.runs = super::runs::rewrite(work.tenant, &work.again, &names);
    work.told.commitments = super::commitments::rewrite(work.tenant, &work.again);
    super::handoffs::retell_answers(work.tenant, &work.again, &work.told);
    work.tenant.lose_recalled(None);
    let is_same = |model: &str| redactor.name(model).as_str() == model;
    work.tenant.usage.retain(|(_, _, model), _| is_same(model));
    work.events(&fact_ids);
    let Work { tenant, again, mut told, .. } = work;
    for at in touched {
        let memory = tenant.scopes[at].memory.clone();
        tenant.raise_epoch(&memory);
        told.touched.push(tenant.scope(&memory));
    }
    told.outcomes = outcomes(tenant, &again, now);
    told
}

struct Work<'a> {
    tenant: &'a mut TenantState,
    key: &'a IdentityKey,
    again: Again<'a>,
    told: Told,
}

impl Work<'_> {
    /// Answers the dreams that may have read what is dropped.
    fn derived(&mut self, at: usize, touched: &mut BTreeSet<usize>) -> Touched {
        let memory = self.tenant.scopes[at].memory.clone();
        if !self.hides_in_derived(at, &memory) {
            return Touched::new();
        }
        self.told.derived += drop_all(self.tenant, &memory);
        touched.insert(at);
        dreams::after(self.tenant, &memory, Some(Position(0)))
    }

    /// Loses the dreams that read what changed, or tell of something that is hidden now;
    /// answers whether there are any.
    fn dreams(&mut self, at: usize, mut touched: Touched, now: Millis) -> bool {
        let memory = self.tenant.scopes[at].memory.clone();
        touched.extend(dreams::telling(self.tenant, &memory, &self.again));
        self.told.derived +=
            dreams::lose(self.tenant, &memory, &touched, dreams::Going::Erased, now);
        !touched.is_empty()
    }

    fn hides_in_derived(&self, at: usize, memory: &str) -> bool {
        let branches = self.tenant.sessions_of(Some(memory)).flat_map(|s| s.branches.values());
        let chunks = branches.flat_map(|branch| &branch.chunks);
        let mut summaries = chunks.filter_map(|chunk| chunk.summary.as_ref());
        let mut facts = self.tenant.scopes[at].facts.iter();
        summaries.any(|(_, summary)| self.again.finds_in(summary))
            || facts.any(|record| self.again.fact(&record.fact).is_some())
    }

    fn sessions(&mut self, at: usize) {
        let memory = self.tenant.scopes[at].memory.clone();
        for index in 0..self.tenant.sessions.len() {
            let session = &self.tenant.sessions[index];
            let Some(old) = session.name.as_ref().filter(|_| session.memory == memory) else {
                continue;
            };
            let hash = |name: &str| self.key.hash_name("session", name);
            let others = || self.tenant.sessions_of(Some(&memory));
            let is_taken = |name: &str| Ok(others().any(|s| s.name_hash == hash(name)));
            let Ok(Some((name, hidden))) = self.again.name(old.as_str(), is_taken) else {
                continue;
            };
            let name_hash = hash(&name);
            let session = &mut self.tenant.sessions[index];
            session.name = SessionName::new(stored_text(&name)).ok();
            session.name_hash = name_hash;
            add(&mut self.told.hidden, &hidden);
            self.told.sessions += 1;
        }
    }

    /// Answers the dreams whose entries are dropped or change.
    fn entries(&mut self, at: usize) -> Touched {
        let memory = self.tenant.scopes[at].memory.clone();
        let mut ids = self.entries_made_of(&memory);
        let mut counted = Vec::new();
        for entry in self.tenant.entries.iter_mut().filter(|entry| entry.memory == memory) {
            let record = &mut entry.record;
            let again = self.again.entry(&record.content, &record.tags);
            let Some((content, tags, hidden)) = again else { continue };
            (record.content, record.tags) = (content, tags);
            counted.push((record.began, hidden));
            ids.insert(record.id.clone());
            self.told.entries += 1;
        }
        self.count(&memory, counted);
        dreams::by_entries(self.tenant, &memory, &ids)
    }

    /// Drops the entries that were made of others whose words change; answers which.
    fn entries_made_of(&mut self, memory: &str) -> BTreeSet<String> {
        let mine = self.tenant.entries.iter().filter(|entry| entry.memory == memory);
        let changed = mine.map(|entry| &entry.record).filter(|record| {
            let again = self.again.entry(&record.content, &record.tags);
            again.is_some_and(|(content, ..)| content != record.content)
        });
        let changed: Vec<Position> = changed.map(|record| record.began).collect();
        let how = Going::Quoting;
        let mut dropped = going_with(self.tenant, memory, &changed, Millis(0), how);
        let all = dropped.clone();
        let quotes = &self.tenant.quotes;
        dropped.retain(|made| quotes.iter().any(|(of, by)| by == made && all.contains(of)));
        let ids = dreams::ids_of(self.tenant, &dropped);
        if !dropped.is_empty() {
            super::derivation::delete(self.tenant, memory, &dropped);
            super::commitments::forget_erased(self.tenant, memory);
            self.tenant.keep_entries_from(memory, Position(self.tenant.position.0 + 1));
            self.told.derived += dropped.len() as u64;
        }
        ids
    }

    fn count(&mut self, memory: &str, counted: Vec<(Position, Hidden)>) {
        for (position, hidden) in counted {
            add(&mut self.told.hidden, &hidden);
            self.tenant.add_hidden(memory, position, hidden);
        }
    }

    /// Answers the dreams that may have read what changes.
    fn verdicts(&mut self, at: usize, fact_ids: &mut BTreeMap<String, String>) -> Touched {
        let scope = &mut self.tenant.scopes[at];
        let (mut counted, mut first) = (Vec::new(), None);
        for verdict in scope.verdicts.clone() {
            let Some((fact, hidden)) = self.again.fact(&verdict.fact) else { continue };
            fact_ids.insert(verdict.fact.key().to_string(), fact.key().to_string());
            self.told.verdicts += 1;
            first = first.or(Some(verdict.position));
            let same = |known: &VerdictRecord| known.fact.key() == fact.key();
            let is_later = |known: &VerdictRecord| known.position > verdict.position;
            match scope.verdicts.iter().any(|known| same(known) && is_later(known)) {
                true => scope.verdicts.retain(|known| known.position != verdict.position),
                false => {
                    scope.verdicts.retain(|k| !same(k) || k.position == verdict.position);
                    let mut known = scope.verdicts.iter_mut();
                    if let Some(known) = known.find(|known| known.position == verdict.position) {
                        known.fact = fact;
                    }
                    counted.push((verdict.position, hidden));
                }
            }
        }
        let memory = scope.memory.clone();
        self.count(&memory, counted);
        self.tenant.prune_hidden();
        dreams::after(self.tenant, &memory, first)
    }

    /// Answers the old name and the new, if the memory gets one.
    fn memory(&mut self, at: usize) -> Option<(String, String)> {
        let old = self.tenant.scopes[at].memory.clone();
        let scopes = &self.tenant.scopes;
        let is_taken = |name: &str| Ok(scopes.iter().any(|scope| scope.memory == name));
        let Ok(Some((name, hidden))) = self.again.name(&old, is_taken) else { return None };
        let tenant = &mut *self.tenant;
        let sessions = tenant.sessions.iter_mut().map(|session| &mut session.memory);
        let entries = tenant.entries.iter_mut().map(|entry| &mut entry.memory);
        let log = tenant.log.iter_mut().filter_map(|record| record.memory.as_mut());
        let counts = tenant.hidden.values_mut().map(|(memory, _)| memory);
        let places = sessions.chain(entries).chain(log).chain(counts);
        places.filter(|memory| **memory == old).for_each(|memory| memory.clone_from(&name));
        tenant.scopes[at].memory.clone_from(&name);
        let scope = tenant.scope(&name);
        super::commitments::rename(tenant, &old, &scope);
        super::schedules::rename(tenant, &old, &scope);
        dreams::rename(tenant, &old, &scope);
        add(&mut self.told.hidden, &hidden);
        self.told.memories.push(old.clone());
        Some((old, name))
    }

    fn events(&mut self, fact_ids: &BTreeMap<String, String>) {
        let renamed = !self.told.memories.is_empty();
        for record in &mut self.tenant.log {
            let memory = record.memory.as_deref().filter(|_| renamed);
            if let Some(clean) = self.again.payload(&record.event.payload, fact_ids, memory) {
                record.event.payload = clean;
                self.told.events += 1;
            }
        }
    }
}

fn outcomes(tenant: &mut TenantState, again: &Again<'_>, now: Millis) -> u64 {
    let mut changed = 0;
    let mut kept: Vec<_> = std::mem::take(&mut tenant.outcomes).into_iter().collect();
    kept.retain(|(_, (_, at))| at.0 > now.0.saturating_sub(OUTCOME_KEPT_MILLIS));
    kept.sort_by_key(|(_, (_, at))| *at);
    for ((operation, key), (mut outcome, at)) in kept {
        let (new_key, body) = (again.text(&key), again.json(&outcome.body));
        changed += u64::from(new_key.is_some() || body.is_some());
        outcome.body = body.unwrap_or(outcome.body);
        let key = new_key.map_or(key, |(key, _)| key.into_string());
        tenant.outcomes.insert((operation, key), (outcome, at));
    }
    changed
}
