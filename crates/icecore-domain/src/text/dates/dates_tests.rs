use proptest::prelude::*;

use super::*;

/// A Wednesday.
const AT: &str = "2023-06-14T10:30:00Z";

/// `expected` is what was found as `words=first day..last day`.
fn check_at(at: &str, text: &str, expected: &[&str]) {
    let at = Millis::parse_rfc3339(at).unwrap();
    let found: Vec<String> = resolve(text, at)
        .into_iter()
        .map(|when| {
            let (from, to) = (when.from.to_date(), Millis(when.to.0 - 1).to_date());
            let words = &text[when.span.clone()];
            if from == to { format!("{words}={from}") } else { format!("{words}={from}..{to}") }
        })
        .collect();
    assert_eq!(found, expected, "{text}");
}

fn check(text: &str, expected: &[&str]) {
    check_at(AT, text, expected);
}

#[test]
fn whole_dates_mean_the_same_on_any_day() {
    check("on 2023-05-07, then", &["2023-05-07=2023-05-07"]);
    check("at 2023-05-07T10:00:00Z it rained", &["2023-05-07T10=2023-05-07"]);
    check("see 2023/5/7", &["2023/5/7=2023-05-07"]);
    check("7 May 2023", &["7 May 2023=2023-05-07"]);
    check("the 7th of May, 2023", &["7th of May, 2023=2023-05-07"]);
    check("May 7th, 2023 and Dec 3 2022", &["May 7th, 2023=2023-05-07", "Dec 3 2022=2022-12-03"]);
    check(
        "5/7/2023 or 25/7/2023 or 7.5.2023",
        &["5/7/2023=2023-05-07", "25/7/2023=2023-07-25", "7.5.2023=2023-05-07"],
    );
    check("May 3-5, 2023", &["May 3-5, 2023=2023-05-03..2023-05-05"]);
}

#[test]
fn months_seasons_and_years_are_spans() {
    check("in May 2022", &["May 2022=2022-05-01..2022-05-31"]);
    check("2022-02 was cold", &["2022-02=2022-02-01..2022-02-28"]);
    check("since 2016 I have", &["2016=2016-01-01..2016-12-31"]);
    check("the summer of 2022", &["summer of 2022=2022-06-01..2022-08-31"]);
    check("winter 2022", &["winter 2022=2022-12-01..2023-02-28"]);
    check("Q3 2024", &["Q3 2024=2024-07-01..2024-09-30"]);
    check("back in the 1990s", &["1990s=1990-01-01..1999-12-31"]);
}

#[test]
fn days_are_counted_from_the_day_it_was_said() {
    check("yesterday and today", &["yesterday=2023-06-13", "today=2023-06-14"]);
    check("see you tomorrow morning", &["tomorrow morning=2023-06-15"]);
    check("last night we sang", &["last night=2023-06-13"]);
    check("the day before yesterday", &["day before yesterday=2023-06-12"]);
    check("two days ago", &["two days ago=2023-06-12"]);
    check("a few days ago", &["a few days ago=2023-06-09..2023-06-12"]);
    check("in 3 days", &["in 3 days=2023-06-17"]);
    check("ten days from now", &["ten days from now=2023-06-24"]);
}

#[test]
fn weeks_months_and_years_turn_with_the_calendar() {
    check("last week", &["last week=2023-06-05..2023-06-11"]);
    check("this week", &["this week=2023-06-12..2023-06-18"]);
    check("next week", &["next week=2023-06-19..2023-06-25"]);
    check("last month", &["last month=2023-05-01..2023-05-31"]);
    check("next month", &["next month=2023-07-01..2023-07-31"]);
    check("last year", &["last year=2022-01-01..2022-12-31"]);
    check("two weeks ago", &["two weeks ago=2023-05-28..2023-06-03"]);
    check("a month ago", &["a month ago=2023-05-01..2023-05-31"]);
    check("3 years ago", &["3 years ago=2020-01-01..2020-12-31"]);
    check("a couple of months ago", &["a couple of months ago=2023-04-01..2023-04-30"]);
    check("the past two months", &["past two months=2023-04-14..2023-06-14"]);
    check_at("2023-01-31T00:00:00Z", "next month", &["next month=2023-02-01..2023-02-28"]);
    check_at("2023-01-01T00:00:00Z", "last month", &["last month=2022-12-01..2022-12-31"]);
}

#[test]
fn weekdays_and_weekends_are_the_next_or_the_last() {
    check("last Saturday", &["last Saturday=2023-06-10"]);
    check("last Wednesday", &["last Wednesday=2023-06-07"]);
    check("this Friday", &["this Friday=2023-06-16"]);
    check("next Monday", &["next Monday=2023-06-19"]);
    check("I met her on Friday", &["Friday=2023-06-09"]);
    check("We will meet on Friday", &["Friday=2023-06-16"]);
    check("this weekend", &["this weekend=2023-06-17..2023-06-18"]);
    check("last weekend", &["last weekend=2023-06-10..2023-06-11"]);
    check("next weekend", &["next weekend=2023-06-24..2023-06-25"]);
    check("we hiked over the weekend", &["the weekend=2023-06-10..2023-06-11"]);
    check_at("2023-06-18T23:59:59Z", "this weekend", &["this weekend=2023-06-17..2023-06-18"]);
}

#[test]
fn what_has_no_year_takes_the_one_that_is_meant() {
    check("we went in August", &["August=2022-08-01..2022-08-31"]);
    check("we will go in August", &["August=2023-08-01..2023-08-31"]);
    check("in May", &["May=2023-05-01..2023-05-31"]);
    check("last December", &["last December=2022-12-01..2022-12-31"]);
    check("next May", &["next May=2024-05-01..2024-05-31"]);
    check("last summer", &["last summer=2022-06-01..2022-08-31"]);
    check("this summer", &["this summer=2023-06-01..2023-08-31"]);
    check("next winter", &["next winter=2023-12-01..2024-02-29"]);
    check("the deadline is April 15", &["April 15=2024-04-15"]);
    check("I had to decline the one on 20 June", &["20 June=2023-06-20"]);
    check("I finished on April 15", &["April 15=2023-04-15"]);
    check("on 2 July", &["2 July=2023-07-02"]);
    check("on January 3rd", &["January 3rd=2023-01-03"]);
}

#[test]
fn what_is_no_date_is_none() {
    for text in [
        "you may go", "we march on", "I sat in the sun", "it cost $2000", "2000 people came",
        "version 2.2023.1", "call 555-2023-1", "the last day of work", "May I?", "fall down",
        "2023-13-40", "it is 20:23", "mon ami", "second best", "a week", "two weeks of rain",
        "at last", "", "16777216 weeks ago", "port 2020/tcp", "every Monday", "my Saturday class",
        "Cyberpunk 2077",
    ] {
        check(text, &[]);
    }
}

#[test]
fn labels_are_as_short_as_the_span_allows() {
    let label = |text: &str| {
        let at = Millis::parse_rfc3339(AT).unwrap();
        resolve(text, at).first().map(When::label)
    };
    assert_eq!(label("yesterday").as_deref(), Some("2023-06-13"));
    assert_eq!(label("last month").as_deref(), Some("2023-05"));
    assert_eq!(label("in 2021").as_deref(), Some("2021"));
    assert_eq!(label("last week").as_deref(), Some("2023-06-05 to 2023-06-11"));
}

#[test]
fn times_out_of_range_resolve_to_nothing() {
    assert!(resolve("yesterday", Millis(i64::MAX)).is_empty());
    assert!(resolve("yesterday", Millis(i64::MIN)).is_empty());
    assert!(resolve("tomorrow", Millis::parse_rfc3339("9999-12-30T00:00:00Z").unwrap()).is_empty());
}

proptest! {
    #[test]
    fn any_text_at_any_time_is_read_in_order(
        text in "(last |next |in |[0-9]{1,5}|[a-z]{1,4}|-|/|\\.| |May|week|ago|\\PC){0,30}",
        at in any::<i64>(),
    ) {
        let found = resolve(&text, Millis(at));
        prop_assert_eq!(&found, &resolve(&text, Millis(at)));
        let mut end = 0;
        for when in found {
            prop_assert!(when.span.start >= end && text.get(when.span.clone()).is_some());
            prop_assert!(when.from < when.to);
            end = when.span.end;
        }
    }
}
