//! Reading the facts that a turn states.

use super::clause::{Clause, clauses, may_state};
use super::echo::without_context;
use super::forms::{FORMS, Form, Rest, begins_form, is_kin, is_occupation, is_past};
use super::render::stand_alone;
use super::{Fact, FactKind};
use crate::text::dates::When;
use crate::text::{
    Said, SentenceKind, Token, Voice, dates, instruction_strength, is_adverb, is_reaction,
    one_line, own_terms, sentences, speaker_of, tokens, voice_of,
};
use crate::time::Millis;

/// Of a longer turn only this much is read.
pub const MAX_READ_CHARS: usize = 20_000;
/// The first so many facts of a turn are taken: who states more lists something.
pub const MAX_FACTS_A_TURN: usize = 6;

/// A longer quote is no fact but a story.
const MAX_QUOTE_BYTES: usize = 240;
/// From this strength on a standing instruction becomes a fact.
const SURE_INSTRUCTION: u8 = 70;
/// A value that is kept by its name ends here.
const MAX_NAME_WORDS: usize = 5;

/// The facts that a turn states, first to last. `previous` is the turn that it
/// answers.
///
/// ```
/// use icecore_domain::{fact, text::Said, time::Millis};
/// let said =
///     Said { role: "user", name: Some("Ana"), text: "Hi! I live in Lisbon.", at: Millis(0) };
/// let facts = fact::extract(&said, None);
/// assert_eq!(facts[0].text, "Ana lives in Lisbon.");
/// assert_eq!(facts[0].attribute, "home");
/// ```
pub fn extract(said: &Said<'_>, previous: Option<&Said<'_>>) -> Vec<Fact> {
    if voice_of(said) != Voice::Person {
        return Vec::new();
    }
    let subject = subject_of(said);
    let limit = said.text.char_indices().nth(MAX_READ_CHARS).map_or(said.text.len(), |(at, _)| at);
    let own = without_context(&said.text[..limit]);
    let mut facts: Vec<Fact> = Vec::new();
    for sentence in sentences(&own) {
        if !matches!(sentence.kind, SentenceKind::Prose | SentenceKind::Fragment)
            || is_quoted(&own, &sentence.text)
        {
            continue;
        }
        for fact in read_sentence(&subject, &sentence.text, said.at) {
            if facts.len() < MAX_FACTS_A_TURN && !facts.iter().any(|other| other.text == fact.text)
            {
                facts.push(fact);
            }
        }
    }
    if facts.is_empty()
        && let Some(fact) = previous.and_then(|asked| answer(&subject, asked, &own, said.at))
    {
        facts.push(fact);
    }
    facts
}

/// The name, else `user`.
fn subject_of(said: &Said<'_>) -> String {
    if said.name.is_some_and(|name| !name.trim().is_empty()) {
        speaker_of(said).into_owned()
    } else {
        "user".to_owned()
    }
}

/// Whether a sentence is somebody else's: in a quoted line, in quotation marks,
/// in brackets.
fn is_quoted(text: &str, sentence: &str) -> bool {
    let start = (sentence.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    let Some(before) = text.get(..start) else { return true };
    let line = before.rsplit('\n').next().unwrap_or_default();
    let marks = line.matches('"').count();
    let open = line.matches('“').count() > line.matches('”').count();
    line.trim_start().starts_with('>')
        || marks % 2 == 1
        || open
        || sentence.starts_with(['[', '"', '“', '(', '{', '<', '|'])
}

fn read_sentence(subject: &str, sentence: &str, at: Millis) -> Vec<Fact> {
    if let Some(fact) = instruction(subject, sentence, at) {
        return vec![fact];
    }
    if !may_state(sentence) {
        return Vec::new();
    }
    let tokens = tokens(sentence);
    let whens = dates::resolve(sentence, at);
    let clauses = clauses(sentence, &tokens, &whens);
    let read = |clause| read_clause(subject, sentence, &tokens, &clause, &whens, at);
    clauses.into_iter().filter_map(read).collect()
}

/// A standing instruction, with its condition.
fn instruction(subject: &str, sentence: &str, at: Millis) -> Option<Fact> {
    if sentence.len() > MAX_QUOTE_BYTES || instruction_strength(sentence) < SURE_INSTRUCTION {
        return None;
    }
    let value = one_line(sentence);
    let who = if subject == "user" { "The user" } else { subject };
    Some(Fact {
        kind: FactKind::Instruction,
        subject: subject.to_owned(),
        attribute: String::new(),
        text: format!("{who} asks: {value}"),
        value,
        quote: sentence.to_owned(),
        valid_from: at,
    })
}

/// A clause with its words at hand.
struct Reading<'a> {
    sentence: &'a str,
    tokens: &'a [Token],
    clause: &'a Clause,
    /// Times within the clause.
    whens: Vec<&'a When>,
}

fn read_clause(
    subject: &str,
    sentence: &str,
    tokens: &[Token],
    clause: &Clause,
    whens: &[When],
    at: Millis,
) -> Option<Fact> {
    let clause = &trimmed(clause, tokens)?;
    if !begins_form(&tokens[clause.head].word) {
        return None;
    }
    let (start, mut end) = (tokens[clause.tokens.start].start, tokens[clause.tokens.end - 1].end);
    if sentence[end..].starts_with(['%', '+', ')', '"', '”']) {
        end += sentence[end..].chars().next().map_or(0, char::len_utf8);
    }
    let quote = &sentence[start..end];
    if quote.len() > MAX_QUOTE_BYTES || quote.matches('"').count() % 2 == 1 {
        return None;
    }
    let inside = |when: &&When| start <= when.span.start && when.span.end <= end;
    let whens: Vec<&When> = whens.iter().filter(inside).collect();
    let reading = Reading { sentence, tokens, clause, whens };
    let (form, matched) = FORMS.iter().find_map(|form| Some((form, reading.fit(form, at)?)))?;
    let (attribute, value_at) = reading.attribute(form, &matched);
    let value = match (form.rest, attribute.is_empty()) {
        (Rest::Name, _) => reading.name(matched.after),
        (Rest::Number, _) => matched.number.to_owned(),
        (_, false) if form.attribute == "count" => tokens[value_at].word.clone(),
        (Rest::State, false) => matched.last.to_owned(),
        (_, false) if form.attribute == "deadline" => reading.date(value_at).to_owned(),
        (_, false) => reading.rest(value_at).to_owned(),
        (_, true) => sentence[tokens[clause.head].start..end].to_owned(),
    };
    let moved: Vec<Token> = tokens[clause.tokens.clone()]
        .iter()
        .map(|token| Token {
            word: token.word.clone(),
            start: token.start - start,
            end: token.end - start,
        })
        .collect();
    let mut text =
        one_line(&stand_alone(subject, quote, &moved, clause.head - clause.tokens.start));
    let dated = reading.whens.first().copied();
    if let Some(when) = dated.filter(|when| when.relative) {
        let at = text.trim_end_matches(['.', '!', '?']).len();
        text.insert_str(at, &format!(" ({})", when.label()));
    }
    let past = dated.filter(|when| when.from <= at).map(|when| when.from);
    let valid_from = match form.kind {
        FactKind::Event | FactKind::Identity => past.unwrap_or(at),
        _ => at,
    };
    Some(Fact {
        kind: form.kind,
        subject: subject.to_owned(),
        attribute,
        value: one_line(&value),
        text,
        quote: quote.to_owned(),
        valid_from,
    })
}

/// The clause without what led over to the next.
fn trimmed(clause: &Clause, tokens: &[Token]) -> Option<Clause> {
    let mut clause = clause.clone();
    let leads_over = |word: &str| {
        ["and", "or", "even", "so", "just", "but", "too", "though", "lol", "haha"].contains(&word)
    };
    while clause.tokens.len() > 1 && leads_over(&tokens[clause.tokens.end - 1].word) {
        clause.tokens.end -= 1;
    }
    (clause.head < clause.tokens.end).then_some(clause)
}

/// How a form fits.
struct Matched<'a> {
    after: usize,
    last: &'a str,
    number: &'a str,
}

impl<'a> Reading<'a> {
    /// Whether the clause begins with the words of the form, and the rest is right.
    fn fit(&self, form: &Form, at: Millis) -> Option<Matched<'a>> {
        let end = self.clause.tokens.end;
        let mut next = self.clause.head;
        let mut matched = Matched { after: 0, last: "", number: "" };
        let tokens: &'a [Token] = self.tokens;
        for (place, choices) in form.words.split(' ').enumerate() {
            while place > 0 && next < end && is_adverb(&tokens[next].word) {
                next += 1;
            }
            let optional = choices.ends_with('?');
            let word = if next < end { tokens[next].word.as_str() } else { "" };
            let fits = match choices {
                "#" => is_number(word),
                "~" => is_past(word),
                _ => choices.trim_end_matches('?').split('|').any(|choice| choice == word),
            };
            if fits {
                if choices == "#" {
                    matched.number = word;
                }
                matched.last = word;
                next += 1;
            } else if !optional {
                return None;
            }
        }
        matched.after = next;
        self.suits(form, &matched, at).then_some(matched)
    }

    fn suits(&self, form: &Form, matched: &Matched<'_>, at: Millis) -> bool {
        if matches!(form.rest, Rest::Number | Rest::State) {
            return true;
        }
        if matches!(form.rest, Rest::Dated | Rest::Past) && self.whens.is_empty() {
            return false;
        }
        let words: Vec<&str> = self.tokens[matched.after..self.clause.tokens.end]
            .iter()
            .map(|t| t.word.as_str())
            .collect();
        if is_reaction(&words) || points_away(&words) {
            return false;
        }
        let own = own_terms(self.rest(matched.after)).len();
        if own == 0 {
            return false;
        }
        match form.rest {
            Rest::Any | Rest::Number | Rest::State => true,
            Rest::Two => own >= 2,
            Rest::Taste => !matches!(words.as_slice(), ["the", ..] | ["all", ..]),
            Rest::Name => !self.name(matched.after).is_empty(),
            Rest::Occupation => words
                .iter()
                .take_while(|word| !is_border(word))
                .last()
                .is_some_and(|word| is_occupation(word)),
            Rest::Kin => words.iter().take(3).any(|word| is_kin(word)),
            Rest::Dated => {
                !self.whens.is_empty()
                    && (form.attribute == "deadline" || self.untimed(matched.after) > 0)
            }
            Rest::Relative => mentions_kin(&words),
            Rest::Past => {
                let past = |when: &&When| when.from <= at && self.is_of_event(when);
                self.untimed(matched.after) > 0 && self.whens.iter().copied().any(|w| past(&w))
            }
        }
    }

    /// Words of its own that are no time: a great time last week is no event.
    fn untimed(&self, after: usize) -> usize {
        const EMPTY: [&str; 16] = [
            "great", "time", "blast", "good", "amazing", "fun", "wonderful", "something", "new",
            "day", "days", "week", "lot", "awesome", "thing", "tough",
        ];
        let timed = |token: &Token| self.whens.iter().any(|when| when.span.contains(&token.start));
        let own: Vec<&str> = self.tokens[after..self.clause.tokens.end]
            .iter()
            .filter(|token| !timed(token) && !EMPTY.contains(&token.word.as_str()))
            .map(|token| token.word.as_str())
            .collect();
        own_terms(&own.join(" ")).len()
    }

    /// Whether a time is that of the verb, not of a thing: "due 5 May" is not.
    fn is_of_event(&self, when: &When) -> bool {
        const OF_THINGS: [&str; 7] = ["due", "by", "starting", "until", "for", "before", "my"];
        let mut before = self.tokens.iter().rev().skip_while(|token| token.end > when.span.start);
        !before.next().is_some_and(|token| OF_THINGS.contains(&token.word.as_str()))
    }

    fn rest(&self, after: usize) -> &str {
        let end = self.tokens[self.clause.tokens.end - 1].end;
        let first = self.tokens.get(after).filter(|_| after < self.clause.tokens.end);
        first.map_or("", |token| &self.sentence[token.start..end])
    }

    /// A name that begins at token `after`: what is capitalised, and what joins it.
    fn name(&self, after: usize) -> String {
        const JOINTS: [&str; 6] = ["of", "de", "da", "do", "the", "la"];
        let mut end = None;
        for (count, token) in self.tokens[after..self.clause.tokens.end].iter().enumerate() {
            let text = &self.sentence[token.start..token.end];
            let timed = self.whens.iter().any(|when| when.span.contains(&token.start));
            let capital = text.starts_with(char::is_uppercase) && !timed;
            let joint = count > 0 && JOINTS.contains(&text);
            if count >= MAX_NAME_WORDS || !(capital || joint) || token.word == "i" {
                break;
            }
            if capital {
                end = Some(token.end);
            }
        }
        end.map_or(String::new(), |end| self.sentence[self.tokens[after].start..end].to_owned())
    }

    /// The rest up to the end of its date.
    fn date(&self, after: usize) -> &str {
        let rest = self.rest(after);
        let start = self.tokens.get(after).map_or(0, |token| token.start);
        let date = self.whens.iter().find(|when| when.span.start >= start);
        date.and_then(|when| self.sentence.get(start..when.span.end)).unwrap_or(rest)
    }

    /// "5 May for the grant": what a date is for.
    fn purpose(&self, after: usize) -> Option<(String, usize)> {
        let date = self.whens.iter().find(|when| when.span.start >= self.tokens[after].start)?;
        let words = self.tokens[after..self.clause.tokens.end].iter();
        let mut words = words.skip_while(|token| token.start < date.span.end);
        words.next().filter(|token| matches!(token.word.as_str(), "to" | "for"))?;
        let words: Vec<&str> =
            words.map(|token| token.word.as_str()).take(MAX_NAME_WORDS).collect();
        (!words.is_empty()).then(|| (words.join(" "), after))
    }

    /// "two kids", "completed 25 problems": what is counted, and the number's token.
    fn counted(&self, matched: &Matched<'_>) -> Option<(String, usize)> {
        const MAX_WORDS: usize = 5;
        let number = [matched.after - 1, matched.after]
            .into_iter()
            .find(|at| self.tokens.get(*at).is_some_and(|token| is_count(&token.word)))?;
        let mut things: Vec<&str> = Vec::new();
        for token in &self.tokens[number + 1..self.clause.tokens.end] {
            // "congruence and similarity problems" are one thing, "kids and a dog" two.
            let goes_on = token.word == "and" && things.last().is_some_and(|w| !w.ends_with('s'));
            if is_border(&token.word) && !goes_on {
                break;
            }
            things.push(&token.word);
        }
        // A share of something or a date counts nothing.
        let end = self.tokens[number].end;
        let plain = self.sentence[end..].starts_with(' ');
        let named = plain && (1..=MAX_WORDS).contains(&things.len());
        let done = if matched.last == self.tokens[number].word { "" } else { matched.last };
        named.then(|| {
            (format!("number of {} {done}", things.join(" ")).trim_end().to_owned(), number)
        })
    }

    /// The property, and the token at which its value begins.
    fn attribute(&self, form: &Form, matched: &Matched<'_>) -> (String, usize) {
        let words = &self.tokens[matched.after..self.clause.tokens.end];
        let until = |stops: &[&str]| {
            let at = words.iter().position(|token| stops.contains(&token.word.as_str()))?;
            let named: Vec<&str> = words[..at].iter().map(|token| token.word.as_str()).collect();
            let short = !named.is_empty() && at <= MAX_NAME_WORDS;
            short.then(|| (named.join(" "), matched.after + at + 1))
        };
        match form.attribute {
            "*" => {
                let mut said = self.tokens[self.clause.head..matched.after].iter();
                let named = said.nth(1).map_or(String::new(), |token| token.word.clone());
                (named, matched.after)
            }
            "count" => self.counted(matched).unwrap_or((String::new(), matched.after)),
            "favourite" => match until(&["is", "are", "was"]) {
                Some((of, value)) => (format!("favourite {of}"), value),
                None => (String::new(), matched.after),
            },
            "deadline" => match until(&["is"]).or_else(|| self.purpose(matched.after)) {
                Some((of, value)) => (format!("deadline of {of}"), value),
                None => ("deadline".to_owned(), matched.after),
            },
            given => (given.to_owned(), matched.after),
        }
    }
}

/// Whether it soon speaks of something named elsewhere, or only under a condition.
fn points_away(words: &[&str]) -> bool {
    const SOON: usize = 4;
    const POINTERS: [&str; 14] = [
        "it", "this", "these", "those", "them", "him", "her", "his", "their", "he", "she", "they",
        "there", "its",
    ];
    words.iter().take(SOON).any(|word| POINTERS.contains(word)) || words.contains(&"if")
}

/// "my sister works …", "my dog's name is …": a relative, and soon a verb.
fn mentions_kin(words: &[&str]) -> bool {
    const VERBS: [&str; 10] = [
        "works", "lives", "named", "called", "name", "studies", "plays", "has", "turned", "teaches",
    ];
    let kin = words.first().is_some_and(|word| is_kin(word.trim_end_matches("'s")));
    kin && words.len() > 2 && words[1..].iter().take(3).any(|word| VERBS.contains(word))
}

fn is_count(word: &str) -> bool {
    const WORDS: [&str; 10] =
        ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
    is_number(word) || WORDS.contains(&word)
}

fn is_number(word: &str) -> bool {
    word.len() <= 3 && word.bytes().all(|byte| byte.is_ascii_digit()) && !word.is_empty()
}

/// A word that ends a noun phrase.
fn is_border(word: &str) -> bool {
    [
        "at", "in", "for", "with", "of", "from", "who", "and", "on", "by", "based", "so",
        "working", "living", "specializing", "but", "to", "that", "now", "here",
    ]
    .contains(&word)
}

/// What a short answer says to a plain question about its speaker.
fn answer(subject: &str, asked: &Said<'_>, text: &str, at: Millis) -> Option<Fact> {
    const MAX_ANSWER_WORDS: usize = 6;
    let question = asked.text.trim().trim_end_matches('?');
    let question = question.rsplit(['.', '!', '?', '\n']).next()?;
    let asked_words: Vec<String> = tokens(question).into_iter().map(|token| token.word).collect();
    let asked_words: Vec<&str> = asked_words.iter().map(String::as_str).collect();
    let whole = asked.text.trim_end().ends_with('?');
    let (attribute, sentence) = match asked_words.as_slice() {
        ["what", "is", "your", "name"] | ["what's", "your", "name"] => {
            ("name".to_owned(), "name is")
        }
        ["where", "do", "you", "live"] => ("home".to_owned(), "home is"),
        ["how", "old", "are", "you"] => ("age".to_owned(), "age is"),
        ["what's" | "which", "your", "favorite" | "favourite", of @ ..]
        | ["what", "is", "your", "favorite" | "favourite", of @ ..]
            if (1..=3).contains(&of.len()) =>
        {
            (format!("favourite {}", of.join(" ")), "")
        }
        _ => return None,
    };
    let quote = text.trim().trim_end_matches(['.', '!']);
    let words = tokens(quote);
    let talk = |token: &Token| {
        ["i", "it", "you", "that", "not", "what", "it's", "sure", "hmm"]
            .contains(&token.word.as_str())
    };
    if !whole
        || words.is_empty()
        || words.len() > MAX_ANSWER_WORDS
        || quote.contains(['?', '\n'])
        || words.iter().any(talk)
    {
        return None;
    }
    let value = one_line(quote.trim_start_matches("In ").trim_start_matches("in "));
    let who = if subject == "user" { "The user" } else { subject };
    let text = match sentence {
        "" => format!("{who}'s {attribute} is {value}."),
        sentence => format!("{who}'s {sentence} {value}."),
    };
    Some(Fact {
        kind: if attribute.starts_with("favourite") {
            FactKind::Preference
        } else {
            FactKind::Identity
        },
        subject: subject.to_owned(),
        attribute,
        value,
        text,
        quote: quote.to_owned(),
        valid_from: at,
    })
}

#[cfg(test)]
mod extract_tests;
