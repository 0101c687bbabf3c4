//! A file that is put aside when it is full, and begun anew: `log`, `log.1`, `log.2` …
//!
//! A line goes into one file, whole. No line is lost because files cannot be renamed or opened: then the
//! one there is grows on, and it is tried again later.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use weft_core::Result;
use weft_sys::{fault, process};

/// The file, open at its end.
pub struct Rolling {
    path: PathBuf,
    bytes_max: u64,
    kept: u32,
    file: File,
    /// Bytes in it.
    length: u64,
    /// Bytes that it may have before it is put aside: more than `bytes_max` once that has failed.
    full: u64,
}

impl Rolling {
    /// Opens the file, or makes it, closed to everybody else. `kept` full ones stay.
    pub fn open(path: &Path, bytes_max: u64, kept: u32) -> Result<Self> {
        let opened = open(path).map_err(|error| fault::error(error, "open the log in", path.display()));
        let (file, length) = opened?;
        Ok(Self { path: path.to_path_buf(), bytes_max, kept, file, length, full: bytes_max })
    }

    /// Writes a line. Before one that would not fit, the file is put aside.
    pub fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let length = line.len() as u64;
        if self.length > 0 && self.length + length > self.full && self.turn_over().is_err() {
            self.full = self.length + self.bytes_max / 4;
        }
        self.file.write_all(line)?;
        self.length += length;
        Ok(())
    }

    /// Goes on in the file of that name, whichever it is now.
    pub fn reopen(&mut self) -> Result<()> {
        *self = Self::open(&self.path, self.bytes_max, self.kept)?;
        Ok(())
    }

    fn turn_over(&mut self) -> io::Result<()> {
        if !self.path.try_exists()? {
            // Somebody took it away: there is nothing to put aside.
            return self.begin();
        }
        // From the oldest on, so that each name is free when it is needed.
        for number in (1..self.kept).rev() {
            match std::fs::rename(self.aside(number), self.aside(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        match self.kept {
            0 => std::fs::remove_file(&self.path)?,
            _ => std::fs::rename(&self.path, self.aside(1))?,
        }
        self.begin()
    }

    /// Until here and from here on, lines go to one of them.
    fn begin(&mut self) -> io::Result<()> {
        (self.file, self.length) = open(&self.path)?;
        self.full = self.bytes_max;
        Ok(())
    }

    fn aside(&self, number: u32) -> PathBuf {
        let mut name: OsString = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

/// Opens a file at its end; returns its length too.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = process::append_private(path)?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// What lies there: names, and how many lines each has.
    fn lines(dir: &Path) -> Vec<(String, Vec<String>)> {
        let mut found: Vec<_> = std::fs::read_dir(dir)
            .expect("a directory")
            .map(|entry| {
                let path = entry.expect("an entry").path();
                let text = std::fs::read_to_string(&path).expect("text");
                let mode = std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777;
                assert_eq!(mode, 0o600, "{}", path.display());
                let name = path.file_name().expect("a name").to_string_lossy().into_owned();
                (name, text.lines().map(str::to_owned).collect())
            })
            .collect();
        found.sort();
        found
    }

    #[test]
    fn full_files_are_put_aside_and_no_line_is_lost_or_torn() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let mut log = Rolling::open(&path, 100, 3).expect("it opens");
        for number in 0..25 {
            log.write(format!("line {number:04}\n").as_bytes()).expect("it is written");
        }
        let found = lines(dir.path());
        let counts: Vec<_> = found.iter().map(|(name, lines)| (name.as_str(), lines.len())).collect();
        assert_eq!(counts, [("log", 5), ("log.1", 10), ("log.2", 10)]);
        let in_order = found.iter().rev().flat_map(|(_, lines)| lines);
        assert!(in_order.eq((0..25).map(|number| format!("line {number:04}")).collect::<Vec<_>>().iter()));
        // A start goes on where the last ended, and the oldest goes.
        let mut log = Rolling::open(&path, 100, 3).expect("it opens");
        for number in 25..50 {
            log.write(format!("line {number:04}\n").as_bytes()).expect("it is written");
        }
        let names: Vec<_> =
            lines(dir.path()).into_iter().map(|(name, lines)| (name, lines[0].clone())).collect();
        let first =
            [("log", "line 0040"), ("log.1", "line 0030"), ("log.2", "line 0020"), ("log.3", "line 0010")];
        assert_eq!(names, first.map(|(name, line)| (name.to_owned(), line.to_owned())));
        log.write(&[b'x'; 300]).expect("a long line is written all the same");
        assert_eq!(lines(dir.path())[0].1, ["x".repeat(300)]);
    }

    #[test]
    fn a_file_that_was_taken_away_is_begun_anew_and_costs_none_of_those_before() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let mut log = Rolling::open(&path, 100, 3).expect("it opens");
        let ten = |log: &mut Rolling, from: usize| {
            for number in from..from + 10 {
                log.write(format!("line {number:04}\n").as_bytes()).expect("it is written");
            }
        };
        (0..3).for_each(|tens| ten(&mut log, tens * 10));
        std::fs::remove_file(&path).expect("it is there");
        ten(&mut log, 30);
        let names: Vec<_> =
            lines(dir.path()).into_iter().map(|(name, lines)| (name, lines[0].clone())).collect();
        let first = [("log", "line 0030"), ("log.1", "line 0010"), ("log.2", "line 0000")];
        assert_eq!(names, first.map(|(name, line)| (name.to_owned(), line.to_owned())));
    }

    #[test]
    fn where_it_cannot_be_put_aside_it_grows_on() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        std::fs::create_dir_all(dir.path().join("log.1/full")).expect("something is in the way");
        let mut log = Rolling::open(&path, 50, 1).expect("it opens");
        for number in 0..20 {
            log.write(format!("line {number:04}\n").as_bytes()).expect("it is written");
        }
        assert_eq!(std::fs::read_to_string(&path).expect("text").lines().count(), 20);
        std::fs::remove_dir_all(dir.path().join("log.1")).expect("ours");
        for _ in 0..5 {
            log.write(b"after\n").expect("it is written");
        }
        assert!(dir.path().join("log.1").is_file(), "it is tried again");
    }

    #[test]
    fn it_goes_on_in_the_file_that_somebody_else_put_aside_until_it_is_told() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, moved) = (dir.path().join("log"), dir.path().join("moved"));
        let mut log = Rolling::open(&path, 1000, 1).expect("it opens");
        log.write(b"one\n").expect("it is written");
        std::fs::rename(&path, &moved).expect("it is ours");
        log.write(b"two\n").expect("it is written");
        log.reopen().expect("it opens");
        log.write(b"three\n").expect("it is written");
        assert_eq!(std::fs::read_to_string(&moved).expect("text"), "one\ntwo\n");
        assert_eq!(std::fs::read_to_string(&path).expect("text"), "three\n");
        std::fs::remove_file(&path).expect("ours");
        std::os::unix::fs::symlink("/dev/null", &path).expect("a link");
        assert!(log.reopen().is_err(), "no link is followed");
        log.write(b"four\n").expect("it goes on where it was");
    }

    #[test]
    fn a_file_that_was_open_to_others_is_closed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        std::fs::write(&path, "before\n").expect("written");
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("ours");
        Rolling::open(&path, 1000, 1).expect("it opens").write(b"after\n").expect("it is written");
        assert_eq!(lines(dir.path()), [("log".to_owned(), vec!["before".to_owned(), "after".to_owned()])]);
    }
}
