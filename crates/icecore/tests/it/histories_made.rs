//! Many clients' histories, made by a seed, against a model of whose they are.

use std::collections::BTreeMap;

use icecore::sessions::{ClientMessage, FollowRequest, Followed, Following};
use icecore::{Memory, Principal, Scope, Tenant};

use crate::histories::{reply, user};
use crate::support::{Bench, text};

/// Requests that are made.
const REQUESTS: usize = 1_000;

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % most as u64) as usize
    }

    fn is_one_in(&mut self, most: usize) -> bool {
        self.below(most) == 0
    }
}

/// One client's conversation: who it is of, where it is kept, and the words on screen.
struct Talk {
    tenant: usize,
    session: Option<String>,
    /// Whether a reply that the client made up comes first.
    is_greeted: bool,
    /// How many words it began with; the answer to them is the first of ours.
    begun: usize,
    words: Vec<String>,
}

impl Talk {
    fn messages(&self) -> Vec<ClientMessage> {
        let one = |(at, words): (usize, &String)| match (at % 2 == 0) != self.is_greeted {
            true => user(words),
            false => reply(words),
        };
        self.words.iter().enumerate().map(one).collect()
    }
}

/// How a conversation begins: many alike, some with a greeting or examples before it.
fn begun(dice: &mut Dice, tenant: usize, number: usize) -> Talk {
    let opening = ["hello", "hi there", "Can you help me?", "Fix the bug."];
    let opening = match dice.is_one_in(2) {
        true => opening[dice.below(opening.len())].to_owned(),
        false => format!("Request {number}, which nobody else has."),
    };
    let (is_greeted, before): (bool, &[&str]) = match dice.below(6) {
        0 => (true, &["Hi, how can I help?"]),
        1 => (false, &["What is 1 + 1?", "2", "What is 2 + 2?", "4"]),
        _ => (false, &[]),
    };
    let mut words: Vec<String> = before.iter().map(|words| (*words).to_owned()).collect();
    words.push(opening);
    Talk { tenant, session: None, is_greeted, begun: words.len(), words }
}

/// What came of all of them.
#[derive(Debug, Default)]
struct Score {
    right: usize,
    wrong: usize,
    /// Of the wrong ones, those that only were told twice.
    begun_anew: usize,
    /// And those that went on with another's session, which held the same words.
    shared: usize,
}

/// Sends a conversation's words, and answers where it went and how much was known there.
async fn send(
    memory: &Memory,
    scope: &Scope,
    talk: &Talk,
    new: &str,
    answer: &str,
) -> (Followed, usize) {
    let messages = talk.messages();
    let request =
        FollowRequest { messages: &messages, session: None, is_retry: false, new_session: new };
    let mut followed = memory.follow(scope, &request).await.unwrap();
    if followed.following == Following::Begins {
        assert_eq!(followed.session, new);
    }
    let known = followed.known;
    memory.keep_history(scope, &mut followed, &messages).await.unwrap();
    memory.keep_reply(scope, &followed, reply(answer), None).await.unwrap();
    (followed, known)
}

/// Whether a branch of a session says just these words.
async fn holds(memory: &Memory, scope: &Scope, session: &str, words: &[String]) -> bool {
    let sessions = memory.sessions(scope).await.unwrap();
    let found = sessions.into_iter().find(|one| one.session == session).unwrap();
    for branch in found.branches {
        let view = memory.view(scope, session, Some(&branch.to_string())).await.unwrap();
        if view.messages.iter().map(text).eq(words.iter().cloned()) {
            return true;
        }
    }
    false
}

async fn scopes(bench: &Bench) -> Vec<Scope> {
    let mut scopes = Vec::new();
    for tenant in ["north", "south", "west"] {
        let principal = Principal::local_operator(Tenant::new(tenant).unwrap());
        scopes.push(bench.memory.scope(&principal, "chat").await.unwrap());
    }
    scopes
}

async fn play(seed: u64) -> Score {
    let mut bench = Bench::new().await;
    let mut scopes_now = scopes(&bench).await;
    let mut dice = Dice(seed);
    let mut talks: Vec<Talk> = Vec::new();
    let mut score = Score::default();
    // Whose session a name is: of which tenant and which talk.
    let mut owners: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for number in 0..REQUESTS {
        if dice.is_one_in(250) {
            bench = bench.reopen().await;
            scopes_now = scopes(&bench).await;
        }
        let at = match talks.is_empty() || dice.is_one_in(6) {
            true => {
                // Some tenants say just the same.
                let tenant = dice.below(scopes_now.len());
                talks.push(begun(&mut dice, tenant, number));
                talks.len() - 1
            }
            false => dice.below(talks.len()),
        };
        let talk = &mut talks[at];
        let is_first = talk.session.is_none();
        let own = talk.words.len() - talk.begun;
        if !is_first {
            match dice.below(10) {
                // Something on the way is edited, behind a reply or the first of all.
                0 | 1 if own > 3 => {
                    let place = talk.begun + 1 + 2 * dice.below(own / 2);
                    talk.words.truncate(place);
                    talk.words.push(format!("Edited in {number}."));
                }
                // The last answer is wanted once more.
                2 if own > 2 => {
                    talk.words.pop();
                }
                _ => talk.words.push(format!("Go on with {}.", dice.below(40))),
            }
        }
        // Models say the same to the same now and then.
        let answer = match is_first && !dice.is_one_in(12) {
            true => format!("Hello! This is answer {number}."),
            false if is_first => "Hello! How can I help?".to_owned(),
            false => format!("Answer {}.", dice.below(4)),
        };
        let new = format!("talk {at} from {number}");
        let sent = send(&bench.memory, &scopes_now[talk.tenant], talk, &new, &answer).await;
        let (Followed { session, following, .. }, known) = sent;
        assert!(!is_first || following == Following::Begins, "none of its words was answered");
        let owner = *owners.entry(session.clone()).or_insert((talk.tenant, at));
        assert_eq!(owner.0, talk.tenant, "never another tenant's");
        if owner.1 != at {
            // Every word so far is the same, and an answer is among them.
            let words = &talk.words;
            assert!(known + 1 >= words.len() && known > talk.begun, "{known} of {words:?}");
        }
        let is_right = talk.session.as_ref().is_none_or(|own| *own == session);
        match is_right && owner.1 == at {
            true => score.right += 1,
            false => {
                score.wrong += 1;
                score.begun_anew += usize::from(owner.1 == at);
                score.shared += usize::from(owner.1 != at);
            }
        }
        talk.words.push(answer);
        if !is_right || dice.is_one_in(8) {
            let held = holds(&bench.memory, &scopes_now[talk.tenant], &session, &talk.words);
            assert!(held.await, "{session} holds {:?}", talk.words);
        }
        talk.session = Some(session);
    }
    bench.check().await;
    score
}

#[tokio::test]
async fn histories_find_their_sessions() {
    for seed in [1, 2, 3] {
        let score = play(seed).await;
        println!("seed {seed}: {score:?}");
        assert_eq!(score.right + score.wrong, REQUESTS);
        assert!(score.right * 100 >= REQUESTS * 99, "{score:?}");
        assert_eq!(score.wrong, score.begun_anew + score.shared);
    }
}
