//! Whole lives of an index, compared with looking at every document.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use icecore_domain::chunk::Level;
use icecore_domain::embed::{ModelId, Vector};
use icecore_domain::ids::{Branch, Ordinal, Position, Principal, Scope, Seq, SessionNo, Tenant};
use icecore_domain::redact::Redactor;
use icecore_domain::time::Millis;
use proptest::prelude::*;
use tantivy::directory::{Directory, INDEX_WRITER_LOCK, MmapDirectory};

use crate::disk::Files;
use crate::document::date_words;
use crate::{
    Batch, Commit, Doc, Document, Field, Index, IndexError, IndexSettings, Push, Role, ScopeIndex,
    Shrunk, Snapshot, Source, Watermark, analysis,
};

const DIMS: usize = 70;

fn scope(memory: &str) -> Scope {
    let person = Principal::local_operator(Tenant::new("tenant-of-tests").unwrap());
    person.scope(Redactor::standard().text(memory)).unwrap()
}

fn model(name: &str) -> ModelId {
    ModelId { name: name.to_owned(), hash: [name.len() as u8; 32], dims: DIMS }
}

/// Commits whatever there is.
fn eager() -> IndexSettings {
    IndexSettings { tail_docs: 1, writer_bytes: 15_000_000, ..IndexSettings::default() }
}

/// A vector that depends on nothing but `seed`.
fn vector(seed: u64) -> Vector {
    let mut state = seed.wrapping_add(1);
    let component = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8 as i8
    };
    Vector::new((0..DIMS).map(component).collect::<Vec<i8>>())
}

fn turn(number: u64, text: &str) -> Document {
    Document {
        source: Source::Turn {
            session: SessionNo(number % 3),
            seq: Seq(number),
            branch: Branch((number % 2) as u32),
        },
        at: Millis(1_700_000_000_000 + number as i64 * 86_400_000),
        role: Role::User,
        speaker: number.is_multiple_of(2).then(|| format!("Ana Nº{}", number % 4)),
        signs: number as u32,
        text: text.to_owned(),
        vectors: (0..number % 3).map(|passage| vector(number * 10 + passage)).collect(),
    }
}

fn turns(count: u64) -> Vec<Document> {
    let words = ["dogs", "running", "Lisbon", "東京都", "the", "café"];
    let text = |n: u64| {
        (0..n % 7).map(|k| words[((n * k + k) % 6) as usize]).collect::<Vec<_>>().join(" ")
    };
    (0..count).map(|number| turn(number, &text(number))).collect()
}

fn at(position: usize) -> Watermark {
    Watermark { position: Position(position as u64), ..Watermark::default() }
}

/// Feeds what the index does not have yet, up to `end`.
fn feed(index: &ScopeIndex, docs: &[Document], end: usize) {
    let from = index.watermark();
    let documents = docs[from.position.0 as usize..end].to_vec();
    let batch = Batch { from, to: at(end), model: Some(model("m")), documents };
    assert_eq!(index.push(batch).unwrap(), Push::Done);
}

fn sorted(mut found: Vec<(Doc, u32)>) -> Vec<(Doc, u32)> {
    found.sort_unstable();
    found
}

fn words_of(document: &Document, field: Field) -> Vec<String> {
    match field {
        Field::Content => analysis::terms(&document.text),
        Field::Name => document.speaker.as_deref().map(analysis::names).unwrap_or_default(),
        Field::Date => date_words(document.at),
    }
}

fn check_postings(snapshot: &Snapshot, docs: &[Document]) {
    for field in [Field::Content, Field::Name, Field::Date] {
        let words: Vec<Vec<String>> = docs.iter().map(|d| words_of(d, field)).collect();
        let mut all: Vec<String> = words.concat();
        all.push("absent".to_owned());
        all.sort();
        all.dedup();
        for term in all {
            let count = |words: &Vec<String>| words.iter().filter(|w| **w == term).count();
            let expected: Vec<(Doc, u32)> = (0..)
                .zip(&words)
                .map(|(doc, words)| (doc, count(words) as u32))
                .filter(|(_, count)| *count > 0)
                .collect();
            let mut found = Vec::new();
            snapshot.visit(&term, field, |doc, count| found.push((doc, count))).unwrap();
            assert_eq!(sorted(found), expected, "{term} in {field:?}");
            let frequency = snapshot.document_frequency(&term, field).unwrap();
            assert_eq!(frequency as usize, expected.len(), "{term} in {field:?}");
        }
    }
}

fn check_columns(snapshot: &Snapshot, docs: &[Document]) {
    assert_eq!(snapshot.doc_count() as usize, docs.len());
    for (doc, document) in (0..).zip(docs) {
        assert_eq!(snapshot.source(doc), document.source);
        assert_eq!(snapshot.at(doc), document.at);
        assert_eq!(snapshot.role(doc), document.role);
        assert_eq!(snapshot.signs(doc), document.signs);
        assert_eq!(snapshot.length(doc) as usize, words_of(document, Field::Content).len());
        let speaker = snapshot.speaker(doc).map(|number| &snapshot.speakers()[number as usize]);
        assert_eq!(speaker, document.speaker.as_ref());
        let newest = docs.iter().rposition(|other| other.source == document.source);
        assert_eq!(snapshot.doc_of(document.source), newest.map(|doc| doc as Doc));
        assert_eq!(snapshot.superseded(doc), newest != Some(doc as usize));
    }
    let lengths: Vec<usize> = docs
        .iter()
        .filter(|d| matches!(d.source, Source::Turn { .. }))
        .map(|d| words_of(d, Field::Content).len())
        .collect();
    let average = lengths.iter().sum::<usize>() as f64 / lengths.len().max(1) as f64;
    assert_eq!(snapshot.average_length(), average);
    assert_eq!(snapshot.turn_count() as usize, lengths.len());
}

fn check_neighbours(snapshot: &Snapshot, docs: &[Document]) {
    for (doc, document) in (0..).zip(docs) {
        let Source::Turn { session, branch, .. } = document.source else {
            assert_eq!(snapshot.neighbour(doc, 0), None);
            continue;
        };
        let mut same: Vec<(Source, Doc)> = (0..)
            .zip(docs)
            .filter(|(other, d)| {
                !snapshot.superseded(*other)
                    && matches!(d.source, Source::Turn { session: s, branch: b, .. } if s == session && b == branch)
            })
            .map(|(other, d)| (d.source, other))
            .collect();
        same.sort();
        let place = same.iter().position(|(source, _)| *source == document.source).unwrap();
        for offset in -3..=3 {
            let expected = place.checked_add_signed(offset).and_then(|place| same.get(place));
            assert_eq!(snapshot.neighbour(doc, offset as i32), expected.map(|(_, doc)| *doc));
        }
    }
}

fn cosine(a: &Vector, b: &Vector) -> f32 {
    let dot = |a: &Vector, b: &Vector| -> i32 {
        a.components().iter().zip(b.components()).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
    };
    let inverse = |v: &Vector| 1.0 / (dot(v, v) as f32).sqrt();
    dot(a, b) as f32 * inverse(b) * inverse(a)
}

fn check_vectors(snapshot: &Snapshot, docs: &[Document]) {
    for seed in [3, 51] {
        let query = vector(seed);
        let best =
            |d: &Document| d.vectors.iter().map(|v| cosine(&query, v)).max_by(f32::total_cmp);
        let mut expected: Vec<(Doc, f32)> =
            (0..).zip(docs).filter_map(|(doc, d)| Some((doc, best(d)?))).collect();
        for (doc, document) in (0..).zip(docs) {
            assert_eq!(snapshot.similarity(&query, doc).unwrap(), best(document));
            assert_eq!(snapshot.vectors(doc).unwrap(), document.vectors);
        }
        expected.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        for n in [0, 1, 3, usize::MAX] {
            let found = snapshot.nearest(&query, n, None).unwrap();
            assert_eq!(found, expected[..n.min(expected.len())]);
        }
        let odd = |doc: Doc| doc % 2 == 1;
        expected.retain(|(doc, _)| odd(*doc));
        expected.truncate(4);
        assert_eq!(snapshot.nearest(&query, 4, Some(&odd)).unwrap(), expected);
    }
}

fn check(index: &ScopeIndex, docs: &[Document]) {
    let snapshot = index.read();
    check_columns(&snapshot, docs);
    check_postings(&snapshot, docs);
    check_neighbours(&snapshot, docs);
    check_vectors(&snapshot, docs);
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn open(root: &Path, settings: IndexSettings) -> Arc<ScopeIndex> {
    Index::open(Some(root.to_owned()), settings).scope(&scope("m")).unwrap()
}

fn files_under(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(files_under(&path)),
            path => found.push(path),
        }
    }
    found
}

fn file(root: &Path, name: &str) -> PathBuf {
    files_under(root).into_iter().find(|path| path.file_name().unwrap() == name).unwrap()
}

/// A directory with `count` documents committed.
fn committed(root: &Path, docs: &[Document], count: usize) {
    let index = open(root, eager());
    feed(&index, docs, count);
    assert_eq!(index.commit().unwrap(), Commit::Done);
}

#[test]
fn memory_answers_at_once() {
    let docs = turns(60);
    let index = Index::open(None, eager()).scope(&scope("m")).unwrap();
    check(&index, &[]);
    feed(&index, &docs, 20);
    check(&index, &docs[..20]);
    feed(&index, &docs, 60);
    check(&index, &docs);
    assert_eq!(index.commit().unwrap(), Commit::TooSmall);
}

#[test]
fn a_committed_index_answers_as_one_in_memory() {
    let (root, docs) = (directory(), turns(90));
    let index = open(root.path(), eager());
    for end in (3..=90).step_by(3) {
        feed(&index, &docs, end);
        if end % 9 == 0 {
            assert_eq!(index.commit().unwrap(), Commit::Done);
            assert_eq!(index.committed_watermark(), at(end));
        }
    }
    check(&index, &docs);
    check(&open(root.path(), eager()), &docs);
    // Rows on disk with every row a candidate give the same.
    let large = IndexSettings { exact_rows: 5, memory_rows: 5, rescore: 1_000, ..eager() };
    check(&open(root.path(), large), &docs);
}

#[test]
fn small_scopes_have_no_files() {
    let (root, docs) = (directory(), turns(20));
    let index = open(root.path(), IndexSettings { tail_docs: 21, ..eager() });
    feed(&index, &docs, 20);
    assert_eq!(index.commit().unwrap(), Commit::TooSmall);
    assert_eq!(files_under(root.path()), Vec::<PathBuf>::new());
}

#[test]
fn leftovers_of_a_crash_are_cut_off() {
    let (root, docs) = (directory(), turns(40));
    committed(root.path(), &docs, 20);
    for name in ["columns", "rows-0"] {
        let path = file(root.path(), name);
        let mut bytes = fs::read(&path).unwrap();
        bytes.extend([0xFF; 333]);
        fs::write(&path, bytes).unwrap();
    }
    let index = open(root.path(), eager());
    check(&index, &docs[..20]);
    feed(&index, &docs, 40);
    assert_eq!(index.commit().unwrap(), Commit::Done);
    check(&open(root.path(), eager()), &docs);
}

#[test]
fn what_was_not_committed_is_fed_again() {
    let (root, docs) = (directory(), turns(40));
    committed(root.path(), &docs, 20);
    feed(&open(root.path(), eager()), &docs, 40);
    let again = open(root.path(), eager());
    assert_eq!(again.watermark(), at(20));
    feed(&again, &docs, 40);
    check(&again, &docs);
}

#[test]
fn damage_is_noticed_and_built_anew() {
    let docs = turns(30);
    let names = |root: &Path| -> Vec<String> {
        let name = |path: PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        let locks = |name: &String| !name.ends_with(".lock");
        files_under(root).into_iter().map(name).filter(locks).collect()
    };
    let root = directory();
    committed(root.path(), &docs, 20);
    let count = names(root.path()).len();
    for damage in ["cut", "changed", "gone"] {
        for number in 0..count {
            let root = directory();
            committed(root.path(), &docs, 20);
            let name = names(root.path())[number].clone();
            let path = file(root.path(), &name);
            let mut bytes = fs::read(&path).unwrap();
            let middle = bytes.len() / 2;
            match damage {
                "cut" => fs::write(&path, &bytes[..middle]).unwrap(),
                "changed" => {
                    bytes[middle] ^= 0x55;
                    fs::write(&path, bytes).unwrap();
                }
                _ => fs::remove_file(&path).unwrap(),
            }
            let index = open(root.path(), eager());
            let fed = index.watermark().position.0 as usize;
            assert!(fed == 0 || fed == 20, "{name} {damage}");
            feed(&index, &docs, 30);
            check(&index, &docs);
            assert_eq!(index.commit().unwrap(), Commit::Done, "{name} {damage}");
            check(&open(root.path(), eager()), &docs);
        }
    }
}

#[test]
fn another_format_is_built_anew() {
    let (root, docs) = (directory(), turns(10));
    committed(root.path(), &docs, 10);
    let meta = file(root.path(), "meta.json");
    let text = fs::read_to_string(&meta).unwrap();
    fs::write(&meta, text.replace("\\\"format\\\":1", "\\\"format\\\":99")).unwrap();
    let index = open(root.path(), eager());
    assert_eq!(index.watermark(), at(0));
    feed(&index, &docs, 10);
    assert_eq!(index.commit().unwrap(), Commit::Done);
    check(&open(root.path(), eager()), &docs);
}

#[test]
fn a_held_lock_is_no_error() {
    let (root, docs) = (directory(), turns(30));
    committed(root.path(), &docs, 10);
    let text = file(root.path(), "meta.json").parent().unwrap().to_owned();
    let lock = MmapDirectory::open(text).unwrap().acquire_lock(&INDEX_WRITER_LOCK).unwrap();
    let index = open(root.path(), eager());
    feed(&index, &docs, 30);
    assert_eq!(index.commit().unwrap(), Commit::Busy);
    check(&index, &docs);
    drop(lock);
    assert_eq!(index.commit().unwrap(), Commit::Done);
    check(&index, &docs);
}

#[test]
fn two_who_write_do_not_double_anything() {
    let (root, docs) = (directory(), turns(40));
    let (one, two) = (open(root.path(), eager()), open(root.path(), eager()));
    feed(&one, &docs, 20);
    feed(&two, &docs, 30);
    assert_eq!(one.commit().unwrap(), Commit::Done);
    assert_eq!(two.commit().unwrap(), Commit::Overtaken);
    assert_eq!(two.watermark(), at(20));
    feed(&two, &docs, 40);
    assert_eq!(two.commit().unwrap(), Commit::Done);

    assert!(one.refresh().unwrap());
    assert!(!one.refresh().unwrap());
    check(&one, &docs);
    check(&two, &docs);

    one.reset(7, None).unwrap();
    assert!(two.refresh().unwrap());
    check(&two, &[]);
}

#[test]
fn feeding_and_searching_go_on_while_somebody_commits() {
    let (root, docs) = (directory(), turns(120));
    let index = open(root.path(), eager());
    std::thread::scope(|threads| {
        let feeder = threads.spawn(|| (1..=120).for_each(|end| feed(&index, &docs, end)));
        while !feeder.is_finished() {
            index.commit().unwrap();
            let snapshot = index.read();
            let end = snapshot.doc_count() as usize;
            check_postings(&snapshot, &docs[..end]);
        }
    });
    index.commit().unwrap();
    check(&index, &docs);
    check(&open(root.path(), eager()), &docs);
}

#[test]
fn stale_foreign_and_backward_batches_are_refused() {
    let index = Index::open(None, eager()).scope(&scope("m")).unwrap();
    let docs = turns(4);
    feed(&index, &docs, 2);
    let batch = |from, to, model, documents: &[Document]| {
        index.push(Batch { from, to, model, documents: documents.to_vec() })
    };
    let m = || Some(model("m"));
    assert_eq!(batch(at(0), at(2), m(), &docs[..2]).unwrap(), Push::Stale);
    let foreign = Watermark { epoch: 1, ..at(4) };
    assert!(matches!(batch(at(2), foreign, m(), &docs), Err(IndexError::Epoch { .. })));
    assert!(matches!(batch(at(2), at(1), m(), &[]), Err(IndexError::Backwards)));
    let other = batch(at(2), at(4), Some(model("other")), &docs[2..]);
    assert!(matches!(other, Err(IndexError::OtherModel { .. })));
    assert!(matches!(batch(at(2), at(4), None, &docs[2..]), Err(IndexError::NoModel)));
    let mut short = docs[2..].to_vec();
    short[0].vectors = vec![Vector::new(vec![1; 3])];
    assert!(matches!(batch(at(2), at(4), m(), &short), Err(IndexError::Dimensions { .. })));
    let query = Vector::new(vec![1; 3]);
    assert!(matches!(index.read().nearest(&query, 1, None), Err(IndexError::Dimensions { .. })));
    check(&index, &docs[..2]);
}

#[test]
fn vectors_begin_anew_while_words_stay() {
    let (root, docs) = (directory(), turns(30));
    committed(root.path(), &docs, 20);
    let index = open(root.path(), eager());
    let newer = model("newer");
    index.rows_reset(Some(newer.clone())).unwrap();
    assert_eq!(index.read().docs_with_vectors(), 0);
    check_postings(&index.read(), &docs[..20]);
    // A turn that comes meanwhile waits its turn.
    let batch = Batch {
        from: at(20),
        to: at(30),
        model: Some(newer.clone()),
        documents: docs[20..].to_vec(),
    };
    index.push(batch).unwrap();
    let vectors: Vec<Vec<Vector>> = docs.iter().map(|d| d.vectors.clone()).collect();
    let wrong = index.push_vectors(5, &newer, &vectors);
    assert!(matches!(wrong, Err(IndexError::VectorOrder { due: 0, given: 5 })));
    assert!(matches!(
        index.push_vectors(0, &model("m"), &vectors),
        Err(IndexError::OtherModel { .. })
    ));
    index.push_vectors(0, &newer, &vectors[..12]).unwrap();
    assert_eq!(index.commit().unwrap(), Commit::Done);

    let index = open(root.path(), eager());
    assert_eq!(index.read().model(), Some(&newer));
    assert_eq!(index.read().docs_with_vectors(), 12);
    index.push_vectors(12, &newer, &vectors[12..]).unwrap();
    check(&index, &docs);
    assert_eq!(index.commit().unwrap(), Commit::Done);
    check(&open(root.path(), eager()), &docs);
    let rows =
        files_under(root.path()).iter().filter(|p| p.to_string_lossy().contains("rows-")).count();
    assert_eq!(rows, 1);
}

#[test]
fn the_least_used_scope_is_closed_and_opens_again() {
    let (root, docs) = (directory(), turns(20));
    let index =
        Index::open(Some(root.path().to_owned()), IndexSettings { open_scopes: 2, ..eager() });
    let names: Vec<Scope> = ["a", "b", "c", "d"].map(scope).to_vec();
    for name in &names {
        let open = index.scope(name).unwrap();
        feed(&open, &docs, 20);
        assert_eq!(open.commit().unwrap(), Commit::Done);
    }
    let first = index.scope(&names[0]).unwrap();
    check(&first, &docs);
    // One that is held is not closed under its holder.
    for name in &names {
        index.scope(name).unwrap();
    }
    assert!(Arc::ptr_eq(&first, &index.scope(&names[0]).unwrap()));
}

/// The scopes that have files.
fn on_disk(root: &Path, names: &[&str]) -> String {
    let there = |name: &&&str| Files::of(root, &scope(name)).text().exists();
    names.iter().filter(there).copied().collect::<Vec<_>>().join(" ")
}

/// Makes a scope the last that was used, by minutes that nobody waits for.
fn used_at(root: &Path, name: &str, minute: u64) {
    let text = Files::of(root, &scope(name)).text();
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(60 * minute);
    for path in files_under(text.parent().unwrap()) {
        fs::File::options().append(true).open(path).unwrap().set_modified(at).unwrap();
    }
}

#[test]
fn files_of_the_least_used_go_first_and_never_of_one_in_use() {
    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
    let (root, docs) = (directory(), turns(20));
    let open = |cache_bytes| {
        let settings = IndexSettings { cache_bytes, ..eager() };
        Index::open(Some(root.path().to_owned()), settings)
    };
    let index = open(0);
    for name in NAMES {
        let scope = index.scope(&scope(name)).unwrap();
        feed(&scope, &docs, 20);
        assert_eq!(scope.commit().unwrap(), Commit::Done);
    }
    for (minute, name) in (1..).zip(NAMES) {
        used_at(root.path(), name, minute);
    }
    let all: u64 = files_under(root.path()).iter().map(|p| p.metadata().unwrap().len()).sum();
    assert_eq!(index.shrink().unwrap(), Shrunk::default(), "without a bound");

    // Room for three. `a` is in use; `b` was, and is read once more.
    let index = open(all / 5 * 3 + 100);
    let held = index.scope(&scope("a")).unwrap();
    index.scope(&scope("b")).unwrap();
    index.scope(&scope("e")).unwrap();
    let shrunk = index.shrink().unwrap();
    assert_eq!((shrunk.dropped, on_disk(root.path(), &NAMES)), (2, "a b e".to_owned()));
    assert!(shrunk.bytes <= all / 5 * 3 + 100);
    assert_eq!(index.shrink().unwrap(), Shrunk { dropped: 0, ..shrunk });
    check(&held, &docs);

    // Room for none: what nobody holds goes although it is open, but for the last.
    let index = open(1);
    let held = index.scope(&scope("a")).unwrap();
    for name in ["b", "e"] {
        index.scope(&scope(name)).unwrap();
    }
    assert_eq!(index.shrink().unwrap().dropped, 1);
    assert_eq!(on_disk(root.path(), &NAMES), "a e");
    check(&held, &docs);
    // What went is fed again.
    let again = index.scope(&scope("b")).unwrap();
    assert_eq!(again.watermark(), Watermark::default());
    feed(&again, &docs, 20);
    check(&again, &docs);
}

#[test]
fn large_scopes_are_closed_before_there_are_many() {
    let (root, docs) = (directory(), turns(20));
    let one = {
        let index = Index::open(Some(root.path().to_owned()), eager());
        let open = index.scope(&scope("a")).unwrap();
        feed(&open, &docs, 20);
        open.memory_bytes()
    };
    assert!(one > 1_000, "{one}");
    let settings = IndexSettings { open_bytes: one * 2, ..eager() };
    let index = Index::open(Some(root.path().to_owned()), settings);
    let names = ["a", "b", "c", "d"].map(scope);
    for name in &names {
        feed(&index.scope(name).unwrap(), &docs, 20);
    }
    index.shrink().unwrap();
    let open: Vec<bool> = names.iter().map(|name| index.opened(name).is_some()).collect();
    assert_eq!(open, [false, false, true, true]);
}

#[test]
fn dropping_a_scope_leaves_no_file_and_no_name() {
    let (root, docs) = (directory(), turns(20));
    let index = Index::open(Some(root.path().to_owned()), eager());
    for (memory, close) in [("kept", false), ("secret-memory", false), ("other", true)] {
        let open = index.scope(&scope(memory)).unwrap();
        feed(&open, &docs, 20);
        open.commit().unwrap();
        for path in files_under(root.path()) {
            let path = path.strip_prefix(root.path()).unwrap().to_string_lossy().into_owned();
            assert!(!path.contains("secret") && !path.contains("tenant-of"), "{path}");
        }
        let before = files_under(root.path()).len();
        if memory == "kept" {
            continue;
        }
        drop(open);
        if close {
            Index::open(Some(root.path().to_owned()), eager()).drop_scope(&scope(memory))
        } else {
            index.drop_scope(&scope(memory))
        }
        .unwrap();
        assert!(files_under(root.path()).len() < before);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }
    index.drop_scope(&scope("never was")).unwrap();
    check(&open_scope(&index, "kept"), &docs);
}

fn open_scope(index: &Index, memory: &str) -> Arc<ScopeIndex> {
    index.scope(&scope(memory)).unwrap()
}

#[test]
fn hostile_texts_are_only_texts() {
    let root = directory();
    let texts =
        ["", "\u{0}\u{1b}[2J", "AND OR (\"+-:*~", "🙂👩‍👩‍👧", "\u{202e}abc", "a\u{a0}b\u{2003}c"];
    let mut docs: Vec<Document> = texts.iter().zip(0..).map(|(text, n)| turn(n, text)).collect();
    docs.push(turn(6, &"x".repeat(1 << 20)));
    docs.push(turn(7, &"same word ".repeat(100_000)));
    docs.push(Document {
        speaker: Some("\n\t ".to_owned()),
        at: Millis(i64::MIN),
        ..turn(8, "end")
    });
    let index = open(root.path(), eager());
    feed(&index, &docs, 9);
    check(&index, &docs);
    assert_eq!(index.commit().unwrap(), Commit::Done);
    check(&open(root.path(), eager()), &docs);
}

#[test]
fn signs_find_what_is_near_among_many() {
    let docs: Vec<Document> =
        (0..3_000).map(|n| Document { vectors: vec![vector(n)], ..turn(n, "") }).collect();
    let settings = IndexSettings { exact_rows: 100, memory_rows: 100, rescore: 400, ..eager() };
    let index = Index::open(None, settings).scope(&scope("m")).unwrap();
    feed(&index, &docs, 3_000);
    for seed in [1, 77, 2_999] {
        let found = index.read().nearest(&vector(seed), 5, None).unwrap();
        assert_eq!(found[0].0, seed as Doc);
        assert!(found[0].1 > 0.999 && found.len() == 5);
    }
}

fn any_document() -> impl Strategy<Value = Document> {
    let source = prop_oneof![
        8 => (0..3_u64, 0..12_u64, 0..2_u32).prop_map(|(session, seq, branch)| Source::Turn {
            session: SessionNo(session),
            seq: Seq(seq),
            branch: Branch(branch)
        }),
        1 => (0..2_u64, 0..3_u64).prop_map(|(session, first)| Source::Summary {
            session: SessionNo(session),
            branch: Branch::MAIN,
            level: Level::Micro,
            first: Ordinal(first)
        }),
        1 => (0..3_u64).prop_map(|began| Source::Entry { began: Position(began) }),
        1 => (0..3_u64).prop_map(|number| Source::Fact { number }),
    ];
    let vectors = proptest::collection::vec((0..20_u64).prop_map(vector), 0..3);
    let speaker = proptest::option::of("[A-C]o|[a-c] b");
    (source, 0..400_i64, 0..6_usize, speaker, "([a-d]{1,2} ?){0,6}|\\PC{0,8}", vectors).prop_map(
        |(source, day, role, speaker, text, vectors)| Document {
            source,
            at: Millis(day * 86_400_000),
            role: Role::ALL[role],
            speaker,
            signs: day as u32,
            text,
            vectors,
        },
    )
}

/// What happens after some documents were fed.
#[derive(Debug, Clone, Copy)]
enum Step {
    Nothing,
    Commit,
    Reopen,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn an_index_answers_as_its_documents_do(
        docs in proptest::collection::vec(any_document(), 1..60),
        steps in proptest::collection::vec(
            (1..12_usize, prop_oneof![Just(Step::Nothing), Just(Step::Commit), Just(Step::Reopen)]),
            1..10,
        ),
        exact_rows in prop_oneof![Just(6), Just(1_000)],
    ) {
        let root = directory();
        let settings = IndexSettings { exact_rows, memory_rows: exact_rows, rescore: 10_000, ..eager() };
        let mut index = open(root.path(), settings);
        let mut end = 0;
        for (count, step) in steps {
            end = docs.len().min(end + count);
            feed(&index, &docs, end);
            match step {
                Step::Nothing => {}
                Step::Commit => { index.commit().unwrap(); }
                Step::Reopen => {
                    index = open(root.path(), settings);
                    feed(&index, &docs, end);
                }
            }
        }
        check(&index, &docs[..end]);
    }
}
