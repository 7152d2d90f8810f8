//! Draws what is known. Pure: the same state on the same screen gives the same cells.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthStr;

use super::areas::{Areas, PROMPT};
use super::pane::Pane;
use super::rows::{Look, Row, places};
use super::state::{Kind, Mode, State};
use crate::draw::{clip, count, left, money, number};

/// Columns of the bar that says how full the window is.
const BAR: usize = 10;

/// From this share of the window on, in percent, the bar warns.
const NEARLY_FULL: u64 = 80;

/// How looks become styles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paint {
    /// Whether there are colours; without, only weight and shade tell things apart.
    pub has_color: bool,
}

impl Paint {
    fn style(self, look: Look) -> Style {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let dim = Style::new().add_modifier(Modifier::DIM);
        let (style, color) = match look {
            Look::Plain => (Style::new(), None),
            Look::Person => (bold, Some(Color::Cyan)),
            Look::Model => (bold, Some(Color::Green)),
            Look::Title => (bold, None),
            Look::Dim => (dim, None),
            Look::Note => (bold, Some(Color::Yellow)),
            Look::Bad => (bold, Some(Color::Red)),
        };
        match color.filter(|_| self.has_color) {
            Some(color) => style.fg(color),
            None => style,
        }
    }
}

/// Draws all of it.
pub fn draw(state: &State, paint: Paint, frame: &mut Frame<'_>) {
    let Some(areas) = state.laid.map(|laid| laid.areas) else { return };
    // The terminal may have changed since the panes were laid out.
    let screen = frame.area();
    if (screen.width, screen.height) != state.size {
        return;
    }
    title(state, paint, areas.title, frame);
    match state.mode {
        Mode::Helping => pane(&state.help, "", paint, body(&areas, screen.width), frame),
        _ => views(state, paint, &areas, frame),
    }
    let rule = if state.is_ascii { "-" } else { "─" };
    let line = Line::styled(rule.repeat(usize::from(areas.rule.width)), paint.style(Look::Dim));
    frame.render_widget(line, areas.rule);
    input(state, paint, areas.input, frame);
    status(state, paint, areas.status, frame);
}

/// All between the title and the input.
fn body(areas: &Areas, width: u16) -> Rect {
    let top = areas.title.height;
    Rect::new(0, top, width, areas.input.y - areas.rule.height - top)
}

fn title(state: &State, paint: Paint, area: Rect, frame: &mut Frame<'_>) {
    let width = usize::from(area.width);
    let keys = "F1 help  F2 views ";
    let name = clip(&format!(" icecore  {}", state.session), width);
    let line = match width.saturating_sub(name.width()) > keys.width() {
        true => format!("{}{keys}", left(&name, width - keys.width())),
        false => left(&name, width),
    };
    let style = paint.style(Look::Title).add_modifier(Modifier::REVERSED);
    frame.render_widget(Line::styled(line, style), area);
}

fn views(state: &State, paint: Paint, areas: &Areas, frame: &mut Frame<'_>) {
    let words = match &state.mode {
        Mode::Searching(search) => search.words.as_str(),
        _ => "",
    };
    pane(&state.display, words, paint, areas.display, frame);
    if !state.is_both {
        return;
    }
    pane(&state.sent, "", paint, areas.sent, frame);
    let between = if state.is_ascii { " |" } else { " │" };
    let rows = usize::from(areas.between.height);
    let style = paint.style(Look::Dim);
    let lines: Vec<Line<'_>> = (0..rows).map(|_| Line::styled(between, style)).collect();
    frame.render_widget(Paragraph::new(lines), areas.between);
    let views = &state.views;
    let turns = |count_of: usize| count(count_of as u64, "turn");
    let seen = format!("people: {}", turns(views.turns.len()));
    heading(&seen, views.tokens, paint, areas.display_head, frame);
    let sent = turns(views.system.len() + views.sent.len());
    let sent = match views.handoff {
        Some(_) => format!("model: handoff, {sent}"),
        None => format!("model: {sent}"),
    };
    heading(&sent, views.sent_tokens, paint, areas.sent_head, frame);
}

fn heading(told: &str, tokens: u64, paint: Paint, area: Rect, frame: &mut Frame<'_>) {
    let width = usize::from(area.width);
    let tokens = format!("{} tokens", number(tokens));
    let room = width.saturating_sub(tokens.width() + 1);
    let line = match room > 8 {
        true => format!("{} {tokens}", left(&clip(told, room), room)),
        false => clip(&tokens, width),
    };
    let style = paint.style(Look::Title).add_modifier(Modifier::UNDERLINED);
    frame.render_widget(Line::styled(line, style), area);
}

fn pane(pane: &Pane, words: &str, paint: Paint, area: Rect, frame: &mut Frame<'_>) {
    let lines: Vec<Line<'_>> = pane.shown().iter().map(|row| line(row, words, paint)).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

/// A row, with the words that are looked for turned around.
fn line<'a>(row: &'a Row, words: &str, paint: Paint) -> Line<'a> {
    let mut spans = Vec::new();
    for (look, text) in &row.parts {
        let style = paint.style(*look);
        let mut from = 0;
        for (start, end) in places(text, words.trim()) {
            spans.push(Span::styled(&text[from..start], style));
            let found = style.add_modifier(Modifier::REVERSED);
            spans.push(Span::styled(&text[start..end], found));
            from = end;
        }
        spans.push(Span::styled(&text[from..], style));
    }
    Line::from(spans)
}

fn input(state: &State, paint: Paint, area: Rect, frame: &mut Frame<'_>) {
    let height = usize::from(area.height);
    let (prompt, rows, cursor) = match &state.mode {
        Mode::Confirming(confirm) => {
            let asked = format!("{} Press y to erase it for good, n to keep it.", confirm.told);
            ("? ", super::rows::wrap(&asked, usize::from(area.width.saturating_sub(PROMPT))), None)
        }
        Mode::Searching(search) => {
            let told = match (search.is_typing, search.found.len()) {
                (true, _) => search.words.clone(),
                (false, 0) => format!("{}   nowhere in this session; Esc leaves", search.words),
                (false, found) => {
                    let at = search.at + 1;
                    format!("{}   {at} of {found}; n and N go on, Esc leaves", search.words)
                }
            };
            let cursor = search.is_typing.then_some((0, search.words.width()));
            ("/ ", vec![told], cursor)
        }
        Mode::Typing | Mode::Helping => {
            let drawn = state.editor.drawn(usize::from(area.width.saturating_sub(PROMPT)));
            ("> ", drawn.rows, Some(drawn.cursor))
        }
    };
    let at = cursor.map_or(0, |(row, _)| row);
    let top = (at + 1).saturating_sub(height);
    let shown = rows.iter().enumerate().skip(top).take(height);
    let lines: Vec<Line<'_>> = shown
        .map(|(at, row)| {
            let sign = if at == 0 { prompt } else { "  " };
            Line::from(vec![Span::styled(sign, paint.style(Look::Person)), Span::raw(row)])
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), area);
    if let Some((row, column)) = cursor.filter(|_| height > 0) {
        let x = usize::from(area.x + PROMPT) + column;
        let x = u16::try_from(x).unwrap_or(u16::MAX).min(area.right().saturating_sub(1));
        let y = area.y + u16::try_from(row - top).unwrap_or(0);
        frame.set_cursor_position(Position::new(x, y));
    }
}

/// What is going on, at the left; what it takes, at the right.
fn status(state: &State, paint: Paint, area: Rect, frame: &mut Frame<'_>) {
    let width = usize::from(area.width);
    let figures = figures(state, width);
    let used: usize = figures.iter().map(|(_, text)| text.width()).sum();
    let (look, told) = going_on(state);
    let room = width.saturating_sub(used + 1);
    let told = left(&clip(&format!(" {told}"), room), room);
    let mut spans = vec![Span::styled(told, paint.style(look)), Span::raw(" ")];
    spans.extend(figures.into_iter().map(|(look, text)| Span::styled(text, paint.style(look))));
    frame.render_widget(Line::from(spans), area);
}

fn going_on(state: &State) -> (Look, String) {
    if state.is_leaving {
        return (Look::Note, "Ctrl-C again leaves".to_owned());
    }
    if state.mode == Mode::Helping {
        return (Look::Dim, "Esc leaves the help".to_owned());
    }
    if state.is_next {
        return (Look::Note, "sent next".to_owned());
    }
    match state.work.as_ref().map(|work| &work.kind) {
        Some(Kind::Asking { .. }) => (Look::Dim, format!("{} answering", state.spinner())),
        Some(Kind::Doing(what)) => (Look::Dim, format!("{} {what}", state.spinner())),
        None if state.display.below() > 0 => (
            Look::Dim,
            format!("{} below, End goes there", count(state.display.below() as u64, "row")),
        ),
        None => match &state.model {
            Some(model) => (Look::Model, model.name.clone()),
            None => (Look::Note, "no model".to_owned()),
        },
    }
}

/// Tokens against the window, memory that was sent along, and cost: as many as fit, the
/// first before the others.
fn figures(state: &State, width: usize) -> Vec<(Look, String)> {
    let (tokens, window) = (state.views.sent_tokens, state.window().max(1));
    let percent = tokens.saturating_mul(100) / window;
    let look = if percent >= NEARLY_FULL { Look::Note } else { Look::Plain };
    let full = usize::try_from(tokens.saturating_mul(BAR as u64).div_ceil(window)).unwrap_or(BAR);
    let full = full.min(BAR);
    let (on, off) = if state.is_ascii { ("#", ".") } else { ("█", "░") };
    let bar = format!(" {}{} {percent}%", on.repeat(full), off.repeat(BAR - full));
    let short = format!("{}/{}", number(tokens), number(window));
    let memory = state.reminded.map(|(turns, facts)| format!("  memory {}", turns + facts));
    let cost = state.views.cost.map(|cost| format!("  cost {}", money(cost)));
    let parts = [
        (look, short),
        (look, bar),
        (Look::Dim, memory.unwrap_or_default()),
        (Look::Dim, cost.unwrap_or_default()),
    ];
    // The word at the left has its room too.
    let mut room = width.saturating_sub(14);
    let mut shown = Vec::new();
    for (look, text) in parts {
        if text.width() > room {
            break;
        }
        room -= text.width();
        shown.push((look, text));
    }
    shown.push((Look::Plain, " ".to_owned()));
    shown
}
