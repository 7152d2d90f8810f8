//! The commands over object storage that is another process's business.

use std::process::Output;

use s3_testing::{BUCKET, Fault, KEY_ID, Line, S3Server, SECRET};

use crate::run::{Place, conversation, files};
use crate::serve::{SERVE, started};
use crate::signals::signal;

/// A directory, a server, and settings that lead from the one to the other.
struct Stored {
    place: Place,
    config: String,
    server: S3Server,
    runtime: tokio::runtime::Runtime,
}

impl Stored {
    fn new() -> Self {
        let (place, runtime) = (Place::new(), tokio::runtime::Runtime::new().unwrap());
        let server = runtime.block_on(S3Server::start(&place.dir.path().join("server")));
        let config = place.file(
            "objects.toml",
            format!(
                "[objects]\nendpoint = \"http://{}\"\nallow_http = true\n[advanced.objects]\nretry_seconds = 0\n",
                server.address()
            ),
        );
        Self { place, config, server, runtime }
    }

    fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = self.place.command(args);
        command.env("ICECORE_CONFIG", &self.config).env("ICECORE_OBJECTS", self.url());
        command.env("AWS_ACCESS_KEY_ID", KEY_ID).env("AWS_SECRET_ACCESS_KEY", SECRET);
        command
    }

    fn url(&self) -> String {
        format!("s3://{BUCKET}/cli")
    }

    fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn ok(&self, args: &[&str]) -> String {
        let output = self.output(args);
        assert!(output.status.success(), "{args:?}: {}", self.place.describe(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The objects on the server's disk that end so.
    fn lying(&self, ending: &str) -> usize {
        let all = files(&self.place.dir.path().join("server").join(BUCKET));
        all.iter().filter(|path| path.extension().is_some_and(|found| found == ending)).count()
    }
}

#[test]
fn every_command_finds_what_lies_in_object_storage() {
    let stored = Stored::new();
    let turns = stored.place.file("turns.jsonl", conversation(250));
    stored.ok(&["import", &turns, "--session", "s"]);
    stored.ok(&["dream"]);
    assert_eq!((stored.lying("icepack"), stored.lying("icearchive")), (2, 1));
    assert!(!stored.place.data().join("packs").exists());
    assert_eq!(stored.ok(&["export", "--session", "s"]).lines().count(), 250);
    let check: serde_json::Value = serde_json::from_str(&stored.ok(&["check", "--json"])).unwrap();
    assert_eq!((&check["ok"], &check["packs"]), (&true.into(), &2.into()));
    stored.ok(&["archive", "verify"]);

    stored.ok(&["forget", "--session", "s"]);
    assert_eq!((stored.lying("icepack"), stored.lying("icearchive")), (0, 0));
}

#[test]
fn what_is_wrong_with_object_storage_is_said() {
    let mut stored = Stored::new();
    let turns = stored.place.file("turns.jsonl", conversation(250));
    stored.ok(&["import", &turns, "--session", "s"]);

    let said = |output: Output| {
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let refused =
        said(stored.command(&["check"]).env("AWS_SECRET_ACCESS_KEY", "x").output().unwrap());
    assert!(
        refused.contains("refuses it") && refused.contains("AWS_SECRET_ACCESS_KEY"),
        "{refused}"
    );
    let nobody = said(stored.command(&["check"]).env_remove("AWS_ACCESS_KEY_ID").output().unwrap());
    assert!(nobody.contains("there are no credentials"), "{nobody}");
    let nowhere =
        said(stored.command(&["check"]).env("ICECORE_OBJECTS", "gs://b").output().unwrap());
    assert!(nowhere.contains("ICECORE_OBJECTS"), "{nowhere}");

    stored.runtime.block_on(stored.server.stop());
    let gone = said(stored.output(&["check"]));
    assert!(gone.contains("does not answer") && gone.contains("objects.endpoint"), "{gone}");
    assert!(!gone.contains(SECRET), "{gone}");
    stored.runtime.block_on(stored.server.start_again());
    stored.ok(&["check"]);
}

#[test]
fn a_host_goes_on_while_object_storage_is_gone() {
    let mut stored = Stored::new();
    let turns = stored.place.file("turns.jsonl", conversation(250));
    stored.ok(&["import", &turns, "--session", "s"]);
    stored.runtime.block_on(stored.server.stop());
    let mut host = started(stored.command(&SERVE).stderr(std::process::Stdio::null()));
    let cold = "/v1/host/icecore/sessions/s/turns?limit=5";
    let answer = host.get(cold);
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("objects_unavailable"), "{answer}");
    assert!(!answer.contains(BUCKET), "where it is, is no business of who asks: {answer}");
    let body = "{\"turns\":[{\"role\":\"user\",\"content\":\"still here\"}]}";
    let added = host.ask("POST", "/v1/host/icecore/sessions/t/turns", body);
    assert!(added.starts_with("HTTP/1.1 20"), "{added}");

    stored.runtime.block_on(stored.server.start_again());
    let answer = host.get(cold);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("Turn 1 "), "{answer}");
    signal(&host.child, "TERM");
    assert!(host.child.wait().unwrap().success());
}

/// Each answer costs at most what it is about, and is never wrong.
#[test]
fn a_host_goes_on_while_object_storage_is_slow_fails_or_lies() {
    let stored = Stored::new();
    let line = stored.runtime.block_on(Line::to(stored.server.address()));
    let config = stored.place.file(
        "failing.toml",
        format!(
            "[objects]\nendpoint = \"{}\"\nallow_http = true\ncache_bytes = 0\n\
             [advanced.objects]\nretry_seconds = 0\nrequest_seconds = 1\n",
            line.endpoint()
        ),
    );
    let turns = stored.place.file("turns.jsonl", conversation(250));
    stored.ok(&["import", &turns, "--session", "s"]);
    let mut command = stored.command(&SERVE);
    command.env("ICECORE_CONFIG", &config).stderr(std::process::Stdio::null());
    let mut host = started(&mut command);
    let cold = "/v1/host/icecore/sessions/s/turns?limit=5";
    let add = |host: &crate::serve::Host, session: &str| {
        let lines: Vec<String> = conversation(120).lines().map(str::to_owned).collect();
        let body = format!("{{\"turns\":[{}]}}", lines.join(","));
        let added = host.ask("POST", &format!("/v1/host/icecore/sessions/{session}/turns"), &body);
        assert!(added.starts_with("HTTP/1.1 201"), "{added}");
    };
    let faults = [
        (Fault::Hang, "503", "objects_unavailable"),
        (Fault::Status(500), "503", "objects_unavailable"),
        (Fault::Cut, "503", "objects_unavailable"),
        (Fault::Truncate(20), "503", "objects_unavailable"),
        // Nobody can tell that from what is damaged where it lies.
        (Fault::Shorten(20), "500", "data_damaged"),
    ];
    for (at, (fault, status, code)) in faults.into_iter().enumerate() {
        line.always("GET", fault.clone());
        let answer = host.get(cold);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{fault:?}: {answer}");
        assert!(answer.contains(code), "{fault:?}: {answer}");
        // What would go there is taken, and waits here.
        line.always("PUT", fault.clone());
        add(&host, &format!("t{at}"));
    }
    line.always("PUT", Fault::LoseAnswer);
    add(&host, "t5");
    line.always("", Fault::None);
    line.go_on();
    let answer = host.get(cold);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("Turn 1 "), "{answer}");
    // All of it gets there by itself: a pack for each hundred turns, and none twice.
    let begun = std::time::Instant::now();
    while !host.get("/v1/host/icecore/stats").contains("\"pending\":0") {
        assert!(begun.elapsed().as_secs() < 60, "it did not recover");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    signal(&host.child, "TERM");
    assert!(host.child.wait().unwrap().success());
    assert_eq!(stored.ok(&["export", "--session", "t5"]).lines().count(), 120);
    let check: serde_json::Value = serde_json::from_str(&stored.ok(&["check", "--json"])).unwrap();
    assert_eq!((&check["ok"], &check["packs"]), (&true.into(), &(2 + 6).into()));
}

#[test]
fn settings_are_shown_without_the_key() {
    let stored = Stored::new();
    let shown = stored.ok(&["config", "show"]);
    let line = |key: &str| shown.lines().find(|line| line.starts_with(key)).unwrap_or_default();
    assert!(line("objects.url").contains(&stored.url()), "{shown}");
    assert!(line("objects.url").ends_with("environment ICECORE_OBJECTS"), "{shown}");
    assert!(line("objects.endpoint").ends_with("file"), "{shown}");
    assert!(line("objects key").contains(KEY_ID), "{shown}");
    assert!(!shown.contains(SECRET), "{shown}");
}
