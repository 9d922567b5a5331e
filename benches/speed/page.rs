//! The page with the plots, the command and the properties of the machine.

use std::fs;
use std::path::Path;

use crate::plot::{format_number, svg};
use crate::{Goal, Row};

/// Writes one plot per row and the page that contains them.
pub fn write(folder: &Path, rows: &[Row]) {
    fs::create_dir_all(folder).unwrap();
    let mut table = String::from(
        "| what | against | Adjutant | other | ratio | goal | |\n|---|---|---|---|---|---|---|\n",
    );
    let mut plots = String::new();
    for row in rows {
        let file = format!("{}.svg", row.name);
        fs::write(folder.join(&file), svg(row)).unwrap();
        let goal = match row.goal {
            Goal::AtMost(most) => format!("≤ {most}"),
            Goal::AtLeastTimesFaster(times) => format!("≥ {times} times faster"),
        };
        table.push_str(&format!(
            "| {} | {} | {} | {} | {:.3} | {goal} | {} |\n",
            row.title,
            row.baseline,
            format_number(row.ours, row.unit),
            format_number(row.theirs, row.unit),
            row.ratio(),
            if row.is_reached() { "reached" } else { "**missed**" },
        ));
        plots.push_str(&format!("![{}]({file})\n\n", row.title.replace('`', "")));
    }
    let page = format!(
        "# Benchmarks\n\nWhat a delegation through Adjutant costs, against doing the same without it. Written by `cargo bench --bench speed`; \
         [benches/README.md](../../benches/README.md) says what it needs and how each row is measured.\n\n{}\n{table}\n\
         The red line in a plot is the goal. Shorter bars are better.\n\n{}",
        machine_description(),
        plots.trim_end(),
    );
    fs::write(folder.join("README.md"), format!("{}\n", page.trim_end())).unwrap();
}

/// CPU, memory, kernel and load of the machine.
fn machine_description() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let (cpu, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    format!(
        "Measured with `claude` 2.1.325 and a scripted model that answers after {} ms, on {} ({cores} cores, {} of memory, Linux {}), \
         load at the end {}. Medians of alternating rounds.\n",
        crate::delegation::ANSWER_TIME.as_millis(),
        field(&cpu, "model name"),
        field(&memory, "MemTotal"),
        kernel.trim(),
        load.split_whitespace().next().unwrap_or("unknown"),
    )
}
