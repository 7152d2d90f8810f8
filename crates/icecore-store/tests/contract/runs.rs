//! Runs: how they begin, move on, end, are repeated and let go.

use std::sync::Arc;

use icecore_domain::ids::{Position, Principal, Tenant};
use icecore_domain::json::JsonText;
use icecore_domain::redact::{Hidden, RedactedJson};
use icecore_domain::time::Millis;
use icecore_domain::workspace::{FilePath, Workspace};

use super::fixtures::*;
use super::workspace::file;
use crate::error::StoreError;
use crate::store::Store;
use crate::*;

const FIRST: &str = "q8Zk2Lm9Xw";

fn acme() -> Tenant {
    tenant("acme")
}

fn workspace() -> Workspace {
    Principal::local_operator(acme()).workspace()
}

fn json(text: &str) -> RedactedJson {
    redactor_of(&[]).redacted_json(&JsonText::parse(text).unwrap())
}

fn event(kind: &'static str, node: Option<&str>) -> NewRunEvent {
    let payload = r#"{"of":"us"}"#.to_owned();
    NewRunEvent { kind, node: node.map(str::to_owned), payload }
}

pub(crate) fn new_run(id: &str) -> NewRun {
    NewRun {
        id: id.to_owned(),
        workflow: "a workflow".to_owned(),
        principal: "key-1".to_owned(),
        inputs: json(r#"{ "much": 1.50 }"#),
        events: vec![event("run.started", None)],
        most_unfinished: 99,
        now: NOW,
        secrets_seen: 1,
        claim: None,
    }
}

pub(crate) fn next(run: &str, seen: u64, status: RunStatus) -> RunStep {
    RunStep {
        run: run.to_owned(),
        seen,
        writes: Vec::new(),
        events: vec![event("node.completed", Some("n"))],
        variables: Vec::new(),
        status,
        error: None,
        now: Millis(NOW.0 + 10),
        secrets_seen: 1,
    }
}

pub(crate) fn write(memory: &str, id: &str) -> RunWrite {
    let entry = NewEntry {
        id: Some(id.to_owned()),
        content: text(&format!("content of {id}")),
        tags: Vec::new(),
        expires_at: None,
        now: NOW,
        secrets_seen: 1,
        hidden: Hidden::new(),
        claim: None,
    };
    RunWrite { scope: scope_of("acme", memory), entry, node: "n".to_owned(), agent: None }
}

fn variable(name: &str, value: RunValue) -> RunVariable {
    RunVariable { name: name.to_owned(), value }
}

fn entry_ref(memory: &str, id: &str) -> EntryRef {
    EntryRef { memory_ref: memory.to_owned(), memory_id: id.to_owned() }
}

async fn create(store: &Store, id: &str) -> RunRecord {
    store.create_run(&workspace(), new_run(id)).await.unwrap()
}

async fn step(store: &Store, step: RunStep) -> RunRecord {
    store.step_run(&acme(), step).await.unwrap().unwrap()
}

/// A run that has done all it had to.
async fn done(store: &Store, id: &str) -> RunRecord {
    create(store, id).await;
    step(store, next(id, 1, RunStatus::Completed)).await
}

async fn all_events(store: &Store, id: &str) -> Vec<RunEventRecord> {
    store.run_events(&acme(), id, None, 99).await.unwrap()
}

async fn kinds(store: &Store, id: &str) -> String {
    let events = all_events(store, id).await;
    assert!(events.iter().map(|event| event.sequence).eq(0..events.len() as u64));
    events.into_iter().map(|event| event.kind).collect::<Vec<_>>().join(" ")
}

/// What can be read of runs and entries, to see that a refused step left nothing.
async fn everything(store: &Store, id: &str) -> String {
    let run = store.run(&acme(), id).await.unwrap();
    let entries = store.entries(&scope(), &EntryFilter::default(), NOW, 99).await.unwrap();
    let log = store.events(&acme(), None, Position(0), 99).await.unwrap();
    format!("{run:?} {:?} {entries:?} {log:?}", all_events(store, id).await)
}

pub(super) async fn a_run_begins_where_the_log_stands(store: &Store) {
    assert_eq!(store.run(&acme(), "r").await.unwrap(), None);
    assert_eq!(all_events(store, "r").await, []);
    assert!(store.tenants().await.unwrap().is_empty(), "asking makes no tenant");
    let first = create(store, "first").await;
    assert_eq!((first.position, first.files), (Position(0), vec![]));
    for (path, content) in [("b.md", "x"), ("a.md", "x"), ("b.md", "y")] {
        store.put_file(&workspace(), file(path, content)).await.unwrap();
    }
    let run = create(store, "second").await;
    let versions: Vec<_> =
        run.files.iter().map(|file| (file.path.as_str(), file.version)).collect();
    assert_eq!(versions, [("a.md", 1), ("b.md", 2)]);
    let RunRecord { id, workspace: place, principal, workflow, .. } = &run;
    assert_eq!(
        [id, place, principal, workflow],
        ["second", Workspace::DEFAULT, "key-1", "a workflow"]
    );
    assert_eq!((run.status, run.position), (RunStatus::Pending, Position(3)));
    assert_eq!((run.created_at, run.ended_at, run.expired_at), (NOW, None, None));
    assert_eq!((run.events, &run.fork, &run.error), (1, &None, &None));
    assert_eq!(run.inputs.json().as_str(), r#"{ "much": 1.50 }"#);
    assert_eq!(store.run(&acme(), "second").await.unwrap(), Some(run.clone()));
    // What comes later is not its matter, and a run is not in the log.
    store.put_file(&workspace(), file("c.md", "x")).await.unwrap();
    assert_eq!(store.run(&acme(), "second").await.unwrap(), Some(run));
    assert_eq!(store.head(&acme()).await.unwrap(), Position(4));
    let event = RunEventRecord {
        sequence: 0,
        at: NOW,
        kind: "run.started".to_owned(),
        node: None,
        cause: None,
        payload: r#"{"of":"us"}"#.to_owned(),
    };
    assert_eq!(all_events(store, "second").await, [event]);
    clean(store).await;
}

pub(super) async fn a_runs_id_is_taken_once(store: &Store) {
    let run = done(store, "r").await;
    let again = store.create_run(&workspace(), new_run("r")).await;
    assert!(matches!(again, Err(StoreError::RunExists { id }) if id == "r"));
    let fork = store.fork_run(&acme(), new_fork("r", "r")).await;
    assert!(matches!(fork, Err(StoreError::RunExists { .. })));
    assert_eq!(store.run(&acme(), "r").await.unwrap(), Some(run));
    // Another tenant may have it.
    let rival = Principal::local_operator(tenant("rival")).workspace();
    store.create_run(&rival, new_run("r")).await.unwrap();
    clean(store).await;
}

pub(super) async fn a_step_does_all_it_says(store: &Store) {
    let begun = create(store, "r").await;
    let hidden = Hidden::from([("jwt".to_owned(), 2)]);
    let mut told = write("notes", "e1");
    told.entry.hidden = hidden.clone();
    let by_agent = RunWrite { agent: Some("scribe".to_owned()), ..write("diary", "e2") };
    let now = Millis(NOW.0 + 5);
    let first = RunStep {
        writes: vec![told, by_agent],
        variables: vec![
            variable("z", RunValue::Json(json("[1, 2.0]"))),
            variable("a", RunValue::Entry(entry_ref("notes", "e1"))),
        ],
        now,
        ..next("r", 1, RunStatus::Running)
    };
    let run = step(store, first).await;
    assert_eq!((run.status, run.events, run.ended_at), (RunStatus::Running, 4, None));
    assert_eq!(kinds(store, "r").await, "run.started memory.written memory.written node.completed");
    let events = all_events(store, "r").await;
    assert_eq!((events[1].at, events[1].node.as_deref()), (now, Some("n")));
    assert_eq!(events[1].payload, r#"{"memoryRef":"notes","memoryId":"e1","nodeId":"n"}"#);
    assert_eq!(
        events[2].payload,
        r#"{"memoryRef":"diary","memoryId":"e2","nodeId":"n","agentId":"scribe"}"#
    );
    // Its writes are like all others.
    let put = store.entry(&scope(), "e1", None, NOW).await.unwrap().unwrap();
    assert_eq!(put.content.as_str(), "content of e1");
    assert_eq!(stats(store).await.hidden, hidden);
    let log = store.events(&acme(), None, Position(0), 9).await.unwrap();
    assert_eq!(
        log.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>(),
        ["memory.written", "memory.written"]
    );
    // As deep as JSON may be.
    let deep = json(&format!("{}{}", "[".repeat(127), "]".repeat(127)));
    let last = RunStep {
        variables: vec![
            variable("deep", RunValue::Json(deep)),
            variable("m", RunValue::Entries(vec![entry_ref("notes", "e1"); 2])),
            variable("z", RunValue::Content(entry_ref("diary", "e2"))),
        ],
        error: Some(RunError { code: "no_such".to_owned(), message: "gone".to_owned() }),
        ..next("r", 4, RunStatus::Failed)
    };
    let ended = step(store, last).await;
    let names: Vec<_> = ended.variables.iter().map(|set| set.name.as_str()).collect();
    assert_eq!(names, ["z", "a", "deep", "m"]);
    assert_eq!(ended.variables[0].value, RunValue::Content(entry_ref("diary", "e2")));
    assert_eq!(ended.ended_at, Some(Millis(NOW.0 + 10)));
    assert_eq!(ended.error.as_ref().unwrap().code, "no_such");
    assert_eq!((ended.position, ended.created_at), (begun.position, NOW));
    assert_eq!(store.run(&acme(), "r").await.unwrap(), Some(ended));
    clean(store).await;
}

pub(super) async fn a_step_compares_before_it_is_done(store: &Store) {
    create(store, "r").await;
    create(store, "ended").await;
    step(store, next("ended", 1, RunStatus::Cancelled)).await;
    for (of, run, seen) in [
        ("acme", "r", 0),
        ("acme", "r", 2),
        ("acme", "r", u64::MAX),
        ("acme", "ended", 2),
        ("acme", "ended", 1),
        ("acme", "no such", 0),
        ("rival", "ended", 0),
        ("new", "r", 1),
    ] {
        let before = everything(store, run).await;
        let mut late = next(run, seen, RunStatus::Running);
        if of == "acme" {
            late.writes = vec![write("notes", "late")];
        }
        assert_eq!(store.step_run(&tenant(of), late).await.unwrap(), None, "{of} {run} {seen}");
        assert_eq!(everything(store, run).await, before);
    }
    assert_eq!(store.tenants().await.unwrap(), [acme()]);
    // Of a node and a cancel at the same time one is done, and only once.
    let acme = acme();
    let stepping = store.step_run(&acme, next("r", 1, RunStatus::Running));
    let cancelling = store.step_run(&acme, next("r", 1, RunStatus::Cancelled));
    let (a, b) = tokio::join!(stepping, cancelling);
    assert_eq!(a.unwrap().is_some(), b.unwrap().is_none());
    assert_eq!(kinds(store, "r").await, "run.started node.completed");
    clean(store).await;
}

pub(super) async fn a_refused_step_leaves_nothing(store: &Store) {
    create(store, "r").await;
    let taken = write("notes", "taken");
    store.put_entry(&taken.scope, taken.entry.clone()).await.unwrap();
    let stale = |mut write: RunWrite| {
        write.entry.secrets_seen = 7;
        write
    };
    let foreign = RunWrite { scope: scope_of("rival", "notes"), ..write("notes", "x") };
    let good = || write("notes", "good");
    let before = everything(store, "r").await;
    let refused = async |change: &dyn Fn(&mut RunStep)| {
        let mut next = next("r", 1, RunStatus::Completed);
        next.variables = vec![variable("v", RunValue::Json(json("1")))];
        change(&mut next);
        let error = store.step_run(&acme(), next).await.unwrap_err();
        assert_eq!(everything(store, "r").await, before);
        error
    };
    let is_there = |error, id: &str| match error {
        StoreError::EntryExists { id: found } => assert_eq!(found, id),
        other => panic!("{other:?}"),
    };
    is_there(refused(&|s| s.writes = vec![good(), taken.clone()]).await, "taken");
    is_there(refused(&|s| s.writes = vec![good(), good()]).await, "good");
    let error = refused(&|s| s.writes = vec![good(), foreign.clone()]).await;
    assert!(matches!(error, StoreError::OtherTenant));
    let error = refused(&|s| s.writes = vec![good(), stale(good())]).await;
    assert!(matches!(error, StoreError::SecretsChanged));
    let error = refused(&|s| s.secrets_seen = 2).await;
    assert!(matches!(error, StoreError::SecretsChanged));
    assert_eq!(store.tenants().await.unwrap(), [acme()]);
    let late = NewRun { secrets_seen: 2, ..new_run("late") };
    let error = store.create_run(&workspace(), late).await.unwrap_err();
    assert!(matches!(error, StoreError::SecretsChanged));
    assert_eq!(store.run(&acme(), "late").await.unwrap(), None);
    clean(store).await;
}

pub(super) async fn events_of_a_run_are_paged(store: &Store) {
    create(store, "r").await;
    for seen in 1..5 {
        step(store, next("r", seen, RunStatus::Running)).await;
    }
    let page = async |after, limit| {
        let found = store.run_events(&acme(), "r", after, limit).await.unwrap();
        found.into_iter().map(|event| event.sequence).collect::<Vec<_>>()
    };
    assert_eq!(page(None, 2).await, [0, 1]);
    assert_eq!(page(Some(0), 2).await, [1, 2]);
    assert_eq!(page(Some(3), 9).await, [4]);
    assert_eq!(page(Some(4), 9).await, [0; 0]);
    assert_eq!(page(Some(u64::MAX), 9).await, [0; 0]);
    assert_eq!(store.run_events(&tenant("rival"), "r", None, 9).await.unwrap(), []);
}

fn new_fork(id: &str, source: &str) -> NewFork {
    NewFork {
        id: id.to_owned(),
        source: source.to_owned(),
        from_seq: 1,
        now: Millis(NOW.0 + 50),
        claim: None,
    }
}

pub(super) async fn a_fork_repeats_what_has_ended(store: &Store) {
    store.put_file(&workspace(), file("a.md", "x")).await.unwrap();
    create(store, "r").await;
    let last = RunStep {
        writes: vec![write("notes", "e")],
        variables: vec![variable("v", RunValue::Entry(entry_ref("notes", "e")))],
        error: Some(RunError { code: "c".to_owned(), message: "m".to_owned() }),
        ..next("r", 1, RunStatus::Failed)
    };
    let source = step(store, last).await;
    store.put_file(&workspace(), file("a.md", "y")).await.unwrap();
    let head = store.head(&acme()).await.unwrap();
    let fork = store.fork_run(&acme(), new_fork("f", "r")).await.unwrap().unwrap();
    // It is the same owner's, and ended when that did.
    let expected = RunRecord {
        id: "f".to_owned(),
        created_at: Millis(NOW.0 + 50),
        fork: Some(ForkOf { run: "r".to_owned(), from_seq: 1 }),
        ..source
    };
    assert_eq!(fork, expected);
    assert_eq!(store.run(&acme(), "f").await.unwrap(), Some(fork));
    let caused = all_events(store, "r")
        .await
        .into_iter()
        .map(|event| RunEventRecord { cause: Some(format!("r:{}", event.sequence)), ..event });
    assert_eq!(all_events(store, "f").await, caused.collect::<Vec<_>>());
    // Nothing is written again.
    assert_eq!(store.head(&acme()).await.unwrap(), head);
    store.fork_run(&acme(), new_fork("g", "f")).await.unwrap().unwrap();
    assert_eq!(all_events(store, "g").await[2].cause.as_deref(), Some("f:2"));
    clean(store).await;
}

pub(super) async fn only_what_has_ended_is_repeated(store: &Store) {
    create(store, "pending").await;
    create(store, "running").await;
    step(store, next("running", 1, RunStatus::Running)).await;
    done(store, "old").await;
    assert_eq!(store.expire_runs(Millis(i64::MAX), NOW, 9).await.unwrap(), 1);
    done(store, "done").await;
    for (of, source) in [
        ("acme", "pending"),
        ("acme", "running"),
        ("acme", "old"),
        ("acme", "no such"),
        ("rival", "done"),
    ] {
        let fork = store.fork_run(&tenant(of), new_fork("f", source)).await.unwrap();
        assert_eq!(fork, None, "{source}");
        assert_eq!(store.run(&tenant(of), "f").await.unwrap(), None);
    }
    assert_eq!(store.tenants().await.unwrap(), [acme()]);
    clean(store).await;
}

pub(super) async fn a_run_keeps_its_claim(store: &Store) {
    let claim = |operation: &str| {
        Some(Claim {
            operation: operation.to_owned(),
            key: "k".to_owned(),
            request: [3; 32],
            code: 201,
        })
    };
    let kept = async |operation| {
        let found = store.outcome(&acme(), operation, "k", NOW).await.unwrap();
        found.map(|outcome| outcome.body)
    };
    done(store, "r").await;
    let taken = NewRun { claim: claim("POST /v1/runs"), ..new_run("r") };
    assert!(store.create_run(&workspace(), taken).await.is_err());
    let nothing = NewFork { claim: claim("POST /v1/fork"), ..new_fork("f", "no such") };
    assert_eq!(store.fork_run(&acme(), nothing).await.unwrap(), None);
    // What fails or does nothing keeps no outcome.
    assert_eq!((kept("POST /v1/runs").await, kept("POST /v1/fork").await), (None, None));

    let run = |id| NewRun { claim: claim("POST /v1/runs"), ..new_run(id) };
    store.create_run(&workspace(), run("a")).await.unwrap();
    let again = store.create_run(&workspace(), run("b")).await;
    assert!(matches!(again, Err(StoreError::ClaimTaken)));
    let fork = |id| NewFork { claim: claim("POST /v1/fork"), ..new_fork(id, "r") };
    store.fork_run(&acme(), fork("f")).await.unwrap().unwrap();
    let again = store.fork_run(&acme(), fork("g")).await;
    assert!(matches!(again, Err(StoreError::ClaimTaken)));
    for id in ["b", "g"] {
        assert_eq!(store.run(&acme(), id).await.unwrap(), None);
    }
    // A retry must not do it again because something was erased meanwhile.
    store.put_entry(&scope(), write("notes", "e").entry).await.unwrap();
    store.erase_entries(&scope(), &Selector::Entry("e".to_owned()), false, NOW).await.unwrap();
    let made = r#"{"runId":"a","status":"pending","sourceRunId":null,"fromSeq":null}"#;
    let forked = r#"{"runId":"f","status":"completed","sourceRunId":"r","fromSeq":1}"#;
    assert_eq!(kept("POST /v1/runs").await.as_deref(), Some(made));
    assert_eq!(kept("POST /v1/fork").await.as_deref(), Some(forked));
}

pub(super) async fn unfinished_runs_are_listed_in_turns(store: &Store) {
    let rival = Principal::local_operator(tenant("rival")).workspace();
    for (at, id) in [(5, "b"), (9, "late"), (5, "a"), (1, "ended")] {
        let run = NewRun { now: Millis(at), ..new_run(id) };
        store.create_run(&workspace(), run).await.unwrap();
    }
    store.create_run(&rival, NewRun { now: Millis(3), ..new_run("a") }).await.unwrap();
    step(store, next("late", 1, RunStatus::Running)).await;
    step(store, next("ended", 1, RunStatus::Failed)).await;
    let listed = async |limit| {
        let found = store.unfinished_runs(limit).await.unwrap();
        let shown: Vec<_> = found.iter().map(|(tenant, id)| format!("{tenant}/{id}")).collect();
        shown.join(" ")
    };
    assert_eq!(listed(9).await, "rival/a acme/a acme/b acme/late");
    assert_eq!(listed(2).await, "rival/a acme/a");
    // However many one tenant has, another's first comes before its second.
    let other = Principal::local_operator(tenant("other")).workspace();
    store.create_run(&other, NewRun { now: Millis(99), ..new_run("z") }).await.unwrap();
    assert_eq!(listed(4).await, "rival/a acme/a other/z acme/b");
    clean(store).await;
}

pub(super) async fn a_tenant_has_so_many_unfinished(store: &Store) {
    let two = |id| NewRun { most_unfinished: 2, ..new_run(id) };
    for id in ["a", "b"] {
        store.create_run(&workspace(), two(id)).await.unwrap();
    }
    let refused = async |run| store.create_run(&workspace(), run).await.unwrap_err();
    let claimed = NewRun {
        claim: Some(Claim {
            operation: "POST /v1/runs".to_owned(),
            key: "k".to_owned(),
            request: [3; 32],
            code: 201,
        }),
        ..two("c")
    };
    assert!(matches!(refused(claimed).await, StoreError::TooManyRuns { most: 2 }));
    assert!(matches!(refused(two("a")).await, StoreError::RunExists { .. }));
    assert_eq!(store.run(&acme(), "c").await.unwrap(), None);
    let kept = store.outcome(&acme(), "POST /v1/runs", "k", NOW).await.unwrap();
    assert!(kept.is_none(), "it may be tried again");
    // Another tenant has its own, a run that ended makes room, and a fork takes none.
    let rival = Principal::local_operator(tenant("rival")).workspace();
    store.create_run(&rival, two("a")).await.unwrap();
    step(store, next("a", 1, RunStatus::Failed)).await;
    store.create_run(&workspace(), two("c")).await.unwrap();
    store.fork_run(&acme(), new_fork("f", "a")).await.unwrap().unwrap();
    let none = NewRun { most_unfinished: 0, ..new_run("d") };
    assert!(matches!(refused(none).await, StoreError::TooManyRuns { most: 0 }));
    clean(store).await;
}

pub(super) async fn an_expired_run_goes_for_good_later(store: &Store) {
    for id in ["a", "b", "kept"] {
        done(store, id).await;
    }
    store.fork_run(&acme(), new_fork("f", "b")).await.unwrap().unwrap();
    create(store, "open").await;
    let purge = async |by, limit| store.purge_runs(Millis(by), limit).await.unwrap();
    assert_eq!(purge(i64::MAX, 9).await, 0, "what is kept does not go");
    assert_eq!(store.expire_runs(Millis(i64::MAX), Millis(20), 2).await.unwrap(), 2);
    assert_eq!((purge(19, 9).await, purge(20, 1).await), (0, 1));
    assert_eq!(store.run(&acme(), "a").await.unwrap(), None);
    assert!(store.run(&acme(), "b").await.unwrap().is_some());
    assert_eq!((purge(20, 9).await, purge(20, 9).await), (1, 0));
    // What repeats it is there for as long as it would be.
    assert_eq!(all_events(store, "f").await.len(), 2);
    assert_eq!(kinds(store, "kept").await, "run.started node.completed");
    assert_eq!(kinds(store, "open").await, "run.started");
    create(store, "a").await;
    clean(store).await;
}

pub(super) async fn runs_are_erased_with_what_repeats_them(store: &Store) {
    let made = async |id: &str, at| {
        let run = NewRun { now: Millis(at), ..new_run(id) };
        store.create_run(&workspace(), run).await.unwrap();
        step(store, next(id, 1, RunStatus::Completed)).await
    };
    made("old", 4).await;
    made("at", 5).await;
    made("late", 6).await;
    store.create_run(&workspace(), NewRun { now: Millis(1), ..new_run("open") }).await.unwrap();
    let rival = Principal::local_operator(tenant("rival")).workspace();
    store.create_run(&rival, NewRun { now: Millis(1), ..new_run("old") }).await.unwrap();
    store.step_run(&tenant("rival"), next("old", 1, RunStatus::Failed)).await.unwrap();
    for (id, source) in [("f", "old"), ("ff", "f"), ("g", "late")] {
        store.fork_run(&acme(), new_fork(id, source)).await.unwrap().unwrap();
    }
    let erase = async |of: &str, dry| {
        store.erase_runs(&tenant(of), Millis(5), Millis(70), dry).await.unwrap()
    };
    let before = everything(store, "ff").await;
    assert_eq!((erase("acme", true).await, erase("new", false).await), (3, 0));
    assert_eq!(everything(store, "ff").await, before);
    assert_eq!((erase("acme", false).await, erase("acme", false).await), (3, 0));
    for id in ["old", "f", "ff"] {
        let run = store.run(&acme(), id).await.unwrap().unwrap();
        assert_eq!((run.inputs.json().as_str(), run.expired_at), ("{}", Some(Millis(70))));
        assert_eq!(all_events(store, id).await, []);
    }
    for id in ["at", "late", "g", "open"] {
        assert_eq!(store.run(&acme(), id).await.unwrap().unwrap().expired_at, None, "{id}");
    }
    let other = store.run(&tenant("rival"), "old").await.unwrap().unwrap();
    assert_eq!(other.expired_at, None);
    assert_eq!(store.tenants().await.unwrap(), [acme(), tenant("rival")]);
    clean(store).await;
}

pub(super) async fn of_an_expired_run_its_name_stays(store: &Store) {
    store.put_file(&workspace(), file("a.md", "x")).await.unwrap();
    for (id, at) in [("b", 7), ("a", 7), ("late", 9)] {
        create(store, id).await;
        let last = RunStep {
            now: Millis(at),
            variables: vec![variable("v", RunValue::Json(json("1")))],
            error: Some(RunError { code: "c".to_owned(), message: "m".to_owned() }),
            ..next(id, 1, RunStatus::Failed)
        };
        step(store, last).await;
    }
    create(store, "open").await;
    let before = store.run(&acme(), "a").await.unwrap().unwrap();
    let expire = async |ended_by, limit| {
        store.expire_runs(Millis(ended_by), Millis(20), limit).await.unwrap()
    };
    assert_eq!(expire(6, 9).await, 0);
    assert_eq!(expire(7, 1).await, 1);
    let after = RunRecord {
        expired_at: Some(Millis(20)),
        error: None,
        inputs: json("{}"),
        files: Vec::new(),
        variables: Vec::new(),
        ..before
    };
    assert_eq!(store.run(&acme(), "a").await.unwrap(), Some(after));
    assert_eq!((all_events(store, "a").await.len(), all_events(store, "b").await.len()), (0, 2));
    assert_eq!(store.step_run(&acme(), next("a", 2, RunStatus::Running)).await.unwrap(), None);
    assert_eq!(
        (expire(8, 9).await, expire(i64::MAX, 9).await, expire(i64::MAX, 9).await),
        (1, 1, 0)
    );
    let again = store.create_run(&workspace(), new_run("a")).await;
    assert!(matches!(again, Err(StoreError::RunExists { .. })));
    assert_eq!(kinds(store, "open").await, "run.started");
    clean(store).await;
}

pub(super) async fn a_run_outlasts_what_it_names(store: &Store) {
    create(store, "r").await;
    let only = RunStep {
        writes: vec![write("notes", "e")],
        variables: vec![variable("v", RunValue::Content(entry_ref("notes", "e")))],
        ..next("r", 1, RunStatus::Completed)
    };
    let run = step(store, only).await;
    let events = all_events(store, "r").await;
    let erased = store.erase_entries(&scope(), &Selector::Entry("e".to_owned()), false, NOW).await;
    assert_eq!(erased.unwrap(), 1);
    // It names what is gone, and says nothing of what that said.
    assert_eq!(store.run(&acme(), "r").await.unwrap(), Some(run.clone()));
    assert_eq!(all_events(store, "r").await, events);
    assert!(!format!("{run:?} {events:?}").contains("content of"));
    clean(store).await;
}

pub(super) async fn runs_are_redacted_again(store: &Store) {
    let memory = format!("of {FIRST}");
    for path in [format!("{FIRST}.md"), format!("gone-{FIRST}"), "plain.md".to_owned()] {
        store.put_file(&workspace(), file(&path, "x")).await.unwrap();
    }
    create(store, "plain").await;
    let told = NewRun {
        workflow: format!("w {FIRST}"),
        inputs: json(&format!(r#"{{"a": ["{FIRST}"], "n": 1.0}}"#)),
        ..new_run("r")
    };
    store.create_run(&workspace(), told).await.unwrap();
    let gone = FilePath::new(text(&format!("gone-{FIRST}"))).unwrap();
    store.delete_file(&workspace(), &gone, Expect::Anything, NOW).await.unwrap();
    let only = RunStep {
        writes: vec![write(&memory, "e")],
        events: vec![NewRunEvent {
            payload: serde_json::json!({ "said": FIRST }).to_string(),
            ..event("node.failed", Some("n"))
        }],
        variables: vec![
            variable("json", RunValue::Json(json(&format!(r#""{FIRST}""#)))),
            variable("entry", RunValue::Entry(entry_ref(&memory, "e"))),
            variable("entries", RunValue::Entries(vec![entry_ref(&memory, "e")])),
            variable("content", RunValue::Content(entry_ref(&memory, "e"))),
        ],
        error: Some(RunError { code: "c".to_owned(), message: format!("no {FIRST}") }),
        ..next("r", 1, RunStatus::Failed)
    };
    step(store, only).await;
    store.fork_run(&acme(), new_fork("f", "r")).await.unwrap().unwrap();
    let plain = store.run(&acme(), "plain").await.unwrap().unwrap();

    let redactor = redactor_of(&[FIRST]);
    let told = store.rewrite_stored_text(&acme(), Arc::clone(&redactor), NOW).await.unwrap();
    // The one that says nothing of it began with a file that does.
    assert_eq!(told.runs, 3);
    let memory = memories(store, &acme()).await.remove(0);
    let found = entry_ref(&memory, "e");
    for id in ["r", "f"] {
        let run = store.run(&acme(), id).await.unwrap().unwrap();
        let events = all_events(store, id).await;
        assert!(!format!("{run:?} {events:?}").contains(FIRST), "{run:?} {events:?}");
        let versions: Vec<_> =
            run.files.iter().map(|file| (file.path.as_str(), file.version)).collect();
        assert_eq!(versions, [("plain.md", 1), ("redacted-1", 1)]);
        assert_eq!(run.inputs.json().as_str(), r#"{"a": ["[REDACTED:v1]"], "n": 1.0}"#);
        assert_eq!(run.variables[0].value, RunValue::Json(json(r#""[REDACTED:v1]""#)));
        assert_eq!(run.variables[1].value, RunValue::Entry(found.clone()));
        assert_eq!(run.variables[2].value, RunValue::Entries(vec![found.clone()]));
        assert_eq!(run.variables[3].value, RunValue::Content(found.clone()));
        assert_eq!(
            events[1].payload,
            serde_json::json!({
                "memoryRef": memory, "memoryId": "e", "nodeId": "n",
            })
            .to_string()
        );
        assert_eq!(events[2].payload, r#"{"said":"[REDACTED:v1]"}"#);
    }
    let now = store.run(&acme(), "plain").await.unwrap().unwrap();
    assert_eq!((now.inputs, now.workflow), (plain.inputs, plain.workflow));
    let again = store.rewrite_stored_text(&acme(), redactor, NOW).await.unwrap();
    assert_eq!(again, RewriteCounts::default());
    clean(store).await;
}
