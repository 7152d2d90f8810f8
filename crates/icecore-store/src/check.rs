//! Looking after the store: how much is in it, and whether its invariants hold.

use icecore_domain::ids::Tenant;
use icecore_domain::redact::Hidden;
use icecore_domain::time::Millis;

#[cfg(feature = "postgres")]
use crate::engine::postgres;
use crate::engine::tx::{Isolation, Tx};
use crate::engine::{Params, column, notes, params, sqlite, tuple};
use crate::error::Result;
use crate::host::{runs, workspace};
use crate::store::{Engine, Store};
use crate::{secrets, usage};

/// How much is in a memory or a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreStats {
    /// Sessions with turns.
    pub sessions: u64,
    /// Branches of these sessions.
    pub branches: u64,
    /// Turns that are not erased, the expired among them.
    pub turns: u64,
    pub tokens: u64,
    /// Tombstones.
    pub erased: u64,
    /// Turns let go by retention.
    pub expired: u64,
    /// Turns by tier: hot (the open tail included), warm, cold (the expired included). They
    /// add up to `turns`, as tokens do.
    pub tier_turns: [u64; 3],
    pub tier_tokens: [u64; 3],
    /// Bytes of bodies by tier, as they are stored.
    pub tier_bytes: [u64; 3],
    /// Turns in open tails that are not erased.
    pub open_turns: u64,
    /// Chunks by level.
    pub chunks: [u64; 3],
    /// Summaries by level.
    pub summaries: [u64; 3],
    pub summary_bytes: u64,
    pub packs: u64,
    /// Entries in force.
    pub entries: u64,
    pub facts: u64,
    pub verdicts: u64,
    /// The scope's epoch, or the sum of them.
    pub epoch: u64,
    /// Files of workspaces; a memory has none.
    pub files: u64,
    /// Secrets that were hidden in turns, entries, verdicts and stored versions of files.
    pub hidden: Hidden,
}

impl Store {
    /// Looks for broken invariants; an empty list is a clean bill.
    pub async fn check(&self) -> Result<Vec<String>> {
        let check_engine = match &self.engine {
            Engine::Sqlite(_) => sqlite::check_file,
            #[cfg(feature = "postgres")]
            Engine::Postgres(_) => postgres::check_row_security,
        };
        let damage = self.read(Isolation::Global, "check_engine", check_engine).await?;
        if !damage.is_empty() {
            return Ok(damage);
        }
        self.read(Isolation::Global, "check", check).await
    }

    /// How much is in a memory, or in all memories of a tenant.
    pub async fn stats(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        now: Millis,
    ) -> Result<StoreStats> {
        let memory = memory.map(str::to_owned);
        self.read(tenant, "stats", move |tx| stats(tx, memory.as_deref(), now)).await
    }

    /// Stores a small setting of the store itself.
    pub async fn put_note(&self, name: &str, value: &str) -> Result<()> {
        let (name, value) = (name.to_owned(), value.to_owned());
        self.write(Isolation::Global, "put_note", move |tx| notes::put_note(tx, &name, &value))
            .await
    }

    /// As [`Store::put_note`], unless the name has a note; answers the note that is there then.
    /// Of many callers at once all get the same.
    pub async fn note_once(&self, name: &str, value: &str) -> Result<String> {
        let (name, value) = (name.to_owned(), value.to_owned());
        self.write(Isolation::Global, "note_once", move |tx| notes::note_once(tx, &name, &value))
            .await
    }

    pub async fn note(&self, name: &str) -> Result<Option<String>> {
        let name = name.to_owned();
        self.read(Isolation::Global, "note", move |tx| notes::note(tx, &name)).await
    }
}

fn stats(tx: &Tx<'_>, memory: Option<&str>, now: Millis) -> Result<StoreStats> {
    let Some(tenant) = tx.tenant_no()? else { return Ok(StoreStats::default()) };
    let whose = params![tenant, memory];
    let of_sessions = "tenant = ?1 AND session IN (SELECT o.session FROM sessions o
        JOIN scopes p ON p.tenant = o.tenant AND p.scope = o.scope
        WHERE o.tenant = ?1 AND (?2 IS NULL OR p.memory = ?2))";
    let of_memories = "tenant = ?1
        AND (?2 IS NULL OR scope IN (SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?2))";
    let mut stats = StoreStats::default();

    // `seq` is dense, so what it counts beyond the turns that are there is erased.
    [stats.sessions, stats.turns, stats.tokens, stats.erased] = sums(
        tx,
        whose,
        &format!(
            "SELECT count(*) FILTER (WHERE turns > 0), sum(turns), sum(tokens), sum(last_seq - turns)
             FROM sessions WHERE {of_sessions}"
        ),
    )?;
    [stats.expired] = sums(
        tx,
        whose,
        &format!(
            "SELECT count(*) FROM turns INDEXED BY turns_expired WHERE {of_sessions} AND flags & 12 = 8"
        ),
    )?;
    let open_tokens;
    [stats.branches, stats.open_turns, open_tokens] = sums(
        tx,
        whose,
        &format!(
            "SELECT count(*) FILTER (WHERE EXISTS (SELECT 1 FROM sessions o
                  WHERE o.tenant = b.tenant AND o.session = b.session AND o.turns > 0)),
                sum((SELECT count(*) FROM turns t WHERE micro_first_seq > 0 AND t.tenant = b.tenant
                  AND t.session = b.session AND t.branch = b.branch AND t.seq >= micro_first_seq AND t.flags & 4 = 0)),
                sum(micro_tokens)
             FROM branches b WHERE {of_sessions}"
        ),
    )?;

    // Closed micros by tier, from the branches' watermarks; the open tail is hot.
    let tiers: Vec<(usize, u64, u64)> = tx.all(
        &format!(
            "SELECT CASE WHEN last <= cold_through THEN 2 WHEN last <= warm_through THEN 1 ELSE 0 END,
                    sum(turns), sum(tokens)
             FROM (SELECT * FROM chunks WHERE level = 0 AND {of_sessions}) k
             JOIN (SELECT tenant, session, branch, warm_through, cold_through FROM branches
                   WHERE {of_sessions}) b
               USING (tenant, session, branch)
             GROUP BY 1"
        ),
        whose,
        tuple,
    )?;
    for (tier, turns, tokens) in tiers {
        (stats.tier_turns[tier], stats.tier_tokens[tier]) = (turns, tokens);
    }
    stats.tier_tokens[0] += open_tokens;
    stats.tier_turns[0] = stats.turns.saturating_sub(stats.tier_turns[1] + stats.tier_turns[2]);

    let (text_bytes, pack_bytes);
    [stats.tier_bytes[0]] =
        sums(tx, whose, &format!("SELECT sum(length(body)) FROM bodies WHERE {of_sessions}"))?;
    [stats.tier_bytes[1], text_bytes] = sums(
        tx,
        whose,
        &format!(
            "SELECT sum(length(text)) FILTER (WHERE first > cold_through),
                    sum(length(text)) FILTER (WHERE first <= cold_through)
             FROM (SELECT * FROM texts WHERE {of_sessions}) x
             JOIN (SELECT tenant, session, branch, cold_through FROM branches WHERE {of_sessions}) b
               USING (tenant, session, branch)"
        ),
    )?;
    [stats.packs, pack_bytes] =
        sums(tx, whose, &format!("SELECT count(*), sum(bytes) FROM packs WHERE {of_sessions}"))?;
    stats.tier_bytes[2] = text_bytes + pack_bytes;

    let by_level = "count(*) FILTER (WHERE level = 0), count(*) FILTER (WHERE level = 1),
        count(*) FILTER (WHERE level = 2)";
    stats.chunks = sums(tx, whose, &format!("SELECT {by_level} FROM chunks WHERE {of_sessions}"))?;
    let [micros, minis, macros, bytes] = sums(
        tx,
        whose,
        &format!("SELECT {by_level}, sum(length(summary)) FROM summaries WHERE {of_sessions}"),
    )?;
    (stats.summaries, stats.summary_bytes) = ([micros, minis, macros], bytes);

    let count =
        |table: &str| sums(tx, whose, &format!("SELECT count(*) FROM {table} WHERE {of_memories}"));
    [stats.facts] = count("facts")?;
    [stats.verdicts] = count("verdicts")?;
    [stats.entries] = sums(
        tx,
        whose,
        &format!(
            "SELECT count(*) FROM entries WHERE {of_memories}
               AND (ended IS NULL OR superseded_until <= {now})
               AND (expires_at IS NULL OR expires_at > {now})",
            now = now.0
        ),
    )?;
    [stats.epoch] = sums(tx, whose, &format!("SELECT sum(epoch) FROM scopes WHERE {of_memories}"))?;
    let hidden: Vec<(String, u64)> = tx.all(
        &format!("SELECT kind, sum(count) FROM hidden WHERE {of_memories} GROUP BY kind"),
        whose,
        tuple,
    )?;
    stats.hidden = hidden.into_iter().collect();
    if memory.is_none() {
        stats.files = workspace::count(tx, tenant)?;
        workspace::add_hidden(tx, tenant, &mut stats.hidden)?;
    }
    Ok(stats)
}

/// The one row of a statement, in which nothing counts as 0.
fn sums<const N: usize>(tx: &Tx<'_>, whose: impl Params, sql: &str) -> Result<[u64; N]> {
    let mut sums = [0; N];
    tx.query_row(sql, whose, |row| {
        for (at, sum) in sums.iter_mut().enumerate() {
            *sum = row.get::<_, Option<u64>>(at)?.unwrap_or_default();
        }
        Ok(())
    })?;
    Ok(sums)
}

/// Findings of one kind that are named one by one.
const FINDINGS_NAMED: usize = 5;

fn check(tx: &Tx<'_>) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for (what, query) in INVARIANTS {
        let broken: Vec<String> = tx.all(&format!("{query} LIMIT 1000"), [], column)?;
        findings.extend(broken.iter().take(FINDINGS_NAMED).map(|place| format!("{what}: {place}")));
        if broken.len() > FINDINGS_NAMED {
            findings.push(format!("{what}: and {} more", broken.len() - FINDINGS_NAMED));
        }
    }
    findings.extend(usage::check(tx)?);
    findings.extend(secrets::check(tx)?);
    findings.extend(workspace::check(tx)?);
    findings.extend(runs::check(tx)?);
    Ok(findings)
}

/// What must hold of the tables, each as a query for what breaks it.
const INVARIANTS: [(&str, &str); 47] = [
    (
        "a session's seq is not dense",
        "SELECT 'session ' || o.session FROM sessions o WHERE o.last_seq !=
           (SELECT count(*) FROM turns t WHERE t.tenant = o.tenant AND t.session = o.session)",
    ),
    (
        "a session's count of turns is wrong",
        "SELECT 'session ' || o.session FROM sessions o WHERE o.turns !=
           (SELECT count(*) FROM turns t WHERE t.tenant = o.tenant AND t.session = o.session AND t.flags & 4 = 0)",
    ),
    (
        "a session's count of tokens is wrong",
        "SELECT 'session ' || o.session FROM sessions o WHERE o.tokens !=
           (SELECT coalesce(sum(tokens), 0) FROM turns t WHERE t.tenant = o.tenant AND t.session = o.session)",
    ),
    (
        "a branch's ordinals are not dense",
        "SELECT 'session ' || b.session || ' branch ' || b.branch FROM branches b WHERE b.length !=
           (SELECT count(*) FROM turns t WHERE t.tenant = b.tenant AND t.session = b.session AND t.branch = b.branch)",
    ),
    (
        "positions are not in order of seq",
        "SELECT 'session ' || session || ' seq ' || seq FROM (SELECT session, seq, position,
           lag(position) OVER (PARTITION BY tenant, session ORDER BY seq) AS before FROM turns) t
         WHERE before >= position",
    ),
    (
        "a position lies beyond its tenant's counter",
        "SELECT 'position ' || t.position FROM turns t JOIN tenants n ON n.tenant = t.tenant WHERE t.position > n.position",
    ),
    (
        "a run of positions does not match its turns",
        "SELECT 'position ' || r.first FROM runs r WHERE r.count !=
           (SELECT count(*) FROM turns t WHERE t.tenant = r.tenant AND t.session = r.session
              AND t.seq >= r.first_seq AND t.seq < r.first_seq + r.count
              AND t.position = r.first + t.seq - r.first_seq)",
    ),
    (
        "chunks of a level do not tile",
        "SELECT 'session ' || session || ' level ' || level || ' at ' || first FROM (SELECT session, level, first,
           lag(last, 1, CAST(0 AS BIGINT)) OVER (PARTITION BY tenant, session, branch, level ORDER BY first) AS before FROM chunks) k
         WHERE before + 1 != first",
    ),
    (
        "a chunk is not the union of the level below",
        "SELECT 'session ' || k.session || ' level ' || k.level || ' at ' || k.first FROM chunks k WHERE k.level > 0
           AND NOT EXISTS (SELECT 1 FROM chunks u WHERE u.tenant = k.tenant AND u.session = k.session
             AND u.branch = k.branch AND u.level = k.level - 1 AND u.last = k.last)",
    ),
    (
        "a chunk's turns or tokens are wrong",
        "SELECT 'session ' || k.session || ' level ' || k.level || ' at ' || k.first FROM chunks k WHERE
           (k.turns, k.tokens) != (SELECT count(*) FILTER (WHERE t.flags & 4 = 0), coalesce(sum(t.tokens), 0) FROM turns t
             WHERE t.tenant = k.tenant AND t.session = k.session AND t.branch = k.branch
               AND t.seq BETWEEN k.first_seq AND k.last_seq AND t.ordinal BETWEEN k.first AND k.last)",
    ),
    (
        "a hot turn has no body",
        "SELECT 'session ' || t.session || ' seq ' || t.seq FROM turns t
           JOIN branches b ON b.tenant = t.tenant AND b.session = t.session AND b.branch = t.branch
         WHERE t.ordinal > b.warm_through AND t.flags & 12 = 0 AND NOT EXISTS
           (SELECT 1 FROM bodies x WHERE x.tenant = t.tenant AND x.session = t.session AND x.seq = t.seq)",
    ),
    (
        "a body is in two places",
        "SELECT 'session ' || x.session || ' seq ' || x.seq FROM bodies x
           JOIN turns t ON t.tenant = x.tenant AND t.session = x.session AND t.seq = x.seq
           JOIN branches b ON b.tenant = t.tenant AND b.session = t.session AND b.branch = t.branch
         WHERE t.ordinal <= b.warm_through OR t.flags & 4 != 0",
    ),
    (
        "a run of positions is not in its session's scope",
        "SELECT 'position ' || r.first FROM runs r LEFT JOIN sessions o
           ON o.tenant = r.tenant AND o.session = r.session WHERE o.scope IS NOT r.scope",
    ),
    (
        "a summary's scope or number is wrong",
        "SELECT 'session ' || m.session || ' level ' || m.level || ' at ' || m.first FROM summaries m
           JOIN sessions o ON o.tenant = m.tenant AND o.session = m.session
           JOIN scopes p ON p.tenant = o.tenant AND p.scope = o.scope
         WHERE o.scope != m.scope OR m.number > p.summaries OR m.number < 1",
    ),
    (
        "a fact's number or source is wrong",
        "SELECT 'fact ' || f.number FROM facts f JOIN scopes p ON p.tenant = f.tenant AND p.scope = f.scope
         WHERE f.number > p.facts OR NOT EXISTS (SELECT 1 FROM turns t
           JOIN sessions o ON o.tenant = t.tenant AND o.session = t.session
           WHERE t.tenant = f.tenant AND t.session = f.session AND t.seq = f.seq
             AND t.flags & 4 = 0 AND o.scope = f.scope)",
    ),
    (
        "a verdict quotes a turn that was erased",
        "SELECT 'position ' || v.position FROM verdicts v JOIN turns t
           ON t.tenant = v.tenant AND t.session = v.session AND t.seq = v.seq WHERE t.flags & 4 != 0",
    ),
    (
        "a file's versions are not dense",
        "SELECT 'position ' || max(position) FROM files GROUP BY tenant, workspace, path
         HAVING max(version) - min(version) + 1 != count(*) OR min(version) < 1",
    ),
    (
        "a file is not where the log says",
        "SELECT 'position ' || f.position FROM files f WHERE NOT EXISTS (SELECT 1 FROM log l
           WHERE l.tenant = f.tenant AND l.position = f.position AND l.kind = 'workspace.updated'
             AND json_extract(l.payload, '$.path') = f.path
             AND json_extract(l.payload, '$.version') || '' = f.version || '')",
    ),
    (
        "a run's count of events is wrong",
        "SELECT 'run ' || r.run FROM workflow_runs r WHERE
           (SELECT count(*) FROM run_events e WHERE e.tenant = r.tenant AND e.run = r.run) !=
           CASE WHEN r.expired_at IS NULL THEN r.events ELSE 0 END",
    ),
    (
        "a run's events are not numbered from 0 on",
        "SELECT 'run ' || run FROM run_events GROUP BY tenant, run
         HAVING min(sequence) != 0 OR max(sequence) + 1 != count(*)",
    ),
    (
        "a run's end does not fit its status",
        "SELECT 'run ' || run FROM workflow_runs
         WHERE (status IN ('completed', 'failed', 'cancelled')) != (ended_at IS NOT NULL)
            OR expired_at IS NOT NULL AND ended_at IS NULL",
    ),
    (
        "a commitment is in no memory",
        "SELECT 'commitment ' || k.id FROM commitments k WHERE NOT EXISTS
           (SELECT 1 FROM scopes p WHERE p.tenant = k.tenant AND p.scope = k.scope)",
    ),
    (
        "a commitment's end does not fit its state",
        "SELECT 'commitment ' || id FROM commitments
         WHERE state NOT BETWEEN 0 AND 3 OR (state = 0) != (settled_at IS NULL)",
    ),
    (
        "a settled commitment tells what it waited for",
        "SELECT 'commitment ' || id FROM commitments
         WHERE state != 0 AND (tag IS NOT NULL OR mentions IS NOT NULL)",
    ),
    (
        "a schedule is in no memory",
        "SELECT 'schedule ' || k.id FROM schedules k WHERE NOT EXISTS
           (SELECT 1 FROM scopes p WHERE p.tenant = k.tenant AND p.scope = k.scope)",
    ),
    (
        "a schedule has no time, or two",
        "SELECT 'schedule ' || id FROM schedules
         WHERE (cron IS NULL) = (once_at IS NULL) OR (next_at IS NULL) != (fires_at IS NULL)",
    ),
    (
        "a tick is of no schedule",
        "SELECT 'tick of schedule ' || i.schedule FROM ticks i WHERE NOT EXISTS
           (SELECT 1 FROM schedules k WHERE k.tenant = i.tenant AND k.id = i.schedule)",
    ),
    (
        "a tick's end does not fit its outcome",
        "SELECT 'tick of schedule ' || schedule FROM ticks
         WHERE (outcome IS NULL) != (ended_at IS NULL) OR outcome IS NULL AND heartbeat IS NULL",
    ),
    (
        "what stands for an entry is not there",
        "SELECT 'entry at position ' || e.began FROM entries e WHERE e.successor IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM entries x
             WHERE x.tenant = e.tenant AND x.scope = e.scope AND x.id = e.successor)",
    ),
    (
        "an entry ended neither by its end nor for another",
        "SELECT 'entry at position ' || began FROM entries
         WHERE (ended IS NOT NULL) != (ended_at IS NOT NULL OR successor IS NOT NULL)
            OR (ended_at IS NOT NULL AND successor IS NOT NULL)
            OR (successor IS NULL AND (superseded_until IS NOT NULL OR overtaken != 0))",
    ),
    (
        "what an entry was made of, or what was made of it, is not there",
        "SELECT 'entry ' || q.output FROM entry_quotes q WHERE 2 !=
           (SELECT count(*) FROM entries e WHERE e.tenant = q.tenant AND e.scope = q.scope
              AND e.id IN (q.source, q.output))",
    ),
    (
        "dreams of a memory are no chain",
        "SELECT 'run ' || run FROM (SELECT run, state, previous,
             lag(run) OVER dreamt AS before, lead(run) OVER dreamt AS next
           FROM dreams WHERE state IN ('in-force', 'superseded')
           WINDOW dreamt AS (PARTITION BY tenant, scope ORDER BY number)) d
         WHERE previous IS NOT before OR (state = 'in-force') != (next IS NULL)",
    ),
    (
        "a branch's turns count as read that no dream read",
        "SELECT 'session ' || b.session || ' branch ' || b.branch FROM branches b
         WHERE b.dreamed_through > b.length OR b.dreamed_through != coalesce((SELECT max(p.through)
           FROM dream_spans p JOIN dreams d ON d.tenant = p.tenant AND d.run = p.run
           WHERE p.tenant = b.tenant AND p.session = b.session AND p.branch = b.branch
             AND d.state IN ('in-force', 'superseded')), 0)",
    ),
    (
        "what a dream read is of no dream",
        "SELECT 'run ' || p.run FROM dream_spans p WHERE NOT EXISTS
           (SELECT 1 FROM dreams d WHERE d.tenant = p.tenant AND d.run = p.run)",
    ),
    (
        "what a dream wrote is not there",
        "SELECT 'run ' || d.run FROM dreams d WHERE d.state IN ('in-force', 'superseded')
           AND NOT EXISTS (SELECT 1 FROM entries e
             WHERE e.tenant = d.tenant AND e.scope = d.scope AND e.id = d.output)",
    ),
    (
        "a dream that was lost or taken back tells of its sources",
        "SELECT 'run ' || run FROM dreams
         WHERE state NOT IN ('in-force', 'superseded') AND section || source_ids != ''",
    ),
    (
        "an archive's key does not fit its state",
        "SELECT 'archive ' || lower(hex(a.checksum)) FROM archives a
         WHERE (a.sealed_key IS NULL) != (a.erased_at IS NOT NULL OR a.expired_at IS NOT NULL)
         UNION SELECT 'run ' || d.run FROM dreams d WHERE d.state = 'in-force'
           AND NOT EXISTS (SELECT 1 FROM archives a WHERE a.tenant = d.tenant
             AND a.scope = d.scope AND a.checksum = d.archive AND a.sealed_key IS NOT NULL)",
    ),
    (
        "a handoff reaches beyond its branch",
        "SELECT 'handoff ' || h.id FROM handoffs h WHERE h.through < 0 OR h.through >
           coalesce((SELECT b.length FROM branches b WHERE b.tenant = h.tenant
             AND b.session = h.session AND b.branch = h.branch), -1)",
    ),
    (
        "a handoff has no version",
        "SELECT 'handoff ' || id FROM handoffs WHERE version < 1",
    ),
    (
        "a handoff keeps what it does not cover",
        "SELECT 'handoff ' || h.id FROM handoffs h, json_each(h.kept) k WHERE NOT EXISTS
           (SELECT 1 FROM turns t WHERE t.tenant = h.tenant AND t.session = h.session
              AND t.seq || '' = k.value || '' AND (t.branch < h.branch
                OR t.branch = h.branch AND t.ordinal <= h.through))",
    ),
    (
        "what a handoff was made of is not there",
        "SELECT 'handoff ' || h.id FROM handoffs h LEFT JOIN handoffs p
           ON p.tenant = h.tenant AND p.id = h.previous AND p.session = h.session
             AND p.position < h.position
         WHERE (h.previous IS NOT NULL AND p.id IS NULL) OR h.number != coalesce(p.number, 0) + 1",
    ),
    (
        "a handoff is not where the log says",
        "SELECT 'handoff ' || h.id FROM handoffs h WHERE NOT EXISTS (SELECT 1 FROM log l
           WHERE l.tenant = h.tenant AND l.position = h.position
             AND l.kind = 'session.compacted' AND json_extract(l.payload, '$.compactionId') = h.id)",
    ),
    (
        "what a provider counted is of no handoff",
        "SELECT 'session ' || u.session FROM view_usage u WHERE u.handoff IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM handoffs h WHERE h.tenant = u.tenant
             AND h.session = u.session AND h.id = u.handoff)",
    ),
    (
        "a link is of no turn of its memory",
        "SELECT 'session ' || l.session || ', turn ' || l.seq FROM links l WHERE NOT EXISTS
           (SELECT 1 FROM turns t JOIN sessions o ON o.tenant = t.tenant AND o.session = t.session
            WHERE t.tenant = l.tenant AND t.session = l.session AND t.seq = l.seq
              AND o.scope = l.scope)",
    ),
    (
        "a link is no hash, or a turn has two",
        "SELECT 'session ' || l.session || ', turn ' || l.seq FROM links l
         GROUP BY l.tenant, l.session, l.seq HAVING count(*) > 1 OR max(length(l.link)) != 16
           OR min(length(l.link)) != 16",
    ),
    (
        "an answer is about a session of another memory",
        "SELECT 'session ' || a.session FROM answers a WHERE a.session IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM sessions o WHERE o.tenant = a.tenant
             AND o.session = a.session AND o.scope = a.scope)",
    ),
    (
        "what was hidden is counted for nothing that is there",
        "SELECT 'position ' || h.position FROM hidden h WHERE NOT EXISTS
           (SELECT 1 FROM runs r JOIN turns t ON t.tenant = r.tenant AND t.session = r.session
              AND t.seq = r.first_seq + h.position - r.first
            WHERE r.tenant = h.tenant AND r.scope = h.scope AND t.flags & 4 = 0
              AND h.position BETWEEN r.first AND r.first + r.count - 1)
         AND NOT EXISTS (SELECT 1 FROM entries e
            WHERE e.tenant = h.tenant AND e.scope = h.scope AND e.began = h.position)
         AND NOT EXISTS (SELECT 1 FROM verdicts v
            WHERE v.tenant = h.tenant AND v.scope = h.scope AND v.position = h.position)",
    ),
];
