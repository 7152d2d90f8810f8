//! Reading rows: tenants, scopes, sessions, branches, turns.

use super::engine::{self, Connection, OptionalExtension, Row, params};
use icecore_domain::cut::{CutPolicy, OpenTail};
use icecore_domain::identity::TurnIdentity;
use icecore_domain::ids::{
    Branch, Ordinal, Position, Scope, Seq, SessionName, SessionNo, Tenant, TurnId,
};
use icecore_domain::redact::{RedactedText, RedactedTurn};
use icecore_domain::time::Millis;
use icecore_domain::turn_jsonl;

use super::stretches::Reach;
use super::{Shared, pyramid};
use crate::error::StoreError;
use crate::keys::TenantKey;
use crate::store::*;

pub(super) const HAS_CLIENT_ID: i64 = 1;
pub(super) const SESSION_GIVEN: i64 = 2;
pub(super) const ERASED: i64 = 4;
pub(super) const EXPIRED: i64 = 8;

/// A number as a column has it; one beyond all others stays that.
pub(super) fn number(number: u64) -> i64 {
    number.min(i64::MAX as u64) as i64
}

/// Numbers that stand for a scope inside.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScopeNo {
    pub(super) tenant: i64,
    pub(super) scope: i64,
}

pub(super) fn tenant_no(c: &Connection, s: &Shared, tenant: &Tenant) -> Result<Option<i64>> {
    c.prepare_cached("SELECT tenant FROM tenants WHERE name = ?1")
        .and_then(|mut q| q.query_row([tenant.as_str()], |row| row.get(0)).optional())
        .map_err(|e| s.failed(e))
}

pub(super) fn tenant_key(c: &Connection, s: &Shared, tenant: &Tenant) -> Result<Option<TenantKey>> {
    let sealed: Option<Vec<u8>> = c
        .prepare_cached("SELECT sealed_key FROM tenants WHERE name = ?1")
        .and_then(|mut q| q.query_row([tenant.as_str()], |row| row.get(0)).optional())
        .map_err(|e| s.failed(e))?;
    sealed.map(|sealed| s.keys.open(c, s, tenant, sealed)).transpose()
}

pub(crate) fn ensure_tenant(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
) -> Result<(i64, TenantKey)> {
    if let Some(key) = tenant_key(c, s, tenant)? {
        let number = tenant_no(c, s, tenant)?.unwrap_or_default();
        return Ok((number, key));
    }
    let key = TenantKey::random();
    let sealed = s.keys.seal(c, s, &key)?;
    let insert = || {
        let number = c.new_tenant_number()?;
        c.prepare_cached("INSERT INTO tenants (tenant, name, sealed_key) VALUES (?1, ?2, ?3)")?
            .execute(params![number, tenant.as_str(), sealed])?;
        Ok(number)
    };
    insert().map(|number| (number, key)).map_err(|e| s.failed(e))
}

pub(super) fn scope_no(c: &Connection, s: &Shared, scope: &Scope) -> Result<Option<ScopeNo>> {
    c.prepare_cached(
        "SELECT t.tenant, s.scope FROM tenants t JOIN scopes s ON s.tenant = t.tenant
         WHERE t.name = ?1 AND s.memory = ?2",
    )
    .and_then(|mut q| {
        q.query_row([scope.tenant().as_str(), scope.memory()], |row| {
            Ok(ScopeNo { tenant: row.get(0)?, scope: row.get(1)? })
        })
        .optional()
    })
    .map_err(|e| s.failed(e))
}

pub(super) fn ensure_scope(c: &Connection, s: &Shared, scope: &Scope) -> Result<ScopeNo> {
    if let Some(found) = scope_no(c, s, scope)? {
        return Ok(found);
    }
    let (tenant, _) = ensure_tenant(c, s, scope.tenant())?;
    c.hold_scopes(tenant).map_err(|e| s.failed(e))?;
    c.query_row(
        "INSERT INTO scopes (tenant, scope, memory)
         SELECT ?1, coalesce(max(scope), 0) + 1, ?2 FROM scopes WHERE tenant = ?1 RETURNING scope",
        params![tenant, scope.memory()],
        |row| Ok(ScopeNo { tenant, scope: row.get(0)? }),
    )
    .map_err(|e| s.failed(e))
}

/// Gives out the next `count` numbers of a scope's counter and answers the last
/// that was given before.
pub(super) fn take_numbers(
    c: &Connection,
    no: ScopeNo,
    counter: &str,
    count: usize,
) -> engine::Result<i64> {
    c.prepare_cached(&format!(
        "UPDATE scopes SET {counter} = {counter} + ?3 WHERE tenant = ?1 AND scope = ?2 RETURNING {counter} - ?3"
    ))?
    .query_row(params![no.tenant, no.scope, count as i64], |row| row.get(0))
}

/// The scope behind its numbers.
pub(super) fn scope_of(c: &Connection, s: &Shared, tenant: i64, scope: i64) -> Result<Scope> {
    let (name, memory): (String, String) = c
        .prepare_cached(
            "SELECT t.name, s.memory FROM tenants t JOIN scopes s ON s.tenant = t.tenant
             WHERE t.tenant = ?1 AND s.scope = ?2",
        )
        .and_then(|mut q| q.query_row([tenant, scope], |row| Ok((row.get(0)?, row.get(1)?))))
        .map_err(|e| s.failed(e))?;
    stored_scope(name, memory)
        .ok_or_else(|| damaged(s, "a stored name of a tenant or memory is not valid"))
}

#[expect(clippy::disallowed_methods, reason = "the name comes from our own rows")]
pub(super) fn stored_scope(tenant: String, memory: String) -> Option<Scope> {
    use icecore_domain::ids::Principal;
    let tenant = Tenant::new(tenant).ok()?;
    Principal::local_operator(tenant).scope(RedactedText::read_back(memory)).ok()
}

#[expect(clippy::disallowed_methods, reason = "the name comes from our own rows")]
pub(super) fn stored_session_name(name: String) -> Option<SessionName> {
    SessionName::new(RedactedText::read_back(name)).ok()
}

pub(super) fn damaged(s: &Shared, reason: &str) -> StoreError {
    StoreError::Damaged { path: s.path.clone(), reason: reason.to_owned() }
}

pub(super) fn session_hash(key: &TenantKey, name: &SessionName) -> [u8; 16] {
    key.identity_key().hash_name("session", name.as_str())
}

pub(super) fn session_by_name(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    name: &SessionName,
) -> Result<Option<SessionRecord>> {
    let (Some(no), Some(key)) = (scope_no(c, s, scope)?, tenant_key(c, s, scope.tenant())?) else {
        return Ok(None);
    };
    let hash = session_hash(&key, name);
    let found: Option<i64> = c
        .prepare_cached(
            "SELECT session FROM sessions
             WHERE tenant = ?1 AND scope = ?2 AND name_hash = ?3 AND name IS NOT NULL",
        )
        .and_then(|mut q| {
            q.query_row(params![no.tenant, no.scope, hash.as_slice()], |row| row.get(0)).optional()
        })
        .map_err(|e| s.failed(e))?;
    match found {
        Some(session) => session_by_number(c, s, scope, SessionNo(session as u64)),
        None => Ok(None),
    }
}

const SESSION_COLUMNS: &str = "session, name, turns, tokens, last_seq, updated_at, current";

pub(super) fn session_by_number(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    session: SessionNo,
) -> Result<Option<SessionRecord>> {
    let Some(no) = scope_no(c, s, scope)? else { return Ok(None) };
    let found = c
        .prepare_cached(&session_sql())
        .and_then(|mut q| {
            q.query_row(params![no.tenant, session.0 as i64, no.scope], read_session).optional()
        })
        .map_err(|e| s.failed(e))?;
    let found = with_branches(c, s, no.tenant, found.into_iter().collect())?;
    Ok(found.into_iter().next())
}

pub(super) fn sessions_at(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    sessions: &[SessionNo],
) -> Result<Vec<SessionRecord>> {
    let Some(no) = scope_no(c, s, scope)? else { return Ok(Vec::new()) };
    let key = |session: &SessionNo| vec![no.tenant, number(session.0), no.scope];
    let keys: Vec<_> = sessions.iter().map(key).map(engine::integers).collect();
    let found = c
        .prepare_cached(&session_sql())
        .and_then(|mut q| q.query_each(&keys, read_session))
        .map_err(|e| s.failed(e))?;
    with_branches(c, s, no.tenant, found.into_iter().flatten().collect())
}

fn session_sql() -> String {
    format!(
        "SELECT {SESSION_COLUMNS} FROM sessions WHERE tenant = ?1 AND session = ?2 AND scope = ?3"
    )
}

pub(super) fn sessions(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    after: Option<SessionNo>,
    limit: usize,
) -> Result<Vec<SessionRecord>> {
    let Some(no) = scope_no(c, s, scope)? else { return Ok(Vec::new()) };
    let after = after.map_or(0, |after| number(after.0));
    let found: Vec<SessionRecord> = c
        .prepare_cached(&format!(
            "SELECT {SESSION_COLUMNS} FROM sessions
             WHERE tenant = ?1 AND session > ?2 AND scope = ?3 AND name IS NOT NULL
             ORDER BY session LIMIT ?4"
        ))
        .and_then(|mut q| {
            let limit = number(limit as u64);
            q.query_map(params![no.tenant, after, no.scope, limit], read_session)?.collect()
        })
        .map_err(|e| s.failed(e))?;
    with_branches(c, s, no.tenant, found)
}

pub(super) fn recent_sessions(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    limit: usize,
) -> Result<Vec<SessionRecord>> {
    let Some(no) = scope_no(c, s, scope)? else { return Ok(Vec::new()) };
    let found: Vec<SessionRecord> = c
        .prepare_cached(&format!(
            "SELECT {SESSION_COLUMNS} FROM sessions
             WHERE tenant = ?1 AND scope = ?2 AND name IS NOT NULL
             ORDER BY updated_at DESC, session DESC LIMIT ?3"
        ))
        .and_then(|mut q| {
            let limit = number(limit as u64);
            q.query_map(params![no.tenant, no.scope, limit], read_session)?.collect()
        })
        .map_err(|e| s.failed(e))?;
    with_branches(c, s, no.tenant, found)
}

fn read_session(row: &Row<'_>) -> engine::Result<SessionRecord> {
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
    c: &Connection,
    s: &Shared,
    tenant: i64,
    mut records: Vec<SessionRecord>,
) -> Result<Vec<SessionRecord>> {
    let key = |record: &SessionRecord| vec![tenant, number(record.no.0)];
    let keys: Vec<_> = records.iter().map(key).map(engine::integers).collect();
    let found = c
        .prepare_cached(BRANCHES)
        .and_then(|mut q| q.query_each(&keys, read_branch))
        .map_err(|e| s.failed(e))?;
    for (record, branches) in records.iter_mut().zip(found) {
        record.branches = branches.into_iter().map(|state| state.record).collect();
    }
    Ok(records)
}

/// A branch as its row has it: the record, and the sums of what is open.
#[derive(Debug, Clone)]
pub(super) struct BranchState {
    pub(super) record: BranchRecord,
    pub(super) policy: i64,
    /// First `seq` of the open micro, mini and macro.
    pub(super) first_seqs: [i64; 3],
    /// Tokens in the open micro, mini and macro.
    pub(super) tokens: [i64; 3],
}

const BRANCHES: &str = "SELECT branch, fork_branch, fork_ordinal, b.policy, length, head_seq,
            micro_first, mini_first, macro_first, micro_first_seq, mini_first_seq, macro_first_seq,
            micro_tokens, mini_tokens, macro_tokens, warm_through, cold_through,
            micro_through, mini_through, macro_through, version, p.micro, p.mini, p.macro, p.max_tokens
     FROM branches b JOIN policies p ON p.policy = b.policy
     WHERE tenant = ?1 AND session = ?2 ORDER BY branch";

pub(super) fn branches(
    c: &Connection,
    s: &Shared,
    tenant: i64,
    session: SessionNo,
) -> Result<Vec<BranchState>> {
    c.prepare_cached(BRANCHES)
        .and_then(|mut q| q.query_map([tenant, session.0 as i64], read_branch)?.collect())
        .map_err(|e| s.failed(e))
}

fn read_branch(row: &Row<'_>) -> engine::Result<BranchState> {
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

pub(super) const TURN_COLUMNS: &str = "t.session, t.seq, t.position, t.branch, t.ordinal, t.tokens, t.flags, t.at, t.lookup, t.identity, b.body";

pub(super) fn turns(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    query: &TurnQuery,
) -> Result<Vec<TurnRow>> {
    let Some(no) = pyramid::owned(c, s, scope, query.session)? else { return Ok(Vec::new()) };
    let order = if query.newest { "DESC" } else { "ASC" };
    let sql = format!(
        "SELECT {TURN_COLUMNS} FROM turns t
         LEFT JOIN bodies b ON b.tenant = t.tenant AND b.session = t.session AND b.seq = t.seq
         WHERE t.tenant = ?1 AND t.session = ?2 AND t.seq > ?3 AND t.seq <= ?4
           AND (?5 IS NULL OR t.branch = ?5) AND (?6 IS NULL OR t.position <= ?6)
         ORDER BY t.seq {order} LIMIT ?7"
    );
    let mut found: Vec<TurnRow> = c
        .prepare_cached(&sql)
        .and_then(|mut q| {
            let values = params![
                no.tenant,
                query.session.0 as i64,
                number(query.after.0),
                number(query.through.0),
                query.branch.map(|b| b.0),
                query.as_of.map(|p| number(p.0)),
                number(query.limit as u64),
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
        })
        .map_err(|e| s.failed(e))?;
    if query.newest {
        found.reverse();
    }
    Ok(found)
}

pub(super) fn turns_by_lookup(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    session: SessionNo,
    lookup: i64,
) -> Result<Vec<TurnRow>> {
    let Some(no) = scope_no(c, s, scope)? else { return Ok(Vec::new()) };
    c.prepare_cached(&format!(
        "SELECT {TURN_COLUMNS} FROM turns t INDEXED BY turns_by_lookup
         JOIN sessions o ON o.tenant = t.tenant AND o.session = t.session AND o.scope = ?4
         LEFT JOIN bodies b ON b.tenant = t.tenant AND b.session = t.session AND b.seq = t.seq
         WHERE t.tenant = ?1 AND t.session = ?2 AND t.lookup = ?3 ORDER BY t.seq"
    ))
    .and_then(|mut q| {
        q.query_map(params![no.tenant, session.0 as i64, lookup, no.scope], read_turn)?.collect()
    })
    .map_err(|e| s.failed(e))
}

pub(super) fn turns_after(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    after: Position,
    limit: usize,
) -> Result<Vec<TurnRow>> {
    let Some(no) = scope_no(c, s, scope)? else { return Ok(Vec::new()) };
    let read = || {
        let reach = Reach { tenant: no.tenant, scope: Some(no.scope) };
        let stretches = reach.after(c, number(after.0), limit)?;
        let keys: Vec<_> = stretches.iter().map(|stretch| stretch.key(no.tenant)).collect();
        let found = c.prepare_cached(TURNS_OF_STRETCH)?.query_each(&keys, read_turn)?;
        Ok(found.into_iter().flatten().collect())
    };
    read().map_err(|e| s.failed(e))
}

pub(super) const TURNS_OF_STRETCH: &str =
    "SELECT t.session, t.seq, t.position, t.branch, t.ordinal, t.tokens, t.flags, t.at, t.lookup, t.identity, b.body
     FROM turns t
     LEFT JOIN bodies b ON b.tenant = t.tenant AND b.session = t.session AND b.seq = t.seq
     WHERE t.tenant = ?1 AND t.session = ?2 AND t.seq >= ?3 AND t.seq < ?4 ORDER BY t.seq";

pub(super) fn turns_at(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    ids: &[TurnId],
) -> Result<Vec<TurnRow>> {
    match scope_no(c, s, scope)? {
        Some(no) => turns_in(c, s, no, ids),
        None => Ok(Vec::new()),
    }
}

pub(super) fn turns_in(
    c: &Connection,
    s: &Shared,
    no: ScopeNo,
    ids: &[TurnId],
) -> Result<Vec<TurnRow>> {
    let read = || {
        let mut query = c.prepare_cached(&format!(
            "SELECT {TURN_COLUMNS} FROM turns t
             JOIN sessions o ON o.tenant = t.tenant AND o.session = t.session AND o.scope = ?4
             LEFT JOIN bodies b ON b.tenant = t.tenant AND b.session = t.session AND b.seq = t.seq
             WHERE t.tenant = ?1 AND t.session = ?2 AND t.seq = ?3"
        ))?;
        let key = |id: &TurnId| vec![no.tenant, number(id.session.0), number(id.seq.0), no.scope];
        let keys: Vec<_> = ids.iter().map(key).map(engine::integers).collect();
        Ok(query.query_each(&keys, read_turn)?.into_iter().flatten().collect())
    };
    read().map_err(|e| s.failed(e))
}

pub(super) fn scope_head(c: &Connection, s: &Shared, scope: &Scope) -> Result<ScopeHead> {
    let found = c.prepare_cached(SCOPE_HEAD).and_then(|mut q| {
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
    found.map(Option::unwrap_or_default).map_err(|e| s.failed(e))
}

pub(super) const SCOPE_HEAD: &str = "SELECT p.epoch, p.summaries, p.facts,
        (SELECT r.first + r.count - 1 FROM runs r INDEXED BY runs_by_scope
         WHERE r.tenant = p.tenant AND r.scope = p.scope ORDER BY r.first DESC LIMIT 1),
        (SELECT max(e.began) FROM entries e INDEXED BY entries_by_began
         WHERE e.tenant = p.tenant AND e.scope = p.scope),
        (SELECT max(v.position) FROM verdicts v INDEXED BY verdicts_by_position
         WHERE v.tenant = p.tenant AND v.scope = p.scope)
     FROM tenants t JOIN scopes p ON p.tenant = t.tenant WHERE t.name = ?1 AND p.memory = ?2";

pub(super) fn read_turn(row: &Row<'_>) -> engine::Result<TurnRow> {
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

pub(super) fn turn_state(flags: i64) -> TurnState {
    match flags {
        _ if flags & ERASED != 0 => TurnState::Erased,
        _ if flags & EXPIRED != 0 => TurnState::Expired,
        _ => TurnState::Present,
    }
}

#[expect(clippy::disallowed_methods, reason = "the body comes from our own rows")]
fn read_body(bytes: &[u8]) -> engine::Result<RedactedTurn> {
    let text = std::str::from_utf8(bytes).map_err(|error| engine::Error::broken(10, error))?;
    let line = turn_jsonl::parse_stored(text).map_err(|error| engine::Error::broken(10, error))?;
    Ok(RedactedTurn::read_back(line.turn))
}

/// A turn's fields as its row keeps them.
pub(super) fn write_body(turn: &RedactedTurn) -> Vec<u8> {
    turn_jsonl::write_fields(&[], turn.fields()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SqliteStore;
    use crate::sql::Wall;
    use crate::sql::stretches::RUNS_OF_SCOPE;

    /// What recall asks must not sort, scan or build an index, whatever is there.
    #[tokio::test]
    async fn reads_of_recall_cost_what_they_answer() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path(), None).unwrap();
        for sql in [RUNS_OF_SCOPE, TURNS_OF_STRETCH, SCOPE_HEAD, &pyramid::summaries_after_sql()] {
            let asked = sql.to_owned();
            let plan =
                store.read(Wall::Everyone, move |c, s| c.plan(&asked).map_err(|e| s.failed(e)));
            for step in plan.await.unwrap() {
                let is_dear =
                    ["SCAN", "TEMP B-TREE", "AUTOMATIC"].iter().any(|word| step.contains(word));
                assert!(!is_dear || step.contains("CONSTANT ROW"), "{step} in {sql}");
            }
        }
    }
}
