//! Which session a client's history goes on with.
//!
//! A client that knows of no session sends its whole history. What is stored of it is
//! found by links ([`crate::identity::Link`]), longest beginning first; what follows from
//! that is decided here. A beginning without an answer of ours in it says nothing: many
//! begin with the same words, and some with a greeting or examples that a client made up.

use crate::ids::SessionNo;

/// How a history goes with what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Following {
    /// It matches the head of a branch in full, with at least one answer of ours in it.
    Continues,
    /// It shares a beginning, with at least one answer of ours in it, and then differs.
    Forks,
    /// It matches nothing, or more than one.
    Begins,
}

crate::words!(Following { Continues = "continues", Forks = "forks", Begins = "begins" });

/// A session in which the longest known beginning of a history is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    pub session: SessionNo,
    /// Whether that beginning ends at the head of a branch.
    pub is_head: bool,
    /// Whether nothing is left of the session but that it was.
    pub is_forgotten: bool,
}

/// What a history does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It goes on with a session, or forks it.
    Follows(SessionNo, Following),
    /// It begins a session: it continues none that is known.
    Begins,
    /// It begins a session behind a beginning that was forgotten, and stays so.
    BeginsBehind,
}

/// Decides by the sessions that hold the longest known beginning of a history, which has
/// an answer of ours in it. One head is preferred to whatever else; where none is to be preferred,
/// a session begins: it may be told twice, but nobody's words are mixed with another's.
///
/// Where there may be more of them than were found, none is to be preferred.
pub fn decide(candidates: &[Candidate], is_more: bool) -> Decision {
    let there = || candidates.iter().filter(|one| !one.is_forgotten);
    let heads: Vec<SessionNo> = there().filter(|one| one.is_head).map(|one| one.session).collect();
    let all: Vec<SessionNo> = there().map(|one| one.session).collect();
    match (heads.as_slice(), all.as_slice()) {
        ([], []) if !candidates.is_empty() => Decision::BeginsBehind,
        _ if is_more => Decision::Begins,
        ([head], _) => Decision::Follows(*head, Following::Continues),
        ([], [inner]) => Decision::Follows(*inner, Following::Forks),
        _ => Decision::Begins,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Candidates as `1 head`, `2 inner`, `3 gone`, and what is decided.
    fn check(candidates: &[&str], expected: &str) {
        let read = |text: &&str| {
            let (session, kind) = text.split_once(' ').unwrap();
            Candidate {
                session: SessionNo(session.parse().unwrap()),
                is_head: kind == "head",
                is_forgotten: kind == "gone",
            }
        };
        let candidates: Vec<Candidate> = candidates.iter().map(read).collect();
        let found = match decide(&candidates, false) {
            Decision::Follows(session, following) => format!("{} {session}", following.as_str()),
            Decision::Begins => "begins".to_owned(),
            Decision::BeginsBehind => "begins behind".to_owned(),
        };
        assert_eq!(found, expected, "{candidates:?}");
    }

    #[test]
    fn one_head_is_continued_and_one_place_forked() {
        check(&[], "begins");
        check(&["1 head"], "continues 1");
        check(&["1 inner"], "forks 1");
        check(&["2 inner", "1 head"], "continues 1");
        check(&["3 inner", "2 head", "1 inner"], "continues 2");
    }

    #[test]
    fn what_may_be_two_is_neither() {
        check(&["2 head", "1 head"], "begins");
        check(&["2 inner", "1 inner"], "begins");
        check(&["3 inner", "2 head", "1 head"], "begins");
    }

    #[test]
    fn the_forgotten_is_followed_by_nothing() {
        check(&["1 gone"], "begins behind");
        check(&["2 gone", "1 gone"], "begins behind");
        check(&["2 gone", "1 head"], "continues 1");
        check(&["2 gone", "1 inner"], "forks 1");
        check(&["3 gone", "2 head", "1 head"], "begins");
    }

    proptest! {
        #[test]
        fn nothing_is_followed_that_was_not_found(kinds in prop::collection::vec(0_u8..3, 0..6)) {
            let candidate = |(at, kind): (usize, &u8)| Candidate {
                session: SessionNo(at as u64 + 1),
                is_head: *kind == 0,
                is_forgotten: *kind == 2,
            };
            let candidates: Vec<Candidate> = kinds.iter().enumerate().map(candidate).collect();
            let heads = kinds.iter().filter(|kind| **kind == 0).count();
            let inner = kinds.iter().filter(|kind| **kind == 1).count();
            let decision = decide(&candidates, false);
            let mut reversed = candidates.clone();
            reversed.reverse();
            // The order says nothing.
            prop_assert_eq!(decision, decide(&reversed, false));
            let more = decide(&candidates, true);
            prop_assert!(!matches!(more, Decision::Follows(..)), "there may be others");
            match decision {
                Decision::Follows(session, following) => {
                    let one = candidates.iter().find(|one| one.session == session).unwrap();
                    prop_assert!(!one.is_forgotten);
                    prop_assert_eq!(one.is_head, following == Following::Continues);
                    prop_assert!(heads == 1 || (heads == 0 && inner == 1));
                }
                Decision::Begins => prop_assert!(heads > 1 || inner > 1 || kinds.is_empty()),
                Decision::BeginsBehind => prop_assert_eq!((heads, inner), (0, 0)),
            }
        }
    }
}
