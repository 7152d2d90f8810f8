//! Files and other artefacts, by their names.

use std::collections::BTreeMap;

use super::HandoffSource;
use crate::handoff::{HandoffLine, HandoffSection};

/// A longer name is data.
const MAX_NAME_BYTES: usize = 160;
/// Of a text only so much is looked through, at its front and at its end.
const MAX_READ_BYTES: usize = 32 << 10;
/// So many are named.
const MAX_FILES: usize = 40;

/// Endings of files that are named without a folder.
const ENDINGS: [&str; 44] = [
    "bash", "c", "cc", "cfg", "conf", "cpp", "cs", "css", "csv", "docx", "env", "go", "gz", "h",
    "hpp", "html", "ini", "ipynb", "java", "jpg", "js", "json", "jsonl", "jsx", "kt", "lock",
    "log", "md", "pdf", "php", "png", "proto", "py", "rb", "rs", "sh", "sql", "svg", "toml", "ts",
    "tsx", "txt", "xlsx", "yaml",
];

/// What was named last comes first, then what the handoff before has.
pub(super) fn files(source: &HandoffSource<'_>) -> Vec<HandoffLine> {
    // Where each was named last.
    let mut last: BTreeMap<&str, usize> = BTreeMap::new();
    let mut place = 0;
    for said in source.said {
        for name in read_parts(said.text).flat_map(names) {
            place += 1;
            last.insert(name, place);
        }
    }
    let mut named: Vec<(&str, usize)> = last.into_iter().collect();
    named.sort_by_key(|(name, place)| (std::cmp::Reverse(*place), *name));
    let carried = source.previous.into_iter().flat_map(|one| one.of(HandoffSection::Files));
    let names = named.into_iter().map(|(name, _)| name).take(MAX_FILES).chain(carried);
    names.map(|name| HandoffLine::new(HandoffSection::Files, name)).collect()
}

fn read_parts(text: &str) -> impl Iterator<Item = &str> {
    let front = text.floor_char_boundary(MAX_READ_BYTES);
    let end = text.ceil_char_boundary(text.len().saturating_sub(MAX_READ_BYTES).max(front));
    [&text[..front], &text[end..]].into_iter()
}

/// Names of files and addresses in a text.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let is_around = |c: char| {
        c.is_whitespace()
            || matches!(
                c,
                '"' | '\''
                    | '`'
                    | '('
                    | ')'
                    | '<'
                    | '>'
                    | '['
                    | ']'
                    | '{'
                    | '}'
                    | ','
                    | ';'
                    | '|'
                    | '*'
            )
    };
    let words = text.split(is_around);
    let trimmed = words.map(|word| {
        let word = word.trim_end_matches(['.', ':', '!', '?', '\\']);
        let word = match word.split_once('=') {
            Some((_, value)) if !word.contains("://") => value,
            _ => word,
        };
        // `src/a.rs:12` is a place in a file.
        let place = word
            .rsplit_once(':')
            .filter(|(_, line)| !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit()));
        place.filter(|(name, _)| !name.contains("://")).map_or(word, |(name, _)| name)
    });
    trimmed.filter(|word| is_name(word))
}

fn is_name(word: &str) -> bool {
    if !(4..=MAX_NAME_BYTES).contains(&word.len()) || word.contains("REDACTED") {
        return false;
    }
    if let Some((scheme, rest)) = word.split_once("://") {
        return matches!(scheme, "http" | "https" | "file" | "s3" | "git" | "ssh")
            && rest.contains(char::is_alphanumeric);
    }
    let plain =
        |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '~' | '@' | '+');
    if !word.chars().all(plain) || !word.contains(char::is_alphabetic) {
        return false;
    }
    let (folder, file) = word.rsplit_once('/').map_or(("", word), |(folder, file)| (folder, file));
    let ending =
        file.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).map(|(_, ending)| ending);
    let is_rooted = ["/", "./", "../", "~/"].iter().any(|root| word.starts_with(root))
        && word.matches('/').count() >= 2
        && folder.contains(char::is_alphabetic);
    let is_file = |ending: &str| {
        if folder.is_empty() {
            ENDINGS.contains(&ending)
        } else {
            ending.len() <= 6 && ending.contains(char::is_alphabetic)
        }
    };
    is_rooted || ending.is_some_and(is_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_form() {
        let text = r#"See src/main.rs:12, "docs/a.md" and https://example.org/x?y=1.
            Run `./scripts/go` on notes.txt; either and/or 1/2, 5/6/2023, e.g. i.e. Mr.Smith v1.2.3
            /usr/lib/x.so {"path":"crates/a/src/lib.rs"} base64AAAA//BBBB==, [REDACTED:a/b.rs]"#;
        let found: Vec<&str> = names(text).collect();
        assert_eq!(
            found,
            [
                "src/main.rs", "docs/a.md", "https://example.org/x?y=1", "./scripts/go",
                "notes.txt", "/usr/lib/x.so", "crates/a/src/lib.rs",
            ]
        );
        assert_eq!(names("at https://example.org/x, or").next(), Some("https://example.org/x"));
    }
}
