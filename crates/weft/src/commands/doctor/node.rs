//! The node itself: whether it runs and answers, what it says of itself, what one that ended left.

use std::path::Path;
use std::time::Duration;

use weft_client::{Client, Place};
use weft_core::service::Node;
use weft_core::{Deadline, ErrorKind, Result};

use super::Trouble;
use crate::context::Context;

/// How long a node may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Returns whether a node runs there, and what is wrong with it.
pub fn check(context: &Context, dir: &Path) -> Result<(bool, Vec<Trouble>)> {
    let holder = std::fs::read_to_string(dir.join("lock.holder")).unwrap_or_default();
    let lives = is_at_work(&holder);
    if !dir.join("node.sock").exists() {
        return Ok((lives, Vec::new()));
    }
    let asked = context.wait(async {
        let until = Deadline::within(context.sys().clock(), ANSWERS_WITHIN);
        let health = async {
            let client = Client::connect(context.sys(), &Place::of_directory(dir.to_path_buf())).await?;
            client.remote().health(client.caller()).await
        };
        Ok(context.sys().within(until, health).await)
    })?;
    let health = match asked {
        Ok(health) => health,
        // An older one runs, and says less.
        Err(error) if error.kind() == ErrorKind::Unsupported => return Ok((true, Vec::new())),
        Err(error) if lives => {
            let what = format!("{holder} has the directory, and does not answer: {}", error.detail());
            // It may be going over what a crash left, or mending: nothing is to be killed for that.
            let why = "nothing is served until it is through";
            let mend =
                error.advice().unwrap_or("look at its log and wait; if it makes no progress: weft down");
            return Ok((true, vec![Trouble::wrong(what, why, mend)]));
        }
        Err(_) => {
            let why =
                "the node was killed, or its machine was: nothing is lost, and the next start clears it away";
            return Ok((
                false,
                vec![Trouble::doubtful("a node that has ended left its socket", why, "weft up")],
            ));
        }
    };
    let refused = health.not_ready.map(|what| {
        Trouble::wrong(
            what,
            "the node runs, and does not do its work",
            "look at its log, and at the disk: df, dmesg",
        )
    });
    let degraded = health.degraded.into_iter().map(|what| {
        Trouble::doubtful(what, "the node runs, and not all of it works", "weft status; look at its log")
    });
    Ok((true, refused.into_iter().chain(degraded).collect()))
}

/// Returns whether the process that a holder's note names is there, and is a `weft` still: its number may be
/// another's by now.
fn is_at_work(holder: &str) -> bool {
    let pid = holder.rsplit_once("pid ").and_then(|(_, pid)| pid.trim().parse::<u32>().ok());
    let name = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok());
    name.is_some_and(|name| name.trim_end() == "weft")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_no_weft_is_not_taken_for_the_node() {
        // This test's own: it lives, and is called something else.
        for holder in [format!("weft up, pid {}", std::process::id()), String::new(), "pid x".to_owned()] {
            assert!(!is_at_work(&holder), "{holder}");
        }
    }
}
