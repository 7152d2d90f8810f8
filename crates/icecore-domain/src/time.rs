//! Instants as the rules need them: milliseconds, given by the caller.

use std::fmt;

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Millis(pub i64);

/// Where the time comes from. The domain only ever receives it.
pub trait Clock: Send + Sync {
    fn now(&self) -> Millis;
}

/// A timestamp that is not RFC 3339 or not in range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("timestamp `{text}` is not RFC 3339 within the years 0000 to 9999 ({reason})")]
pub struct TimestampError {
    text: String,
    reason: String,
}

impl Millis {
    /// Reads an RFC 3339 timestamp; fractions below a millisecond are dropped.
    pub fn parse_rfc3339(text: &str) -> Result<Millis, TimestampError> {
        let refuse = |reason: &str| TimestampError {
            text: crate::json::brief(text),
            reason: reason.to_owned(),
        };
        check_shape(text.as_bytes()).map_err(refuse)?;
        let nowhere = || refuse("no such date, time or offset");
        let at = match text.parse::<jiff::Timestamp>() {
            Ok(at) => at.as_nanosecond().div_euclid(1_000_000) as i64,
            Err(_) => at_the_end(text).ok_or_else(nowhere)?,
        };
        Ok(Millis(at.min(LAST)))
    }

    /// `2024-05-01T10:00:00Z`, with milliseconds where there are any.
    pub fn to_rfc3339(self) -> String {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(at) => at.to_string(),
            Err(_) => format!("{}ms", self.0),
        }
    }

    /// `2024-05-01`, in UTC.
    pub fn to_date(self) -> String {
        self.to_rfc3339().chars().take(10).collect()
    }

    /// `2024-05-01 10:00`, in UTC.
    pub fn to_minute(self) -> String {
        self.to_rfc3339().chars().take(16).map(|c| if c == 'T' { ' ' } else { c }).collect()
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_rfc3339())
    }
}

/// The last moment that can be written: the library ends a day before the year 9999
/// does, so that every offset can be shown.
const LAST: i64 = 253_402_207_200_000;

/// Moments of the last days of the year 9999, which people write for "never". What
/// cannot be written is taken as the last moment that can.
fn at_the_end(text: &str) -> Option<i64> {
    let rest = text.strip_prefix("9999-12-")?;
    // The same moment of the year before must be there; it has these days too.
    let before: jiff::Timestamp = format!("9998-12-{rest}").parse().ok()?;
    let year: i128 = 365 * 24 * 3600 * 1_000_000_000;
    let is_past = before.as_nanosecond() + year > jiff::Timestamp::MAX.as_nanosecond();
    is_past.then_some(LAST)
}

/// RFC 3339 proper: the date parser we use knows more spellings than it.
fn check_shape(text: &[u8]) -> Result<(), &'static str> {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00";
    if text.len() < SHAPE.len() + 1 {
        return Err("too short");
    }
    let fits = SHAPE.iter().zip(text).all(|(shape, byte)| match shape {
        b'0' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b't' | b' '),
        other => byte == other,
    });
    if !fits {
        return Err("expected a form like 2024-05-01T10:00:00Z");
    }
    let mut rest = &text[SHAPE.len()..];
    if let [b'.', tail @ ..] = rest {
        let digits = tail.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 || digits > 9 {
            return Err("a fraction of a second has one to nine digits");
        }
        rest = &tail[digits..];
    }
    match rest {
        b"Z" | b"z" => Ok(()),
        [b'+' | b'-', a, b, b':', c, d] if [a, b, c, d].iter().all(|x| x.is_ascii_digit()) => {
            Ok(())
        }
        _ => Err("the offset must be Z or like +02:00"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_rfc3339_and_nothing_else() {
        let check =
            |text, ms| assert_eq!(Millis::parse_rfc3339(text).ok().map(|m| m.0), ms, "{text}");
        check("1970-01-01T00:00:00Z", Some(0));
        check("1970-01-01T00:00:00.0019Z", Some(1));
        check("1969-12-31T23:59:59.9999Z", Some(-1));
        check("1970-01-01T02:00:00+02:00", Some(0));
        check("1970-01-01t00:00:00z", Some(0));
        check("9999-12-30T22:00:00Z", Some(253_402_207_200_000));
        check("9999-12-31T25:00:00Z", None);
        check("9999-12-32T00:00:00Z", None);
        check("2024-13-01T00:00:00Z", None);
        check("2024-02-30T00:00:00Z", None);
        check("99999-01-01T00:00:00Z", None);
        check("2024-01-01", None);
        check("2024-01-01T00:00:00", None);
        check("2024-01-01T00:00:00+02", None);
        check("20240101T000000Z", None);
        check("yesterday", None);
        check("", None);
    }

    #[test]
    fn an_error_does_not_cut_what_it_shows() {
        let shown = |text: &str| Millis::parse_rfc3339(text).unwrap_err().to_string();
        assert!(shown("yesterday").starts_with("timestamp `yesterday` is not"));
        assert!(shown(&"x1".repeat(40)).starts_with("timestamp `(80 characters)` is not"));
    }

    #[test]
    fn the_end_of_time_can_be_written_and_read_back() {
        let ends =
            ["9999-12-31T23:59:59.999Z", "9999-12-30T22:00:00.5Z", "9999-12-29T23:59:00-23:59"];
        for text in ends {
            let end = Millis::parse_rfc3339(text).unwrap();
            assert_eq!(end.0, LAST, "{text}");
            assert_eq!(Millis::parse_rfc3339(&end.to_rfc3339()), Ok(end), "{text}");
        }
    }

    #[test]
    fn shows_what_it_read() {
        let at = Millis::parse_rfc3339("2024-05-01T10:00:00.250Z").unwrap();
        assert_eq!(at.to_string(), "2024-05-01T10:00:00.25Z");
        assert_eq!(at.to_minute(), "2024-05-01 10:00");
        assert_eq!(at.to_date(), "2024-05-01");
    }
}
