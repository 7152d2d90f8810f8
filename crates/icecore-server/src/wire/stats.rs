//! Counts: what is there and what is still due.

use icecore::layers::Tier;
use icecore::models::{BreakEven, ModelStats, Spending};
use icecore::privacy::Hidden;
use icecore::store::StoreStats;
use serde::Serialize;
use utoipa::ToSchema;

/// What is there and what is still due, of a tenant or of one memory.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stats<'a> {
    /// The memory that is counted; null for all of the tenant's.
    memory_ref: Option<&'a str>,
    /// Branches with derived work to do; 0 is settled.
    pending: u64,
    sessions: u64,
    branches: u64,
    turns: u64,
    tokens: u64,
    /// Turns that no closed chunk holds yet.
    open_turns: u64,
    /// Turns of which only that they were there is left.
    expired: u64,
    /// Turns that were forgotten.
    erased: u64,
    tiers: Tiers,
    chunks: Levels,
    summaries: Levels,
    summary_bytes: u64,
    packs: u64,
    entries: u64,
    epoch: u64,
    /// Secrets that were hidden, by kind.
    #[schema(value_type = std::collections::BTreeMap<String, u64>)]
    redacted: &'a Hidden,
    /// Bytes of the data directory.
    disk_bytes: u64,
    /// The counter of all token counts.
    tokenizer: &'a str,
    models: ModelCounts<'a>,
    usage: TenantUsage,
}

/// What the tenant keeps in all its memories and used today, beside what it may.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct TenantUsage {
    /// Turns that were neither forgotten nor let go.
    turns: UsedOf,
    /// Bytes of turns, entries and kept versions of files, as they are kept.
    bytes: UsedOf,
    /// Requests today.
    requests_today: UsedOf,
    /// Tokens of turns, entries and files that were taken in today, and of what models
    /// read and wrote for the tenant's memories.
    tokens_today: UsedOf,
    /// When today ends, in UTC.
    day_ends_at: String,
}

/// What is used of what.
#[derive(Debug, Serialize, ToSchema)]
struct UsedOf {
    used: u64,
    /// How much it may be; null is without a bound.
    bound: Option<u64>,
}

impl From<&icecore_host::bounds::TenantUsage> for TenantUsage {
    fn from(usage: &icecore_host::bounds::TenantUsage) -> Self {
        let of = |used, bound: u64| UsedOf { used, bound: (bound > 0).then_some(bound) };
        let (used, bounds) = (&usage.used, &usage.bounds);
        Self {
            turns: of(used.turns, bounds.turns),
            bytes: of(used.bytes, bounds.bytes),
            requests_today: of(used.day.requests, bounds.requests_a_day),
            tokens_today: of(used.day.tokens, bounds.tokens_a_day),
            day_ends_at: usage.day_ends.to_string(),
        }
    }
}

/// What models were asked, what that cost and what it saved.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ModelCounts<'a> {
    /// By purpose and model.
    spent: Vec<Spent<'a>>,
    /// Tokens that contexts and views did not have to hold, thanks to what stands for
    /// them.
    saved_tokens: u64,
    /// Whether it was worth it; null where nothing was spent.
    break_even: Option<Balance>,
}

/// What a model was asked for one purpose.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Spent<'a> {
    /// `summary`, `handoff`, `dream`, `consolidation` or `exchange`.
    purpose: &'a str,
    /// As the settings call it.
    model: &'a str,
    /// Requests that were sent.
    calls: u64,
    /// Of these, how many brought no usable answer.
    failed: u64,
    /// Answers that were at hand and cost nothing.
    reused: u64,
    input_tokens: u64,
    /// Of these, from a provider's cache.
    cached_input_tokens: u64,
    output_tokens: u64,
    /// In the currency of the prices.
    cost: f64,
}

/// What was spent on the memory against what it saved.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Balance {
    spent_tokens: u64,
    saved_tokens: u64,
    /// In the currency of the prices.
    spent_cost: f64,
    /// What the saved tokens would have cost to read; null where no model has a price.
    saved_cost: Option<f64>,
    /// Whether more was saved than spent: in money where there are prices, else in
    /// tokens.
    reached: bool,
}

/// Millionths as money.
fn money(millionths: u64) -> f64 {
    millionths as f64 / 1e6
}

impl<'a> From<&'a ModelStats> for ModelCounts<'a> {
    fn from(stats: &'a ModelStats) -> Self {
        let spent = |one: &'a Spending| Spent {
            purpose: &one.purpose,
            model: &one.model,
            calls: one.calls,
            failed: one.failed,
            reused: one.reused,
            input_tokens: one.input,
            cached_input_tokens: one.cached_input,
            output_tokens: one.output,
            cost: money(one.cost),
        };
        let balance = |even: BreakEven| Balance {
            spent_tokens: even.spent_tokens,
            saved_tokens: even.saved_tokens,
            spent_cost: money(even.spent_cost),
            saved_cost: even.saved_cost.map(money),
            reached: even.is_reached,
        };
        Self {
            spent: stats.spent.iter().map(spent).collect(),
            saved_tokens: stats.saved_tokens,
            break_even: stats.break_even.map(balance),
        }
    }
}

/// What each tier holds.
#[derive(Debug, Serialize, ToSchema)]
struct Tiers {
    hot: TierCounts,
    warm: TierCounts,
    cold: TierCounts,
}

/// What a tier holds.
#[derive(Debug, Serialize, ToSchema)]
struct TierCounts {
    turns: u64,
    tokens: u64,
    bytes: u64,
}

/// A count for each level of chunks.
#[derive(Debug, Serialize, ToSchema)]
struct Levels {
    micro: u64,
    mini: u64,
    r#macro: u64,
}

impl<'a> Stats<'a> {
    /// The counts of `memory`, or of all where none is named.
    pub fn of(
        memory: Option<&'a str>,
        stats: &'a icecore::maintenance::Stats,
        usage: &icecore_host::bounds::TenantUsage,
    ) -> Self {
        let store = &stats.store;
        Self {
            memory_ref: memory,
            pending: stats.pending,
            sessions: store.sessions,
            branches: store.branches,
            turns: store.turns,
            tokens: store.tokens,
            open_turns: store.open_turns,
            expired: store.expired,
            erased: store.erased,
            tiers: Tiers::from(store),
            chunks: Levels::from(store.chunks),
            summaries: Levels::from(store.summaries),
            summary_bytes: store.summary_bytes,
            packs: store.packs,
            entries: store.entries,
            epoch: store.epoch,
            redacted: &store.hidden,
            disk_bytes: stats.disk_bytes,
            tokenizer: stats.tokenizer,
            models: ModelCounts::from(&stats.models),
            usage: TenantUsage::from(usage),
        }
    }
}

impl From<&StoreStats> for Tiers {
    fn from(store: &StoreStats) -> Self {
        let counts = |at: usize| TierCounts {
            turns: store.tier_turns[at],
            tokens: store.tier_tokens[at],
            bytes: store.tier_bytes[at],
        };
        // The store counts in the order of `Tier::ALL`.
        let [hot, warm, cold] = Tier::ALL.map(|tier| counts(tier as usize));
        Self { hot, warm, cold }
    }
}

impl From<[u64; 3]> for Levels {
    /// In the order of `Level::ALL`.
    fn from([micro, mini, r#macro]: [u64; 3]) -> Self {
        Self { micro, mini, r#macro }
    }
}
