//! What the API view of a compacted session keeps of what questions need, beside the
//! newest turns and the handoff alone, each of the same number of tokens.
//!
//! A conversation is one session, and a question its last turn, on a branch of its own.

use std::path::PathBuf;

use icecore::models::TokenCounter;
use icecore::sessions::{CompactRequest, SessionWindow};
use icecore::settings::HandoffSettings;
use icecore::{Memory, MemorySettings, Principal, RawTurn, Scope, Tenant};
use icecore_models::O200k;

use crate::Result;
use crate::data::{Conversation, Dataset, Question};
use crate::distillates::{Held, Kept, by_id, has_answer, newest};
use crate::plot::{Chart, Line, Scale};
use crate::report::{figure, strings, table};

/// Turns given at once.
const BATCH: usize = 100;
/// Who is measured, ours first.
const NAMES: [&str; 3] = ["API view", "newest turns", "handoff alone"];

#[derive(clap::Args)]
pub struct Args {
    /// Conversations with questions (JSON lines, gzip).
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    data: Vec<PathBuf>,
    /// Tokens that a session is compacted to.
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 2000, 4000, 8000])]
    sizes: Vec<u32>,
    /// At most so many questions of each conversation.
    #[arg(long, value_name = "N", default_value_t = 20)]
    sample: usize,
    /// At most so many conversations.
    #[arg(long, value_name = "N")]
    conversations: Option<usize>,
    /// The share of a handoff for what bears on the request, in percent.
    #[arg(long)]
    recall_percent: Option<u64>,
    /// Draws both figures against the tokens, two SVGs for each file.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Prints the view for the first question of each conversation at each size.
    #[arg(long)]
    show: bool,
}

/// Whether ours is ahead everywhere.
pub async fn run(args: &Args) -> Result<bool> {
    let mut is_ahead = true;
    for path in &args.data {
        let dataset = Dataset::load(path)?;
        let measured = measure(&dataset, args).await?;
        print!("{}", told(&dataset.name, &args.sizes, &measured));
        is_ahead &= measured
            .iter()
            .all(|kept| kept[1..].iter().all(|other| kept[0].sentences > other.sentences));
        if let Some(folder) = &args.out {
            std::fs::create_dir_all(folder)?;
            for (name, chart) in charts(&dataset.name, &args.sizes, &measured) {
                let path = folder.join(name);
                std::fs::write(&path, chart.svg())?;
                println!("  drawn in {}", path.display());
            }
        }
    }
    Ok(is_ahead)
}

/// For each size, what each contender keeps.
async fn measure(dataset: &Dataset, args: &Args) -> Result<Vec<[Kept; 3]>> {
    let counter = O200k::default();
    let mut kept = vec![[Kept::default(); 3]; args.sizes.len()];
    let some = args.conversations.unwrap_or(usize::MAX);
    for conversation in dataset.conversations.iter().take(some) {
        let asked: Vec<&Question> = conversation
            .asked(Some(args.sample))
            .into_iter()
            .filter(|one| has_answer(one))
            .collect();
        let turns = by_id(conversation);
        let recalling = Session::begin(conversation, args.recall_percent).await?;
        for (size, kept) in args.sizes.iter().zip(&mut kept) {
            let alone = Session::begin(conversation, Some(0)).await?.handoff(*size).await?;
            let newest = newest(conversation, *size, &counter);
            for text in [(1, &newest), (2, &alone)] {
                kept[text.0].tokens += u64::from(counter.count(text.1)) * asked.len() as u64;
            }
            let (newest, alone) = (Held::new(&newest), Held::new(&alone));
            for (number, question) in asked.iter().enumerate() {
                let view = recalling.view(question, *size).await?;
                if args.show && number == 0 {
                    println!(
                        "# {} at {size}: {}\n{view}\n",
                        conversation.memory_ref, question.question
                    );
                }
                kept[0].tokens += u64::from(counter.count(&view));
                kept[0].ask(question, &turns, &Held::new(&view));
                kept[1].ask(question, &turns, &newest);
                kept[2].ask(question, &turns, &alone);
            }
        }
        eprintln!("{}: {} questions", conversation.memory_ref, asked.len());
    }
    Ok(kept.into_iter().map(|kept| kept.map(Kept::mean)).collect())
}

/// A conversation as a session.
struct Session {
    memory: Memory,
    scope: Scope,
    last: String,
    /// Goes with the session.
    _dir: tempfile::TempDir,
}

impl Session {
    async fn begin(conversation: &Conversation, recall_percent: Option<u64>) -> Result<Self> {
        let defaults = HandoffSettings::default();
        let handoffs = HandoffSettings {
            handoff_tokens: u64::from(u32::MAX),
            recall_percent: recall_percent.unwrap_or(defaults.recall_percent),
            ..defaults
        };
        let settings = MemorySettings { handoffs, ..MemorySettings::default() };
        let dir = tempfile::tempdir()?;
        let memory = Memory::builder().settings(settings).open(dir.path()).await?;
        let person = Principal::local_operator(Tenant::new("evals")?);
        let scope = memory.scope(&person, "evidence").await?;
        // Ids of several sessions of a conversation may be the same.
        let mut last = String::new();
        let mut all = Vec::new();
        for (place, turn) in conversation.turns().enumerate() {
            last = format!("t{place}");
            all.push(RawTurn { id: Some(last.clone()), ..turn.raw()? });
        }
        for turns in all.chunks(BATCH) {
            memory.remember(&scope, "s", turns.to_vec()).await?;
        }
        memory.settle(|_, _| ()).await?;
        Ok(Self { memory, scope, last, _dir: dir })
    }

    /// What a model sees after a compaction to so many tokens, but for the question.
    async fn view(&self, question: &Question, size: u32) -> Result<String> {
        let id = format!("{}-{size}", question.id);
        let turn = RawTurn {
            id: Some(id.clone()),
            parent_ids: Some(vec![self.last.clone()]),
            ..RawTurn::new("user", &question.question)
        };
        self.memory.remember(&self.scope, "s", vec![turn]).await?;
        let view = self.memory.view(&self.scope, "s", None).await?;
        let branch = view.messages.last().map(|turn| turn.branch.to_string());
        self.compact(branch.clone(), size).await?;
        let api = self.memory.api_view(&self.scope, "s", branch.as_deref()).await?;
        let mut lines: Vec<String> =
            api.handoff.into_iter().map(|handoff| handoff.text.into_string()).collect();
        for turn in api.turns.iter().filter(|turn| turn.id != id) {
            let fields = turn.turn.as_ref().map(|turn| turn.fields());
            lines.extend(fields.map(|fields| {
                let who = fields.name.as_deref().unwrap_or(&fields.role);
                format!("{who}: {}", fields.content.text())
            }));
        }
        Ok(lines.join("\n"))
    }

    /// The handoff that is written where nothing is asked.
    async fn handoff(&self, size: u32) -> Result<String> {
        self.compact(None, size).await?;
        Ok(self.memory.handoff(&self.scope, "s", None).await?.text.into_string())
    }

    /// Compacts to so many tokens: half of a window without a reserve.
    async fn compact(&self, branch: Option<String>, size: u32) -> Result<()> {
        let window = Some(SessionWindow { window: u64::from(size) * 2, reserve: 0 });
        let session = "s".to_owned();
        let request = CompactRequest { session, branch, window, ..CompactRequest::default() };
        self.memory.compact_session(&self.scope, &request).await?;
        Ok(())
    }
}

/// The table of a file.
fn told(name: &str, sizes: &[u32], measured: &[[Kept; 3]]) -> String {
    let mut heads = strings(&["", "of"]);
    heads.extend(sizes.iter().map(|size| format!("{size} tokens")));
    type Measure = fn(&Kept) -> f64;
    let measures: [(&str, Measure); 3] = [
        ("evidence sentences", |kept| kept.sentences),
        ("letter by letter", |kept| kept.verbatim),
        ("answers' words", |kept| kept.words),
    ];
    let mut rows = Vec::new();
    for (what, measure) in measures {
        for (number, contender) in NAMES.iter().enumerate() {
            let mut row = strings(&[contender, what]);
            row.extend(measured.iter().map(|kept| figure(Some(measure(&kept[number])))));
            rows.push(row);
        }
    }
    table(&format!("Kept in sessions of {name}"), &heads, &rows)
}

/// Both figures.
fn charts(name: &str, sizes: &[u32], measured: &[[Kept; 3]]) -> [(String, Chart); 2] {
    let chart = |what: &str, measure: fn(&Kept) -> f64| Chart {
        title: format!("What a compacted session keeps of {name}"),
        x_label: "tokens of the view".to_owned(),
        y_label: what.to_owned(),
        y_scale: Scale::Percent,
        lines: NAMES
            .iter()
            .enumerate()
            .map(|(number, contender)| Line {
                name: (*contender).to_owned(),
                points: sizes
                    .iter()
                    .zip(measured)
                    .map(|(size, kept)| (f64::from(*size), measure(&kept[number])))
                    .collect(),
            })
            .collect(),
    };
    [
        (
            format!("session-evidence-{name}.svg"),
            chart("share of the evidence's sentences", |kept| kept.sentences),
        ),
        (
            format!("session-answers-{name}.svg"),
            chart("share of the answers' content words", |kept| kept.words),
        ),
    ]
}
