use super::*;

fn overflow(limit: u64, requested: u64) -> Option<Overflow> {
    let told = |number: u64| (number > 0).then_some(number);
    Some(Overflow { limit: told(limit), requested: told(requested) })
}

/// Status, body, window and request as the body names them; 0 where it does not.
const OVERFLOWS: &[(u16, &str, u64, u64)] = &[
    // OpenAI
    (
        400,
        r#"{"error":{"message":"This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
        8192,
        9001,
    ),
    (
        400,
        r#"{"error":{"message":"This model's maximum context length is 4097 tokens. However, you requested 5000 tokens (4000 in the messages, 1000 in the completion). Please reduce the length of the messages or completion.","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
        4097,
        5000,
    ),
    (
        400,
        r#"{"error":{"message":"Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 308452 tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
        272_000,
        308_452,
    ),
    (
        400,
        r#"{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
        0,
        0,
    ),
    // Anthropic
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}"#,
        200_000,
        208_310,
    ),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again"}}"#,
        200_000,
        209_573,
    ),
    (
        413,
        r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
        0,
        0,
    ),
    // Gemini
    (
        400,
        r#"[{"error":{"code":400,"message":"The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}]"#,
        1_048_576,
        1_048_577,
    ),
    (
        400,
        r#"{"error":{"message":"The input token count exceeds the maximum number of tokens allowed 32,768.","code":"context_length_exceeded"}}"#,
        0,
        0,
    ),
    // llama.cpp
    (
        400,
        r#"{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the context size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":5123,"n_ctx":4096}}"#,
        4096,
        5123,
    ),
    (
        400,
        r#"{"error":{"code":400,"message":"request (2600 tokens) exceeds the available context size (2048 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":2600,"n_ctx":2048}}"#,
        2048,
        2600,
    ),
    (
        500,
        r#"{"error":{"code":500,"message":"input is larger than the max context size. skipped","type":"server_error"}}"#,
        0,
        0,
    ),
    (
        500,
        r#"{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}"#,
        0,
        0,
    ),
    // Ollama
    (
        500,
        r#"{"error":{"message":"input length exceeds maximum context length","type":"api_error"}}"#,
        0,
        0,
    ),
    (400, r#"{"error":"the input length exceeds the context length"}"#, 0, 0),
    (
        400,
        r#"{"error":{"message":"prompt too long; exceeded max context length by 4 tokens"}}"#,
        0,
        0,
    ),
    // vLLM
    (
        400,
        r#"{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5010 tokens (4510 in the messages, 500 in the completion). Please reduce the length of the messages or completion.","type":"BadRequestError","param":null,"code":400}"#,
        4096,
        5010,
    ),
    (
        400,
        r#"{"error":{"message":"This model's maximum context length is 4096 tokens. However, your request has 5120 input tokens. Please reduce the length of the input messages.","type":"BadRequestError","code":400}}"#,
        4096,
        5120,
    ),
    (
        400,
        r#"{"error":{"message":"'max_tokens' or 'max_completion_tokens' is too large: 3500. This model's maximum context length is 4096 tokens and your request has 1000 input tokens (3500 > 4096 - 1000).","type":"BadRequestError","code":400}}"#,
        4096,
        4500,
    ),
    (
        400,
        r#"{"error":{"message":"The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that `max_model_len` is no smaller than the number of text tokens.","type":"BadRequestError"}}"#,
        4096,
        5000,
    ),
    // SGLang
    (
        400,
        r#"{"object":"error","message":"The input (9000 tokens) is longer than the model's context length (8192 tokens).","type":"BadRequestError","code":400}"#,
        8192,
        9000,
    ),
    (
        400,
        r#"{"message":"Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 9500 tokens."}"#,
        8192,
        0,
    ),
    // OpenRouter
    (
        400,
        r#"{"error":{"message":"This endpoint's maximum context length is 32768 tokens. However, you requested about 40120 tokens (39120 of text input, 1000 in the output). Please reduce the length of either one, or use the \"middle-out\" transform.","code":400}}"#,
        32_768,
        40_120,
    ),
    // Others
    (400, r#"{"message":"Input is too long for requested model."}"#, 0, 0),
    (
        400,
        r#"{"object":"error","message":"Prompt contains 40960 tokens and 0 draft tokens, too large for model with 32768 maximum context length","type":"invalid_request_error","code":"3051"}"#,
        32_768,
        40_960,
    ),
    (
        400,
        r#"{"code":"Client specified an invalid argument","error":"This model's maximum prompt length is 131072 but the request contains 537812 tokens."}"#,
        131_072,
        537_812,
    ),
    (
        400,
        r#"{"message":"too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5012. Try using a shorter prompt."}"#,
        4081,
        5012,
    ),
    (
        400,
        r#"{"error":{"message":"Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)","type":"invalid_request_error"}}"#,
        262_144,
        291_351,
    ),
    (
        422,
        r#"{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 512 `max_new_tokens`","error_type":"validation"}"#,
        4096,
        4512,
    ),
    (
        400,
        r#"{"error":"Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough."}"#,
        4096,
        0,
    ),
    (
        400,
        r#"{"error":{"message":"prompt token count of 130912 exceeds the limit of 128,000","code":"model_max_prompt_tokens_exceeded"}}"#,
        128_000,
        130_912,
    ),
    (400, r#"{"error":{"code":"1261","message":"Prompt exceeds max length"}}"#, 0, 0),
    (400, "the context window was exceeded", 0, 0),
    (400, "Request is over the model's context limit", 0, 0),
    // In the midst of a stream that began well
    (
        200,
        r#"{"error":{"code":400,"type":"exceed_context_size_error","message":"the request exceeds the available context size","n_ctx":512}}"#,
        512,
        0,
    ),
    // Numbers that are none
    (
        400,
        r#"{"error":{"message":"prompt is too long: 99999999999999999999999 tokens > 0 maximum"}}"#,
        0,
        0,
    ),
];

/// Bodies that speak of tokens and limits and mean something else.
const OTHERS: &[(u16, &str)] = &[
    (
        429,
        r#"{"error":{"message":"Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Used 29000, Requested 5000. Please try again in 8s.","type":"tokens","code":"rate_limit_exceeded"}}"#,
    ),
    (
        429,
        r#"{"error":{"message":"Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 45000. The input or output tokens must be reduced in order to run successfully.","type":"tokens","code":"rate_limit_exceeded"}}"#,
    ),
    (
        413,
        r#"{"error":{"message":"Request too large for model `llama` on tokens per minute (TPM): Limit 6000, Requested 9000, please reduce your message size and try again.","type":"tokens","code":"rate_limit_exceeded"}}"#,
    ),
    (
        429,
        r#"{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit of 40,000 input tokens per minute."}}"#,
    ),
    (
        429,
        r#"{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"max_tokens is too large: 200000. This model supports at most 16384 completion tokens, whereas you provided 200000.","type":"invalid_request_error","param":"max_tokens","code":"invalid_value"}}"#,
    ),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-sonnet"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"Invalid 'messages[0].content': string too long. Expected a string with maximum length 256000, but got a string with length 300000 instead.","code":"string_above_max_length"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"Invalid 'tools': array too long. Expected an array with maximum length 128","code":"array_above_max_length"}}"#,
    ),
    (400, r#"{"error":{"message":"messages: at least one message is required"}}"#),
    (401, r#"{"error":{"message":"Incorrect API key provided; it exceeds the context length"}}"#),
    (
        404,
        r#"{"error":{"message":"The model `long-context-window` does not exist","code":"model_not_found"}}"#,
    ),
    (503, r#"{"error":{"message":"Loading model; context size 4096","type":"unavailable_error"}}"#),
    (500, r#"{"error":{"message":"The server had an error while processing your request"}}"#),
    (
        400,
        r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."}}"#,
    ),
    (529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#),
    (400, ""),
];

#[test]
fn overflows_are_known_by_the_words_of_every_server() {
    for (status, body, limit, requested) in OVERFLOWS {
        assert_eq!(overflow_of(*status, body), overflow(*limit, *requested), "{body}");
    }
}

#[test]
fn other_limits_are_no_overflow() {
    for (status, body) in OTHERS {
        assert_eq!(overflow_of(*status, body), None, "{body}");
    }
}

#[test]
fn any_body_is_read_without_harm() {
    let long = "maximum context length is ".repeat(20_000);
    assert!(overflow_of(400, &long).is_none());
    assert!(overflow_of(400, "prompt is too long: \u{202e}٣ tokens > ∞").is_some());
}
