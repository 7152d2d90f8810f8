//! Sessions compacted, as somebody at a terminal has them.

use std::process::Stdio;
use std::time::Instant;

use serde_json::Value;

use crate::dreams::copy;
use crate::run::{Place, conversation};

const RULE: &str = "From now on always answer in metric units, never in feet.";

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no number `{name}` in {value}"))
}

fn say(place: &Place, said: &str) {
    place.ok(&["add", "--session", "trip", said]);
}

/// A session with a rule at its beginning and much after it.
fn place() -> Place {
    let place = Place::new();
    say(&place, RULE);
    let file = place.file("c.jsonl", conversation(120));
    place.ok(&["import", &file, "--session", "trip"]);
    place
}

fn contents(view: &Value) -> Vec<String> {
    let messages = view["messages"].as_array().unwrap().iter();
    messages.map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_session_is_compacted_again_and_again_while_people_see_all_of_it() {
    let place = place();
    for round in 1..=3_u64 {
        let more = conversation(60).replace("moraine", &format!("moraine of day {round}"));
        let more = place.file(&format!("more-{round}.jsonl"), more);
        place.ok(&["import", &more, "--session", "trip"]);
        let request = format!("Question {round}: how far is it from Brasov to Sibiu?");
        say(&place, &request);
        let display = place.json(&["view", "--session", "trip"]);
        let before = place.json(&["view", "--session", "trip", "--view", "api"]);
        let done = place.json(&["compact", "--session", "trip"]);
        assert_eq!(number(&done, "number"), round);
        assert_eq!(number(&done, "tokensBefore"), number(&before, "tokens"));
        let api = place.json(&["view", "--session", "trip", "--view", "api"]);
        assert_eq!(number(&done, "tokensAfter"), number(&api, "tokens"));
        assert!(number(&api, "tokens") * 2 < number(&before, "tokens"), "{done}");
        assert_eq!(place.json(&["view", "--session", "trip"]), display);
        let said = contents(&api);
        assert_eq!(said.last(), Some(&request));
        assert_eq!(said[0], done["handoff"].as_str().unwrap());
        assert!(said[0].contains(RULE), "{}", said[0]);
        assert_eq!(api["messages"][0]["kind"], "handoff");
        assert_eq!(api["messages"][0]["compactionId"], done["compactionId"]);
    }
    place.check();
}

#[test]
fn a_person_reads_and_corrects_a_handoff() {
    let place = place();
    let done = place.json(&["compact", "--session", "trip"]);
    let shown = place.ok(&["view", "--session", "trip", "--view", "api"]);
    assert!(shown.contains("handoff 1") && shown.contains("metric units"), "{shown}");
    let text = done["handoff"].as_str().unwrap();
    let file = place.file("corrected.md", format!("{text}\n- The bridge at Turda is closed.\n"));
    let edited = place.json(&["compact", "--session", "trip", "--edit", "--from", &file]);
    assert_eq!((&edited["madeBy"], &edited["version"]), (&"person".into(), &2.into()));
    let api = place.json(&["view", "--session", "trip", "--view", "api"]);
    assert!(contents(&api)[0].contains("The bridge at Turda is closed."), "{api}");
    assert_eq!(number(&edited, "tokensAfter"), number(&api, "tokens"));
    say(&place, "And what of the bridge?");
    let again = place.json(&["compact", "--session", "trip"]);
    assert!(
        again["handoff"].as_str().unwrap().contains("The bridge at Turda is closed."),
        "{again}"
    );
    place.check();
}

#[test]
fn an_editor_changes_a_handoff_or_leaves_it() {
    let place = place();
    let by = |editor: &str| {
        let output = place
            .command(&["compact", "--session", "trip", "--edit", "--json"])
            .env("PATH", "/usr/bin:/bin")
            .env("EDITOR", editor)
            .output()
            .unwrap();
        place.describe(&output)
    };
    assert!(by("true").contains("left as it is"));
    let refused = by("false");
    assert!(refused.starts_with("exit 1") && refused.contains("nothing was changed"), "{refused}");
    let missing = by("no-such-editor-4711");
    assert!(missing.contains("cannot start the editor") && missing.contains("--from"), "{missing}");
    let script = place.file("append.sh", "echo '- Ana leads.' >> \"$1\"\n");
    let changed = by(&format!("sh {script}"));
    assert!(changed.contains("Ana leads.") && changed.contains("person"), "{changed}");
    let none = place.shown(&["compact", "--session", "trip", "--edit"]);
    assert!(none.starts_with("exit 1") && none.contains("neither VISUAL nor EDITOR"), "{none}");
}

#[test]
fn what_cannot_be_compacted_is_refused_with_a_hint() {
    let place = place();
    let none = place.shown(&["compact", "--session", "nowhere"]);
    assert!(none.starts_with("exit 1") && none.contains("`icecore sessions`"), "{none}");
    let zero = place.shown(&["compact", "--session", "trip", "--window", "0"]);
    assert!(zero.starts_with("exit 1") && zero.contains("leaves no room"), "{zero}");
    say(&place, &"a very long request ".repeat(400));
    let small = ["compact", "--session", "trip", "--window", "1000", "--reserve", "100"];
    let floor = place.shown(&small);
    assert!(floor.starts_with("exit 1") && floor.contains("request_exceeds_window"), "{floor}");
    let view = place.json(&["view", "--session", "trip", "--view", "api"]);
    assert_eq!(view, place.json(&["view", "--session", "trip"]));
    let empty = place.file("empty.md", " \n");
    let edit = place.shown(&["compact", "--session", "trip", "--edit", "--from", &empty]);
    assert!(edit.starts_with("exit 1") && edit.contains("is empty"), "{edit}");
}

#[test]
fn forgetting_a_covered_turn_takes_the_handoff() {
    let place = place();
    let line = r#"{"role":"user","name":"Mirela","content":"The vault opens with quartz."}"#;
    place.ok(&["import", &place.file("m.jsonl", line), "--session", "trip"]);
    say(&place, "Thanks.");
    say(&place, "Now what?");
    let done = place.json(&["compact", "--session", "trip"]);
    assert!(done["handoff"].as_str().unwrap().len() > 100, "{done}");
    let receipt = place.json(&["forget", "--subject", "Mirela"]);
    assert_eq!(receipt["erased"]["handoffs"], 1, "{receipt}");
    let api = place.json(&["view", "--session", "trip", "--view", "api"]);
    assert_eq!(api, place.json(&["view", "--session", "trip"]));
    assert!(!api.to_string().contains("quartz"));
    place.check();
}

/// `kill -9` at points all over a compaction: the old view or the new one.
#[test]
fn a_killed_compaction_leaves_the_old_view_or_the_new() {
    let kills: u32 = match std::env::var_os("ICECORE_LONG") {
        Some(_) => 200,
        None => 8,
    };
    let prepared = place();
    say(&prepared, "Where does the path begin?");
    let compact = |place: &Place| {
        let mut command = place.command(&["compact", "--session", "trip"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let view = |place: &Place| place.json(&["view", "--session", "trip", "--view", "api"]);
    let (display, old) = (prepared.json(&["view", "--session", "trip"]), view(&prepared));
    let whole = Place::new();
    copy(&prepared.data(), &whole.data());
    let began = Instant::now();
    assert!(compact(&whole).status().unwrap().success());
    let mut takes = began.elapsed();
    let new = contents(&view(&whole));

    let (mut killed, mut dice) = (0, 0x9e37_79b9_u64);
    for number in 0.. {
        if killed == kills {
            break;
        }
        assert!(number < kills * 10, "only {killed} of {number} were killed in time");
        let place = Place::new();
        copy(&prepared.data(), &place.data());
        let mut child = compact(&place).spawn().unwrap();
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let share =
            (f64::from(killed) + (dice >> 40) as f64 / f64::from(1 << 24)) / f64::from(kills);
        std::thread::sleep(takes.mul_f64(share));
        child.kill().unwrap();
        match child.wait().unwrap().code() {
            None => killed += 1,
            Some(_) => takes = takes.mul_f64(0.9),
        }
        let left = view(&place);
        assert!(left == old || contents(&left) == new, "kill {number}: {left}");
        assert_eq!(place.json(&["view", "--session", "trip"])["messages"], display["messages"]);
        place.check();
        place.ok(&["compact", "--session", "trip"]);
        assert_eq!(contents(&view(&place)), new, "kill {number}");
    }
}
