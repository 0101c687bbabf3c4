//! One line of the log, with the trace of the request that it was written for.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use weft_core::TraceId;
use weft_sys::trace;

/// Adds the trace to what another format makes of an event.
pub struct Line<F> {
    format: F,
    add: fn(&mut String, TraceId),
}

impl<F> Line<F> {
    /// Lines for people.
    pub fn text(format: F) -> Self {
        Self { format, add: add_to_text }
    }

    /// Lines for programs.
    pub fn json(format: F) -> Self {
        Self { format, add: add_to_json }
    }
}

impl<S, N, F> FormatEvent<S, N> for Line<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let own = event.metadata().fields().field("trace").is_some();
        let Some(trace) = trace::current().filter(|_| !own) else {
            return self.format.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.format.format_event(context, Writer::new(&mut line), event)?;
        (self.add)(&mut line, trace);
        writer.write_str(&line)
    }
}

fn add_to_text(line: &mut String, trace: TraceId) {
    line.truncate(line.trim_end_matches('\n').len());
    line.push_str(&format!(" trace={trace}\n"));
}

fn add_to_json(line: &mut String, trace: TraceId) {
    if let Some(object) = line.trim_end_matches('\n').strip_suffix('}') {
        let comma = if object.ends_with('{') { "" } else { "," };
        *line = format!("{object}{comma}\"trace\":\"{trace}\"}}\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_with_its_trace_and_stays_what_it_was() {
        let mut text = "INFO weft: ready\n".to_owned();
        add_to_text(&mut text, TraceId(0xab));
        assert_eq!(text, "INFO weft: ready trace=00000000000000ab\n");
        for (before, after) in [
            ("{\"level\":\"INFO\"}\n", "{\"level\":\"INFO\",\"trace\":\"00000000000000ab\"}\n"),
            ("{}\n", "{\"trace\":\"00000000000000ab\"}\n"),
        ] {
            let mut json = before.to_owned();
            add_to_json(&mut json, TraceId(0xab));
            assert_eq!(json, after);
        }
    }
}
