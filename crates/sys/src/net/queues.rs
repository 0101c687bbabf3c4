//! How many bytes may be on their way in sockets.

use std::fs;
use std::sync::LazyLock;

/// Returns how many bytes of a connection may lie in the queues of its two ends, whatever their buffers have grown
/// to; none if this machine does not say. Only who may force a buffer (`SO_RCVBUFFORCE`) has more in it.
pub fn queued_bytes_max() -> Option<u64> {
    static MAX: LazyLock<Option<u64>> = LazyLock::new(|| {
        let one = |tcp, core| Some(largest("ipv4", tcp)?.max(2 * largest("core", core)?));
        Some(one("tcp_wmem", "wmem_max")? + one("tcp_rmem", "rmem_max")?)
    });
    *MAX
}

/// Returns the last number of a setting. Of `core` a buffer has twice what a program asks for (socket(7)).
fn largest(of: &str, setting: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/sys/net/{of}/{setting}")).ok()?;
    text.split_ascii_whitespace().next_back()?.parse().ok()
}
