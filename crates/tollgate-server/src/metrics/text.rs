//! The text format that Prometheus and its kin read, version 0.0.4.

use std::fmt::Write;

use super::counters::{BOUNDS, Histogram};

/// What kind of number a name stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// It only grows.
    Counter,
    /// It comes and goes.
    Gauge,
}

/// The text, as it is written.
#[derive(Debug, Default)]
pub(crate) struct Text {
    text: String,
}

impl Text {
    /// What is told of the text to whoever gets it.
    pub(crate) const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// Begins a name; all its series follow.
    pub(crate) fn name(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.header(name, kind, help);
    }

    fn header(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One series.
    pub(crate) fn series(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        value: impl std::fmt::Display,
    ) {
        self.text.push_str(name);
        for (i, (label, value)) in labels.iter().enumerate() {
            self.text.push(if i == 0 { '{' } else { ',' });
            self.text.push_str(label);
            self.text.push_str("=\"");
            for c in value.chars() {
                match c {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// A name with its only series.
    pub(crate) fn alone(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        value: impl std::fmt::Display,
    ) {
        self.name(name, kind, help);
        self.series(name, &[], value);
    }

    /// Begins a histogram; its series follow.
    pub(crate) fn begin_histogram(&mut self, name: &str, help: &str) {
        self.header(name, "histogram", help);
    }

    /// Times by range.
    pub(crate) fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.header(name, "histogram", help);
        let (at_most, all, nanos) = histogram.read();
        let bucket = format!("{name}_bucket");
        for ((_, bound), count) in BOUNDS.iter().zip(at_most) {
            self.series(&bucket, &[("le", bound)], count);
        }
        self.series(&bucket, &[("le", "+Inf")], all);
        let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        self.series(
            &format!("{name}_sum"),
            &[],
            format_args!("{seconds}.{rest:09}"),
        );
        self.series(&format!("{name}_count"), &[], all);
    }

    /// All of it.
    pub(crate) fn finish(self) -> String {
        self.text
    }
}

/// `part` of `whole` with six digits behind the point.
pub(crate) fn in_millionths(part: usize, whole: usize) -> String {
    let millionths = (part as u128 * 1_000_000)
        .checked_div(whole as u128)
        .unwrap_or(0);
    format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_label_ends_the_label() {
        let mut text = Text::default();
        text.series("a", &[("l", "\"}\n1\\"), ("m", "ä")], 7);
        assert_eq!(text.finish(), "a{l=\"\\\"}\\n1\\\\\",m=\"ä\"} 7\n");
    }

    #[test]
    fn a_share_is_written_without_rounding_up() {
        assert_eq!(in_millionths(1, 3), "0.333333");
        assert_eq!(in_millionths(7, 7), "1.000000");
        assert_eq!(in_millionths(7, 0), "0.000000");
    }
}
