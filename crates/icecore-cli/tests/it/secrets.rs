//! Registered secrets: taken in without a trace, hidden everywhere.

use std::process::Output;

use insta::assert_snapshot;

use crate::run::{Place, conversation, files};
use crate::serve::start;
use crate::signals::signal;

/// A value that no shape gives away, put together here.
fn value() -> String {
    ["saxifrage", "7042", "kestrel"].join("-")
}

fn token() -> String {
    format!("ghp_{}", "a1B2".repeat(9))
}

fn add(place: &Place, args: &[&str], value: &[u8]) -> Output {
    place.output_with_input(&[&["secret", "add"], args].concat(), value)
}

/// Neither the output nor any file holds `secret`.
fn is_nowhere(place: &Place, outputs: &[&Output], secret: &str) {
    let holds =
        |bytes: &[u8]| bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
    for output in outputs {
        assert!(!holds(&output.stdout) && !holds(&output.stderr), "{}", place.describe(output));
    }
    for file in files(&place.data()) {
        assert!(!holds(&std::fs::read(&file).unwrap()), "{}", file.display());
    }
}

#[test]
fn a_registered_secret_is_hidden_and_kept_nowhere() {
    let place = Place::new();
    let added = add(&place, &["prod-db"], format!("{}\n", value()).as_bytes());
    assert_snapshot!(place.describe(&added), @r"
    exit 0
    --- stderr
    `prod-db` is hidden from now on, as [REDACTED:prod-db]
    ");
    let said = format!("The word is {}, tell nobody.", value());
    let turn = place.output(&["add", "--session", &value(), "--name", &value(), &said]);
    let shown = place.describe(&turn);
    // Names carry tags, for two sessions must not become one.
    assert!(shown.contains("Added turn-1.1 to session [REDACTED:prod-db:"), "{shown}");
    let shown = place.output(&["export", "--all"]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(text.contains("The word is [REDACTED:prod-db], tell nobody."), "{text}");
    let stats = place.json(&["stats"]);
    assert_eq!(stats["redacted"]["prod-db"], 2, "{stats}");
    assert!(place.ok(&["stats"]).contains("hidden     2 prod-db"));
    // Nobody repeats it, whatever is asked.
    let outputs = [
        &["show", &value()][..],
        &["view", "--session", &format!("no {}", value())],
        &["search", &value()],
        &["forget", "--session", &format!("no {}", value())],
        &["learn", "confirm", &value()],
        &["import", &value()],
        &["secret", "remove", &value()],
        &["secret", "list"],
        &["events"],
        &["archive", "verify", &value()],
        &["--memory", &value(), "stats"],
    ]
    .map(|args| place.output(args));
    let mut all: Vec<&Output> = outputs.iter().collect();
    all.extend([&added, &turn, &shown]);
    is_nowhere(&place, &all, &value());
    place.check();
}

#[test]
fn secrets_are_listed_rotated_and_removed() {
    let place = Place::new();
    assert_snapshot!(place.shown(&["secret", "list"]), @r"
    exit 0
    --- stderr
    No secrets yet. `icecore secret add NAME` registers one.
    ");
    add(&place, &["db"], value().as_bytes());
    assert_snapshot!(place.describe(&add(&place, &["db"], b"another-word-9")), @r"
    exit 1
    --- stderr
    error: a secret `db` is registered already
    hint: add a newer value with --rotate; the older ones stay hidden too
    ");
    let rotated = place
        .command(&["secret", "add", "db", "--rotate", "--from-env", "NEWER", "--json"])
        .env("NEWER", "another-word-9")
        .output()
        .unwrap();
    let told: serde_json::Value = serde_json::from_slice(&rotated.stdout).unwrap();
    assert_eq!((&told["name"], &told["values"]), (&"db".into(), &2.into()));
    assert_eq!((&told["isCommon"], &told["rescanAdvised"]), (&false.into(), &false.into()));
    let keys: Vec<&String> = told.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["name", "values", "createdAt", "updatedAt", "isCommon", "rescanAdvised"]);
    let list = place.ok(&["secret", "list"]);
    let lines: Vec<&str> = list.lines().map(|line| line.split("  20").next().unwrap()).collect();
    assert_eq!(lines, ["secret  values  added             last change", "db           2"]);
    let list = place.json(&["secret", "list"]);
    assert_eq!(list["secrets"].as_array().unwrap().len(), 1);
    assert_eq!(list["secrets"][0]["values"], 2);
    // Both values are hidden, and only for this tenant.
    let text = format!("{} another-word-9", value());
    place.ok(&["add", &text]);
    place.ok(&["add", "--tenant", "other", &text]);
    assert!(place.ok(&["export"]).contains("[REDACTED:db] [REDACTED:db]"));
    assert!(place.ok(&["export", "--tenant", "other"]).contains(&text));
    assert!(place.json(&["secret", "list", "--tenant", "other"])["secrets"][0].is_null());
    assert_eq!(place.json(&["secret", "remove", "db"])["removed"], "db");
    assert_snapshot!(place.shown(&["secret", "remove", "db"]), @r"
    exit 1
    --- stderr
    error: no secret is called `db`
    hint: `icecore secret list` shows what there is
    ");
}

#[test]
fn what_is_no_secret_is_refused() {
    let place = Place::new();
    let check = |args: &[&str], value: &[u8], expected: &str| {
        let output = add(&place, args, value);
        let shown = place.describe(&output);
        assert_eq!(output.status.code(), Some(1), "{shown}");
        assert!(shown.contains(expected) && shown.contains("\nhint: "), "{shown}");
    };
    check(&["a"], b"", "error: the value is empty");
    check(&["a"], b"1234567\n", "at least 8 characters, this one has 7");
    check(&["a"], &vec![b'x'; 1 << 20], "at most 16384 bytes, this one has 1048576");
    check(&["a"], b"q8Zk\xff2Lm9Xw", "error: the value is not UTF-8 text");
    check(&["a", "--from-env", "NOT_SET"], b"", "there is no environment variable");
    check(&["hunter22hunter"], b"hunter22hunter", "the name gives away the value");
    check(&["a"], b"[REDACTED:x]", "holds a redaction marker");
    check(&["a]b"], b"q8Zk2Lm9Xw", "a secret's name has 1 to 48");
    assert!(place.json(&["secret", "list"])["secrets"].as_array().unwrap().is_empty());
}

#[test]
fn a_value_that_was_typed_is_refused_and_not_repeated() {
    let place = Place::new();
    for args in [
        vec!["a".to_owned(), value()],
        vec!["a".to_owned(), format!("-{}", value())],
        vec!["a".to_owned(), format!("--value={}", value())],
        vec![format!("--value={}", value())],
        vec!["a".to_owned(), "--from-env".to_owned(), value()],
        vec!["--rotate".to_owned(), "a".to_owned(), "--value".to_owned(), value()],
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = add(&place, &args, b"q8Zk2Lm9Xw");
        assert_eq!(output.status.code(), Some(1), "{}", place.describe(&output));
        is_nowhere(&place, &[&output], &value());
    }
    // Wrong usage elsewhere repeats what was typed, without what it can tell.
    let output = place.output(&["search", "a", &token()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!String::from_utf8_lossy(&output.stderr).contains(&token()));
}

#[test]
fn common_words_and_earlier_turns_are_told() {
    let place = Place::new();
    place.ok(&["add", "The sunshine was glorious."]);
    assert_snapshot!(place.describe(&add(&place, &["mood"], b"sunshine")), @r"
    exit 0
    --- stderr
    `mood` is hidden from now on, as [REDACTED:mood]
    warning: the value of `mood` looks like words that people also write: they are hidden wherever they stand
    What was stored before may hold it: `icecore redact --rescan` rewrites that
    ");
}

#[test]
fn a_missing_or_wrong_master_key_loses_nothing() {
    let place = Place::new();
    add(&place, &["db"], value().as_bytes());
    place.ok(&["add", "hello"]);
    let path = place.data().join("master.key");
    let key = std::fs::read(&path).unwrap();
    let check = |expected: &str, hint: &str| {
        for args in [&["add", "more"][..], &["secret", "list"], &["secret", "remove", "db"]] {
            let output = place.output(args);
            let shown = place.describe(&output);
            assert_eq!(output.status.code(), Some(1), "{shown}");
            assert!(shown.contains(expected) && shown.contains(hint), "{shown}");
        }
    };
    std::fs::remove_file(&path).unwrap();
    check("is missing, and the store was sealed with it", "put the file back");
    assert!(!path.exists());
    std::fs::write(&path, "0".repeat(64)).unwrap();
    check("is not the one this store was sealed with", "nothing was changed");
    std::fs::write(&path, "short").unwrap();
    check("is not 64 hexadecimal digits", "from your backup");
    std::fs::write(&path, key).unwrap();
    assert_eq!(place.json(&["secret", "list"])["secrets"][0]["name"], "db");
    place.ok(&["add", &value()]);
    assert!(place.ok(&["export"]).contains("[REDACTED:db]"));
    place.check();
}

#[test]
fn a_running_host_hides_what_was_just_registered() {
    let place = Place::new();
    let mut host = start(&place);
    let turn = format!(r#"{{"turns":[{{"role":"user","content":"it is {}"}}]}}"#, value());
    let path = "/v1/host/icecore/sessions/s/turns";
    assert!(host.ask("POST", path, &turn).starts_with("HTTP/1.1 201"));
    add(&place, &["db"], value().as_bytes());
    assert!(host.ask("POST", path, &turn).starts_with("HTTP/1.1 201"));
    let turns = host.get(path);
    // The first is hidden from readers, the second was hidden before it was stored.
    assert_eq!(turns.matches("it is [REDACTED:db]").count(), 2, "{turns}");
    assert!(!turns.contains(&value()), "{turns}");
    let stats = host.get("/v1/host/icecore/stats");
    assert!(stats.contains(r#""redacted":{"db":1}"#), "{stats}");
    signal(&host.child, "TERM");
    assert_eq!(host.child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_host_says_no_secret_in_errors_and_logs() {
    let place = Place::new();
    add(&place, &["db"], value().as_bytes());
    let log = place.file("log", "");
    let mut host = crate::serve::start_with(&place, &log);
    for secret in [value(), token()] {
        for (method, path, body) in [
            ("GET", format!("/sessions/{secret}/view"), String::new()),
            ("GET", format!("/sessions/{secret}/turns?memoryRef={secret}"), String::new()),
            ("GET", format!("/chunks/{secret}"), String::new()),
            ("GET", format!("/facts?kind={secret}"), String::new()),
            ("GET", format!("/{secret}?q={secret}"), String::new()),
            ("POST", "/forget".to_owned(), format!(r#"{{"{secret}":1}}"#)),
            ("POST", "/search".to_owned(), format!(r#"{{"query":"{secret}","mode":"{secret}"}}"#)),
            (
                "POST",
                format!("/sessions/{secret}/turns"),
                format!(
                    r#"{{"turns":[{{"role":"u","content":"","id":"x","parentIds":["{secret}"]}}]}}"#
                ),
            ),
        ] {
            let answer = host.ask(method, &format!("/v1/host/icecore{path}"), &body);
            assert!(!answer.contains(&secret), "{method} {path}: {answer}");
        }
    }
    signal(&host.child, "TERM");
    host.child.wait().unwrap();
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("answered"), "{log}");
    assert!(!log.contains(&value()) && !log.contains(&token()), "{log}");
}

#[test]
fn text_is_filtered() {
    let place = Place::new();
    add(&place, &["db"], value().as_bytes());
    let text = format!("a {} b\n{} é and\n", value(), token());
    assert_snapshot!(place.describe(&place.output_with_input(&["redact"], text.as_bytes())), @r"
    exit 0
    --- stdout
    a [REDACTED:db] b
    [REDACTED:github-token] é and
    --- stderr
    Hid 2 secrets: 1 db, 1 github-token
    ");
    let output = place.output_with_input(&["redact", "--json"], text.as_bytes());
    assert_snapshot!(place.describe(&output), @r#"
    exit 0
    --- stdout
    {"text":"a [REDACTED:db] b\n[REDACTED:github-token] é and\n","redacted":{"db":1,"github-token":1}}
    --- stderr
    Hid 2 secrets: 1 db, 1 github-token
    "#);
    assert_snapshot!(place.describe(&place.output_with_input(&["redact"], b"bad \xff byte\n")), @r"
    exit 0
    --- stdout
    bad � byte
    --- stderr
    warning: what was not UTF-8 became �
    Nothing was hidden
    ");
    assert_eq!(place.output(&["redact", "--dry-run"]).status.code(), Some(2));
}

#[test]
fn what_is_stored_is_rescanned() {
    let place = Place::new();
    let mut text = conversation(230);
    for id in ["a", "b"] {
        text.push_str(&format!(
            "{{\"id\":\"{id}\",\"role\":\"user\",\"content\":\"It was {} again.\"}}\n",
            value()
        ));
    }
    let old = format!("{{\"role\":\"user\",\"name\":\"{}\",\"content\":\"hello\"}}\n", value());
    let file = place.file("c.jsonl", old + &text);
    place.ok(&["import", &file, "--session", &format!("about {}", value())]);
    assert_snapshot!(place.shown(&["redact", "--rescan"]), @r"
    exit 0
    --- stdout
    Looked at 233 turns, and at names, entries, facts, files, runs and the log
    Nothing is left to hide
    ");
    let added = place.output_with_input(&["secret", "add", "db", "--json"], value().as_bytes());
    let added: serde_json::Value = serde_json::from_slice(&added.stdout).unwrap();
    assert_eq!(added["rescanAdvised"], true);
    let planned = place.json(&["redact", "--rescan", "--dry-run"]);
    assert_eq!((&planned["lookedAt"], &planned["turns"]), (&233.into(), &3.into()), "{planned}");
    assert_eq!((&planned["redacted"]["db"], &planned["dryRun"]), (&3.into(), &true.into()));
    assert!(place.ok(&["export", "--all"]).contains(&value()));
    let done = place.output(&["redact", "--rescan"]);
    let shown = place.describe(&done);
    assert!(done.status.success() && shown.contains("  turns      3\n"), "{shown}");
    is_nowhere(&place, &[&done], &value());
    let keys = place.json(&["redact", "--rescan"]);
    let keys: Vec<&String> = keys.as_object().unwrap().keys().collect();
    let expected = [
        "lookedAt", "turns", "packs", "names", "entries", "facts", "files", "runs", "commitments",
        "handoffs", "events", "redacted", "dryRun",
    ];
    assert_eq!(keys, expected);
    let turns = place.ok(&["export", "--all"]);
    assert_eq!(turns.lines().count(), 233);
    assert_eq!(turns.matches("It was [REDACTED:db] again.").count(), 2);
    assert_eq!(place.json(&["stats"])["redacted"]["db"], 3);
    // The same file is still the same turns.
    let again = place.json(&["import", &file, "--session", &format!("about {}", value())]);
    assert_eq!((&again["added"], &again["known"]), (&0.into(), &233.into()), "{again}");
    place.check();
}

#[test]
fn personal_data_is_hidden_by_setting() {
    let place = Place::new();
    let config = place.file("config.toml", "[redaction]\ntags = true\npii = [\"email\"]\n");
    let text = format!("mail bo.lindqvist@glacier.dev or {}", token());
    let clean = place.output_with_input(&["redact", "--config", &config], text.as_bytes());
    let clean = String::from_utf8(clean.stdout).unwrap();
    assert!(clean.starts_with("mail [REDACTED:email:"), "{clean}");
    assert!(clean.contains("or [REDACTED:github-token:"), "{clean}");
    let plain = place.output_with_input(&["redact"], text.as_bytes());
    assert_eq!(plain.stdout, b"mail bo.lindqvist@glacier.dev or [REDACTED:github-token]");
    let config = place.file("config.toml", "[redaction]\npii = [\"mail\"]\n");
    let shown = place.shown(&["stats", "--config", &config]);
    assert!(shown.starts_with("exit 1") && shown.contains("\"all\", \"email\""), "{shown}");
}

#[test]
fn the_master_key_is_rotated() {
    let place = Place::new();
    assert_eq!(place.output(&["key", "rotate-master"]).status.code(), Some(1));
    add(&place, &["db"], value().as_bytes());
    let path = place.data().join("master.key");
    let old = std::fs::read_to_string(&path).unwrap();
    assert_snapshot!(place.shown(&["key", "rotate-master"]), @r"
    exit 0
    --- stderr
    The store has a new master key; the key of 1 tenant was sealed anew
    It is in [DIR]/data/master.key: keep a copy elsewhere, for without it nothing can be read
    Backups from before need the old key: keep it with them
    ");
    let new = std::fs::read_to_string(&path).unwrap();
    assert_ne!(old.trim(), new.trim());
    place.ok(&["add", &value()]);
    assert!(place.ok(&["export"]).contains("[REDACTED:db]"));
    place.check();

    // A key from the environment stays out of files.
    std::fs::remove_file(&path).unwrap();
    let run = |present: &str, new: Option<&str>, args: &[&str]| {
        let mut command = place.command(args);
        command.env("ICECORE_MASTER_KEY", present);
        new.map(|new| command.env("ICECORE_NEW_MASTER_KEY", new));
        command.output().unwrap()
    };
    let refused = place.describe(&run(new.trim(), None, &["key", "rotate-master"]));
    assert!(
        refused.starts_with("exit 1") && refused.contains("ICECORE_NEW_MASTER_KEY"),
        "{refused}"
    );
    let bad = place.describe(&run(new.trim(), Some("5a5a"), &["key", "rotate-master"]));
    assert!(bad.contains("in ICECORE_NEW_MASTER_KEY is not 64") && !bad.contains("5a5a"), "{bad}");
    let next = "5a".repeat(32);
    let rotated = run(new.trim(), Some(&next), &["key", "rotate-master", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&rotated.stdout).unwrap();
    assert_eq!(told, serde_json::json!({ "tenants": 1, "keyFile": null }));
    assert!(!path.exists());
    assert!(run(&next, None, &["secret", "list"]).status.success());
    assert_eq!(run(new.trim(), None, &["secret", "list"]).status.code(), Some(1));
    for output in [&rotated, &run(new.trim(), None, &["stats"])] {
        let shown = place.describe(output);
        assert!(!shown.contains(&next) && !shown.contains(new.trim()), "{shown}");
    }
}

#[cfg(feature = "postgres")]
#[test]
fn the_master_key_of_a_shared_store_is_rotated() {
    let Some(database) = icecore_store::testing::postgres::prepared_database() else { return };
    let place = Place::new();
    let (old, new) = ("4b".repeat(32), "5c".repeat(32));
    let run = |present: &str, next: Option<&str>, args: &[&str]| {
        let mut command = place.command(args);
        command.env("ICECORE_STORE", database.url()).env("ICECORE_MASTER_KEY", present);
        next.map(|next| command.env("ICECORE_NEW_MASTER_KEY", next));
        command.env("VALUE", value()).output().unwrap()
    };
    for name in ["acme", "rival"] {
        let added = ["secret", "add", "db", "--from-env", "VALUE", "--tenant", name];
        assert!(run(&old, None, &added).status.success());
        assert!(run(&old, None, &["add", "before", "--tenant", name]).status.success());
    }
    let refused = place.describe(&run(&old, None, &["key", "rotate-master"]));
    assert!(refused.starts_with("exit 1") && refused.contains("ICECORE_NEW_MASTER_KEY"));
    let rotated = run(&old, Some(&new), &["key", "rotate-master"]);
    assert_snapshot!(place.describe(&rotated), @r"
    exit 0
    --- stderr
    The store has a new master key; the keys of 2 tenants were sealed anew
    Put it into ICECORE_MASTER_KEY now and keep a copy: without it nothing can be read
    Start every host again with it: until then they serve only the tenants they have met
    Backups from before need the old key: keep it with them
    ");
    assert!(!place.data().join("master.key").exists());
    for name in ["acme", "rival"] {
        assert!(run(&new, None, &["add", &value(), "--tenant", name]).status.success());
        let export = run(&new, None, &["export", "--tenant", name]);
        let export = String::from_utf8(export.stdout).unwrap();
        assert!(export.contains("[REDACTED:db]") && export.contains("before"), "{export}");
    }
    for args in [["secret", "list"], ["key", "rotate-master"]] {
        let refused = place.describe(&run(&old, Some(&new), &args));
        assert!(refused.starts_with("exit 1"), "{refused}");
        assert!(refused.contains("the master key from ICECORE_MASTER_KEY is not"), "{refused}");
        assert!(!refused.contains(&old) && !refused.contains(&new), "{refused}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test damages the file from outside")]
fn a_value_that_does_not_open_stops_writing_until_it_is_removed() {
    let place = Place::new();
    add(&place, &["db"], value().as_bytes());
    place.ok(&["add", "before"]);
    let store = rusqlite::Connection::open(place.data().join("icecore.db")).unwrap();
    let changed =
        store.execute("UPDATE secrets SET sealed = zeroblob(length(sealed))", []).unwrap();
    drop(store);
    assert_eq!(changed, 1);
    assert_snapshot!(place.shown(&["add", "more"]), @r"
    exit 1
    --- stderr
    error: the sealed value of secret `db` does not open
    hint: restore the store from a backup, or remove the secret and add it again; nothing is written until then
    ");
    place.ok(&["secret", "list"]);
    place.ok(&["secret", "remove", "db"]);
    place.ok(&["add", "after"]);
    place.check();
}
