//! Stores that are not as they should be.

use insta::assert_snapshot;

use crate::run::{Place, conversation, files, is_root};

fn settled(turns: usize) -> Place {
    let place = Place::new();
    let file = place.file("c.jsonl", conversation(turns));
    place.ok(&["import", &file]);
    place
}

fn pack(place: &Place) -> std::path::PathBuf {
    let mut packs = files(&place.data().join("packs"));
    packs.sort();
    packs.remove(0)
}

/// Text with the random name of a pack replaced.
fn without_name(text: &str) -> String {
    let (before, rest) = text.split_once("pack `").unwrap();
    let (_, after) = rest.split_once('`').unwrap();
    format!("{before}pack `[NAME]`{after}")
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test damages the file from outside")]
fn a_store_from_the_future() {
    let place = settled(3);
    let db = rusqlite::Connection::open(place.data().join("icecore.db")).unwrap();
    db.execute_batch("PRAGMA user_version = 99").unwrap();
    drop(db);
    assert_snapshot!(place.shown(&["stats"]), @r"
    exit 1
    --- stderr
    error: the store has schema version 99, and this program knows up to 15
    hint: use the newer icecore that wrote it; nothing was changed
    ");
    let checked = place.output(&["check", "--json"]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(String::from_utf8(checked.stdout).unwrap().starts_with("{\"ok\":false"));
}

#[test]
fn a_file_that_is_no_store() {
    let place = Place::new();
    std::fs::create_dir_all(place.data()).unwrap();
    std::fs::write(place.data().join("icecore.db"), "This is a shopping list.\n".repeat(300))
        .unwrap();
    assert_snapshot!(place.shown(&["stats"]), @r"
    exit 1
    --- stderr
    error: `[DIR]/data/icecore.db` is not an Icecore store
    hint: choose another directory with --data
    ");
}

#[test]
fn a_corrupt_page() {
    let place = settled(600);
    let path = place.data().join("icecore.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 4096].fill(0xA5);
    std::fs::write(&path, bytes).unwrap();
    let checked = place.output(&["check"]);
    let shown = place.describe(&checked);
    assert_eq!(checked.status.code(), Some(1), "{shown}");
    assert!(shown.contains("damaged") && shown.contains("hint:"), "{shown}");
}

#[test]
fn a_corrupt_pack() {
    let place = settled(257);
    let path = pack(&place);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    for args in [&["check"][..], &["archive", "verify"]] {
        let output = place.output(args);
        let shown = place.describe(&output);
        assert_eq!(output.status.code(), Some(1), "{shown}");
        assert!(shown.contains("damaged: pack `") && shown.contains("is damaged: "), "{shown}");
    }
    let exported = place.output(&["export"]);
    assert_eq!(exported.status.code(), Some(1));
    // What can be read is not hidden by what cannot.
    assert!(place.ok(&["context", "--budget", "500"]).contains("Turn 257"));
}

#[test]
fn a_missing_pack() {
    let place = settled(257);
    assert_eq!(place.json(&["archive", "list"])["packs"].as_array().unwrap().len(), 2);
    std::fs::remove_file(pack(&place)).unwrap();
    let shown = without_name(&place.shown(&["check"]));
    let shown = shown.replace("1 to 100", "[TURNS]").replace("101 to 200", "[TURNS]");
    assert_snapshot!(shown, @r"
    exit 1
    --- stdout
    damaged: pack `[NAME]` is missing (turns [TURNS] of session 1)
    --- stderr
    hint: what is named is damaged, the rest is whole; restore it from a backup
    ");
    let verified = place.output(&["archive", "verify", "--json"]);
    assert_eq!(verified.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert_eq!((&report["ok"], report["problems"].as_array().unwrap().len()), (&false.into(), 1));
}

#[test]
fn a_master_key_that_is_missing_or_wrong() {
    let place = settled(3);
    let wrong =
        place.command(&["stats"]).env("ICECORE_MASTER_KEY", "ab".repeat(32)).output().unwrap();
    assert_snapshot!(place.describe(&wrong), @r"
    exit 1
    --- stderr
    error: the master key from ICECORE_MASTER_KEY is not the one this store was sealed with
    hint: use the key that belongs to this store: the newest if it was rotated, from the file or ICECORE_MASTER_KEY or your backup; nothing was changed
    ");
    let short = place.command(&["stats"]).env("ICECORE_MASTER_KEY", "abc").output().unwrap();
    assert_snapshot!(place.describe(&short), @r"
    exit 1
    --- stderr
    error: the master key from ICECORE_MASTER_KEY is not 64 hexadecimal digits
    hint: use the key that belongs to this store, from your backup; nothing was changed
    ");
    let key = place.data().join("master.key");
    let kept = std::fs::read(&key).unwrap();
    std::fs::remove_file(&key).unwrap();
    assert_snapshot!(place.shown(&["add", "x"]), @r"
    exit 1
    --- stderr
    error: the master key `[DIR]/data/master.key` is missing, and the store was sealed with it
    hint: put the file back at `[DIR]/data/master.key` from your backup, or set ICECORE_MASTER_KEY; nothing was changed
    ");
    assert!(!key.exists());
    std::fs::write(&key, kept).unwrap();
    place.check();
}

#[test]
fn a_directory_that_cannot_be_written() {
    if is_root() {
        eprintln!("skipped: root may write anywhere");
        return;
    }
    let place = Place::new();
    std::fs::create_dir_all(place.data()).unwrap();
    let mut rights = std::fs::metadata(place.data()).unwrap().permissions();
    rights.set_readonly(true);
    std::fs::set_permissions(place.data(), rights).unwrap();
    let output = place.output(&["add", "x"]);
    assert_eq!(output.status.code(), Some(1), "{}", place.describe(&output));
    assert!(place.describe(&output).contains("hint:"));
}

#[test]
fn a_directory_of_another_user() {
    if !is_root() {
        eprintln!("skipped: only root can give a directory away");
        return;
    }
    let place = settled(3);
    std::os::unix::fs::chown(place.data(), Some(12345), None).unwrap();
    assert_snapshot!(place.shown(&["add", "x"]), @r"
    exit 1
    --- stderr
    error: the data directory `[DIR]/data` belongs to user 12345, and this is user 0
    hint: run as the owner of `[DIR]/data`, or choose another directory with --data
    ");
}

#[test]
fn a_full_disk() {
    let place = Place::new();
    std::fs::create_dir_all(place.data()).unwrap();
    let mount = |args: &[&str]| {
        std::process::Command::new(args[0])
            .args(&args[1..])
            .output()
            .is_ok_and(|o| o.status.success())
    };
    let data = place.data().display().to_string();
    if !is_root() || !mount(&["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "tmpfs", &data]) {
        eprintln!("skipped: a small disk can only be mounted by root");
        return;
    }
    let file = place.file("c.jsonl", conversation(40_000));
    let output = place.output(&["import", &file]);
    let shown = place.describe(&output);
    let ballast = place.data().join("ballast");
    let _ = std::fs::remove_file(&ballast);
    // Reading works on a full disk, and finds everything whole.
    let checked = place.output(&["check", "--json"]);
    let count = place.output(&["stats", "--json"]);
    assert!(mount(&["umount", &data]));
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("the disk is full") && shown.contains("hint:"), "{shown}");
    assert!(checked.status.success(), "{}", place.describe(&checked));
    assert!(count.status.success(), "{}", place.describe(&count));
}
