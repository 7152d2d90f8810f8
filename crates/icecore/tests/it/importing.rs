//! Imports: what comes in, what is refused, and what the refusal says.

use std::path::Path;

use icecore::formats::json::JsonText;
use icecore::ingest::{ImportPlan, ImportReport, Progress, Repeat};
use icecore::{MemoryError, RawTurn};

use crate::support::Bench;

fn plan() -> ImportPlan {
    ImportPlan { session: "s".to_owned(), insist: false, repeat: Repeat::Recognise }
}

async fn import(bench: &Bench, text: &str) -> Result<ImportReport, MemoryError> {
    bench
        .memory
        .import_text(&bench.scope, "lines", text.as_bytes().to_vec(), &plan(), |_| true)
        .await
}

fn token() -> String {
    format!("ghp_{}", "a1B2".repeat(9))
}

fn other_token() -> String {
    format!("ghp_{}", "c3D4".repeat(9))
}

#[tokio::test]
async fn secret_field_names_of_one_kind_can_be_read_back() {
    let bench = Bench::new().await;
    let line = format!(r#"{{"role":"user","content":"a","{}":1,"{}":2}}"#, token(), other_token());
    assert_eq!(import(&bench, &line).await.unwrap().added, 1);
    let turns = bench.turns("s").await;
    let extra = &turns[0].turn.as_ref().unwrap().fields().extra;
    let names: Vec<&str> = extra.iter().map(|(key, _)| key.as_str()).collect();
    assert!(names.iter().all(|name| name.starts_with("[REDACTED:github-token:")), "{names:?}");
    assert_ne!(names[0], names[1], "their tags tell them apart");
    bench.check().await;
}

#[tokio::test]
async fn archived_turns_keep_fields_whose_names_mean_something_else_here() {
    let bench = Bench::new().await;
    let document = serde_json::json!({"chunk_id": "c1", "turns": [
        {"turn_type": "user", "content": "one", "role": "r", "archived_role": "q", "session": "x",
         "confidence": 7, "chunk_id": "own", "timestamp": 5, "model": null, "id": ["a"], "odd": 1},
        {"turn_type": "user", "content": "two"},
    ]});
    assert_eq!(import(&bench, &document.to_string()).await.unwrap().added, 2);
    let turns = bench.turns("s").await;
    let turn = turns[0].turn.as_ref().unwrap().fields();
    let mut expected = RawTurn::new("user", "one");
    expected.extra = [
        ("archived_archived_role", r#""r""#),
        ("archived_role", r#""q""#),
        ("archived_session", r#""x""#),
        ("archived_confidence", "7"),
        ("chunk_id", r#""own""#),
        ("archived_timestamp", "5"),
        ("archived_id", r#"["a"]"#),
        ("odd", "1"),
    ]
    .map(|(key, json)| (key.to_owned(), JsonText::parse(json).unwrap()))
    .to_vec();
    assert_eq!(turn, &expected);
    let second = turns[1].turn.as_ref().unwrap().fields();
    assert_eq!(second.extra, [("chunk_id".to_owned(), JsonText::string("c1"))]);
    assert_eq!(import(&bench, &document.to_string()).await.unwrap().known, 2);
    bench.check().await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_pipe_is_read_once_and_whole() {
    let bench = Bench::new().await;
    let path = bench.dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let written = path.clone();
    let writer = std::thread::spawn(move || {
        let line = |n| format!("{{\"role\":\"user\",\"content\":\"{n}\"}}\n");
        std::fs::write(written, (1..=3000).map(line).collect::<String>()).unwrap();
    });
    let report = bench.memory.import(&bench.scope, &path, &plan(), |_| true).await.unwrap();
    writer.join().unwrap();
    assert_eq!((report.lines, report.added), (3000, 3000));
}

#[tokio::test]
async fn a_file_that_changes_while_it_is_read_is_an_error() {
    let bench = Bench::new().await;
    let path = bench.dir.path().join("c.jsonl");
    let line = "{\"role\":\"user\",\"content\":\"a\"}\n";
    let check = async |when: Progress, text: String| {
        std::fs::write(&path, line.repeat(2)).unwrap();
        let rewrite = |progress| {
            if progress == when {
                std::fs::write(&path, &text).unwrap();
            }
            true
        };
        let error = bench.memory.import(&bench.scope, Path::new(&path), &plan(), rewrite).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains("changed while it was read: 2 turns were checked"), "{error}");
    };
    check(Progress::Checked(2), String::new()).await;
    check(Progress::Checked(2), line.to_owned()).await;
    check(Progress::Stored(2, 2), line.repeat(3)).await;
}

#[tokio::test]
async fn a_parent_by_our_id_must_be_there() {
    let bench = Bench::new().await;
    import(&bench, r#"{"role":"user","content":"a"}"#).await.unwrap();
    let ours = bench.turns("s").await[0].id.clone();
    let session = ours.split_once('.').unwrap().0;
    let line = |n: usize, parent: &str| {
        format!("{{\"role\":\"user\",\"content\":\"n{n}\",\"parentIds\":[\"{parent}\"]}}\n")
    };
    for absent in ["2", "99999", "18446744073709551615"] {
        let mut text: String = (0..1500).map(|n| line(n, &ours)).collect();
        text += &line(1500, &format!("{session}.{absent}"));
        let error = import(&bench, &text).await.unwrap_err().to_string();
        assert!(error.starts_with("lines:1501: parent `"), "{error}");
        assert_eq!(bench.turns("s").await.len(), 1, "nothing is imported by halves");
    }
    assert_eq!(import(&bench, &line(1, &ours)).await.unwrap().added, 1);
}

#[tokio::test]
async fn a_refusal_never_shows_a_secret() {
    let bench = Bench::new().await;
    let token = token();
    let long = format!("sk-ant-{}", "a1B2c3D4".repeat(12));
    let said = |rest: &str| format!(r#"{{"role":"user","content":"a",{rest}}}"#);
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for secret in [&token, &long] {
        for line in [
            secret.clone(),
            format!(r#""{secret}""#),
            format!(r#"["{secret}"#),
            said(&format!(r#""timestamp":"{secret}""#)),
            said(&format!(r#""{secret}":1,"{secret}":2"#)),
            said(&format!(r#""{secret}":{deep}"#)),
            said(&format!(r#""parentIds":["{secret}"]"#)),
            said(&format!(r#""id":"{secret}","parentIds":["{secret}"]"#)),
            said(&format!(r#""parentIds":["{secret}"]"#))
                + "\n"
                + &said(&format!(r#""id":"{secret}""#)),
            said(&format!(r#""id":"{secret}""#))
                + "\n"
                + &said(&format!(r#""id":"{secret}","x":1"#)),
            format!(r#"{{"chunk_id":"{secret}","turns":[{{}}]}}"#),
            format!(
                r#"{{"chunk_id":"c","turns":[{{"turn_type":"u","content":"","timestamp":"{secret}"}}]}}"#
            ),
        ] {
            let error = format!("{:?}", import(&bench, &line).await.unwrap_err());
            assert!(!error.contains(&secret[..20]), "{error}");
        }
    }
}

#[tokio::test]
async fn pages_end_by_size_too() {
    let bench = Bench::new().await;
    let line =
        format!("{{\"role\":\"user\",\"content\":\"\",\"x\":\"{}\"}}\n", "y".repeat(1 << 19));
    let mut checked = Vec::new();
    let tell = |progress| {
        checked.push(progress);
        checked.len() < 2
    };
    let text = line.repeat(16).into_bytes();
    let report =
        bench.memory.import_text(&bench.scope, "lines", text, &plan(), tell).await.unwrap();
    assert!(report.stopped);
    assert_eq!(checked, [Progress::Checked(8), Progress::Checked(16)]);
}

#[tokio::test]
async fn archives_of_the_older_form_are_imported_and_kept_as_samples() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/archive");
    let mut opened = 0;
    for sample in std::fs::read_dir(samples).unwrap().flatten() {
        let bench = Bench::new().await;
        let report =
            bench.memory.import(&bench.scope, &sample.path(), &plan(), |_| true).await.unwrap();
        assert_eq!((report.added, report.known), (3, 0), "{:?}", sample.path());
        let again =
            bench.memory.import(&bench.scope, &sample.path(), &plan(), |_| true).await.unwrap();
        assert_eq!((again.added, again.known), (0, 3));
        let turns = bench.turns("s").await;
        let fields = |at: usize| turns[at].turn.as_ref().unwrap().fields();
        assert_eq!((fields(0).role.as_str(), fields(1).role.as_str()), ("user", "assistant"));
        assert_eq!(
            fields(1).content.text(),
            "Snow that has lasted a summer.\nIt is on its way to ice."
        );
        assert_eq!(fields(1).model.as_deref(), Some("gpt-4o"));
        assert_eq!(turns[2].at.to_string(), "2026-01-15T10:02:00Z");
        opened += 1;
    }
    assert_eq!(opened, 2);
}
