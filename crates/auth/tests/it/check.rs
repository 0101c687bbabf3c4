//! What lies beside the tables, damaged while nobody runs: each key's file and each batch of the
//! audit log is named, and nothing is changed by looking.

use weft_core::Result;
use weft_core::service::{Finding, Severity};
use weft_kv::SpaceId;
use weft_sys::{Disk, Open, SimDisk};

use crate::audit::{bytes_of, files, frames, record};
use crate::scene::{Scene, scene};

async fn look(node: &Scene) -> Vec<Finding> {
    let disk = node.disk.beneath("auth").expect("it is there");
    weft_auth::check(&node.sys, node.engine.clone(), SpaceId(2), &*disk).await.expect("it can look")
}

/// A node that recorded something and has stopped.
async fn stopped(node: &Scene) {
    for serial in 1..=3 {
        node.auth.audit().record(record(node, serial, 1)).await;
        node.auth.audit_log().flush().await.expect("it can");
    }
    node.auth.close().await.expect("it closes");
    assert_eq!(look(node).await, [], "before any damage");
}

fn names(disk: &SimDisk, dir: &str) -> Vec<String> {
    let mut names = Vec::new();
    let listed = disk.list(dir, &mut |name, _| {
        names.push(format!("{dir}/{name}"));
        std::ops::ControlFlow::Continue(())
    });
    listed.expect("a directory");
    names
}

fn put(disk: &SimDisk, name: &str, bytes: &[u8]) -> Result<()> {
    let file = disk.open(name, Open::Make)?;
    file.set_len(0)?;
    file.write_at(bytes, 0)
}

/// The one finding there is, if it is of the severity and says where.
fn only(found: &[Finding], severity: Severity, structure: &str, name: &str) -> bool {
    matches!(found, [one] if one.severity == severity && one.structure == structure && one.detail.starts_with(name))
}

#[test]
fn a_damaged_key_is_named_whatever_the_damage() {
    scene(81, |node| async move {
        stopped(&node).await;
        let keys = names(&node.disk, "auth/keys");
        assert_eq!(keys.len(), 4, "a root key, and one for each purpose");
        for name in keys {
            let whole = bytes_of(&node.disk, &name);
            for byte in 0..whole.len() {
                node.disk.flip_bit(&name, byte as u64, (byte % 8) as u8).expect("it is there");
                let found = look(&node).await;
                assert!(only(&found, Severity::Loss, "key", &name), "{name}, byte {byte}: {found:?}");
                node.disk.flip_bit(&name, byte as u64, (byte % 8) as u8).expect("it is there");
            }
            let longer = [&whole[..], b"x"].concat();
            for other in [&[][..], &whole[..whole.len() / 2], &longer] {
                put(&node.disk, &name, other).expect("room");
                let found = look(&node).await;
                assert!(only(&found, Severity::Loss, "key", &name), "{name}: {found:?}");
            }
            put(&node.disk, &name, &whole).expect("room");
            assert_eq!(look(&node).await, []);
        }
    });
}

#[test]
fn a_key_that_is_missing_another_one_or_of_nobody_is_named() {
    let foreign = scene(83, |node| async move { bytes_of(&node.disk, "auth/keys/root.key") });
    scene(82, |node| async move {
        stopped(&node).await;
        let root = "auth/keys/root.key";
        let whole = bytes_of(&node.disk, root);
        let others: Vec<_> = names(&node.disk, "auth/keys").into_iter().filter(|name| name != root).collect();
        for name in &others {
            let bytes = bytes_of(&node.disk, name);
            // With the root key beside it, a missing one is made at the next start.
            node.disk.remove(name).expect("it is there");
            assert!(only(&look(&node).await, Severity::Note, "key", name));
            node.disk.remove(root).expect("it is there");
            assert!(only(&look(&node).await, Severity::Loss, "key", name));
            put(&node.disk, name, &bytes).expect("room");
            assert_eq!(look(&node).await, [], "the root key may be kept elsewhere");
            put(&node.disk, root, &whole).expect("room");
            let stray = format!("{name}.old");
            put(&node.disk, &stray, &bytes).expect("room");
            assert!(only(&look(&node).await, Severity::Note, "key", &stray));
            node.disk.remove(&stray).expect("it is there");
        }
        put(&node.disk, root, &foreign).expect("room");
        assert!(only(&look(&node).await, Severity::Loss, "key", root));
    });
}

#[test]
fn a_damaged_audit_log_is_named_with_the_first_batch_that_is_wrong() {
    scene(84, |node| async move {
        stopped(&node).await;
        let name = files(&node.disk).remove(0);
        let whole = bytes_of(&node.disk, &name);
        let starts = frames(&whole);
        let named = |found: &[Finding], at: usize| {
            only(found, Severity::Loss, "audit log", &format!("{name}: from byte {at} on"))
        };
        for byte in 0..whole.len() {
            node.disk.flip_bit(&name, byte as u64, (byte % 8) as u8).expect("it is there");
            let found = look(&node).await;
            let batch = *starts.iter().rfind(|start| **start <= byte).expect("the file starts at 0");
            assert!(named(&found, batch), "byte {byte}: {found:?}");
            node.disk.flip_bit(&name, byte as u64, (byte % 8) as u8).expect("it is there");
        }
        for cut in 0..whole.len() {
            put(&node.disk, &name, &whole[..cut]).expect("room");
            let found = look(&node).await;
            assert!(only(&found, Severity::Loss, "audit log", &name), "cut at {cut}: {found:?}");
        }
        node.disk.remove(&name).expect("it is there");
        assert!(only(&look(&node).await, Severity::Loss, "audit log", &name));
        // What a crash leaves of a batch that nobody was told of is none of it.
        for more in [&b"x"[..], &[0; 500], &whole[starts[1]..starts[2]]] {
            put(&node.disk, &name, &[&whole[..], more].concat()).expect("room");
            assert_eq!(look(&node).await, []);
        }
    });
}
