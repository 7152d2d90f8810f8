//! Text that TEXT cannot hold.
//!
//! PostgreSQL refuses U+0000 in a text. It is stored as U+0001 U+0001, and U+0001 itself
//! as U+0001 U+0002. Nothing else changes; no two texts are stored alike, and they are in
//! the same order as before.

use std::borrow::Cow;

const ESCAPE: char = '\u{1}';
const FOR_NUL: char = '\u{1}';
const FOR_ESCAPE: char = '\u{2}';

/// The text as it is stored.
pub(super) fn stored(text: &str) -> Cow<'_, str> {
    let is_special = |c| c == '\0' || c == ESCAPE;
    if !text.contains(is_special) {
        return Cow::Borrowed(text);
    }
    let mut stored = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\0' => stored.extend([ESCAPE, FOR_NUL]),
            ESCAPE => stored.extend([ESCAPE, FOR_ESCAPE]),
            other => stored.push(other),
        }
    }
    Cow::Owned(stored)
}

/// The text that was stored so, or `None` if none is.
pub(super) fn original(stored: &str) -> Option<Cow<'_, str>> {
    if !stored.contains(ESCAPE) {
        return Some(Cow::Borrowed(stored));
    }
    let mut text = String::with_capacity(stored.len());
    let mut chars = stored.chars();
    while let Some(c) = chars.next() {
        match c {
            ESCAPE => match chars.next()? {
                FOR_NUL => text.push('\0'),
                FOR_ESCAPE => text.push(ESCAPE),
                _ => return None,
            },
            other => text.push(other),
        }
    }
    Some(Cow::Owned(text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_needs_no_escape_is_left_alone() {
        assert!(matches!(stored("a \u{2} \u{1a} ü"), Cow::Borrowed(_)));
        assert_eq!(stored("\0\u{1}"), "\u{1}\u{1}\u{1}\u{2}");
        assert_eq!(original("\u{1}"), None);
        assert_eq!(original("\u{1}x"), None);
    }

    proptest! {
        #[test]
        fn every_text_comes_back_and_keeps_its_place(
            a in "[\\x00-\\x03a]{0,8}|\\PC{0,8}",
            b in "[\\x00-\\x03a]{0,8}|\\PC{0,8}",
        ) {
            let (x, y) = (stored(&a), stored(&b));
            prop_assert!(!x.contains('\0'));
            prop_assert_eq!(original(&x).unwrap(), a.as_str());
            prop_assert_eq!(x.as_bytes().cmp(y.as_bytes()), a.as_bytes().cmp(b.as_bytes()));
        }
    }
}
