//! The only calls into the library: the program rotates an audit log at 1 MiB at the earliest.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use adjutant::audit::{ArgumentDetail, AuditEntry, AuditLog, AuditOptions};
use adjutant::identity::{Caller, KnownBy};
use adjutant::util::RunId;
use serde_json::json;

const DAY: Duration = Duration::from_hours(24);

/// Entries 1 to 7 in three files, each rotated file with three of them.
pub(super) fn write_rotated_audit_log(path: &Path) {
    for number in 1..=7 {
        write_audit_entry(path, number, None);
    }
}

/// The same log after the first file was older than the retention and was removed.
pub(super) fn write_pruned_audit_log(path: &Path) {
    write_rotated_audit_log(path);
    let oldest = fs::File::options()
        .append(true)
        .open(path.with_file_name("audit.000000000003.jsonl"))
        .unwrap();
    oldest.set_modified(SystemTime::now() - 10 * DAY).unwrap();
    write_audit_entry(path, 8, Some(DAY));
}

fn write_audit_entry(path: &Path, number: usize, retention: Option<Duration>) {
    let begins_file = number == 4 || number == 7;
    let options = AuditOptions {
        fail_closed: true,
        rotate_bytes: if begins_file { 1 } else { u64::MAX },
        arguments: ArgumentDetail::Full,
        retention,
    };
    let mut line =
        AuditEntry::new("execute_tool").with_target("db", Some(&format!("tool_{number}")));
    line.caller = Some(Caller::new("dev", KnownBy::Pipe));
    if number == 2 {
        line =
            line.with_denial("DENIED_BY_POLICY", "`dev` may not use `tool_2` of `db`".to_owned());
        line.run_id = Some(RunId::new());
        line.call_id = Some("toolu_2".to_owned());
        line.arguments = Some(json!({ "path": "/srv/ä\n\u{1b}", "limit": 1.5 }));
        line.duration = Some(Duration::from_micros(1_500));
        (line.request_bytes, line.response_bytes) = (Some(40), Some(0));
    }
    AuditLog::open(path, options).write(&line).unwrap();
}
