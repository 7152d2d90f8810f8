//! What of a model's handoff is believed.

use super::{Handoff, HandoffLine, HandoffSection, render};
use crate::text::{Grounds, bear_out_but, normalise};
use crate::tokens::TokenCounter;

/// A reply is read up to here: more of it is never wanted.
const MAX_REPLY_BYTES: usize = 1 << 20;

/// Of the lines, so many in a hundred must be borne out, or none is believed.
const BORNE_OUT_PERCENT: usize = 25;

/// What a model writes where it has nothing to say.
const NOTHING: [&str; 7] =
    ["", "none", "n a", "nothing", "none so far", "not applicable", "nothing to say"];

/// Words of one who hands work over; they need no source.
const WORK: &[&str] = &[
    "add", "added", "agent", "answer", "answered", "assistant", "awaiting", "build", "built",
    "change", "changed", "check", "checked", "complete", "completed", "continue", "continued",
    "conversation", "create", "created", "done", "earlier", "error", "errors", "failed", "file",
    "files", "find", "finish", "finished", "fix", "fixed", "found", "get", "goal", "implement",
    "implemented", "in", "investigate", "later", "let", "make", "moved", "need", "needed", "needs",
    "ongoing", "pending", "person", "progress", "provide", "provided", "remaining", "remove",
    "removed", "request", "requested", "respond", "result", "results", "review", "run", "session",
    "so", "started", "state", "step", "steps", "task", "tasks", "test", "tests", "tool", "tools",
    "update", "updated", "verify", "waiting", "work", "working", "write", "wrote",
];

/// Why a reply is no handoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadReply {
    #[error("it is empty")]
    Empty,
    #[error("it is not in the form that was asked for")]
    Malformed,
    #[error("it has {tokens} tokens, and there is room for {most}")]
    TooLarge { tokens: u64, most: u64 },
    #[error("its sources do not bear it out")]
    Groundless,
}

/// Reads a reply. Lines with names, numbers or dates that no source has are dropped.
///
/// What stands before the first heading is the model's talk; so are fences around it all
/// and what it thought aloud. What it says was recalled is not taken: only we recall.
pub fn read_reply(
    reply: &str,
    sources: &[&str],
    most_tokens: u64,
    counter: &dyn TokenCounter,
) -> Result<Handoff, BadReply> {
    let reply = without_thoughts(&reply[..reply.floor_char_boundary(MAX_REPLY_BYTES)]);
    if !reply.contains(char::is_alphanumeric) {
        return Err(BadReply::Empty);
    }
    let lines = read_lines(reply).ok_or(BadReply::Malformed)?;
    if lines.is_empty() {
        return Err(BadReply::Empty);
    }
    let mut handoff = Handoff { lines };
    let tokens = u64::from(counter.count(&render(&handoff, 1, 1)));
    if tokens > most_tokens {
        return Err(BadReply::TooLarge { tokens, most: most_tokens });
    }
    let grounds = Grounds::of_texts(sources);
    let said = handoff.lines.len();
    handoff.lines.retain(|line| bear_out_but(&line.text, &grounds, WORK));
    if handoff.lines.len() * 100 >= said * BORNE_OUT_PERCENT && !handoff.lines.is_empty() {
        Ok(handoff)
    } else {
        Err(BadReply::Groundless)
    }
}

/// The reply after what a model thought aloud.
fn without_thoughts(reply: &str) -> &str {
    if reply.trim_start().starts_with("<think>") {
        reply.split_once("</think>").map_or("", |(_, rest)| rest).trim()
    } else {
        reply.trim()
    }
}

/// Its lines by section; none where no heading is one of ours.
fn read_lines(reply: &str) -> Option<Vec<HandoffLine>> {
    let mut section: Option<HandoffSection> = None;
    let mut is_unknown = false;
    let mut lines = Vec::new();
    for line in reply.lines().map(str::trim) {
        if line.is_empty() || line.starts_with("```") || line.starts_with("~~~") {
            continue;
        }
        if let Some(found) = heading(line) {
            section = Some(found);
            is_unknown = false;
            continue;
        }
        // What stands under a heading that is not ours is not what was asked for.
        if line.starts_with('#') {
            is_unknown = true;
            continue;
        }
        let text = item(line);
        let is_empty = NOTHING.contains(&normalise(text).as_str());
        if let Some(section) = section.filter(|_| !is_unknown && !is_empty) {
            lines.push(HandoffLine::new(section, text));
        }
    }
    section?;
    lines.retain(|line| line.section != HandoffSection::Recalled);
    lines.sort_by_key(|line| line.section);
    Some(lines)
}

/// The section of a line that is a heading: `## Goal`, `**Goal:**`, `1. Goal`, `Goal:`.
fn heading(line: &str) -> Option<HandoffSection> {
    let is_marked = line.starts_with(['#', '*']) && !line.starts_with("* ") || line.ends_with(':');
    let numbered = line.split_once(['.', ')']).filter(|(number, _)| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    let text = numbered.map_or(line, |(_, rest)| rest);
    let found = HandoffSection::of_heading(text)?;
    (is_marked || numbered.is_some() || line == text && !line.starts_with(['-', '•']))
        .then_some(found)
}

/// A line without its bullet.
fn item(line: &str) -> &str {
    let bullet = ["- ", "* ", "• ", "+ "].iter().find_map(|bullet| line.strip_prefix(bullet));
    bullet.unwrap_or(line).trim()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::CharCounter;

    const SOURCES: [&str; 3] = [
        "user: Port the parser to Rust, and never push to main.",
        "assistant: I moved src/lex.rs; 14 tests pass, 2 fail in parse_float.",
        "Ann: the review is on 3 May 2024.",
    ];

    fn check(reply: &str, expected: Result<&[&str], BadReply>) {
        let read = read_reply(reply, &SOURCES, 2_000, &CharCounter);
        let texts = read
            .as_ref()
            .map(|handoff| handoff.lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>());
        let texts = texts.map_err(|error| *error);
        assert_eq!(texts.as_deref(), expected.as_ref().map(|lines| *lines), "{reply}");
    }

    #[test]
    fn words_can_be_looked_up() {
        assert!(WORK.is_sorted());
    }

    #[test]
    fn replies_are_read_in_many_forms() {
        let goal = &["Port the parser to Rust."][..];
        check("## Goal\n- Port the parser to Rust.", Ok(goal));
        check("```markdown\n# GOAL\n* Port the parser to Rust.\n```", Ok(goal));
        check("Sure! Here it is.\n\n**Goal:**\nPort the parser to Rust.", Ok(goal));
        check(
            "<think>Goal: x</think>\n1. Goal\n- Port the parser to Rust.\n## Files\n- none",
            Ok(goal),
        );
        check("Goal:\n- Port the parser to Rust.\n## Poem\n- 14 tests pass.", Ok(goal));
        check(
            "## State\n- 14 tests pass, 2 fail in parse_float.\n## Goal\n- Port the parser.",
            Ok(&["Port the parser.", "14 tests pass, 2 fail in parse_float."]),
        );
        check("## Open tasks\n- Fix parse_float.", Ok(&["Fix parse_float."]));
    }

    #[test]
    fn what_is_no_handoff_is_refused() {
        check("", Err(BadReply::Empty));
        check(" \n ", Err(BadReply::Empty));
        check("## Goal\n- none\n## State\n- N/A", Err(BadReply::Empty));
        check("<think>so much to think", Err(BadReply::Empty));
        check("I can not help with that.", Err(BadReply::Malformed));
        check("Das Ziel ist, den Parser zu portieren.", Err(BadReply::Malformed));
        check(r#"{"goal":"Port the parser"}"#, Err(BadReply::Malformed));
        check("## Ziel\n- Den Parser portieren", Err(BadReply::Malformed));
        check("## Goal\n- Bake a cake for Bob.\n## State\n- 99 eggs", Err(BadReply::Groundless));
        check("## Goal\n- Das Programm soll bald fertig sein", Err(BadReply::Groundless));
        let long = format!("## Goal\n- {}", "Port the parser. ".repeat(200));
        let read = read_reply(&long, &SOURCES, 2_000, &CharCounter);
        assert!(matches!(read, Err(BadReply::TooLarge { most: 2_000, .. })), "{read:?}");
    }

    #[test]
    fn only_what_sources_bear_out_is_kept() {
        check(
            "## Facts\n- The review is on 3 May 2024.\n- The review is on 4 May 2024.\n- 15 tests pass.\n- Carol reviews.",
            Ok(&["The review is on 3 May 2024."]),
        );
        check(
            "## Goal\n- Port the parser.\n## Recalled for the request that follows\n- Ann: the review",
            Ok(&["Port the parser."]),
        );
    }

    #[test]
    fn scripts_without_spaces_are_read_too() {
        let sources = ["用户：请把解析器移植到 Rust，不要推送到主分支。"];
        let good = "## Goal\n- 把解析器移植到 Rust";
        assert!(read_reply(good, &sources, 2_000, &CharCounter).is_ok());
        let bad = "## Goal\n- 明天去北京旅行";
        let read = read_reply(bad, &sources, 2_000, &CharCounter);
        assert_eq!(read, Err(BadReply::Groundless));
    }
}
