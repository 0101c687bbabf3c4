//! Ids. Every id is a type of its own; a bare integer in a public signature needs a
//! reason.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! hex_id {
    ($($(#[$doc:meta])* $name:ident($inner:ty, $digits:literal);)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{:0", $digits, "x}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:x})"), self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = crate::Error;
            fn from_str(text: &str) -> crate::Result<Self> {
                <$inner>::from_str_radix(text, 16)
                    .map(Self)
                    .map_err(|e| crate::Error::invalid(concat!("not a ", stringify!($name))).caused_by(e))
            }
        }
    )* };
}

hex_id! {
    /// A volume: a subtree with its own metadata store. The node's own number, kept for good.
    VolumeId(u16, "4");
    /// A container, the unit of access policy: volume (16 bits) and serial (48 bits).
    ContainerId(u64, "16");
    /// An object's id at a store. See [`ObjectId::of_file`] for how files choose theirs.
    ObjectId(u128, "32");
    /// A session, under which opens and locks are held.
    SessionId(u128, "32");
    /// One request of a session, for replay of its answer. Chosen by the client.
    RequestId(u64, "16");
    /// A stage: bytes on their way to becoming a file.
    StageId(u128, "32");
    /// One request's trace through doors, services and logs.
    TraceId(u64, "16");
    /// A credential.
    CredentialId(u128, "32");
    /// A capability: issuer instance (64 bits) and serial (64 bits).
    CapabilityId(u128, "32");
    /// A certified key: the first 16 bytes of its public half's hash.
    KeyId(u128, "32");
    /// A link for somebody without an account. It is also the id of a credential from which all that are
    /// made for the link come: ending that ends them.
    LinkId(u128, "32");
    /// A token by which a program acts for a user. It is also the id of a credential from which all that
    /// are made for the token come: ending that ends them.
    TokenId(u128, "32");
    /// The hash of a caller's canonical name: what owners and ACL checks compare.
    CallerId(u128, "32");
}

/// A file, directory or other inode: volume (16 bits), serial (48 bits), generation
/// (32 bits). Survives rename and restart; never reused; a gone one is `Stale`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId {
    volume: VolumeId,
    serial: u64,
    generation: u32,
}

impl FileId {
    /// The root of the tree: volume 0, serial 1.
    pub const ROOT: Self = Self { volume: VolumeId(0), serial: 1, generation: 0 };
    /// The largest serial.
    pub const SERIAL_MAX: u64 = (1 << 48) - 1;

    /// Returns the id that the root of a volume has in every volume.
    pub const fn root_of(volume: VolumeId) -> Self {
        Self { volume, serial: 1, generation: 0 }
    }

    /// Makes an id. The serial's upper 16 bits must be zero.
    pub fn new(volume: VolumeId, serial: u64, generation: u32) -> Self {
        assert!(serial <= Self::SERIAL_MAX, "a file's serial has 48 bits");
        Self { volume, serial, generation }
    }

    /// Returns the volume.
    pub fn volume(self) -> VolumeId {
        self.volume
    }

    /// Returns the serial within the volume.
    pub fn serial(self) -> u64 {
        self.serial
    }

    /// Returns the generation of the serial.
    pub fn generation(self) -> u32 {
        self.generation
    }

    /// Returns the inode number that doors show: `volume << 48 | serial`.
    pub fn inode(self) -> u64 {
        u64::from(self.volume.0) << 48 | self.serial
    }

    /// Returns the 12 bytes that handles and keys carry: inode number, then
    /// generation, big-endian, so that byte order is id order.
    pub fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.inode().to_be_bytes());
        bytes[8..].copy_from_slice(&self.generation.to_be_bytes());
        bytes
    }

    /// Reads what [`FileId::to_bytes`] wrote.
    pub fn from_bytes(bytes: [u8; 12]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
        let serial = u64::from_be_bytes([0, 0, c, d, e, f, g, h]);
        Self {
            volume: VolumeId(u16::from_be_bytes([a, b])),
            serial,
            generation: u32::from_be_bytes([i, j, k, l]),
        }
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{:x}.{:x}", self.volume.0, self.serial, self.generation)
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileId({self})")
    }
}

impl LinkId {
    /// Returns the credential that all credentials made for the link come from.
    pub fn credential(self) -> CredentialId {
        CredentialId(self.0)
    }
}

impl TokenId {
    /// Returns the credential that all credentials made for the token come from.
    pub fn credential(self) -> CredentialId {
        CredentialId(self.0)
    }
}

impl ContainerId {
    /// Makes a container's id from its volume and serial (48 bits).
    pub fn new(volume: VolumeId, serial: u64) -> Self {
        assert!(serial <= FileId::SERIAL_MAX, "a container's serial has 48 bits");
        Self(u64::from(volume.0) << 48 | serial)
    }

    /// Returns the volume that holds the container's policy.
    pub fn volume(self) -> VolumeId {
        VolumeId((self.0 >> 48) as u16)
    }
}

impl ObjectId {
    /// Returns the id under which a file's bytes are kept and checked: the file's own
    /// id and the serial of its layout, so that a replaced file's old object and its
    /// new one never meet. Inline bytes are checked under it too.
    pub fn of_file(file: FileId, layout: u32) -> Self {
        Self(u128::from(file.inode()) << 64 | u128::from(file.generation()) << 32 | u128::from(layout))
    }
}

/// A domain: the BLAKE3 hash of its offline root key's public half, so that whoever
/// answers for it can be made to prove it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DomainId(pub [u8; 32]);

impl DomainId {
    /// Returns the id of the domain whose root public key this is.
    pub fn of_root_key(root: &[u8; 32]) -> Self {
        Self(*blake3::hash(root).as_bytes())
    }
}

impl fmt::Display for DomainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&data_encoding::BASE32_NOPAD.encode(&self.0).to_ascii_lowercase())
    }
}

impl fmt::Debug for DomainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DomainId({self})")
    }
}

impl std::str::FromStr for DomainId {
    type Err = crate::Error;
    fn from_str(text: &str) -> crate::Result<Self> {
        data_encoding::BASE32_NOPAD
            .decode(text.to_ascii_uppercase().as_bytes())
            .ok()
            .and_then(|bytes| bytes.try_into().ok())
            .map(Self)
            .ok_or_else(|| crate::Error::invalid("not a domain's id"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_id_bytes_round_trip_and_sort_like_ids() {
        let ids = [FileId::ROOT, FileId::new(VolumeId(0), 2, 7), FileId::new(VolumeId(1), 1, 0)];
        for id in ids {
            assert_eq!(FileId::from_bytes(id.to_bytes()), id);
        }
        assert!(ids.windows(2).all(|w| w[0] < w[1] && w[0].to_bytes() < w[1].to_bytes()));
        assert_eq!(ids[2].inode(), 1 << 48 | 1);
        assert_eq!(FileId::root_of(VolumeId(1)), ids[2]);
        assert_eq!(FileId::root_of(VolumeId(0)), FileId::ROOT);
    }

    #[test]
    fn domain_id_text_round_trips_and_is_lower_case() {
        let id = DomainId::of_root_key(&[7; 32]);
        let text = id.to_string();
        assert_eq!(text.parse::<DomainId>().expect("it was just printed"), id);
        assert_eq!(text, text.to_ascii_lowercase());
    }
}
