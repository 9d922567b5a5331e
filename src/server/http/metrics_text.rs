//! Text format of Prometheus: metric families with help and type, samples with labels.

use std::fmt::{Display, Write};

/// Builder for a page of metrics.
#[derive(Debug, Default)]
pub(crate) struct Exposition(String);

/// Type of a metric family.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MetricType {
    Counter,
    Gauge,
    Histogram,
}

impl Exposition {
    /// Starts a family; its samples must follow.
    pub(crate) fn family(&mut self, name: &str, kind: MetricType, help: &str) {
        let kind = match kind {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
        };
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a sample to the current family. Label values are escaped.
    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (place, (label, text)) in labels.iter().enumerate() {
            let open = if place == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{open}{label}=\"{}\"", escape_label_value(text));
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {value}");
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

/// Escapes a label value: names can contain any character, and a line holds one sample.
fn escape_label_value(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_cannot_forge_a_sample() {
        let mut page = Exposition::default();
        page.family("x_total", MetricType::Counter, "Things.");
        page.sample("x_total", &[("a", "q\"} 1\nforged 2\\"), ("b", "")], 3);
        let text = page.into_text();
        assert_eq!(
            text,
            "# HELP x_total Things.\n# TYPE x_total counter\nx_total{a=\"q\\\"} 1\\nforged 2\\\\\",b=\"\"} 3\n"
        );
    }
}
