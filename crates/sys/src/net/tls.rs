//! TLS 1.3 over a connected stream: what a [`Socket`](super::Socket) does once it is secured.
//!
//! ```text
//!   slices ──┐   fill up to whole records        ciphertext, one batch at most
//!   file ────┴─▶ held (< 1 record) ─▶ encrypt ─▶ [rec][rec][rec] ─ one sendmsg ─▶ kernel
//!   reader ◀──── decrypted (≤ 1 record) ◀─ decrypt ◀─ shared scratch ◀── recv ─── kernel
//! ```
//!
//! What was encrypted must leave in that order, yet the kernel may take only a part of it. So **the
//! last byte of what was handed over counts as sent only once the kernel has all of it**: whoever
//! sends comes back with that byte (it is `owed`), is told to wait, and so drives the rest out; and
//! nobody believes that an answer has left which still lies here. Nothing runs behind their backs.
//!
//! A file is read into a buffer that all connections of one thread share: encrypting waits for
//! nothing, so nobody else needs it meanwhile. A connection at rest holds no buffer of ours.
//!
//! Rejected: bytes that wait here and are said to have left (who sends them if the connection is
//! then only read from?); a task that pumps each connection (two more buffers, and no back-pressure).

mod clients;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::{ServerConfig, ServerConnection};
use tokio::io::ReadBuf;
use weft_core::limits::{TLS_BATCH_BYTES, TLS_HANDSHAKE_BYTES_MAX, TLS_RECORD_BYTES};
use weft_core::service::CertificateChain;
use weft_core::{Error, Result};

use super::{More, Stream};

/// Bytes of ciphertext that are asked for at least: what a short record takes, and its neighbours.
const RECEIVE_BYTES_MIN: usize = 4 << 10;

thread_local! {
    /// Plaintext of a file before it is encrypted, or ciphertext before it is decrypted.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What a server proves itself by, and what it asks of whoever connects.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ServerConfig>,
}

/// What a [`Tls`] is made of.
#[derive(Clone, Copy)]
pub struct TlsSettings<'a> {
    /// The server's certificate, and those between it and its authority: PEM.
    pub chain: &'a [u8],
    /// The key of the first of them: PEM.
    pub key: &'a [u8],
    /// What is spoken over it, by its registered names, the best first.
    pub protocols: &'a [&'a [u8]],
    /// Whether clients are asked for a certificate, which they need not have, and of which authorities: their names in
    /// DER, without the outermost head; of any if there are none. What they show is not judged here.
    pub clients: Option<&'a [Vec<u8>]>,
}

impl Tls {
    /// Makes the server's side. `Invalid` if the parts are not what they should be, or do not
    /// belong together.
    pub fn server(settings: &TlsSettings<'_>) -> Result<Self> {
        let chain = certificates(settings.chain, "the certificate")?;
        let key = PrivateKeyDer::from_pem_slice(settings.key)
            .map_err(|error| Error::invalid("the key is not a private key in PEM").caused_by(error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let failed = |error| Error::invalid("the certificate and the key cannot be used").caused_by(error);
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(failed)?;
        let builder = match settings.clients {
            Some(hints) => builder.with_client_cert_verifier(clients::asked(hints)),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(failed)?;
        config.alpn_protocols = settings.protocols.iter().map(|name| name.to_vec()).collect();
        // A ticket holds all that resuming takes: nothing is kept here, and a new server's side
        // (new files) forgets its tickets with its key.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = rustls::crypto::ring::Ticketer::new().map_err(failed)?;
        Ok(Self { config: Arc::new(config) })
    }
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>> {
    let read: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.map_err(|error| Error::invalid(format!("{what} is not PEM")).caused_by(error))?;
    if read.is_empty() {
        return Err(Error::invalid(format!("{what} is not there: the file holds no certificate")));
    }
    Ok(read)
}

/// One secured connection: its keys, and what is on its way between plain and encrypted.
#[derive(Debug)]
pub(super) struct Session {
    connection: ServerConnection,
    /// Ciphertext that came with more plaintext than its reader had room for.
    incoming: Vec<u8>,
    /// Plaintext that waits for more of its record: less than one.
    held: Vec<u8>,
    /// Whether the next byte handed over was taken already.
    owed: bool,
    said_end: bool,
}

impl Session {
    /// Shakes hands as the server. The caller sets the deadline. Fails, after telling the other
    /// end why, if what comes is no handshake, or too long a one.
    pub async fn accept(stream: &Stream, tls: &Tls) -> io::Result<Box<Self>> {
        let mut connection = ServerConnection::new(tls.config.clone()).map_err(broken)?;
        // What waits to be sent is bounded here, by batches.
        connection.set_buffer_limit(None);
        let mut session = Box::new(Self {
            connection,
            incoming: Vec::new(),
            held: Vec::new(),
            owed: false,
            said_end: false,
        });
        let mut taken = 0;
        while session.connection.is_handshaking() {
            stream.readable().await?;
            match session.connection.read_tls(&mut Raw(stream, More::Ends)) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => taken += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            }
            let processed = session.process(stream);
            if taken > TLS_HANDSHAKE_BYTES_MAX && session.connection.is_handshaking() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the handshake is too long"));
            }
            processed?;
            while let Err(error) = session.flush(stream, More::Ends) {
                if error.kind() != io::ErrorKind::WouldBlock {
                    return Err(error);
                }
                stream.writable().await?;
            }
        }
        Ok(session)
    }

    /// Returns what the client showed, if it showed anything: it has proved to hold the key, in this handshake or in
    /// the one that this resumes.
    pub fn certificate(&self) -> Option<CertificateChain> {
        let (own, others) = self.connection.peer_certificates()?.split_first()?;
        let bytes = |der: &CertificateDer<'_>| der.to_vec().into();
        Some(CertificateChain { own: bytes(own), others: others.iter().map(bytes).collect() })
    }

    /// Sends what the kernel takes now of the slices: see the top of the file for what counts.
    pub fn send(&mut self, stream: &Stream, slices: &[IoSlice<'_>], more: More) -> io::Result<usize> {
        let owed = self.make_way(stream)?;
        self.take(stream, slices, owed, more)
    }

    /// The same of a file's range; 0 if the file ends before it.
    pub fn send_file(
        &mut self,
        stream: &Stream,
        file: BorrowedFd<'_>,
        at: u64,
        length: usize,
    ) -> io::Result<usize> {
        let owed = self.make_way(stream)?;
        let fresh = length.saturating_sub(owed).min(TLS_BATCH_BYTES - self.held.len());
        with_scratch(|scratch| {
            let read = read_at(file, &mut scratch[owed..owed + fresh], at + owed as u64)?;
            if read == 0 {
                // What is owed may be all that is left of the range.
                self.owed = false;
                return Ok(owed);
            }
            let more = if owed + read < length { More::Follows } else { More::Ends };
            self.take(stream, &[IoSlice::new(&scratch[..owed + read])], owed, more)
        })
    }

    /// Sends what is encrypted already. Returns how many of the bytes that come next were among it;
    /// `WouldBlock` while the kernel does not take it all, or would take nothing more.
    fn make_way(&mut self, stream: &Stream) -> io::Result<usize> {
        self.flush(stream, More::Ends)?;
        stream.check_writable()?;
        Ok(usize::from(self.owed))
    }

    /// Encrypts the slices, less the first `owed` bytes, and sends that as far as the kernel takes it.
    fn take(
        &mut self,
        stream: &Stream,
        slices: &[IoSlice<'_>],
        owed: usize,
        more: More,
    ) -> io::Result<usize> {
        let offered = slices.iter().map(|slice| slice.len()).sum::<usize>().saturating_sub(owed);
        let taken = offered.min(TLS_BATCH_BYTES - self.held.len());
        // What more follows upon waits for it, so that records are full.
        let ends = more == More::Ends && taken == offered;
        let waits = if ends { 0 } else { (self.held.len() + taken) % TLS_RECORD_BYTES };
        let leaves = (self.held.len() + taken) - waits;
        if leaves > 0 {
            let of_slices = leaves - self.held.len();
            let mut plain = vec![IoSlice::new(&self.held)];
            plain.extend(stretch(slices, owed, of_slices).map(IoSlice::new));
            let written = io::Write::write_vectored(&mut self.connection.writer(), &plain)?;
            if written != leaves {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.held = stretch(slices, owed + of_slices, waits).flatten().copied().collect();
        } else {
            self.held.extend(stretch(slices, owed, taken).flatten());
        }
        self.owed = false;
        match self.flush(stream, more) {
            Ok(()) => Ok(owed + taken),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.owed = true;
                match owed + taken {
                    0 | 1 => Err(error),
                    counted => Ok(counted - 1),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Sends ciphertext. `WouldBlock` unless all of it left.
    fn flush(&mut self, stream: &Stream, more: More) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut Raw(stream, more))?;
        }
        Ok(())
    }

    /// Says that nothing more will be sent, once: what waited for company goes before it.
    /// `WouldBlock` until that has left.
    pub fn end_sending(&mut self, stream: &Stream) -> io::Result<()> {
        if !self.said_end {
            io::Write::write_all(&mut self.connection.writer(), &std::mem::take(&mut self.held))?;
            self.connection.send_close_notify();
            self.said_end = true;
        }
        self.flush(stream, More::Ends)
    }

    /// Returns whether a reader would get something, or the end, without waiting.
    pub fn is_readable(&mut self) -> bool {
        let waits = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
        !self.incoming.is_empty() || !self.connection.reader().into_first_chunk().is_err_and(waits)
    }

    /// Reads plaintext. The end is one only if the other end said so: a stream that is cut is an
    /// error, `UnexpectedEof`.
    pub fn poll_read(
        &mut self,
        stream: &Stream,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if into.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let left = std::mem::take(&mut self.incoming);
        if self.decrypt(stream, &left, into)? {
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(stream.poll_readable(context))?;
            match self.receive(stream, into) {
                Ok(true) => return Poll::Ready(Ok(())),
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn receive(&mut self, stream: &Stream, into: &mut ReadBuf<'_>) -> io::Result<bool> {
        with_scratch(|scratch| {
            let most = into.remaining().clamp(RECEIVE_BYTES_MIN, TLS_BATCH_BYTES);
            let read = stream.try_receive(&mut scratch[..most])?;
            if read == 0 {
                self.connection.read_tls(&mut io::empty())?;
            }
            self.decrypt(stream, &scratch[..read], into)
        })
    }

    /// Decrypts until nothing is left of `bytes` or there is no more room: then the rest is kept.
    /// Returns whether anything came of it, the end included.
    fn decrypt(&mut self, stream: &Stream, mut bytes: &[u8], into: &mut ReadBuf<'_>) -> io::Result<bool> {
        let before = into.filled().len();
        loop {
            let mut reader = self.connection.reader();
            match io::BufRead::fill_buf(&mut reader) {
                Ok([]) => return Ok(true),
                Ok(plain) => {
                    let read = plain.len().min(into.remaining());
                    into.put_slice(&plain[..read]);
                    io::BufRead::consume(&mut reader, read);
                    if into.remaining() == 0 {
                        self.incoming = bytes.to_vec();
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    return if into.filled().len() > before { Ok(true) } else { Err(error) };
                }
                Err(_) if bytes.is_empty() => return Ok(into.filled().len() > before),
                Err(_) => {
                    self.connection.read_tls(&mut bytes)?;
                    self.process(stream)?;
                }
            }
        }
    }

    /// Decrypts what was read. What must be answered, a complaint for one, leaves if the kernel takes
    /// it now, and else with what is sent next.
    fn process(&mut self, stream: &Stream) -> io::Result<()> {
        let processed = self.connection.process_new_packets();
        let _ = self.flush(stream, More::Ends);
        processed.map(drop).map_err(broken)
    }
}

/// The stream, as the TLS library reads and writes it.
struct Raw<'s>(&'s Stream, More);

impl io::Read for Raw<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_receive(into)
    }
}

impl io::Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_send(slices, self.1, None)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns `length` bytes of the slices, from `from` on.
fn stretch<'s>(slices: &'s [IoSlice<'_>], from: usize, length: usize) -> impl Iterator<Item = &'s [u8]> + 's {
    let (mut skip, mut left) = (from, length);
    slices.iter().filter_map(move |slice| {
        let begin = skip.min(slice.len());
        skip -= begin;
        let end = slice.len().min(begin + left);
        left -= end - begin;
        (begin < end).then(|| &slice[begin..end])
    })
}

fn with_scratch<T>(work: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| {
        // A byte more than a batch: one may be owed.
        scratch.resize(TLS_BATCH_BYTES + 1, 0);
        work(scratch)
    })
}

fn read_at(file: BorrowedFd<'_>, into: &mut [u8], at: u64) -> io::Result<usize> {
    loop {
        match rustix::io::pread(file, &mut *into, at) {
            Err(rustix::io::Errno::INTR) => {}
            read => return Ok(read?),
        }
    }
}

fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
