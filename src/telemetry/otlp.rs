//! Sends spans to a collector, beside the runs: a bounded queue, one task, and no second try.
//!
//! OTLP over HTTP with JSON is one POST, and the client for it is in the program in any case: the OpenTelemetry crates would bring
//! dozens of others and a second client. A collector that is away costs a warning and the spans, never time of a run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::Client;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::trace::{Span, encode};

const QUEUE: usize = 4_096;
const BATCH: usize = 512;
/// How long spans are collected before they are sent.
const PAUSE: Duration = Duration::from_millis(500);
const SEND_LIMIT: Duration = Duration::from_secs(3);
const FLUSH_LIMIT: Duration = Duration::from_secs(4);

/// Where spans go, as `OTEL_…` variables say.
#[derive(Clone, Debug, Default)]
pub struct Collector {
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`: `/v1/traces` is put behind it.
    pub endpoint: String,
    /// `OTEL_EXPORTER_OTLP_HEADERS`: `name=value,name=value`.
    pub headers: String,
    /// `OTEL_SERVICE_NAME`.
    pub service: String,
}

/// The way to a collector; share it by reference.
#[derive(Debug)]
pub struct SpanExporter {
    orders: mpsc::Sender<Order>,
    lost: AtomicU64,
}

#[derive(Debug)]
enum Order {
    Send(Box<Span>),
    Flush(oneshot::Sender<()>),
}

impl SpanExporter {
    /// Starts the task that sends. `None`, said in the log, where the endpoint or the headers cannot be used, and silently where
    /// the program was built without the feature `otel`.
    pub fn start(collector: &Collector) -> Option<Self> {
        if !cfg!(feature = "otel") {
            return None;
        }
        let url = format!("{}/v1/traces", collector.endpoint.trim_end_matches('/'));
        let client = match client(&collector.headers) {
            Ok(client) => client,
            Err(reason) => {
                tracing::warn!(reason, "no spans are sent");
                return None;
            }
        };
        let (orders, inbox) = mpsc::channel(QUEUE);
        tokio::spawn(send_all(client, url, collector.service.clone(), inbox));
        Some(Self { orders, lost: AtomicU64::new(0) })
    }

    /// Takes a span to be sent soon. Never waits.
    pub fn send(&self, span: Span) {
        if self.orders.try_send(Order::Send(Box::new(span))).is_err()
            && self.lost.fetch_add(1, Ordering::Relaxed) == 0
        {
            tracing::warn!("spans are lost: the collector is too slow");
        }
    }

    /// Waits until everything is sent, for a few seconds at most.
    pub async fn flush(&self) {
        let (done, sent) = oneshot::channel();
        let flushed = async {
            if self.orders.send(Order::Flush(done)).await.is_ok() {
                let _ = sent.await;
            }
        };
        if timeout(FLUSH_LIMIT, flushed).await.is_err() {
            tracing::warn!("the last spans could not be sent in time");
        }
    }
}

fn client(headers: &str) -> Result<Client, String> {
    // Whoever comes first installs it; a second time is no error of anybody's.
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
    let client = Client::builder().default_headers(all).timeout(SEND_LIMIT).build();
    client.map_err(|error| error.to_string())
}

async fn send_all(client: Client, url: String, service: String, mut inbox: mpsc::Receiver<Order>) {
    let mut is_away = false;
    while let Some((spans, waiting)) = next_batch(&mut inbox).await {
        if !spans.is_empty() {
            let sent = send(&client, &url, encode(&spans, &service).to_string()).await;
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

/// What came until the pause was over, somebody waited for it, or there was enough; `None` when nobody is left to send any.
async fn next_batch(
    inbox: &mut mpsc::Receiver<Order>,
) -> Option<(Vec<Span>, Vec<oneshot::Sender<()>>)> {
    let (mut spans, mut waiting) = (Vec::new(), Vec::new());
    let mut next = Some(inbox.recv().await?);
    let pause = tokio::time::sleep(PAUSE);
    tokio::pin!(pause);
    while let Some(order) = next.take() {
        match order {
            Order::Send(span) => spans.push(*span),
            Order::Flush(done) => waiting.push(done),
        }
        if spans.len() >= BATCH || !waiting.is_empty() {
            break;
        }
        next = tokio::select! {
            order = inbox.recv() => order,
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
