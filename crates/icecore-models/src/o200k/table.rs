//! A hash table over the vocabulary, built at compile time and read in place.
//!
//! The vocabulary is a list of tokens in order of their ranks, each a byte for its length
//! and then its bytes, so that of two tokens the one that stands first ranks first. A slot
//! of the table is a little-endian `u32`: 0 if empty, else the place of a token plus one in
//! the lower [`PLACE_BITS`] bits, and bits of its hash in the others.

/// More than twice as many slots as tokens, so that few lookups take more than one step.
const SLOTS: usize = 1 << 19;

/// Enough for every place in the vocabulary.
const PLACE_BITS: u32 = 21;

const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;

/// The table of a vocabulary.
#[allow(dead_code, reason = "only the build script builds it")]
pub(crate) fn build(tokens: &[u8]) -> Vec<u8> {
    assert!(tokens.len() < PLACE_MASK as usize, "a place does not fit its bits");
    let mut table = vec![0_u8; SLOTS * 4];
    let mut place = 0;
    while place < tokens.len() {
        let hash = hash(token_at(tokens, place));
        let mut slot = first_slot(hash);
        while slot_at(&table, slot) != 0 {
            slot = (slot + 1) % SLOTS;
        }
        let entry = tag(hash) | (place as u32 + 1);
        table[slot * 4..slot * 4 + 4].copy_from_slice(&entry.to_le_bytes());
        place += 1 + usize::from(tokens[place]);
    }
    table
}

/// The place of a token, which is also its rank among all; nothing if it is no token.
#[allow(dead_code, reason = "the build script looks nothing up")]
#[inline]
pub(crate) fn find(table: &[u8], tokens: &[u8], token: &[u8]) -> Option<u32> {
    let hash = hash(token);
    let tag = tag(hash);
    let mut slot = first_slot(hash);
    loop {
        let entry = slot_at(table, slot);
        if entry == 0 {
            return None;
        }
        if entry & !PLACE_MASK == tag {
            let place = (entry & PLACE_MASK) - 1;
            if token_at(tokens, place as usize) == token {
                return Some(place);
            }
        }
        slot = (slot + 1) % SLOTS;
    }
}

fn token_at(tokens: &[u8], place: usize) -> &[u8] {
    &tokens[place + 1..place + 1 + usize::from(tokens[place])]
}

fn slot_at(table: &[u8], slot: usize) -> u32 {
    let at = slot * 4;
    u32::from_le_bytes([table[at], table[at + 1], table[at + 2], table[at + 3]])
}

fn first_slot(hash: u64) -> usize {
    (hash >> 32) as usize % SLOTS
}

fn tag(hash: u64) -> u32 {
    hash as u32 & !PLACE_MASK
}

/// Mixes eight bytes at a time; equal on every machine.
fn hash(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = (bytes.len() as u64).wrapping_mul(FACTOR);
    let mut mix = |word: u64| {
        let product = u128::from(hash ^ word) * u128::from(FACTOR);
        hash = (product >> 64) as u64 ^ product as u64;
    };
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        mix(u64::from_le_bytes(chunk.try_into().unwrap_or_default()));
    }
    let rest = chunks.remainder();
    mix(rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    hash
}
