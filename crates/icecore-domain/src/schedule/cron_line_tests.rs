use std::collections::BTreeSet;

use jiff::tz::TimeZone;
use proptest::prelude::*;

use super::*;

fn line(text: &str, zone: &str) -> CronLine {
    CronLine::parse(text, Zone::named(zone).unwrap()).unwrap()
}

fn at(text: &str) -> Millis {
    Millis::parse_rfc3339(text).unwrap()
}

/// The next instants in the zone's own time, with its offset.
fn next(text: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let line = line(text, zone);
    let mut from = at(after);
    let mut found = Vec::new();
    for _ in 0..count {
        from = line.next_after(from).unwrap();
        let zoned = Timestamp::from_millisecond(from.0).unwrap();
        let zoned = zoned.to_zoned(line.zone().zone().clone());
        found.push(zoned.strftime("%m-%d %H:%M:%S%:z").to_string());
    }
    found
}

#[test]
fn fields_names_ranges_steps_and_lists() {
    let check = |text: &str, expected: [&str; 3]| {
        let found = next(text, "UTC", "2024-05-01T00:00:00Z", 3);
        assert_eq!(found, expected.map(|time| format!("{time}+00:00")), "{text}");
    };
    check("30 3 * * *", ["05-01 03:30:00", "05-02 03:30:00", "05-03 03:30:00"]);
    check("*/20 * * * * *", ["05-01 00:00:20", "05-01 00:00:40", "05-01 00:01:00"]);
    check("0 9-17/4 * * *", ["05-01 09:00:00", "05-01 13:00:00", "05-01 17:00:00"]);
    check("0 0 * * mon-wed", ["05-06 00:00:00", "05-07 00:00:00", "05-08 00:00:00"]);
    check("0 0 1 jan,JUL *", ["07-01 00:00:00", "01-01 00:00:00", "07-01 00:00:00"]);
    check("0 0 1,15 * 7", ["05-05 00:00:00", "05-12 00:00:00", "05-15 00:00:00"]);
    check("0 0 L * *", ["05-31 00:00:00", "06-30 00:00:00", "07-31 00:00:00"]);
    check("0 0 * * 5#L", ["05-31 00:00:00", "06-28 00:00:00", "07-26 00:00:00"]);
    check("0 0 29 2 *", ["02-29 00:00:00", "02-29 00:00:00", "02-29 00:00:00"]);
    check("@hourly", ["05-01 01:00:00", "05-01 02:00:00", "05-01 03:00:00"]);
    check("@Daily", ["05-02 00:00:00", "05-03 00:00:00", "05-04 00:00:00"]);
    check("@midnight", ["05-02 00:00:00", "05-03 00:00:00", "05-04 00:00:00"]);
    check("@weekly", ["05-05 00:00:00", "05-12 00:00:00", "05-19 00:00:00"]);
    check("@monthly", ["06-01 00:00:00", "07-01 00:00:00", "08-01 00:00:00"]);
    check("@yearly", ["01-01 00:00:00", "01-01 00:00:00", "01-01 00:00:00"]);
    assert_eq!(line("  5   4 * *  mon ", "UTC").text(), "5 4 * * MON");
}

#[test]
fn a_bad_line_points_at_its_field() {
    let check = |text: &str, field: Field, wrong: &str| {
        let error = CronLine::parse(text, Zone::utc()).unwrap_err();
        assert_eq!(error.field(), Some(field), "{text}: {error}");
        let place = error.place().unwrap();
        let marked: String = text.chars().skip(place.start).take(place.len()).collect();
        assert_eq!(marked, wrong, "{text}");
        let said = error.to_string();
        assert!(said.contains(field.as_str()) && said.contains(wrong), "{said}");
    };
    check("99 99 * * *", Field::Minute, "99");
    check("5  99 * * *", Field::Hour, "99");
    check("0 0 0 * *", Field::DayOfMonth, "0");
    check("0 0 32 * *", Field::DayOfMonth, "32");
    check("0 0 1 13 *", Field::Month, "13");
    check("0 0 1 JANFEB *", Field::Month, "JANFEB");
    check("0 0 1 MON *", Field::Month, "MON");
    check("0 0 * * 8", Field::DayOfWeek, "8");
    check("0 0 * * MONDAY", Field::DayOfWeek, "MONDAY");
    check("60 * * * * *", Field::Second, "60");
    check("x * * * *", Field::Minute, "x");
    check("SUN * * * *", Field::Minute, "SUN");
    check("*/0 * * * *", Field::Minute, "*/0");
    check("/5 * * * *", Field::Minute, "/5");
    check("1, * * * *", Field::Minute, "1,");
    check("0 22-6 * * *", Field::Hour, "22-6");
    check("0 0 * * FRI-MON", Field::DayOfWeek, "FRI-MON");
    check("٣ * * * *", Field::Minute, "٣");
    check("0 0 30 2 *", Field::DayOfMonth, "30");
    check("0 0 0 31 4,6 *", Field::DayOfMonth, "31");
}

#[test]
fn what_is_no_line_says_so() {
    let said = |text: &str| CronLine::parse(text, Zone::utc()).unwrap_err().to_string();
    assert!(said("").contains("has 0"), "{}", said(""));
    assert!(said("* * * *").contains("has 4"));
    assert!(said("* * * * * * *").contains("has 7"));
    assert!(said("@reboot").contains("@daily"));
    assert!(said("@daily *").contains("@daily"));
    assert_eq!(
        CronLine::parse(&"* ".repeat(500), Zone::utc()).unwrap_err(),
        ScheduleError::TooLong
    );
    assert!(said("0 22-6 * * *").contains("`22-23,0-6`"), "{}", said("0 22-6 * * *"));
    assert_eq!(
        said("61 * * * *"),
        "the minute field of the cron line is `61`: allowed are 0-59, `*`, lists `1,2`, ranges `1-5`, steps `*/5`"
    );
}

#[test]
fn a_fixed_time_in_a_gap_fires_once_right_after_it() {
    // 02:00 to 03:00 is not there.
    assert_eq!(
        next("30 2 * * *", "Europe/Berlin", "2024-03-30T12:00:00Z", 2),
        ["03-31 03:00:00+02:00", "04-01 02:30:00+02:00"]
    );
    assert_eq!(
        next("30 2 * * *", "America/New_York", "2024-03-09T12:00:00Z", 2),
        ["03-10 03:00:00-04:00", "03-11 02:30:00-04:00"]
    );
    // Half an hour, from 02:00 to 02:30.
    assert_eq!(
        next("15 2 * * *", "Australia/Lord_Howe", "2024-10-05T00:00:00Z", 2),
        ["10-06 02:30:00+11:00", "10-07 02:15:00+11:00"]
    );
}

#[test]
fn a_fixed_time_in_a_fold_fires_the_first_time() {
    assert_eq!(
        next("30 2 * * *", "Europe/Berlin", "2024-10-26T12:00:00Z", 2),
        ["10-27 02:30:00+02:00", "10-28 02:30:00+01:00"]
    );
    assert_eq!(
        next("30 1 * * *", "America/New_York", "2024-11-02T12:00:00Z", 2),
        ["11-03 01:30:00-04:00", "11-04 01:30:00-05:00"]
    );
    assert_eq!(
        next("45 1 * * *", "Australia/Lord_Howe", "2024-04-06T00:00:00Z", 2),
        ["04-07 01:45:00+11:00", "04-08 01:45:00+10:30"]
    );
    // Whoever begins to look between the two finds the next day.
    assert_eq!(
        next("30 2 * * *", "Europe/Berlin", "2024-10-27T00:45:00Z", 1),
        ["10-28 02:30:00+01:00"]
    );
}

#[test]
fn other_lines_fire_at_each_real_instant() {
    assert_eq!(
        next("*/30 * * * *", "Europe/Berlin", "2024-03-31T00:00:00Z", 3),
        ["03-31 01:30:00+01:00", "03-31 03:00:00+02:00", "03-31 03:30:00+02:00"]
    );
    assert_eq!(
        next("*/30 * * * *", "Europe/Berlin", "2024-10-26T23:30:00Z", 5),
        [
            "10-27 02:00:00+02:00", "10-27 02:30:00+02:00", "10-27 02:00:00+01:00",
            "10-27 02:30:00+01:00", "10-27 03:00:00+01:00"
        ]
    );
    assert_eq!(
        next("0,30 2 * * *", "Europe/Berlin", "2024-03-30T12:00:00Z", 1),
        ["04-01 02:00:00+02:00"],
        "a list names several times"
    );
    assert_eq!(
        next("*/15 1 * * *", "Australia/Lord_Howe", "2024-04-06T14:15:00Z", 4),
        [
            "04-07 01:30:00+11:00", "04-07 01:45:00+11:00", "04-07 01:30:00+10:30",
            "04-07 01:45:00+10:30"
        ]
    );
    assert_eq!(
        next("*/15 2 * * *", "Australia/Lord_Howe", "2024-10-05T00:00:00Z", 2),
        ["10-06 02:30:00+11:00", "10-06 02:45:00+11:00"]
    );
}

/// A field as text, and what it means.
fn field(least: u32, most: u32) -> impl Strategy<Value = (String, BTreeSet<u32>)> {
    let all = move || (least..=most).collect::<BTreeSet<u32>>();
    let value = move || least..=most;
    prop_oneof![
        3 => Just(("*".to_owned(), all())),
        2 => (1..=most).prop_map(move |step| {
            (format!("*/{step}"), (least..=most).step_by(step as usize).collect())
        }),
        3 => proptest::collection::btree_set(value(), 1..4).prop_map(|set| {
            let words: Vec<String> = set.iter().map(u32::to_string).collect();
            (words.join(","), set)
        }),
        2 => (value(), value(), 1..6_u32).prop_map(|(a, b, step)| {
            let (from, to) = (a.min(b), a.max(b));
            (format!("{from}-{to}/{step}"), (from..=to).step_by(step as usize).collect())
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn next_is_what_a_walk_over_the_minutes_finds(
        minute in field(0, 59), hour in field(0, 23), day in field(1, 31),
        month in field(1, 12), weekday in field(0, 6), start in 0..2_000_000_000_i64,
    ) {
        let text = format!("{} {} {} {} {}", minute.0, hour.0, day.0, month.0, weekday.0);
        let Ok(line) = CronLine::parse(&text, Zone::utc()) else {
            // Only days that no month has are refused.
            prop_assert!(day.1.iter().all(|day| *day > 29));
            return Ok(());
        };
        let found = line.next_after(Millis(start * 1_000));
        let matches = |second: i64| {
            let time = Timestamp::from_second(second).unwrap().to_zoned(TimeZone::UTC);
            let is_day = day.1.contains(&(time.day() as u32));
            let is_weekday = weekday.1.contains(&(time.weekday().to_sunday_zero_offset() as u32));
            // Where both days are given, either will do.
            let fits = match (day.0 == "*", weekday.0 == "*") {
                (false, false) => is_day || is_weekday,
                _ => is_day && is_weekday,
            };
            fits && minute.1.contains(&(time.minute() as u32))
                && hour.1.contains(&(time.hour() as u32))
                && month.1.contains(&(time.month() as u32))
        };
        // Three days of minutes are walked through.
        let first = start - start.rem_euclid(60) + 60;
        let walked = (0..3 * 1_440).map(|n| first + n * 60).find(|second| matches(*second));
        match walked {
            Some(second) => prop_assert_eq!(found, Some(Millis(second * 1_000)), "{}", text),
            None => prop_assert!(found.unwrap().0 >= (first + 3 * 86_400) * 1_000, "{}", text),
        }
    }

    #[test]
    fn instants_are_the_same_wherever_one_begins_to_look(
        minute in field(0, 59), hour in field(0, 23),
        zone in prop_oneof!["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"],
        day in 0..365_i64, offset in 0..86_400_000_i64,
    ) {
        let line = line(&format!("{} {} * * *", minute.0, hour.0), &zone);
        let start = at("2024-01-01T00:00:00Z").0 + day * 86_400_000;
        let mut instants = vec![line.next_after(Millis(start)).unwrap()];
        while instants.last().unwrap().0 < start + 2 * 86_400_000 {
            let next = line.next_after(*instants.last().unwrap()).unwrap();
            prop_assert!(next > *instants.last().unwrap());
            instants.push(next);
        }
        let from = Millis(start + offset);
        let expected = instants.iter().find(|instant| **instant > from).copied();
        prop_assert_eq!(line.next_after(from), expected);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,40}") {
        if let Err(error) = CronLine::parse(&text, Zone::utc()) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn anything_like_a_line_is_read_or_refused(
        text in "([0-9*,/#LW?+-]{1,6}|MON|JAN)( ([0-9*,/#LW?+-]{1,6}|MON|JAN)){4,5}",
    ) {
        if let Ok(line) = CronLine::parse(&text, Zone::utc()) {
            prop_assert!(line.next_after(Millis(0)).unwrap() > Millis(0));
        }
    }
}
