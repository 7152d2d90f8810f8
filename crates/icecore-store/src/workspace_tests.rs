//! Random lives of few files on both stores, against a model of a dozen lines.

use std::collections::BTreeMap;

use icecore_domain::ids::{Position, Principal};
use icecore_domain::workspace::{FilePath, Workspace};
use proptest::prelude::*;

use crate::StoreError;
use crate::contract::fixtures::*;
use crate::contract::new_file;
use crate::store::Store;
use crate::*;

const KEPT: u64 = 3;
const MOST: u64 = 2;

#[derive(Debug, Clone)]
enum Step {
    Put { path: u8, content: u8, expect: Guess },
    Delete { path: u8, expect: Guess },
}

/// What a writer believes to be there.
#[derive(Debug, Clone, Copy)]
enum Guess {
    Anything,
    Present,
    Absent,
    Last,
    Stale,
}

fn step() -> impl Strategy<Value = Step> {
    let guess = || {
        use Guess::{Absent, Anything, Last, Present, Stale};
        prop::sample::select(vec![Anything, Anything, Present, Absent, Last, Last, Stale])
    };
    prop_oneof![
        4 => (0_u8..3, 0_u8..9, guess())
            .prop_map(|(path, content, expect)| Step::Put { path, content, expect }),
        1 => (0_u8..3, guess()).prop_map(|(path, expect)| Step::Delete { path, expect }),
    ]
}

/// Every version of a life of each path, with its position.
#[derive(Default)]
struct Model(BTreeMap<String, Vec<(String, Position)>>);

impl Model {
    fn last(&self, path: &str) -> Option<(u64, Position)> {
        let life = self.0.get(path)?;
        life.last().map(|(_, position)| (life.len() as u64, *position))
    }

    fn expect(&self, path: &str, guess: Guess) -> Expect {
        match guess {
            Guess::Anything => Expect::Anything,
            Guess::Present => Expect::Present,
            Guess::Absent => Expect::Absent,
            Guess::Last => Expect::At(self.last(path).map_or(Position(9_999), |(_, at)| at)),
            Guess::Stale => Expect::At(Position(10_000)),
        }
    }

    fn allows(&self, path: &str, guess: Guess) -> bool {
        match guess {
            Guess::Anything => true,
            Guess::Present | Guess::Last => self.0.contains_key(path),
            Guess::Absent => !self.0.contains_key(path),
            Guess::Stale => false,
        }
    }
}

fn workspace() -> Workspace {
    Principal::local_operator(tenant("acme")).workspace()
}

async fn follow(store: &Store, steps: &[Step]) {
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::Put { path, content, expect } => {
                let (name, content) = (format!("f{path}"), format!("text {content}"));
                let file = NewFile {
                    expect: model.expect(&name, *expect),
                    versions_kept: KEPT,
                    most_files: MOST,
                    ..new_file(&name, &content)
                };
                let done = store.put_file(&workspace(), file).await;
                let current = model.last(&name).map_or(0, |(version, _)| version);
                let is_crowded = current == 0 && model.0.len() as u64 >= MOST;
                match done {
                    Ok(file) => {
                        assert!(model.allows(&name, *expect) && !is_crowded);
                        assert_eq!(file.head.version, current + 1);
                        let life = model.0.entry(name).or_default();
                        life.push((content, file.head.position));
                    }
                    Err(StoreError::FileConflict { current: told }) => {
                        assert!(!model.allows(&name, *expect) && told == current);
                    }
                    Err(error) => {
                        assert!(matches!(error, StoreError::TooManyFiles { most: MOST }));
                        assert!(is_crowded && model.allows(&name, *expect));
                    }
                }
            }
            Step::Delete { path, expect } => {
                let name = format!("f{path}");
                let at = FilePath::new(text(&name)).unwrap();
                let expected = model.expect(&name, *expect);
                let done = store.delete_file(&workspace(), &at, expected, NOW).await;
                match done {
                    Ok(is_gone) => {
                        assert!(model.allows(&name, *expect));
                        assert_eq!(is_gone, model.0.remove(&name).is_some());
                    }
                    Err(_) => assert!(!model.allows(&name, *expect)),
                }
            }
        }
        agree(store, &model).await;
    }
    clean(store).await;
}

/// Everything that can be read is what the model says.
async fn agree(store: &Store, model: &Model) {
    for path in 0..3 {
        let name = format!("f{path}");
        let at = FilePath::new(text(&name)).unwrap();
        let life = model.0.get(&name).cloned().unwrap_or_default();
        for version in 0..=life.len() as u64 + 1 {
            let found = store.file(&workspace(), &at, Some(version)).await.unwrap();
            let is_kept = version + KEPT > life.len() as u64;
            let known = life.get((version as usize).wrapping_sub(1)).filter(|_| is_kept);
            let found = found.map(|file| (file.content.into_string(), file.head.position));
            assert_eq!(found.as_ref(), known, "{name} {version}");
        }
        let last = store.file(&workspace(), &at, None).await.unwrap();
        assert_eq!(last.map(|file| (file.head.version, file.head.position)), model.last(&name));
    }
    let listed = store.files(&workspace(), "").await.unwrap();
    let listed: Vec<_> = listed.iter().map(|head| head.path.as_str()).collect();
    assert_eq!(listed, model.0.keys().collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn files_live_as_the_model_says(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let sqlite = Store::open(dir.path(), None).unwrap();
        runtime.block_on(async {
            follow(&Store::in_memory([5; 32]), &steps).await;
            follow(&sqlite, &steps).await;
        });
    }
}
