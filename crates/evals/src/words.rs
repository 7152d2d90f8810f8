//! Content words for the baseline and for answers: Porter's stems of 1980, no
//! more, so that a figure means the same on any machine and beside any engine.

const STOPWORDS: [&str; 70] = [
    "a", "about", "an", "and", "are", "as", "at", "be", "been", "being", "by", "can", "could",
    "did", "do", "does", "for", "from", "had", "has", "have", "he", "her", "his", "how", "i", "if",
    "in", "into", "is", "it", "its", "me", "my", "no", "not", "of", "on", "or", "our", "out",
    "she", "should", "so", "than", "that", "the", "their", "then", "there", "these", "they",
    "this", "those", "to", "up", "was", "we", "were", "what", "when", "where", "which", "who",
    "why", "will", "with", "would", "you", "your",
];

/// Content words, stemmed, in order.
pub fn words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let parts = lower.split(|c: char| !c.is_alphanumeric());
    let content = parts.filter(|word| !word.is_empty() && !STOPWORDS.contains(word));
    content.map(stem).collect()
}

const STEP_2: [(&str, &str); 20] = [
    ("ational", "ate"),
    ("ization", "ize"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("tional", "tion"),
    ("biliti", "ble"),
    ("entli", "ent"),
    ("ousli", "ous"),
    ("ation", "ate"),
    ("alism", "al"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("abli", "able"),
    ("alli", "al"),
    ("ator", "ate"),
    ("eli", "e"),
];

const STEP_3: [(&str, &str); 7] = [
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
];

const STEP_4: [&str; 18] = [
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous",
    "ive", "ize", "al", "er", "ic", "ou",
];

/// A word's stem, after Porter's rules.
pub fn stem(word: &str) -> String {
    if word.len() < 3 || !word.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return word.to_owned();
    }
    let word = without_plural(word);
    let word = without_tense(word);
    let word = match word.strip_suffix('y') {
        Some(base) if has_vowel(base) => format!("{base}i"),
        _ => word,
    };
    let word = replaced(replaced(word, &STEP_2), &STEP_3);
    without_last(without_ending(word))
}

fn without_plural(word: &str) -> &str {
    if word.ends_with("sses") || word.ends_with("ies") {
        &word[..word.len() - 2]
    } else if word.ends_with('s') && !word.ends_with("ss") {
        &word[..word.len() - 1]
    } else {
        word
    }
}

fn without_tense(word: &str) -> String {
    if let Some(base) = word.strip_suffix("eed") {
        let end = if measure(base) > 0 { word.len() - 1 } else { word.len() };
        return word[..end].to_owned();
    }
    let trimmed = word.strip_suffix("ed").or_else(|| word.strip_suffix("ing"));
    let Some(base) = trimmed.filter(|base| has_vowel(base)) else { return word.to_owned() };
    let is_doubled = ends_double(base) && !base.ends_with(['l', 's', 'z']);
    if base.ends_with("at") || base.ends_with("bl") || base.ends_with("iz") {
        format!("{base}e")
    } else if is_doubled {
        base[..base.len() - 1].to_owned()
    } else if measure(base) == 1 && ends_short(base) {
        format!("{base}e")
    } else {
        base.to_owned()
    }
}

fn replaced(word: String, rules: &[(&str, &str)]) -> String {
    for (suffix, new) in rules {
        if let Some(base) = word.strip_suffix(suffix) {
            return if measure(base) > 0 { format!("{base}{new}") } else { word };
        }
    }
    word
}

fn without_ending(word: String) -> String {
    if let Some(base) = STEP_4.iter().find_map(|suffix| word.strip_suffix(suffix)) {
        return if measure(base) > 1 { base.to_owned() } else { word };
    }
    let is_ion = word.ends_with("sion") || word.ends_with("tion");
    match word.strip_suffix("ion") {
        Some(base) if is_ion && measure(base) > 1 => base.to_owned(),
        _ => word,
    }
}

fn without_last(mut word: String) -> String {
    if let Some(base) = word.strip_suffix('e') {
        let size = measure(base);
        if size > 1 || (size == 1 && !ends_short(base)) {
            word.pop();
        }
    }
    if word.ends_with("ll") && measure(&word[..word.len() - 1]) > 1 {
        word.pop();
    }
    word
}

/// For each letter, whether it is a consonant; `y` is one after a vowel.
fn consonants(word: &str) -> Vec<bool> {
    let mut found: Vec<bool> = Vec::with_capacity(word.len());
    for byte in word.bytes() {
        let is_consonant = match byte {
            b'a' | b'e' | b'i' | b'o' | b'u' => false,
            b'y' => found.last().is_none_or(|is_consonant| !is_consonant),
            _ => true,
        };
        found.push(is_consonant);
    }
    found
}

/// How often a vowel is followed by a consonant.
fn measure(word: &str) -> usize {
    consonants(word).windows(2).filter(|pair| !pair[0] && pair[1]).count()
}

fn has_vowel(word: &str) -> bool {
    consonants(word).contains(&false)
}

/// Ends consonant, vowel, consonant, the last not `w`, `x` or `y`.
fn ends_short(word: &str) -> bool {
    consonants(word).ends_with(&[true, false, true]) && !word.ends_with(['w', 'x', 'y'])
}

fn ends_double(word: &str) -> bool {
    let bytes = word.as_bytes();
    bytes.len() >= 2
        && bytes[bytes.len() - 1] == bytes[bytes.len() - 2]
        && consonants(word).last() == Some(&true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_are_porters() {
        for (word, expected) in [
            ("caresses", "caress"),
            ("ponies", "poni"),
            ("agreed", "agre"),
            ("plastered", "plaster"),
            ("motoring", "motor"),
            ("hopping", "hop"),
            ("filing", "file"),
            ("happy", "happi"),
            ("relational", "relat"),
            ("vietnamization", "vietnam"),
            ("electriciti", "electr"),
            ("adoption", "adopt"),
            ("probate", "probat"),
            ("controll", "control"),
        ] {
            assert_eq!(stem(word), expected, "{word}");
        }
    }

    #[test]
    fn words_are_content_words() {
        assert_eq!(words("What did the Ponies eat in 2023?"), ["poni", "eat", "2023"]);
        assert_eq!(words("snake_case isn't"), ["snake", "case", "isn", "t"]);
    }
}
