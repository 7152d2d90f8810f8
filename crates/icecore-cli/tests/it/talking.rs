//! Models that talk, as the settings declare them and the binary asks them.

use std::sync::Arc;

use icecore_models::testing::{Behaviour, ServerKind, Upstream, UpstreamConfig};
use insta::assert_snapshot;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::run::{Place, conversation};

/// A server beside the binary, with the runtime that it lives in.
struct Server {
    upstream: Upstream,
    _runtime: Runtime,
}

impl Server {
    fn start(config: UpstreamConfig) -> Self {
        let runtime = Runtime::new().unwrap();
        let upstream = runtime.block_on(Upstream::start(config));
        Self { upstream, _runtime: runtime }
    }

    /// One that summarizes whatever it is asked.
    fn summing(key: Option<&str>, kind: ServerKind) -> Self {
        Self::start(UpstreamConfig {
            window: 16_000,
            key: key.map(str::to_owned),
            kind,
            answer: Arc::new(|_| "SUMMARY: A glacier and its moraine.".to_owned()),
            ..UpstreamConfig::default()
        })
    }
}

const SMALL_CHUNKS: &str = "[memory]\nmicro_chunk_size = 2\nmini_chunk_interval = 4\nmacro_chunk_interval = 8\nhot_chunks = 0\n";

/// What was spent on a purpose, by the model's name.
fn spent<'a>(stats: &'a Value, purpose: &str, model: &str) -> Option<&'a Value> {
    let spent = stats["models"]["spent"].as_array().unwrap();
    spent.iter().find(|one| one["purpose"] == purpose && one["model"] == model)
}

#[test]
fn models_that_talk_are_listed_with_what_they_are_asked_for() {
    let place = Place::new();
    let file = place.file(
        "config.toml",
        "[models.big]\nprotocol = \"anthropic\"\nurl = \"https://models.example/v1\"\nmodel = \"claude-x\"\n\
         [models.small]\nurl = \"http://127.0.0.1:1/v1\"\nwindow = 4096\n\
         [memory]\nsummarization_strategy = \"llm\"\nsummarization_model = \"small\"\n\
         [dreams]\nmodel = \"small\"\n[sessions]\ndistiller_model = \"local\"\n",
    );
    let listed = place.ok(&["model", "list", "--config", &file]);
    let rows: Vec<String> = listed
        .lines()
        .skip_while(|line| !line.starts_with("talks"))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_snapshot!(rows.join("\n"), @r"
    talks protocol server model window asked for
    big anthropic https://models.example/v1 claude-x 200,000 nothing
    small openai http://127.0.0.1:1/v1 small 4,096 summaries, dreams
    local openai looked for at http://127.0.0.1:11434 or http://127.0.0.1:8080 handoffs
    ");
    let listed = place.json(&["model", "list", "--config", &file]);
    assert_eq!(
        listed["talking"][1],
        serde_json::json!({"name": "small", "protocol": "openai", "url": "http://127.0.0.1:1/v1",
            "model": "small", "window": 4096, "reserve": 1024, "usedFor": ["summaries", "dreams"]})
    );
    let shown = place.ok(&["config", "show", "--config", &file]);
    assert!(shown.contains("models.small.window"), "{shown}");
}

#[test]
fn a_key_comes_from_the_environment_or_from_a_secret() {
    let server = Server::summing(Some("a-key-for-tests-1"), ServerKind::Plain);
    let place = Place::new();
    let turns = place.file("c.jsonl", conversation(4));
    let settings = |key: &str| {
        let url = server.upstream.url();
        format!(
            "{SMALL_CHUNKS}summarization_strategy = \"llm\"\n[models]\nlocal_urls = []\n\
             [models.m]\nurl = \"{url}\"\nwindow = 16000\n{key}\n"
        )
    };
    let by_env = place.file("env.toml", settings("key_env = \"MODEL_KEY\""));
    assert_snapshot!(place.shown(&["import", &turns, "--config", &by_env]), @r"
    exit 1
    --- stderr
    error: the environment variable `MODEL_KEY` is not set
    hint: `models.m.key_env` says that it holds the key of the model
    ");
    // What asks no model needs no key.
    place.ok(&["stats", "--config", &by_env]);
    assert_eq!(server.upstream.request_count(), 0);
    let output = place
        .command(&["import", &turns, "--config", &by_env])
        .env("MODEL_KEY", "a-key-for-tests-1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", place.describe(&output));
    let by_key = server.upstream.request_count();
    assert!(by_key > 0);

    // Nor is anybody kept from forgetting for want of one.
    place.ok(&["add", "--session", "trip", "A walk to the moraine."]);
    let told = place.shown(&["forget", "--session", "trip", "--config", &by_env]);
    assert!(told.starts_with("exit 0") && told.contains("; going on without models"), "{told}");

    let by_secret = place.file("secret.toml", settings("key_secret = \"model\""));
    let more = place.file("d.jsonl", conversation(12));
    assert_snapshot!(place.shown(&["import", &more, "--config", &by_secret]), @r"
    exit 1
    --- stderr
    error: there is no registered secret `model`
    hint: `models.m.key_secret` says that it is the key of the model; register it with `icecore secret add model`
    ");
    let added = place.output_with_input(&["secret", "add", "model"], b"a-key-for-tests-1\n");
    assert!(added.status.success(), "{}", place.describe(&added));
    place.ok(&["import", &more, "--config", &by_secret]);
    assert!(server.upstream.request_count() > by_key);
    let stats = place.json(&["stats"]);
    let spent = spent(&stats, "summary", "m").unwrap_or_else(|| panic!("{stats}"));
    assert_eq!(spent["failed"], 0, "{spent}");
    assert!(spent["calls"].as_u64().unwrap() >= by_key as u64, "{spent}");
    place.check();
}

#[test]
fn a_server_on_this_machine_is_found() {
    let server = Server::summing(None, ServerKind::LlamaCpp);
    let place = Place::new();
    let turns = place.file("c.jsonl", conversation(4));
    let settings = |urls: &str| {
        format!(
            "{SMALL_CHUNKS}summarization_strategy = \"local\"\n[models]\nlocal_urls = [{urls}]\n"
        )
    };
    let nobody = place.file("nobody.toml", settings("\"http://127.0.0.1:1\""));
    let shown = place.shown(&["import", &turns, "--config", &nobody]);
    assert!(shown.starts_with("exit 0"), "{shown}");
    assert!(shown.contains("no model server was found on this machine at http://127.0.0.1:1"));

    let found = place.file(
        "found.toml",
        settings(&format!("\"http://127.0.0.1:1\", \"{}\"", server.upstream.root())),
    );
    let more = place.file("d.jsonl", conversation(12));
    place.ok(&["import", &more, "--config", &found]);
    assert!(server.upstream.request_count() > 0);
    assert!(spent(&place.json(&["stats"]), "summary", "local").is_some());
}

#[test]
fn stats_set_what_was_saved_against_what_it_cost_in_money() {
    let server = Server::summing(None, ServerKind::Plain);
    let place = Place::new();
    let turns = place.file("c.jsonl", conversation(8));
    let url = server.upstream.url();
    let file = place.file(
        "config.toml",
        format!(
            "{SMALL_CHUNKS}summarization_strategy = \"llm\"\n[models.m]\nurl = \"{url}\"\n\
             window = 16000\ninput_price = 2.5\noutput_price = 10\n"
        ),
    );
    place.ok(&["import", &turns, "--config", &file]);
    let told = place.ok(&["stats", "--config", &file]);
    assert!(told.contains(", worth 0.") && told.contains(", for 0."), "{told}");
}

#[test]
fn what_a_server_does_wrong_loses_nothing() {
    let place = Place::new();
    let turns = place.file("c.jsonl", conversation(8));
    for (at, behaviour) in [
        Behaviour::Denied,
        Behaviour::UnknownModel,
        Behaviour::Fail(500),
        Behaviour::MalformedStream("SUMMARY".to_owned()),
        Behaviour::Html,
        Behaviour::Empty,
        Behaviour::CutOff("SUMMARY: half".to_owned()),
    ]
    .into_iter()
    .enumerate()
    {
        let server = Server::summing(None, ServerKind::Plain);
        server.upstream.push_all(std::iter::repeat_n(behaviour, 100));
        let url = server.upstream.url();
        let file = place.file(
            "config.toml",
            format!(
                "{SMALL_CHUNKS}summarization_strategy = \"llm\"\n[models]\nlocal_urls = []\n\
                 [models.m{at}]\nurl = \"{url}\"\nwindow = 16000\nretries = 0\n"
            ),
        );
        let memory = format!("m{at}");
        place.ok(&["import", &turns, "--config", &file, "--memory", &memory]);
        let stats = place.json(&["stats", "--memory", &memory]);
        assert_eq!(stats["turns"], 8, "{stats}");
        let spent = spent(&stats, "summary", &memory).unwrap_or_else(|| panic!("{stats}"));
        assert_eq!(spent["calls"], spent["failed"], "{spent}");
    }
    place.check();
}
