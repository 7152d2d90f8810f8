//! Reading sessions, branches and turns.

use icecore_domain::cut::OpenTail;
use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Branch, Position, Scope, Seq, SessionName, SessionNo, Tenant, TurnId};
use icecore_domain::redact::{RedactedText, RedactedTurn};
use icecore_domain::turn_jsonl;

use crate::engine::prelude::*;
use crate::keys::TenantKey;
use crate::log::ranges::LogOf;
use crate::store::Store;
use crate::turns::{BranchRecord, ScopeHead, SessionRecord, TurnQuery, TurnRow, TurnState};
use crate::{outcomes, scopes, turns};

// Flags of a turn's row.
pub(crate) const HAS_CLIENT_ID: i64 = 1;
pub(crate) const SESSION_GIVEN: i64 = 2;
pub(crate) const ERASED: i64 = 4;
pub(crate) const EXPIRED: i64 = 8;

impl Store {
    /// The tenant's key for identities; made on first use, the same ever after.
    pub async fn identity_key(&self, tenant: &Tenant) -> Result<IdentityKey> {
        let find = |tx: &Tx<'_>| scopes::tenant_key(tx, tx.tenant()?);
        if let Some(key) = self.read(tenant, "identity_key", find).await? {
            return Ok(key.identity_key());
        }
        self.write(tenant, "make_tenant", |tx| Ok(tx.ensure_tenant()?.1.identity_key())).await
    }

    /// The session of that name, unless it never was or was forgotten whole.
    pub async fn session(
        &self,
        scope: &Scope,
        name: &SessionName,
    ) -> Result<Option<SessionRecord>> {
        let name = name.clone();
        self.read(scope, "session", move |tx| {
            let Some(key) = scopes::tenant_key(tx, tx.tenant()?)? else { return Ok(None) };
            session_hashed(tx, session_hash(&key, &name))
        })
        .await
    }

    /// The session whose name has this hash under the tenant's identity key, unless it never
    /// was or was forgotten whole. So one is found by a name that is not to be stored again.
    pub async fn session_by_hash(
        &self,
        scope: &Scope,
        hash: [u8; 16],
    ) -> Result<Option<SessionRecord>> {
        self.read(scope, "session_by_hash", move |tx| session_hashed(tx, hash)).await
    }

    pub async fn session_by_number(
        &self,
        scope: &Scope,
        no: SessionNo,
    ) -> Result<Option<SessionRecord>> {
        self.read(scope, "session_by_number", move |tx| Ok(sessions_at(tx, &[no])?.pop())).await
    }

    /// The sessions of these numbers, in the order asked. Those of other scopes are left
    /// out.
    pub async fn sessions_at(
        &self,
        scope: &Scope,
        nos: &[SessionNo],
    ) -> Result<Vec<SessionRecord>> {
        let nos = nos.to_vec();
        self.read(scope, "sessions_at", move |tx| sessions_at(tx, &nos)).await
    }

    /// Named sessions of the scope by number, after `after`.
    pub async fn sessions(
        &self,
        scope: &Scope,
        after: Option<SessionNo>,
        limit: usize,
    ) -> Result<Vec<SessionRecord>> {
        self.read(scope, "sessions", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(Vec::new()) };
            let which = "tenant = ?1 AND session > ?2 AND scope = ?3 AND name IS NOT NULL
                 ORDER BY session LIMIT ?4";
            let after = after.unwrap_or(SessionNo(0));
            find_sessions(tx, no, which, params![no.tenant, after, no.scope, limit])
        })
        .await
    }

    /// The named sessions that were appended to last, latest first.
    pub async fn recent_sessions(&self, scope: &Scope, limit: usize) -> Result<Vec<SessionRecord>> {
        self.read(scope, "recent_sessions", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(Vec::new()) };
            let which = "tenant = ?1 AND scope = ?2 AND name IS NOT NULL
                 ORDER BY updated_at DESC, session DESC LIMIT ?3";
            find_sessions(tx, no, which, params![no.tenant, no.scope, limit])
        })
        .await
    }

    /// The state of a branch by which the worker decides what to derive.
    pub async fn branch(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
    ) -> Result<Option<BranchRecord>> {
        self.read(scope, "branch", move |tx| {
            let Some(no) = owned(tx, session)? else { return Ok(None) };
            let mut records = branches(tx, no.tenant, session)?.into_iter().map(|one| one.record);
            Ok(records.find(|record| record.branch == branch))
        })
        .await
    }

    /// Rows of turns in order of `seq`. Only hot turns have bodies in their rows.
    pub async fn turns(&self, scope: &Scope, query: &TurnQuery) -> Result<Vec<TurnRow>> {
        let query = *query;
        self.read(scope, "turns", move |tx| tx.turns(&query)).await
    }

    /// The turns in a session that may have this client id, by its lookup.
    pub async fn turns_by_lookup(
        &self,
        scope: &Scope,
        session: SessionNo,
        lookup: i64,
    ) -> Result<Vec<TurnRow>> {
        self.read(scope, "turns_by_lookup", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(Vec::new()) };
            let sql = turns_sql(
                &format!("turns t INDEXED BY turns_by_lookup {OF_SCOPE}"),
                "t.lookup = ?3 ORDER BY t.seq",
            );
            tx.all(&sql, params![no.tenant, session, lookup, no.scope], read_turn)
        })
        .await
    }

    /// Turns of all sessions of the scope after a position, in order of position:
    /// tombstones and expired ones too. Only hot turns have bodies.
    pub async fn turns_after(
        &self,
        scope: &Scope,
        after: Position,
        limit: usize,
    ) -> Result<Vec<TurnRow>> {
        self.read(scope, "turns_after", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(Vec::new()) };
            let log = LogOf { tenant: no.tenant, scope: Some(no.scope) };
            let ranges = log.turns_after(tx, number(after.0), limit)?;
            let keys = ranges.iter().map(|range| range.key(no.tenant));
            tx.all_of(&turns_of_range_sql(), keys, read_turn)
        })
        .await
    }

    /// The turns with these ids, in the order asked. Those of other scopes are left out.
    /// Only hot turns have bodies.
    pub async fn turns_at(&self, scope: &Scope, ids: &[TurnId]) -> Result<Vec<TurnRow>> {
        let ids = ids.to_vec();
        self.read(scope, "turns_at", move |tx| tx.turns_at(&ids)).await
    }

    /// The head of a scope; zeros for a scope that does not exist, which is not made.
    pub async fn scope_head(&self, scope: &Scope) -> Result<ScopeHead> {
        self.read(scope, "scope_head", |tx| scope_head(tx, tx.scope()?)).await
    }
}

pub(crate) fn session_hash(key: &TenantKey, name: &SessionName) -> [u8; 16] {
    key.identity_key().hash_name("session", name.as_str())
}

const SESSION_COLUMNS: &str = "session, name, turns, tokens, last_seq, updated_at, current";

fn session_hashed(tx: &Tx<'_>, hash: [u8; 16]) -> Result<Option<SessionRecord>> {
    let Some(no) = tx.scope_no()? else { return Ok(None) };
    let which = "tenant = ?1 AND scope = ?2 AND name_hash = ?3 AND name IS NOT NULL";
    Ok(find_sessions(tx, no, which, params![no.tenant, no.scope, hash])?.pop())
}

fn sessions_at(tx: &Tx<'_>, sessions: &[SessionNo]) -> Result<Vec<SessionRecord>> {
    let Some(no) = tx.scope_no()? else { return Ok(Vec::new()) };
    let sql = format!(
        "SELECT {SESSION_COLUMNS} FROM sessions WHERE tenant = ?1 AND session = ?2 AND scope = ?3"
    );
    let keys = sessions.iter().map(|session| values![no.tenant, *session, no.scope]);
    with_branches(tx, no, tx.all_of(&sql, keys, read_session)?)
}

fn find_sessions(
    tx: &Tx<'_>,
    no: ScopeNo,
    which: &str,
    values: impl Params,
) -> Result<Vec<SessionRecord>> {
    let sql = format!("SELECT {SESSION_COLUMNS} FROM sessions WHERE {which}");
    with_branches(tx, no, tx.all(&sql, values, read_session)?)
}

fn read_session(row: &Row<'_>) -> Result<SessionRecord> {
    let mut columns = Columns::of(row);
    Ok(SessionRecord {
        no: columns.get()?,
        name: columns.get::<Option<RedactedText>>()?.and_then(|name| SessionName::new(name).ok()),
        turns: columns.get()?,
        tokens: columns.get()?,
        last_seq: columns.get()?,
        updated_at: columns.get()?,
        current: columns.get()?,
        branches: Vec::new(),
    })
}

fn with_branches(
    tx: &Tx<'_>,
    no: ScopeNo,
    mut records: Vec<SessionRecord>,
) -> Result<Vec<SessionRecord>> {
    let keys = records.iter().map(|record| values![no.tenant, record.no]);
    let found = tx.each(BRANCHES, keys, tuple::<BranchState>)?;
    for (record, branches) in records.iter_mut().zip(found) {
        record.branches = branches.into_iter().map(|state| state.record).collect();
    }
    Ok(records)
}

/// The row of a branch: the record, and the sums of the open chunks.
#[derive(Debug, Clone)]
pub(crate) struct BranchState {
    pub(crate) record: BranchRecord,
    pub(crate) policy: i64,
    /// First `seq` of the open micro, mini and macro; 0 if nothing is open.
    pub(crate) first_seqs: [Seq; 3],
    /// Tokens in the open micro, mini and macro.
    pub(crate) tokens: [u64; 3],
}

record! {
    BranchState { policy, first_seqs, tokens, record }
    BranchRecord {
        branch, fork, tail, head_seq, warm_through, cold_through, summarized_through, version
    }
    OpenTail { length, micro_first, mini_first, macro_first, micro_tokens, policy }
}

const BRANCHES: &str = "SELECT b.policy, micro_first_seq, mini_first_seq, macro_first_seq,
        micro_tokens, mini_tokens, macro_tokens, branch, fork_branch, fork_ordinal, length,
        micro_first, mini_first, macro_first, micro_tokens, p.micro, p.mini, p.macro,
        p.max_tokens, head_seq, warm_through, cold_through, micro_through, mini_through,
        macro_through, version
     FROM branches b JOIN policies p ON p.policy = b.policy
     WHERE tenant = ?1 AND session = ?2 ORDER BY branch";

pub(crate) fn branches(tx: &Tx<'_>, tenant: i64, session: SessionNo) -> Result<Vec<BranchState>> {
    tx.all(BRANCHES, params![tenant, session], tuple)
}

/// Keeps only turns of the memory with number `?4`.
const OF_SCOPE: &str =
    "JOIN sessions o ON o.tenant = t.tenant AND o.session = t.session AND o.scope = ?4";

/// Selects turns `t` of session `?2` of tenant `?1`, as [`read_turn`] reads them.
fn turns_sql(from: &str, condition: &str) -> String {
    format!(
        "SELECT t.session, t.seq, t.position, t.branch, t.ordinal, t.tokens, t.at, t.lookup,
           t.identity, t.flags, b.body
         FROM {from}
         LEFT JOIN bodies b ON b.tenant = t.tenant AND b.session = t.session AND b.seq = t.seq
         WHERE t.tenant = ?1 AND t.session = ?2 AND {condition}"
    )
}

fn turns_of_range_sql() -> String {
    turns_sql("turns t", "t.seq >= ?3 AND t.seq < ?4 ORDER BY t.seq")
}

impl Tx<'_> {
    /// As [`Store::turns`].
    pub fn turns(&self, query: &TurnQuery) -> Result<Vec<TurnRow>> {
        let Some(no) = owned(self, query.session)? else { return Ok(Vec::new()) };
        let order = if query.newest { "DESC" } else { "ASC" };
        let sql = turns_sql(
            "turns t",
            &format!(
                "t.seq > ?3 AND t.seq <= ?4
                 AND (?5 IS NULL OR t.branch = ?5) AND (?6 IS NULL OR t.position <= ?6)
                 ORDER BY t.seq {order} LIMIT ?7"
            ),
        );
        let TurnQuery { session, branch, after, through, as_of, limit, .. } = *query;
        let values = params![no.tenant, session, after, through, branch, as_of, limit];
        let (mut found, mut bytes) = (Vec::new(), 0_usize);
        self.visit(&sql, values, |row| {
            if bytes >= query.bytes {
                return Ok(false);
            }
            let turn = read_turn(row)?;
            bytes = bytes.saturating_add(turn.byte_count());
            found.push(turn);
            Ok(true)
        })?;
        if query.newest {
            found.reverse();
        }
        Ok(found)
    }

    /// As [`Store::turns_at`].
    pub fn turns_at(&self, ids: &[TurnId]) -> Result<Vec<TurnRow>> {
        let Some(no) = self.scope_no()? else { return Ok(Vec::new()) };
        let sql = turns_sql(&format!("turns t {OF_SCOPE}"), "t.seq = ?3");
        let keys = ids.iter().map(|id| values![no.tenant, id.session, id.seq, no.scope]);
        self.all_of(&sql, keys, read_turn)
    }
}

fn read_turn(row: &Row<'_>) -> Result<TurnRow> {
    let mut columns = Columns::of(row);
    let (id, position, branch, ordinal, tokens, at) = columns.get()?;
    let (identity, flags, body): (_, i64, Option<Vec<u8>>) = columns.get()?;
    Ok(TurnRow {
        id,
        position,
        branch,
        ordinal,
        tokens,
        at,
        identity,
        has_client_id: flags & HAS_CLIENT_ID != 0,
        session_given: flags & SESSION_GIVEN != 0,
        state: turn_state(flags),
        body: body.map(|bytes| read_body(&bytes)).transpose()?,
    })
}

pub(crate) fn turn_state(flags: i64) -> TurnState {
    if flags & ERASED != 0 {
        TurnState::Erased
    } else if flags & EXPIRED != 0 {
        TurnState::Expired
    } else {
        TurnState::Present
    }
}

#[expect(clippy::disallowed_methods, reason = "the body comes from our own rows")]
fn read_body(bytes: &[u8]) -> Result<RedactedTurn> {
    let text = std::str::from_utf8(bytes).map_err(|error| Error::broken(10, error))?;
    let line = turn_jsonl::parse_stored(text).map_err(|error| Error::broken(10, error))?;
    Ok(RedactedTurn::read_back(line.turn))
}

/// A turn's fields as they lie in its row.
pub(crate) fn write_body(turn: &RedactedTurn) -> Vec<u8> {
    turn_jsonl::write_fields(&[], turn.fields()).into_bytes()
}

pub(crate) fn scope_head(tx: &Tx<'_>, scope: &Scope) -> Result<ScopeHead> {
    type Last = Option<Position>;
    let found = tx.first(SCOPE_HEAD, [scope.tenant().as_str(), scope.memory()], tuple)?;
    let Some(found) = found else { return Ok(ScopeHead::default()) };
    let (epoch, summaries, facts, turn, entry, verdict): (_, _, _, Last, Last, Last) = found;
    Ok(ScopeHead {
        position: turn.max(entry).unwrap_or_default(),
        summaries,
        facts,
        verdicts: verdict.unwrap_or_default(),
        epoch,
    })
}

const SCOPE_HEAD: &str = "SELECT p.epoch, p.summaries, p.facts,
        (SELECT r.first + r.count - 1 FROM runs r INDEXED BY runs_by_scope
         WHERE r.tenant = p.tenant AND r.scope = p.scope ORDER BY r.first DESC LIMIT 1),
        (SELECT max(e.began) FROM entries e INDEXED BY entries_by_began
         WHERE e.tenant = p.tenant AND e.scope = p.scope),
        (SELECT max(v.position) FROM verdicts v INDEXED BY verdicts_by_position
         WHERE v.tenant = p.tenant AND v.scope = p.scope)
     FROM tenants t JOIN scopes p ON p.tenant = t.tenant WHERE t.name = ?1 AND p.memory = ?2";

/// The scope's numbers, if the session is in it.
pub(crate) fn owned(tx: &Tx<'_>, session: SessionNo) -> Result<Option<ScopeNo>> {
    let Some(no) = tx.scope_no()? else { return Ok(None) };
    let is_owned = tx.finds(
        "SELECT 1 FROM sessions WHERE tenant = ?1 AND session = ?2 AND scope = ?3",
        params![no.tenant, session, no.scope],
    )?;
    Ok(is_owned.then_some(no))
}

/// Marks that an index of the scope may be wrong; what was cached of it stays.
pub(crate) fn bump_epoch(tx: &Tx<'_>, no: ScopeNo) -> Result<()> {
    tx.change(
        "UPDATE scopes SET epoch = epoch + 1 WHERE tenant = ?1 AND scope = ?2",
        [no.tenant, no.scope],
    )
}

/// Marks that something of the scope was erased: whatever
/// was cached of it is invalid.
pub(crate) fn raise_epoch(tx: &Tx<'_>, no: ScopeNo) -> Result<()> {
    outcomes::forget_texts(tx, no.tenant)?;
    bump_epoch(tx, no)?;
    turns::recalled::lose(tx, no)
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
        for sql in [
            RUNS_OF_SCOPE,
            &turns_of_range_sql(),
            SCOPE_HEAD,
            &crate::layers::summaries_after_sql(),
        ] {
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
