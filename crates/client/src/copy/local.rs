//! Files of the machine, as sources of bytes.

use std::fs::{File, Metadata};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use weft_core::attr::{SetAttr, SetTime};
use weft_core::form::{OpenedFile, Piece, Source, Stopped};
use weft_core::{Error, ErrorKind, Result, Time, limits};
use weft_sys::fault;

/// A range of a local file.
pub struct LocalSource {
    file: Arc<LocalFile>,
    at: u64,
    end: u64,
}

/// A local file, open for reading.
pub struct LocalFile(pub(super) File);

impl OpenedFile for LocalFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.0.read_at(&mut buffer[done..], at + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

impl LocalSource {
    /// Reads `at..end`.
    pub fn new(file: Arc<LocalFile>, at: u64, end: u64) -> Self {
        Self { file, at, end }
    }
}

#[async_trait]
impl Source for LocalSource {
    async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
        let length = (self.end - self.at).min(max.min(limits::PIECE_BYTES_MAX) as u64) as usize;
        if length == 0 {
            return Ok(None);
        }
        let bytes: Bytes =
            Piece::File { file: self.file.clone(), at: self.at, length }.into_bytes().map_err(|e| {
                Error::new(ErrorKind::Conflict, "the local file became shorter while it was read")
                    .caused_by(e)
            })?;
        self.at += bytes.len() as u64;
        Ok(Some(Piece::Bytes(bytes)))
    }

    fn length(&self) -> Option<u64> {
        Some(self.end - self.at)
    }

    fn stopped(&self) -> Stopped {
        Box::pin(std::future::pending())
    }
}

/// Says that a local file could not be read.
pub(super) fn unreadable(error: std::io::Error) -> Error {
    fault::error(error, "read", "the local file")
}

/// Returns a local file's mode and modification time, to be set on its copy.
pub fn times_and_mode(metadata: &Metadata) -> SetAttr {
    let mtime = Time::from_unix(metadata.mtime(), metadata.mtime_nsec() as u32);
    SetAttr {
        mode: Some((metadata.mode() & 0o7777) as u16),
        mtime: Some(SetTime::At(mtime)),
        ..SetAttr::default()
    }
}
