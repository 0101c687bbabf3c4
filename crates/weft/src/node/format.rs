//! Which program wrote a node's directory last, and in which format.
//!
//! Each part has a version of its own (tables, log, audit records, keys), and refuses what is newer. But a start
//! opens one part after the other, and would have changed the first by the time that the last refuses. So one small
//! file, [`FILE`], says what all of it is: it is read before anything is touched, and raised, durably, before
//! a newer program changes anything. A directory without it is older than it.

use std::path::Path;

use weft_core::{Error, ErrorKind, Result};
use weft_sys::{Disk, FlushSite, Open};

/// The file's name, in a node's directory and in a backup.
pub const FILE: &str = "format";
/// What it is called until it is whole: a start that was cut off may have left it.
pub const MAKING: &str = "format.new";
/// The format that this program writes: raised whenever something durable changes in a way that the program before
/// would not understand. What it stands for is listed in its tests.
pub const FORMAT: u32 = 2;
/// What a directory has that does not say: it was written before there was such a file.
const UNSAID: u32 = 1;
/// The first line's beginning.
const MAGIC: &str = "weft format ";
/// Bytes of the file that are looked at.
const BYTES_MAX: usize = 256;

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// Which format.
    pub number: u32,
    /// The version of the program that wrote it; empty if that is not known.
    pub program: String,
}

impl Format {
    /// Returns what this program writes.
    pub fn own() -> Self {
        Self { number: FORMAT, program: env!("CARGO_PKG_VERSION").to_owned() }
    }

    /// Reads what a directory or a backup says. `Corrupt` if that cannot be understood: whatever wrote it, this
    /// program would guess.
    pub fn read(disk: &dyn Disk) -> Result<Self> {
        let file = match disk.open(FILE, Open::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Self { number: UNSAID, program: String::new() });
            }
            Err(error) => return Err(error),
        };
        let mut bytes = [0; BYTES_MAX];
        let read = file.read(&mut bytes, 0)?;
        Self::parse(&bytes[..read]).ok_or_else(|| {
            Error::corrupt("it does not say which program wrote this")
                .op("read")
                .about(FILE)
                .hint("put back the file `format`, or restore a backup to another directory")
        })
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (first, rest) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
        let number = first.strip_prefix(MAGIC)?.parse().ok().filter(|number| *number > UNSAID)?;
        let program = rest.strip_prefix("written by weft ")?.strip_suffix('\n')?;
        let is_plain = |c: char| c.is_ascii_graphic();
        program.chars().all(is_plain).then(|| Self { number, program: program.to_owned() })
    }

    fn text(&self) -> String {
        format!("{MAGIC}{}\nwritten by weft {}\n", self.number, self.program)
    }

    /// Fails with `Unsupported` if a newer program wrote this, and says what to do. `what` it was about to do.
    pub fn check(&self, what: &'static str, path: &Path) -> Result<()> {
        if self.number <= FORMAT {
            return Ok(());
        }
        let Self { number, program } = self;
        let own = env!("CARGO_PKG_VERSION");
        Err(Error::unsupported(format!(
            "it was written by weft {program} in format {number}; this is weft {own}, which knows up to format {FORMAT}"
        ))
        .op(what)
        .about(path.display())
        .hint(format!(
            "use weft {program} or a newer one; to go back, restore a backup that weft {own} made to another directory"
        )))
    }

    /// Writes it, durably, unless it is there already. The old one stays whole until then.
    pub fn write(&self, disk: &dyn Disk) -> Result<()> {
        disk.replace(FILE, self.text().as_bytes(), FlushSite::NodeFormat)?;
        disk.sync_dir("", FlushSite::NodeFormatDir)
    }
}

#[cfg(test)]
mod tests;
