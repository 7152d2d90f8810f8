//! Made-up talk: the same number gives the same words.

/// Words by how often they come: the first often, the last seldom.
const COMMON: [&str; 48] = [
    "the", "we", "to", "a", "of", "in", "is", "and", "that", "it", "for", "on", "was", "with",
    "as", "at", "by", "this", "had", "not", "are", "but", "from", "or", "have", "an", "they",
    "which", "one", "you", "were", "all", "her", "she", "there", "would", "their", "him", "been",
    "has", "when", "who", "will", "more", "if", "out", "so", "said",
];

const STARTS: [&str; 12] =
    ["gla", "mor", "fir", "ser", "cre", "ice", "dri", "sno", "val", "tun", "fjo", "cal"];
const MIDDLES: [&str; 12] =
    ["ci", "ai", "nu", "ra", "va", "lo", "mi", "ke", "to", "de", "po", "sa"];
const ENDS: [&str; 12] = ["er", "ne", "ck", "ss", "ld", "nt", "rd", "ng", "st", "th", "x", "l"];

/// A stream of words.
pub struct Talk(u64);

impl Talk {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x1ce)
    }

    /// A number below `most` (splitmix64).
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most.max(1)
    }

    /// A seldom word, of 1,728.
    fn rare(&mut self) -> String {
        let mut pick = |from: &[&str; 12]| from[self.below(12) as usize].to_owned();
        pick(&STARTS) + &pick(&MIDDLES) + &pick(&ENDS)
    }

    fn words(&mut self, count: u64) -> String {
        let word = |talk: &mut Self| match talk.below(3) {
            0 => talk.rare(),
            _ => COMMON[talk.below(COMMON.len() as u64) as usize].to_owned(),
        };
        (0..count).map(|_| word(self)).collect::<Vec<_>>().join(" ")
    }

    /// What somebody says: six to sixty words.
    pub fn turn(&mut self) -> String {
        let count = 6 + self.below(55);
        self.words(count) + "."
    }

    /// What somebody asks.
    pub fn question(&mut self) -> String {
        format!("{} {} {}?", self.words(3), self.rare(), self.rare())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_the_same_again_and_another_does_not() {
        let said = |seed| Talk::new(seed).turn();
        assert_eq!(said(7), said(7));
        assert_ne!(said(7), said(8));
        assert!(Talk::new(1).question().ends_with('?'));
    }
}
