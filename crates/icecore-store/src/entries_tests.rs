//! Random lives of entries: what any reader sees, at any position and moment, is
//! what a plain list of them says.

use icecore_domain::ids::Position;
use icecore_domain::redact::Hidden;
use icecore_domain::time::Millis;
use proptest::prelude::*;

use crate::contract::fixtures::*;
use crate::error::StoreError;
use crate::store::*;
use crate::{MemoryStore, SqliteStore};

#[derive(Debug, Clone)]
enum Step {
    Put { tag: u8, lives: Option<i64> },
    End { pick: usize },
    Purge { kept: i64 },
    Wait { millis: i64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0_u8..3, prop::option::of(1_i64..30)).prop_map(|(tag, lives)| Step::Put { tag, lives }),
        3 => (0_usize..20).prop_map(|pick| Step::End { pick }),
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
    ended: Option<(u64, i64)>,
}

impl Known {
    fn is_seen(&self, at: Option<u64>, now: i64) -> bool {
        let lives = self.expires_at.is_none_or(|expires| now < expires);
        let is_in_force = match at {
            None => self.ended.is_none(),
            Some(at) => self.began <= at && self.ended.is_none_or(|(end, _)| at < end),
        };
        lives && is_in_force
    }
}

/// Ids as they must be listed.
fn expected(known: &[Known], at: Option<u64>, tag: Option<u8>, now: i64) -> Vec<String> {
    let mut seen: Vec<&Known> = known
        .iter()
        .filter(|entry| entry.is_seen(at, now) && tag.is_none_or(|tag| entry.tag == tag))
        .collect();
    seen.sort_by_key(|entry| (-entry.created_at, std::cmp::Reverse(entry.began)));
    seen.into_iter().map(|entry| entry.id.clone()).collect()
}

fn tag_of(number: u8) -> String {
    format!("tag-{number}")
}

/// Lives a life, and looks at every position in the end.
async fn live(store: &dyn Store, steps: &[Step]) {
    let (mut known, mut now, mut oldest) = (Vec::<Known>::new(), 100_i64, 0_u64);
    for step in steps {
        match step {
            Step::Wait { millis } => now += millis,
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
                    ended: None,
                });
            }
            Step::End { pick } => {
                let count = known.len();
                let Some(entry) = known.get_mut(pick % count.max(1)) else { continue };
                let is_there = entry.is_seen(None, now);
                let ended = store.end_entry(&scope(), &entry.id, Millis(now)).await.unwrap();
                assert_eq!(ended, is_there);
                if ended {
                    let end = store.head(scope().tenant()).await.unwrap().0;
                    entry.ended = Some((end, now));
                }
            }
            Step::Purge { kept } => {
                let ended_by = now - kept;
                let is_due = |entry: &Known| {
                    entry.expires_at.is_some_and(|at| at <= now)
                        || entry.ended.is_some_and(|(_, at)| at <= ended_by)
                };
                let due = known.iter().filter(|entry| is_due(entry));
                let last_end =
                    due.clone().filter_map(|entry| entry.ended).map(|(end, _)| end).max();
                let count = due.count() as u64;
                let purged =
                    store.purge_entries(&scope(), Millis(now), Millis(ended_by), 99).await.unwrap();
                assert_eq!(purged, count);
                oldest = oldest.max(last_end.unwrap_or(0));
                known.retain(|entry| !is_due(entry));
            }
        }
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
            live(&MemoryStore::new([5; 32]), &steps).await;
            let dir = tempfile::tempdir().unwrap();
            live(&SqliteStore::open(dir.path(), None).unwrap(), &steps).await;
        });
    }
}
