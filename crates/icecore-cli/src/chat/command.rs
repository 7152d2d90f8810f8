//! What can be typed with a slash.

use std::path::PathBuf;

use icecore::ForgetRequest;

/// A command that was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Makes a handoff now.
    Compact,
    /// Lists facts, or tells one.
    Learn(Option<String>),
    /// Erases, once it is confirmed.
    Forget(ForgetRequest),
    /// Searches the memory.
    Recall(String),
    /// Lists sessions, or goes to one.
    Session(Option<String>),
    /// Writes the session as turn JSONL.
    Export(Option<PathBuf>),
    /// Shows both views, or one again.
    View,
    /// Looks for words in what is shown.
    Search(String),
    /// Asks the model again for what it did not answer.
    Retry,
    /// Says what there is.
    Help,
    /// Leaves.
    Quit,
}

/// A command as the help tells it: its name, what follows, what it does.
pub struct Known {
    /// With its slash.
    pub name: &'static str,
    /// What follows it.
    pub after: &'static str,
    /// What it does.
    pub does: &'static str,
}

const fn known(name: &'static str, after: &'static str, does: &'static str) -> Known {
    Known { name, after, does }
}

/// Every command.
pub const COMMANDS: [Known; 11] = [
    known("/compact", "", "a handoff now: the model goes on with less"),
    known("/learn", "[TEXT]", "list what is known, or tell a fact"),
    known("/recall", "WORDS", "search the whole memory"),
    known("/forget", "WHAT", "erase a session, a subject or an entry, after asking"),
    known("/session", "[NAME]", "list sessions, or go to one"),
    known("/export", "[FILE]", "this session as turn JSONL"),
    known("/view", "", "both views side by side (F2)"),
    known("/search", "[WORDS]", "find in this session (Ctrl-F)"),
    known("/retry", "", "ask again for what was not answered"),
    known("/help", "", "keys and commands (F1)"),
    known("/quit", "", "leave (Ctrl-C twice)"),
];

/// A line that is no command that can be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misused {
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: String,
}

impl Misused {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

/// Reads a line that begins with a slash; `session` is the one that is open.
pub fn parse(line: &str, session: &str) -> Result<Command, Misused> {
    let line = line.trim();
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let some = || (!rest.is_empty()).then(|| rest.to_owned());
    match name {
        "/compact" => Ok(Command::Compact),
        "/learn" => Ok(Command::Learn(some())),
        "/recall" if rest.is_empty() => Err(Misused::new(
            "/recall needs words to look for",
            "type them behind it: /recall when do we leave",
        )),
        "/recall" => Ok(Command::Recall(rest.to_owned())),
        "/forget" => forget(rest, session).map(Command::Forget),
        "/session" => Ok(Command::Session(some())),
        "/export" => Ok(Command::Export(some().map(PathBuf::from))),
        "/view" => Ok(Command::View),
        "/search" => Ok(Command::Search(rest.to_owned())),
        "/retry" => Ok(Command::Retry),
        "/help" => Ok(Command::Help),
        "/quit" => Ok(Command::Quit),
        other => Err(Misused::new(
            format!("there is no command {other}"),
            match nearest(other) {
                Some(nearest) => format!("did you mean {nearest}? /help lists all"),
                None => "/help lists all".to_owned(),
            },
        )),
    }
}

fn forget(rest: &str, session: &str) -> Result<ForgetRequest, Misused> {
    let (what, name) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let name = name.trim().to_owned();
    match (what, name.is_empty()) {
        ("session", true) => Ok(ForgetRequest::Session(session.to_owned())),
        ("session", false) => Ok(ForgetRequest::Session(name)),
        ("subject", false) => Ok(ForgetRequest::Subject(name)),
        ("entry", false) => Ok(ForgetRequest::Entry(name)),
        _ => Err(Misused::new(
            "/forget needs to know what",
            "/forget session [NAME], /forget subject NAME, or /forget entry ID",
        )),
    }
}

/// The command that was probably meant.
fn nearest(name: &str) -> Option<&'static str> {
    let score = |known: &Known| strsim::jaro_winkler(name, known.name);
    let best = COMMANDS.iter().max_by(|a, b| score(a).total_cmp(&score(b)))?;
    (score(best) > 0.8).then_some(best.name)
}

/// What a line that was begun may become: the whole name if only one is left, else what
/// all that are left have in common.
pub fn completed(line: &str) -> Option<String> {
    if !line.starts_with('/') || line.contains(char::is_whitespace) {
        return None;
    }
    let left: Vec<&str> =
        COMMANDS.iter().map(|known| known.name).filter(|name| name.starts_with(line)).collect();
    match left.as_slice() {
        [] => None,
        [only] => Some(format!("{only} ")),
        [first, others @ ..] => {
            let is_common =
                |end: usize| others.iter().all(|other| other.starts_with(&first[..end]));
            let end = (line.len()..=first.len()).rev().find(|end| is_common(*end))?;
            Some(first[..end].to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str) {
        let found = match parse(line, "trip") {
            Ok(command) => format!("{command:?}"),
            Err(Misused { message, hint }) => format!("{message} ({hint})"),
        };
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn commands_are_read() {
        check("/compact", "Compact");
        check("/learn", "Learn(None)");
        check("/learn  I prefer tabs. ", "Learn(Some(\"I prefer tabs.\"))");
        check("/recall when do we leave", "Recall(\"when do we leave\")");
        check(
            "/recall",
            "/recall needs words to look for (type them behind it: /recall when do we leave)",
        );
        check("/forget session", "Forget(Session(\"trip\"))");
        check("/forget session other one", "Forget(Session(\"other one\"))");
        check("/forget subject Ana", "Forget(Subject(\"Ana\"))");
        check("/forget entry e-1", "Forget(Entry(\"e-1\"))");
        for half in ["/forget", "/forget all", "/forget subject", "/forget entry "] {
            check(
                half,
                "/forget needs to know what (/forget session [NAME], /forget subject NAME, or /forget entry ID)",
            );
        }
        check("/session", "Session(None)");
        check("/session work", "Session(Some(\"work\"))");
        check("/export a b.jsonl", "Export(Some(\"a b.jsonl\"))");
        check("/search", "Search(\"\")");
        check("/quit", "Quit");
    }

    #[test]
    fn a_misspelt_command_gets_a_hint() {
        check(
            "/compct now",
            "there is no command /compct (did you mean /compact? /help lists all)",
        );
        check("/zzz", "there is no command /zzz (/help lists all)");
        check("/", "there is no command / (/help lists all)");
    }

    #[test]
    fn names_are_completed() {
        let check = |line: &str, expected: Option<&str>| {
            assert_eq!(completed(line).as_deref(), expected, "{line}");
        };
        check("/co", Some("/compact "));
        check("/se", Some("/se"));
        check("/ses", Some("/session "));
        check("/re", Some("/re"));
        check("/x", None);
        check("hello", None);
        check("/learn x", None);
    }

    #[test]
    fn every_command_that_is_told_is_there() {
        for known in COMMANDS {
            let told = parse(known.name, "s").err().map(|misused| misused.message);
            assert!(!told.is_some_and(|told| told.contains("no command")), "{}", known.name);
        }
    }
}
