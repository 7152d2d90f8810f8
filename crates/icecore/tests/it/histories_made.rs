//! Many clients' histories, made by a seed, against a model of whose they are.

use std::collections::BTreeMap;

use icecore::{FollowRequest, Following, Memory, Principal, Scope, Tenant};

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
    words: Vec<String>,
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

/// Sends a conversation's words, and answers where it went.
async fn send(memory: &Memory, scope: &Scope, talk: &Talk, new: &str, answer: &str) -> String {
    let one = |(at, words): (usize, &String)| if at % 2 == 0 { user(words) } else { reply(words) };
    let messages: Vec<_> = talk.words.iter().enumerate().map(one).collect();
    let request =
        FollowRequest { messages: &messages, session: None, is_retry: false, new_session: new };
    let mut followed = memory.follow(scope, &request).await.unwrap();
    if followed.following == Following::Begins {
        assert_eq!(followed.session, new);
    }
    memory.keep_history(scope, &mut followed, &messages).await.unwrap();
    memory.keep_reply(scope, &followed, reply(answer), None).await.unwrap();
    followed.session
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
                // Many begin alike, and some tenants say just the same.
                let opening = ["hello", "hi there", "Can you help me?", "Fix the bug."];
                let words = match dice.is_one_in(2) {
                    true => opening[dice.below(opening.len())].to_owned(),
                    false => format!("Request {number}, which nobody else has."),
                };
                let tenant = dice.below(scopes_now.len());
                talks.push(Talk { tenant, session: None, words: vec![words] });
                talks.len() - 1
            }
            false => dice.below(talks.len()),
        };
        let talk = &mut talks[at];
        let is_first = talk.words.len() == 1;
        if !is_first {
            match dice.below(10) {
                // Something on the way is edited, behind a reply or the first of all.
                0 | 1 if talk.words.len() > 4 => {
                    let place = 2 * (1 + dice.below(talk.words.len() / 2 - 1));
                    talk.words.truncate(place);
                    talk.words.push(format!("Edited in {number}."));
                }
                // The last answer is wanted once more.
                2 if talk.words.len() > 3 => {
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
        let session = send(&bench.memory, &scopes_now[talk.tenant], talk, &new, &answer).await;
        let owner = *owners.entry(session.clone()).or_insert((talk.tenant, at));
        assert_eq!(owner.0, talk.tenant, "never another tenant's");
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
