//! Phrases that announce something worth keeping.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};

/// What a phrase announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cue {
    /// Who someone is, where they live, whom they belong to.
    Identity,
    /// What someone likes or wants done otherwise.
    Preference,
    /// What was settled.
    Decision,
    /// What must or cannot be.
    Constraint,
    /// What shall hold from now on.
    Instruction,
    /// What someone is going to do.
    Plan,
    /// What someone would like or is busy with: context, not yet a fact.
    Aim,
    /// Something that happened or will, when a time stands with it.
    Event,
    /// A time: a month, a weekday, "last week".
    Time,
    /// Talk that only looks like one of the above.
    Reaction,
}

/// A phrase found in a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub cue: Cue,
    /// Where it begins, in bytes.
    pub start: usize,
}

/// Phrases by what they announce. Apostrophes stand for both kinds.
const PHRASES: &[(Cue, &[&str])] = &[
    (
        Cue::Identity,
        &[
            "my name is", "call me", "i'm a", "i am a", "i'm an", "i am an", "i work at",
            "i work as", "i work for", "i work in", "i'm working as", "i live in", "i live with",
            "i live at", "i grew up", "i was born", "i'm from", "i am from", "i come from",
            "my birthday", "my wife", "my husband", "my partner", "my son", "my daughter",
            "my mother", "my father", "my mom", "my dad", "my sister", "my brother", "my boss",
            "my dog", "my cat", "my email", "my phone number", "my address", "i studied",
            "i graduated", "allergic to", "i own", "i have a", "i have two", "i have three",
            "i've been a", "my role", "my degree", "my timezone", "my time zone", "ich heiße",
            "ich bin", "ich wohne", "ich arbeite", "je m'appelle", "je suis", "j'habite",
            "je travaille", "me llamo", "soy", "vivo en", "trabajo en", "我叫", "我是", "我住",
            "私は", "私の名前",
        ],
    ),
    (
        Cue::Preference,
        &[
            "i prefer", "we prefer", "i'd prefer", "i like", "i don't like", "i dislike", "i love",
            "i hate", "i enjoy", "i can't stand", "my favorite", "my favourite", "i'd rather",
            "i'm into", "a fan of", "i'm passionate about", "i'm interested in", "ich mag",
            "ich bevorzuge", "am liebsten", "je préfère", "j'aime", "prefiero", "me gusta",
            "我喜欢", "我更喜欢", "好きです", "が好き",
        ],
    ),
    (
        Cue::Decision,
        &[
            "we decided", "i decided", "i've decided", "we've decided", "was decided", "we agreed",
            "we've agreed", "i agreed to", "we chose", "i chose", "we'll go with", "let's go with",
            "i'm going with", "we're going with", "i'll go with", "settled on", "the decision",
            "we switched to", "i switched to", "we picked", "i picked", "i opted",
            "made up my mind", "wir haben beschlossen", "entschieden", "nous avons décidé",
            "j'ai décidé", "decidimos", "decidí", "hemos decidido", "决定", "決めました", "決定",
        ],
    ),
    (
        Cue::Constraint,
        &[
            "must not", "we must", "i must", "not allowed", "no more than", "at most", "at least",
            "budget is", "budget of", "deadline", "due by", "due on", "due date", "is required",
            "has to be", "i can't", "we can't", "i cannot", "we cannot", "only works",
            "limited to", "by the end of", "muss", "darf nicht", "il faut", "hay que",
            "fecha límite", "必须", "不能", "締め切り", "截止",
        ],
    ),
    (
        Cue::Instruction,
        &[
            "from now on", "remember that", "remember to", "keep in mind", "please remember",
            "please always", "please never", "please don't", "always use", "never use",
            "make sure to", "make sure you", "don't ever", "do not ever", "in future",
            "in the future, please", "you should always", "you should never", "going forward",
            "ab jetzt", "denk daran", "à partir de maintenant", "n'oublie pas",
            "a partir de ahora", "recuerda", "记住", "以后", "覚えて", "今後",
        ],
    ),
    (
        Cue::Plan,
        &[
            "i plan to", "i'm planning", "we're planning", "we plan to", "i'm going to",
            "i am going to", "we're going to", "i will", "we will", "i'll be", "i'm thinking of",
            "i'm thinking about", "we're thinking", "i signed up", "i applied", "i'm applying",
            "my goal", "my dream", "i'm hoping to", "i intend to", "i'm looking into",
            "i'm working on", "we're working on", "i'm building", "ich werde", "ich will",
            "ich plane", "je vais", "j'ai l'intention", "voy a", "planeo", "我打算", "我计划",
            "我要", "つもり", "予定",
        ],
    ),
    (
        Cue::Aim,
        &[
            "i want to", "we want to", "i'm trying to", "i need to", "we need to", "i'm learning",
            "i'm using", "we're using", "i'm struggling", "i'm having trouble", "ich möchte",
            "je veux", "quiero", "我想", "したい",
        ],
    ),
    (
        Cue::Event,
        &[
            "i went", "we went", "i moved", "we moved", "i met", "we met", "i started",
            "we started", "i finished", "we finished", "i completed", "i've completed", "i bought",
            "we bought", "i got", "we got", "i joined", "i won", "we won", "i lost", "we lost",
            "i visited", "we visited", "i made", "i ran", "i took", "we took", "i had", "we had",
            "i saw", "i read", "i wrote", "i quit", "i gave", "i adopted", "i attended",
            "i learned", "i tried", "i received", "i launched", "we launched", "i fixed",
            "i found", "i built", "we built", "i've been", "i just", "we just", "i did",
            "i set up", "i created", "got married", "happened", "passed away", "was born",
            "has a meeting", "is scheduled", "is on", "starts on",
        ],
    ),
    (
        Cue::Time,
        &[
            "yesterday", "tomorrow", "today", "tonight", "last night", "last week", "last weekend",
            "last month", "last year", "next week", "next weekend", "next month", "next year",
            "this week", "this weekend", "this month", "this year", "last summer", "next summer",
            "last fall", "last winter", "last spring", "days ago", "weeks ago", "months ago",
            "years ago", "week ago", "month ago", "year ago", "a few days", "monday", "tuesday",
            "wednesday", "thursday", "friday", "saturday", "sunday", "january", "february",
            "in march", "april", "in may", "june", "july", "august", "september", "october",
            "november", "december", "gestern", "morgen", "heute", "hier", "demain", "ayer",
            "mañana", "昨天", "明天", "今天", "昨日", "明日", "今日", "年", "月",
        ],
    ),
    (
        Cue::Reaction,
        &[
            "i love that", "i love it", "i love how", "i love your", "i love this", "i like that",
            "i like your", "i like how", "i'd love to", "i would love to", "i will definitely",
            "i'll definitely", "i can't wait", "i can't believe", "i can't imagine",
            "i can't help", "i can't help but", "we can't wait", "i'm a bit", "i am a bit",
            "i'm a little", "i'm a huge believer", "i have a question", "i have a feeling",
            "i have a few questions", "i have a problem", "i got it", "i got you", "i got this",
            "i had no idea", "i had to say", "i see", "i just want to", "i just wanted to",
            "i just love", "i agree", "i will try", "i'll try", "i'm a fan", "i'm glad",
            "i'm here", "i want to make sure", "i need to make sure", "must have been",
            "must have felt", "i must say", "i have a lot", "i am a huge", "happened to you",
        ],
    ),
];

static FINDER: LazyLock<(AhoCorasick, Vec<(Cue, bool)>)> = LazyLock::new(|| {
    let mut phrases = Vec::new();
    let mut meanings = Vec::new();
    for (cue, group) in PHRASES {
        for phrase in *group {
            let bounded = phrase.is_ascii() || phrase.contains([' ', '\'']);
            let mut add = |phrase: String| {
                phrases.push(phrase);
                meanings.push((*cue, bounded || phrase_is_latin(phrases.last())));
            };
            add((*phrase).to_owned());
            if phrase.contains('\'') {
                add(phrase.replace('\'', "’"));
            }
        }
    }
    let finder = AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostLongest)
        .ascii_case_insensitive(true)
        .build(&phrases);
    (finder.expect("the table is small"), meanings)
});

fn phrase_is_latin(phrase: Option<&String>) -> bool {
    phrase.is_some_and(|phrase| !phrase.chars().any(super::is_unspaced))
}

/// Calls `each` with the phrases of `sentence`, in order.
pub(crate) fn for_each_cue(sentence: &str, mut each: impl FnMut(Found)) {
    let (finder, meanings) = &*FINDER;
    for found in finder.find_iter(sentence) {
        let (cue, whole_words) = meanings[found.pattern().as_usize()];
        if !whole_words || stands_alone(sentence, found.start(), found.end()) {
            each(Found { cue, start: found.start() });
        }
    }
}

/// Whether no letter touches `start..end`.
fn stands_alone(text: &str, start: usize, end: usize) -> bool {
    let before = text[..start].chars().next_back();
    let after = text[end..].chars().next();
    !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sentence: &str, expected: &[Cue]) {
        let mut cues = Vec::new();
        for_each_cue(sentence, |found| cues.push(found.cue));
        assert_eq!(cues, expected, "{sentence}");
    }

    #[test]
    fn phrases_are_found_as_whole_words() {
        check("I moved to Berlin last year.", &[Cue::Event, Cue::Time]);
        check("We agreed on it; I’m a nurse.", &[Cue::Decision, Cue::Identity]);
        check("Mondays are fine, hi likewise.", &[]);
        check("我们决定明天发布。", &[Cue::Decision, Cue::Time]);
    }

    #[test]
    fn the_longer_phrase_wins() {
        check("I love that!", &[Cue::Reaction]);
        check("I love pottery.", &[Cue::Preference]);
    }
}
