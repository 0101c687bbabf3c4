//! The commands of the README and of the guides, run as they are written.
//!
//! Each guide has a machine of its own (`guides/machine.sh`: namespaces in which its hosts and ports are
//! there), and a scene beside it that makes what it takes for granted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;
use weft_conformance::run::{have, not_run};

use crate::node::{NOBODY, Node, weft};

/// A test for each: its name, and the text.
macro_rules! guides {
    ($($test:ident: $path:literal,)*) => {
        const GUIDES: &[&str] = &[$($path),*];
        $(
            #[test]
            fn $test() {
                run($path);
            }
        )*
    };
}

guides! {
    the_commands_of_the_readme_work: "README.md",
    the_commands_on_client_certificates_work: "docs/guides/client-certificates.md",
    the_commands_on_configuring_work: "docs/guides/configuring.md",
    the_commands_on_drop_boxes_work: "docs/guides/drop-boxes.md",
    the_first_steps_work: "docs/guides/first-steps.md",
    the_commands_on_https_work: "docs/guides/https.md",
    the_commands_on_issuers_work: "docs/guides/issuers.md",
    the_commands_on_links_work: "docs/guides/links.md",
    the_commands_on_mounting_work: "docs/guides/mounting.md",
    the_commands_on_moving_data_work: "docs/guides/moving-data.md",
    the_commands_on_operating_work: "docs/guides/operating.md",
    the_commands_on_sharing_work: "docs/guides/sharing.md",
    the_commands_on_third_party_copies_work: "docs/guides/third-party-copies.md",
    the_commands_on_uploads_work: "docs/guides/uploads.md",
    the_commands_on_users_and_tokens_work: "docs/guides/users.md",
}

const PROGRAMS: &[&str] =
    &["unshare", "ip", "setpriv", "bash", "curl", "openssl", "rclone", "gfal-copy", "getfattr"];

#[test]
fn every_guide_with_commands_is_run() {
    let dir = root().join("docs/guides");
    for entry in fs::read_dir(dir).expect("the guides are there") {
        let path = entry.expect("it is read").path();
        let shown = path.strip_prefix(root()).expect("it lies below").to_string_lossy().into_owned();
        assert!(
            blocks(&path).is_empty() || GUIDES.contains(&shown.as_str()),
            "{shown} has commands that nobody runs"
        );
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("it is there")
}

/// Returns what stands between ```` ```sh ```` and ```` ``` ````.
fn blocks(guide: &Path) -> Vec<String> {
    let text = fs::read_to_string(guide).expect("it is read");
    let pieces = text.split("```sh\n").skip(1);
    pieces.map(|piece| piece.split("```").next().unwrap_or_default().to_owned()).collect()
}

fn run(guide: &str) {
    if !have(guide, PROGRAMS) {
        return;
    }
    if !geteuid().is_root() {
        return not_run(guide, "only root makes machines");
    }
    let node = Node::unstarted();
    let blocks = blocks(&root().join(guide));
    assert!(!blocks.is_empty(), "{guide} has no commands");
    for (at, block) in blocks.iter().enumerate() {
        node.write(&format!("block.{}", at + 1), block);
    }
    let scenes = root().join("crates/weft/tests/it/guides");
    let name = Path::new(guide).file_stem().expect("it has a name");
    let scene = scenes.join(name).with_extension("sh");
    let mut command = Command::new("unshare");
    command
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "bash"])
        .arg(scenes.join("machine.sh"));
    command.arg(node.path("")).arg(NOBODY.to_string()).arg(weft()).arg(scene);
    node.feed_command(&mut command, b"").ok();
}
