//! The terminal: taken whole, and given back as it was, whatever happens.

use std::io::{Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::Frame;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{
    self, DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
};
use ratatui::crossterm::{cursor, execute, terminal};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::state::Event;
use crate::failure::{Failure, Outcome};
use crate::hush;

/// Whether the terminal is ours now.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal while it is ours.
pub struct Terminal {
    inner: ratatui::Terminal<CrosstermBackend<Stdout>>,
}

impl Terminal {
    /// Takes the terminal; what is typed goes to `sender`.
    pub fn take(sender: mpsc::Sender<Event>) -> Outcome<Self> {
        give_back_on_panic();
        hush::hold();
        IS_TAKEN.store(true, Ordering::SeqCst);
        let taken = enter();
        if taken.is_err() {
            give_back();
        }
        let inner = taken.map_err(broken)?;
        std::thread::spawn(move || read(&sender));
        Ok(Self { inner })
    }

    /// Columns and rows.
    pub fn size(&self) -> (u16, u16) {
        self.inner.size().map_or((0, 0), |size| (size.width, size.height))
    }

    /// Draws what is new, unless a panic somewhere has given the terminal back: then it is
    /// time to leave.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> Outcome<()> {
        if !IS_TAKEN.load(Ordering::SeqCst) {
            return Err(Failure::Broken("the chat broke; what is told above says how".to_owned()));
        }
        self.inner.draw(draw).map(|_| ()).map_err(broken)
    }

    /// Forgets what was drawn, so that all of it is drawn again.
    pub fn clear(&mut self) -> Outcome<()> {
        self.inner.clear().map_err(broken)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

fn enter() -> std::io::Result<ratatui::Terminal<CrosstermBackend<Stdout>>> {
    terminal::enable_raw_mode()?;
    let mut out = std::io::stdout();
    execute!(out, terminal::EnterAlternateScreen, EnableMouseCapture, EnableBracketedPaste)?;
    ratatui::Terminal::new(CrosstermBackend::new(out))
}

/// Gives the terminal back as it was. Once: whoever comes second has nothing to do.
fn give_back() {
    if !IS_TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out = std::io::stdout();
    // Nobody can be told that it cannot be.
    let _ = execute!(
        out,
        DisableBracketedPaste,
        DisableMouseCapture,
        terminal::LeaveAlternateScreen,
        cursor::Show
    );
    let _ = terminal::disable_raw_mode();
    let _ = out.flush();
    hush::release();
}

/// What a panic says is read on the screen that was there before.
fn give_back_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        give_back();
        before(panic);
    }));
}

/// Reads what is typed until nobody hears it.
fn read(sender: &mpsc::Sender<Event>) {
    while let Ok(read) = event::read() {
        let event = match read {
            event::Event::Key(key) => Event::Key(key),
            event::Event::Mouse(mouse) => Event::Mouse(mouse),
            event::Event::Paste(text) => Event::Paste(text),
            event::Event::Resize(width, height) => Event::Resize(width, height),
            event::Event::FocusGained | event::Event::FocusLost => continue,
        };
        if sender.blocking_send(event).is_err() {
            return;
        }
    }
}

fn broken(error: std::io::Error) -> Failure {
    Failure::Broken(format!("cannot use the terminal: {error}"))
}

/// Signals that end the process.
pub struct Ending {
    terminate: Signal,
    hang_up: Signal,
}

impl Ending {
    /// From here on they are heard.
    pub fn listen() -> Outcome<Self> {
        let heard = |kind| {
            signal(kind).map_err(|error| Failure::Broken(format!("cannot hear signals: {error}")))
        };
        let terminate = heard(SignalKind::terminate())?;
        Ok(Self { terminate, hang_up: heard(SignalKind::hangup())? })
    }

    /// Waits for one of them.
    pub async fn comes(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
