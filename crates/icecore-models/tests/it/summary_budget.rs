//! Budgets hold when counted by the vocabulary that is used in earnest.

use icecore_domain::summary::{summarize_children, summarize_turns};
use icecore_domain::text::Said;
use icecore_domain::time::Millis;
use icecore_domain::tokens::TokenCounter;
use icecore_models::O200k;
use proptest::prelude::*;

fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-zA-Z]{1,9} ",
        "[ .!?\n]{1,3}",
        Just("I moved to Rome in 2020. ".to_owned()),
        Just("会議は明日に決定しました。".to_owned()),
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn never_over_budget(
        texts in prop::collection::vec(any_text(), 0..8),
        name in prop::option::of("[A-Z][a-z]{1,9}"),
        budget in 0_u32..200,
    ) {
        let counter = O200k::default();
        let turns: Vec<Said<'_>> = texts
            .iter()
            .map(|text| Said { role: "user", name: name.as_deref(), text, at: Millis(0) })
            .collect();
        let summary = summarize_turns(&turns, budget, &counter);
        prop_assert!(counter.count(&summary.text) <= budget);
        let has_word = texts.iter().any(|text| text.contains(char::is_alphanumeric));
        prop_assert!(!has_word || budget < 8 || !summary.text.is_empty());
        let parent = summarize_children(&[&summary, &summary], budget / 2, &counter);
        prop_assert!(counter.count(&parent.text) <= budget / 2);
    }
}
