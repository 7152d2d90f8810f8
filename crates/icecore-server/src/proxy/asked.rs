//! What a client asks: its body, byte for byte, and where the messages are in it.
//!
//! ```json
//! {"model":"m", "messages":[{"role":"system",…},{"role":"user",…}], "tools":[…]}
//! ```
//!
//! The array of messages is put together anew; every other byte goes on as it came. The
//! leading system prompt and the tools stand beside the history.

use std::ops::Range;

use axum::body::Bytes;
use icecore::formats::json::quote;
use icecore::models::Protocol;
use icecore::sessions::{ClientMessage, FittedHistory};
use serde_json::value::RawValue;

use super::message;
use crate::body::Members;

/// A body that goes through untouched, and why: a word for a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotUnderstood(pub(crate) &'static str);

/// Values of JSON that a body may have. Each costs memory once it is read, up to a hundred
/// times the bytes that it came in.
const MOST_VALUES: usize = 1 << 18;

/// A request that is understood.
#[derive(Debug)]
pub(crate) struct Asked {
    body: Bytes,
    /// The array of messages, brackets included.
    array: Range<usize>,
    /// Leading system messages.
    lead: Vec<Range<usize>>,
    /// All others.
    history: Vec<Range<usize>>,
    /// What stands beside the history: system prompt and tools.
    beside: Vec<Range<usize>>,
    /// The history as it is kept.
    pub(crate) messages: Vec<ClientMessage>,
    /// The model, as the client names it.
    pub(crate) model: Option<String>,
    /// Tokens that the answer may have.
    pub(crate) answer_tokens: Option<u64>,
}

impl Asked {
    /// Reads a body.
    pub(crate) fn read(protocol: Protocol, body: Bytes) -> Result<Self, NotUnderstood> {
        if has_more_values(&body, MOST_VALUES) {
            return Err(NotUnderstood("too-many-values"));
        }
        let text = std::str::from_utf8(&body).map_err(|_| NotUnderstood("not-json"))?;
        let place = |part: &str| {
            let begin = part.as_ptr() as usize - text.as_ptr() as usize;
            begin..begin + part.len()
        };
        let Members(members) = serde_json::from_str(text).map_err(|_| NotUnderstood("not-json"))?;
        let named = |name: &str| members.iter().filter(|(key, _)| key == name).collect::<Vec<_>>();
        let array = match named("messages")[..] {
            [(_, array)] => *array,
            [] => return Err(NotUnderstood("no-messages")),
            // Which of two counts would depend on who reads them.
            _ => return Err(NotUnderstood("repeated-messages")),
        };
        let all: Vec<&RawValue> =
            serde_json::from_str(array.get()).map_err(|_| NotUnderstood("no-messages"))?;
        let mut asked = Self {
            array: place(array.get()),
            lead: Vec::new(),
            history: Vec::new(),
            beside: Vec::new(),
            messages: Vec::new(),
            model: None,
            answer_tokens: None,
            body: Bytes::new(),
        };
        for message in all {
            let message = message.get();
            let is_leading = asked.history.is_empty() && message::is_system(protocol, message)?;
            if is_leading {
                asked.lead.push(place(message));
                continue;
            }
            asked.history.push(place(message));
            asked.messages.push(message::read(protocol, message)?);
        }
        if asked.history.is_empty() {
            return Err(NotUnderstood("no-history"));
        }
        for (key, value) in &members {
            let value = value.get();
            match key.as_str() {
                "model" => asked.model = serde_json::from_str(value).ok(),
                "max_tokens" | "max_completion_tokens" => {
                    let tokens: Option<u64> = serde_json::from_str(value).unwrap_or_default();
                    asked.answer_tokens = asked.answer_tokens.max(tokens);
                }
                "system" | "tools" | "functions" | "response_format" => {
                    asked.beside.push(place(value));
                }
                _ => {}
            }
        }
        asked.beside.extend(asked.lead.iter().cloned());
        drop(members);
        asked.body = body;
        Ok(asked)
    }

    /// The body as it came.
    pub(crate) fn body(&self) -> &Bytes {
        &self.body
    }

    fn text(&self, place: &Range<usize>) -> &[u8] {
        self.body.get(place.clone()).unwrap_or_default()
    }

    /// What stands beside the history.
    pub(crate) fn beside(&self) -> impl Iterator<Item = &str> {
        self.beside.iter().filter_map(|place| std::str::from_utf8(self.text(place)).ok())
    }

    /// The body with what of the history is sent. As it came, where that is all of it and
    /// nothing else.
    pub(crate) fn sent(&self, fitted: &FittedHistory) -> Bytes {
        let is_whole = fitted.shown.len() == self.history.len();
        if fitted.handoff.is_none() && fitted.recalled.is_empty() && is_whole {
            return self.body.clone();
        }
        let mut array = Array::new(self.body.len());
        array.raw(self.body.get(..self.array.start).unwrap_or_default());
        array.raw(b"[");
        for lead in &self.lead {
            array.item(self.text(lead));
        }
        if let Some(handoff) = &fitted.handoff {
            array.item(said(handoff.as_str()).as_bytes());
        }
        for shown in &fitted.shown {
            for (_, recalled) in fitted.recalled.iter().filter(|(at, _)| at == shown) {
                array.item(said(recalled.as_str()).as_bytes());
            }
            if let Some(message) = self.history.get(*shown) {
                array.item(self.text(message));
            }
        }
        array.raw(b"]");
        array.raw(self.body.get(self.array.end..).unwrap_or_default());
        array.bytes.into()
    }
}

/// Whether there are more than `most` values in JSON, told by what begins them or stands
/// between them. Nothing is held for that.
fn has_more_values(json: &[u8], most: usize) -> bool {
    let (mut values, mut is_text, mut is_escaped) = (1, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b',' | b'[' | b'{' if !is_text => values += 1,
            _ => {}
        }
        if values > most {
            return true;
        }
    }
    false
}

/// A message of our own: a user's in both protocols, for no other role may stand anywhere.
fn said(text: &str) -> String {
    format!(r#"{{"role":"user","content":{}}}"#, quote(text))
}

/// Bytes with a list in them.
struct Array {
    bytes: Vec<u8>,
    has_items: bool,
}

impl Array {
    fn new(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity), has_items: false }
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn item(&mut self, bytes: &[u8]) {
        if std::mem::replace(&mut self.has_items, true) {
            self.raw(b",");
        }
        self.raw(bytes);
    }
}

#[cfg(test)]
mod tests {
    use icecore::privacy::Redactor;
    use icecore::sessions::SessionWindow;

    use super::*;

    fn fitted(handoff: Option<&str>, shown: &[usize], recalled: &[(usize, &str)]) -> FittedHistory {
        let text = |text: &str| Redactor::standard().text(text);
        FittedHistory {
            handoff: handoff.map(text),
            shown: shown.to_vec(),
            recalled: recalled.iter().map(|(at, said)| (*at, text(said))).collect(),
            counted: 0,
            request_tokens: 0,
            compactions: Vec::new(),
            window: SessionWindow { window: 100, reserve: 10 },
        }
    }

    fn asked(protocol: Protocol, body: &str) -> Result<Asked, NotUnderstood> {
        Asked::read(protocol, Bytes::copy_from_slice(body.as_bytes()))
    }

    fn sent(asked: &Asked, fitted: &FittedHistory) -> String {
        String::from_utf8(asked.sent(fitted).to_vec()).unwrap()
    }

    const ODD: &str = "\t{ \"note\" : \"\\\"messages\\\":[1]\",\"messages\"\n:\u{20}[ {\"role\":\"system\",\"content\":\"S\"} ,\n\
        {\"role\":\"developer\",\"content\":\"D\"},{ \"content\" : \"a\\u0041\", \"role\":\"user\" },{\"role\":\"assistant\",\
        \"content\":\"b\",\"x\":1.50},  {\"role\":\"user\",\"content\":\"c\"} ],\"tools\":[ {\"z\":1} ],\"model\":\"m\",\"max_tokens\":7 }\n";

    #[test]
    fn what_fits_goes_on_byte_for_byte() {
        let asked = asked(Protocol::OpenAi, ODD).unwrap();
        assert_eq!(sent(&asked, &fitted(None, &[0, 1, 2], &[])), ODD);
        assert_eq!((asked.model.as_deref(), asked.answer_tokens), (Some("m"), Some(7)));
        let beside: Vec<&str> = asked.beside().collect();
        assert_eq!(beside.len(), 3);
        assert_eq!(beside[0], "[ {\"z\":1} ]");
    }

    #[test]
    fn only_the_array_is_put_together_anew() {
        let asked = asked(Protocol::OpenAi, ODD).unwrap();
        let found = sent(&asked, &fitted(Some("so far\n"), &[1, 2], &[(2, "by the way")]));
        let (before, rest) = ODD.split_once("[ {\"role\":\"system\"").unwrap();
        let (_, after) = rest.split_once("\"c\"} ]").unwrap();
        let expected = format!(
            "{before}[{{\"role\":\"system\",\"content\":\"S\"}},{{\"role\":\"developer\",\"content\":\"D\"}},\
             {{\"role\":\"user\",\"content\":\"so far\\n\"}},{{\"role\":\"assistant\",\"content\":\"b\",\"x\":1.50}},\
             {{\"role\":\"user\",\"content\":\"by the way\"}},{{\"role\":\"user\",\"content\":\"c\"}}]{after}"
        );
        assert_eq!(found, expected);
        assert!(serde_json::from_str::<serde_json::Value>(&found).is_ok());
    }

    #[test]
    fn a_system_prompt_is_no_message_of_the_history() {
        let body =
            r#"{"system":[{"type":"text","text":"S"}],"messages":[{"role":"user","content":"a"}]}"#;
        let asked = asked(Protocol::Anthropic, body).unwrap();
        assert_eq!(asked.messages.len(), 1);
        assert_eq!(asked.beside().collect::<Vec<_>>(), [r#"[{"type":"text","text":"S"}]"#]);
    }

    #[test]
    fn a_body_of_many_values_is_told_before_it_is_read() {
        let check = |json: &str, values: usize| {
            assert!(!has_more_values(json.as_bytes(), values), "{json}");
            assert!(has_more_values(json.as_bytes(), values - 1), "{json}");
        };
        check("7", 1);
        check("[1,2]", 3);
        check(r#"{"a":[{}],"b":"[,{"}"#, 5);
        check(r#"["\"[,{","\\",{"\\\"":","}]"#, 5);
        let body = |values: usize| {
            let many = vec!["0"; values].join(",");
            format!(r#"{{"messages":[{{"role":"user","content":"a","x":[{many}]}}]}}"#)
        };
        // Beside those in the list: the body, its list, the message with two fields, the
        // list itself, and one for what holds them all.
        assert!(asked(Protocol::OpenAi, &body(MOST_VALUES - 6)).is_ok());
        let refused = asked(Protocol::OpenAi, &body(MOST_VALUES - 5)).unwrap_err();
        assert_eq!(refused.0, "too-many-values");
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let check = |body: &str, reason: &str| {
            let found = asked(Protocol::OpenAi, body).unwrap_err();
            assert_eq!(found.0, reason, "{body}");
        };
        check("", "not-json");
        check("[1]", "not-json");
        check("{\"messages\":[}", "not-json");
        check("{}", "no-messages");
        check("{\"messages\":{}}", "no-messages");
        check("{\"messages\":[]}", "no-history");
        check("{\"messages\":[{\"role\":\"system\",\"content\":\"x\"}]}", "no-history");
        check("{\"messages\":[],\"messages\":[]}", "repeated-messages");
        check("{\"messages\":[{\"role\":\"oracle\",\"content\":\"x\"}]}", "unknown-role");
        check("{\"messages\":[7]}", "unknown-shape");
        check("{\"messages\":[{\"role\":\"user\",\"content\":7}]}", "unknown-shape");
        let invalid = Bytes::from_static(b"{\"messages\":\"\xff\"}");
        assert_eq!(Asked::read(Protocol::OpenAi, invalid).unwrap_err().0, "not-json");
    }
}
