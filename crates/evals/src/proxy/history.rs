//! A client's own history: what it sends all of, with every request.

use serde_json::{Value, json};

use super::provider::{Said, Wire};

/// What every request says beside the history.
const SYSTEM: &str = "You help to plan a walk from hut to hut. Answer in short sentences.";

/// A growing conversation.
#[derive(Debug, Clone)]
pub struct History {
    pub wire: Wire,
    /// Beside the messages; clients put the date into it.
    pub system: String,
    /// Each message as it is spelled.
    pub messages: Vec<String>,
}

impl History {
    pub fn new(wire: Wire) -> Self {
        Self { wire, system: SYSTEM.to_owned(), messages: Vec::new() }
    }

    pub fn ask(&mut self, text: &str) {
        self.messages.push(json!({"role": "user", "content": text}).to_string());
    }

    /// Takes an answer in, as a client does that keeps what it knows of.
    pub fn hear(&mut self, said: &Said) {
        let message = match (self.wire, &said.call) {
            (_, None) => json!({"role": "assistant", "content": said.text}),
            (Wire::OpenAi, Some(id)) => {
                json!({"role": "assistant", "content": null, "tool_calls": [{"id": id,
                "type": "function", "function": {"name": "lookup", "arguments": "{\"stage\":1}"}}]})
            }
            (Wire::Anthropic, Some(id)) => json!({"role": "assistant", "content": [
                {"type": "tool_use", "id": id, "name": "lookup", "input": {"stage": 1}}]}),
        };
        self.messages.push(message.to_string());
    }

    /// The result of a call.
    pub fn result(&mut self, call: &str, text: &str) {
        let message = match self.wire {
            Wire::OpenAi => json!({"role": "tool", "tool_call_id": call, "content": text}),
            Wire::Anthropic => json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": call, "content": text}]}),
        };
        self.messages.push(message.to_string());
    }

    /// The request, its messages last.
    pub fn body(&self, streamed: bool) -> Vec<u8> {
        let system = Value::from(self.system.as_str());
        let messages = self.messages.join(",");
        match self.wire {
            Wire::OpenAi => format!(
                "{{\"model\":\"walker\",\"max_tokens\":64,\"stream\":{streamed},\"messages\":[\
                 {{\"role\":\"system\",\"content\":{system}}},{messages}]}}"
            ),
            Wire::Anthropic => format!(
                "{{\"model\":\"walker\",\"max_tokens\":64,\"stream\":{streamed},\"system\":{system},\
                 \"messages\":[{messages}]}}"
            ),
        }
        .into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_json_in_either_protocol() {
        for wire in [Wire::OpenAi, Wire::Anthropic] {
            let mut history = History::new(wire);
            history.ask("Say \"hello\".");
            history.hear(&Said { text: "hello".to_owned(), call: None });
            history.hear(&Said { text: String::new(), call: Some("c".to_owned()) });
            history.result("c", "seen");
            let body: Value = serde_json::from_slice(&history.body(true)).unwrap();
            let system = usize::from(wire == Wire::OpenAi);
            assert_eq!(body["messages"].as_array().unwrap().len(), 4 + system);
            assert_eq!(body["stream"], true);
        }
    }
}
