//! An answer while it comes.

use icecore_domain::chat::{ChatReply, Finish, Usage};
use icecore_domain::json::{JsonText, quote};
use icecore_domain::turn::MAX_CONTENT_BYTES;
use serde_json::Value;

/// What an answer says and the tools it calls may have together as many bytes as a turn's
/// content may (1 MiB): more could not be remembered.
pub(super) const MAX_REPLY_BYTES: usize = MAX_CONTENT_BYTES;

/// What has come of an answer so far.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) text: String,
    calls: Vec<(u64, Call)>,
    pub(super) end: Option<End>,
    pub(super) usage: Option<Usage>,
    /// The server said that no more will come.
    pub(super) is_over: bool,
}

/// How a server says that an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// In one of the ways that all have.
    Finish(Finish),
    /// The window was full.
    WindowFull,
    /// Before its end, for this reason.
    Broken(String),
}

impl End {
    /// By a word that is not known to mean that the answer is whole.
    pub(super) fn broken(word: &str) -> Self {
        let word: String = word.chars().filter(|char| !char.is_control()).take(40).collect();
        End::Broken(format!("it ended with `{word}`"))
    }
}

/// A tool that is to be called.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    /// A JSON object, as text.
    pub(super) arguments: String,
}

/// Why reading cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The server reports an error in the midst of its answer.
    Error(String),
    /// It is no answer.
    Malformed(String),
}

impl Draft {
    /// The call of this number, which may be new.
    pub(super) fn call(&mut self, number: u64) -> &mut Call {
        let at = match self.calls.iter().position(|(one, _)| *one == number) {
            Some(at) => at,
            None => {
                self.calls.push((number, Call::default()));
                self.calls.len() - 1
            }
        };
        &mut self.calls[at].1
    }

    /// Refuses what is larger than anything we keep.
    pub(super) fn within_limit(&self) -> Result<(), Trouble> {
        let calls = self.calls.iter().map(|(_, call)| call.name.len() + call.arguments.len());
        if self.text.len() + calls.sum::<usize>() > MAX_REPLY_BYTES {
            let reason = format!("an answer of more than {MAX_REPLY_BYTES} bytes");
            return Err(Trouble::Malformed(reason));
        }
        Ok(())
    }

    /// Whether there is nothing in it.
    pub(super) fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.calls.is_empty()
    }

    /// The answer, of which all has come.
    pub(super) fn into_reply(self, finish: Finish) -> ChatReply {
        let finish = match finish {
            // Some servers say `stop` of an answer that calls tools.
            Finish::Stop if !self.calls.is_empty() => Finish::ToolCalls,
            other => other,
        };
        let tool_calls = self.tool_calls();
        ChatReply { text: self.text, tool_calls, finish, usage: self.usage }
    }

    fn tool_calls(&self) -> Option<JsonText> {
        if self.calls.is_empty() {
            return None;
        }
        let calls: Vec<String> = self.calls.iter().map(|(_, call)| call.to_json()).collect();
        JsonText::parse(&format!("[{}]", calls.join(","))).ok()
    }
}

impl Call {
    /// As OpenAI has it, which is the form of a turn's `toolCalls`.
    pub(super) fn to_json(&self) -> String {
        format!(
            r#"{{"id":{},"type":"function","function":{{"name":{},"arguments":{}}}}}"#,
            quote(&self.id),
            quote(&self.name),
            quote(&self.arguments)
        )
    }
}

/// Parses JSON; errors never quote the input.
pub(super) fn json_value(text: &str) -> Result<Value, Trouble> {
    serde_json::from_str(text).map_err(|error| {
        let reason = if error.is_eof() { "JSON that breaks off" } else { "no JSON" };
        Trouble::Malformed(reason.to_owned())
    })
}
