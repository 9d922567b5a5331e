//! Exports spans to an OpenTelemetry collector in the background (OTLP/HTTP with JSON), without retries.
//!
//! Implemented as one POST with the HTTP client that the program has anyway: the OpenTelemetry crates would add dozens
//! of dependencies and a second client. If the collector is unreachable or slow, spans are lost and a warning is
//! logged; runs are never delayed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::Client;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::spans::{TraceSpan, encode_request};

const QUEUE_CAPACITY: usize = 4_096;
const MAX_BATCH: usize = 512;
/// Time during which spans are collected into one request.
const BATCH_INTERVAL: Duration = Duration::from_millis(500);
const SEND_TIMEOUT: Duration = Duration::from_secs(3);
const FLUSH_TIMEOUT: Duration = Duration::from_secs(4);

/// The collector, configured by `OTEL_…` variables.
#[derive(Clone, Debug, Default)]
pub(crate) struct OtlpCollector {
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`; `/v1/traces` is appended.
    pub endpoint: String,
    /// `OTEL_EXPORTER_OTLP_HEADERS`: `name=value,name=value`.
    pub headers: String,
    /// `OTEL_SERVICE_NAME`.
    pub service: String,
}

/// Handle of the export task: a bounded queue of 4,096 spans.
#[derive(Debug)]
pub(crate) struct SpanExporter {
    commands: mpsc::Sender<ExportCommand>,
    lost: AtomicU64,
}

#[derive(Debug)]
enum ExportCommand {
    Send(Box<TraceSpan>),
    Flush(oneshot::Sender<()>),
}

impl SpanExporter {
    /// Starts the export task; must be called within a Tokio runtime.
    ///
    /// Returns `None` and logs a warning if the headers cannot be used; returns `None` silently without the feature
    /// `otel`.
    pub(crate) fn start(collector: &OtlpCollector) -> Option<Self> {
        if !cfg!(feature = "otel") {
            return None;
        }
        let url = format!("{}/v1/traces", collector.endpoint.trim_end_matches('/'));
        let client = match build_client(&collector.headers) {
            Ok(client) => client,
            Err(reason) => {
                tracing::warn!(reason, "no spans are sent");
                return None;
            }
        };
        let (sender, receiver) = mpsc::channel(QUEUE_CAPACITY);
        tokio::spawn(export_loop(client, url, collector.service.clone(), receiver));
        Some(Self { commands: sender, lost: AtomicU64::new(0) })
    }

    /// Queues a span. Never blocks; if the queue is full, the span is lost.
    pub(crate) fn post_spans(&self, span: TraceSpan) {
        if self.commands.try_send(ExportCommand::Send(Box::new(span))).is_err()
            && self.lost.fetch_add(1, Ordering::Relaxed) == 0
        {
            tracing::warn!("spans are lost: the collector is too slow");
        }
    }

    /// Waits until queued spans are sent, at most 4 s.
    pub(crate) async fn flush(&self) {
        let (done, sent) = oneshot::channel();
        let flushed = async {
            if self.commands.send(ExportCommand::Flush(done)).await.is_ok() {
                let _ = sent.await;
            }
        };
        if timeout(FLUSH_TIMEOUT, flushed).await.is_err() {
            tracing::warn!("the last spans could not be sent in time");
        }
    }
}

fn build_client(headers: &str) -> Result<Client, String> {
    // An error means that a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut all = HeaderMap::new();
    for pair in headers.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (name, value) =
            pair.split_once('=').ok_or("OTEL_EXPORTER_OTLP_HEADERS is no `name=value`")?;
        let name: HeaderName = name.trim().parse().map_err(|_| "a header's name cannot be used")?;
        let value: HeaderValue =
            value.trim().parse().map_err(|_| "a header's value cannot be used")?;
        all.insert(name, value);
    }
    let client = Client::builder().default_headers(all).timeout(SEND_TIMEOUT).build();
    client.map_err(|error| error.to_string())
}

async fn export_loop(
    client: Client,
    url: String,
    service: String,
    mut receiver: mpsc::Receiver<ExportCommand>,
) {
    let mut is_away = false;
    while let Some((spans, waiting)) = next_batch(&mut receiver).await {
        if !spans.is_empty() {
            let sent = send(&client, &url, encode_request(&spans, &service).to_string()).await;
            if let (Err(reason), false) = (&sent, is_away) {
                tracing::warn!(url, reason, "spans could not be sent");
            }
            is_away = sent.is_err();
        }
        for done in waiting {
            let _ = done.send(());
        }
    }
}

/// Collects spans for 500 ms, up to 512, or until a flush is requested; `None` after the exporter was dropped.
async fn next_batch(
    receiver: &mut mpsc::Receiver<ExportCommand>,
) -> Option<(Vec<TraceSpan>, Vec<oneshot::Sender<()>>)> {
    let (mut spans, mut waiting) = (Vec::new(), Vec::new());
    let mut next = Some(receiver.recv().await?);
    let pause = tokio::time::sleep(BATCH_INTERVAL);
    tokio::pin!(pause);
    while let Some(command) = next.take() {
        match command {
            ExportCommand::Send(span) => spans.push(*span),
            ExportCommand::Flush(done) => waiting.push(done),
        }
        if spans.len() >= MAX_BATCH || !waiting.is_empty() {
            break;
        }
        next = tokio::select! {
            command = receiver.recv() => command,
            () = &mut pause => None,
        };
    }
    Some((spans, waiting))
}

async fn send(client: &Client, url: &str, body: String) -> Result<(), String> {
    let request = client.post(url).header("content-type", "application/json").body(body);
    let answer = request.send().await.map_err(|error| error.without_url().to_string())?;
    match answer.status() {
        status if status.is_success() => Ok(()),
        status => Err(format!("the collector answered {status}")),
    }
}
