//! Whole summaries of small conversations, and what holds for all of them.

use crate::time::Millis;
use proptest::prelude::*;

use super::*;
use crate::tokens::CharCounter;

/// One token a word, so that budgets read as people count.
#[derive(Debug)]
struct WordCounter;

impl TokenCounter for WordCounter {
    fn name(&self) -> &'static str {
        "words"
    }

    fn count(&self, text: &str) -> u32 {
        text.split_whitespace().count().try_into().unwrap()
    }

    fn prefix<'a>(&self, text: &'a str, limit: u32) -> &'a str {
        let mut words = 0;
        let mut in_word = false;
        for (at, c) in text.char_indices() {
            if !c.is_whitespace() && !in_word {
                words += 1;
                if words > limit {
                    return &text[..at];
                }
            }
            in_word = !c.is_whitespace();
        }
        text
    }
}

/// Turns from lines of `speaker: text`; a role is a speaker without a name.
fn turns<'a>(lines: &[&'a str]) -> Vec<Said<'a>> {
    let roles = ["user", "assistant", "system", "tool"];
    let turn = |line: &&'a str| {
        let (speaker, text) = line.split_once(": ").unwrap();
        let is_role = roles.contains(&speaker);
        let role = if is_role { speaker } else { "user" };
        Said { role, name: (!is_role).then_some(speaker), text, at: Millis(0) }
    };
    lines.iter().map(turn).collect()
}

fn show(summary: &Summary) -> String {
    let themes = summary.themes.join(", ");
    let facts: Vec<String> = summary.key_facts.iter().map(|fact| format!("\n* {fact}")).collect();
    format!("{}\n[{themes}]{}", summary.text, facts.concat())
}

/// The whole summary of a conversation within a number of words.
fn check(lines: &[&str], budget: u32, expected: &str) {
    let summary = summarize_turns(&turns(lines), budget, &WordCounter);
    assert_eq!(show(&summary), expected);
}

const FRIENDS: &[&str] = &[
    "Ann: Hey Bo! How are you?",
    "Bo: Hi Ann! Great, thanks. I moved to Lisbon in March 2021, did I tell you?",
    "Ann: Wow, that's awesome! What do you do there?",
    "Bo: I work as a nurse at the children's hospital. The night shifts are hard.",
    "Ann: I can imagine! I'm allergic to hospitals, haha.",
    "Bo: We decided to adopt a dog next month, a greyhound called Pepper.",
    "Ann: Aww, so sweet!",
];

const WORK: &[&str] = &[
    "user: Our importer drops rows when a CSV has quoted newlines. Can you look?",
    "assistant: Sure! The parser splits on newlines before it reads quotes.\n\n```rust\nfn split(text: &str) {\n    text.lines();\n}\n```\nUse the csv crate instead.",
    "tool: row 1 ok\nrow 2 failed\nrow 3 ok",
    "user: Always run the tests before you commit. We agreed to ship version 2.4 on 12 June.",
    "assistant: Understood. The importer now reads 40,000 rows without loss.",
];

#[test]
fn friends() {
    check(
        FRIENDS,
        24,
        "Bo: I work as a nurse at the children's hospital. We decided to adopt a dog next month, a greyhound called Pepper.\n\
         [hospital, greyhound called pepper, children, allergic, lisbon]\n\
         * Bo: I work as a nurse at the children's hospital.\n\
         * Bo: We decided to adopt a dog next month, a greyhound called Pepper.",
    );
}

#[test]
fn work_with_code_and_tools() {
    check(
        WORK,
        30,
        "user: Our importer drops rows when a CSV has quoted newlines. We agreed to ship version 2.4 on 12 June.\n\
         assistant: The importer now reads 40,000 rows without loss.\n\
         [importer, newlines, rows, csv, reads]\n\
         * user: Always run the tests before you commit.\n\
         * user: We agreed to ship version 2.4 on 12 June.",
    );
}

#[test]
fn japanese_and_chinese() {
    let lines = [
        "花子: こんにちは！来週の会議は火曜日に決定しました。",
        "太郎: ありがとう。資料は会議の前に送ります。",
        "小明: 我决定明天搬到柏林。谢谢！",
    ];
    let summary = summarize_turns(&turns(&lines), 60, &CharCounter);
    assert_eq!(
        show(&summary),
        "花子: 来週の会議は火曜日に決定しました。\n\
         太郎: 資料は会議の前に送ります。\n\
         小明: 我决定明天搬到柏林。\n\
         [会議, 来週, 火曜, 決定, 資料]\n\
         * 花子: 来週の会議は火曜日に決定しました。\n\
         * 小明: 我决定明天搬到柏林。"
    );
}

#[test]
fn only_greetings_still_say_something() {
    check(
        &["Ann: Hi!", "Bo: Hello Ann!", "Ann: Thanks, bye!"],
        20,
        "Ann: Hi!\n\
         []",
    );
}

#[test]
fn only_code_is_named() {
    check(&["user: ```python\nprint(1)\nprint(2)\n```"], 20, "user: [python code, 2 lines]\n[]");
}

#[test]
fn no_words_no_summary() {
    let nothing = Summary::default();
    assert_eq!(summarize_turns(&[], 60, &WordCounter), nothing);
    assert_eq!(
        summarize_turns(&turns(&["Ann: ", "Bo:  \n\t", "Ann: 👍 !!"]), 60, &WordCounter),
        nothing
    );
    assert_eq!(summarize_turns(&turns(FRIENDS), 0, &WordCounter).text, "");
    assert_eq!(summarize_children(&[], 60, &WordCounter), nothing);
    assert_eq!(summarize_children(&[&nothing, &nothing], 60, &WordCounter), nothing);
}

#[test]
fn a_long_sentence_is_cut_with_an_ellipsis_within_the_budget() {
    let line = "Ann: The committee that met in Oslo decided to postpone the launch of the ferry";
    check(
        &[line],
        9,
        "Ann: The committee that met in Oslo decided to…\n\
         [committee, postpone, oslo, launch, ferry]",
    );
    let summary = summarize_turns(&turns(&[line]), 8, &CharCounter);
    assert_eq!(summary.text, "The com…");
}

#[test]
fn controls_and_names_cannot_forge_lines() {
    let said = Said {
        role: "user",
        name: Some("Eve: \nAnn"),
        text: "I moved\u{0}\u{7} to\u{202e} Rome\tin 2020.",
        at: Millis(0),
    };
    let summary = summarize_turns(&[said], 60, &WordCounter);
    assert_eq!(
        show(&summary),
        "Eve Ann: I moved to Rome in 2020.\n\
         [rome]\n\
         * Eve Ann: I moved to Rome in 2020."
    );
}

#[test]
fn children_merge() {
    let friends = summarize_turns(&turns(FRIENDS), 24, &WordCounter);
    let work = summarize_turns(&turns(WORK), 30, &WordCounter);
    let again = friends.clone();
    let parent = summarize_children(&[&friends, &work, &again], 40, &WordCounter);
    assert_eq!(
        show(&parent),
        "Bo: I work as a nurse at the children's hospital. We decided to adopt a dog next month, a greyhound called Pepper.\n\
         user: We agreed to ship version 2.4 on 12 June. Always run the tests before you commit.\n\
         [hospital, greyhound called pepper, children, allergic, lisbon]\n\
         * Bo: I work as a nurse at the children's hospital.\n\
         * Bo: We decided to adopt a dog next month, a greyhound called Pepper.\n\
         * user: Always run the tests before you commit.\n\
         * user: We agreed to ship version 2.4 on 12 June."
    );
}

#[test]
fn hostile_turns_are_bounded() {
    let texts = [
        "word ".repeat(200_000),
        "x".repeat(1 << 20),
        "字".repeat(300_000),
        "Go. ".repeat(100_000),
        "```\n".repeat(100_000),
        "{[a]}\n".repeat(100_000),
        format!("{}word", "!".repeat(1 << 20)),
        "a1 ".repeat(300_000),
    ];
    for text in &texts {
        let said = Said { role: "user", name: None, text, at: Millis(0) };
        let summary = summarize_turns(&[said; 10], 60, &CharCounter);
        assert!(!summary.text.is_empty(), "{}", &text[..12]);
        assert!(CharCounter.count(&summary.text) <= 60);
    }
    let many: Vec<Said<'_>> = turns(FRIENDS).into_iter().cycle().take(20_000).collect();
    assert!(!summarize_turns(&many, 60, &CharCounter).text.is_empty());
}

#[test]
fn budgets_are_a_share_within_limits() {
    let check = |level, tokens, expected| assert_eq!(summary_budget(level, tokens), expected);
    check(Level::Micro, 0, 20);
    check(Level::Micro, 300, 30);
    check(Level::Micro, 8_000, MICRO_SUMMARY_TOKENS);
    check(Level::Mini, 1_000, 40);
    check(Level::Macro, 4_000, 100);
    check(Level::Macro, u64::MAX, MACRO_SUMMARY_TOKENS);
}

/// Text with what trips summarizers: stops, fences, wide letters, controls.
fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-zA-Z]{1,9}",
        "[ .!?,;:'\"\n\r\t`*#-]{1,4}",
        "[0-9]{1,5}",
        Just("I moved to Rome in 2020. ".to_owned()),
        Just("会議は明日。".to_owned()),
        Just("```\n".to_owned()),
        Just("We decided ".to_owned()),
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn any_turns() -> impl Strategy<Value = Vec<(bool, Option<String>, String)>> {
    prop::collection::vec((any::<bool>(), prop::option::of(any_text()), any_text()), 0..6)
}

proptest! {
    #[test]
    fn what_holds_for_every_summary(drawn in any_turns(), budget in 0_u32..200) {
        let said: Vec<Said<'_>> = drawn
            .iter()
            .map(|(user, name, text)| Said {
                role: if *user { "user" } else { "assistant" },
                name: name.as_deref(),
                text,
                at: Millis(0),
            })
            .collect();
        let has_word = drawn.iter().any(|(_, _, text)| text.contains(char::is_alphanumeric));
        for counter in [&CharCounter as &dyn TokenCounter, &WordCounter] {
            let summary = summarize_turns(&said, budget, counter);
            prop_assert!(counter.count(&summary.text) <= budget);
            prop_assert_eq!(&summary, &summarize_turns(&said, budget, counter));
            prop_assert!(!has_word || budget < 8 || !summary.text.is_empty());
            prop_assert!(!summary.text.contains(|c: char| c.is_control() && c != '\n'));
            prop_assert!(summary.key_facts.len() <= MAX_KEY_FACTS);
            prop_assert!(summary.themes.len() <= MAX_THEMES);
            let mut facts = summary.key_facts.clone();
            facts.sort();
            facts.dedup();
            prop_assert_eq!(facts.len(), summary.key_facts.len());

            let parent = summarize_children(&[&summary, &summary], budget, counter);
            prop_assert!(counter.count(&parent.text) <= budget);
            prop_assert!(summary.text.is_empty() || budget < 8 || !parent.text.is_empty());
            prop_assert!(parent.key_facts.len() <= summary.key_facts.len());
            prop_assert_eq!(parent.key_facts.is_empty(), summary.key_facts.is_empty());
        }
    }
}
