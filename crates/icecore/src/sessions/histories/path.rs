//! The path of a history through a session: which message is which turn.

use icecore_domain::ids::{Branch, Ordinal};
use icecore_store::{SessionRecord, TurnPlace};

use crate::layers::history::lineage;

/// The branches that lead to a turn, root first, each with the last ordinal that is on
/// the path, and the place of the message that is the path's first turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HistoryPath {
    pub(super) branches: Vec<(Branch, Ordinal)>,
    /// Messages before the first turn: they were forgotten with another session.
    pub(super) before: usize,
}

impl HistoryPath {
    /// The path to a turn, which is the last of the first so many messages.
    pub(super) fn to(record: &SessionRecord, place: &TurnPlace, known: usize) -> Self {
        let mut branches = lineage(record, place.branch);
        if let Some((_, end)) = branches.last_mut() {
            *end = place.ordinal;
        }
        let mut path = Self { branches, before: 0 };
        let depth = path.depth(place.branch, place.ordinal).unwrap_or(0);
        path.before = known.saturating_sub(depth);
        path
    }

    /// The place of the message that is a turn, if that is on the path.
    pub(super) fn message(&self, branch: Branch, ordinal: Ordinal) -> Option<usize> {
        Some(self.before + self.depth(branch, ordinal)?.checked_sub(1)?)
    }

    /// The place of the first message that a handoff does not stand for.
    pub(super) fn after(&self, branch: Branch, through: Ordinal) -> usize {
        self.before + self.depth(branch, through).unwrap_or(0)
    }

    /// The how manyth turn of the path it is, from 1; 0 for the beginning of its first
    /// branch.
    fn depth(&self, branch: Branch, ordinal: Ordinal) -> Option<usize> {
        let at = self.branches.iter().position(|(one, _)| *one == branch)?;
        let before: u64 = self.branches[..at].iter().map(|(_, end)| end.0).sum();
        let is_on = ordinal <= self.branches[at].1;
        is_on.then_some((before + ordinal.0) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_along_the_path_is_a_message() {
        let branches = vec![(Branch(0), Ordinal(3)), (Branch(2), Ordinal(2))];
        let path = HistoryPath { branches, before: 4 };
        assert_eq!(path.message(Branch(0), Ordinal(1)), Some(4));
        assert_eq!(path.message(Branch(0), Ordinal(3)), Some(6));
        assert_eq!(path.message(Branch(2), Ordinal(1)), Some(7));
        assert_eq!(path.message(Branch(2), Ordinal(2)), Some(8));
        // What is beside the path, or beyond it.
        assert_eq!(path.message(Branch(0), Ordinal(4)), None);
        assert_eq!(path.message(Branch(1), Ordinal(1)), None);
        assert_eq!(path.message(Branch(2), Ordinal(3)), None);
        assert_eq!(path.after(Branch(0), Ordinal(2)), 6);
        assert_eq!(path.after(Branch(2), Ordinal(0)), 7);
    }
}
