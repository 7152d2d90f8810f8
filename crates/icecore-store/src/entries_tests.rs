//! Random lives of entries: what any reader sees, at any position and moment, is
//! what a plain list of them says.

use icecore_domain::ids::Position;
use icecore_domain::redact::Hidden;
use icecore_domain::time::Millis;
use proptest::prelude::*;

use crate::contract::fixtures::*;
use crate::error::StoreError;
use crate::store::Store;
use crate::*;

#[derive(Debug, Clone)]
enum Step {
    Put {
        tag: u8,
        lives: Option<i64>,
    },
    /// The first stays if that is said, and stands for the others.
    Derive {
        picks: Vec<usize>,
        lives: Option<i64>,
        first_stays: bool,
        is_overtaken: bool,
    },
    Erase {
        pick: usize,
    },
    End {
        pick: usize,
    },
    Purge {
        kept: i64,
    },
    Wait {
        millis: i64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0_u8..3, prop::option::of(1_i64..30)).prop_map(|(tag, lives)| Step::Put { tag, lives }),
        3 => (prop::collection::vec(0_usize..20, 1..4), prop::option::of(1_i64..20), any::<bool>(), any::<bool>()).prop_map(
            |(picks, lives, first_stays, is_overtaken)| Step::Derive { picks, lives, first_stays, is_overtaken }
        ),
        1 => (0_usize..20).prop_map(|pick| Step::Erase { pick }),
        2 => (0_usize..20).prop_map(|pick| Step::End { pick }),
        1 => (0_i64..20).prop_map(|kept| Step::Purge { kept }),
        3 => (-3_i64..12).prop_map(|millis| Step::Wait { millis }),
    ]
}

/// An entry as the plain list has it.
#[derive(Debug, Clone)]
struct Known {
    id: String,
    tag: u8,
    created_at: i64,
    expires_at: Option<i64>,
    began: u64,
    /// Where and when it was deleted, or from where on another stood for it then.
    deleted: Option<(u64, i64)>,
    /// What stands for it, or did until it expired.
    standing: Option<Standing>,
    /// What it was made of, or ended with and said the same as.
    made_of: Vec<u64>,
}

#[derive(Debug, Clone)]
struct Standing {
    from: u64,
    by: String,
    is_overtaken: bool,
}

impl Known {
    fn lives(&self, now: i64) -> bool {
        self.expires_at.is_none_or(|expires| now < expires)
    }

    /// What stands for it: any that lives of those that stand one for the other.
    fn standing(&self, known: &[Known], now: i64) -> Option<&Standing> {
        self.standing.as_ref().filter(|one| {
            let by = known.iter().find(|other| other.id == one.by).unwrap();
            by.lives(now) || by.standing(known, now).is_some()
        })
    }

    fn is_kept(&self, now: i64) -> bool {
        self.lives(now) && self.deleted.is_none()
    }

    fn is_seen(&self, known: &[Known], at: Option<u64>, now: i64) -> bool {
        let ends =
            [self.deleted.map(|(end, _)| end), self.standing(known, now).map(|one| one.from)];
        let end = ends.into_iter().flatten().min();
        let is_in_force = match at {
            None => end.is_none(),
            Some(at) => self.began <= at && end.is_none_or(|end| at < end),
        };
        self.lives(now) && is_in_force
    }
}

/// What goes with an entry: itself first, then by where they began.
fn going_with(known: &[Known], first: usize, now: i64, is_erasure: bool) -> Vec<usize> {
    let is_there = |entry: &Known| is_erasure || entry.is_kept(now);
    let mut down = vec![first];
    let mut looked = 0;
    while looked < down.len() {
        let by = &known[down[looked]].id;
        for (index, entry) in known.iter().enumerate() {
            let standing = entry.standing(known, now).filter(|one| !one.is_overtaken);
            let is_said = standing.is_some_and(|one| one.by == *by);
            let is_quoted = known[down[looked]].made_of.contains(&entry.began);
            let is_over = is_erasure && is_quoted && !entry.is_kept(now);
            if (is_said || is_over) && !down.contains(&index) {
                down.push(index);
            }
        }
        looked += 1;
    }
    let mut going = down;
    going.retain(|index| *index == first || is_there(&known[*index]));
    let mut looked = 0;
    while looked < going.len() {
        let began = known[going[looked]].began;
        for (index, entry) in known.iter().enumerate() {
            let is_made_of = entry.made_of.contains(&began) && is_there(entry);
            if is_made_of && !going.contains(&index) {
                going.push(index);
            }
        }
        looked += 1;
    }
    going[1..].sort_unstable();
    going
}

/// Which said the same as which, where the first of these ends.
fn said_by(known: &[Known], first: usize, now: i64) -> Vec<(usize, u64)> {
    let (mut open, mut said) = (vec![first], Vec::new());
    while let Some(by) = open.pop() {
        for (index, entry) in known.iter().enumerate() {
            let standing = entry.standing(known, now).filter(|one| !one.is_overtaken);
            if standing.is_some_and(|one| one.by == known[by].id) {
                said.push((by, entry.began));
                open.push(index);
            }
        }
    }
    said
}

/// Takes entries away. What was made of them was made of what they were made of.
fn take_away(known: &mut Vec<Known>, gone: &[String]) {
    for id in gone {
        let at = known.iter().position(|entry| entry.id == *id).unwrap();
        let gone = known.remove(at);
        for entry in known.iter_mut().filter(|entry| entry.made_of.contains(&gone.began)) {
            entry.made_of.extend(&gone.made_of);
        }
        for entry in known.iter_mut() {
            entry.made_of.retain(|place| *place != gone.began);
        }
    }
}

/// What stood for them is gone, each with what stood for it; answers whether any is
/// in force again.
fn restore(known: &mut [Known], gone: &[(String, Option<Standing>)]) -> bool {
    let mut any = false;
    for entry in known {
        while let Some(one) = &mut entry.standing {
            let Some((_, heir)) = gone.iter().find(|(id, _)| *id == one.by) else { break };
            match heir {
                Some(heir) => {
                    one.by.clone_from(&heir.by);
                    one.is_overtaken |= heir.is_overtaken;
                }
                None => {
                    entry.standing = None;
                    any = true;
                }
            }
        }
    }
    any
}

/// Ids as they must be listed.
fn expected(known: &[Known], at: Option<u64>, tag: Option<u8>, now: i64) -> Vec<String> {
    let mut seen: Vec<&Known> = known
        .iter()
        .filter(|entry| entry.is_seen(known, at, now) && tag.is_none_or(|tag| entry.tag == tag))
        .collect();
    seen.sort_by_key(|entry| (-entry.created_at, std::cmp::Reverse(entry.began)));
    seen.into_iter().map(|entry| entry.id.clone()).collect()
}

fn tag_of(number: u8) -> String {
    format!("tag-{number}")
}

/// Derives an entry from others, or lets the first of them stand for the rest.
async fn derive(
    store: &Store,
    known: &mut Vec<Known>,
    picks: &[usize],
    expires_at: Option<i64>,
    (first_stays, is_overtaken): (bool, bool),
    now: i64,
) {
    if known.is_empty() {
        return;
    }
    let picks: Vec<usize> = picks.iter().map(|pick| pick % known.len()).collect();
    let (outputs, replaced) = match first_stays {
        true => (Vec::new(), &picks[1..]),
        false => {
            let (content, tags) = (text("in short"), vec![text("all"), text(&tag_of(0))]);
            let (expires_at, hidden) = (expires_at.map(Millis), Hidden::new());
            (vec![DerivedEntry { id: None, content, tags, expires_at, hidden }], &picks[..])
        }
    };
    let by = match first_stays {
        true => Successor::Kept(known[picks[0]].id.clone()),
        false => Successor::Output(0),
    };
    let derivation = Derivation {
        outputs,
        replaced: replaced
            .iter()
            .map(|pick| Replaced { id: known[*pick].id.clone(), by: by.clone(), is_overtaken })
            .collect(),
        kind: DerivationKind::Consolidated,
        payload: std::sync::Arc::new(|ids| serde_json::json!({ "ids": ids })),
        now: Millis(now),
        secrets_seen: 1,
    };
    let mut distinct = picks.clone();
    distinct.sort_unstable();
    distinct.dedup();
    // One that stays for nothing is not looked at.
    let is_sound = replaced.is_empty()
        || (distinct.len() == picks.len()
            && picks.iter().all(|at| known[*at].is_seen(known, None, now)));
    let derived = store.derive_entries(&scope(), derivation).await.unwrap();
    assert_eq!(derived.is_some(), is_sound);
    let Some(derived) = derived else { return };
    let (from, by) = match derived.outputs.first() {
        None => {
            let kept = &known[picks[0]];
            (derived.position.0, kept.id.clone())
        }
        Some(output) => {
            let sources = || replaced.iter().filter(|_| !is_overtaken).map(|at| &known[*at]);
            let first = sources().filter_map(|entry| entry.expires_at).chain(expires_at).min();
            assert_eq!(output.expires_at, first.map(Millis));
            let made_of = sources().map(|entry| entry.began).collect();
            known.push(Known {
                id: output.id.clone(),
                tag: 0,
                created_at: now,
                expires_at: first,
                began: output.began.0,
                deleted: None,
                standing: None,
                made_of,
            });
            (output.began.0, output.id.clone())
        }
    };
    for at in replaced {
        known[*at].standing = Some(Standing { from, by: by.clone(), is_overtaken });
    }
}

/// Lives a life, and looks at every position in the end.
async fn live(store: &Store, steps: &[Step]) {
    let (mut known, mut now, mut oldest) = (Vec::<Known>::new(), 100_i64, 0_u64);
    // A clock that is set back brings to life what was over.
    let mut latest = now;
    // From where on which was replaced by which.
    let mut stood: Vec<(u64, String, String)> = Vec::new();
    for step in steps {
        match step {
            Step::Wait { millis } => {
                now += millis;
                latest = latest.max(now);
            }
            Step::Put { tag, lives } => {
                let expires_at = lives.map(|lives| now + lives);
                let entry = NewEntry {
                    id: None,
                    content: text("said"),
                    tags: vec![text("all"), text(&tag_of(*tag))],
                    expires_at: expires_at.map(Millis),
                    now: Millis(now),
                    secrets_seen: 1,
                    hidden: Hidden::new(),
                    claim: None,
                };
                let put = store.put_entry(&scope(), entry).await.unwrap();
                known.push(Known {
                    id: put.id,
                    tag: *tag,
                    created_at: now,
                    expires_at,
                    began: put.began.0,
                    deleted: None,
                    standing: None,
                    made_of: Vec::new(),
                });
            }
            Step::Derive { picks, lives, first_stays, is_overtaken } => {
                let (lives, how) = (lives.map(|lives| now + lives), (*first_stays, *is_overtaken));
                derive(store, &mut known, picks, lives, how, now).await;
                let standing = |entry: &Known| {
                    let standing = entry.standing.clone()?;
                    Some((standing.from, entry.id.clone(), standing.by))
                };
                stood.extend(known.iter().filter_map(standing));
            }
            Step::Erase { pick } => {
                let Some(entry) = known.get(pick % known.len().max(1)) else { continue };
                let selector = Selector::Entry(entry.id.clone());
                let going = going_with(&known, pick % known.len(), now, true);
                let erased =
                    store.erase_entries(&scope(), &selector, false, Millis(now)).await.unwrap();
                assert_eq!(erased, going.len() as u64);
                let gone: Vec<String> = going.iter().map(|at| known[*at].id.clone()).collect();
                let heirs: Vec<_> = going
                    .iter()
                    .map(|at| (known[*at].id.clone(), known[*at].standing.clone()))
                    .collect();
                take_away(&mut known, &gone);
                restore(&mut known, &heirs);
                oldest = store.head(scope().tenant()).await.unwrap().0 + 1;
            }
            Step::End { pick } => {
                let Some(entry) = known.get(pick % known.len().max(1)) else { continue };
                let (id, is_there) = (entry.id.clone(), entry.is_kept(now));
                let before = store.head(scope().tenant()).await.unwrap().0;
                let ended = store.end_entry(&scope(), &id, Millis(now)).await.unwrap();
                assert_eq!(ended, is_there);
                if ended {
                    let going = going_with(&known, pick % known.len(), now, false);
                    let heirs: Vec<(String, Option<Standing>)> = going
                        .iter()
                        .map(|at| {
                            let standing = known[*at].standing(&known, now).cloned();
                            (known[*at].id.clone(), standing)
                        })
                        .collect();
                    for (by, began) in said_by(&known, pick % known.len(), now) {
                        known[by].made_of.push(began);
                    }
                    for ((end, at), (_, heir)) in (before + 1..).zip(&going).zip(&heirs) {
                        let from = heir.as_ref().map_or(end, |standing| standing.from);
                        known[*at].deleted = Some((from, now));
                        known[*at].standing = None;
                    }
                    let end = store.head(scope().tenant()).await.unwrap().0;
                    assert_eq!(end, before + going.len() as u64);
                    if restore(&mut known, &heirs) {
                        oldest = end;
                    }
                }
            }
            Step::Purge { kept } => {
                let ended_by = now - kept;
                let is_due = |entry: &Known| {
                    !entry.lives(now) || entry.deleted.is_some_and(|(_, at)| at <= ended_by)
                };
                let due = known.iter().filter(|entry| is_due(entry));
                let last_end =
                    due.clone().filter_map(|entry| entry.deleted).map(|(end, _)| end).max();
                let heirs: Vec<_> =
                    due.map(|entry| (entry.id.clone(), entry.standing.clone())).collect();
                let gone: Vec<String> = heirs.iter().map(|(id, _)| id.clone()).collect();
                let count = gone.len() as u64;
                let purged =
                    store.purge_entries(&scope(), Millis(now), Millis(ended_by), 99).await.unwrap();
                assert_eq!(purged, count);
                oldest = oldest.max(last_end.unwrap_or(0));
                take_away(&mut known, &gone);
                restore(&mut known, &heirs);
            }
        }
    }
    for entry in &known {
        let shown = store.entry(&scope(), &entry.id, None, Millis(now)).await.unwrap();
        assert_eq!(shown.is_some(), entry.is_kept(now), "{entry:?}");
        let by = shown.and_then(|shown| shown.successor);
        let standing = entry.standing(&known, now).filter(|_| entry.is_kept(now));
        assert_eq!(by, standing.map(|standing| standing.by.clone()));
        let sources = store.sources_of(&scope(), &entry.id, Millis(now)).await.unwrap();
        let is_source = |other: &&Known| {
            other.lives(now) && other.standing(&known, now).is_some_and(|one| one.by == entry.id)
        };
        assert_eq!(sources.len(), known.iter().filter(is_source).count());
    }
    let end = store.head(scope().tenant()).await.unwrap().0;
    for at in std::iter::once(None).chain((0..=end + 1).map(Some)) {
        for tag in [None, Some(0), Some(1)] {
            let filter = EntryFilter {
                at: at.map(Position),
                tag: tag.map(|tag| text(&tag_of(tag))),
                own: Vec::new(),
            };
            let found = store.entries(&scope(), &filter, Millis(now), 99).await;
            if at.is_some_and(|at| at < oldest) {
                assert!(matches!(found, Err(StoreError::SnapshotGone { .. })));
                continue;
            }
            let found: Vec<String> = found.unwrap().into_iter().map(|entry| entry.id).collect();
            assert_eq!(found, expected(&known, at, tag, now), "at {at:?} with {tag:?}");
            for (from, one, by) in &stood {
                let is_then = at.is_none_or(|at| *from <= at);
                let are_both = found.contains(one) && found.contains(by);
                assert!(!(is_then && are_both && now == latest), "{one} beside {by} at {at:?}");
            }
        }
    }
    assert_eq!(store.check().await.unwrap(), [""; 0]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_reader_sees_what_a_plain_list_says(steps in prop::collection::vec(step(), 0..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            live(&Store::in_memory([5; 32]), &steps).await;
            let dir = tempfile::tempdir().unwrap();
            live(&Store::open(dir.path(), None).unwrap(), &steps).await;
        });
    }
}
