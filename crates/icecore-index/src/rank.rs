//! From signals to a rank.
//!
//! Words and vectors name candidates; what a conversation offers (neighbours,
//! windows, who spoke, when, question and answer) is computed for those alone,
//! from postings, columns and rows, without a text being read. Signals are
//! brought to one scale and added with the weights of [`weights`].

use std::collections::BTreeSet;

use icecore_domain::embed::Vector;

use crate::document::Doc;
use crate::error::IndexError;
use crate::matches::Matches;
use crate::plan::Plan;
use crate::signals::{Ranked, Raw, Scratch, Table, WINDOW, place};
use crate::signs::Signs;
use crate::snapshot::Snapshot;
use crate::weights::Mode;

/// Documents taken by words before anything else is looked at.
const BY_WORDS: usize = 100;

/// And by vectors.
const BY_MEANING: usize = 100;

/// Standing instructions and preferences looked at, the surest and newest.
const STANDING: usize = 128;

/// Turns this far before and after a match are candidates themselves.
const REACH: usize = 2;

/// The parameters of a ranking.
pub struct Wanted<'a> {
    /// At most so many.
    pub limit: usize,
    pub mode: Mode,
    /// Which documents may be among them.
    pub keep: &'a dyn Fn(Doc) -> bool,
}

/// Ranks documents, best first: see [`sort`].
pub fn rank(
    snapshot: &Snapshot,
    plan: &Plan,
    vector: Option<&Vector>,
    wanted: &Wanted<'_>,
) -> Result<Vec<Ranked>, IndexError> {
    if snapshot.doc_count() == 0 || wanted.limit == 0 {
        return Ok(Vec::new());
    }
    let matches = Matches::find(snapshot, plan)?;
    let candidates = candidates(snapshot, plan, &matches, vector, wanted)?;
    let near = with_neighbours(snapshot, &candidates, WINDOW as usize);
    let table = Table::new(snapshot, plan, &matches, vector, &near)?;
    let is_wanted = |doc: &&Doc| (wanted.keep)(**doc) && !snapshot.superseded(**doc);
    let kept: Vec<Doc> = candidates.iter().filter(is_wanted).copied().collect();
    let mut scratch = Scratch::default();
    // Compiled once for each kind of processor, and so several lanes wide.
    let mut raws: Vec<Raw> = Vec::with_capacity(kept.len());
    pulp::Arch::new().dispatch(
        #[inline(always)]
        || {
            for doc in &kept {
                raws.push(table.raw(*doc, &mut scratch));
            }
        },
    );
    table.scale(&mut raws);
    let mut ranked: Vec<Ranked> = raws.iter().map(|raw| table.ranked(raw, wanted.mode)).collect();
    sort(&mut ranked);
    ranked.truncate(wanted.limit);
    Ok(ranked)
}

/// Best first; of equal ones the later, by what they are: their numbers depend
/// on when they were fed.
pub fn sort(ranked: &mut [Ranked]) {
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.source.cmp(&a.source)));
}

/// The documents that are worth a closer look, in order of number.
fn candidates(
    snapshot: &Snapshot,
    plan: &Plan,
    matches: &Matches,
    vector: Option<&Vector>,
    wanted: &Wanted<'_>,
) -> Result<Vec<Doc>, IndexError> {
    let mut found = BTreeSet::new();
    if wanted.mode != Mode::Semantic {
        found.extend(matches.best(snapshot, BY_WORDS.max(wanted.limit / 3)));
    }
    if let Some(vector) = vector {
        let n = BY_MEANING.max(wanted.limit / 3);
        found.extend(snapshot.nearest(vector, n, None)?.into_iter().map(|(doc, _)| doc));
    }
    let mut found: Vec<Doc> = found.into_iter().collect();
    if wanted.mode != Mode::Lexical {
        found = with_neighbours(snapshot, &found, REACH);
    }
    if wanted.mode == Mode::Hybrid && vector.is_some() {
        found.extend(standing(snapshot, plan));
        found.sort_unstable();
        found.dedup();
    }
    Ok(found)
}

/// The surest standing instructions, and preferences if help is asked for; of
/// equal ones the newest.
fn standing(snapshot: &Snapshot, plan: &Plan) -> Vec<Doc> {
    let strength = |doc: Doc| {
        let signs = Signs(snapshot.signs(doc));
        let preference = if plan.cues.request { signs.preference() } else { 0.0 };
        signs.instruction().max(preference)
    };
    let all = (0..).zip(snapshot.all_signs());
    let mut found: Vec<(f32, Doc)> = all
        .filter(|(_, signs)| Signs(**signs).is_standing())
        .map(|(doc, _)| (strength(doc), doc))
        .filter(|(strength, _)| *strength >= 0.25)
        .collect();
    found.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    found.into_iter().take(STANDING).map(|(_, doc)| doc).collect()
}

/// Documents and the turns around them, in order of number.
fn with_neighbours(snapshot: &Snapshot, docs: &[Doc], reach: usize) -> Vec<Doc> {
    let mut found: Vec<Doc> = docs.to_vec();
    for doc in docs {
        if let Some((turns, place)) = place(snapshot, *doc) {
            let end = turns.len().min(place + reach + 1);
            found.extend(&turns[place.saturating_sub(reach)..end]);
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}
