//! Facts drawn from turns, and what people think of them.

use std::collections::BTreeMap;

use icecore_domain::fact::{FactKey, FactKind, RedactedFact, Verdict, normalise};
use icecore_domain::ids::{Position, Scope, Seq, SessionNo, TurnId};
use icecore_domain::redact::{Hidden, RedactedText};
use icecore_domain::time::Millis;

use crate::engine::tx::{Isolation, ScopeNo, Tx};
use crate::engine::{Row, params};
use crate::error::{Result, StoreError};
use crate::log::{hidden, payload_with};
use crate::store::Store;
use crate::turns::recalled;
use crate::turns::rows::{ERASED, EXPIRED};
use crate::{engine, log, scopes, secrets};

/// Facts drawn from turns.
#[derive(Debug, Clone)]
pub struct FactBatch {
    /// The watermark as the caller saw it.
    pub seen_through: Position,
    /// The new watermark.
    pub through: Position,
    /// The facts.
    pub facts: Vec<NewFact>,
    /// The version of the tenant's secrets that they were redacted with.
    pub secrets_seen: u64,
}

/// A fact to record.
#[derive(Debug, Clone)]
pub struct NewFact {
    /// What it says.
    pub fact: RedactedFact,
    /// The turn that it quotes.
    pub source: TurnId,
    /// That turn's time.
    pub at: Millis,
    /// Now.
    pub recorded_at: Millis,
}

/// A fact as recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactRecord {
    /// Which of the scope's facts it is.
    pub number: u64,
    /// What it says.
    pub fact: RedactedFact,
    /// The turn that it quotes.
    pub source: TurnId,
    /// That turn's time.
    pub at: Millis,
    /// When it was drawn.
    pub recorded_at: Millis,
}

/// A verdict to record.
#[derive(Debug, Clone)]
pub struct NewVerdict {
    /// On what.
    pub fact: RedactedFact,
    /// What a person thinks of it.
    pub verdict: Verdict,
    /// The turn that the fact quotes, with which the verdict goes; none if the
    /// person told it.
    pub source: Option<TurnId>,
    /// Now.
    pub now: Millis,
    /// The version of the tenant's secrets with which the fact was redacted.
    pub secrets_seen: u64,
    /// What was hidden in it.
    pub hidden: Hidden,
}

/// A verdict as recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerdictRecord {
    /// On what.
    pub fact: RedactedFact,
    /// What a person thinks of it.
    pub verdict: Verdict,
    /// The turn that the fact quotes.
    pub source: Option<TurnId>,
    /// When it was said.
    pub at: Millis,
    /// Where in the log.
    pub position: Position,
}

// Facts

pub(crate) fn put(tx: &Tx<'_>, scope: &Scope, batch: &FactBatch) -> Result<bool> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(false) };
    secrets::refuse_changed(tx, scope.tenant(), batch.secrets_seen)?;
    let put = || -> Result<_> {
        if read_through(tx, no)? != batch.seen_through || !sources_are_there(tx, no, batch)? {
            return Ok(false);
        }
        let before = scopes::take_numbers(tx, no, "facts", batch.facts.len())?;
        for (number, new) in (before + 1..).zip(&batch.facts) {
            insert(tx, no, number, new)?;
        }
        tx.prepare_cached("UPDATE scopes SET facts_through = ?3 WHERE tenant = ?1 AND scope = ?2")?
            .execute([no.tenant, no.scope, engine::number(batch.through.0)])?;
        Ok(true)
    };
    put()
}

fn sources_are_there(tx: &Tx<'_>, no: ScopeNo, batch: &FactBatch) -> Result<bool> {
    for new in &batch.facts {
        if !is_there(tx, no, new.source, ERASED | EXPIRED)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether it is a turn of the scope with none of these flags.
fn is_there(tx: &Tx<'_>, no: ScopeNo, id: TurnId, flags: i64) -> Result<bool> {
    tx.prepare_cached(
        "SELECT 1 FROM turns t
         JOIN sessions o ON o.tenant = t.tenant AND o.session = t.session AND o.scope = ?4
         WHERE t.tenant = ?1 AND t.session = ?2 AND t.seq = ?3 AND t.flags & ?5 = 0",
    )?
    .exists([
        no.tenant,
        engine::number(id.session.0),
        engine::number(id.seq.0),
        no.scope,
        flags,
    ])
}

fn insert(tx: &Tx<'_>, no: ScopeNo, number: i64, new: &NewFact) -> Result<()> {
    let fact = &new.fact;
    tx.prepare_cached(
        "INSERT INTO facts (tenant, scope, number, key, kind, subject, fact, valid_from, session, seq, at, recorded_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?
    .execute(params![
        no.tenant,
        no.scope,
        number,
        fact.key().0.as_slice(),
        fact.kind.as_str(),
        normalise(fact.subject.as_str()),
        write_fact(fact),
        fact.valid_from.0,
        new.source.session.0 as i64,
        new.source.seq.0 as i64,
        new.at.0,
        new.recorded_at.0,
    ])?;
    Ok(())
}

pub(crate) fn through(tx: &Tx<'_>, scope: &Scope) -> Result<Position> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Position(0)) };
    read_through(tx, no)
}

fn read_through(tx: &Tx<'_>, no: ScopeNo) -> Result<Position> {
    tx.prepare_cached("SELECT facts_through FROM scopes WHERE tenant = ?1 AND scope = ?2")?
        .query_row([no.tenant, no.scope], |row| row.get::<_, i64>(0))
        .map(|through| Position(through as u64))
}

const COLUMNS: &str = "kind, fact, valid_from, session, seq, at, number, recorded_at";

pub(crate) fn after(
    tx: &Tx<'_>,
    scope: &Scope,
    after: u64,
    limit: usize,
) -> Result<Vec<FactRecord>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    tx.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM facts WHERE tenant = ?1 AND scope = ?2 AND number > ?3
         ORDER BY number LIMIT ?4"
    ))
    .and_then(|mut q| {
        let bounds = [no.tenant, no.scope, engine::number(after), engine::number(limit as u64)];
        q.query_map(bounds, read_record)?.collect()
    })
}

pub(crate) fn at(tx: &Tx<'_>, scope: &Scope, numbers: &[u64]) -> Result<Vec<FactRecord>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    let read = || -> Result<_> {
        let mut query = tx.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM facts WHERE tenant = ?1 AND scope = ?2 AND number = ?3"
        ))?;
        let key = |number: &u64| vec![no.tenant, no.scope, engine::number(*number)];
        let keys: Vec<_> = numbers.iter().map(key).map(engine::integers).collect();
        Ok(query.query_each(&keys, read_record)?.into_iter().flatten().collect())
    };
    read()
}

pub(crate) fn of(tx: &Tx<'_>, scope: &Scope, key: FactKey) -> Result<Vec<FactRecord>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    tx.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM facts INDEXED BY facts_by_key
         WHERE tenant = ?1 AND scope = ?2 AND key = ?3 ORDER BY number"
    ))
    .and_then(|mut q| {
        q.query_map(params![no.tenant, no.scope, key.0.as_slice()], read_record)?.collect()
    })
}

fn read_record(row: &Row<'_>) -> Result<FactRecord> {
    Ok(FactRecord {
        fact: read_fact(row)?,
        source: TurnId {
            session: SessionNo(row.get::<_, i64>(3)? as u64),
            seq: Seq(row.get::<_, i64>(4)? as u64),
        },
        at: Millis(row.get(5)?),
        number: row.get::<_, i64>(6)? as u64,
        recorded_at: Millis(row.get(7)?),
    })
}

/// The texts of a fact as its row keeps them.
pub(crate) fn write_fact(fact: &RedactedFact) -> Vec<u8> {
    let RedactedFact { subject, attribute, value, text, quote, .. } = fact;
    let texts = [subject, attribute, value, text, quote].map(RedactedText::as_str);
    serde_json::json!(texts).to_string().into_bytes()
}

/// A fact from the columns kind, fact and valid_from, which come first.
#[expect(clippy::disallowed_methods, reason = "the fact comes from our own rows")]
fn read_fact(row: &Row<'_>) -> Result<RedactedFact> {
    let kind: String = row.get(0)?;
    let kind = FactKind::parse(&kind).ok_or_else(|| broken(0, format!("no such kind: {kind}")))?;
    let texts: [String; 5] = serde_json::from_slice(row.get_ref(1)?.as_blob()?)
        .map_err(|error| broken(1, error.to_string()))?;
    let [subject, attribute, value, text, quote] = texts.map(RedactedText::read_back);
    let valid_from = Millis(row.get(2)?);
    Ok(RedactedFact { kind, subject, attribute, value, text, quote, valid_from })
}

fn broken(column: usize, reason: String) -> StoreError {
    engine::Error::broken(column, reason)
}

// Verdicts

pub(crate) fn put_verdict(tx: &Tx<'_>, scope: &Scope, new: &NewVerdict) -> Result<Position> {
    secrets::refuse_changed(tx, scope.tenant(), new.secrets_seen)?;
    let no = scopes::ensure_scope(tx, scope)?;
    let (fact, key) = (&new.fact, new.fact.key());
    if let Some(turn) = new.source
        && !is_there(tx, no, turn, ERASED)?
    {
        return Err(StoreError::SourceGone { turn });
    }
    let put = || -> Result<_> {
        let kind = format!("fact.{}", new.verdict.as_str());
        let payload = serde_json::json!({ "memoryRef": scope.memory(), "factId": key.to_string() });
        let payload = payload_with(payload, &new.hidden);
        let position = log::record(tx, no.tenant, Some(no.scope), &kind, &payload, new.now)?;
        // What was thought before goes, and what was hidden in it.
        hidden::forget_hidden(
            tx,
            "SELECT position FROM verdicts WHERE tenant = ?1 AND scope = ?2 AND key = ?3",
            params![no.tenant, no.scope, key.0.as_slice()],
        )?;
        tx.prepare_cached(
            "INSERT INTO verdicts (tenant, scope, key, verdict, kind, subject, fact, valid_from,
                session, seq, at, position)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
             ON CONFLICT (tenant, scope, key) DO UPDATE
               SET verdict = excluded.verdict, kind = excluded.kind, subject = excluded.subject,
                 fact = excluded.fact, valid_from = excluded.valid_from,
                 session = excluded.session, seq = excluded.seq, at = excluded.at,
                 position = excluded.position",
        )?
        .execute(params![
            no.tenant,
            no.scope,
            key.0.as_slice(),
            new.verdict.as_str(),
            fact.kind.as_str(),
            normalise(fact.subject.as_str()),
            write_fact(fact),
            fact.valid_from.0,
            new.source.map(|source| engine::number(source.session.0)),
            new.source.map(|source| engine::number(source.seq.0)),
            new.now.0,
            position.0 as i64,
        ])?;
        hidden::put_hidden(tx, no, position.0 as i64, &new.hidden)?;
        if new.verdict == Verdict::Rejected {
            recalled::lose(tx, no)?;
        }
        Ok(position)
    };
    put()
}

pub(crate) fn verdicts(tx: &Tx<'_>, scope: &Scope) -> Result<Vec<VerdictRecord>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    tx.prepare_cached(
        "SELECT kind, fact, valid_from, session, seq, at, verdict, position
         FROM verdicts INDEXED BY verdicts_by_position
         WHERE tenant = ?1 AND scope = ?2 ORDER BY position",
    )
    .and_then(|mut q| q.query_map([no.tenant, no.scope], read_verdict)?.collect())
}

fn read_verdict(row: &Row<'_>) -> Result<VerdictRecord> {
    let source: (Option<i64>, Option<i64>) = (row.get(3)?, row.get(4)?);
    let source = source
        .0
        .zip(source.1)
        .map(|(session, seq)| TurnId { session: SessionNo(session as u64), seq: Seq(seq as u64) });
    let verdict: String = row.get(6)?;
    Ok(VerdictRecord {
        fact: read_fact(row)?,
        verdict: Verdict::parse(&verdict)
            .ok_or_else(|| broken(6, format!("no such verdict: {verdict}")))?,
        source,
        at: Millis(row.get(5)?),
        position: Position(row.get::<_, i64>(7)? as u64),
    })
}

// Erasure

/// Lets go of what quotes a turn.
pub(crate) fn erase_quoting(tx: &Tx<'_>, tenant: i64, session: i64, seq: i64) -> Result<usize> {
    let facts = tx
        .prepare_cached(
            "DELETE FROM facts INDEXED BY facts_by_source WHERE tenant = ?1 AND session = ?2 AND seq = ?3",
        )?
        .execute([tenant, session, seq])?;
    hidden::forget_hidden(
        tx,
        "SELECT position FROM verdicts INDEXED BY verdicts_by_source
         WHERE tenant = ?1 AND session = ?2 AND seq = ?3",
        [tenant, session, seq],
    )?;
    let verdicts = tx
        .prepare_cached(
            "DELETE FROM verdicts INDEXED BY verdicts_by_source WHERE tenant = ?1 AND session = ?2 AND seq = ?3",
        )?
        .execute([tenant, session, seq])?;
    Ok(facts + verdicts)
}

/// Facts are drawn anew from the first turn on.
pub(crate) fn drop_all(tx: &Tx<'_>, no: ScopeNo) -> Result<usize> {
    tx.execute(
        "UPDATE scopes SET facts_through = 0 WHERE tenant = ?1 AND scope = ?2",
        [no.tenant, no.scope],
    )?;
    tx.execute("DELETE FROM facts WHERE tenant = ?1 AND scope = ?2", [no.tenant, no.scope])
}

/// Where verdicts that quote turns of a session were put, by `seq`: the first of each.
pub(crate) fn verdicts_on(tx: &Tx<'_>, tenant: i64, session: i64) -> Result<BTreeMap<i64, i64>> {
    tx.prepare_cached(
        "SELECT seq, min(position) FROM verdicts INDEXED BY verdicts_by_source
         WHERE tenant = ?1 AND session = ?2 AND session IS NOT NULL GROUP BY seq",
    )?
    .query_map([tenant, session], |row| Ok((row.get(0)?, row.get(1)?)))?
    .collect()
}

impl Store {
    /// Records facts drawn from turns up to a position and moves the scope's
    /// watermark there. Answers false, having done nothing, when the watermark is
    /// not the one given any more or a source is not a turn of the scope that is
    /// there. Each fact gets the scope's next number. As with an append, it may be
    /// [`StoreError::SecretsChanged`].
    pub async fn put_facts(&self, scope: &Scope, batch: FactBatch) -> Result<bool> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "put_facts", move |tx| put(tx, &scope, &batch)).await
    }

    /// Facts have been drawn from the turns up to here.
    pub async fn facts_through(&self, scope: &Scope) -> Result<Position> {
        let scope = scope.clone();
        self.read(Isolation::from(&scope), "facts_through", move |tx| through(tx, &scope)).await
    }

    /// All facts of the scope by number.
    pub async fn facts(&self, scope: &Scope) -> Result<Vec<FactRecord>> {
        self.facts_after(scope, 0, usize::MAX).await
    }

    /// Facts by number, after `after`.
    pub async fn facts_after(
        &self,
        scope: &Scope,
        after: u64,
        limit: usize,
    ) -> Result<Vec<FactRecord>> {
        let scope = scope.clone();
        self.read(Isolation::from(&scope), "facts_after", move |tx| {
            self::after(tx, &scope, after, limit)
        })
        .await
    }

    /// The facts with these numbers, in the order asked; what is not there is left
    /// out.
    pub async fn facts_at(&self, scope: &Scope, numbers: &[u64]) -> Result<Vec<FactRecord>> {
        let (scope, numbers) = (scope.clone(), numbers.to_vec());
        self.read(Isolation::from(&scope), "facts_at", move |tx| at(tx, &scope, &numbers)).await
    }

    /// The facts that say the same, by number.
    pub async fn facts_of(&self, scope: &Scope, key: FactKey) -> Result<Vec<FactRecord>> {
        let scope = scope.clone();
        self.read(Isolation::from(&scope), "facts_of", move |tx| of(tx, &scope, key)).await
    }

    /// Records what a person thinks of a fact, in place of what was thought before,
    /// and logs `fact.added`, `fact.confirmed` or `fact.rejected`. A source that is
    /// not a turn of the scope, or was erased, is [`StoreError::SourceGone`]. It is
    /// ground: [`Store::drop_derived`] leaves it. As with an append, it may be
    /// [`StoreError::SecretsChanged`].
    pub async fn put_verdict(&self, scope: &Scope, verdict: NewVerdict) -> Result<Position> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "put_verdict", move |tx| {
            put_verdict(tx, &scope, &verdict)
        })
        .await
    }

    /// What people think, in the order in which they said it.
    pub async fn verdicts(&self, scope: &Scope) -> Result<Vec<VerdictRecord>> {
        let scope = scope.clone();
        self.read(Isolation::from(&scope), "verdicts", move |tx| verdicts(tx, &scope)).await
    }
}
