//! The steps of the show, each under its heading.

use std::path::Path;

use icecore::formats::{ctf, turn_jsonl};
use icecore::layers::{ChunkInfo, Level, Tier};
use icecore::{Context, ContextRequest, ForgetRequest, Receipt, Seq, StoredTurn};

use super::secrets::markers;
use super::{Demo, SESSION, plan};
use crate::commands::{check, forget, show};
use crate::draw::{clip, count, number, wrap};
use crate::failure::{Failure, Outcome};
use crate::picture::{budget, layers, tone};
use crate::printer::Tone;

/// Tokens of the context that is shown.
const BUDGET: u32 = 1500;

/// Who is forgotten.
const SUBJECT: &str = "Frau Kessler";

/// Words that only they said.
const THEIR_WORDS: &str = "behind the gas meter";

/// Puts the conversation in, twice.
pub async fn conversation_in(demo: &Demo) -> Outcome<u64> {
    demo.heading("A conversation goes in")?;
    let import = || demo.given.clone().into_bytes();
    let first = demo.memory.import_text(&demo.scope, "demo", import(), &plan(), |_| true).await?;
    let again = demo.memory.import_text(&demo.scope, "demo", import(), &plan(), |_| true).await?;
    demo.line(&format!(
        "  Mira plans an expedition to an ice cap, over eleven weeks: {}.",
        count(first.added, "turn")
    ))?;
    demo.line(&format!(
        "  The same file once more: {} new, {} recognised.",
        again.added,
        number(again.known)
    ))?;
    demo.memory.settle(|_, _| {}).await?;
    Ok(first.added)
}

/// Draws the layers.
pub async fn layers(demo: &Demo) -> Outcome<()> {
    demo.heading("It settles into layers")?;
    let stats = demo.memory.stats(demo.scope.tenant(), None).await?;
    let settings = icecore::MemorySettings::default();
    for line in layers::core(&stats, &demo.printer) {
        demo.line(&line)?;
    }
    demo.line("")?;
    for line in layers::pyramid(&stats, &settings, &demo.printer) {
        demo.line(&line)?;
    }
    Ok(())
}

/// One chunk hot, one warm, one cold, and back.
pub async fn life_of_a_chunk(demo: &Demo) -> Outcome<bool> {
    demo.heading("The life of a chunk")?;
    let chunks = demo.memory.chunks(&demo.scope, Some(SESSION)).await?;
    let hot = find(&chunks, Level::Micro, Tier::Hot)?;
    tier_line(demo, Tier::Hot, hot, "turns as they came")?;
    for turn in expand(demo, hot).await?.iter().take(2) {
        let line = format!("{}: {}", speaker(turn), text_of(turn));
        demo.line(&format!("    {}", clip(&line, demo.printer.width() - 6)))?;
    }

    let warm = find(&chunks, Level::Micro, Tier::Warm)?;
    let turns = expand(demo, warm).await?;
    let text = show::as_ctf(&turns);
    tier_line(demo, Tier::Warm, warm, &saving(demo, &turns, &text))?;
    for line in text.lines().take(4) {
        demo.line(&format!("    {}", clip(&line.replace('\t', " → "), demo.printer.width() - 6)))?;
    }

    let cold = find(&chunks, Level::Macro, Tier::Cold)?;
    tier_line(demo, Tier::Cold, cold, "its summary at hand, its turns sealed in a pack")?;
    let summary = cold.summary.as_ref().map(|summary| summary.text.as_str()).unwrap_or_default();
    for line in wrap(summary, demo.printer.width() - 6).iter().take(5) {
        demo.line(&format!("    {line}"))?;
    }
    let (same, redacted, turns) = compare(demo, &expand(demo, cold).await?)?;
    demo.line("")?;
    demo.line(&format!(
        "  Expanded again: {} of {turns} turns exactly as they were given{}.",
        same,
        match redacted {
            0 => String::new(),
            redacted => format!(", {redacted} with its secret hidden"),
        }
    ))?;
    Ok(same + redacted == turns)
}

/// Builds a context and shows what it is made of.
pub async fn context(demo: &Demo) -> Outcome<Context> {
    demo.heading("A context within a budget")?;
    let request = ContextRequest {
        query: Some("When do we fly, and what is left to pack?".to_owned()),
        ..ContextRequest::of_session(SESSION, BUDGET)
    };
    let context = demo.memory.context(&demo.scope, request).await?;
    for line in budget::summary(&context, &demo.printer) {
        demo.line(&line)?;
    }
    demo.line("")?;
    let lines: Vec<&str> = context.text.lines().collect();
    let width = demo.printer.width() - 6;
    for line in lines.iter().take(3) {
        demo.line(&format!("    {}", clip(line, width)))?;
    }
    demo.line(&demo.printer.paint(Tone::Dim, "    …"))?;
    for line in lines.iter().rev().take(2).rev() {
        demo.line(&format!("    {}", clip(line, width)))?;
    }
    Ok(context)
}

/// Forgets a person.
pub async fn forgotten(demo: &Demo) -> Outcome<Receipt> {
    demo.heading("Forgotten means gone")?;
    demo.line(&format!("  {SUBJECT} from downstairs asks to be forgotten."))?;
    let request = ForgetRequest::Subject(SUBJECT.to_owned());
    let receipt = demo.memory.forget(&demo.principal, None, &request, false).await?;
    demo.memory.settle(|_, _| {}).await?;
    for line in forget::receipt_lines(&receipt, &demo.printer) {
        demo.line(&format!("  {line}"))?;
    }
    let again = demo
        .memory
        .import_text(&demo.scope, "demo", demo.given.clone().into_bytes(), &plan(), |_| true)
        .await?;
    let left = is_on_disk(demo.dir.path(), THEIR_WORDS);
    demo.line(&format!(
        "  Their words are {} of the store. The same file once more: {} new,",
        if left { "still in a file" } else { "in no file" },
        again.added
    ))?;
    demo.line(&format!(
        "  {} recognised, {} forgotten and left out.",
        number(again.known),
        again.forgotten
    ))?;
    if left || again.added > 0 {
        return Err(Failure::Broken("what was forgotten is still there".to_owned()));
    }
    Ok(receipt)
}

/// Checks the store and verifies its packs.
pub async fn whole(demo: &Demo) -> Outcome<bool> {
    demo.heading("Is everything whole?")?;
    let report = demo.memory.check(false, |_, _| {}).await?;
    for line in check::lines(&report, &demo.printer) {
        demo.line(&format!("  {line}"))?;
    }
    let packs = demo.memory.verify_packs(None, |_, _| {}).await?;
    for pack in &packs {
        let (tone, word) = match pack.problem {
            None => (Tone::Good, "ok"),
            Some(_) => (Tone::Bad, "damaged"),
        };
        let hash = hex::encode(pack.pack.sha256);
        demo.line(&format!(
            "  {} {:<18} {:>8} bytes  sha256 {}…",
            demo.printer.paint(tone, &format!("{word}:")),
            pack.pack.id.to_string(),
            number(pack.pack.bytes),
            &hash[..16]
        ))?;
    }
    let archives = demo.memory.verify_archives(None, |_, _| {}).await?;
    demo.line(&format!(
        "  {} {} verified, {} erased with what was forgotten",
        demo.printer.paint(Tone::Good, "ok:"),
        count(archives.sound, "archive"),
        number(archives.erased)
    ))?;
    let is_whole = packs.iter().all(|pack| pack.problem.is_none()) && archives.damaged.is_empty();
    Ok(report.is_ok() && is_whole)
}

/// The whole conversation, as it is stored.
pub async fn all_turns(demo: &Demo) -> Outcome<Vec<StoredTurn>> {
    Ok(demo.memory.turns(&demo.scope, SESSION, Seq(0), usize::MAX >> 1).await?)
}

async fn expand(demo: &Demo, chunk: &ChunkInfo) -> Outcome<Vec<StoredTurn>> {
    Ok(demo.memory.expand(&demo.scope, &chunk.id.to_string()).await?)
}

fn find(chunks: &[ChunkInfo], level: Level, tier: Tier) -> Outcome<&ChunkInfo> {
    chunks
        .iter()
        .find(|chunk| chunk.id.level == level && chunk.tier == tier)
        .ok_or_else(|| Failure::Broken(format!("no {tier} {level} came to be")))
}

fn tier_line(demo: &Demo, tier: Tier, chunk: &ChunkInfo, about: &str) -> Outcome<()> {
    let name = demo.printer.paint(tone(tier), &format!("{:<4}", tier.as_str()));
    let text = clip(&format!("{}: {about}", chunk.id), demo.printer.width() - 9);
    demo.line(&format!("  {name}  {text}"))
}

/// How many tokens the compact text saves against JSON.
fn saving(demo: &Demo, turns: &[StoredTurn], text: &str) -> String {
    let lines: String = turns
        .iter()
        .filter_map(|turn| Some(turn_jsonl::write_fields(&[], turn.turn.as_ref()?.fields()) + "\n"))
        .collect();
    let counter = demo.memory.counter();
    let (json, compact) = (counter.count(&lines), counter.count(text));
    debug_assert!(ctf::decode(text).is_ok());
    format!("{compact} tokens as Compact Turn Format, {json} as JSON")
}

/// How many turns are as given, how many differ by a hidden secret, of how many.
fn compare(demo: &Demo, turns: &[StoredTurn]) -> Outcome<(usize, usize, usize)> {
    let given: Vec<_> =
        demo.given.lines().filter_map(|line| turn_jsonl::parse_line(line).ok()).collect();
    let (mut same, mut redacted) = (0, 0);
    for turn in turns {
        let Some(stored) = &turn.turn else { continue };
        let original = given.iter().find(|line| line.turn.id.as_deref() == Some(&turn.id));
        if original.is_some_and(|line| line.turn == *stored.fields()) {
            same += 1;
        } else if !markers(&text_of(turn)).is_empty() {
            redacted += 1;
        }
    }
    Ok((same, redacted, turns.len()))
}

fn speaker(turn: &StoredTurn) -> String {
    let fields = turn.turn.as_ref().map(|turn| turn.fields());
    fields.and_then(|fields| fields.name.clone()).unwrap_or_default()
}

/// What a stored turn says.
pub fn text_of(turn: &StoredTurn) -> String {
    turn.turn.as_ref().map(|turn| turn.fields().content.text().into_owned()).unwrap_or_default()
}

/// Whether any file below `dir` holds the text.
pub fn is_on_disk(dir: &Path, text: &str) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else { return false };
    entries.flatten().any(|entry| {
        let path = entry.path();
        match path.is_dir() {
            true => is_on_disk(&path, text),
            false => std::fs::read(&path).is_ok_and(|bytes| {
                bytes.windows(text.len()).any(|window| window == text.as_bytes())
            }),
        }
    })
}
