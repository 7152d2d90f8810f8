//! Lays out what is known for the screen as it is.

use super::areas::{Areas, PROMPT, areas};
use super::command::COMMANDS;
use super::rows::{self, Canvas, Row, places};
use super::state::{Kind, Laid, Note, State, Tone, Turn, Views, Voice};

/// What the keys do, as the help tells it.
const KEYS: [(&str, &str); 7] = [
    ("Enter", "send; Alt-Enter or Ctrl-J begins a new line"),
    ("Esc", "cancel what is under way; Ctrl-L draws the screen anew"),
    ("F2, Ctrl-O", "both views side by side"),
    ("PgUp, PgDn, wheel", "scroll; Home and End while nothing is typed"),
    ("Ctrl-F", "find in this session, then n and N"),
    ("Up, Down, Tab", "what was typed before; complete a command"),
    ("Ctrl-C twice", "leave"),
];

/// Something in the display view.
enum Item<'a> {
    Turn(&'a Turn),
    Note(&'a Note),
}

/// Lays the panes out, as far as anything changed.
pub fn arrange(state: &mut State) {
    let columns = usize::from(state.size.0.saturating_sub(PROMPT));
    let input_rows = state.editor.drawn(columns).rows.len();
    let areas = areas(state.size, input_rows, state.is_both);
    let laid = Laid { version: state.version, areas };
    if state.laid != Some(laid) {
        state.laid = Some(laid);
        let rows = display(state, canvas(state, areas.display.width));
        state.display.lay(rows, usize::from(areas.display.height));
        let rows = sent(&state.views, canvas(state, areas.sent.width));
        state.sent.lay(rows, usize::from(areas.sent.height));
        let (rows, height) = (help(canvas(state, state.size.0)), help_height(&areas));
        state.help.lay(rows, height);
    }
    let tail = tail(state, canvas(state, areas.display.width));
    state.display.lay_tail(tail);
}

/// The help stands where both views do, headings and all.
fn help_height(areas: &Areas) -> usize {
    let sent = match areas.between.height {
        0 => areas.sent_head.height + areas.sent.height,
        _ => 0,
    };
    usize::from(areas.display_head.height + areas.display.height + sent)
}

fn canvas(state: &State, width: u16) -> Canvas {
    Canvas { width: usize::from(width), is_ascii: state.is_ascii }
}

impl State {
    /// The display view with what the chat said, in order.
    fn items(&self) -> Vec<Item<'_>> {
        let mut items = Vec::with_capacity(self.views.turns.len() + self.notes.len());
        let mut notes = self.notes.iter().peekable();
        let place = |note: &Note| note.after.unwrap_or(u64::MAX);
        for turn in &self.views.turns {
            while let Some(note) = notes.next_if(|note| place(note) < turn.seq) {
                items.push(Item::Note(note));
            }
            items.push(Item::Turn(turn));
        }
        items.extend(notes.map(Item::Note));
        items
    }

    /// Which items have these words.
    pub fn items_with(&self, words: &str) -> Vec<usize> {
        let has = |text: &str| {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            !places(&text, words.trim()).is_empty()
        };
        let has = |item: &Item<'_>| match item {
            Item::Turn(turn) => has(&turn.text),
            Item::Note(note) => has(&note.lines.join("\n")),
        };
        let items = self.items();
        items.iter().enumerate().filter(|(_, item)| has(item)).map(|(at, _)| at).collect()
    }
}

fn display(state: &State, canvas: Canvas) -> Vec<Row> {
    let mut rows = Vec::new();
    let items = state.items();
    if items.is_empty() && state.work.is_none() {
        return rows::note(&welcome(state), 0, canvas);
    }
    let mut before = None;
    for (at, item) in items.iter().enumerate() {
        match item {
            Item::Turn(turn) => {
                rows.extend(rows::turn(turn, before, at, canvas));
                before = Some(*turn);
            }
            Item::Note(note) => rows.extend(rows::note(note, at, canvas)),
        }
    }
    rows
}

/// What stands in a session that has nothing yet.
fn welcome(state: &State) -> Note {
    if let Some(model) = &state.model {
        let lines = [
            format!("Session {} is new, and {} answers here.", state.session, model.name),
            "What is said is kept, all of it, and never runs out of the model's window.".to_owned(),
            String::new(),
            "F1 shows the keys and commands.".to_owned(),
        ];
        return Note::new(Tone::Quiet, "", lines.to_vec());
    }
    let lines = [
        "No model is declared, so nobody answers here. The memory works all the same:",
        "",
        "  /recall WORDS   finds what was said, in every session",
        "  /learn TEXT     keeps a fact; /learn alone lists what is known",
        "  /session        lists sessions, /session NAME opens one",
        "",
        "To talk to a model, declare it in the settings file:",
        "",
        "  [models.small]",
        "  url = \"http://127.0.0.1:8080/v1\"",
        "  model = \"small-instruct\"",
        "",
        "or start Ollama or llama.cpp and run: icecore chat --model local",
    ];
    Note::new(Tone::Told, "no model", lines.map(str::to_owned).to_vec())
}

/// What a model is sent.
fn sent(views: &Views, canvas: Canvas) -> Vec<Row> {
    let mut rows = Vec::new();
    if canvas.width == 0 {
        return rows;
    }
    let mut item = 0;
    for turn in &views.system {
        rows.extend(rows::turn(turn, None, item, canvas));
        item += 1;
    }
    if let Some(handoff) = &views.handoff {
        rows.extend(rows::handoff(handoff, item, canvas));
        item += 1;
    }
    let mut before = None;
    for turn in &views.sent {
        rows.extend(rows::turn(turn, before, item, canvas));
        before = Some(turn);
        item += 1;
    }
    rows
}

/// What is on its way: the request, and what has come of the answer.
fn tail(state: &State, canvas: Canvas) -> Vec<Row> {
    let Some(Kind::Asking { request, answer }) = state.work.as_ref().map(|work| &work.kind) else {
        return Vec::new();
    };
    let item = state.views.turns.len() + state.notes.len();
    let mut rows = Vec::new();
    if let Some(text) = request {
        let turn = Turn {
            seq: 0,
            voice: Voice::Person,
            who: "you".to_owned(),
            at: String::new(),
            text: text.clone(),
            calls: Vec::new(),
        };
        rows.extend(rows::turn(&turn, None, item, canvas));
    }
    let who = state.model.as_ref().map_or("model", |model| model.name.as_str());
    rows.extend(rows::answering(who, answer, state.spinner(), item + 1, canvas));
    rows
}

impl State {
    /// The spinner as it stands now.
    pub fn spinner(&self) -> &'static str {
        const ROUND: [&str; 8] = ["⠋", "⠙", "⠸", "⠴", "⠦", "⠧", "⠇", "⠏"];
        const ASCII: [&str; 4] = ["|", "/", "-", "\\"];
        match self.is_ascii {
            true => ASCII[self.ticks % ASCII.len()],
            false => ROUND[self.ticks % ROUND.len()],
        }
    }
}

fn help(canvas: Canvas) -> Vec<Row> {
    let keys = KEYS.iter().map(|(key, does)| rows::pair(key, 18, does)).collect();
    let commands = COMMANDS
        .iter()
        .map(|known| rows::pair(&format!("{} {}", known.name, known.after), 18, known.does))
        .collect();
    let mut rows = rows::note(&Note::new(Tone::Told, "commands", commands), 0, canvas);
    rows.pop();
    rows.extend(rows::note(&Note::new(Tone::Told, "keys", keys), 1, canvas));
    rows.pop();
    rows
}
