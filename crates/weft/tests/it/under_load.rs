//! Programs that go round on a mount and look at what they find, while something is done to what serves it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::node::{Node, python, signal, wait};

/// Programs that one script starts, and that end with their test. Each tells its rounds in a file of its name below
/// `scratch`, until `stop` is there.
pub struct Load {
    child: Child,
    scratch: PathBuf,
    said: PathBuf,
    names: &'static [&'static str],
}

impl Load {
    /// Starts a script on places, as who runs the node: what follows its name are those and `scratch`.
    pub fn start(
        node: &Node,
        name: &str,
        script: &str,
        places: &[&Path],
        names: &'static [&'static str],
    ) -> Self {
        let (script, scratch, said) =
            (node.write(name, script), node.make_dir("scratch"), node.path("load.err"));
        let mut command = node.as_user(python());
        command.arg(script).args(places).arg(&scratch);
        command.stdout(Stdio::null()).stderr(fs::File::create(&said).expect("made"));
        Self { child: command.spawn().expect("python starts"), scratch, said, names }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }

    /// Returns how often each program has been round.
    pub fn rounds(&self) -> Vec<u64> {
        let round = |name: &&str| fs::read_to_string(self.scratch.join(name)).ok()?.trim().parse().ok();
        self.names.iter().map(|name| round(name).unwrap_or(0)).collect()
    }

    /// Waits until each program has been round twice more: once with nothing that began before.
    pub fn goes_on(&mut self, within: Duration) {
        let (before, began) = (self.rounds(), Instant::now());
        loop {
            let now = self.rounds();
            let each = self.names.iter().zip(before.iter().zip(&now));
            let stuck: Vec<_> =
                each.filter(|(_, (before, now))| **now < **before + 2).map(|(name, _)| name).collect();
            if stuck.is_empty() {
                return;
            }
            let ended = self.child.try_wait().expect("it is ours");
            assert!(ended.is_none(), "{ended:?}: {}", self.said());
            assert!(began.elapsed() < within, "they hang: {stuck:?}; {}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Has all end, and fails unless all was as it must be.
    pub fn end(mut self) {
        fs::write(self.scratch.join("stop"), "").expect("written");
        let status = wait(&mut self.child);
        assert!(status.success(), "{}", self.said());
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // Its programs go by this one.
        let _ = fs::write(self.scratch.join("stop"), "");
        signal(&self.child, Signal::KILL);
        let _ = self.child.wait();
    }
}
