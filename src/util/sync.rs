//! Waiting for the disk, beside what else goes on.

/// Does something that waits for the disk without holding up what else goes on; `None` where it broke.
pub(super) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}
