//! One question to one model: the answer that is kept, or a new one within what may be
//! spent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use icecore_domain::chat::{ChatError, ChatModel, ChatReply, ChatRequest, Finish, Usage};
use icecore_domain::handoff::{message_tokens, request_tokens};
use icecore_domain::ids::{Scope, SessionNo, Tenant};
use icecore_domain::redact::RedactedText;
use icecore_domain::tokens::TokenCounter;
use icecore_domain::turn_jsonl::write_fields;
use icecore_store::{NewAnswer, Spending, StoreError};

use super::pause::Pauses;
use super::spend::{Ledger, plausible};
use super::tally;
use crate::base::INLINE_BYTES;
use crate::base::Purpose;
use crate::error::{Result, not_redacted, off_thread};
use crate::models::ModelCalls;
use crate::privacy::secrets::TenantRedactor;

/// What is at hand while models are asked.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    pub(super) pauses: Pauses,
    pub(super) ledger: Ledger,
    /// The last day on which a tenant was told that all is spent.
    refused: Mutex<BTreeMap<Tenant, i64>>,
}

impl Asking {
    /// Whether it is the first time on a day that a tenant may spend no more.
    pub(super) fn is_first_refusal(&self, tenant: &Tenant, day: i64) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.retain(|_, last| *last == day);
        refused.insert(tenant.clone(), day).is_none()
    }
}

/// A question for one model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    /// Whose texts it is about.
    pub(crate) scope: &'a Scope,
    /// The one session that it is about, if it is one.
    pub(crate) session: Option<SessionNo>,
    /// The memory's epoch as it was before anything was read that it is about.
    pub(crate) epoch: u64,
    /// What for.
    pub(crate) purpose: Purpose,
    /// Whom.
    pub(crate) model: &'a Arc<dyn ChatModel>,
    /// What.
    pub(crate) request: &'a ChatRequest,
}

/// An answer, redacted.
#[derive(Debug, Clone)]
pub(crate) struct Answered {
    /// What it says.
    pub(crate) text: RedactedText,
    /// All of the reply, but for its text; its tool calls are redacted too, and a usage
    /// that cannot be is left out.
    pub(crate) reply: ChatReply,
    /// What it is kept under.
    pub(crate) key: [u8; 32],
    /// Whether it was at hand and cost nothing.
    pub(crate) is_known: bool,
    /// The version of the tenant's secrets that it was redacted with.
    pub(crate) secrets_seen: u64,
}

impl ModelCalls {
    /// Asks a model, unless its answer is kept, or what may be spent is. What is spent is
    /// noted, whatever comes of it.
    pub(crate) async fn ask(&self, ask: &Ask<'_>) -> Result<Answered> {
        self.ask_telling(ask, &|_| ()).await
    }

    /// As [`ModelCalls::ask`]; `tell` hears pieces of a new answer as they come, which nobody
    /// has redacted.
    #[tracing::instrument(level = "debug", skip_all, fields(purpose = ask.purpose.as_str()))]
    pub(crate) async fn ask_telling(
        &self,
        ask: &Ask<'_>,
        tell: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Answered> {
        let (key, counted) = self.key_and_count(ask).await?;
        // A person who asks twice wants two answers, and is not kept waiting for one.
        if ask.purpose != Purpose::Exchange {
            if let Some(known) = self.known_answer(ask, key).await? {
                return Ok(known);
            }
            if let Some(error) = self.asking.pauses.of(ask.model.as_ref(), self.now()) {
                return Err(error.into());
            }
        }
        let under_way = self.begin_spending(ask, counted).await?;
        let hear = |piece: &str| {
            under_way.hear(piece);
            tell(piece);
        };
        let answer = ask.model.answer(ask.request, &hear).await;
        let counter = self.counter.as_ref();
        let (usage, is_failed) = match &answer {
            Ok(reply) => (used(reply, counted, ask.request.max_tokens, counter), false),
            Err(error) => (lost(error, counted, counter), true),
        };
        under_way.end(usage, is_failed);
        tally::note(usage);
        self.write_spending().await;
        match answer {
            Ok(reply) => {
                self.asking.pauses.end(ask.model.as_ref());
                self.redacted_answer(ask, key, reply, usage).await
            }
            Err(error) => {
                self.asking.pauses.note(ask.model.as_ref(), ask.purpose, &error, self.now());
                Err(error.into())
            }
        }
    }

    /// Keeps an answer that was of use, so that a rebuild pays nothing.
    pub(crate) async fn keep_answer(&self, ask: &Ask<'_>, answered: &Answered) -> Result<()> {
        if answered.is_known {
            return Ok(());
        }
        let answer = NewAnswer {
            key: answered.key,
            session: ask.session,
            epoch: ask.epoch,
            text: answered.text.clone(),
            secrets_seen: answered.secrets_seen,
            now: self.now(),
        };
        match self.store.put_answer(ask.scope, answer).await {
            // It may hold what is a secret now: it is asked for again some day.
            Err(StoreError::SecretsChanged) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Notes that an answer was paid for and is of no use.
    pub(crate) fn note_useless(&self, ask: &Ask<'_>, answered: &Answered) {
        if !answered.is_known {
            self.note_spending(
                ask.scope,
                ask.purpose,
                self.spending(ask, |spent| spent.failed = 1),
            );
        }
    }

    /// What an answer is kept under, and the tokens of the request as we count.
    async fn key_and_count(&self, ask: &Ask<'_>) -> Result<([u8; 32], u64)> {
        let bytes: usize = ask.request.messages.iter().map(|turn| turn.fields().byte_count()).sum();
        let counter = Arc::clone(&self.counter);
        let (written, counted) = match bytes <= INLINE_BYTES {
            true => (canonical(ask.request), count(ask.request, counter.as_ref())),
            false => {
                let request = ask.request.clone();
                off_thread(move || (canonical(&request), count(&request, counter.as_ref()))).await?
            }
        };
        let parts: Vec<&[u8]> = std::iter::once(&ask.model.profile().identity[..])
            .chain(written.iter().map(Vec::as_slice))
            .collect();
        Ok((self.keyed_hash(ask.scope.tenant(), "answer", &parts).await?, counted))
    }

    async fn known_answer(&self, ask: &Ask<'_>, key: [u8; 32]) -> Result<Option<Answered>> {
        let Some(kept) = self.store.answer(ask.scope, &key).await? else { return Ok(None) };
        // Secrets may have been registered since.
        let TenantRedactor { redactor, version } = self.deriving_redactor(ask.scope).await?;
        let (text, _) = redactor.derived_text(kept.as_str()).map_err(not_redacted)?;
        self.note_spending(ask.scope, ask.purpose, self.spending(ask, |spent| spent.reused = 1));
        let reply =
            ChatReply { text: String::new(), tool_calls: None, finish: Finish::Stop, usage: None };
        Ok(Some(Answered { text, reply, key, is_known: true, secrets_seen: version }))
    }

    /// A model may know a secret from elsewhere, or put one together.
    async fn redacted_answer(
        &self,
        ask: &Ask<'_>,
        key: [u8; 32],
        mut reply: ChatReply,
        usage: Usage,
    ) -> Result<Answered> {
        let TenantRedactor { redactor, version } = self.deriving_redactor(ask.scope).await?;
        let text = std::mem::take(&mut reply.text);
        let calls = reply.tool_calls.take();
        let (text, calls) = off_thread(move || {
            let calls = calls.map(|calls| redactor.json(&calls));
            (redactor.derived_text(&text), calls)
        })
        .await?;
        let (text, hidden) = text.map_err(not_redacted)?;
        self.counters.hidden(&hidden);
        reply.tool_calls = calls;
        reply.usage = reply.usage.filter(|told| *told == usage);
        Ok(Answered { text, reply, key, is_known: false, secrets_seen: version })
    }

    /// An account of today for a question.
    pub(super) fn spending(&self, ask: &Ask<'_>, fill: impl FnOnce(&mut Spending)) -> Spending {
        let mut spent = Spending {
            day: self.today(),
            purpose: ask.purpose.as_str().to_owned(),
            model: ask.model.profile().name.clone(),
            ..Spending::default()
        };
        fill(&mut spent);
        spent
    }
}

/// All of a request that decides its answer, in parts that cannot run into each other.
fn canonical(request: &ChatRequest) -> Vec<Vec<u8>> {
    let tools = request.tools.as_ref().map(|tools| tools.json().as_str()).unwrap_or_default();
    let mut parts = vec![request.max_tokens.to_be_bytes().to_vec(), tools.as_bytes().to_vec()];
    let turns = request.messages.iter().map(|turn| write_fields(&[], turn.fields()).into_bytes());
    parts.extend(turns);
    parts
}

/// Tokens of a request, as we count.
fn count(request: &ChatRequest, counter: &dyn TokenCounter) -> u64 {
    let messages = request.messages.iter();
    let tokens: u64 = messages.map(|turn| message_tokens(turn.fields(), counter)).sum();
    let tools = request.tools.as_ref().map_or(0, |tools| counter.count(tools.json().as_str()));
    request_tokens(request.messages.len() as u64, tokens) + u64::from(tools)
}

/// What an answer took: the provider's own count where that can be, else ours.
fn used(reply: &ChatReply, counted: u64, max_tokens: u64, counter: &dyn TokenCounter) -> Usage {
    let calls = reply.tool_calls.as_ref().map_or(0, |calls| counter.count(calls.as_str()));
    let written = u64::from(counter.count(&reply.text)) + u64::from(calls);
    let ours = Usage { input: counted, cached_input: 0, output: written };
    reply.usage.filter(|told| plausible(*told, ours, max_tokens)).unwrap_or(ours)
}

/// What a request took that came to nothing. A server that refused it, or was not
/// reached, read nothing.
fn lost(error: &ChatError, counted: u64, counter: &dyn TokenCounter) -> Usage {
    let partial = match error {
        ChatError::CutOff { partial, .. } => partial.as_str(),
        ChatError::Overflow { partial, .. } if !partial.is_empty() => partial,
        ChatError::Malformed { .. } => "",
        _ => return Usage::default(),
    };
    Usage { input: counted, cached_input: 0, output: u64::from(counter.count(partial)) }
}
