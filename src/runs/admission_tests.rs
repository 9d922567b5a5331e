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
async fn of_two_hundred_at_most_eight_run_and_all_get_their_turn() {
    let door = Admission::new(limits(8, 1000));
    let (inside, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut all = JoinSet::new();
    for number in 0..200 {
        let (door, inside, most) = (door.clone(), Arc::clone(&inside), Arc::clone(&most));
        all.spawn(async move {
            let permit =
                door.admit(&agent(&format!("agent-{}", number % 7)), Some(3)).await.unwrap();
            most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            drop(permit);
        });
    }
    assert_eq!(all.join_all().await.len(), 200);
    assert!(most.load(Ordering::SeqCst) <= 8, "{most:?} ran at once");
    assert_eq!(door.counts(), Counts { running: 0, waiting: 0 });
    assert!(
        lock(&door.door).lines.is_empty(),
        "nothing is remembered about agents that neither run nor wait"
    );
}

#[tokio::test]
async fn agents_take_turns_and_the_first_of_each_comes_first() {
    let door = Admission::new(limits(1, 100));
    let busy = door.admit(&agent("busy"), None).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut all = JoinSet::new();
    for name in ["many-1", "many-2", "many-3", "few-1", "lone-1"] {
        let (door_of_its_own, order) = (door.clone(), Arc::clone(&order));
        all.spawn(async move {
            let permit =
                door_of_its_own.admit(&agent(&name[..name.len() - 2]), None).await.unwrap();
            order.lock().unwrap().push(name);
            drop(permit);
        });
        let before = door.counts().waiting;
        while door.counts().waiting == before {
            tokio::task::yield_now().await;
        }
    }
    drop(busy);
    all.join_all().await;
    assert_eq!(*order.lock().unwrap(), ["many-1", "few-1", "lone-1", "many-2", "many-3"]);
}

#[tokio::test]
async fn an_agent_at_its_own_limit_does_not_hold_up_others() {
    let door = Admission::new(limits(3, 100));
    let one = door.admit(&agent("slow"), Some(1)).await.unwrap();
    let its = agent("slow");
    let waiting = door.admit(&its, Some(1));
    tokio::pin!(waiting);
    assert!(timeout(Duration::ZERO, &mut waiting).await.is_err());
    let other = door.admit(&agent("quick"), Some(1)).await.unwrap();
    assert_eq!(door.counts(), Counts { running: 2, waiting: 1 });
    drop(other);
    drop(one);
    waiting.await.unwrap();
}

#[tokio::test]
async fn beyond_the_line_there_is_a_clear_no() {
    let door = Admission::new(limits(1, 1));
    let _busy = door.admit(&agent("a"), None).await.unwrap();
    let its = agent("a");
    let waits = door.admit(&its, None);
    tokio::pin!(waits);
    assert!(timeout(Duration::ZERO, &mut waits).await.is_err());
    let refused = door.admit(&agent("b"), None).await.unwrap_err();
    assert_eq!(refused, Refused::LineFull { running: 1, waiting: 1 });
    assert!(
        refused.to_string().starts_with("1 runs are going on and 1 wait already: wait for one")
    );
}

#[tokio::test]
async fn who_leaves_the_line_takes_nothing_along() {
    let door = Admission::new(limits(1, 10));
    let busy = door.admit(&agent("a"), None).await.unwrap();
    {
        let its = agent("b");
        let leaves = door.admit(&its, None);
        tokio::pin!(leaves);
        assert!(timeout(Duration::ZERO, &mut leaves).await.is_err());
    }
    assert_eq!(door.counts(), Counts { running: 1, waiting: 0 });
    // Called, but gone before answering: the seat must come back.
    {
        let its = agent("b");
        let leaves = door.admit(&its, None);
        tokio::pin!(leaves);
        assert!(timeout(Duration::ZERO, &mut leaves).await.is_err());
        drop(busy);
        assert_eq!(door.counts(), Counts { running: 1, waiting: 0 });
    }
    assert_eq!(door.counts(), Counts { running: 0, waiting: 0 });
    door.admit(&agent("c"), None).await.unwrap();
}

#[tokio::test]
async fn a_higher_limit_lets_the_waiting_in() {
    let door = Admission::new(limits(1, 10));
    let _busy = door.admit(&agent("a"), None).await.unwrap();
    let its = agent("a");
    let waits = door.admit(&its, None);
    tokio::pin!(waits);
    assert!(timeout(Duration::ZERO, &mut waits).await.is_err());
    door.set_limits(limits(2, 10));
    waits.await.unwrap();
}

#[tokio::test]
async fn several_doors_share_the_slots_of_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let shared =
        || AdmissionLimits { machine: Some(MachineCap::kept_in(folder.path(), 1)), ..limits(8, 8) };
    let (one, other) = (Admission::new(shared()), Admission::new(shared()));
    let permit = one.admit(&agent("a"), None).await.unwrap();
    let its = agent("a");
    let waits = other.admit(&its, None);
    tokio::pin!(waits);
    assert!(timeout(Duration::from_millis(150), &mut waits).await.is_err());
    drop(permit);
    waits.await.unwrap();
}

#[tokio::test]
async fn without_memory_nothing_is_started_and_it_is_said() {
    let door = Admission::new(AdmissionLimits { memory_floor: u64::MAX, ..limits(8, 8) });
    let refused = door.admit(&agent("a"), None).await.unwrap_err();
    assert!(matches!(refused, Refused::LowMemory { .. }));
    assert!(refused.to_string().contains("MiB of memory are available"), "{refused}");
    assert_eq!(door.counts().running, 0, "the seat is free again");
}
