//! Bodies: those that come in are bounded in size and time, those that go out hold what their call needs.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use futures_util::StreamExt;
use hyper::body::{Frame, SizeHint};
use tokio::time::timeout;

use super::refusal::Refusal;

/// What is read of one request; a prompt of a million words is shorter.
pub(super) const MAX_BODY: usize = 4 << 20;
/// How long a body may take. Whoever has 4 MiB to send and a slow line still makes it.
const PATIENCE: Duration = Duration::from_secs(30);

/// The whole body, if it is not too large and comes in time.
pub(super) async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, Refusal> {
    let stated = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if stated.is_some_and(|bytes: u64| bytes > MAX_BODY as u64) {
        return Err(Refusal::TooLarge);
    }
    within(PATIENCE, body).await
}

async fn within(patience: Duration, body: Body) -> Result<Bytes, Refusal> {
    timeout(patience, collect(body)).await.unwrap_or(Err(Refusal::TooSlow))
}

async fn collect(body: Body) -> Result<Bytes, Refusal> {
    let mut stream = body.into_data_stream();
    let mut whole = Vec::new();
    while let Some(part) = stream.next().await {
        let part = part.map_err(|_| Refusal::TooSlow)?;
        if whole.len() + part.len() > MAX_BODY {
            return Err(Refusal::TooLarge);
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole.into())
}

/// A body that keeps something until it has been sent, or until nobody wants it any more.
pub(super) struct Holding<T> {
    body: Body,
    _held: T,
}

impl<T: Send + Unpin + 'static> Holding<T> {
    pub(super) fn wrap(body: Body, held: T) -> Body {
        Body::new(Self { body, _held: held })
    }
}

impl<T: Unpin> HttpBody for Holding<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    use futures_util::stream;

    #[tokio::test]
    async fn j4_a_body_that_does_not_come_is_not_waited_for() {
        let first = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"{"))]);
        let slow = Body::from_stream(first.chain(stream::pending()));
        let read = within(Duration::from_millis(50), slow).await;
        assert!(matches!(read, Err(Refusal::TooSlow)), "{read:?}");
        let whole = within(Duration::from_mins(1), Body::from("{}")).await;
        assert_eq!(whole.unwrap(), "{}");
    }
}
