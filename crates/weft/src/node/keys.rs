//! The domain's keys, for whoever runs the node.

use std::path::Path;
use std::time::Duration;

use weft_auth::Auth;
use weft_core::proof::{Caller, Purpose};
use weft_core::service::{KeyRecord, Keys};
use weft_core::{Error, Result, Time, limits};
use weft_sys::Sys;

use crate::show;

const DAY: Duration = Duration::from_secs(24 * 3600);

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
    let root = match root_key.map(Path::new) {
        None => None,
        Some(path) if !path.is_absolute() => {
            return Err(Error::invalid("it is no absolute path")
                .op("read the root key from")
                .about(path.display()));
        }
        Some(path) => Some(auth.root_at(caller, path).await?),
    };
    for purpose in SIGNING {
        auth.rotate_by(caller, purpose, root.clone()).await?;
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

/// Says what there is to say of keys that soon run out.
pub fn ending(sys: &Sys, auth: &Auth) -> Option<String> {
    line(auth.keys_until(), sys.clock().now())
}

fn line(until: Time, now: Time) -> Option<String> {
    let left = until.since(now);
    let what = match left.as_secs() / DAY.as_secs() {
        _ if left > limits::KEY_RENEW => return None,
        _ if left.is_zero() => "has run out".to_owned(),
        0 => "runs out today".to_owned(),
        1 => "runs out in a day".to_owned(),
        days => format!("runs out in {days} days"),
    };
    Some(format!("a signing key {what} ({} UTC): weft key rotate --root-key FILE", show::time(until)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_soon_run_out_are_told_and_no_others() {
        let until = Time::EPOCH.plus(DAY * 20_000);
        let told = |left: Duration| line(until, Time::EPOCH.plus(DAY * 20_000 - left));
        assert_eq!(told(limits::KEY_RENEW + Duration::from_secs(1)), None);
        for (left, what) in [(limits::KEY_RENEW, "in 60 days"), (DAY * 2, "in 2 days"), (DAY, "in a day")] {
            let line = told(left).expect("it is soon");
            assert!(line.starts_with(&format!("a signing key runs out {what} (2024-10-04")), "{line}");
        }
        assert!(told(DAY / 2).expect("it is soon").contains("runs out today"));
        assert!(line(until, until.plus(DAY)).expect("it is over").contains("has run out"));
    }
}
