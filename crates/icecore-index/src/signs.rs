//! Query-independent features of a turn, as bits stored with it.
//!
//! Only general English forms, no vocabulary of any subject. They say what a
//! turn could be the answer to; words and vectors say whether it is.

use std::sync::LazyLock;

use regex::Regex;

use crate::document::Role;

/// A form is looked for in this much of a text.
const FORM_CHARS: usize = 3_000;

/// Standing instructions are looked for in this much of a text.
const INSTRUCTION_CHARS: usize = 2_000;

/// And in so many of its sentences.
const INSTRUCTION_SENTENCES: usize = 12;

/// Preferences are said early in a request.
const PREFERENCE_CHARS: usize = 600;

/// An instruction is said by itself: in a text of more words it is weaker.
const INSTRUCTION_WORDS: usize = 60;

const QUESTION: u32 = 1;
const TIME: u32 = 1 << 1;
const NUMBER: u32 = 1 << 2;
const FIRST_PERSON: u32 = 1 << 3;
const INSTRUCTION_SHIFT: u32 = 4;
const PREFERENCE_SHIFT: u32 = 8;
const ASKING_SHIFT: u32 = 12;
const NIBBLE: u32 = 15;

/// The features of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signs(pub u32);

impl Signs {
    /// It ends with a question.
    pub fn is_question(self) -> bool {
        self.0 & QUESTION != 0
    }

    /// It speaks of a time: a date, a day, "last week".
    pub fn names_time(self) -> bool {
        self.0 & TIME != 0
    }

    /// It holds a number.
    pub fn names_number(self) -> bool {
        self.0 & NUMBER != 0
    }

    /// Somebody speaks of themselves.
    pub fn is_first_person(self) -> bool {
        self.0 & FIRST_PERSON != 0
    }

    /// Whether it may be an instruction that lasts or a preference: a quick look.
    pub(crate) fn is_standing(self) -> bool {
        self.0 & (NIBBLE << INSTRUCTION_SHIFT | NIBBLE << PREFERENCE_SHIFT) != 0
    }

    /// How surely it is an instruction that lasts, from 0 to 1.
    pub fn instruction(self) -> f32 {
        self.share(INSTRUCTION_SHIFT)
    }

    /// How surely it says what somebody prefers, from 0 to 1.
    pub fn preference(self) -> f32 {
        self.share(PREFERENCE_SHIFT)
    }

    /// The share of its sentences that are questions.
    pub fn asking(self) -> f32 {
        self.share(ASKING_SHIFT)
    }

    fn share(self, shift: u32) -> f32 {
        (self.0 >> shift & NIBBLE) as f32 / NIBBLE as f32
    }
}

/// Reads the form of a text.
pub fn signs(text: &str, role: Role) -> u32 {
    let text = text.trim_end();
    let head = first_chars(text, FORM_CHARS);
    let mut signs = 0;
    signs |= if text.ends_with('?') { QUESTION } else { 0 };
    signs |= if TIME_WORDS.is_match(head) { TIME } else { 0 };
    signs |= if NUMBER_WORDS.is_match(head) { NUMBER } else { 0 };
    signs |= if FIRST_PERSON_WORDS.is_match(head) { FIRST_PERSON } else { 0 };
    signs |= nibble(asking(head)) << ASKING_SHIFT;
    // Only a person's word stands.
    if role == Role::User {
        signs |= nibble(instruction(text)) << INSTRUCTION_SHIFT;
        signs |= nibble(preference(text)) << PREFERENCE_SHIFT;
    }
    signs
}

fn nibble(share: f32) -> u32 {
    (share * NIBBLE as f32 + 0.5) as u32
}

fn first_chars(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).map_or(text, |(end, _)| &text[..end])
}

/// Sentences as far as forms need them: parts that end with a mark or a line.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let end = sentence_end(rest);
            let (sentence, after) = rest.split_at(end);
            rest = after;
            let sentence = sentence.trim();
            if !sentence.is_empty() {
                return Some(sentence);
            }
        }
        None
    })
}

fn sentence_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let ends = |at: usize| match bytes[at] {
        b'\n' => true,
        b'.' | b'!' | b'?' => bytes.get(at + 1).is_none_or(|next| next.is_ascii_whitespace()),
        _ => false,
    };
    (0..bytes.len()).find(|at| ends(*at)).map_or(bytes.len(), |at| at + 1)
}

fn asking(text: &str) -> f32 {
    let (mut all, mut questions) = (0, 0);
    for sentence in sentences(text) {
        all += 1;
        questions += usize::from(sentence.ends_with('?'));
    }
    questions as f32 / all.max(1) as f32
}

/// How surely a text tells how to answer from now on.
fn instruction(text: &str) -> f32 {
    let head = first_chars(text, INSTRUCTION_CHARS);
    let strength = |sentence: &str| {
        if sentence.ends_with('?') {
            return 0.0;
        }
        let lasts = LASTING.is_match(sentence);
        match (lasts, IMPERATIVE.is_match(sentence), OCCASION.is_match(sentence)) {
            (true, true, true) => 1.0,
            (true, true, false) => 0.7,
            (true, false, true) => 0.5,
            (false, true, true) => 0.4,
            _ => 0.0,
        }
    };
    let best = sentences(head).take(INSTRUCTION_SENTENCES).map(strength).fold(0.0, f32::max);
    let words = text.split_whitespace().take(INSTRUCTION_WORDS * 20).count();
    best * (INSTRUCTION_WORDS as f32 / words.max(INSTRUCTION_WORDS) as f32)
}

/// How surely a text tells what somebody prefers.
fn preference(text: &str) -> f32 {
    let head = first_chars(text, PREFERENCE_CHARS);
    if PREFERRING.is_match(head) {
        1.0
    } else if LIKING.is_match(head) {
        0.3
    } else {
        0.0
    }
}

fn pattern(pattern: &str) -> Regex {
    Regex::new(&format!("(?i){pattern}")).expect("our own patterns are well formed")
}

static TIME_WORDS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"\b(?:yesterday|today|tonight|tomorrow|ago|last|next|this (?:week|month|year|morning|weekend)|recently|soon|since|week-?ends?|(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|june|july|august|september|october|november|december|may \d|in may|19\d\d|20\d\d|\d+(?:st|nd|rd|th)|weeks?|months?|years?|days?|summer|winter|spring|fall|autumn|christmas|birthday|\d+ ?(?:am|pm))\b",
    )
});
static NUMBER_WORDS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"\b(?:\d+|one|two|three|four|five|six|seven|eight|nine|ten|once|twice|couple|few|several|dozen)\b",
    )
});
static FIRST_PERSON_WORDS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\b(?:i|i['’](?:m|ve|d|ll)|my|we|our|me)\b"));
static LASTING: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"\b(?:always|never|from now on|going forward|in (?:the )?future|every time|each time|whenever|at all times|by default|make sure (?:to|you)|remember to|(?:don['’]t|do not) ever|please (?:always|never|use|keep|avoid|don['’]t|do not|make sure)|i(?:['’]d| would) (?:like|want) you to|i (?:want|need|expect) you to)\b",
    )
});
static OCCASION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"\b(?:when(?:ever)?|if|any ?time|every time|each time|for|in) (?:i|i['’]m|we|you|answering|discussing|asked|talking|responding|my|any|all|every)\b",
    )
});
static IMPERATIVE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:please |and |also |ok(?:ay)?,? |so,? )*(?:always|never|don['’]t|do not|make sure|remember|keep|use|avoid|include|provide|format|give|show|ensure|confirm|cite|write|respond|answer|stick|be|only|call)\b",
    )
});
static PREFERRING: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"\bi(?:['’]d| would|['’]ve)?(?: \w+){0,2} prefer(?:red)?\b|\bmy (?:\w+ )?preferen\w+|\bi(?:['’]d| would) rather\b|\bi favou?r\b",
    )
});
static LIKING: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"\bi(?:['’]d| would|['’]ve)?(?: \w+){0,2} (?:rather|favou?r)\b|\bi(?: really| just| also| usually| generally)? (?:like|love|enjoy|hate|dislike|can['’]t stand|don['’]t like|do not like|tend to|am trying to (?:avoid|keep)|want to (?:avoid|keep))\b|\bprefer(?:ence)?\b|\binstead of\b|\brather than\b|\bwithout (?:using|any|compromising|relying)\b",
    )
});

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Signs {
        Signs(signs(text, Role::User))
    }

    #[test]
    fn lasting_instructions_are_told_from_requests() {
        assert_eq!(of("Always cite the source when I ask about history.").instruction(), 1.0);
        assert_eq!(of("Please never use tables.").instruction(), 11.0 / 15.0);
        assert!(of("From now on, whenever I mention prices, show euros.").instruction() > 0.4);
        for text in ["Can you always help me?", "I always walk to work.", "Show me the list.", ""] {
            assert_eq!(of(text).instruction(), 0.0, "{text}");
        }
        let long = format!("Always be brief when I ask. {}", "And so on it goes. ".repeat(60));
        assert!(of(&long).instruction() < 0.3);
        assert_eq!(Signs(signs("Always cite it when I ask.", Role::Assistant)).instruction(), 0.0);
    }

    #[test]
    fn preferences_are_weighed() {
        assert_eq!(of("I'd much rather stay, and I prefer trains to planes.").preference(), 1.0);
        assert!(of("I really enjoy hiking.").preference() < 0.5);
        assert_eq!(of("The train leaves at nine.").preference(), 0.0);
    }

    #[test]
    fn times_numbers_and_questions_are_seen() {
        let signs = of("We met last Saturday. Was it 7 pm?");
        assert!(signs.is_question() && signs.names_time() && signs.names_number());
        assert!(signs.is_first_person());
        assert!((signs.asking() - 0.5).abs() < 0.05);
        assert_eq!(Signs(0), of("Nothing of the kind."));
    }
}
