//! Text cut into plain words: BERT's uncased way, with simpler rules.
//!
//! Runs of letters and digits in lower case without accents; any other visible
//! sign is a word of its own. `docs/format-model.md` has the rules, and what
//! the words become is left to `wordpiece`.

use unicode_normalization::char::{decompose_canonical, is_combining_mark};

/// Calls `each` with every word of `text`, until it answers `false`.
///
/// A word of more than `longest` characters is passed over.
pub(crate) fn for_each_word(text: &str, longest: usize, each: impl FnMut(&[u8]) -> bool) {
    if text.bytes().all(is_plain) {
        ascii_words(text.as_bytes(), longest, each);
    } else {
        unicode_words(text, longest, each);
    }
}

/// ASCII, except for the control characters that vanish from inside a word.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t'..=b'\r')
}

fn ascii_words(text: &[u8], longest: usize, mut each: impl FnMut(&[u8]) -> bool) {
    let mut word = Vec::with_capacity(longest);
    let mut at = 0;
    while at < text.len() {
        let first = text[at];
        if first.is_ascii_alphanumeric() {
            let rest = &text[at..];
            let length = rest.iter().position(|byte| !byte.is_ascii_alphanumeric());
            let run = &rest[..length.unwrap_or(rest.len())];
            at += run.len();
            if run.len() <= longest {
                word.clear();
                word.extend(run.iter().map(u8::to_ascii_lowercase));
                if !each(&word) {
                    return;
                }
            }
        } else {
            at += 1;
            if first.is_ascii_punctuation() && !each(&[first]) {
                return;
            }
        }
    }
}

fn unicode_words(text: &str, longest: usize, each: impl FnMut(&[u8]) -> bool) {
    let mut run = Run { word: String::new(), chars: 0, longest, each };
    for char in text.chars() {
        let going = if char.is_ascii_alphanumeric() {
            run.push(char.to_ascii_lowercase());
            true
        } else if char.is_whitespace() {
            run.end()
        } else if is_cjk(char) {
            run.end() && run.push_plain(char) && run.end()
        } else if is_hidden(char) {
            true
        } else {
            run.push_plain(char)
        };
        if !going {
            return;
        }
    }
    run.end();
}

/// A word in the making.
struct Run<F> {
    word: String,
    chars: usize,
    longest: usize,
    each: F,
}

impl<F: FnMut(&[u8]) -> bool> Run<F> {
    /// Adds a character without its accents, in lower case.
    fn push_plain(&mut self, char: char) -> bool {
        let mut going = true;
        decompose_canonical(char, |part| {
            if going && !is_combining_mark(part) {
                going = part.to_lowercase().all(|lower| self.push_part(lower));
            }
        });
        going
    }

    fn push_part(&mut self, char: char) -> bool {
        if char.is_alphanumeric() {
            self.push(char);
            return true;
        }
        self.end() && (self.each)(char.encode_utf8(&mut [0; 4]).as_bytes())
    }

    /// Keeps no more of a word than it takes to know that it is too long.
    fn push(&mut self, char: char) {
        self.chars += 1;
        if self.chars <= self.longest {
            self.word.push(char);
        }
    }

    fn end(&mut self) -> bool {
        let fits = self.chars > 0 && self.chars <= self.longest;
        let going = !fits || (self.each)(self.word.as_bytes());
        self.word.clear();
        self.chars = 0;
        going
    }
}

/// Control characters and marks of layout, which no reader sees.
fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{AD}'
                | '\u{200B}'..='\u{200F}'
                | '\u{202A}'..='\u{202E}'
                | '\u{2060}'..='\u{2064}'
                | '\u{FEFF}'
                | '\u{FFFD}'
        )
}

/// Ideographs, each of which is a word.
fn is_cjk(char: char) -> bool {
    matches!(
        char,
        '\u{3400}'..='\u{4DBF}'
            | '\u{4E00}'..='\u{9FFF}'
            | '\u{F900}'..='\u{FAFF}'
            | '\u{20000}'..='\u{2A6DF}'
            | '\u{2A700}'..='\u{2CEAF}'
            | '\u{2F800}'..='\u{2FA1F}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        let mut found = Vec::new();
        for_each_word(text, 100, |word| {
            found.push(String::from_utf8(word.to_vec()).unwrap());
            true
        });
        found.join(" ")
    }

    #[test]
    fn words_are_plain_and_signs_stand_alone() {
        assert_eq!(words("Don't PANIC, 42!"), "don ' t panic , 42 !");
        assert_eq!(words("Café naïve ÅNGSTRÖM"), "cafe naive angstrom");
        assert_eq!(words("東京へgo"), "東 京 へgo");
        assert_eq!(words("“quoted”—dash…"), "“ quoted ” — dash …");
        assert_eq!(words("👍🏽 ok"), "👍 🏽 ok");
        assert_eq!(words(" \t\n\r\u{3000}é"), "e");
        assert_eq!(words("Σίσυφος"), "σισυφος");
    }

    #[test]
    fn hidden_characters_vanish() {
        assert_eq!(words("soft\u{AD}hyphen zero\u{200B}width"), "softhyphen zerowidth");
        assert_eq!(words("\u{FEFF}bom\u{0}é"), "bome");
        assert_eq!(words("be\u{7}ll\u{7F} a\u{1C}b c\u{B}d"), "bell ab c d");
    }

    #[test]
    fn a_word_too_long_is_passed_over_either_way() {
        let long = "x".repeat(101);
        assert_eq!(words(&format!("a {long} b")), "a b");
        assert_eq!(words(&format!("é {long} b")), "e b");
        assert_eq!(words(&"y".repeat(100)).len(), 100);
    }

    #[test]
    fn it_stops_when_told() {
        for text in ["a b c", "é b c", "a!b", "é!b"] {
            let mut count = 0;
            for_each_word(text, 100, |_| {
                count += 1;
                count < 2
            });
            assert_eq!(count, 2, "{text}");
        }
    }
}
