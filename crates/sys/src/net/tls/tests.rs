//! The other end is the TLS library's own client, fed by hand where what it says is to be spoilt.

mod clients;

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use weft_core::limits::{TLS_BATCH_BYTES, TLS_HANDSHAKE_BYTES_MAX, TLS_RECORD_BYTES};

use super::{Tls, TlsSettings};
use crate::net::{More, Socket};
use crate::random::{Random, SeededRandom};

/// How long anything here may take.
const LONG: Duration = Duration::from_secs(20);

struct Sides {
    tls: Tls,
    client: Arc<ClientConfig>,
}

fn sides() -> Sides {
    sides_asking(None)
}

/// Sides of which the server asks clients for certificates of these authorities.
fn sides_asking(clients: Option<&[Vec<u8>]>) -> Sides {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (chain, key) = (own.cert.pem(), own.signing_key.serialize_pem());
    let settings =
        TlsSettings { chain: chain.as_bytes(), key: key.as_bytes(), protocols: &[b"http/1.1"], clients };
    let tls = Tls::server(&settings).expect("it is good");
    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone()).expect("it is good");
    let client = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("they are supported")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Sides { tls, client: Arc::new(client) }
}

fn name() -> ServerName<'static> {
    ServerName::try_from("localhost").expect("a name")
}

/// Returns a secured socket and its client.
async fn secured() -> (Socket, TlsStream<Socket>) {
    let sides = sides();
    let (here, there) = Socket::pair().expect("a pair");
    let connector = TlsConnector::from(sides.client);
    let (here, there) = tokio::join!(here.secured(&sides.tls), connector.connect(name(), there));
    (here.expect("they shake hands"), there.expect("they shake hands"))
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n % 251) as u8).collect()
}

async fn send_file(socket: &Socket, file: &std::fs::File, mut at: usize, end: usize) {
    while at < end {
        match socket.try_send_file(file.as_fd(), at as u64, end - at) {
            Ok(0) => panic!("the file is as long as that"),
            Ok(sent) => at += sent,
            Err(error) if error.kind() == ErrorKind::WouldBlock => socket.writable().await.expect("it lives"),
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn a_header_a_files_range_and_slices_arrive_in_order_and_the_end_is_said() {
    let (here, mut there) = secured().await;
    let bytes = content(3_000_000);
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&bytes).expect("it is written");
    let reader = tokio::spawn(async move {
        let mut all = Vec::new();
        there.read_to_end(&mut all).await.map(|_| all)
    });
    here.send(b"head", More::Follows).await.expect("it is sent");
    send_file(&here, &file, 5, 2_999_990).await;
    assert_eq!(here.try_send_file(file.as_fd(), 3_000_000, 10).expect("its end is no error"), 0);
    // Slices of all lengths, some of them empty.
    for length in [0, 1, 16_383, 16_384, 16_385, 70_000, 200_000] {
        let mut left = &bytes[..length];
        while !left.is_empty() {
            let (one, other) = left.split_at(left.len() / 3);
            match here.try_send(&[IoSlice::new(one), IoSlice::new(b""), IoSlice::new(other)], More::Follows) {
                Ok(sent) => left = &left[sent..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    here.writable().await.expect("it lives")
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    here.end_sending().await.expect("what waited for more is sent");
    let got = reader.await.expect("it ends").expect("the end was said");
    let mut expected = [b"head", &bytes[5..2_999_990]].concat();
    for length in [0, 1, 16_383, 16_384, 16_385, 70_000, 200_000] {
        expected.extend_from_slice(&bytes[..length]);
    }
    assert!(got == expected, "{} of {} bytes", got.len(), expected.len());
}

#[tokio::test]
async fn what_comes_is_read_whole_by_whatever_buffer() {
    for size in [1, 7, 4096, 20_000, 300_000] {
        let (mut here, mut there) = secured().await;
        let bytes = content(if size == 1 { 40_000 } else { 1_000_000 });
        let expected = bytes.clone();
        let writer = tokio::spawn(async move {
            there.write_all(&bytes).await.expect("it is sent");
            there.shutdown().await.expect("the end is said");
            // Whoever has said their end can still be answered.
            let mut answer = Vec::new();
            there.read_to_end(&mut answer).await.expect("the end is said");
            answer
        });
        let (mut all, mut buffer) = (Vec::new(), vec![0; size]);
        loop {
            here.readable().await.expect("it lives");
            match here.read(&mut buffer).await.expect("it lives") {
                0 => break,
                read => all.extend_from_slice(&buffer[..read]),
            }
        }
        assert!(all == expected, "{size}: {} bytes", all.len());
        here.send(b"well", More::Ends).await.expect("it is sent");
        here.end_sending().await.expect("it is said");
        assert_eq!(writer.await.expect("it ends"), b"well");
    }
}

#[tokio::test]
async fn what_counts_as_sent_leaves_though_nobody_sends_more() {
    let (here, mut there) = secured().await;
    let bytes = content(3_000_000);
    let sent = bytes.clone();
    let sending = tokio::spawn(async move {
        here.send(&sent, More::Ends).await.expect("it is sent");
        here
    });
    // Once nothing moves any more, whoever sends must still know that not all has left.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!sending.is_finished(), "a pair's buffers do not hold so much");
    let mut got = vec![0; bytes.len()];
    tokio::time::timeout(LONG, there.read_exact(&mut got))
        .await
        .expect("nothing is left behind")
        .expect("it");
    assert!(got == bytes);
    drop(sending.await.expect("it ends"));
}

#[tokio::test]
async fn a_reader_that_stops_costs_one_batch() {
    let (here, mut there) = secured().await;
    let bytes = content(TLS_BATCH_BYTES * 32);
    let mut sent = 0;
    loop {
        let next = &bytes[sent % bytes.len()..];
        match here.try_send(&[IoSlice::new(next)], More::Follows) {
            Ok(more) => sent += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
        assert!(sent < 100 << 20, "a pair's buffers do not hold so much");
    }
    for _ in 0..100 {
        let more = here.try_send(&[IoSlice::new(&bytes[sent % bytes.len()..])], More::Follows);
        assert_eq!(more.expect_err("it is full").kind(), ErrorKind::WouldBlock);
    }
    // What the kernel has comes without anybody's help.
    let mut got = 0;
    let mut buffer = vec![0; 1 << 20];
    while let Ok(read) = tokio::time::timeout(Duration::from_millis(100), there.read(&mut buffer)).await {
        got += read.expect("it lives");
    }
    assert!(sent > got && sent - got <= TLS_BATCH_BYTES, "{sent} were taken, {got} came");
}

#[tokio::test]
async fn a_stream_that_is_cut_is_no_end() {
    let (mut here, mut there) = secured().await;
    // Bytes that lie unread where it is dropped would make it a reset.
    here.send(b"1", More::Ends).await.expect("it is sent");
    there.read_u8().await.expect("it comes");
    there.write_all(b"half").await.expect("it is sent");
    there.flush().await.expect("it is sent");
    drop(there);
    let mut all = Vec::new();
    assert_eq!(
        here.read_to_end(&mut all).await.expect_err("no end was said").kind(),
        ErrorKind::UnexpectedEof
    );
    assert_eq!(all, b"half");

    let (here, mut there) = secured().await;
    here.send(b"half", More::Ends).await.expect("it is sent");
    drop(here);
    let mut all = Vec::new();
    assert_eq!(
        there.read_to_end(&mut all).await.expect_err("no end was said").kind(),
        ErrorKind::UnexpectedEof
    );
}

#[tokio::test]
async fn what_is_no_handshake_is_refused_with_a_reason() {
    let sides = sides();
    // A greeting that says it is longer, and might be.
    let mut endless = vec![22, 3, 1, 0x40, 0, 1, 0, 0xff, 0];
    endless.resize(5 + (16 << 10), 0);
    endless.extend([22, 3, 1, 0x40, 0]);
    endless.resize(TLS_HANDSHAKE_BYTES_MAX + 4096, 0);
    let plain = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
    let cases = [
        ("a plain request", plain, ErrorKind::InvalidData, true),
        ("too long a record", [&[22, 3, 1, 0xff, 0xff][..], &[0; 99]].concat(), ErrorKind::InvalidData, true),
        ("without an end", endless, ErrorKind::InvalidData, false),
        ("broken off", vec![22, 3, 1, 2, 0, 1, 0], ErrorKind::UnexpectedEof, false),
    ];
    for (what, bytes, kind, told) in cases {
        let (here, mut there) = Socket::pair().expect("a pair");
        let talking = tokio::spawn(async move {
            // It may be hung up on before it is done.
            let _ = there.write_all(&bytes).await;
            if kind == ErrorKind::UnexpectedEof {
                there.end_sending().await.expect("it is said");
            }
            let mut answer = Vec::new();
            let _ = there.read_to_end(&mut answer).await;
            answer
        });
        let shaken = tokio::time::timeout(LONG, here.secured(&sides.tls)).await.expect("it ends");
        assert_eq!(shaken.expect_err(what).kind(), kind, "{what}");
        let answer = talking.await.expect("it ends");
        assert_eq!(answer.first() == Some(&21), told, "{what}: {answer:?}");
    }
}

/// A client by hand, on a plain socket.
struct ByHand {
    tls: ClientConnection,
    socket: Socket,
}

impl ByHand {
    fn new(sides: &Sides, socket: Socket) -> Self {
        Self { tls: ClientConnection::new(sides.client.clone(), name()).expect("it begins"), socket }
    }

    /// Returns what it wants to send.
    fn says(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut bytes).expect("memory takes it");
        }
        bytes
    }

    async fn shake_hands(&mut self) {
        while self.tls.is_handshaking() {
            let said = self.says();
            self.socket.send(&said, More::Ends).await.expect("it is sent");
            if self.tls.is_handshaking() {
                self.hear().await;
            }
        }
        let said = self.says();
        self.socket.send(&said, More::Ends).await.expect("it is sent");
    }

    /// Hears what comes next. Returns its bytes; none at the end.
    async fn hear(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 16];
        let read = self.socket.read(&mut bytes).await.expect("it lives");
        bytes.truncate(read);
        let mut left = &bytes[..];
        while !left.is_empty() {
            self.tls.read_tls(&mut left).expect("there is room");
            self.tls.process_new_packets().expect("it is good");
            // Plain bytes make room for more.
            let mut plain = [0; 1 << 15];
            while self.tls.reader().read(&mut plain).is_ok_and(|read| read > 0) {}
        }
        bytes
    }
}

#[tokio::test]
async fn records_are_full_whatever_the_pieces() {
    let sides = sides();
    let (here, there) = Socket::pair().expect("a pair");
    let mut client = ByHand::new(&sides, there);
    let (here, ()) = tokio::join!(here.secured(&sides.tls), client.shake_hands());
    let here = here.expect("they shake hands");
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&content(1 << 20)).expect("it is written");
    let reading = tokio::spawn(async move {
        let mut all = Vec::new();
        loop {
            match client.hear().await {
                bytes if bytes.is_empty() => return all,
                bytes => all.extend(bytes),
            }
        }
    });
    here.send(&[7; 300], More::Follows).await.expect("it is sent");
    for piece in 0..4 {
        send_file(&here, &file, piece << 18, (piece + 1) << 18).await;
    }
    here.send(&[7; 10], More::Follows).await.expect("it is sent");
    here.send(&[7; 10], More::Ends).await.expect("it is sent");
    here.end_sending().await.expect("it is said");
    let bytes = reading.await.expect("it ends");
    let (mut lengths, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        lengths.push(usize::from(bytes[at + 3]) << 8 | usize::from(bytes[at + 4]));
        at += 5 + lengths[lengths.len() - 1];
    }
    // Each carries a type and a seal beside its content. Two tickets go before, the end behind.
    let full = TLS_RECORD_BYTES + 17;
    let mut expected = Vec::new();
    for piece in 0..4 {
        expected.extend([full; 16]);
        expected.extend((piece == 0).then_some(300 + 17));
    }
    expected.extend([20 + 17, 2 + 17]);
    let content: Vec<usize> = lengths.iter().copied().skip_while(|length| *length != full).collect();
    assert_eq!(content, expected);
}

/// Changes a few bytes: bits flipped, bytes cut out, repeated, or put in.
fn spoil(bytes: &mut Vec<u8>, random: &SeededRandom) {
    for _ in 0..=random.u64() % 4 {
        if bytes.is_empty() {
            return;
        }
        let at = (random.u64() % bytes.len() as u64) as usize;
        let length = (random.u64() % 40) as usize;
        let end = bytes.len().min(at + length);
        match random.u64() % 5 {
            0 => bytes[at] ^= 1 << (random.u64() % 8),
            1 => bytes[at] = random.u64() as u8,
            2 => drop(bytes.drain(at..end)),
            3 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            _ => bytes.truncate(at),
        }
    }
}

#[tokio::test]
async fn spoilt_handshakes_and_records_never_panic_nor_read_as_something_else() {
    let sides = sides();
    let plain = content(50_000);
    let (mut refused, mut cut) = (0, 0);
    let rounds = if std::env::var_os("WEFT_TEST_FULL").is_some() { 50_000 } else { 1500 };
    for seed in 0..rounds {
        let random = SeededRandom::new(seed);
        let (here, there) = Socket::pair().expect("a pair");
        let mut client = ByHand::new(&sides, there);
        if seed % 3 == 0 {
            let mut greeting = client.says();
            spoil(&mut greeting, &random);
            client.socket.send(&greeting, More::Ends).await.expect("a pair holds it");
            client.socket.end_sending().await.expect("it is said");
            let shaken = tokio::time::timeout(LONG, here.secured(&sides.tls)).await;
            refused += u32::from(shaken.unwrap_or_else(|_| panic!("seed {seed}: it hangs")).is_err());
            continue;
        }
        let (here, ()) = tokio::join!(here.secured(&sides.tls), client.shake_hands());
        let mut here = here.expect("they shake hands");
        let sent = (random.u64() % plain.len() as u64) as usize;
        client.tls.writer().write_all(&plain[..sent]).expect("there is room");
        client.tls.send_close_notify();
        let mut records = client.says();
        spoil(&mut records, &random);
        client.socket.send(&records, More::Ends).await.expect("a pair holds it");
        client.socket.end_sending().await.expect("it is said");
        let mut got = Vec::new();
        let read = tokio::time::timeout(LONG, here.read_to_end(&mut got)).await;
        let read = read.unwrap_or_else(|_| panic!("seed {seed}: it hangs"));
        assert!(plain.starts_with(&got), "seed {seed}: what was never sent is read");
        assert!(read.is_err() || got.len() == sent, "seed {seed}: {} of {sent} bytes are whole", got.len());
        cut += u32::from(read.is_err());
    }
    println!("{rounds} spoilt: {refused} handshakes and {cut} streams refused");
    assert!(refused > 0 && cut > 0);
}

#[test]
fn what_cannot_be_used_is_refused_when_it_is_given() {
    let one = rcgen::generate_simple_self_signed(["a".to_owned()]).expect("a certificate");
    let other = rcgen::generate_simple_self_signed(["a".to_owned()]).expect("a certificate");
    let (chain, key) = (one.cert.pem(), one.signing_key.serialize_pem());
    let others = other.signing_key.serialize_pem();
    let made = |chain: &str, key: &str| {
        let settings =
            TlsSettings { chain: chain.as_bytes(), key: key.as_bytes(), protocols: &[], clients: None };
        Tls::server(&settings).map(drop).map_err(|error| error.kind())
    };
    assert_eq!(made(&chain, &key), Ok(()));
    let bad = Err(weft_core::ErrorKind::Invalid);
    let cases = [
        (chain.as_str(), others.as_str()),
        ("", key.as_str()),
        (chain.as_str(), ""),
        (chain.as_str(), chain.as_str()),
        (key.as_str(), key.as_str()),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", key.as_str()),
        ("-----BEGIN CERTIFICATE-----\n!\n", key.as_str()),
    ];
    for (number, (chain, key)) in cases.into_iter().enumerate() {
        assert_eq!(made(chain, key), bad, "case {number}");
    }
}
