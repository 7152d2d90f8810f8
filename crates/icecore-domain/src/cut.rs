//! Where micros, minis and macros end.
//!
//! A micro ends after [`CutPolicy::micro_turns`] turns since the last cut, or
//! before it would pass [`CutPolicy::micro_max_tokens`], or with its mini. Minis
//! and macros end by count in the branch. So every level is exactly the union of
//! the level below, and every turn has one parent at each level.
//!
//! Cuts are ground: they are written with the append and never made again. New
//! sizes begin at the next macro.

use crate::chunk::Level;

/// The sizes that cuts are made by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutPolicy {
    /// Turns in a full micro.
    pub micro_turns: u32,
    /// Turns in a mini.
    pub mini_turns: u32,
    /// Turns in a macro; a multiple of `mini_turns`.
    pub macro_turns: u32,
    /// A micro ends before it would pass this many tokens, unless one turn does.
    pub micro_max_tokens: u32,
}

impl Default for CutPolicy {
    fn default() -> Self {
        Self { micro_turns: 10, mini_turns: 25, macro_turns: 100, micro_max_tokens: 8_000 }
    }
}

/// Sizes that no tree can be built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    #[error("`{0}` must be at least 1")]
    Zero(&'static str),
    #[error("`micro_chunk_size` ({micro}) must be at most `mini_chunk_interval` ({mini})")]
    MicroOverMini {
        /// Turns in a micro.
        micro: u32,
        /// Turns in a mini.
        mini: u32,
    },
    #[error(
        "`macro_chunk_interval` ({macro_}) must be a multiple of `mini_chunk_interval` ({mini})"
    )]
    MacroNotMultiple {
        /// Turns in a macro.
        macro_: u32,
        /// Turns in a mini.
        mini: u32,
    },
}

impl CutPolicy {
    /// Checks that the levels nest.
    pub fn check(&self) -> Result<(), PolicyError> {
        let sizes = [
            ("micro_chunk_size", self.micro_turns),
            ("mini_chunk_interval", self.mini_turns),
            ("macro_chunk_interval", self.macro_turns),
            ("micro_max_tokens", self.micro_max_tokens),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(PolicyError::Zero(name));
        }
        if self.micro_turns > self.mini_turns {
            return Err(PolicyError::MicroOverMini {
                micro: self.micro_turns,
                mini: self.mini_turns,
            });
        }
        if !self.macro_turns.is_multiple_of(self.mini_turns) {
            return Err(PolicyError::MacroNotMultiple {
                macro_: self.macro_turns,
                mini: self.mini_turns,
            });
        }
        Ok(())
    }
}

/// What is open at the end of a branch. Ordinals are the branch's own, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenTail {
    /// Turns in the branch so far.
    pub length: u64,
    /// First ordinal of the open micro; `length + 1` when nothing is open.
    pub micro_first: u64,
    /// First ordinal of the open mini.
    pub mini_first: u64,
    /// First ordinal of the open macro.
    pub macro_first: u64,
    /// Tokens in the open micro.
    pub micro_tokens: u64,
    /// The sizes in force until the open macro ends.
    pub policy: CutPolicy,
}

/// A cut: the range of ordinals, both ends included, that a chunk covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Micro, mini or macro.
    pub level: Level,
    pub first: u64,
    pub last: u64,
}

impl OpenTail {
    /// A branch without turns.
    pub fn empty(policy: CutPolicy) -> Self {
        Self { length: 0, micro_first: 1, mini_first: 1, macro_first: 1, micro_tokens: 0, policy }
    }

    /// Adds a turn and says which chunks that closes, smallest first. The sizes
    /// of `next` come into force when a macro ends.
    pub fn push(&mut self, tokens: u32, next: CutPolicy) -> Vec<Cut> {
        let mut cuts = Vec::new();
        let tokens = u64::from(tokens);
        let limit = u64::from(self.policy.micro_max_tokens);
        if self.micro_first <= self.length && self.micro_tokens + tokens > limit {
            self.close_micro(&mut cuts);
        }
        self.length += 1;
        self.micro_tokens += tokens;

        let since = |first: u64| self.length + 1 - first;
        let ends_mini = since(self.mini_first) == u64::from(self.policy.mini_turns);
        let ends_macro = since(self.macro_first) == u64::from(self.policy.macro_turns);
        let full = since(self.micro_first) == u64::from(self.policy.micro_turns);
        if ends_mini || full || self.micro_tokens >= limit {
            self.close_micro(&mut cuts);
        }
        if ends_mini {
            cuts.push(Cut { level: Level::Mini, first: self.mini_first, last: self.length });
            self.mini_first = self.length + 1;
        }
        if ends_macro {
            cuts.push(Cut { level: Level::Macro, first: self.macro_first, last: self.length });
            self.macro_first = self.length + 1;
            self.policy = next;
        }
        cuts
    }

    fn close_micro(&mut self, cuts: &mut Vec<Cut>) {
        cuts.push(Cut { level: Level::Micro, first: self.micro_first, last: self.length });
        self.micro_first = self.length + 1;
        self.micro_tokens = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The cuts that the `turn_count`th turn of a branch of small turns makes.
    fn check(turn_count: u64, expected: &str) {
        let policy = CutPolicy::default();
        let mut tail = OpenTail::empty(policy);
        let mut cuts = Vec::new();
        for _ in 0..turn_count {
            cuts = tail.push(20, policy);
        }
        assert_eq!(show(&cuts), expected, "after {turn_count} turns");
    }

    fn show(cuts: &[Cut]) -> String {
        let shown = |cut: &Cut| format!("{} {}-{}", cut.level, cut.first, cut.last);
        cuts.iter().map(shown).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn every_level_is_the_union_of_the_level_below() {
        check(9, "");
        check(10, "micro 1-10");
        check(25, "micro 21-25, mini 1-25");
        check(35, "micro 26-35");
        check(100, "micro 96-100, mini 76-100, macro 1-100");
    }

    #[test]
    fn a_micro_ends_before_it_passes_its_tokens() {
        let policy = CutPolicy { micro_max_tokens: 100, ..CutPolicy::default() };
        let mut tail = OpenTail::empty(policy);
        let cuts: Vec<String> =
            [60, 30, 20, 500, 1].iter().map(|tokens| show(&tail.push(*tokens, policy))).collect();
        assert_eq!(cuts, ["", "", "micro 1-2", "micro 3-3, micro 4-4", ""]);
    }

    #[test]
    fn new_sizes_begin_at_the_next_macro() {
        let old =
            CutPolicy { micro_turns: 2, mini_turns: 4, macro_turns: 8, micro_max_tokens: 100 };
        let new =
            CutPolicy { micro_turns: 3, mini_turns: 3, macro_turns: 3, micro_max_tokens: 100 };
        let mut tail = OpenTail::empty(old);
        let cuts: Vec<String> = (0..11).map(|_| show(&tail.push(1, new))).collect();
        assert_eq!(cuts[7], "micro 7-8, mini 5-8, macro 1-8");
        assert_eq!(cuts[10], "micro 9-11, mini 9-11, macro 9-11");
    }

    #[test]
    fn sizes_that_do_not_nest_are_refused() {
        let sizes = |micro, mini, macro_| {
            CutPolicy {
                micro_turns: micro,
                mini_turns: mini,
                macro_turns: macro_,
                micro_max_tokens: 1,
            }
            .check()
        };
        assert_eq!(sizes(10, 25, 100), Ok(()));
        assert_eq!(sizes(0, 25, 100), Err(PolicyError::Zero("micro_chunk_size")));
        assert_eq!(sizes(30, 25, 100), Err(PolicyError::MicroOverMini { micro: 30, mini: 25 }));
        assert_eq!(
            sizes(10, 25, 110),
            Err(PolicyError::MacroNotMultiple { macro_: 110, mini: 25 })
        );
    }

    proptest! {
        #[test]
        fn chunks_of_each_level_tile_the_level_below(
            sizes in prop::collection::vec(0_u32..400, 1..300),
            micro in 1_u32..12, minis in 1_u32..5, per_mini in 1_u32..4, limit in 1_u32..900,
        ) {
            let policy = CutPolicy {
                micro_turns: micro,
                mini_turns: micro * per_mini + 1,
                macro_turns: (micro * per_mini + 1) * minis,
                micro_max_tokens: limit,
            };
            let mut tail = OpenTail::empty(policy);
            let mut chunks: std::collections::BTreeMap<Level, Vec<Cut>> = Default::default();
            for tokens in &sizes {
                for cut in tail.push(*tokens, policy) {
                    chunks.entry(cut.level).or_default().push(cut);
                }
            }
            for cuts in chunks.values() {
                prop_assert_eq!(cuts[0].first, 1);
                prop_assert!(cuts.windows(2).all(|pair| pair[0].last + 1 == pair[1].first));
            }
            for (level, below) in [(Level::Mini, Level::Micro), (Level::Macro, Level::Mini)] {
                let ends: Vec<u64> = chunks.get(&below).into_iter().flatten().map(|c| c.last).collect();
                for cut in chunks.get(&level).into_iter().flatten() {
                    prop_assert!(ends.contains(&cut.last));
                }
            }
            for cut in chunks.get(&Level::Micro).into_iter().flatten() {
                let range = &sizes[cut.first as usize - 1..cut.last as usize];
                let tokens: u64 = range.iter().map(|t| u64::from(*t)).sum();
                prop_assert!(tokens <= u64::from(limit) || range.len() == 1);
                prop_assert!(range.len() as u32 <= micro);
            }
        }
    }
}
