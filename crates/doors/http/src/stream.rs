//! Bodies that are written while they are sent: one page of them is ever in memory.

use weft_core::Result;
use weft_mover::Outbound;
use weft_sys::net::More;

/// What is gathered before it is sent.
const FLUSH_BYTES: usize = 32 << 10;

/// Gathers what is written and sends it.
pub struct Out<'o, 'a> {
    outbound: &'o mut Outbound<'a>,
    /// The head of the answer, until it has left.
    ready: Vec<u8>,
    /// What was written and has not left.
    pub held: Vec<u8>,
    chunked: bool,
}

impl<'o, 'a> Out<'o, 'a> {
    /// Begins with the head of the answer.
    pub fn new(outbound: &'o mut Outbound<'a>, head: Vec<u8>, chunked: bool) -> Self {
        Self { outbound, ready: head, held: Vec::new(), chunked }
    }

    /// Sends what is held once that is enough to be worth it.
    pub async fn flush_if_full(&mut self) -> Result<()> {
        self.flush_if(FLUSH_BYTES).await
    }

    async fn flush_if(&mut self, bytes: usize) -> Result<()> {
        if self.held.len() < bytes || self.held.is_empty() {
            return Ok(());
        }
        if self.chunked {
            self.ready.extend_from_slice(format!("{:x}\r\n", self.held.len()).as_bytes());
        }
        self.ready.append(&mut self.held);
        if self.chunked {
            self.ready.extend_from_slice(b"\r\n");
        }
        self.outbound.send_bytes(&self.ready, More::Ends).await?;
        self.ready.clear();
        Ok(())
    }

    /// Sends the rest, and the end.
    pub async fn end(mut self) -> Result<()> {
        if !self.chunked {
            self.flush_if(0).await?;
            return self.outbound.send_bytes(&self.ready, More::Ends).await;
        }
        // The last chunk and the end leave together.
        let last = std::mem::take(&mut self.held);
        if !last.is_empty() {
            self.ready.extend_from_slice(format!("{:x}\r\n", last.len()).as_bytes());
            self.ready.extend_from_slice(&last);
            self.ready.extend_from_slice(b"\r\n");
        }
        self.ready.extend_from_slice(b"0\r\n\r\n");
        self.outbound.send_bytes(&self.ready, More::Ends).await
    }
}
