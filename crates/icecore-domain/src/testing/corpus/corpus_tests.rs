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
        // The shortest is a PIN.
        assert!(secret.len() >= 4, "{}: {}", case.kind, case.masked());
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

/// One in a thousand, as is promised.
const MAX_HIDDEN: usize = 2;

#[test]
fn nothing_is_hidden_that_is_no_secret() {
    let wrong: Vec<String> = negatives(1, 2_000)
        .filter(|case| !is_right(case))
        .map(|case| format!("{}: {}\n  {}", case.kind, case.text, REDACTOR.text(&case.text)))
        .collect();
    assert!(wrong.len() <= MAX_HIDDEN, "{} hidden:\n{}", wrong.len(), wrong.join("\n"));
}

/// What is promised, in hundredths of a percent.
const MIN_RECALL: usize = 9_900;
const MIN_RECALL_OF_WORST: usize = 9_500;

#[test]
fn secrets_are_found_everywhere() {
    let mut kinds: BTreeMap<&str, (usize, Vec<Case>)> = BTreeMap::new();
    for case in positives(1, 1) {
        let (all, missed) = kinds.entry(case.kind).or_default();
        *all += 1;
        if !is_right(&case) {
            missed.push(case);
        }
    }
    let share = |all: usize, missed: usize| (all - missed) * 10_000 / all;
    let all = kinds.values().map(|(all, _)| all).sum();
    let missed: Vec<&Case> = kinds.values().flat_map(|(_, missed)| missed).collect();
    let told = |case: &&Case| {
        let text = case.masked();
        format!("{} [{} {}] {}", case.kind, case.setting, case.place.name(), text.escape_debug())
    };
    let told: Vec<String> = missed.iter().map(told).collect();
    assert!(share(all, missed.len()) >= MIN_RECALL, "of {all} missed:\n{}", told.join("\n"));
    let worst = kinds.values().map(|(all, missed)| share(*all, missed.len())).min();
    assert!(worst >= Some(MIN_RECALL_OF_WORST), "worst {worst:?}:\n{}", told.join("\n"));
}
