//! Keyphrases: what a chunk is about, in a few words.

use crate::text::{
    TermCounts, WordClass, class_of, fold, for_each_word, is_unspaced, own_terms, stem, term,
};

/// The most themes of one chunk.
pub const MAX_THEMES: usize = 5;
/// Words in a theme.
const MAX_WORDS: usize = 3;
/// Words read for themes; more say nothing new.
const MAX_WORDS_READ: usize = 4_000;

/// A word that may stand in a theme.
struct Token {
    term: u64,
    folded: String,
    sentence: u32,
    /// Whether it follows the token before with only a space between.
    joined: bool,
    dull: bool,
    unspaced: bool,
}

/// Gathers the words of sentences, then names their themes.
#[derive(Default)]
pub(super) struct Themes {
    tokens: Vec<Token>,
    sentence_count: u32,
    /// Terms that are no theme: the names of those who speak.
    ignored: Vec<u64>,
}

/// A phrase with its score.
struct Phrase {
    text: String,
    terms: Vec<u64>,
    score: u64,
    at: usize,
}

impl Themes {
    /// Leaves the words of `name` out of the themes.
    pub(super) fn ignore(&mut self, name: &str) {
        let mut folded = String::new();
        for_each_word(name, |word| {
            fold(word.text, &mut folded);
            self.ignored.push(term(stem(&folded)));
            // Short forms of a name are names too.
            let short = folded.char_indices().map(|(at, _)| at).skip(3).take(3);
            self.ignored.extend(short.map(|end| term(&folded[..end])));
        });
    }

    /// Reads one sentence.
    pub(super) fn read(&mut self, sentence: &str) {
        self.sentence_count += 1;
        let mut folded = String::new();
        let mut end_of_last = usize::MAX;
        for_each_word(sentence, |word| {
            let last = end_of_last;
            end_of_last = usize::MAX;
            if self.tokens.len() >= MAX_WORDS_READ {
                return;
            }
            fold(word.text, &mut folded);
            let sort = class_of(&folded);
            let stem = term(stem(&folded));
            if !may_stand(&folded, sort, word.unspaced) || self.ignored.contains(&stem) {
                return;
            }
            end_of_last = word.start + word.text.len();
            let gap = sentence.get(last..word.start);
            self.tokens.push(Token {
                term: stem,
                folded: folded.trim_end_matches("'s").to_owned(),
                sentence: self.sentence_count,
                joined: gap == Some(" ") && !word.unspaced,
                dull: sort == WordClass::Dull,
                unspaced: word.unspaced,
            });
        });
    }

    /// The themes, the most telling first.
    pub(super) fn name(&self) -> Vec<String> {
        let counts = self.sentence_counts();
        let count = |term: u64| u64::from(counts.count(term));
        let mut phrases = Vec::new();
        for start in 0..self.tokens.len() {
            for length in 1..=MAX_WORDS.min(self.tokens.len() - start) {
                let words = &self.tokens[start..start + length];
                if length > 1 && !words[length - 1].joined {
                    break;
                }
                if words[0].dull || words[length - 1].dull {
                    continue;
                }
                phrases.push((phrase_key(words), start, length, score(words, count)));
            }
        }
        choose(self.sum_up(phrases))
    }

    /// In how many sentences each term stands.
    fn sentence_counts(&self) -> TermCounts {
        let mut pairs: Vec<(u64, u32)> =
            self.tokens.iter().map(|token| (token.term, token.sentence)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        TermCounts::of(pairs.iter().map(|(term, _)| term))
    }

    /// Equal phrases become one with a higher score.
    fn sum_up(&self, mut phrases: Vec<(u64, usize, usize, u64)>) -> Vec<Phrase> {
        phrases.sort_unstable();
        let mut summed: Vec<(u64, usize, usize, u64)> = Vec::new();
        for phrase in phrases {
            match summed.last_mut() {
                // Said again: each time counts half of the first.
                Some(last) if last.0 == phrase.0 => last.3 += phrase.3 / 2,
                _ => summed.push(phrase),
            }
        }
        // Many can be equally good; only the best few are worth spelling out.
        summed.sort_unstable_by_key(|&(_, start, length, score)| {
            (std::cmp::Reverse(score), start, std::cmp::Reverse(length))
        });
        summed.truncate(MAX_THEMES * 8);
        let spell = |(_, start, length, score): (u64, usize, usize, u64)| {
            let words = &self.tokens[start..start + length];
            let text: Vec<&str> = words.iter().map(|word| word.folded.as_str()).collect();
            let terms = words.iter().map(|word| word.term).collect();
            Phrase { text: text.join(" "), terms, score, at: start }
        };
        summed.into_iter().map(spell).collect()
    }
}

fn phrase_key(words: &[Token]) -> u64 {
    words.iter().fold(7, |key, word| (key ^ word.term).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Words said in several sentences make a phrase telling, and so does length.
fn score(words: &[Token], count: impl Fn(u64) -> u64) -> u64 {
    let sum: u64 = words
        .iter()
        .map(|word| {
            let weight = if word.dull { 1 } else { 2 };
            weight * (2 * count(word.term) - 1)
        })
        .sum();
    // By themselves, forms of verbs and adverbs are seldom what a talk is about.
    let alone = match words {
        [word] if word.folded.ends_with("ly") || word.folded.ends_with("ed") => 2,
        [word] if word.folded.ends_with("ing") => 3,
        _ => 4,
    };
    let long = words.iter().any(|word| word.folded.len() > 6 || word.unspaced);
    // The sum over one word, one and a half, two: a phrase beats its parts only
    // where they are said nearly as often.
    let share = [12, 9, 7][words.len() - 1];
    sum * share * alone * if long { 5 } else { 4 }
}

/// Whether a word may stand in a theme.
fn may_stand(folded: &str, sort: WordClass, unspaced: bool) -> bool {
    if unspaced {
        return folded.chars().count() == 2 && folded.chars().all(is_weighty);
    }
    matches!(sort, WordClass::Content | WordClass::Dull)
        && folded.chars().count() > 2
        && folded.chars().all(|c| c.is_alphabetic() || c == '-' || c == '\'')
        && !folded.contains("n't")
        && !["'ll", "'ve", "'re", "'d", "'m", "in'"].iter().any(|end| folded.ends_with(end))
}

/// Han and katakana, without the characters of grammar.
fn is_weighty(c: char) -> bool {
    !matches!(c, '\u{3041}'..='\u{309f}')
        && !"的了是在我你他她它们和不有这那就也都很吗呢吧着与及或但一个".contains(c)
}

/// The best phrases that share no word with a better one.
fn choose(mut phrases: Vec<Phrase>) -> Vec<String> {
    phrases.sort_by_key(|phrase| (std::cmp::Reverse(phrase.score), phrase.at));
    let mut chosen: Vec<Phrase> = Vec::new();
    for phrase in phrases {
        let overlaps = |other: &Phrase| {
            other.terms.iter().any(|term| phrase.terms.contains(term))
                || share_wide_letters(&other.text, &phrase.text)
                || other.text.contains(&phrase.text)
                || phrase.text.contains(&other.text)
        };
        if chosen.len() < MAX_THEMES && !chosen.iter().any(overlaps) {
            chosen.push(phrase);
        }
    }
    chosen.into_iter().map(|phrase| phrase.text).collect()
}

/// Whether two pairs of letters were cut from the same run, as good as certainly.
fn share_wide_letters(a: &str, b: &str) -> bool {
    a.chars().any(|c| is_unspaced(c) && b.contains(c))
}

/// Themes of a larger chunk: those of its children that come back most, or
/// stood first.
pub(super) fn merge(children: &[&[String]]) -> Vec<String> {
    let mut phrases: Vec<Phrase> = Vec::new();
    for (at, (rank, theme)) in
        children.iter().flat_map(|themes| themes.iter().enumerate()).enumerate()
    {
        let terms = own_terms(theme);
        let score = 10 - (rank as u64).min(5);
        match phrases.iter_mut().find(|phrase| phrase.terms == terms) {
            Some(phrase) => phrase.score += score,
            None => phrases.push(Phrase { text: theme.clone(), terms, score, at }),
        }
        if phrases.len() >= MAX_WORDS_READ / 10 {
            break;
        }
    }
    choose(phrases)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn themes(sentences: &[&str]) -> Vec<String> {
        let mut themes = Themes::default();
        themes.ignore("Ann");
        sentences.iter().for_each(|sentence| themes.read(sentence));
        themes.name()
    }

    #[test]
    fn what_comes_back_is_a_theme() {
        let found = themes(&[
            "Ann, the database migration failed again.",
            "A database migration needs a backup.",
            "I took the backup before lunch.",
        ]);
        assert_eq!(found[..2], ["database migration", "backup"]);
        assert!(found.len() <= MAX_THEMES);
    }

    #[test]
    fn small_talk_has_no_theme() {
        assert_eq!(themes(&["Thanks, Ann!", "That's great, you know."]), [""; 0]);
    }

    #[test]
    fn han_and_katakana_give_themes() {
        assert_eq!(themes(&["会議の資料を送ります。", "資料は会議で使う。"]), ["会議", "資料"]);
    }

    #[test]
    fn themes_of_children_merge() {
        let a = ["berlin move".to_owned(), "pottery".to_owned()];
        let b = ["pottery".to_owned(), "move".to_owned(), "camping".to_owned()];
        assert_eq!(merge(&[&a, &b]), ["pottery", "berlin move", "camping"]);
    }
}
