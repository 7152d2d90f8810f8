//! All that the chat knows, and what goes in and out of it.
//!
//! Events come in, effects go out ([`super::update`]); in between there is no clock, no
//! disk and no terminal.

use std::path::PathBuf;

use icecore::ForgetRequest;
use ratatui::crossterm::event::{KeyEvent, MouseEvent};

use super::areas::Areas;
use super::editor::Editor;
use super::pane::Pane;

/// Who said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Voice {
    /// A person.
    Person,
    /// A model.
    Model,
    /// A tool.
    Tool,
    /// The system prompt.
    System,
}

/// A turn as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Its place in the session.
    pub seq: u64,
    /// Whose it is.
    pub voice: Voice,
    /// Their name.
    pub who: String,
    /// When, to the minute.
    pub at: String,
    /// What was said.
    pub text: String,
    /// Tools that are called, one a line.
    pub calls: Vec<String>,
}

/// A handoff as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handoff {
    /// The how manyth.
    pub number: u64,
    /// What it says.
    pub text: String,
    /// Tokens of that.
    pub tokens: u64,
}

/// Both views of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Views {
    /// Every turn.
    pub turns: Vec<Turn>,
    /// Tokens of them.
    pub tokens: u64,
    /// The system prompt as a model is sent it.
    pub system: Vec<Turn>,
    /// What stands for the turns that a model is not sent.
    pub handoff: Option<Handoff>,
    /// What else a model is sent.
    pub sent: Vec<Turn>,
    /// Tokens of what a model is sent.
    pub sent_tokens: u64,
    /// Millionths of the currency that models cost since the chat was opened; none where
    /// no price is declared.
    pub cost: Option<u64>,
}

impl Views {
    /// The last turn's place.
    pub fn last_seq(&self) -> u64 {
        self.turns.last().map_or(0, |turn| turn.seq)
    }
}

/// How something that the chat says is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// An answer to a command.
    Told,
    /// By the way.
    Quiet,
    /// Something went wrong.
    Bad,
}

/// What the chat itself says. It is no turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// How it is meant.
    pub tone: Tone,
    /// What it is about, or what went wrong.
    pub head: String,
    /// What it says.
    pub lines: Vec<String>,
    /// Behind which turn it stands; none is behind all that is there.
    pub after: Option<u64>,
}

impl Note {
    /// One at the end.
    pub fn new(tone: Tone, head: impl Into<String>, lines: Vec<String>) -> Self {
        Self { tone, head: head.into(), lines, after: None }
    }

    /// Something that went wrong, with what to do about it.
    pub fn trouble(message: impl Into<String>, hint: Option<String>) -> Self {
        let hint = hint.into_iter().map(|hint| format!("hint: {hint}")).collect();
        Self::new(Tone::Bad, message, hint)
    }
}

/// The model that is talked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// What the settings call it.
    pub name: String,
    /// Tokens of a request and its answer.
    pub window: u64,
}

/// What is being done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Tells it from what was done before.
    pub id: u64,
    /// What it is.
    pub kind: Kind,
}

/// What kinds of work there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A model is asked.
    Asking {
        /// What it is asked, unless that is a turn already.
        request: Option<String>,
        /// What has come of its answer.
        answer: String,
    },
    /// Something else, in a word.
    Doing(&'static str),
}

/// What is looked for in the session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Search {
    /// In words.
    pub words: String,
    /// Whether they are still being typed.
    pub is_typing: bool,
    /// Items that have them.
    pub found: Vec<usize>,
    /// Which of these is shown.
    pub at: usize,
}

/// What is to be confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confirm {
    /// What is to be forgotten.
    pub request: ForgetRequest,
    /// What that would erase.
    pub told: String,
}

/// What the keys are for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Mode {
    /// Typing.
    #[default]
    Typing,
    /// Looking for words.
    Searching(Search),
    /// Saying yes or no.
    Confirming(Confirm),
    /// Reading the help.
    Helping,
}

/// All that the chat knows.
#[derive(Debug, Clone)]
pub struct State {
    /// The session.
    pub session: String,
    /// The model, if there is one.
    pub model: Option<Model>,
    /// Tokens of a window where the model has none of its own.
    pub window: u64,
    /// Both views, as they were last read.
    pub views: Views,
    /// What the chat said.
    pub notes: Vec<Note>,
    /// What is being typed.
    pub editor: Editor,
    /// What is being done.
    pub work: Option<Work>,
    /// What the keys are for.
    pub mode: Mode,
    /// Whether both views are shown.
    pub is_both: bool,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// Whether only plain characters can be shown.
    pub is_ascii: bool,
    /// What people see.
    pub display: Pane,
    /// What a model is sent.
    pub sent: Pane,
    /// The help.
    pub help: Pane,
    /// Turns and facts that were sent along with the last request.
    pub reminded: Option<(usize, usize)>,
    /// Whether the next Ctrl-C leaves.
    pub is_leaving: bool,
    /// Whether what is typed goes off as soon as what is under way is done.
    pub is_next: bool,
    /// How often the spinner has moved.
    pub ticks: usize,
    /// The number of the last work.
    pub last_id: u64,
    /// Grows when what the panes show is another.
    pub version: u64,
    /// For what the panes were laid out last.
    pub laid: Option<Laid>,
}

/// All that decides how panes are laid out, but for what is still coming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Laid {
    /// [`State::version`].
    pub version: u64,
    /// The areas.
    pub areas: Areas,
}

impl State {
    /// A chat that has read nothing yet.
    pub fn new(session: &str, model: Option<Model>, window: u64, is_ascii: bool) -> Self {
        Self {
            session: session.to_owned(),
            model,
            window,
            views: Views::default(),
            notes: Vec::new(),
            editor: Editor::default(),
            work: None,
            mode: Mode::default(),
            is_both: false,
            size: (0, 0),
            is_ascii,
            display: Pane::default(),
            sent: Pane::default(),
            help: Pane::default(),
            reminded: None,
            is_leaving: false,
            is_next: false,
            ticks: 0,
            last_id: 0,
            version: 0,
            laid: None,
        }
    }

    /// Tokens that a request and its answer may have.
    pub fn window(&self) -> u64 {
        self.model.as_ref().map_or(self.window, |model| model.window)
    }
}

/// What happens.
#[derive(Debug, Clone)]
pub enum Event {
    /// A key.
    Key(KeyEvent),
    /// Text in one piece.
    Paste(String),
    /// The mouse.
    Mouse(MouseEvent),
    /// The terminal has another size.
    Resize(u16, u16),
    /// Time for the spinner to move.
    Tick,
    /// A piece of an answer; an empty one means that it begins anew.
    Piece(u64, String),
    /// A request has so many turns and facts sent along.
    Reminded(u64, usize, usize),
    /// Work is done.
    Done(u64, Box<Done>),
}

/// What came of work.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// What to say.
    pub notes: Vec<Note>,
    /// The views as they are now.
    pub views: Option<Views>,
    /// The session that is open from now on.
    pub session: Option<String>,
    /// What to confirm.
    pub confirm: Option<Confirm>,
    /// Whether a request was not answered.
    pub is_unanswered: bool,
    /// Whether something was forgotten, which notes may quote.
    pub is_forgotten: bool,
}

/// What is to be done outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Work, under a number.
    Do(u64, Job),
    /// Nobody waits for the work any more.
    Stop,
    /// Draws all of the screen anew.
    Redraw,
    /// Ends the chat.
    Quit,
}

/// What work there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Job {
    /// Reads both views.
    Load,
    /// Asks the model; without a text, for what was not answered.
    Ask(Option<String>),
    /// Makes a handoff.
    Compact,
    /// Lists facts, or tells one.
    Learn(Option<String>),
    /// Says what would be erased.
    Weigh(ForgetRequest),
    /// Erases.
    Forget(ForgetRequest),
    /// Searches.
    Recall(String),
    /// Lists sessions.
    Sessions,
    /// Goes to a session.
    Open(String),
    /// Writes the session to a file.
    Export(Option<PathBuf>),
}
