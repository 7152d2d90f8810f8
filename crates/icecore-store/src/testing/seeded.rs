//! Randomness that a test can repeat.

use std::cell::Cell;

thread_local! {
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// While it lives, names and keys that are drawn on this thread follow from a seed. They
/// are secrets no more.
#[derive(Debug)]
pub struct SeededNames(());

impl SeededNames {
    /// Begins anew with a seed.
    pub fn new(seed: u64) -> Self {
        SEED.set(Some(seed));
        Self(())
    }
}

impl Drop for SeededNames {
    fn drop(&mut self) {
        SEED.set(None);
    }
}

/// Draws bytes, if this thread has a seed.
pub(crate) fn draw(bytes: &mut [u8]) -> bool {
    let Some(mut state) = SEED.get() else { return false };
    for piece in bytes.chunks_mut(8) {
        let drawn = next(&mut state).to_le_bytes();
        piece.copy_from_slice(&drawn[..piece.len()]);
    }
    SEED.set(Some(state));
    true
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Packs;

    #[test]
    fn names_follow_from_the_seed_while_it_lives() {
        let three = || [(); 3].map(|()| Packs::new_name());
        let first = {
            let _seeded = SeededNames::new(7);
            three()
        };
        let again = {
            let _seeded = SeededNames::new(7);
            three()
        };
        assert_eq!(first, again);
        assert_ne!(first[0], first[1]);
        assert_ne!(three(), first);
    }
}
