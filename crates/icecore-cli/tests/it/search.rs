//! Searching with the binary, and what the settings make of it.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use insta::assert_snapshot;

use crate::run::Place;

const TURNS: &str = r#"{"id":"a","role":"user","name":"Ana","content":"We leave for Lisbon on 4 May.","timestamp":"2024-05-01T10:00:00Z","session":"trip"}
{"id":"b","role":"assistant","content":"Then I book the flight.","timestamp":"2024-05-01T10:01:00Z","session":"trip"}
{"id":"c","role":"user","name":"Ben","content":"The cat eats only tuna.","timestamp":"2024-06-01T10:00:00Z","session":"cat"}
"#;

fn with_turns() -> Place {
    let place = Place::new();
    let file = place.file("c.jsonl", TURNS);
    place.ok(&["import", &file, "--quiet"]);
    place
}

fn first(found: &serde_json::Value) -> &str {
    found["hits"][0]["id"].as_str().unwrap_or("nothing")
}

#[test]
fn a_hit_says_when_who_what_and_why() {
    let place = with_turns();
    let output = place.output(&["search", "When do we leave for Lisbon?", "--limit", "2"]);
    let shown = place.describe(&output);
    for part in ["exit 0", "  1 █", "Ana", "2024-05-01 10:00", "trip, turn 1", "a: "] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(shown.contains("    We leave for Lisbon on 4 May.\n"), "{shown}");
    assert!(!shown.contains('\x1b'), "{shown}");
    let explained = place.ok(&["search", "Lisbon", "--explain"]);
    assert!(explained.contains("words +") || explained.contains("lexical +"), "{explained}");
    let colourful = place.command(&["search", "leaving"]).env("CLICOLOR_FORCE", "1").output();
    let colourful = String::from_utf8(colourful.unwrap().stdout).unwrap();
    assert!(colourful.contains("We \x1b[1;33mleave\x1b[0m for"), "{colourful}");
}

#[test]
fn json_is_what_the_route_answers() {
    let place = with_turns();
    let found = place.json(&["search", "What does the cat eat?", "--kind", "turn"]);
    let hit = found["hits"][0].as_object().unwrap();
    let mut names: Vec<&str> = hit.keys().map(String::as_str).collect();
    names.sort_unstable();
    let route = "id kind name reason role score seq session signals text timestamp";
    assert_eq!(names.join(" "), route);
    assert_eq!((first(&found), found.get("notices")), ("c", None));
    let narrow = |args: &[&str]| {
        let mut all = vec!["search", "cat Lisbon flight", "--mode", "lexical"];
        all.extend(args);
        let found = place.json(&all);
        let ids = found["hits"].as_array().unwrap().iter();
        let mut ids: Vec<String> = ids.map(|hit| hit["id"].as_str().unwrap().to_owned()).collect();
        ids.sort();
        ids.join(" ")
    };
    assert_eq!(narrow(&["--session", "trip"]), "a b");
    assert_eq!(narrow(&["--role", "assistant"]), "b");
    assert_eq!(narrow(&["--after", "2024-05-15"]), "c");
    assert_eq!(narrow(&["--before", "2024-05-01T10:00:30Z"]), "a");
    assert_eq!(narrow(&["--kind", "fact", "--kind", "entry"]), "");
    assert_eq!(narrow(&["--memory", "other"]), "");
}

#[test]
fn what_cannot_be_searched_for_is_refused() {
    let place = with_turns();
    assert_snapshot!(place.shown(&["search", " "]), @r"
    exit 1
    --- stderr
    error: the query is empty
    hint: say in words what is looked for
    ");
    assert_snapshot!(place.shown(&["search", "x", "--limit", "0"]), @r"
    exit 1
    --- stderr
    error: `limit` must be from 1 to 500, not 0
    ");
    assert_snapshot!(place.shown(&["search", "x", "--after", "soon"]), @r"
    exit 1
    --- stderr
    error: timestamp `soon` is not RFC 3339 within the years 0000 to 9999 (too short)
    hint: write a time like 2024-05-01T10:00:00Z or 2024-05-01
    ");
    let shown = place.shown(&["search", "x", "--mode", "psychic"]);
    assert!(shown.starts_with("exit 2"), "{shown}");
    assert!(shown.contains("[possible values: hybrid, lexical, semantic]"), "{shown}");
}

#[test]
fn strange_queries_are_answered() {
    let place = with_turns();
    let long = "Lisbon? ".repeat(12_500);
    let strange = [
        long.as_str(),
        "the of and to",
        "Wann fahren wir nach Lissabon?",
        "我们什么时候出发",
        "🐈",
        "a:b AND (c",
        "\u{1b}[2J\u{7}",
    ];
    for query in strange {
        for mode in ["hybrid", "lexical", "semantic"] {
            place.ok(&["search", query, "--mode", mode]);
        }
        let context = place.json(&["context", "--query", query, "--budget", "30"]);
        assert!(context["tokens"].as_u64().unwrap() <= 30, "{context}");
    }
}

#[test]
fn memories_of_nothing_and_of_one_turn() {
    let place = Place::new();
    for mode in ["hybrid", "lexical", "semantic"] {
        let found = place.json(&["search", "anything", "--mode", mode]);
        assert_eq!(found, serde_json::json!({"hits":[]}));
    }
    assert_eq!(place.ok(&["context", "--query", "anything", "--budget", "99"]), "");
    place.ok(&["add", "We leave on 4 May."]);
    assert_eq!(place.json(&["search", "When do we leave?"])["hits"][0]["seq"], 1);
    for budget in ["0", "1", "10", "30", "4000000000"] {
        let context = place.json(&["context", "--query", "leave", "--budget", budget]);
        let tokens = context["tokens"].as_u64().unwrap();
        assert!(tokens <= budget.parse().unwrap(), "{context}");
    }
}

#[test]
fn what_is_forgotten_is_gone_from_every_mode_at_once() {
    let place = with_turns();
    place.ok(&["forget", "--subject", "Ben"]);
    for mode in ["hybrid", "lexical", "semantic"] {
        let found = place.ok(&["search", "the cat eats tuna", "--mode", mode, "--json"]);
        assert!(!found.contains("tuna"), "{mode}: {found}");
    }
    place.check();
}

#[test]
fn reindexing_finds_the_same() {
    let place = with_turns();
    let before = place.json(&["search", "Lisbon flight"]);
    let shown = place.shown(&["reindex"]);
    assert_snapshot!(shown, @r"
    exit 0
    --- stdout
    Rebuilt 0 summaries and the index of memory default
    --- stderr
    Rebuilding summaries, words and vectors of icecore-static-1
    ");
    assert_eq!(place.json(&["search", "Lisbon flight"]), before);
    place.check();
}

#[test]
fn models_are_chosen_by_name() {
    let place = with_turns();
    let listed = place.json(&["model", "list"]);
    let model = &listed["models"][0];
    assert_eq!((&model["name"], &model["inUse"]), (&"icecore-static-1".into(), &true.into()));
    assert_eq!(model["identity"].as_str().unwrap().len(), 64);
    assert!(model["bytes"].as_u64().unwrap() > 1_000_000, "{model}");
    assert!(place.ok(&["model", "list"]).contains("* "));
    let file = place.file("config.toml", "[memory]\nembedding_model = \"word2vec\"\n");
    assert_snapshot!(place.shown(&["search", "x", "--config", &file]), @r"
    exit 1
    --- stderr
    error: there is no embedding model `word2vec`; there is icecore-static-1
    hint: `memory.embedding_model` in the settings file names the model
    ");
    // What makes no vectors needs no model.
    place.ok(&["sessions", "--config", &file]);
}

#[test]
fn files_that_are_no_model_are_refused() {
    let place = Place::new();
    let file = place.file("model.safetensors", "not a model");
    for path in [file.as_str(), "/nowhere/model.safetensors", &place.file("x.hmsemb", "HMSE")] {
        let shown = place.shown(&["model", "add", path]);
        assert!(shown.starts_with("exit 1"), "{shown}");
        assert!(shown.contains("error: cannot install `"), "{shown}");
    }
    assert_eq!(place.json(&["model", "list"])["models"].as_array().unwrap().len(), 1);
}

/// Searches with settings; answers the first hit and what was said.
fn search_with(place: &Place, settings: &str, args: &[&str]) -> (String, String) {
    let file = place.file("config.toml", settings);
    let mut all = vec!["search", "cat tuna", "--json", "--config", &file];
    all.extend(args);
    let output = place.output(&all);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    (first(&serde_json::from_slice(&output.stdout).unwrap()).to_owned(), said)
}

#[test]
fn without_embeddings_words_are_searched() {
    let place = with_turns();
    let settings = "[memory]\nauto_embed = false\n";
    let (found, said) = search_with(&place, settings, &[]);
    assert_eq!(found, "c");
    assert!(said.contains("note: searched by words alone: no embedding model"), "{said}");
    let file = place.file("config.toml", settings);
    let refused = place.shown(&["search", "cat", "--mode", "semantic", "--config", &file]);
    assert!(refused.starts_with("exit 1"), "{refused}");
    assert!(refused.contains("there are no vectors to search by"), "{refused}");
}

/// A server on loopback that answers every request with the same body, after a
/// while.
fn server(body: &'static str, wait: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 65_536]);
                std::thread::sleep(wait);
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
                let _ = write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            });
        }
    });
    url
}

fn endpoint(url: &str, dims: u32) -> String {
    format!(
        "[memory]\nembedding_provider = \"endpoint\"\nembedding_model = \"far\"\n\
         embedding_url = \"{url}\"\nembedding_dims = {dims}\n\
         [advanced.memory]\nembedding_timeout_seconds = 1\n"
    )
}

#[test]
fn an_endpoint_that_fails_leaves_words() {
    let place = with_turns();
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/v1", listener.local_addr().unwrap())
    };
    let short = r#"{"data":[{"index":0,"embedding":[1.0]}]}"#;
    let urls = [
        closed,
        server("no JSON", Duration::ZERO),
        server(short, Duration::ZERO),
        server(short, Duration::from_secs(5)),
    ];
    for url in &urls {
        let (found, said) = search_with(&place, &endpoint(url, 4), &[]);
        assert_eq!(found, "c", "{said}");
        assert!(said.contains("searched by words alone"), "{said}");
    }
    // Asked for its dimensions, it fails before anything is searched.
    let (found, said) = search_with(&place, &endpoint(&urls[0], 0), &[]);
    assert_eq!(found, "c", "{said}");
    assert!(said.contains("warning: the embedding model `far` does not answer"), "{said}");
}

#[test]
fn an_endpoint_that_cannot_be_asked_is_refused() {
    let place = with_turns();
    let mut settings = endpoint("ftp://x", 4);
    let file = place.file("config.toml", &settings);
    let shown = place.shown(&["search", "x", "--config", &file]);
    assert!(shown.starts_with("exit 1"), "{shown}");
    assert!(shown.contains("is not http:// or https:// with a host"), "{shown}");
    let key = "[memory]\nembedding_key_env = \"NO_SUCH_KEY\"\n";
    settings = endpoint("http://x/v1", 4).replace("[memory]\n", key);
    let file = place.file("config.toml", &settings);
    assert_snapshot!(place.shown(&["search", "x", "--config", &file]), @r"
    exit 1
    --- stderr
    error: the environment variable `NO_SUCH_KEY` is not set
    hint: `memory.embedding_key_env` says that it holds the key of the embeddings endpoint
    ");
}
