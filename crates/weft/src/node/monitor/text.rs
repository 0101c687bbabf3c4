//! Numbers as the text that Prometheus reads (exposition format, version 0.0.4).

use std::fmt::Write;

use weft_core::metrics::{Entry, Kind, Sample, Unit};

/// The media type of the text.
pub const MEDIA: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the text. Names, help and labels are the catalogue's, which holds nothing that would have to be
/// escaped.
pub fn render(families: &[(&'static Entry, Vec<Sample>)]) -> String {
    let mut text = String::new();
    for (entry, samples) in families {
        // Writing to a string cannot fail.
        let _ = write_family(&mut text, entry, samples);
    }
    text
}

fn write_family(text: &mut String, entry: &Entry, samples: &[Sample]) -> std::fmt::Result {
    let kind = match entry.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
    };
    writeln!(text, "# HELP {} {}\n# TYPE {0} {kind}", entry.name, entry.help.trim())?;
    for sample in samples {
        text.push_str(entry.name);
        for (at, (label, value)) in sample.labels.iter().enumerate() {
            write!(text, "{}{label}=\"{value}\"", if at == 0 { '{' } else { ',' })?;
        }
        text.push_str(if sample.labels.is_empty() { " " } else { "} " });
        match entry.unit {
            Unit::Seconds => writeln!(text, "{}.{:06}", sample.value / 1_000_000, sample.value % 1_000_000)?,
            Unit::Count | Unit::Bytes | Unit::Flag => writeln!(text, "{}", sample.value)?,
        }
    }
    Ok(())
}
