//! `icecore demo`: the main job end to end, in a store that is thrown away.

mod dreams;
mod dummy;
mod questions;
mod secrets;
mod sessions;
mod steps;

use icecore::ingest::{ImportPlan, Repeat};
use icecore::{Memory, Principal, Scope, Tenant};
use serde_json::json;
use zeroize::Zeroizing;

use crate::failure::{Failure, Outcome, Status};
use crate::hush;
use crate::printer::{Printer, Tone};

/// The bundled conversation; its secrets are made up anew each time.
const CONVERSATION: &str = include_str!("../../demo/conversation.jsonl");

/// The session it tells.
const SESSION: &str = "expedition";

/// What the steps work on.
struct Demo {
    memory: Memory,
    principal: Principal,
    scope: Scope,
    dir: tempfile::TempDir,
    /// What went in, with its dummy secrets.
    given: String,
    /// The dummy secrets.
    secrets: Vec<String>,
    /// The one that is registered, as it is.
    registered: String,
    printer: Printer,
    steps: std::cell::Cell<u32>,
}

impl Demo {
    /// The next heading.
    fn heading(&self, text: &str) -> Outcome<()> {
        let number = self.steps.get() + 1;
        self.steps.set(number);
        self.line("")?;
        let rule = if self.printer.is_ascii() { "-" } else { "─" };
        let rest = self.printer.width().min(80).saturating_sub(text.chars().count() + 8);
        self.line(&format!(
            "{} {}",
            self.printer.paint(Tone::Title, &format!(" {number}. {text}")),
            self.printer.paint(Tone::Dim, &rule.repeat(rest))
        ))?;
        self.line("")
    }

    /// A line of the show; JSON has none.
    fn line(&self, text: &str) -> Outcome<()> {
        match self.printer.is_json() {
            true => Ok(()),
            false => self.printer.line(text),
        }
    }
}

/// Runs the show.
pub async fn run(printer: &Printer) -> Outcome<Status> {
    let began = std::time::Instant::now();
    let demo = set_up(*printer).await?;
    let imported = steps::conversation_in(&demo).await?;
    let secrets = secrets::hidden(&demo).await?;
    steps::layers(&demo).await?;
    let exact = steps::life_of_a_chunk(&demo).await?;
    let answered = questions::ask(&demo).await?;
    let context = steps::context(&demo).await?;
    let compacted = sessions::compacted(&demo).await?;
    let dream = dreams::dream(&demo).await?;
    let receipt = steps::forgotten(&demo).await?;
    let ok = steps::whole(&demo).await? && secrets.leaked == 0;
    demo.line("")?;
    let seconds = began.elapsed().as_secs_f64();
    demo.line(&format!(
        "  {}",
        printer.paint(
            Tone::Dim,
            &format!("That took {seconds:.1} s, and the store is gone. For your own: `icecore import FILE`.")
        )
    ))?;
    if printer.is_json() {
        printer.json(&json!({
            "ok": ok,
            "turns": imported,
            "secretsHidden": secrets.hidden.values().sum::<u64>(),
            "redacted": secrets.hidden,
            "expandedExactly": exact,
            "questions": answered.iter().map(questions::Answer::to_json).collect::<Vec<_>>(),
            "context": { "tokens": context.tokens, "budget": context.budget },
            "session": {
                "tokensBefore": compacted.tokens_before,
                "tokensAfter": compacted.tokens_after,
            },
            "dream": {
                "tokenBudget": dream.record.figures.budget,
                "tokensUsed": dream.record.figures.input_tokens + dream.record.figures.output_tokens,
                "sourceCount": dream.record.figures.source_count,
                "remaining": dream.record.figures.remaining,
                "archiveChecksum": dream.record.archive.to_string(),
            },
            "erased": receipt.erased.turns,
        }))?;
    }
    Ok(if ok { Status::Done } else { Status::Broken })
}

async fn set_up(printer: Printer) -> Outcome<Demo> {
    let dir = tempfile::Builder::new()
        .prefix("icecore-demo-")
        .tempdir()
        .map_err(|error| Failure::Broken(format!("cannot make a temporary directory: {error}")))?;
    let memory = Memory::builder().logs(hush::logs()).open(dir.path()).await?;
    let tenant = Tenant::new("demo").map_err(icecore::MemoryError::from)?;
    let principal = Principal::local_operator(tenant);
    let scope = memory.scope(&principal, "demo").await?;
    let dummy::Filled { text: given, secrets, registered } = dummy::with_secrets(CONVERSATION)?;
    let value = Zeroizing::new(registered.clone());
    memory.add_secret(principal.tenant(), dummy::REGISTERED, value, false).await?;
    Ok(Demo {
        memory,
        principal,
        scope,
        dir,
        given,
        secrets,
        registered,
        printer,
        steps: std::cell::Cell::new(0),
    })
}

fn plan() -> ImportPlan {
    ImportPlan { session: SESSION.to_owned(), insist: false, repeat: Repeat::Recognise }
}
