//! Numbers that follow from a seed.

use std::ops::Range;

/// Draws the same numbers whenever it begins with the same seed.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The dice of one who plays, by a name of its own.
    pub fn new(seed: u64, name: &str) -> Self {
        let mix = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        Self(name.bytes().fold(seed ^ 0xCBF2_9CE4_8422_2325, mix))
    }

    /// Any number (SplitMix64).
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// One of a range, which is not empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start).max(1)
    }

    /// True so often of a million times.
    pub fn chance(&mut self, of_a_million: u64) -> bool {
        self.next() % 1_000_000 < of_a_million
    }

    /// One of these, which are some.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.next() as usize % all.len()]
    }
}
