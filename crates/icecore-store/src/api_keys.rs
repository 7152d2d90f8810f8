//! API keys: what is known of one, and what becomes of it when it is revoked or
//! rotated. The key itself is known to its holder alone.

use icecore_domain::ids::Tenant;
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;
use serde_json::{Value, json};

use crate::error::StoreError;
use crate::store::Result;

/// The role of a key that may do everything.
const ADMIN: &str = "admin";

/// An API key without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeyRecord {
    /// Its public id.
    pub id: String,
    /// Whom it acts for.
    pub tenant: Tenant,
    /// `reader`, `writer` or `admin`.
    pub role: String,
    /// What people call it.
    pub name: Option<RedactedText>,
    /// When it was made.
    pub created_at: Millis,
    /// The first moment at which it is good for nothing.
    pub expires_at: Option<Millis>,
    /// When it was taken back.
    pub revoked_at: Option<Millis>,
}

/// What a key is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    /// What its role allows.
    Valid,
    /// Nothing any more.
    Expired,
    /// Nothing, for it was taken back.
    Revoked,
}

impl KeyState {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            KeyState::Valid => "valid",
            KeyState::Expired => "expired",
            KeyState::Revoked => "revoked",
        }
    }
}

/// Who makes, ends or replaces a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyActor {
    /// Whoever runs the host, at its own machine.
    Operator,
    /// The holder of the key with this public id.
    Key(String),
}

impl KeyActor {
    /// The word for it in the log.
    pub fn as_str(&self) -> &str {
        match self {
            KeyActor::Operator => "operator",
            KeyActor::Key(id) => id,
        }
    }
}

/// A key to take back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRevocation {
    /// Its public id.
    pub id: String,
    /// Whose it must be; anybody's where none is named.
    pub tenant: Option<Tenant>,
    /// Refuses to take back the last valid admin key of its tenant.
    pub keeps_an_admin: bool,
    /// Who takes it back.
    pub by: KeyActor,
    /// Now.
    pub at: Millis,
}

/// A key to put another in the place of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRotation {
    /// Its public id.
    pub id: String,
    /// Whose it must be; anybody's where none is named.
    pub tenant: Option<Tenant>,
    /// The id of the new key.
    pub new_id: String,
    /// The hash of the new key.
    pub new_hash: [u8; 32],
    /// How long the old one still works; with 0 it is revoked at once.
    pub overlap_millis: i64,
    /// The least overlap where it is the last valid admin key of its tenant: who
    /// does not get to see the new one must not be shut out.
    pub last_admin_overlap_millis: i64,
    /// Who rotates it.
    pub by: KeyActor,
    /// Now.
    pub at: Millis,
}

/// What a rotation left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotatedKey {
    /// The key that ends.
    pub old: ApiKeyRecord,
    /// The key in its place.
    pub new: ApiKeyRecord,
}

impl ApiKeyRecord {
    /// What it is good for at a moment. A revoked key is revoked whenever that was.
    pub fn state(&self, at: Millis) -> KeyState {
        match (self.revoked_at, self.expires_at) {
            (Some(_), _) => KeyState::Revoked,
            (None, Some(end)) if end <= at => KeyState::Expired,
            _ => KeyState::Valid,
        }
    }

    /// Whether no other of `keys` is a valid admin key, but this one is.
    fn is_last_admin(&self, keys: &[ApiKeyRecord], at: Millis) -> bool {
        let mut others = keys.iter().filter(|other| other.id != self.id);
        self.is_valid_admin(at) && !others.any(|other| other.is_valid_admin(at))
    }

    fn is_valid_admin(&self, at: Millis) -> bool {
        self.role == ADMIN && self.state(at) == KeyState::Valid
    }

    /// What the log says of it.
    pub(crate) fn created(&self, by: &KeyActor) -> String {
        json!({
            "keyId": self.id,
            "role": self.role,
            "expiresAt": time(self.expires_at),
            "by": by.as_str(),
        })
        .to_string()
    }

    /// What the log says when it is taken back.
    pub(crate) fn revoked(&self, by: &KeyActor) -> String {
        json!({ "keyId": self.id, "role": self.role, "by": by.as_str() }).to_string()
    }
}

impl KeyRevocation {
    /// The key as it will be; none if it is revoked already. `keys` are all of its
    /// tenant.
    pub(crate) fn of(
        &self,
        key: &ApiKeyRecord,
        keys: &[ApiKeyRecord],
    ) -> Result<Option<ApiKeyRecord>> {
        if key.revoked_at.is_some() {
            return Ok(None);
        }
        match self.keeps_an_admin && key.is_last_admin(keys, self.at) {
            true => Err(StoreError::LastAdminKey { id: key.id.clone() }),
            false => Ok(Some(ApiKeyRecord { revoked_at: Some(self.at), ..key.clone() })),
        }
    }
}

impl KeyRotation {
    /// The old key as it will be, and the one in its place: for the same tenant,
    /// with the same role and name, and for as long as the old one was made for.
    /// `keys` are all of its tenant.
    pub(crate) fn of(&self, old: &ApiKeyRecord, keys: &[ApiKeyRecord]) -> Result<RotatedKey> {
        if old.state(self.at) != KeyState::Valid {
            return Err(StoreError::KeyEnded { id: old.id.clone() });
        }
        let lifetime = old.expires_at.map(|end| end.0.saturating_sub(old.created_at.0));
        let new = ApiKeyRecord {
            id: self.new_id.clone(),
            created_at: self.at,
            expires_at: lifetime.map(|millis| Millis(self.at.0.saturating_add(millis))),
            ..old.clone()
        };
        let least = match old.is_last_admin(keys, self.at) {
            true => self.last_admin_overlap_millis,
            false => 0,
        };
        let mut old = old.clone();
        match self.overlap_millis.max(least) {
            ..=0 => old.revoked_at = Some(self.at),
            overlap => {
                let end = Millis(self.at.0.saturating_add(overlap));
                old.expires_at = Some(old.expires_at.map_or(end, |before| before.min(end)));
            }
        }
        Ok(RotatedKey { old, new })
    }
}

impl RotatedKey {
    /// What the log says of it.
    pub(crate) fn rotated(&self, by: &KeyActor) -> String {
        json!({
            "keyId": self.old.id,
            "newKeyId": self.new.id,
            "role": self.new.role,
            "expiresAt": time(self.new.expires_at),
            "oldEndsAt": time(self.old.revoked_at.or(self.old.expires_at)),
            "by": by.as_str(),
        })
        .to_string()
    }
}

fn time(at: Option<Millis>) -> Value {
    at.map_or(Value::Null, |at| Value::String(at.to_rfc3339()))
}
