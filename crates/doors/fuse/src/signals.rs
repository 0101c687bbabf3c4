//! Whether a program that was interrupted is about to end.

use rustix::process::Signal;

/// Signals that by themselves end nothing.
const HARMLESS: [Signal; 8] = [
    Signal::CHILD,
    Signal::CONT,
    Signal::URG,
    Signal::WINCH,
    Signal::STOP,
    Signal::TSTP,
    Signal::TTIN,
    Signal::TTOU,
];

/// Returns whether a signal waits for a thread that will end it, if it can be seen from here.
pub(crate) fn is_dying(thread: u32) -> Option<bool> {
    std::fs::read_to_string(format!("/proc/{thread}/status")).ok().map(|status| has_fatal(&status))
}

/// The same, from what `/proc` says of the thread.
fn has_fatal(status: &str) -> bool {
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
    };
    let harmless = HARMLESS.iter().fold(0, |set, signal| set | 1 << (signal.as_raw() - 1));
    let waiting = (set("SigPnd") | set("ShdPnd")) & !set("SigBlk");
    waiting & !(set("SigCgt") | set("SigIgn") | harmless) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(own: u64, shared: u64, blocked: u64, ignored: u64, caught: u64) -> String {
        format!(
            "Name:\tcp\nState:\tD (disk sleep)\nSigQ:\t1/62\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\n\
             SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\nCapInh:\t0\n"
        )
    }

    #[test]
    fn only_a_signal_that_nobody_catches_ignores_or_holds_back_is_fatal() {
        let bit = |signal: Signal| 1_u64 << (signal.as_raw() - 1);
        let (int, kill) = (bit(Signal::INT), bit(Signal::KILL));
        let table = [
            (status(0, 0, 0, 0, 0), false, "none"),
            (status(kill, 0, 0, 0, 0), true, "killed"),
            (status(0, int, 0, 0, 0), true, "interrupted, and it has no handler"),
            (status(0, int, 0, 0, int), false, "it has one"),
            (status(0, int, 0, int, 0), false, "it ignores it"),
            (status(0, int, int, 0, 0), false, "it holds it back"),
            (status(bit(Signal::CHILD), bit(Signal::WINCH) | bit(Signal::TSTP), 0, 0, 0), false, "harmless"),
            (String::from("nothing of the kind"), false, "unknown"),
        ];
        for (status, fatal, why) in table {
            assert_eq!(has_fatal(&status), fatal, "{why}");
        }
    }
}
