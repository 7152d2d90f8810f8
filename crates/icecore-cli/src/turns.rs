//! Turns as a person reads them.

use icecore::StoredTurn;

use crate::draw::{clip, wrap};
use crate::printer::{Printer, Tone};

/// A turn: a line that says who and when, and what was said under it.
pub fn lines(turn: &StoredTurn, printer: &Printer) -> Vec<String> {
    let Some(stored) = &turn.turn else {
        return vec![printer.paint(Tone::Dim, &format!("{}  expired", turn.id))];
    };
    let fields = stored.fields();
    let who = match &fields.name {
        Some(name) => format!("{name} ({})", fields.role),
        None => fields.role.clone(),
    };
    let about = format!("{}  {}  {} tokens", turn.at.to_minute(), turn.id, turn.tokens);
    let head = format!(
        "{}  {}",
        printer.paint(Tone::Title, &clip(&who, 40)),
        printer.paint(Tone::Dim, &clip(&about, 72))
    );
    let said = wrap(&fields.content.text(), printer.width() - 2);
    let mut lines = vec![head];
    lines.extend(said.into_iter().map(|line| format!("  {line}").trim_end().to_owned()));
    lines
}
