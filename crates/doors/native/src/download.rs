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
    credit: &mut mpsc::Receiver<u32>,
) -> Result<()> {
    let length = source.length();
    if length.is_some_and(|length| length <= limits::PIECE_BYTES_MAX as u64) {
        let bytes = weft_core::form::collect(&mut *source, limits::PIECE_BYTES_MAX).await?;
        let reply = ToClient::Reply(Box::new(Ok(Answer::Reading { length, whole: true })));
        return replies.send(Frame::new(stream, &reply, bytes)).await;
    }
    let reply = ToClient::Reply(Box::new(Ok(Answer::Reading { length, whole: false })));
    replies.send(Frame::new(stream, &reply, Bytes::new())).await?;
    let mut stopped = source.stopped();
    let outcome = tokio::select! {
        biased;
        why = &mut stopped => Err(why),
        outcome = send_all(stream, &mut *source, replies, credit) => outcome,
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
    credit: &mut mpsc::Receiver<u32>,
) -> Result<()> {
    let mut room = limits::RPC_WINDOW_BYTES as usize;
    loop {
        while room == 0 {
            let idle = Deadline::within(replies.sys().clock(), limits::TRANSFER_IDLE);
            let gone = || Error::new(weft_core::ErrorKind::Unavailable, "the client went away");
            room +=
                replies.sys().within(idle, async { credit.recv().await.ok_or_else(gone) }).await? as usize;
        }
        while let Ok(more) = credit.try_recv() {
            room += more as usize;
        }
        let piece = source.next(room.min(limits::PIECE_BYTES_MAX)).await?;
        let bytes = piece.map(Piece::into_bytes).transpose()?.unwrap_or_default();
        let end = bytes.is_empty();
        room -= bytes.len();
        replies.send(Frame::new(stream, &ToClient::Data { end }, bytes)).await?;
        if end {
            return Ok(());
        }
    }
}
