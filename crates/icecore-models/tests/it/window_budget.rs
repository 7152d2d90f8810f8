//! Windows counted with the real vocabulary, over text that joins in odd ways.

use icecore_domain::time::Millis;
use icecore_domain::tokens::TokenCounter;
use icecore_domain::window::{Candidate, Offer, Window, WindowKind};
use icecore_models::O200k;
use proptest::prelude::*;

fn turn(number: u64, label: &str, text: &str) -> Candidate {
    Candidate {
        kind: WindowKind::Turn,
        id: format!("t{number}"),
        tier: "hot",
        role: None,
        label: label.to_owned(),
        text: text.to_owned(),
        focus: 0,
        known_tokens: 0,
        at: Millis(number as i64 * 86_400_000),
        group: 0,
        span: (number, number),
        sources: Vec::new(),
        score: 0.0,
        reason: "recent".to_owned(),
    }
}

fn pack(recent: Vec<Candidate>, budget: u32, counter: &O200k) -> Window {
    let offer = Offer { recent, recent_percent: 100, ..Offer::default() };
    icecore_domain::window::pack(offer, budget, counter)
}

/// Texts without a space to break at.
fn unbroken() -> Vec<String> {
    let digits: String = (0..4_000).map(|n| char::from(b'0' + (n * 7 % 10) as u8)).collect();
    let letters: String = (0..4_000).map(|n| char::from(b'a' + (n * 11 % 26) as u8)).collect();
    let base64 = "aGVsbG8gd29ybGQhISEhISEhISE".repeat(100);
    vec![
        "氷河は雪が積もって固まったものです。".repeat(400),
        digits,
        letters,
        base64,
        "👍🏽".repeat(500),
        "\n".repeat(5_000),
        "a".repeat(20_000),
    ]
}

#[test]
fn one_turn_over_the_budget_is_cut_whatever_it_is_made_of() {
    let counter = O200k::default();
    for text in unbroken() {
        for budget in (30..120).chain([500, 2_000]) {
            let window = pack(vec![turn(1, "user", &text)], budget, &counter);
            let sample: String = text.chars().take(12).collect();
            assert_eq!(window.tokens, counter.count(&window.text));
            assert!(window.tokens <= budget);
            assert!(!window.items.is_empty(), "nothing of {sample:?} at {budget}");
            let is_used = window.tokens * 2 >= budget || text.trim().is_empty();
            assert!(is_used, "{} of {budget} for {sample:?}", window.tokens);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn never_over_and_never_empty_for_want_of_cutting(
        texts in prop::collection::vec("(?s).{0,300}", 1..12),
        label in "[a-zA-Z0-9 ]{1,12}",
        budget in 0_u32..600,
    ) {
        let counter = O200k::default();
        let turns: Vec<Candidate> =
            texts.iter().enumerate().rev().map(|(n, text)| turn(n as u64 + 1, &label, text)).collect();
        let window = pack(turns, budget, &counter);
        prop_assert!(window.tokens <= budget);
        prop_assert_eq!(window.tokens, counter.count(&window.text));
        prop_assert!(budget < 60 || !window.items.is_empty());
    }
}
