//! Secrets: whatever a host is given, they are nowhere afterwards.

use std::collections::BTreeSet;

use icecore::formats::json::JsonText;
use icecore::ingest::Claim;
use icecore::knowledge::NewEntryRequest;
use icecore::privacy::Redactor;
use icecore::{Millis, RawTurn};
use icecore_host::Host;
use icecore_host::commitments::{CommitmentRequest, ConditionRequest, IntentionRequest};
use icecore_host::keys::{ApiKeyRecord, KeyActor, KeyRevocation, KeyRotation};
use icecore_host::outcomes::{NewOutcome, OutcomeBody};
use icecore_host::runs::{ForkRequest, RunRequest, Stepped};
use icecore_host::schedules::{ScheduleRequest, TimingRequest};
use icecore_host::settings::HostSettings;
use icecore_host::workspace::{FileMatch, FileWrite};
use zeroize::Zeroizing;

use crate::bench::{Bench, START, me};
use crate::scan::Findings;

/// A value that no pattern knows.
const REGISTERED: &str = "kumquat4711zebraParade";

/// Public methods of a host's parts that write nothing that a caller gave.
#[rustfmt::skip]
const READS: &[&str] = &[
    "Bounds::new", "Bounds::admit_request", "Bounds::usage", "Bounds::all_usage", "Bounds::refusals", "Bounds::settings", "Bounds::write",
    "Commitments::settings", "Commitments::get", "Commitments::list",
    "Files::settings", "Files::shown", "Files::get", "Files::list",
    "Keys::new", "Keys::list", "Keys::find", "Outcomes::find", "Outcomes::grounds",
    "Runs::workflows", "Runs::get", "Runs::events", "Runs::wait_for_events",
    "Schedules::settings", "Schedules::get", "Schedules::list", "Schedules::next_ticks", "Schedules::ticks",
];

/// Those that do. Each has a case in [`write`].
#[rustfmt::skip]
const WRITES: &[&str] = &[
    "Commitments::add", "Commitments::cancel", "Commitments::fire_due", "Files::put", "Files::delete",
    "Keys::add", "Keys::revoke", "Keys::rotate", "Keys::log_denied", "Outcomes::put",
    "Runs::create", "Runs::cancel", "Runs::fork", "Runs::settle", "Runs::step", "Runs::expire",
    "Schedules::add", "Schedules::remove", "Schedules::pause", "Schedules::resume", "Schedules::fire_due", "Schedules::fire",
];

/// A credential that a pattern knows.
fn token() -> String {
    let kind = Redactor::kinds().iter().find(|kind| kind.id == "github-token").unwrap();
    kind.sample(4711)
}

/// Both, as they might be written down.
fn secrets() -> String {
    format!("{} and {REGISTERED}", token())
}

async fn bench() -> Bench {
    let bench = Bench::with(HostSettings { conformance: true, ..HostSettings::default() }).await;
    let value = Zeroizing::new(REGISTERED.to_owned());
    bench.memory.add_secret(me().tenant(), "fruit", value, false).await.unwrap();
    bench
}

/// The public methods of a host's parts, from the source.
fn public_methods() -> BTreeSet<String> {
    const PARTS: [&str; 7] =
        ["Bounds", "Commitments", "Files", "Keys", "Outcomes", "Runs", "Schedules"];
    let mut names = BTreeSet::new();
    let mut paths = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().path()));
            continue;
        }
        let source = std::fs::read_to_string(&path).unwrap();
        let mut part = None;
        for line in source.lines() {
            if line.starts_with("impl") {
                part = PARTS.into_iter().find(|part| line == format!("impl {part} {{"));
            }
            let method =
                line.strip_prefix("    pub async fn ").or(line.strip_prefix("    pub fn "));
            if let (Some(part), Some(method)) = (part, method) {
                names.insert(format!("{part}::{}", method.split(['(', '<']).next().unwrap()));
            }
        }
    }
    names
}

#[test]
fn every_public_method_is_a_read_or_has_a_redaction_case() {
    let known: BTreeSet<String> = READS.iter().chain(WRITES).map(|&name| name.to_owned()).collect();
    assert_eq!(public_methods(), known, "add a case to `write` for what writes");
}

#[tokio::test]
async fn no_write_lets_a_secret_through() {
    for name in WRITES {
        let bench = bench().await;
        write(&bench, name).await;
        bench.settle().await;
        let found = Findings::of(bench.dir.path(), &bench.memory).await;
        assert!(found.count("the table") > 0);
        assert_eq!(found.leaks(&[secrets()]), Vec::<String>::new(), "after `{name}`");
        bench.check().await;
    }
}

/// A turn that holds secrets.
fn telling() -> RawTurn {
    let secret = secrets();
    RawTurn { name: Some(secret.clone()), ..RawTurn::new(&secret, &secret) }
}

/// Uses a method with secrets in everything that it takes.
async fn write(bench: &Bench, name: &str) {
    let (host, memory, scope, secret) = (&bench.host, &bench.memory, &bench.scope, secrets());
    match name {
        "Schedules::add" | "Schedules::fire_due" | "Schedules::fire" => {
            let line = ScheduleRequest::cron(&secret);
            assert!(host.schedules.add(scope, line).await.is_err());
            let timezone = Some(secret.clone());
            let timing = TimingRequest::Cron { line: "@hourly".to_owned(), timezone };
            let zone = ScheduleRequest { timing, ..ScheduleRequest::cron("") };
            assert!(host.schedules.add(scope, zone).await.is_err());
            let named = memory.scope(&me(), &secret).await.unwrap();
            let request = ScheduleRequest::cron("@hourly");
            let made = host.schedules.add(&named, request).await.unwrap();
            memory.remember(&named, &secret, vec![telling()]).await.unwrap();
            bench.clock.move_to(Millis(START + 3_600_000));
            match name {
                "Schedules::fire_due" => {
                    assert_eq!(host.schedules.fire_due().await.unwrap(), 1);
                }
                "Schedules::fire" => {
                    let now = memory.now();
                    let fired = host.schedules.fire(me().tenant(), &made.id, now).await;
                    assert_eq!(fired.unwrap(), 1);
                }
                _ => {}
            }
        }
        "Keys::log_denied" => {
            let payload = serde_json::json!({ "routes": [secret] }).to_string();
            host.keys.log_denied(me().tenant(), &payload, memory.now()).await.unwrap();
        }
        "Outcomes::put" => {
            for body in [OutcomeBody::Ids, OutcomeBody::Text] {
                let outcome = NewOutcome {
                    claim: Claim {
                        operation: "POST /x".to_owned(),
                        key: "k".to_owned(),
                        request: [0; 32],
                        code: 200,
                    },
                    body: body(secret.clone()),
                };
                host.outcomes.put(me().tenant(), outcome).await.unwrap();
            }
        }
        "Keys::add" | "Keys::revoke" | "Keys::rotate" => {
            let (tenant, at) = (me().tenant().clone(), memory.now());
            let key = ApiKeyRecord {
                id: "a".to_owned(),
                tenant: tenant.clone(),
                role: "writer".to_owned(),
                name: Some(memory.shown(&tenant, &secret)),
                created_at: at,
                expires_at: None,
                revoked_at: None,
            };
            host.keys.add(key, [1; 32], KeyActor::Operator).await.unwrap();
            let (id, tenant, by) = ("a".to_owned(), Some(tenant), KeyActor::Operator);
            match name {
                "Keys::revoke" => {
                    let revocation = KeyRevocation { id, tenant, keeps_an_admin: false, by, at };
                    host.keys.revoke(revocation).await.unwrap();
                }
                "Keys::rotate" => {
                    let rotation = KeyRotation {
                        id,
                        tenant,
                        new_id: "b".to_owned(),
                        new_hash: [2; 32],
                        overlap_millis: 0,
                        last_admin_overlap_millis: 0,
                        by,
                        at,
                    };
                    host.keys.rotate(rotation).await.unwrap();
                }
                _ => {}
            }
        }
        "Schedules::pause" => drop(host.schedules.pause(me().tenant(), &secret).await.unwrap()),
        "Schedules::resume" => drop(host.schedules.resume(me().tenant(), &secret).await.unwrap()),
        "Schedules::remove" => {
            assert!(!host.schedules.remove(me().tenant(), &secret).await.unwrap());
        }
        "Commitments::add" | "Commitments::fire_due" | "Commitments::cancel" => {
            let when = ConditionRequest::Predicate {
                tag: Some(secret.clone()),
                mentions: Some(secret.clone()),
            };
            let intention = IntentionRequest::Text(secret.clone());
            let request = CommitmentRequest { intention, condition: when.clone(), claim: None };
            let made = host.commitments.add(scope, request).await.unwrap();
            let intention = IntentionRequest::Entry(secret.clone());
            let request = CommitmentRequest { intention, condition: when, claim: None };
            hides(host.commitments.add(scope, request).await.map(drop));
            assert!(!host.commitments.cancel(scope.tenant(), &secret).await.unwrap());
            if name == "Commitments::fire_due" {
                let (content, tags) = (secret.clone(), vec![secret.clone()]);
                let entry = NewEntryRequest { content, tags, ..NewEntryRequest::default() };
                memory.put_entry(scope, entry).await.unwrap();
                host.commitments.fire_due().await.unwrap();
            } else if name == "Commitments::cancel" {
                assert!(host.commitments.cancel(scope.tenant(), &made.id).await.unwrap());
            }
        }
        "Files::put" | "Files::delete" => {
            write_files(host, &secret).await;
            if name == "Files::delete" {
                host.files.delete(&me(), "notes.md", &FileMatch::Anything).await.unwrap();
            }
        }
        "Runs::create" | "Runs::cancel" | "Runs::fork" | "Runs::settle" | "Runs::step"
        | "Runs::expire" => write_runs(bench, name, &secret).await,
        _ => panic!("`{name}` writes and has no redaction case"),
    }
}

/// Files with secrets in content, content type, path and tag; and deleted so.
async fn write_files(host: &Host, secret: &str) {
    let write = |path: &str, content_type: Option<String>, tags: &[&str]| FileWrite {
        path: path.to_owned(),
        content: format!("first {secret}\n{secret}"),
        content_type,
        expect: match tags {
            [] => FileMatch::Anything,
            tags => FileMatch::Tags(tags.iter().map(|&tag| tag.to_owned()).collect()),
        },
        claim: None,
    };
    let file = host.files.put(&me(), write("notes.md", None, &[])).await.unwrap();
    assert!(file.content.contains("[REDACTED:fruit]"), "{}", file.content);
    for path in [secret.to_owned(), token(), format!("notes/{REGISTERED}.md")] {
        hides(host.files.put(&me(), write(&path, None, &[])).await.map(drop));
        hides(host.files.get(&me(), &path, None).await.map(drop));
        hides(host.files.delete(&me(), &path, &FileMatch::Anything).await);
    }
    for content_type in [secret.to_owned(), format!("text/{REGISTERED}")] {
        let written = host.files.put(&me(), write("notes.md", Some(content_type), &[])).await;
        assert!(written.is_err());
        hides(written.map(drop));
    }
    hides(host.files.put(&me(), write("notes.md", None, &[secret])).await.map(drop));
    assert_eq!(host.files.list(&me(), secret).await.unwrap(), []);
}

/// Runs with secrets in all that they are given, and what repeats them.
async fn write_runs(bench: &Bench, name: &str, secret: &str) {
    let runs = &bench.host.runs;
    let json = serde_json::json!({ secret: [secret] }).to_string();
    let request = |id: &str, workflow: &str| RunRequest {
        id: id.to_owned(),
        workflow_id: workflow.to_owned(),
        inputs: JsonText::parse(&json).unwrap(),
        configurable: Some(JsonText::parse(&json).unwrap()),
        principal_id: secret.to_owned(),
        claim: None,
    };
    hides(runs.create(&me(), request(secret, "conformance-identity")).await.map(drop));
    hides(runs.create(&me(), request("r", secret)).await.map(drop));
    // An id may be a credential too.
    for id in ["r".to_owned(), token()] {
        let made = runs.create(&me(), request(&id, "conformance-identity")).await.unwrap();
        assert!(made.inputs.json().as_str().contains("[REDACTED:fruit]"), "{made:?}");
        hides(runs.create(&me(), request(&id, "conformance-identity")).await.map(drop));
        match name {
            "Runs::create" => continue,
            "Runs::cancel" => drop(runs.cancel(&me(), &id).await.unwrap()),
            "Runs::step" => while runs.step(me().tenant(), &id).await.unwrap() != Stepped::Ended {},
            _ => runs.settle().await.unwrap(),
        }
        let fork = |to: &str, source: &str| ForkRequest {
            id: to.to_owned(),
            source: source.to_owned(),
            from_seq: 0,
            claim: None,
        };
        runs.fork(&me(), fork(&format!("again-{id}"), &id)).await.unwrap();
        hides(runs.fork(&me(), fork(secret, &id)).await.map(drop));
        hides(runs.fork(&me(), fork("f", secret)).await.map(drop));
        let told = format!("{:?}", runs.get(&me(), &id).await.unwrap());
        assert!(!told.contains(REGISTERED) && !told.contains(&token()), "{told}");
    }
    if name == "Runs::expire" {
        bench.clock.advance(8 * 24 * 3_600_000);
        assert_eq!(runs.expire().await.unwrap(), 4);
    }
}

/// An error may come of it, but tells no secret.
fn hides<E: std::error::Error>(done: Result<(), E>) {
    if let Err(error) = done {
        let told = format!("{error} {error:?}");
        assert!(!told.contains(&token()) && !told.contains(REGISTERED), "{told}");
    }
}
