//! A context, and where each token of it went.

use icecore::Context;
use icecore::context::WindowItem;
use serde::Serialize;
use utoipa::ToSchema;

/// A context and where each token of it went.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContextAnswer<'a> {
    /// What to put into a prompt.
    text: &'a str,
    /// Its o200k_base count; never above `budget`.
    tokens: u32,
    /// As it was asked.
    budget: u32,
    /// What it is made of, in order.
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
    kind: &'a str,
    id: &'a str,
    /// Where it is kept.
    tier: &'a str,
    tokens: u32,
    /// Worth beside others of its kind.
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

impl<'a> ContextAnswer<'a> {
    /// A context; with `as_messages` also as messages of a chat, summaries in
    /// the system's voice.
    pub fn of(context: &'a Context, as_messages: bool) -> Self {
        Self {
            text: &context.text,
            tokens: context.tokens,
            budget: context.budget,
            items: context.items.iter().map(ContextItem::from).collect(),
            messages: as_messages.then(|| context.items.iter().map(Message::from).collect()),
            notices: &context.notices,
        }
    }
}

impl<'a> From<&'a WindowItem> for ContextItem<'a> {
    fn from(item: &'a WindowItem) -> Self {
        Self {
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
}

impl<'a> From<&'a WindowItem> for Message<'a> {
    fn from(item: &'a WindowItem) -> Self {
        Self { role: item.role.as_deref().unwrap_or("system"), content: &item.text }
    }
}
