//! Writes metrics as text: OpenMetrics 1.0 and the older format of Prometheus (its documentation, "Exposition
//! formats").

use std::fmt::{self, Write};

use crate::Source;

/// Samples of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// The name without `_total`, of letters, digits and `_`.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// What the numbers are.
    pub kind: Kind,
    /// No two have the same labels.
    pub samples: Vec<Sample>,
}

/// The kind of a family's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows while Weir runs.
    Counter,
    /// A counter whose name without `_total` is a gauge's. OpenMetrics has no room for both, and calls it unknown.
    NamesakeCounter,
    /// Is what it is now.
    Gauge,
    /// Durations or sizes, in buckets.
    Histogram,
}

/// A number and what it is the number of.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Names as the family's, values of any text.
    pub labels: Vec<(&'static str, String)>,
    /// The number. In a histogram buckets, else one of the others.
    pub number: Number,
}

/// The number of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Number {
    /// A whole one.
    Integer(u64),
    /// Any other.
    Float(f64),
    /// Those of a histogram.
    Buckets(Buckets),
}

/// A histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buckets {
    /// How many were at most so large, by rising limits; without the last bucket, which has no limit.
    pub up_to: Vec<(f64, u64)>,
    /// How many there were.
    pub count: u64,
    /// All together.
    pub sum: f64,
}

/// The text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `application/openmetrics-text; version=1.0.0`
    OpenMetrics,
    /// `text/plain; version=0.0.4`
    Prometheus,
}

impl Format {
    /// The one that a client wants by its `Accept` header: OpenMetrics where it is named at all.
    pub(crate) fn wanted(accept: Option<&str>) -> Self {
        let is_open = accept.is_some_and(|accept| accept.contains("application/openmetrics-text"));
        if is_open { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// The value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

impl Family {
    /// A counter.
    pub fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: Kind::Counter, samples: Vec::new() }
    }

    /// A gauge.
    pub fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: Kind::Gauge, samples: Vec::new() }
    }

    /// A histogram.
    pub fn histogram(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: Kind::Histogram, samples: Vec::new() }
    }

    /// Adds a sample.
    pub fn add(&mut self, labels: &[(&'static str, &str)], number: impl Into<Number>) {
        let labels = labels.iter().map(|&(name, value)| (name, value.to_owned())).collect();
        self.samples.push(Sample { labels, number: number.into() });
    }

    /// With a sample more.
    pub fn with(mut self, labels: &[(&'static str, &str)], number: impl Into<Number>) -> Self {
        self.add(labels, number);
        self
    }
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Self::Integer(number)
    }
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl From<Buckets> for Number {
    fn from(buckets: Buckets) -> Self {
        Self::Buckets(buckets)
    }
}

/// All metrics of now. Families without a sample are left out.
pub fn metrics_text(source: &dyn Source, format: Format) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_all(&source.metrics(), format, &mut text);
    text
}

fn write_all(families: &[Family], format: Format, out: &mut String) -> fmt::Result {
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        write_family(family, format, out)?;
    }
    match format {
        Format::OpenMetrics => writeln!(out, "# EOF"),
        Format::Prometheus => Ok(()),
    }
}

fn write_family(family: &Family, format: Format, out: &mut String) -> fmt::Result {
    // The older format knows no families: there a counter's name is that of its samples.
    let (kind, total, described) = match (family.kind, format) {
        (Kind::Counter, Format::OpenMetrics) => ("counter", "_total", ""),
        (Kind::NamesakeCounter, Format::OpenMetrics) => ("unknown", "_total", "_total"),
        (Kind::Counter | Kind::NamesakeCounter, Format::Prometheus) => ("counter", "_total", "_total"),
        (Kind::Gauge, _) => ("gauge", "", ""),
        (Kind::Histogram, _) => ("histogram", "", ""),
    };
    let name = family.name;
    writeln!(out, "# HELP {name}{described} {}", Escaped(family.help))?;
    writeln!(out, "# TYPE {name}{described} {kind}")?;
    for sample in &family.samples {
        let labels = &sample.labels;
        match &sample.number {
            Number::Buckets(buckets) => write_buckets(name, labels, buckets, out)?,
            number => write_sample(name, total, labels, None, number, out)?,
        }
    }
    Ok(())
}

fn write_buckets(
    name: &str,
    labels: &[(&'static str, String)],
    buckets: &Buckets,
    out: &mut String,
) -> fmt::Result {
    for (limit, count) in &buckets.up_to {
        write_sample(name, "_bucket", labels, Some(*limit), &Number::Integer(*count), out)?;
    }
    let count = Number::Integer(buckets.count);
    write_sample(name, "_bucket", labels, Some(f64::INFINITY), &count, out)?;
    write_sample(name, "_count", labels, None, &count, out)?;
    write_sample(name, "_sum", labels, None, &Number::Float(buckets.sum), out)
}

fn write_sample(
    name: &str,
    suffix: &str,
    labels: &[(&'static str, String)],
    limit: Option<f64>,
    number: &Number,
    out: &mut String,
) -> fmt::Result {
    write!(out, "{name}{suffix}")?;
    let mut separator = '{';
    for (label, value) in labels {
        write!(out, "{separator}{label}=\"{}\"", Escaped(value))?;
        separator = ',';
    }
    if let Some(limit) = limit {
        write!(out, "{separator}le=\"{}\"", Float(limit))?;
        separator = ',';
    }
    if separator == ',' {
        out.push('}');
    }
    match number {
        Number::Integer(number) => writeln!(out, " {number}"),
        Number::Float(number) => writeln!(out, " {}", Float(*number)),
        Number::Buckets(buckets) => writeln!(out, " {}", buckets.count),
    }
}

/// A text in which nothing ends a line or a label. `\"` means the same in both formats' labels; no help text has one.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// A number in the form that OpenMetrics calls canonical: always with a point.
struct Float(f64);

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            infinite if infinite == f64::INFINITY => f.write_str("+Inf"),
            infinite if infinite == f64::NEG_INFINITY => f.write_str("-Inf"),
            nan if nan.is_nan() => f.write_str("NaN"),
            number => write!(f, "{number:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(families: &[Family], format: Format) -> String {
        let mut text = String::new();
        write_all(families, format, &mut text).unwrap();
        text
    }

    #[test]
    fn both_formats_as_their_documents_have_them() {
        let buckets = Buckets { up_to: vec![(0.001, 2), (1.0, 3)], count: 4, sum: 5.5 };
        let families = [
            Family::counter("questions", "Statements.").with(&[], 7),
            Family::gauge("empty", "Is left out."),
            Family::gauge("conns", "Connections.").with(&[("endpoint", "db1:3306"), ("status", "used")], 2),
            Family::histogram("took_seconds", "Durations.").with(&[("hostgroup", "1")], buckets),
        ];
        let samples = "took_seconds_bucket{hostgroup=\"1\",le=\"0.001\"} 2\n\
             took_seconds_bucket{hostgroup=\"1\",le=\"1.0\"} 3\n\
             took_seconds_bucket{hostgroup=\"1\",le=\"+Inf\"} 4\n\
             took_seconds_count{hostgroup=\"1\"} 4\n\
             took_seconds_sum{hostgroup=\"1\"} 5.5\n";
        let rest = format!(
            "# HELP conns Connections.\n# TYPE conns gauge\n\
             conns{{endpoint=\"db1:3306\",status=\"used\"}} 2\n\
             # HELP took_seconds Durations.\n# TYPE took_seconds histogram\n{samples}"
        );
        let open = "# HELP questions Statements.\n# TYPE questions counter\nquestions_total 7\n";
        assert_eq!(text(&families, Format::OpenMetrics), format!("{open}{rest}# EOF\n"));
        let old = "# HELP questions_total Statements.\n# TYPE questions_total counter\nquestions_total 7\n";
        assert_eq!(text(&families, Format::Prometheus), format!("{old}{rest}"));
    }

    #[test]
    fn a_counter_and_a_gauge_of_one_name_are_two_families() {
        let families = [
            Family { kind: Kind::NamesakeCounter, ..Family::counter("conns", "Opened.") }.with(&[], 7),
            Family::gauge("conns", "Open.").with(&[], 3),
        ];
        let gauge = "# HELP conns Open.\n# TYPE conns gauge\nconns 3\n";
        let counter =
            |kind: &str| format!("# HELP conns_total Opened.\n# TYPE conns_total {kind}\nconns_total 7\n");
        assert_eq!(text(&families, Format::OpenMetrics), format!("{}{gauge}# EOF\n", counter("unknown")));
        assert_eq!(text(&families, Format::Prometheus), format!("{}{gauge}", counter("counter")));
    }

    #[test]
    fn the_accept_header_of_prometheus() {
        let accept = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::wanted(Some(accept)), Format::OpenMetrics);
        assert_eq!(Format::wanted(Some("text/plain")), Format::Prometheus);
        assert_eq!(Format::wanted(None), Format::Prometheus);
    }

    proptest! {
        /// A statement's text is a label: whatever is in it, it stays one line and one label.
        #[test]
        fn a_label_has_no_way_out(value in any::<String>()) {
            let families = [Family::gauge("a", "b").with(&[("text", &value)], 1)];
            let text = text(&families, Format::Prometheus);
            let lines: Vec<&str> = text.split_terminator('\n').collect();
            prop_assert_eq!(lines.len(), 3);
            let inner = lines[2].strip_prefix("a{text=\"").and_then(|rest| rest.strip_suffix("\"} 1")).unwrap();
            let mut back = String::new();
            let mut chars = inner.chars();
            while let Some(c) = chars.next() {
                prop_assert_ne!(c, '"');
                back.push(match c {
                    '\\' => match chars.next().unwrap() { 'n' => '\n', other => other },
                    c => c,
                });
            }
            prop_assert_eq!(back, value);
        }
    }
}
