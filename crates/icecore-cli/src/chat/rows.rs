//! What was said as rows of a given width: pure, and the same at every call.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use super::state::{Handoff, Note, Tone, Turn, Voice};
use crate::draw::{clip, harmless, left, number};

/// How a piece of a row looks; colour follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// As it is.
    Plain,
    /// Who a person is, and the bar beside their words.
    Person,
    /// Who a model is.
    Model,
    /// A heading.
    Title,
    /// Less important.
    Dim,
    /// Something to notice.
    Note,
    /// Something is wrong.
    Bad,
}

/// A row of a pane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its pieces, from the left.
    pub parts: Vec<(Look, String)>,
    /// Which item of the pane it is of.
    pub item: usize,
}

impl Row {
    fn new(item: usize, parts: Vec<(Look, String)>) -> Self {
        Self { parts, item }
    }

    fn blank(item: usize) -> Self {
        Self::new(item, Vec::new())
    }

    /// Its text.
    pub fn text(&self) -> String {
        self.parts.iter().map(|(_, text)| text.as_str()).collect()
    }
}

/// What a row is drawn with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canvas {
    /// Columns.
    pub width: usize,
    /// Whether only plain characters can be shown.
    pub is_ascii: bool,
}

impl Canvas {
    fn bar(&self) -> &'static str {
        if self.is_ascii { "| " } else { "▌ " }
    }

    fn rule(&self) -> &'static str {
        if self.is_ascii { "-" } else { "─" }
    }

    fn arrows(&self) -> (&'static str, &'static str) {
        if self.is_ascii { ("->", "<-") } else { ("→", "←") }
    }

    /// Columns of a text behind its margin.
    fn room(&self) -> usize {
        self.width.saturating_sub(MARGIN)
    }
}

/// Columns before a text.
const MARGIN: usize = 2;

/// Spaces that a tab stands for.
const TAB: &str = "    ";

/// Rows of a turn behind another, with a blank one behind. What tools answer stands right
/// below the calls.
pub fn turn(turn: &Turn, before: Option<&Turn>, item: usize, canvas: Canvas) -> Vec<Row> {
    if turn.voice == Voice::Tool {
        return vec![result(turn, item, canvas)];
    }
    let is_open = before.is_some_and(|turn| turn.voice == Voice::Tool || !turn.calls.is_empty());
    let mut rows = if is_open { vec![Row::blank(item)] } else { Vec::new() };
    rows.extend(said(turn, item, canvas));
    rows
}

fn said(turn: &Turn, item: usize, canvas: Canvas) -> Vec<Row> {
    let mut rows = vec![head(&turn.who, &turn.at, turn.voice, item, canvas)];
    let look = if turn.voice == Voice::System { Look::Dim } else { Look::Plain };
    let margin = margin(turn.voice, canvas);
    if !turn.text.is_empty() {
        let lines = wrap(&turn.text, canvas.room()).into_iter();
        rows.extend(lines.map(|line| Row::new(item, vec![margin.clone(), (look, line)])));
    }
    let (calls, _) = canvas.arrows();
    for call in &turn.calls {
        let line = clip(&format!("{calls} {call}"), canvas.room());
        rows.push(Row::new(item, vec![margin.clone(), (Look::Dim, line)]));
    }
    if turn.calls.is_empty() {
        rows.push(Row::blank(item));
    }
    rows
}

/// What a tool answered, short.
fn result(turn: &Turn, item: usize, canvas: Canvas) -> Row {
    let (_, arrow) = canvas.arrows();
    let first = turn.text.lines().find(|line| !line.trim().is_empty()).unwrap_or("nothing");
    let more = match turn.text.lines().count() {
        0 | 1 => String::new(),
        lines => format!(" ({lines} lines)"),
    };
    let room = canvas.room().saturating_sub(more.width());
    let line = format!("{}{more}", clip(&format!("{arrow} {}", first.trim()), room));
    Row::new(item, vec![(Look::Plain, "  ".to_owned()), (Look::Dim, clip(&line, canvas.room()))])
}

fn margin(voice: Voice, canvas: Canvas) -> (Look, String) {
    match voice {
        Voice::Person => (Look::Person, canvas.bar().to_owned()),
        _ => (Look::Plain, "  ".to_owned()),
    }
}

/// Who, and at the right when.
fn head(who: &str, at: &str, voice: Voice, item: usize, canvas: Canvas) -> Row {
    let look = match voice {
        Voice::Person => Look::Person,
        Voice::Model => Look::Model,
        Voice::Tool | Voice::System => Look::Dim,
    };
    let who = clip(who, canvas.room());
    let gap = canvas.room().saturating_sub(who.width());
    let mut parts = vec![margin(voice, canvas), (look, who)];
    if gap > at.width() + 1 {
        parts.push((Look::Dim, format!("{}{at}", " ".repeat(gap - at.width()))));
    }
    Row::new(item, parts)
}

/// An answer that is on its way, or what the model is at before it.
pub fn answering(who: &str, text: &str, spinner: &str, item: usize, canvas: Canvas) -> Vec<Row> {
    let mut rows = vec![head(who, "", Voice::Model, item, canvas)];
    let room = canvas.room();
    let lines = if text.is_empty() { Vec::new() } else { wrap(text, room) };
    let plain = |line| Row::new(item, vec![margin(Voice::Model, canvas), (Look::Plain, line)]);
    rows.extend(lines.into_iter().map(plain));
    let told = clip(&format!("{spinner} Esc cancels"), room);
    rows.push(Row::new(item, vec![margin(Voice::Model, canvas), (Look::Dim, told)]));
    rows
}

/// What the chat itself says.
pub fn note(note: &Note, item: usize, canvas: Canvas) -> Vec<Row> {
    let (look, body) = match note.tone {
        Tone::Told => (Look::Note, Look::Plain),
        Tone::Quiet => (Look::Dim, Look::Dim),
        Tone::Bad => return trouble(note, item, canvas),
    };
    let mut rows = Vec::new();
    if !note.head.is_empty() {
        rows.push(ruled(&note.head, look, item, canvas));
    }
    for line in note.lines.iter().flat_map(|line| wrap(line, canvas.room())) {
        rows.push(Row::new(item, vec![(Look::Plain, "  ".to_owned()), (body, line)]));
    }
    rows.push(Row::blank(item));
    rows
}

/// What went wrong, and what to do.
fn trouble(note: &Note, item: usize, canvas: Canvas) -> Vec<Row> {
    let mut rows = Vec::new();
    for (at, line) in wrap(&note.head, canvas.room()).into_iter().enumerate() {
        let sign = if at == 0 { "! " } else { "  " };
        rows.push(Row::new(item, vec![(Look::Bad, sign.to_owned()), (Look::Bad, line)]));
    }
    for line in note.lines.iter().flat_map(|line| wrap(line, canvas.room())) {
        rows.push(Row::new(item, vec![(Look::Plain, "  ".to_owned()), (Look::Dim, line)]));
    }
    rows.push(Row::blank(item));
    rows
}

/// What stands for the turns before it.
pub fn handoff(handoff: &Handoff, item: usize, canvas: Canvas) -> Vec<Row> {
    let told = format!("handoff {}, {} tokens", handoff.number, number(handoff.tokens));
    let mut rows = vec![ruled(&told, Look::Note, item, canvas)];
    for line in handoff.text.lines() {
        let look = if line.starts_with('#') { Look::Title } else { Look::Dim };
        let wrapped = wrap(line, canvas.room()).into_iter();
        rows.extend(
            wrapped.map(|line| Row::new(item, vec![(Look::Plain, "  ".to_owned()), (look, line)])),
        );
    }
    rows.push(Row::new(item, vec![(Look::Dim, canvas.rule().repeat(canvas.width))]));
    rows.push(Row::blank(item));
    rows
}

/// A heading in a thin line.
fn ruled(head: &str, look: Look, item: usize, canvas: Canvas) -> Row {
    let rule = canvas.rule();
    let line = format!("{rule} {} ", clip(head, canvas.width.saturating_sub(3)));
    let rest = rule.repeat(canvas.width.saturating_sub(line.width()));
    Row::new(
        item,
        vec![
            (Look::Dim, format!("{rule} ")),
            (look, line[rule.len() + 1..].to_owned()),
            (Look::Dim, rest),
        ],
    )
}

/// Lines of at most `columns`, broken between words where possible and never within what
/// people see as one character. Indents stay, and what follows a bullet stands under it.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(2);
    let text = harmless(text).replace('\t', TAB);
    text.trim_end().split('\n').flat_map(|line| hung(line, columns)).collect()
}

fn hung(line: &str, columns: usize) -> Vec<String> {
    let said = line.trim_start();
    let bullet = if ["- ", "* "].iter().any(|sign| said.starts_with(sign)) { 2 } else { 0 };
    let (before, said) = line.split_at(line.len() - said.len() + bullet);
    let hang = before.width();
    if hang == 0 || hang * 2 >= columns {
        return wrap_line(line, columns);
    }
    let lines = wrap_line(said, columns - hang).into_iter().enumerate();
    let lead = |at: usize| if at == 0 { before.to_owned() } else { " ".repeat(hang) };
    lines.map(|(at, line)| format!("{}{line}", lead(at))).collect()
}

fn wrap_line(line: &str, columns: usize) -> Vec<String> {
    let (mut lines, mut current, mut used) = (Vec::new(), String::new(), 0);
    // Where the current line may break: behind its last blank.
    let mut blank: Option<usize> = None;
    for piece in line.graphemes(true) {
        let width = piece.width();
        if used + width > columns && piece == " " {
            lines.push(std::mem::take(&mut current));
            (used, blank) = (0, None);
            continue;
        }
        // Once where it may break, and again where a wide character still has no room.
        while used + width > columns && used > 0 {
            let rest = blank.take().map_or_else(String::new, |at| current.split_off(at));
            lines.push(std::mem::replace(&mut current, rest).trim_end().to_owned());
            used = current.width();
        }
        current.push_str(piece);
        used += width;
        if piece == " " && !current.trim().is_empty() {
            blank = Some(current.len());
        }
    }
    lines.push(current);
    lines
}

/// Columns of a table, the first padded.
pub fn pair(name: &str, columns: usize, does: &str) -> String {
    format!("{} {does}", left(name, columns))
}

/// Places in a text where `needle` stands, whatever its case. In bytes of the text.
pub fn places(text: &str, needle: &str) -> Vec<(usize, usize)> {
    let needle: Vec<char> = needle.chars().flat_map(char::to_lowercase).collect();
    let mut found = Vec::new();
    if needle.is_empty() {
        return found;
    }
    let folded: Vec<(usize, usize, char)> = text
        .char_indices()
        .flat_map(|(at, c)| c.to_lowercase().map(move |low| (at, at + c.len_utf8(), low)))
        .collect();
    let mut at = 0;
    while at + needle.len() <= folded.len() {
        let window = &folded[at..at + needle.len()];
        if window.iter().map(|(.., c)| c).eq(needle.iter()) {
            found.push((window[0].0, window[needle.len() - 1].1));
            at += needle.len();
        } else {
            at += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_broken_between_words() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("one two", 3), ["one", "two"]);
        assert_eq!(wrap("abcdefghijkl", 8), ["abcdefgh", "ijkl"]);
        assert_eq!(wrap("  if x:\n\ty()\n", 20), ["  if x:", "    y()"]);
        assert_eq!(wrap("", 8), [""]);
        assert_eq!(wrap("a\n\nb", 8), ["a", "", "b"]);
    }

    #[test]
    fn wide_and_joined_characters_stay_whole() {
        assert_eq!(wrap("漢字かな交じり文", 5), ["漢字", "かな", "交じ", "り文"]);
        assert_eq!(wrap("👩‍👩‍👧👩‍👩‍👧👩‍👩‍👧", 4), ["👩‍👩‍👧👩‍👩‍👧", "👩‍👩‍👧"]);
        assert_eq!(wrap("a 漢漢漢", 5), ["a", "漢漢", "漢"]);
        assert_eq!(wrap("\x1b[2J", 20), ["␛[2J"]);
    }

    #[test]
    fn what_follows_a_bullet_stands_under_it() {
        assert_eq!(wrap("- one two three", 9), ["- one two", "  three"]);
        assert_eq!(wrap("  ab cd ef gh", 8), ["  ab cd", "  ef gh"]);
    }

    #[test]
    fn words_are_found_whatever_their_case() {
        assert_eq!(places("Ferry, ferry", "FERRY"), [(0, 5), (7, 12)]);
        assert_eq!(places("İzmir", "zmir"), [(2, 6)]);
        assert_eq!(places("aaaa", "aa"), [(0, 2), (2, 4)]);
        assert_eq!(places("x", ""), []);
    }

    proptest! {
        #[test]
        fn rows_are_never_too_wide(text in "(\\PC|\n| |漢|👩‍👩‍👧){0,120}", columns in 2_usize..30) {
            for line in wrap(&text, columns) {
                // What people see as one character may be wider by itself.
                let is_one = line.trim_start().graphemes(true).nth(1).is_none();
                prop_assert!(line.width() <= columns || is_one, "{line:?}");
            }
        }

        #[test]
        fn places_are_boundaries(text in "\\PC{0,40}", needle in "\\PC{0,3}") {
            for (from, to) in places(&text, &needle) {
                prop_assert!(text.get(from..to).is_some());
            }
        }
    }
}
