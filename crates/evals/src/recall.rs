//! How much of what a question needs comes back: each conversation is a memory
//! of its own, each question with evidence is asked of it and of the baselines.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use icecore::Scope;
use icecore::recall::Mode;
use icecore_models::O200k;
use indicatif::ProgressBar;

use crate::Result;
use crate::baselines::{Bm25, Dense, Lines};
use crate::data::{Conversation, Dataset, Question, Turn, squeeze};
use crate::engine::Engine;
use crate::measures::{Record, Task, context_scores, search_scores};

/// Hits asked for; the turns among them are ranked.
const HITS: usize = 50;

/// The system whose contexts are measured, and whose search leads.
pub const OURS: &str = "hybrid";

const MODES: [(&str, Mode); 3] =
    [(OURS, Mode::Hybrid), ("lexical", Mode::Lexical), ("semantic", Mode::Semantic)];

/// All systems, in the order of a report.
pub const SYSTEMS: [&str; 6] = [OURS, "lexical", "semantic", "BM25", "dense", "newest"];

/// The baselines among them.
pub const BASELINES: [&str; 3] = ["BM25", "dense", "newest"];

/// The budgets of a plot.
pub const PLOTTED_BUDGETS: [u32; 7] = [125, 250, 500, 1000, 2000, 4000, 8000];

/// What is asked.
pub struct Options {
    pub budgets: Vec<u32>,
    /// At most so many questions of each conversation.
    pub sample: Option<usize>,
}

/// What came of it.
#[derive(Default)]
pub struct Measured {
    pub records: Vec<Record>,
    /// Contexts whose tokens were counted by another tokenizer too.
    pub counted: usize,
    /// Broken promises, with how often.
    pub problems: BTreeMap<String, usize>,
}

/// What taking in a file cost.
pub struct Ingest {
    pub turns: usize,
    pub took: Duration,
    pub disk_bytes: u64,
}

/// A file's conversations in a memory.
pub struct Loaded {
    pub engine: Engine,
    pub scopes: Vec<Scope>,
    pub ingest: Ingest,
}

impl Loaded {
    pub async fn new(dataset: &Dataset) -> Result<Self> {
        let engine = Engine::new().await?;
        let empty_bytes = engine.disk_bytes()?;
        let begun = Instant::now();
        let mut scopes = Vec::new();
        for conversation in &dataset.conversations {
            scopes.push(engine.remember(&conversation.memory_ref, &conversation.sessions).await?);
        }
        engine.settle().await?;
        let ingest = Ingest {
            turns: dataset.turn_count(),
            took: begun.elapsed(),
            disk_bytes: engine.disk_bytes()?.saturating_sub(empty_bytes),
        };
        Ok(Self { engine, scopes, ingest })
    }
}

/// Asks every question of every system.
pub async fn measure(dataset: &Dataset, loaded: &Loaded, options: &Options) -> Result<Measured> {
    let mut measured = Measured::default();
    let counts = dataset.conversations.iter().map(|c| c.asked(options.sample).len() as u64);
    let bar = ProgressBar::new(counts.sum());
    for (number, conversation) in dataset.conversations.iter().enumerate() {
        let asking = Asking::new(number, conversation, options);
        for question in conversation.asked(options.sample) {
            asking.engine(question, loaded, &mut measured).await?;
            asking.baselines(question, &mut measured);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(measured)
}

/// Asking about one conversation.
struct Asking<'a> {
    number: usize,
    options: &'a Options,
    turns: Vec<&'a Turn>,
    content: BTreeMap<&'a str, String>,
    lines: Lines,
    bm25: Bm25,
    dense: Dense,
}

impl<'a> Asking<'a> {
    fn new(number: usize, conversation: &'a Conversation, options: &'a Options) -> Self {
        let turns: Vec<&Turn> = conversation.turns().collect();
        let lines = Lines::new(&turns, &O200k::default());
        Self {
            number,
            options,
            content: contents(&turns),
            bm25: Bm25::new(&lines.lines),
            dense: Dense::new(&turns),
            lines,
            turns,
        }
    }

    async fn engine(&self, question: &Question, loaded: &Loaded, to: &mut Measured) -> Result<()> {
        let (engine, scope) = (&loaded.engine, &loaded.scopes[self.number]);
        for (name, mode) in MODES {
            match engine.search(scope, &question.question, mode, HITS).await {
                Ok((hits, took)) => {
                    let ids: Vec<&str> = hits.iter().map(|hit| hit.id.as_str()).collect();
                    let scores = search_scores(&ids, question);
                    to.records.push(self.record(name, Task::Search, question, scores, took));
                }
                Err(error) => to.problem(format!("search {name}: {error}")),
            }
        }
        for budget in &self.options.budgets {
            let (context, took) = engine.context(scope, &question.question, *budget).await?;
            to.check(&context.text, context.tokens, *budget);
            let scores = context_scores(&context.text, context.tokens, question, &self.content);
            to.records.push(self.record(OURS, Task::Context(*budget), question, scores, took));
        }
        Ok(())
    }

    fn baselines(&self, question: &Question, to: &mut Measured) {
        let newest = || (0..self.turns.len()).rev().collect();
        for name in BASELINES {
            let begun = Instant::now();
            let order: Vec<usize> = match name {
                "BM25" => self.bm25.rank(&question.question),
                "dense" => self.dense.rank(&question.question),
                _ => newest(),
            };
            let took = begun.elapsed();
            let ids: Vec<&str> = order.iter().map(|n| self.turns[*n].id.as_str()).collect();
            let scores = search_scores(&ids, question);
            to.records.push(self.record(name, Task::Search, question, scores, took));
            for budget in &self.options.budgets {
                let (text, tokens) = self.lines.pack(&order, *budget);
                let scores = context_scores(&text, tokens, question, &self.content);
                let task = Task::Context(*budget);
                to.records.push(self.record(name, task, question, scores, took));
            }
        }
    }

    fn record(
        &self,
        system: &'static str,
        task: Task,
        question: &Question,
        scores: crate::measures::Scores,
        took: Duration,
    ) -> Record {
        let category = question.category.clone();
        Record { system, task, conversation: self.number, category, scores, took }
    }
}

/// Turns' squeezed texts by their ids.
pub fn contents<'a>(turns: &[&'a Turn]) -> BTreeMap<&'a str, String> {
    turns.iter().map(|turn| (turn.id.as_str(), squeeze(&turn.content))).collect()
}

impl Measured {
    /// A context keeps its budget, and tells its tokens as others count them.
    pub fn check(&mut self, text: &str, tokens: u32, budget: u32) {
        self.counted += 1;
        if tokens > budget {
            self.problem("a context is over its budget".to_owned());
        }
        if tiktoken_rs::o200k_base_singleton().count_ordinary(text) != tokens as usize {
            self.problem("tokens is not the o200k count of text".to_owned());
        }
    }

    fn problem(&mut self, problem: String) {
        *self.problems.entry(problem).or_default() += 1;
    }
}
