//! What must hold whatever happens to the files: nothing is lost, nothing counts twice.

use super::*;
use crate::base::{RunId, Timestamp};

const DAY: &str = "2026-11-16";

fn payment(agent: &str, session: &str, cost_usd: f64) -> Payment {
    let time: Timestamp = "2026-11-16T10:00:00Z".parse().unwrap();
    let (agent, session) = (agent.to_owned(), session.to_owned());
    Payment { time, run: RunId::new(), agent, session, cost_usd, ended: 1 }
}

fn assert_cost(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
}

#[test]
fn several_processes_see_what_the_others_paid() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (CostLedger::at(folder.path()), CostLedger::at(folder.path()));
    one.pay(payment("a", "s", 0.5));
    two.pay(payment("a", "s", 0.25));
    one.pay(payment("a", "t", -0.125));
    two.pay(payment("b", "s", 8.0));
    for ledger in [&one, &two, &CostLedger::at(folder.path())] {
        assert_cost(ledger.spent_on_day(DAY, "a"), 0.625);
        assert_cost(ledger.spent_on_day("2026-11-15", "a"), 0.0);
        assert_cost(ledger.spent_by_session("s"), 8.75);
        assert_eq!(ledger.accounts().iter().map(|account| account.runs).sum::<u64>(), 4);
    }
}

#[test]
fn two_processes_that_fold_lose_nothing_and_count_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let ledgers = [CostLedger::at(folder.path()), CostLedger::at(folder.path())];
    for line in 0..LONGEST_JOURNAL {
        // As an earlier version of the file would be filled, without waiting for the disk a thousand times.
        let text = serde_json::to_string(&payment("a", "s", 0.001)).unwrap() + "\n";
        let file = folder.path().join("costs-0.journal");
        let mut journal = fs::OpenOptions::new().append(true).create(true).open(file).unwrap();
        io::Write::write_all(&mut journal, text.as_bytes()).unwrap();
        if line == 500 {
            assert_cost(ledgers[1].spent_on_day(DAY, "a"), 0.501);
        }
    }
    ledgers[0].pay(payment("a", "s", 1.0));
    assert!(!folder.path().join("costs-0.journal").exists(), "the journal was folded");
    ledgers[1].pay(payment("a", "s", 1.0));
    for ledger in &ledgers {
        assert_cost(ledger.spent_on_day(DAY, "a"), 3.0);
    }
}

#[test]
fn a_crash_between_the_store_and_the_old_journal_counts_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = CostLedger::at(folder.path());
    ledger.pay(payment("a", "s", 0.5));
    let old = fs::read(folder.path().join("costs-0.journal")).unwrap();
    let mut image = ledger.image();
    let seen = image.seen.unwrap();
    ledger.fold(&mut image, seen).unwrap();
    drop(image);
    fs::write(folder.path().join("costs-0.journal"), old).unwrap();
    let after = CostLedger::at(folder.path());
    assert_cost(after.spent_on_day(DAY, "a"), 0.5);
    after.pay(payment("a", "s", 0.5));
    assert_cost(ledger.spent_on_day(DAY, "a"), 1.0);
}

#[test]
fn a_torn_line_is_written_over_and_a_strange_one_skipped() {
    let folder = tempfile::tempdir().unwrap();
    CostLedger::at(folder.path()).pay(payment("a", "s", 0.5));
    let file = folder.path().join("costs-0.journal");
    let mut text = fs::read_to_string(&file).unwrap();
    text.push_str("strange\n{\"time\":\"2026-11-16T1");
    fs::write(&file, text).unwrap();
    let ledger = CostLedger::at(folder.path());
    ledger.pay(payment("a", "s", 0.25));
    assert_cost(CostLedger::at(folder.path()).spent_on_day(DAY, "a"), 0.75);
}

#[test]
fn a_damaged_store_keeps_its_sound_lines_and_is_kept_for_people() {
    let folder = tempfile::tempdir().unwrap();
    let mut book = Book::default();
    book.pay(&payment("a", "s", 0.5));
    book.pay(&payment("b", "s", 0.25));
    let text = String::from_utf8(render(&book, 3)).unwrap();
    fs::write(folder.path().join("costs.json"), text.replace("\"b\"", "\"b")).unwrap();
    let ledger = CostLedger::at(folder.path());
    assert_cost(ledger.spent_by_session("s"), 0.5);
    let names = fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name());
    assert!(names.into_iter().any(|name| name.to_string_lossy().contains("damaged")));
}

#[test]
fn what_a_newer_version_wrote_is_read_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut book = Book::default();
    book.pay(&payment("a", "s", 0.5));
    let text =
        String::from_utf8(render(&book, 0)).unwrap().replace("\"format\": 1", "\"format\": 2");
    fs::write(folder.path().join("costs.json"), &text).unwrap();
    let ledger = CostLedger::at(folder.path());
    ledger.pay(payment("a", "s", 0.25));
    assert_cost(ledger.spent_by_session("s"), 0.75);
    assert_eq!(fs::read_to_string(folder.path().join("costs.json")).unwrap(), text);
    assert!(!folder.path().join("costs-0.journal").exists());
}

#[test]
fn what_cannot_be_written_counts_and_is_written_when_it_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::write(&data, "in the way").unwrap();
    let ledger = CostLedger::at(&data);
    ledger.pay(payment("a", "s", 0.5));
    assert_cost(ledger.spent_on_day(DAY, "a"), 0.5);
    fs::remove_file(&data).unwrap();
    ledger.pay(payment("a", "s", 0.5));
    assert_cost(CostLedger::at(&data).spent_on_day(DAY, "a"), 1.0);
}

#[test]
fn processes_of_earlier_days_become_one() {
    let mut book = Book::default();
    book.pay(&payment("a", "process-1", 0.5));
    book.pay(&payment("a", "process-2", 0.25));
    book.pay(&payment("a", "s", 1.0));
    let condensed = book.condensed("2026-11-17").accounts();
    let sessions: Vec<&str> = condensed.iter().map(|account| account.session.as_str()).collect();
    assert_eq!(sessions, ["process", "s"]);
    assert_cost(condensed[0].cost_usd, 0.75);
    assert_eq!(book.condensed(DAY).accounts().len(), 3);
}
