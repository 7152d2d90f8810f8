//! What a distillate keeps of what questions need, beside the newest turns and a plain
//! LexRank summary of the same number of tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use icecore_domain::dream::{Part, Source, SourceFact, SourceKind, archive, distil};
use icecore_domain::fact;
use icecore_domain::text::Said;
use icecore_domain::time::Millis;
use icecore_domain::tokens::TokenCounter;
use icecore_models::O200k;

use crate::Result;
use crate::data::{Conversation, Dataset, Question, Turn, squeeze};
use crate::lexrank;
use crate::measures::sentences;
use crate::plot::{Chart, Line, Scale};
use crate::report::{figure, strings, table};
use crate::words::words;

/// Turns of a closed chunk.
const CHUNK_TURNS: usize = 10;
/// A sentence is found where one line has so many hundredths of its content words.
const FOUND_PERCENT: usize = 80;
/// Questions of this category have no answer.
const LEFT_OUT: &str = "adversarial";

/// Who is measured, ours first.
const NAMES: [&str; 3] = ["icecore", "newest turns", "LexRank"];

#[derive(clap::Args)]
pub struct Args {
    /// Conversations with questions (JSON lines, gzip).
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    data: Vec<PathBuf>,
    /// Tokens that are written.
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 2000, 4000, 8000])]
    sizes: Vec<u32>,
    /// Draws both figures against the tokens written, two SVGs for each file.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Prints the distillate of each conversation at this size instead.
    #[arg(long, value_name = "TOKENS")]
    show: Option<u32>,
}

/// Means of one contender at one size.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kept {
    /// The share of the evidence's sentences.
    pub sentences: f64,
    /// That of those which stand there letter by letter.
    pub verbatim: f64,
    /// The share of the answers' content words.
    pub words: f64,
    /// Tokens used, of all conversations together.
    pub tokens: u64,
    asked: f64,
    answered: f64,
}

/// Whether ours is ahead everywhere.
pub fn run(args: &Args) -> Result<bool> {
    let mut is_ahead = true;
    for path in &args.data {
        let dataset = Dataset::load(path)?;
        if let Some(tokens) = args.show {
            for conversation in &dataset.conversations {
                let text = ours(conversation, tokens, &O200k::default());
                println!("# {}\n\n{text}\n", conversation.memory_ref);
            }
            continue;
        }
        let conversations: Vec<&Conversation> = dataset.conversations.iter().collect();
        let measured = measure(&conversations, &args.sizes);
        print!("{}", told(&dataset.name, &args.sizes, &measured));
        for (half, name) in [(0, "even"), (1, "odd")] {
            let some: Vec<&Conversation> =
                conversations.iter().copied().skip(half).step_by(2).collect();
            let measured = measure(&some, &args.sizes);
            print!(
                "{}",
                told(&format!("{}, {name} conversations", dataset.name), &args.sizes, &measured)
            );
        }
        is_ahead &= measured.iter().all(|(_, kept)| {
            kept[1..]
                .iter()
                .all(|other| kept[0].sentences > other.sentences && kept[0].words > other.words)
        });
        if let Some(folder) = &args.out {
            std::fs::create_dir_all(folder)?;
            for (name, chart) in charts(&dataset.name, &measured) {
                let path = folder.join(name);
                std::fs::write(&path, chart.svg())?;
                println!("  drawn in {}", path.display());
            }
        }
    }
    Ok(is_ahead)
}

/// A text of a conversation, of so many tokens.
type Contender = fn(&Conversation, u32, &O200k) -> String;

/// For each size, what each contender keeps.
fn measure(conversations: &[&Conversation], sizes: &[u32]) -> Vec<(u32, [Kept; 3])> {
    let contenders: [Contender; 3] = [ours, newest, central];
    let of_size = |size: &u32| (*size, contenders.map(|one| kept(conversations, *size, one)));
    sizes.iter().map(of_size).collect()
}

/// What a contender keeps at one size.
fn kept(conversations: &[&Conversation], size: u32, contender: Contender) -> Kept {
    let counter = O200k::default();
    let mut kept = Kept::default();
    for conversation in conversations {
        kept.add(conversation, &contender(conversation, size, &counter), &counter);
    }
    kept.mean()
}

impl Kept {
    fn add(&mut self, conversation: &Conversation, text: &str, counter: &O200k) {
        self.tokens += u64::from(counter.count(text));
        let held = Held::new(text);
        let turns = by_id(conversation);
        for question in conversation.asked(None).into_iter().filter(|one| has_answer(one)) {
            self.ask(question, &turns, &held);
        }
    }

    /// Adds what a text holds of what a question needs.
    pub fn ask(&mut self, question: &Question, turns: &BTreeMap<&str, &Turn>, held: &Held) {
        let evidence: Vec<String> = question
            .evidence
            .iter()
            .filter_map(|id| turns.get(id.as_str()))
            .map(|turn| squeeze(&turn.content))
            .collect();
        let wanted: Vec<&str> = evidence.iter().flat_map(|turn| sentences(turn)).collect();
        let share = |found: usize, of: usize| found as f64 / of.max(1) as f64;
        let found = wanted.iter().filter(|sentence| held.tells(sentence)).count();
        let whole = wanted.iter().filter(|sentence| held.says(sentence)).count();
        self.sentences += share(found, wanted.len());
        self.verbatim += share(whole, wanted.len());
        self.asked += 1.0;
        let wanted: BTreeSet<String> = words(&question.answer).into_iter().collect();
        if !wanted.is_empty() {
            self.words += share(wanted.intersection(&held.words).count(), wanted.len());
            self.answered += 1.0;
        }
    }

    pub fn mean(self) -> Self {
        Self {
            sentences: self.sentences / self.asked,
            verbatim: self.verbatim / self.asked,
            words: self.words / self.answered,
            ..self
        }
    }
}

/// Whether a question is one that the conversation answers.
pub fn has_answer(question: &Question) -> bool {
    question.category != LEFT_OUT
}

/// The turns of a conversation by their ids.
pub fn by_id(conversation: &Conversation) -> BTreeMap<&str, &Turn> {
    conversation.turns().map(|turn| (turn.id.as_str(), turn)).collect()
}

/// A text in which sentences are looked for.
pub struct Held {
    plain: String,
    lines: Vec<BTreeSet<String>>,
    words: BTreeSet<String>,
}

impl Held {
    pub fn new(text: &str) -> Self {
        let lines: Vec<BTreeSet<String>> =
            text.lines().map(|line| words(line).into_iter().collect()).collect();
        let words = lines.iter().flatten().cloned().collect();
        Self { plain: squeeze(text).to_lowercase(), lines, words }
    }

    fn says(&self, sentence: &str) -> bool {
        self.plain.contains(&sentence.to_lowercase())
    }

    fn tells(&self, sentence: &str) -> bool {
        let wanted: BTreeSet<String> = words(sentence).into_iter().collect();
        let is_told = |line: &BTreeSet<String>| {
            wanted.intersection(line).count() * 100 >= FOUND_PERCENT * wanted.len()
        };
        self.says(sentence) || !wanted.is_empty() && self.lines.iter().any(is_told)
    }
}

/// Our distillate: closed chunks whole, the turns of the open tail, and their facts.
fn ours(conversation: &Conversation, tokens: u32, counter: &O200k) -> String {
    let mut sources = Vec::new();
    for session in &conversation.sessions {
        let mut first = 0;
        for chunk in session.turns.chunks(CHUNK_TURNS) {
            let is_closed = chunk.len() == CHUNK_TURNS;
            let size = if is_closed { CHUNK_TURNS } else { 1 };
            for turns in chunk.chunks(size) {
                let kind = if is_closed { SourceKind::Micro } else { SourceKind::Turn };
                sources.push(source(kind, &session.session, first, turns, &session.turns));
                first += turns.len();
            }
        }
    }
    archive::in_order(&mut sources);
    distil(&sources, None, u64::from(tokens), counter).text()
}

fn source(kind: SourceKind, name: &str, first: usize, turns: &[Turn], all: &[Turn]) -> Source {
    let mut facts = Vec::new();
    for (at, turn) in (first..).zip(turns) {
        let previous = at.checked_sub(1).and_then(|before| all.get(before));
        let found = fact::extract(&said(turn), previous.map(said).as_ref());
        facts.extend(found.into_iter().map(|fact| SourceFact {
            kind: fact.kind,
            subject: fact.subject,
            attribute: fact.attribute,
            value: fact.value,
            text: fact.text,
            at: own_time(turn),
            confirmed: false,
        }));
    }
    let part = |turn: &Turn| Part {
        role: turn.role.clone(),
        name: turn.name.clone(),
        text: turn.content.clone(),
        at: own_time(turn),
    };
    let parts = turns.iter().map(part).collect();
    Source { kind, session: name.to_owned(), seq: first as u64, parts, facts }
}

fn said(turn: &Turn) -> Said<'_> {
    Said {
        role: &turn.role,
        name: turn.name.as_deref(),
        text: &turn.content,
        at: own_time(turn).unwrap_or(Millis(0)),
    }
}

fn own_time(turn: &Turn) -> Option<Millis> {
    turn.timestamp.as_deref().and_then(|text| Millis::parse_rfc3339(text).ok())
}

/// The newest turns, the oldest of them cut at its front.
pub fn newest(conversation: &Conversation, tokens: u32, counter: &O200k) -> String {
    let lines: Vec<String> = conversation.turns().map(Turn::line).collect();
    let mut kept: Vec<&str> = Vec::new();
    let mut left = tokens;
    for line in lines.iter().rev() {
        let cost = counter.count(line) + 1;
        if cost > left {
            kept.push(counter.prefix(line, left.saturating_sub(1)));
            break;
        }
        left -= cost;
        kept.push(line);
    }
    kept.reverse();
    kept.join("\n")
}

/// The most central sentences, in the order in which they were said.
fn central(conversation: &Conversation, tokens: u32, counter: &O200k) -> String {
    let squeezed: Vec<(&str, String)> = conversation
        .turns()
        .map(|turn| (turn.name.as_deref().unwrap_or(&turn.role), squeeze(&turn.content)))
        .collect();
    let all: Vec<(&str, &str)> = squeezed
        .iter()
        .flat_map(|(name, text)| sentences(text).into_iter().map(|sentence| (*name, sentence)))
        .collect();
    let plain: Vec<&str> = all.iter().map(|(_, sentence)| *sentence).collect();
    let mut chosen = BTreeMap::new();
    let mut left = tokens;
    for at in lexrank::rank(&plain) {
        let line = format!("{}: {}", all[at].0, all[at].1);
        let cost = counter.count(&line) + 1;
        if cost > left {
            chosen.insert(at, counter.prefix(&line, left.saturating_sub(1)).to_owned());
            break;
        }
        left -= cost;
        chosen.insert(at, line);
    }
    chosen.into_values().collect::<Vec<_>>().join("\n")
}

/// The table of a file.
fn told(name: &str, sizes: &[u32], measured: &[(u32, [Kept; 3])]) -> String {
    let mut heads = strings(&["", "of"]);
    heads.extend(sizes.iter().map(|size| format!("{size} tokens")));
    let mut rows = Vec::new();
    type Measure = fn(&Kept) -> f64;
    let measures: [(&str, Measure); 3] = [
        ("evidence sentences", |kept| kept.sentences),
        ("letter by letter", |kept| kept.verbatim),
        ("answers' words", |kept| kept.words),
    ];
    for (what, measure) in measures {
        for (number, contender) in NAMES.iter().enumerate() {
            let mut row = strings(&[contender, what]);
            row.extend(measured.iter().map(|(_, kept)| figure(Some(measure(&kept[number])))));
            rows.push(row);
        }
    }
    let mut text = table(&format!("Kept of {name}"), &heads, &rows);
    text.push_str(&format!(
        "  found: letter by letter but for case and spaces, or {FOUND_PERCENT}% of the \
         sentence's content words in one line\n"
    ));
    text
}

/// Both figures.
fn charts(name: &str, measured: &[(u32, [Kept; 3])]) -> [(String, Chart); 2] {
    let chart = |what: &str, measure: fn(&Kept) -> f64| Chart {
        title: format!("What distillates keep of {name}"),
        x_label: "tokens written".to_owned(),
        y_label: what.to_owned(),
        y_scale: Scale::Percent,
        lines: NAMES
            .iter()
            .enumerate()
            .map(|(number, contender)| Line {
                name: (*contender).to_owned(),
                points: measured
                    .iter()
                    .map(|(size, kept)| (f64::from(*size), measure(&kept[number])))
                    .collect(),
            })
            .collect(),
    };
    [
        (
            format!("dream-evidence-{name}.svg"),
            chart("share of the evidence's sentences", |kept| kept.sentences),
        ),
        (
            format!("dream-answers-{name}.svg"),
            chart("share of the answers' content words", |kept| kept.words),
        ),
    ]
}
