//! What the chat has done over the memory: one piece of work at a time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use icecore::ingest::Content;
use icecore::knowledge::FactQuery;
use icecore::models::{ChatModel, Finish};
use icecore::recall::matched_words;
use icecore::sessions::{ApiView, CompactRequest, Compacted, ExchangeRequest, SessionWindow};
use icecore::{
    ForgetRequest, Hit, Memory, MemoryError, Principal, RawTurn, Receipt, Scope, SearchRequest,
    Seq, StoredTurn,
};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::state::{Confirm, Done, Event, Handoff, Job, Note, Tone, Turn, Views, Voice};
use crate::commands::export;
use crate::draw::{clip, count, number};
use crate::failure::{hint_of, with_causes};
use crate::picture::hits;

/// Hits that `/recall` shows.
const RECALLED: usize = 6;

/// Characters that are shown of a hit.
const HIT_CHARS: usize = 140;

/// Facts that `/learn` lists.
const LISTED_FACTS: usize = 40;

/// Turns that are read at once for a file.
const PAGE: usize = 500;

/// What goes along with a request has at most this part of the model's window.
const RECALL_PART: u64 = 8;

/// Whoever works: the memory, whose it is, and the model.
#[derive(Clone)]
pub struct Hands {
    /// The memory.
    pub memory: Memory,
    /// On whose behalf.
    pub principal: Principal,
    /// Which memory of theirs.
    pub scope: Scope,
    /// Whether the memory was named: then a subject is forgotten in it alone.
    pub is_named: bool,
    /// Who answers.
    pub model: Option<Arc<dyn ChatModel>>,
    /// Tokens of memory that go along with a request.
    pub recall_tokens: u32,
    /// What models had cost when the chat was opened; none where no price is declared.
    pub cost_before: Option<u64>,
}

/// Where work is begun and given up.
pub struct Desk {
    hands: Hands,
    current: Option<JoinHandle<()>>,
    /// Told when there may be something to derive.
    changed: Arc<Notify>,
    settling: JoinHandle<()>,
}

impl Desk {
    /// One without work.
    pub fn new(hands: Hands) -> Self {
        let changed = Arc::new(Notify::new());
        let settling = tokio::spawn(settle(hands.memory.clone(), Arc::clone(&changed)));
        Self { hands, current: None, changed, settling }
    }

    /// Begins work. It tells the chat what comes of it under its number.
    pub fn begin(&mut self, id: u64, job: Job, session: String, sender: mpsc::Sender<Event>) {
        let (hands, changed) = (self.hands.clone(), Arc::clone(&self.changed));
        let before = self.current.take();
        let work = async move {
            // What was given up has to be over before anything is read.
            if let Some(before) = before {
                let _ = before.await;
            }
            let done = hands.done(id, job, &session, &sender).await;
            let _ = sender.send(Event::Done(id, Box::new(done))).await;
            changed.notify_one();
        };
        self.current = Some(tokio::spawn(work));
    }

    /// Gives up what is under way.
    pub fn stop(&mut self) {
        if let Some(current) = &self.current {
            current.abort();
        }
    }

    /// Waits until work breaks, which is our mistake, and says how.
    pub async fn breaks(&mut self) -> String {
        loop {
            match &mut self.current {
                Some(current) => match current.await {
                    Err(error) if error.is_panic() => return error.to_string(),
                    _ => self.current = None,
                },
                None => std::future::pending().await,
            }
        }
    }
}

/// Derives summaries and facts of what is new, beside the conversation. It may be ended at
/// any point: the next command goes on with it.
async fn settle(memory: Memory, changed: Arc<Notify>) {
    loop {
        changed.notified().await;
        if let Err(error) = memory.settle(|_, _| ()).await {
            tracing::warn!(%error, "what follows from the conversation could not be derived");
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.stop();
        self.settling.abort();
    }
}

impl Hands {
    async fn done(&self, id: u64, job: Job, session: &str, sender: &mpsc::Sender<Event>) -> Done {
        let done = match job {
            Job::Load => Ok(Done::default()),
            Job::Ask(text) => return self.asked(id, text, session, sender).await,
            Job::Compact => self.compacted(session).await,
            Job::Learn(None) => self.known().await,
            Job::Learn(Some(text)) => self.learned(&text).await,
            Job::Weigh(request) => self.weighed(request).await,
            Job::Forget(request) => self.forgotten(&request).await,
            Job::Recall(words) => self.recalled(&words).await,
            Job::Sessions => self.sessions(session).await,
            Job::Open(name) => return self.opened(name).await,
            Job::Export(file) => return self.exported(session, file).await,
        };
        let done = done.unwrap_or_else(|error| failed(&error));
        self.with_views(done, session).await
    }

    /// Adds the views as they are now.
    async fn with_views(&self, mut done: Done, session: &str) -> Done {
        match self.views(session).await {
            Ok(views) => done.views = Some(views),
            Err(error) => done.notes.push(trouble(&error)),
        }
        done
    }

    async fn views(&self, session: &str) -> Result<Views, MemoryError> {
        let cost = self.cost().await?;
        let display = match self.memory.view(&self.scope, session, None).await {
            Err(MemoryError::NoSession { .. }) => return Ok(Views { cost, ..Views::default() }),
            display => display?,
        };
        let api = self.memory.api_view(&self.scope, session, None).await?;
        Ok(Views {
            turns: display.messages.iter().map(shown).collect(),
            tokens: display.tokens,
            cost,
            ..sent(&api)
        })
    }

    /// What models cost since the chat was opened.
    async fn cost(&self) -> Result<Option<u64>, MemoryError> {
        let Some(before) = self.cost_before else { return Ok(None) };
        Ok(Some(spent(&self.memory, &self.scope).await?.saturating_sub(before)))
    }

    async fn asked(
        &self,
        id: u64,
        text: Option<String>,
        session: &str,
        sender: &mpsc::Sender<Event>,
    ) -> Done {
        let done = match self.exchanged(id, text, session, sender).await {
            Ok(done) => done,
            Err(error) => Done { is_unanswered: true, ..failed(&error) },
        };
        self.with_views(done, session).await
    }

    async fn exchanged(
        &self,
        id: u64,
        text: Option<String>,
        session: &str,
        sender: &mpsc::Sender<Event>,
    ) -> Result<Done, MemoryError> {
        let Some(model) = self.model.clone() else { return Ok(Done::default()) };
        let asked = match &text {
            Some(text) => Some(text.clone()),
            None => match self.unanswered(session).await? {
                Some(asked) => Some(asked),
                None => {
                    let hint = "type what to ask".to_owned();
                    let note = Note::trouble("everything was answered", Some(hint));
                    return Ok(Done { notes: vec![note], ..Done::default() });
                }
            },
        };
        let query = asked.unwrap_or_default();
        let window = match model.profile().window {
            0 => self.memory.session_window().window,
            window => window,
        };
        let room = window / RECALL_PART;
        let tokens = self.recall_tokens.min(u32::try_from(room).unwrap_or(u32::MAX));
        let reminder = self.memory.reminder(&self.scope, session, &query, tokens).await;
        // Without it the question can be asked all the same.
        let reminder = reminder.unwrap_or_else(|error| {
            tracing::warn!(%error, "nothing was recalled for a request");
            None
        });
        let (turns, facts) = reminder.as_ref().map_or((0, 0), |one| (one.turns(), one.facts()));
        let _ = sender.send(Event::Reminded(id, turns, facts)).await;
        let request = ExchangeRequest {
            session: session.to_owned(),
            branch: None,
            turns: text.map(|text| RawTurn::new("user", text)).into_iter().collect(),
            tools: None,
            reminder,
            model,
        };
        // Pieces come faster than a screen is drawn at times; they may wait, not be lost.
        let (pieces, mut heard) = mpsc::unbounded_channel::<String>();
        let tell = move |piece: &str| {
            let _ = pieces.send(piece.to_owned());
        };
        let exchange = async {
            let done = self.memory.exchange(&self.scope, &request, &tell).await;
            drop(tell);
            done
        };
        let telling = async {
            while let Some(piece) = heard.recv().await {
                let _ = sender.send(Event::Piece(id, piece)).await;
            }
        };
        let (exchanged, ()) = tokio::join!(exchange, telling);
        let exchanged = exchanged?;
        let notices = exchanged.compactions.iter().flat_map(|done| &done.notices);
        let mut notes: Vec<Note> =
            notices.map(|notice| Note::new(Tone::Quiet, notice.clone(), Vec::new())).collect();
        if exchanged.reply.finish == Finish::Length {
            let why = "It had no more tokens: the model's `reserve` says how many an answer has.";
            notes.push(Note::new(Tone::Quiet, "the answer is cut short", vec![why.to_owned()]));
        }
        Ok(Done { notes, ..Done::default() })
    }

    /// The last request, if nothing answers it yet.
    async fn unanswered(&self, session: &str) -> Result<Option<String>, MemoryError> {
        let view = match self.memory.view(&self.scope, session, None).await {
            Err(MemoryError::NoSession { .. }) => return Ok(None),
            view => view?,
        };
        let last = view.messages.last().map(shown);
        Ok(last.filter(|turn| turn.voice != Voice::Model).map(|turn| turn.text))
    }

    async fn compacted(&self, session: &str) -> Result<Done, MemoryError> {
        let profile = self.model.as_ref().map(|model| model.profile());
        let usual = self.memory.session_window();
        let window = profile.filter(|profile| profile.window > 0).map(|profile| SessionWindow {
            window: profile.window,
            reserve: match profile.reserve {
                0 => usual.reserve.min(profile.window / 4),
                reserve => reserve,
            },
        });
        let session = session.to_owned();
        let request = CompactRequest { session, window, ..CompactRequest::default() };
        let done = self.memory.compact_session(&self.scope, &request).await?;
        let mut lines = vec!["The model goes on with that; F2 shows both views.".to_owned()];
        lines.extend(done.notices.clone());
        Ok(told(compaction_told(&done), lines))
    }

    async fn known(&self) -> Result<Done, MemoryError> {
        let facts = self.memory.facts(&self.scope, &FactQuery::default()).await?;
        if facts.is_empty() {
            let lines = vec!["They are drawn from what is said; /learn TEXT tells one.".to_owned()];
            return Ok(told("nothing is known yet", lines));
        }
        let newest = facts.iter().rev().take(LISTED_FACTS);
        let mut lines: Vec<String> = newest
            .map(|fact| format!("- {} ({})", one_line(&fact.text), fact.kind.as_str()))
            .collect();
        if facts.len() > LISTED_FACTS {
            lines.push(format!("and {} older ones", number((facts.len() - LISTED_FACTS) as u64)));
        }
        Ok(told(format!("{} known, newest first", count(facts.len() as u64, "fact")), lines))
    }

    async fn learned(&self, text: &str) -> Result<Done, MemoryError> {
        let facts = self.memory.learn(&self.scope, text, None, None).await?;
        let line = |fact: &icecore::knowledge::FactInfo| {
            format!("- {} ({}, {})", one_line(&fact.text), fact.kind.as_str(), fact.id)
        };
        Ok(told("learned", facts.iter().map(line).collect()))
    }

    /// A person or a time concerns every memory of the tenant, a session or an entry is in
    /// one.
    async fn forget(&self, request: &ForgetRequest, dry_run: bool) -> Result<Receipt, MemoryError> {
        let memory = match request {
            ForgetRequest::Session(_) | ForgetRequest::Entry(_) => Some(self.scope.memory()),
            ForgetRequest::Subject(_) | ForgetRequest::Before(_) => {
                Some(self.scope.memory()).filter(|_| self.is_named)
            }
        };
        self.memory.forget(&self.principal, memory, request, dry_run).await
    }

    async fn weighed(&self, request: ForgetRequest) -> Result<Done, MemoryError> {
        let receipt = self.forget(&request, true).await?;
        let erased = receipt.erased;
        if erased.turns + erased.entries + erased.facts == 0 {
            let head = format!("nothing matches {}", named(&request));
            return Ok(told(head, Vec::new()));
        }
        let told = format!("Forget {}: {}.", named(&request), erased_told(&receipt));
        Ok(Done { confirm: Some(Confirm { request, told }), ..Done::default() })
    }

    async fn forgotten(&self, request: &ForgetRequest) -> Result<Done, MemoryError> {
        let receipt = self.forget(request, false).await?;
        let lines = vec![
            format!("receipt {}", receipt.id),
            format!("sha256 {}", receipt.sha256),
            "Backups and exports are out of reach: erase them there too.".to_owned(),
        ];
        let done = told(format!("erased {}", erased_told(&receipt)), lines);
        Ok(Done { is_forgotten: true, ..done })
    }

    async fn recalled(&self, words: &str) -> Result<Done, MemoryError> {
        let request = SearchRequest { limit: RECALLED, ..SearchRequest::new(words) };
        let found = self.memory.search(&self.scope, &request).await?;
        let mut lines: Vec<String> = Vec::new();
        for hit in &found.hits {
            lines.push(format!("{:.2}  {}", hit.score, whence(hit)));
            lines.push(format!("      {}", quoted(words, &hit.text)));
            lines.push(format!("      {}", one_line(&hit.reason)));
        }
        lines.extend(found.notices.iter().map(|notice| format!("note: {notice}")));
        let head = match found.hits.len() {
            0 => format!("nothing was found for: {words}"),
            hits => format!("{} for: {words}", count(hits as u64, "hit")),
        };
        Ok(told(head, lines))
    }

    async fn sessions(&self, current: &str) -> Result<Done, MemoryError> {
        let mut sessions = self.memory.sessions(&self.scope).await?;
        sessions.retain(|session| session.turns > 0);
        sessions.sort_by_key(|session| std::cmp::Reverse(session.updated_at));
        let line = |session: &icecore::layers::SessionInfo| {
            let sign = if session.session == current { "*" } else { " " };
            let turns = count(session.turns, "turn");
            let at = session.updated_at.to_minute();
            format!("{sign} {at}  {}  ({turns})", clip(&session.session, 60))
        };
        let mut lines: Vec<String> = sessions.iter().map(line).collect();
        lines.push("/session NAME goes to one, and begins it if it is new.".to_owned());
        Ok(told(count(sessions.len() as u64, "session"), lines))
    }

    async fn opened(&self, name: String) -> Done {
        match self.views(&name).await {
            Ok(views) => Done { views: Some(views), session: Some(name), ..Done::default() },
            Err(error) => failed(&error),
        }
    }

    async fn exported(&self, session: &str, file: Option<PathBuf>) -> Done {
        let file = file.unwrap_or_else(|| PathBuf::from(format!("{}.jsonl", file_name(session))));
        let written = match self.lines(session).await {
            Ok(lines) => write(&file, &lines.concat()).map(|()| lines.len()),
            Err(error) => return failed(&error),
        };
        let note = match written {
            Ok(turns) => Note::new(
                Tone::Told,
                format!("{} written to {}", count(turns as u64, "turn"), file.display()),
                Vec::new(),
            ),
            Err(error) => Note::trouble(
                format!("cannot write `{}`: {error}", file.display()),
                Some("name a file that is not there yet: /export FILE".to_owned()),
            ),
        };
        Done { notes: vec![note], ..Done::default() }
    }

    /// The session as turn JSONL, a line each.
    async fn lines(&self, session: &str) -> Result<Vec<String>, MemoryError> {
        let mut lines = Vec::new();
        let mut after = Seq(0);
        loop {
            let page = self.memory.turns(&self.scope, session, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(lines) };
            after = last.seq;
            let there = page.iter().filter(|turn| turn.turn.is_some());
            lines.extend(there.map(|turn| export::line(turn, false) + "\n"));
        }
    }
}

/// What models have cost a memory so far.
pub async fn spent(memory: &Memory, scope: &Scope) -> Result<u64, MemoryError> {
    let stats = memory.stats(scope.tenant(), Some(scope.memory())).await?;
    Ok(stats.models.spent.iter().map(|one| one.cost).fold(0, u64::saturating_add))
}

/// What is there already is not written over.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(file)?;
    file.write_all(text.as_bytes())
}

/// A session's name as that of a file.
fn file_name(session: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || matches!(c, '-' | '_') { c } else { '-' };
    let name: String = session.chars().map(plain).take(80).collect();
    if name.trim_matches('-').is_empty() { "session".to_owned() } else { name }
}

fn told(head: impl Into<String>, lines: Vec<String>) -> Done {
    Done { notes: vec![Note::new(Tone::Told, head, lines)], ..Done::default() }
}

fn failed(error: &MemoryError) -> Done {
    Done { notes: vec![trouble(error)], ..Done::default() }
}

fn trouble(error: &MemoryError) -> Note {
    let hint = match error {
        MemoryError::Chat(_) => hint_of(error).or_else(|| Some("/retry asks again".to_owned())),
        _ => hint_of(error),
    };
    Note::trouble(with_causes(error), hint)
}

fn compaction_told(done: &Compacted) -> String {
    format!(
        "handoff {}: {} to {} tokens",
        done.handoff.number,
        number(done.tokens_before),
        number(done.tokens_after)
    )
}

fn named(request: &ForgetRequest) -> String {
    match request {
        ForgetRequest::Session(name) => format!("session {name}"),
        ForgetRequest::Subject(name) => format!("subject {name}"),
        ForgetRequest::Entry(id) => format!("entry {id}"),
        ForgetRequest::Before(at) => format!("what is before {at}"),
    }
}

fn erased_told(receipt: &Receipt) -> String {
    let erased = receipt.erased;
    let parts = [
        (erased.turns, "turn"),
        (erased.entries, "entry"),
        (erased.facts, "fact"),
        (erased.chunks, "summary"),
        (erased.handoffs, "handoff"),
    ];
    let parts =
        parts.iter().filter(|(value, _)| *value > 0).map(|(value, noun)| count(*value, noun));
    parts.collect::<Vec<_>>().join(", ")
}

fn whence(hit: &Hit) -> String {
    let (who, place) = hits::whence(hit);
    format!("{}  {place}, {who}", hit.at.to_minute())
}

/// A text from a little before the first word that was looked for.
fn quoted(words: &str, text: &str) -> String {
    let text = one_line(text);
    let first = matched_words(words, &text).first().map_or(0, |range| range.start);
    let from = match text[..first].char_indices().rev().nth(HIT_CHARS / 3) {
        Some((at, _)) => text[at..].find(' ').map_or(at, |blank| at + blank + 1),
        None => 0,
    };
    let lead = if from > 0 { "… " } else { "" };
    let shown: String = text[from..].chars().take(HIT_CHARS).collect();
    let more = if shown.len() < text.len() - from { " …" } else { "" };
    format!("{lead}{shown}{more}")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What a model is sent, as it is shown.
fn sent(api: &ApiView) -> Views {
    let handoff = api.handoff.as_ref().filter(|handoff| !handoff.text.is_empty());
    Views {
        system: api.system.iter().map(shown).collect(),
        handoff: handoff.map(|handoff| Handoff {
            number: handoff.number,
            text: handoff.text.as_str().to_owned(),
            tokens: handoff.tokens,
        }),
        sent: api.turns.iter().map(shown).collect(),
        sent_tokens: api.tokens,
        ..Views::default()
    }
}

/// A turn as it is shown.
fn shown(stored: &StoredTurn) -> Turn {
    let at = stored.at.to_minute();
    let seq = stored.seq.0;
    let Some(turn) = stored.turn.as_ref().map(|turn| turn.fields()) else {
        let (who, text) = ("somebody".to_owned(), "(expired)".to_owned());
        return Turn { seq, voice: Voice::System, who, at, text, calls: Vec::new() };
    };
    let voice = match turn.role.as_str() {
        "user" if turn.tool_call_id.is_some() => Voice::Tool,
        "user" => Voice::Person,
        "tool" | "function" => Voice::Tool,
        "system" | "developer" => Voice::System,
        _ => Voice::Model,
    };
    let who = match (&turn.name, voice, &turn.model) {
        (Some(name), ..) => name.clone(),
        (None, Voice::Person, _) => "you".to_owned(),
        (None, Voice::Model, Some(model)) => model.clone(),
        (None, ..) => turn.role.clone(),
    };
    Turn { seq, voice, who, at, text: said(turn), calls: calls(turn) }
}

fn said(turn: &RawTurn) -> String {
    match &turn.content {
        Content::Null => String::new(),
        content => content.text().into_owned(),
    }
}

/// Tools that a turn calls, each in a line.
fn calls(turn: &RawTurn) -> Vec<String> {
    let calls = turn.tool_calls.as_ref().map(|calls| calls.to_value());
    let calls = calls.iter().filter_map(|calls| calls.as_array()).flatten();
    let one = |call: &serde_json::Value| {
        let function = call.get("function").unwrap_or(call);
        let name = function.get("name").and_then(|name| name.as_str()).unwrap_or("tool");
        let input = match function.get("arguments").or_else(|| function.get("input")) {
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        one_line(&format!("{name} {input}"))
    };
    calls.map(one).collect()
}
