//! What the errors of all nouns have in common: one variant is the memory's.

/// Implements, for an error with a variant `Memory`, what is the same in each.
macro_rules! wraps_memory {
    ($error:ident) => {
        impl From<icecore::store::StoreError> for $error {
            fn from(error: icecore::store::StoreError) -> Self {
                $error::Memory(error.into())
            }
        }

        impl icecore::extend::SecretsChanged for $error {
            fn secrets_changed(&self) -> bool {
                matches!(self, $error::Memory(error) if error.secrets_changed())
            }
        }
    };
}

pub(crate) use wraps_memory;
