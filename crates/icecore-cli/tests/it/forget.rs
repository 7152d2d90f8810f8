//! Forgotten means gone, and stays gone.

use insta::assert_snapshot;

use crate::run::{Place, conversation, files};

fn holds(place: &Place, text: &str) -> Vec<std::path::PathBuf> {
    let has = |path: &std::path::PathBuf| {
        let bytes = std::fs::read(path).unwrap();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    files(&place.data()).into_iter().filter(has).collect()
}

#[test]
fn no_byte_of_a_forgotten_session_is_left() {
    let place = Place::new();
    let file = place.file("c.jsonl", conversation(257).replace("glacier", "Vatnaglacier"));
    let other = place.file("d.jsonl", conversation(130));
    place.ok(&["import", &file, "--session", "holiday-in-iceland"]);
    place.ok(&["import", &other]);
    assert!(
        !holds(&place, "Vatnaglacier").is_empty()
            && !holds(&place, "holiday-in-iceland").is_empty()
    );

    let dry = place.json(&["forget", "--session", "holiday-in-iceland", "--dry-run"]);
    assert_eq!((&dry["erased"]["turns"], &dry["erased"]["packs"]), (&257.into(), &2.into()));
    let receipt = place.json(&["forget", "--session", "holiday-in-iceland"]);
    assert_eq!(receipt["erased"]["turns"], 257);
    assert_eq!(receipt["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(holds(&place, "Vatnaglacier"), Vec::<std::path::PathBuf>::new());
    assert_eq!(holds(&place, "holiday-in-iceland"), Vec::<std::path::PathBuf>::new());
    place.check();
    assert_eq!(place.ok(&["export"]).lines().count(), 130);

    assert_snapshot!(place.shown(&["import", &file, "--session", "holiday-in-iceland"]), @r"
    exit 1
    --- stderr
    error: `[DIR]/c.jsonl` was forgotten on request, and stays so
    hint: pass --insist to add it again
    ");
    assert_eq!(
        place.json(&["import", &file, "--session", "holiday-in-iceland", "--insist"])["added"],
        257
    );
    place.check();
}

#[test]
fn a_subject_is_forgotten_in_every_memory_of_the_tenant() {
    let place = Place::new();
    let lines = |about: &str| {
        let line = |n: usize| {
            let name = if n.is_multiple_of(9) { "Zebedee" } else { "Ana" };
            let said = if name == "Zebedee" { "quokka" } else { about };
            format!("{{\"role\":\"user\",\"name\":\"{name}\",\"content\":\"{said} {n} here\"}}\n")
        };
        (1..=230).map(line).collect::<String>()
    };
    for memory in ["one", "two"] {
        let file = place.file("c.jsonl", lines(memory));
        place.ok(&["import", &file, "--memory", memory]);
    }
    assert!(!holds(&place, "Zebedee").is_empty());
    let shown = place.shown(&["forget", "--subject", "Zebedee"]);
    let told: Vec<&str> = shown
        .lines()
        .filter(|line| !line.starts_with("receipt") && !line.starts_with("sha256"))
        .collect();
    assert_snapshot!(told.join("\n"), @r"
    exit 0
    --- stdout
    Erased 50 turns, 0 entries, 0 facts; 46 chunks and 4 packs rewritten or deleted
    --- stderr
    Backups and exports are out of reach: erase them there too.
    ");
    assert_eq!(holds(&place, "Zebedee"), Vec::<std::path::PathBuf>::new());
    assert_eq!(holds(&place, "quokka"), Vec::<std::path::PathBuf>::new());
    assert_eq!(place.ok(&["export", "--memory", "two"]).lines().count(), 205);
    place.check();
}

#[test]
fn forget_before_reads_dates_and_times() {
    let place = Place::new();
    let file = place.file("c.jsonl", conversation(20));
    place.ok(&["import", &file]);
    assert_eq!(place.json(&["forget", "--before", "2024-05-01"])["erased"]["turns"], 0);
    assert_eq!(place.json(&["forget", "--before", "2024-05-01T10:00:11Z"])["erased"]["turns"], 10);
    assert_snapshot!(place.shown(&["forget", "--before", "yesterday"]), @r"
    exit 1
    --- stderr
    error: timestamp `yesterday` is not RFC 3339 within the years 0000 to 9999 (too short)
    hint: write a time like 2024-05-01T10:00:00Z or 2024-05-01
    ");
    place.check();
}
