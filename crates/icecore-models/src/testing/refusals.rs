//! The words in which servers refuse.

use icecore_domain::chat::Protocol;
use serde_json::{Value, json};

use super::{OverflowForm, UpstreamConfig};

/// Status and body of a request that does not fit: `input` tokens, and `answer` more.
pub(super) fn overflow(config: &UpstreamConfig, input: u64, answer: u64) -> (u16, Value) {
    let limit = config.window;
    let total = input.saturating_add(answer);
    let form = match (config.overflow, config.protocol) {
        (OverflowForm::Own, Protocol::OpenAi) => OverflowForm::OpenAi,
        (OverflowForm::Own, Protocol::Anthropic) => OverflowForm::Anthropic,
        (form, _) => form,
    };
    match form {
        OverflowForm::OpenAi | OverflowForm::Own => (
            400,
            json!({"error": {
            "message": format!("This model's maximum context length is {limit} tokens. However, you requested {total} tokens ({input} in the messages, {answer} in the completion). Please reduce the length of the messages or completion."),
            "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}}),
        ),
        OverflowForm::Anthropic if input > limit => (
            400,
            json!({"type": "error", "error": {
            "type": "invalid_request_error",
            "message": format!("prompt is too long: {input} tokens > {limit} maximum")}}),
        ),
        OverflowForm::Anthropic => (
            400,
            json!({"type": "error", "error": {
            "type": "invalid_request_error",
            "message": format!("input length and `max_tokens` exceed context limit: {input} + {answer} > {limit}, decrease input length or `max_tokens` and try again")}}),
        ),
        OverflowForm::Gemini => (
            400,
            json!([{"error": {"code": 400, "status": "INVALID_ARGUMENT",
            "message": format!("The input token count ({total}) exceeds the maximum number of tokens allowed ({limit}).")}}]),
        ),
        OverflowForm::LlamaCpp => (
            400,
            json!({"error": {"code": 400,
            "message": "the request exceeds the available context size. try increasing the context size or enable context shift",
            "type": "exceed_context_size_error", "n_prompt_tokens": total, "n_ctx": limit}}),
        ),
        OverflowForm::Ollama => (
            500,
            json!({"error": {
            "message": "input length exceeds maximum context length", "type": "api_error"}}),
        ),
        OverflowForm::Vllm => (
            400,
            json!({"object": "error", "type": "BadRequestError", "code": 400,
            "message": format!("This model's maximum context length is {limit} tokens. However, you requested {total} tokens ({input} in the messages, {answer} in the completion). Please reduce the length of the messages or completion.")}),
        ),
        OverflowForm::OpenRouter => (
            400,
            json!({"error": {"code": 400,
            "message": format!("This endpoint's maximum context length is {limit} tokens. However, you requested about {total} tokens ({input} of text input, {answer} in the output). Please reduce the length of either one, or use the \"middle-out\" transform.")}}),
        ),
        OverflowForm::Generic => (400, json!({"error": "the context window was exceeded"})),
    }
}

/// The body of another refusal.
pub(super) fn refusal(config: &UpstreamConfig, kind: &str, message: &str) -> Value {
    match config.protocol {
        Protocol::OpenAi => json!({"error": {"message": message, "type": kind, "code": kind}}),
        Protocol::Anthropic => {
            json!({"type": "error", "error": {"type": kind, "message": message}})
        }
    }
}
