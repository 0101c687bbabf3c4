//! The reference, as Markdown: commands, settings, errors and metrics, each written from the table that the program itself
//! goes by.

use std::fmt::Write;

use clap::{Command, CommandFactory};
use weft_core::metrics::{Entry, Kind, Metrics, Stability, Unit};
use weft_core::{Actor, ErrorKind, Retry};
use weft_doors_fuse::errno_of;
use weft_doors_http::map::{Act, status};

use crate::config::Setting;
use crate::failure;

/// Labels with more values than these are not listed.
const VALUES_SHOWN_MAX: usize = 12;

/// Returns every page: the name of its file and its text.
pub fn pages() -> [(&'static str, String); 4] {
    [
        ("commands.md", commands()),
        ("settings.md", settings()),
        ("errors.md", errors()),
        ("metrics.md", metrics()),
    ]
}

/// What `--help` says of every command.
fn commands() -> String {
    let mut text = page("Commands", "What `--help` says.");
    let mut all = crate::Cli::command().disable_help_subcommand(true);
    all.build();
    help(&mut all, &mut text);
    text
}

fn help(command: &mut Command, text: &mut String) {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).replace('-', " ");
    let said = command.render_long_help().to_string();
    let lines: Vec<&str> = said.lines().map(str::trim_end).collect();
    put(text, format_args!("\n## {name}\n\n```text\n{}\n```\n", lines.join("\n").trim_end()));
    for below in command.get_subcommands_mut().filter(|below| !below.is_hide_set()) {
        help(below, text);
    }
}

fn settings() -> String {
    let mut text = page("Settings", "What `weft.toml` may hold; `weft config example` prints such a file.");
    text.push_str("\n| In the file | In the environment | At `weft up` | By default | Taken up | What it is for |\n|---|---|---|---|---|---|\n");
    for setting in Setting::ALL {
        let about = setting.about();
        let flag = about.flag.map(code).unwrap_or_default();
        let default = if about.default.is_empty() { String::new() } else { code(about.default) };
        let live = if about.live { "on SIGHUP" } else { "at a start" };
        let (name, variable) = (code(about.name), code(about.variable));
        row(&mut text, &[&name, &variable, &flag, &default, live, about.meaning]);
    }
    text
}

fn errors() -> String {
    let mut text = page(
        "Errors",
        "The kinds of errors, as `kind` in JSON, in logs and in the audit shows them. Their texts say more, and change.",
    );
    text.push_str(
        "\n| Kind | What it says | Again? | Who can mend it | Exit code | HTTP | On a mount |\n|---|---|---|---|---|---|---|\n",
    );
    for kind in ErrorKind::ALL {
        let again = match kind.retry() {
            Retry::Never => "no",
            Retry::Later => "later",
            Retry::Afresh => "after a new look, or a new login",
        };
        let mends = match kind.actor() {
            Actor::Caller => "whoever asked",
            Actor::Owner => "whoever owns the place",
            Actor::Operator => "whoever runs the node",
            Actor::Nobody => "time",
        };
        let exit = failure::exit_code(kind).to_string();
        let answer = status(kind, Act::Read).code().to_string();
        let errno = std::io::Error::from(errno_of(kind)).to_string();
        let errno = errno.split(" (os error").next().unwrap_or_default();
        row(&mut text, &[&code(kind.name()), kind.meaning(), again, mends, &exit, &answer, errno]);
    }
    text
}

fn metrics() -> String {
    let mut text = page("Metrics", "What `/metrics` tells. The numbers rise from 0 at each start.");
    text.push_str("\n| Name | Kind | Labels | What it says |\n|---|---|---|---|\n");
    for entry in Metrics::CATALOGUE {
        let labels: Vec<String> = entry.labels.iter().map(label).collect();
        row(&mut text, &[&code(entry.name), &kind(entry), &labels.join("; "), entry.help.trim()]);
    }
    text
}

fn kind(entry: &Entry) -> String {
    let kind = match entry.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
    };
    let trial = match entry.stability {
        Stability::Stable => "",
        Stability::Trial => ", on trial",
    };
    let unit = match entry.unit {
        Unit::Count => "",
        Unit::Bytes => ", bytes",
        Unit::Seconds => ", seconds",
        Unit::Flag => ", 1 or 0",
    };
    format!("{kind}{trial}{unit}")
}

fn label((name, values): &(&str, &[&str])) -> String {
    match values.len() {
        _ if *name == "version" => code(name),
        0..=VALUES_SHOWN_MAX => format!("`{name}`: {}", values.join(", ")),
        _ => format!("`{name}`: [those of errors](errors.md)"),
    }
}

fn page(title: &str, about: &str) -> String {
    format!("# {title}\n\n<!-- written by `weft manual`; see CONTRIBUTING.md -->\n\n{about}\n")
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn row(text: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    put(text, format_args!("| {} |\n", cells.join(" | ")));
}

fn put(text: &mut String, more: std::fmt::Arguments<'_>) {
    // A `String` takes whatever it is given.
    let _ = text.write_fmt(more);
}
