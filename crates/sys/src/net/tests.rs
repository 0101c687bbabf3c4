use std::io::{ErrorKind, IoSlice, Write};
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::AsyncReadExt;

use super::*;

async fn over_tcp() -> (Socket, Socket) {
    let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.expect("a port is free");
    let address = listener.address().expect("it is a port");
    let (here, there) = tokio::join!(Socket::connect(address), listener.accept());
    (here.expect("it connects"), there.expect("it accepts"))
}

async fn receive(mut socket: Socket) -> Vec<u8> {
    let mut all = Vec::new();
    socket.read_to_end(&mut all).await.expect("it reads to the end");
    all
}

#[tokio::test]
async fn a_header_and_a_files_range_arrive_in_order() {
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&content).expect("it is written");
    for (here, there) in [over_tcp().await, Socket::pair().expect("a pair")] {
        let reader = tokio::spawn(receive(there));
        here.send(b"head", More::Follows).await.expect("it is sent");
        let (mut at, end) = (5_usize, 2_999_990_usize);
        while at < end {
            match here.try_send_file(file.as_fd(), at as u64, end - at) {
                Ok(sent) => at += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    here.writable().await.expect("it lives");
                }
                Err(error) => panic!("{error}"),
            }
        }
        drop(here);
        let got = reader.await.expect("it ends");
        assert!(got[..4] == *b"head" && got[4..] == content[5..end]);
    }
}

#[tokio::test]
async fn a_vectored_send_is_one_stream_and_a_files_end_is_zero() {
    let (here, there) = over_tcp().await;
    here.writable().await.expect("it lives");
    let sent = here.try_send(&[IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cd")], More::Ends);
    assert_eq!(sent.expect("it is sent"), 4);
    let file = tempfile::tempfile().expect("a file");
    assert_eq!(here.try_send_file(file.as_fd(), 0, 10).expect("an empty file is no error"), 0);
    drop(here);
    assert_eq!(receive(there).await, b"abcd");
}

#[tokio::test]
async fn a_reader_is_woken_for_as_much_as_it_asked_and_a_lower_mark_loses_nothing() {
    let (here, mut there) = over_tcp().await;
    there.wake_at(100_000).expect("a TCP socket can");
    let mut bytes = vec![0; 200_000];
    let mut reading = Box::pin(async { there.read(&mut bytes).await.expect("it lives") });
    // The first look needs no waking.
    let waits = poll_fn(|context| Poll::Ready(reading.as_mut().poll(context).is_pending()));
    assert!(waits.await, "nothing was sent");
    here.send(&[1; 60_000], More::Ends).await.expect("it is sent");
    let early = tokio::time::timeout(Duration::from_millis(50), &mut reading).await;
    assert!(early.is_err(), "60 000 of 100 000 bytes woke it");
    here.send(&[1; 60_000], More::Ends).await.expect("it is sent");
    assert!(reading.as_mut().await >= 100_000, "all that was there");
    drop(reading);

    here.send(b"rest", More::Ends).await.expect("it is sent");
    while rustix::io::ioctl_fionread(&there).expect("it lives") < 4 {
        tokio::task::yield_now().await;
    }
    there.wake_at(1).expect("a TCP socket can");
    let mut rest = Vec::new();
    drop(here);
    there.read_to_end(&mut rest).await.expect("it ends");
    assert!(rest.ends_with(b"rest"));
}

#[tokio::test]
async fn a_reset_is_not_a_clean_end() {
    let (here, mut there) = over_tcp().await;
    here.send(b"half of it", More::Ends).await.expect("it is sent");
    here.reset();
    let mut all = Vec::new();
    let error = there.read_to_end(&mut all).await.expect_err("the other end must see that it is not whole");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_local_peer_is_known_by_its_uid_and_a_dead_socket_is_replaced() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("node.sock");
    let own = rustix::process::getuid().as_raw();
    std::os::unix::net::UnixListener::bind(&path).expect("a socket nobody serves");
    let listener = Listener::bind_local(&path, 0o666).expect("the dead socket is replaced");
    let (here, there) = tokio::join!(Socket::connect_local(&path), listener.accept());
    let peers = [here.expect("it connects").peer(), there.expect("it accepts").peer()];
    assert_eq!(peers, [Peer::Uid(own); 2]);
    let taken = Listener::bind_local(&path, 0o666).expect_err("somebody serves it");
    assert_eq!(taken.kind(), weft_core::ErrorKind::Exists);
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn the_machines_addresses_are_told_once_each_and_no_more_than_asked() {
    let all = own_addresses(1000);
    assert!(all.contains(&Ipv4Addr::LOCALHOST.into()), "{all:?}");
    assert!(all.iter().enumerate().all(|(at, address)| !all[..at].contains(address)), "{all:?}");
    assert_eq!(own_addresses(1).len(), 1);
    assert!(own_addresses(0).is_empty());
}
