//! Time zones by their IANA names.

use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::ScheduleError;

/// A time zone of the database that the program brings along.
#[derive(Debug, Clone)]
pub struct Zone {
    name: String,
    zone: TimeZone,
}

impl Zone {
    /// UTC.
    pub fn utc() -> Self {
        Self { name: "UTC".to_owned(), zone: TimeZone::UTC }
    }

    /// The zone of that name, in whatever case.
    pub fn named(name: &str) -> Result<Self, ScheduleError> {
        if name.eq_ignore_ascii_case("UTC") {
            return Ok(Self::utc());
        }
        let zones = TimeZoneDatabase::bundled();
        let Ok(zone) = zones.get(name) else {
            let nearest = nearest(name, &zones);
            return Err(ScheduleError::Zone { name: crate::json::brief(name), nearest });
        };
        let name = zone.iana_name().unwrap_or(name).to_owned();
        Ok(Self { name, zone })
    }

    /// Its name as the database spells it.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn zone(&self) -> &TimeZone {
        &self.zone
    }
}

/// The name that was probably meant: the fewest letters apart, and a city alone stands
/// for its zone.
fn nearest(name: &str, zones: &TimeZoneDatabase) -> Option<String> {
    let name: String = name.chars().take(64).collect::<String>().to_ascii_lowercase();
    let name = name.replace(' ', "_");
    let cost = |known: &str| {
        let known = known.to_ascii_lowercase();
        let city = known.rsplit('/').next().unwrap_or(&known);
        let meant = name.rsplit('/').next().unwrap_or(&name);
        let whole = distance(&name, &known);
        // A city that is right in the wrong region comes after small slips.
        match distance(meant, city) {
            slips @ 0..=1 => whole.min(slips + 2),
            _ => whole,
        }
    };
    let mut found: Option<(usize, String)> = None;
    for known in zones.available() {
        let cost = cost(known.as_str());
        if found.as_ref().is_none_or(|(least, _)| cost < *least) {
            found = Some((cost, known.as_str().to_owned()));
        }
    }
    let is_near = |cost: usize| cost <= 2 + name.len() / 4 && cost < name.len();
    found.filter(|(cost, _)| is_near(*cost)).map(|(_, name)| name)
}

/// Letters to change, add or leave out.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_found_in_any_case() {
        let name = |name| Zone::named(name).map(|zone| zone.name().to_owned());
        assert_eq!(name("europe/berlin").as_deref(), Ok("Europe/Berlin"));
        assert_eq!(name("utc").as_deref(), Ok("UTC"));
        assert_eq!(name("Australia/Lord_Howe").as_deref(), Ok("Australia/Lord_Howe"));
    }

    #[test]
    fn an_unknown_zone_names_the_nearest() {
        let check = |name: &str, expected: Option<&str>| match Zone::named(name) {
            Err(ScheduleError::Zone { nearest, .. }) => {
                assert_eq!(nearest.as_deref(), expected, "{name}");
            }
            other => panic!("{name}: {other:?}"),
        };
        check("Europe/Berln", Some("Europe/Berlin"));
        check("Berlin", Some("Europe/Berlin"));
        check("America/New York", Some("America/New_York"));
        check("Mars/Olympus_Mons", None);
        check("", None);
        check(&"x".repeat(10_000), None);
        check("../../etc/passwd", None);
    }
}
