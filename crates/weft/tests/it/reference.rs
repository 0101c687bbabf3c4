//! The reference that stands in `docs/` is the one that this program writes.

use std::fs;
use std::path::Path;

use crate::node::Node;

#[test]
fn the_reference_is_as_this_program_writes_it() {
    let node = Node::unstarted();
    let dir = node.make_dir("manual");
    node.run(&["manual", dir.to_str().expect("plain")]).ok();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    for name in ["commands.md", "settings.md", "errors.md", "metrics.md"] {
        let (kept, written) = (kept.join(name), read(&dir.join("reference").join(name)));
        assert!(written.len() > 1000, "{name} says nothing: {written}");
        if std::env::var_os("WEFT_GENERATE").is_some() {
            fs::write(&kept, &written).expect("it is written");
        }
        assert!(
            read(&kept) == written,
            "{name} is stale: WEFT_GENERATE=1 cargo test -p weft --test it reference"
        );
    }
}
