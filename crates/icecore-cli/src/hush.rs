//! What is said about the work, without secrets: talk, errors, logs, panics.
//!
//! Results are another matter: they come from the memory, which hid what was
//! secret before it was stored.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::panic::PanicHookInfo;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use icecore::privacy::LogRedactor;
use serde_json::{Value, json};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{EnvFilter, Registry, fmt};

use crate::args::LogFormat;
use crate::settings::Env;
use crate::telemetry::Telemetry;

/// One for the process: a panic has nobody to ask for another.
static LOGS: LazyLock<LogRedactor> = LazyLock::new(LogRedactor::default);

/// What hides secrets in all that is said. The memory teaches it what tenants
/// registered.
pub fn logs() -> LogRedactor {
    LOGS.clone()
}

/// `text` as it may be said. Where something had to be hidden its colours go too:
/// they may stand between a name and its value.
pub fn said(text: &str) -> Cow<'_, str> {
    let plain = plain(text);
    let clean = LOGS.text(&plain);
    match clean.as_str() == plain {
        true => Cow::Borrowed(text),
        false => Cow::Owned(clean.into_string()),
    }
}

/// `text` without the escape sequences that set colours.
fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains('\x1b') {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        out.push_str(before);
        let end = after.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(after.len());
        match after[end..].strip_prefix('m') {
            Some(after) => rest = after,
            None => {
                out.push_str("\x1b[");
                rest = after;
            }
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// From here on panics are told without secrets.
pub fn start() {
    std::panic::set_hook(Box::new(tell_panic));
}

/// From here on logs go to stderr; `ICECORE_LOG` says how much. Spans go to
/// `telemetry` too, where there is one.
pub fn log(env: &Env, format: LogFormat, telemetry: Option<&Telemetry>) {
    let filter = EnvFilter::builder().parse_lossy(env.log.as_deref().unwrap_or("warn"));
    let color = env.force_color || (std::io::stderr().is_terminal() && !env.no_color);
    let lines = fmt::layer::<Registry>().with_target(false).with_writer(Hushed(format));
    let lines = match format {
        LogFormat::Text => lines.with_ansi(color).with_filter(filter).boxed(),
        LogFormat::Json => {
            lines.json().flatten_event(true).with_span_list(false).with_filter(filter).boxed()
        }
    };
    let mut layers = vec![lines];
    layers.extend(telemetry.map(|telemetry| telemetry.layer().boxed()));
    let _ = tracing_subscriber::registry().with(layers).try_init();
}

/// So many log lines are held at most; the oldest go first.
const HELD_LINES: usize = 100;

/// Log lines that wait until the screen is free.
static HELD: Mutex<Option<VecDeque<String>>> = Mutex::new(None);

/// From here on log lines wait: what draws on the whole screen would be drawn over. Where
/// stderr is no terminal they need not.
pub fn hold() {
    if std::io::stderr().is_terminal() {
        *held() = Some(VecDeque::new());
    }
}

/// Says what waited.
pub fn release() {
    for line in held().take().into_iter().flatten() {
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

fn held() -> MutexGuard<'static, Option<VecDeque<String>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes log lines to stderr, each without its secrets.
#[derive(Clone, Copy)]
struct Hushed(LogFormat);

impl MakeWriter<'_> for Hushed {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}

impl Write for Hushed {
    /// Lines come whole: the formatter writes each in one piece.
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let clean = match self.0 {
            LogFormat::Text => said(&text),
            LogFormat::Json => said_json(&text),
        };
        match held().as_mut() {
            None => std::io::stderr().lock().write_all(clean.as_bytes())?,
            Some(lines) => {
                if lines.len() == HELD_LINES {
                    lines.pop_front();
                }
                lines.push_back(clean.into_owned());
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// As [`said`], for a line that is JSON and stays so. Texts are looked at one by
/// one, without their escapes; then the line as a whole, since a name may tell what
/// its value is. If hiding that would break the line, it stands in another as text.
fn said_json(line: &str) -> Cow<'_, str> {
    let Ok(mut told) = serde_json::from_str::<Value>(line) else { return said(line) };
    each_text(&mut told);
    let whole = told.to_string();
    let clean = match said(&whole) {
        Cow::Borrowed(_) => whole,
        Cow::Owned(clean) if serde_json::from_str::<Value>(&clean).is_ok() => clean,
        Cow::Owned(clean) => json!({ "level": told["level"], "redacted": clean }).to_string(),
    };
    Cow::Owned(clean + "\n")
}

fn each_text(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(clean) = said(text) {
                *text = clean;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(each_text),
        Value::Object(members) => members.values_mut().for_each(each_text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What a panic says may quote what it choked on.
fn tell_panic(panic: &PanicHookInfo<'_>) {
    let mut stderr = std::io::stderr().lock();
    let _ = writeln!(stderr, "{}", said(&panic.to_string()));
    let trace = std::backtrace::Backtrace::capture();
    if trace.status() == std::backtrace::BacktraceStatus::Captured {
        let _ = writeln!(stderr, "{trace}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn token() -> String {
        format!("ghp_{}", "a1B2".repeat(9))
    }

    #[test]
    fn what_is_said_holds_no_secret() {
        let text = said(&format!("cannot find `{}`", token())).into_owned();
        assert_eq!(text, "cannot find `[REDACTED:github-token]`");
        let painted = "\x1b[1;31merror:\x1b[0m no such file";
        assert_eq!(said(painted), painted);
    }

    #[test]
    fn a_panic_tells_no_secret() {
        static TOLD: Mutex<String> = Mutex::new(String::new());
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(|panic| {
            *TOLD.lock().unwrap() = said(&panic.to_string()).into_owned();
        }));
        let fallen = std::panic::catch_unwind(|| panic!("cannot read `{}`", token()));
        std::panic::set_hook(before);
        let told = TOLD.lock().unwrap();
        assert!(fallen.is_err() && told.contains("hush.rs"), "{told}");
        assert!(told.ends_with("cannot read `[REDACTED:github-token]`"), "{told}");
    }

    #[test]
    fn a_json_line_stays_json() {
        let check = |line: Value| {
            let text = format!("{line}\n");
            let clean = said_json(&text);
            assert!(clean.ends_with('\n') && !clean.contains(&token()), "{clean}");
            let clean: Value = serde_json::from_str(&clean).unwrap();
            assert_eq!(clean["level"], "WARN", "{clean}");
            clean
        };
        let plain = json!({"level": "WARN", "message": "a \"b\" \n", "ms": 3, "is": [true]});
        assert_eq!(check(plain.clone()), plain);
        let told = check(json!({"level": "WARN", "message": format!("no `{}`", token())}));
        assert_eq!(told["message"], "no `[REDACTED:github-token]`");
        // Nested, escaped, and named by its field.
        check(json!({"level": "WARN", "span": {"name": format!("\"{}\"\n", token())}}));
        check(json!({"level": "WARN", "password": "correct-horse-7-battery"}));
        check(json!({"level": "WARN", "authorization": format!("Bearer {}", token())}));
        check(json!({"level": "WARN", "m": format!("password=\"{}\\\"", token())}));
    }

    #[test]
    fn colours_hide_no_secret() {
        let line = format!("\x1b[3mcause\x1b[0m\x1b[2m=\x1b[0m{}\n", token());
        assert_eq!(said(&line), "cause=[REDACTED:github-token]\n");
        assert_eq!(plain("\x1b[2Ka\x1b[1mb\x1b["), "\x1b[2Kab\x1b[");
    }
}
