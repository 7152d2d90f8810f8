//! How long something lasts, as people write it: `90d`, `12h`, or until a moment.

use std::time::Duration;

use icecore::Millis;

/// Units by their letter, in seconds.
const UNITS: [(char, u64); 5] =
    [('s', 1), ('m', 60), ('h', 3600), ('d', 24 * 3600), ('w', 7 * 24 * 3600)];

/// Nothing lasts longer than this: a hundred years.
const MOST_SECONDS: u64 = 36_525 * 24 * 3600;

/// When something ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// After so long.
    In(Duration),
    /// At a moment.
    At(Millis),
}

impl Ends {
    /// The moment, counted from `now`.
    pub fn moment(self, now: Millis) -> Millis {
        match self {
            Ends::In(time) => {
                Millis(now.0.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)))
            }
            Ends::At(moment) => moment,
        }
    }
}

/// Reads `90d`, `12h`, `30m`, `45s` or `2w`.
pub fn span(text: &str) -> Result<Duration, String> {
    let wrong = || "write a time like 90d, 12h, 30m, 45s or 2w".to_owned();
    let mut chars = text.chars();
    let letter = chars.next_back().ok_or_else(wrong)?;
    let (_, unit) = UNITS.into_iter().find(|(known, _)| *known == letter).ok_or_else(wrong)?;
    let digits = chars.as_str();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let seconds = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    match seconds.filter(|seconds| *seconds <= MOST_SECONDS) {
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => Err("that is more than a hundred years".to_owned()),
    }
}

/// Reads a time as [`span`] does, or a timestamp.
pub fn ends(text: &str) -> Result<Ends, String> {
    if let Ok(moment) = Millis::parse_rfc3339(text) {
        return Ok(Ends::At(moment));
    }
    let wrong = |reason: String| format!("{reason}, or a timestamp like 2030-01-01T00:00:00Z");
    span(text).map(Ends::In).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_spans() {
        let check = |text: &str, seconds: Option<u64>| {
            assert_eq!(span(text).ok().map(|time| time.as_secs()), seconds, "{text}");
        };
        check("45s", Some(45));
        check("30m", Some(1800));
        check("1h", Some(3600));
        check("90d", Some(7_776_000));
        check("2w", Some(1_209_600));
        check("0s", Some(0));
        for wrong in
            ["", "d", "90", "90 d", "-1d", "1.5h", "9x", "٣d", "99999999999999999999d", "40000d"]
        {
            check(wrong, None);
        }
    }

    #[test]
    fn reads_moments_too() {
        let now = Millis(1_000);
        assert_eq!(ends("1h").unwrap().moment(now), Millis(3_601_000));
        assert_eq!(ends("1970-01-02T00:00:00Z").unwrap().moment(now), Millis(86_400_000));
        assert!(ends("tomorrow").unwrap_err().contains("2030-01-01T00:00:00Z"));
        assert_eq!(Ends::In(Duration::MAX).moment(now), Millis(i64::MAX));
    }
}
