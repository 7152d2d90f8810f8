//! Open connections: what each of them waits for, and which has to go.
//!
//! A client that does nothing costs a place. So every connection says whom it waits
//! for, us or its client. One whose client is overdue is closed; and when all places
//! are taken, one that waits for its client makes room: before one whose request is
//! under way, one that has none yet; of these one of the peer with the most; of those
//! the one that has waited longest. A request that we are at work on is never cut.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::limits::Limits;

/// Who is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    /// Somebody with an address.
    Address(IpAddr),
    /// Somebody who can open our socket in the file system.
    Local,
}

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Between requests.
    Idle,
    /// A head has begun to come.
    Head,
    /// The head has come, and the body is awaited.
    Body,
    /// We are at work.
    Work,
    /// An answer is being made and taken, piece by piece.
    Answer,
    /// The client does not take the next piece.
    Stalled,
    /// The whole answer is on its way.
    Leaving,
    /// All is said; what the client still sends is thrown away.
    Lingering,
    /// It has to go.
    Evicted,
}

impl Phase {
    /// Whether the next move is the client's.
    fn waits_for_client(self) -> bool {
        !matches!(self, Phase::Work | Phase::Answer | Phase::Evicted)
    }

    /// Whether closing now would cut a request or its answer.
    fn is_under_way(self) -> bool {
        matches!(self, Phase::Body | Phase::Stalled | Phase::Leaving)
    }
}

/// A client that was refused while it was still sending gets this long to stop, so
/// that it sees the refusal rather than a broken connection.
const LINGER: Duration = Duration::from_secs(5);

/// Once the door closes, a client that has not sent a whole head gets this long.
const LAST_CALL: Duration = Duration::from_secs(1);

/// Once the door closes, a client whose body stops coming gets this long.
const LAST_CALL_BODY: Duration = Duration::from_secs(5);

/// How long each wait may last.
#[derive(Debug, Clone, Copy)]
struct Patience {
    idle: Duration,
    head: Duration,
    write: Duration,
}

impl Patience {
    /// Bodies have a limit of their own, where they are read.
    fn with(&self, phase: Phase, closing: bool) -> Option<Duration> {
        let last = |usual: Duration| if closing { usual.min(LAST_CALL) } else { usual };
        match phase {
            Phase::Idle => Some(last(self.idle)),
            Phase::Head => Some(last(self.head)),
            Phase::Stalled | Phase::Leaving => Some(self.write),
            Phase::Lingering => Some(LINGER),
            Phase::Body | Phase::Work | Phase::Answer | Phase::Evicted => None,
        }
    }

    fn is_over(&self, state: &State, closing: bool) -> bool {
        let stopped = state.phase == Phase::Body && state.progress.elapsed() > LAST_CALL_BODY;
        let most = self.with(state.phase, closing);
        (closing && stopped) || most.is_some_and(|most| state.since.elapsed() > most)
    }
}

/// Where a line stands, and since when.
#[derive(Debug, Clone, Copy)]
struct State {
    phase: Phase,
    since: Instant,
    /// When bytes last came or went that the phase is about.
    progress: Instant,
}

impl State {
    fn now(phase: Phase) -> Self {
        let now = Instant::now();
        Self { phase, since: now, progress: now }
    }
}

/// One connection.
pub(crate) struct Line {
    peer: Peer,
    state: Mutex<State>,
    /// Whether the client may still be sending what nobody reads.
    unread: AtomicBool,
    evicted: Notify,
}

impl Line {
    pub(crate) fn new(peer: Peer) -> Arc<Self> {
        Arc::new(Self {
            peer,
            state: Mutex::new(State::now(Phase::Idle)),
            unread: AtomicBool::new(false),
            evicted: Notify::new(),
        })
    }

    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Moves on, where `step` knows a next phase; an evicted line stays so.
    fn go(&self, step: impl FnOnce(Phase) -> Option<Phase>) -> bool {
        let mut state = self.state();
        if state.phase == Phase::Evicted {
            return false;
        }
        if let Some(next) = step(state.phase) {
            *state = State::now(next);
        }
        true
    }

    /// Bytes came or went. In one of these phases that is what we wait for.
    fn progress(&self, phases: &[Phase]) {
        let mut state = self.state();
        if phases.contains(&state.phase) {
            state.progress = Instant::now();
        }
    }

    /// A head is whole, and its request is ours to answer. False if it is too late.
    pub(crate) fn begin(&self, has_body: bool) -> bool {
        self.unread.store(has_body, Ordering::Relaxed);
        self.go(|_| Some(Phase::Work))
    }

    /// The body is awaited. False if it is too late.
    pub(crate) fn await_body(&self) -> bool {
        self.go(|_| Some(Phase::Body))
    }

    /// The body came, whole or not. False if it is too late.
    pub(crate) fn body_came(&self, whole: bool) -> bool {
        if whole {
            self.unread.store(false, Ordering::Relaxed);
        }
        self.go(|_| Some(Phase::Work))
    }

    /// The answer begins.
    pub(crate) fn answers(&self) {
        self.go(|_| Some(Phase::Answer));
    }

    /// The answer is wholly made.
    pub(crate) fn answered(&self) {
        self.go(|phase| match phase {
            Phase::Answer | Phase::Stalled => Some(Phase::Leaving),
            _ => None,
        });
    }

    pub(crate) fn received(&self) {
        self.go(|phase| (phase == Phase::Idle).then_some(Phase::Head));
        self.progress(&[Phase::Body]);
    }

    pub(crate) fn wrote(&self) {
        self.progress(&[Phase::Stalled, Phase::Leaving]);
    }

    pub(crate) fn stalled(&self) {
        self.go(|phase| (phase == Phase::Answer).then_some(Phase::Stalled));
    }

    pub(crate) fn flushed(&self) {
        self.go(|phase| match phase {
            Phase::Stalled => Some(Phase::Answer),
            Phase::Leaving => Some(Phase::Idle),
            _ => None,
        });
    }

    /// Whether no request is under way: what is written now is no answer of ours.
    pub(crate) fn is_between_requests(&self) -> bool {
        matches!(self.state().phase, Phase::Idle | Phase::Head)
    }

    /// The head was refused before it became a request.
    pub(crate) fn refused(&self) {
        self.unread.store(true, Ordering::Relaxed);
        self.go(|_| Some(Phase::Leaving));
    }

    /// All is said. Whether the client should be let finish.
    pub(crate) fn lingers(&self) -> bool {
        self.unread.load(Ordering::Relaxed) && self.go(|_| Some(Phase::Lingering))
    }

    /// Resolves when the connection has to go.
    pub(crate) async fn evicted(&self) {
        // A permit is kept for whoever comes late.
        self.evicted.notified().await;
    }

    /// If it waits for its client: whether a request is under way, and since when
    /// nothing came or went.
    fn waits(&self) -> Option<(bool, Instant)> {
        let State { phase, progress, .. } = *self.state();
        phase.waits_for_client().then_some((phase.is_under_way(), progress))
    }

    /// Ends the connection, unless it is our turn by now.
    fn evict(&self) -> bool {
        let mut state = self.state();
        let evict = state.phase.waits_for_client();
        if evict {
            state.phase = Phase::Evicted;
            self.evicted.notify_one();
        }
        evict
    }

    fn is_overdue(&self, patience: &Patience, closing: bool) -> bool {
        patience.is_over(&self.state(), closing)
    }
}

/// All connections.
pub(crate) struct Lines {
    most: usize,
    patience: Patience,
    open: Mutex<(u64, BTreeMap<u64, Arc<Line>>)>,
    freed: Notify,
}

/// A connection's place; free again when dropped.
pub(crate) struct Place {
    pub(crate) line: Arc<Line>,
    number: u64,
    lines: Arc<Lines>,
}

/// While every place is being worked on, we look this often for one to free.
const LOOK: Duration = Duration::from_millis(50);

/// How often the overdue are looked for.
const SWEEP: Duration = Duration::from_millis(500);

impl Lines {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        let seconds = Duration::from_secs;
        Arc::new(Self {
            most: limits.connections,
            patience: Patience {
                idle: seconds(limits.idle_seconds),
                head: seconds(limits.header_seconds),
                write: seconds(limits.write_seconds),
            },
            open: Mutex::default(),
            freed: Notify::new(),
        })
    }

    fn open(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Arc<Line>>)> {
        self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A place for one more, made at the cost of the most patient if need be.
    pub(crate) async fn admit(self: &Arc<Self>, peer: Peer) -> Place {
        let line = Line::new(peer);
        loop {
            if let Some(number) = self.try_admit(&line) {
                return Place { line, number, lines: Arc::clone(self) };
            }
            // Whether somebody left or merely began to wait, we look again.
            let _ = tokio::time::timeout(LOOK, self.freed.notified()).await;
        }
    }

    fn try_admit(&self, line: &Arc<Line>) -> Option<u64> {
        let mut open = self.open();
        if open.1.len() >= self.most {
            let mut of_peer: BTreeMap<Peer, usize> = BTreeMap::new();
            for line in open.1.values() {
                *of_peer.entry(line.peer).or_default() += 1;
            }
            let waiting = open.1.iter().filter_map(|(no, line)| {
                let (under_way, since) = line.waits()?;
                let many = of_peer.get(&line.peer).copied().unwrap_or_default();
                Some((under_way, Reverse(many), since, *no))
            });
            let (.., oldest) = waiting.min()?;
            // It may have begun to work since.
            if !open.1.get(&oldest)?.evict() {
                return None;
            }
            open.1.remove(&oldest);
        }
        open.0 += 1;
        let number = open.0;
        open.1.insert(number, Arc::clone(line));
        Some(number)
    }

    /// Closes, for ever, connections whose client is overdue.
    pub(crate) async fn sweep(&self, closing: impl Fn() -> bool) {
        loop {
            tokio::time::sleep(SWEEP).await;
            let lines: Vec<Arc<Line>> = self.open().1.values().cloned().collect();
            for line in lines {
                if line.is_overdue(&self.patience, closing()) {
                    line.evict();
                }
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lines.open().1.remove(&self.number);
        self.lines.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(most: usize) -> Arc<Lines> {
        Lines::new(&Limits { connections: most, ..Limits::default() })
    }

    async fn is_evicted(line: &Line) -> bool {
        tokio::time::timeout(Duration::from_millis(10), line.evicted()).await.is_ok()
    }

    #[tokio::test]
    async fn the_most_patient_makes_room_and_work_is_never_cut() {
        let lines = lines(3);
        let working = lines.admit(Peer::Local).await;
        assert!(working.line.begin(false));
        let first = lines.admit(Peer::Local).await;
        let second = lines.admit(Peer::Local).await;
        // Bytes do not make a wait younger.
        first.line.received();
        second.line.begin(true);
        second.line.await_body();
        let third = lines.admit(Peer::Local).await;
        assert!(is_evicted(&first.line).await);
        assert!(!first.line.begin(false), "too late");
        third.line.begin(false);
        let fourth = lines.admit(Peer::Local).await;
        assert!(is_evicted(&second.line).await);
        assert!(!second.line.body_came(true), "too late");
        fourth.line.begin(false);
        // Everybody works now: the next waits until one ends.
        let waiting = lines.admit(Peer::Local);
        tokio::pin!(waiting);
        let soon = Duration::from_millis(120);
        assert!(tokio::time::timeout(soon, &mut waiting).await.is_err());
        assert!(!is_evicted(&working.line).await);
        drop(working);
        waiting.await;
    }

    #[tokio::test]
    async fn an_upload_in_progress_goes_last_and_the_crowd_first() {
        let address = |last| Peer::Address(IpAddr::from([192, 0, 2, last]));
        let lines = lines(5);
        let uploading = lines.admit(address(1)).await;
        let stopped = lines.admit(address(2)).await;
        for place in [&uploading, &stopped] {
            place.line.begin(true);
            place.line.await_body();
        }
        let alone = lines.admit(address(3)).await;
        let crowd = [lines.admit(address(4)).await, lines.admit(address(4)).await];
        uploading.line.received();
        // The one that waits longest has one connection, the stranger two.
        let fifth = lines.admit(address(5)).await;
        assert!(is_evicted(&crowd[0].line).await);
        let sixth = lines.admit(address(6)).await;
        assert!(is_evicted(&alone.line).await);
        for place in [&crowd[1], &fifth, &sixth] {
            place.line.begin(false);
        }
        // Only those with a request under way are left to go.
        let _seventh = lines.admit(address(7)).await;
        assert!(is_evicted(&stopped.line).await);
        assert!(!is_evicted(&uploading.line).await);
    }

    #[test]
    fn progress_counts_in_its_own_phase_alone() {
        let past = Instant::now() - Duration::from_secs(10);
        let check = |phase: Phase, act: fn(&Line), refreshed: bool| {
            let line = Line::new(Peer::Local);
            *line.state() = State { phase, since: past, progress: past };
            act(&line);
            let state = *line.state();
            assert_eq!(state.since, past, "{phase:?}");
            assert_eq!(state.progress > past, refreshed, "{phase:?}");
        };
        check(Phase::Body, Line::received, true);
        check(Phase::Head, Line::received, false);
        check(Phase::Leaving, Line::wrote, true);
        check(Phase::Stalled, Line::wrote, true);
        check(Phase::Leaving, Line::received, false);
    }

    #[test]
    fn a_stopped_body_has_a_last_call() {
        let patience = Lines::new(&Limits::default()).patience;
        let check = |seconds: u64, closing: bool, over: bool| {
            let now = Instant::now();
            let past = |seconds| now - Duration::from_secs(seconds);
            let state = State { phase: Phase::Body, since: past(20), progress: past(seconds) };
            assert_eq!(patience.is_over(&state, closing), over, "{seconds} {closing}");
        };
        check(10, false, false);
        check(10, true, true);
        check(1, true, false);
    }

    #[test]
    fn a_line_goes_through_its_phases() {
        let line = Line::new(Peer::Local);
        let check = |waits: bool, between: bool| {
            assert_eq!((line.waits().is_some(), line.is_between_requests()), (waits, between));
        };
        check(true, true);
        line.received();
        check(true, true);
        line.begin(true);
        check(false, false);
        line.await_body();
        check(true, false);
        line.body_came(true);
        check(false, false);
        line.answers();
        line.stalled();
        check(true, false);
        line.flushed();
        check(false, false);
        line.answered();
        check(true, false);
        line.flushed();
        check(true, true);
        assert!(!line.lingers(), "the body was read");
        line.begin(true);
        assert!(line.lingers());
    }

    #[test]
    fn each_wait_has_its_limit() {
        let limits = Limits { idle_seconds: 60, header_seconds: 20, ..Limits::default() };
        let patience = Lines::new(&limits).patience;
        let seconds = |phase, closing| patience.with(phase, closing).map(|time| time.as_secs());
        assert_eq!(seconds(Phase::Idle, false), Some(60));
        assert_eq!(seconds(Phase::Head, false), Some(20));
        assert_eq!(seconds(Phase::Head, true), Some(1));
        assert_eq!(seconds(Phase::Stalled, true), Some(limits.write_seconds));
        assert_eq!(seconds(Phase::Leaving, false), Some(limits.write_seconds));
        assert_eq!(seconds(Phase::Work, true), None);
    }
}
