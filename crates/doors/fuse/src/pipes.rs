//! Answers whose bytes go from a file's pages to the kernel through a pipe, past this process's memory.
//!
//! ```text
//!   header ──write───▶ pipe ──splice──▶ /dev/fuse
//!   file ────splice──▶
//! ```
//!
//! Whoever cannot is told so before anything reaches the kernel, and reads into a buffer instead: a file that cannot be
//! spliced or was cut, more bytes than a pipe holds, no more pipes for this user. A kernel that takes no pages is written what
//! they hold.
//!
//! How to get it wrong: use a pipe again that something is left in, which would be the next answer's beginning. It is kept
//! only once the kernel has taken a whole answer.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use weft_core::form::Piece;
use weft_core::limits;

use crate::abi::OUT_HEADER_BYTES;
use crate::device::out_header;

/// Those of one mount.
#[derive(Default)]
pub(crate) struct Pipes {
    idle: Mutex<Vec<Pipe>>,
}

/// An answer, whole, in a pipe.
pub(crate) struct Piped {
    pipe: Pipe,
    length: usize,
    home: Arc<Pipes>,
}

struct Pipe {
    from: OwnedFd,
    into: OwnedFd,
}

impl Pipes {
    /// Puts an answer of pieces into a pipe. `None` if it does not fit, or if one of them is not in a file, or less of it
    /// than it says.
    pub(crate) fn fill(self: &Arc<Self>, unique: u64, pieces: &[Piece]) -> Option<Piped> {
        let length = OUT_HEADER_BYTES + pieces.iter().map(Piece::length).sum::<usize>();
        if pieces.is_empty() || length > limits::MOUNT_PIPE_BYTES {
            return None;
        }
        let files: Vec<_> = pieces.iter().map(in_file).collect::<Option<_>>()?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let pipe = idle.or_else(Pipe::new)?;
        let header = out_header(length, 0, unique);
        rustix::io::write(&pipe.into, &header).ok().filter(|put| *put == header.len())?;
        files.into_iter().try_for_each(|(file, at, length)| pipe.put(file, at, length)).ok()?;
        Some(Piped { pipe, length, home: self.clone() })
    }
}

fn in_file(piece: &Piece) -> Option<(BorrowedFd<'_>, u64, usize)> {
    let Piece::File { file, at, length } = piece else { return None };
    Some((file.descriptor()?, *at, *length))
}

impl Pipe {
    /// `None` if the machine gives this user no more.
    fn new() -> Option<Self> {
        let (from, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        fcntl_setpipe_size(&into, limits::MOUNT_PIPE_BYTES).ok()?;
        Some(Self { from, into })
    }

    /// Puts bytes of a file in. Waits for the file, and never for room.
    fn put(&self, file: BorrowedFd<'_>, mut at: u64, mut length: usize) -> Result<(), Errno> {
        while length > 0 {
            match splice(file, Some(&mut at), &self.into, None, length, SpliceFlags::NONBLOCK) {
                // The file ends earlier.
                Ok(0) => return Err(Errno::NODATA),
                Ok(put) => length -= put,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Piped {
    /// Hands it to the kernel, whose end of the mount is `device`.
    pub(crate) fn send(self, device: BorrowedFd<'_>) -> Result<(), Errno> {
        loop {
            match splice(&self.pipe.from, None, device, None, self.length, SpliceFlags::empty()) {
                Err(Errno::INTR) => {}
                Ok(sent) if sent == self.length => break,
                Ok(_) => return Err(Errno::IO),
                Err(error @ (Errno::NOENT | Errno::NODEV)) => return Err(error),
                Err(error) => {
                    self.write_to(device).map_err(|_| error)?;
                    break;
                }
            }
        }
        let mut idle = self.home.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < limits::MOUNT_PIPES_KEPT {
            idle.push(self.pipe);
        }
        Ok(())
    }

    /// Writes what is in the pipe, if all of it still is.
    fn write_to(&self, device: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut bytes = vec![0; self.length];
        let mut read = 0;
        while read < self.length {
            match rustix::io::read(&self.pipe.from, &mut bytes[read..])? {
                0 => return Err(Errno::IO),
                more => read += more,
            }
        }
        rustix::io::write(device, &bytes).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;
    use std::os::unix::net::UnixStream;

    use bytes::Bytes;
    use weft_core::form::OpenedFile;

    use super::*;

    const PAGE: usize = 4096;

    struct Real(File);

    impl OpenedFile for Real {
        fn read_at(&self, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
            self.0.read_at(buffer, at)
        }

        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            Some(self.0.as_fd())
        }
    }

    /// The byte at an offset of every file here.
    fn byte(at: usize) -> u8 {
        (at % 251) as u8
    }

    fn file(length: usize) -> Arc<dyn OpenedFile> {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&(0..length).map(byte).collect::<Vec<_>>()).expect("there is room");
        Arc::new(Real(file))
    }

    fn part(file: &Arc<dyn OpenedFile>, at: usize, length: usize) -> Piece {
        Piece::File { file: file.clone(), at: at as u64, length }
    }

    fn idle(pipes: &Pipes) -> usize {
        pipes.idle.lock().expect("whole").len()
    }

    /// Sends an answer and returns what comes.
    fn sent(piped: Piped) -> Vec<u8> {
        let (here, mut there) = UnixStream::pair().expect("a pair");
        let mut came = vec![0; piped.length];
        let reading = std::thread::spawn(move || {
            there.read_exact(&mut came).expect("all of it comes");
            came
        });
        piped.send(here.as_fd()).expect("it is taken");
        reading.join().expect("it is read")
    }

    #[test]
    fn an_answer_is_its_header_and_the_bytes_of_its_files() {
        let (pipes, one) = (Arc::<Pipes>::default(), file(3 * limits::PIECE_PART_BYTES));
        let most = limits::PIECE_PART_BYTES;
        for (unique, parts) in [
            (1, vec![(0, most)]),
            (2, vec![(7, most)]),
            (3, vec![(PAGE - 1, 2), (5, 1), (2 * PAGE, PAGE)]),
            (1 << 63 | 4, vec![(most + 1, most - 1)]),
        ] {
            let pieces: Vec<_> = parts.iter().map(|(at, length)| part(&one, *at, *length)).collect();
            let bytes: Vec<u8> = parts.iter().flat_map(|(at, length)| (*at..at + length).map(byte)).collect();
            let came = sent(pipes.fill(unique, &pieces).expect("they fit"));
            let (header, rest) = came.split_at(OUT_HEADER_BYTES);
            assert_eq!(header, out_header(came.len(), 0, unique));
            assert!(rest == bytes, "answer {unique}");
            assert_eq!(idle(&pipes), 1, "its pipe is used again");
        }
    }

    #[test]
    fn what_no_pipe_can_hold_goes_another_way_and_leaves_nothing_behind() {
        let (pipes, small) = (Arc::<Pipes>::default(), file(2 * PAGE));
        let cut = [part(&small, 0, PAGE), part(&small, PAGE, PAGE + 1)];
        let large = file(2 * limits::MOUNT_PIPE_BYTES);
        let one_is_idle = || sent(pipes.fill(8, &[part(&small, 1, 1)]).expect("it fits"));
        // Whether no pipe is spoilt by it.
        for (why, is_seen_before, pieces) in [
            ("the file ends earlier", false, &cut[..]),
            ("too many bytes", true, &[part(&large, 0, limits::MOUNT_PIPE_BYTES)]),
            ("parts of too many pages", false, &[(); 70].map(|()| part(&small, PAGE - 1, 2))),
            ("bytes", true, &[part(&small, 0, 1), Piece::Bytes(Bytes::from_static(b"no file"))]),
            ("nothing", true, &[]),
        ] {
            assert_eq!(one_is_idle()[OUT_HEADER_BYTES..], [1]);
            assert!(pipes.fill(9, pieces).is_none(), "{why}");
            assert_eq!(idle(&pipes), usize::from(is_seen_before), "{why}");
        }
    }

    #[test]
    fn who_takes_no_pages_is_written_the_bytes() {
        let (pipes, one) = (Arc::<Pipes>::default(), file(3 * PAGE));
        let place = tempfile::NamedTempFile::new().expect("a file");
        // A file that is appended to takes none.
        let appends = File::options().append(true).open(place.path()).expect("it is there");
        let piped = pipes.fill(7, &[part(&one, 5, 2 * PAGE)]).expect("it fits");
        let length = piped.length;
        piped.send(appends.as_fd()).expect("it is taken");
        let came = std::fs::read(place.path()).expect("it is there");
        assert_eq!(came[..OUT_HEADER_BYTES], out_header(length, 0, 7));
        assert!(came[OUT_HEADER_BYTES..] == (5..5 + 2 * PAGE).map(byte).collect::<Vec<_>>());
        assert_eq!(idle(&pipes), 1);
    }

    #[test]
    fn a_pipe_that_the_kernel_has_not_emptied_is_not_used_again_and_few_are_kept() {
        let (pipes, one) = (Arc::<Pipes>::default(), file(PAGE));
        let filled = || pipes.fill(1, &[part(&one, 0, PAGE)]).expect("it fits");
        let read_only = File::open("/dev/null").expect("it is there");
        assert_eq!(filled().send(read_only.as_fd()), Err(Errno::BADF));
        assert_eq!(idle(&pipes), 0);
        drop(filled());
        assert_eq!(idle(&pipes), 0);
        let many: Vec<_> = (0..limits::MOUNT_PIPES_KEPT + 2).map(|_| filled()).collect();
        many.into_iter().for_each(|piped| drop(sent(piped)));
        assert_eq!(idle(&pipes), limits::MOUNT_PIPES_KEPT);
    }
}
