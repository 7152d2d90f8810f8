//! What the host has done, as Prometheus reads it.
//!
//! No label carries what a caller chose: routes are templates of the route table,
//! methods and reasons come from lists of ours. So the number of series is bounded
//! whatever is sent, and no tenant, session, key or content can be read here.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use icecore::maintenance::{Counters, ModelCounts};
use icecore::models::Protocol;
use icecore::store::{StoreTimings, TIME_BOUNDS_SECONDS, Times};
use icecore_host::bounds::{AllUsage, BoundRefusals};
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};

use crate::app::{App, Shared};
use crate::auth::Operator;
use crate::error::ApiError;

/// The route; it is answered however busy the host is.
pub(crate) const METRICS: &str = "/metrics";

/// What stands for a path that no route has.
pub(crate) const UNKNOWN: &str = "unknown";

/// Upper ends of the classes of a request's time, in seconds.
const BOUNDS_SECONDS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The methods that are told apart.
const METHODS: [Method; 7] = [
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::DELETE,
    Method::PATCH,
    Method::HEAD,
    Method::OPTIONS,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Asked {
    method: &'static str,
    route: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct For {
    purpose: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ForKind {
    purpose: &'static str,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ForOutcome {
    purpose: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Proxied {
    protocol: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Spoken {
    protocol: &'static str,
}

/// Upper ends of the classes of the time until a provider answers, in seconds.
const UPSTREAM_SECONDS: [f64; 12] =
    [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// What requests add to. What others count already is read when it is asked for.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Asked, Counter>,
    latency: Family<Route, Histogram, fn() -> Histogram>,
    rate_limited: Counter,
    waiting: Gauge,
    connections: Gauge,
    bytes_in: Counter,
    bytes_out: Counter,
    proxied: Family<Proxied, Counter>,
    upstream: Family<Spoken, Histogram, fn() -> Histogram>,
    proxy_compactions: Counter,
    proxy_streams: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let latency: fn() -> Histogram = || Histogram::new(BOUNDS_SECONDS);
        let upstream: fn() -> Histogram = || Histogram::new(UPSTREAM_SECONDS);
        let mut metrics = Self {
            registry: Registry::with_prefix("icecore"),
            requests: Family::default(),
            latency: Family::new_with_constructor(latency),
            rate_limited: Counter::default(),
            waiting: Gauge::default(),
            connections: Gauge::default(),
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            proxied: Family::default(),
            upstream: Family::new_with_constructor(upstream),
            proxy_compactions: Counter::default(),
            proxy_streams: Gauge::default(),
        };
        metrics.register();
        metrics
    }
}

/// One more of something, until it is dropped.
pub(crate) struct Held(Gauge);

impl Held {
    fn one(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("requests", "Requests that were answered", self.requests.clone());
        registry.register_with_unit(
            "request_duration",
            "Time from a request's head to its answer's",
            Unit::Seconds,
            self.latency.clone(),
        );
        let help = "Requests refused because their caller asks too often";
        registry.register("rate_limited", help, self.rate_limited.clone());
        registry.register(
            "requests_waiting",
            "Requests that wait for one of the places of `concurrent_requests`",
            self.waiting.clone(),
        );
        registry.register("connections", "Open connections", self.connections.clone());
        let bytes = [
            ("request_body", "Bytes of request bodies", &self.bytes_in),
            ("response_body", "Bytes of response bodies", &self.bytes_out),
        ];
        for (name, help, counter) in bytes {
            registry.register_with_unit(name, help, Unit::Bytes, counter.clone());
        }
        let help = "Requests of the proxy, by what came of them";
        registry.register("proxy_requests", help, self.proxied.clone());
        registry.register_with_unit(
            "proxy_upstream_duration",
            "Time until a provider began to answer",
            Unit::Seconds,
            self.upstream.clone(),
        );
        let help = "Compactions that were made for requests of the proxy";
        registry.register("proxy_compactions", help, self.proxy_compactions.clone());
        let help = "Answers of providers that are being handed on";
        registry.register("proxy_streams", help, self.proxy_streams.clone());
    }

    /// Counts what came of a request of the proxy; outcomes are words of ours.
    pub(crate) fn proxied(&self, protocol: Protocol, outcome: &'static str) {
        let protocol = protocol.as_str();
        self.proxied.get_or_create(&Proxied { protocol, outcome }).inc();
    }

    /// Counts the time that a provider took to begin.
    pub(crate) fn upstream(&self, protocol: Protocol, time: Duration) {
        let protocol = protocol.as_str();
        self.upstream.get_or_create(&Spoken { protocol }).observe(time.as_secs_f64());
    }

    /// Counts compactions for requests of the proxy.
    pub(crate) fn compacted(&self, count: usize) {
        self.proxy_compactions.inc_by(count as u64);
    }

    /// An answer that is handed on, until this is dropped.
    pub(crate) fn proxies(&self) -> Held {
        Held::one(&self.proxy_streams)
    }

    /// Counts an answer.
    pub(crate) fn answered(
        &self,
        method: &Method,
        route: &str,
        response: &Response,
        time: Duration,
    ) {
        let (method, status) = (known_method(method), response.status());
        let asked = Asked { method, route: route.to_owned(), status: status.as_u16() };
        self.requests.get_or_create(&asked).inc();
        let route = Route { route: route.to_owned() };
        self.latency.get_or_create(&route).observe(time.as_secs_f64());
        if let Some(bytes) = axum::body::HttpBody::size_hint(response.body()).exact() {
            self.bytes_out.inc_by(bytes);
        }
        if status == StatusCode::TOO_MANY_REQUESTS {
            self.rate_limited.inc();
        }
    }

    /// A request that waits for a place, until this is dropped.
    pub(crate) fn waits(&self) -> Held {
        Held::one(&self.waiting)
    }

    /// A connection, until this is dropped.
    pub(crate) fn connected(&self) -> Held {
        Held::one(&self.connections)
    }

    /// Counts what was read of bodies.
    pub(crate) fn received(&self, bytes: usize) {
        self.bytes_in.inc_by(bytes as u64);
    }

    /// Counts a piece of a body whose length nobody knew before.
    pub(crate) fn sent(&self, bytes: usize) {
        self.bytes_out.inc_by(bytes as u64);
    }
}

/// The method if it is of our list: others are words of the caller's own.
pub(crate) fn known_method(method: &Method) -> &'static str {
    METHODS.iter().find(|known| *known == method).map_or("other", |known| match known.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "PATCH" => "PATCH",
        "HEAD" => "HEAD",
        _ => "OPTIONS",
    })
}

/// `GET /metrics`: open where only this machine can ask, else for an admin's key.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "metrics",
    tag = "operations",
    security(()),
    responses((status = 200, description = "Figures as Prometheus reads them", body = String,
        content_type = "text/plain"))
)]
pub(crate) async fn metrics(
    State(app): State<Shared>,
    request: Request,
) -> Result<Response, ApiError> {
    let (mut parts, _) = request.into_parts();
    if !app.hosts.are_near() {
        Operator::from_request_parts(&mut parts, &app).await?;
    }
    let text = written(&app).await.map_err(|error| ApiError::internal(&error))?;
    let kind = HeaderValue::from_static(content_type(&parts.headers));
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// The text is the same: what OpenMetrics adds, the older format reads as comments.
fn content_type(headers: &HeaderMap) -> &'static str {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    match accepted.into_iter().any(|value| value.contains("application/openmetrics-text")) {
        true => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        false => "text/plain; version=0.0.4; charset=utf-8",
    }
}

async fn written(app: &App) -> Result<String, std::fmt::Error> {
    let mut present = Registry::with_prefix("icecore");
    places(app, &mut present);
    denials(app, &mut present);
    store(&app.memory.store_timings(), &mut present);
    // A store that does not answer is told by `/readyz`; the rest is still of use.
    if let Ok(pending) = app.memory.pending().await {
        let help = "Branches whose summaries, facts or index are not up to date";
        gauge(&mut present, "pending_branches", help, pending as i64);
    }
    let refusals = app.host.bounds.refusals();
    engine(app.memory.counters(), &mut present);
    bounds(refusals, &mut present);
    if let Ok(all) = app.host.bounds.all_usage().await {
        usage(&all, &mut present);
    }
    process(app, &mut present);
    let mut text = String::new();
    text::encode_registry(&mut text, &app.metrics.registry)?;
    text::encode_registry(&mut text, &present)?;
    text::encode_eof(&mut text)?;
    Ok(text)
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AtBound {
    bound: &'static str,
}

/// What was refused at bounds of tenants. Whose they were is not told.
fn bounds(refusals: BoundRefusals, registry: &mut Registry) {
    let family: Family<AtBound, Counter> = Family::default();
    for (bound, count) in [
        ("turns", refusals.turns),
        ("bytes", refusals.bytes),
        ("requests_a_day", refusals.requests),
        ("tokens_a_day", refusals.tokens),
    ] {
        family.get_or_create(&AtBound { bound }).inc_by(count);
    }
    registry.register("bound_refusals", "What was refused at a bound of its tenant", family);
}

/// What all tenants keep and used. One series each, however many they are: what one of
/// them uses, and of what, `stats` tells.
fn usage(all: &AllUsage, registry: &mut Registry) {
    let sum = &all.sum;
    for (name, help, value) in [
        ("tenants", "Tenants that have anything in the store", all.tenants),
        ("kept_turns", "Turns that all tenants keep", sum.turns),
        ("kept_bytes", "Bytes that all tenants keep of turns, entries and files", sum.bytes),
        ("requests_today", "Requests of all tenants today, as far as written", sum.day.requests),
        ("tokens_today", "Tokens of all tenants today, as far as written", sum.day.tokens),
    ] {
        gauge(registry, name, help, i64::try_from(value).unwrap_or(i64::MAX));
    }
}

fn counter(registry: &mut Registry, name: &str, help: &str, value: u64) {
    registry.register(name, help, ConstCounter::new(value));
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: i64) {
    registry.register(name, help, ConstGauge::new(value));
}

fn with_unit(registry: &mut Registry, name: &str, help: &str, unit: Unit, metric: impl Metric) {
    registry.register_with_unit(name, help, unit, metric);
}

fn places(app: &App, registry: &mut Registry) {
    let taken = |most: usize, free: usize| most.saturating_sub(free) as i64;
    let limits = &app.limits;
    let working = taken(limits.concurrent_requests, app.requests.available_permits());
    gauge(registry, "requests_in_progress", "Requests that are worked on", working);
    let streams = taken(limits.event_streams, app.streams.available_permits());
    gauge(registry, "event_streams", "Followers of the event log", streams);
}

fn denials(app: &App, registry: &mut Registry) {
    let denials: Family<Reason, Counter> = Family::default();
    for (reason, count) in app.denials.counts() {
        denials.get_or_create(&Reason { reason }).inc_by(count);
    }
    registry.register("denials", "Requests refused for who asks, by reason", denials);
    let help = "Denials of known keys that found no room in their tenant's log";
    counter(registry, "denials_unlogged", help, app.denials.unlogged());
}

fn store(timings: &StoreTimings, registry: &mut Registry) {
    let help = "Writes that wait for the store's writer";
    gauge(registry, "store_queue_depth", help, timings.queue_depth as i64);
    let help = "Writes that were committed; by the count of commits, how well they are grouped";
    counter(registry, "store_committed_writes", help, timings.committed_writes);
    let times = [
        ("store_read_duration", "Time of the store's reads", timings.reads),
        ("store_write_duration", "Time of the store's writes, until durable", timings.writes),
        ("store_queue_wait", "Time that writes waited for the writer", timings.waits),
        ("store_commit_duration", "Time of commits, the sync included", timings.commits),
    ];
    for (name, help, times) in times {
        with_unit(registry, name, help, Unit::Seconds, Taken(times));
    }
}

fn engine(counters: Counters, registry: &mut Registry) {
    counter(registry, "turns_added", "Turns that were added", counters.turns);
    counter(registry, "tokens_added", "Tokens of turns that were added", counters.tokens);
    counter(registry, "searches", "Searches that were answered", counters.searches);
    counter(registry, "contexts", "Contexts that were built", counters.contexts);
    let help = "Tokens that were given out in contexts";
    counter(registry, "context_tokens", help, counters.context_tokens);
    let redactions: Family<Kind, Counter> = Family::default();
    for (kind, count) in &counters.hidden {
        let (kind, count) = (*kind, *count);
        redactions.get_or_create(&Kind { kind }).inc_by(count);
    }
    let help = "Secrets that were hidden in what was stored; `registered` are the tenants' own";
    registry.register("redactions", help, redactions);
    models(&counters.models, registry);
    let help = "Times that something was done without a model that is set up for it";
    counter(registry, "model_fallbacks", help, counters.model_fallbacks);
    let help =
        "Tokens that contexts and views did not have to hold, thanks to what stands for them";
    counter(registry, "context_tokens_saved", help, counters.saved_tokens);
}

/// Purposes are of our own list, so that the number of series is bounded.
fn models(by_purpose: &BTreeMap<&'static str, ModelCounts>, registry: &mut Registry) {
    let calls: Family<ForOutcome, Counter> = Family::default();
    let tokens: Family<ForKind, Counter> = Family::default();
    let cost: Family<For, Counter> = Family::default();
    for (&purpose, counts) in by_purpose {
        let answered = counts.calls.saturating_sub(counts.failed);
        let outcomes =
            [("answered", answered), ("failed", counts.failed), ("reused", counts.reused)];
        for (outcome, count) in outcomes {
            calls.get_or_create(&ForOutcome { purpose, outcome }).inc_by(count);
        }
        let read = counts.input.saturating_sub(counts.cached_input);
        let kinds =
            [("input", read), ("cached_input", counts.cached_input), ("output", counts.output)];
        for (kind, count) in kinds {
            tokens.get_or_create(&ForKind { purpose, kind }).inc_by(count);
        }
        cost.get_or_create(&For { purpose }).inc_by(counts.cost);
    }
    registry.register("model_calls", "Questions to models, by what came of them", calls);
    let help = "Tokens that models read, read from a cache, and wrote";
    registry.register("model_tokens", help, tokens);
    let help = "What models cost, in millionths of the currency of their prices";
    registry.register("model_cost_millionths", help, cost);
}

fn process(app: &App, registry: &mut Registry) {
    if let Some(bytes) = resident_bytes() {
        let help = "Memory of this process that is resident";
        with_unit(registry, "process_resident_memory", help, Unit::Bytes, ConstGauge::new(bytes));
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        // Looking needs one itself.
        let open = open.count().saturating_sub(1) as i64;
        gauge(registry, "process_open_fds", "Files and sockets that are open", open);
    }
    let begun = app.begun.0 as f64 / 1e3;
    let help = "When this process began to serve, since 1970";
    with_unit(registry, "process_start_time", help, Unit::Seconds, ConstGauge::new(begun));
    let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "What is running", build);
}

fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<i64>().ok()? * 1024)
}

/// Times that the store counted, as a histogram.
#[derive(Debug)]
struct Taken(Times);

impl EncodeMetric for Taken {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let bounds = TIME_BOUNDS_SECONDS.into_iter().chain([f64::INFINITY]);
        let classes: Vec<(f64, u64)> = bounds.zip(self.0.classes).collect();
        let seconds = self.0.nanos as f64 / 1e9;
        encoder.encode_histogram::<NoLabelSet>(seconds, self.0.count(), &classes, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_of_a_short_list() {
        for method in METHODS {
            assert_eq!(known_method(&method), method.as_str());
        }
        assert_eq!(known_method(&Method::TRACE), "other");
        assert_eq!(known_method(&Method::from_bytes(b"PURGE").unwrap()), "other");
    }

    #[test]
    fn times_are_written_as_a_histogram() {
        let mut times = Times { nanos: 1_500_000_000, ..Times::default() };
        (times.classes[0], times.classes[14]) = (2, 1);
        let mut registry = Registry::default();
        with_unit(&mut registry, "t", "Times", Unit::Seconds, Taken(times));
        let mut text = String::new();
        text::encode(&mut text, &registry).unwrap();
        for line in [
            "# TYPE t_seconds histogram",
            "t_seconds_sum 1.5",
            "t_seconds_count 3",
            "t_seconds_bucket{le=\"0.0001\"} 2",
            "t_seconds_bucket{le=\"10.0\"} 2",
            "t_seconds_bucket{le=\"+Inf\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
