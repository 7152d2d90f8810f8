//! How servers say that a request does not fit their model's window.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;

/// What a provider says of a request that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overflow {
    /// The window, if it is named.
    pub limit: Option<u64>,
    /// What the request had, if it is said; with the room for the answer, where the
    /// server counts that in.
    pub requested: Option<u64>,
}

/// Statuses under which nobody speaks of the window: keys, paths, waiting.
const OTHER_MATTERS: [u16; 8] = [401, 402, 403, 404, 408, 429, 502, 503];

/// Words of limits in time, which waiting helps against and compaction does not.
const RATES: [&str; 6] = ["per min", "per day", "per hour", "rate limit", "rate_limit", "quota"];

/// Codes that mean nothing else.
const CODES: [&str; 4] = [
    "context_length_exceeded", "exceed_context_size_error", "context_window_exceeded",
    "request_too_large",
];

/// The sentences of servers, the more telling first. `limit`, `requested` and `more` are
/// numbers; what is requested is the sum of the last two.
const SENTENCES: [&str; 25] = [
    // vLLM, of the room for an answer
    r"is too large: (?<more>#)\..{0,40}maximum context length is (?<limit>#) tokens and your request has (?<requested>#)",
    // OpenAI, DeepSeek, OpenRouter, vLLM
    r"maximum context length is (?<limit>#) tokens.{0,20}?(?:however,? )?(?:you|your \w+) (?:requested|resulted in|has|contains?)(?: about| at least)? (?<requested>#)",
    r"maximum context length (?:is|of) \(?(?<limit>#)",
    r"input tokens exceed the configured limit of (?<limit>#) tokens\. your messages resulted in (?<requested>#)",
    // Anthropic
    r"prompt is too long: (?<requested>#) tokens > (?<limit>#)",
    r"exceed context limit: (?<requested>#) \+ (?<more>#) > (?<limit>#)",
    // Gemini, Copilot
    r"token count (?:of )?\(?(?<requested>#)\)? exceeds the (?:maximum number of tokens allowed|limit of) \(?(?<limit>#)",
    // llama.cpp
    r"request \((?<requested>#) tokens\) exceeds the available context size \((?<limit>#) tokens",
    r"exceeds the available context size",
    r"larger than the max context size",
    // vLLM, SGLang
    r"prompt \(length (?<requested>#)\) is longer than the maximum model length of (?<limit>#)",
    r"input(?: length)? \((?<requested>#)(?: tokens)?\) (?:is longer than|exceeds) (?:the )?model's (?:maximum )?context length \((?<limit>#)",
    // Mistral, xAI, Cohere, Kimi
    r"prompt contains (?<requested>#) tokens.{0,60}too large for model with (?<limit>#)",
    r"maximum prompt length is (?<limit>#) but the request contains (?<requested>#)",
    r"tokens in the prompt (?:exceeds the limit of|cannot exceed) (?<limit>#)(?:.{0,4}received (?<requested>#))?",
    r"exceeded model token limit: (?<limit>#)(?: \(requested: (?<requested>#)\))?",
    // text-generation-inference
    r"`max_new_tokens` must be <= (?<limit>#)\. given: (?<requested>#) `inputs` tokens and (?<more>#)",
    // LM Studio
    r"context length of only (?<limit>#) tokens",
    // Bedrock, Ollama, z.ai and everybody else
    r"prompt (?:is )?too long",
    r"input is too long",
    r"prompt exceeds max(?:imum)? length",
    r"(?:exceed(?:s|ed|ing)?|larger than|longer than|greater than|over) (?:the |this |its )?(?:model'?s? )?(?:max(?:imum)? )?context[ _-]?(?:length|window|size|limit)",
    r"context[ _-]?(?:length|window|size|limit) (?:was |is |has been )?(?:exceeded|exceeds|overflow)",
    r"reduce the length of (?:the |your )?(?:messages|prompt|input)",
    r"too many tokens in (?:the |your )?(?:prompt|request|input)",
];

static PATTERNS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let number = r"\d[\d,_]*";
    let pattern = |sentence: &&str| Regex::new(&format!("(?is){}", sentence.replace('#', number)));
    SENTENCES.iter().map(|sentence| pattern(sentence).expect("a test compiles them")).collect()
});

/// Whether an answer of this status and body says that the request did not fit.
pub fn overflow_of(status: u16, body: &str) -> Option<Overflow> {
    if OTHER_MATTERS.contains(&status) {
        return None;
    }
    let lower = body.to_lowercase();
    let is_coded = CODES.iter().any(|code| lower.contains(code));
    if !is_coded && RATES.iter().any(|rate| lower.contains(rate)) {
        return None;
    }
    let numbers = numbers_of(body);
    let told = PATTERNS.iter().find_map(|pattern| pattern.captures(body)).map(|said| read(&said));
    match told {
        Some(told) => Some(Overflow {
            limit: told.limit.or(numbers.limit),
            requested: told.requested.or(numbers.requested),
        }),
        None => (is_coded || status == 413).then_some(numbers),
    }
}

/// The numbers of a sentence; one that is too large to be one is not told.
fn read(said: &Captures<'_>) -> Overflow {
    let number = |name: &str| {
        said.name(name)?.as_str().replace([',', '_'], "").parse::<u64>().ok().filter(|n| *n > 0)
    };
    let requested = number("requested").map(|one| one.saturating_add(number("more").unwrap_or(0)));
    Overflow { limit: number("limit"), requested }
}

/// llama.cpp gives the numbers beside its words.
fn numbers_of(body: &str) -> Overflow {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    let number = |key: &str| {
        let found = value.pointer(&format!("/error/{key}")).or_else(|| value.get(key));
        found.and_then(Value::as_u64).filter(|number| *number > 0)
    };
    Overflow { limit: number("n_ctx"), requested: number("n_prompt_tokens") }
}

#[cfg(test)]
#[path = "overflow_tests.rs"]
mod tests;
