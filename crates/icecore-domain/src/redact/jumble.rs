//! Distinguishes random letters from words by their pairs of letters.

/// The letters that often follow each letter of the alphabet in words and names
/// of code: of all pairs in those that were counted, one in 2,500 or more.
#[rustfmt::skip]
const FOLLOWERS: [&str; 26] = [
    "abcdfgiklmnprstuvwxy", // a
    "abceilorstuy", // b
    "acdehiklmoprstuy", // c
    "acdeilorsuvy", // d
    "abcdefgilmnopqrstuvwxy", // e
    "adefilmorstu", // f
    "aeghilnorsu", // g
    "aeiortu", // h
    "abcdefgklmnoprstvxz", // i
    "eo", // j
    "aeis", // k
    "adefilostuvy", // l
    "abceimopstu", // m
    "acdefgiklnopstuvy", // n
    "abcdfgiklmnoprstuvw", // o
    "acehiloprstu", // p
    "u", // q
    "acdefgiklmnoprstuvy", // r
    "acehiklmnopstuy", // s
    "acdehilmoprstuy", // t
    "abcdefgilmnprst", // u
    "aeio", // v
    "aehinors", // w
    "ceipt", // x
    "einps", // y
    "ae", // z
];

/// Fewer letters may be an unusual word.
const MIN_JUMBLE_BYTES: usize = 8;

/// Letters and digits that no word is made of: a quarter of the pairs are unusual,
/// or a fifth where the case jumps about. One random value in twenty passes for
/// words, and one word in fifty for random.
pub(super) fn is_jumbled(value: &str) -> bool {
    let bytes = value.as_bytes();
    if bytes.len() < MIN_JUMBLE_BYTES || !bytes.iter().all(u8::is_ascii_alphanumeric) {
        return false;
    }
    let pairs = || bytes.windows(2).map(|pair| (pair[0], pair[1]));
    let is_usual = |(a, b): (u8, u8)| match a.to_ascii_lowercase() {
        first @ b'a'..=b'z' => {
            let followers = FOLLOWERS[usize::from(first - b'a')];
            followers.as_bytes().contains(&b.to_ascii_lowercase())
        }
        _ => b.is_ascii_digit(),
    };
    let unusual = pairs().filter(|pair| !is_usual(*pair)).count();
    let jumps = pairs().filter(|(a, b)| a.is_ascii_lowercase() != b.is_ascii_lowercase()).count();
    unusual * if jumps * 3 >= bytes.len() { 5 } else { 4 } >= bytes.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_letters_are_told_from_words() {
        for random in ["ZxYPxGxHwMBU", "tcCfowHQyjwsVK", "xkqzwvbt", "AjmudCOez2fp8npebosKKa"] {
            assert!(is_jumbled(random), "{random}");
        }
        for word in
            ["password", "getAccessToken", "XMLHttpRequest", "SHA256withRSA", "hunter22", "short"]
        {
            assert!(!is_jumbled(word), "{word}");
        }
    }
}
