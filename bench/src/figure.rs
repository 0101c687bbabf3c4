//! The figures, one file each, and how large each is made.

mod acl;
mod dav;
mod form;
mod http;
mod kv;
mod limits;
mod mount;
mod moving;
mod rows;
mod share;
mod stalled;
mod standing;

use crate::Result;
use crate::machine::{self, Missing};
use crate::report::{Limit, Report, introduce};

/// Runs our side of a comparison in this process: `LAYER FOLDER WHAT CALLERS COUNT DIRS`.
/// Returns operations per second.
pub fn side(words: &[String]) -> Result<f64> {
    let [layer, folder, what, callers, count, dirs] = words else {
        return Err("side wants six words".into());
    };
    let work = rows::Work { callers: callers.parse()?, count: count.parse()?, dirs: dirs.parse()? };
    std::fs::create_dir_all(folder)?;
    let runtime = tokio::runtime::Runtime::new()?;
    match layer.as_str() {
        "rows" => runtime.block_on(rows::run(folder.as_ref(), what, work)),
        "form" => runtime.block_on(form::run(folder.as_ref(), what, work)),
        _ => Err(format!("unknown layer: {layer}").into()),
    }
}

/// Measures quickly what the machine can do, and prints it with the machine and its load: once
/// before the figures of an invocation.
pub fn limits_here(size: Size) -> Result<Vec<Limit>> {
    let limits = limits::quick(size)?;
    introduce(&limits);
    Ok(limits)
}

/// How large a bench is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// For tests: a second, says nothing about speed.
    Small,
    /// A minute or so.
    Usual,
    /// What a report quotes.
    Full,
}

impl Size {
    /// Returns the number for this size.
    pub fn pick<T>(self, small: T, usual: T, full: T) -> T {
        match self {
            Self::Small => small,
            Self::Usual => usual,
            Self::Full => full,
        }
    }

    /// Rounds after the warm-up.
    pub fn rounds(self) -> usize {
        self.pick(1, 5, 9)
    }
}

/// One bench.
pub struct Figure {
    /// Its name: `cargo xtask bench NAME`.
    pub name: &'static str,
    /// What it measures, beside what.
    pub about: &'static str,
    measure: fn(&mut Report, Size) -> Result<()>,
}

/// Every bench there is.
pub const FIGURES: &[Figure] = &[
    figure("limits", "what this machine can do: loopback, memory, sendfile, flush, FUSE", limits::measure),
    figure("kv.create", "durable creates by 1, 16 and 64 callers, beside SQLite", kv::create),
    figure("kv.lookup", "lookups of resident rows, beside SQLite and PostgreSQL", kv::lookup),
    figure("kv.list", "listings of resident rows, beside SQLite and PostgreSQL", kv::list),
    figure("kv.rename", "durable renames, beside SQLite and PostgreSQL", kv::rename),
    figure("meta.create", "durable creates through the request form, beside SQLite", kv::form_create),
    figure("meta.lookup", "lookups through the request form, beside SQLite and PostgreSQL", kv::form_lookup),
    figure("meta.list", "listings through the request form, beside SQLite and PostgreSQL", kv::form_list),
    figure(
        "meta.rename",
        "durable renames through the request form, beside SQLite and PostgreSQL",
        kv::form_rename,
    ),
    figure("meta.stalled", "metadata calls beside readers that have stopped, and alone", stalled::measure),
    figure("acl", "the ACL of a container of 1 M objects changed, beside one of ten", acl::measure),
    figure("http.peers", "nginx, XRootD and the least durable server, alone", http::peers),
    figure("http.get.1g", "a resident file of 1 GiB, beside nginx, XRootD and iperf3", http::get_large),
    figure("http.get.1g.tls", "the same over TLS 1.3, beside nginx", http::get_large_secured),
    figure("http.get.170k", "170 KiB over 16 connections, beside nginx", http::get_middling),
    figure("http.get.1k", "1 KiB over 16 connections, beside nginx", http::get_tiny),
    figure("http.put.1g", "a durable upload, beside the least durable server and nginx", http::put_large),
    figure("http.put.small", "durable 4 KiB uploads over 16 connections, beside the same", http::put_small),
    figure(
        "http.export.get.1g",
        "a resident file served in place, beside the same servers over it",
        http::get_large_shared,
    ),
    figure(
        "http.export.get.170k",
        "170 KiB served in place, beside nginx over the same file",
        http::get_middling_shared,
    ),
    figure(
        "http.export.get.1k",
        "1 KiB served in place, beside nginx over the same file",
        http::get_tiny_shared,
    ),
    figure("http.export.put.1g", "a durable upload into a directory served in place", http::put_large_shared),
    figure(
        "http.export.put.small",
        "durable 4 KiB uploads into a directory served in place",
        http::put_small_shared,
    ),
    figure("dav.propfind", "10 000 entries by WebDAV, beside Apache", dav::propfind),
    figure("share.list", "a directory served in place, listed whole, beside `find`", share::list),
    figure("import.src", "50 000 small files brought into a node, beside `rsync -a`", moving::source_tree),
    figure("import.pdb", "12 000 files as in the Protein Data Bank, beside `cp -r`", moving::protein_data),
    figure(
        "mount.read",
        "1 GiB, and 4 KiB of it at a time, through a mount, beside passthrough_hp",
        mount::read,
    ),
    figure("mount.write", "1 GiB written through a mount and flushed, beside the same", mount::write),
    figure(
        "mount.names",
        "files made and looked at through a mount, beside the same and bindfs",
        mount::names,
    ),
    figure(
        "mount.tree",
        "3 000 files, of the whole size 50 000, untarred through a mount, beside the same",
        mount::tree,
    ),
    figure(
        "mount.walk",
        "10 000 files, of the whole size 100 000, walked by find and du through a mount, beside the same",
        mount::walk,
    ),
    figure("mount.clone", "this repository cloned onto a mount, beside the bare directory", mount::clone),
    figure("mount.memory", "memory of a mount that reads a file without bytes", mount::memory),
    figure("idle", "memory, threads and 10 000 idle connections, beside nginx", standing::idle),
    figure("start", "from `weft up` after kill -9 to the first answer", standing::start),
];

const fn figure(
    name: &'static str,
    about: &'static str,
    measure: fn(&mut Report, Size) -> Result<()>,
) -> Figure {
    Figure { name, about, measure }
}

impl Figure {
    /// Whether `word` names this bench or begins its name at a dot.
    pub fn answers_to(&self, word: &str) -> bool {
        self.name == word || self.name.strip_prefix(word).is_some_and(|rest| rest.starts_with('.'))
    }

    /// Runs it and writes its report, beside what the machine can do at all. In its small size, for
    /// tests, what this machine lacks is reported as not measured.
    pub fn run(&self, size: Size, limits: &[Limit]) -> Result<()> {
        let mut report = Report::new(self.name);
        let outcome = (self.measure)(&mut report, size);
        match (outcome, size) {
            (Ok(()), Size::Small) => Ok(()),
            (Ok(()), _) => report.write(&machine::root().join("bench/results"), limits),
            (Err(why), Size::Small) if why.is::<Missing>() => report.missing(self.name, &why.to_string()),
            (Err(why), _) => Err(why),
        }
    }
}
