//! A download: pieces go out as the client makes room, and no longer than the right
//! lasts.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use weft_core::form::{Piece, Source};
use weft_core::{Deadline, Error, ErrorReport, Result, limits};
use weft_rpc::{Answer, Frame, ToClient};
use weft_sys::net::Passing;

use crate::connection::Replies;
use crate::lend::Lending;

/// Sends a source's bytes: with the reply, if they are few enough for one frame.
pub(crate) async fn download(
    stream: u32,
    mut source: Box<dyn Source>,
    replies: &Replies,
    credits: &mut mpsc::Receiver<u32>,
) -> Result<()> {
    let length = source.length();
    if let Some(bytes) = length.filter(|length| *length <= limits::PIECE_BYTES_MAX as u64) {
        let room = replies.room(bytes as usize).await?;
        let stopped = source.stopped();
        if let Some(passing) = replies.lends().filter(|_| bytes >= limits::RPC_LEND_FROM) {
            let mut lending = Lending::of(&mut *source).await?;
            let payload = lending.payload();
            let reply = ToClient::Reply(Box::new(Ok(Answer::Lent(lending.parts))));
            let (frame, lent) = (Frame::new(stream, &reply, payload), (passing.clone(), lending.descriptors));
            return replies.send_lent(frame, lent, room, stopped, refused).await;
        }
        let bytes = weft_core::form::collect(&mut *source, limits::PIECE_BYTES_MAX).await?;
        let reply = ToClient::Reply(Box::new(Ok(Answer::Reading { length, whole: true })));
        return replies.send_bytes(Frame::new(stream, &reply, bytes), room, stopped, refused).await;
    }
    let reply = ToClient::Reply(Box::new(Ok(Answer::Reading { length, whole: false })));
    replies.send(Frame::new(stream, &reply, Bytes::new())).await?;
    let mut stopped = source.stopped();
    let outcome = tokio::select! {
        biased;
        why = &mut stopped => Err(why),
        outcome = send_all(stream, &mut *source, replies, credits) => outcome,
    };
    if let Err(error) = outcome {
        replies.send(Frame::new(stream, &ToClient::Failed((&error).into()), Bytes::new())).await?;
    }
    Ok(())
}

/// Lends the files that the first bytes of a source lie in.
pub(crate) async fn lend(
    stream: u32,
    mut source: Box<dyn Source>,
    replies: &Replies,
    passing: Arc<Passing>,
) -> Result<()> {
    // What lies in no file is told from what does by being read.
    let room = replies.room(limits::PIECE_BYTES_MAX).await?;
    let stopped = source.stopped();
    let Lending { parts, descriptors, .. } = Lending::of_files(&mut *source).await?;
    let reply = ToClient::Reply(Box::new(Ok(Answer::Lent(parts))));
    let frame = Frame::new(stream, &reply, Bytes::new());
    replies.send_lent(frame, (passing, descriptors), room, stopped, refused).await
}

async fn send_all(
    stream: u32,
    source: &mut dyn Source,
    replies: &Replies,
    credits: &mut mpsc::Receiver<u32>,
) -> Result<()> {
    // However much the client says that it has room for, no more than a window is on its way.
    let window = limits::RPC_WINDOW_BYTES as usize;
    let more = |credit: usize, more: u32| credit.saturating_add(more as usize).min(window);
    let mut credit = window;
    loop {
        while credit == 0 {
            let idle = Deadline::within(replies.sys().clock(), limits::TRANSFER_IDLE);
            let gone = || Error::new(weft_core::ErrorKind::Unavailable, "the client went away");
            let given = replies.sys().within(idle, async { credits.recv().await.ok_or_else(gone) }).await?;
            credit = more(credit, given);
        }
        while let Ok(given) = credits.try_recv() {
            credit = more(credit, given);
        }
        let left = source.length().map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
        let most = credit.min(limits::PIECE_BYTES_MAX).min(left.max(1));
        let room = replies.room(most).await?;
        let piece = source.next(most).await?;
        let bytes = piece.map(Piece::into_bytes).transpose()?.unwrap_or_default();
        let end = bytes.is_empty();
        credit -= bytes.len();
        let frame = Frame::new(stream, &ToClient::Data { end }, bytes);
        replies.send_bytes(frame, room, source.stopped(), ToClient::Failed).await?;
        if end {
            return Ok(());
        }
    }
}

fn refused(report: ErrorReport) -> ToClient {
    ToClient::Reply(Box::new(Err(report)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use async_trait::async_trait;
    use weft_core::form::Stopped;
    use weft_rpc::Lent;
    use weft_sys::net::Socket;
    use weft_sys::{Sys, simulate};

    use super::*;
    use crate::Uids;

    /// So many bytes; counts those that were pulled.
    struct Pulled(u64, Arc<AtomicUsize>);

    #[async_trait]
    impl Source for Pulled {
        async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
            let length = max.min(self.0 as usize);
            self.0 -= length as u64;
            self.1.fetch_add(length, Ordering::Relaxed);
            Ok((length > 0).then(|| Piece::Bytes(vec![7; length].into())))
        }

        fn length(&self) -> Option<u64> {
            Some(self.0)
        }

        fn stopped(&self) -> Stopped {
            Box::pin(std::future::pending())
        }
    }

    /// Returns how many bytes are pulled for clients that take none: of so many connections of
    /// one uid, each with 64 small and 64 large downloads.
    fn pulled_for(connections: usize) -> usize {
        simulate(1, |sys| async move {
            let (uids, pulled) = (Uids::default(), Arc::<AtomicUsize>::default());
            let mut lines = Vec::new();
            for _ in 0..connections {
                let takes_none = |queue| async move {
                    let _queue = queue;
                    std::future::pending().await
                };
                let (replies, _) = Replies::new(sys.clone(), uids.of(7), takes_none);
                for stream in 0..128 {
                    let length = if stream % 2 == 0 { 1 << 20 } else { 64 << 20 };
                    let source = Box::new(Pulled(length, pulled.clone()));
                    let (credit, mut credits) = mpsc::channel(1);
                    let to = replies.clone();
                    lines.push(sys.spawn(async move {
                        let _credit = credit;
                        let _ = download(stream, source, &to, &mut credits).await;
                    }));
                }
            }
            sys.sleep(Duration::from_secs(1)).await;
            pulled.load(Ordering::Relaxed)
        })
    }

    #[test]
    fn few_bytes_are_read_for_clients_that_do_not_take_them() {
        assert_eq!(pulled_for(1), limits::RPC_OUT_BYTES, "of one connection");
        let most = limits::RPC_UID_OUT_BYTES;
        assert_eq!(pulled_for(2 * most / limits::RPC_OUT_BYTES), most, "of all of one uid");
    }

    /// A file that the node has open, read from one end to the other; the right to it may have ended.
    struct Filed(Option<Piece>, bool);

    #[async_trait]
    impl Source for Filed {
        async fn next(&mut self, max: usize) -> Result<Option<Piece>> {
            let mut piece = self.0.take();
            self.0 = piece.as_mut().and_then(|piece| piece.split_off(max));
            Ok(piece)
        }

        fn length(&self) -> Option<u64> {
            Some(self.0.as_ref().map_or(0, |piece| piece.length() as u64))
        }

        fn stopped(&self) -> Stopped {
            match self.1 {
                true => Box::pin(async { Error::new(weft_core::ErrorKind::Revoked, "it ended") }),
                false => Box::pin(std::future::pending()),
            }
        }
    }

    struct Real(std::fs::File);

    impl weft_core::form::OpenedFile for Real {
        fn read_at(&self, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
            std::os::unix::fs::FileExt::read_at(&self.0, buffer, at)
        }

        fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            Some(std::os::fd::AsFd::as_fd(&self.0))
        }
    }

    fn filed(byte: u8, length: usize, ended: bool) -> Filed {
        let mut file = tempfile::tempfile().expect("a file");
        std::io::Write::write_all(&mut file, &vec![byte; length]).expect("there is room");
        Filed(Some(Piece::File { file: Arc::new(Real(file)), at: 0, length }), ended)
    }

    /// Downloads one after the other to a process of the node's own uid; returns what each is answered with, and
    /// the first byte of the file that was lent for it.
    async fn lent(sources: Vec<Filed>, files_alone: bool) -> Vec<(ToClient, usize, Option<u8>)> {
        let sys = Sys::real();
        let (here, there) = Socket::pair().expect("a pair");
        let ((here, lends), (there, borrows)) = (here.lending(), there.borrowing());
        // All of them wait before the first leaves.
        let (go, gone) = tokio::sync::oneshot::channel();
        let (stuck, write) = (tokio::sync::oneshot::channel().0, sys.clone());
        let write = |queue| async move {
            gone.await.expect("it is said");
            crate::connection::write_all(write, here, queue, stuck).await;
        };
        let (mut replies, _) = Replies::new(sys.clone(), Uids::default().of(7), write);
        replies.lend_by(Some(lends.clone()));
        let count = sources.len();
        for (stream, source) in sources.into_iter().enumerate() {
            let (_credit, mut credits) = mpsc::channel(1);
            let (stream, source) = (stream as u32, Box::new(source));
            let queued = match files_alone {
                true => lend(stream, source, &replies, lends.clone()).await,
                false => download(stream, source, &replies, &mut credits).await,
            };
            queued.expect("it is queued");
        }
        go.send(()).expect("it waits");
        let mut frames = weft_rpc::FrameReader::new(there);
        let mut answers = Vec::new();
        for _ in 0..count {
            let frame = frames.next().await.expect("it is read").expect("it is there");
            let first = borrows.take().map(|descriptor| {
                let mut byte = [0];
                rustix::io::pread(descriptor, &mut byte, 0).expect("it can be read");
                byte[0]
            });
            answers.push((frame.message().expect("ours"), frame.payload.len(), first));
        }
        assert!(borrows.take().is_none(), "no more than was said");
        answers
    }

    #[tokio::test]
    async fn a_file_goes_with_its_own_answer_and_not_at_all_once_the_right_to_it_has_ended() {
        let large = limits::RPC_LEND_FROM as usize;
        let said = |answers: &[(ToClient, usize, Option<u8>)], at: usize| match &answers[at] {
            (ToClient::Reply(reply), bytes, first) => ((**reply).clone(), *bytes, *first),
            other => panic!("{other:?}"),
        };
        let sources = vec![
            filed(1, large, false),
            filed(2, large, true),
            filed(3, large - 1, false),
            filed(4, 2 * large, false),
        ];
        let answers = lent(sources, false).await;
        let parts = |length: usize| {
            Ok(Answer::Lent(vec![Lent::File { descriptor: 0, at: 0, length: length as u32 }]))
        };
        assert_eq!(said(&answers, 0), (parts(large), 0, Some(1)));
        let (refused, bytes, first) = said(&answers, 1);
        assert_eq!(
            (refused.expect_err("it ended").kind, bytes, first),
            (weft_core::ErrorKind::Revoked, 0, None)
        );
        let (small, bytes, first) = said(&answers, 2);
        assert!(matches!(small, Ok(Answer::Reading { whole: true, .. })), "{small:?}");
        assert_eq!((bytes, first), (large - 1, None));
        assert_eq!(said(&answers, 3), (parts(2 * large), 0, Some(4)));
        let answers = lent(vec![filed(5, 9, false), filed(6, 9, true)], true).await;
        assert_eq!(said(&answers, 0), (parts(9), 0, Some(5)), "however short, if that is asked for");
        let (refused, _, first) = said(&answers, 1);
        assert_eq!((refused.expect_err("it ended").kind, first), (weft_core::ErrorKind::Revoked, None));
    }
}
