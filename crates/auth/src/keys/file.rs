//! A key's file: 32 secret bytes, what they are for, and a check that nothing was damaged.

use std::path::Path;

use ed25519_dalek::SigningKey;
use weft_core::proof::Purpose;
use weft_core::{Error, ErrorKind, KeyId, Result};
use weft_sys::disk::Entry;
use weft_sys::{Disk, FlushSite, Open, Random, process};
use zeroize::Zeroizing;

/// The root key's file. It can be taken away; only rotation needs it.
pub(crate) const ROOT: &str = "root.key";

/// What signing keys are for, in the order they are made.
pub(super) const SIGNING: [Purpose; 3] = [Purpose::Credential, Purpose::Capability, Purpose::Audit];

pub(crate) const MAGIC: &[u8; 12] = b"weft key v1\n";
const CHECK_BYTES: usize = 8;
const FILE_BYTES: usize = MAGIC.len() + 1 + 32 + CHECK_BYTES;

/// Makes a key of the machine's randomness.
pub(crate) fn make(random: &dyn Random) -> SigningKey {
    let mut seed = Zeroizing::new([0; 32]);
    random.fill(&mut *seed);
    SigningKey::from_bytes(&seed)
}

/// Returns the id of a signing key.
pub(crate) fn id_of(key: &SigningKey) -> KeyId {
    KeyId::of_public_key(key.verifying_key().as_bytes())
}

/// Returns the name of a signing key's file.
pub(crate) fn name_of(purpose: Purpose, id: KeyId) -> String {
    let word = match purpose {
        Purpose::Certificate => return ROOT.to_owned(),
        Purpose::Credential => "credential",
        Purpose::Capability => "capability",
        Purpose::Audit => "audit",
    };
    format!("{word}-{id}.key")
}

/// Returns whether a file in the directory of keys is, by its name, one of a key that signs. The root key is none,
/// whatever its copies are called.
pub fn is_signing_key(name: &str) -> bool {
    let id =
        name.strip_suffix(".key").and_then(|rest| rest.split_once('-')).and_then(|(_, id)| id.parse().ok());
    // As it is written: a name that merely means the same is another file's.
    id.is_some_and(|id| SIGNING.iter().any(|purpose| name_of(*purpose, id) == name))
}

fn number(purpose: Purpose) -> u8 {
    match purpose {
        Purpose::Certificate => 0,
        Purpose::Credential => 1,
        Purpose::Capability => 2,
        Purpose::Audit => 3,
    }
}

pub(crate) fn encode(purpose: Purpose, key: &SigningKey) -> Zeroizing<[u8; FILE_BYTES]> {
    let mut bytes = Zeroizing::new([0; FILE_BYTES]);
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    bytes[MAGIC.len()] = number(purpose);
    bytes[MAGIC.len() + 1..FILE_BYTES - CHECK_BYTES].copy_from_slice(key.as_bytes());
    let check = blake3::hash(&bytes[..FILE_BYTES - CHECK_BYTES]);
    bytes[FILE_BYTES - CHECK_BYTES..].copy_from_slice(&check.as_bytes()[..CHECK_BYTES]);
    bytes
}

pub(crate) fn decode(purpose: Purpose, bytes: &[u8]) -> Result<SigningKey> {
    let bad = |detail: &'static str| Error::corrupt(detail).hint("put back a copy of the key's file");
    let (body, check) = bytes
        .split_last_chunk::<CHECK_BYTES>()
        .filter(|_| bytes.len() == FILE_BYTES && bytes.starts_with(MAGIC))
        .ok_or_else(|| bad("not a key's file"))?;
    if blake3::hash(body).as_bytes()[..CHECK_BYTES] != *check {
        return Err(bad("the key's file is damaged"));
    }
    let (marked, seed) = body[MAGIC.len()..].split_first().ok_or_else(|| bad("not a key's file"))?;
    if *marked != number(purpose) {
        return Err(bad("the key in the file is for something else"));
    }
    let seed: &[u8; 32] = seed.try_into().map_err(|_| bad("not a key's file"))?;
    Ok(SigningKey::from_bytes(seed))
}

/// Keeps a new key, durably.
pub(crate) fn keep(disk: &dyn Disk, purpose: Purpose, key: &SigningKey) -> Result<()> {
    let name = name_of(purpose, id_of(key));
    disk.replace(&name, &*encode(purpose, key), FlushSite::AuthKey)?;
    disk.sync_dir("", FlushSite::AuthKeyDir)
}

/// Reads a key; `None` if its file is not there. `NotPermitted` if others could read it too.
pub(crate) fn read(disk: &dyn Disk, purpose: Purpose, name: &str) -> Result<Option<SigningKey>> {
    let file = match disk.open(name, Open::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    check_private(disk, name)?;
    let mut bytes = Zeroizing::new([0; FILE_BYTES + 1]);
    let read = file.read(&mut *bytes, 0)?;
    decode(purpose, &bytes[..read]).map(Some).map_err(|error| error.op("read").about(name))
}

/// Reads a root key from where it was put away; `None` if there is no such file. `NotPermitted` if it is anything
/// but a plain file of the node's user that nobody else can read.
pub(crate) fn read_put_away(path: &Path) -> Result<Option<SigningKey>> {
    let mut bytes = Zeroizing::new([0; FILE_BYTES + 1]);
    let read = process::read_private_into(path, &mut *bytes).map_err(|error| match error.kind() {
        ErrorKind::NotPermitted | ErrorKind::Denied => error
            .hint("copy it to a file of the node's user that nobody else can read: install -m 600 -o USER"),
        _ => error,
    })?;
    let Some(read) = read else { return Ok(None) };
    let key = decode(Purpose::Certificate, &bytes[..read]);
    key.map(Some).map_err(|error| error.op("read").about(path.display()))
}

/// Removes the files of keys that were replaced, and has it on disk that they are gone.
pub(crate) fn forget(disk: &dyn Disk, replaced: &[String]) -> Result<()> {
    let there: Vec<_> = replaced.iter().filter(|name| disk.measure(name).is_ok()).collect();
    if there.is_empty() {
        return Ok(());
    }
    there.into_iter().try_for_each(|name| remove(disk, name))?;
    disk.sync_dir("", FlushSite::AuthKeyRemove)
}

/// Removes a key's file, if it is there.
pub(crate) fn remove(disk: &dyn Disk, name: &str) -> Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Checks that the directory and every key in it are closed to others, and with `tidy` removes what
/// a crash left of a key that was being made.
pub(crate) fn check_all(disk: &dyn Disk, tidy: bool) -> Result<()> {
    check_private(disk, "")?;
    let mut names = Vec::new();
    disk.list("", &mut |name, entry| {
        if entry == Entry::File {
            names.push(name.to_owned());
        }
        std::ops::ControlFlow::Continue(())
    })?;
    for name in &names {
        if tidy && name.ends_with(".key.new") {
            remove(disk, name)?;
        } else if name.ends_with(".key") {
            check_private(disk, name)?;
        }
    }
    Ok(())
}

fn check_private(disk: &dyn Disk, name: &str) -> Result<()> {
    if disk.is_private(name)? {
        return Ok(());
    }
    let about = if name.is_empty() { "the directory of keys" } else { name };
    Err(Error::not_permitted("others than the node's user can reach it, or it belongs to another")
        .op("use")
        .about(about)
        .hint("chmod go= the directory of keys and what is in it; if others may have read it, rotate"))
}

#[cfg(test)]
mod tests {
    use weft_conformance::file_system::site::Dice;
    use weft_conformance::fuzz::fuzz;

    use super::*;

    const PURPOSES: [Purpose; 4] =
        [Purpose::Certificate, Purpose::Credential, Purpose::Capability, Purpose::Audit];

    #[test]
    fn only_what_signs_is_a_signing_key_by_its_name() {
        let id = KeyId(u128::MAX / 7);
        for purpose in PURPOSES {
            assert_eq!(is_signing_key(&name_of(purpose, id)), purpose != Purpose::Certificate);
        }
        let own = name_of(Purpose::Audit, id);
        for other in [
            "",
            "root.key",
            "root.key.away",
            "root",
            ".key",
            "audit-.key",
            "audit-1.key",
            "root-1.key",
            "a-b.key",
        ] {
            assert!(!is_signing_key(other), "{other}");
        }
        for other in
            [own.to_uppercase(), format!("{own}.new"), format!("x{own}"), own.replace("audit", "root")]
        {
            assert!(!is_signing_key(&other), "{other}");
        }
    }

    #[test]
    fn a_mutated_key_file_is_refused_or_the_key_that_was_kept() {
        let make = |dice: &mut Dice| {
            let key = SigningKey::from_bytes(&[dice.roll(256) as u8; 32]);
            encode(*dice.pick(&PURPOSES), &key).to_vec()
        };
        fuzz("key file", make, |bytes| {
            for purpose in PURPOSES {
                match decode(purpose, bytes) {
                    Ok(key) => assert_eq!(encode(purpose, &key)[..], *bytes),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt),
                }
            }
        });
    }
}
