//! Looking after the store: how much is in it, and whether its invariants hold.

use icecore_domain::ids::Tenant;
use icecore_domain::redact::Hidden;
use icecore_domain::time::Millis;

#[cfg(feature = "postgres")]
use crate::engine::postgres;
use crate::engine::prelude::*;
use crate::engine::{notes, sqlite};
use crate::host::{runs, workspace};
use crate::store::{Engine, Store};
use crate::{secrets, usage};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreStats {
    pub sessions: u64,
    pub branches: u64,
    /// Turns that are not erased, the expired among them.
    pub turns: u64,
    pub tokens: u64,
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
    pub chunks: [u64; 3],
    pub summaries: [u64; 3],
    pub summary_bytes: u64,
    pub packs: u64,
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

    pub async fn stats(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        now: Millis,
    ) -> Result<StoreStats> {
        let memory = memory.map(str::to_owned);
        self.read(tenant, "stats", move |tx| stats(tx, memory.as_deref(), now)).await
    }

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

/// The rows of sessions of a tenant, `?1`, or of one of its memories, `?2`.
const OF_SESSIONS: &str = "tenant = ?1 AND session IN (SELECT o.session FROM sessions o
    JOIN scopes p ON p.tenant = o.tenant AND p.scope = o.scope
    WHERE o.tenant = ?1 AND (?2 IS NULL OR p.memory = ?2))";

const OF_MEMORIES: &str = "tenant = ?1
    AND (?2 IS NULL OR scope IN (SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?2))";

const LEVELS: &str = "count(*) FILTER (WHERE level = 0), count(*) FILTER (WHERE level = 1),
    count(*) FILTER (WHERE level = 2)";

fn stats(tx: &Tx<'_>, memory: Option<&str>, now: Millis) -> Result<StoreStats> {
    let Some(tenant) = tx.tenant_no()? else { return Ok(StoreStats::default()) };
    let whose = params![tenant, memory];
    let mut stats = StoreStats::default();

    // `seq` is dense, so what it counts beyond the turns that are there is erased.
    let sql = format!(
        "SELECT count(*) FILTER (WHERE turns > 0), sum(turns), sum(tokens), sum(last_seq - turns)
         FROM sessions WHERE {OF_SESSIONS}"
    );
    [stats.sessions, stats.turns, stats.tokens, stats.erased] = sums(tx, &sql, whose)?;
    let sql = format!(
        "SELECT count(*) FROM turns INDEXED BY turns_expired WHERE {OF_SESSIONS} AND flags & 12 = 8"
    );
    [stats.expired] = sums(tx, &sql, whose)?;
    let sql = format!(
        "SELECT count(*) FILTER (WHERE EXISTS (SELECT 1 FROM sessions o
              WHERE o.tenant = b.tenant AND o.session = b.session AND o.turns > 0)),
            sum((SELECT count(*) FROM turns t WHERE micro_first_seq > 0 AND t.tenant = b.tenant
              AND t.session = b.session AND t.branch = b.branch AND t.seq >= micro_first_seq
              AND t.flags & 4 = 0)),
            sum(micro_tokens)
         FROM branches b WHERE {OF_SESSIONS}"
    );
    let open_tokens;
    [stats.branches, stats.open_turns, open_tokens] = sums(tx, &sql, whose)?;

    // Closed micros by tier, from the branches' watermarks; the open tail is hot.
    let sql = format!(
        "SELECT CASE WHEN last <= cold_through THEN 2 WHEN last <= warm_through THEN 1 ELSE 0 END,
                sum(turns), sum(tokens)
         FROM (SELECT * FROM chunks WHERE level = 0 AND {OF_SESSIONS}) k
         JOIN (SELECT tenant, session, branch, warm_through, cold_through FROM branches
               WHERE {OF_SESSIONS}) b
           USING (tenant, session, branch)
         GROUP BY 1"
    );
    let tiers: Vec<(usize, u64, u64)> = tx.all(&sql, whose, tuple)?;
    for (tier, turns, tokens) in tiers {
        (stats.tier_turns[tier], stats.tier_tokens[tier]) = (turns, tokens);
    }
    stats.tier_tokens[0] += open_tokens;
    stats.tier_turns[0] = stats.turns.saturating_sub(stats.tier_turns[1] + stats.tier_turns[2]);

    let sql = format!("SELECT sum(length(body)) FROM bodies WHERE {OF_SESSIONS}");
    [stats.tier_bytes[0]] = sums(tx, &sql, whose)?;
    let sql = format!(
        "SELECT sum(length(text)) FILTER (WHERE first > cold_through),
                sum(length(text)) FILTER (WHERE first <= cold_through)
         FROM (SELECT * FROM texts WHERE {OF_SESSIONS}) x
         JOIN (SELECT tenant, session, branch, cold_through FROM branches WHERE {OF_SESSIONS}) b
           USING (tenant, session, branch)"
    );
    [stats.tier_bytes[1], stats.tier_bytes[2]] = sums(tx, &sql, whose)?;
    let sql = format!("SELECT count(*), sum(bytes) FROM packs WHERE {OF_SESSIONS}");
    let pack_bytes;
    [stats.packs, pack_bytes] = sums(tx, &sql, whose)?;
    stats.tier_bytes[2] += pack_bytes;

    let sql = format!("SELECT {LEVELS} FROM chunks WHERE {OF_SESSIONS}");
    stats.chunks = sums(tx, &sql, whose)?;
    let sql = format!("SELECT {LEVELS} FROM summaries WHERE {OF_SESSIONS}");
    stats.summaries = sums(tx, &sql, whose)?;
    let sql = format!("SELECT sum(length(summary)) FROM summaries WHERE {OF_SESSIONS}");
    [stats.summary_bytes] = sums(tx, &sql, whose)?;

    let sql = format!(
        "SELECT (SELECT count(*) FROM entries WHERE {OF_MEMORIES}
             AND (ended IS NULL OR superseded_until <= {now})
             AND (expires_at IS NULL OR expires_at > {now})),
           (SELECT count(*) FROM facts WHERE {OF_MEMORIES}),
           (SELECT count(*) FROM verdicts WHERE {OF_MEMORIES}),
           (SELECT sum(epoch) FROM scopes WHERE {OF_MEMORIES})",
        now = now.0
    );
    [stats.entries, stats.facts, stats.verdicts, stats.epoch] = sums(tx, &sql, whose)?;
    let sql = format!("SELECT kind, sum(count) FROM hidden WHERE {OF_MEMORIES} GROUP BY kind");
    let hidden: Vec<(String, u64)> = tx.all(&sql, whose, tuple)?;
    stats.hidden = hidden.into_iter().collect();
    if memory.is_none() {
        stats.files = workspace::count(tx, tenant)?;
        workspace::add_hidden(tx, tenant, &mut stats.hidden)?;
    }
    Ok(stats)
}

/// The one row that a statement finds, in which nothing counts as 0.
fn sums<const N: usize>(tx: &Tx<'_>, sql: &str, whose: impl Params) -> Result<[u64; N]> {
    let mut sums = [0; N];
    tx.one(sql, whose, |row| {
        for (at, sum) in sums.iter_mut().enumerate() {
            *sum = row.get::<_, Option<u64>>(at)?.unwrap_or_default();
        }
        Ok(sums)
    })
}

/// Queries for rows that break an invariant, each below a comment that says what is wrong.
const INVARIANTS: &str = include_str!("check/invariants.sql");

/// Findings of one kind that are named one by one.
const FINDINGS_NAMED: usize = 5;

fn check(tx: &Tx<'_>) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for query in INVARIANTS.trim_end().split("\n\n") {
        let what = query.lines().next().unwrap_or_default().trim_start_matches("-- ");
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
