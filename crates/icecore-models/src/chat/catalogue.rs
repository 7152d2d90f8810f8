//! Windows of models that are well known. What the settings declare wins.

/// The beginnings of names, the longer before the shorter, and the tokens of request
/// and answer that such a model takes.
const WINDOWS: [(&str, u64); 42] = [
    ("chatgpt-4o", 128_000),
    ("claude", 200_000),
    ("codestral", 256_000),
    ("command-a", 256_000),
    ("command-r", 128_000),
    ("deepseek", 128_000),
    ("devstral", 128_000),
    ("gemini-1.5-pro", 2_000_000),
    ("gemini", 1_000_000),
    ("gemma-2", 8_192),
    ("gemma2", 8_192),
    ("gemma", 128_000),
    ("glm-4", 128_000),
    ("glm", 200_000),
    ("gpt-3.5", 16_385),
    ("gpt-4-32k", 32_768),
    ("gpt-4-turbo", 128_000),
    ("gpt-4.1", 1_000_000),
    ("gpt-4o", 128_000),
    ("gpt-4", 8_192),
    ("gpt-5", 400_000),
    ("gpt-oss", 131_072),
    ("grok-3", 131_072),
    ("grok", 256_000),
    ("kimi-k2", 256_000),
    ("llama-3.1", 131_072),
    ("llama-3.2", 131_072),
    ("llama-3.3", 131_072),
    ("llama-3", 8_192),
    ("llama3.1", 131_072),
    ("llama3.2", 131_072),
    ("llama3.3", 131_072),
    ("llama3", 8_192),
    ("mistral", 32_768),
    ("mixtral", 32_768),
    ("o1-mini", 128_000),
    ("o1", 200_000),
    ("o3", 200_000),
    ("o4-mini", 200_000),
    ("phi-4", 16_384),
    ("qwen", 32_768),
    ("smollm2", 8_192),
];

/// The window of a model of this name, if it is well known. Whatever stands before the
/// last `/` says who offers it.
pub fn known_window(model: &str) -> Option<u64> {
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    WINDOWS.iter().find(|(begin, _)| name.starts_with(begin)).map(|(_, window)| *window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_beginning_is_found_before_a_shorter() {
        for (at, (later, _)) in WINDOWS.iter().enumerate() {
            for (earlier, _) in &WINDOWS[..at] {
                assert!(!later.starts_with(earlier), "{later} is never found");
            }
        }
    }

    #[test]
    fn names_are_known_with_versions_and_with_who_offers_them() {
        assert_eq!(known_window("gpt-4o-mini-2024-07-18"), Some(128_000));
        assert_eq!(known_window("gpt-4-0613"), Some(8_192));
        assert_eq!(known_window("anthropic/claude-sonnet-4.5"), Some(200_000));
        assert_eq!(known_window("meta-llama/Llama-3.1-8B-Instruct"), Some(131_072));
        assert_eq!(known_window("llama3:8b"), Some(8_192));
        for unknown in ["", "my-model", "fine-tuned-gpt-4"] {
            assert_eq!(known_window(unknown), None, "{unknown}");
        }
    }
}
