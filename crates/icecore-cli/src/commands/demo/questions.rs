//! Three questions about the conversation, and where their answers stand.

use icecore::context::WindowItem;
use icecore::{Context, ContextRequest, SearchRequest};
use serde_json::{Value, json};

use super::Demo;
use crate::draw::{left, number, wrap};
use crate::failure::{Failure, Outcome};
use crate::picture::hits::painted;
use crate::printer::Tone;

/// The questions, with the turns that answer them.
const QUESTIONS: &str = include_str!("../../../demo/questions.json");

/// Tokens that a question's context may have.
const BUDGET: u32 = 600;

/// What became of a question.
pub struct Answer {
    question: String,
    /// The turns that answer it, each with its rank among the hits of a search,
    /// if it is among them, and whether it is in the context.
    evidence: Vec<(String, Option<usize>, bool)>,
    tokens: u32,
}

impl Answer {
    /// For `--json`.
    pub fn to_json(&self) -> Value {
        let turn = |(id, rank, is_in_context): &(String, Option<usize>, bool)| json!({ "id": id, "rank": rank, "inContext": is_in_context });
        json!({
            "question": self.question,
            "evidence": self.evidence.iter().map(turn).collect::<Vec<_>>(),
            "tokens": self.tokens,
            "budget": BUDGET,
        })
    }
}

/// Asks them, and shows what of each context answers.
pub async fn ask(demo: &Demo) -> Outcome<Vec<Answer>> {
    demo.heading("Three questions, each within a budget")?;
    let all = demo.memory.stats(demo.scope.tenant(), None).await?.store.tokens;
    demo.line(&format!(
        "  {} tokens were said. Each question gets a context of at most {BUDGET}.",
        number(all)
    ))?;
    let mut answers = Vec::new();
    for (question, evidence) in questions()? {
        answers.push(answer(demo, question, evidence).await?);
    }
    Ok(answers)
}

async fn answer(demo: &Demo, question: String, evidence: Vec<String>) -> Outcome<Answer> {
    demo.line("")?;
    for line in wrap(&question, demo.printer.width() - 4) {
        demo.line(&format!("  {}", demo.printer.paint(Tone::Title, &line)))?;
    }
    let request = ContextRequest {
        query: Some(question.clone()),
        budget: BUDGET,
        ..ContextRequest::default()
    };
    let context = demo.memory.context(&demo.scope, request).await?;
    let found = demo.memory.search(&demo.scope, &SearchRequest::new(&question)).await?;
    let mut seen = Vec::new();
    for id in evidence {
        let rank = found.hits.iter().position(|hit| hit.id == id).map(|at| at + 1);
        let item = context.items.iter().find(|item| item.id == id);
        show(demo, &question, &id, rank, item)?;
        seen.push((id, rank, item.is_some()));
    }
    demo.line(&format!("    {}", demo.printer.paint(Tone::Dim, &spent(&context))))?;
    Ok(Answer { question, evidence: seen, tokens: context.tokens })
}

/// A turn that answers: ticked if it is in the context, its matches painted.
fn show(
    demo: &Demo,
    question: &str,
    id: &str,
    rank: Option<usize>,
    item: Option<&WindowItem>,
) -> Outcome<()> {
    let printer = &demo.printer;
    let (yes, no) = if printer.is_ascii() { ("+", "-") } else { ("✓", "✗") };
    let place = match rank {
        Some(rank) => format!("{id}, hit {rank}"),
        None => id.to_owned(),
    };
    let Some(item) = item else {
        let mark = printer.paint(Tone::Bad, no);
        return demo.line(&format!("    {mark} {}  is not in the context", left(&place, 14)));
    };
    let room = printer.width().saturating_sub(24);
    for (at, line) in wrap(item.text.trim(), room).iter().take(6).enumerate() {
        let line = painted(question, line, printer);
        match at {
            0 => {
                let mark = printer.paint(Tone::Good, yes);
                let place = printer.paint(Tone::Dim, &left(&place, 14));
                demo.line(&format!("    {mark} {place}  {line}"))?;
            }
            _ => demo.line(&format!("      {}  {line}", " ".repeat(14)))?,
        }
    }
    Ok(())
}

fn spent(context: &Context) -> String {
    format!(
        "{} of {} tokens, {} turns",
        number(context.tokens.into()),
        number(context.budget.into()),
        context.items.len()
    )
}

/// Each question with the ids of its evidence.
fn questions() -> Outcome<Vec<(String, Vec<String>)>> {
    let broken = |error: serde_json::Error| Failure::Broken(error.to_string());
    let all: Vec<Value> = serde_json::from_str(QUESTIONS).map_err(broken)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let one = |question: &Value| {
        let evidence = question["evidence"].as_array().into_iter().flatten();
        (text(&question["question"]), evidence.map(text).collect())
    };
    Ok(all.iter().map(one).collect())
}
