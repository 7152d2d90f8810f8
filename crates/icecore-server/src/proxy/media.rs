//! Pictures, sounds and files within messages: kept as hash and placeholder.
//!
//! The client's own bytes go upstream; what we keep says what was there.

use sha2::{Digest, Sha256};

/// Text that is shorter stands for itself.
const LEAST_BYTES: usize = 256;

/// Keys under which providers have the bytes of a file.
const KEYS: [&str; 4] = ["data", "file_data", "b64_json", "bytes"];

/// Whether a value in JSON could hold a file's bytes; most do not, and need no closer look.
pub(crate) fn may_be_in(json: &str) -> bool {
    json.len() >= LEAST_BYTES
        && (json.contains(";base64,")
            || KEYS.iter().any(|key| json.contains(&format!("\"{key}\""))))
}

/// What stands for the text under `key`, if that is a file's bytes.
pub(crate) fn placeholder(key: Option<&str>, text: &str) -> Option<String> {
    let (kind, data) = match text.strip_prefix("data:").and_then(|rest| rest.split_once(',')) {
        Some((kind, data)) if kind.ends_with(";base64") => (kind.trim_end_matches(";base64"), data),
        _ => ("media", text),
    };
    let is_named = data.len() < text.len() || key.is_some_and(|key| KEYS.contains(&key));
    let is_data = is_named && data.len() >= LEAST_BYTES && data.bytes().all(is_base64);
    is_data.then(|| {
        let hash = hex::encode(Sha256::digest(data.as_bytes()));
        format!("[{kind}, {} bytes, sha256:{hash}]", data.len() / 4 * 3)
    })
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=-_".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_from_words() {
        let data = "iVBORw0KGgoAAAAN".repeat(32);
        let check = |key: Option<&str>, text: &str, expected: Option<&str>| {
            let found = placeholder(key, text);
            match expected {
                Some(begin) => {
                    assert!(found.is_some_and(|found| found.starts_with(begin)), "{text}")
                }
                None => assert_eq!(found, None, "{text}"),
            }
        };
        let png = format!("data:image/png;base64,{data}");
        check(Some("url"), &png, Some("[image/png, 384 bytes, sha256:"));
        check(Some("data"), &data, Some("[media, 384 bytes, sha256:"));
        check(Some("text"), &data, None);
        check(None, &data, None);
        check(Some("url"), "https://example.com/a.png", None);
        check(Some("data"), "a few words", None);
        check(Some("url"), "data:text/plain;base64,aGk=", None);
        assert_eq!(placeholder(Some("data"), &data), placeholder(Some("data"), &data));
    }
}
