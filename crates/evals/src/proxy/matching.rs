//! Whether a history comes to its own session: conversations of two tenants who say the
//! same, interleaved, with edits, branches, retries, changed spelling and restarts of the
//! host. Every conversation knows which session it is; the host must find it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::door::{Door, Place};
use super::history::History;
use super::line::Line;
use super::prefix::heard;
use super::provider::{LOOK, Manner, Provider, Wire};
use super::{Args, Found, WIDE};
use crate::Result;
use crate::host::talk::Talk;

/// Tenants, by their keys.
const TENANTS: [&str; 2] = ["left", "right"];

/// Conversations that are open at once.
const OPEN: usize = 12;

/// Requests of a conversation.
const STEPS: u64 = 6;

/// So many requests between two restarts of the host.
const RESTART_EVERY: usize = 900;

/// The promise, in percent.
const PROMISED: f64 = 99.0;

/// What a client does with its next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Begins,
    /// Like so many others, with "hello".
    BeginsWithHello,
    Continues,
    /// Spelled otherwise than before.
    Respelled,
    /// Something that was said before is changed, behind a reply.
    Edited,
    /// As edited, and the old conversation goes on too.
    Branched,
    /// The first message is changed: nothing is shared.
    FirstEdited,
    /// A package sends the same once more, and says so.
    Retried,
    /// The same is asked once more, for another answer.
    AskedAnew,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Begins => "begins",
            Kind::BeginsWithHello => "begins with hello",
            Kind::Continues => "continues",
            Kind::Respelled => "continues, spelled otherwise",
            Kind::Edited => "edited",
            Kind::Branched => "branched",
            Kind::FirstEdited => "first message edited",
            Kind::Retried => "retried",
            Kind::AskedAnew => "asked anew",
        }
    }
}

/// A client's conversation.
#[derive(Clone)]
struct Conversation {
    tenant: usize,
    history: History,
    session: Option<String>,
    says_hello: bool,
    steps: u64,
    call: Option<String>,
}

/// Right and wrong answers of a kind.
#[derive(Default, Clone, Copy)]
struct Score {
    right: u64,
    all: u64,
}

struct Run<'a> {
    place: &'a Place,
    provider: &'a Provider,
    keys: Vec<String>,
    door: Option<Door>,
    line: Option<Line>,
    talk: Talk,
    asked: usize,
    restarts: usize,
    scores: BTreeMap<Kind, Score>,
    /// Sessions of each tenant, as its clients were told.
    sessions: Vec<BTreeSet<String>>,
    wrongs: Vec<String>,
}

pub async fn run(args: &Args) -> Result<Found> {
    let provider = Provider::start(Manner { pieces: 2, ..Manner::default() }).await?;
    let place = Place::new(&args.bin)?;
    let keys = TENANTS.iter().map(|tenant| place.key(tenant)).collect::<Result<_>>()?;
    let mut run = Run {
        place: &place,
        provider: &provider,
        keys,
        door: None,
        line: None,
        talk: Talk::new(args.seed),
        asked: 0,
        restarts: 0,
        scores: BTreeMap::new(),
        sessions: vec![BTreeSet::new(); TENANTS.len()],
        wrongs: Vec::new(),
    };
    let mut open: Vec<Conversation> = Vec::new();
    let (mut begun, mut branched) = (0, 0);
    while begun < args.histories || !open.is_empty() {
        while open.len() < OPEN && begun < args.histories {
            open.push(run.begun(begun));
            begun += 1;
        }
        let at = run.talk.below(open.len() as u64) as usize;
        let mut conversation = open.swap_remove(at);
        let before = conversation.clone();
        let kind = run.step(&mut conversation).await?;
        if kind == Kind::Branched {
            branched += 1;
            open.push(before);
        }
        if conversation.steps < STEPS {
            open.push(conversation);
        }
    }
    let crossed = run.crossed().await?;
    let ended = run.door.take().map_or(Ok(false), Door::stop)?;
    let is_whole = place.is_whole()?;
    Ok(told(&run, begun + branched, crossed, ended && is_whole))
}

impl Run<'_> {
    /// A conversation that has said nothing yet. Both tenants say the same.
    fn begun(&mut self, number: usize) -> Conversation {
        let wire = if (number / 2).is_multiple_of(2) { Wire::OpenAi } else { Wire::Anthropic };
        let says_hello = (number / 2).is_multiple_of(10);
        let mut history = History::new(wire);
        match says_hello {
            true => history.ask("hello"),
            false => history.ask(&Talk::new(number as u64 / 2).turn()),
        }
        Conversation {
            tenant: number % 2,
            history,
            session: None,
            says_hello,
            steps: 0,
            call: None,
        }
    }

    /// One request of a conversation, and whether it came to its session.
    async fn step(&mut self, conversation: &mut Conversation) -> Result<Kind> {
        let kind = self.next(conversation);
        conversation.steps += 1;
        // Clients tell the date beside the history.
        conversation.history.system = format!("Today is day {}. Be brief.", self.asked % 30);
        let wire = conversation.history.wire;
        let mut body = conversation.history.body(false);
        if kind == Kind::AskedAnew {
            // The provider answers by the last bytes: another end, another answer.
            body.extend(b" ".repeat(1 + self.talk.below(60) as usize));
        }
        let retries = if kind == Kind::Retried { "1" } else { "0" };
        let more = [("x-stainless-retry-count", retries)];
        let key = self.keys[conversation.tenant].clone();
        let reply = self.line().await?.post_with(wire.proxy_path(), &key, &more, &body).await?;
        if reply.status != 200 {
            let told = String::from_utf8_lossy(&reply.body).into_owned();
            return Err(format!("answered with {}: {told}", reply.status).into());
        }
        let session = reply.header("x-icecore-session").ok_or_else(|| {
            let why = reply.header("x-icecore-warning").or(reply.header("x-icecore-passthrough"));
            format!("no session is named: {why:?}")
        })?;
        let session = session.to_owned();
        let following = reply.header("x-icecore-following").unwrap_or_default().to_owned();
        self.judge(kind, conversation, &session, &following);
        self.sessions[conversation.tenant].insert(session.clone());
        conversation.session = Some(session);
        let said = heard(wire, &reply.json());
        conversation.call.clone_from(&said.call);
        conversation.history.hear(&said);
        Ok(kind)
    }

    /// Decides what comes next, and changes the history so.
    fn next(&mut self, conversation: &mut Conversation) -> Kind {
        let history = &mut conversation.history;
        if conversation.session.is_none() {
            return match conversation.says_hello {
                true => Kind::BeginsWithHello,
                false => Kind::Begins,
            };
        }
        // What a call gave goes back whatever else a client does.
        if let Some(call) = conversation.call.take() {
            history.result(&call, "Seen.");
            return Kind::Continues;
        }
        let text = match self.talk.below(4) {
            0 => format!("{} {LOOK}.", self.talk.turn()),
            _ => self.talk.turn(),
        };
        let is_text = |message: &String| message.contains("\"role\":\"user\",\"content\":\"");
        let asked: Vec<usize> =
            (0..history.messages.len()).filter(|&at| is_text(&history.messages[at])).collect();
        let kind = match self.talk.below(10) {
            0 if asked.len() > 1 => Kind::Edited,
            1 if asked.len() > 1 => Kind::Branched,
            2 => Kind::FirstEdited,
            3 if asked.len() > 1 && self.talk.below(2) == 0 => Kind::Retried,
            3 => Kind::AskedAnew,
            4 | 5 => Kind::Respelled,
            _ => Kind::Continues,
        };
        match kind {
            Kind::Edited | Kind::Branched => {
                let place = 1 + self.talk.below(asked.len() as u64 - 1) as usize;
                history.messages.truncate(asked[place]);
                history.ask(&text);
            }
            Kind::FirstEdited => {
                history.messages.clear();
                history.ask(&text);
            }
            Kind::Retried | Kind::AskedAnew => {
                history.messages.pop();
            }
            Kind::Respelled => {
                history.messages.iter_mut().for_each(respell);
                history.ask(&text);
            }
            _ => history.ask(&text),
        }
        kind
    }

    fn judge(&mut self, kind: Kind, conversation: &Conversation, session: &str, following: &str) {
        let is_new = !self.sessions[conversation.tenant].contains(session);
        let is_own = conversation.session.as_deref() == Some(session);
        // Whoever has only "hello" and the same answer to show may be taken for nobody.
        let shown = conversation.history.messages.len();
        let is_anybody = conversation.says_hello && shown <= 3;
        let right = match kind {
            Kind::Begins | Kind::BeginsWithHello => is_new && following == "begins",
            Kind::FirstEdited => is_new && following == "begins",
            Kind::Continues | Kind::Respelled if is_anybody => is_own || is_new,
            Kind::Continues | Kind::Respelled => is_own && following == "continues",
            Kind::Edited | Kind::Branched if is_anybody => is_own || is_new,
            Kind::Edited | Kind::Branched => is_own && following == "forks",
            // A first request that comes again has no reply in it to know it by.
            Kind::AskedAnew if shown == 1 => is_new && following == "begins",
            Kind::Retried | Kind::AskedAnew => is_own || (is_new && is_anybody),
        };
        let score = self.scores.entry(kind).or_default();
        score.all += 1;
        score.right += u64::from(right);
        if !right && self.wrongs.len() < 8 {
            self.wrongs.push(format!(
                "{}: {following} {session} instead of {:?}, {shown} messages",
                kind.name(),
                conversation.session
            ));
        }
    }

    /// The connection to a host that now and then is another.
    async fn line(&mut self) -> Result<&mut Line> {
        if self.asked.is_multiple_of(RESTART_EVERY) {
            self.line = None;
            if let Some(door) = self.door.take() {
                self.restarts += 1;
                if !door.stop()? {
                    return Err("the host did not end well".into());
                }
            }
            let door = self.place.serving(&self.provider.url(), WIDE)?;
            self.line = Some(Line::connect(door.address).await?);
            self.door = Some(door);
        }
        self.asked += 1;
        self.line.as_mut().ok_or_else(|| "there is no connection".into())
    }

    /// Sessions that the host lists for one tenant and told a client of the other, or
    /// did not tell anybody of.
    async fn crossed(&mut self) -> Result<usize> {
        let mut crossed = 0;
        for tenant in 0..TENANTS.len() {
            let key = self.keys[tenant].clone();
            let path = "/v1/host/icecore/sessions";
            let line = self.line.as_mut().ok_or("there is no connection")?;
            let listed = line.get(path, &key).await?.json();
            let listed = listed["sessions"].as_array().ok_or("no sessions are listed")?.clone();
            let name = |session: &Value| session["session"].as_str().unwrap_or_default().to_owned();
            let listed: BTreeSet<String> = listed.iter().map(name).collect();
            crossed += listed.symmetric_difference(&self.sessions[tenant]).count();
        }
        crossed += self.sessions[0].intersection(&self.sessions[1]).count();
        Ok(crossed)
    }
}

/// The same message as another client spells it: other order, other escapes, and fields
/// that some packages add.
fn respell(message: &mut String) {
    let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(message) else { return };
    let role = fields.get("role").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut pairs: Vec<String> =
        fields.iter().rev().map(|(key, value)| format!("\"{key}\" : {value}")).collect();
    if role == "assistant" && fields.contains_key("tool_calls") {
        pairs.push("\"refusal\":null".to_owned());
    }
    *message = format!("{{ {} }}", pairs.join(", "));
}

fn told(run: &Run<'_>, histories: usize, crossed: usize, is_whole: bool) -> Found {
    let percent = |score: Score| score.right as f64 * 100.0 / score.all.max(1) as f64;
    let row = |name: &str, score: Score| {
        let share = format!("{:.2}%", percent(score));
        vec![name.to_owned(), score.all.to_string(), score.right.to_string(), share]
    };
    let mut all = Score::default();
    let mut rows = Vec::new();
    for (kind, score) in &run.scores {
        all = Score { right: all.right + score.right, all: all.all + score.all };
        rows.push(row(kind.name(), *score));
    }
    rows.push(row("all", all));
    let sessions: usize = run.sessions.iter().map(BTreeSet::len).sum();
    let mut notes = vec![format!(
        "{histories} histories of two tenants who say the same, {} restarts, {sessions} sessions; {crossed} crossed (to hold: {PROMISED}%, none)",
        run.restarts
    )];
    notes.extend(run.wrongs.iter().cloned());
    Found {
        heads: &["", "requests", "right", "share"],
        rows,
        notes,
        document: json!({ "histories": histories, "requests": all.all, "right": all.right,
            "percent": percent(all), "crossed": crossed, "restarts": run.restarts }),
        is_sound: percent(all) >= PROMISED && crossed == 0 && is_whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_spelled_otherwise_says_the_same() {
        let mut message = json!({"role": "user", "content": "Grüße \"an\" alle"}).to_string();
        let before: Value = serde_json::from_str(&message).unwrap();
        let spelled = message.clone();
        respell(&mut message);
        assert_ne!(message, spelled);
        let after: Value = serde_json::from_str(&message).unwrap();
        assert_eq!((&after["role"], &after["content"]), (&before["role"], &before["content"]));
    }
}
