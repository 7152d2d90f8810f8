//! A session that goes on in less room.

use icecore::sessions::{CompactRequest, Compacted};

use super::{Demo, SESSION};
use crate::draw::{clip, number};
use crate::failure::{Failure, Outcome};
use crate::printer::Tone;

/// Lines of the handoff that are shown.
const LINES: usize = 9;

/// Compacts the session, and shows that a person's view of it stays.
pub async fn compacted(demo: &Demo) -> Outcome<Compacted> {
    demo.heading("A session compacted")?;
    let before = demo.memory.view(&demo.scope, SESSION, None).await?;
    let request = CompactRequest { session: SESSION.to_owned(), ..CompactRequest::default() };
    let done = demo.memory.compact_session(&demo.scope, &request).await?;
    demo.line(&format!(
        "  A model is sent {} tokens instead of {}:",
        number(done.tokens_after),
        number(done.tokens_before)
    ))?;
    demo.line("")?;
    for line in done.handoff.text.lines().filter(|line| !line.is_empty()).take(LINES) {
        demo.line(&format!("    {}", clip(line, demo.printer.width() - 6)))?;
    }
    demo.line(&demo.printer.paint(Tone::Dim, "    …"))?;
    demo.line("")?;
    let (after, api) = (
        demo.memory.view(&demo.scope, SESSION, None).await?,
        demo.memory.api_view(&demo.scope, SESSION, None).await?,
    );
    if after != before || api.tokens != done.tokens_after {
        return Err(Failure::Broken("a view is not what was promised".to_owned()));
    }
    demo.line(&format!(
        "  {} a person still sees all {} turns",
        demo.printer.paint(Tone::Good, "ok:"),
        number(after.messages.len() as u64)
    ))?;
    Ok(done)
}
