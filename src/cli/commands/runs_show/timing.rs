//! Time per phase of a run, as a bar chart for the terminal.

use crate::events::RunTimeline;

const MAX_BAR_WIDTH: f64 = 40.0;

/// Formats one line per phase; `rest` is the time that no phase accounts for.
pub(crate) fn format_timing(story: &RunTimeline) -> String {
    let spans: Vec<(&str, f64)> = story
        .timing_ms
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.as_f64()?)))
        .collect();
    if spans.is_empty() {
        return "no timing is recorded: the run goes on, or an earlier version made it".to_owned();
    }
    let known: f64 = spans.iter().map(|(_, time)| time).sum();
    let whole =
        story.duration_ms.and_then(|time| u32::try_from(time).ok()).map_or(known, f64::from);
    let rest = (whole - known).max(0.0);
    let mut lines = String::new();
    for (name, time) in spans.into_iter().chain([("rest", rest)]) {
        let share = (time / whole.max(0.1) * MAX_BAR_WIDTH).clamp(0.0, MAX_BAR_WIDTH);
        let bar: String =
            (0_u8..40).take_while(|column| f64::from(*column) < share).map(|_| '#').collect();
        lines.push_str(&format!("{:<12} {time:>10.1} ms  {bar}\n", name.replace('_', " ")));
    }
    lines.push_str(&format!("{:<12} {whole:>10.1} ms", "in all"));
    lines
}
