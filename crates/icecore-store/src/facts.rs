//! Facts drawn from turns, and what people think of them.

use std::collections::BTreeMap;

use icecore_domain::fact::{FactKind, RedactedFact, Verdict};
use icecore_domain::ids::{Position, Scope, TurnId};
use icecore_domain::redact::{Hidden, RedactedText};
use icecore_domain::text::normalise;
use icecore_domain::time::Millis;

use crate::engine::prelude::*;
use crate::log::{hidden, payload_with};
use crate::store::Store;
use crate::turns::recalled;
use crate::turns::rows::{ERASED, EXPIRED};
use crate::{log, scopes, secrets};

/// Facts drawn from the turns between two watermarks.
#[derive(Debug, Clone)]
pub struct FactBatch {
    pub seen_through: Position,
    pub through: Position,
    pub facts: Vec<NewFact>,
    pub secrets_seen: u64,
}

#[derive(Debug, Clone)]
pub struct NewFact {
    pub fact: RedactedFact,
    pub source: TurnId,
    pub at: Millis,
    pub recorded_at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactRecord {
    /// Facts of a scope are numbered one after the other.
    pub number: u64,
    pub fact: RedactedFact,
    pub source: TurnId,
    pub at: Millis,
    pub recorded_at: Millis,
}

#[derive(Debug, Clone)]
pub struct NewVerdict {
    pub fact: RedactedFact,
    pub verdict: Verdict,
    /// The turn that the fact quotes, with which the verdict goes; none if the person told it.
    pub source: Option<TurnId>,
    pub now: Millis,
    pub secrets_seen: u64,
    pub hidden: Hidden,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerdictRecord {
    pub fact: RedactedFact,
    pub verdict: Verdict,
    pub source: Option<TurnId>,
    pub at: Millis,
    pub position: Position,
}

impl Store {
    /// Records facts drawn from turns up to a position and moves the scope's watermark there.
    /// Answers false, having done nothing, when the watermark is no longer the one given, or a
    /// source is not a turn of the scope, erased or expired. Each fact gets the scope's next
    /// number. As with an append, it may be [`StoreError::SecretsChanged`].
    pub async fn put_facts(&self, scope: &Scope, batch: FactBatch) -> Result<bool> {
        self.write(scope, "put_facts", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(false) };
            secrets::refuse_changed(tx, tx.tenant()?, batch.secrets_seen)?;
            if scopes::field::<Position>(tx, no, "facts_through")? != batch.seen_through {
                return Ok(false);
            }
            for new in &batch.facts {
                if !is_there(tx, no, new.source, ERASED | EXPIRED)? {
                    return Ok(false);
                }
            }
            let before = scopes::take_numbers(tx, no, "facts", batch.facts.len())?;
            for (number, NewFact { fact, source, at, recorded_at }) in
                (before + 1..).zip(&batch.facts)
            {
                let row = fields! {
                    tenant: no.tenant,
                    scope: no.scope,
                    number: number,
                    key: fact.key().0,
                    kind: fact.kind.as_str(),
                    subject: normalise(fact.subject.as_str()),
                    fact: write_fact(fact),
                    valid_from: fact.valid_from,
                    session: source.session,
                    seq: source.seq,
                    at: at,
                    recorded_at: recorded_at,
                };
                tx.insert("facts", row)?;
            }
            tx.change(
                "UPDATE scopes SET facts_through = ?3 WHERE tenant = ?1 AND scope = ?2",
                params![no.tenant, no.scope, batch.through],
            )?;
            Ok(true)
        })
        .await
    }

    /// The watermark: facts have been drawn from the turns up to here.
    pub async fn facts_through(&self, scope: &Scope) -> Result<Position> {
        self.read(scope, "facts_through", |tx| {
            tx.scope_no()?.map_or(Ok(Position(0)), |no| scopes::field(tx, no, "facts_through"))
        })
        .await
    }

    pub async fn facts(&self, scope: &Scope) -> Result<Vec<FactRecord>> {
        self.facts_after(scope, 0, usize::MAX).await
    }

    pub async fn facts_after(
        &self,
        scope: &Scope,
        after: u64,
        limit: usize,
    ) -> Result<Vec<FactRecord>> {
        self.read(scope, "facts_after", move |tx| self::after(tx, tx.scope()?, after, limit)).await
    }

    /// The facts with these numbers, in the order asked. Those that are not there are left out.
    pub async fn facts_at(&self, scope: &Scope, numbers: &[u64]) -> Result<Vec<FactRecord>> {
        let numbers = numbers.to_vec();
        self.read(scope, "facts_at", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(Vec::new()) };
            let sql = format!("{FACTS} WHERE tenant = ?1 AND scope = ?2 AND number = ?3");
            let keys = numbers.iter().map(|number| values![no.tenant, no.scope, *number]);
            tx.all_of(&sql, keys, tuple)
        })
        .await
    }

    /// Records what a person thinks of a fact, in place of what was thought before, and logs
    /// `fact.added`, `fact.confirmed` or `fact.rejected`. If the source is not a turn of the
    /// scope, or was erased, it is [`StoreError::SourceGone`]. A verdict is ground state:
    /// [`Store::drop_derived`] leaves it. As with an append, it may be
    /// [`StoreError::SecretsChanged`].
    pub async fn put_verdict(&self, scope: &Scope, verdict: NewVerdict) -> Result<Position> {
        self.write(scope, "put_verdict", move |tx| put_verdict(tx, &verdict)).await
    }

    pub async fn verdicts(&self, scope: &Scope) -> Result<Vec<VerdictRecord>> {
        self.read(scope, "verdicts", |tx| verdicts(tx, tx.scope()?)).await
    }
}

/// Whether it is a turn of the scope with none of these flags.
fn is_there(tx: &Tx<'_>, no: ScopeNo, id: TurnId, flags: i64) -> Result<bool> {
    tx.finds(
        "SELECT 1 FROM turns t
         JOIN sessions o ON o.tenant = t.tenant AND o.session = t.session AND o.scope = ?4
         WHERE t.tenant = ?1 AND t.session = ?2 AND t.seq = ?3 AND t.flags & ?5 = 0",
        params![no.tenant, id.session, id.seq, no.scope, flags],
    )
}

const FACTS: &str =
    "SELECT number, kind, fact, valid_from, session, seq, at, recorded_at FROM facts";

record! {
    FactRecord { number, fact, source, at, recorded_at }
}

pub(crate) fn after(
    tx: &Tx<'_>,
    scope: &Scope,
    after: u64,
    limit: usize,
) -> Result<Vec<FactRecord>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    let sql = format!(
        "{FACTS} WHERE tenant = ?1 AND scope = ?2 AND number > ?3 ORDER BY number LIMIT ?4"
    );
    tx.all(&sql, params![no.tenant, no.scope, after, limit], tuple)
}

pub(crate) fn write_fact(fact: &RedactedFact) -> Vec<u8> {
    let RedactedFact { subject, attribute, value, text, quote, .. } = fact;
    let texts = [subject, attribute, value, text, quote].map(RedactedText::as_str);
    serde_json::json!(texts).to_string().into_bytes()
}

/// A fact from the columns kind, fact and valid_from.
impl FromColumns for RedactedFact {
    fn from_columns(columns: &mut Columns<'_, '_>) -> Result<Self> {
        let (kind, texts, valid_from): (String, Vec<u8>, _) = columns.get()?;
        let kind = FactKind::parse(&kind)
            .ok_or_else(|| Error::broken(0, format!("no such kind: {kind}")))?;
        let texts: [RedactedText; 5] = read_texts(&texts)?;
        let [subject, attribute, value, text, quote] = texts;
        Ok(RedactedFact { kind, subject, attribute, value, text, quote, valid_from })
    }
}

#[expect(clippy::disallowed_methods, reason = "the fact comes from our own rows")]
fn read_texts(json: &[u8]) -> Result<[RedactedText; 5]> {
    let texts: [String; 5] =
        serde_json::from_slice(json).map_err(|error| Error::broken(1, error))?;
    Ok(texts.map(RedactedText::read_back))
}

fn put_verdict(tx: &Tx<'_>, new: &NewVerdict) -> Result<Position> {
    secrets::refuse_changed(tx, tx.tenant()?, new.secrets_seen)?;
    let no = tx.ensure_scope()?;
    let (fact, key) = (&new.fact, new.fact.key());
    if let Some(turn) = new.source
        && !is_there(tx, no, turn, ERASED)?
    {
        return Err(StoreError::SourceGone { turn });
    }
    let memory = tx.scope()?.memory();
    let payload = serde_json::json!({ "memoryRef": memory, "factId": key.to_string() });
    let payload = payload_with(payload, &new.hidden);
    let kind = format!("fact.{}", new.verdict.as_str());
    let position = log::record(tx, no.tenant, Some(no.scope), &kind, &payload, new.now)?;
    // What was thought before goes, and what was hidden in it.
    hidden::forget_hidden(
        tx,
        "SELECT position FROM verdicts WHERE tenant = ?1 AND scope = ?2 AND key = ?3",
        params![no.tenant, no.scope, key.0],
    )?;
    let row = fields! {
        tenant: no.tenant,
        scope: no.scope,
        key: key.0,
        verdict: new.verdict.as_str(),
        kind: fact.kind.as_str(),
        subject: normalise(fact.subject.as_str()),
        fact: write_fact(fact),
        valid_from: fact.valid_from,
        session: new.source.map(|source| source.session),
        seq: new.source.map(|source| source.seq),
        at: new.now,
        position: position,
    };
    tx.upsert("verdicts", 3, row)?;
    hidden::put_hidden(tx, no, position, &new.hidden)?;
    if new.verdict == Verdict::Rejected {
        recalled::lose(tx, no)?;
    }
    Ok(position)
}

pub(crate) fn verdicts(tx: &Tx<'_>, scope: &Scope) -> Result<Vec<VerdictRecord>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    tx.all(
        "SELECT kind, fact, valid_from, verdict, session, seq, at, position
         FROM verdicts INDEXED BY verdicts_by_position
         WHERE tenant = ?1 AND scope = ?2 ORDER BY position",
        [no.tenant, no.scope],
        |row| {
            let (fact, verdict, source, at, position): (_, String, Option<(_, _)>, _, _) =
                tuple(row)?;
            let verdict = Verdict::parse(&verdict)
                .ok_or_else(|| Error::broken(3, format!("no such verdict: {verdict}")))?;
            let source = source.map(|(session, seq)| TurnId { session, seq });
            Ok(VerdictRecord { fact, verdict, source, at, position })
        },
    )
}

pub(crate) fn erase_quoting(tx: &Tx<'_>, tenant: i64, session: i64, seq: i64) -> Result<()> {
    let turn = [tenant, session, seq];
    let facts = "facts INDEXED BY facts_by_source WHERE tenant = ?1 AND session = ?2 AND seq = ?3";
    let verdicts =
        "verdicts INDEXED BY verdicts_by_source WHERE tenant = ?1 AND session = ?2 AND seq = ?3";
    tx.change(&format!("DELETE FROM {facts}"), turn)?;
    hidden::forget_hidden(tx, &format!("SELECT position FROM {verdicts}"), turn)?;
    tx.change(&format!("DELETE FROM {verdicts}"), turn)
}

/// Deletes all facts of a scope, so that they are drawn anew from its first turn on.
pub(crate) fn drop_all(tx: &Tx<'_>, no: ScopeNo) -> Result<usize> {
    let scope = [no.tenant, no.scope];
    tx.change("UPDATE scopes SET facts_through = 0 WHERE tenant = ?1 AND scope = ?2", scope)?;
    tx.run("DELETE FROM facts WHERE tenant = ?1 AND scope = ?2", scope)
}

/// Where verdicts that quote turns of a session are in the log, by `seq`: the first of each.
pub(crate) fn verdicts_on(tx: &Tx<'_>, tenant: i64, session: i64) -> Result<BTreeMap<i64, i64>> {
    let found: Vec<(i64, i64)> = tx.all(
        "SELECT seq, min(position) FROM verdicts INDEXED BY verdicts_by_source
         WHERE tenant = ?1 AND session = ?2 AND session IS NOT NULL GROUP BY seq",
        [tenant, session],
        tuple,
    )?;
    Ok(found.into_iter().collect())
}
