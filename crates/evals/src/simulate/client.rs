//! Clients that write, read and ask again, and a follower of events.

use std::sync::Arc;
use std::time::Duration;

use icecore::dreams::DreamRequest;
use icecore::ids::Position;
use icecore::ingest::Claim;
use icecore::knowledge::{EntryQuery, FactQuery, NewEntryRequest};
use icecore::maintenance::EventRecord;
use icecore::recall::DocKind;
use icecore::store::StoreError;
use icecore::{
    Append, ContextRequest, ForgetRequest, Memory, MemoryError, Millis, RawTurn, Remembered, Scope,
    SearchRequest, TurnInput,
};
use icecore_host::commitments::{
    CommitmentError, CommitmentRequest, ConditionRequest, IntentionRequest,
};

use super::dice::Dice;
use super::ledger::{Fate, Given};
use super::world::{MEMORY, World, hosting};

/// How often something is asked for before it is given up.
const TRIES: usize = 12;

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(6);

/// What came of a request.
enum Asked<T> {
    Done(T),
    /// A final no.
    Refused(MemoryError),
    /// Nobody knows.
    GivenUp,
}

/// What becomes of a request that nobody waits for any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    GoesOn,
    /// Later it would forget what was said since.
    EndsWithUs,
}

/// Turns that were appended together.
#[derive(Debug, Clone)]
struct Batch {
    session: String,
    marks: Vec<String>,
    texts: Vec<String>,
    /// Their ids; without, the claim tells them.
    ids: Option<Vec<String>>,
    claim: String,
}

pub struct Client {
    number: usize,
    tenant: usize,
    world: Arc<World>,
    dice: Dice,
    batches: u64,
    sent: Vec<Batch>,
}

impl Client {
    pub fn new(world: &Arc<World>, number: usize) -> Self {
        let mut dice = Dice::new(world.seed, &format!("client {number}"));
        let tenant = dice.within(0..world.plan.tenants as u64) as usize;
        Self { number, tenant, world: Arc::clone(world), dice, batches: 0, sent: Vec::new() }
    }

    /// Does this and that, then is through.
    pub async fn live(mut self) {
        for _ in 0..self.dice.within(8..20) {
            let pause = self.dice.within(0..1_500);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            match self.dice.within(0..100) {
                0..35 => self.append().await,
                35..45 => self.append_again().await,
                45..57 => self.put().await,
                57..63 => self.delete().await,
                63..68 => self.forget().await,
                68..85 => self.look().await,
                85..90 => self.read_all().await,
                90..95 => self.dream().await,
                _ => self.commit().await,
            }
        }
    }

    fn tell(&self, what: std::fmt::Arguments<'_>) {
        self.world.story.tell(format_args!("client-{} {what}", self.number));
    }

    /// As [`Client::ask_in`], for what goes on when nobody waits for it any more.
    async fn ask<T: Send + 'static, W>(&mut self, act: impl Fn(Memory, Scope) -> W) -> Asked<T>
    where
        W: Future<Output = Result<T, MemoryError>> + Send + 'static,
    {
        self.ask_in(Way::GoesOn, act).await
    }

    /// Asks one host after the other until one answers.
    async fn ask_in<T: Send + 'static, W>(
        &mut self,
        way: Way,
        act: impl Fn(Memory, Scope) -> W,
    ) -> Asked<T>
    where
        W: Future<Output = Result<T, MemoryError>> + Send + 'static,
    {
        for _ in 0..TRIES {
            let pause = Duration::from_millis(self.dice.within(20..900));
            let Some(host) = self.world.some_host(&mut self.dice) else {
                tokio::time::sleep(pause).await;
                continue;
            };
            let principal = self.world.principal(self.tenant);
            let Ok(scope) = principal.scope(icecore::privacy::Redactor::standard().name(MEMORY))
            else {
                return Asked::GivenUp;
            };
            let mut working = tokio::spawn(act(host.memory.clone(), scope));
            let answer = tokio::select! {
                biased;
                () = host.line.died() => None,
                answer = &mut working => answer.ok(),
                () = tokio::time::sleep(PATIENCE) => {
                    if way == Way::EndsWithUs {
                        working.abort();
                    }
                    None
                }
            };
            match answer {
                Some(Ok(done)) => return Asked::Done(done),
                Some(Err(error)) if !is_passing(&error) => return Asked::Refused(error),
                Some(Err(_)) | None => {}
            }
            tokio::time::sleep(pause).await;
        }
        Asked::GivenUp
    }

    /// What may not be refused was.
    fn refused(&self, what: &str, error: &MemoryError) {
        self.world.story.break_promise(format_args!("{what} is refused: {error:?}"));
    }

    async fn append(&mut self) {
        let session = format!("s{}", self.dice.within(0..2));
        let has_ids = self.dice.chance(700_000);
        self.batches += 1;
        let (mut marks, mut texts, mut ids) = (Vec::new(), Vec::new(), Vec::new());
        for place in 0..self.dice.within(1..5) {
            let id = format!("c{}-{}-{place}", self.number, self.batches);
            let mark = self.world.ledger.give(Given {
                tenant: self.tenant,
                session: Some(session.clone()),
                id: has_ids.then(|| id.clone()),
                client: self.number,
                batch: self.batches,
                fate: Fate::Unknown,
                is_doubtful: false,
            });
            texts.push(self.sentence(&mark));
            marks.push(mark);
            ids.push(id);
        }
        let claim = format!("c{}-{}", self.number, self.batches);
        let batch = Batch { session, marks, texts, ids: has_ids.then_some(ids), claim };
        self.tell(format_args!("appends {:?} to {}", batch.marks, batch.session));
        self.sent.push(batch.clone());
        match self.send(&batch).await {
            Asked::Done(_) => {
                self.tell(format_args!("has {:?}", batch.marks));
                self.world.ledger.acknowledge(&batch.marks);
            }
            Asked::Refused(error) => self.refused("an append", &error),
            Asked::GivenUp => self.tell(format_args!("gives {:?} up", batch.marks)),
        }
    }

    /// Sends something again that was acknowledged, as one does whose answer was lost.
    async fn append_again(&mut self) {
        let (ledger, sent) = (&self.world.ledger, &self.sent);
        let all = ledger.all();
        let is_done = |batch: &&Batch| {
            let fate = |mark: &String| all.get(mark).map(|given| given.fate);
            batch.marks.iter().all(|mark| !matches!(fate(mark), Some(Fate::Unknown) | None))
        };
        let done: Vec<Batch> = sent.iter().filter(is_done).cloned().collect();
        if done.is_empty() {
            return;
        }
        let batch = self.dice.pick(&done).clone();
        self.tell(format_args!("appends {:?} again", batch.marks));
        match self.send(&batch).await {
            Asked::Done(Some(remembered)) if remembered.added > 0 => {
                self.world.story.break_promise(format_args!(
                    "{:?} were added again: {remembered:?}",
                    batch.marks
                ));
            }
            Asked::Refused(error) => self.refused("a repeated append", &error),
            Asked::Done(_) | Asked::GivenUp => {}
        }
    }

    /// Nothing is answered to what was done under the same claim before.
    async fn send(&mut self, batch: &Batch) -> Asked<Option<Remembered>> {
        let batch = batch.clone();
        let act = move |memory: Memory, scope: Scope| {
            let append = appending(&batch);
            async move { memory.append(&scope, append).await }
        };
        match self.ask(act).await {
            Asked::Done(remembered) => Asked::Done(Some(remembered)),
            Asked::Refused(MemoryError::Store(StoreError::ClaimTaken)) => Asked::Done(None),
            Asked::Refused(error) => Asked::Refused(error),
            Asked::GivenUp => Asked::GivenUp,
        }
    }

    async fn put(&mut self) {
        self.batches += 1;
        let id = format!("e{}-{}", self.number, self.batches);
        let mark = self.give_entry(Some(id.clone()));
        let content = self.sentence(&mark);
        self.tell(format_args!("puts {mark}"));
        let act = move |memory: Memory, scope: Scope| {
            let (id, content) = (Some(id.clone()), content.clone());
            let request = NewEntryRequest { id, content, ..NewEntryRequest::default() };
            async move { memory.put_entry(&scope, request).await }
        };
        match self.ask(act).await {
            Asked::Done(_) | Asked::Refused(MemoryError::Store(StoreError::EntryExists { .. })) => {
                self.world.ledger.acknowledge(&[mark]);
            }
            Asked::Refused(error) => self.refused("an entry", &error),
            Asked::GivenUp => {}
        }
    }

    fn give_entry(&mut self, id: Option<String>) -> String {
        self.world.ledger.give(Given {
            tenant: self.tenant,
            session: None,
            id,
            client: self.number,
            batch: self.batches,
            fate: Fate::Unknown,
            is_doubtful: false,
        })
    }

    async fn delete(&mut self) {
        let there = self.world.ledger.acknowledged(self.tenant, false);
        let mut named = there.into_iter().filter_map(|(mark, given)| Some((mark, given.id?)));
        let Some((mark, id)) = named.next() else { return };
        self.tell(format_args!("deletes {mark}"));
        self.world.ledger.begin_to_delete(&mark);
        let act = move |memory: Memory, scope: Scope| {
            let id = id.clone();
            async move { memory.delete_entry(&scope, &id).await }
        };
        match self.ask(act).await {
            Asked::Done(_) => self.world.ledger.gone(&[mark]),
            Asked::Refused(error) => self.refused("a deletion", &error),
            Asked::GivenUp => {}
        }
    }

    async fn forget(&mut self) {
        let session = format!("s{}", self.dice.within(0..2));
        self.tell(format_args!("forgets {session}"));
        let sure = self.world.ledger.begin_to_forget(self.tenant, &session);
        let principal = self.world.principal(self.tenant);
        let of = session.clone();
        let act = move |memory: Memory, _: Scope| {
            let (principal, request) = (principal.clone(), ForgetRequest::Session(of.clone()));
            async move { memory.forget(&principal, Some(MEMORY), &request, false).await }
        };
        match self.ask_in(Way::EndsWithUs, act).await {
            Asked::Done(receipt) => {
                self.tell(format_args!("has {session} forgotten: {} turns", receipt.erased.turns));
                self.world.ledger.gone(&sure);
            }
            Asked::Refused(MemoryError::NoSession { .. }) => self.world.ledger.gone(&sure),
            Asked::Refused(error) => self.refused("forgetting", &error),
            // It may be done at any time now.
            Asked::GivenUp => return,
        }
        self.world.ledger.end_forgetting(self.tenant, &session);
    }

    /// Looks for something that is there, wherever it was said.
    async fn look(&mut self) {
        let there = self.world.ledger.acknowledged(self.tenant, true);
        if there.is_empty() {
            return;
        }
        let (mark, given) = self.dice.pick(&there).clone();
        self.tell(format_args!("looks for {mark}"));
        let since = self.world.ledger.now();
        let query = mark.clone();
        let act = move |memory: Memory, scope: Scope| {
            let request =
                SearchRequest { kinds: vec![DocKind::Turn], ..SearchRequest::new(&query) };
            async move { memory.search(&scope, &request).await }
        };
        match self.ask(act).await {
            Asked::Done(hits) => {
                for hit in &hits.hits {
                    self.world.ledger.read(self.tenant, since, &hit.text, "a search");
                }
                let is_found = hits.hits.iter().any(|hit| hit.text.contains(&mark));
                if !is_found && self.world.ledger.is_there(&mark) {
                    self.world
                        .story
                        .break_promise(format_args!("{mark} of {given:?} is not found"));
                }
            }
            Asked::Refused(error) => self.refused("a search", &error),
            Asked::GivenUp => {}
        }
    }

    /// Reads all that there is to read.
    async fn read_all(&mut self) {
        self.tell(format_args!("reads all"));
        let since = self.world.ledger.now();
        let act = |memory: Memory, scope: Scope| async move { everything(&memory, &scope).await };
        match self.ask(act).await {
            Asked::Done(texts) => {
                for (how, text) in &texts {
                    self.world.ledger.read(self.tenant, since, text, how);
                }
            }
            Asked::Refused(MemoryError::NoSession { .. }) => {}
            Asked::Refused(error) => self.refused("reading", &error),
            Asked::GivenUp => {}
        }
    }

    async fn dream(&mut self) {
        self.tell(format_args!("dreams"));
        let act = |memory: Memory, scope: Scope| async move {
            memory.dream(&scope, DreamRequest::manual(Some(4_000)), |_| {}).await
        };
        match self.ask(act).await {
            Asked::Done(_) | Asked::GivenUp => {}
            Asked::Refused(
                MemoryError::NothingToDream { .. }
                | MemoryError::DreamUnderWay { .. }
                | MemoryError::TokenBudgetExceeded { .. }
                | MemoryError::EntriesChanged,
            ) => {}
            Asked::Refused(error) => self.refused("a dream", &error),
        }
    }

    async fn commit(&mut self) {
        self.batches += 1;
        let mark = self.give_entry(None);
        let (text, key) = (self.sentence(&mark), format!("c{}-{}", self.number, self.batches));
        self.tell(format_args!("commits to {mark}"));
        let delay = self.dice.within(8_000..20_000) as i64;
        let act = move |memory: Memory, scope: Scope| {
            let at = Millis(memory.now().0 + delay);
            let request = CommitmentRequest {
                intention: IntentionRequest::Text(text.clone()),
                condition: ConditionRequest::Time(at),
                claim: Some(claim("/commitments", &key)),
            };
            async move {
                match hosting(&memory).commitments.add(&scope, request).await {
                    Err(CommitmentError::Memory(error)) => Err(error),
                    Err(error) => Err(MemoryError::Internal(error.to_string())),
                    Ok(made) => Ok(made),
                }
            }
        };
        match self.ask(act).await {
            Asked::Done(_) | Asked::Refused(MemoryError::Store(StoreError::ClaimTaken)) => {
                self.world.ledger.acknowledge(&[mark]);
            }
            Asked::Refused(error) => self.refused("a commitment", &error),
            Asked::GivenUp => {}
        }
    }

    /// Something that one might say, with a word in it that nobody else says.
    fn sentence(&mut self, mark: &str) -> String {
        match self.dice.within(0..6) {
            0 => format!("My name is {mark}."),
            1 => format!("I live in {mark}, by the harbour."),
            2 => format!("I prefer {mark} over tea."),
            3 => format!("We decided to use {mark} for the ferry."),
            4 => format!("Always call me {mark} from now on."),
            _ => format!("The train to {mark} leaves at nine."),
        }
    }
}

/// Whether it may go better another time.
fn is_passing(error: &MemoryError) -> bool {
    match error {
        MemoryError::Store(StoreError::Injected(_)) => true,
        // Without its secrets nothing is derived, and they could not be read.
        MemoryError::CompactionRedactionFailed { reason } => reason.contains("injected fault"),
        _ => false,
    }
}

fn claim(operation: &str, key: &str) -> Claim {
    let (operation, key) = (operation.to_owned(), key.to_owned());
    Claim { operation, key, request: [0; 32], code: 201 }
}

fn appending(batch: &Batch) -> Append {
    let turn = |(place, text): (usize, &String)| {
        let mut turn = RawTurn::new(if place % 2 == 0 { "user" } else { "assistant" }, text);
        turn.id = batch.ids.as_ref().map(|ids| ids[place].clone());
        TurnInput::from(turn)
    };
    let claim = match &batch.ids {
        Some(_) => None,
        None => Some(claim("/turns", &batch.claim)),
    };
    Append {
        session: batch.session.clone(),
        turns: batch.texts.iter().enumerate().map(turn).collect(),
        insist: false,
        claim,
    }
}

/// Every text of a memory, and how it was shown.
pub async fn everything(
    memory: &Memory,
    scope: &Scope,
) -> Result<Vec<(&'static str, String)>, MemoryError> {
    let mut texts = Vec::new();
    for session in memory.sessions(scope).await? {
        let view = match memory.view(scope, &session.session, None).await {
            Ok(view) => view,
            // It went meanwhile.
            Err(MemoryError::NoSession { .. }) => continue,
            Err(error) => return Err(error),
        };
        texts.push(("a view", format!("{view:?}")));
    }
    for chunk in memory.chunks(scope, None).await? {
        texts.push(("a summary", format!("{:?}", chunk.summary)));
    }
    let all = FactQuery { all: true, ..FactQuery::default() };
    for fact in memory.facts(scope, &all).await? {
        texts.push(("a fact", format!("{fact:?}")));
    }
    for entry in memory.entries(scope, &EntryQuery::default()).await?.entries {
        texts.push(("an entry", entry.content.as_str().to_owned()));
    }
    let query = Some("What do I prefer, and where do I live?".to_owned());
    let request = ContextRequest { query, budget: 2_000, ..ContextRequest::default() };
    texts.push(("a context", memory.context(scope, request).await?.text));
    Ok(texts)
}

/// Follows the events of a tenant, from whichever host answers, for ever.
pub async fn follow(
    world: Arc<World>,
    tenant: usize,
    seen: Arc<std::sync::Mutex<Vec<EventRecord>>>,
) {
    let mut dice = Dice::new(world.seed, &format!("follower {tenant}"));
    let mut after = Position(0);
    loop {
        let pause = Duration::from_millis(dice.within(50..2_000));
        if let Some(host) = world.some_host(&mut dice) {
            let (name, limit) = (world.tenant(tenant), dice.within(1..12) as usize);
            let page = tokio::select! {
                biased;
                () = host.line.died() => None,
                page = host.memory.events(&name, None, after, limit) => page.ok(),
            };
            let page = page.unwrap_or_default();
            let is_full = page.len() == limit;
            after = page.last().map_or(after, |event| event.position);
            seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(page);
            if is_full {
                continue;
            }
        }
        tokio::time::sleep(pause).await;
    }
}
