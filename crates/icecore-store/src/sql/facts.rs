//! Facts drawn from turns, and what people think of them.

use std::collections::BTreeMap;

use super::engine::{self, Connection, Kind, Owned as Value, Row, params};
use icecore_domain::fact::{FactKey, FactKind, RedactedFact, Verdict, normalise};
use icecore_domain::ids::{Position, Scope, Seq, SessionNo, TurnId};
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;

use super::dream_loss::{self, Touched};
use super::rows::{self, ERASED, EXPIRED, ScopeNo};
use super::{Shared, answers, erase, log, recalled, secrets};
use crate::error::StoreError;
use crate::store::*;

// Facts

pub(super) fn put(c: &Connection, s: &Shared, scope: &Scope, batch: &FactBatch) -> Result<bool> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(false) };
    secrets::refuse_changed(c, s, scope.tenant(), batch.secrets_seen)?;
    let put = || {
        if read_through(c, no)? != batch.seen_through || !sources_are_there(c, no, batch)? {
            return Ok(false);
        }
        let before = rows::take_numbers(c, no, "facts", batch.facts.len())?;
        for (number, new) in (before + 1..).zip(&batch.facts) {
            insert(c, no, number, new)?;
        }
        c.prepare_cached("UPDATE scopes SET facts_through = ?3 WHERE tenant = ?1 AND scope = ?2")?
            .execute([no.tenant, no.scope, rows::number(batch.through.0)])?;
        Ok(true)
    };
    put().map_err(|e: engine::Error| s.failed(e))
}

fn sources_are_there(c: &Connection, no: ScopeNo, batch: &FactBatch) -> engine::Result<bool> {
    for new in &batch.facts {
        if !is_there(c, no, new.source, ERASED | EXPIRED)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether it is a turn of the scope with none of these flags.
fn is_there(c: &Connection, no: ScopeNo, id: TurnId, flags: i64) -> engine::Result<bool> {
    c.prepare_cached(
        "SELECT 1 FROM turns t
         JOIN sessions o ON o.tenant = t.tenant AND o.session = t.session AND o.scope = ?4
         WHERE t.tenant = ?1 AND t.session = ?2 AND t.seq = ?3 AND t.flags & ?5 = 0",
    )?
    .exists([no.tenant, rows::number(id.session.0), rows::number(id.seq.0), no.scope, flags])
}

fn insert(c: &Connection, no: ScopeNo, number: i64, new: &NewFact) -> engine::Result<()> {
    let fact = &new.fact;
    c.prepare_cached(
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

pub(super) fn through(c: &Connection, s: &Shared, scope: &Scope) -> Result<Position> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(Position(0)) };
    read_through(c, no).map_err(|e| s.failed(e))
}

fn read_through(c: &Connection, no: ScopeNo) -> engine::Result<Position> {
    c.prepare_cached("SELECT facts_through FROM scopes WHERE tenant = ?1 AND scope = ?2")?
        .query_row([no.tenant, no.scope], |row| row.get::<_, i64>(0))
        .map(|through| Position(through as u64))
}

const COLUMNS: &str = "kind, fact, valid_from, session, seq, at, number, recorded_at";

pub(super) fn after(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    after: u64,
    limit: usize,
) -> Result<Vec<FactRecord>> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(Vec::new()) };
    c.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM facts WHERE tenant = ?1 AND scope = ?2 AND number > ?3
         ORDER BY number LIMIT ?4"
    ))
    .and_then(|mut q| {
        let bounds = [no.tenant, no.scope, rows::number(after), rows::number(limit as u64)];
        q.query_map(bounds, read_record)?.collect()
    })
    .map_err(|e| s.failed(e))
}

pub(super) fn at(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    numbers: &[u64],
) -> Result<Vec<FactRecord>> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(Vec::new()) };
    let read = || {
        let mut query = c.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM facts WHERE tenant = ?1 AND scope = ?2 AND number = ?3"
        ))?;
        let key = |number: &u64| vec![no.tenant, no.scope, rows::number(*number)];
        let keys: Vec<_> = numbers.iter().map(key).map(engine::integers).collect();
        Ok(query.query_each(&keys, read_record)?.into_iter().flatten().collect())
    };
    read().map_err(|e| s.failed(e))
}

pub(super) fn of(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    key: FactKey,
) -> Result<Vec<FactRecord>> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(Vec::new()) };
    c.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM facts INDEXED BY facts_by_key
         WHERE tenant = ?1 AND scope = ?2 AND key = ?3 ORDER BY number"
    ))
    .and_then(|mut q| {
        q.query_map(params![no.tenant, no.scope, key.0.as_slice()], read_record)?.collect()
    })
    .map_err(|e| s.failed(e))
}

fn read_record(row: &Row<'_>) -> engine::Result<FactRecord> {
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
pub(super) fn write_fact(fact: &RedactedFact) -> Vec<u8> {
    let RedactedFact { subject, attribute, value, text, quote, .. } = fact;
    let texts = [subject, attribute, value, text, quote].map(RedactedText::as_str);
    serde_json::json!(texts).to_string().into_bytes()
}

/// A fact from the columns kind, fact and valid_from, which come first.
#[expect(clippy::disallowed_methods, reason = "the fact comes from our own rows")]
fn read_fact(row: &Row<'_>) -> engine::Result<RedactedFact> {
    let kind: String = row.get(0)?;
    let kind = FactKind::parse(&kind).ok_or_else(|| broken(0, format!("no such kind: {kind}")))?;
    let texts: [String; 5] = serde_json::from_slice(row.get_ref(1)?.as_blob()?)
        .map_err(|error| broken(1, error.to_string()))?;
    let [subject, attribute, value, text, quote] = texts.map(RedactedText::read_back);
    let valid_from = Millis(row.get(2)?);
    Ok(RedactedFact { kind, subject, attribute, value, text, quote, valid_from })
}

fn broken(column: usize, reason: String) -> engine::Error {
    engine::Error::broken(column, reason)
}

// Verdicts

pub(super) fn put_verdict(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    new: &NewVerdict,
) -> Result<Position> {
    secrets::refuse_changed(c, s, scope.tenant(), new.secrets_seen)?;
    let no = rows::ensure_scope(c, s, scope)?;
    let (fact, key) = (&new.fact, new.fact.key());
    if let Some(turn) = new.source
        && !is_there(c, no, turn, ERASED).map_err(|e| s.failed(e))?
    {
        return Err(StoreError::SourceGone { turn });
    }
    let put = || {
        let kind = format!("fact.{}", new.verdict.as_str());
        let payload = serde_json::json!({ "memoryRef": scope.memory(), "factId": key.to_string() });
        let payload = payload_with(payload, &new.hidden);
        let position = log::record(c, no.tenant, Some(no.scope), &kind, &payload, new.now)?;
        // What was thought before goes, and what was hidden in it.
        secrets::forget_hidden(
            c,
            "SELECT position FROM verdicts WHERE tenant = ?1 AND scope = ?2 AND key = ?3",
            params![no.tenant, no.scope, key.0.as_slice()],
        )?;
        c.prepare_cached(
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
            new.source.map(|source| rows::number(source.session.0)),
            new.source.map(|source| rows::number(source.seq.0)),
            new.now.0,
            position.0 as i64,
        ])?;
        secrets::put_hidden(c, no, position.0 as i64, &new.hidden)?;
        if new.verdict == Verdict::Rejected {
            recalled::lose(c, no)?;
        }
        Ok(position)
    };
    put().map_err(|e: engine::Error| s.failed(e))
}

pub(super) fn verdicts(c: &Connection, s: &Shared, scope: &Scope) -> Result<Vec<VerdictRecord>> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(Vec::new()) };
    c.prepare_cached(
        "SELECT kind, fact, valid_from, session, seq, at, verdict, position
         FROM verdicts INDEXED BY verdicts_by_position
         WHERE tenant = ?1 AND scope = ?2 ORDER BY position",
    )
    .and_then(|mut q| q.query_map([no.tenant, no.scope], read_verdict)?.collect())
    .map_err(|e| s.failed(e))
}

fn read_verdict(row: &Row<'_>) -> engine::Result<VerdictRecord> {
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
pub(super) fn erase_quoting(
    c: &Connection,
    tenant: i64,
    session: i64,
    seq: i64,
) -> engine::Result<usize> {
    let facts = c
        .prepare_cached(
            "DELETE FROM facts INDEXED BY facts_by_source WHERE tenant = ?1 AND session = ?2 AND seq = ?3",
        )?
        .execute([tenant, session, seq])?;
    secrets::forget_hidden(
        c,
        "SELECT position FROM verdicts INDEXED BY verdicts_by_source
         WHERE tenant = ?1 AND session = ?2 AND seq = ?3",
        [tenant, session, seq],
    )?;
    let verdicts = c
        .prepare_cached(
            "DELETE FROM verdicts INDEXED BY verdicts_by_source WHERE tenant = ?1 AND session = ?2 AND seq = ?3",
        )?
        .execute([tenant, session, seq])?;
    Ok(facts + verdicts)
}

/// Facts are drawn anew from the first turn on.
pub(super) fn drop_all(c: &Connection, no: ScopeNo) -> engine::Result<usize> {
    c.execute(
        "UPDATE scopes SET facts_through = 0 WHERE tenant = ?1 AND scope = ?2",
        [no.tenant, no.scope],
    )?;
    c.execute("DELETE FROM facts WHERE tenant = ?1 AND scope = ?2", [no.tenant, no.scope])
}

pub(super) fn erase(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    selector: &Selector,
    quoting: &[TurnId],
    dry_run: bool,
    now: Millis,
) -> Result<u64> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(0) };
    let goes = Goes::of(selector, quoting);
    let touched = match dry_run {
        true => Touched::new(),
        false => goes.touched(c, no).map_err(|e| s.failed(e))?,
    };
    let erase = || {
        let mut count = 0;
        for table in ["facts", "verdicts"] {
            count += match dry_run {
                true => goes.count(c, no, table)?,
                false => goes.delete(c, no, table)?,
            };
        }
        if count > 0 && !dry_run {
            erase::raise_epoch(c, no)?;
            answers::forget(c, no, None)?;
        }
        Ok(count)
    };
    let count = erase().map_err(|e: engine::Error| s.failed(e))?;
    dream_loss::lose(c, s, (scope, no), &touched, dream_loss::Going::Erased, now)?;
    Ok(count)
}

/// The dreams that read what an erasure names of facts and verdicts.
pub(super) fn touched(
    c: &Connection,
    no: ScopeNo,
    selector: &Selector,
    quoting: &[TurnId],
) -> engine::Result<Touched> {
    Goes::of(selector, quoting).touched(c, no)
}

/// Where verdicts that quote turns of a session were put, by `seq`: the first of each.
pub(super) fn verdicts_on(
    c: &Connection,
    tenant: i64,
    session: i64,
) -> engine::Result<BTreeMap<i64, i64>> {
    c.prepare_cached(
        "SELECT seq, min(position) FROM verdicts INDEXED BY verdicts_by_source
         WHERE tenant = ?1 AND session = ?2 AND session IS NOT NULL GROUP BY seq",
    )?
    .query_map([tenant, session], |row| Ok((row.get(0)?, row.get(1)?)))?
    .collect()
}

/// What an erasure names in a table of facts or verdicts.
struct Goes {
    condition: &'static str,
    value: Value,
    /// Turns as JSON: session and seq, as the statement joins them.
    quoting: String,
}

impl Goes {
    fn of(selector: &Selector, quoting: &[TurnId]) -> Self {
        let nothing = ("?3 IS NOT NULL", Value::Null(Kind::Integer));
        let (condition, value) = match selector {
            Selector::Session(_) => nothing,
            Selector::Subject { .. } => match selector.subject() {
                Some(subject) => ("subject = ?3", Value::from(subject)),
                None => nothing,
            },
            Selector::Before(at) => ("at < ?3", Value::from(at.0)),
            Selector::Entry(id) => match FactKey::parse(id) {
                Some(key) => ("key = ?3", Value::from(key.0.to_vec())),
                None => nothing,
            },
        };
        let place = |id: &TurnId| format!("{}/{}", id.session.0, id.seq.0);
        let quoting: Vec<_> = quoting.iter().map(place).collect();
        Self { condition, value, quoting: serde_json::json!(quoting).to_string() }
    }

    fn from(&self, table: &str) -> String {
        format!(
            "FROM {table} WHERE tenant = ?1 AND scope = ?2 AND ({} OR session || '/' || seq IN
               (SELECT value FROM json_each(?4)))",
            self.condition
        )
    }

    /// The dreams that read the turns of these facts, or were kept after the verdicts.
    fn touched(&self, c: &Connection, no: ScopeNo) -> engine::Result<Touched> {
        let values = params![no.tenant, no.scope, self.value, self.quoting];
        let first: Option<i64> = c.query_row(
            &format!("SELECT min(position) {}", self.from("verdicts")),
            values,
            |row| row.get(0),
        )?;
        let mut touched = dream_loss::after(c, no, first)?;
        let facts = format!(
            "SELECT DISTINCT d.number FROM (SELECT session AS told, seq AS place {}) g
             JOIN turns t ON t.tenant = ?1 AND t.session = g.told AND t.seq = g.place
             JOIN dream_spans p ON p.tenant = t.tenant AND p.session = t.session
               AND p.branch = t.branch AND p.after < t.ordinal AND t.ordinal <= p.through
             JOIN dreams d ON d.tenant = p.tenant AND d.run = p.run",
            self.from("facts")
        );
        let mut query = c.prepare(&facts)?;
        let found = query.query_map(values, |row| row.get(0))?;
        touched.extend(found.collect::<engine::Result<Vec<i64>>>()?);
        Ok(touched)
    }

    fn count(&self, c: &Connection, no: ScopeNo, table: &str) -> engine::Result<u64> {
        let values = params![no.tenant, no.scope, self.value, self.quoting];
        let count = format!("SELECT count(*) {}", self.from(table));
        c.query_row(&count, values, |row| row.get::<_, i64>(0)).map(|count| count as u64)
    }

    fn delete(&self, c: &Connection, no: ScopeNo, table: &str) -> engine::Result<u64> {
        let values = params![no.tenant, no.scope, self.value, self.quoting];
        if table == "verdicts" {
            secrets::forget_hidden(c, &format!("SELECT position {}", self.from(table)), values)?;
        }
        c.execute(&format!("DELETE {}", self.from(table)), values).map(|gone| gone as u64)
    }
}
