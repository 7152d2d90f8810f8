//! The host, as the command line starts and ends it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::run::Place;
use crate::signals::signal;

pub struct Host {
    pub child: Child,
    pub address: String,
    pub key: String,
}

impl Drop for Host {
    /// A test that fails leaves nothing running.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn start(place: &Place) -> Host {
    started(place.command(&SERVE).stderr(Stdio::piped()))
}

/// As [`start`], with everything that can be logged written to a file.
pub fn start_with(place: &Place, log: &str) -> Host {
    let log = std::fs::File::create(log).unwrap();
    started(place.command(&SERVE).env("ICECORE_LOG", "trace").stderr(log))
}

pub const SERVE: [&str; 4] = ["serve", "--listen", "127.0.0.1:0", "--json"];

/// As [`start`], with whatever the command was given.
pub fn started(command: &mut Command) -> Host {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let first: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = first["listening"].as_str().unwrap().trim_start_matches("http://").to_owned();
    let key = std::fs::read_to_string(first["keyFile"].as_str().unwrap()).unwrap();
    Host { child, address, key: key.trim().to_owned() }
}

impl Host {
    /// The same host, spoken to with another key.
    pub fn status_of(&self, key: &str, path: &str) -> String {
        let answer = self.ask_with(&format!("Bearer {key}"), "GET", path, "");
        answer.split(' ').nth(1).unwrap().to_owned()
    }

    pub fn get(&self, path: &str) -> String {
        self.ask("GET", path, "")
    }

    pub fn ask(&self, method: &str, path: &str, body: &str) -> String {
        self.ask_with(&format!("Bearer {}", self.key), method, path, body)
    }

    pub fn ask_with(&self, authorization: &str, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let (address, length) = (&self.address, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: {authorization}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

#[test]
fn the_host_says_where_it_listens_and_ends_well() {
    let place = Place::new();
    place.ok(&["add", "--session", "s", "before"]);
    for start_number in 1..=2 {
        let mut host = start(&place);
        let answer = host.get("/v1/host/icecore/sessions");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("\"session\":\"s\""), "{answer}");
        // The command line works beside a running host, and the host sees it.
        place.ok(&["add", "--session", "s", "beside"]);
        let turns = host.get("/v1/host/icecore/sessions/s/turns");
        assert_eq!(turns.matches("beside").count(), start_number, "{turns}");
        signal(&host.child, "TERM");
        assert_eq!(host.child.wait().unwrap().code(), Some(0));
    }
    place.check();
}

/// The body of an answer, without what differs from one moment to the next.
fn lasting(answer: &str) -> serde_json::Value {
    let body = answer.split_once("\r\n\r\n").map_or(answer, |(_, body)| body);
    let mut value: serde_json::Value = serde_json::from_str(body).unwrap();
    for key in ["receiptId", "sha256", "statement", "at", "diskBytes"] {
        if let Some(field) = value.get_mut(key) {
            *field = "[DIFFERS]".into();
        }
    }
    value
}

#[test]
fn the_command_line_prints_what_the_routes_answer() {
    let place = Place::new();
    for n in 0..12 {
        place.ok(&["add", "--session", "s", "--name", "Ana", &format!("Turn {n} about ice.")]);
    }
    place.ok(&["add", "--session", "s", "--name", "Ana", "I live in Lisbon."]);
    let mut host = start(&place);
    let route = |method: &str, path: &str, body: &str| {
        lasting(&host.ask(method, &format!("/v1/host/icecore{path}"), body))
    };
    let printed = |args: &[&str]| lasting(&place.ok(&[args, &["--json"]].concat()));
    assert_eq!(printed(&["sessions"]), route("GET", "/sessions", ""));
    assert_eq!(printed(&["learn"]), route("GET", "/facts", ""));
    let id = printed(&["learn", "list", "--kind", "identity"])["facts"][0]["id"].clone();
    let id = id.as_str().unwrap();
    let confirmed = printed(&["learn", "confirm", id]);
    assert_eq!(confirmed["facts"][0]["status"], "confirmed");
    assert_eq!(confirmed, route("POST", &format!("/facts/{id}/confirm"), ""));
    assert_eq!(printed(&["learn", "--all"]), route("GET", "/facts?all=true", ""));
    // Each request to the host counts, and none of the command line does.
    let without_usage = |mut stats: serde_json::Value| {
        assert!(stats.as_object_mut().unwrap().remove("usage").is_some());
        stats
    };
    assert_eq!(without_usage(printed(&["stats"])), without_usage(route("GET", "/stats", "")));
    assert_eq!(printed(&["view", "--session", "s"]), route("GET", "/sessions/s/view", ""));
    assert_eq!(
        printed(&["context", "--session", "s", "--budget", "90"]),
        route("POST", "/context", r#"{"session":"s","budget":90}"#)
    );
    assert_eq!(
        printed(&["forget", "--session", "s", "--dry-run"]),
        route("POST", "/forget", r#"{"session":"s","dryRun":true}"#)
    );
    signal(&host.child, "TERM");
    assert_eq!(host.child.wait().unwrap().code(), Some(0));
}

#[test]
fn an_address_that_cannot_be_used_is_refused() {
    let place = Place::new();
    insta::assert_snapshot!(place.shown(&["serve", "--listen", "nonsense"]), @r"
    exit 1
    --- stderr
    error: `nonsense` is no address to listen on
    hint: write an address and a port, like 127.0.0.1:7433, or unix:PATH
    ");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let shown = place.shown(&["serve", "--listen", &address]).replace(&address, "[ADDRESS]");
    insta::assert_snapshot!(shown, @r"
    exit 1
    --- stderr
    error: cannot listen on [ADDRESS]: Address already in use (os error 98)
    hint: choose another with --listen; port 0 takes a free one
    ");
}

/// A settings file that names a directory with one manifest.
fn with_agent(place: &Place, manifest: &str) -> String {
    let dir = place.dir.path().join("agents");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("pilot.json"), manifest).unwrap();
    place.file("agents.toml", format!("[openwop]\nagents = \"{}\"\n", dir.display()))
}

#[test]
fn a_manifest_that_cannot_be_used_keeps_the_host_from_starting() {
    let place = Place::new();
    let check = |manifest: &str| {
        let config = with_agent(&place, manifest);
        place.shown(&["serve", "--listen", "127.0.0.1:0", "--config", &config])
    };
    insta::assert_snapshot!(check("{"), @r"
    exit 1
    --- stderr
    error: the agent manifest `pilot.json` is not valid JSON: EOF while parsing an object at line 1 column 1
    hint: correct it, or move it away; a manifest has `agentId`, `persona`, `label`, `modelClass`, `packName` and `packVersion`
    ");
    insta::assert_snapshot!(check(r#"{"agentId":"harbour.pilot","persona":7}"#), @r"
    exit 1
    --- stderr
    error: in the agent manifest `pilot.json`, `persona` must be a text of 1 to 4096 characters, without control characters
    hint: correct it, or move it away; a manifest has `agentId`, `persona`, `label`, `modelClass`, `packName` and `packVersion`
    ");
    let config = place.file("none.toml", "[openwop]\nagents = \"/nowhere/agents\"\n");
    let shown = place.shown(&["serve", "--listen", "127.0.0.1:0", "--config", &config]);
    insta::assert_snapshot!(shown, @r"
    exit 1
    --- stderr
    error: cannot read the directory of agent manifests `/nowhere/agents`: No such file or directory (os error 2)
    hint: give `openwop.agents` a directory that this user can read, or leave it out
    ");
}

#[test]
fn an_agent_that_asks_for_too_much_is_warned_about_and_listed() {
    let place = Place::new();
    let config = with_agent(
        &place,
        r#"{"agentId":"harbour.pilot","persona":"pilot","label":"Pilot","modelClass":"general",
            "packName":"harbour","packVersion":"1","requiresCapabilities":["tides.forecast"]}"#,
    );
    let mut command = place.command(&SERVE);
    let mut host = started(command.args(["--config", &config]).stderr(Stdio::piped()));
    let listed = lasting(&host.get("/v1/agents"));
    assert_eq!(listed["agents"][0]["degraded"], serde_json::json!(["tides.forecast"]));
    signal(&host.child, "TERM");
    assert_eq!(host.child.wait().unwrap().code(), Some(0));
    let mut told = String::new();
    host.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(told.contains("warning: the agent `harbour.pilot` is listed as degraded"), "{told}");
}

#[test]
fn a_host_in_the_file_system_ends_without_a_trace() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;
    let place = Place::new();
    let socket = place.dir.path().join("ice.sock");
    let listen = format!("unix:{}", socket.display());
    let serve = ["serve", "--listen", listen.as_str(), "--json"];
    let mut child =
        place.command(&serve).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let first: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(first["listening"], listen);
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: ice\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // A second host is told that it is taken.
    let refused = place.output(&serve);
    assert_eq!(refused.status.code(), Some(1));
    let told = String::from_utf8_lossy(&refused.stderr).into_owned()
        + &String::from_utf8_lossy(&refused.stdout);
    assert!(told.contains("another process listens on unix:"), "{told}");
    signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!socket.exists());
}

/// Posts one turn; whether it was answered 201. An error means that the host would
/// not hear it any more.
fn post(host: &(String, String), content: &str) -> std::io::Result<bool> {
    let (address, key) = host;
    let mut stream = TcpStream::connect(address)?;
    let body = format!(r#"{{"turns":[{{"role":"user","content":"{content}"}}]}}"#);
    let request = format!(
        "POST /v1/host/icecore/sessions/s/turns HTTP/1.1\r\nHost: {address}\r\n\
         Authorization: Bearer {key}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.starts_with("HTTP/1.1 201"))
}

#[test]
fn what_was_answered_before_the_end_is_stored() {
    let place = Place::new();
    let mut host = start(&place);
    let door = (host.address.clone(), host.key.clone());
    let writers: Vec<_> = (0..20)
        .map(|writer| {
            let door = door.clone();
            std::thread::spawn(move || {
                let mut stored = Vec::new();
                for n in 0.. {
                    let content = format!("writer {writer} turn {n}");
                    match post(&door, &content) {
                        Ok(true) => stored.push(content),
                        // Too late: refused, or closed without a word.
                        Ok(false) | Err(_) => break,
                    }
                }
                stored
            })
        })
        .collect();
    std::thread::sleep(std::time::Duration::from_secs(1));
    signal(&host.child, "TERM");
    assert_eq!(host.child.wait().unwrap().code(), Some(0));
    let stored: Vec<String> =
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
    assert!(!stored.is_empty());
    let exported = place.ok(&["export"]);
    for content in &stored {
        assert!(exported.contains(&format!("\"{content}\"")), "{content} was answered 201");
    }
    assert!(TcpStream::connect(&door.0).is_err());
    place.check();
}

/// A host that cannot be run says so before it listens, makes a key or writes anything.
#[test]
fn a_bad_setting_is_found_before_anything_is_written() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let check = |text: &str, listen: &str, expected: &str| {
        let config = place.file("bad.toml", text);
        let output = place.output(&["serve", "--json", "--listen", listen, "--config", &config]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{text}: {said}");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{text}: {said}");
        assert!(said.contains("hint: "), "{text}: {said}");
        assert!(!place.data().exists(), "{text}");
    };
    let free = "127.0.0.1:0";
    check("[serve]\nevent_streams = 0", free, "`serve.event_streams` must be a whole number");
    check("[advanced.serve]\npage_default = 501", free, "`page_default` (501) is more than");
    check("[serve]\nbody_bytes = 999999999", free, "`buffered_bytes` (268435456) is less than");
    check("[memory]\nmicro_chunk_size = 26", free, "`micro_chunk_size` (26) must be at most");
    check("[memory]\nmini_chunk_interval = 30", free, "must be a multiple of");
    check("[sessions]\nwindow = 100", free, "leaves nothing of the window");
    check("[objects]\nurl = \"gs://b\"", free, "is no place for objects");
    check("[proxy]\nopenai_url = \"x\"", free, "`proxy.openai_url` must be http://");
    check("[proxy]\nopenai_key_env = \"NOT_SET\"", free, "`NOT_SET` is not set");
    check("[openwop]\nagents = \"/nowhere/agents\"", free, "/nowhere/agents");
    check("[memory]\nembedding_model = \"word2vec\"", free, "word2vec");
    check("[telemetry]\notlp_endpoint = \"x\"", free, "the address of the OTLP collector");
    check("", "nonsense", "`nonsense` is no address to listen on");
    check("", &taken, "cannot listen on");
}

#[test]
fn flags_beat_the_environment_which_beats_the_file() {
    let place = Place::new();
    let config = place.file("listen.toml", "[serve]\nlisten = \"in-file\"\n");
    let refused = |args: &[&str], variable: Option<&str>| {
        let mut command = place.command(&[&["serve", "--config", &config], args].concat());
        command.envs(variable.map(|value| ("ICECORE_SERVE_LISTEN", value)));
        place.describe(&command.output().unwrap())
    };
    assert!(refused(&["--listen", "in-flag"], Some("in-env")).contains("`in-flag` is no address"));
    assert!(refused(&[], Some("in-env")).contains("`in-env` is no address"));
    assert!(refused(&[], None).contains("`in-file` is no address"));
}
