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
    let pid = holder.rsplit_once("pid ").and_then(|(_, pid)| pid.trim().parse::<u32>().ok());
    let lives = pid.is_some_and(|pid| Path::new("/proc").join(pid.to_string()).exists());
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
            let why = "nothing is served";
            return Ok((
                true,
                vec![Trouble::wrong(
                    what,
                    why,
                    format!("look at its log; weft down; kill {}", pid.unwrap_or(0)),
                )],
            ));
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
