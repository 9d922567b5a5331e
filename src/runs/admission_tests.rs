use std::sync::atomic::{AtomicU32, Ordering};

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;

fn limits(max_runs: u32, max_waiting: u32) -> AdmissionLimits {
    AdmissionLimits { max_runs, max_waiting, machine: None, memory_floor: 0 }
}

fn agent(name: &str) -> AgentName {
    name.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_max_runs_of_200_run_at_once_and_all_finish() {
    let admission = Admission::new(limits(8, 1000));
    let (inside, max_seen) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut all = JoinSet::new();
    for number in 0..200 {
        let (admission, inside, max_seen) =
            (admission.clone(), Arc::clone(&inside), Arc::clone(&max_seen));
        all.spawn(async move {
            let permit =
                admission.admit(&agent(&format!("agent-{}", number % 7)), Some(3)).await.unwrap();
            max_seen.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            drop(permit);
        });
    }
    assert_eq!(all.join_all().await.len(), 200);
    assert!(max_seen.load(Ordering::SeqCst) <= 8, "{max_seen:?} ran at once");
    assert_eq!(admission.counts(), AdmissionCounts { running: 0, waiting: 0 });
    assert!(
        admission.state.lock().queues.is_empty(),
        "nothing is remembered about agents that neither run nor wait"
    );
}

#[tokio::test]
async fn agents_are_served_round_robin_and_each_in_order() {
    let admission = Admission::new(limits(1, 100));
    let busy = admission.admit(&agent("busy"), None).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut all = JoinSet::new();
    for name in ["many-1", "many-2", "many-3", "few-1", "lone-1"] {
        let (handle, order) = (admission.clone(), Arc::clone(&order));
        all.spawn(async move {
            let permit = handle.admit(&agent(&name[..name.len() - 2]), None).await.unwrap();
            order.lock().push(name);
            drop(permit);
        });
        let before = admission.counts().waiting;
        while admission.counts().waiting == before {
            tokio::task::yield_now().await;
        }
    }
    drop(busy);
    all.join_all().await;
    assert_eq!(*order.lock(), ["many-1", "few-1", "lone-1", "many-2", "many-3"]);
}

#[tokio::test]
async fn an_agent_at_its_limit_does_not_block_others() {
    let admission = Admission::new(limits(3, 100));
    let one = admission.admit(&agent("slow"), Some(1)).await.unwrap();
    let its = agent("slow");
    let waiting = admission.admit(&its, Some(1));
    tokio::pin!(waiting);
    assert!(timeout(Duration::ZERO, &mut waiting).await.is_err());
    let other = admission.admit(&agent("quick"), Some(1)).await.unwrap();
    assert_eq!(admission.counts(), AdmissionCounts { running: 2, waiting: 1 });
    drop(other);
    drop(one);
    waiting.await.unwrap();
}

#[tokio::test]
async fn a_full_queue_rejects_further_runs() {
    let admission = Admission::new(limits(1, 1));
    let _busy = admission.admit(&agent("a"), None).await.unwrap();
    let its = agent("a");
    let waiting_run = admission.admit(&its, None);
    tokio::pin!(waiting_run);
    assert!(timeout(Duration::ZERO, &mut waiting_run).await.is_err());
    let refused = admission.admit(&agent("b"), None).await.unwrap_err();
    assert_eq!(refused, AdmissionError::QueueFull { running: 1, waiting: 1 });
    assert!(refused.help().starts_with("wait for one to end"));
}

#[tokio::test]
async fn cancelling_a_waiting_run_releases_its_place() {
    let admission = Admission::new(limits(1, 10));
    let busy = admission.admit(&agent("a"), None).await.unwrap();
    {
        let its = agent("b");
        let cancelled_run = admission.admit(&its, None);
        tokio::pin!(cancelled_run);
        assert!(timeout(Duration::ZERO, &mut cancelled_run).await.is_err());
    }
    assert_eq!(admission.counts(), AdmissionCounts { running: 1, waiting: 0 });
    // Started, but dropped before it continued: the slot must be released.
    {
        let its = agent("b");
        let cancelled_run = admission.admit(&its, None);
        tokio::pin!(cancelled_run);
        assert!(timeout(Duration::ZERO, &mut cancelled_run).await.is_err());
        drop(busy);
        assert_eq!(admission.counts(), AdmissionCounts { running: 1, waiting: 0 });
    }
    assert_eq!(admission.counts(), AdmissionCounts { running: 0, waiting: 0 });
    admission.admit(&agent("c"), None).await.unwrap();
}

#[tokio::test]
async fn raising_the_limit_starts_waiting_runs() {
    let admission = Admission::new(limits(1, 10));
    let _busy = admission.admit(&agent("a"), None).await.unwrap();
    let its = agent("a");
    let waiting_run = admission.admit(&its, None);
    tokio::pin!(waiting_run);
    assert!(timeout(Duration::ZERO, &mut waiting_run).await.is_err());
    admission.set_limits(limits(2, 10));
    waiting_run.await.unwrap();
}

#[tokio::test]
async fn several_processes_share_the_machine_limit() {
    let dir = tempfile::tempdir().unwrap();
    let shared =
        || AdmissionLimits { machine: Some(MachineLimit::in_dir(dir.path(), 1)), ..limits(8, 8) };
    let (one, other) = (Admission::new(shared()), Admission::new(shared()));
    let permit = one.admit(&agent("a"), None).await.unwrap();
    let its = agent("a");
    let waiting_run = other.admit(&its, None);
    tokio::pin!(waiting_run);
    assert!(timeout(Duration::from_millis(150), &mut waiting_run).await.is_err());
    drop(permit);
    waiting_run.await.unwrap();
}

#[tokio::test]
async fn low_memory_rejects_the_run_and_releases_its_slot() {
    let admission = Admission::new(AdmissionLimits { memory_floor: u64::MAX, ..limits(8, 8) });
    let refused = admission.admit(&agent("a"), None).await.unwrap_err();
    assert!(matches!(refused, AdmissionError::LowMemory { .. }));
    assert!(refused.to_string().contains("MiB of memory are available"), "{refused}");
    assert_eq!(admission.counts().running, 0, "the slot is free again");
}
