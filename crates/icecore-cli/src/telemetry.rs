//! Traces of the host, sent to a collector by OTLP over HTTP.
//!
//! Only spans go out, with fields of ours: counts, templates of routes, a status.
//! Events stay in the log: an error may name what it is about. A collector that is
//! away costs nothing but the traces: they are sent by a thread of their own, from
//! a queue that lets go of what does not fit.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use http::StatusCode;
use icecore_http::BlockingClient;
use opentelemetry::trace::TracerProvider;
use opentelemetry::{Array, KeyValue, Value};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData, SpanExporter};
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::{Layer, Registry};

use crate::failure::{Failure, Outcome};
use crate::hush;
use crate::settings::{Env, Settings};

/// How long the collector may take, and how long the end waits for it.
const PATIENCE: Duration = Duration::from_secs(3);

/// A collector answers with a few bytes.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// What sends traces, until it is finished.
pub struct Telemetry {
    provider: SdkTracerProvider,
}

impl Telemetry {
    /// Sends traces if a collector is named.
    pub fn start(settings: &Settings) -> Outcome<Option<Self>> {
        let file = &settings.file.telemetry;
        let endpoint = &file.otlp_endpoint;
        if endpoint.is_empty() {
            return Ok(None);
        }
        let service = file.service_name.clone();
        let exporter = exporter(endpoint, &Env::named(&file.otlp_headers_env).unwrap_or_default())?;
        let share = f64::from(file.sample_percent) / 100.0;
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(share)));
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let resource = Resource::builder().with_service_name(service).with_attribute(version);
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(Clean(exporter))
            .with_sampler(sampler)
            .with_resource(resource.build())
            .build();
        Ok(Some(Self { provider }))
    }

    /// What takes spans from the program: ours, whatever the log shows.
    pub fn layer(&self) -> impl Layer<Registry> + use<> {
        let spans = filter_fn(|meta| meta.is_span() && meta.target().starts_with("icecore"));
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("icecore"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_filter(spans.with_max_level_hint(LevelFilter::DEBUG))
    }

    /// Sends what waits, if the collector takes it in time.
    pub fn finish(self) {
        // Who listens has been told already if it does not work.
        let _ = self.provider.shutdown_with_timeout(PATIENCE);
    }
}

fn exporter(endpoint: &str, headers: &str) -> Outcome<opentelemetry_otlp::SpanExporter> {
    let refused = |reason: &str| {
        Failure::refused(
            format!("the address of the OTLP collector {reason}"),
            "write it like http://127.0.0.1:4318, in `telemetry.otlp_endpoint` or OTEL_EXPORTER_OTLP_ENDPOINT",
        )
    };
    if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
        return Err(refused("begins neither with http:// nor with https://"));
    }
    opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_http_client(Client::new(endpoint).map_err(|_| refused("cannot be used"))?)
        .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
        .with_headers(parse_headers(headers))
        .with_timeout(PATIENCE)
        .build()
        // What is wrong may be repeated there, with a password in it.
        .map_err(|_| refused("cannot be used"))
}

/// `name=value,name=value`
fn parse_headers(text: &str) -> HashMap<String, String> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect()
}

/// Our HTTP client. It blocks, on the thread that sends traces and does nothing else.
struct Client {
    client: BlockingClient,
    /// Whether it was said that the collector is away.
    is_told: AtomicBool,
}

impl Client {
    fn new(endpoint: &str) -> Result<Self, String> {
        let client = BlockingClient::new(endpoint)?;
        Ok(Self { client, is_told: AtomicBool::new(false) })
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let url = parts.uri.to_string();
        let answer = self.client.call(
            |client| client.request(parts.method, url).headers(parts.headers).body(body),
            PATIENCE,
            MAX_ANSWER_BYTES,
        )?;
        let mut response = Response::new(answer.body.into());
        *response.status_mut() = StatusCode::from_u16(answer.status)?;
        *response.headers_mut() = answer.headers;
        Ok(response)
    }

    /// Says once that it does not work, and again after it has worked.
    fn tell(&self, trouble: Option<String>) {
        let Some(trouble) = trouble else {
            return self.is_told.store(false, Ordering::Relaxed);
        };
        if !self.is_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                trouble,
                "the OTLP collector takes no traces; they are lost until it does"
            );
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = self.send(request);
        self.tell(match &answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answers {}", answer.status().as_u16())),
            Err(error) => Some(error.to_string()),
        });
        Ok(answer?)
    }
}

/// Sends spans without what is secret. There should be nothing: this is the net.
#[derive(Debug)]
struct Clean<E>(E);

impl<E: SpanExporter> SpanExporter for Clean<E> {
    fn export(&self, mut batch: Vec<SpanData>) -> impl Future<Output = OTelSdkResult> + Send {
        for span in &mut batch {
            span.attributes.iter_mut().for_each(clean);
            span.events.events.clear();
        }
        self.0.export(batch)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

fn clean(attribute: &mut KeyValue) {
    let said = |text: &str| hush::said(text).into_owned();
    match &mut attribute.value {
        Value::String(text) => *text = said(text.as_str()).into(),
        Value::Array(Array::String(texts)) => {
            texts.iter_mut().for_each(|text| *text = said(text.as_str()).into());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_hold_no_secret() {
        let token = format!("ghp_{}", "a1B2".repeat(9));
        let mut attribute = KeyValue::new("what", format!("see {token}"));
        clean(&mut attribute);
        assert_eq!(attribute.value.as_str(), "see [REDACTED:github-token]");
    }

    #[test]
    fn headers_are_read_as_the_standard_writes_them() {
        let headers = parse_headers("x-team = ice , authorization=Basic a=b,nonsense");
        assert_eq!(headers["x-team"], "ice");
        assert_eq!(headers["authorization"], "Basic a=b");
        assert_eq!(headers.len(), 2);
    }

    #[test]
    fn an_address_must_be_one() {
        for wrong in ["127.0.0.1:4318", "grpc://x", "http://"] {
            assert!(matches!(exporter(wrong, ""), Err(Failure::Refused(..))), "{wrong}");
        }
        assert!(exporter("http://127.0.0.1:4318/", "").is_ok());
    }
}
