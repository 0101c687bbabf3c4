use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

mod secured;

async fn listen(bounds: Bounds) -> (Listener, SocketAddr, Sys) {
    let sys = Sys::simulated(1);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = Listener::bind(sys.clone(), address, bounds).await.expect("a port is free");
    let address = listener.address().expect("it is a port");
    (listener, address, sys)
}

/// Echoes a byte at a time; leaves when it is told to while it waits for one.
async fn echo(mut guest: Guest) {
    loop {
        tokio::select! {
            () = guest.shutdown.wait() => return,
            byte = guest.socket.read_u8() => match byte {
                Ok(byte) => guest.socket.write_u8(byte).await.expect("it is sent"),
                Err(_) => return,
            },
        }
    }
}

#[tokio::test]
async fn guests_beyond_the_bound_wait_until_one_leaves() {
    let (listener, address, _) = listen(Bounds { connections: 2, ..Bounds::default() }).await;
    let (_stopper, shutdown) = shutdown();
    tokio::spawn(listener.serve(shutdown, Bytes::new(), echo));
    let mut guests = Vec::new();
    for _ in 0..3 {
        let mut socket = Socket::connect(address).await.expect("the kernel queues it");
        socket.write_u8(7).await.expect("it is sent");
        guests.push(socket);
    }
    for guest in &mut guests[..2] {
        assert_eq!(guest.read_u8().await.expect("it is served"), 7);
    }
    let waits = tokio::time::timeout(Duration::from_millis(100), guests[2].read_u8()).await;
    assert!(waits.is_err(), "the third is not served yet");
    drop(guests.remove(0));
    assert_eq!(guests[1].read_u8().await.expect("now it is"), 7);
}

#[tokio::test]
async fn idle_guests_leave_at_once_and_the_busy_ones_are_cut_off_at_the_deadline() {
    let (listener, address, sys) = listen(Bounds::default()).await;
    let (stopper, shutdown) = shutdown();
    let stubborn = Arc::new(AtomicUsize::new(0));
    let count = stubborn.clone();
    let serving = tokio::spawn(listener.serve(shutdown, Bytes::new(), move |mut guest| {
        let count = count.clone();
        async move {
            match guest.socket.read_u8().await {
                Ok(0) => {
                    count.fetch_add(1, Ordering::Relaxed);
                    std::future::pending().await
                }
                _ => echo(guest).await,
            }
        }
    }));
    let mut idle = Socket::connect(address).await.expect("it connects");
    idle.write_u8(1).await.expect("it is sent");
    let mut busy = Socket::connect(address).await.expect("it connects");
    busy.write_u8(0).await.expect("it is sent");
    while stubborn.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stopper.stop();
    assert!(idle.read_u8().await.is_err(), "the idle one is closed");
    assert!(Socket::connect(address).await.is_err(), "nobody new is let in");
    assert!(!serving.is_finished());
    tokio::time::sleep(Duration::from_millis(10)).await;
    sys.sim_clock().expect("it is simulated").step(limits::DRAIN_DEADLINE + Duration::from_secs(1));
    serving.await.expect("it ends");
    assert!(busy.read_u8().await.is_err(), "the busy one was cut off");
}

#[tokio::test]
async fn a_crowded_door_has_less_patience() {
    let bounds = Bounds { connections: 4, ..Bounds::default() };
    let crowd = Arc::<Crowd>::default();
    let guest = || {
        let socket = Socket::pair().expect("a pair").0;
        let stay = Stay::enter(&crowd, socket.peer(), bounds).expect("there is room");
        Guest { socket, shutdown: shutdown().1, stay }
    };
    let first = guest();
    assert_eq!(first.stay.idle(), bounds.idle);
    let others = [guest(), guest(), guest()];
    assert_eq!(first.stay.idle(), bounds.idle / 10);
    drop(others);
    assert_eq!(first.stay.idle(), bounds.idle);
}

#[tokio::test]
async fn who_has_as_many_connections_as_one_may_is_told_so_and_others_come_in() {
    let sys = Sys::real();
    let bounds = Bounds { connections_each: 2, connections_loopback: 2, ..Bounds::default() };
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let listener = Listener::bind(sys, address, bounds).await.expect("a port is free");
    let port = listener.address().expect("it is a port").port();
    let (_stopper, shutdown) = shutdown();
    tokio::spawn(listener.serve(shutdown, Bytes::from_static(b"no"), echo));
    // From one address of the loopback; the next is another machine's.
    let connect = async |from: u8| {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from(([127, 0, 0, from], 0))).expect("the loopback has it");
        socket.connect(SocketAddr::from(([127, 0, 0, 1], port))).await.expect("it is queued")
    };
    let mut guests = vec![connect(1).await, connect(1).await];
    for guest in &mut guests {
        guest.write_u8(7).await.expect("it is sent");
        assert_eq!(guest.read_u8().await.expect("it is served"), 7);
    }
    let mut third = connect(1).await;
    // What it sends does not cost it the answer.
    third.write_all(&[0; 100_000]).await.expect("it is sent");
    let mut answer = Vec::new();
    third.read_to_end(&mut answer).await.expect("the answer arrives");
    assert_eq!(answer, b"no");
    let mut other = connect(2).await;
    other.write_u8(9).await.expect("it is sent");
    assert_eq!(other.read_u8().await.expect("it is served"), 9);
    // Who leaves makes room for the next of its own.
    drop(guests.pop());
    loop {
        let mut next = connect(1).await;
        if next.write_u8(8).await.is_ok() && next.read_u8().await.is_ok_and(|byte| byte == 8) {
            break;
        }
        tokio::task::yield_now().await;
    }
}
