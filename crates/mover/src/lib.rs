//! How transfers go on: the one place where HTTP's bytes flow through, and the rule for senders that
//! are slow, which the native door keeps to as well.
//!
//! **Problem.** A node serves a few kilobytes to thousands and terabytes to a few, through doors
//! that know nothing of each other. Who goes next, how much is under way, what is stuck and who
//! stops it must be decided once, and no slow reader may cost anybody else anything.
//!
//! **Shape.** Bytes are pulled from a [`weft_core::form::Source`], a piece at a time:
//!
//! ```text
//!   small   ── admit ──▶ inline permit ─▶ pull ─▶ send      no queue, no listing
//!   large   ── turn ───▶ slot ─▶ pull a piece ─▶ send what the socket takes ─┐
//!                 ▲        socket full: the slot goes back ──▶ wait ─────────┤
//!                 └──────────────────────────────────────────────────────────┘
//!   onward  ── turn ───▶ slot ─▶ pull a piece ─▶ slot back ─▶ another server takes it
//!   upload  ── receive ─▶ turn ─▶ slot ─▶ the puller writes the piece ─▶ next pull: slot back
//! ```
//!
//! A slot is the right to move one piece *now*; slots are handed out in order of asking. Waiting
//! for a socket holds none, so readers that have stopped cannot keep others from moving, and
//! metadata never asks for one. Whoever waits for a socket also waits for the source to be
//! stopped (a right withdrawn), for the transfer to be cancelled and for the time a transfer may
//! make no progress.
//!
//! Rejected: a slot for a whole transfer (64 stalled readers would stop the node for a minute); a
//! thread for each transfer (the kernel's readiness is enough, and 10 000 cost nothing).
//!
//! **Ways to get it wrong.** Ending a transfer that broke off as if it were whole: `send` fails
//! when the source brings less than it promised, and the door then resets the connection.

mod class;
mod inbound;
mod onward;
mod outbound;
mod transfer;
mod turns;

#[cfg(test)]
#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "its sockets are the machine's own")]
mod tests;

use weft_core::{Error, ErrorKind, Result, limits};
use weft_sys::Sys;
use weft_sys::net::Socket;

pub use class::Class;
pub use inbound::{Inbound, Incoming, Pace};
pub use onward::Onward;
pub use outbound::Outbound;
pub use transfer::{Direction, TransferId, TransferStatus};
pub use turns::Permit;

use transfer::Transfers;
use turns::Turns;

/// Moves bytes between sources and sockets. One for a node, shared by all its doors.
pub struct Mover {
    sys: Sys,
    turns: Turns,
    transfers: Transfers,
}

impl Mover {
    /// Makes a mover with as many slots as [`limits::TRANSFER_SLOTS`].
    pub fn new(sys: Sys) -> Self {
        Self::with_slots(sys, limits::TRANSFER_SLOTS, limits::TRANSFERS_INLINE_MAX)
    }

    /// Makes a mover that moves at most `slots` pieces at a time, and `inline` small transfers.
    pub fn with_slots(sys: Sys, slots: usize, inline: usize) -> Self {
        Self { sys, turns: Turns::new(slots, inline), transfers: Transfers::default() }
    }

    /// Returns leave to move this many bytes here and now, without queueing; `None` if they are
    /// too many, or too many others do the same.
    pub fn admit(&self, bytes: u64) -> Option<Permit<'_>> {
        if bytes <= limits::TRANSFER_INLINE_BYTES { self.turns.inline() } else { None }
    }

    /// Begins a transfer to a socket. It is listed once it is more than a small one that the
    /// socket takes at once.
    pub fn outbound<'a>(&'a self, class: Class, socket: &'a Socket, length: Option<u64>) -> Outbound<'a> {
        Outbound::new(self, class, socket, length)
    }

    /// Begins a transfer from what a door receives: a source for whoever stores it. `stopped` ends
    /// it while it waits for the sender. `Busy` if too many transfers are under way.
    pub fn inbound<'a>(
        &'a self,
        class: Class,
        incoming: &'a mut dyn Incoming,
        stopped: weft_core::form::Stopped,
    ) -> Result<Inbound<'a>> {
        Inbound::begin(self, class, incoming, stopped)
    }

    /// Begins a transfer of a source to what is no socket of a door. `Busy` if too many transfers are under way.
    pub fn onward<'a>(
        &'a self,
        class: Class,
        source: Box<dyn weft_core::form::Source + 'a>,
    ) -> Result<Onward<'a>> {
        Onward::begin(self, class, source)
    }

    /// Returns the transfers under way, oldest first.
    pub fn transfers(&self) -> Vec<TransferStatus> {
        self.transfers.list()
    }

    /// Returns how many transfers wait for their turn.
    pub fn waiting(&self) -> usize {
        self.turns.waiting()
    }

    /// Ends a transfer at its next piece or wait. `NotFound` if it has ended.
    pub fn cancel(&self, id: TransferId) -> Result<()> {
        self.transfers.cancel(id)
    }
}

fn cancelled() -> Error {
    Error::new(ErrorKind::Unavailable, "the transfer was cancelled by the node's operator")
}

fn stalled() -> Error {
    Error::new(ErrorKind::Deadline, "the transfer made no progress for too long")
}
