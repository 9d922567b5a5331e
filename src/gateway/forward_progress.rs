//! Progress forwarding during an operation.

use tokio::sync::mpsc;

/// Runs `work` and passes its progress to `tell`, in order, all of it before returning the result.
pub(crate) async fn forward_progress<T, N, Told: Future<Output = ()>>(
    work: impl Future<Output = T>,
    mut news: mpsc::Receiver<N>,
    tell: impl Fn(N) -> Told,
) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            result = &mut work => {
                while let Ok(one) = news.try_recv() {
                    tell(one).await;
                }
                return result;
            }
            Some(one) = news.recv() => tell(one).await,
        }
    }
}
