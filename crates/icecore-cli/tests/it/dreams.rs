//! Dreams and archives, as somebody at a terminal has them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use icecore::dreams::dream::INDEX_PATH;
use icecore::{Memory, Principal, Tenant};
use serde_json::Value;

use crate::run::{Place, conversation, files};

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no text `{name}` in {value}"))
}

/// A place with a conversation in it.
fn place() -> Place {
    let place = Place::new();
    let file = place.file("c.jsonl", conversation(120));
    place.ok(&["import", &file]);
    for said in [
        "Mirela's train to Brasov leaves on the fourteenth of March.",
        "Never deploy on Fridays, please.",
    ] {
        place.ok(&["add", "--session", "trip", said]);
    }
    place
}

#[test]
fn a_dream_is_told_shown_verified_and_taken_back() {
    let place = place();
    let preview = place.ok(&["dream", "--budget", "8000", "--dry-run"]);
    assert!(preview.contains("Brasov"), "{preview}");
    assert_eq!(place.json(&["archive", "list"])["archives"], serde_json::json!([]));
    let dry = place.json(&["dream", "--budget", "8000", "--dry-run"]);
    assert_eq!((dry.get("runId"), &dry["dryRun"]), (None, &true.into()));

    let dream = place.json(&["dream", "--budget", "8000"]);
    assert_eq!(dream["tokenBudget"], 8000);
    assert!(dream["tokensUsed"].as_u64().unwrap() <= 8000, "{dream}");
    let (run, checksum) = (text(&dream, "runId"), text(&dream, "archiveChecksum"));
    assert_eq!(checksum, text(&dry, "archiveChecksum"));

    let shown = place.ok(&["archive", "show", &checksum[..12]]);
    assert!(shown.contains("Brasov") && shown.contains(checksum), "{shown}");
    assert_eq!(place.ok(&["archive", "show"]), shown, "it is the newest");
    assert_eq!(place.ok(&["show", checksum]), shown);
    let bytes = place.output(&["archive", "show", checksum, "--json"]).stdout;
    assert_eq!(icecore::dreams::Checksum::of(&bytes).to_string(), checksum);
    let listed = place.json(&["archive", "list"]);
    assert_eq!(listed["archives"][0]["checksum"], checksum);
    let verified = place.json(&["archive", "verify"]);
    assert_eq!((&verified["ok"], &verified["orphans"]), (&true.into(), &0.into()));
    let one = place.json(&["archive", "verify", &checksum[..8]]);
    assert_eq!(one["archives"].as_array().unwrap().len(), 1);

    let again = place.output(&["dream", "--budget", "8000"]);
    let again = place.describe(&again);
    assert!(again.contains("Nothing is due") && again.contains(run), "{again}");

    let undone = place.json(&["dream", "undo", run]);
    assert_eq!(undone["state"], "undone");
    let refused = place.output(&["dream", "undo", run]);
    assert_eq!(refused.status.code(), Some(1), "{}", place.describe(&refused));
    let gone = place.shown(&["archive", "show", checksum]);
    assert!(gone.starts_with("exit 1") && gone.contains("is gone"), "{gone}");
    assert_eq!(place.json(&["archive", "verify"])["ok"], true);
    assert_eq!(text(&place.json(&["dream", "--budget", "8000"]), "archiveChecksum"), checksum);
    place.check();
}

#[test]
fn what_cannot_be_dreamt_is_refused_with_a_hint() {
    let place = Place::new();
    let shown = place.shown(&["dream"]);
    assert!(shown.starts_with("exit 1") && shown.contains("holds nothing to distil"), "{shown}");
    let none = place.shown(&["archive", "show"]);
    assert!(none.starts_with("exit 1") && none.contains("`icecore dream` writes one"), "{none}");
    let plot = place.shown(&["stats", "--plot", "x.svg"]);
    assert!(plot.starts_with("exit 1") && plot.contains("no dreams to plot"), "{plot}");
    place.ok(&["add", "The kiln is serviced every April; the thermostat was replaced."]);
    for budget in ["0", "-5"] {
        let shown = place.shown(&["dream", "--budget", budget]);
        assert!(shown.starts_with("exit 1") && shown.contains("at least 1 token"), "{shown}");
    }
    assert_eq!(place.output(&["dream", "--budget", "many"]).status.code(), Some(2));
    let small = place.shown(&["dream", "--budget", "1"]);
    assert!(small.starts_with("exit 1") && small.contains("covers too little"), "{small}");
    let (_, least) = small.split_once("`icecore dream --budget ").unwrap();
    let (least, _) = least.split_once('`').unwrap();
    let short = (least.parse::<u64>().unwrap() - 1).to_string();
    assert_eq!(place.output(&["dream", "--budget", &short]).status.code(), Some(1));
    let dream = place.json(&["dream", "--budget", least]);
    assert!(dream["tokensUsed"].as_u64().unwrap() <= least.parse().unwrap(), "{dream}");
    for unknown in ["nothing", "00000000", &"0".repeat(64)] {
        assert_eq!(place.output(&["archive", "show", unknown]).status.code(), Some(1));
        assert_eq!(place.output(&["archive", "verify", unknown]).status.code(), Some(1));
    }
    assert_eq!(place.output(&["dream", "undo", "nobody"]).status.code(), Some(1));
}

#[test]
fn a_flipped_bit_is_named() {
    let place = place();
    let dream = place.json(&["dream", "--budget", "8000"]);
    let checksum = text(&dream, "archiveChecksum");
    let bodies = files(&place.data().join("archives"));
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    let whole = std::fs::read(&bodies[0]).unwrap();
    let mut bytes = whole.clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&bodies[0], &bytes).unwrap();
    let verified = place.output(&["archive", "verify", "--json"]);
    assert_eq!(verified.status.code(), Some(1));
    let verified: Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert_eq!(verified["ok"], false);
    assert!(verified["problems"][0].as_str().unwrap().contains(checksum), "{verified}");
    let check = place.output(&["check", "--json"]);
    assert_eq!(check.status.code(), Some(1), "{}", place.describe(&check));
    let read = place.shown(&["archive", "show", checksum]);
    assert!(read.starts_with("exit 3") && read.contains("is damaged"), "{read}");
    std::fs::write(&bodies[0], &whole).unwrap();
    place.check();
    // What a crash leaves and nothing points to is no failure.
    std::fs::write(bodies[0].with_file_name("f".repeat(32)), &whole).unwrap();
    assert_eq!(place.json(&["archive", "verify"])["ok"], true);
}

#[test]
fn dreams_are_plotted() {
    let place = place();
    place.ok(&["dream", "--budget", "1000"]);
    place.ok(&["add", "--session", "trip", "The kiln is serviced every April."]);
    place.ok(&["dream"]);
    let path = place.dir.path().join("dreams.svg").display().to_string();
    place.ok(&["stats", "--plot", &path]);
    let svg = std::fs::read_to_string(&path).unwrap();
    for part in ["<svg ", "Tokens used of the budget", "Memory before and after", "dream 2:"] {
        assert!(svg.contains(part), "no {part} in {svg}");
    }
    assert!(!svg.contains("Brasov"), "no content");
    let away = place.shown(&["stats", "--plot", "/nowhere/dreams.svg"]);
    assert!(away.starts_with("exit 1") && away.contains("cannot write"), "{away}");
}

/// A copy of a whole data directory.
pub(crate) fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-r").args([from, to]).status().unwrap();
    assert!(status.success());
}

/// The index as it lies in the workspace, if any.
fn index(data: &Path) -> Option<String> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let memory = Memory::open(data).await.unwrap();
        let me = Principal::local_operator(Tenant::new("default").unwrap());
        let host = icecore_host::Host::from(memory);
        host.files.get(&me, INDEX_PATH, None).await.ok().map(|file| file.content)
    })
}

/// Dreams until no lease of the dead is in the way.
fn dream_at_last(place: &Place, config: &str) -> Value {
    let began = Instant::now();
    loop {
        let output = place.output(&["dream", "--budget", "8000", "--config", config, "--json"]);
        match output.status.code() {
            Some(0) => return serde_json::from_slice(&output.stdout).unwrap(),
            _ => assert!(
                began.elapsed() < Duration::from_secs(60)
                    && place.describe(&output).contains("is under way"),
                "{}",
                place.describe(&output)
            ),
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// `kill -9` at points all over a dream: the state is the old or the new one, and who
/// tries again comes to the same bytes.
#[test]
fn a_killed_dream_is_whole_or_never_was() {
    let kills: u32 = match std::env::var_os("ICECORE_LONG") {
        Some(_) => 200,
        None => 10,
    };
    let prepared = place();
    let config = prepared.file("leases.toml", "[advanced.dreams]\nlease_seconds = 1\n");
    let dream = |place: &Place| {
        let mut command = place.command(&["dream", "--budget", "8000", "--config", &config]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let whole = Place::new();
    copy(&prepared.data(), &whole.data());
    let began = Instant::now();
    assert!(dream(&whole).status().unwrap().success());
    let mut takes = began.elapsed();
    let expected = text(&whole.json(&["archive", "list"])["archives"][0], "checksum").to_owned();

    let (mut killed, mut dice) = (0, 0x9e37_79b9_u64);
    for number in 0.. {
        if killed == kills {
            break;
        }
        assert!(number < kills * 10, "only {killed} of {number} were killed in time");
        let place = Place::new();
        copy(&prepared.data(), &place.data());
        let mut child = dream(&place).spawn().unwrap();
        // All over its time, and never twice at the same point.
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let share =
            (f64::from(killed) + (dice >> 40) as f64 / f64::from(1 << 24)) / f64::from(kills);
        std::thread::sleep(takes.mul_f64(share));
        child.kill().unwrap();
        match child.wait().unwrap().code() {
            None => killed += 1,
            // It was faster than the first.
            Some(_) => takes = takes.mul_f64(0.9),
        }

        let verified = place.json(&["archive", "verify"]);
        assert_eq!(verified["ok"], true, "{verified}");
        let archives = verified["archives"].as_array().unwrap();
        assert!(archives.iter().all(|archive| text(archive, "checksum") == expected));
        let index = index(&place.data());
        assert_eq!(index.is_some(), !archives.is_empty(), "kill {number}: {index:?} {verified}");
        assert!(index.is_none_or(|index| index.contains(&expected)));
        place.check();

        let done = dream_at_last(&place, &config);
        assert_eq!(text(&done, "archiveChecksum"), expected, "kill {number}");
        assert_eq!(done["unchanged"], !archives.is_empty());
        place.check();
    }
}
