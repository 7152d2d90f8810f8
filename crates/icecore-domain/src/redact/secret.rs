//! Secrets that a tenant registered (BYOK), and what they may be called.

use std::fmt;

use thiserror::Error;
use zeroize::Zeroizing;

use super::{marker, patterns, pii_kinds, plausible};

/// The fewest characters of a registered secret. Anything shorter would be
/// hidden in the middle of ordinary words.
pub const MIN_SECRET_CHARS: usize = 8;

/// The most bytes of a registered secret; a service account's key file has 2,400.
pub const MAX_SECRET_BYTES: usize = 16 << 10;

/// The most values that a tenant may register.
pub const MAX_SECRETS: usize = 1000;

/// The most characters of a secret's name.
pub const MAX_SECRET_NAME_CHARS: usize = 48;

/// What a registered secret is called: the id in its marker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(String);

/// A registered secret. Its value is wiped when dropped and never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    name: SecretName,
    value: Zeroizing<String>,
}

/// Why a secret cannot be registered. No message holds the value.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SecretError {
    #[error(
        "a secret's name has 1 to {MAX_SECRET_NAME_CHARS} letters, digits, `.`, `_` or `-` and begins with a letter or digit"
    )]
    BadName,
    #[error("a secret has at least {MIN_SECRET_CHARS} characters, this one has {chars}")]
    TooShort { chars: usize },
    #[error("a secret has at most {MAX_SECRET_BYTES} bytes, this one has {bytes}")]
    TooLong { bytes: usize },
    #[error("the value holds a redaction marker, or is part of one")]
    InMarker,
    #[error("the name gives away the value")]
    NameTells {
        /// The name that was asked for; shown only as far as it is no secret.
        name: String,
    },
}

impl SecretName {
    /// A name that can stand in a marker.
    pub fn new(name: &str) -> Result<Self, SecretError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if begins && name.len() <= MAX_SECRET_NAME_CHARS && name.chars().all(fits) {
            Ok(Self(name.to_owned()))
        } else {
            Err(SecretError::BadName)
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Secret {
    /// A secret to hide, if it can be hidden without harm.
    pub fn new(name: SecretName, value: Zeroizing<String>) -> Result<Self, SecretError> {
        let chars = value.chars().count();
        if chars < MIN_SECRET_CHARS {
            return Err(SecretError::TooShort { chars });
        }
        if value.len() > MAX_SECRET_BYTES {
            return Err(SecretError::TooLong { bytes: value.len() });
        }
        let is_in_marker = |name: &str| marker::of(name).contains(value.as_str());
        if !marker::markers(&value).is_empty()
            || patterns::KINDS.iter().chain(pii_kinds()).any(|kind| is_in_marker(kind.id))
        {
            return Err(SecretError::InMarker);
        }
        if is_in_marker(name.as_str()) {
            return Err(SecretError::NameTells { name: marker::UNNAMED.to_owned() });
        }
        Ok(Self { name, value })
    }

    /// What it is called.
    pub fn name(&self) -> &SecretName {
        &self.name
    }

    /// The value, for the store to seal and the redactor to look for.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Whether it looks like something that people write without meaning a
    /// secret: a word, a phrase, a placeholder. Hiding it may hide too much.
    pub fn is_common(&self) -> bool {
        let is_word = |word: &str| !word.is_empty() && word.chars().all(char::is_alphabetic);
        let one_case = !self.value.chars().skip(1).any(char::is_uppercase);
        one_case && self.value.split([' ', '-', '_', '.']).all(is_word)
            || plausible::is_filler(&self.value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({}, …)", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::TagKey;
    use super::*;

    fn secret(name: &str, value: &str) -> Result<Secret, SecretError> {
        Secret::new(SecretName::new(name)?, Zeroizing::new(value.to_owned()))
    }

    #[test]
    fn names_that_would_break_a_marker_are_refused() {
        let long = "n".repeat(MAX_SECRET_NAME_CHARS + 1);
        for bad in ["", "a b", "a]b", "[a", "a:b", "-a", ".a", "é", "a\n", &long] {
            assert_eq!(secret(bad, "q8Zk2Lm9Xw"), Err(SecretError::BadName), "{bad}");
        }
        for good in ["a", "prod-db", "AWS_KEY.2", &long[1..]] {
            assert_eq!(secret(good, "q8Zk2Lm9Xw").unwrap().name().as_str(), good);
        }
    }

    #[test]
    fn values_have_limits() {
        assert_eq!(secret("a", "1234567"), Err(SecretError::TooShort { chars: 7 }));
        assert_eq!(secret("a", "ééééééé"), Err(SecretError::TooShort { chars: 7 }));
        assert!(secret("a", "éééééééé").is_ok());
        assert!(secret("a", &"x1".repeat(MAX_SECRET_BYTES / 2)).is_ok());
        let bytes = 1 << 20;
        assert_eq!(secret("a", &"x".repeat(bytes)), Err(SecretError::TooLong { bytes }));
    }

    #[test]
    fn values_that_live_in_markers_are_refused() {
        for value in [
            "REDACTED", "[REDACTED:", "github-token", "url-password]", "a[REDACTED:x]b",
            "[BYOK:db-prod]",
        ] {
            assert_eq!(secret("a", value), Err(SecretError::InMarker), "{value}");
        }
        let tells = Err(SecretError::NameTells { name: "secret".to_owned() });
        assert_eq!(secret("hunter2hunter2", "hunter2hunter2"), tells);
        assert_eq!(secret("is-hunter2hunter2", "hunter2hunter2"), tells);
    }

    #[test]
    fn common_words_are_known() {
        for common in ["sunshine", "Password", "correct horse", "xxxxxxxxxx", "no-idea-at-all"] {
            assert!(secret("a", common).unwrap().is_common(), "{common}");
        }
        for fine in ["q8Zk2Lm9Xw", "hunter22", "SunShine", "a1-b2-c3-d4"] {
            assert!(!secret("a", fine).unwrap().is_common(), "{fine}");
        }
    }

    #[test]
    fn nothing_shows_a_value() {
        let shown = format!("{:?} {:?}", secret("db", "q8Zk2Lm9Xw").unwrap(), TagKey::new([7; 32]));
        assert_eq!(shown, "Secret(db, …) TagKey(…)");
    }
}
