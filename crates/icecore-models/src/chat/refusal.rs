//! What a status and a body mean when they are no answer.

use std::time::Duration;

use icecore_domain::time::Millis;
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::overflow::{Overflow, overflow_of};

/// Of a server's own words, as many as fit a line.
const MAX_MESSAGE_CHARS: usize = 200;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The request does not fit.
    Overflow(Overflow),
    /// The key is missing or wrong, or nothing may be spent with it.
    Denied(String),
    /// No such model.
    UnknownModel(String),
    /// Later it may work.
    Busy { reason: String, wait: Option<Duration> },
    /// The server is in trouble; it may pass.
    Failing { reason: String, wait: Option<Duration> },
    /// The request is wrong.
    Refused(String),
}

/// Codes of an account that is out of money.
const UNPAID_CODES: [&str; 4] = [
    "insufficient_quota", "billing_hard_limit_reached", "billing_not_active",
    "insufficient_balance",
];

/// Words of one, where there is no code.
const UNPAID_WORDS: [&str; 3] = ["credit balance", "insufficient balance", "billing"];

/// Words of a limit in time: waiting helps, whatever else is said of plans and billing.
const RATES: [&str; 10] = [
    "per min", "perminute", "per second", "per hour", "per day", "perday", "rate limit",
    "rate_limit", "try again in", "retryinfo",
];

/// What a status with this body says. `hide` takes the key out of a server's words.
pub(super) fn of_status(
    status: u16,
    wait: Option<Duration>,
    body: &str,
    hide: &dyn Fn(&str) -> String,
) -> Refusal {
    if let Some(overflow) = overflow_of(status, body) {
        return Refusal::Overflow(overflow);
    }
    let reason = described(status, body, hide);
    let lower = body.to_lowercase();
    let wait = wait.or_else(|| wait_within(body));
    let is_unpaid = is_unpaid(status, wait, &lower);
    match status {
        401..=403 => Refusal::Denied(reason),
        429 | 400 if is_unpaid => Refusal::Denied(reason),
        400 | 404 | 422 if names_no_model(&lower) => Refusal::UnknownModel(reason),
        404 => Refusal::Refused(format!("{reason}; is its url right up to the version path?")),
        300..=399 => {
            Refusal::Refused(format!("{reason}; it points elsewhere, and that is not followed"))
        }
        429 | 529 => Refusal::Busy { reason, wait },
        501 | 505 => Refusal::Refused(reason),
        408 | 409 | 425 | 500.. => Refusal::Failing { reason, wait },
        _ => Refusal::Refused(reason),
    }
}

/// Whether nothing more may be spent. Limits in time are described in like words: Gemini says
/// "check your plan and billing details" of a minute's limit.
fn is_unpaid(status: u16, wait: Option<Duration>, body: &str) -> bool {
    let says = |words: &[&str]| words.iter().any(|word| body.contains(word));
    says(&UNPAID_CODES)
        || status == 400 && says(&UNPAID_WORDS[..2])
        || status == 429 && wait.is_none() && !says(&RATES) && says(&UNPAID_WORDS)
}

/// How long Gemini asks to wait: in the body, as `"retryDelay": "34s"`.
fn wait_within(body: &str) -> Option<Duration> {
    let value: Value = serde_json::from_str(body).ok()?;
    let details = ["/error/details", "/0/error/details"];
    let details = details.iter().find_map(|path| value.pointer(path)?.as_array())?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    Duration::try_from_secs_f64(delay.strip_suffix('s')?.parse().ok()?).ok()
}

/// What an error in the midst of a stream says: its own words stand for the status.
pub(super) fn of_event(data: &str, hide: &dyn Fn(&str) -> String) -> Refusal {
    let value: Value = serde_json::from_str(data).unwrap_or_default();
    let error = value.get("error").unwrap_or(&value);
    let code = error.get("code").and_then(Value::as_u64);
    let code = code.and_then(|code| u16::try_from(code).ok()).filter(|code| *code >= 400);
    let kind = error.get("type").and_then(Value::as_str).unwrap_or_default();
    let status = code.unwrap_or(match kind {
        "overloaded_error" => 529,
        "rate_limit_error" | "rate_limit_exceeded" | "tokens" => 429,
        "authentication_error" => 401,
        "permission_error" => 403,
        "not_found_error" => 404,
        "invalid_request_error" | "BadRequestError" => 400,
        _ => 500,
    });
    of_status(status, None, data, hide)
}

fn names_no_model(body: &str) -> bool {
    let is_missing = ["not found", "not_found", "does not exist", "no such model", "unknown model"];
    body.contains("model") && is_missing.iter().any(|words| body.contains(words))
        || body.contains("invalid model")
}

/// The status with the server's own words, where it has any.
fn described(status: u16, body: &str, hide: &dyn Fn(&str) -> String) -> String {
    match message(body, hide) {
        Some(message) => format!("status {status}: {message}"),
        None => format!("status {status}"),
    }
}

/// Finds the words in the ways that servers are known to send them. The key is hidden
/// before they are cut: a part of it would not be known again.
fn message(body: &str, hide: &dyn Fn(&str) -> String) -> Option<String> {
    let answer: Value = serde_json::from_str(body).ok()?;
    let paths = ["/error/message", "/error", "/message", "/detail", "/0/error/message"];
    let text = paths.iter().find_map(|path| answer.pointer(path)?.as_str())?;
    let text = hide(text);
    let line = text.chars().map(|char| if char.is_control() { ' ' } else { char });
    Some(line.take(MAX_MESSAGE_CHARS).collect())
}

/// How long the server asks to wait, in any of the ways there are. A date is read by the
/// server's own clock.
pub(super) fn wait_of(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(millis) = text("retry-after-ms").and_then(|text| text.parse::<f64>().ok()) {
        return Duration::try_from_secs_f64(millis / 1_000.0).ok();
    }
    let after = text("retry-after")?;
    if let Ok(seconds) = after.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let then = http_date(after)?;
    let now = http_date(text("date")?)?;
    Some(Duration::from_millis(u64::try_from(then.0.saturating_sub(now.0)).unwrap_or(0)))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn http_date(text: &str) -> Option<Millis> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let mut words = text.split_once(", ")?.1.split(' ');
    let (day, month, year, time) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let month = MONTHS.find(month).filter(|at| month.len() == 3 && at % 3 == 0)? / 3 + 1;
    Millis::parse_rfc3339(&format!("{year}-{month:02}-{day}T{time}Z")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn waits_are_read_in_every_form() {
        let wait = |pairs: &[(&'static str, &'static str)]| wait_of(&headers(pairs));
        assert_eq!(wait(&[("retry-after", "7")]), Some(Duration::from_secs(7)));
        assert_eq!(wait(&[("retry-after", " 0.5 ")]), Some(Duration::from_millis(500)));
        assert_eq!(
            wait(&[("retry-after", "7"), ("retry-after-ms", "20")]),
            Some(Duration::from_millis(20))
        );
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        let later = ("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT");
        assert_eq!(wait(&[date, later]), Some(Duration::from_secs(30)));
        let earlier = ("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT");
        assert_eq!(wait(&[date, earlier]), Some(Duration::ZERO));
        for wrong in ["-1", "soon", "", "NaN", "Sun, 06 ovD 1994 08:50:07 GMT", "1e300"] {
            assert_eq!(wait(&[date, ("retry-after", wrong)]), None, "{wrong}");
        }
        assert_eq!(wait(&[later]), None, "without the server's clock a date says nothing");
    }

    #[test]
    fn statuses_mean_what_servers_mean_by_them() {
        let of = |status, body| of_status(status, None, body, &str::to_owned);
        let quota = r#"{"error":{"code":"insufficient_quota","message":"You exceeded it"}}"#;
        assert!(matches!(of(429, quota), Refusal::Denied(_)));
        assert!(matches!(of(429, "{}"), Refusal::Busy { .. }));
        assert!(matches!(of(529, "{}"), Refusal::Busy { .. }));
        for failing in [408, 500, 502, 503, 504] {
            assert!(matches!(of(failing, "<html>"), Refusal::Failing { .. }), "{failing}");
        }
        let unknown = r#"{"error":{"message":"The model `x` does not exist"}}"#;
        assert!(matches!(of(404, unknown), Refusal::UnknownModel(_)));
        assert!(matches!(of(400, unknown), Refusal::UnknownModel(_)));
        assert!(matches!(of(404, "not found"), Refusal::Refused(_)));
        assert!(matches!(of(302, ""), Refusal::Refused(_)));
        assert_eq!(of(400, "{\"error\":\"a\\nb\"}"), Refusal::Refused("status 400: a b".into()));
    }

    #[test]
    fn a_limit_in_time_is_no_matter_of_money() {
        let of = |status, wait, body| of_status(status, wait, body, &str::to_owned);
        let gemini = r#"[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"You exceeded your current quota, please check your plan and billing details.","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34s"}]}}]"#;
        let Refusal::Busy { wait, .. } = of(429, None, gemini) else { panic!("it is not busy") };
        assert_eq!(wait, Some(Duration::from_secs(34)), "as its body says");
        let openai = r#"{"error":{"code":"rate_limit_exceeded","type":"requests","message":"Rate limit reached for m on requests per min (RPM): Limit 3. Please try again in 20s. You can increase your rate limit by adding a payment method at https://platform.openai.com/account/billing."}}"#;
        assert!(matches!(of(429, None, openai), Refusal::Busy { .. }));
        let billing = r#"{"error":{"message":"Please check your plan and billing details."}}"#;
        let second = Some(Duration::from_secs(1));
        assert!(matches!(of(429, second, billing), Refusal::Busy { .. }));

        assert!(matches!(of(429, None, billing), Refusal::Denied(_)));
        let quota = r#"{"error":{"code":"insufficient_quota","message":"Check your plan"}}"#;
        assert!(matches!(of(429, second, quota), Refusal::Denied(_)), "the code decides");
        let unpaid = r#"{"error":{"message":"Your credit balance is too low. Go to Billing."}}"#;
        assert!(matches!(of(400, None, unpaid), Refusal::Denied(_)));
        let about = r#"{"error":{"message":"`billing` is no field"}}"#;
        assert!(matches!(of(400, None, about), Refusal::Refused(_)));
    }

    #[test]
    fn a_key_is_hidden_before_words_are_cut() {
        let key = "k".repeat(2 * MAX_MESSAGE_CHARS);
        let body = format!(r#"{{"error":{{"message":"Wrong key: {key}."}}}}"#);
        let hide = |text: &str| text.replace(&key, "…");
        let expected = Refusal::Denied("status 401: Wrong key: ….".to_owned());
        assert_eq!(of_status(401, None, &body, &hide), expected);
    }

    #[test]
    fn errors_within_a_stream_are_known_by_their_words() {
        let busy = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        assert!(matches!(of_event(busy, &str::to_owned), Refusal::Busy { .. }));
        let full = r#"{"error":{"code":400,"message":"prompt is too long: 9 tokens > 8 maximum"}}"#;
        let overflow = Overflow { limit: Some(8), requested: Some(9) };
        assert_eq!(of_event(full, &str::to_owned), Refusal::Overflow(overflow));
        assert!(matches!(of_event("nonsense", &str::to_owned), Refusal::Failing { .. }));
    }
}
