//! The escape of CTF 2: what may stand in a cell, and how.
//!
//! | written | means |
//! |---|---|
//! | `\t` `\n` `\r` `\\` | tab, line feed, carriage return, backslash |
//! | `\,` `\^` | a comma or caret inside an item of a list |
//! | `\e` alone | a text that is there and empty |
//! | `\0` alone | a list that is there and empty |
//!
//! Everything else stands for itself, control characters too: lines end at
//! `\n` and nowhere else.

use std::borrow::Cow;

use memchr::{memchr, memchr2, memchr3};

/// An escape that means nothing, with its backslash.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadEscape(pub(super) String);

/// Appends `text` so that it stays within its cell.
pub(super) fn push_text(out: &mut String, text: &str) {
    let bytes = text.as_bytes();
    if memchr3(b'\\', b'\t', b'\n', bytes).is_none() && memchr(b'\r', bytes).is_none() {
        out.push_str(text);
    } else {
        push_escaped(out, text, false);
    }
}

/// Appends a text that may be absent: an empty cell is absent, `\e` is empty.
pub(super) fn push_optional(out: &mut String, text: Option<&str>) {
    match text {
        None => {}
        Some("") => out.push_str("\\e"),
        Some(text) => push_text(out, text),
    }
}

/// Appends one item of a list.
pub(super) fn push_item(out: &mut String, item: &str) {
    match item {
        "" => out.push_str("\\e"),
        item => push_escaped(out, item, true),
    }
}

/// Appends a list that is there.
pub(super) fn push_list(out: &mut String, items: &[String]) {
    if items.is_empty() {
        out.push_str("\\0");
    }
    for (nth, item) in items.iter().enumerate() {
        if nth > 0 {
            out.push(',');
        }
        push_item(out, item);
    }
}

/// Appends JSON in its own spelling. Tabs and line ends can only stand between
/// its tokens, and there a backslash cannot; so `\t` outside of a string is
/// unambiguous, and JSON needs no doubled backslashes.
pub(super) fn push_json(out: &mut String, json: &str) {
    let mut rest = json;
    while let Some(at) = memchr3(b'\t', b'\n', b'\r', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        out.push_str(match rest.as_bytes()[at] {
            b'\t' => "\\t",
            b'\n' => "\\n",
            _ => "\\r",
        });
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
}

fn push_escaped(out: &mut String, text: &str, in_list: bool) {
    let mut done = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'\\' => "\\\\",
            b'\t' => "\\t",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b',' if in_list => "\\,",
            b'^' if in_list => "\\^",
            _ => continue,
        };
        out.push_str(&text[done..at]);
        out.push_str(escape);
        done = at + 1;
    }
    out.push_str(&text[done..]);
}

/// The text of a cell.
pub(super) fn read_text(cell: &str) -> Result<Cow<'_, str>, BadEscape> {
    let Some(mut at) = memchr(b'\\', cell.as_bytes()) else { return Ok(Cow::Borrowed(cell)) };
    let mut out = String::with_capacity(cell.len());
    let mut rest = cell;
    loop {
        out.push_str(&rest[..at]);
        out.push(match rest.as_bytes().get(at + 1) {
            Some(b't') => '\t',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(literal @ (b'\\' | b',' | b'^')) => char::from(*literal),
            _ => return Err(BadEscape(rest[at..].chars().take(2).collect())),
        });
        rest = &rest[at + 2..];
        match memchr(b'\\', rest.as_bytes()) {
            Some(next) => at = next,
            None => break,
        }
    }
    out.push_str(rest);
    Ok(Cow::Owned(out))
}

/// A text that may be absent.
pub(super) fn read_optional(cell: &str) -> Result<Option<String>, BadEscape> {
    match cell {
        "" => Ok(None),
        "\\e" => Ok(Some(String::new())),
        cell => Ok(Some(read_text(cell)?.into_owned())),
    }
}

/// The items of a list, each as it is written; no item for the empty list.
pub(super) fn raw_items(cell: &str) -> Vec<&str> {
    if cell == "\\0" {
        return Vec::new();
    }
    let (mut items, mut start, mut from) = (Vec::new(), 0, 0);
    while let Some(at) = memchr2(b',', b'\\', &cell.as_bytes()[from.min(cell.len())..]) {
        let at = from + at;
        if cell.as_bytes()[at] == b'\\' {
            from = at + 2;
        } else {
            items.push(&cell[start..at]);
            (start, from) = (at + 1, at + 1);
        }
    }
    items.push(&cell[start..]);
    items
}

/// A list that is there.
pub(super) fn read_list(cell: &str) -> Result<Vec<String>, BadEscape> {
    raw_items(cell).into_iter().map(|item| Ok(read_optional(item)?.unwrap_or_default())).collect()
}

/// The JSON text of a cell; what is no JSON is left for the parser to refuse.
pub(super) fn read_json(cell: &str) -> Cow<'_, str> {
    if memchr(b'\\', cell.as_bytes()).is_none() {
        return Cow::Borrowed(cell);
    }
    let mut out = String::with_capacity(cell.len());
    let (mut in_string, mut chars) = (false, cell.chars());
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                in_string = !in_string;
                out.push(c);
            }
            '\\' if in_string => {
                out.push(c);
                out.extend(chars.next());
            }
            '\\' => out.push(match chars.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                _ => '\\',
            }),
            _ => out.push(c),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back() {
        for text in ["", "-", "a\tb\nc\rd\\e", "\\", "\\t", "␉␊", "\0\u{b}\u{2028}", "a,^b"] {
            let mut cell = String::new();
            push_optional(&mut cell, Some(text));
            assert!(!cell.contains(['\t', '\n', '\r']), "{cell}");
            assert_eq!(read_optional(&cell).unwrap().as_deref(), Some(text));
        }
        assert_eq!(read_text("a\\x"), Err(BadEscape("\\x".into())));
        assert_eq!(read_text("a\\"), Err(BadEscape("\\".into())));
        assert_eq!(read_text("a\\é"), Err(BadEscape("\\é".into())));
    }

    #[test]
    fn lists_come_back() {
        for list in
            [vec![], vec![""], vec!["", ""], vec!["a,b", "^", "\\,"], vec!["\\0"], vec!["e"]]
        {
            let list: Vec<String> = list.into_iter().map(str::to_owned).collect();
            let mut cell = String::new();
            push_list(&mut cell, &list);
            assert!(!cell.is_empty());
            assert_eq!(read_list(&cell).unwrap(), list, "{cell}");
        }
        assert_eq!(raw_items("a\\"), ["a\\"]);
    }

    #[test]
    fn json_keeps_its_spelling() {
        for json in [r#"{"a":"\n\\\""}"#, "[1,\n\t\"x\\ty\",\r\n2]", "0.50", "\"\\u0041\""] {
            let mut cell = String::new();
            push_json(&mut cell, json);
            assert!(!cell.contains(['\t', '\n', '\r']), "{cell}");
            assert_eq!(read_json(&cell), json);
        }
    }
}
