//! Days, and the weeks, months and years that they lie in.

use jiff::civil::Date;
use jiff::{Span, ToSpan};

use crate::time::Millis;

/// Milliseconds of a day.
pub(super) const DAY_MS: i64 = 86_400_000;

const EPOCH: Date = Date::constant(1970, 1, 1);

/// A stretch of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Day,
    Week,
    Weekend,
    Month,
    Year,
}

/// A day in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Day(Date);

impl Day {
    /// The day that `at` lies in.
    pub fn of(at: Millis) -> Option<Day> {
        let days = Span::new().try_days(at.0.div_euclid(DAY_MS)).ok()?;
        EPOCH.checked_add(days).ok().map(Day)
    }

    /// A day by its numbers.
    pub fn new(year: i32, month: i32, day: i32) -> Option<Day> {
        let part = |n: i32| i8::try_from(n).ok();
        let year = i16::try_from(year).ok().filter(|year| is_year(i32::from(*year)))?;
        Date::new(year, part(month)?, part(day)?).ok().map(Day)
    }

    pub fn start(self) -> Millis {
        Millis(i64::from(self.days_from(Day(EPOCH))) * DAY_MS)
    }

    pub fn year(self) -> i32 {
        i32::from(self.0.year())
    }

    /// 0 for Monday.
    pub fn weekday(self) -> i32 {
        i32::from(self.0.weekday().to_monday_zero_offset())
    }

    /// How many days after `other` it is.
    pub fn days_from(self, other: Day) -> i32 {
        (self.0 - other.0).get_days()
    }

    pub fn plus(self, count: i32, unit: Unit) -> Option<Day> {
        // `Span` refuses larger counts by a panic; no text means them.
        if count.abs() > 4000 {
            return None;
        }
        let span = match unit {
            Unit::Day => count.days(),
            Unit::Week | Unit::Weekend => count.weeks(),
            Unit::Month => count.months(),
            Unit::Year => count.years(),
        };
        self.0.checked_add(span).ok().map(Day)
    }

    /// The first day of the unit that it lies in, and the day after the last.
    pub fn whole(self, unit: Unit) -> Option<(Day, Day)> {
        let (from, length) = match unit {
            Unit::Day => (self, (1, Unit::Day)),
            Unit::Week => (self.plus(-self.weekday(), Unit::Day)?, (1, Unit::Week)),
            Unit::Weekend => (self.plus(5 - self.weekday(), Unit::Day)?, (2, Unit::Day)),
            Unit::Month => (Day(self.0.first_of_month()), (1, Unit::Month)),
            Unit::Year => (Day(self.0.first_of_year()), (1, Unit::Year)),
        };
        Some((from, from.plus(length.0, length.1)?))
    }

    /// The same unit, `turn` of them later.
    pub fn whole_turned(self, turn: i32, unit: Unit) -> Option<(Day, Day)> {
        let (from, to) = self.whole(unit)?;
        match unit {
            Unit::Month | Unit::Year => from.plus(turn, unit)?.whole(unit),
            _ => Some((from.plus(turn, Unit::Week)?, to.plus(turn, Unit::Week)?)),
        }
    }
}

/// The three months that begin with month `first`, in the year that they begin.
pub(super) fn season(year: i32, first: i32) -> Option<(Day, Day)> {
    let from = Day::new(year, first, 1)?;
    Some((from, from.plus(3, Unit::Month)?))
}

/// Years that talk is about.
pub(super) fn is_year(year: i32) -> bool {
    (1000..=3000).contains(&year)
}
