//! How fast turns are summarized, and how much of what questions need is kept.
//!
//! `cargo bench -p icecore-models --bench summary`, with `ICECORE_EVAL_DATA` as
//! the folder of `locomo-dev.jsonl.gz` for the second part, and with
//! `ICECORE_EVAL_SHOW=N` to read the first N chunks of each file there.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]
#![allow(clippy::unwrap_used, reason = "a bench stops at what it did not expect")]
#![allow(missing_docs, reason = "a bench has no readers but its printout")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use icecore_domain::chunk::Level;
use icecore_domain::cut::{CutPolicy, OpenTail};
use icecore_domain::summary::{Summary, summarize_children, summarize_turns, summary_budget};
use icecore_domain::text::Said;
use icecore_domain::time::Millis;
use icecore_domain::tokens::TokenCounter;
use icecore_models::O200k;
use serde_json::Value;

fn main() {
    let counter = O200k::default();
    time_made_up_turns(&counter);
    let Ok(folder) = std::env::var("ICECORE_EVAL_DATA") else { return };
    for file in ["locomo-dev.jsonl.gz", "beam-dev.jsonl.gz"] {
        measure_file(&Path::new(&folder).join(file), &counter);
    }
}

/// Turns of about thirty tokens in chunks of ten.
fn time_made_up_turns(counter: &O200k) {
    let subjects = ["The importer", "My sister", "Our release", "I think the garden", "Berlin"];
    let verbs = ["moved to", "needs", "was decided on", "looks better than", "reminds me of"];
    let objects = ["the new office", "a backup in 2024", "green tea", "the second floor", "Oslo"];
    let texts: Vec<String> = (0..5_000)
        .map(|n| {
            let pick = |words: &[&'static str; 5], by: usize| words[(n / by + n) % 5];
            format!(
                "{} {} {} on day {n}. Thanks for asking, that's great! {} {} {}, I guess.",
                pick(&subjects, 3),
                pick(&verbs, 7),
                pick(&objects, 11),
                pick(&subjects, 13),
                pick(&verbs, 2),
                pick(&objects, 5),
            )
        })
        .collect();
    let tokens: u32 = texts.iter().map(|text| counter.count(text)).sum();
    let turns: Vec<Said<'_>> = texts
        .iter()
        .enumerate()
        .map(|(n, text)| said(if n % 2 == 0 { "Ann" } else { "Bo" }, text))
        .collect();
    let begun = Instant::now();
    let busy = cpu_seconds();
    let mut rounds = 0;
    let mut bytes = 0;
    while begun.elapsed().as_secs_f64() < 2.0 {
        for chunk in turns.chunks(10) {
            bytes += summarize_turns(chunk, 60, counter).text.len();
        }
        rounds += 1;
    }
    let rate = (rounds * turns.len()) as f64 / begun.elapsed().as_secs_f64();
    let busy_rate = (rounds * turns.len()) as f64 / (cpu_seconds() - busy);
    let size = f64::from(tokens) / turns.len() as f64;
    println!("made-up turns of {size:.0} tokens in chunks of 10:");
    println!("  {busy_rate:.0} turns/s of a core, {rate:.0} turns/s by the clock");
    println!("  ({} bytes a summary)", bytes / (rounds * turns.len() / 10));
}

/// Seconds this thread has run, where the system tells: others may hold the cores.
fn cpu_seconds() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    told.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e9
}

fn said<'a>(name: &'a str, text: &'a str) -> Said<'a> {
    Said { role: "user", name: Some(name), text, at: Millis(0) }
}

/// What was kept of what, over a file.
#[derive(Default)]
struct Kept {
    needed: usize,
    ours: usize,
    first_sentences: usize,
    first_characters: usize,
    facts: usize,
}

#[derive(Default)]
struct Spent {
    turns: u64,
    facts: u64,
    levels: BTreeMap<Level, (u64, u64)>,
    fact_count: usize,
}

fn measure_file(path: &Path, counter: &O200k) {
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let show: usize = std::env::var("ICECORE_EVAL_SHOW").map_or(0, |n| n.parse().unwrap());
    let (mut kept, mut spent, mut seconds, mut turn_count) =
        (Kept::default(), Spent::default(), 0.0, 0);
    for (number, line) in text.lines().enumerate() {
        let conversation: Value = serde_json::from_str(line).unwrap();
        let turns = turns_of(&conversation);
        let said: Vec<Said<'_>> = turns.iter().map(|turn| turn.said()).collect();
        turn_count += said.len();
        let needed = evidence_of(&conversation);
        let show = if number % 3 == 0 { show } else { 0 };
        seconds +=
            measure_conversation(&turns, &said, &needed, counter, &mut kept, &mut spent, show);
    }
    println!("{}: {:.0} turns/s", path.display(), turn_count as f64 / seconds);
    let share = |part: usize| 100.0 * part as f64 / kept.needed as f64;
    println!(
        "  evidence words kept in micros: ours {:.1}%, first sentences {:.1}%, first characters {:.1}%; ours with facts {:.1}%",
        share(kept.ours),
        share(kept.first_sentences),
        share(kept.first_characters),
        share(kept.facts)
    );
    let mut all = 0;
    for (level, (count, tokens)) in &spent.levels {
        all += tokens;
        println!("  {level}: {count} summaries, {:.1} tokens each", *tokens as f64 / *count as f64);
    }
    let of_turns = |tokens: u64| 100.0 * tokens as f64 / spent.turns as f64;
    println!(
        "  all summaries {:.1}% of {} tokens; micro facts {:.1}% ({} facts)",
        of_turns(all),
        spent.turns,
        of_turns(spent.facts),
        spent.fact_count
    );
}

struct Turn {
    id: String,
    role: String,
    name: Option<String>,
    text: String,
}

impl Turn {
    fn said(&self) -> Said<'_> {
        Said { role: &self.role, name: self.name.as_deref(), text: &self.text, at: Millis(0) }
    }
}

fn turns_of(conversation: &Value) -> Vec<Turn> {
    let field = |turn: &Value, key: &str| turn[key].as_str().map(str::to_owned);
    let sessions = conversation["sessions"].as_array().unwrap().iter();
    sessions
        .flat_map(|session| session["turns"].as_array().unwrap())
        .map(|turn| Turn {
            id: field(turn, "id").unwrap(),
            role: field(turn, "role").unwrap(),
            name: field(turn, "name"),
            text: field(turn, "content").unwrap(),
        })
        .collect()
}

fn evidence_of(conversation: &Value) -> BTreeSet<String> {
    let questions = conversation["questions"].as_array().unwrap().iter();
    questions
        .flat_map(|question| question["evidence"].as_array().unwrap())
        .map(|id| id.as_str().unwrap().to_owned())
        .collect()
}

/// Cuts a conversation as one branch and summarizes all of its chunks.
fn measure_conversation(
    turns: &[Turn],
    said: &[Said<'_>],
    needed: &BTreeSet<String>,
    counter: &O200k,
    kept: &mut Kept,
    spent: &mut Spent,
    show: usize,
) -> f64 {
    let policy = CutPolicy::default();
    let mut tail = OpenTail::empty(policy);
    let mut done: BTreeMap<Level, Vec<(u64, Summary)>> = BTreeMap::new();
    let sizes: Vec<u32> = turns.iter().map(|turn| counter.count(&turn.text)).collect();
    let mut shown = BTreeMap::<Level, usize>::new();
    let mut seconds = 0.0;
    for &size in &sizes {
        for cut in tail.push(size, policy) {
            let range = cut.first as usize - 1..cut.last as usize;
            let tokens: u64 = sizes[range.clone()].iter().map(|size| u64::from(*size)).sum();
            let budget = summary_budget(cut.level, tokens);
            let begun = Instant::now();
            let summary = match cut.level {
                Level::Micro => summarize_turns(&said[range.clone()], budget, counter),
                Level::Mini => from_children(&done[&Level::Micro], cut.first, budget, counter),
                Level::Macro => from_children(&done[&Level::Mini], cut.first, budget, counter),
            };
            seconds += begun.elapsed().as_secs_f64();
            let level = spent.levels.entry(cut.level).or_default();
            level.0 += 1;
            level.1 += u64::from(counter.count(&summary.text));
            if cut.level == Level::Micro {
                spent.turns += tokens;
                spent.fact_count += summary.key_facts.len();
                spent.facts +=
                    summary.key_facts.iter().map(|f| u64::from(counter.count(f))).sum::<u64>();
                compare(&turns[range.clone()], needed, &summary, counter, kept);
            }
            let shown = shown.entry(cut.level).or_default();
            if *shown < show {
                *shown += 1;
                println!("--- {} {}-{} ({tokens} tokens)", cut.level, cut.first, cut.last);
                println!("{}\nthemes: {:?}", summary.text, summary.themes);
                summary.key_facts.iter().for_each(|fact| println!("  * {fact}"));
            }
            done.entry(cut.level).or_default().push((cut.first, summary));
        }
    }
    seconds
}

fn from_children(below: &[(u64, Summary)], first: u64, budget: u32, counter: &O200k) -> Summary {
    let children: Vec<&Summary> =
        below.iter().filter(|(at, _)| *at >= first).map(|(_, summary)| summary).collect();
    summarize_children(&children, budget, counter)
}

/// Adds how many content words of evidence turns each way of summing up keeps.
fn compare(
    turns: &[Turn],
    needed: &BTreeSet<String>,
    summary: &Summary,
    counter: &O200k,
    kept: &mut Kept,
) {
    let size = counter.count(&summary.text);
    let sentences: Vec<String> = turns
        .iter()
        .map(|turn| {
            let end = turn.text.find(['.', '!', '?']).map_or(turn.text.len(), |at| at + 1);
            turn.text[..end].to_owned()
        })
        .collect();
    let sentences = sentences.join(" ");
    let users = turns.iter().filter(|turn| turn.role == "user").take(3);
    let heads: Vec<String> = users.map(|turn| turn.text.chars().take(50).collect()).collect();
    let heads = heads.join(" ");
    let ours = content_words(&summary.text);
    let facts: BTreeSet<String> =
        summary.key_facts.iter().flat_map(|fact| content_words(fact)).chain(ours.clone()).collect();
    let first_sentences = content_words(counter.prefix(&sentences, size));
    let first_characters = content_words(counter.prefix(&heads, size));
    for turn in turns.iter().filter(|turn| needed.contains(&turn.id)) {
        let words = content_words(&turn.text);
        kept.needed += words.len();
        kept.ours += words.intersection(&ours).count();
        kept.facts += words.intersection(&facts).count();
        kept.first_sentences += words.intersection(&first_sentences).count();
        kept.first_characters += words.intersection(&first_characters).count();
    }
}

fn content_words(text: &str) -> BTreeSet<String> {
    let common = ["that", "this", "with", "have", "your", "they", "what", "been", "were", "from"];
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.chars().count() > 3)
        .map(str::to_lowercase)
        .filter(|word| !common.contains(&word.as_str()))
        .collect()
}
