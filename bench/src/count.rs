//! What a process asks of the kernel, per operation: strace's full record of a run that
//! is not timed, added up.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;
use crate::machine;

/// Calls that make bytes safe (`sync_file_range` only begins to).
const FLUSHES: [&str; 5] = ["fsync", "fdatasync", "syncfs", "sync", "msync"];
/// Calls that carry bytes through user space; their answer is how many.
const COPIES: &[&str] = &[
    "read", "pread64", "readv", "preadv", "preadv2", "recvfrom", "recvmsg", "write", "pwrite64", "writev",
    "pwritev", "pwritev2", "sendto", "sendmsg",
];
/// How long perf is given to begin.
const PERF_START: Duration = Duration::from_millis(500);
/// How long strace may take to attach or to end.
const STRACE_MAX: Duration = Duration::from_secs(10);

/// What one operation cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PerOperation {
    /// System calls.
    pub calls: f64,
    /// Calls that flush.
    pub flushes: f64,
    /// Bytes that passed through user space, in or out.
    pub copied_bytes: f64,
    /// System calls by name.
    pub by_call: BTreeMap<String, f64>,
}

/// Counts what the processes `pids`, with all their threads, do while `load` makes
/// `operations` operations.
pub fn count(
    pids: &[u32],
    folder: &Path,
    operations: u64,
    load: impl FnOnce() -> Result<()>,
) -> Result<PerOperation> {
    let record = folder.join("strace.out");
    let mut strace = attach(pids, &record)?;
    let outcome = load();
    detach(&mut strace)?;
    outcome?;
    Ok(add_up(&std::fs::read_to_string(&record)?, operations))
}

/// Counts the flushes per operation of the processes `pids` while `load` runs at its own speed.
/// A traced process is so slow that callers no longer meet at a flush; the kernel's own counters
/// slow nobody.
pub fn flushes(
    pids: &[u32],
    folder: &Path,
    operations: u64,
    load: impl FnOnce() -> Result<()>,
) -> Result<f64> {
    let record = folder.join("perf.out");
    let mut perf = Command::new(machine::program("perf", "linux-perf")?);
    let (events, pids) =
        (FLUSHES.map(|name| format!("syscalls:sys_enter_{name}")), pids.iter().map(u32::to_string));
    perf.args(["stat", "-x", ",", "-e", &events.join(","), "-p", &pids.collect::<Vec<_>>().join(",")]);
    let mut perf = perf.arg("-o").arg(&record).stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
    // It does not say when it has begun.
    std::thread::sleep(PERF_START);
    let outcome = load();
    detach(&mut perf)?;
    outcome?;
    let text = std::fs::read_to_string(&record)?;
    let counted: Vec<f64> = text.lines().filter_map(|line| line.split(',').next()?.parse().ok()).collect();
    match counted.is_empty() {
        true => Err(format!("perf counted nothing: {}", text.trim()).into()),
        false => Ok(counted.iter().sum::<f64>() / operations as f64),
    }
}

/// Counts what a program does per operation: a run with few and one with many, so that
/// starting and ending is not counted. `command` makes the program that does a given
/// number of them.
pub fn count_program(
    folder: &Path,
    (few, many): (u64, u64),
    command: impl Fn(u64) -> Result<Command>,
) -> Result<PerOperation> {
    count_beside(folder, many - few, &command(few)?, &command(many)?)
}

/// Counts what a program does per operation: the run `with` makes so many more of them than
/// `without`, and does all else alike.
pub fn count_beside(
    folder: &Path,
    operations: u64,
    without: &Command,
    with: &Command,
) -> Result<PerOperation> {
    let idle = record_of(folder, without)?;
    let busy = record_of(folder, with)?;
    Ok(difference(&add_up(&busy, 1), &add_up(&idle, 1), operations))
}

fn record_of(folder: &Path, command: &Command) -> Result<String> {
    let record = folder.join("strace.out");
    let mut strace = Command::new(machine::program("strace", "strace")?);
    strace.args(["-f", "-q", "-q", "-s", "0", "-e", "signal=none", "-o"]).arg(&record);
    let done = strace.arg(command.get_program()).args(command.get_args()).output()?;
    if !done.status.success() {
        return Err(format!("{command:?} under strace: {}", String::from_utf8_lossy(&done.stderr)).into());
    }
    Ok(std::fs::read_to_string(record)?)
}

fn difference(busy: &PerOperation, idle: &PerOperation, operations: u64) -> PerOperation {
    let per = |busy: f64, idle: f64| (busy - idle).max(0.0) / operations as f64;
    let idle_of = |name: &String| idle.by_call.get(name).copied().unwrap_or_default();
    PerOperation {
        calls: per(busy.calls, idle.calls),
        flushes: per(busy.flushes, idle.flushes),
        copied_bytes: per(busy.copied_bytes, idle.copied_bytes),
        by_call: busy
            .by_call
            .iter()
            .map(|(name, count)| (name.clone(), per(*count, idle_of(name))))
            .collect(),
    }
}

/// Returns `pid` and its direct children: a server's master and its workers.
pub fn family(pid: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    std::iter::once(pid).chain(children.split_whitespace().filter_map(|child| child.parse().ok())).collect()
}

fn attach(pids: &[u32], record: &Path) -> Result<Child> {
    let mut command = Command::new(machine::program("strace", "strace")?);
    command.args(["-f", "-q", "-q", "-s", "0", "-e", "signal=none", "-o"]).arg(record);
    for pid in pids {
        command.args(["-p", &pid.to_string()]);
    }
    let strace = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let until = Instant::now() + STRACE_MAX;
    while !pids.iter().all(|pid| traced(*pid)) {
        if Instant::now() > until {
            return Err(format!("strace does not attach to {pids:?}").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(strace)
}

/// Whether every thread of `pid` has a tracer.
fn traced(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().all(|thread| {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        !status.lines().any(|line| line == "TracerPid:\t0")
    })
}

/// An interrupt makes strace let go of its processes and end.
fn detach(strace: &mut Child) -> Result<()> {
    let pid = rustix::process::Pid::from_child(strace);
    rustix::process::kill_process(pid, rustix::process::Signal::INT)?;
    let until = Instant::now() + STRACE_MAX;
    while strace.try_wait()?.is_none() {
        if Instant::now() > until {
            strace.kill()?;
            return Err("what counts does not end".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn add_up(record: &str, operations: u64) -> PerOperation {
    let mut whole = PerOperation::default();
    for (name, answer) in record.lines().filter_map(call) {
        *whole.by_call.entry(name.to_owned()).or_default() += 1.0;
        whole.calls += 1.0;
        if FLUSHES.contains(&name) {
            whole.flushes += 1.0;
        }
        if COPIES.contains(&name) {
            whole.copied_bytes += answer.max(0) as f64;
        }
    }
    let operations = operations as f64;
    whole.calls /= operations;
    whole.flushes /= operations;
    whole.copied_bytes /= operations;
    whole.by_call.values_mut().for_each(|count| *count /= operations);
    whole
}

/// Reads `PID name(…) = answer` or `PID <... name resumed>…) = answer`. A call that is
/// cut in two is counted where it ends.
fn call(line: &str) -> Option<(&str, i64)> {
    let (_, rest) = line.split_once(' ')?;
    let rest = rest.trim_start();
    let name = match rest.strip_prefix("<... ") {
        Some(resumed) => resumed.split_once(" resumed>")?.0,
        None => rest.split_once('(')?.0,
    };
    let (_, answer) = rest.rsplit_once(" = ")?;
    let answer = answer.split_whitespace().next()?.parse().unwrap_or(0);
    Some((name, answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = "\
100  read(3, \"\"..., 4096)       = 170
100  fsync(5 <unfinished ...>
101  sendfile(6, 7, NULL, 1048576) = 1048576
100  <... fsync resumed>)             = 0
101  write(6, \"\"..., 30) = -1 EPIPE (Broken pipe)
101  +++ exited with 0 +++
";

    #[test]
    fn calls_flushes_and_copied_bytes_are_added_up_per_operation() {
        let per = add_up(RECORD, 2);
        assert_eq!((per.calls, per.flushes, per.copied_bytes), (2.0, 0.5, 85.0));
        assert_eq!(per.by_call["sendfile"], 0.5);
    }

    #[test]
    fn what_starting_costs_is_not_counted() {
        let (once, twice) = (add_up(RECORD, 1), add_up(&RECORD.repeat(3), 1));
        let per = difference(&twice, &once, 4);
        assert_eq!((per.calls, per.flushes, per.copied_bytes), (2.0, 0.5, 85.0));
    }
}
