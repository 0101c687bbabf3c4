//! A read that is answered with the files that its bytes lie in, instead of the bytes; and a write whose bytes lie in
//! memory that its client lends.
//!
//! For a process of the node's own uid on the same machine, which could open them itself: rights and seals
//! were looked at for each piece before it is lent, as they are before one is sent. What is lent can be
//! read and not written. What is borrowed is read a part at a time into memory of the node's own, more than once if the
//! write is begun anew, and is hashed as it was written: the client may write there whatever it likes meanwhile.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use weft_core::form::{OpenedFile, Piece, Source};
use weft_core::{Error, Result, limits};
use weft_rpc::{CallBody, FileAsk, Lent};
use weft_sys::net::{Borrowed, Passing};
use weft_sys::process;
use weft_sys::shared_buffer::is_lent_memory;

/// Files in one answer, at most; what is beyond them is sent.
const PARTS_MAX: usize = limits::RPC_LENT_PARTS_MAX - 1;

/// What is lent for one read.
#[derive(Default)]
pub(crate) struct Lending {
    pub(crate) parts: Vec<Lent>,
    pub(crate) descriptors: Vec<OwnedFd>,
    files: Vec<Arc<dyn OpenedFile>>,
    payload: BytesMut,
}

impl Lending {
    /// Takes all that a source has: [`limits::PIECE_BYTES_MAX`] at most.
    pub(crate) async fn of(source: &mut dyn Source) -> Result<Self> {
        let mut lending = Self::default();
        while let Some(piece) = source.next(limits::PIECE_BYTES_MAX).await? {
            lending.add(piece)?;
        }
        Ok(lending)
    }

    /// Takes what a source has as far as it lies in files that can be lent. Fails as the source does, if with the first.
    pub(crate) async fn of_files(source: &mut dyn Source) -> Result<Self> {
        let mut lending = Self::default();
        while lending.parts.len() < PARTS_MAX {
            match source.next(limits::PIECE_BYTES_MAX).await {
                Ok(Some(piece)) if lending.lend(&piece) => {}
                Ok(_) => break,
                Err(error) if lending.parts.is_empty() => return Err(error),
                // Whoever reads on hears of it.
                Err(_) => break,
            }
        }
        Ok(lending)
    }

    /// Returns the bytes that are sent along.
    pub(crate) fn payload(&mut self) -> Bytes {
        std::mem::take(&mut self.payload).freeze()
    }

    fn add(&mut self, piece: Piece) -> Result<()> {
        if self.lend(&piece) {
            return Ok(());
        }
        let bytes = piece.into_bytes()?;
        self.payload.extend_from_slice(&bytes);
        match self.parts.last_mut() {
            Some(Lent::Bytes(length)) => *length += bytes.len() as u32,
            _ => self.parts.push(Lent::Bytes(bytes.len() as u32)),
        }
        Ok(())
    }

    /// Returns whether a piece can be lent, and does.
    fn lend(&mut self, piece: &Piece) -> bool {
        let Piece::File { file, at, length } = piece else { return false };
        if self.parts.len() >= PARTS_MAX {
            return false;
        }
        let Some(descriptor) = self.descriptor(file) else { return false };
        self.add_file(descriptor, *at, *length as u32);
        true
    }

    fn add_file(&mut self, descriptor: u32, at: u64, more: u32) {
        match self.parts.last_mut() {
            Some(Lent::File { descriptor: last, at: from, length })
                if *last == descriptor && *from + u64::from(*length) == at =>
            {
                *length += more;
            }
            _ => self.parts.push(Lent::File { descriptor, at, length: more }),
        }
    }

    /// Returns the number under which a file is lent; `None` if it cannot be: then its bytes are sent.
    fn descriptor(&mut self, file: &Arc<dyn OpenedFile>) -> Option<u32> {
        if let Some(known) = self.files.iter().position(|known| Arc::ptr_eq(known, file)) {
            return Some(known as u32);
        }
        let descriptor = process::opened_to_read(file.descriptor()?).ok()?;
        self.descriptors.push(descriptor);
        self.files.push(file.clone());
        Some(self.descriptors.len() as u32 - 1)
    }
}

/// Takes the memory that a call's bytes lie in, if it is such a call, whatever becomes of it: only the order says whose
/// it is. Fails with `Invalid` if none came, or something else.
pub(crate) fn lent_with(body: &CallBody, borrows: Option<&Passing>) -> Result<Option<Piece>> {
    let CallBody::File(_, FileAsk::WriteLent { from: at, length, .. }) = *body else { return Ok(None) };
    let wrong = || Error::invalid("the client lent something else than it said");
    let memory = borrows.and_then(Passing::take).ok_or_else(wrong)?;
    let length = length as usize;
    let end = at.checked_add(length as u64).ok_or_else(wrong)?;
    if length == 0 || length > limits::PIECE_BYTES_MAX || !is_lent_memory(memory.as_fd(), end) {
        return Err(wrong());
    }
    Ok(Some(Piece::File { file: Arc::new(Memory(Borrowed(memory))), at, length }))
}

/// Memory of a client's. Nobody is told of its descriptor: the machine copies files from each other, and this is to be
/// read.
struct Memory(Borrowed);

impl OpenedFile for Memory {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
        self.0.read_at(buffer, at)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::{AsFd, BorrowedFd};

    use rustix::io::Errno;

    use super::*;

    struct Real(std::fs::File);

    impl OpenedFile for Real {
        fn read_at(&self, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
            std::os::unix::fs::FileExt::read_at(&self.0, buffer, at)
        }

        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            Some(self.0.as_fd())
        }
    }

    fn file() -> Arc<dyn OpenedFile> {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[7; 4096]).expect("there is room");
        Arc::new(Real(file))
    }

    fn part(file: &Arc<dyn OpenedFile>, at: u64, length: usize) -> Piece {
        Piece::File { file: file.clone(), at, length }
    }

    #[test]
    fn parts_that_meet_are_one_and_a_file_is_lent_once() {
        let (one, other) = (file(), file());
        let mut lending = Lending::default();
        let pieces = [
            part(&one, 0, 10),
            part(&one, 10, 20),
            part(&other, 0, 5),
            Piece::Bytes(Bytes::from_static(b"ab")),
            Piece::Bytes(Bytes::from_static(b"c")),
            part(&one, 100, 1),
        ];
        pieces.into_iter().for_each(|piece| lending.add(piece).expect("it is taken"));
        let lent = |descriptor, at, length| Lent::File { descriptor, at, length };
        assert_eq!(lending.parts, [lent(0, 0, 30), lent(1, 0, 5), Lent::Bytes(3), lent(0, 100, 1)]);
        assert_eq!((lending.descriptors.len(), lending.payload()), (2, Bytes::from_static(b"abc")));
    }

    /// Pieces, one after the other.
    struct Pieces(std::vec::IntoIter<Result<Piece>>);

    #[async_trait::async_trait]
    impl Source for Pieces {
        async fn next(&mut self, _max: usize) -> Result<Option<Piece>> {
            self.0.next().transpose()
        }

        fn length(&self) -> Option<u64> {
            None
        }

        fn stopped(&self) -> weft_core::form::Stopped {
            Box::pin(std::future::pending())
        }
    }

    async fn of_files(pieces: Vec<Result<Piece>>) -> Result<Lending> {
        Lending::of_files(&mut Pieces(pieces.into_iter())).await
    }

    #[tokio::test]
    async fn files_are_lent_as_far_as_nothing_else_comes_between_and_no_more_than_there_may_be() {
        let (one, other) = (file(), file());
        let begins = || vec![Ok(part(&one, 3, 10)), Ok(part(&one, 13, 2)), Ok(part(&other, 0, 5))];
        let bad = || Err(Error::corrupt("it does not match"));
        for next in [Ok(Piece::Bytes(Bytes::from_static(b"ab"))), bad()] {
            let pieces = begins().into_iter().chain([next, Ok(part(&one, 0, 1))]).collect();
            let lending = of_files(pieces).await.expect("the first can be had");
            let lent = |descriptor, at, length| Lent::File { descriptor, at, length };
            assert_eq!(lending.parts, [lent(0, 3, 12), lent(1, 0, 5)]);
            assert_eq!((lending.descriptors.len(), lending.payload.len()), (2, 0));
        }
        assert!(of_files(vec![bad()]).await.is_err());
        let apart = (0..PARTS_MAX as u64 + 3).map(|number| Ok(part(&one, number * 2, 1))).collect();
        assert_eq!(of_files(apart).await.expect("it is pulled").parts.len(), PARTS_MAX);
    }

    #[test]
    fn what_is_lent_can_be_read_and_not_written() {
        let mut lending = Lending::default();
        lending.add(part(&file(), 0, 10)).expect("it is taken");
        let lent = &lending.descriptors[0];
        let mut bytes = [0; 3];
        assert_eq!(rustix::io::pread(lent, &mut bytes, 4093).expect("it can be read"), 3);
        assert_eq!(rustix::io::pwrite(lent, b"x", 0), Err(Errno::BADF));
    }

    #[test]
    fn of_many_parts_the_last_are_sent() {
        let one = file();
        let mut lending = Lending::default();
        for number in 0..PARTS_MAX as u64 + 3 {
            lending.add(part(&one, number * 2, 1)).expect("it is taken");
        }
        assert_eq!(lending.parts.last(), Some(&Lent::Bytes(3)));
        assert_eq!((lending.parts.len(), lending.payload().len()), (PARTS_MAX + 1, 3));
    }
}
