//! Runs: what they see, how they end, how they are repeated and kept.

use std::time::Duration;

use icecore::dreams::{DREAM_WORKFLOW, DreamRequest};
use icecore::formats::json::JsonText;
use icecore::knowledge::{EntryQuery, NewEntryRequest};
use icecore::store::StoreError;
use icecore::{ForgetRequest, MemoryError};
use icecore_host::HostSettings;
use icecore_host::runs::{RunRecord, RunStatus, RunValue, RunVariable, RunsError, Stepped};
use icecore_host::workspace::FileWrite;
use icecore_store::Store;
use serde_json::{Value, json};

use crate::support::{
    Bench, Event, NOOP, ROUNDTRIP, ROUNDTRIP_REF, TTL, TTL_REF, finish, fork, me, principal,
    request, settings,
};

/// The ids that a list among the variables names, whether or not they are there still.
fn named(variables: &[RunVariable], name: &str) -> Vec<String> {
    let variable = variables.iter().find(|variable| variable.name == name).unwrap();
    let RunValue::Entries(entries) = &variable.value else { panic!("{name} is no list") };
    entries.iter().map(|entry| entry.memory_id.clone()).collect()
}

#[tokio::test]
async fn a_run_sees_memory_as_it_was_when_it_began() {
    for bench in Bench::both() {
        let before = bench.put(TTL_REF, "there before").await;
        let deleted = bench.put(TTL_REF, "there before, then deleted").await;
        bench.create("r", TTL).await;
        let scope = bench.memory().scope(&me(), TTL_REF).await.unwrap();
        bench.put(TTL_REF, "put before the first step").await;
        bench.memory().delete_entry(&scope, &deleted.id).await.unwrap();
        assert_eq!(bench.step("r").await, Stepped::On);
        bench.put(TTL_REF, "put while it works").await;
        // It writes its own.
        assert_eq!(bench.step("r").await, Stepped::On);
        let late = bench.put(TTL_REF, "put after its own").await;
        bench.finish("r").await;

        let record = bench.record("r").await;
        let seen = named(&record.variables, "memoryList");
        assert_eq!(seen, ["mem-r-outlive-1", deleted.id.as_str(), before.id.as_str()]);
        // What is shown of it is what there is now.
        let list = &bench.variables("r").await["memoryList"];
        let shown: Vec<&Value> =
            list.as_array().unwrap().iter().map(|entry| &entry["id"]).collect();
        assert_eq!(shown, ["mem-r-outlive-1", before.id.as_str()]);
        // Whoever comes later sees all of it.
        bench.run("r2", TTL).await;
        let later = named(&bench.record("r2").await.variables, "memoryList");
        assert!(
            later.contains(&late.id) && later.contains(&"mem-r-summary".to_owned()),
            "{later:?}"
        );
    }
}

#[tokio::test]
async fn a_run_keeps_the_files_that_it_began_with() {
    for bench in Bench::both() {
        let write = async |path: &str| {
            let file = FileWrite { path: path.to_owned(), ..FileWrite::default() };
            bench.host.files.put(&me(), file).await.unwrap();
        };
        write("a.md").await;
        write("a.md").await;
        write("b.md").await;
        bench.create("r", NOOP).await;
        write("a.md").await;
        write("c.md").await;
        bench.finish("r").await;
        let files = bench.record("r").await.files;
        let files: Vec<(&str, u64)> =
            files.iter().map(|file| (file.path.as_str(), file.version)).collect();
        assert_eq!(files, [("a.md", 2), ("b.md", 1)]);
    }
}

#[tokio::test]
async fn a_run_that_is_called_off_writes_nothing_more() {
    // After so many steps of its four.
    for steps in 0..4 {
        let bench = Bench::new();
        bench.create("r", ROUNDTRIP).await;
        for _ in 0..steps {
            assert_eq!(bench.step("r").await, Stepped::On);
        }
        let before = bench.entries(ROUNDTRIP_REF).await;
        let cancelled = bench.host.runs.cancel(&me(), "r").await.unwrap();
        assert_eq!(cancelled.status, RunStatus::Cancelled);
        assert_eq!(bench.step("r").await, Stepped::Ended);
        bench.host.runs.settle().await.unwrap();
        let events = bench.host.runs.events(&me(), "r", None, 0).await.unwrap();
        assert_eq!(events.events.last().unwrap().kind, "run.cancelled");
        assert!(events.is_complete);
        assert_eq!(bench.entries(ROUNDTRIP_REF).await, before);
        let told = events.events.iter().filter(|event| event.kind == "memory.written").count();
        assert_eq!(told, before.len(), "what was written was told");
        let again = bench.host.runs.cancel(&me(), "r").await;
        assert!(
            matches!(again, Err(RunsError::Ended { status: RunStatus::Cancelled })),
            "{again:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_may_be_called_off_while_it_writes() {
    let dir = tempfile::tempdir().unwrap();
    let bench = Bench::over(Store::open(dir.path(), None).unwrap());
    for number in 0..12 {
        let id = format!("r{number}");
        bench.create(&id, ROUNDTRIP).await;
        let (host, run) = (bench.host.clone(), id.clone());
        let working = tokio::spawn(async move {
            while host.runs.step(me().tenant(), &run).await.unwrap() != Stepped::Ended {}
        });
        let cancelled = bench.host.runs.cancel(&me(), &id).await;
        working.await.unwrap();
        let record = bench.record(&id).await;
        match cancelled {
            Ok(_) => assert_eq!(record.status, RunStatus::Cancelled),
            Err(RunsError::Ended { .. }) => assert_eq!(record.status, RunStatus::Completed),
            Err(error) => panic!("{error}"),
        }
        let events = bench.events(&id).await;
        let told: Vec<&str> = events
            .iter()
            .filter(|event| event.kind == "memory.written")
            .map(|event| event.payload["memoryId"].as_str().unwrap())
            .collect();
        let kept = bench.entries(ROUNDTRIP_REF).await;
        let mine = kept.iter().filter(|entry| entry.id.starts_with(&format!("mem-{id}-")));
        assert_eq!(mine.count(), told.len(), "every write is told, and what is told is there");
        let ends = ["run.cancelled", "run.completed"];
        assert!(ends.contains(&events.last().unwrap().kind.as_str()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_engines_do_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let bench = Bench::over(Store::open(dir.path(), None).unwrap());
    let other = bench.again(settings());
    for number in 0..6 {
        bench.create(&format!("r{number}"), ROUNDTRIP).await;
    }
    let (first, second) = tokio::join!(bench.host.runs.settle(), other.runs.settle());
    first.unwrap();
    second.unwrap();
    for number in 0..6 {
        let expected = "run.started node.started memory.written variable.changed node.completed \
                        memory.written run.completed";
        assert_eq!(bench.kinds(&format!("r{number}")).await, expected);
    }
    assert_eq!(bench.entries(ROUNDTRIP_REF).await.len(), 12);
}

#[tokio::test]
async fn a_fork_repeats_what_happened() {
    for bench in Bench::both() {
        bench.run("r", ROUNDTRIP).await;
        bench.put(ROUNDTRIP_REF, "something new").await;
        let head = bench.store.head(me().tenant()).await.unwrap();
        bench.clock.advance(60_000);
        let source = bench.record("r").await;
        for (id, from_seq) in [("f0", 0), ("f3", 3), ("f7", source.events)] {
            let made = bench.host.runs.fork(&me(), fork(id, "r", from_seq)).await.unwrap();
            assert_eq!(made.status, RunStatus::Completed);
            assert_eq!(made.workspace, source.workspace);
            let of = made.fork.unwrap();
            assert_eq!((of.run.as_str(), of.from_seq), ("r", from_seq));
            assert_eq!(bench.step(id).await, Stepped::Ended);
            let (events, repeated) = (bench.events("r").await, bench.events(id).await);
            assert_eq!(events.len(), repeated.len());
            for (event, again) in events.iter().zip(&repeated) {
                assert_eq!(again.cause, Some(format!("r:{}", event.sequence)));
                assert_eq!(again.sequence, event.sequence);
                let told = |event: &Event| {
                    let event = event.clone();
                    (event.kind, event.payload, event.at, event.node)
                };
                assert_eq!(told(event), told(again));
            }
            assert_eq!(bench.variables(id).await, bench.variables("r").await);
        }
        bench.host.runs.settle().await.unwrap();
        assert_eq!(bench.store.head(me().tenant()).await.unwrap(), head, "nothing was written");
        // A fork can be repeated too.
        bench.host.runs.fork(&me(), fork("ff", "f0", 0)).await.unwrap();
        assert_eq!(bench.kinds("ff").await, bench.kinds("r").await);
    }
}

#[tokio::test]
async fn what_cannot_be_repeated_is_refused() {
    for bench in Bench::both() {
        bench.create("r", NOOP).await;
        bench.step("r").await;
        let refused = bench.host.runs.fork(&me(), fork("f", "r", 3)).await;
        let expected = matches!(refused, Err(RunsError::InvalidFromSeq { from_seq: 3, max: 2 }));
        assert!(expected, "{refused:?}");
        let refused = bench.host.runs.fork(&me(), fork("f", "r", 0)).await;
        assert!(matches!(refused, Err(RunsError::Active)), "{refused:?}");
        bench.finish("r").await;
        let refused = bench.host.runs.fork(&me(), fork("f", "r", u64::MAX)).await;
        assert!(matches!(refused, Err(RunsError::InvalidFromSeq { max: 5, .. })), "{refused:?}");
        let refused = bench.host.runs.fork(&me(), fork("f", "none", 0)).await;
        assert!(matches!(refused, Err(RunsError::NotFound)), "{refused:?}");
        let refused = bench.host.runs.fork(&me(), fork("r", "r", 0)).await;
        let is_taken = matches!(
            refused,
            Err(RunsError::Memory(MemoryError::Store(StoreError::RunExists { .. })))
        );
        assert!(is_taken, "{refused:?}");
        let refused = bench.host.runs.fork(&me(), fork("f/../g", "r", 0)).await;
        assert!(matches!(refused, Err(RunsError::BadId)), "{refused:?}");
    }
}

#[tokio::test]
async fn what_is_forgotten_is_gone_from_runs_and_from_what_repeats_them() {
    for bench in Bench::both() {
        bench.run("r", ROUNDTRIP).await;
        bench.host.runs.fork(&me(), fork("f1", "r", 0)).await.unwrap();
        let before = bench.events("r").await;
        let forget = ForgetRequest::Entry("mem-r-recall-1".to_owned());
        bench.memory().forget(&me(), Some(ROUNDTRIP_REF), &forget, false).await.unwrap();
        bench.host.runs.fork(&me(), fork("f2", "r", 0)).await.unwrap();
        for id in ["r", "f1", "f2"] {
            assert_eq!(bench.variables(id).await["memoryReadback"], Value::Null, "{id}");
            let told: Vec<Value> =
                bench.events(id).await.into_iter().map(|event| event.payload).collect();
            let expected: Vec<Value> = before.iter().map(|event| event.payload.clone()).collect();
            assert_eq!(told, expected, "facts that were told stay");
            let run = format!("{:?}", bench.host.runs.get(&me(), id).await.unwrap());
            assert!(!run.contains("harbour light"), "{run}");
        }
    }
}

#[tokio::test]
async fn an_entry_that_is_forgotten_before_it_is_read_fails_the_run() {
    for bench in Bench::both() {
        bench.create("r", ROUNDTRIP).await;
        bench.step("r").await;
        bench.step("r").await;
        let forget = ForgetRequest::Entry("mem-r-recall-1".to_owned());
        bench.memory().forget(&me(), Some(ROUNDTRIP_REF), &forget, false).await.unwrap();
        bench.finish("r").await;
        let record = bench.record("r").await;
        assert_eq!(record.status, RunStatus::Failed);
        // A position from before an erasure cannot be read any more.
        let code = record.error.unwrap().code;
        assert!(
            ["memory_entry_gone", "memory_snapshot_unavailable"].contains(&code.as_str()),
            "{code}"
        );
        let expected = "run.started node.started memory.written node.failed run.failed";
        assert_eq!(bench.kinds("r").await, expected);
        let failed = bench.events("r").await.pop().unwrap();
        assert_eq!(failed.payload["error"]["code"], code);
    }
}

#[tokio::test]
async fn runs_are_kept_for_a_while() {
    for bench in Bench::both() {
        bench.run("r", NOOP).await;
        bench.run("unread", NOOP).await;
        bench.create("young", NOOP).await;
        let kept = i64::try_from(settings().run_retention_seconds).unwrap() * 1_000;
        bench.clock.advance(kept - 1);
        assert_eq!(bench.host.runs.expire().await.unwrap(), 0);
        bench.host.runs.get(&me(), "r").await.unwrap();
        bench.clock.advance(1);
        // Whether or not another was let go, and for good then: the first refusal does it.
        for expired in [0, 1] {
            if expired == 1 {
                assert_eq!(bench.host.runs.expire().await.unwrap(), 1);
            }
            let is_past = |found: RunsError, seq: Option<u64>| {
                matches!(&found, RunsError::Expired { run, boundary, from_seq }
                    if run == "r" && *from_seq == seq && *boundary == bench.memory().now())
            };
            assert!(is_past(bench.host.runs.get(&me(), "r").await.unwrap_err(), None));
            assert!(is_past(bench.host.runs.events(&me(), "r", None, 0).await.unwrap_err(), None));
            assert!(is_past(bench.host.runs.cancel(&me(), "r").await.unwrap_err(), None));
            let refused = bench.host.runs.fork(&me(), fork("f", "r", 2)).await.unwrap_err();
            assert!(is_past(refused, Some(2)));
            let refused = bench.host.runs.fork(&me(), fork("f", "r", 6)).await.unwrap_err();
            assert!(matches!(refused, RunsError::InvalidFromSeq { from_seq: 6, max: 5 }));
        }
        assert_eq!(bench.host.runs.expire().await.unwrap(), 0);
        // Its id is not given again, and what it wrote stays.
        let again = bench.host.runs.create(&me(), request("r", NOOP)).await;
        assert!(matches!(again, Err(RunsError::Memory(_))), "{again:?}");
        assert_eq!(bench.entries("runs/conformance-noop").await.len(), 2);
        bench.host.runs.get(&me(), "young").await.unwrap();
        // After ten times as long nobody can tell that it was there.
        bench.clock.advance(10 * kept - 1);
        bench.host.runs.expire().await.unwrap();
        assert!(matches!(bench.host.runs.get(&me(), "r").await, Err(RunsError::Expired { .. })));
        bench.clock.advance(1);
        bench.host.runs.expire().await.unwrap();
        assert!(matches!(bench.host.runs.get(&me(), "r").await, Err(RunsError::NotFound)));
    }
}

#[tokio::test]
async fn a_refused_run_stays_expired_under_a_longer_retention() {
    for bench in Bench::both() {
        bench.run("r", NOOP).await;
        let longer = || HostSettings { run_retention_seconds: 1_000, ..settings() };
        let shorter = bench.again(HostSettings { run_retention_seconds: 1, ..settings() });
        let ended_at = bench.record("r").await.ended_at.unwrap().0;
        bench.clock.advance(5_000);
        bench.again(longer()).runs.get(&me(), "r").await.unwrap();
        let boundary = |refused: RunsError| match refused {
            RunsError::Expired { boundary, .. } => boundary.0 - ended_at,
            other => panic!("{other}"),
        };
        assert_eq!(boundary(shorter.runs.get(&me(), "r").await.unwrap_err()), 1_000);
        for host in [bench.again(longer()), bench.again(settings())] {
            let refused = host.runs.fork(&me(), fork("f", "r", 0)).await.unwrap_err();
            assert_eq!(boundary(refused), 5_000, "when it went");
            host.runs.get(&me(), "r").await.unwrap_err();
        }
    }
}

#[tokio::test]
async fn what_repeats_a_run_is_its_owners_and_goes_with_it() {
    for bench in Bench::both() {
        bench.run("r", NOOP).await;
        let kept = i64::try_from(settings().run_retention_seconds).unwrap() * 1_000;
        bench.clock.advance(kept - 1);
        bench.host.runs.fork(&me(), fork("f", "r", 0)).await.unwrap();
        bench.host.runs.fork(&me(), fork("ff", "f", 0)).await.unwrap();
        let (run, again) = (
            bench.host.runs.get(&me(), "r").await.unwrap(),
            bench.host.runs.get(&me(), "ff").await.unwrap(),
        );
        let owner = |run: &RunRecord| (run.workspace.clone(), run.principal.clone());
        assert_eq!(owner(&again.record), owner(&run.record));
        let told = &bench.events("ff").await[0].payload["owner"]["principal"];
        assert_eq!(*told, json!(again.record.principal));
        bench.clock.advance(1);
        for id in ["r", "f", "ff"] {
            let past = bench.host.runs.get(&me(), id).await;
            assert!(matches!(past, Err(RunsError::Expired { .. })), "{id}");
        }
        let refused = bench.host.runs.fork(&me(), fork("fff", "ff", 0)).await;
        assert!(matches!(refused, Err(RunsError::Expired { .. })), "{refused:?}");
        assert_eq!(bench.host.runs.expire().await.unwrap(), 0, "all three went at their refusal");
        for id in ["r", "f", "ff"] {
            let run = bench.store.run(me().tenant(), id).await.unwrap().unwrap();
            assert!(run.expired_at.is_some() && run.variables.is_empty(), "{run:?}");
        }
    }
}

#[tokio::test]
async fn runs_are_their_owners() {
    for bench in Bench::both() {
        bench.run("r", NOOP).await;
        let redactor = bench.memory().redactor(me().tenant()).await.unwrap().redactor;
        let next_door = me().at_work_in(redactor.name("next-door")).unwrap();
        let stranger = principal("stranger");
        let timeout = Duration::ZERO;
        for (who, is_next_door) in [(&next_door, true), (&stranger, false)] {
            let host = &bench.host;
            let refused = [
                host.runs.get(who, "r").await.map(drop),
                host.runs.events(who, "r", None, 0).await.map(drop),
                host.runs.wait_for_events(who, "r", None, 0, timeout).await.map(drop),
                host.runs.cancel(who, "r").await.map(drop),
                host.runs.fork(who, fork("f", "r", 0)).await.map(drop),
            ];
            for refused in refused {
                match is_next_door {
                    true => assert!(matches!(refused, Err(RunsError::Forbidden)), "{refused:?}"),
                    false => assert!(matches!(refused, Err(RunsError::NotFound)), "{refused:?}"),
                }
            }
            assert_eq!(host.runs.step(stranger.tenant(), "r").await.unwrap(), Stepped::Ended);
        }
        // Two tenants may have runs of the same id.
        bench.host.runs.create(&stranger, request("r", NOOP)).await.unwrap();
        bench.host.runs.settle().await.unwrap();
        let own = bench.host.runs.get(&stranger, "r").await.unwrap();
        assert_eq!(own.record.workspace, "default");
        let begun = bench.host.runs.events(&stranger, "r", None, 1).await.unwrap().events;
        assert!(begun[0].payload.contains(r#""tenant":"stranger""#), "{begun:?}");
        // A run of another workspace belongs there, and reads the tenant's memory.
        bench.host.runs.create(&next_door, request("n", NOOP)).await.unwrap();
        bench.host.runs.settle().await.unwrap();
        let run = bench.host.runs.get(&next_door, "n").await.unwrap();
        assert_eq!(run.record.workspace, "next-door");
        assert!(matches!(bench.host.runs.get(&me(), "n").await, Err(RunsError::Forbidden)));
    }
}

#[tokio::test]
async fn hostile_ids_belong_to_no_run() {
    for bench in Bench::both() {
        let long = "r".repeat(4_000);
        for id in ["", "../../etc", "%00", "\0", "r ", "r:1", "ü", "' OR 1=1 --", &long] {
            let refused = bench.host.runs.get(&me(), id).await;
            assert!(matches!(refused, Err(RunsError::NotFound)), "{refused:?}");
            let refused = bench.host.runs.cancel(&me(), id).await;
            assert!(matches!(refused, Err(RunsError::NotFound)), "{refused:?}");
            let refused = bench.host.runs.create(&me(), request(id, NOOP)).await;
            assert!(matches!(refused, Err(RunsError::BadId)), "{refused:?}");
            let refused = bench.host.runs.create(&me(), request("r", id)).await.unwrap_err();
            assert!(matches!(refused, RunsError::UnknownWorkflow));
            assert_eq!(refused.to_string(), "there is no such workflow on this host");
        }
        // What the door mints is not taken for a secret.
        for id in ["run-5f2c9a7be01d4c33", "0123456789abcdef0123456789abcdef", &"a".repeat(64)] {
            bench.run(id, NOOP).await;
            assert_eq!(bench.record(id).await.id, id);
            let events = bench.events(id).await;
            assert_eq!(events[3].payload["memoryId"], format!("mem-{id}-summary"));
            assert!(events.iter().all(|event| format!("{id}:{}", event.sequence).len() <= 128));
        }
    }
}

#[tokio::test]
async fn inputs_are_bounded() {
    for bench in Bench::both() {
        let host = bench.again(HostSettings { run_input_bytes: 20, ..settings() });
        let given = |inputs: &str| {
            let inputs = JsonText::parse(inputs).unwrap();
            icecore_host::runs::RunRequest { inputs, ..request("r", NOOP) }
        };
        let refused = host.runs.create(&me(), given(r#"{"a":"1234567890123"}"#)).await.unwrap_err();
        assert!(
            matches!(refused, RunsError::InputsTooLarge { bytes: 21, most: 20 }),
            "{refused:?}"
        );
        assert!(refused.to_string().contains("run_input_bytes"));
        for wrong in ["[]", "null", "\"a\"", "1"] {
            let refused = host.runs.create(&me(), given(wrong)).await;
            assert!(matches!(refused, Err(RunsError::BadInputs)), "{refused:?}");
        }
        host.runs.create(&me(), given(r#"{"a":"123456789012"}"#)).await.unwrap();
    }
}

#[tokio::test]
async fn a_key_makes_one_run() {
    for bench in Bench::both() {
        let claimed = |id: &str| {
            let (operation, key) = ("POST /v1/runs".to_owned(), "once".to_owned());
            let claim =
                Some(icecore::ingest::Claim { operation, key, request: [7; 32], code: 201 });
            icecore_host::runs::RunRequest { claim, ..request(id, NOOP) }
        };
        bench.host.runs.create(&me(), claimed("r")).await.unwrap();
        let again = bench.host.runs.create(&me(), claimed("r2")).await;
        let is_taken =
            matches!(again, Err(RunsError::Memory(MemoryError::Store(StoreError::ClaimTaken))));
        assert!(is_taken, "{again:?}");
        let now = bench.memory().now();
        let kept = bench.store.outcome(me().tenant(), "POST /v1/runs", "once", now).await.unwrap();
        let ids: Value = serde_json::from_str(&kept.unwrap().body).unwrap();
        assert_eq!(ids["runId"], "r");
        assert!(matches!(bench.host.runs.get(&me(), "r2").await, Err(RunsError::NotFound)));
        // Another tenant's key is its own.
        bench.host.runs.create(&principal("other"), claimed("r")).await.unwrap();
    }
}

#[tokio::test]
async fn a_read_only_host_runs_nothing() {
    for bench in Bench::both() {
        bench.run("r", NOOP).await;
        bench.create("waiting", NOOP).await;
        let host = bench.again(HostSettings { read_only: true, ..settings() });
        let refused = host.runs.create(&me(), request("x", NOOP)).await;
        assert!(matches!(refused, Err(RunsError::ReadOnly)), "{refused:?}");
        let refused = host.runs.fork(&me(), fork("x", "r", 0)).await;
        assert!(matches!(refused, Err(RunsError::ReadOnly)), "{refused:?}");
        host.runs.settle().await.unwrap();
        assert_eq!(
            host.runs.get(&me(), "waiting").await.unwrap().record.status,
            RunStatus::Pending
        );
        host.runs.events(&me(), "r", None, 0).await.unwrap();
    }
}

#[tokio::test]
async fn a_run_that_takes_too_long_fails() {
    for bench in Bench::both() {
        bench.create("r", ROUNDTRIP).await;
        // What waits for its turn has not begun.
        bench.clock.advance(3_600_000);
        bench.step("r").await;
        bench.clock.advance(30_000);
        bench.finish("r").await;
        assert_eq!(bench.kinds("r").await, "run.started node.started node.failed run.failed");
        assert_eq!(bench.record("r").await.error.unwrap().code, "run_timeout");
        assert_eq!(bench.entries(ROUNDTRIP_REF).await, []);
    }
}

#[tokio::test]
async fn time_in_which_nobody_works_is_not_the_runs() {
    for bench in Bench::both() {
        bench.create("r", ROUNDTRIP).await;
        bench.step("r").await;
        bench.step("r").await;
        bench.clock.advance(3_600_000);
        let host = bench.again(settings());
        finish(&host, &bench.clock, "r").await.unwrap();
        assert_eq!(bench.record("r").await.status, RunStatus::Completed);
        // From then on it is.
        bench.create("late", ROUNDTRIP).await;
        let host = bench.again(settings());
        host.runs.step(me().tenant(), "late").await.unwrap();
        bench.clock.advance(30_000);
        finish(&host, &bench.clock, "late").await.unwrap();
        assert_eq!(bench.record("late").await.error.unwrap().code, "run_timeout");
    }
}

#[tokio::test]
async fn a_run_without_its_events_rests_until_it_is_late() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), None).unwrap();
    let bench = Bench::over(store);
    bench.create("r", ROUNDTRIP).await;
    bench.step("r").await;
    drop(bench);
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
    let file = dir.path().join("icecore.db");
    let damage = rusqlite::Connection::open_with_flags(file, flags).unwrap();
    damage.execute_batch("DELETE FROM run_events WHERE sequence = 1").unwrap();
    drop(damage);
    let bench = Bench::over(Store::open(dir.path(), None).unwrap());
    let refused = bench.host.runs.step(me().tenant(), "r").await.unwrap_err();
    assert!(refused.to_string().contains("icecore check"), "{refused}");
    assert!(bench.host.runs.settle().await.is_err(), "it does not go round for ever");
    bench.clock.advance(30_000);
    bench.finish("r").await;
    assert_eq!(bench.record("r").await.error.unwrap().code, "run_timeout");
}

#[tokio::test]
async fn a_tenant_has_so_many_unfinished_runs() {
    for bench in Bench::both() {
        let host = bench.again(HostSettings { runs_unfinished: 2, ..settings() });
        for id in ["a", "b"] {
            host.runs.create(&me(), request(id, NOOP)).await.unwrap();
        }
        let refused = host.runs.create(&me(), request("c", NOOP)).await;
        let expected =
            RunsError::Memory(MemoryError::Store(StoreError::TooManyRuns { most: 2 })).to_string();
        assert_eq!(refused.unwrap_err().to_string(), expected);
        host.runs.create(&principal("other"), request("c", NOOP)).await.unwrap();
        host.runs.cancel(&me(), "a").await.unwrap();
        host.runs.create(&me(), request("c", NOOP)).await.unwrap();
    }
}

#[tokio::test]
async fn what_was_given_to_a_run_is_forgotten_by_its_time() {
    for bench in Bench::both() {
        let given = async |id: &str| {
            let mut run = request(id, "conformance-identity");
            run.inputs = JsonText::parse(r#"{"note": "she moved to Porto"}"#).unwrap();
            bench.host.runs.create(&me(), run).await.unwrap();
        };
        given("old").await;
        bench.finish("old").await;
        given("open").await;
        bench.clock.advance(1_000);
        let before = ForgetRequest::Before(bench.memory().now());
        given("new").await;
        bench.finish("new").await;
        bench.host.runs.fork(&me(), fork("again", "old", 0)).await.unwrap();

        let forget = async |memory, what: &ForgetRequest, dry| {
            let receipt = bench.memory().forget(&me(), memory, what, dry).await.unwrap();
            receipt.erased.runs
        };
        let kept = |record: &RunRecord| format!("{record:?}").contains("Porto");
        // By its time alone, and of a tenant.
        assert_eq!(forget(Some("notes"), &before, false).await, 0);
        for other in [ForgetRequest::Subject("old".into()), ForgetRequest::Entry("old".into())] {
            assert_eq!(forget(None, &other, false).await, 0);
        }
        assert_eq!(forget(None, &before, true).await, 2);
        assert!(kept(&bench.record("old").await));
        assert_eq!(forget(None, &before, false).await, 2);
        for id in ["old", "again"] {
            let run = bench.store.run(me().tenant(), id).await.unwrap().unwrap();
            assert!(!kept(&run), "{run:?}");
            let refused = bench.host.runs.get(&me(), id).await;
            assert!(matches!(refused, Err(RunsError::Expired { .. })), "{refused:?}");
        }
        for id in ["open", "new"] {
            assert!(kept(&bench.record(id).await), "{id}");
        }
        // What had not ended then goes once it has.
        bench.finish("open").await;
        assert_eq!(forget(None, &before, false).await, 1);
    }
}

#[tokio::test]
async fn an_id_that_somebody_else_took_fails_the_run() {
    for bench in Bench::both() {
        let scope = bench.memory().scope(&me(), ROUNDTRIP_REF).await.unwrap();
        let redactor = bench.memory().redactor(me().tenant()).await.unwrap();
        let entry = icecore_store::NewEntry {
            id: Some("mem-r-recall-1".to_owned()),
            content: redactor.redactor.text("not the run's"),
            tags: Vec::new(),
            expires_at: None,
            now: bench.memory().now(),
            secrets_seen: redactor.version,
            hidden: Default::default(),
            claim: None,
        };
        bench.store.put_entry(&scope, entry).await.unwrap();
        bench.run("r", ROUNDTRIP).await;
        assert_eq!(bench.record("r").await.error.unwrap().code, "memory_conflict");
        assert_eq!(bench.entries(ROUNDTRIP_REF).await[0].content.as_str(), "not the run's");
    }
}

#[tokio::test]
async fn a_secret_that_is_registered_later_is_hidden_in_runs() {
    for bench in Bench::both() {
        let word = "kumquat4711zebra";
        let inputs = json!({"value": word, "other": "plain"}).to_string();
        let mut run = request("r", "conformance-identity");
        run.inputs = JsonText::parse(&inputs).unwrap();
        bench.host.runs.create(&me(), run).await.unwrap();
        bench.finish("r").await;
        assert_eq!(bench.variables("r").await["value"], word);
        let secret = word.to_owned().into();
        bench.memory().add_secret(me().tenant(), "fruit", secret, false).await.unwrap();
        let run = bench.host.runs.get(&me(), "r").await.unwrap();
        assert_eq!(run.variables["value"], "[REDACTED:fruit]");
        assert!(!format!("{run:?}").contains(word));
        bench.host.runs.fork(&me(), fork("f", "r", 0)).await.unwrap();
        assert!(!format!("{:?}", bench.host.runs.get(&me(), "f").await.unwrap()).contains(word));
        // And gone from the store once that was looked through.
        bench.memory().rescan(&me(), false, |_, _| {}).await.unwrap();
        for id in ["r", "f"] {
            let kept = format!("{:?}", bench.store.run(me().tenant(), id).await.unwrap());
            assert!(!kept.contains(word), "{kept}");
            assert_eq!(bench.variables(id).await["value"], "[REDACTED:fruit]");
        }
    }
}

#[tokio::test]
async fn events_are_told_in_pages_and_waited_for() {
    for bench in Bench::both() {
        bench.create("r", NOOP).await;
        let host = &bench.host;
        let none = host.runs.wait_for_events(&me(), "r", None, 0, Duration::ZERO).await.unwrap();
        assert!(none.events.is_empty() && !none.is_complete);
        // The wait ends with the first step, long before its time.
        let day = Duration::from_secs(86_400);
        let me = me();
        let waiting = host.runs.wait_for_events(&me, "r", None, 0, day);
        let (found, stepped) = tokio::join!(waiting, bench.step("r"));
        assert_eq!(stepped, Stepped::On);
        let found = found.unwrap();
        assert_eq!((found.events.len(), found.is_complete), (2, false));
        bench.finish("r").await;
        let page = host.runs.events(&me, "r", Some(0), 3).await.unwrap();
        let sequences: Vec<u64> = page.events.iter().map(|event| event.sequence).collect();
        assert_eq!((sequences, page.is_complete), (vec![1, 2, 3], false));
        let last = host.runs.wait_for_events(&me, "r", Some(3), 3, day).await.unwrap();
        assert_eq!((last.events.len(), last.is_complete), (1, true));
        for after in [4, 5, u64::MAX] {
            let rest = host.runs.wait_for_events(&me, "r", Some(after), 0, day).await.unwrap();
            assert!(rest.events.is_empty() && rest.is_complete);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_engine_works_on_what_comes_and_on_what_was_left() {
    let dir = tempfile::tempdir().unwrap();
    let memory = icecore::Memory::open(dir.path()).await.unwrap();
    let host = icecore_host::Host::new(memory, settings());
    host.runs.create(&me(), request("left", NOOP)).await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let working = host.clone();
    let engine = tokio::spawn(async move {
        working.run_until(async { drop(stopped.await) }).await;
    });
    for number in 0..20 {
        let workflow = if number % 5 == 0 { TTL } else { ROUNDTRIP };
        host.runs.create(&me(), request(&format!("r{number}"), workflow)).await.unwrap();
    }
    let ids = (0..20).map(|number| format!("r{number}")).chain(["left".to_owned()]);
    let minute = Duration::from_secs(60);
    for id in ids {
        let mut after = None;
        loop {
            let found = host.runs.wait_for_events(&me(), &id, after, 0, minute).await.unwrap();
            assert!(found.is_complete || !found.events.is_empty(), "{id} got stuck");
            after = found.events.last().map(|event| event.sequence).or(after);
            if found.is_complete {
                break;
            }
        }
        let run = host.runs.get(&me(), &id).await.unwrap();
        assert_eq!(run.record.status, RunStatus::Completed, "{:?}", run.record.error);
    }
    stop.send(()).unwrap();
    engine.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_waits_holds_up_no_other() {
    // The clock stands: what waits does so until it is moved.
    let bench = Bench::new();
    for number in 0..40 {
        bench.create(&format!("r{number}"), TTL).await;
    }
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let working = bench.host.clone();
    let engine = tokio::spawn(async move {
        working.run_until(async { drop(stopped.await) }).await;
    });
    let minute = Duration::from_secs(60);
    let other = principal("other");
    bench.host.runs.create(&other, request("r", NOOP)).await.unwrap();
    let reach = async |who: &icecore::Principal, id: &str, kind: &str| {
        let mut after = None;
        loop {
            let host = &bench.host;
            let found = host.runs.wait_for_events(who, id, after, 0, minute).await.unwrap();
            assert!(!found.events.is_empty(), "{id} does not come to {kind}");
            if found.events.iter().any(|event| event.kind == kind) {
                break;
            }
            after = found.events.last().map(|event| event.sequence);
        }
    };
    reach(&other, "r", "run.completed").await;
    for number in 0..40 {
        reach(&me(), &format!("r{number}"), "memory.written").await;
    }
    assert_eq!(bench.record("r0").await.status, RunStatus::Running);
    bench.clock.advance(1_000);
    for number in 0..40 {
        reach(&me(), &format!("r{number}"), "run.completed").await;
    }
    stop.send(()).unwrap();
    engine.await.unwrap();
}

#[tokio::test]
async fn runs_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Store::open(dir.path(), None).unwrap();
    let bench = Bench::over(open());
    bench.create("r", ROUNDTRIP).await;
    bench.step("r").await;
    bench.step("r").await;
    drop(bench);
    let bench = Bench::over(open());
    bench.finish("r").await;
    assert_eq!(bench.record("r").await.status, RunStatus::Completed);
    let scope = bench.memory().scope(&me(), ROUNDTRIP_REF).await.unwrap();
    let found = bench.memory().entries(&scope, &EntryQuery::default()).await.unwrap().entries;
    assert_eq!(found.len(), 2);
    let problems = bench.store.check().await.unwrap();
    assert_eq!(problems, Vec::<String>::new());
    let entry = NewEntryRequest { content: "still works".into(), ..NewEntryRequest::default() };
    bench.memory().put_entry(&scope, entry).await.unwrap();
}

#[tokio::test]
async fn a_run_that_was_made_before_ends_with_its_dream_and_is_not_dreamt_twice() {
    let bench = Bench::new();
    bench.put("m", "The build server is called Osprey.").await;
    bench.put("m", "Deploys happen on Tuesdays only.").await;
    let scope = bench.memory().scope(&me(), "m").await.unwrap();
    let dream = || DreamRequest { run: Some("night-1".to_owned()), ..DreamRequest::manual(None) };
    bench.create("night-1", DREAM_WORKFLOW).await;
    let done = bench.memory().dream(&scope, dream(), |_| {}).await.unwrap();
    assert_eq!(done.record.run, "night-1");
    let run = bench.record("night-1").await;
    assert_eq!(run.status, RunStatus::Completed);
    assert_eq!(run.variables[0].name, "dream");
    bench.put("m", "The tents are blue.").await;
    let again = bench.memory().dream(&scope, dream(), |_| {}).await.unwrap();
    assert_eq!((again.record, again.payload), (done.record, done.payload));
}
