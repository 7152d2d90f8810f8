use proptest::prelude::*;

use super::super::{CronLine, Zone};
use super::*;

fn cron(text: &str) -> Timing {
    Timing::Cron(CronLine::parse(text, Zone::utc()).unwrap())
}

fn standing(handled: i64) -> Standing<'static> {
    Standing {
        id: "s-1",
        handled_through: Millis(handled),
        catch_up: CatchUp::Once,
        jitter_millis: 0,
        late_millis: 5_000,
    }
}

const MINUTE: i64 = 60_000;

#[test]
fn what_is_due_runs_once() {
    let line = cron("* * * * *");
    assert_eq!(plan(&line, &standing(0), Millis(MINUTE - 1)), None);
    let due = plan(&line, &standing(0), Millis(MINUTE)).unwrap();
    let next = Some(Upcoming { at: Millis(2 * MINUTE), fires_at: Millis(2 * MINUTE) });
    let expected = Plan {
        missed: Vec::new(),
        counted: 0,
        run: Some(Millis(MINUTE)),
        handled_through: Millis(MINUTE),
        next,
    };
    assert_eq!(due, expected);
    assert_eq!(plan(&line, &standing(MINUTE), Millis(MINUTE)), None);
}

#[test]
fn downtime_is_caught_up_with_once_or_not_at_all() {
    let line = cron("* * * * *");
    let now = Millis(5 * MINUTE + 30_000);
    let once = plan(&line, &standing(0), now).unwrap();
    assert_eq!(once.missed, [1, 2, 3, 4].map(|n| Millis(n * MINUTE)));
    assert_eq!((once.run, once.handled_through), (Some(Millis(5 * MINUTE)), Millis(5 * MINUTE)));
    let skip = Standing { catch_up: CatchUp::Skip, ..standing(0) };
    let skipped = plan(&line, &skip, now).unwrap();
    assert_eq!(skipped.missed, [1, 2, 3, 4, 5].map(|n| Millis(n * MINUTE)));
    assert_eq!((skipped.run, skipped.next.map(|next| next.at)), (None, Some(Millis(6 * MINUTE))));
    // What is hardly late runs.
    let soon = plan(&line, &skip, Millis(5 * MINUTE + 4_000)).unwrap();
    assert_eq!(soon.run, Some(Millis(5 * MINUTE)));
}

#[test]
fn a_long_downtime_is_counted() {
    let line = cron("* * * * * *");
    let now = Millis(1_700_000_000_000);
    let due = plan(&line, &standing(now.0 - 3_600_000), now).unwrap();
    assert_eq!((due.missed.len(), due.counted, due.run), (1_000, 2_599, Some(now)));
    assert_eq!(due.missed[0], Millis(now.0 - 1_000_000));
    let due = plan(&line, &standing(now.0 - 90 * 86_400_000), now).unwrap();
    assert_eq!((due.missed.len(), due.counted, due.run), (1_000, MAX_COUNTED, Some(now)));
    // Seldom ones over many years.
    let due = plan(&cron("@yearly"), &standing(0), now).unwrap();
    assert_eq!((due.missed.len(), due.counted), (52, 0));
}

#[test]
fn a_clock_that_jumps_neither_repeats_nor_stops_it() {
    let line = cron("* * * * *");
    let now = Millis(1_700_000_000_000);
    // Back a little: nothing until it is where it was.
    assert_eq!(plan(&line, &standing(now.0 + MINUTE), now), None);
    // Back by far: it goes on from the clock, and nothing runs at once.
    let back = plan(&line, &standing(now.0 + 4 * 365 * 86_400_000), now).unwrap();
    assert_eq!((back.run, back.missed.len(), back.handled_through), (None, 0, now));
    assert!(back.next.unwrap().at.0 - now.0 <= MINUTE);
    // Forth by far: one.
    let forth = plan(&line, &standing(now.0), Millis(now.0 + 365 * 86_400_000)).unwrap();
    assert!(forth.run.is_some());
    assert_eq!((forth.missed.len(), forth.counted), (1_000, MAX_COUNTED));
}

#[test]
fn a_delay_comes_once() {
    let once = Timing::Once(Millis(1_234));
    let skip = Standing { catch_up: CatchUp::Skip, ..standing(0) };
    let late = plan(&once, &skip, Millis(MINUTE)).unwrap();
    assert_eq!((late.run, late.next), (Some(Millis(1_234)), None), "it has no other");
    assert_eq!(plan(&once, &standing(0), Millis(1_233)), None);
    let due = plan(&once, &standing(0), Millis(99_999)).unwrap();
    assert_eq!((due.run, due.next, due.missed.len()), (Some(Millis(1_234)), None, 0));
    assert_eq!(plan(&once, &standing(1_234), Millis(99_999)), None);
    assert_eq!(once.next(Millis(0), 10), [Millis(1_234)]);
}

proptest! {
    #[test]
    fn jitter_is_bounded_and_stays(
        jitter_millis in 0..200_000_u64, at in 0..2_000_000_000_000_i64, id in "[a-z]{1,8}",
    ) {
        let line = cron("* * * * *");
        let next = upcoming(&line, &id, jitter_millis, Millis(at)).unwrap();
        let late = next.fires_at.0 - next.at.0;
        prop_assert!((0..MINUTE).contains(&late) && late as u64 <= jitter_millis);
        prop_assert_eq!(upcoming(&line, &id, jitter_millis, Millis(at)), Some(next));
    }

    /// However the clock goes, every instant is handled once, none is left out, and
    /// each runs within its jitter where the clock is looked at often.
    #[test]
    fn every_instant_is_handled_once(
        steps in proptest::collection::vec(0..400_000_i64, 1..40), jitter_millis in 0..90_000_u64,
        skips in any::<bool>(),
    ) {
        let line = cron("*/2 * * * *");
        let catch_up = if skips { CatchUp::Skip } else { CatchUp::Once };
        let (mut now, mut handled) = (1_700_000_000_000_i64, 1_700_000_000_000_i64);
        let (first, mut seen) = (handled, Vec::new());
        for step in steps {
            now += step;
            let standing = Standing { catch_up, jitter_millis, ..standing(handled) };
            let Some(due) = plan(&line, &standing, Millis(now)) else { continue };
            prop_assert_eq!(due.counted, 0);
            seen.extend(due.missed.iter().chain(&due.run).map(|at| at.0));
            handled = due.handled_through.0;
            prop_assert_eq!(seen.last(), Some(&handled));
            let next = due.next.unwrap();
            prop_assert!(next.at.0 > handled && next.fires_at.0 > now);
        }
        let all: Vec<i64> =
            line.next(Millis(first), seen.len()).iter().map(|at| at.0).collect();
        prop_assert_eq!(seen, all);
    }
}
