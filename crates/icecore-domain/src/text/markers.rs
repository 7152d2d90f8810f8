//! The marks that stand where a secret was, in running text.

use std::borrow::Cow;

/// What every marker of ours begins with.
pub(crate) const MARKER: &str = "[REDACTED:";

/// The longest marker.
const MAX_MARKER_BYTES: usize = 80;

/// Whether a sentence of `text` begins or ends within a marker.
#[expect(clippy::ptr_arg, reason = "only what is borrowed has a place in the text")]
pub(crate) fn cuts_marker(text: &str, sentence: &Cow<'_, str>) -> bool {
    let Cow::Borrowed(slice) = sentence else { return false };
    let start = (slice.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    let is_within = |end: usize| {
        let from = text.floor_char_boundary(end.saturating_sub(MAX_MARKER_BYTES));
        let to = text.ceil_char_boundary((end + MAX_MARKER_BYTES).min(text.len()));
        let around = &text[from..to];
        around.match_indices(MARKER).any(|(at, _)| {
            let close = around[at..].find(']').map(|length| from + at + length);
            from + at < end && close.is_some_and(|close| end <= close)
        })
    };
    is_within(start) || is_within(start + slice.len())
}

/// Whether there is a word beside markers.
pub(crate) fn says_something(text: &str) -> bool {
    without_markers(text).contains(char::is_alphanumeric)
}

/// The text without our markers.
pub(crate) fn without_markers(text: &str) -> Cow<'_, str> {
    if !text.contains(MARKER) {
        return Cow::Borrowed(text);
    }
    let mut rest = text;
    let mut plain = String::new();
    while let Some(at) = rest.find(MARKER) {
        plain.push_str(&rest[..at]);
        let end = rest[at..].find(']').map_or(rest.len(), |length| at + length + 1);
        rest = &rest[end..];
    }
    plain.push_str(rest);
    Cow::Owned(plain)
}

/// `text` up to a marker that it cuts.
pub(crate) fn whole_markers(text: &str) -> &str {
    let open = text.rfind('[').filter(|at| !text[*at..].contains(']'));
    match open.filter(|at| MARKER.starts_with(&text[*at..]) || text[*at..].starts_with(MARKER)) {
        Some(at) => text[..at].trim_end(),
        None => text,
    }
}
