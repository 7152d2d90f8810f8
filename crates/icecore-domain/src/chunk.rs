//! What a chunk is: a range of a branch's turns at one level of the pyramid.

use std::fmt;

use crate::ids::{Branch, Ordinal, SessionNo};

/// The layers of the pyramid above the turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// About ten turns.
    Micro,
    /// A few micros.
    Mini,
    /// A few minis; the unit of packing.
    Macro,
}

crate::words!(Level { Micro = "micro", Mini = "mini", Macro = "macro" });

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a chunk's turns are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Turns as they are.
    Hot,
    /// One compact text a micro.
    Warm,
    /// A summary; the turns in a pack.
    Cold,
}

crate::words!(Tier { Hot = "hot", Warm = "warm", Cold = "cold" });

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A chunk's identity. Never changes; its body may be revised by erasure.
///
/// Displayed as `<level>-<session>.<branch>.<first>-<last>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId {
    pub session: SessionNo,
    pub branch: Branch,
    pub level: Level,
    pub first: Ordinal,
    pub last: Ordinal,
}

impl ChunkId {
    /// Reads what [`ChunkId`] displays.
    pub fn parse(text: &str) -> Option<ChunkId> {
        let (level, rest) = text.split_once('-')?;
        let (session, rest) = rest.split_once('.')?;
        let (branch, range) = rest.split_once('.')?;
        let (first, last) = range.split_once('-')?;
        let id = ChunkId {
            session: SessionNo(session.parse().ok()?),
            branch: Branch(branch.parse().ok()?),
            level: Level::parse(level)?,
            first: Ordinal(first.parse().ok()?),
            last: Ordinal(last.parse().ok()?),
        };
        (id.to_string() == text).then_some(id)
    }

    /// How many turns it covers.
    pub fn turn_count(&self) -> u64 {
        self.last.0 + 1 - self.first.0
    }
}

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ChunkId { session, branch, level, first, last } = self;
        write!(f, "{level}-{session}.{}.{first}-{last}", branch.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back_what_they_display() {
        let id = ChunkId {
            session: SessionNo(4),
            branch: Branch(1),
            level: Level::Mini,
            first: Ordinal(26),
            last: Ordinal(50),
        };
        assert_eq!(id.to_string(), "mini-4.1.26-50");
        assert_eq!(ChunkId::parse("mini-4.1.26-50"), Some(id));
        for bad in ["mini-4.1.26", "mini-4.1.26-050", "moni-4.1.26-50", "", "mini--.-"] {
            assert_eq!(ChunkId::parse(bad), None, "{bad}");
        }
    }
}
