//! Backups and migrations, with real processes that write meanwhile or are killed.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use insta::assert_snapshot;

use crate::run::{Place, conversation, files, is_root};
use crate::serve;
use crate::signals::signal;

/// A memory with cold packs, a dream and its archive, a fact and a secret.
fn filled(turns: usize) -> Place {
    let place = Place::new();
    let file = place.file("c.jsonl", conversation(turns));
    place.ok(&["import", &file]);
    place.ok(&["learn", "add", "The glacier is in Norway."]);
    place.ok(&["dream", "--budget", "4000"]);
    place
}

/// A file beside the data.
fn beside(place: &Place, name: &str) -> String {
    place.dir.path().join(name).display().to_string()
}

/// A directory beside the data that has the same master key.
fn like(place: &Place, name: &str) -> String {
    let dir = place.dir.path().join(name);
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::copy(place.data().join("master.key"), dir.join("master.key")).unwrap();
    dir.display().to_string()
}

/// What is asked of a memory before and after, as bytes.
fn answers(place: &Place, data: &str) -> Vec<String> {
    let ask = |args: &[&str]| place.ok(&[args, &["--data", data, "--json"]].concat());
    vec![
        ask(&["search", "glacier number 17", "--limit", "20"]),
        ask(&["search", "which moraine is it about?", "--mode", "lexical"]),
        ask(&["context", "--budget", "900", "--query", "glacier 3"]),
        ask(&["context", "--budget", "400"]),
        ask(&["learn"]),
        ask(&["sessions"]),
        place.ok(&["export", "--all", "--data", data]),
    ]
}

fn is_clean(place: &Place, data: &str) {
    let checked = place.output(&["check", "--json", "--data", data]);
    assert!(checked.status.success(), "{}", place.describe(&checked));
}

/// Without what differs from run to run.
fn plain(text: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for line in &mut lines {
        if let Some((_, place)) = line.split_once(" in [DIR]") {
            *line = format!("[SIZE] in [DIR]{place}");
        }
        if let Some((before, after)) = line.split_once(" rows in all") {
            let before = before.rsplit_once(' ').map_or("", |(before, _)| before);
            *line = format!("{before} [N] rows in all{after}");
        }
        if let Some((_, rest)) = line.split_once("It is as it was at ") {
            let rest = rest.split_once(": ").map_or("", |(_, rest)| rest);
            *line = format!("It is as it was at [TIME]: {rest}");
        }
    }
    lines.join("\n")
}

#[test]
fn what_was_backed_up_answers_the_same_elsewhere() {
    let place = filled(330);
    let (file, data) = (beside(&place, "b"), place.data().display().to_string());
    assert_snapshot!(plain(&place.shown(&["backup", &file])));
    let before = answers(&place, &data);
    let there = like(&place, "there");
    assert_snapshot!(plain(&place.shown(&["restore", &file, "--data", &there])));
    is_clean(&place, &there);
    assert_eq!(answers(&place, &there), before);
    let events = place.ok(&["events", "--json", "--data", &there]);
    assert!(events.contains("memory.restored"), "{events}");
    // It goes on from there.
    place.ok(&["add", "--session", "new", "And then it snowed.", "--data", &there]);
    place.ok(&["reindex", "--data", &there]);
    is_clean(&place, &there);
    // One memory by itself, with another master key.
    let (ops, third) = (beside(&place, "ops"), beside(&place, "third"));
    place.ok(&["add", "--memory", "ops", "The pager is red."]);
    place.ok(&["backup", &ops, "--memory", "ops"]);
    let key = place.data().join("master.key").display().to_string();
    place.ok(&["restore", &ops, "--data", &third, "--key-file", &key]);
    is_clean(&place, &third);
    let found = place.ok(&["search", "pager", "--memory", "ops", "--data", &third]);
    assert!(found.contains("The pager is red."), "{found}");
    assert!(place.ok(&["export", "--data", &third]).is_empty());
}

#[test]
fn what_cannot_be_restored_is_refused_and_changes_nothing() {
    let place = filled(120);
    let file = beside(&place, "b");
    place.ok(&["backup", &file]);
    let whole = std::fs::read(&file).unwrap();
    let cut = place.file("cut", &whole[..whole.len() / 2]);
    let mut flipped = whole.clone();
    flipped[whole.len() / 3] ^= 4;
    let flipped = place.file("flipped", &flipped);
    let list = place.file("list", "milk, eggs\n");
    let there = like(&place, "there");
    let mut shown = String::new();
    let fresh = beside(&place, "fresh");
    for args in [
        &["backup", &file][..],
        &["backup", &beside(&place, "x"), "--memory", "nothing"],
        &["backup", &beside(&place, "x"), "--all", "--memory", "ops"],
        &["restore", &file],
        &["restore", &cut, "--data", &there],
        &["restore", &flipped, "--data", &there],
        &["restore", &list, "--data", &there],
        &["restore", &beside(&place, "nowhere"), "--data", &there],
        &["restore", &file, "--data", &fresh],
        &["restore", &file, "--data", &there, "--tenant", "other"],
    ] {
        shown.push_str(&format!("{}\n\n", place.shown(args).trim_end()));
    }
    assert_snapshot!(shown);
    // Not even a store was made.
    assert_eq!(files(PathBuf::from(&there).as_path()).len(), 1);
    assert!(!PathBuf::from(fresh).exists());
    place.check();
}

#[test]
fn a_backup_beside_a_host_that_writes_is_whole() {
    let place = filled(210);
    let mut host = serve::start(&place);
    let (ends, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::SeqCst) {
                let number = written.load(Ordering::SeqCst);
                let turns: Vec<String> = (0..20)
                    .map(|n| format!("{{\"role\":\"user\",\"content\":\"turn {number}.{n}\"}}"))
                    .collect();
                let body = format!("{{\"turns\":[{}]}}", turns.join(","));
                let answer = host.ask("POST", "/v1/host/icecore/sessions/live/turns", &body);
                assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
                written.fetch_add(1, Ordering::SeqCst);
            }
        });
        for number in 0..4 {
            let before = written.load(Ordering::SeqCst);
            // Something is written before each.
            while written.load(Ordering::SeqCst) < before + 3 {
                std::thread::yield_now();
            }
            let file = beside(&place, &format!("b{number}"));
            place.ok(&["backup", &file]);
            let there = like(&place, &format!("there{number}"));
            place.ok(&["restore", &file, "--data", &there]);
            is_clean(&place, &there);
            let turns = place.ok(&["export", "--session", "live", "--data", &there]);
            // Whole appends, at least those that were answered before.
            let count = turns.lines().count() as u64;
            assert!(count.is_multiple_of(20) && count / 20 > before, "{count}, {before}");
        }
        ends.store(true, Ordering::SeqCst);
    });
    signal(&host.child, "TERM");
    assert!(host.child.wait().unwrap().success());
    place.check();
}

/// How often each is killed; `ICECORE_KILLS=100` for long.
fn kills() -> u64 {
    std::env::var("ICECORE_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(5)
}

/// Runs a command and kills it after so long, unless it was done before.
fn killed(command: &mut Command, millis: u64) -> bool {
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(millis));
    let _ = child.kill();
    !child.wait().unwrap().success()
}

#[test]
fn a_restore_that_is_killed_leaves_nothing_or_all() {
    let place = filled(3_000);
    let file = beside(&place, "b");
    place.ok(&["backup", &file]);
    let before = place.ok(&["export", "--all"]);
    for round in 0..kills() {
        let there = like(&place, &format!("there{round}"));
        let args = ["restore", &file, "--data", &there, "-q"];
        killed(&mut place.command(&args), 20 + round * 7_919 % 600);
        is_clean(&place, &there);
        let found = place.ok(&["export", "--all", "--data", &there]);
        assert!(found.is_empty() || found == before);
        if found.is_empty() {
            place.ok(&args);
        }
        assert_eq!(place.ok(&["export", "--all", "--data", &there]), before);
        is_clean(&place, &there);
    }
}

#[test]
fn a_migration_that_is_killed_goes_on_and_nobody_uses_its_half() {
    let place = filled(3_000);
    place.ok(&["add", "--tenant", "other", "Somebody else is here."]);
    let from = format!("sqlite:{}", place.data().display());
    let before = answers(&place, &place.data().display().to_string());
    let there = beside(&place, "there");
    let to = format!("sqlite:{there}");
    let args = ["migrate", "--from", &from, "--to", &to, "-q"];
    let mut halves = 0;
    for round in 0..kills() {
        if !killed(&mut place.command(&args), 40 + round * 7_919 % 300) {
            break;
        }
        let looked = place.output(&["stats", "--data", &there]);
        let shown = place.describe(&looked);
        // Before it was begun there is an empty store.
        if !looked.status.success() {
            halves += 1;
            assert!(
                shown.contains("error: the store is being filled from sqlite:[DIR]"),
                "{shown}"
            );
            assert!(shown.contains("hint: run `icecore migrate` again"), "{shown}");
            assert_eq!(looked.status.code(), Some(1));
        }
    }
    // The last may have come to its end before it was killed.
    let last = place.output(&[&args[..], &["--json"]].concat());
    let shown = place.describe(&last);
    match last.status.success() {
        true => {
            let report: serde_json::Value = serde_json::from_slice(&last.stdout).unwrap();
            assert_eq!(report["rows"]["turns"], 3_001, "{shown}");
            assert_eq!(report["resumed"], halves > 0, "{shown}");
        }
        false => assert!(shown.contains("error: the target is not empty"), "{shown}"),
    }
    is_clean(&place, &there);
    assert_eq!(answers(&place, &there), before);
    place.check();
    // It has a key of its own.
    let key = |dir: PathBuf| std::fs::read(dir.join("master.key")).unwrap();
    assert_ne!(key(PathBuf::from(&there)), key(place.data()));
}

#[test]
fn migrations_that_make_no_sense_are_refused() {
    let place = filled(30);
    let from = format!("sqlite:{}", place.data().display());
    let nowhere = format!("sqlite:{}", beside(&place, "nowhere"));
    let taken = beside(&place, "taken");
    place.ok(&["add", "Mine.", "--data", &taken]);
    let taken = format!("sqlite:{taken}");
    let objects = format!("file://{}", place.data().display());
    let mut shown = String::new();
    for args in [
        &["migrate", "--from", &nowhere, "--to", &from][..],
        &["migrate", "--from", &from, "--to", &from],
        &["migrate", "--from", &from, "--to", &nowhere, "--to-objects", &objects],
        &["migrate", "--from", &from, "--to", &taken],
        &["migrate", "--from", &from, "--to", "mongodb://me:hunter2@host/db"],
        &["migrate", "--from", &from],
    ] {
        shown.push_str(&format!("{}\n\n", place.shown(args).trim_end()));
    }
    assert!(!shown.contains("hunter2"));
    assert_snapshot!(shown);
    place.check();
}

#[test]
fn a_backup_that_finds_the_disk_full_leaves_nothing() {
    let place = filled(400);
    let disk = place.dir.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let run = |args: &[&str]| -> Option<Output> {
        Command::new(args[0]).args(&args[1..]).output().ok().filter(|out| out.status.success())
    };
    let path = disk.display().to_string();
    if !is_root() || run(&["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", &path]).is_none() {
        eprintln!("skipped: a small disk can only be mounted by root");
        return;
    }
    let file = disk.join("b").display().to_string();
    let output = place.output(&["backup", &file]);
    let left = files(&disk).len();
    run(&["umount", &path]).unwrap();
    let shown = place.describe(&output);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("the disk is full"), "{shown}");
    assert_eq!(left, 0);
    place.check();
}
