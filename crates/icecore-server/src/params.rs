//! Query strings and path segments, with errors that name the parameter.

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use serde_json::json;
use utoipa::IntoParams;

use crate::app::{App, Shared};
use crate::error::ApiError;

/// Which memory a route works in.
#[derive(IntoParams)]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what `Params::memory` reads")]
pub(crate) struct InMemory {
    /// The memory; `default` where none is named.
    memory_ref: Option<String>,
}

/// Which memory a list is narrowed to.
#[derive(IntoParams)]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what `Params::memory` reads")]
pub(crate) struct InTenant {
    /// One memory; all of the tenant's where none is named.
    memory_ref: Option<String>,
}

/// A page that goes on after a number.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes what `Params::number` and `Params::page` read")]
pub(crate) struct PageBySeq {
    /// Go on after this `seq`.
    after: Option<u64>,
    /// The most items of the page.
    limit: Option<u64>,
}

/// A page that goes on after a name; all there is, where no limit is given.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes what `Params::text` and `Params::limit` read")]
pub(crate) struct PageByName {
    /// Go on after the item of this name or id.
    after: Option<String>,
    /// The most items of the page.
    limit: Option<u64>,
}

/// The parameters of a request. Unknown ones are ignored.
pub(crate) struct Params(Vec<(String, String)>);

/// The largest number that every JSON reader keeps exact.
pub(crate) const MAX_NUMBER: u64 = (1 << 53) - 1;

impl FromRequestParts<Shared> for Params {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self, ApiError> {
        let unreadable = || ApiError::invalid("the query string cannot be read");
        if !is_well_encoded(parts.uri.query().unwrap_or_default()) {
            return Err(unreadable());
        }
        let Query(pairs) =
            Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).map_err(|_| unreadable())?;
        Ok(Self(pairs))
    }
}

impl Params {
    /// The parameter, if it was given; at most once.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, ApiError> {
        let mut given = self.0.iter().filter(|(key, _)| key == name);
        let first = given.next().map(|(_, value)| value.as_str());
        match given.next() {
            None => Ok(first),
            Some(_) => Err(ApiError::invalid(format!("parameter `{name}` is given twice"))),
        }
    }

    pub(crate) fn memory(&self) -> Result<Option<&str>, ApiError> {
        self.text("memoryRef")
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let number = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        match number.and_then(|text| text.parse().ok()).filter(|number| *number <= MAX_NUMBER) {
            Some(number) => Ok(Some(number)),
            None => Err(ApiError::invalid(format!(
                "parameter `{name}` must be an integer from 0 to {MAX_NUMBER}"
            ))),
        }
    }

    /// `limit`, where it was given.
    pub(crate) fn limit(&self, app: &App) -> Result<Option<usize>, ApiError> {
        let most = app.limits.page;
        match self.number("limit")? {
            None => Ok(None),
            Some(limit) if (1..=most as u64).contains(&limit) => Ok(Some(limit as usize)),
            Some(_) => Err(ApiError::invalid(format!(
                "parameter `limit` must be from 1 to {most} (`page`)"
            ))
            .with(json!({ "limit": "page", "most": most }))),
        }
    }

    /// `limit`, or a page's usual size.
    pub(crate) fn page(&self, app: &App) -> Result<usize, ApiError> {
        Ok(self.limit(app)?.unwrap_or(app.limits.page_default))
    }
}

/// Whether what is percent-encoded is text. What is not would be taken for another.
fn is_well_encoded(query: &str) -> bool {
    let mut pieces = query.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let byte = piece.get(..2).and_then(|digits| hex::decode(digits).ok());
        let Some(byte) = byte else { return false };
        bytes.extend(byte);
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    std::str::from_utf8(&bytes).is_ok()
}

/// The one variable segment of a path.
pub(crate) struct Segment(pub(crate) String);

impl FromRequestParts<Shared> for Segment {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        match Path::<String>::from_request_parts(parts, app).await {
            Ok(Path(segment)) => Ok(Segment(segment)),
            Err(_) => Err(ApiError::invalid("the path is not valid UTF-8")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_is_read_from_a_query() {
        for good in ["", "a=b", "a=%C3%bc&b=%20", "a=%25", "a=+"] {
            assert!(is_well_encoded(good), "{good}");
        }
        for bad in ["a=%ff", "a=%", "a=%2", "a=%zz", "%c3=1", "a=%C3%"] {
            assert!(!is_well_encoded(bad), "{bad}");
        }
    }
}
