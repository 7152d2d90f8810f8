//! What of the covered turns bears on the last request, word for word.

use std::collections::BTreeSet;

use icecore_domain::handoff::{CompactionPlan, Passage};
use icecore_domain::ids::{Branch, Ordinal, Scope, Seq};
use icecore_index::{DocKind, Mode, Source};
use icecore_store::TurnRow;

use super::view::Reading;
use crate::error::Result;
use crate::layers::{is_handoff, own_words};
use crate::recall::indexing::Item;
use crate::recall::search::{Filter, Ranking, read_all};
use crate::sessions::Sessions;

/// Turns that are ranked for a request at most.
const RANKED: usize = 200;

/// A request longer than this is asked about by its beginning and its end, in bytes.
const QUERY_BYTES: usize = 4_000;

/// A passage has at most so many tokens; of a longer turn the part that bears on the
/// request is quoted.
const PASSAGE_TOKENS: u32 = 160;

/// What stands around a passage: who said it, when, and the line's end.
const PASSAGE_LINE_TOKENS: u64 = 12;

impl Sessions {
    /// Passages for a request, as [`Sessions::passages`] finds them. A handoff is written
    /// without them where nothing can be looked up.
    pub(super) async fn recalled(
        &self,
        scope: &Scope,
        reading: &Reading,
        standing: &BTreeSet<Seq>,
        request: &str,
        plan: &CompactionPlan,
    ) -> Result<Vec<Passage>> {
        let found = self.passages(scope, reading, standing, request, plan).await;
        Ok(found.unwrap_or_else(|error| {
            tracing::warn!(%scope, %error, "a handoff is written without what bears on the request");
            Vec::new()
        }))
    }

    /// Passages for a request from turns of the path that the view will not have any
    /// more, best first, within the handoff's room.
    async fn passages(
        &self,
        scope: &Scope,
        reading: &Reading,
        standing: &BTreeSet<Seq>,
        request: &str,
        plan: &CompactionPlan,
    ) -> Result<Vec<Passage>> {
        // They may have more than their share where the rest needs less.
        let mut room = plan.handoff_tokens;
        let query = asked(request);
        let has_share = self.settings.handoffs.recall_percent > 0;
        if !has_share || query.trim().is_empty() || room < PASSAGE_LINE_TOKENS {
            return Ok(Vec::new());
        }
        let index = self.caught_up(scope).await?;
        let filter = Filter {
            kinds: vec![DocKind::Turn],
            session: Some(reading.session.no),
            ..Filter::default()
        };
        let Ranking { plan: understood, mut ranked, .. } =
            self.rank(&index, &query, Mode::Hybrid, RANKED, filter).await?;
        let is_standing = |source: &Source| match source {
            Source::Turn { seq, .. } => standing.contains(seq),
            _ => true,
        };
        ranked.retain(|ranked| !is_standing(&ranked.source));
        let sources: Vec<Source> = ranked.iter().map(|ranked| ranked.source).collect();
        let items = self.fetch(scope, &sources).await?;
        let texts = ranked.iter().map(|ranked| items.get(&ranked.source));
        let texts = texts.map(|item| item.map(|item| item.text().into_owned())).collect();
        read_all(&understood, &mut ranked, texts).await?;
        icecore_index::sort(&mut ranked);
        let counter = self.counter.as_ref();
        let mut found: Vec<Passage> = Vec::new();
        for ranked in &ranked {
            if room < PASSAGE_LINE_TOKENS {
                break;
            }
            let Some(Item::Turn(row)) = items.get(&ranked.source) else { continue };
            let Some(fields) = row.body.as_ref().map(|turn| turn.fields()) else { continue };
            if !is_on(&reading.path, row) || is_handoff(fields) {
                continue;
            }
            let (role, text) = own_words(fields);
            let most = u64::from(PASSAGE_TOKENS).min(room - PASSAGE_LINE_TOKENS);
            let from = match u64::from(row.tokens) > most {
                true => understood.focus(&text),
                false => 0,
            };
            let most = u32::try_from(most).unwrap_or(PASSAGE_TOKENS);
            let quoted = one_line(counter.prefix(&text[from..], most));
            if quoted.is_empty() || found.iter().any(|other| other.text == quoted) {
                continue;
            }
            let name = fields.name.as_deref().filter(|_| role == fields.role);
            let speaker = one_line(name.unwrap_or(role));
            room = room.saturating_sub(u64::from(counter.count(&quoted)) + PASSAGE_LINE_TOKENS);
            found.push(Passage { speaker, text: quoted, at: Some(row.at) });
        }
        Ok(found)
    }
}

/// Whether a turn is on a path.
fn is_on(path: &[(Branch, Ordinal)], row: &TurnRow) -> bool {
    path.iter().any(|(branch, through)| *branch == row.branch && row.ordinal <= *through)
}

/// What of a request is looked for.
pub(crate) fn asked(request: &str) -> String {
    if request.len() <= QUERY_BYTES {
        return request.to_owned();
    }
    let half = QUERY_BYTES / 2;
    let end = request.floor_char_boundary(half);
    let begin = request.ceil_char_boundary(request.len() - half);
    format!("{} {}", &request[..end], &request[begin..])
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_request_is_asked_by_its_ends() {
        assert_eq!(asked("Where?"), "Where?");
        let long = format!("begin {} end", "ü".repeat(QUERY_BYTES));
        let query = asked(&long);
        assert!(query.starts_with("begin ü") && query.ends_with("ü end"));
        assert!(query.len() <= QUERY_BYTES + 4);
    }
}
