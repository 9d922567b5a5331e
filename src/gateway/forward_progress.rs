//! News while something is going on.

use tokio::sync::mpsc;

/// Does `work`, and tells what is reported meanwhile, in order, all of it before the result.
pub async fn telling<T, N, Told: Future<Output = ()>>(
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
