//! What holds of every floor and plan, whatever the messages.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::json::JsonText;
use crate::redact::RedactedTurn;
use crate::tokens::CharCounter;
use crate::turn::{Content, RawTurn};

fn turn(fields: RawTurn) -> Message {
    Message::new(RedactedTurn::read_back(fields), &CharCounter)
}

fn said(role: &str, text: &str) -> Message {
    turn(RawTurn::new(role, text))
}

fn calls(ids: &[&str]) -> Message {
    let calls: Vec<String> = ids.iter().map(|id| format!(r#"{{"id":"{id}"}}"#)).collect();
    let calls = JsonText::parse(&format!("[{}]", calls.join(","))).unwrap();
    turn(RawTurn {
        tool_calls: Some(calls),
        content: Content::Null,
        ..RawTurn::new("assistant", "")
    })
}

fn result(id: &str, text: &str) -> Message {
    turn(RawTurn { tool_call_id: Some(id.to_owned()), ..RawTurn::new("tool", text) })
}

fn parts(role: &str, json: &str) -> Message {
    let content = Content::Parts(JsonText::parse(json).unwrap());
    turn(RawTurn { content, ..RawTurn::new(role, "") })
}

fn pinned(message: Message) -> Message {
    let tags = Some(vec![PINNED_TAG.to_owned()]);
    turn(RawTurn { tags, ..message.turn.into_fields() })
}

#[test]
fn floors_hold_what_must_stay() {
    let check = |messages: &[Message], kept: &[usize]| {
        assert_eq!(floor(messages).kept, kept, "{messages:#?}");
    };
    check(&[], &[]);
    check(&[said("system", "s")], &[]);
    check(&[said("assistant", "hi")], &[]);
    check(&[result("a", "42"), result("b", "43")], &[]);
    check(&[said("user", "a"), said("assistant", "b"), said("user", "c")], &[2]);
    // The last calls, and not those that the model went on from.
    check(
        &[said("user", "q"), calls(&["a"]), result("a", "1"), calls(&["b", "c"]), result("c", "2")],
        &[0, 3, 4],
    );
    // Calls in messages of their own, and results in any order.
    check(
        &[said("user", "q"), calls(&["a"]), calls(&["b"]), result("b", "2"), result("a", "1")],
        &[0, 1, 2, 3, 4],
    );
    check(
        &[
            said("user", "q"),
            calls(&["a"]),
            said("assistant", "wait"),
            calls(&["b"]),
            result("a", "1"),
        ],
        &[0, 1, 3, 4],
    );
    // An id that is used again.
    check(
        &[said("user", "q"), calls(&["a"]), result("a", "1"), calls(&["a"]), result("a", "2")],
        &[0, 3, 4],
    );
    // A result before its call belongs to none.
    check(&[said("user", "q"), result("a", "1"), calls(&["a"])], &[0, 2]);
    // An answer in words ends it.
    check(&[said("user", "q"), calls(&["a"]), result("a", "1"), said("assistant", "so")], &[0]);
    // So does a person who goes on, unless a result is still to come.
    check(&[said("user", "q"), calls(&["a"]), result("a", "1"), said("user", "r")], &[3]);
    check(&[said("user", "q"), calls(&["a"]), said("user", "r")], &[1, 2]);
    // A person who speaks with a result.
    let spoken = r#"[{"type":"tool_result","tool_use_id":"a"},{"type":"text","text":"and?"}]"#;
    let used = r#"[{"type":"tool_use","id":"a","name":"ls","input":{}}]"#;
    check(&[said("user", "q"), parts("assistant", used), parts("user", spoken)], &[1, 2]);
    // Pinned turns bring their groups, and a result without its call does not stay.
    check(
        &[
            said("user", "q"),
            calls(&["a", "b"]),
            pinned(result("a", "1")),
            result("b", "2"),
            said("assistant", "so"),
            pinned(said("system", "rule")),
            pinned(result("z", "9")),
            said("user", "r"),
        ],
        &[1, 2, 3, 5, 7],
    );
    assert_eq!(unpaired(&[result("a", "1"), calls(&["a"]), result("a", "2")]), [0]);
    // Calls without ids are answered by what comes next.
    let nameless = || {
        let calls = Some(JsonText::parse(r#"[{"function":{"name":"f"}}]"#).unwrap());
        turn(RawTurn { tool_calls: calls, ..RawTurn::new("assistant", "") })
    };
    check(
        &[
            said("user", "q"),
            nameless(),
            said("tool", "1"),
            said("tool", "2"),
            nameless(),
            said("tool", "3"),
        ],
        &[0, 4, 5],
    );
    let system = [said("system", "a"), pinned(said("developer", "b")), said("user", "q")];
    assert_eq!(floor(&system).system, [0, 1]);
    assert_eq!(floor(&system).kept, [2]);
}

#[test]
fn a_request_is_known_to_be_answered() {
    let messages = [said("user", "q"), said("assistant", "so"), said("assistant", "and so")];
    let floor = floor(&messages);
    assert_eq!((floor.request, floor.answer), (Some(0), Some(2)));
    let open = [said("user", "q"), said("assistant", "so"), calls(&["a"])];
    assert_eq!(super::floor(&open).answer, None);
    let unread = [calls(&["a"]), result("a", "1"), said("user", "q")];
    assert_eq!(super::floor(&unread).unread, [0, 1]);
}

fn asked<'a>(messages: &'a [Message], window: u64, reserve: u64) -> PlanRequest<'a> {
    PlanRequest {
        messages,
        system: leading_system(messages),
        handoff_tokens: 0,
        beside_tokens: 0,
        window: SessionWindow { window, reserve },
        provider_permille: 1_000,
        most_handoff_tokens: 8_000,
        instructions_percent: 10,
        effort: Effort::First,
    }
}

#[test]
fn a_floor_that_fills_the_window_is_the_view() {
    let messages = [said("assistant", &"x".repeat(500)), said("user", &"y".repeat(96))];
    let full = plan(&asked(&messages, 150, 50)).unwrap();
    assert_eq!((full.floor_tokens, full.target_tokens, full.handoff_tokens), (100, 100, 0));
    assert_eq!((full.kept, full.distilled), (vec![1], vec![0]));
    let over = plan(&asked(&messages, 149, 50));
    assert_eq!(over, Err(ExceedsWindow { floor: 100, window: 149, reserve: 50 }));
    assert!(plan(&asked(&messages, 0, 0)).is_err());
    assert!(plan(&asked(&messages, 100, 101)).is_err());
    assert!(plan(&asked(&[], 0, 0)).is_ok());
}

#[test]
fn the_answer_stays_where_there_is_room() {
    let messages = |answer: usize| {
        [
            said("assistant", &"x".repeat(2_000)),
            said("user", "how?"),
            said("assistant", &"y".repeat(answer)),
        ]
    };
    let short = messages(100);
    assert_eq!(plan(&asked(&short, 2_000, 0)).unwrap().kept, [1, 2]);
    let escalated = PlanRequest { effort: Effort::Escalated, ..asked(&short, 2_000, 0) };
    assert_eq!(plan(&escalated).unwrap().kept, [1]);
    let long = messages(600);
    let planned = plan(&asked(&long, 2_000, 0)).unwrap();
    assert_eq!((planned.kept, planned.answer), (vec![1], Some(2)));
}

#[test]
fn what_stands_behind_the_request_stays_where_there_is_room() {
    let messages = |words: usize| {
        [
            said("user", "hello"),
            said("assistant", &"x".repeat(2_000)),
            said("user", "some files"),
            said("user", "do it"),
            said("system", &"j".repeat(words)),
        ]
    };
    let short = messages(100);
    assert_eq!(floor(&short).kept, [3]);
    assert_eq!(plan(&asked(&short, 2_000, 0)).unwrap().kept, [3, 4]);
    let escalated = PlanRequest { effort: Effort::Escalated, ..asked(&short, 2_000, 0) };
    assert_eq!(plan(&escalated).unwrap().kept, [3]);
    assert_eq!(plan(&asked(&messages(1_000), 2_000, 0)).unwrap().kept, [3]);
    // Behind results too, and nothing that a model has heard.
    let open = [said("user", "q"), calls(&["a"]), result("a", "1"), said("system", "Be brief.")];
    assert_eq!((floor(&open).kept, floor(&open).asked), (vec![0, 1, 2], vec![3]));
    let answered = [said("user", "q"), said("system", "s"), said("assistant", "a")];
    assert_eq!(floor(&answered).asked, [0; 0]);
}

#[test]
fn efforts_halve() {
    let messages: Vec<Message> =
        (0..100).map(|_| said("assistant", &"x".repeat(96))).chain([said("user", "go")]).collect();
    let planned = |effort| {
        let planned = plan(&PlanRequest { effort, ..asked(&messages, 9_000, 1_000) }).unwrap();
        (planned.target_tokens, planned.handoff_tokens, planned.instruction_tokens)
    };
    assert_eq!(planned(Effort::First), (4_000, 3_990, 900));
    assert_eq!(planned(Effort::Escalated), (2_000, 1_990, 597));
    assert_eq!(planned(Effort::Fresh), (106, 96, 96));
    let small = plan(&asked(&messages[90..], 9_000, 1_000)).unwrap();
    assert_eq!(small.target_tokens, 503);
    let tiny = plan(&asked(&messages[99..], 9_000, 1_000)).unwrap();
    assert_eq!((tiny.target_tokens, tiny.handoff_tokens), (74, 64));
}

#[test]
fn a_pinned_turn_behind_the_system_prompt_is_not_part_of_it() {
    // As a view is after a compaction: the handoff stands between the first two.
    let messages = [
        said("system", "s"),
        pinned(said("developer", "Only read.")),
        said("user", "q"),
        said("assistant", &"x".repeat(2_000)),
        said("user", "r"),
    ];
    let planned = plan(&PlanRequest { system: 1, ..asked(&messages, 2_000, 0) }).unwrap();
    assert_eq!((planned.system, planned.kept), (vec![0], vec![1, 4]));
    assert_eq!(planned.distilled, [2, 3]);
    let none = PlanRequest { system: 0, ..asked(&messages, 2_000, 0) };
    assert_eq!(plan(&none).unwrap().distilled, [0, 2, 3]);
    assert_eq!(floor_after(&messages, 99).kept, [0_usize; 0]);
}

#[test]
fn instructions_have_a_share_of_the_handoff_too() {
    let messages: Vec<Message> = (0..100)
        .map(|_| said("assistant", &"x".repeat(2_000)))
        .chain([said("user", "go")])
        .collect();
    let large = plan(&asked(&messages, 128_000, 8_000)).unwrap();
    assert_eq!((large.handoff_tokens, large.instruction_tokens), (8_000, 2_400));
    assert_eq!(large.clone().within(1_000).instruction_tokens, 300);
    assert_eq!(large.clone().within(500).instruction_tokens, LEAST_INSTRUCTION_TOKENS);
    assert_eq!(large.within(100).instruction_tokens, 100);
}

/// Any message: ids are few, so that they meet.
fn any_message() -> impl Strategy<Value = Message> {
    let id = || prop::sample::select(vec!["a", "b", "c", "d", ""]);
    let kinds = prop_oneof![
        4 => ("[a-z ]{0,60}").prop_map(|text| said("user", &text)),
        4 => ("[a-z ]{0,200}").prop_map(|text| said("assistant", &text)),
        1 => ("[a-z ]{0,60}").prop_map(|text| said("system", &text)),
        4 => prop::collection::vec(id(), 0..4).prop_map(|ids| calls(&ids)),
        4 => (id(), "[a-z]{0,300}").prop_map(|(id, text)| result(id, &text)),
        2 => id().prop_map(|id| parts("assistant", &format!(r#"[{{"type":"tool_use","id":"{id}","name":"f","input":{{}}}}]"#))),
        2 => (id(), id()).prop_map(|(a, b)| parts("user", &format!(
            r#"[{{"type":"tool_result","tool_use_id":"{a}"}},{{"type":"tool_result","tool_use_id":"{b}"}}]"#))),
        1 => id().prop_map(|id| parts("user", &format!(
            r#"[{{"type":"tool_result","tool_use_id":"{id}"}},{{"type":"text","text":"go"}}]"#))),
        1 => Just(said("tool", "no id")),
    ];
    (kinds, 0_u8..12).prop_map(|(message, pin)| if pin == 0 { pinned(message) } else { message })
}

fn any_effort() -> impl Strategy<Value = Effort> {
    prop::sample::select(vec![Effort::First, Effort::Escalated, Effort::Fresh])
}

/// Pairs of places: a call's and that of its result, by another way than the floor's.
fn pairs(messages: &[Message]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        for id in message.answers() {
            let has = |before: &usize| messages[*before].calls().contains(&id);
            found.extend((0..at).rev().find(has).map(|call| (call, at)));
        }
    }
    found
}

proptest! {
    #[test]
    fn no_plan_splits_a_pair_or_touches_the_floor(
        messages in prop::collection::vec(any_message(), 0..40),
        window in 0_u64..6_000, reserve in 0_u64..600, beside in 0_u64..300,
        permille in prop::sample::select(vec![0_u64, 500, 1_000, 1_300]),
        handoff in 0_u64..500, effort in any_effort(),
    ) {
        let below = floor(&messages);
        let request = PlanRequest {
            handoff_tokens: handoff,
            beside_tokens: beside,
            provider_permille: permille,
            effort,
            ..asked(&messages, window, reserve)
        };
        let scale = |tokens: u64| (tokens * if permille == 0 { 1_000 } else { permille }).div_ceil(1_000);
        let tokens = |places: &mut dyn Iterator<Item = &usize>, more: u64| {
            let sizes: Vec<u64> = places.map(|at| messages[*at].tokens).collect();
            let own = request_tokens(sizes.len() as u64, sizes.iter().sum());
            scale(own + beside + more)
        };
        let floor_tokens = tokens(&mut below.system.iter().chain(&below.kept), 0);
        let planned = match plan(&request) {
            Err(error) => {
                prop_assert!(floor_tokens + reserve > window);
                prop_assert_eq!(error.floor, floor_tokens);
                return Ok(());
            }
            Ok(planned) => planned,
        };
        prop_assert!(floor_tokens + reserve <= window);
        prop_assert_eq!(planned.floor_tokens, floor_tokens);
        let kept: BTreeSet<usize> = planned.kept.iter().copied().collect();
        prop_assert!(below.kept.iter().all(|at| kept.contains(at)));
        for (at, message) in messages.iter().enumerate().skip(below.system.len()) {
            let is_lone = !message.answers().is_empty() && !pairs(&messages).iter().any(|(_, result)| *result == at);
            prop_assert!(!is_pinned(message.turn.fields()) || kept.contains(&at) || is_lone);
        }
        for (call, result) in pairs(&messages) {
            let own = |at: usize| at >= below.system.len();
            // An id that is called twice may be answered for the first.
            let ids: Vec<String> = messages[result].answers();
            let twice = ids.iter().any(|id| messages[..=result].iter().filter(|m| m.calls().contains(id)).count() > 1);
            if own(call) && !twice {
                prop_assert_eq!(kept.contains(&call), kept.contains(&result), "{} {}", call, result);
            }
        }
        let lone = unpaired(&messages);
        prop_assert!(lone.iter().all(|at| !kept.contains(at)));
        let mut all: Vec<usize> = planned.system.iter().chain(&planned.kept).chain(&planned.distilled).copied().collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..messages.len()).collect::<Vec<_>>());
        prop_assert!(planned.kept.is_sorted());

        let handoff = match planned.handoff_tokens { 0 => 0, text => text + MESSAGE_TOKENS };
        let after = tokens(&mut planned.system.iter().chain(&planned.kept), handoff);
        prop_assert!(after <= planned.target_tokens, "{after} {planned:?}");
        prop_assert!(planned.target_tokens <= window - reserve);
        let half = (window - reserve) / 2;
        prop_assert!(planned.target_tokens <= half.max(floor_tokens + floor_tokens / 10));
        prop_assert_eq!(plan(&request).unwrap(), planned);
    }

    #[test]
    fn results_of_calls_come_along(
        ids in prop::collection::vec(0_u8..6, 1..30), rest in 0_usize..4,
    ) {
        // Each call once, in groups, interleaved: a valid transcript of an agent.
        let mut messages = vec![said("user", "q")];
        for (number, size) in ids.iter().enumerate() {
            let names: Vec<String> = (0..=*size).map(|call| format!("{number}-{call}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            messages.push(calls(&names));
            let is_last = number + 1 == ids.len();
            let done = if is_last { names.len().saturating_sub(rest) } else { names.len() };
            messages.extend(names[..done].iter().rev().map(|id| result(id, "out")));
        }
        let last = messages.iter().rposition(|message| !message.calls().is_empty()).unwrap();
        let expected: Vec<usize> = std::iter::once(0).chain(last..messages.len()).collect();
        prop_assert_eq!(floor(&messages).kept, expected);
    }
}
