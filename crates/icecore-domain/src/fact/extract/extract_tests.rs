use proptest::prelude::*;

use super::*;
use crate::fact::KnownTexts;

/// A Wednesday.
const AT: &str = "2023-06-14T10:30:00Z";

fn at() -> Millis {
    Millis::parse_rfc3339(AT).unwrap()
}

fn facts_of(role: &str, name: Option<&str>, text: &str) -> Vec<Fact> {
    extract(&Said { role, name, text, at: at() }, None)
}

/// Each expected fact is `kind/attribute/value → text`.
fn check(text: &str, expected: &[&str]) {
    let found: Vec<String> = facts_of("user", Some("Ana"), text)
        .iter()
        .map(|f| format!("{}/{}/{} → {}", f.kind.as_str(), f.attribute, f.value, f.text))
        .collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn who_somebody_is() {
    check("My name is Ana Silva.", &["identity/name/Ana Silva → Ana's name is Ana Silva."]);
    check("Hi! I live in Lisbon now.", &["identity/home/Lisbon → Ana lives in Lisbon now."]);
    check("I moved to Porto in 2021.", &["identity/home/Porto → Ana moved to Porto in 2021."]);
    check(
        "I'm from Sweden originally",
        &["identity/origin/Sweden → Ana is from Sweden originally."],
    );
    check("I work as a nurse, you know.", &["identity/job/a nurse → Ana works as a nurse."]);
    check(
        "I'm a software engineer at Acme.",
        &["identity/job/software engineer at Acme → Ana is a software engineer at Acme."],
    );
    check("I'm 34 years old.", &["identity/age/34 → Ana is 34 years old."]);
    check(
        "My birthday is 3 May.",
        &["identity/birthday/3 May → Ana's birthday is 3 May (2023-05-03)."],
    );
    check(
        "I have two kids and a dog.",
        &["identity/number of kids/two → Ana has two kids and a dog."],
    );
    check(
        "I'm allergic to peanuts.",
        &["constraint//I'm allergic to peanuts → Ana is allergic to peanuts."],
    );
    check(
        "I speak Danish and Thai.",
        &["identity//I speak Danish and Thai → Ana speaks Danish and Thai."],
    );
    check("I'm vegetarian.", &["identity/diet/vegetarian → Ana is vegetarian."]);
}

#[test]
fn what_somebody_likes() {
    check(
        "I prefer tea over coffee, can you suggest some?",
        &["preference//I prefer tea over coffee → Ana prefers tea over coffee."],
    );
    check(
        "I really love baking bread!",
        &["preference//I really love baking bread → Ana really loves baking bread."],
    );
    check(
        "I don't like loud bars.",
        &["preference//I don't like loud bars → Ana does not like loud bars."],
    );
    check(
        "My favorite color is teal.",
        &["preference/favourite color/teal → Ana's favorite color is teal."],
    );
    check(
        "I'm a big fan of jazz.",
        &["preference//I'm a big fan of jazz → Ana is a big fan of jazz."],
    );
}

#[test]
fn what_was_settled_and_must_hold() {
    check(
        "We decided to ship the importer first.",
        &[
            "decision//We decided to ship the importer first → Ana: We decided to ship the importer first.",
        ],
    );
    check(
        "I've switched to Postgres because it is faster.",
        &["decision//I've switched to Postgres → Ana has switched to Postgres."],
    );
    check(
        "I have a deadline of 3 July 2023 for the grant.",
        &[
            "constraint/deadline of the grant/3 July 2023 → Ana has a deadline of 3 July 2023 for the grant.",
        ],
    );
    check("My budget is 300 euros.", &["constraint/budget/300 euros → Ana's budget is 300 euros."]);
    check(
        "The deadline for the grant is 5 July 2023.",
        &[
            "constraint/deadline of the grant/5 July 2023 → The deadline for the grant is 5 July 2023.",
        ],
    );
    check(
        "I need to submit the thesis by next Friday.",
        &[
            "constraint//I need to submit the thesis by next Friday → Ana needs to submit the thesis by next Friday (2023-06-16).",
        ],
    );
}

#[test]
fn how_to_answer() {
    check(
        "Always show prices in euros when I ask about travel.",
        &[
            "instruction//Always show prices in euros when I ask about travel. → Ana asks: Always show prices in euros when I ask about travel.",
        ],
    );
    check(
        "From now on, please answer in Portuguese.",
        &[
            "instruction//From now on, please answer in Portuguese. → Ana asks: From now on, please answer in Portuguese.",
        ],
    );
}

#[test]
fn plans_and_events_have_dates() {
    check(
        "I'm planning to visit Kyoto next month.",
        &[
            "plan//I'm planning to visit Kyoto next month → Ana is planning to visit Kyoto next month (2023-07).",
        ],
    );
    check(
        "Yesterday, I ran my first marathon.",
        &["event//I ran my first marathon → Yesterday, Ana ran their first marathon (2023-06-13)."],
    );
    check(
        "We adopted a puppy last week!",
        &[
            "event//We adopted a puppy last week → Ana: We adopted a puppy last week (2023-06-05 to 2023-06-11).",
        ],
    );
    check(
        "I broke my arm in 2019 and I quit climbing.",
        &["event//I broke my arm in 2019 → Ana broke their arm in 2019."],
    );
    let facts = facts_of("user", Some("Ana"), "I met Bo at a concert two days ago.");
    assert_eq!(facts[0].valid_from.to_date(), "2023-06-12");
}

#[test]
fn what_states_nothing_of_its_own_is_no_fact() {
    for text in [
        "",
        "Hi!",
        "Thanks a lot!",
        "How are you?",
        "Do I live in Lisbon?",
        "Where did we go last week?",
        "If I lived in Lisbon, I would surf.",
        "I wish I lived in Lisbon.",
        "Imagine I live in Lisbon.",
        "Maybe I live in Lisbon.",
        "I love their work.",
        "I like seeing them eat.",
        "I will come over tomorrow if that is fine.",
        "I love that!",
        "I love it.",
        "I love your painting.",
        "I can't wait!",
        "I can't believe it.",
        "I like how you think.",
        "That's great, Ana!",
        "I see.",
        "I agree.",
        "She said \"I live in Lisbon.\"",
        "“I live in Lisbon.”",
        "> I live in Lisbon.",
        "```\nI live in Lisbon.\n```",
        "{\"text\": [\"I live in Lisbon\"], \"a\": {}}",
        "I'm a bit tired.",
        "I'm a total mess.",
        "I have a question.",
        "I have a problem with it.",
        "I had a great time.",
        "I went there.",
        "It was fun last week.",
        "You live in Lisbon.",
        "He moved to Porto.",
        "Would you say I prefer tea?",
        "I'd love to!",
        "I hope so.",
        "Can you always be so kind",
        "When I lived in Rome, I was happy.",
        "What if I decided to leave my job?",
        "I was wondering if I decided right?",
        "[shares a photo: I live in Lisbon]",
        "Let me know if I prefer tea.",
        "🙂🙂🙂",
    ] {
        check(text, &[]);
    }
}

#[test]
fn only_people_state_facts() {
    let text = "I live in Lisbon.";
    for (role, name, count) in [
        ("user", None, 1),
        ("assistant", Some("Bo"), 1),
        ("assistant", None, 0),
        ("tool", Some("search"), 0),
        ("system", None, 0),
    ] {
        assert_eq!(facts_of(role, name, text).len(), count, "{role}");
    }
    assert_eq!(facts_of("user", None, text)[0].text, "The user lives in Lisbon.");
    assert_eq!(facts_of("user", None, text)[0].subject, "user");
}

#[test]
fn a_short_answer_to_a_plain_question_is_one() {
    let ask = |question: &str, answer: &str| {
        let asked = Said { role: "assistant", name: None, text: question, at: at() };
        let said = Said { role: "user", name: None, text: answer, at: at() };
        extract(&said, Some(&asked)).into_iter().map(|fact| fact.text).collect::<Vec<_>>()
    };
    assert_eq!(ask("Nice! Where do you live?", "In Oslo."), ["The user's home is Oslo."]);
    assert_eq!(
        ask("What's your favorite fruit?", "Mangoes!"),
        ["The user's favourite fruit is Mangoes."]
    );
    assert!(ask("Where do you live?", "I would not say").is_empty());
    assert!(ask("Where do you live", "Oslo").is_empty());
    assert!(ask("Where is it?", "Oslo").is_empty());
}

#[test]
fn what_recall_put_there_is_not_learned() {
    let window = "[2023-06-01]\nAna: I live in Lisbon.\nSummary of 1 to 4: I prefer tea.\n";
    check(window, &[]);
    check(
        &format!("{window}\nI work as a nurse."),
        &["identity/job/a nurse → Ana works as a nurse."],
    );
    check("<icecore-context>\nI live in Lisbon.\n</icecore-context>\n", &[]);
    check("Ana lives in Lisbon. Ana: I prefer tea. Ana asks: Always answer in verse.", &[]);
    let facts = facts_of("user", None, "I live in Lisbon.");
    let known: KnownTexts = ["I live in Lisbon"].into_iter().collect();
    assert!(known.is_echo(&facts[0]));
    let known: KnownTexts = [facts[0].text.as_str()].into_iter().collect();
    assert!(!known.is_echo(&facts[0]), "saying it again in person is no echo");
}

#[test]
fn long_turns_give_a_few_facts() {
    let text = "I like apples. ".repeat(10)
        + &(0..40).map(|n| format!("I like fruit{n}. ")).collect::<String>();
    assert_eq!(facts_of("user", None, &text).len(), MAX_FACTS_A_TURN);
    let late = format!("{}\nI live in Lisbon.", "é ".repeat(MAX_READ_CHARS));
    assert!(facts_of("user", None, &late).is_empty());
}

proptest! {
    #[test]
    fn any_text_is_read_the_same_twice_and_quoted_letter_by_letter(
        text in "((I|We|My|i’m|I'm|always|live in|moved to|prefer|went|last week|yesterday|Lisbon|and|but|if|can you|\\?|,|\\.|\\n|\"|\\PC{0,6}) ?){0,24}",
        at in any::<i64>(),
    ) {
        let said = Said { role: "user", name: None, text: &text, at: Millis(at) };
        let facts = extract(&said, Some(&said));
        prop_assert_eq!(&facts, &extract(&said, Some(&said)));
        prop_assert!(facts.len() <= MAX_FACTS_A_TURN);
        for fact in facts {
            prop_assert!(text.contains(&fact.quote), "{:?}", fact.quote);
            prop_assert!(!fact.text.is_empty() && !fact.quote.is_empty());
        }
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,200}", at in any::<i64>()) {
        let said = Said { role: "user", name: Some("\u{202e}"), text: &text, at: Millis(at) };
        extract(&said, None);
        crate::text::standing(&text);
    }
}
