use super::*;
use crate::fact::{Fact, FactKind};
use crate::ids::{Seq, SessionNo};
use crate::redact::Redactor;

fn turn(seq: u64) -> TurnId {
    TurnId { session: SessionNo(1), seq: Seq(seq) }
}

fn fact(attribute: &str, value: &str, at: i64) -> RedactedFact {
    Redactor::standard()
        .fact(Fact {
            kind: FactKind::Identity,
            subject: "Ana".to_owned(),
            attribute: attribute.to_owned(),
            value: value.to_owned(),
            text: format!("Ana: {value}"),
            quote: value.to_owned(),
            valid_from: Millis(at),
        })
        .unwrap()
}

fn found(facts: &[(&str, &str, i64)]) -> Vec<FoundFact> {
    let number = |(n, (attribute, value, at)): (u64, &(&str, &str, i64))| FoundFact {
        fact: fact(attribute, value, *at),
        source: turn(n),
    };
    (1..).zip(facts).map(number).collect()
}

fn judged(attribute: &str, value: &str, verdict: Verdict, at: i64) -> Judged {
    let fact = fact(attribute, value, at);
    Judged { key: fact.key(), verdict, fact: Some(fact), at: Millis(at) }
}

/// Each as `value status from..to ×sources`.
fn check(facts: &[(&str, &str, i64)], verdicts: &[Judged], expected: &[&str]) {
    let show = |known: Vec<KnownFact>| -> Vec<String> {
        let to = |fact: &KnownFact| fact.valid_to.map_or(String::new(), |to| to.0.to_string());
        let line = |fact: &KnownFact| {
            let (value, status) = (fact.fact.value.as_str(), fact.status.as_str());
            let (from, sources) = (fact.fact.valid_from.0, fact.sources.len());
            format!("{value} {status} {from}..{} ×{sources}", to(fact))
        };
        known.iter().map(line).collect()
    };
    assert_eq!(show(resolve(found(facts), verdicts)), expected);
    let mut backwards = found(facts);
    backwards.reverse();
    assert_eq!(show(resolve(backwards, verdicts)), expected, "in any order");
}

#[test]
fn a_newer_value_supersedes_an_older_one() {
    check(
        &[("home", "Lisbon", 1), ("home", "Porto", 5), ("home", "Faro", 9)],
        &[],
        &["Lisbon superseded 1..5 ×1", "Porto superseded 5..9 ×1", "Faro auto 9.. ×1"],
    );
    check(
        &[("home", "Porto", 5), ("job", "nurse", 2), ("home", "Lisbon", 1)],
        &[],
        &["Lisbon superseded 1..5 ×1", "nurse auto 2.. ×1", "Porto auto 5.. ×1"],
    );
}

#[test]
fn values_without_a_property_stand_side_by_side() {
    check(
        &[("", "likes tea", 1), ("", "likes jazz", 2)],
        &[],
        &["likes tea auto 1.. ×1", "likes jazz auto 2.. ×1"],
    );
}

#[test]
fn the_same_said_again_is_one_fact_with_more_sources() {
    check(&[("home", "Lisbon", 1), ("home", "lisbon!", 4)], &[], &["Lisbon auto 1.. ×2"]);
    check(
        &[("", "I enjoy long walks with dogs", 1), ("", "I really enjoy long walks with dogs", 3)],
        &[],
        &["I enjoy long walks with dogs auto 1.. ×2"],
    );
    check(
        &[("", "I like working late nights", 1), ("", "I don't like working late nights", 3)],
        &[],
        &["I like working late nights auto 1.. ×1", "I don't like working late nights auto 3.. ×1"],
    );
}

#[test]
fn a_value_that_returns_holds_again() {
    check(
        &[("home", "Lisbon", 1), ("home", "Porto", 5), ("home", "Lisbon", 9)],
        &[],
        &["Porto superseded 5..9 ×1", "Lisbon auto 9.. ×2"],
    );
}

#[test]
fn a_rejected_fact_is_listed_and_does_not_come_back() {
    let no = [judged("home", "Porto", Verdict::Rejected, 6)];
    check(
        &[("home", "Lisbon", 1), ("home", "Porto", 5), ("home", "porto", 8)],
        &no,
        &["Lisbon auto 1.. ×1", "Porto rejected 6.. ×2"],
    );
    check(&[], &no, &["Porto rejected 6.. ×0"]);
}

#[test]
fn a_persons_word_outweighs_what_was_found_before_it() {
    let yes = [judged("home", "Lisbon", Verdict::Confirmed, 7)];
    check(
        &[("home", "Lisbon", 1), ("home", "Porto", 5)],
        &yes,
        &["Porto superseded 5..7 ×1", "Lisbon confirmed 7.. ×1"],
    );
    check(
        &[("home", "Lisbon", 1), ("home", "Porto", 9)],
        &yes,
        &["Lisbon superseded 1..9 ×1", "Porto auto 9.. ×1"],
    );
    check(&[], &[judged("", "plays chess", Verdict::Added, 3)], &["plays chess confirmed 3.. ×0"]);
}

#[test]
fn the_last_verdict_holds() {
    let verdicts = [
        judged("home", "Lisbon", Verdict::Rejected, 2),
        judged("home", "Lisbon", Verdict::Confirmed, 4),
    ];
    let known = resolve(found(&[("home", "Lisbon", 1)]), &verdicts);
    assert_eq!(known.len(), 1);
    assert_eq!(
        (known[0].status, known[0].verdict),
        (FactStatus::Confirmed, Some(Verdict::Confirmed))
    );
}

#[test]
fn statuses_come_back_from_their_words() {
    for status in FactStatus::ALL {
        assert_eq!(FactStatus::parse(status.as_str()), Some(status));
    }
    assert_eq!(FactStatus::parse("gone"), None);
}
