//! A download: pieces go out as the client makes room, and no longer than the right
//! lasts.

use bytes::Bytes;
use tokio::sync::mpsc;
use weft_core::form::{Piece, Source};
use weft_core::{Deadline, Error, Result, limits};
use weft_rpc::{Answer, Frame, ToClient};

use crate::connection::Replies;

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
        let bytes = weft_core::form::collect(&mut *source, limits::PIECE_BYTES_MAX).await?;
        let reply = ToClient::Reply(Box::new(Ok(Answer::Reading { length, whole: true })));
        let refused = |report| ToClient::Reply(Box::new(Err(report)));
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use async_trait::async_trait;
    use weft_core::form::Stopped;
    use weft_sys::simulate;

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
                let (replies, queue) = Replies::new(sys.clone(), uids.of(7));
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
                drop(sys.spawn(async move {
                    let _queue = queue;
                    std::future::pending::<()>().await;
                }));
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
}
