//! The text that Prometheus reads, written plainly: families with their help and type, and samples with labels.

use std::fmt::{Display, Write};

/// A page under construction.
#[derive(Debug, Default)]
pub(super) struct Exposition(String);

/// What a family's numbers mean.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Exposition {
    /// Begins a family; its samples follow.
    pub(super) fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One number.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (place, (label, text)) in labels.iter().enumerate() {
            let open = if place == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{open}{label}=\"{}\"", escaped(text));
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {value}");
    }

    /// The page.
    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// A name can hold anything; a line holds one sample.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_forge_a_sample() {
        let mut page = Exposition::default();
        page.family("x_total", Kind::Counter, "Things.");
        page.sample("x_total", &[("a", "q\"} 1\nforged 2\\"), ("b", "")], 3);
        let text = page.into_text();
        assert_eq!(
            text,
            "# HELP x_total Things.\n# TYPE x_total counter\nx_total{a=\"q\\\"} 1\\nforged 2\\\\\",b=\"\"} 3\n"
        );
    }
}
