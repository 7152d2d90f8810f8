//! The line that is typed into: graphemes, pastes, a cursor, and what was typed before.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::draw::harmless;

/// A paste of more lines stands in the input as one word.
const PASTED_LINES: usize = 3;

/// So does one of more characters.
const PASTED_CHARS: usize = 400;

/// So many inputs are remembered.
const REMEMBERED: usize = 200;

/// What the cursor steps over as one.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Atom {
    /// A character as people count them; a line break is one.
    Typed(String),
    /// A long paste.
    Pasted(String),
}

impl Atom {
    fn text(&self) -> &str {
        match self {
            Atom::Typed(text) | Atom::Pasted(text) => text,
        }
    }

    fn shown(&self) -> String {
        match self {
            Atom::Typed(text) => harmless(text).replace('\t', " "),
            Atom::Pasted(text) => match text.lines().count() {
                0 | 1 => format!("[pasted {} characters]", text.chars().count()),
                lines => format!("[pasted {lines} lines]"),
            },
        }
    }

    fn is_break(&self) -> bool {
        matches!(self, Atom::Typed(text) if text == "\n")
    }

    fn is_blank(&self) -> bool {
        matches!(self, Atom::Typed(text) if text.trim().is_empty())
    }
}

/// What is being typed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Editor {
    atoms: Vec<Atom>,
    /// Before which atom the cursor stands.
    cursor: usize,
    history: Vec<Vec<Atom>>,
    /// Which of the history is shown, and what was typed before.
    recalled: Option<(usize, Vec<Atom>)>,
}

/// The input as it is drawn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drawn {
    /// Its rows.
    pub rows: Vec<String>,
    /// The cursor's row and column.
    pub cursor: (usize, usize),
}

impl Editor {
    /// All of it, pastes whole.
    pub fn text(&self) -> String {
        self.atoms.iter().map(Atom::text).collect()
    }

    /// Whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.atoms.is_empty()
    }

    /// Types a character at the cursor.
    pub fn insert(&mut self, c: char) {
        self.insert_text(c.encode_utf8(&mut [0; 4]));
    }

    /// Pastes: what is long becomes one atom.
    pub fn paste(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        if text.lines().count() > PASTED_LINES || text.chars().count() > PASTED_CHARS {
            self.atoms.insert(self.cursor, Atom::Pasted(text));
            self.cursor += 1;
        } else {
            self.insert_text(&text);
        }
    }

    /// Typed text may join with what stands before it, as an accent does, so both are cut
    /// into graphemes anew.
    fn insert_text(&mut self, text: &str) {
        let mut joined = String::new();
        let mut from = self.cursor;
        if let Some(Atom::Typed(before)) = self.cursor.checked_sub(1).map(|at| &self.atoms[at])
            && before != "\n"
        {
            joined.push_str(before);
            from -= 1;
        }
        joined.push_str(text);
        let atoms: Vec<Atom> =
            joined.graphemes(true).map(|one| Atom::Typed(one.to_owned())).collect();
        let end = from + atoms.len();
        self.atoms.splice(from..self.cursor, atoms);
        self.cursor = end;
    }

    /// Takes out what stands before the cursor.
    pub fn backspace(&mut self) {
        if self.cursor > 0 {
            self.cursor -= 1;
            self.atoms.remove(self.cursor);
        }
    }

    /// Takes out what stands behind the cursor.
    pub fn delete(&mut self) {
        if self.cursor < self.atoms.len() {
            self.atoms.remove(self.cursor);
        }
    }

    /// Takes out the word before the cursor.
    pub fn delete_word(&mut self) {
        let from = self.word_start();
        self.atoms.drain(from..self.cursor);
        self.cursor = from;
    }

    /// Takes out the line up to the cursor.
    pub fn delete_to_line_start(&mut self) {
        let from = self.line_start();
        self.atoms.drain(from..self.cursor);
        self.cursor = from;
    }

    /// Takes out the line from the cursor on.
    pub fn delete_to_line_end(&mut self) {
        let end = self.line_end();
        self.atoms.drain(self.cursor..end);
    }

    /// One to the left.
    pub fn left(&mut self) {
        self.cursor = self.cursor.saturating_sub(1);
    }

    /// One to the right.
    pub fn right(&mut self) {
        self.cursor = (self.cursor + 1).min(self.atoms.len());
    }

    /// A word to the left.
    pub fn word_left(&mut self) {
        self.cursor = self.word_start();
    }

    /// A word to the right.
    pub fn word_right(&mut self) {
        let rest = &self.atoms[self.cursor..];
        let blanks = rest.iter().take_while(|atom| atom.is_blank()).count();
        let word = rest[blanks..].iter().take_while(|atom| !atom.is_blank()).count();
        self.cursor += blanks + word;
    }

    /// To the beginning of the line.
    pub fn home(&mut self) {
        self.cursor = self.line_start();
    }

    /// To the end of the line.
    pub fn end(&mut self) {
        self.cursor = self.line_end();
    }

    /// A line up; above the first, what was typed before.
    pub fn up(&mut self) {
        let start = self.line_start();
        if start == 0 {
            return self.recall(-1);
        }
        let column = self.cursor - start;
        self.cursor = start - 1;
        let above = self.line_start();
        self.cursor = (above + column).min(start - 1);
    }

    /// A line down; below the last, what was typed after.
    pub fn down(&mut self) {
        let end = self.line_end();
        if end == self.atoms.len() {
            return self.recall(1);
        }
        let column = self.cursor - self.line_start();
        self.cursor = end + 1;
        self.cursor = (end + 1 + column).min(self.line_end());
    }

    /// Puts `text` in place of all.
    pub fn set(&mut self, text: &str) {
        self.clear();
        self.insert_text(text);
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.atoms.clear();
        self.cursor = 0;
        self.recalled = None;
    }

    /// Takes all of it, and remembers it for the next time.
    pub fn take(&mut self) -> String {
        let text = self.text();
        if !text.trim().is_empty() && self.history.last() != Some(&self.atoms) {
            self.history.push(self.atoms.clone());
            if self.history.len() > REMEMBERED {
                self.history.remove(0);
            }
        }
        self.clear();
        text
    }

    /// Brings the last that was taken back, unless something new was typed.
    pub fn give_back(&mut self) {
        if let Some(last) = self.history.last().filter(|_| self.atoms.is_empty()) {
            self.atoms = last.clone();
            self.cursor = self.atoms.len();
        }
    }

    /// Forgets what was typed before.
    pub fn forget(&mut self) {
        self.history.clear();
        self.recalled = None;
    }

    fn recall(&mut self, step: isize) {
        let (at, typed) = match self.recalled.take() {
            Some(recalled) => recalled,
            None => (self.history.len(), self.atoms.clone()),
        };
        let next = at.saturating_add_signed(step).min(self.history.len());
        self.atoms = self.history.get(next).unwrap_or(&typed).clone();
        self.cursor = self.atoms.len();
        self.recalled = (next < self.history.len()).then_some((next, typed));
    }

    fn line_start(&self) -> usize {
        let before = &self.atoms[..self.cursor];
        before.iter().rposition(Atom::is_break).map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        let rest = &self.atoms[self.cursor..];
        rest.iter().position(Atom::is_break).map_or(self.atoms.len(), |at| self.cursor + at)
    }

    fn word_start(&self) -> usize {
        let before = &self.atoms[..self.cursor];
        let blanks = before.iter().rev().take_while(|atom| atom.is_blank()).count();
        let word = before[..before.len() - blanks].iter().rev();
        self.cursor - blanks - word.take_while(|atom| !atom.is_blank()).count()
    }

    /// Rows of at most `columns`, and where the cursor is.
    pub fn drawn(&self, columns: usize) -> Drawn {
        let columns = columns.max(1);
        let mut drawn = Drawn { rows: vec![String::new()], cursor: (0, 0) };
        let mut used = 0;
        for (at, atom) in self.atoms.iter().enumerate() {
            if atom.is_break() {
                if at == self.cursor {
                    drawn.cursor = (drawn.rows.len() - 1, used);
                }
                drawn.rows.push(String::new());
                used = 0;
                continue;
            }
            for (part, piece) in atom.shown().graphemes(true).enumerate() {
                let width = piece.width();
                if used > 0 && used + width > columns {
                    drawn.rows.push(String::new());
                    used = 0;
                }
                if at == self.cursor && part == 0 {
                    drawn.cursor = (drawn.rows.len() - 1, used);
                }
                if let Some(row) = drawn.rows.last_mut() {
                    row.push_str(piece);
                }
                used += width;
            }
        }
        if self.cursor == self.atoms.len() {
            // The cursor itself needs a column.
            if used >= columns {
                drawn.rows.push(String::new());
                used = 0;
            }
            drawn.cursor = (drawn.rows.len() - 1, used);
        }
        drawn
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn typed(text: &str) -> Editor {
        let mut editor = Editor::default();
        text.chars().for_each(|c| editor.insert(c));
        editor
    }

    #[test]
    fn the_cursor_steps_over_what_people_see_as_one() {
        let mut editor = typed("e\u{301}👩‍👩‍👧漢");
        editor.left();
        editor.left();
        assert_eq!(editor.drawn(20).cursor, (0, 1));
        editor.backspace();
        assert_eq!(editor.text(), "👩‍👩‍👧漢");
        editor.right();
        editor.delete();
        assert_eq!(editor.text(), "👩‍👩‍👧");
    }

    #[test]
    fn wide_characters_break_where_they_do_not_fit() {
        let editor = typed("漢字かな");
        assert_eq!(editor.drawn(5).rows, ["漢字", "かな"]);
        assert_eq!(editor.drawn(5).cursor, (1, 4));
        assert_eq!(editor.drawn(4).cursor, (2, 0));
    }

    #[test]
    fn words_and_lines_are_taken_out() {
        let mut editor = typed("one two\nthree four");
        editor.delete_word();
        assert_eq!(editor.text(), "one two\nthree ");
        editor.delete_to_line_start();
        assert_eq!(editor.text(), "one two\n");
        editor.up();
        editor.delete_to_line_end();
        assert_eq!(editor.text(), "\n");
        let mut editor = typed("one two");
        editor.word_left();
        editor.word_left();
        editor.word_right();
        assert_eq!(editor.drawn(20).cursor, (0, 3));
    }

    #[test]
    fn a_long_paste_is_one_word_and_comes_out_whole() {
        let mut editor = typed("see ");
        let log: String = (0..312).map(|n| format!("line {n}\r\n")).collect();
        editor.paste(&log);
        editor.insert('!');
        assert_eq!(editor.drawn(40).rows, ["see [pasted 312 lines]!"]);
        assert_eq!(editor.text(), format!("see {}!", log.replace("\r\n", "\n")));
        editor.backspace();
        editor.backspace();
        assert_eq!(editor.text(), "see ");
        editor.paste(&"x".repeat(500));
        assert_eq!(editor.drawn(40).rows, ["see [pasted 500 characters]"]);
        editor.clear();
        editor.paste("two\nlines");
        assert_eq!(editor.drawn(40).rows, ["two", "lines"]);
    }

    #[test]
    fn what_was_typed_before_comes_back() {
        let mut editor = typed("first");
        assert_eq!(editor.take(), "first");
        editor.set("second");
        editor.take();
        editor.set("half");
        editor.up();
        editor.up();
        editor.up();
        assert_eq!(editor.text(), "first");
        editor.down();
        assert_eq!(editor.text(), "second");
        editor.down();
        assert_eq!(editor.text(), "half");
        editor.down();
        assert_eq!(editor.text(), "half");
        editor.clear();
        editor.give_back();
        assert_eq!(editor.text(), "second");
    }

    #[test]
    fn lines_are_walked_up_and_down() {
        let mut editor = typed("long line\nab\nanother");
        editor.up();
        assert_eq!(editor.drawn(20).cursor, (1, 2));
        editor.home();
        editor.up();
        assert_eq!(editor.drawn(20).cursor, (0, 0));
        editor.end();
        editor.down();
        editor.down();
        assert_eq!(editor.drawn(20).cursor, (2, 2));
    }

    proptest! {
        #[test]
        fn no_keys_break_it(keys in prop::collection::vec((0_u8..18, any::<char>()), 0..80), columns in 0_usize..12) {
            let mut editor = Editor::default();
            for (key, c) in keys {
                match key {
                    0..=4 => editor.insert(c),
                    5 => editor.paste(&format!("{c}\n").repeat(5)),
                    6 => editor.backspace(),
                    7 => editor.delete(),
                    8 => editor.delete_word(),
                    9 => editor.left(),
                    10 => editor.right(),
                    11 => editor.up(),
                    12 => editor.down(),
                    13 => editor.insert('\n'),
                    14 => editor.home(),
                    15 => editor.word_right(),
                    16 => editor.delete_to_line_end(),
                    _ => drop(editor.take()),
                }
                let drawn = editor.drawn(columns);
                prop_assert!(drawn.cursor.0 < drawn.rows.len());
                prop_assert!(editor.cursor <= editor.atoms.len());
            }
        }
    }
}
