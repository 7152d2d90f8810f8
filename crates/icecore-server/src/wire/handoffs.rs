//! What a model sees of a session, and the handoffs in it.

use icecore::formats::json::quote;
use icecore::sessions::{ApiView, Compacted, Effort, HandoffInfo};
use serde::Serialize;
use utoipa::ToSchema;

use super::turns::{Turn, turn, turn_bytes};
use super::{list, text};

/// A session as a person or a model sees it.
#[derive(ToSchema)]
#[schema(as = View)]
#[expect(dead_code, reason = "describes what `view` and `api_view` write as text")]
pub(crate) struct Viewed {
    /// Its messages: turns, ancestors first; for a model perhaps a handoff among them.
    messages: Vec<ViewedMessage>,
    /// Tokens of their texts and tool calls.
    tokens: u64,
}

/// A message of a view.
#[derive(ToSchema)]
#[schema(as = ViewMessage)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what `view` and `api_view` write as text")]
pub(crate) enum ViewedMessage {
    /// A turn.
    Turn(Box<Turn>),
    /// What stands for turns that a model is not sent any more.
    Handoff(HandoffMessage),
}

/// What stands for turns that a model is not sent any more. It is sent as a user's
/// message, after the system prompt; its text says that no person wrote it.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what `api_view` writes as text")]
pub(crate) struct HandoffMessage {
    /// `handoff`.
    kind: String,
    /// The compaction that wrote it.
    compaction_id: String,
    /// Which of the branch's handoffs it is, from 1.
    number: u64,
    /// `user`.
    role: String,
    /// What it says.
    content: String,
    /// Tokens of that.
    tokens: u64,
}

/// `{"messages":[…],"tokens":n}`
pub fn api_view(view: &ApiView) -> String {
    // One that had no room for a word is no message.
    let told = view.handoff.iter().filter(|handoff| !handoff.text.is_empty());
    let handoff = told.map(handoff_message);
    let messages = view.system.iter().map(turn).chain(handoff).chain(view.turns.iter().map(turn));
    list("messages", messages, &format!(r#""tokens":{}"#, view.tokens))
}

/// Bytes of what is said in it.
pub(crate) fn api_view_bytes(view: &ApiView) -> usize {
    let handoff = view.handoff.as_ref().map_or(0, |handoff| handoff.text.len());
    turn_bytes(&view.system) + handoff + turn_bytes(&view.turns)
}

fn handoff_message(handoff: &HandoffInfo) -> String {
    format!(
        r#"{{"kind":"handoff","compactionId":{},"number":{},"role":"user","content":{},"tokens":{}}}"#,
        quote(&handoff.id),
        handoff.number,
        quote(&handoff.text),
        handoff.tokens
    )
}

/// What a compaction came to.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompactedRow {
    /// The handoff's id.
    compaction_id: String,
    /// Tokens of the model's view before.
    tokens_before: u64,
    /// Tokens of it now, as `GET …/view?view=api` counts.
    tokens_after: u64,
    /// What the handoff says.
    handoff: String,
    /// Which of the branch's handoffs it is, from 1.
    number: u64,
    /// The version of the handoff, for a correction.
    version: u64,
    /// What wrote it: `heuristic`, `model:NAME`, `fresh`, `person`.
    made_by: String,
    /// `hand`, `window` or `overflow`.
    trigger: &'static str,
    /// How hard it had to try: `first`, `escalated` or `fresh`.
    effort: &'static str,
    /// What a person should know, such as a model that did not answer.
    notices: Vec<String>,
}

impl From<&Compacted> for CompactedRow {
    fn from(done: &Compacted) -> Self {
        Self {
            compaction_id: done.handoff.id.clone(),
            tokens_before: done.tokens_before,
            tokens_after: done.tokens_after,
            handoff: done.handoff.text.to_string(),
            number: done.handoff.number,
            version: done.handoff.version,
            made_by: done.handoff.made_by.clone(),
            trigger: done.handoff.trigger.as_str(),
            effort: effort(done.effort),
            notices: done.notices.clone(),
        }
    }
}

impl CompactedRow {
    /// As it is sent.
    pub fn to_json(&self) -> String {
        text(self)
    }
}

fn effort(effort: Effort) -> &'static str {
    match effort {
        Effort::First => "first",
        Effort::Escalated => "escalated",
        Effort::Fresh => "fresh",
    }
}

/// A handoff as it is kept.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Handoff)]
pub struct HandoffRow {
    /// The compaction that wrote it.
    compaction_id: String,
    /// Which of the branch's handoffs it is, from 1.
    number: u64,
    /// What it says.
    handoff: String,
    /// Tokens of that.
    tokens: u64,
    /// Tokens of the model's view before the compaction.
    tokens_before: u64,
    /// Tokens of it right after.
    tokens_after: u64,
    /// What wrote it: `heuristic`, `model:NAME`, `fresh`, `person`.
    made_by: String,
    /// `hand`, `window` or `overflow`.
    trigger: &'static str,
    /// Goes up with each correction.
    version: u64,
    /// When the session was compacted.
    #[schema(format = DateTime)]
    created_at: String,
}

impl From<&HandoffInfo> for HandoffRow {
    fn from(handoff: &HandoffInfo) -> Self {
        Self {
            compaction_id: handoff.id.clone(),
            number: handoff.number,
            handoff: handoff.text.to_string(),
            tokens: handoff.tokens,
            tokens_before: handoff.tokens_before,
            tokens_after: handoff.tokens_after,
            made_by: handoff.made_by.clone(),
            trigger: handoff.trigger.as_str(),
            version: handoff.version,
            created_at: handoff.at.to_rfc3339(),
        }
    }
}

#[cfg(test)]
mod tests {
    use icecore::Millis;
    use icecore::sessions::HandoffTrigger;

    use super::*;

    #[test]
    fn a_handoff_without_words_is_no_message() {
        let handoff = |text: &str| HandoffInfo {
            id: "h-1".to_owned(),
            number: 1,
            text: icecore::privacy::Redactor::standard().text(text),
            tokens: text.len() as u64,
            tokens_before: 9,
            tokens_after: 1,
            made_by: "fresh".to_owned(),
            trigger: HandoffTrigger::Window,
            version: 1,
            at: Millis(0),
        };
        let view = |text: &str| ApiView {
            system: Vec::new(),
            handoff: Some(handoff(text)),
            turns: Vec::new(),
            tokens: text.len() as u64,
        };
        assert_eq!(api_view(&view("")), r#"{"messages":[],"tokens":0}"#);
        let told = r#"{"messages":[{"kind":"handoff","compactionId":"h-1","number":1,"role":"user","content":"All.","tokens":4}],"tokens":4}"#;
        assert_eq!(api_view(&view("All.")), told);
    }
}
