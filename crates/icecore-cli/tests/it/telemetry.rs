//! Logs as JSON, and traces as a collector gets them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use crate::run::Place;
use crate::serve::{Host, SERVE, started};
use crate::signals::signal;

/// A request that the collector got: its head, and its body in protobuf.
struct Export {
    head: String,
    body: Vec<u8>,
}

impl Export {
    fn holds(&self, text: &str) -> bool {
        self.body.windows(text.len()).any(|part| part == text.as_bytes())
    }
}

/// A collector that takes whatever comes.
fn collector() -> (String, mpsc::Receiver<Export>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, exports) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let sender = sender.clone();
            let mut stream = BufReader::new(stream.unwrap());
            std::thread::spawn(move || {
                while let Some(export) = take(&mut stream) {
                    let _ = sender.send(export);
                    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                    stream.get_mut().write_all(answer.as_bytes()).unwrap();
                }
            });
        }
    });
    (url, exports)
}

fn take(stream: &mut BufReader<std::net::TcpStream>) -> Option<Export> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length?.parse().ok()?];
    stream.read_exact(&mut body).ok()?;
    Some(Export { head, body })
}

fn end(mut host: Host) -> String {
    signal(&host.child, "TERM");
    let mut log = String::new();
    if let Some(mut stderr) = host.child.stderr.take() {
        stderr.read_to_string(&mut log).unwrap();
    }
    assert_eq!(host.child.wait().unwrap().code(), Some(0), "{log}");
    log
}

fn converse(host: &Host, session: &str, content: &str) {
    let path = format!("/v1/host/icecore/sessions/{session}/turns");
    let body = format!(r#"{{"turns":[{{"role":"user","content":"{content}"}}]}}"#);
    assert!(host.ask("POST", &path, &body).starts_with("HTTP/1.1 201"), "{session}");
    let found = host.ask("POST", "/v1/host/icecore/search", r#"{"query":"moraine"}"#);
    assert!(found.starts_with("HTTP/1.1 200"), "{found}");
}

#[test]
fn a_collector_gets_spans_without_content() {
    let place = Place::new();
    let (url, exports) = collector();
    let mut command = place.command(&SERVE);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", url).env("OTEL_SERVICE_NAME", "glacier");
    let host = started(command.stderr(Stdio::piped()));
    converse(&host, "confidential", "the terminal moraine");
    end(host);
    // What waited was sent at the end.
    let exports: Vec<Export> = exports.try_iter().collect();
    assert!(!exports.is_empty());
    for export in &exports {
        assert!(export.head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{}", export.head);
        assert!(export.head.to_lowercase().contains("content-type: application/x-protobuf"));
    }
    let sent = |text: &str| exports.iter().any(|export| export.holds(text));
    let template = "/v1/host/icecore/sessions/{session}/turns";
    for expected in ["glacier", "request", "append", "search", template, "POST"] {
        assert!(sent(expected), "{expected}");
    }
    for private in ["confidential", "moraine", "Bearer", "default", "ice_"] {
        assert!(!sent(private), "{private}");
    }
}

#[test]
fn a_collector_is_named_in_the_file_with_its_headers() {
    let place = Place::new();
    let (url, exports) = collector();
    let settings = format!(
        "[telemetry]\notlp_endpoint = \"{url}/\"\notlp_headers_env = \"COLLECTOR\"\nservice_name = \"firn\"\n"
    );
    let config = place.file("icecore.toml", settings);
    let mut command = place.command(&SERVE);
    command.args(["--config", &config]).env("COLLECTOR", "x-team=ice");
    let host = started(command.env("OTEL_BSP_SCHEDULE_DELAY", "50").stderr(Stdio::piped()));
    host.get("/healthz");
    let export = exports.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(export.head.to_lowercase().contains("x-team: ice\r\n"), "{}", export.head);
    assert!(export.holds("firn"));
    end(host);
}

#[test]
fn a_collector_that_is_away_is_told_once_and_costs_nothing() {
    let place = Place::new();
    // Bound and let go: nobody listens there.
    let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = place.command(&SERVE);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{away}"));
    let host = started(command.env("OTEL_BSP_SCHEDULE_DELAY", "20").stderr(Stdio::piped()));
    for number in 0..10 {
        converse(&host, &format!("s{number}"), "on the moraine");
        std::thread::sleep(Duration::from_millis(60));
    }
    let log = end(host);
    assert_eq!(log.matches("the OTLP collector takes no traces").count(), 1, "{log}");
    let shown = {
        let mut command = place.command(&SERVE);
        place.describe(&command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "ice:4317").output().unwrap())
    };
    assert!(
        shown.starts_with("exit 1") && shown.contains("hint: write it like http://"),
        "{shown}"
    );
}

#[test]
fn logs_are_json_by_flag_or_variable() {
    let token = format!("ghp_{}", "a1B2".repeat(9));
    for by_flag in [true, false] {
        let place = Place::new();
        let mut command = place.command(&SERVE);
        match by_flag {
            true => command.args(["--log-format", "json"]),
            false => command.env("ICECORE_LOG_FORMAT", "json"),
        };
        command.arg("--quiet").env("ICECORE_LOG", "debug");
        let host = started(command.stderr(Stdio::piped()));
        host.get(&format!("/{token}"));
        converse(&host, "s", &format!("password: {token}"));
        let log = end(host);
        let lines: Vec<serde_json::Value> =
            log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        let answered = lines.iter().find(|line| line["status"] == 201).expect(&log);
        assert_eq!(answered["level"], "INFO");
        assert_eq!(answered["message"], "answered");
        assert!(!log.contains(&token), "{log}");
    }
    let place = Place::new();
    let mut command = place.command(&["stats"]);
    let shown = place.describe(&command.env("ICECORE_LOG_FORMAT", "xml").output().unwrap());
    assert!(shown.starts_with("exit 1") && shown.contains("set it to text or json"), "{shown}");
}
