//! From what happens to what is known then, and to what is to be done.

use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseEvent, MouseEventKind,
};
use ratatui::layout::Position;

use super::arrange::arrange;
use super::command::{self, Command, Misused};
use super::rows::places;
use super::state::{
    Confirm, Done, Effect, Event, Job, Kind, Mode, Note, Search, State, Tone, Work,
};

/// Rows that the wheel moves.
const WHEEL_ROWS: usize = 3;

/// What is to be done after an event.
pub fn update(state: &mut State, event: Event) -> Vec<Effect> {
    let effects = match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => on_key(state, key),
        Event::Key(_) => Vec::new(),
        Event::Paste(text) => on_paste(state, &text),
        Event::Mouse(mouse) => on_mouse(state, mouse),
        Event::Resize(width, height) => {
            state.size = (width, height);
            Vec::new()
        }
        Event::Tick => {
            state.ticks = state.ticks.wrapping_add(1);
            Vec::new()
        }
        Event::Piece(id, piece) => on_piece(state, id, &piece),
        Event::Reminded(id, turns, facts) => {
            if is_current(state, id) {
                state.reminded = Some((turns, facts));
            }
            Vec::new()
        }
        Event::Done(id, done) => on_done(state, id, *done),
    };
    arrange(state);
    effects
}

/// The work that a chat begins with.
pub fn begin(state: &mut State) -> Vec<Effect> {
    state.version += 1;
    let job = Job::Open(state.session.clone());
    work(state, Kind::Doing("opening"), job)
}

fn is_current(state: &State, id: u64) -> bool {
    state.work.as_ref().is_some_and(|work| work.id == id)
}

/// Begins work.
fn work(state: &mut State, kind: Kind, job: Job) -> Vec<Effect> {
    state.last_id += 1;
    state.work = Some(Work { id: state.last_id, kind });
    vec![Effect::Do(state.last_id, job)]
}

/// Says something.
fn tell(state: &mut State, note: Note) -> Vec<Effect> {
    state.notes.push(note);
    state.version += 1;
    state.display.end();
    Vec::new()
}

// Keys

fn on_key(state: &mut State, key: KeyEvent) -> Vec<Effect> {
    let was_leaving = std::mem::take(&mut state.is_leaving);
    // Whoever types on has something else in mind.
    state.is_next = false;
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    if let (true, KeyCode::Char('c')) = (is_control, key.code) {
        return on_interrupt(state, was_leaving);
    }
    if let Some(effects) = on_anywhere(state, key, is_control) {
        return effects;
    }
    match std::mem::take(&mut state.mode) {
        Mode::Typing => on_typing(state, key),
        Mode::Searching(search) => on_searching(state, search, key),
        Mode::Confirming(confirm) => on_confirming(state, confirm, key),
        Mode::Helping => on_helping(state, key),
    }
}

/// Ends what is under way, empties what is typed, and the second time leaves.
fn on_interrupt(state: &mut State, was_leaving: bool) -> Vec<Effect> {
    if was_leaving {
        return vec![Effect::Quit];
    }
    state.is_leaving = true;
    state.mode = Mode::Typing;
    let effects = cancel(state);
    state.editor.clear();
    effects
}

/// Keys that mean the same everywhere.
fn on_anywhere(state: &mut State, key: KeyEvent, is_control: bool) -> Option<Vec<Effect>> {
    match (key.code, is_control) {
        (KeyCode::F(1), _) => {
            state.mode = match state.mode {
                Mode::Helping => Mode::Typing,
                _ => Mode::Helping,
            };
            state.help.home();
        }
        (KeyCode::F(2), _) | (KeyCode::Char('o'), true) => switch_views(state),
        (KeyCode::Char('f'), true) => begin_search(state, ""),
        (KeyCode::Char('l'), true) => return Some(vec![Effect::Redraw]),
        (KeyCode::PageUp, _) => scroll(state, |pane| pane.page_up()),
        (KeyCode::PageDown, _) => scroll(state, |pane| pane.page_down()),
        (KeyCode::Home, true) => scroll(state, |pane| pane.home()),
        (KeyCode::End, true) => scroll(state, |pane| pane.end()),
        _ => return None,
    }
    Some(Vec::new())
}

/// Shows both views, or one again. What stands for the rest is the first to be seen.
fn switch_views(state: &mut State) {
    state.is_both = !state.is_both;
    arrange(state);
    match &state.views.handoff {
        Some(_) => state.sent.show_from_item(state.views.system.len()),
        None => state.sent.end(),
    }
}

fn scroll(state: &mut State, step: impl Fn(&mut super::pane::Pane)) {
    if state.mode == Mode::Helping {
        return step(&mut state.help);
    }
    step(&mut state.display);
    if state.is_both {
        step(&mut state.sent);
    }
}

fn on_typing(state: &mut State, key: KeyEvent) -> Vec<Effect> {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    let is_alt = key.modifiers.contains(KeyModifiers::ALT);
    let editor = &mut state.editor;
    match key.code {
        KeyCode::Enter if is_alt || key.modifiers.contains(KeyModifiers::SHIFT) => {
            editor.insert('\n');
        }
        KeyCode::Enter => return on_enter(state),
        KeyCode::Esc => return cancel(state),
        KeyCode::Tab => {
            if let Some(completed) = command::completed(&editor.text()) {
                editor.set(&completed);
            }
        }
        KeyCode::Backspace if is_alt || is_control => editor.delete_word(),
        KeyCode::Backspace => editor.backspace(),
        KeyCode::Delete => editor.delete(),
        KeyCode::Left if is_control || is_alt => editor.word_left(),
        KeyCode::Right if is_control || is_alt => editor.word_right(),
        KeyCode::Left => editor.left(),
        KeyCode::Right => editor.right(),
        KeyCode::Up => editor.up(),
        KeyCode::Down => editor.down(),
        KeyCode::Home if editor.is_empty() => scroll(state, |pane| pane.home()),
        KeyCode::End if editor.is_empty() => scroll(state, |pane| pane.end()),
        KeyCode::Home => editor.home(),
        KeyCode::End => editor.end(),
        KeyCode::Char(c) if is_control => return on_control(state, c),
        KeyCode::Char('b') if is_alt => editor.word_left(),
        KeyCode::Char('f') if is_alt => editor.word_right(),
        KeyCode::Char(c) => editor.insert(c),
        _ => {}
    }
    Vec::new()
}

/// Letters with Ctrl, as shells have them.
fn on_control(state: &mut State, c: char) -> Vec<Effect> {
    let editor = &mut state.editor;
    match c {
        'j' => editor.insert('\n'),
        'a' => editor.home(),
        'e' => editor.end(),
        'b' => editor.left(),
        'h' => editor.backspace(),
        'k' => editor.delete_to_line_end(),
        'u' => editor.delete_to_line_start(),
        'w' => editor.delete_word(),
        'p' => editor.up(),
        'n' => editor.down(),
        'd' if editor.is_empty() => return vec![Effect::Quit],
        'd' => editor.delete(),
        _ => {}
    }
    Vec::new()
}

/// Nobody waits for the work any more. What had come of an answer stays to be read.
fn cancel(state: &mut State) -> Vec<Effect> {
    let Some(Work { kind, .. }) = state.work.take() else { return Vec::new() };
    let note = match kind {
        Kind::Asking { answer, .. } => {
            let lines = match answer.trim().is_empty() {
                true => vec!["Nothing had come yet. /retry asks again.".to_owned()],
                false => vec![answer, "… not kept. /retry asks again.".to_owned()],
            };
            Note::new(Tone::Quiet, "cancelled", lines)
        }
        Kind::Doing(what) => Note::new(Tone::Quiet, format!("stopped {what}"), Vec::new()),
    };
    tell(state, note);
    let mut effects = vec![Effect::Stop];
    effects.extend(work(state, Kind::Doing("reading"), Job::Load));
    effects
}

fn on_enter(state: &mut State) -> Vec<Effect> {
    let text = state.editor.text();
    if text.trim().is_empty() {
        return Vec::new();
    }
    let parsed = text.starts_with('/').then(|| command::parse(&text, &state.session));
    let is_local = matches!(
        parsed,
        Some(Ok(Command::View | Command::Search(_) | Command::Help | Command::Quit) | Err(_))
    );
    if state.work.is_some() && !is_local {
        state.is_next = true;
        return Vec::new();
    }
    state.editor.take();
    match parsed {
        Some(Ok(command)) => run(state, command),
        Some(Err(Misused { message, hint })) => tell(state, Note::trouble(message, Some(hint))),
        None => ask(state, Some(text)),
    }
}

fn ask(state: &mut State, request: Option<String>) -> Vec<Effect> {
    if state.model.is_none() {
        let hint = "/learn TEXT keeps a fact and /recall WORDS finds what is kept; `icecore chat --model local` asks a model server on this machine";
        return tell(state, Note::trouble("there is no model to answer", Some(hint.to_owned())));
    }
    settle_notes(state);
    state.display.end();
    state.sent.end();
    state.reminded = None;
    let kind = Kind::Asking { request: request.clone(), answer: String::new() };
    work(state, kind, Job::Ask(request))
}

/// What was said up to now stands behind the turns that are there now.
fn settle_notes(state: &mut State) {
    let last = state.views.last_seq();
    for note in state.notes.iter_mut().filter(|note| note.after.is_none()) {
        note.after = Some(last);
    }
    state.version += 1;
}

fn run(state: &mut State, command: Command) -> Vec<Effect> {
    match command {
        Command::Compact => work(state, Kind::Doing("compacting"), Job::Compact),
        Command::Learn(text) => work(state, Kind::Doing("learning"), Job::Learn(text)),
        Command::Forget(request) => work(state, Kind::Doing("weighing"), Job::Weigh(request)),
        Command::Recall(words) => work(state, Kind::Doing("recalling"), Job::Recall(words)),
        Command::Session(None) => work(state, Kind::Doing("reading"), Job::Sessions),
        Command::Session(Some(name)) => work(state, Kind::Doing("opening"), Job::Open(name)),
        Command::Export(file) => work(state, Kind::Doing("exporting"), Job::Export(file)),
        Command::Retry => ask(state, None),
        Command::View => {
            switch_views(state);
            Vec::new()
        }
        Command::Search(words) => {
            begin_search(state, &words);
            Vec::new()
        }
        Command::Help => {
            state.mode = Mode::Helping;
            state.help.home();
            Vec::new()
        }
        Command::Quit => vec![Effect::Quit],
    }
}

// The help, and yes or no

fn on_helping(state: &mut State, key: KeyEvent) -> Vec<Effect> {
    match key.code {
        KeyCode::Up => state.help.up(1),
        KeyCode::Down => state.help.down(1),
        KeyCode::Home => state.help.home(),
        KeyCode::End => state.help.end(),
        // Any other key leaves it.
        _ => return Vec::new(),
    }
    state.mode = Mode::Helping;
    Vec::new()
}

fn on_confirming(state: &mut State, confirm: Confirm, key: KeyEvent) -> Vec<Effect> {
    match key.code {
        KeyCode::Char('y' | 'Y') => {
            work(state, Kind::Doing("forgetting"), Job::Forget(confirm.request))
        }
        KeyCode::Char('n' | 'N') | KeyCode::Esc => {
            tell(state, Note::new(Tone::Quiet, "nothing was forgotten", Vec::new()))
        }
        // A slip of the finger neither erases nor dismisses.
        _ => {
            state.mode = Mode::Confirming(confirm);
            Vec::new()
        }
    }
}

// Searching

fn begin_search(state: &mut State, words: &str) {
    let search = Search { words: words.to_owned(), is_typing: true, ..Search::default() };
    match words.is_empty() {
        true => state.mode = Mode::Searching(search),
        false => find(state, search),
    }
}

fn on_searching(state: &mut State, mut search: Search, key: KeyEvent) -> Vec<Effect> {
    let is_plain = !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
    match (key.code, search.is_typing) {
        (KeyCode::Esc, _) => return Vec::new(),
        (KeyCode::Enter, true) => {
            find(state, search);
            return Vec::new();
        }
        (KeyCode::Backspace, true) => drop(search.words.pop()),
        (KeyCode::Char(c), true) if is_plain => search.words.push(c),
        (KeyCode::Char('n') | KeyCode::Enter | KeyCode::Down, false) => step(state, &mut search, 1),
        (KeyCode::Char('N') | KeyCode::Up, false) => step(state, &mut search, -1),
        (_, true) => {}
        // Whoever types on has found it.
        (_, false) => return on_typing(state, key),
    }
    state.mode = Mode::Searching(search);
    Vec::new()
}

/// Goes to the last item that has the words.
fn find(state: &mut State, mut search: Search) {
    if search.words.trim().is_empty() {
        return;
    }
    search.is_typing = false;
    search.found = state.items_with(&search.words);
    search.at = search.found.len().saturating_sub(1);
    step(state, &mut search, 0);
    state.mode = Mode::Searching(search);
}

fn step(state: &mut State, search: &mut Search, by: isize) {
    let count = search.found.len();
    if count == 0 {
        return;
    }
    search.at = (search.at + count).saturating_add_signed(by) % count;
    let words = search.words.as_str();
    state.display.show(search.found[search.at], |row| !places(&row.text(), words).is_empty());
}

// The rest

fn on_paste(state: &mut State, text: &str) -> Vec<Effect> {
    state.is_leaving = false;
    match &mut state.mode {
        Mode::Searching(search) if search.is_typing => {
            search.words.push_str(text.lines().next().unwrap_or_default());
        }
        Mode::Confirming(_) => {}
        mode => {
            *mode = Mode::Typing;
            state.editor.paste(text);
        }
    }
    Vec::new()
}

fn on_mouse(state: &mut State, mouse: MouseEvent) -> Vec<Effect> {
    let is_up = match mouse.kind {
        MouseEventKind::ScrollUp => true,
        MouseEventKind::ScrollDown => false,
        _ => return Vec::new(),
    };
    let at = Position::new(mouse.column, mouse.row);
    let is_sent = state.laid.is_some_and(|laid| laid.areas.sent.contains(at));
    let pane = match (&state.mode, is_sent) {
        (Mode::Helping, _) => &mut state.help,
        (_, true) => &mut state.sent,
        (_, false) => &mut state.display,
    };
    if is_up {
        pane.up(WHEEL_ROWS)
    } else {
        pane.down(WHEEL_ROWS)
    }
    Vec::new()
}

fn on_piece(state: &mut State, id: u64, piece: &str) -> Vec<Effect> {
    if let Some(Work { id: current, kind: Kind::Asking { answer, .. } }) = &mut state.work
        && *current == id
    {
        match piece.is_empty() {
            true => answer.clear(),
            false => answer.push_str(piece),
        }
    }
    Vec::new()
}

fn on_done(state: &mut State, id: u64, done: Done) -> Vec<Effect> {
    // What was given up may still come in.
    if !is_current(state, id) {
        return Vec::new();
    }
    state.work = None;
    let turns_before = state.views.turns.len();
    if let Some(session) = done.session.filter(|session| *session != state.session) {
        state.session = session;
        state.notes.clear();
        state.reminded = None;
    }
    if let Some(views) = done.views {
        state.views = views;
    }
    if done.is_forgotten {
        state.notes.clear();
        state.editor.forget();
    }
    let has_notes = !done.notes.is_empty();
    state.notes.extend(done.notes);
    settle_notes(state);
    if has_notes {
        arrange(state);
        state.display.show_last(state.views.turns.len() + state.notes.len() - 1);
    }
    // A request that was not taken goes back to where it was typed.
    if done.is_unanswered && state.views.turns.len() == turns_before {
        state.editor.give_back();
    }
    if let Some(confirm) = done.confirm {
        state.mode = Mode::Confirming(confirm);
    }
    let goes_next = std::mem::take(&mut state.is_next) && !done.is_unanswered;
    match goes_next && state.mode == Mode::Typing {
        true => on_enter(state),
        false => Vec::new(),
    }
}
