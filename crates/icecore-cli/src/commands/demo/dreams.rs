//! A dream, and its archive verified.

use icecore::dreams::{Checksum, Dream, DreamRequest};

use super::Demo;
use crate::draw::{clip, count, number};
use crate::failure::{Failure, Outcome};
use crate::printer::Tone;

/// Tokens that the dream may read and write.
const BUDGET: u64 = 8_000;

/// Lines of the distillate that are shown.
const LINES: usize = 9;

/// Dreams, and hashes what came of it.
pub async fn dream(demo: &Demo) -> Outcome<Dream> {
    demo.heading("A dream under a budget")?;
    let request = DreamRequest::manual(Some(BUDGET));
    let done = demo.memory.dream(&demo.scope, request, |_| {}).await?;
    let (figures, checksum) = (done.record.figures, done.record.archive);
    demo.line(&format!(
        "  {}, read in {} tokens and told in {}: {} of {} allowed.",
        count(figures.source_count, "source"),
        number(figures.input_tokens),
        number(figures.output_tokens),
        number(figures.input_tokens + figures.output_tokens),
        number(figures.budget)
    ))?;
    demo.line("")?;
    let preview = demo.memory.archive(demo.scope.tenant(), None, checksum).await?;
    let text = icecore::dreams::Archive::parse(&preview)
        .map(|archive| archive.distillate.text())
        .map_err(|error| Failure::Broken(error.to_string()))?;
    for line in text.lines().take(LINES) {
        demo.line(&format!("    {}", clip(line, demo.printer.width() - 6)))?;
    }
    demo.line(&demo.printer.paint(Tone::Dim, "    …"))?;
    demo.line("")?;
    if Checksum::of(&preview) != checksum {
        return Err(Failure::Broken("an archive is not what its address says".to_owned()));
    }
    demo.line(&format!(
        "  {} archive {}…, {} bytes: the same sources give the same bytes",
        demo.printer.paint(Tone::Good, "ok:"),
        &checksum.to_string()[..8],
        number(preview.len() as u64)
    ))?;
    Ok(done)
}
