use super::super::archive::in_order;
use super::super::{Part, Source, SourceFact, SourceKind};
use super::*;
use crate::fact;
use crate::summary::Said;
use crate::tokens::CharCounter;

fn at(text: &str) -> Option<Millis> {
    Some(Millis::parse_rfc3339(text).unwrap())
}

fn entry(text: &str) -> Source {
    let part = Part { role: String::new(), name: None, text: text.to_owned(), at: None };
    Source {
        kind: SourceKind::Entry,
        session: String::new(),
        seq: 0,
        parts: vec![part],
        facts: Vec::new(),
    }
}

fn facts_of(part: &Part) -> Vec<SourceFact> {
    let said = Said {
        role: &part.role,
        name: part.name.as_deref(),
        text: &part.text,
        at: part.at.unwrap_or(Millis(0)),
    };
    let source_fact = |fact: fact::Fact| SourceFact {
        kind: fact.kind,
        subject: fact.subject,
        attribute: fact.attribute,
        value: fact.value,
        text: fact.text,
        at: part.at,
        confirmed: false,
    };
    fact::extract(&said, None).into_iter().map(source_fact).collect()
}

fn turn(session: &str, seq: u64, name: &str, time: &str, text: &str) -> Source {
    let part = Part {
        role: "user".to_owned(),
        name: (!name.is_empty()).then(|| name.to_owned()),
        text: text.to_owned(),
        at: (!time.is_empty()).then(|| at(time)).flatten(),
    };
    let facts = facts_of(&part);
    Source { kind: SourceKind::Turn, session: session.to_owned(), seq, parts: vec![part], facts }
}

fn distilled(mut sources: Vec<Source>, tokens: u64) -> String {
    in_order(&mut sources);
    distil(&sources, None, tokens, &CharCounter).text()
}

fn conversation() -> Vec<Source> {
    vec![
        turn(
            "a",
            0,
            "Ann",
            "2023-05-07T10:00:00Z",
            "Hey Bo! I live in Oslo. I went to the glass museum yesterday with my sister Kari.",
        ),
        turn(
            "a",
            1,
            "Bo",
            "2023-05-07T10:01:00Z",
            "Nice! From now on, always answer me in Norwegian.",
        ),
        turn(
            "a",
            2,
            "Ann",
            "2023-05-07T10:02:00Z",
            "We decided to use Postgres 16 for the ledger. Thanks!",
        ),
        turn(
            "b",
            0,
            "Bo",
            "2023-09-01T09:00:00Z",
            "I prefer tea over coffee. We decided to use Postgres 16 for the ledger!",
        ),
        turn(
            "b",
            1,
            "Ann",
            "2023-09-01T09:01:00Z",
            "I live in Bergen now. The kiln broke last week, so the vases are late.",
        ),
        turn("b", 2, "Bo", "2023-09-01T09:02:00Z", "Who is going to repair the kiln?"),
        entry("The backup runs at 02:00 from the cellar host."),
    ]
}

#[test]
fn a_conversation_is_distilled_into_its_sections() {
    let text = distilled(conversation(), 4_000);
    let expected = "\
## What is true now
- The backup runs at 02:00 from the cellar host.
- Ann lives in Bergen now. (before: Ann lives in Oslo.)

## Decisions
2023-05-07
- Ann: We decided to use Postgres 16 for the ledger.
2023-09-01
- Bo: We decided to use Postgres 16 for the ledger.

## Preferences and instructions
- Bo asks: From now on, always answer me in Norwegian.
- Bo prefers tea over coffee.

## Open threads
2023-09-01
- Bo: Who is going to repair the kiln?

## Timeline
2023-05-07
- Ann went to the glass museum yesterday with their sister Kari (2023-05-06).
2023-09-01
- Ann: The kiln broke last week, so the vases are late. (2023-08-21 to 2023-08-27)";
    assert_eq!(text, expected, "\n{text}");
}
