//! Turns, as they are added and as they come back.

use icecore::formats::json::{JsonText, quote};
use icecore::formats::turn_jsonl;
use icecore::ingest::Timestamp;
use icecore::{RawTurn, Remembered, StoredTurn, View};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{list, text};

/// The answer to added turns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Added {
    /// The client's ids where it gave them, ours elsewhere.
    // None where the client chose the id and the outcome is being kept.
    #[schema(value_type = Vec<String>)]
    turn_ids: Vec<Option<String>>,
    /// `seq` of the first of them.
    first_seq: u64,
    /// `seq` of the last of them.
    last_seq: u64,
    /// Turns that are new.
    added: usize,
    /// Turns that were there.
    known: usize,
    /// Turns that were forgotten once, and so were not added again.
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
    /// A kept answer, with the ids put back from the request.
    pub(crate) fn from_kept(body: &str, ids: Vec<Option<String>>) -> Option<Self> {
        let mut added: Added = serde_json::from_str(body).ok()?;
        for (kept, chosen) in added.turn_ids.iter_mut().zip(ids) {
            *kept = chosen.or_else(|| kept.take());
        }
        Some(added)
    }

    /// As it is sent.
    pub fn to_json(&self) -> String {
        text(self)
    }
}

/// What a turn's content may be.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what is read and written as text")]
pub(crate) enum TurnContent {
    /// Plain text.
    Text(String),
    /// A provider's parts, kept in its own spelling.
    Parts(Vec<serde_json::Value>),
}

/// A turn to add. Fields beside these are kept and come back as they were.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what `turn_jsonl` reads")]
pub(crate) struct NewTurn {
    /// The session of the path; nothing else may stand here.
    session: Option<String>,
    /// The client's own id; the same id in the same session is the same turn.
    #[schema(example = "greeting-1")]
    id: Option<String>,
    /// `user`, `assistant`, `system`, `tool`, or another word.
    #[schema(example = "user", min_length = 1)]
    role: String,
    /// Who spoke.
    #[schema(example = "Ana")]
    name: Option<String>,
    /// What was said: text, an array of parts, or null.
    #[schema(required = true, example = "We leave for Lisbon on 4 May.")]
    content: Option<TurnContent>,
    /// When; now, where none is given.
    #[schema(format = DateTime, example = "2024-05-01T10:00:00Z")]
    timestamp: Option<String>,
    /// The model that answered.
    model: Option<String>,
    /// The call that a tool's turn answers.
    tool_call_id: Option<String>,
    /// The turns that this one follows; the first decides the branch.
    parent_ids: Option<Vec<String>>,
    /// Free labels.
    tags: Option<Vec<String>>,
    /// A number from 0 to 1.
    #[schema(minimum = 0, maximum = 1)]
    confidence: Option<f64>,
    /// The calls that an assistant asked for, as its provider spells them.
    tool_calls: Option<serde_json::Value>,
}

/// A turn as it is kept: the client's fields in the client's spelling, and ours.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what `turn` writes as text")]
pub(crate) struct Turn {
    /// Its place in the session, from 1.
    seq: u64,
    /// Its branch: `main`, or `fork-1` and so on.
    branch: String,
    /// Tokens of its content, counted as o200k_base.
    tokens: u64,
    /// How it is kept.
    tier: String,
    /// Fields of the client's that have one of our names.
    #[schema(required = false)]
    client_fields: Option<serde_json::Map<String, serde_json::Value>>,
    /// The client's id, or ours.
    id: String,
    /// As it was given; absent once expired.
    #[schema(required = false)]
    role: String,
    /// Who spoke.
    name: Option<String>,
    /// What was said; absent once expired.
    content: Option<TurnContent>,
    /// When: as it was given, or when it was added.
    #[schema(format = DateTime)]
    timestamp: String,
    /// True where only this much is left of the turn.
    #[schema(required = false)]
    expired: bool,
    /// The model that answered.
    model: Option<String>,
    /// The call that a tool's turn answers.
    tool_call_id: Option<String>,
    /// The turns that this one follows.
    parent_ids: Option<Vec<String>>,
    /// Free labels.
    tags: Option<Vec<String>>,
    /// A number from 0 to 1.
    confidence: Option<f64>,
    /// The calls that an assistant asked for, as its provider spells them.
    tool_calls: Option<serde_json::Value>,
}

/// A page of turns.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `turns` writes as text")]
pub(crate) struct Turns {
    turns: Vec<Turn>,
}

/// Fields that we add to a turn.
const OURS: [&str; 6] = ["seq", "branch", "tokens", "tier", "expired", "clientFields"];

/// Bytes of what was said in turns.
pub(crate) fn turn_bytes(turns: &[StoredTurn]) -> usize {
    let stored = turns.iter().filter_map(|turn| turn.turn.as_ref());
    stored.map(|turn| turn.fields().byte_count()).sum()
}

/// `{"turns":[…]}`
pub fn turns(turns: &[StoredTurn]) -> String {
    list("turns", turns.iter().map(turn), "")
}

/// `{"messages":[…],"tokens":n}`
pub fn view(view: &View) -> String {
    let tokens = format!(r#""tokens":{}"#, view.tokens);
    list("messages", view.messages.iter().map(turn), &tokens)
}

/// A turn with all its fields and ours. Text, because numbers and strings of a
/// provider keep their spelling. A field of the client's that has one of our
/// names stands under `clientFields`.
pub fn turn(turn: &StoredTurn) -> String {
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

fn client_fields(hidden: Vec<(String, JsonText)>) -> Option<String> {
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
