//! Many entries compacted into one.
//!
//! What they say is put together by day, each thing once. It stays whole where that
//! is short enough; of more, the sentences that say most are kept
//! ([`choose_sentences`]). The sources stay readable, so that nothing is lost.

pub mod model;

use std::collections::BTreeMap;

use super::{COMPACTED_FROM, Entry, EntryKind};
use crate::summary::choose_sentences;
use crate::text::{ELLIPSIS, compared_words, whole_markers};
use crate::time::Millis;

/// Up to this size everything is kept verbatim.
pub const WHOLE_BYTES: usize = 4 << 10;

/// Of more than that, one part in so many is kept.
pub const KEPT_PART: usize = 4;

/// Where entries are kept apart, those that are pressed into one are at least one part in
/// so many of what was looked at: few of many are not worth the reading.
const SMALLEST_PART: usize = 250;

/// `2026-01-01: `
const DAY_BYTES: usize = 12;

/// What bounds a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most entries that become one.
    pub max_input_entries: usize,
    /// Bytes of what is written, as UTF-8.
    pub max_output_bytes: usize,
    /// Whether only entries of one [`EntryKind`] are pressed together. What stands for all
    /// ends with the first of them, and then the others are back; and it has the tags
    /// that all have, so that by any other tag none of them would be found.
    pub apart: bool,
}

/// One entry in place of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionPlan {
    /// The entries that it stands for, by their places.
    pub sources: Vec<usize>,
    pub text: String,
    /// The tags that all of them have.
    pub tags: Vec<String>,
    /// When the first of them ends: it quotes nothing longer than that.
    pub expires_at: Option<Millis>,
}

/// One entry in place of the first of `entries`, which come oldest first, or of the
/// first of the largest [`EntryKind`]. Nothing if there are fewer than two that
/// may be replaced.
pub fn plan(entries: &[Entry<'_>], limits: &Limits) -> Option<CompactionPlan> {
    let free = (0..entries.len()).filter(|at| !entries[*at].is_left_alone());
    let mut sources: Vec<usize> =
        if limits.apart { largest_group(entries, free) } else { free.collect() };
    sources.truncate(limits.max_input_entries);
    if sources.len() < 2 {
        return None;
    }
    let input: Vec<&Entry<'_>> = sources.iter().map(|at| &entries[*at]).collect();
    Some(CompactionPlan {
        text: pressed(&input, limits.max_output_bytes),
        tags: shared_tags(&input),
        expires_at: input.iter().filter_map(|entry| entry.expires_at).min(),
        sources,
    })
}

/// The entries of the kind of which there are most, if they are worth it.
fn largest_group(entries: &[Entry<'_>], free: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut groups: BTreeMap<EntryKind, Vec<usize>> = BTreeMap::new();
    for at in free {
        groups.entry(entries[at].kind()).or_default().push(at);
    }
    // Of as many, those that last, then those that end first.
    let mut largest = groups.into_values().rev().max_by_key(Vec::len).unwrap_or_default();
    if largest.len().saturating_mul(SMALLEST_PART) < entries.len() {
        largest.clear();
    }
    largest
}

/// Tags of every one of them, but for those that name a run.
fn shared_tags(entries: &[&Entry<'_>]) -> Vec<String> {
    let first = entries.first().map_or(&[][..], |entry| entry.tags);
    let is_shared = |tag: &&&str| entries.iter().all(|entry| entry.tags.contains(tag));
    let shared = first.iter().filter(|tag| !tag.starts_with(COMPACTED_FROM)).filter(is_shared);
    shared.map(|tag| (*tag).to_owned()).collect()
}

/// What entries say, in at most `max_bytes`.
fn pressed(entries: &[&Entry<'_>], max_bytes: usize) -> String {
    let said: usize = entries.iter().map(|entry| entry.content.len()).sum();
    let budget = max_bytes.min(WHOLE_BYTES.max(said / KEPT_PART));
    let blocks = distinct(entries.iter().flat_map(|entry| blocks(entry)).collect());
    let whole = lines(blocks.iter().map(|block| (block.day.as_str(), block.text)));
    if whole.len() <= budget { whole } else { chosen(&blocks, budget) }
}

/// Something that was said on a day.
struct Block<'a> {
    day: String,
    text: &'a str,
}

/// The notes of an entry: one, or those of the entries it was compacted from.
fn blocks<'a>(entry: &Entry<'a>) -> Vec<Block<'a>> {
    let day = entry.created_at.to_date();
    let text = entry.content.trim();
    if text.is_empty() {
        return Vec::new();
    }
    if !entry.is_compacted() {
        return vec![Block { day, text }];
    }
    // Each line of it that begins with a day begins what was said then.
    let mut starts: Vec<usize> = vec![0];
    let breaks = text.match_indices('\n').map(|(at, _)| at + 1);
    starts.extend(breaks.filter(|at| dated(&text[*at..]).is_some()));
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let parts = starts.iter().zip(ends).map(|(start, end)| text[*start..end].trim());
    let block = |part| match dated(part) {
        Some((of, text)) => Block { day: of.to_owned(), text },
        None => Block { day: day.clone(), text: part },
    };
    parts.map(block).filter(|block| !block.text.is_empty()).collect()
}

/// The day and the rest of `2026-01-01: The north gate sticks.`
fn dated(line: &str) -> Option<(&str, &str)> {
    let (day, rest) = line.split_at_checked(DAY_BYTES - 2)?;
    let is_day = day.bytes().enumerate().all(|(at, byte)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    rest.strip_prefix(": ").filter(|_| is_day).map(|text| (day, text.trim()))
}

/// The blocks by day, what was said again only where it was said last.
fn distinct(blocks: Vec<Block<'_>>) -> Vec<Block<'_>> {
    let mut blocks = blocks;
    blocks.sort_by(|a, b| a.day.cmp(&b.day));
    let key = |block: &Block<'_>| compared_words(block.text);
    let last: BTreeMap<Vec<String>, usize> =
        blocks.iter().enumerate().map(|(at, block)| (key(block), at)).collect();
    let mut at = 0;
    blocks.retain(|block| {
        at += 1;
        last.get(&key(block)) == Some(&(at - 1))
    });
    blocks
}

/// Dated lines.
fn lines<'a>(said: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let lines: Vec<String> = said.map(|(day, text)| format!("{day}: {text}")).collect();
    lines.join("\n")
}

/// The sentences that say most, in at most `budget` bytes.
fn chosen(blocks: &[Block<'_>], budget: usize) -> String {
    let texts: Vec<&str> = blocks.iter().map(|block| block.text).collect();
    // Sentences of one text go on one line, with a stop between them if need be.
    let cost = |sentence: &str, is_first: bool| {
        if is_first { sentence.len() + DAY_BYTES + "\n".len() } else { sentence.len() + ". ".len() }
    };
    let mut said: Vec<(&str, usize, String)> = Vec::new();
    for one in choose_sentences(&texts, budget, cost) {
        match said.last_mut().filter(|(_, text, _)| *text == one.text) {
            Some((_, _, line)) => {
                line.push_str(if line.ends_with(char::is_alphanumeric) { ". " } else { " " });
                line.push_str(&one.sentence);
            }
            None => said.push((&blocks[one.text].day, one.text, one.sentence)),
        }
    }
    if said.is_empty() {
        best_cut(&texts, budget)
    } else {
        lines(said.iter().map(|(day, _, line)| (*day, line.as_str())))
    }
}

/// The best sentence of all, as much of it as there is room for.
fn best_cut(texts: &[&str], budget: usize) -> String {
    let shortest = |sentence: &str, _: bool| sentence.len().min(1);
    let best = choose_sentences(texts, 1, shortest).into_iter().next();
    let best = best.map_or(String::new(), |one| one.sentence);
    if best.len() <= budget {
        return best;
    }
    let Some(room) = budget.checked_sub(ELLIPSIS.len()) else { return String::new() };
    let head = &best[..best.floor_char_boundary(room)];
    let head = whole_markers(head).trim_end();
    if head.is_empty() { String::new() } else { format!("{head}{ELLIPSIS}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: i64 = 24 * 3600 * 1000;

    const AMPLE: Limits =
        Limits { max_input_entries: 1_000, max_output_bytes: 65_536, apart: false };

    fn entry<'a>(content: &'a str, day: i64, tags: &'a [&'a str]) -> Entry<'a> {
        let created_at = Millis(1_767_225_600_000 + day * DAY);
        Entry { id: content, content, tags, created_at, expires_at: None }
    }

    fn said(contents: &[&str]) -> String {
        let entries: Vec<Entry<'_>> =
            (0..).zip(contents).map(|(day, content)| entry(content, day, &[])).collect();
        plan(&entries, &AMPLE).unwrap().text
    }

    #[test]
    fn what_is_short_stays_whole() {
        let expected = "2026-01-01: Plums are ripe.\n2026-01-02: Figs are\nnot.";
        assert_eq!(said(&["Plums are ripe. ", "Figs are\nnot."]), expected);
        let expected = "2026-01-02: Figs are not.\n2026-01-03: PLUMS are ripe!";
        assert_eq!(said(&["Plums are ripe.", "Figs are not.", "PLUMS are ripe!"]), expected);
        assert_eq!(said(&["", " "]), "");
        assert_eq!(said(&["-5 degrees", "5 degrees"]).lines().count(), 2);
        assert_eq!(said(&["!!!", "???"]), "2026-01-01: !!!\n2026-01-02: ???");
    }

    #[test]
    fn one_alone_is_not_compacted() {
        assert_eq!(plan(&[], &AMPLE), None);
        assert_eq!(plan(&[entry("alone", 0, &[])], &AMPLE), None);
        let due = entry("call Ana", 0, &["commitment"]);
        assert_eq!(plan(&[entry("alone", 0, &[]), due], &AMPLE), None);
        let few = Limits { max_input_entries: 1, ..AMPLE };
        assert_eq!(plan(&[entry("a", 0, &[]), entry("b", 0, &[])], &few), None);
    }

    #[test]
    fn commitments_are_passed_over() {
        let tags = ["commitment"];
        let entries = [
            entry("a", 0, &[]),
            entry("call Ana", 1, &tags),
            entry("b", 2, &[]),
            entry("c", 3, &[]),
        ];
        let two = Limits { max_input_entries: 2, ..AMPLE };
        let made = plan(&entries, &two).unwrap();
        assert_eq!(
            (made.sources, made.text.as_str()),
            (vec![0, 2], "2026-01-01: a\n2026-01-03: b")
        );
    }

    #[test]
    fn what_was_compacted_is_taken_apart_again() {
        let tags = ["compacted-from:x1"];
        let first = "2026-01-05: Figs are\nnot.\n2026-01-07: Pears fell.";
        let entries = [entry("Plums are ripe.", 5, &[]), entry(first, 9, &tags)];
        let expected =
            "2026-01-05: Figs are\nnot.\n2026-01-06: Plums are ripe.\n2026-01-07: Pears fell.";
        let made = plan(&entries, &AMPLE).unwrap();
        assert_eq!((made.text.as_str(), made.tags), (expected, Vec::<String>::new()));
        let foreign = [entry("by hand", 1, &tags), entry("other", 1, &tags)];
        assert_eq!(plan(&foreign, &AMPLE).unwrap().text, "2026-01-02: by hand\n2026-01-02: other");
    }

    #[test]
    fn the_first_to_expire_decides() {
        let until = |content, at| Entry { expires_at: at, ..entry(content, 0, &["a", "b"]) };
        let entries = [until("x", None), until("y", Some(Millis(9))), until("z", Some(Millis(7)))];
        let made = plan(&entries, &AMPLE).unwrap();
        assert_eq!(made.expires_at, Some(Millis(7)));
        assert_eq!(made.tags, ["a", "b"]);
        assert_eq!(plan(&entries[..2], &AMPLE).unwrap().expires_at, Some(Millis(9)));
    }

    #[test]
    fn what_ends_is_kept_apart_from_what_lasts() {
        let apart = Limits { apart: true, ..AMPLE };
        let until = |content, at: Option<i64>| {
            let expires_at = at.map(|at| Millis(at * DAY));
            Entry { expires_at, ..entry(content, 0, &[]) }
        };
        let check = |ends: &[Option<i64>], expected: Option<&[usize]>| {
            let entries: Vec<Entry<'_>> = ends.iter().map(|end| until("x", *end)).collect();
            let made = plan(&entries, &apart).map(|made| made.sources);
            assert_eq!(made.as_deref(), expected, "{ends:?}");
        };
        check(&[None, Some(1), None], Some(&[0, 2]));
        check(&[Some(1), None, Some(2), None, Some(1)], Some(&[1, 3]));
        check(&[Some(2), None, Some(2), None, Some(2)], Some(&[0, 2, 4]));
        check(&[Some(2), Some(1), Some(2), Some(1)], Some(&[1, 3]));
        check(&[None, Some(1), Some(2)], None);
        check(&[], None);
    }

    #[test]
    fn tags_are_kept_apart() {
        let apart = Limits { apart: true, ..AMPLE };
        let check = |tags: &[&[&str]], expected: Option<(&[usize], &[&str])>| {
            let entries: Vec<Entry<'_>> = tags.iter().map(|tags| entry("x", 0, tags)).collect();
            let made = plan(&entries, &apart).map(|made| (made.sources, made.tags));
            let expected = expected.map(|(sources, tags)| {
                (sources.to_vec(), tags.iter().map(|tag| (*tag).to_owned()).collect())
            });
            assert_eq!(made, expected, "{tags:?}");
        };
        check(&[&["a"], &[], &["a"], &["b"]], Some((&[0, 2], &["a"])));
        check(&[&["a"], &["a", "b"], &["b", "a"]], Some((&[1, 2], &["a", "b"])));
        check(&[&["a"], &["compacted-from:r", "a"]], Some((&[0, 1], &["a"])));
        check(&[&["a"], &["b"], &[]], None);
    }

    #[test]
    fn few_of_many_are_not_worth_it() {
        let apart = Limits { apart: true, ..AMPLE };
        let names: Vec<String> = (0..2 * SMALLEST_PART).map(|n| format!("n{n}")).collect();
        let mut tags: Vec<[&str; 1]> = names.iter().map(|name| [name.as_str()]).collect();
        tags[7] = tags[3];
        let made = |tags: &[[&str; 1]]| {
            let entries: Vec<Entry<'_>> = tags.iter().map(|tags| entry("x", 0, tags)).collect();
            plan(&entries, &apart).map(|made| made.sources)
        };
        assert_eq!(made(&tags), Some(vec![3, 7]));
        tags.push(["one more"]);
        assert_eq!(made(&tags), None);
    }

    #[test]
    fn of_much_the_weighty_is_kept() {
        let mut contents: Vec<String> = (0..400)
            .map(|n| {
                format!("Thanks, that sounds nice and lovely, number {n} of the chats was fun.")
            })
            .collect();
        contents[200] = "We decided to move the ledger to Postgres on 3 March 2026.".to_owned();
        contents[300] =
            "The old key was [REDACTED:github-token] and must never be used.".to_owned();
        let contents: Vec<&str> = contents.iter().map(String::as_str).collect();
        let text = said(&contents);
        assert!(text.len() <= contents.iter().map(|c| c.len()).sum::<usize>() / KEPT_PART);
        assert!(text.contains(contents[200]), "{text}");
        assert!(text.contains(contents[300]), "{text}");
    }

    #[test]
    fn little_room_is_filled_with_care() {
        let long = "The vault in Bergen opens with [REDACTED:github-token] at nine";
        let entries = [entry(long, 0, &[]), entry("ok", 0, &[])];
        for max_output_bytes in 0..100 {
            let limits = Limits { max_output_bytes, ..AMPLE };
            let text = plan(&entries, &limits).unwrap().text;
            assert!(text.len() <= max_output_bytes, "{max_output_bytes}: {text}");
            let has_marker = text.contains("[REDACTED:github-token]");
            assert!(has_marker || !text.contains("[RED"), "{max_output_bytes}: {text}");
        }
    }

    fn any_content() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-zA-Zé字.!?\n ]{0,80}",
            Just("The ferry leaves at nine.".to_owned()),
            Just("The key is [REDACTED:github-token], said Ana.".to_owned()),
            Just("2026-01-01: as if it were dated".to_owned()),
            "(We decided on [a-z]{3,9} in 20[0-9]{2}\\. ){1,90}",
        ]
    }

    proptest! {
        #[test]
        fn what_holds_for_every_compaction(
            contents in prop::collection::vec((any_content(), 0_i64..9, 0..4_u8), 0..40),
            max_input_entries in 0_usize..50,
            max_output_bytes in prop_oneof![0_usize..200, 0_usize..9_000],
        ) {
            let tags: [&[&str]; 4] = [&[], &["a"], &["commitment"], &["compacted-from:r1"]];
            let entries: Vec<Entry<'_>> = contents
                .iter()
                .map(|(content, day, kind)| entry(content, *day, tags[usize::from(*kind)]))
                .collect();
            let limits = Limits { max_input_entries, max_output_bytes, apart: false };
            let made = plan(&entries, &limits);
            prop_assert_eq!(&made, &plan(&entries, &limits));
            let free = entries.iter().filter(|entry| !entry.is_left_alone()).count();
            let taken = free.min(max_input_entries);
            prop_assert_eq!(made.is_some(), taken >= 2);
            if let Some(made) = made {
                prop_assert_eq!(made.sources.len(), taken);
                prop_assert!(made.sources.iter().all(|at| !entries[*at].is_left_alone()));
                prop_assert!(made.text.len() <= max_output_bytes);
                for (at, _) in made.text.match_indices("[REDACTED:") {
                    prop_assert!(made.text[at..].starts_with("[REDACTED:github-token]"));
                }
                let said: usize = made.sources.iter().map(|at| entries[*at].content.len()).sum();
                prop_assert!(made.text.len() <= WHOLE_BYTES.max(said / KEPT_PART));
            }
        }
    }
}
