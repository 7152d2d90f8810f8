//! JSON text in its original spelling.
//!
//! What a provider sent comes back as it was sent: numbers with their digits,
//! strings with their escapes, objects with their order. So we keep the text and
//! walk over it, instead of a tree that would be printed differently.

use std::fmt;

/// Nesting beyond this is refused; readers everywhere give up near it.
pub const MAX_JSON_DEPTH: usize = 127;

/// One valid JSON value, as text, nested at most [`MAX_JSON_DEPTH`] deep.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JsonText(String);

/// Text that is not a JSON value we keep.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    #[error("not valid JSON: {0}")]
    Invalid(String),
    #[error("JSON nested deeper than {MAX_JSON_DEPTH} levels")]
    TooDeep,
}

/// Where a text stands in a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextPlace<'a> {
    /// It is the key of a member.
    Key,
    /// It is a value under this key, or in a list under it.
    Under(&'a str),
    /// It is a value under no key.
    Alone,
}

fn place_under(keys: &[Option<String>]) -> TextPlace<'_> {
    let under = keys.iter().rev().find_map(Option::as_deref);
    under.map_or(TextPlace::Alone, TextPlace::Under)
}

impl JsonText {
    /// Checks that `text` is one JSON value; surrounding blanks are dropped and
    /// line breaks between its tokens become spaces.
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        let text = text.trim_matches([' ', '\t', '\r', '\n']);
        if depth(text) > MAX_JSON_DEPTH {
            return Err(JsonError::TooDeep);
        }
        serde_json::from_str::<&serde_json::value::RawValue>(text)
            .map_err(|error| JsonError::Invalid(syntax_reason(&error)))?;
        // A line break can only stand between tokens; a value must fit on a line.
        Ok(Self(text.replace(['\n', '\r'], " ")))
    }

    /// The JSON string literal of `text`.
    pub fn string(text: &str) -> Self {
        Self(quote(text))
    }

    /// An object without members.
    pub fn empty_object() -> Self {
        Self("{}".to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value as a tree.
    pub fn to_value(&self) -> serde_json::Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    /// Goes over the value's tokens in order; see [`Token`].
    pub fn tokens(&self) -> Tokens<'_> {
        Tokens::new(&self.0)
    }

    /// The value without blanks and with each string in its shortest spelling,
    /// so that two spellings of one value are equal. Key order is kept.
    pub fn normalised(&self) -> String {
        let mut out = String::with_capacity(self.0.len());
        for token in self.tokens() {
            match token {
                Token::Blank(_) => {}
                Token::Text { literal, .. } => out.push_str(&quote(&unquote(literal))),
                Token::Other(text) => out.push_str(text),
            }
        }
        out
    }

    /// A copy in which each string (keys too) and each bare scalar was offered
    /// to `replace`, with where it stands. A scalar that is replaced
    /// becomes a string; what is not replaced keeps its spelling.
    pub fn map_text(&self, mut replace: impl FnMut(TextPlace<'_>, &str) -> Option<String>) -> Self {
        let mut out = String::with_capacity(self.0.len());
        let mut keys: Vec<Option<String>> = Vec::new();
        for token in self.tokens() {
            match token {
                Token::Blank(text) => out.push_str(text),
                Token::Text { literal, is_key } => {
                    let text = unquote(literal);
                    if is_key && let Some(last) = keys.last_mut() {
                        *last = Some(text.clone());
                    }
                    let place = if is_key { TextPlace::Key } else { place_under(&keys) };
                    match replace(place, &text) {
                        Some(new) => out.push_str(&quote(&new)),
                        None => out.push_str(literal),
                    }
                }
                Token::Other(text) => {
                    match text {
                        "{" | "[" => keys.push(None),
                        "}" | "]" => {
                            keys.pop();
                        }
                        _ => {}
                    }
                    let is_scalar = !matches!(text, "{" | "}" | "[" | "]" | ":" | ",");
                    match is_scalar.then(|| replace(place_under(&keys), text)).flatten() {
                        Some(new) => out.push_str(&quote(&new)),
                        None => out.push_str(text),
                    }
                }
            }
        }
        Self(out)
    }
}

impl fmt::Display for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A piece of JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token<'a> {
    /// Spaces and line ends between tokens.
    Blank(&'a str),
    /// A string literal with its quotes.
    Text {
        /// The literal, quotes included.
        literal: &'a str,
        /// Whether it names a member of an object.
        is_key: bool,
    },
    /// A bracket, brace, colon, comma, number, `true`, `false` or `null`.
    Other(&'a str),
}

/// Iterator over the tokens of valid JSON.
pub struct Tokens<'a> {
    rest: &'a str,
    in_object: Vec<bool>,
    expects_key: bool,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text, in_object: Vec::new(), expects_key: false }
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (head, tail) = self.rest.split_at(bytes);
        self.rest = tail;
        head
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let bytes = self.rest.as_bytes();
        let run = |test: fn(&u8) -> bool| bytes.iter().take_while(|byte| test(byte)).count();
        match bytes.first()? {
            b' ' | b'\t' | b'\r' | b'\n' => {
                let length = run(u8::is_ascii_whitespace);
                Some(Token::Blank(self.take(length)))
            }
            b'"' => {
                let literal = self.take(literal_bytes(bytes));
                Some(Token::Text { literal, is_key: std::mem::take(&mut self.expects_key) })
            }
            bracket @ (b'{' | b'}' | b'[' | b']' | b':' | b',') => {
                match bracket {
                    b'{' | b'[' => self.in_object.push(*bracket == b'{'),
                    b'}' | b']' => {
                        self.in_object.pop();
                    }
                    _ => {}
                }
                let opens_member = matches!(bracket, b'{' | b',');
                self.expects_key = opens_member && self.in_object.last() == Some(&true);
                Some(Token::Other(self.take(1)))
            }
            _ => {
                let ends = |byte: &u8| {
                    byte.is_ascii_whitespace() || matches!(byte, b',' | b']' | b'}' | b':' | b'"')
                };
                let length = bytes.iter().take_while(|byte| !ends(byte)).count().max(1);
                Some(Token::Other(self.take(length)))
            }
        }
    }
}

/// The tokens of text that is known to be valid JSON of any depth.
pub(crate) fn tokens(text: &str) -> Tokens<'_> {
    Tokens::new(text)
}

/// Length of the string literal that `bytes` begins with.
fn literal_bytes(bytes: &[u8]) -> usize {
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for token in Tokens::new(text) {
        match token {
            Token::Other("{" | "[") => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            Token::Other("}" | "]") => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// What a parser says of text that is no JSON, without the text. Its words for
/// syntax are fixed; those for a value of the wrong type repeat the value.
pub(crate) fn syntax_reason(error: &serde_json::Error) -> String {
    match error.classify() {
        serde_json::error::Category::Data => {
            format!("a value of another type at line {} column {}", error.line(), error.column())
        }
        _ => error.to_string(),
    }
}

/// Text of at most this many characters is shown in a message.
const MAX_SHOWN_CHARS: usize = 64;

/// `text` for a message. What is too long is left out whole: a credential that
/// was cut short would no longer be known as one.
pub fn brief(text: &str) -> String {
    match text.chars().count() {
        0..=MAX_SHOWN_CHARS => text.to_owned(),
        count => format!("({count} characters)"),
    }
}

/// The JSON string literal of `text`, in its shortest spelling.
pub fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The text of a valid JSON string literal. A lone surrogate escape, which no
/// Rust string can hold, becomes U+FFFD.
pub fn unquote(literal: &str) -> String {
    if let Ok(text) = serde_json::from_str(literal) {
        return text;
    }
    let bytes: Vec<u8> =
        serde_json::from_str::<LossyBytes>(literal).map(|b| b.0).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// serde_json gives lone surrogates to byte visitors, as WTF-8.
struct LossyBytes(Vec<u8>);

impl<'de> serde::Deserialize<'de> for LossyBytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = LossyBytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<LossyBytes, E> {
                Ok(LossyBytes(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_its_spelling() {
        let text = r#"{ "a" : [1.50, "\u0041", true, null], "b":{"c":"x"} }"#;
        let json = JsonText::parse(text).unwrap();
        assert_eq!(json.as_str(), text);
        assert_eq!(json.map_text(|_, _| None).as_str(), text);
        assert_eq!(json.normalised(), r#"{"a":[1.50,"A",true,null],"b":{"c":"x"}}"#);
    }

    #[test]
    fn replaces_with_the_key_at_hand() {
        let json = JsonText::parse(r#"{"pin": 12345678, "list":["x", {"k":"y"}]}"#).unwrap();
        let mut seen = Vec::new();
        let out = json.map_text(|key, text| {
            seen.push(match key {
                TextPlace::Under(key) => format!("{key}={text}"),
                TextPlace::Key => format!("-={text}"),
                TextPlace::Alone => format!("={text}"),
            });
            (text == "12345678" || text == "y").then(|| "\"!".to_owned())
        });
        assert_eq!(seen.join(" "), "-=pin pin=12345678 -=list list=x -=k k=y");
        assert_eq!(out.as_str(), r#"{"pin": "\"!", "list":["x", {"k":"\"!"}]}"#);
    }

    #[test]
    fn a_value_fits_on_a_line() {
        let json = JsonText::parse("{\r\n  \"a\": \"x\\n\"\n}").unwrap();
        assert_eq!(json.as_str(), "{    \"a\": \"x\\n\" }");
    }

    #[test]
    fn refuses_what_is_not_json_or_too_deep() {
        for bad in ["", "{", "[1,]", "nope", "\"a", "{} {}", "\u{1}"] {
            assert!(matches!(JsonText::parse(bad), Err(JsonError::Invalid(_))), "{bad}");
        }
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(JsonText::parse(&nested(MAX_JSON_DEPTH)).is_ok());
        assert_eq!(JsonText::parse(&nested(MAX_JSON_DEPTH + 1)), Err(JsonError::TooDeep));
    }

    #[test]
    fn a_message_shows_short_text_whole_and_long_text_not_at_all() {
        assert_eq!(brief(&"é".repeat(64)), "é".repeat(64));
        assert_eq!(brief(&"é".repeat(65)), "(65 characters)");
    }

    #[test]
    fn survives_lone_surrogates() {
        let json = JsonText::parse(r#"{"a":"\ud800 x"}"#).unwrap();
        assert!(json.normalised().contains(" x"));
        assert_eq!(json.map_text(|_, _| None).as_str(), r#"{"a":"\ud800 x"}"#);
    }
}
