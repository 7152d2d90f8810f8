//! What entries say, said once.
//!
//! Three rules, applied until none applies any more:
//!
//! 1. Entries with the same words, whatever their case, spaces and punctuation, are
//!    one: the one that lasts longest stays.
//! 2. Of entries that share [`SAME_TENTHS`] tenths of their words, one that says all
//!    that the other does stays alone; otherwise their sentences become one entry.
//!    Entries that differ by a number or a negation are not alike.
//! 3. Of two entries that each state one fact, about the same property with another
//!    value, the newer stays.
//!
//! Entries with different tags stay apart.
//! Intentions stay as they are. So a second pass over the result plans nothing.

pub mod model;

use std::collections::{BTreeMap, BTreeSet};

use super::{Entry, by_tags};
use crate::fact::extract;
use crate::text::{Said, compared_words, normalise, one_line, own_terms, sentences};
use crate::time::Millis;

/// Entries that share this many tenths of all their words are alike.
pub const SAME_TENTHS: usize = 8;

/// With fewer words, sharing most of them means little.
pub const MIN_WORDS: usize = 5;

/// A word that more entries have tells none of them from the others, and is not
/// looked up.
const MAX_HOLDERS: usize = 512;

/// A statement of one fact is no longer than this.
const MAX_STATEMENT_WORDS: usize = 48;

/// What says how entries are put together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConsolidationPlan {
    pub outputs: Vec<Merged>,
    /// Entries that are in force no more, by their places, in order.
    pub replaced: Vec<(usize, Stands)>,
    /// Those whose replacement says something else.
    pub overtaken: BTreeSet<usize>,
}

impl ConsolidationPlan {
    /// Whether all stays as it is.
    pub fn is_empty(&self) -> bool {
        self.replaced.is_empty()
    }
}

/// An entry made of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    pub text: String,
    /// Its tags: those that each of the others has.
    pub tags: Vec<String>,
    /// When the first of the others ends.
    pub expires_at: Option<Millis>,
}

/// What replaces an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stands {
    /// One that is written, by its place.
    Output(usize),
    /// One that was given and stays, by its place.
    Kept(usize),
}

/// How to say once what `entries` say, in entries of at most `max_bytes`. Their order
/// does not matter.
pub fn plan(entries: &[Entry<'_>], max_bytes: usize) -> ConsolidationPlan {
    let mut made = ConsolidationPlan::default();
    for places in by_tags(entries, |_| true) {
        let nodes = places.iter().map(|at| Node::new(*at, &entries[*at])).collect();
        for node in settled(nodes, max_bytes) {
            node.add_to(entries, &mut made);
        }
    }
    made.replaced.sort_unstable_by_key(|(at, _)| *at);
    made
}

/// An entry, or what is to become one.
#[derive(Debug, Clone)]
struct Node {
    /// The entry that it is; none if it is new.
    kept: Option<usize>,
    /// The entries that it replaces, and itself.
    members: Vec<usize>,
    /// Replaced entries that say something else.
    overtaken: Vec<usize>,
    text: String,
    words: Vec<String>,
    created_at: Millis,
    /// The first end among what it quotes.
    expires_at: Option<Millis>,
}

impl Node {
    fn new(at: usize, entry: &Entry<'_>) -> Self {
        Self {
            kept: Some(at),
            members: vec![at],
            overtaken: Vec::new(),
            text: entry.content.to_owned(),
            words: compared_words(entry.content),
            created_at: entry.created_at,
            expires_at: entry.expires_at,
        }
    }

    /// Replaces what `other` replaces.
    fn take(&mut self, other: Node) {
        self.members.extend(other.members);
        self.overtaken.extend(other.overtaken);
    }

    /// Also stands for what `other` does, and says something else.
    fn overtake(&mut self, other: Node) {
        self.overtaken.extend(other.members);
        self.overtaken.extend(other.overtaken);
    }

    /// A new one that says what both say.
    fn join(self, other: Node, text: String) -> Node {
        let ends = [self.expires_at, other.expires_at];
        Node {
            kept: None,
            words: compared_words(&text),
            text,
            created_at: self.created_at.max(other.created_at),
            expires_at: ends.into_iter().flatten().min(),
            members: self.members.into_iter().chain(other.members).collect(),
            overtaken: self.overtaken.into_iter().chain(other.overtaken).collect(),
        }
    }

    fn add_to(self, entries: &[Entry<'_>], made: &mut ConsolidationPlan) {
        let stands = match self.kept {
            Some(at) => Stands::Kept(at),
            None => Stands::Output(made.outputs.len()),
        };
        let others = self.members.iter().filter(|at| Some(**at) != self.kept);
        let others = others.chain(&self.overtaken);
        made.replaced.extend(others.clone().map(|at| (*at, stands)));
        // One that stays was put as it is: although it says more, it is no copy.
        let is_overtaken = |at: &&usize| match self.kept {
            Some(_) => compared_words(entries[**at].content) != self.words,
            None => self.overtaken.contains(at),
        };
        made.overtaken.extend(others.filter(is_overtaken));
        if self.kept.is_none() {
            let ends = self.members.iter().filter_map(|at| entries[*at].expires_at);
            let tags = self.members.first().map_or(&[][..], |at| entries[*at].tags);
            made.outputs.push(Merged {
                text: self.text,
                tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
                expires_at: ends.min(),
            });
        }
    }
}

/// Applies the rules until none applies. Each time one does there is a node less.
fn settled(mut nodes: Vec<Node>, max_bytes: usize) -> Vec<Node> {
    loop {
        let before = nodes.len();
        nodes = without_repeats(nodes);
        nodes = without_likes(nodes, max_bytes);
        nodes = without_overtaken(nodes);
        if nodes.len() == before {
            return nodes;
        }
    }
}

/// Of those with the same words one stays: what is there already, lasts longest, is
/// newest.
fn without_repeats(nodes: Vec<Node>) -> Vec<Node> {
    let mut firsts: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    let mut left: Vec<Node> = Vec::new();
    for node in nodes {
        let Some(at) = firsts.get(&node.words).copied() else {
            firsts.insert(node.words.clone(), left.len());
            left.push(node);
            continue;
        };
        let lasts = |node: &Node| (node.kept.is_some(), end_of(node.expires_at));
        if lasts(&node) >= lasts(&left[at]) {
            let older = std::mem::replace(&mut left[at], node);
            left[at].take(older);
        } else {
            left[at].take(node);
        }
    }
    left
}

fn end_of(expires_at: Option<Millis>) -> Millis {
    expires_at.unwrap_or(Millis(i64::MAX))
}

/// Puts together, two by two, those that are alike.
fn without_likes(nodes: Vec<Node>, max_bytes: usize) -> Vec<Node> {
    let pairs = like_pairs(&nodes, max_bytes);
    let mut nodes: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
    for (first, second, likeness) in pairs {
        let (Some(mut one), Some(mut other)) = (nodes[first].take(), nodes[second].take()) else {
            continue;
        };
        nodes[second] = Some(match likeness {
            Likeness::FirstSaysAll => {
                one.take(other);
                one
            }
            Likeness::SecondSaysAll => {
                other.take(one);
                other
            }
            Likeness::BothAdd(text) => one.join(other, text),
        });
    }
    nodes.into_iter().flatten().collect()
}

/// Nodes that are alike, each in one pair. Sets that share [`SAME_TENTHS`] tenths of
/// their words have one of their few rarest in common, so only those are looked up.
fn like_pairs(nodes: &[Node], max_bytes: usize) -> Vec<(usize, usize, Likeness)> {
    let sets: Vec<BTreeSet<&str>> =
        nodes.iter().map(|node| node.words.iter().map(String::as_str).collect()).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    sets.iter().flatten().for_each(|word| *counts.entry(word).or_default() += 1);
    let mut holders: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut is_taken = vec![false; nodes.len()];
    let mut pairs = Vec::new();
    for (at, set) in sets.iter().enumerate().filter(|(_, set)| set.len() >= MIN_WORDS) {
        let rarest = rarest(set, &counts);
        let known = rarest.iter().filter_map(|word| holders.get(word)).flatten().copied();
        let known: BTreeSet<usize> = known.filter(|other| !is_taken[*other]).collect();
        let found = known.into_iter().find_map(|other| {
            let is_like = are_alike(&sets[other], set);
            let how = is_like.then(|| likeness(&nodes[other], &nodes[at], max_bytes))?;
            how.map(|how| (other, at, how))
        });
        match found {
            Some((other, ..)) => is_taken[other] = true,
            None => rarest.into_iter().for_each(|word| holders.entry(word).or_default().push(at)),
        }
        pairs.extend(found);
    }
    pairs
}

/// The words of a set by which those that are alike are found.
fn rarest<'a>(set: &BTreeSet<&'a str>, counts: &BTreeMap<&str, usize>) -> Vec<&'a str> {
    let count = |word: &&str| counts.get(*word).copied().unwrap_or(0);
    let mut rarest: Vec<&str> = set.iter().copied().collect();
    rarest.sort_by_key(|word| (count(word), *word));
    rarest.truncate(set.len() - (set.len() * SAME_TENTHS).div_ceil(10) + 1);
    rarest.retain(|word| count(word) <= MAX_HOLDERS);
    rarest
}

/// Whether two sets of words are near, and none of the words in which they differ
/// makes them speak of different things.
fn are_alike(one: &BTreeSet<&str>, other: &BTreeSet<&str>) -> bool {
    let shared = one.intersection(other).count();
    let all = one.len() + other.len() - shared;
    shared * 10 >= all * SAME_TENTHS
        && !one.symmetric_difference(other).any(|word| changes_meaning(word))
}

/// Numbers, negations, questions, what was hidden.
fn changes_meaning(word: &str) -> bool {
    const NEGATIONS: [&str; 34] = [
        "not", "no", "never", "none", "nobody", "nothing", "neither", "nor", "without", "cannot",
        "except", "unless", "only", "if", "nicht", "kein", "keine", "keinen", "nie", "niemals",
        "ohne", "ne", "pas", "jamais", "sans", "aucun", "nunca", "ningún", "sin", "não", "sem",
        "niet", "geen", "не",
    ];
    word == "?"
        || word.chars().any(char::is_numeric)
        || word.contains("n't")
        || word.contains("n’t")
        || word.contains("[redacted:")
        || NEGATIONS.contains(&word)
}

/// How two that are alike become one.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Likeness {
    FirstSaysAll,
    SecondSaysAll,
    BothAdd(String),
}

/// How two that are alike become one; not at all if that would be too large.
fn likeness(first: &Node, second: &Node, max_bytes: usize) -> Option<Likeness> {
    if is_within(&first.words, &second.words) {
        return Some(Likeness::SecondSaysAll);
    }
    if is_within(&second.words, &first.words) {
        return Some(Likeness::FirstSaysAll);
    }
    // Whichever comes first, so that a second pass decides the same.
    let is_small = first.text.len() + second.text.len() + ". ".len() <= max_bytes;
    is_small.then(|| joined(&first.text, &second.text))?.map(Likeness::BothAdd)
}

/// Whether all words of `part` stand in `whole`, in their order.
fn is_within(part: &[String], whole: &[String]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|word| rest.any(|other| other == word))
}

/// The sentences of both, none twice. Nothing if one would lose something: code and
/// data are not sentences.
fn joined(first: &str, second: &str) -> Option<String> {
    let mut said = BTreeSet::new();
    let mut text = String::new();
    for part in [first, second] {
        let found: Vec<String> = sentences(part).iter().map(|one| one_line(&one.text)).collect();
        if compared_words(&found.join(" ")) != compared_words(part) {
            return None;
        }
        for sentence in found.into_iter().filter(|one| said.insert(compared_words(one))) {
            if !text.is_empty() {
                text.push_str(if text.ends_with(char::is_alphanumeric) { ". " } else { " " });
            }
            text.push_str(&sentence);
        }
    }
    Some(text)
}

/// Of those that state another value of one property the newest stays.
fn without_overtaken(nodes: Vec<Node>) -> Vec<Node> {
    let stated: Vec<Option<Statement>> = nodes.iter().map(statement).collect();
    let mut newest: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (at, statement) in stated.iter().enumerate() {
        let Some(Statement { subject, attribute, .. }) = statement else { continue };
        let known = newest.entry((subject, attribute)).or_insert(at);
        if nodes[at].created_at >= nodes[*known].created_at {
            *known = at;
        }
    }
    let overtaken_by: Vec<Option<usize>> = stated
        .iter()
        .map(|statement| {
            let Statement { subject, attribute, value } = statement.as_ref()?;
            let at = *newest.get(&(subject.as_str(), attribute.as_str()))?;
            stated[at].as_ref().filter(|other| other.value != *value).map(|_| at)
        })
        .collect();
    let mut nodes: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
    for (at, by) in overtaken_by.into_iter().enumerate() {
        let Some(by) = by else { continue };
        if let Some(older) = nodes[at].take()
            && let Some(newer) = &mut nodes[by]
        {
            newer.overtake(older);
        }
    }
    nodes.into_iter().flatten().collect()
}

/// The one fact that an entry states.
struct Statement {
    subject: String,
    attribute: String,
    value: String,
}

/// The fact that a text states, where it states one and nothing else.
fn statement(node: &Node) -> Option<Statement> {
    if node.words.len() > MAX_STATEMENT_WORDS {
        return None;
    }
    let said = Said { role: "user", name: None, text: &node.text, at: node.created_at };
    let [sentence] = &sentences(&node.text)[..] else { return None };
    let [fact] = &extract(&said, None)[..] else { return None };
    let is_all = own_terms(&fact.quote) == own_terms(&sentence.text)
        && compared_words(&sentence.text) == node.words;
    (is_all && !fact.attribute.is_empty()).then(|| Statement {
        subject: normalise(&fact.subject),
        attribute: normalise(&fact.attribute),
        value: normalise(&fact.value),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: i64 = 1_767_225_600_000;

    /// An entry that owns what it says.
    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
    struct Own {
        id: String,
        content: String,
        tags: Vec<String>,
        created_at: Millis,
        expires_at: Option<Millis>,
    }

    fn planned(entries: &[Own]) -> ConsolidationPlan {
        let tags: Vec<Vec<&str>> =
            entries.iter().map(|one| one.tags.iter().map(String::as_str).collect()).collect();
        let read: Vec<Entry<'_>> = entries
            .iter()
            .zip(&tags)
            .map(|(one, tags)| Entry {
                id: &one.id,
                content: &one.content,
                tags,
                created_at: one.created_at,
                expires_at: one.expires_at,
            })
            .collect();
        plan(&read, 2_000)
    }

    /// What is in force once the plan was carried out.
    fn carried_out(entries: &[Own], plan: &ConsolidationPlan) -> Vec<Own> {
        let is_replaced = |at: &usize| plan.replaced.iter().any(|(other, _)| other == at);
        let kept = (0..entries.len()).filter(|at| !is_replaced(at)).map(|at| entries[at].clone());
        let new = plan.outputs.iter().enumerate().map(|(at, output)| Own {
            id: format!("new-{at}"),
            content: output.text.clone(),
            tags: output.tags.clone(),
            created_at: Millis(START * 2),
            expires_at: output.expires_at,
        });
        kept.chain(new).collect()
    }

    fn put(contents: &[&str]) -> Vec<Own> {
        let own = |(at, content): (usize, &&str)| Own {
            id: format!("e{at:03}"),
            content: (*content).to_owned(),
            tags: Vec::new(),
            created_at: Millis(START + at as i64),
            expires_at: None,
        };
        contents.iter().enumerate().map(own).collect()
    }

    fn left(contents: &[&str]) -> Vec<String> {
        let entries = put(contents);
        let left = carried_out(&entries, &planned(&entries));
        left.into_iter().map(|one| one.content).collect()
    }

    #[test]
    fn the_same_is_said_once() {
        assert_eq!(
            left(&["Plums are ripe.", "plums  ARE ripe", "Figs."]),
            ["plums  ARE ripe", "Figs."]
        );
        assert_eq!(left(&["", " ", ""]), [""]);
        // What a mark changes is not the same.
        for apart in [
            ["-5 degrees", "5 degrees"],
            ["C", "C++"],
            ["Done?", "Done."],
            ["3.5", "35"],
            ["!", "…"],
        ] {
            assert_eq!(left(&apart), apart);
        }
    }

    #[test]
    fn what_lasts_longest_stays() {
        let mut entries = put(&["same", "same", "same"]);
        entries[2].expires_at = Some(Millis(START * 2));
        let made = planned(&entries);
        assert_eq!(made.replaced, [(0, Stands::Kept(1)), (2, Stands::Kept(1))]);
        assert_eq!(made.outputs, []);
    }

    #[test]
    fn who_says_more_stays() {
        let short = "The harbour office in Porto opens at dawn on weekdays";
        let long = "The harbour office in Porto always opens at dawn on weekdays.";
        assert_eq!(left(&[long, short]), [long]);
        assert_eq!(left(&[short, long]), [long]);
        // In another order it is something else, and both are kept as one.
        let (one, other) = (
            "The old dog has bitten the young postman.",
            "The young postman has bitten the old dog.",
        );
        assert_eq!(left(&[one, other]), [format!("{one} {other}")]);
    }

    #[test]
    fn what_both_add_is_kept() {
        let one = "Ana plans the harbour works in Porto with great care. She is kind.";
        let other = "Ana plans the harbour works in Porto with great care! He is kind.";
        let both = "Ana plans the harbour works in Porto with great care. She is kind. He is kind.";
        let mut entries = put(&[one, other]);
        entries[0].expires_at = Some(Millis(7));
        let made = planned(&entries);
        assert_eq!(made.outputs.len(), 1);
        assert_eq!(made.outputs[0].text, both);
        assert_eq!(made.outputs[0].expires_at, Some(Millis(7)));
        assert_eq!(made.replaced, [(0, Stands::Output(0)), (1, Stands::Output(0))]);
    }

    #[test]
    fn what_only_looks_alike_stays_apart() {
        for apart in [
            [
                "Invoice 1001 of the harbour office was paid by Ana.",
                "Invoice 1002 of the harbour office was paid by Ana.",
            ],
            [
                "The server in Oslo must be restarted on Monday.",
                "The server in Oslo must not be restarted on Monday.",
            ],
            [
                "The key of the old vault is [REDACTED:a] now.",
                "The key of the old vault is [REDACTED:b] now.",
            ],
            ["I like tea.", "I like tar."],
        ] {
            assert_eq!(left(&apart), apart);
        }
    }

    #[test]
    fn the_newer_value_holds() {
        assert_eq!(left(&["I live in Porto.", "I live in Lisbon."]), ["I live in Lisbon."]);
        // Who says more than that is not overtaken.
        let more = ["I live in Porto. The rent is low.", "I live in Lisbon."];
        assert_eq!(left(&more), more);
        let mut tagged = put(&["I live in Porto.", "I live in Lisbon."]);
        tagged[0].tags.push("ana".to_owned());
        assert!(planned(&tagged).is_empty());
    }

    #[test]
    fn what_says_something_else_is_told_apart() {
        let overtaken = |contents: &[&str]| {
            let made = planned(&put(contents));
            let kept: Vec<usize> = made.replaced.iter().map(|(at, _)| *at).collect();
            (kept, made.overtaken.into_iter().collect::<Vec<_>>())
        };
        assert_eq!(overtaken(&["Plums are ripe.", "plums  ARE ripe"]), (vec![0], vec![]));
        let moved =
            ["I live in Porto.", "I live in Porto.", "I live in Lisbon.", "I live in Lisbon."];
        assert_eq!(overtaken(&moved), (vec![0, 1, 2], vec![0, 1]));
        let short = "The harbour office in Porto opens at dawn on weekdays";
        let long = "The harbour office in Porto always opens at dawn on weekdays.";
        assert_eq!(overtaken(&[short, long]), (vec![0], vec![0]));
        // What is written quotes what it is made of.
        let one = "Ana plans the harbour works in Porto with great care. She is kind.";
        let other = "Ana plans the harbour works in Porto with great care! He is kind.";
        assert_eq!(overtaken(&[one, other]), (vec![0, 1], vec![]));
    }

    #[test]
    fn intentions_stay() {
        let mut entries = put(&["call Ana", "call Ana"]);
        entries.iter_mut().for_each(|one| one.tags.push("commitment".to_owned()));
        assert!(planned(&entries).is_empty());
    }

    #[test]
    fn thousands_are_put_together() {
        let contents: Vec<String> = (0..3_000)
            .map(|n| {
                format!("Ship {} of the northern line calls at Kvalsund in the spring.", n % 1_000)
            })
            .collect();
        let contents: Vec<&str> = contents.iter().map(String::as_str).collect();
        assert_eq!(left(&contents).len(), 1_000);
    }

    fn any_entry() -> impl Strategy<Value = (String, u8, i64, Option<i64>)> {
        let words = prop::sample::select(vec![
            "the", "harbour", "office", "opens", "at", "dawn", "Dawn!", "not", "7", "Ana",
            "quietly.",
        ]);
        let content = prop_oneof![
            prop::collection::vec(words, 0..9).prop_map(|words| words.join(" ")),
            prop::sample::select(vec![
                "I live in Porto.",
                "I live in Lisbon.",
                "I LIVE IN LISBON",
                "My name is Ana.",
                "My name is Bo.",
                "The harbour office opens at dawn quietly. Ana waits.",
                "",
            ])
            .prop_map(str::to_owned),
        ];
        (content, 0..4_u8, 0_i64..4, prop::option::of(0_i64..3))
    }

    proptest! {
        #[test]
        fn what_holds_for_every_consolidation(
            drawn in prop::collection::vec(any_entry(), 0..24),
            seed in any::<prop::sample::Index>(),
        ) {
            let tags = [vec![], vec![], vec!["a".to_owned()], vec!["commitment".to_owned()]];
            let entries: Vec<Own> = drawn.iter().enumerate().map(|(at, (content, kind, day, end))| Own {
                id: format!("e{at:03}"),
                content: content.clone(),
                tags: tags[usize::from(*kind)].clone(),
                created_at: Millis(START + day),
                expires_at: end.map(|end| Millis(START * 2 + 1 + end)),
            }).collect();
            let made = planned(&entries);
            let after = carried_out(&entries, &made);
            prop_assert!(after.len() <= entries.len());
            prop_assert_eq!(after.is_empty(), entries.is_empty());
            prop_assert_eq!(made.is_empty(), made.outputs.is_empty() && after.len() == entries.len());
            let again = planned(&after);
            prop_assert!(again.is_empty(), "{:?} after {:?}", again, after);

            let mut turned = entries.clone();
            if !turned.is_empty() {
                let middle = seed.index(turned.len());
                turned.rotate_left(middle);
                turned.reverse();
            }
            let mut other = carried_out(&turned, &planned(&turned));
            let mut after = after;
            for one in other.iter_mut().chain(&mut after).filter(|one| one.id.starts_with("new-")) {
                one.id.clear();
            }
            other.sort();
            after.sort();
            prop_assert_eq!(other, after);

            for (at, stands) in &made.replaced {
                prop_assert!(!entries[*at].tags.contains(&"commitment".to_owned()));
                if let Stands::Kept(kept) = stands {
                    let is_same = compared_words(&entries[*at].content) == compared_words(&entries[*kept].content);
                    prop_assert_eq!(made.overtaken.contains(at), !is_same);
                    prop_assert!(!made.replaced.iter().any(|(other, _)| other == kept));
                }
            }
            for (place, output) in made.outputs.iter().enumerate() {
                let sources: Vec<&Own> = made.replaced.iter()
                    .filter(|(_, stands)| *stands == Stands::Output(place))
                    .map(|(at, _)| &entries[*at]).collect();
                prop_assert!(sources.len() >= 2);
                let first = sources.iter().filter_map(|one| one.expires_at).min();
                prop_assert_eq!(output.expires_at, first);
                prop_assert!(output.text.len() <= 2_000);
            }
        }
    }
}
