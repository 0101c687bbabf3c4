//! The domain's keys, for whoever runs the node.

use std::path::Path;
use std::sync::Arc;

use weft_auth::{Auth, RootFile};
use weft_core::proof::{Caller, Purpose};
use weft_core::service::{KeyRecord, Keys};
use weft_core::{Error, ErrorKind, Result};
use weft_sys::RealDisk;

/// What is made anew when keys are rotated.
const SIGNING: [Purpose; 3] = [Purpose::Credential, Purpose::Capability, Purpose::Audit];

/// Returns the domain's keys; `data` is the node's directory.
pub fn list(auth: &Auth, caller: &Caller, data: &str) -> Result<Keys> {
    let keys = auth.keys(caller)?.into_iter().map(|key| KeyRecord {
        id: key.id,
        purpose: key.purpose,
        current: key.current,
        ended: key.ended,
        made: key.made,
        until: key.until,
    });
    let mut keys: Vec<_> = keys.collect();
    keys.sort_by_key(|key| (key.purpose, std::cmp::Reverse(key.made)));
    let root = auth.root_key(caller)?.map(|name| format!("{data}/auth/{name}"));
    Ok(Keys { root, keys })
}

/// Makes new keys for everything, by the root key where it was made or at `root_key`, and returns them all.
pub async fn rotate(
    auth: &Auth,
    caller: &Caller,
    data: &str,
    root_key: Option<&str>,
    revoke_old: bool,
) -> Result<Keys> {
    let from = root_key.map(root_at).transpose()?;
    for purpose in SIGNING {
        auth.rotate_by(caller, purpose, from.clone()).await?;
    }
    let mut keys = list(auth, caller, data)?;
    if revoke_old {
        // The caller's own proof may be among what dies: all that it is asked for comes before.
        auth.end_old_keys(caller).await?;
        let old = keys.keys.iter_mut().filter(|key| !key.current && key.purpose != Purpose::Audit);
        old.for_each(|key| key.ended = true);
    }
    Ok(keys)
}

fn root_at(path: &str) -> Result<RootFile> {
    let refused = |detail: &'static str| Error::invalid(detail).op("read the root key from").about(path);
    let file = Path::new(path);
    if !file.is_absolute() {
        return Err(refused("it is no absolute path"));
    }
    let (dir, name) = (file.parent(), file.file_name().and_then(|name| name.to_str()));
    let (Some(dir), Some(name)) = (dir, name) else { return Err(refused("it names no file")) };
    let disk = RealDisk::open(dir).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            Error::new(ErrorKind::Unavailable, "there is no such directory on the node's machine")
                .op("read the root key from")
                .about(path)
        }
        _ => error,
    })?;
    Ok(RootFile { disk: Arc::new(disk), name: name.to_owned() })
}
