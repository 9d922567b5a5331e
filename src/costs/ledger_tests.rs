//! After any failure no cost is lost and none counts twice.

use std::{fs, io};

use super::*;
use crate::store::State;
use crate::util::{RunId, Timestamp};

const MAX_FILE_BYTES: u64 = 256 << 20;

const DAY: &str = "2026-11-16";

fn cost_entry(agent: &str, session: &str, cost_usd: f64) -> CostEntry {
    let time: Timestamp = "2026-11-16T10:00:00Z".parse().unwrap();
    let (agent, session) = (agent.to_owned(), session.to_owned());
    CostEntry { time, run: RunId::new(), agent, session, cost_usd, ended: 1 }
}

fn assert_cost(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
}

#[test]
fn processes_see_the_costs_posted_by_others() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (CostLedger::at(folder.path()), CostLedger::at(folder.path()));
    one.post(cost_entry("a", "s", 0.5));
    two.post(cost_entry("a", "s", 0.25));
    one.post(cost_entry("a", "t", -0.125));
    two.post(cost_entry("b", "s", 8.0));
    for ledger in [&one, &two, &CostLedger::at(folder.path())] {
        assert_cost(ledger.spent_on_day(DAY, "a").unwrap(), 0.625);
        assert_cost(ledger.spent_on_day("2026-11-15", "a").unwrap(), 0.0);
        assert_cost(ledger.spent_by_session("s").unwrap(), 8.75);
        assert_eq!(ledger.accounts().unwrap().iter().map(|account| account.runs).sum::<u64>(), 4);
    }
}

#[test]
fn concurrent_compactions_neither_lose_nor_count_twice() {
    let folder = tempfile::tempdir().unwrap();
    let ledgers = [CostLedger::at(folder.path()), CostLedger::at(folder.path())];
    for line in 0..CostTable::MAX_LINES {
        // Written directly, to avoid a thousand fsyncs.
        let text = serde_json::to_string(&cost_entry("a", "s", 0.001)).unwrap() + "\n";
        let file = folder.path().join("costs-0.journal");
        let mut journal = fs::OpenOptions::new().append(true).create(true).open(file).unwrap();
        io::Write::write_all(&mut journal, text.as_bytes()).unwrap();
        if line == 500 {
            assert_cost(ledgers[1].spent_on_day(DAY, "a").unwrap(), 0.501);
        }
    }
    ledgers[0].post(cost_entry("a", "s", 1.0));
    assert!(!folder.path().join("costs-0.journal").exists(), "the journal was folded");
    ledgers[1].post(cost_entry("a", "s", 1.0));
    for ledger in &ledgers {
        assert_cost(ledger.spent_on_day(DAY, "a").unwrap(), 3.0);
    }
}

#[test]
fn a_crash_during_compaction_counts_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = CostLedger::at(folder.path());
    ledger.post(cost_entry("a", "s", 0.5));
    let old = fs::read(folder.path().join("costs-0.journal")).unwrap();
    ledger.journal.compact().unwrap();
    assert!(!folder.path().join("costs-0.journal").exists());
    fs::write(folder.path().join("costs-0.journal"), old).unwrap();
    let after = CostLedger::at(folder.path());
    assert_cost(after.spent_on_day(DAY, "a").unwrap(), 0.5);
    after.post(cost_entry("a", "s", 0.5));
    assert_cost(ledger.spent_on_day(DAY, "a").unwrap(), 1.0);
}

#[test]
fn a_torn_line_is_overwritten_and_an_invalid_one_skipped() {
    let folder = tempfile::tempdir().unwrap();
    CostLedger::at(folder.path()).post(cost_entry("a", "s", 0.5));
    let file = folder.path().join("costs-0.journal");
    let mut text = fs::read_to_string(&file).unwrap();
    text.push_str("strange\n{\"time\":\"2026-11-16T1");
    fs::write(&file, text).unwrap();
    let ledger = CostLedger::at(folder.path());
    ledger.post(cost_entry("a", "s", 0.25));
    assert_cost(CostLedger::at(folder.path()).spent_on_day(DAY, "a").unwrap(), 0.75);
}

#[test]
fn a_damaged_store_keeps_its_valid_lines_and_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let mut book = CostTable::default();
    book.apply(&cost_entry("a", "s", 0.5));
    book.apply(&cost_entry("b", "s", 0.25));
    let text = String::from_utf8(book.encode(3)).unwrap();
    fs::write(folder.path().join("costs.json"), text.replace("\"b\"", "\"b")).unwrap();
    let ledger = CostLedger::at(folder.path());
    assert_cost(ledger.spent_by_session("s").unwrap(), 0.5);
    let names = fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name());
    assert!(names.into_iter().any(|name| name.to_string_lossy().contains("damaged")));
}

#[test]
fn a_newer_format_is_read_but_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut book = CostTable::default();
    book.apply(&cost_entry("a", "s", 0.5));
    let text = String::from_utf8(book.encode(0)).unwrap().replace("\"format\": 1", "\"format\": 2");
    fs::write(folder.path().join("costs.json"), &text).unwrap();
    let ledger = CostLedger::at(folder.path());
    ledger.post(cost_entry("a", "s", 0.25));
    assert_cost(ledger.spent_by_session("s").unwrap(), 0.75);
    assert_eq!(fs::read_to_string(folder.path().join("costs.json")).unwrap(), text);
    assert!(!folder.path().join("costs-0.journal").exists());
}

#[test]
fn unwritable_costs_count_and_are_written_later() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::write(&data, "in the way").unwrap();
    let ledger = CostLedger::at(&data);
    ledger.post(cost_entry("a", "s", 0.5));
    assert_cost(ledger.spent_on_day(DAY, "a").unwrap(), 0.5);
    fs::remove_file(&data).unwrap();
    ledger.post(cost_entry("a", "s", 0.5));
    assert_cost(CostLedger::at(&data).spent_on_day(DAY, "a").unwrap(), 1.0);
}

#[test]
fn an_unreadable_store_is_an_error_and_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let mut book = CostTable::default();
    book.apply(&cost_entry("a", "s", 0.5));
    let (store, text) = (folder.path().join("costs.json"), book.encode(1));
    fs::write(&store, &text).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&store).unwrap();
    file.set_len(MAX_FILE_BYTES + 1).unwrap();
    let ledger = CostLedger::at(folder.path());
    for _ in 0..=CostTable::MAX_LINES {
        ledger.post(cost_entry("a", "s", 0.25));
    }
    assert!(ledger.spent_on_day(DAY, "a").is_err(), "an unreadable store is not an empty one");
    assert_eq!(fs::metadata(&store).unwrap().len(), MAX_FILE_BYTES + 1, "it is still there");
    file.set_len(text.len() as u64).unwrap();
    ledger.post(cost_entry("a", "s", 0.25));
    let payments = u32::try_from(CostTable::MAX_LINES).unwrap() + 2;
    let all = 0.5 + 0.25 * f64::from(payments);
    assert_cost(CostLedger::at(folder.path()).spent_on_day(DAY, "a").unwrap(), all);
}

#[test]
fn an_unreadable_journal_is_an_error_and_is_not_truncated() {
    let folder = tempfile::tempdir().unwrap();
    CostLedger::at(folder.path()).post(cost_entry("a", "s", 0.5));
    let journal = folder.path().join("costs-0.journal");
    fs::OpenOptions::new().write(true).open(&journal).unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();
    let ledger = CostLedger::at(folder.path());
    assert!(ledger.spent_on_day(DAY, "a").is_err());
    ledger.post(cost_entry("a", "s", 0.25));
    assert_eq!(fs::metadata(&journal).unwrap().len(), MAX_FILE_BYTES + 1);
}
