//! The addresses of this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the addresses that others can reach this machine at, and those of the loopback, `max` at
/// most; fewer, or none, where the machine does not say. Addresses that mean something only on one
/// link are left out.
pub fn own_addresses(max: usize) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    each_address(|address| {
        let linked = matches!(address, IpAddr::V6(six) if six.is_unicast_link_local());
        if found.len() < max && !linked && !found.contains(&address) {
            found.push(address);
        }
    });
    found
}

#[expect(unsafe_code, reason = "no library that we have offers this call")]
fn each_address(mut tell: impl FnMut(IpAddr)) {
    let mut first = std::ptr::null_mut();
    // SAFETY: it writes one pointer to where `first` is.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return;
    }
    let mut next: *const libc::ifaddrs = first;
    // SAFETY: each entry, and the address that it points to, lives until the list is freed below;
    // the family says of which type the address is, and it is aligned for the largest.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: as above.
        let Some(address) = (unsafe { entry.ifa_addr.as_ref() }) else { continue };
        match i32::from(address.sa_family) {
            libc::AF_INET => {
                // SAFETY: as above.
                let address = unsafe { &*entry.ifa_addr.cast::<libc::sockaddr_in>() };
                tell(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into());
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let address = unsafe { &*entry.ifa_addr.cast::<libc::sockaddr_in6>() };
                tell(Ipv6Addr::from(address.sin6_addr.s6_addr).into());
            }
            _ => {}
        }
    }
    // SAFETY: the list is the one that was made above, and nothing of it is kept.
    unsafe { libc::freeifaddrs(first) };
}
