//! A reply in Anthropic's protocol: its blocks.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Draft, number, text};

/// Counts of a usage that are of the request: all that was read, and what was so from a
/// cache or into one.
const COUNTS: [&str; 3] =
    ["/input_tokens", "/cache_read_input_tokens", "/cache_creation_input_tokens"];

/// What came so far.
#[derive(Debug, Default)]
pub(super) struct Reply {
    blocks: BTreeMap<u64, Block>,
    /// Tokens of the request, as [`COUNTS`] has them.
    usage: [Option<u64>; 3],
    model: Option<String>,
    is_said: bool,
}

#[derive(Debug, Default)]
struct Block {
    is: Value,
    /// Pieces of a call's input.
    input: String,
    is_over: bool,
}

impl Block {
    fn delta(&mut self, delta: &Value) -> usize {
        let (key, path) = match text(delta, "/type").unwrap_or_default() {
            "text_delta" => ("text", "/text"),
            "thinking_delta" => ("thinking", "/thinking"),
            "signature_delta" => ("signature", "/signature"),
            "input_json_delta" => {
                let piece = text(delta, "/partial_json").unwrap_or_default();
                self.input.push_str(piece);
                return piece.len();
            }
            "citations_delta" => {
                let citation = delta["citation"].clone();
                let bytes = citation.to_string().len();
                match self.is.get_mut("citations").and_then(Value::as_array_mut) {
                    Some(citations) => citations.push(citation),
                    None => self.is["citations"] = json!([citation]),
                }
                return bytes;
            }
            _ => return 0,
        };
        let piece = text(delta, path).unwrap_or_default();
        match self.is.get_mut(key) {
            Some(Value::String(said)) => said.push_str(piece),
            _ => self.is[key] = json!(piece),
        }
        piece.len()
    }

    /// As it is sent back.
    fn finish(mut self) -> Value {
        if let Ok(input) = serde_json::from_str::<Value>(&self.input) {
            self.is["input"] = input;
        }
        self.is
    }
}

impl Reply {
    fn about(&mut self, message: &Value) {
        if let Some(model) = text(message, "/model") {
            self.model = Some(model.to_owned());
        }
        self.count(&message["usage"]);
    }

    /// Later counts are of the whole and take the place of earlier ones.
    fn count(&mut self, usage: &Value) {
        for (count, path) in self.usage.iter_mut().zip(COUNTS) {
            *count = number(usage, path).or(*count);
        }
    }
}

impl Draft for Reply {
    fn event(&mut self, event: &Value) -> usize {
        let index = number(event, "/index").unwrap_or(0);
        match text(event, "/type").unwrap_or_default() {
            "message_start" => self.about(&event["message"]),
            "content_block_start" if event["content_block"].is_object() => {
                let is = event["content_block"].clone();
                let bytes = is.to_string().len();
                self.blocks.insert(index, Block { is, ..Block::default() });
                return bytes;
            }
            "content_block_delta" => {
                let block = self.blocks.get_mut(&index);
                return block.map_or(0, |block| block.delta(&event["delta"]));
            }
            "content_block_stop" => {
                if let Some(block) = self.blocks.get_mut(&index) {
                    block.is_over = true;
                }
            }
            "message_delta" => {
                self.count(&event["usage"]);
                self.is_said |= text(event, "/delta/stop_reason").is_some();
            }
            _ => {}
        }
        0
    }

    fn whole(&mut self, answer: &Value) {
        self.about(answer);
        let blocks = answer["content"].as_array().into_iter().flatten().zip(0..);
        self.blocks = blocks
            .map(|(is, at)| (at, Block { is: is.clone(), is_over: true, ..Block::default() }))
            .collect();
    }

    fn is_said(&self) -> bool {
        self.is_said
    }

    fn message(&mut self, is_whole: bool) -> Option<Value> {
        let is_text = |block: &Block| block.is["type"] == "text";
        let says = |block: &Block| !is_text(block) || text(&block.is, "/text") != Some("");
        let blocks = std::mem::take(&mut self.blocks).into_values();
        // Of half a reply, half a call and half a thought are of no use to anybody.
        let useful = blocks.filter(|block| is_whole || block.is_over || is_text(block));
        let content: Vec<Value> = useful.filter(says).map(Block::finish).collect();
        (!content.is_empty()).then(|| json!({"role": "assistant", "content": content}))
    }

    fn model(&self) -> Option<String> {
        self.model.clone()
    }

    fn input_tokens(&self) -> Option<u64> {
        let [read, cached @ ..] = self.usage;
        Some(cached.into_iter().flatten().fold(read?, u64::saturating_add))
    }
}
