use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::*;

static REDACTOR: LazyLock<Redactor> = LazyLock::new(Redactor::standard);

fn is_right(case: &Case) -> bool {
    case.is_right(REDACTOR.text(&case.text).as_str())
}

#[test]
fn equal_seeds_make_equal_corpora() {
    assert!(positives(7, 1).eq(positives(7, 1)));
    assert!(negatives(7, 500).eq(negatives(7, 500)));
    assert!(!negatives(7, 500).eq(negatives(8, 500)));
    let first = positives(7, 1).next().unwrap();
    assert_ne!(Some(first), positives(8, 1).next());
}

#[test]
fn every_kind_is_met_everywhere() {
    let mut met = BTreeSet::new();
    for case in positives(1, 1) {
        let secret = &case.text[case.secret.clone().unwrap()];
        assert!(secret.len() >= LEAK_CHARS, "{}: {}", case.kind, case.masked());
        assert!(!case.text.contains(['\u{e000}', '\u{e001}']));
        met.insert((case.kind, case.setting, case.place));
    }
    let spots = SETTINGS.len() * Place::ALL.len();
    assert_eq!(met.len(), Redactor::kinds().len() * spots);
}

#[test]
fn a_few_characters_that_survive_are_a_leak() {
    let case = Case {
        kind: "token",
        text: "token=abcdefgh12345678 end".to_owned(),
        secret: Some(6..22),
        setting: "env",
        place: Place::End,
    };
    assert!(case.is_right("token=[REDACTED:token] end"));
    assert!(!case.is_right("token=[REDACTED:token]345678 end"));
    assert!(case.is_right("token=[REDACTED:token]45678 end"));
    assert!(!case.is_right("token= end"));
    assert!(!case.masked().contains("abcdef"));
}

#[test]
fn there_are_many_families_and_no_text_twice() {
    assert!(families().count() >= 20);
    let texts: BTreeSet<String> = negatives(1, 2_000).map(|case| case.text).collect();
    assert!(texts.len() > 1_900, "{}", texts.len());
}

#[test]
fn nothing_is_hidden_that_is_no_secret() {
    let wrong: Vec<String> = negatives(1, 2_000)
        .filter(|case| !is_right(case))
        .map(|case| format!("{}: {}\n  {}", case.kind, case.text, REDACTOR.text(&case.text)))
        .collect();
    assert!(wrong.len() <= 2, "{} hidden:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn secrets_are_found_everywhere() {
    let mut kinds: BTreeMap<&str, (usize, usize, Vec<String>)> = BTreeMap::new();
    for case in positives(1, 1) {
        let (found, all, missed) = kinds.entry(case.kind).or_default();
        *all += 1;
        match is_right(&case) {
            true => *found += 1,
            false => missed.push(format!("[{} {}] {}", case.setting, case.place.name(), case.masked().escape_debug())),
        }
    }
    let mut shown = String::new();
    for (kind, (found, all, missed)) in &kinds {
        if *found * 100 < *all * 95 {
            shown += &format!("{kind}: {found} of {all}\n  {}\n", missed.join("\n  "));
        }
    }
    let found: usize = kinds.values().map(|(found, ..)| found).sum();
    let all: usize = kinds.values().map(|(_, all, _)| all).sum();
    assert!(found * 1000 >= all * 990 && shown.is_empty(), "{found} of {all}\n{shown}");
}
