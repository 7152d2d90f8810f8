//! An answer, read along while it streams through: the reply as its client will send it
//! back.
//!
//! Whatever comes, reading never fails and never holds more than a bound: what is not
//! understood is left out, and what is too much is not kept.

mod anthropic;
mod openai;

use icecore::models::Protocol;
use icecore_models::{Event, EventReader, overflow_of};
use serde_json::Value;

/// What was read of an answer.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// The reply as a message of the protocol, if anything was said.
    pub(crate) message: Option<Value>,
    /// The model that answered, as it calls itself.
    pub(crate) model: Option<String>,
    /// Tokens of the request, as the provider counted.
    pub(crate) input_tokens: Option<u64>,
    /// Why it is not whole; none if it is.
    pub(crate) interrupted: Option<&'static str>,
}

/// Its own words for why an answer is not whole.
pub(crate) const OVERFLOW: &str = "overflow";
pub(crate) const UPSTREAM: &str = "upstream";
pub(crate) const CLIENT: &str = "client";
pub(crate) const SIZE: &str = "size";
pub(crate) const SHUTDOWN: &str = "shutdown";

/// One event is read up to this size, wrapping and all (256 KiB).
const MOST_EVENT_BYTES: usize = 256 << 10;

/// What a protocol's answer is put together from.
trait Draft: Send + Sync {
    /// Takes the data of an event. Gives the bytes that are held on to because of it.
    fn event(&mut self, event: &Value) -> usize;

    /// Takes an answer in one piece.
    fn whole(&mut self, answer: &Value);

    /// Whether nothing more of the reply is said.
    fn is_said(&self) -> bool;

    /// Whether others than the reply still speak: further choices.
    fn others_speak(&self) -> bool {
        false
    }

    /// The reply so far; unless it `is_whole`, without what is half said and of no use.
    fn message(&mut self, is_whole: bool) -> Option<Value>;

    fn model(&self) -> Option<String>;

    fn input_tokens(&self) -> Option<u64>;
}

/// Reads an answer along.
pub(crate) struct Reading {
    draft: Box<dyn Draft>,
    form: Form,
    /// Bytes that may still be held on to.
    left: usize,
    /// What an event said was wrong.
    error: Option<String>,
    /// The stream said that it is over.
    is_over: bool,
    is_too_large: bool,
    /// Some of it could not be read.
    is_malformed: bool,
}

enum Form {
    Events(EventReader),
    Whole(Vec<u8>),
}

impl Reading {
    pub(crate) fn new(protocol: Protocol, is_stream: bool, most_bytes: usize) -> Self {
        let draft: Box<dyn Draft> = match protocol {
            Protocol::OpenAi => Box::<openai::Reply>::default(),
            Protocol::Anthropic => Box::<anthropic::Reply>::default(),
        };
        let form = match is_stream {
            true => Form::Events(EventReader::default()),
            false => Form::Whole(Vec::new()),
        };
        Self {
            draft,
            form,
            left: most_bytes,
            error: None,
            is_over: false,
            is_too_large: false,
            is_malformed: false,
        }
    }

    /// Takes the next bytes.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        if self.is_too_large || self.is_over {
            return;
        }
        match &mut self.form {
            Form::Whole(body) if body.len() + bytes.len() > self.left => self.is_too_large = true,
            Form::Whole(body) => body.extend_from_slice(bytes),
            Form::Events(reader) => {
                let mut events = Vec::new();
                // Line by line: one that is no text takes no other along.
                for line in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
                    match reader.take(line) {
                        Ok(complete) => events.extend(complete),
                        Err(_) => self.is_malformed = true,
                    }
                }
                self.is_too_large = reader.buffered_bytes() > self.left.max(MOST_EVENT_BYTES);
                events.iter().for_each(|event| self.event(event));
            }
        }
    }

    fn event(&mut self, event: &Event) {
        if self.is_over || self.is_too_large {
            return;
        }
        if event.data.trim() == "[DONE]" {
            self.is_over = true;
            return;
        }
        let data = serde_json::from_str(&event.data);
        // Other words are some server's way to say that it is there.
        self.is_malformed |= data.is_err() && event.data.trim_start().starts_with('{');
        let data: Value = data.unwrap_or_default();
        if event.name == "error" || data.get("error").is_some_and(|error| !error.is_null()) {
            self.error = Some(event.data.clone());
            return;
        }
        self.is_over = data["type"] == "message_stop";
        let bytes = self.draft.event(&data);
        self.is_too_large = bytes > self.left;
        self.left = self.left.saturating_sub(bytes);
    }

    /// Whether the reply is said, and only what is about it still comes.
    pub(crate) fn is_said(&self) -> bool {
        self.is_over || self.draft.is_said()
    }

    /// Whether that is so of all that the answer has beside the reply.
    pub(crate) fn is_all_said(&self) -> bool {
        self.is_over || self.draft.is_said() && !self.draft.others_speak()
    }

    /// Whether the stream said that it is over.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// What was read, once no more comes; `broken` says why it broke off, if it did.
    pub(crate) fn finish(mut self, broken: Option<&'static str>) -> Read {
        let is_event_stream = matches!(self.form, Form::Events(_));
        match &mut self.form {
            Form::Events(reader) => match reader.finish() {
                Ok(Some(last)) => self.event(&last),
                Ok(None) => {}
                Err(_) => self.is_malformed = true,
            },
            Form::Whole(body) => {
                let answer: Value = serde_json::from_slice(body).unwrap_or_default();
                self.draft.whole(&answer);
            }
        }
        let failed = self.error.as_deref().map(|error| match overflow_of(200, error) {
            Some(_) => OVERFLOW,
            None => UPSTREAM,
        });
        let ended_early = (is_event_stream && !self.is_said()).then_some(UPSTREAM);
        let has_holes = self.is_malformed.then_some(UPSTREAM);
        let too_large = self.is_too_large.then_some(SIZE);
        // One that was wholly said is whole, however its stream ended.
        let broken = broken.filter(|_| !(is_event_stream && self.is_said()));
        let interrupted = too_large.or(failed).or(broken).or(has_holes).or(ended_early);
        Read {
            message: self.draft.message(interrupted.is_none()),
            model: self.draft.model(),
            input_tokens: self.draft.input_tokens(),
            interrupted,
        }
    }
}

/// Whether the first event of a stream says that the request did not fit; none while
/// there is no event yet.
pub(crate) struct FirstEvent {
    reader: EventReader,
    at_line: bool,
}

/// What the first event is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// Not there yet.
    Awaited,
    /// An answer's, or some other error's; or a comment, which says that it will take a
    /// while and is for the client to see.
    Begun,
    /// The request did not fit; the window, if it is named.
    Overflow(u64),
}

impl FirstEvent {
    pub(crate) fn new() -> Self {
        Self { reader: EventReader::default(), at_line: true }
    }

    /// Takes the next bytes.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> First {
        let Ok(events) = self.reader.take(bytes) else { return First::Begun };
        let is_comment = self.has_comment(bytes);
        let Some(event) = events.first() else {
            return if is_comment { First::Begun } else { First::Awaited };
        };
        let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
        let is_error =
            event.name == "error" || data.get("error").is_some_and(|error| !error.is_null());
        match overflow_of(200, &event.data).filter(|_| is_error) {
            Some(overflow) => First::Overflow(overflow.limit.unwrap_or(0)),
            None => First::Begun,
        }
    }

    fn has_comment(&mut self, bytes: &[u8]) -> bool {
        bytes.iter().any(|byte| {
            let at_line = std::mem::replace(&mut self.at_line, matches!(byte, b'\n' | b'\r'));
            at_line && *byte == b':'
        })
    }
}

/// A number of a usage.
fn number(value: &Value, path: &str) -> Option<u64> {
    value.pointer(path).and_then(Value::as_u64)
}

fn text<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    value.pointer(path).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(protocol: Protocol, stream: &str, broken: Option<&'static str>) -> Read {
        let whole = read_in(protocol, stream, stream.len(), broken);
        for step in [1, 7, 64] {
            let pieces = read_in(protocol, stream, step, broken);
            assert_eq!(pieces.message, whole.message, "pieces of {step} bytes");
            assert_eq!(pieces.interrupted, whole.interrupted);
        }
        whole
    }

    fn read_in(
        protocol: Protocol,
        stream: &str,
        step: usize,
        broken: Option<&'static str>,
    ) -> Read {
        let mut reading = Reading::new(protocol, true, 1 << 20);
        stream.as_bytes().chunks(step).for_each(|piece| reading.take(piece));
        reading.finish(broken)
    }

    fn events(events: &[Value]) -> String {
        events.iter().map(|event| format!("data: {event}\n\n")).collect()
    }

    fn delta(delta: Value) -> Value {
        json!({"model": "m-1", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
    }

    fn end(reason: &str) -> Value {
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    }

    #[test]
    fn parallel_calls_are_put_together() {
        let call = |index: u64, id: Option<&str>, name: Option<&str>, arguments: &str| {
            let mut call = json!({"index": index, "function": {"arguments": arguments}});
            if let Some(id) = id {
                call["id"] = json!(id);
                call["type"] = json!("function");
                call["function"]["name"] = json!(name);
            }
            delta(json!({"tool_calls": [call]}))
        };
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3}});
        let mut stream = events(&[
            delta(json!({"role": "assistant", "content": ""})),
            delta(json!({"content": "I look. "})),
            call(0, Some("a"), Some("ls"), ""),
            call(1, Some("b"), Some("cat"), "{\"p\""),
            call(0, None, None, "{}"),
            call(1, None, None, ":1}"),
            json!({"choices": [{"index": 1, "delta": {"content": "another choice"}}]}),
            end("tool_calls"),
            usage,
        ]);
        stream.push_str("data: [DONE]\n\n");
        let read = read(Protocol::OpenAi, &stream, None);
        let expected = json!({"role": "assistant", "content": "I look. ", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "ls", "arguments": "{}"}},
            {"id": "b", "type": "function", "function": {"name": "cat", "arguments": "{\"p\":1}"}}]});
        assert_eq!(read.message, Some(expected));
        assert_eq!((read.input_tokens, read.model.as_deref()), (Some(12), Some("m-1")));
        assert_eq!(read.interrupted, None);
    }

    #[test]
    fn blocks_are_put_together() {
        let start = |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
        let delta = |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
        let stop = |index: u64| json!({"type": "content_block_stop", "index": index});
        let stream = events(&[
            json!({"type": "message_start", "message": {"model": "c-1", "usage": {
                "input_tokens": 5, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 1}}}),
            start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
            delta(0, json!({"type": "thinking_delta", "thinking": "hm"})),
            delta(0, json!({"type": "signature_delta", "signature": "sig"})),
            stop(0),
            start(1, json!({"type": "text", "text": ""})),
            json!({"type": "ping"}),
            delta(1, json!({"type": "text_delta", "text": "I "})),
            delta(1, json!({"type": "text_delta", "text": "look."})),
            stop(1),
            start(2, json!({"type": "tool_use", "id": "t", "name": "ls", "input": {}})),
            delta(2, json!({"type": "input_json_delta", "partial_json": "{\"p\":"})),
            delta(2, json!({"type": "input_json_delta", "partial_json": " 1}"})),
            stop(2),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}),
            json!({"type": "message_stop"}),
        ]);
        let read = read(Protocol::Anthropic, &stream, None);
        let expected = json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "sig"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t", "name": "ls", "input": {"p": 1}}]});
        assert_eq!(read.message, Some(expected));
        assert_eq!((read.input_tokens, read.model.as_deref()), (Some(13), Some("c-1")));
        assert_eq!(read.interrupted, None);
    }

    #[test]
    fn half_an_answer_is_kept_without_half_a_call() {
        let call =
            json!({"index": 0, "id": "a", "function": {"name": "ls", "arguments": "{\"p\":"}});
        let stream =
            events(&[delta(json!({"content": "So"})), delta(json!({"tool_calls": [call]}))]);
        let read = read(Protocol::OpenAi, &stream, Some(CLIENT));
        assert_eq!(read.message, Some(json!({"role": "assistant", "content": "So"})));
        assert_eq!(read.interrupted, Some(CLIENT));
    }

    #[test]
    fn it_is_said_why_an_answer_broke_off() {
        let check = |more: &str, broken, expected| {
            let stream = format!("{}{more}", events(&[delta(json!({"content": "So"}))]));
            assert_eq!(read(Protocol::OpenAi, &stream, broken).interrupted, expected, "{more}");
        };
        let over = r#"data: {"error":{"code":"context_length_exceeded","message":"too long"}}"#;
        check(&format!("{over}\n\n"), None, Some(OVERFLOW));
        check("data: {\"error\":{\"message\":\"Internal error\"}}\n\n", None, Some(UPSTREAM));
        check("event: error\ndata: what?\n\n", None, Some(UPSTREAM));
        check("", None, Some(UPSTREAM));
        check("data: {\"choices\": [{\"delta\"\n\n", None, Some(UPSTREAM));
        check("", Some(CLIENT), Some(CLIENT));
        let said = events(&[end("stop")]);
        check(&said, Some(CLIENT), None);
        check("data: [DONE]", None, None);
    }

    #[test]
    fn what_cannot_be_read_leaves_no_hole_unmarked() {
        let (one, two) = (delta(json!({"content": "One "})), delta(json!({"content": "two"})));
        let check = |hole: &[u8], interrupted: Option<&str>| {
            let mut stream = events(std::slice::from_ref(&one)).into_bytes();
            stream.extend_from_slice(hole);
            stream.extend_from_slice(events(&[two.clone(), end("stop")]).as_bytes());
            for step in [1, 9, stream.len()] {
                let mut reading = Reading::new(Protocol::OpenAi, true, 1 << 20);
                stream.chunks(step).for_each(|piece| reading.take(piece));
                let read = reading.finish(None);
                let expected = json!({"role": "assistant", "content": "One two"});
                assert_eq!((read.message, read.interrupted), (Some(expected), interrupted));
            }
        };
        check(b"", None);
        check(b": \xc3\xbc\n\ndata: ping\n\ndata:\n\n", None);
        check(b"data: {\"choices\":\xff\n\n", Some(UPSTREAM));
        check(b"data: {\"choices\":[{\"del\n\n", Some(UPSTREAM));
    }

    #[test]
    fn a_call_in_the_older_form_is_put_together() {
        let call = |call: Value| delta(json!({"content": null, "function_call": call}));
        let begun = events(&[
            call(json!({"name": "ls", "arguments": ""})),
            call(json!({"arguments": "{\"p\":"})),
        ]);
        let rest = events(&[call(json!({"arguments": "1}"})), end("function_call")]);
        let expected = json!({"role": "assistant", "content": null,
            "function_call": {"name": "ls", "arguments": "{\"p\":1}"}});
        let whole = read(Protocol::OpenAi, &format!("{begun}{rest}"), None);
        assert_eq!((whole.message, whole.interrupted), (Some(expected), None));
        // Half a call is of no use, and what we do not know is not nothing.
        assert_eq!(read(Protocol::OpenAi, &begun, None).message, None);
        let sung =
            |song: Value| events(&[delta(json!({"role": "assistant", "song": song})), end("stop")]);
        assert_eq!(read(Protocol::OpenAi, &sung(json!("la")), None).message, None);
        let silent = read(Protocol::OpenAi, &sung(Value::Null), None).message;
        assert_eq!(silent, Some(json!({"role": "assistant", "content": ""})));
    }

    #[test]
    fn odd_numbers_and_counts_do_no_harm() {
        let call =
            |index: Value| json!({"index": index, "function": {"name": "f", "arguments": "{}"}});
        let calls = json!({"tool_calls": [call(json!(u64::MAX)), call(Value::Null)]});
        assert!(
            read(Protocol::OpenAi, &events(&[delta(calls), end("stop")]), None).message.is_some()
        );
        let usage = |usage: Value| json!({"type": "message_delta", "delta": {}, "usage": usage});
        let stream = events(&[
            json!({"type": "message_start", "message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": u64::MAX}}}),
            usage(json!({"input_tokens": null, "cache_read_input_tokens": 2, "x": {"y": "z"}})),
            usage(json!({"input_tokens": 7})),
        ]);
        assert_eq!(read(Protocol::Anthropic, &stream, None).input_tokens, Some(9));
    }

    #[test]
    fn an_endless_answer_is_held_within_its_bound() {
        let mut reading = Reading::new(Protocol::OpenAi, true, 100);
        for _ in 0..1_000 {
            reading.take(events(&[delta(json!({"content": "on and on "}))]).as_bytes());
        }
        let read = reading.finish(None);
        let kept = read.message.unwrap()["content"].as_str().unwrap().len();
        assert!((90..=110).contains(&kept), "{kept}");
        assert_eq!(read.interrupted, Some(SIZE));
        let mut reading = Reading::new(Protocol::OpenAi, true, 100);
        (0..100_000).for_each(|_| reading.take(b"data: no end of line "));
        let Form::Events(reader) = &reading.form else { panic!() };
        assert!(reader.buffered_bytes() < MOST_EVENT_BYTES + 100);
        assert_eq!(reading.finish(None).interrupted, Some(SIZE));
    }

    #[test]
    fn an_answer_in_one_piece_is_read_too() {
        let whole = |protocol, body: Value| {
            let mut reading = Reading::new(protocol, false, 1 << 20);
            reading.take(body.to_string().as_bytes());
            reading.finish(None)
        };
        let message = json!({"role": "assistant", "content": "Yes.", "refusal": null});
        let body = json!({"model": "m", "choices": [{"index": 0, "message": message}], "usage": {"prompt_tokens": 4}});
        let read = whole(Protocol::OpenAi, body);
        assert_eq!(
            (read.message, read.input_tokens, read.interrupted),
            (Some(message), Some(4), None)
        );
        let content = json!([{"type": "text", "text": "Yes."}]);
        let body = json!({"type": "message", "content": content, "usage": {"input_tokens": 4}});
        let read = whole(Protocol::Anthropic, body);
        assert_eq!(read.message, Some(json!({"role": "assistant", "content": content})));
        assert_eq!(whole(Protocol::OpenAi, json!("what?")).message, None);
    }

    #[test]
    fn a_first_event_that_says_overflow_is_told() {
        let check = |stream: &str, expected: First| {
            let mut first = FirstEvent::new();
            assert_eq!(first.take(stream.as_bytes()), expected, "{stream}");
        };
        check("event: error\ndata: {\"choi", First::Awaited);
        check(": comment\n\ndata: {\"choi", First::Begun);
        check("data: {\"choices\":[]}\n\n", First::Begun);
        let error = r#"{"error":{"message":"This model's maximum context length is 512 tokens","code":"context_length_exceeded"}}"#;
        check(&format!("data: {error}\n\n"), First::Overflow(512));
        check(&format!("event: error\ndata: {error}\n\n"), First::Overflow(512));
        check(&format!(": comment\n\ndata: {error}\n\n"), First::Overflow(512));
        check("event: error\ndata: {\"error\":{\"message\":\"busy\"}}\n\n", First::Begun);
        // What a model says about windows is no error.
        let said = r#"{"choices":[{"delta":{"content":"context_length_exceeded"}}]}"#;
        check(&format!("data: {said}\n\n"), First::Begun);
    }
}
