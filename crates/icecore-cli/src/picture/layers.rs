//! The ice core: what is there, layer by layer.
//!
//! ```text
//!   ╭──────────────╮            turns   tokens      bytes   a turn
//!   │░░░░░░░░░░░░░░│  hot          27    1,604    6.1 KiB    231 B
//!   │▒▒▒▒▒▒▒▒▒▒▒▒▒▒│  warm         50    2,411    9.7 KiB    199 B
//!   │██████████████│  cold        300   17,030   44.0 KiB    150 B
//!   ╰──────────────╯
//! ```

use icecore::MemorySettings;
use icecore::layers::{Level, Tier};
use icecore::maintenance::Stats;

use super::{glyph, tone};
use crate::commands::redact;
use crate::draw::{bytes, clip, count, left, number, right, share};
use crate::printer::{Printer, Tone};

/// Rows of the drill core.
const CORE_ROWS: usize = 8;

/// Columns of it.
const CORE_COLUMNS: usize = 14;

/// The whole picture.
pub fn picture(
    stats: &Stats,
    whose: &str,
    settings: &MemorySettings,
    printer: &Printer,
) -> Vec<String> {
    let store = &stats.store;
    let mut lines = vec![title(stats, whose, printer), String::new()];
    if store.turns == 0 {
        lines.push("  Nothing here yet. `icecore add` and `icecore import` begin it.".to_owned());
        return lines;
    }
    lines.extend(core(stats, printer));
    lines.push(String::new());
    lines.extend(pyramid(stats, settings, printer));
    lines.push(String::new());
    lines.extend(facts(stats, printer));
    lines
}

fn title(stats: &Stats, whose: &str, printer: &Printer) -> String {
    let store = &stats.store;
    let about = format!(
        "{} in {}, {} tokens ({})",
        count(store.turns, "turn"),
        count(store.sessions, "session"),
        number(store.tokens),
        stats.tokenizer
    );
    format!(
        "  {}  {}",
        printer.paint(Tone::Title, &clip(whose, 32)),
        printer.paint(Tone::Dim, &about)
    )
}

/// Newest on top, as snow falls; heights by turns.
pub fn core(stats: &Stats, printer: &Printer) -> Vec<String> {
    let heights = share(&stats.store.tier_turns, CORE_ROWS, 2);
    let [side, top, bottom, edge] = match printer.is_ascii() {
        true => ["|", "+", "+", "-"].map(str::to_owned),
        false => ["│", "╭", "╰", "─"].map(str::to_owned),
    };
    let close = |corner: &str| match corner {
        "╭" => "╮".to_owned(),
        "╰" => "╯".to_owned(),
        other => other.to_owned(),
    };
    let rim = |corner: &str| {
        printer.paint(Tone::Dim, &format!("{corner}{}{}", edge.repeat(CORE_COLUMNS), close(corner)))
    };
    let wall = printer.paint(Tone::Dim, &side);
    let mut lines = vec![format!("  {}  {}", rim(&top), printer.paint(Tone::Dim, &head()))];
    for (at, tier) in Tier::ALL.into_iter().enumerate() {
        let texture: String = std::iter::repeat_n(glyph(tier, printer), CORE_COLUMNS).collect();
        for row in 0..heights[at] {
            let beside = match row {
                0 => layer(stats, tier, at, printer),
                1 => printer.paint(Tone::Dim, &about(stats, tier)),
                _ => String::new(),
            };
            let ice = printer.paint(tone(tier), &texture);
            lines.push(format!("  {wall}{ice}{wall}  {beside}").trim_end().to_owned());
        }
    }
    lines.push(format!("  {}", rim(&bottom)));
    lines
}

fn columns(name: &str, cells: [&str; 4]) -> String {
    let [turns, tokens, size, each] = cells;
    format!(
        "{} {} {} {} {}",
        left(name, 6),
        right(turns, 10),
        right(tokens, 12),
        right(size, 11),
        right(each, 9)
    )
}

fn head() -> String {
    columns("", ["turns", "tokens", "bytes", "a turn"])
}

fn layer(stats: &Stats, tier: Tier, at: usize, printer: &Printer) -> String {
    let store = &stats.store;
    let (turns, size) = (store.tier_turns[at], store.tier_bytes[at]);
    let each = match turns {
        0 => String::new(),
        turns => bytes(size / turns),
    };
    let cells = columns(
        tier.as_str(),
        [&number(turns), &number(store.tier_tokens[at]), &bytes(size), &each],
    );
    // Only the name is coloured: numbers must be readable on any background.
    let (name, rest) = cells.split_at(6);
    format!("{}{rest}", printer.paint(tone(tier), name))
}

fn about(stats: &Stats, tier: Tier) -> String {
    let store = &stats.store;
    match tier {
        Tier::Hot => format!("turns as they came, {} in the open tail", number(store.open_turns)),
        Tier::Warm => "one compact text for each micro".to_owned(),
        Tier::Cold => format!("summaries at hand, turns sealed in {}", count(store.packs, "pack")),
    }
}

/// The chunks as courses of brick: macros on top, turns at the bottom, oldest
/// left.
pub fn pyramid(stats: &Stats, settings: &MemorySettings, printer: &Printer) -> Vec<String> {
    let store = &stats.store;
    let width = printer.width().saturating_sub(22).clamp(20, 90);
    let sizes = [settings.cuts.micro_turns, settings.cuts.mini_turns, settings.cuts.macro_turns];
    let mut lines = Vec::new();
    for (course, level) in [Level::Macro, Level::Mini, Level::Micro].into_iter().enumerate() {
        let at = 2 - course;
        let covered = match level {
            Level::Micro => store.turns.saturating_sub(store.open_turns),
            _ => (store.chunks[at] * u64::from(sizes[at])).min(store.turns),
        };
        let bricks = Bricks { count: store.chunks[at], covered, turns: store.tier_turns };
        let share = [40, 60, 80][course];
        lines.push(bricks.course(level.as_str(), width, share, printer));
    }
    let bricks = Bricks { count: store.turns, covered: store.turns, turns: store.tier_turns };
    lines.push(bricks.course("turns", width, 100, printer));
    let key = |tier: Tier| {
        format!("{} {tier}", printer.paint(tone(tier), &glyph(tier, printer).to_string()))
    };
    let legend = format!("{}  {}  {}", key(Tier::Cold), key(Tier::Warm), key(Tier::Hot));
    // Three glyphs, three words and the blanks between them.
    let legend_columns = 21;
    lines.push(format!("{}{legend}", " ".repeat(19 + width.saturating_sub(legend_columns) / 2)));
    lines
}

/// One course: so many chunks that cover so many turns, oldest first.
struct Bricks {
    count: u64,
    covered: u64,
    /// Turns by tier: hot, warm, cold.
    turns: [u64; 3],
}

impl Bricks {
    fn course(&self, name: &str, width: usize, percent: usize, printer: &Printer) -> String {
        let columns = width * percent / 100;
        let label = format!("  {} {}", left(name, 6), right(&number(self.count), 9));
        let indent = " ".repeat((width - columns) / 2 + 1);
        format!("{label}{indent}{}", self.drawn(columns, printer)).trim_end().to_owned()
    }

    fn drawn(&self, columns: usize, printer: &Printer) -> String {
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        if count == 0 {
            return String::new();
        }
        // A joint between bricks where there is room for one, and then all of a
        // course are equal.
        let is_jointed = count.saturating_mul(2) <= columns + 1;
        let shown = count.min(columns);
        let room = match is_jointed {
            true => (columns + 1 - shown) / shown * shown,
            false => columns,
        };
        let margin = if is_jointed { (columns + 1 - shown - room) / 2 } else { 0 };
        let mut out = " ".repeat(margin);
        for at in 0..shown {
            let brick = room * (at + 1) / shown - room * at / shown;
            let tier = self.tier_at((at as f64 + 0.5) / shown as f64);
            let texture: String = std::iter::repeat_n(glyph(tier, printer), brick).collect();
            out.push_str(&printer.paint(tone(tier), &texture));
            if is_jointed && at + 1 < shown {
                out.push(' ');
            }
        }
        out
    }

    /// The tier of the chunk at this part of the course.
    fn tier_at(&self, part: f64) -> Tier {
        let turn = part * self.covered as f64;
        let [_, warm, cold] = self.turns.map(|turns| turns as f64);
        match turn {
            turn if turn < cold => Tier::Cold,
            turn if turn < cold + warm => Tier::Warm,
            _ => Tier::Hot,
        }
    }
}

fn facts(stats: &Stats, printer: &Printer) -> Vec<String> {
    let store = &stats.store;
    let [micro, mini, macro_] = store.summaries;
    let mut facts = vec![(
        "summaries",
        format!(
            "{} ({macro_} macro, {mini} mini, {micro} micro), {}",
            number(micro + mini + macro_),
            bytes(store.summary_bytes)
        ),
    )];
    if let Some(text) = compression(stats) {
        facts.push(("pressed", text));
    }
    facts.push((
        "on disk",
        format!(
            "{}, {} a turn",
            bytes(stats.disk_bytes),
            bytes(stats.disk_bytes / store.turns.max(1))
        ),
    ));
    if store.entries > 0 {
        facts.push(("entries", number(store.entries)));
    }
    if !store.hidden.is_empty() {
        let room = printer.width().saturating_sub(13);
        facts.push(("hidden", clip(&redact::kinds(&store.hidden), room)));
    }
    if store.erased + store.expired > 0 {
        facts.push((
            "gone",
            format!("{} erased, {} expired", number(store.erased), number(store.expired)),
        ));
    }
    facts.push((
        "due",
        match stats.pending {
            0 => "nothing, all is settled".to_owned(),
            pending => format!(
                "{} with derived work",
                count(pending, "branch").replace("branchs", "branches")
            ),
        },
    ));
    facts
        .into_iter()
        .map(|(name, text)| format!("  {} {text}", printer.paint(Tone::Dim, &left(name, 10))))
        .collect()
}

/// How much smaller a token lies in the cold than in the hot tier.
fn compression(stats: &Stats) -> Option<String> {
    let store = &stats.store;
    let each = |at: usize| match (store.tier_tokens[at], store.tier_bytes[at]) {
        (0, _) | (_, 0) => None,
        (tokens, bytes) => Some(bytes as f64 / tokens as f64),
    };
    let (hot, cold) = (each(0)?, each(2)?);
    Some(format!("{:.1}x: {cold:.1} bytes a token when cold, {hot:.1} when hot", hot / cold))
}
