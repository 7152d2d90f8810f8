//! Reading rows: tenants, scopes, sessions, branches, turns.

use icecore_domain::chunk::Level;
use icecore_domain::cut::{CutPolicy, OpenTail};
use icecore_domain::identity::{IdentityKey, TurnIdentity};
use icecore_domain::ids::{
    Branch, Ordinal, Position, Scope, Seq, SessionName, SessionNo, Tenant, TurnId,
};
use icecore_domain::redact::{RedactedText, RedactedTurn};
use icecore_domain::time::Millis;
use icecore_domain::turn_jsonl;

use crate::engine::tx::{Isolation, ScopeNo, Tx};
use crate::engine::{OptionalExtension, Row, params};
use crate::error::Result;
use crate::keys::TenantKey;
use crate::log::ranges::LogOf;
use crate::store::Store;
use crate::turns::{BranchRecord, ScopeHead, SessionRecord, TurnQuery, TurnRow, TurnState};
use crate::{engine, outcomes, scopes};

pub(crate) const HAS_CLIENT_ID: i64 = 1;
pub(crate) const SESSION_GIVEN: i64 = 2;
pub(crate) const ERASED: i64 = 4;
pub(crate) const EXPIRED: i64 = 8;

#[expect(clippy::disallowed_methods, reason = "the name comes from our own rows")]
pub(crate) fn stored_session_name(name: String) -> Option<SessionName> {
    SessionName::new(RedactedText::read_back(name)).ok()
}

pub(crate) fn session_hash(key: &TenantKey, name: &SessionName) -> [u8; 16] {
    key.identity_key().hash_name("session", name.as_str())
}

pub(crate) fn session_by_name(
    tx: &Tx<'_>,
    scope: &Scope,
    name: &SessionName,
) -> Result<Option<SessionRecord>> {
    let (Some(no), Some(key)) =
        (scopes::scope_no(tx, scope)?, scopes::tenant_key(tx, scope.tenant())?)
    else {
        return Ok(None);
    };
    let hash = session_hash(&key, name);
    let found: Option<i64> = tx
        .prepare_cached(
            "SELECT session FROM sessions
             WHERE tenant = ?1 AND scope = ?2 AND name_hash = ?3 AND name IS NOT NULL",
        )
        .and_then(|mut q| {
            q.query_row(params![no.tenant, no.scope, hash.as_slice()], |row| row.get(0)).optional()
        })?;
    match found {
        Some(session) => session_by_number(tx, scope, SessionNo(session as u64)),
        None => Ok(None),
    }
}

const SESSION_COLUMNS: &str = "session, name, turns, tokens, last_seq, updated_at, current";

pub(crate) fn session_by_number(
    tx: &Tx<'_>,
    scope: &Scope,
    session: SessionNo,
) -> Result<Option<SessionRecord>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(None) };
    let found = tx.prepare_cached(&session_sql()).and_then(|mut q| {
        q.query_row(params![no.tenant, session.0 as i64, no.scope], read_session).optional()
    })?;
    let found = with_branches(tx, no.tenant, found.into_iter().collect())?;
    Ok(found.into_iter().next())
}

pub(crate) fn sessions_at(
    tx: &Tx<'_>,
    scope: &Scope,
    sessions: &[SessionNo],
) -> Result<Vec<SessionRecord>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    let key = |session: &SessionNo| vec![no.tenant, engine::number(session.0), no.scope];
    let keys: Vec<_> = sessions.iter().map(key).map(engine::integers).collect();
    let found =
        tx.prepare_cached(&session_sql()).and_then(|mut q| q.query_each(&keys, read_session))?;
    with_branches(tx, no.tenant, found.into_iter().flatten().collect())
}

fn session_sql() -> String {
    format!(
        "SELECT {SESSION_COLUMNS} FROM sessions WHERE tenant = ?1 AND session = ?2 AND scope = ?3"
    )
}

pub(crate) fn sessions(
    tx: &Tx<'_>,
    scope: &Scope,
    after: Option<SessionNo>,
    limit: usize,
) -> Result<Vec<SessionRecord>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    let after = after.map_or(0, |after| engine::number(after.0));
    let found: Vec<SessionRecord> = tx
        .prepare_cached(&format!(
            "SELECT {SESSION_COLUMNS} FROM sessions
             WHERE tenant = ?1 AND session > ?2 AND scope = ?3 AND name IS NOT NULL
             ORDER BY session LIMIT ?4"
        ))
        .and_then(|mut q| {
            let limit = engine::number(limit as u64);
            q.query_map(params![no.tenant, after, no.scope, limit], read_session)?.collect()
        })?;
    with_branches(tx, no.tenant, found)
}

pub(crate) fn recent_sessions(
    tx: &Tx<'_>,
    scope: &Scope,
    limit: usize,
) -> Result<Vec<SessionRecord>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    let found: Vec<SessionRecord> = tx
        .prepare_cached(&format!(
            "SELECT {SESSION_COLUMNS} FROM sessions
             WHERE tenant = ?1 AND scope = ?2 AND name IS NOT NULL
             ORDER BY updated_at DESC, session DESC LIMIT ?3"
        ))
        .and_then(|mut q| {
            let limit = engine::number(limit as u64);
            q.query_map(params![no.tenant, no.scope, limit], read_session)?.collect()
        })?;
    with_branches(tx, no.tenant, found)
}

fn read_session(row: &Row<'_>) -> Result<SessionRecord> {
    let name: Option<String> = row.get(1)?;
    Ok(SessionRecord {
        no: SessionNo(row.get::<_, i64>(0)? as u64),
        name: name.and_then(stored_session_name),
        turns: row.get::<_, i64>(2)? as u64,
        tokens: row.get::<_, i64>(3)? as u64,
        last_seq: Seq(row.get::<_, i64>(4)? as u64),
        updated_at: Millis(row.get(5)?),
        current: Branch(row.get(6)?),
        branches: Vec::new(),
    })
}

fn with_branches(
    tx: &Tx<'_>,
    tenant: i64,
    mut records: Vec<SessionRecord>,
) -> Result<Vec<SessionRecord>> {
    let key = |record: &SessionRecord| vec![tenant, engine::number(record.no.0)];
    let keys: Vec<_> = records.iter().map(key).map(engine::integers).collect();
    let found = tx.prepare_cached(BRANCHES).and_then(|mut q| q.query_each(&keys, read_branch))?;
    for (record, branches) in records.iter_mut().zip(found) {
        record.branches = branches.into_iter().map(|state| state.record).collect();
    }
    Ok(records)
}

/// A branch as its row has it: the record, and the sums of what is open.
#[derive(Debug, Clone)]
pub(crate) struct BranchState {
    pub(crate) record: BranchRecord,
    pub(crate) policy: i64,
    /// First `seq` of the open micro, mini and macro.
    pub(crate) first_seqs: [i64; 3],
    /// Tokens in the open micro, mini and macro.
    pub(crate) tokens: [i64; 3],
}

const BRANCHES: &str = "SELECT branch, fork_branch, fork_ordinal, b.policy, length, head_seq,
            micro_first, mini_first, macro_first, micro_first_seq, mini_first_seq, macro_first_seq,
            micro_tokens, mini_tokens, macro_tokens, warm_through, cold_through,
            micro_through, mini_through, macro_through, version, p.micro, p.mini, p.macro, p.max_tokens
     FROM branches b JOIN policies p ON p.policy = b.policy
     WHERE tenant = ?1 AND session = ?2 ORDER BY branch";

pub(crate) fn branches(tx: &Tx<'_>, tenant: i64, session: SessionNo) -> Result<Vec<BranchState>> {
    tx.prepare_cached(BRANCHES)
        .and_then(|mut q| q.query_map([tenant, session.0 as i64], read_branch)?.collect())
}

fn read_branch(row: &Row<'_>) -> Result<BranchState> {
    let number = |column: usize| row.get::<_, i64>(column);
    let ordinal = |column: usize| row.get::<_, i64>(column).map(|n| Ordinal(n as u64));
    let fork: (Option<u32>, Option<i64>) = (row.get(1)?, row.get(2)?);
    Ok(BranchState {
        policy: number(3)?,
        first_seqs: [number(9)?, number(10)?, number(11)?],
        tokens: [number(12)?, number(13)?, number(14)?],
        record: BranchRecord {
            branch: Branch(row.get(0)?),
            fork: fork.0.zip(fork.1).map(|(branch, at)| (Branch(branch), Ordinal(at as u64))),
            tail: OpenTail {
                length: number(4)? as u64,
                micro_first: number(6)? as u64,
                mini_first: number(7)? as u64,
                macro_first: number(8)? as u64,
                micro_tokens: number(12)? as u64,
                policy: CutPolicy {
                    micro_turns: row.get(21)?,
                    mini_turns: row.get(22)?,
                    macro_turns: row.get(23)?,
                    micro_max_tokens: row.get(24)?,
                },
            },
            head_seq: Seq(number(5)? as u64),
            warm_through: ordinal(15)?,
            cold_through: ordinal(16)?,
            summarized_through: [ordinal(17)?, ordinal(18)?, ordinal(19)?],
            version: number(20)? as u64,
        },
    })
}

pub(crate) const TURN_COLUMNS: &str = "t.session, t.seq, t.position, t.branch, t.ordinal, t.tokens, t.flags, t.at, t.lookup, t.identity, b.body";

pub(crate) fn turns(tx: &Tx<'_>, scope: &Scope, query: &TurnQuery) -> Result<Vec<TurnRow>> {
    let Some(no) = owned(tx, scope, query.session)? else { return Ok(Vec::new()) };
    let order = if query.newest { "DESC" } else { "ASC" };
    let sql = format!(
        "SELECT {TURN_COLUMNS} FROM turns t
         LEFT JOIN bodies b ON b.tenant = t.tenant AND b.session = t.session AND b.seq = t.seq
         WHERE t.tenant = ?1 AND t.session = ?2 AND t.seq > ?3 AND t.seq <= ?4
           AND (?5 IS NULL OR t.branch = ?5) AND (?6 IS NULL OR t.position <= ?6)
         ORDER BY t.seq {order} LIMIT ?7"
    );
    let mut found: Vec<TurnRow> = tx.prepare_cached(&sql).and_then(|mut q| {
        let values = params![
            no.tenant,
            query.session.0 as i64,
            engine::number(query.after.0),
            engine::number(query.through.0),
            query.branch.map(|b| b.0),
            query.as_of.map(|p| engine::number(p.0)),
            engine::number(query.limit as u64),
        ];
        let (mut rows, mut bytes) = (Vec::new(), 0);
        for row in q.query_map(values, read_turn)? {
            let row = row?;
            if query.is_full(&mut bytes, &row) {
                break;
            }
            rows.push(row);
        }
        Ok(rows)
    })?;
    if query.newest {
        found.reverse();
    }
    Ok(found)
}

pub(crate) fn turns_by_lookup(
    tx: &Tx<'_>,
    scope: &Scope,
    session: SessionNo,
    lookup: i64,
) -> Result<Vec<TurnRow>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    tx.prepare_cached(&format!(
        "SELECT {TURN_COLUMNS} FROM turns t INDEXED BY turns_by_lookup
         JOIN sessions o ON o.tenant = t.tenant AND o.session = t.session AND o.scope = ?4
         LEFT JOIN bodies b ON b.tenant = t.tenant AND b.session = t.session AND b.seq = t.seq
         WHERE t.tenant = ?1 AND t.session = ?2 AND t.lookup = ?3 ORDER BY t.seq"
    ))
    .and_then(|mut q| {
        q.query_map(params![no.tenant, session.0 as i64, lookup, no.scope], read_turn)?.collect()
    })
}

pub(crate) fn turns_after(
    tx: &Tx<'_>,
    scope: &Scope,
    after: Position,
    limit: usize,
) -> Result<Vec<TurnRow>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    let read = || -> Result<_> {
        let log = LogOf { tenant: no.tenant, scope: Some(no.scope) };
        let ranges = log.turns_after(tx, engine::number(after.0), limit)?;
        let keys: Vec<_> = ranges.iter().map(|range| range.key(no.tenant)).collect();
        let found = tx.prepare_cached(TURNS_OF_STRETCH)?.query_each(&keys, read_turn)?;
        Ok(found.into_iter().flatten().collect())
    };
    read()
}

pub(crate) const TURNS_OF_STRETCH: &str =
    "SELECT t.session, t.seq, t.position, t.branch, t.ordinal, t.tokens, t.flags, t.at, t.lookup, t.identity, b.body
     FROM turns t
     LEFT JOIN bodies b ON b.tenant = t.tenant AND b.session = t.session AND b.seq = t.seq
     WHERE t.tenant = ?1 AND t.session = ?2 AND t.seq >= ?3 AND t.seq < ?4 ORDER BY t.seq";

pub(crate) fn turns_at(tx: &Tx<'_>, scope: &Scope, ids: &[TurnId]) -> Result<Vec<TurnRow>> {
    match scopes::scope_no(tx, scope)? {
        Some(no) => turns_in(tx, no, ids),
        None => Ok(Vec::new()),
    }
}

pub(crate) fn turns_in(tx: &Tx<'_>, no: ScopeNo, ids: &[TurnId]) -> Result<Vec<TurnRow>> {
    let read = || -> Result<_> {
        let mut query = tx.prepare_cached(&format!(
            "SELECT {TURN_COLUMNS} FROM turns t
             JOIN sessions o ON o.tenant = t.tenant AND o.session = t.session AND o.scope = ?4
             LEFT JOIN bodies b ON b.tenant = t.tenant AND b.session = t.session AND b.seq = t.seq
             WHERE t.tenant = ?1 AND t.session = ?2 AND t.seq = ?3"
        ))?;
        let key = |id: &TurnId| {
            vec![no.tenant, engine::number(id.session.0), engine::number(id.seq.0), no.scope]
        };
        let keys: Vec<_> = ids.iter().map(key).map(engine::integers).collect();
        Ok(query.query_each(&keys, read_turn)?.into_iter().flatten().collect())
    };
    read()
}

pub(crate) fn scope_head(tx: &Tx<'_>, scope: &Scope) -> Result<ScopeHead> {
    let found = tx.prepare_cached(SCOPE_HEAD).and_then(|mut q| {
        q.query_row([scope.tenant().as_str(), scope.memory()], |row| {
            let number =
                |column: usize| row.get::<_, Option<i64>>(column).map(|n| n.unwrap_or(0) as u64);
            Ok(ScopeHead {
                position: Position(number(3)?.max(number(4)?)),
                summaries: number(1)?,
                facts: number(2)?,
                verdicts: Position(number(5)?),
                epoch: number(0)?,
            })
        })
        .optional()
    });
    found.map(Option::unwrap_or_default)
}

pub(crate) const SCOPE_HEAD: &str = "SELECT p.epoch, p.summaries, p.facts,
        (SELECT r.first + r.count - 1 FROM runs r INDEXED BY runs_by_scope
         WHERE r.tenant = p.tenant AND r.scope = p.scope ORDER BY r.first DESC LIMIT 1),
        (SELECT max(e.began) FROM entries e INDEXED BY entries_by_began
         WHERE e.tenant = p.tenant AND e.scope = p.scope),
        (SELECT max(v.position) FROM verdicts v INDEXED BY verdicts_by_position
         WHERE v.tenant = p.tenant AND v.scope = p.scope)
     FROM tenants t JOIN scopes p ON p.tenant = t.tenant WHERE t.name = ?1 AND p.memory = ?2";

pub(crate) fn read_turn(row: &Row<'_>) -> Result<TurnRow> {
    let flags: i64 = row.get(6)?;
    let body: Option<Vec<u8>> = row.get(10)?;
    let identity: Vec<u8> = row.get(9)?;
    Ok(TurnRow {
        id: TurnId {
            session: SessionNo(row.get::<_, i64>(0)? as u64),
            seq: Seq(row.get::<_, i64>(1)? as u64),
        },
        position: Position(row.get::<_, i64>(2)? as u64),
        branch: Branch(row.get(3)?),
        ordinal: Ordinal(row.get::<_, i64>(4)? as u64),
        tokens: row.get(5)?,
        at: Millis(row.get(7)?),
        identity: TurnIdentity {
            lookup: row.get(8)?,
            body: identity.try_into().unwrap_or_default(),
        },
        has_client_id: flags & HAS_CLIENT_ID != 0,
        session_given: flags & SESSION_GIVEN != 0,
        state: turn_state(flags),
        body: body.map(|bytes| read_body(&bytes)).transpose()?,
    })
}

pub(crate) fn turn_state(flags: i64) -> TurnState {
    match flags {
        _ if flags & ERASED != 0 => TurnState::Erased,
        _ if flags & EXPIRED != 0 => TurnState::Expired,
        _ => TurnState::Present,
    }
}

#[expect(clippy::disallowed_methods, reason = "the body comes from our own rows")]
fn read_body(bytes: &[u8]) -> Result<RedactedTurn> {
    let text = std::str::from_utf8(bytes).map_err(|error| engine::Error::broken(10, error))?;
    let line = turn_jsonl::parse_stored(text).map_err(|error| engine::Error::broken(10, error))?;
    Ok(RedactedTurn::read_back(line.turn))
}

/// A turn's fields as its row keeps them.
pub(crate) fn write_body(turn: &RedactedTurn) -> Vec<u8> {
    turn_jsonl::write_fields(&[], turn.fields()).into_bytes()
}

impl Store {
    /// The tenant's key for identities; made on first use, the same ever after.
    pub async fn identity_key(&self, tenant: &Tenant) -> Result<IdentityKey> {
        let name = tenant.clone();
        let known =
            self.read(tenant, "identity_key", move |tx| scopes::tenant_key(tx, &name)).await?;
        if let Some(key) = known {
            return Ok(key.identity_key());
        }
        let name = tenant.clone();
        self.write(tenant, "make_tenant", move |tx| {
            scopes::ensure_tenant(tx, &name).map(|(_, key)| key.identity_key())
        })
        .await
    }

    /// The session of that name, unless it never was or was forgotten whole.
    pub async fn session(
        &self,
        scope: &Scope,
        name: &SessionName,
    ) -> Result<Option<SessionRecord>> {
        let (scope, name) = (scope.clone(), name.clone());
        self.read(Isolation::from(&scope), "session", move |tx| session_by_name(tx, &scope, &name))
            .await
    }

    /// The session of that number, if it is in this scope.
    pub async fn session_by_number(
        &self,
        scope: &Scope,
        no: SessionNo,
    ) -> Result<Option<SessionRecord>> {
        let scope = scope.clone();
        self.read(Isolation::from(&scope), "session_by_number", move |tx| {
            session_by_number(tx, &scope, no)
        })
        .await
    }

    /// The sessions of these numbers, in the order asked; what is not in this scope
    /// is left out.
    pub async fn sessions_at(
        &self,
        scope: &Scope,
        nos: &[SessionNo],
    ) -> Result<Vec<SessionRecord>> {
        let (scope, nos) = (scope.clone(), nos.to_vec());
        self.read(Isolation::from(&scope), "sessions_at", move |tx| sessions_at(tx, &scope, &nos))
            .await
    }

    /// Sessions of the scope by number, after `after`.
    pub async fn sessions(
        &self,
        scope: &Scope,
        after: Option<SessionNo>,
        limit: usize,
    ) -> Result<Vec<SessionRecord>> {
        let scope = scope.clone();
        self.read(Isolation::from(&scope), "sessions", move |tx| sessions(tx, &scope, after, limit))
            .await
    }

    /// The sessions that were appended to last, latest first.
    pub async fn recent_sessions(&self, scope: &Scope, limit: usize) -> Result<Vec<SessionRecord>> {
        let scope = scope.clone();
        self.read(Isolation::from(&scope), "recent_sessions", move |tx| {
            recent_sessions(tx, &scope, limit)
        })
        .await
    }

    /// Rows of turns in order of `seq`; bodies only of those that are hot.
    pub async fn turns(&self, scope: &Scope, query: &TurnQuery) -> Result<Vec<TurnRow>> {
        let (scope, query) = (scope.clone(), *query);
        self.read(Isolation::from(&scope), "turns", move |tx| turns(tx, &scope, &query)).await
    }

    /// The turns in a session that may have this client id, by its lookup.
    pub async fn turns_by_lookup(
        &self,
        scope: &Scope,
        session: SessionNo,
        lookup: i64,
    ) -> Result<Vec<TurnRow>> {
        let scope = scope.clone();
        self.read(Isolation::from(&scope), "turns_by_lookup", move |tx| {
            turns_by_lookup(tx, &scope, session, lookup)
        })
        .await
    }

    /// Where a scope stands; zeros for one that is not, which stays so.
    pub async fn scope_head(&self, scope: &Scope) -> Result<ScopeHead> {
        let scope = scope.clone();
        self.read(Isolation::from(&scope), "scope_head", move |tx| scope_head(tx, &scope)).await
    }

    /// Turns of the scope after a position, of whatever session, in order of
    /// position: tombstones and the expired too, bodies only of those that are hot.
    pub async fn turns_after(
        &self,
        scope: &Scope,
        after: Position,
        limit: usize,
    ) -> Result<Vec<TurnRow>> {
        let scope = scope.clone();
        self.read(Isolation::from(&scope), "turns_after", move |tx| {
            turns_after(tx, &scope, after, limit)
        })
        .await
    }

    /// The turns with these ids, in the order asked; what is not of this scope is
    /// left out. Bodies only of those that are hot.
    pub async fn turns_at(&self, scope: &Scope, ids: &[TurnId]) -> Result<Vec<TurnRow>> {
        let (scope, ids) = (scope.clone(), ids.to_vec());
        self.read(Isolation::from(&scope), "turns_at", move |tx| turns_at(tx, &scope, &ids)).await
    }

    /// The state by which the worker decides what is due in a branch.
    pub async fn branch(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
    ) -> Result<Option<BranchRecord>> {
        let scope = scope.clone();
        self.read(Isolation::from(&scope), "branch", move |tx| {
            let found = session_by_number(tx, &scope, session)?;
            Ok(found.and_then(|found| found.branches.into_iter().find(|b| b.branch == branch)))
        })
        .await
    }
}

/// The scope's numbers, if the session is its own.
pub(crate) fn owned(tx: &Tx<'_>, scope: &Scope, session: SessionNo) -> Result<Option<ScopeNo>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(None) };
    let found: Option<i64> = tx
        .prepare_cached("SELECT 1 FROM sessions WHERE tenant = ?1 AND session = ?2 AND scope = ?3")
        .and_then(|mut q| {
            q.query_row([no.tenant, session.0 as i64, no.scope], |row| row.get(0)).optional()
        })?;
    Ok(found.map(|_| no))
}

pub(crate) fn level_no(level: Level) -> i64 {
    match level {
        Level::Micro => 0,
        Level::Mini => 1,
        Level::Macro => 2,
    }
}

/// Marks that something of the scope was erased, for all who may have kept it.
pub(crate) fn raise_epoch(tx: &Tx<'_>, no: ScopeNo) -> Result<()> {
    outcomes::forget_texts(tx, no.tenant)?;
    tx.execute(
        "UPDATE scopes SET epoch = epoch + 1 WHERE tenant = ?1 AND scope = ?2",
        [no.tenant, no.scope],
    )?;
    crate::turns::recalled::lose(tx, no)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use crate::engine::tx::Isolation;
    use crate::log::ranges::RUNS_OF_SCOPE;

    /// What recall asks must not sort, scan or build an index, whatever is there.
    #[tokio::test]
    async fn reads_of_recall_cost_what_they_answer() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), None).unwrap();
        for sql in
            [RUNS_OF_SCOPE, TURNS_OF_STRETCH, SCOPE_HEAD, &crate::layers::summaries_after_sql()]
        {
            let asked = sql.to_owned();
            let plan = store.read(Isolation::Global, "test", move |tx| tx.plan(&asked));
            for step in plan.await.unwrap() {
                let is_dear =
                    ["SCAN", "TEMP B-TREE", "AUTOMATIC"].iter().any(|word| step.contains(word));
                assert!(!is_dear || step.contains("CONSTANT ROW"), "{step} in {sql}");
            }
        }
    }
}
