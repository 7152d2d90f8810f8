//! What goes over the wire, apart from what the memory holds.
//!
//! Turns are written as text, not through a tree, so that a client's own fields
//! come back in the spelling they had.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use icecore::json::quote;
use icecore::{
    Appended, ChunkInfo, Context, EventRecord, FactInfo, Hit, Hits, Level, Outcome, RawTurn,
    Receipt, Remembered, SessionInfo, Stats, StoredTurn, Tier, Timestamp, TurnId, WindowItem,
    turn_jsonl,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// A JSON answer.
pub(crate) fn json(status: StatusCode, body: String) -> Response {
    let mut response = (status, body).into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    // Memory is private: nothing between us and the caller may keep a copy.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A JSON answer to a request that went well.
pub(crate) fn ok(body: String) -> Response {
    json(StatusCode::OK, body)
}

/// `{"<key>":[…]}`, with further members behind it.
pub(crate) fn list(key: &str, items: impl Iterator<Item = String>, more: &str) -> String {
    let mut out = format!("{{{}:[", quote(key));
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str(&item);
    }
    out.push(']');
    if !more.is_empty() {
        out.push(',');
        out.push_str(more);
    }
    out.push('}');
    out
}

/// The answer to added turns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Added {
    /// None where the client chose the id and the outcome is being kept.
    turn_ids: Vec<Option<String>>,
    first_seq: u64,
    last_seq: u64,
    added: usize,
    known: usize,
    forgotten: usize,
}

impl From<Remembered> for Added {
    fn from(remembered: Remembered) -> Self {
        Self {
            turn_ids: remembered.turn_ids.into_iter().map(Some).collect(),
            first_seq: remembered.first_seq.0,
            last_seq: remembered.last_seq.0,
            added: remembered.added,
            known: remembered.known,
            forgotten: remembered.forgotten,
        }
    }
}

impl Added {
    /// The answer as it is kept: without the ids that the client `chose`.
    pub(crate) fn kept(appended: &Appended, chose: &[bool]) -> Self {
        let count = |wanted| appended.turns.iter().filter(|turn| turn.outcome == wanted).count();
        let seqs = || appended.turns.iter().map(|turn| turn.seq.0);
        let ours = |seq| TurnId { session: appended.session, seq }.to_string();
        let ids = appended.turns.iter().zip(chose);
        Self {
            turn_ids: ids.map(|(turn, chosen)| (!chosen).then(|| ours(turn.seq))).collect(),
            first_seq: seqs().min().unwrap_or_default(),
            last_seq: seqs().max().unwrap_or_default(),
            added: count(Outcome::Added),
            known: count(Outcome::Known),
            forgotten: count(Outcome::Forgotten),
        }
    }

    /// A kept answer, with the ids put back from the request.
    pub(crate) fn from_kept(body: &str, ids: Vec<Option<String>>) -> Option<Self> {
        let mut added: Added = serde_json::from_str(body).ok()?;
        for (kept, chosen) in added.turn_ids.iter_mut().zip(ids) {
            *kept = kept.take().or(chosen);
        }
        Some(added)
    }

    pub(crate) fn to_json(&self) -> String {
        json!(self).to_string()
    }
}

/// Fields that we add to a turn.
const OURS: [&str; 6] = ["seq", "branch", "tokens", "tier", "expired", "clientFields"];

/// A turn with all its fields and ours. A field of the client's that has one of
/// our names stands under `clientFields`.
pub(crate) fn turn(turn: &StoredTurn) -> String {
    let mut before = vec![
        ("seq", turn.seq.to_string()),
        ("branch", quote(&turn.branch.to_string())),
        ("tokens", turn.tokens.to_string()),
        ("tier", quote(turn.tier.as_str())),
    ];
    let Some(stored) = &turn.turn else {
        return expired(turn, &before);
    };
    let mut fields: RawTurn = stored.fields().clone();
    fields.id = Some(turn.id.clone());
    fields.timestamp = fields.timestamp.or_else(|| Timestamp::parse(turn.at.to_rfc3339()).ok());
    let taken = |key: &str| OURS.contains(&key) || matches!(key, "id" | "timestamp");
    let (hidden, shown) = fields.extra.into_iter().partition(|(key, _)| taken(key));
    fields.extra = shown;
    if let Some(hidden) = client_fields(hidden) {
        before.push(("clientFields", hidden));
    }
    turn_jsonl::write_fields(&before, &fields)
}

fn client_fields(hidden: Vec<(String, icecore::json::JsonText)>) -> Option<String> {
    // An `id` or a `timestamp` that is null says no more than that we gave one.
    let hidden = hidden
        .iter()
        .filter(|(key, json)| OURS.contains(&key.as_str()) || json.as_str() != "null")
        .map(|(key, json)| format!("{}:{json}", quote(key)))
        .collect::<Vec<_>>();
    (!hidden.is_empty()).then(|| format!("{{{}}}", hidden.join(",")))
}

fn expired(turn: &StoredTurn, before: &[(&str, String)]) -> String {
    let mut out = format!(r#"{{"id":{}"#, quote(&turn.id));
    for (key, value) in before {
        out.push_str(&format!(",{}:{value}", quote(key)));
    }
    out.push_str(&format!(r#","timestamp":{},"expired":true}}"#, quote(&turn.at.to_rfc3339())));
    out
}

pub(crate) fn session(session: &SessionInfo) -> String {
    let branches: Vec<String> = session.branches.iter().map(ToString::to_string).collect();
    json!({
        "session": session.session,
        "turns": session.turns,
        "tokens": session.tokens,
        "branches": branches,
        "lastSeq": session.last_seq.0,
        "updatedAt": session.updated_at.to_rfc3339(),
    })
    .to_string()
}

pub(crate) fn chunk(chunk: &ChunkInfo) -> String {
    let summary = chunk.summary.as_ref();
    let children: Vec<String> = chunk.children.iter().map(ToString::to_string).collect();
    json!({
        "id": chunk.id.to_string(),
        "session": chunk.session,
        "branch": chunk.id.branch.to_string(),
        "level": chunk.id.level.as_str(),
        "tier": chunk.tier.as_str(),
        "firstSeq": chunk.first_seq.0,
        "lastSeq": chunk.last_seq.0,
        "turns": chunk.turns,
        "tokens": chunk.tokens,
        "summary": summary.map(|summary| &summary.text),
        "themes": summary.map(|summary| summary.themes.as_slice()).unwrap_or_default(),
        "keyFacts": summary.map(|summary| summary.key_facts.as_slice()).unwrap_or_default(),
        "parent": chunk.parent.map(|id| id.to_string()),
        "children": children,
    })
    .to_string()
}

/// A context and where each token of it went.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContextAnswer<'a> {
    /// What to put into a prompt.
    text: &'a str,
    /// Its o200k_base count; never above `budget`.
    tokens: u32,
    /// As it was asked.
    budget: u32,
    items: Vec<ContextItem<'a>>,
    /// The items as messages of a chat, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<Vec<Message<'a>>>,
    /// What a person should know about this answer.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    notices: &'a [String],
}

/// A piece of a context.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ContextItem<'a> {
    /// `turn`, `summary`, `fact` or `distillate`.
    kind: &'a str,
    id: &'a str,
    /// Where it is kept.
    tier: &'a str,
    tokens: u32,
    score: f64,
    /// Why it is here.
    reason: &'a str,
    text: &'a str,
    /// The turns that it comes from.
    sources: &'a [String],
}

/// A message of a chat.
#[derive(Debug, Serialize, ToSchema)]
struct Message<'a> {
    role: &'a str,
    content: &'a str,
}

/// A context; with `as_messages` also as messages of a chat, summaries in the
/// system's voice.
pub(crate) fn context(context: &Context, as_messages: bool) -> String {
    let messages = as_messages.then(|| context.items.iter().map(message).collect());
    let answer = ContextAnswer {
        text: &context.text,
        tokens: context.tokens,
        budget: context.budget,
        items: context.items.iter().map(context_item).collect(),
        messages,
        notices: &context.notices,
    };
    json!(answer).to_string()
}

fn context_item(item: &WindowItem) -> ContextItem<'_> {
    ContextItem {
        kind: item.kind.as_str(),
        id: &item.id,
        tier: item.tier,
        tokens: item.tokens,
        score: item.score,
        reason: &item.reason,
        text: &item.text,
        sources: &item.sources,
    }
}

fn message(item: &WindowItem) -> Message<'_> {
    Message { role: item.role.as_deref().unwrap_or("system"), content: &item.text }
}

/// The answer to a search.
pub(crate) fn hits(found: &Hits) -> String {
    let body = json!({ "hits": found.hits.iter().map(hit).collect::<Vec<_>>() });
    with_notices(body, &found.notices)
}

fn hit(hit: &Hit) -> Value {
    let signals: Map<String, Value> =
        hit.signals.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    json!({
        "kind": hit.kind.as_str(),
        "id": hit.id,
        "session": hit.session,
        "seq": hit.seq.map(|seq| seq.0),
        "role": hit.role,
        "name": hit.name,
        "text": hit.text,
        "score": hit.score,
        "reason": hit.reason,
        "signals": signals,
        "timestamp": hit.at.to_rfc3339(),
    })
}

/// What a person should know about an answer, where there is anything to know.
fn with_notices(mut body: Value, notices: &[String]) -> String {
    if !notices.is_empty() {
        body["notices"] = json!(notices);
    }
    body.to_string()
}

pub(crate) fn stats(memory: Option<&str>, stats: &Stats) -> String {
    let store = &stats.store;
    let tier = |(at, tier): (usize, Tier)| {
        let counts = json!({
            "turns": store.tier_turns[at],
            "tokens": store.tier_tokens[at],
            "bytes": store.tier_bytes[at],
        });
        (tier.as_str().to_owned(), counts)
    };
    let levels = |counts: [u64; 3]| -> Map<String, Value> {
        Level::ALL.iter().zip(counts).map(|(l, n)| (l.as_str().to_owned(), n.into())).collect()
    };
    json!({
        "memoryRef": memory,
        "pending": stats.pending,
        "sessions": store.sessions,
        "branches": store.branches,
        "turns": store.turns,
        "tokens": store.tokens,
        "openTurns": store.open_turns,
        "expired": store.expired,
        "erased": store.erased,
        "tiers": Tier::ALL.into_iter().enumerate().map(tier).collect::<Map<_, _>>(),
        "chunks": levels(store.chunks),
        "summaries": levels(store.summaries),
        "summaryBytes": store.summary_bytes,
        "packs": store.packs,
        "entries": store.entries,
        "epoch": store.epoch,
        "redacted": store.hidden,
        "diskBytes": stats.disk_bytes,
        "tokenizer": stats.tokenizer,
    })
    .to_string()
}

/// Facts with what supports them.
pub(crate) fn facts(facts: &[FactInfo]) -> String {
    let one = |fact: &FactInfo| {
        let sources = fact.sources.iter();
        let sources = sources.map(|s| json!({ "turnId": s.turn_id, "quote": s.quote }));
        json!({
            "id": fact.id,
            "text": fact.text,
            "kind": fact.kind.as_str(),
            "subject": fact.subject,
            "status": fact.status.as_str(),
            "validFrom": fact.valid_from.to_rfc3339(),
            "validTo": fact.valid_to.map(|at| at.to_rfc3339()),
            "sources": sources.collect::<Vec<_>>(),
        })
        .to_string()
    };
    list("facts", facts.iter().map(one), "")
}

/// A receipt. What later parts erase is counted already, as none.
pub(crate) fn receipt(receipt: &Receipt) -> String {
    json!({
        "receiptId": receipt.id,
        "erased": {
            "turns": receipt.erased.turns,
            "entries": receipt.erased.entries,
            "chunks": receipt.erased.chunks,
            "facts": receipt.erased.facts,
            "vectors": receipt.erased.vectors,
            "packs": receipt.erased.packs,
            "archives": 0,
        },
        "kind": receipt.kind,
        "sha256": receipt.sha256,
        "statement": receipt.statement(),
        "at": receipt.at.to_rfc3339(),
        "dryRun": receipt.dry_run,
    })
    .to_string()
}

pub(crate) fn event(event: &EventRecord) -> String {
    format!(
        r#"{{"seq":{},"type":{},"timestamp":{},"payload":{}}}"#,
        event.position,
        quote(&event.kind),
        quote(&event.at.to_rfc3339()),
        event.payload
    )
}
