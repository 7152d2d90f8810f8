//! One level of decoding: what is written in base64, hex or percent signs is
//! looked into.

use std::ops::Range;

use base64::Engine as _;
use base64::alphabet::Alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use memchr::memchr;
use zeroize::Zeroizing;

/// A shorter run of letters is a word, not an encoding.
const MIN_RUN_BYTES: usize = 20;

/// A shorter run of hex digits holds no secret of ours.
const MIN_HEX_BYTES: usize = 32;

/// Encoders break lines of base64 at 64 or 76 characters; a run in a line as
/// long as this goes on in the next.
const MIN_WRAPPED_BYTES: usize = 60;

/// Decoded text between control characters that is too short to be looked at.
const MIN_PIECE_BYTES: usize = 12;

/// The bytes of which both alphabets of base64, and hex, are made.
static IS_RUN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let is_run = (byte as u8).is_ascii_alphanumeric();
        table[byte] = is_run || matches!(byte as u8, b'+' | b'/' | b'-' | b'_');
        byte += 1;
    }
    table
};

/// Decodes every blob of `text`, and says which part of the text is hidden for
/// it: all of a blob whose text `looks` secret, with the name it gives.
pub(super) fn blobs<N>(
    text: &str,
    looks: &dyn Fn(&str) -> Option<N>,
    found: &mut dyn FnMut(Range<usize>, N),
) {
    let bytes = text.as_bytes();
    let mut from = 0;
    while let Some(run) = next_run(bytes, from) {
        let (run, joined) = wrapped(bytes, run);
        from = run.end;
        if let Some((part, name)) = within(&joined, looks) {
            let padding = bytes[run.end..].iter().take(2).take_while(|byte| **byte == b'=').count();
            // Over several lines the places are not those of the text.
            let is_wrapped = joined.len() != run.len();
            let end = if is_wrapped || part.end == joined.len() {
                run.end + padding
            } else {
                run.start + part.end
            };
            let start = if is_wrapped { run.start } else { run.start + part.start };
            found(start..end, name);
        }
    }
}

/// Where the blobs of `text` are; without an end for one whose next line may
/// come.
pub(super) fn spans(text: &str, found: &mut dyn FnMut(Range<usize>)) {
    let bytes = text.as_bytes();
    let mut from = 0;
    while let Some(run) = next_run(bytes, from) {
        let (run, _) = wrapped(bytes, run);
        from = run.end;
        let is_last = matches!(&bytes[run.end..], [] | [b'\n' | b'\r'] | [b'\r', b'\n']);
        found(run.start..if is_last { usize::MAX } else { run.end });
    }
}

/// The next run of [`MIN_RUN_BYTES`] or more, from `from` on.
fn next_run(bytes: &[u8], mut from: usize) -> Option<Range<usize>> {
    let is_run = |byte: &u8| IS_RUN[usize::from(*byte)];
    loop {
        let window = bytes.get(from..from + MIN_RUN_BYTES)?;
        match window.iter().rposition(|byte| !is_run(byte)) {
            // No run reaches over this byte: begin after it.
            Some(at) => from += at + 1,
            None => {
                let more = bytes[from + MIN_RUN_BYTES..].iter().take_while(|byte| is_run(byte));
                return Some(from..from + MIN_RUN_BYTES + more.count());
            }
        }
    }
}

/// A run with the lines on which it goes on, and its bytes without the breaks.
fn wrapped(bytes: &[u8], run: Range<usize>) -> (Range<usize>, Zeroizing<Vec<u8>>) {
    let mut joined = Zeroizing::new(bytes[run.clone()].to_vec());
    let (start, mut end, mut line) = (run.start, run.end, run.len());
    while line >= MIN_WRAPPED_BYTES {
        let rest = &bytes[end..];
        let feed = match rest {
            [b'\r', b'\n', ..] => 2,
            [b'\n', ..] => 1,
            _ => break,
        };
        let next: usize =
            rest[feed..].iter().take_while(|byte| IS_RUN[usize::from(**byte)]).count();
        if next == 0 {
            break;
        }
        joined.extend_from_slice(&rest[feed..feed + next]);
        end += feed + next;
        line = next;
    }
    (start..end, joined)
}

/// The part of a run that looks secret once it is decoded, and its name.
fn within<N>(run: &[u8], looks: &dyn Fn(&str) -> Option<N>) -> Option<(Range<usize>, N)> {
    let hex = parts(run, MIN_HEX_BYTES, |byte| byte.is_ascii_hexdigit());
    let found = hex.into_iter().find_map(|part| {
        let name = pieces(&unhex(&run[part.clone()]), looks)?;
        Some((part, name))
    });
    found.or_else(|| {
        let standard = parts(run, MIN_RUN_BYTES, |byte| !b"-_".contains(&byte));
        let url_safe = if run.iter().any(|byte| b"-_".contains(byte)) {
            parts(run, MIN_RUN_BYTES, |byte| !b"+/".contains(&byte))
        } else {
            Vec::new()
        };
        let alphabets =
            [(standard, base64::alphabet::STANDARD), (url_safe, base64::alphabet::URL_SAFE)];
        alphabets.iter().find_map(|(parts, alphabet)| {
            parts.iter().find_map(|part| unaligned(run, part, alphabet, looks))
        })
    })
}

/// A path before a blob shifts it, so every alignment is tried.
fn unaligned<N>(
    run: &[u8],
    part: &Range<usize>,
    alphabet: &Alphabet,
    looks: &dyn Fn(&str) -> Option<N>,
) -> Option<(Range<usize>, N)> {
    (part.start..part.start + 4).find_map(|start| {
        let name = pieces(&unbase64(&run[start..part.end], alphabet), looks)?;
        Some((start..part.end, name))
    })
}

/// The longest stretches of a run whose bytes all pass, of `least` or more.
fn parts(run: &[u8], least: usize, passes: impl Fn(u8) -> bool) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut from = 0;
    for (at, byte) in run.iter().map(Some).chain([None]).enumerate() {
        if !byte.is_some_and(|byte| passes(*byte)) {
            if at - from >= least {
                parts.push(from..at);
            }
            from = at + 1;
        }
    }
    parts
}

/// The first name that a piece of readable text within `decoded` gets.
fn pieces<N>(decoded: &[u8], looks: &dyn Fn(&str) -> Option<N>) -> Option<N> {
    let is_break = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r');
    let valid = decoded.utf8_chunks().map(|chunk| chunk.valid());
    let long = valid.filter(|text| text.len() >= MIN_PIECE_BYTES);
    long.flat_map(|text| text.split(is_break))
        .filter(|piece| piece.len() >= MIN_PIECE_BYTES)
        .find_map(looks)
}

fn unhex(digits: &[u8]) -> Zeroizing<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0) as u8;
    Zeroizing::new(
        digits.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect(),
    )
}

fn unbase64(run: &[u8], alphabet: &Alphabet) -> Zeroizing<Vec<u8>> {
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    // A lone last character holds no byte.
    let whole = run.len() - usize::from(run.len() % 4 == 1);
    let decoded = GeneralPurpose::new(alphabet, config).decode(&run[..whole]);
    Zeroizing::new(decoded.unwrap_or_default())
}

/// A word of the text in which percent signs were decoded.
pub(super) struct Unescaped {
    pub text: Zeroizing<String>,
    /// For each byte of it, and for its end, where it comes from in the text.
    places: Vec<usize>,
}

impl Unescaped {
    /// Where a part of the decoded word is in the text.
    pub(super) fn place(&self, part: Range<usize>) -> Range<usize> {
        self.places[part.start]..self.places[part.end]
    }
}

/// The words with percent signs in them, decoded.
pub(super) fn unescaped(text: &str, found: &mut dyn FnMut(Unescaped)) {
    let bytes = text.as_bytes();
    let mut from = 0;
    while let Some(escape) = next_escape(bytes, from) {
        let before = bytes[from..escape].iter().rposition(|byte| ends_word(*byte));
        let start = from + before.map_or(0, |at| at + 1);
        let end = bytes[escape..].iter().position(|byte| ends_word(*byte));
        let end = end.map_or(bytes.len(), |at| escape + at);
        unescape(bytes, start..end, found);
        from = end;
    }
}

fn ends_word(byte: u8) -> bool {
    byte.is_ascii_whitespace() || b"\"'`<>".contains(&byte)
}

/// The next `%` with two hex digits.
fn next_escape(bytes: &[u8], mut from: usize) -> Option<usize> {
    loop {
        let at = from + memchr(b'%', bytes.get(from..)?)?;
        match bytes.get(at + 1..at + 3) {
            Some(pair) if pair.iter().all(u8::is_ascii_hexdigit) => return Some(at),
            _ => from = at + 1,
        }
    }
}

/// Tells what is text in a decoded word; bytes that are none part it.
fn unescape(bytes: &[u8], word: Range<usize>, found: &mut dyn FnMut(Unescaped)) {
    let mut decoded = Zeroizing::new(Vec::with_capacity(word.len()));
    let mut places = Vec::with_capacity(word.len() + 1);
    let mut at = word.start;
    while at < word.end {
        places.push(at);
        let pair = bytes.get(at + 1..(at + 3).min(word.end));
        match pair {
            Some(pair)
                if bytes[at] == b'%'
                    && pair.len() == 2
                    && pair.iter().all(u8::is_ascii_hexdigit) =>
            {
                decoded.extend_from_slice(&unhex(pair));
                at += 3;
            }
            _ => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    places.push(word.end);
    let mut from = 0;
    for chunk in decoded.utf8_chunks() {
        let to = from + chunk.valid().len();
        let text = Zeroizing::new(chunk.valid().to_owned());
        found(Unescaped { text, places: places[from..=to].to_vec() });
        from = to + chunk.invalid().len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        let looks = |text: &str| text.contains("needle").then_some(());
        blobs(text, &looks, &mut |range, ()| found.push(text[range].to_owned()));
        found
    }

    fn encode(text: &str) -> String {
        base64::engine::general_purpose::STANDARD.encode(text)
    }

    #[test]
    fn blobs_are_looked_into() {
        let blob = encode("there is a needle in here");
        assert_eq!(hidden(&format!("x {blob}, y")), [blob.as_str()]);
        assert_eq!(hidden(&format!("é{blob}é")), [blob.as_str()]);
        let hex: String = "there is a needle".bytes().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hidden(&format!("{hex} {}", hex.to_uppercase())),
            [hex.clone(), hex.to_uppercase()]
        );
        let url =
            base64::engine::general_purpose::URL_SAFE_NO_PAD.encode("~~~>>>??? needle ~~~>>>???");
        assert_eq!(hidden(&url), [url.as_str()]);
        assert_eq!(hidden(&encode("there is nothing at all in here")), [""; 0]);
        assert_eq!(hidden("averylongwordthatisnoencodingofanything"), [""; 0]);
    }

    #[test]
    fn a_blob_within_binary_or_after_a_path_is_found() {
        let binary = base64::engine::general_purpose::STANDARD
            .encode(b"\xff\xfe\0\0a needle in it\0\xff\xff");
        assert_eq!(hidden(&binary).len(), 1);
        for path in ["a/", "ab/", "abc/", "abcd/"] {
            assert_eq!(
                hidden(&format!("{path}{}", encode("there is a needle in here"))).len(),
                1,
                "{path}"
            );
        }
    }

    #[test]
    fn a_blob_beside_other_letters_is_found() {
        let blob = encode("there is a needle in here");
        assert_eq!(hidden(&format!("https://h.example/my-app/x/{blob}")).len(), 1);
        let hex: String = "there is a needle".bytes().map(|byte| format!("{byte:02x}")).collect();
        for before in ["0x", "dump-", "blob/"] {
            let found = hidden(&format!("{before}{hex} z"));
            assert!(found.len() == 1 && found[0].ends_with(&hex), "{before}: {found:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_part_a_word() {
        let mut words = Vec::new();
        unescaped("x?q=caf%E9&t=a%5Fb%FF%63", &mut |word| words.push(word.text.to_string()));
        assert_eq!(words, ["x?q=caf", "&t=a_b", "c"]);
    }

    #[test]
    fn wrapped_lines_are_one_blob() {
        let long = encode(&("x".repeat(70) + "needle" + &"y".repeat(30)));
        for (width, feed) in [(76, "\n"), (64, "\r\n")] {
            let lines: Vec<&str> =
                long.as_bytes().chunks(width).map(|line| str::from_utf8(line).unwrap()).collect();
            let text = lines.join(feed);
            assert_eq!(hidden(&format!("begin\n{text}\nend")), [text.as_str()]);
        }
    }

    #[test]
    fn percent_signs_are_decoded_with_their_places() {
        let mut words = Vec::new();
        let text = "é 50% off a%3Db%C3%A9 \"x%2Fy\" %zz %4";
        unescaped(text, &mut |word| words.push(word));
        let shown: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(shown, ["a=bé", "x/y"]);
        assert_eq!(&text[words[0].place(1..3)], "%3Db");
        assert_eq!(&text[words[0].place(0..5)], "a%3Db%C3%A9");
    }
}
