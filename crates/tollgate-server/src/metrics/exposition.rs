//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write};

use super::counters::{Bounds, Histogram};

/// The type of a metric.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// It only grows.
    Counter,
    /// It rises and falls.
    Gauge,
}

/// Metrics as text, as far as they are written.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    text: String,
}

impl Exposition {
    /// The media type of the text.
    pub(crate) const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// Writes a metric without labels.
    pub(crate) fn value(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help, [([], value)]);
    }

    /// Writes a metric with all its series: labels and value of each.
    pub(crate) fn family<'a, const N: usize, V: Display>(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        series: impl IntoIterator<Item = ([(&'a str, &'a str); N], V)>,
    ) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.header(name, kind, help);
        for (labels, value) in series {
            self.series(name, &labels, value);
        }
    }

    fn header(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn series(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
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

    /// Begins a histogram; [`Exposition::buckets`] follow.
    pub(crate) fn begin_histogram(&mut self, name: &str, help: &str) {
        self.header(name, "histogram", help);
    }

    /// Writes one series of a histogram of times: cumulative counts with their upper bounds in nanoseconds (`None` is infinity),
    /// and the sum of all times in nanoseconds.
    pub(crate) fn buckets(
        &mut self,
        name: &str,
        label: Option<(&str, &str)>,
        buckets: impl IntoIterator<Item = (Option<u64>, u64)>,
        sum_nanos: u128,
    ) {
        let bucket = format!("{name}_bucket");
        let mut count = 0;
        for (bound, cumulative) in buckets {
            let bound = bound.map_or("+Inf".into(), |nanos| seconds(nanos.into()));
            let labels = label.into_iter().chain([("le", bound.as_str())]);
            self.series(&bucket, &labels.collect::<Vec<_>>(), cumulative);
            count = cumulative;
        }
        let label: Vec<_> = label.into_iter().collect();
        self.series(&format!("{name}_sum"), &label, seconds(sum_nanos));
        self.series(&format!("{name}_count"), &label, count);
    }

    /// Writes a histogram without labels.
    pub(crate) fn histogram<B: Bounds>(
        &mut self,
        name: &str,
        help: &str,
        histogram: &Histogram<B>,
    ) {
        self.begin_histogram(name, help);
        let (buckets, nanos) = histogram.read();
        self.buckets(name, None, buckets, nanos.into());
    }

    /// Writes a histogram for each value of a label.
    pub(crate) fn histograms<'a, B: Bounds + 'a>(
        &mut self,
        name: &str,
        help: &str,
        histograms: impl IntoIterator<Item = ((&'a str, &'a str), &'a Histogram<B>)>,
    ) {
        self.begin_histogram(name, help);
        for (label, histogram) in histograms {
            let (buckets, nanos) = histogram.read();
            self.buckets(name, Some(label), buckets, nanos.into());
        }
    }

    /// The whole text.
    pub(crate) fn finish(self) -> String {
        self.text
    }
}

/// `part / whole` with six decimals, rounded down.
pub(crate) fn ratio(part: u64, whole: u64) -> String {
    let millionths = (u128::from(part) * 1_000_000)
        .checked_div(u128::from(whole))
        .unwrap_or(0);
    format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000)
}

/// Nanoseconds as seconds, without trailing zeros.
pub(crate) fn seconds(nanos: u128) -> String {
    let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    let text = text.trim_end_matches('0');
    text.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_escaped() {
        let mut text = Exposition::default();
        text.series("a", &[("l", "\"}\n1\\"), ("m", "ä")], 7);
        assert_eq!(text.finish(), "a{l=\"\\\"}\\n1\\\\\",m=\"ä\"} 7\n");
    }

    #[test]
    fn a_ratio_is_rounded_down() {
        assert_eq!(ratio(1, 3), "0.333333");
        assert_eq!(ratio(7, 7), "1.000000");
        assert_eq!(ratio(7, 0), "0.000000");
    }

    #[test]
    fn nanoseconds_are_written_as_seconds() {
        for (nanos, text) in [
            (50_000, "0.00005"),
            (1_500_000, "0.0015"),
            (1_000_000_000, "1"),
            (1, "0.000000001"),
            (0, "0"),
        ] {
            assert_eq!(seconds(nanos), text);
        }
    }
}
