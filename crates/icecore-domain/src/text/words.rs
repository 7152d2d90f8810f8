//! Words, and what kind of word they are.

use std::sync::LazyLock;

/// A word of a text: letters and digits, or two letters of a script that
/// writes no spaces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Word<'a> {
    pub text: &'a str,
    /// Where it begins, in bytes.
    pub start: usize,
    /// Part of a run without spaces.
    pub unspaced: bool,
}

/// How much a word says about the topic of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WordClass {
    Stop,
    /// Politeness, praise, agreement.
    Filler,
    /// Common in any conversation: no theme by itself.
    Dull,
    Content,
}

/// Calls `each` with the words of `text` in order.
pub(crate) fn for_each_word<'a>(text: &'a str, mut each: impl FnMut(Word<'a>)) {
    let mut chars = text.char_indices().peekable();
    while let Some((start, first)) = chars.next() {
        if is_unspaced(first) {
            let mut end = start + first.len_utf8();
            let mut before = start;
            let mut alone = true;
            while let Some((at, c)) = chars.next_if(|(_, c)| is_unspaced(*c)) {
                end = at + c.len_utf8();
                each(Word { text: &text[before..end], start: before, unspaced: true });
                before = at;
                alone = false;
            }
            if alone {
                each(Word { text: &text[start..end], start, unspaced: true });
            }
        } else if first.is_alphanumeric() {
            let mut end = start + first.len_utf8();
            while let Some(&(at, c)) = chars.peek() {
                if c.is_alphanumeric() && !is_unspaced(c) {
                    end = at + c.len_utf8();
                } else if !(is_joint(c) && end == at && joins(&text[at + c.len_utf8()..])) {
                    break;
                }
                chars.next();
            }
            each(Word { text: &text[start..end], start, unspaced: false });
        }
    }
}

/// Apostrophes and hyphens hold a word together where letters follow.
fn is_joint(c: char) -> bool {
    matches!(c, '\'' | '’' | '-')
}

fn joins(rest: &str) -> bool {
    rest.chars().next().is_some_and(|c| c.is_alphanumeric() && !is_unspaced(c))
}

/// A word in lower case, contractions written out: `I'm` is two of them.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub word: String,
    pub start: usize,
    pub end: usize,
}

/// The words of a sentence.
pub(crate) fn tokens(sentence: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut folded = String::new();
    for_each_word(sentence, |word| {
        let (start, end) = (word.start, word.start + word.text.len());
        fold(word.text, &mut folded);
        let (first, second) = written_out(&folded);
        tokens.push(Token { word: first.to_owned(), start, end });
        if !second.is_empty() {
            tokens.push(Token { word: second.to_owned(), start, end });
        }
    });
    tokens
}

/// The two words of a contraction.
pub(crate) fn written_out(word: &str) -> (&str, &str) {
    match word {
        "can't" | "cannot" => return ("can", "not"),
        "won't" => return ("will", "not"),
        "let's" => return ("let", "us"),
        _ => {}
    }
    let ends = [
        ("n't", "not"),
        ("'m", "am"),
        ("'ve", "have"),
        ("'d", "would"),
        ("'ll", "will"),
        ("'re", "are"),
    ];
    ends.iter()
        .find_map(|(end, meaning)| Some((word.strip_suffix(end)?, *meaning)))
        .unwrap_or((word, ""))
}

/// Letters of scripts whose words are not set apart by spaces.
pub(crate) fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{3041}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Writes `word` in lower case, with plain apostrophes, over what is in `folded`.
pub(crate) fn fold(word: &str, folded: &mut String) {
    folded.clear();
    for c in word.chars() {
        match c {
            '’' => folded.push('\''),
            c if c.is_ascii() => folded.push(c.to_ascii_lowercase()),
            c => folded.extend(c.to_lowercase()),
        }
    }
}

/// The sort of a folded word.
pub(crate) fn class_of(folded: &str) -> WordClass {
    let hash = term(folded);
    let mut slot = slot_of(hash);
    loop {
        match CLASSES[slot] {
            Some((known, sort)) if known == hash => return sort,
            Some(_) => slot = (slot + 1) % SLOTS,
            None => return WordClass::Content,
        }
    }
}

/// The tables by hash: every word of every turn is looked up, and searching the
/// sorted tables took four tenths of all the time.
static CLASSES: LazyLock<Vec<Option<(u64, WordClass)>>> = LazyLock::new(|| {
    let mut slots = vec![None; SLOTS];
    for (table, sort) in
        [(STOP, WordClass::Stop), (FILLER, WordClass::Filler), (DULL, WordClass::Dull)]
    {
        for word in table {
            let hash = term(word);
            let mut slot = slot_of(hash);
            while slots[slot].is_some_and(|(known, _)| known != hash) {
                slot = (slot + 1) % SLOTS;
            }
            slots[slot].get_or_insert((hash, sort));
        }
    }
    slots
});

/// More than twice the words, so that most are found at once.
const SLOTS: usize = 4096;

fn slot_of(hash: u64) -> usize {
    (hash ^ (hash >> 32)) as usize % SLOTS
}

/// A folded word without possessive and plural, so that `dog's` and `dogs` meet.
pub(crate) fn stem(folded: &str) -> &str {
    let word = folded.strip_suffix("'s").unwrap_or(folded);
    match word.strip_suffix('s') {
        Some(stem) if stem.len() > 2 && !stem.ends_with(['s', 'u', 'i']) => stem,
        _ => word,
    }
}

/// The hash of a term (FNV-1a; equal on every machine).
pub(crate) fn term(stem: &str) -> u64 {
    stem.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The terms that carry meaning, each once, in order of their numbers.
pub(crate) fn own_terms(sentence: &str) -> Vec<u64> {
    let mut terms = Vec::new();
    let mut folded = String::new();
    for_each_word(sentence, |word| {
        fold(word.text, &mut folded);
        if matches!(class_of(&folded), WordClass::Content | WordClass::Dull) {
            terms.push(term(stem(&folded)));
        }
    });
    terms.sort_unstable();
    terms.dedup();
    terms
}

/// How many terms two sorted lists share.
pub(crate) fn shared_count<T: Ord>(a: &[T], b: &[T]) -> usize {
    let (mut i, mut j, mut shared) = (0, 0, 0);
    while i < a.len() && j < b.len() {
        match a[i].cmp(&b[j]) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => {
                shared += 1;
                i += 1;
                j += 1;
            }
        }
    }
    shared
}

/// Lower case words without punctuation, one blank between them.
pub fn normalise(text: &str) -> String {
    let lower = text.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// The words of a text, by which it is compared: lower case, without the punctuation
/// around them. A question mark is a word, for it changes what is said.
pub(crate) fn compared_words(text: &str) -> Vec<String> {
    const EDGES: [char; 20] = [
        '.', ',', ';', ':', '!', '?', '"', '\'', '(', ')', '…', '“', '”', '‘', '’', '«', '»', '。',
        '，', '！',
    ];
    let mut found = Vec::new();
    for word in text.to_lowercase().split_whitespace() {
        let is_question = word.trim_end_matches(['"', '\'', ')', '”', '’', '!']).ends_with('?');
        let bare = word.trim_matches(EDGES);
        if !bare.is_empty() && !["-", "*", "•", "–", "—"].contains(&bare) {
            found.push(bare.to_owned());
        }
        if is_question {
            found.push("?".to_owned());
        }
    }
    if found.is_empty() { vec![text.trim().to_owned()] } else { found }
}

/// The words that turn a statement round, and its numbers: where they differ, two
/// values with nearly the same words say different things.
pub(crate) fn turning_words(value: &str) -> Vec<String> {
    let plain = normalise(&value.replace("n't", " not").replace("n’t", " not"));
    let turning = |word: &&str| {
        ["not", "no", "never", "without", "hate", "dislike", "over", "than"].contains(word)
            || word.bytes().any(|byte| byte.is_ascii_digit())
    };
    plain.split(' ').filter(turning).map(str::to_owned).collect()
}

/// How often each term stands in some lists, and a small number for each.
pub(crate) struct TermCounts(Vec<(u64, u32)>);

impl TermCounts {
    pub(crate) fn of<'a>(terms: impl IntoIterator<Item = &'a u64>) -> Self {
        let mut all: Vec<u64> = terms.into_iter().copied().collect();
        all.sort_unstable();
        let mut counts: Vec<(u64, u32)> = Vec::new();
        for term in all {
            match counts.last_mut() {
                Some(last) if last.0 == term => last.1 += 1,
                _ => counts.push((term, 1)),
            }
        }
        Self(counts)
    }

    /// The counts in the order of the terms' numbers.
    pub(crate) fn counts(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|(_, count)| *count)
    }

    /// The number of a term that was counted.
    pub(crate) fn number(&self, term: &u64) -> u32 {
        let at = self.0.binary_search_by_key(term, |entry| entry.0).unwrap_or_default();
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// How often a term was counted; 0 if never.
    pub(crate) fn count(&self, term: u64) -> u32 {
        let found = self.0.binary_search_by_key(&term, |entry| entry.0);
        found.map_or(0, |at| self.0[at].1)
    }
}

/// Words of grammar in some languages.
const STOP: &[&str] = &[
    "a", "aan", "aber", "about", "above", "after", "again", "against", "al", "all", "als", "also",
    "although", "am", "an", "anche", "and", "any", "anybody", "anyone", "anything", "ao", "are",
    "aren't", "around", "as", "at", "au", "auch", "auf", "aus", "aux", "avec", "away", "be",
    "became", "because", "become", "been", "before", "bei", "being", "below", "between", "bin",
    "bist", "both", "but", "by", "came", "can", "can't", "cannot", "ce", "ces", "cette", "che",
    "chi", "com", "come", "como", "con", "could", "couldn't", "cuando", "da", "dans", "das",
    "dass", "dat", "de", "del", "della", "delle", "dem", "den", "der", "des", "deze", "di", "dich",
    "did", "didn't", "die", "dir", "dit", "do", "doch", "does", "doesn't", "doing", "don't",
    "done", "dos", "down", "du", "during", "each", "een", "ein", "eine", "einem", "einen", "einer",
    "either", "el", "ela", "ele", "ella", "elle", "ellos", "else", "em", "en", "enough", "era",
    "es", "eso", "est", "esta", "este", "esto", "está", "et", "even", "ever", "every", "everybody",
    "everyone", "everything", "few", "foi", "for", "from", "further", "für", "geen", "get", "gets",
    "getting", "give", "gives", "gli", "go", "goes", "going", "gone", "gonna", "got", "ha", "habe",
    "had", "has", "hasn't", "hat", "have", "haven't", "having", "hay", "he", "he's", "her", "here",
    "here's", "hers", "herself", "het", "hij", "him", "himself", "his", "ho", "how", "however",
    "hun", "i", "i'd", "i'll", "i'm", "i've", "ich", "if", "ihr", "ik", "il", "ils", "im", "in",
    "instead", "into", "io", "is", "isn't", "isso", "ist", "it", "it'd", "it'll", "it's", "its",
    "itself", "ja", "je", "just", "kann", "keep", "kind", "la", "las", "last", "le", "least",
    "les", "less", "let", "let's", "leur", "like", "likely", "lo", "loro", "los", "lot", "lots",
    "lui", "ma", "maar", "made", "mais", "make", "makes", "making", "many", "mas", "may", "maybe",
    "me", "mein", "mes", "met", "meu", "mi", "mich", "might", "mijn", "mine", "minha", "mir",
    "mis", "mit", "moi", "mon", "more", "most", "mostly", "much", "must", "muy", "my", "myself",
    "más", "na", "naar", "nach", "nas", "ne", "near", "need", "needs", "neither", "nel", "nella",
    "nicht", "niet", "no", "nobody", "noch", "nog", "noi", "none", "nor", "nos", "not", "nothing",
    "nous", "now", "num", "nur", "não", "o", "oder", "of", "off", "often", "oh", "ok", "okay",
    "on", "once", "one", "ones", "only", "onto", "ook", "op", "or", "os", "other", "others", "ou",
    "our", "ours", "ourselves", "out", "over", "own", "où", "par", "para", "pas", "pela", "pelo",
    "per", "perhaps", "pero", "più", "please", "plus", "por", "porque", "pour", "put", "qu",
    "quando", "que", "qui", "quite", "qué", "rather", "really", "sa", "said", "same", "say",
    "says", "se", "see", "seem", "seems", "seen", "sehr", "sein", "sem", "ser", "ses", "shall",
    "she", "she's", "should", "shouldn't", "si", "sich", "sie", "sin", "since", "sind", "so",
    "sobre", "some", "somebody", "someone", "something", "sometimes", "son", "sono", "sont", "soy",
    "still", "su", "such", "sur", "sus", "são", "take", "taken", "takes", "taking", "también",
    "te", "tem", "tengo", "than", "that", "that's", "the", "their", "theirs", "them", "themselves",
    "then", "there", "there's", "these", "they", "they'd", "they'll", "they're", "they've",
    "thing", "things", "think", "this", "those", "though", "through", "thus", "tiene", "to",
    "together", "too", "took", "toward", "towards", "tu", "uma", "un", "una", "und", "under",
    "une", "unos", "uns", "until", "up", "upon", "us", "use", "used", "using", "van", "very",
    "você", "vom", "von", "voor", "vor", "vous", "want", "wants", "was", "wasn't", "wat", "way",
    "we", "we'd", "we'll", "we're", "we've", "well", "wenn", "went", "were", "weren't", "what",
    "what's", "whatever", "when", "where", "whether", "which", "while", "who", "who's", "whom",
    "whose", "why", "wie", "wij", "will", "wir", "wird", "with", "within", "without", "won't",
    "would", "wouldn't", "y", "ya", "yes", "yet", "yo", "you", "you'd", "you'll", "you're",
    "you've", "your", "yours", "yourself", "ze", "zijn", "zu", "zum", "zur", "à", "è", "él", "été",
    "être", "über", "а", "бы", "был", "было", "быть", "в", "вот", "все", "вы", "да", "для", "его",
    "ему", "если", "же", "за", "и", "из", "или", "к", "как", "меня", "мне", "мы", "на", "не", "ни",
    "но", "о", "он", "она", "они", "от", "по", "при", "с", "так", "то", "ты", "у", "уже", "что",
    "это", "я",
];

/// Words of politeness.
const FILLER: &[&str] = &[
    "absolutely", "ah", "aha", "amazing", "anytime", "appreciate", "awesome", "aww", "beautiful",
    "bedankt", "bitte", "bonjour", "bye", "certainly", "cheers", "ciao", "congrats",
    "congratulations", "cool", "course", "danke", "dear", "definitely", "exactly", "excellent",
    "exciting", "fabulous", "fantastic", "glad", "gladly", "good", "goodbye", "goodnight",
    "gracias", "grazie", "great", "ha", "haha", "hallo", "happy", "hear", "hello", "help",
    "helpful", "hey", "hi", "hmm", "hoi", "hola", "hope", "hopefully", "incredible", "indeed",
    "inspiring", "interesting", "kidding", "lol", "looks", "lovely", "luck", "mate", "merci",
    "morning", "nice", "night", "no", "obrigada", "obrigado", "olá", "perfect", "pleasure",
    "proud", "right", "salut", "sir", "sound", "sounds", "sure", "sweet", "talk", "thank",
    "thanks", "totally", "true", "truly", "tschüss", "understand", "understood", "welcome",
    "wonderful", "wow", "yay", "yeah", "yep", "yup", "привет", "спасибо",
];

/// Words that make no theme.
const DULL: &[&str] = &[
    "able", "actually", "add", "added", "ago", "agree", "agreed", "allow", "allowed", "already",
    "always", "amount", "another", "april", "ask", "asked", "attended", "august", "back", "bad",
    "based", "became", "best", "better", "big", "bit", "bought", "bring", "brings", "brought",
    "called", "chance", "change", "check", "chose", "consider", "considering", "create", "current",
    "currently", "day", "days", "december", "decided", "different", "difficult", "easy", "end",
    "ensure", "especially", "example", "example's", "february", "feel", "feeling", "feels", "felt",
    "find", "finding", "first", "following", "friday", "full", "fun", "gave", "give", "giving",
    "goal", "great", "guess", "hand", "handle", "happen", "happened", "happening", "hard",
    "having", "heard", "help", "helped", "helps", "here", "hey", "hoping", "hour", "hours", "idea",
    "image", "imagine", "implement", "important", "improve", "include", "including", "issue",
    "january", "job", "joined", "july", "june", "keep", "keeping", "key", "kids'", "know",
    "knowing", "known", "later", "learn", "leave", "left", "level", "life", "line", "little",
    "live", "long", "look", "looked", "looking", "lost", "love", "loved", "loves", "main",
    "manage", "march", "matter", "mean", "means", "meant", "meet", "meeting's", "met", "mind",
    "minute", "minutes", "moment", "monday", "month", "months", "move", "moved", "name", "need",
    "needed", "never", "new", "next", "november", "number", "october", "okay", "old", "open",
    "part", "past", "people", "person", "photo", "picked", "picture", "place", "plan", "planning",
    "plans", "point", "possible", "prefer", "preferred", "prefers", "pretty", "provide",
    "question", "questions", "read", "ready", "real", "realize", "realized", "reason", "recent",
    "recently", "remember", "remind", "reminder", "required", "run", "running", "saturday",
    "second", "seeing", "sense", "september", "set", "share", "shares", "sharing", "short", "show",
    "side", "simple", "small", "soon", "sort", "special", "specific", "specifically", "spend",
    "spent", "start", "started", "starting", "stay", "step", "steps", "stop", "stuff", "suggest",
    "sunday", "super", "support", "switched", "tell", "thanks", "thought", "three", "thursday",
    "time", "times", "today", "tomorrow", "tonight", "top", "tough", "tried", "true", "try",
    "trying", "tuesday", "turn", "two", "type", "understand", "update", "used", "useful",
    "various", "version", "visited", "wait", "walk", "wanted", "watch", "wednesday", "week",
    "weekend", "weeks", "whole", "wish", "won", "wondering", "word", "work", "worked", "working",
    "works", "worth", "write", "year", "years", "yesterday", "young",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        let mut words = Vec::new();
        for_each_word(text, |word| words.push(word.text));
        words
    }

    #[test]
    fn words_hold_together_at_apostrophes_and_hyphens() {
        assert_eq!(
            words("I don't do self-care - 'ever'."),
            ["I", "don't", "do", "self-care", "ever"]
        );
        assert_eq!(words("Rust2024, 3.5 é"), ["Rust2024", "3", "5", "é"]);
        assert_eq!(words("''--''"), [""; 0]);
    }

    #[test]
    fn scripts_without_spaces_give_pairs_of_letters() {
        assert_eq!(words("今日は晴れ。x日"), ["今日", "日は", "は晴", "晴れ", "x", "日"]);
    }

    #[test]
    fn tables_are_sorted() {
        for table in [STOP, FILLER, DULL] {
            assert!(table.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }

    #[test]
    fn words_are_sorted_as_the_tables_say() {
        let check =
            |word: &str, expected: WordClass| assert_eq!(class_of(word), expected, "{word}");
        check("the", WordClass::Stop);
        check("no", WordClass::Stop);
        check("thanks", WordClass::Filler);
        check("weekend", WordClass::Dull);
        check("berlin", WordClass::Content);
        assert!(STOP.len() + FILLER.len() + DULL.len() < SLOTS / 2);
    }

    #[test]
    fn plurals_and_possessives_meet() {
        let check = |word: &str, expected: &str| assert_eq!(stem(word), expected);
        check("dogs", "dog");
        check("dog's", "dog");
        check("class", "class");
        check("status", "status");
        check("gas", "gas");
    }
}
