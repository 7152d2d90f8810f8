//! `icecore chat`: a conversation at a terminal, with the memory behind it.
//!
//! Everything that decides is pure: [`update`] takes events to a state and effects,
//! [`screen`] draws a state. [`work`] does what the effects ask for, over the memory, and
//! [`terminal`] is the only one that knows the terminal.

mod areas;
mod arrange;
mod command;
mod editor;
mod pane;
mod rows;
mod screen;
#[cfg(test)]
mod screen_tests;
mod state;
mod terminal;
mod update;
#[cfg(test)]
mod update_tests;
mod work;

use std::time::Duration;

use tokio::sync::mpsc;

use crate::failure::{Failure, Outcome};
use screen::Paint;
use state::{Effect, Event, State};
use terminal::Terminal;

pub use state::Model;
pub use work::{Desk, Hands, spent};

/// How often the spinner moves while something is done.
const TICK: Duration = Duration::from_millis(120);

/// Events that are taken at once before the screen is drawn.
const EVENTS_AT_ONCE: usize = 64;

/// Talks until the person leaves, or whoever ends the process wants it.
pub async fn talk(state: State, desk: Desk, has_color: bool) -> Outcome<()> {
    let (sender, mut events) = mpsc::channel(1_024);
    let mut ended = terminal::Ending::listen()?;
    let mut terminal = Terminal::take(sender.clone())?;
    let mut room = Room { state, desk, sender };
    let first = Event::Resize(terminal.size().0, terminal.size().1);
    let mut effects = update::update(&mut room.state, first);
    effects.extend(update::begin(&mut room.state));
    if !room.act(effects, &mut terminal)? {
        return Ok(());
    }
    loop {
        terminal.draw(|frame| screen::draw(&room.state, Paint { has_color }, frame))?;
        let is_busy = room.state.work.is_some();
        let event = tokio::select! {
            event = events.recv() => event,
            () = tokio::time::sleep(TICK), if is_busy => Some(Event::Tick),
            () = ended.comes() => return Ok(()),
            broken = room.desk.breaks() => return Err(Failure::Broken(broken)),
        };
        let Some(event) = event else { return Ok(()) };
        let more = std::iter::from_fn(|| events.try_recv().ok()).take(EVENTS_AT_ONCE);
        for event in std::iter::once(event).chain(more) {
            let effects = update::update(&mut room.state, event);
            if !room.act(effects, &mut terminal)? {
                return Ok(());
            }
        }
    }
}

/// The state and who acts for it.
struct Room {
    state: State,
    desk: Desk,
    sender: mpsc::Sender<Event>,
}

impl Room {
    /// Does what is to be done; false to leave.
    fn act(&mut self, effects: Vec<Effect>, terminal: &mut Terminal) -> Outcome<bool> {
        for effect in effects {
            match effect {
                Effect::Do(id, job) => {
                    let session = self.state.session.clone();
                    self.desk.begin(id, job, session, self.sender.clone());
                }
                Effect::Stop => self.desk.stop(),
                Effect::Redraw => terminal.clear()?,
                Effect::Quit => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// A state for a conversation.
pub fn conversation(session: &str, model: Option<Model>, window: u64, is_ascii: bool) -> State {
    State::new(session, model, window, is_ascii)
}
