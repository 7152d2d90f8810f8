//! Text as a point in meaning, by a model with an identity.
//!
//! Vectors of two models never meet: whatever keeps vectors keeps the
//! [`ModelId`] beside them and compares it before it compares them.

use std::fmt;

/// A direction in meaning: int8 components, scaled so that the largest is 127.
/// Text without a word that the model knows has no direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vector(Box<[i8]>);

impl Vector {
    /// Takes components as they are.
    pub fn new(components: impl Into<Box<[i8]>>) -> Self {
        Self(components.into())
    }

    /// Scales floating components to int8. A component that is no number, or a
    /// vector of zeros, has no direction: `None`.
    pub fn from_floats(components: &[f32]) -> Option<Self> {
        let largest = components.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        if components.iter().any(|value| !value.is_finite()) || largest <= 0.0 {
            return None;
        }
        let scaled = components.iter().map(|value| libm::roundf(value / largest * 127.0) as i8);
        Some(Self(scaled.collect()))
    }

    pub fn components(&self) -> &[i8] {
        &self.0
    }

    /// Whether it points nowhere.
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|component| *component == 0)
    }
}

/// Which model made a vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelId {
    pub name: String,
    /// Hash of all that decides its answers.
    pub hash: [u8; 32],
    /// Components of its vectors.
    pub dims: usize,
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@", self.name)?;
        self.hash[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Why texts could not be embedded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmbedError {
    #[error("the embedding model `{model}` does not answer: {reason}")]
    Unavailable { model: String, reason: String },
    /// It answered something that is no vector of its kind.
    #[error("the embedding model `{model}` gave a wrong answer: {reason}")]
    Wrong { model: String, reason: String },
}

/// Turns texts into vectors. Blocking: call it off the async threads.
pub trait Embedder: Send + Sync {
    fn model(&self) -> &ModelId;

    /// One vector for each text, in order; equal texts give equal vectors.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vector>, EmbedError>;

    /// Whether it is asked over a network, which may take seconds. Nothing that others wait
    /// for is held meanwhile, so its vectors may come after the words.
    fn is_remote(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_become_bytes_and_what_is_no_number_is_refused() {
        let vector = Vector::from_floats(&[0.5, -1.0, 0.0]).unwrap();
        assert_eq!(vector.components(), [64, -127, 0]);
        assert_eq!(Vector::from_floats(&[f32::NAN, 1.0]), None);
        assert_eq!(Vector::from_floats(&[0.0, 0.0]), None);
        assert!(Vector::new([0, 0]).is_zero());
    }
}
