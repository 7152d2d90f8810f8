//! What of each request of a growing session begins as the one before did: what a provider
//! has cached.

use std::sync::Arc;

use icecore::models::ChatModel;
use icecore::sessions::ExchangeRequest;
use icecore::{Memory, Principal, RawTurn, Tenant};
use icecore_models::ChatClient;
use icecore_models::testing::{Behaviour, Upstream, UpstreamConfig};

use crate::Result;
use crate::plot::grouped;
use crate::report::{strings, table};

/// What is promised between compactions, in percent.
const PROMISED: f64 = 90.0;

#[derive(clap::Args)]
pub struct Args {
    /// Turns of the session.
    #[arg(long, default_value_t = 1_000)]
    turns: usize,
    /// Tokens of the model's window.
    #[arg(long, default_value_t = 16_000)]
    window: u64,
}

/// Tokens sent, and of these such as the request before began with.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    requests: u64,
    tokens: u64,
    cached: u64,
}

impl Sent {
    fn add(&mut self, tokens: u64, cached: u64) {
        self.requests += 1;
        self.tokens += tokens;
        self.cached += cached;
    }

    fn percent(&self) -> f64 {
        self.cached as f64 * 100.0 / self.tokens.max(1) as f64
    }
}

/// Whether as much is cached as was promised.
pub async fn run(args: &Args) -> Result<bool> {
    let upstream =
        Upstream::start(UpstreamConfig { window: args.window, ..UpstreamConfig::default() }).await;
    let model: Arc<dyn ChatModel> = Arc::new(ChatClient::new(upstream.client_config())?);
    let memory = Memory::in_memory();
    let person = Principal::local_operator(Tenant::new("evals")?);
    let scope = memory.scope(&person, "prefix").await?;
    let system = "You help with the work on a compiler. Always answer in short sentences.";
    let mut turns = vec![RawTurn::new("system", system)];
    let (mut between, mut all) = (Sent::default(), Sent::default());
    let (mut said, mut compactions, mut number) = (1, 0_usize, 0_u64);
    while said < args.turns {
        number += 1;
        // Every third request calls a tool first.
        let calls = turns.last().is_none_or(|turn| turn.role != "tool") && number % 3 == 0;
        let id = format!("call-{number}");
        upstream.push(match calls {
            true => Behaviour::CallTools(vec![(
                id.clone(),
                "read".to_owned(),
                format!(r#"{{"path":"src/part_{number}.rs"}}"#),
            )]),
            false => Behaviour::Answer(words(number * 7 + 1, 20 + number % 90)),
        });
        if turns.last().is_none_or(|turn| turn.role == "system") {
            turns.push(RawTurn::new("user", words(number, 5 + number % 60)));
        }
        said += turns.len() + 1;
        let request = ExchangeRequest {
            session: "s".to_owned(),
            branch: None,
            turns: std::mem::take(&mut turns),
            tools: None,
            reminder: None,
            model: Arc::clone(&model),
        };
        let done = memory.exchange(&scope, &request, &|_| ()).await?;
        compactions += done.compactions.len();
        let requests = upstream.requests();
        upstream.forget_requests();
        for sent in &requests {
            all.add(sent.tokens, sent.cached_tokens);
        }
        if let Some(sent) = requests.last().filter(|_| done.compactions.is_empty() && number > 1) {
            between.add(sent.tokens, sent.cached_tokens);
        }
        turns = match calls {
            true => vec![RawTurn {
                tool_call_id: Some(id),
                ..RawTurn::new("tool", words(number * 3, 40 + number % 200))
            }],
            false => vec![RawTurn::new("user", words(number * 5, 5 + number % 60))],
        };
    }
    let row = |name: &str, sent: &Sent| {
        let share = format!("{:.1}%", sent.percent());
        vec![name.to_owned(), grouped(sent.requests as f64), grouped(sent.tokens as f64), share]
    };
    let heads = strings(&["", "requests", "tokens sent", "as the request before"]);
    let rows = [row("between compactions", &between), row("all", &all)];
    let title = format!(
        "A session of {said} turns in a window of {}, {compactions} compactions",
        grouped(args.window as f64)
    );
    print!("{}", table(&title, &heads, &rows));
    Ok(between.percent() >= PROMISED)
}

/// Words that differ from number to number.
fn words(number: u64, count: u64) -> String {
    const WORDS: [&str; 16] = [
        "parser", "token", "lexer", "branch", "review", "the", "index", "moves", "to", "schema",
        "window", "fails", "passes", "retry", "budget", "draft",
    ];
    let word = |place: u64| {
        let mixed = (number.wrapping_mul(31) + place).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        match mixed % 9 {
            0 => format!("{}.", mixed % 1_000),
            _ => WORDS[(mixed % 16) as usize].to_owned(),
        }
    };
    (0..count).map(word).collect::<Vec<_>>().join(" ")
}
