//! Checks that a number written like a card, an account or a national id is one.
//!
//! Each takes the number as it stands in the text, with its spaces and dashes.

use std::net::IpAddr;

/// Endings of file names that read like an address, as in `logo@2x.png`.
#[rustfmt::skip]
const FILE_ENDINGS: &[&str] = &[
    "png", "jpg", "jpeg", "gif", "svg", "webp", "avif", "ico", "css", "js", "mjs", "ts", "html",
    "json", "map", "service", "local", "localhost", "internal", "invalid", "example", "test",
];

/// The length of an IBAN by country.
#[rustfmt::skip]
const IBAN_LENGTHS: &[(&str, usize)] = &[
    ("AD", 24), ("AE", 23), ("AL", 28), ("AT", 20), ("AZ", 28), ("BA", 20), ("BE", 16), ("BG", 22),
    ("BH", 22), ("BR", 29), ("CH", 21), ("CR", 22), ("CY", 28), ("CZ", 24), ("DE", 22), ("DK", 18),
    ("DO", 28), ("EE", 20), ("EG", 29), ("ES", 24), ("FI", 18), ("FO", 18), ("FR", 27), ("GB", 22),
    ("GE", 22), ("GI", 23), ("GL", 18), ("GR", 27), ("GT", 28), ("HR", 21), ("HU", 28), ("IE", 22),
    ("IL", 23), ("IQ", 23), ("IS", 26), ("IT", 27), ("JO", 30), ("KW", 30), ("KZ", 20), ("LB", 28),
    ("LI", 21), ("LT", 20), ("LU", 20), ("LV", 21), ("MC", 27), ("MD", 24), ("ME", 22), ("MK", 19),
    ("MR", 27), ("MT", 31), ("MU", 30), ("NL", 18), ("NO", 15), ("PK", 24), ("PL", 28), ("PS", 29),
    ("PT", 25), ("QA", 29), ("RO", 24), ("RS", 22), ("SA", 24), ("SE", 24), ("SI", 19), ("SK", 24),
    ("SM", 27), ("TN", 24), ("TR", 26), ("UA", 29), ("VA", 22), ("XK", 20),
];

/// An e-mail address, not a file or a place only a machine knows.
pub(super) fn email(value: &str) -> bool {
    let ending = value.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    let local = value.split('@').next().unwrap_or_default();
    value.contains('@')
        && !FILE_ENDINGS.contains(&ending.as_str())
        && !local.is_empty()
        && local != "git"
        && !value.contains("..")
}

/// A telephone number: as many digits as one has, and not all of them alike.
pub(super) fn phone(value: &str) -> bool {
    let digits = digits(value);
    let least = if value.starts_with('+') { 8 } else { 9 };
    (least..=15).contains(&digits.len()) && digits.iter().any(|digit| *digit != digits[0])
}

/// A payment card: an issuer's prefix, its length, and Luhn's digit.
pub(super) fn payment_card(value: &str) -> bool {
    let digits = digits(value);
    let lead = |count: usize| number(&digits[..count.min(digits.len())]);
    let is_issued = match digits.len() {
        13 => lead(1) == 4,
        14 => matches!(lead(3), 300..=305) || matches!(lead(2), 36 | 38),
        15 => matches!(lead(2), 34 | 37),
        16 => {
            lead(1) == 4
                || matches!(lead(2), 51..=55 | 62 | 65)
                || matches!(lead(3), 644..=649)
                || matches!(lead(4), 2221..=2720 | 3528..=3589 | 5018 | 5020 | 5038 | 6011 | 6304)
        }
        17..=19 => matches!(lead(2), 62 | 65) || lead(4) == 6011 || lead(1) == 4,
        _ => false,
    };
    is_issued && luhn(&digits)
}

/// An IBAN: the country's length and the remainder of 97. What stands after its
/// end in the same groups is let go.
pub(super) fn iban(value: &str) -> bool {
    let compact: String = value.chars().filter(char::is_ascii_alphanumeric).collect();
    let length = IBAN_LENGTHS.iter().find(|(country, _)| compact.starts_with(country));
    let Some(iban) = length.and_then(|(_, length)| compact.get(..*length)) else { return false };
    let turned = iban.bytes().skip(4).chain(iban.bytes().take(4));
    let remainder = turned.fold(0_u32, |rest, byte| match byte {
        b'0'..=b'9' => (rest * 10 + u32::from(byte - b'0')) % 97,
        _ => (rest * 100 + u32::from(byte.to_ascii_uppercase() - b'A') + 10) % 97,
    });
    remainder == 1
}

/// A United States social security number: no checksum, but parts never given out.
pub(super) fn us_ssn(value: &str) -> bool {
    let digits = digits(value);
    digits.len() == 9
        && !matches!(number(&digits[..3]), 0 | 666 | 900..)
        && number(&digits[3..5]) != 0
        && number(&digits[5..]) != 0
}

/// A number of the National Health Service of England.
pub(super) fn uk_nhs(value: &str) -> bool {
    let digits = digits(value);
    digits.len() == 10 && weighed(&digits, &[10, 9, 8, 7, 6, 5, 4, 3, 2, 1]).is_multiple_of(11)
}

/// A German tax id: one digit twice or thrice among the first ten, then the
/// check digit of ISO 7064.
pub(super) fn de_tax_id(value: &str) -> bool {
    let digits = digits(value);
    if digits.len() != 11 || digits[0] == 0 {
        return false;
    }
    let count = |wanted: u32| digits[..10].iter().filter(|digit| **digit == wanted).count();
    let repeated: Vec<usize> = (0..10).map(count).filter(|count| *count > 1).collect();
    let product = digits[..10].iter().fold(10, |product, digit| {
        let sum = (digit + product) % 10;
        (if sum == 0 { 10 } else { sum }) * 2 % 11
    });
    matches!(repeated[..], [2 | 3]) && (11 - product) % 10 == digits[10]
}

/// A French social security number with its key.
pub(super) fn fr_nir(value: &str) -> bool {
    let compact: String = value.chars().filter(char::is_ascii_alphanumeric).collect();
    let plain = compact.to_ascii_uppercase().replace("2A", "19").replace("2B", "18");
    let digits = digits(&plain);
    digits.len() == 15 && 97 - remainder_of_97(&digits[..13]) == number(&digits[13..])
}

/// A Spanish identity number, of a national or a foreigner.
pub(super) fn es_dni(value: &str) -> bool {
    let compact: String = value.chars().filter(char::is_ascii_alphanumeric).collect();
    let plain = compact.to_ascii_uppercase();
    let plain = match plain.as_bytes().first() {
        Some(first @ b'X'..=b'Z') => format!("{}{}", first - b'X', &plain[1..]),
        _ => plain,
    };
    let Some((number_part, letter)) = plain.split_at_checked(8) else { return false };
    let letters = b"TRWAGMYFPDXBNJZSQVHLCKE";
    let index = number_part.parse::<usize>().map(|number| number % letters.len());
    index.is_ok_and(|index| letter.as_bytes() == &letters[index..=index])
}

/// An Italian tax code, by its last letter.
pub(super) fn it_codice_fiscale(value: &str) -> bool {
    const ODD: [u32; 26] = [
        1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24,
        23,
    ];
    let code = value.to_ascii_uppercase();
    let worth = |(at, byte): (usize, u8)| {
        let order = u32::from(if byte.is_ascii_digit() { byte - b'0' } else { byte - b'A' });
        if at % 2 == 0 { ODD[order as usize] } else { order }
    };
    code.len() == 16
        && code.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && u32::from(code.as_bytes()[15]).checked_sub(u32::from(b'A'))
            == Some(code.bytes().take(15).enumerate().map(worth).sum::<u32>() % 26)
}

/// A Dutch citizen's service number.
pub(super) fn nl_bsn(value: &str) -> bool {
    let digits = digits(value);
    digits.len() == 9
        && number(&digits) > 0
        && (weighed(&digits[..8], &[9, 8, 7, 6, 5, 4, 3, 2]) + 11 - digits[8]).is_multiple_of(11)
}

/// A Brazilian taxpayer number.
pub(super) fn br_cpf(value: &str) -> bool {
    let digits = digits(value);
    let check = |count: usize| {
        let weights = (2..=count as u32 + 1).rev();
        let sum: u32 = digits[..count].iter().zip(weights).map(|(digit, by)| digit * by).sum();
        sum * 10 % 11 % 10
    };
    digits.len() == 11
        && digits.iter().any(|digit| *digit != digits[0])
        && check(9) == digits[9]
        && check(10) == digits[10]
}

/// An Indian Aadhaar number, by Verhoeff's digit.
pub(super) fn in_aadhaar(value: &str) -> bool {
    let digits = digits(value);
    digits.len() == 12 && digits[0] > 1 && verhoeff(&digits)
}

/// A Canadian social insurance number.
pub(super) fn ca_sin(value: &str) -> bool {
    let digits = digits(value);
    digits.len() == 9 && number(&digits) > 0 && luhn(&digits)
}

/// An Australian tax file number.
pub(super) fn au_tfn(value: &str) -> bool {
    let digits = digits(value);
    digits.len() == 9
        && number(&digits) > 0
        && weighed(&digits, &[1, 4, 3, 7, 5, 8, 6, 9, 10]).is_multiple_of(11)
}

/// A Chinese resident identity number.
pub(super) fn cn_resident_id(value: &str) -> bool {
    let Some((body, check)) = value.split_at_checked(17) else { return false };
    let digits = digits(body);
    let sum = weighed(&digits, &[7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2]);
    let expected = b"10X98765432"[(sum % 11) as usize];
    digits.len() == 17 && check.to_ascii_uppercase().as_bytes() == [expected]
}

/// A Swedish personal number.
pub(super) fn se_personnummer(value: &str) -> bool {
    let digits = digits(value);
    let last = &digits[digits.len().saturating_sub(10)..];
    matches!(digits.len(), 10 | 12) && luhn(last)
}

/// A Polish personal number, with the month of its date.
pub(super) fn pl_pesel(value: &str) -> bool {
    let digits = digits(value);
    digits.len() == 11
        && matches!(number(&digits[2..4]) % 20, 1..=12)
        && matches!(number(&digits[4..6]), 1..=31)
        && weighed(&digits, &[1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1]).is_multiple_of(10)
}

/// An address of some other machine: no loopback, no mask, no blank.
pub(super) fn ip_address(value: &str) -> bool {
    match value.parse() {
        Ok(IpAddr::V4(ip)) => !ip.is_loopback() && !matches!(ip.octets()[0], 0 | 255),
        Ok(IpAddr::V6(ip)) => !ip.is_loopback() && !ip.is_unspecified(),
        Err(_) => false,
    }
}

fn digits(value: &str) -> Vec<u32> {
    value.chars().filter_map(|c| c.to_digit(10)).collect()
}

fn number(digits: &[u32]) -> u32 {
    digits.iter().fold(0, |number: u32, digit| number.wrapping_mul(10).wrapping_add(*digit))
}

fn weighed(digits: &[u32], weights: &[u32]) -> u32 {
    digits.iter().zip(weights).map(|(digit, weight)| digit * weight).sum()
}

fn remainder_of_97(digits: &[u32]) -> u32 {
    digits.iter().fold(0, |rest, digit| (rest * 10 + digit) % 97)
}

fn luhn(digits: &[u32]) -> bool {
    let worth = |(at, digit): (usize, &u32)| match at % 2 {
        0 => *digit,
        _ => digit * 2 / 10 + digit * 2 % 10,
    };
    digits.iter().rev().enumerate().map(worth).sum::<u32>().is_multiple_of(10)
}

/// Verhoeff's check, whose table is the multiplication of the group of the
/// pentagon, and whose permutation is applied once more at each place.
fn verhoeff(digits: &[u32]) -> bool {
    const PERMUTED: [u32; 10] = [1, 5, 7, 6, 2, 8, 3, 0, 9, 4];
    let permuted = |digit: u32, times: usize| (0..times).fold(digit, |d, _| PERMUTED[d as usize]);
    let times = |a: u32, b: u32| match (a < 5, b < 5) {
        (true, true) => (a + b) % 5,
        (true, false) => (a + b - 5) % 5 + 5,
        (false, true) => (a - 5 + 5 - b) % 5 + 5,
        (false, false) => (a + 5 - b) % 5,
    };
    let places = digits.iter().rev().enumerate();
    places.fold(0, |rest, (at, digit)| times(rest, permuted(*digit, at % 8))) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    type Check = fn(&str) -> bool;

    /// Numbers that the issuers themselves publish as examples.
    #[test]
    fn published_examples_hold() {
        let checks: &[(Check, &[&str])] = &[
            (
                payment_card,
                &[
                    "4111 1111 1111 1111", "378282246310005", "5555-5555-5555-4444",
                    "6011111111111117", "3530111333300000", "30569309025904", "2223003122003222",
                ],
            ),
            (iban, &["GB82 WEST 1234 5698 7654 32", "DE89370400440532013000"]),
            (iban, &["FR1420041010050500013M02606", "NO9386011117947"]),
            (us_ssn, &["078-05-1120", "219 09 9999"]),
            (uk_nhs, &["943 476 5919"]),
            (de_tax_id, &["86095742719", "65929970489"]),
            (fr_nir, &["2 55 08 14 168 025 38"]),
            (es_dni, &["12345678Z", "X1234567L", "12345678-Z"]),
            (it_codice_fiscale, &["RSSMRA85T10A562S", "MRTMTT25D09F205Z"]),
            (nl_bsn, &["111222333", "123456782"]),
            (br_cpf, &["529.982.247-25", "111.444.777-35"]),
            (in_aadhaar, &["2341 2341 2346"]),
            (ca_sin, &["046 454 286", "130-692-544"]),
            (au_tfn, &["123 456 782", "876543210"]),
            (cn_resident_id, &["11010519491231002X"]),
            (se_personnummer, &["811218-9876", "19811218-9876"]),
            (pl_pesel, &["44051401359"]),
            (ip_address, &["192.0.2.7", "2001:db8::7"]),
            (phone, &["+44 20 7946 0958", "(555) 010-0199"]),
            (email, &["jane.doe+x@mail.acme.dev"]),
        ];
        for (check, values) in checks {
            for value in *values {
                assert!(check(value), "{value}");
            }
        }
    }

    /// One digit or letter more, less or other, and the number is none.
    #[test]
    fn near_misses_fail() {
        let checks: &[(Check, &str)] = &[
            (payment_card, "4111 1111 1111 1112"),
            (payment_card, "9111111111111111"),
            (iban, "GB82 WEST 1234 5698 7654 33"),
            (iban, "ZZ82 WEST 1234 5698 7654 32"),
            (us_ssn, "666-05-1120"),
            (us_ssn, "078-00-1120"),
            (uk_nhs, "943 476 5918"),
            (de_tax_id, "86095742718"),
            (de_tax_id, "11111111111"),
            (fr_nir, "2 55 08 14 168 025 39"),
            (es_dni, "12345678A"),
            (es_dni, "1234"),
            (it_codice_fiscale, "RSSMRA85T10A562T"),
            (nl_bsn, "111222334"),
            (br_cpf, "111.111.111-11"),
            (in_aadhaar, "2341 2341 2347"),
            (ca_sin, "046 454 287"),
            (au_tfn, "123 456 783"),
            (cn_resident_id, "110105194912310021"),
            (se_personnummer, "811218-9877"),
            (pl_pesel, "44051401358"),
            (ip_address, "127.0.0.1"),
            (ip_address, "255.255.255.0"),
            (ip_address, "1.2.3.400"),
            (phone, "+1 555"),
            (email, "logo@2x.png"),
            (email, "git@forge.acme.dev"),
        ];
        for (check, value) in checks {
            assert!(!check(value), "{value}");
        }
        for check in checks.iter().map(|(check, _)| check) {
            assert!(!check("") && !check("é") && !check("0"), "nothing is no number");
        }
    }
}
