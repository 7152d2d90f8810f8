//! Timestamps as differences that give back the exact spelling.
//!
//! Two timestamps have the same form when they agree in the character between
//! date and time, the number of fraction digits, and the offset as written. Then
//! their difference in spelled time is enough to get one from the other.

/// A spelled timestamp, taken apart. Spelled time, not UTC: the offset is part
/// of the form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp<'a> {
    nanos: i128,
    separator: char,
    fraction_digits: usize,
    offset: &'a str,
}

const NANOS: i128 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;
/// The years that four digits can spell.
const YEARS: std::ops::Range<i128> = first_nanos(0)..first_nanos(10_000);
/// `2024-05-01T10:00`
pub(super) const MINUTE_BYTES: usize = 16;
/// `2024-05-01T10:00:00`
const WHOLE_SECONDS_BYTES: usize = 19;

impl<'a> Stamp<'a> {
    /// Takes `text` apart, or gives `None` where [`Stamp::write`] could not give
    /// it back: a leap second, or no timestamp at all.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() <= WHOLE_SECONDS_BYTES || !bytes[..=WHOLE_SECONDS_BYTES].is_ascii() {
            return None;
        }
        let pair = |at: usize| digits(&bytes[at..at + 2]);
        let (year, month, day) = (pair(0)? * 100 + pair(2)?, pair(5)?, pair(8)?);
        let (hour, minute, second) = (pair(11)?, pair(14)?, pair(17)?);
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let seconds =
            days_from_civil(year, month, day) * DAY_SECONDS + hour * 3600 + minute * 60 + second;
        let mut offset = &text[WHOLE_SECONDS_BYTES..];
        let (mut fraction, mut fraction_digits) = (0, 0);
        if let Some(tail) = offset.strip_prefix('.') {
            fraction_digits = tail.bytes().take_while(u8::is_ascii_digit).count();
            if fraction_digits == 0 || fraction_digits > 9 {
                return None;
            }
            fraction = digits(&tail.as_bytes()[..fraction_digits])?;
            fraction *= 10_i64.pow(9 - fraction_digits as u32);
            offset = &tail[fraction_digits..];
        }
        let nanos = i128::from(seconds) * NANOS + i128::from(fraction);
        Some(Self { nanos, separator: char::from(bytes[10]), fraction_digits, offset })
    }

    /// The difference in nanoseconds, where both have the same form.
    pub(super) fn since(&self, earlier: &Stamp<'_>) -> Option<i128> {
        let same_form = self.separator == earlier.separator
            && self.fraction_digits == earlier.fraction_digits
            && self.offset == earlier.offset;
        same_form.then(|| self.nanos - earlier.nanos)
    }

    /// The stamp of the same form, `nanos` later; `None` if its spelling could
    /// not say so: beyond the years 0000 to 9999, or too fine.
    pub(super) fn plus(&self, nanos: i128) -> Option<Self> {
        let nanos = self.nanos + nanos;
        let finest = 10_i128.pow(9 - self.fraction_digits as u32);
        (YEARS.contains(&nanos) && nanos % finest == 0).then_some(Self { nanos, ..*self })
    }

    /// As it was spelled.
    pub(super) fn to_text(self) -> String {
        let seconds = self.nanos.div_euclid(NANOS) as i64;
        let fraction = self.nanos.rem_euclid(NANOS) as i64;
        let (year, month, day) = civil_from_days(seconds.div_euclid(DAY_SECONDS));
        let second = seconds.rem_euclid(DAY_SECONDS);
        let mut out = String::with_capacity(WHOLE_SECONDS_BYTES + 10 + self.offset.len());
        push_digits(&mut out, year, 4);
        out.push('-');
        push_digits(&mut out, month, 2);
        out.push('-');
        push_digits(&mut out, day, 2);
        out.push(self.separator);
        push_digits(&mut out, second / 3600, 2);
        out.push(':');
        push_digits(&mut out, second / 60 % 60, 2);
        out.push(':');
        push_digits(&mut out, second % 60, 2);
        if self.fraction_digits > 0 {
            out.push('.');
            let shown = fraction / 10_i64.pow(9 - self.fraction_digits as u32);
            push_digits(&mut out, shown, self.fraction_digits);
        }
        out.push_str(self.offset);
        out
    }
}

/// Seconds with up to nine decimals: `60`, `-1.5`.
pub(super) fn write_seconds(nanos: i128) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let (seconds, fraction) =
        (nanos.unsigned_abs() / 1_000_000_000, nanos.unsigned_abs() % 1_000_000_000);
    if fraction == 0 {
        return format!("{sign}{seconds}");
    }
    let fraction = format!("{fraction:09}");
    format!("{sign}{seconds}.{}", fraction.trim_end_matches('0'))
}

/// Reads what [`write_seconds`] wrote.
pub(super) fn read_seconds(text: &str) -> Option<i128> {
    let (text, sign) = match text.strip_prefix('-') {
        Some(text) => (text, -1),
        None => (text, 1),
    };
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if !(1..=15).contains(&seconds.len()) || !(1..=9).contains(&fraction.len()) {
        return None;
    }
    let scale = 10_i64.pow(9 - fraction.len() as u32);
    let fraction = digits(fraction.as_bytes())? * scale;
    Some(sign * (i128::from(digits(seconds.as_bytes())?) * NANOS + i128::from(fraction)))
}

fn digits(bytes: &[u8]) -> Option<i64> {
    bytes.iter().try_fold(0_i64, |value, byte| {
        byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0'))
    })
}

fn push_digits(out: &mut String, value: i64, width: usize) {
    let mut buffer = [b'0'; 9];
    let mut rest = value;
    for place in buffer[..width].iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.push_str(str::from_utf8(&buffer[..width]).unwrap_or_default());
}

const fn first_nanos(year: i64) -> i128 {
    (days_from_civil(year, 1, 1) * DAY_SECONDS) as i128 * NANOS
}

/// Days since 1970-01-01 in the Gregorian calendar, extended both ways. Years
/// are counted from March, so that the leap day is the last of its year.
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The date of a day, the other way round.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_every_spelling() {
        let spellings = [
            "2023-05-08T13:56:00Z",
            "2024-02-29t23:59:59z",
            "1969-12-31 23:59:59.9+02:00",
            "0000-01-01T00:00:00.000000001-23:59",
            "9999-12-31T23:59:59.000Z",
            "1900-03-01T00:00:00-00:00",
        ];
        for text in spellings {
            assert_eq!(Stamp::parse(text).unwrap().to_text(), text);
        }
        assert_eq!(Stamp::parse("2016-12-31T23:59:60Z"), None);
    }

    #[test]
    fn every_day_of_four_centuries_comes_back() {
        for days in days_from_civil(1600, 1, 1)..days_from_civil(2001, 1, 1) {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
        }
        assert_eq!(days_from_civil(1970, 1, 1), 0);
        assert_eq!(days_from_civil(2024, 2, 29), 19_782);
    }

    #[test]
    fn differences_need_the_same_form() {
        let stamp = |text| Stamp::parse(text).unwrap();
        let first = stamp("2024-01-01T00:00:00Z");
        assert_eq!(stamp("2024-01-01T00:01:00Z").since(&first), Some(60 * NANOS));
        assert_eq!(stamp("2023-12-31T23:59:59Z").since(&first), Some(-NANOS));
        assert_eq!(stamp("2024-01-01t00:01:00Z").since(&first), None);
        assert_eq!(stamp("2024-01-01T00:01:00.0Z").since(&first), None);
        assert_eq!(stamp("2024-01-01T00:01:00+00:00").since(&first), None);
        assert_eq!(first.plus(NANOS / 2), None);
        assert_eq!(first.plus(10_000 * 366 * 86_400 * NANOS), None);
    }

    #[test]
    fn seconds_are_decimal() {
        for (nanos, text) in
            [(0, "0"), (60 * NANOS, "60"), (-NANOS * 3 / 2, "-1.5"), (1, "0.000000001")]
        {
            assert_eq!(write_seconds(nanos), text);
            assert_eq!(read_seconds(text), Some(nanos));
        }
        for bad in ["", "-", "+1", "1.", ".5", "1e3", "1.0000000001", "99999999999999999"] {
            assert_eq!(read_seconds(bad), None, "{bad}");
        }
    }
}
