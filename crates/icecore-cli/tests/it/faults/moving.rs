//! Stores that are filled while something else happens.

use super::*;

#[test]
fn a_migration_to_postgres_that_is_killed_goes_on_and_nobody_uses_its_half() {
    let Some(database) = prepared_database() else { return };
    let site = Site::new(database.url());
    let file = site.place.file("c.jsonl", conversation(3_000));
    site.place.ok(&["import", &file, "--session", "talk", "-q"]);
    let before = site.place.ok(&["export", "--all"]);
    let from = format!("sqlite:{}", site.place.data().display());
    let there = site.place.dir.path().join("there").display().to_string();
    let command = |args: &[&str]| {
        let mut command = site.command(args);
        command.env("ICECORE_DATA", &there);
        command
    };
    let args = ["migrate", "--from", &from, "--to", &site.url, "-q"];
    let (mut halves, mut state) = (0, 99);
    for _ in 0..kills() {
        let mut child = command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(100 + random(&mut state) % 400));
        let _ = child.kill();
        if child.wait().unwrap().success() {
            break;
        }
        let looked = command(&["stats"]).output().unwrap();
        let shown = site.place.describe(&looked);
        // Before it was begun there is an empty store.
        if !looked.status.success() {
            halves += 1;
            assert!(
                shown.contains("error: the store is being filled from sqlite:[DIR]"),
                "{shown}"
            );
            assert!(shown.contains("hint: run `icecore migrate` again"), "{shown}");
        }
    }
    eprintln!("{halves} of {} migrations were killed half way", kills());
    // The last may have come to its end before it was killed.
    let last = command(&args).output().unwrap();
    let shown = site.place.describe(&last);
    assert!(last.status.success() || shown.contains("error: the target is not empty"), "{shown}");
    let moved = command(&["export", "--all"]).output().unwrap();
    assert_eq!(String::from_utf8(moved.stdout).unwrap(), before);
    let checked = command(&["check", "--json"]).output().unwrap();
    assert!(checked.status.success(), "{}", site.place.describe(&checked));
}

#[test]
fn a_restore_beside_a_new_master_key_is_sealed_with_the_new_one_or_refused() {
    const KEYS: [&str; 2] = [
        "1111111111111111111111111111111111111111111111111111111111111111",
        "2222222222222222222222222222222222222222222222222222222222222222",
    ];
    let Some(database) = prepared_database() else { return };
    let site = Site::new(database.url());
    let there = site.place.dir.path().join("there").display().to_string();
    let command = |key: &str, args: &[&str]| {
        let mut command = site.command(args);
        command.env("ICECORE_DATA", &there).env("ICECORE_MASTER_KEY", key);
        command
    };
    let done = |command: &mut Command| {
        let output = command.output().unwrap();
        (output.status.success(), site.place.describe(&output))
    };
    // A backup is sealed with the key that its store had.
    let file = site.place.file("c.jsonl", conversation(400));
    let backup = site.place.dir.path().join("b").display().to_string();
    let here = |args: &[&str]| {
        let mut command = site.place.command(args);
        command.env("ICECORE_MASTER_KEY", KEYS[0]);
        done(&mut command)
    };
    for args in [&["import", &file, "--session", "talk", "-q"][..], &["backup", &backup]] {
        let (is_done, shown) = here(args);
        assert!(is_done, "{shown}");
    }
    // Others are there to be sealed anew.
    for other in ["ana", "bob", "cleo"] {
        let (is_done, shown) = done(&mut command(KEYS[0], &["add", "--tenant", other, "Hello."]));
        assert!(is_done, "{shown}");
    }
    let mut rotating = command(KEYS[0], &["key", "rotate-master"])
        .env("ICECORE_NEW_MASTER_KEY", KEYS[1])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (is_restored, shown) = done(&mut command(KEYS[0], &["restore", &backup, "-q"]));
    assert!(rotating.wait().unwrap().success());
    if !is_restored {
        assert!(shown.contains("master key"), "{shown}");
        let old = site.place.file("old.key", KEYS[0]);
        let again = ["restore", &backup, "-q", "--key-file", &old];
        let (is_done, shown) = done(&mut command(KEYS[1], &again));
        assert!(is_done, "{shown}");
    }
    let (is_done, exported) = done(&mut command(KEYS[1], &["export", "--session", "talk"]));
    assert!(is_done && exported.contains("Turn 400 "), "{exported}");
    let (is_done, shown) = done(&mut command(KEYS[1], &["check"]));
    assert!(is_done, "{shown}");
    let (is_done, shown) = done(&mut command(KEYS[0], &["stats"]));
    assert!(!is_done && shown.contains("ICECORE_MASTER_KEY"), "{shown}");
}
