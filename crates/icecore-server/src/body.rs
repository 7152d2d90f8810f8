//! Request bodies: bounded, JSON, and read field by field.
//!
//! Fields are read by hand rather than derived, so that an error names the field
//! and never repeats what was sent, and so that a turn keeps its own spelling.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use icecore::Millis;
use icecore::formats::json::{JsonText, brief};
use serde_json::json;
use serde_json::value::RawValue;

use crate::app::{App, Shared};
use crate::error::ApiError;
use crate::idempotency;
use crate::line::Line;
use crate::params::MAX_NUMBER;
use crate::work::{SMALL_BODY, Work};

/// A posted request whose body is at hand.
pub(crate) struct Posted {
    pub(crate) path: String,
    pub(crate) query: String,
    /// `If-Match` and `If-None-Match`, which say what is asked for as the body does.
    pub(crate) conditions: Vec<u8>,
    pub(crate) bytes: Bytes,
    /// The caller's `Idempotency-Key`.
    pub(crate) key: Option<String>,
    /// The request's turn to be worked on.
    pub(crate) work: Work,
}

impl FromRequest<Shared> for Posted {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Shared) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        check_type(&parts.headers)?;
        let key = idempotency::key(&parts.headers, app)?;
        let work = parts.extensions.get::<Work>().cloned().unwrap_or_else(|| Work::new(app));
        let line = parts.extensions.get::<Arc<Line>>();
        let bound = Bound { most: app.limits.body_bytes, name: "body_bytes" };
        let bytes = taken(&work, app, line, &parts.headers, bound, body).await?;
        let query = parts.uri.query().unwrap_or_default().to_owned();
        // `OriginalUri` would be the same: nesting hides a prefix, no more.
        let conditions = conditions(&parts.headers);
        Ok(Self { path: parts.uri.path().to_owned(), query, conditions, bytes, key, work })
    }
}

/// The largest body, and the limit that says so.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) most: usize,
    pub(crate) name: &'static str,
}

/// A whole body. Who sends slowly, or waits for memory, does not hold a place meanwhile.
pub(crate) async fn taken(
    work: &Work,
    app: &App,
    line: Option<&Arc<Line>>,
    headers: &HeaderMap,
    bound: Bound,
    body: Body,
) -> Result<Bytes, ApiError> {
    let length = announced(headers, bound)?;
    let bytes = work.aside(receive(work, app, line, (length, bound), body)).await??;
    work.keep(bytes.len());
    Ok(bytes)
}

/// The headers on which it depends whether a request is done, each line with its name.
fn conditions(headers: &HeaderMap) -> Vec<u8> {
    let mut lines = Vec::new();
    for name in [header::IF_MATCH, header::IF_NONE_MATCH] {
        for value in headers.get_all(&name) {
            // No value holds a line's end.
            lines.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\n"].concat());
        }
    }
    lines
}

/// Refuses a body of another type than JSON.
pub(crate) fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let refuse = |message| {
        Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message))
    };
    let essence = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .map(|value| value.split(';').next().unwrap_or_default().trim());
    // A verdict is posted without a body, which then has no type either.
    let has_no_body = headers.get(header::TRANSFER_ENCODING).is_none()
        && headers.get(header::CONTENT_LENGTH).is_none_or(|length| length == "0");
    if essence.is_none() && has_no_body {
        return Ok(());
    }
    if !essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json")) {
        return refuse("send the body with `Content-Type: application/json`");
    }
    match headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes()) {
        None | Some(b"identity") => Ok(()),
        Some(_) => refuse("send the body without `Content-Encoding`"),
    }
}

/// How long the body will be, at most. One that is too long by its own word is
/// refused before it is asked for.
fn announced(headers: &HeaderMap, bound: Bound) -> Result<usize, ApiError> {
    let most = bound.most;
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return Ok(most);
    }
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    match length.map(|length| length.parse::<usize>()) {
        None => Ok(0),
        Some(Ok(length)) if length <= most => Ok(length),
        Some(_) => Err(too_large(bound)),
    }
}

fn too_large(Bound { most, name }: Bound) -> ApiError {
    ApiError::too_large(
        "body_too_large",
        name,
        most,
        format!("a request's body is at most {most} bytes (`{name}`)"),
    )
}

/// Reads the body within its time, while its connection counts as waiting.
async fn receive(
    work: &Work,
    app: &App,
    line: Option<&Arc<Line>>,
    (length, bound): (usize, Bound),
    body: Body,
) -> Result<Bytes, ApiError> {
    // Meanwhile the client waits for us, not we for it.
    work.reserve(length).await?;
    // Nobody is there to be told.
    let gone = || ApiError::invalid("the connection was closed");
    if line.is_some_and(|line| !line.await_body()) {
        return Err(gone());
    }
    let read = read_in_time(work, app, (length, bound), body).await;
    match line.is_some_and(|line| !line.body_came(read.is_ok())) {
        true => Err(gone()),
        false => read,
    }
}

async fn read_in_time(
    work: &Work,
    app: &App,
    size: (usize, Bound),
    body: Body,
) -> Result<Bytes, ApiError> {
    let time = app.limits.body_time();
    let read = tokio::time::timeout(time, read(work, app, size, body)).await;
    read.unwrap_or_else(|_| {
        let seconds = time.as_secs();
        Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "body_timeout",
            format!("the body took longer than {seconds} s to come (`body_seconds`)"),
        ))
    })
}

async fn read(
    work: &Work,
    app: &App,
    (length, bound): (usize, Bound),
    mut body: Body,
) -> Result<Bytes, ApiError> {
    let mut bytes = Vec::with_capacity(length.min(SMALL_BODY));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::invalid("the body ended before it was whole"))?;
        let Some(data) = frame.data_ref() else { continue };
        if bytes.len() + data.len() > bound.most {
            return Err(too_large(bound));
        }
        work.grow(bytes.len() + data.len()).await?;
        bytes.extend_from_slice(data);
    }
    app.metrics.received(bytes.len());
    Ok(bytes.into())
}

/// The members of a JSON object, each in its own spelling.
pub(crate) struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Fields<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, ApiError> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let at = error.valid_up_to() + 1;
            ApiError::invalid(format!("the body is not valid UTF-8 at byte {at}"))
        })?;
        let Members(fields) = serde_json::from_str(text).map_err(|error| {
            // What a reader says of a wrong type repeats the value; of bad syntax, not.
            let reason = match error.is_data() {
                true => format!("at line {} column {}", error.line(), error.column()),
                false => error.to_string(),
            };
            ApiError::invalid(format!("the body is not a JSON object: {reason}"))
        })?;
        let mut seen = BTreeSet::new();
        match fields.iter().find(|(key, _)| !seen.insert(key.as_str())) {
            None => Ok(Self(fields)),
            Some((key, _)) => {
                let key = brief(key);
                Err(ApiError::invalid(format!("field `{key}` stands there twice")))
            }
        }
    }

    /// Refuses fields beside these: a slip in a name must not change what happens.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), ApiError> {
        match self.0.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some((key, _)) => {
                let key = brief(key);
                let known = known.join("`, `");
                Err(ApiError::invalid(format!("field `{key}` is not one of `{known}`")))
            }
        }
    }

    /// The field, unless it is absent or null.
    fn raw(&self, name: &str) -> Option<&'a RawValue> {
        let found = self.0.iter().find(|(key, _)| key == name).map(|(_, raw)| *raw);
        found.filter(|raw| raw.get() != "null")
    }

    fn read<T: serde::Deserialize<'a>>(
        &self,
        name: &str,
        expected: &str,
    ) -> Result<Option<T>, ApiError> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        serde_json::from_str(raw.get())
            .map(Some)
            .map_err(|_| ApiError::invalid(format!("field `{name}` must be {expected}")))
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, ApiError> {
        self.read(name, "a string of valid Unicode")
    }

    /// A flag; absent is false.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        Ok(self.read(name, "true or false")?.unwrap_or_default())
    }

    /// A flag, if it is given.
    pub(crate) fn choice(&self, name: &str) -> Result<Option<bool>, ApiError> {
        self.read(name, "true or false")
    }

    /// The members of an object, if it is given.
    pub(crate) fn object(&self, name: &str) -> Result<Option<Fields<'a>>, ApiError> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        match raw.get().starts_with('{') {
            true => Self::parse(raw.get().as_bytes()).map(Some),
            false => Err(ApiError::invalid(format!("field `{name}` must be an object"))),
        }
    }

    /// An object in its own spelling, if it is given.
    pub(crate) fn json_object(&self, name: &str) -> Result<Option<JsonText>, ApiError> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        let wrong = |reason: &str| ApiError::invalid(format!("field `{name}` {reason}"));
        if !raw.get().starts_with('{') {
            return Err(wrong("must be an object"));
        }
        JsonText::parse(raw.get()).map(Some).map_err(|_| wrong("is nested too deeply"))
    }

    /// A whole number, if it is given.
    pub(crate) fn whole(&self, name: &str) -> Result<Option<u64>, ApiError> {
        let expected = format!("an integer from 0 to {MAX_NUMBER}");
        match self.read::<u64>(name, &expected)? {
            Some(number) if number > MAX_NUMBER => {
                Err(ApiError::invalid(format!("field `{name}` must be {expected}")))
            }
            number => Ok(number),
        }
    }

    /// A whole number from 1 on, if it is given.
    pub(crate) fn positive(&self, name: &str) -> Result<Option<u64>, ApiError> {
        let expected = format!("an integer from 1 to {MAX_NUMBER}");
        match self.read::<u64>(name, &expected)? {
            Some(number) if !(1..=MAX_NUMBER).contains(&number) => {
                Err(ApiError::invalid(format!("field `{name}` must be {expected}")))
            }
            number => Ok(number),
        }
    }

    pub(crate) fn list(&self, name: &str) -> Result<Vec<&'a RawValue>, ApiError> {
        self.read(name, "an array")?
            .ok_or_else(|| ApiError::invalid(format!("field `{name}` is missing")))
    }

    /// A list, of which there may be none.
    pub(crate) fn items(&self, name: &str) -> Result<Vec<&'a RawValue>, ApiError> {
        Ok(self.read(name, "an array")?.unwrap_or_default())
    }

    /// Words, of which there may be none.
    pub(crate) fn words(&self, name: &str) -> Result<Vec<String>, ApiError> {
        Ok(self.read(name, "an array of strings")?.unwrap_or_default())
    }

    pub(crate) fn time(&self, name: &str) -> Result<Option<Millis>, ApiError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let wrong = || format!("field `{name}` must be a timestamp like 2024-05-01T10:00:00Z");
        Millis::parse_rfc3339(&text).map(Some).map_err(|_| ApiError::invalid(wrong()))
    }

    /// A number from 1 to `most`, a limit of that name, if it is given.
    pub(crate) fn limit(
        &self,
        name: &str,
        most: usize,
        limit: &'static str,
    ) -> Result<Option<usize>, ApiError> {
        let expected = format!("an integer from 1 to {most} (`{limit}`)");
        match self.read::<u64>(name, &expected)? {
            None => Ok(None),
            Some(number) if (1..=most as u64).contains(&number) => Ok(Some(number as usize)),
            Some(_) => Err(ApiError::invalid(format!("field `{name}` must be {expected}"))
                .with(json!({ "limit": limit, "most": most }))),
        }
    }

    /// A required number from 0 to `most`, a limit of that name.
    pub(crate) fn bounded(
        &self,
        name: &str,
        most: u32,
        limit: &'static str,
    ) -> Result<u32, ApiError> {
        let missing = || ApiError::invalid(format!("field `{name}` is missing"));
        let expected = format!("an integer from 0 to {most} (`{limit}`)");
        let number: u64 = self.read(name, &expected)?.ok_or_else(missing)?;
        debug_assert!(u64::from(most) < MAX_NUMBER);
        match u32::try_from(number).ok().filter(|number| *number <= most) {
            Some(number) => Ok(number),
            None => Err(ApiError::invalid(format!("field `{name}` must be {expected}"))
                .with(json!({ "limit": limit, "most": most }))),
        }
    }

    /// A number of seconds up to `most`; absent is 0.
    pub(crate) fn seconds(&self, name: &str, most: u64) -> Result<u64, ApiError> {
        let expected = format!("an integer from 0 to {most}");
        let seconds: u64 = self.read(name, &expected)?.unwrap_or_default();
        match seconds <= most {
            true => Ok(seconds),
            false => Err(ApiError::invalid(format!("field `{name}` must be {expected}"))),
        }
    }

    /// The memory, from here or from the query; not two different ones.
    pub(crate) fn memory(&self, query: Option<&str>) -> Result<Option<String>, ApiError> {
        let body = self.text("memoryRef")?;
        match (body, query) {
            (Some(body), Some(query)) if body != query => {
                Err(ApiError::invalid("`memoryRef` is not the same in the query and in the body"))
            }
            (body, query) => Ok(body.or_else(|| query.map(str::to_owned))),
        }
    }
}

/// An object's members in order, repeated ones too.
pub(crate) struct Members<'a>(pub(crate) Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> serde::Deserialize<'de> for Members<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Members<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Members(fields))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_long_to_show_is_not_cut() {
        let body = format!("{{\"{}\":1}}", "hush".repeat(17));
        let refused = Fields::parse(body.as_bytes()).unwrap().only(&["session"]).unwrap_err();
        let text = format!("{refused:?}");
        assert!(text.contains("field `(68 characters)` is not one of"), "{text}");
        assert!(!text.contains("hush"), "{text}");
    }

    #[test]
    fn refusals_name_the_field_and_nothing_that_was_sent() {
        let check = |body: &str, expected: &str| {
            let read = |fields: Fields<'_>| {
                fields.text("session")?;
                fields.flag("dryRun")?;
                fields.bounded("budget", 10, "most")
            };
            let error = Fields::parse(body.as_bytes()).and_then(read).unwrap_err();
            let text = format!("{error:?}");
            assert!(text.contains(expected), "{body}: {text}");
            assert!(!text.contains("hush"), "{text}");
        };
        check("", "not a JSON object");
        check("[]", "not a JSON object");
        check("\"hush\"", "not a JSON object");
        check("{\"a\":1,\"a\":2}", "field `a` stands there twice");
        let long = format!("{{\"{0}\":1,\"{0}\":2}}", "hush".repeat(17));
        check(&long, "field `(68 characters)` stands there twice");
        check("{}", "field `budget` is missing");
        check("{\"budget\":null}", "field `budget` is missing");
        check("{\"budget\":11}", "from 0 to 10 (`most`)");
        check("{\"budget\":-1}", "from 0 to 10");
        check("{\"budget\":1.5}", "from 0 to 10");
        check("{\"budget\":\"hush\"}", "from 0 to 10");
        check("{\"session\":[\"hush\"]}", "field `session` must be a string");
        check("{\"session\":\"\\ud800\"}", "field `session` must be a string of valid Unicode");
        check("{\"dryRun\":\"hush\"}", "field `dryRun` must be true or false");
    }
}
