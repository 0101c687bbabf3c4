//! By what kind of device the machine sends to an address: asked of the kernel (rtnetlink(7)).

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::net::netdevice::index_to_name;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// What packets leave by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Device {
    /// The loopback: they stay in this network namespace.
    Loopback,
    /// A device that copies them to somewhere else.
    Wire,
    /// One that is made of software, such as the way into a container of this machine.
    Other,
}

/// In every namespace.
const LOOPBACK_INDEX: u32 = 1;

/// `struct nlmsghdr` and `struct rtmsg`.
const HEADER_BYTES: usize = 16;
const ROUTE_BYTES: usize = 12;
/// `RTM_GETROUTE` and its answer.
const GET_ROUTE: u16 = 26;
const NEW_ROUTE: u16 = 24;
const IS_REQUEST: u16 = 1;
/// Attributes: `RTA_DST`, `RTA_SRC`, `RTA_OIF`.
const TO: u16 = 1;
const FROM: u16 = 2;
const BY: u16 = 4;

/// Returns by what the machine sends from one of its addresses to another. None if it does not say.
pub(super) fn device_to(to: IpAddr, from: IpAddr) -> Option<Device> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).ok()?;
    send(&socket, &question(to, from)?, SendFlags::empty()).ok()?;
    let mut answer = [0; 4096];
    // The kernel answers before `send` returns, or never.
    let (_, length) = recv(&socket, &mut answer[..], RecvFlags::DONTWAIT).ok()?;
    let index = told(answer.get(..length)?)?;
    if index == LOOPBACK_INDEX {
        return Some(Device::Loopback);
    }
    Some(kind_of(&index_to_name(socket.as_fd(), index).ok()?))
}

fn kind_of(name: &str) -> Device {
    let is_wire = Path::new("/sys/class/net").join(name).join("device").exists();
    if is_wire { Device::Wire } else { Device::Other }
}

fn question(to: IpAddr, from: IpAddr) -> Option<Vec<u8>> {
    let (family, bits) = match (to, from) {
        (IpAddr::V4(_), IpAddr::V4(_)) => (libc::AF_INET, 32),
        (IpAddr::V6(_), IpAddr::V6(_)) => (libc::AF_INET6, 128),
        _ => return None,
    };
    let mut route = vec![family as u8, bits, bits];
    route.resize(ROUTE_BYTES, 0);
    for (what, address) in [(TO, to), (FROM, from)] {
        let address = match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        route.extend_from_slice(&(4 + address.len() as u16).to_ne_bytes());
        route.extend_from_slice(&what.to_ne_bytes());
        route.extend_from_slice(&address);
    }
    let mut whole = Vec::with_capacity(HEADER_BYTES + route.len());
    whole.extend_from_slice(&((HEADER_BYTES + route.len()) as u32).to_ne_bytes());
    whole.extend_from_slice(&GET_ROUTE.to_ne_bytes());
    whole.extend_from_slice(&IS_REQUEST.to_ne_bytes());
    whole.resize(HEADER_BYTES, 0);
    whole.extend_from_slice(&route);
    Some(whole)
}

/// Returns the index of the device that an answer names.
fn told(answer: &[u8]) -> Option<u32> {
    let kind = u16::from_ne_bytes(*answer.get(4..)?.first_chunk()?);
    if kind != NEW_ROUTE {
        return None;
    }
    let mut left = answer.get(HEADER_BYTES + ROUTE_BYTES..)?;
    while let Some(length) = left.first_chunk().map(|length| usize::from(u16::from_ne_bytes(*length))) {
        let attribute = left.get(..length).filter(|attribute| attribute.len() >= 4)?;
        if u16::from_ne_bytes(*attribute.get(2..)?.first_chunk()?) == BY {
            return Some(u32::from_ne_bytes(*attribute.get(4..)?.first_chunk()?));
        }
        left = left.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_on_the_machine_leaves_by_the_loopback() {
        for own in ["127.0.0.1", "127.9.9.9"] {
            let own = own.parse().expect("an address");
            assert_eq!(device_to(own, own), Some(Device::Loopback));
        }
        for own in crate::net::own_addresses(16) {
            assert_eq!(device_to(own, own), Some(Device::Loopback), "{own}");
        }
        let (four, six) = ("127.0.0.1".parse().expect("one"), "::1".parse().expect("one"));
        assert_eq!(device_to(four, six), None);
        assert_eq!(kind_of("lo"), Device::Other, "it is made of software");
    }

    #[test]
    fn an_answer_that_is_cut_off_names_no_device() {
        let whole = [&[0; 4][..], &NEW_ROUTE.to_ne_bytes(), &[0; 22], &[8, 0, 4, 0, 7, 0, 0, 0]].concat();
        assert_eq!(told(&whole), Some(7));
        for length in 0..whole.len() {
            assert_eq!(told(&whole[..length]), None, "{length}");
        }
        let without_length = [&whole[..28], &[0; 4]].concat();
        assert_eq!(told(&without_length), None);
    }
}
