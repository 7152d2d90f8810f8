//! Where the tokens of a context went.

use icecore::Context;
use icecore::context::{WindowItem, WindowKind};
use icecore::layers::Tier;

use super::{glyph, tone};
use crate::draw::{clip, count, left, number, right, share};
use crate::printer::{Printer, Tone};

/// One line for each item, then the bar and its key, which a long list must not
/// push out of sight. For stderr.
pub fn explained(context: &Context, printer: &Printer) -> Vec<String> {
    let mut lines = vec![String::new()];
    lines.extend(context.items.iter().map(|item| item_line(item, printer)));
    lines.push(String::new());
    lines.extend(bar(context, printer, Printer::paint_talk));
    lines
}

/// The bar and its key alone. For stdout.
pub fn summary(context: &Context, printer: &Printer) -> Vec<String> {
    bar(context, printer, Printer::paint)
}

type Paint = fn(&Printer, Tone, &str) -> String;

/// What an item is, for the bar.
fn part_of(item: &WindowItem) -> (WindowKind, Tier) {
    let tier = Tier::ALL.into_iter().find(|tier| tier.as_str() == item.tier);
    (item.kind, tier.unwrap_or(Tier::Hot))
}

fn bar(context: &Context, printer: &Printer, paint: Paint) -> Vec<String> {
    let mut parts: Vec<((WindowKind, Tier), u64, u64)> = Vec::new();
    for item in &context.items {
        let part = part_of(item);
        match parts.iter_mut().find(|(known, ..)| *known == part) {
            Some((_, tokens, items)) => {
                (*tokens, *items) = (*tokens + u64::from(item.tokens), *items + 1)
            }
            None => parts.push((part, u64::from(item.tokens), 1)),
        }
    }
    // Oldest first, as the text is: summaries, then turns from cold to hot.
    parts.sort_by(|(a, ..), (b, ..)| b.cmp(a));
    let used: u64 = parts.iter().map(|(_, tokens, _)| tokens).sum();
    let dates = u64::from(context.tokens).saturating_sub(used);
    let free = u64::from(context.budget - context.tokens.min(context.budget));
    let mut weights: Vec<u64> = parts.iter().map(|(_, tokens, _)| *tokens).collect();
    weights.push(free + dates);
    let columns = share(&weights, printer.width().saturating_sub(6).min(72), 1);
    let drawn: String = parts
        .iter()
        .zip(&columns)
        .map(|((part, ..), columns)| {
            let texture: String = std::iter::repeat_n(texture(*part, printer), *columns).collect();
            paint(printer, part_tone(*part), &texture)
        })
        .collect();
    let rest =
        (if printer.is_ascii() { "_" } else { "·" }).repeat(columns.last().copied().unwrap_or(0));
    let mut lines = vec![
        format!(
            "  {} of {} tokens, {}",
            number(context.tokens.into()),
            number(context.budget.into()),
            count(context.items.len() as u64, "item")
        ),
        format!("  {drawn}{}", paint(printer, Tone::Dim, &rest)),
    ];
    for (part, tokens, items) in parts {
        let mark = paint(printer, part_tone(part), &texture(part, printer).to_string());
        lines.push(format!(
            "  {mark} {} {} tokens  {}",
            left(&part_name(part), 18),
            right(&number(tokens), 8),
            right(&number(items), 5) + if items == 1 { " item" } else { " items" }
        ));
    }
    if dates > 0 {
        lines.push(format!(
            "    {} {} tokens",
            left("dates between", 18),
            right(&number(dates), 8)
        ));
    }
    lines
}

fn part_name((kind, tier): (WindowKind, Tier)) -> String {
    format!(
        "{tier} {}",
        match kind {
            WindowKind::Turn => "turns",
            WindowKind::Summary => "summaries",
            WindowKind::Fact => "facts",
            WindowKind::Distillate => "distilled lines",
        }
    )
}

fn part_tone((kind, tier): (WindowKind, Tier)) -> Tone {
    match kind {
        WindowKind::Turn => tone(tier),
        WindowKind::Summary => Tone::Note,
        WindowKind::Fact | WindowKind::Distillate => Tone::Good,
    }
}

fn texture((kind, tier): (WindowKind, Tier), printer: &Printer) -> char {
    match (kind, printer.is_ascii()) {
        (WindowKind::Turn, _) => glyph(tier, printer),
        (WindowKind::Summary, false) => '▚',
        (WindowKind::Summary, true) => 's',
        (WindowKind::Fact, false) => '◆',
        (WindowKind::Fact, true) => 'f',
        (WindowKind::Distillate, false) => '◈',
        (WindowKind::Distillate, true) => 'd',
    }
}

fn item_line(item: &WindowItem, printer: &Printer) -> String {
    let what = format!("{} {}", item.tier, item.kind.as_str());
    let room = printer.width().saturating_sub(46).max(16);
    format!(
        "  {}  {}  {}  {}",
        right(&number(item.tokens.into()), 7),
        left(&what, 12),
        left(&clip(&item.id, 18), 18),
        printer.paint_talk(Tone::Dim, &clip(&item.reason, room))
    )
}
