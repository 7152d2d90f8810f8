//! What clients know: what they said, what was acknowledged, what was to be forgotten.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::story::Story;

/// Every text that a client gives has one word like this in it, which no other has.
const MARK: &str = "zq";

/// What became of something that a client gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was asked for, and nobody said that it was done.
    Unknown,
    /// It was acknowledged.
    Acknowledged,
    /// It is to go; whether it has, nobody said.
    Going,
    /// It was acknowledged that it has gone, then.
    Gone {
        /// When, in the order of all that happened.
        at: u64,
    },
}

/// Something that a client gave.
#[derive(Debug, Clone)]
pub struct Given {
    pub tenant: usize,
    /// The session; an entry has none.
    pub session: Option<String>,
    /// Its own id, where the client chose one.
    pub id: Option<String>,
    pub client: usize,
    /// The how manieth of this client's batches it came with.
    pub batch: u64,
    pub fate: Fate,
    /// Whether it may have gone with something that was forgotten at the same time.
    pub is_doubtful: bool,
}

/// What all clients know together.
pub struct Ledger {
    story: Arc<Story>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    given: BTreeMap<String, Given>,
    /// Rises with everything that begins or ends.
    now: u64,
    /// Sessions that are being forgotten, or may be at any time.
    forgetting: Vec<(usize, String)>,
}

impl Ledger {
    pub fn new(story: Arc<Story>) -> Self {
        Self { story, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present moment in the order of all that happened.
    pub fn now(&self) -> u64 {
        let mut known = self.known();
        known.now += 1;
        known.now
    }

    /// Notes that something is about to be given; answers its word.
    pub fn give(&self, given: Given) -> String {
        let mut known = self.known();
        let mark = mark(known.given.len());
        let is_doubtful = given.session.as_ref().is_some_and(|session| {
            known
                .forgetting
                .iter()
                .any(|(tenant, other)| *tenant == given.tenant && other == session)
        });
        known.given.insert(mark.clone(), Given { is_doubtful, ..given });
        mark
    }

    /// Notes that it was acknowledged.
    pub fn acknowledge(&self, marks: &[String]) {
        let mut known = self.known();
        for mark in marks {
            if let Some(given) = known.given.get_mut(mark)
                && given.fate == Fate::Unknown
            {
                given.fate = Fate::Acknowledged;
            }
        }
    }

    /// Notes that a session is about to be forgotten, and answers what must have gone
    /// once that is acknowledged.
    pub fn begin_to_forget(&self, tenant: usize, session: &str) -> Vec<String> {
        let mut known = self.known();
        known.forgetting.push((tenant, session.to_owned()));
        let mut sure = Vec::new();
        for (mark, given) in &mut known.given {
            if given.tenant != tenant || given.session.as_deref() != Some(session) {
                continue;
            }
            match given.fate {
                Fate::Unknown => given.is_doubtful = true,
                Fate::Acknowledged | Fate::Going => {
                    if !given.is_doubtful {
                        sure.push(mark.clone());
                    }
                    given.fate = Fate::Going;
                }
                Fate::Gone { .. } => {}
            }
        }
        sure
    }

    /// Notes that nobody forgets the session any more.
    pub fn end_forgetting(&self, tenant: usize, session: &str) {
        let mut known = self.known();
        let of = |(other, name): &(usize, String)| *other == tenant && name == session;
        if let Some(at) = known.forgetting.iter().position(of) {
            known.forgetting.remove(at);
        }
    }

    /// Notes that something is to go.
    pub fn begin_to_delete(&self, mark: &str) {
        if let Some(given) = self.known().given.get_mut(mark) {
            given.fate = Fate::Going;
        }
    }

    /// Notes that it was acknowledged that these have gone.
    pub fn gone(&self, marks: &[String]) {
        let mut known = self.known();
        known.now += 1;
        let at = known.now;
        for mark in marks {
            if let Some(given) = known.given.get_mut(mark) {
                given.fate = Fate::Gone { at };
            }
        }
    }

    /// All that was given.
    pub fn all(&self) -> BTreeMap<String, Given> {
        self.known().given.clone()
    }

    /// What is there for sure, of a tenant, that a client can ask for.
    pub fn acknowledged(&self, tenant: usize, is_turn: bool) -> Vec<(String, Given)> {
        let is_meant = |(_, given): &(&String, &Given)| {
            given.tenant == tenant
                && given.session.is_some() == is_turn
                && given.fate == Fate::Acknowledged
                && !given.is_doubtful
        };
        let known = self.known();
        known
            .given
            .iter()
            .filter(is_meant)
            .map(|(mark, given)| (mark.clone(), given.clone()))
            .collect()
    }

    /// Whether it is there for sure.
    pub fn is_there(&self, mark: &str) -> bool {
        let is_sure = |given: &Given| given.fate == Fate::Acknowledged && !given.is_doubtful;
        self.known().given.get(mark).is_some_and(is_sure)
    }

    /// Looks at a text that a tenant was shown, which it began to ask for at a moment.
    pub fn read(&self, tenant: usize, since: u64, text: &str, how: &str) {
        for word in marks_in(text) {
            let known = self.known().given.get(&word).cloned();
            match known {
                None => {
                    self.story.break_promise(format_args!("{how} shows {word}, which nobody gave"))
                }
                Some(given) if given.tenant != tenant => {
                    self.story.break_promise(format_args!(
                        "{how} shows {word}, which is another tenant's"
                    ));
                }
                Some(Given { fate: Fate::Gone { at }, .. }) if at <= since => {
                    self.story
                        .break_promise(format_args!("{how} shows {word}, which was forgotten"));
                }
                Some(_) => {}
            }
        }
    }
}

/// The nth word.
fn mark(mut number: usize) -> String {
    const LETTERS: &[u8] = b"bcdfghjkmnprtvwx";
    let mut word = MARK.to_owned();
    for _ in 0..3 {
        word.push(char::from(LETTERS[number % LETTERS.len()]));
        word.push('o');
        number /= LETTERS.len();
    }
    word
}

/// The words of a text that somebody gave.
pub fn marks_in(text: &str) -> Vec<String> {
    let words = text.split(|letter: char| !letter.is_alphanumeric()).map(str::to_lowercase);
    words.filter(|word| word.len() == MARK.len() + 6 && word.starts_with(MARK)).collect()
}
