//! The one way out: data to stdout, talk to stderr.

use std::io::{ErrorKind, IsTerminal, Write};

use serde_json::Value;

use crate::failure::{Failure, Outcome};
use crate::hush;
use crate::settings::Env;

/// Prints for one command.
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    json: bool,
    quiet: bool,
    out_color: bool,
    err_color: bool,
    ascii: bool,
    width: usize,
}

/// What a piece of text means; colour follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// A heading.
    Title,
    /// Less important.
    Dim,
    /// The hot tier: fresh snow.
    Hot,
    /// The warm tier: firn.
    Warm,
    /// The cold tier: blue ice.
    Cold,
    /// Something is wrong.
    Bad,
    /// Something is fine.
    Good,
    /// A word that was looked for.
    Mark,
    /// A marker or other thing to notice.
    Note,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Tone::Title => "1",
            Tone::Dim => "2",
            Tone::Hot => "38;5;255",
            Tone::Warm => "38;5;117",
            Tone::Cold => "38;5;32",
            Tone::Bad => "1;31",
            Tone::Good => "32",
            Tone::Mark => "1;33",
            Tone::Note => "33",
        }
    }
}

/// Lines are drawn no narrower and no wider than this.
const WIDTHS: (usize, usize) = (40, 120);

impl Printer {
    /// Decides how to print.
    pub fn new(json: bool, quiet: bool, no_color: bool, env: &Env) -> Self {
        let (out, err) = (std::io::stdout(), std::io::stderr());
        let colour = |terminal: bool| !no_color && (env.force_color || (terminal && !env.no_color));
        let window = rustix::termios::tcgetwinsize(&out).ok().map(|size| usize::from(size.ws_col));
        let width = window.filter(|columns| *columns > 0).or(env.columns).unwrap_or(80);
        Self {
            json,
            quiet,
            out_color: colour(out.is_terminal()) && !json,
            err_color: colour(err.is_terminal()),
            ascii: env.ascii,
            width: width.clamp(WIDTHS.0, WIDTHS.1),
        }
    }

    /// Whether results are JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Whether only plain characters can be shown.
    pub fn is_ascii(&self) -> bool {
        self.ascii
    }

    /// Whether stdout has colours.
    pub fn is_colored(&self) -> bool {
        self.out_color
    }

    /// Columns to draw in.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Whether a progress bar would be seen.
    pub fn shows_progress(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }

    /// Text for stdout in a tone.
    pub fn paint(&self, tone: Tone, text: &str) -> String {
        painted(self.out_color, tone, text)
    }

    /// Text for stderr in a tone.
    pub fn paint_talk(&self, tone: Tone, text: &str) -> String {
        painted(self.err_color, tone, text)
    }

    /// A line of the result.
    pub fn line(&self, text: &str) -> Outcome<()> {
        self.raw(&format!("{text}\n"))
    }

    /// A piece of the result as it is.
    pub fn raw(&self, text: &str) -> Outcome<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(out_failure)
    }

    /// The result as JSON.
    pub fn json(&self, value: &Value) -> Outcome<()> {
        self.line(&value.to_string())
    }

    /// A word to the person at the terminal.
    pub fn talk(&self, text: &str) {
        if !self.quiet {
            self.say(text);
        }
    }

    /// A warning: also when quiet.
    pub fn warn(&self, text: &str) {
        self.say(&format!("{} {text}", self.paint_talk(Tone::Note, "warning:")));
    }

    /// What is wrong: also when quiet.
    pub fn error(&self, text: &str) {
        self.say(&format!("{} {text}", self.paint_talk(Tone::Bad, "error:")));
    }

    /// What to do about it.
    pub fn hint(&self, text: &str) {
        self.say(&format!("{} {text}", self.paint_talk(Tone::Warm, "hint:")));
    }

    fn say(&self, text: &str) {
        // Nobody can be told that stderr is closed.
        let _ = writeln!(std::io::stderr().lock(), "{}", hush::said(text));
    }
}

fn painted(color: bool, tone: Tone, text: &str) -> String {
    match color && !text.is_empty() {
        true => format!("\x1b[{}m{text}\x1b[0m", tone.code()),
        false => text.to_owned(),
    }
}

fn out_failure(error: std::io::Error) -> Failure {
    match error.kind() {
        // The reader has seen enough, as `head` does.
        ErrorKind::BrokenPipe => Failure::ReaderGone,
        _ => Failure::Output(error),
    }
}
