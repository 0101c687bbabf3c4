//! The rows that auth keeps: one letter per table, then the key; values are a checksum over key and
//! content, then the content in `postcard`. A row that is not as it was written is refused with
//! `Corrupt`, so nobody is let in by it; `check` names it.
//!
//! | Table | Key | Value |
//! |---|---|---|
//! | `m` | name | [`Domain`], and the count of the node's starts |
//! | `k` | key id | [`KeyRow`] |
//! | `u` | local name | [`UserRow`] |
//! | `i` | uid | local name |
//! | `g` | `maker/name` | the owner's name |
//! | `e` | group id, member id | the member's name |
//! | `r` | member id, group id | nothing |
//! | `s` | group id | how many members it has, a counter of the engine's |
//! | `n` | caller id | the caller's name |
//! | `l` | caller id | [`Line`] |
//! | `c` | credential id | until when its withdrawal is remembered |
//! | `t` | maker's id, link id | [`LinkRow`] |
//! | `q` | link id | [`LinkUses`] |
//! | `o` | owner's id, token id | [`TokenRow`] |
//! | `p` | token id | [`TokenUse`] |
//! | `w` | – | how many withdrawals are remembered, a counter of the engine's |
//! | `a` | – | the audit log's last head |

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weft_core::proof::{Attenuation, KeyCertificate, Purpose, Within};
use weft_core::service::LinkGives;
use weft_core::{
    CallerId, CallerName, CredentialId, DomainId, Error, KeyId, LinkId, Result, Time, TokenId, limits,
};
use weft_kv::{Migration, Order, Read, Row, Schema, SpaceTxn, Stepped, Txn, prefix_end};

use crate::password::PasswordHash;

/// The version of the tables, for whoever says what a directory holds.
pub const SCHEMA_VERSION: u32 = 2;

/// How the tables look. Version 1 had no checksums, a line only for whoever had lost something, and
/// did not count withdrawals: see `docs/decisions/005-sealed-rows-of-identities.md`.
pub(crate) static SCHEMA: Schema =
    Schema { version: SCHEMA_VERSION, migrations: &[Migration { from: 1, step: seal_all }] };

/// Bytes of the checksum that values begin with.
const SEAL_BYTES: usize = 8;

/// The domain this node speaks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Domain {
    /// Its id.
    pub(crate) id: DomainId,
    /// Whoever made it.
    pub(crate) founder: CallerName,
    /// Its members are the administrators.
    pub(crate) administrators: CallerName,
    /// Marks credentials and session secrets as this domain's; see `mint` and `sessions`.
    pub(crate) mark: [u8; 32],
}

/// What the domain says of one of its signing keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeyRow {
    /// What it signs.
    pub(crate) purpose: Purpose,
    /// The root key's word for it.
    pub(crate) certificate: KeyCertificate,
    /// Whether it is the one that signs now.
    pub(crate) current: bool,
    /// Whether it is no longer believed.
    pub(crate) ended: bool,
    /// When it was made.
    pub(crate) made: Time,
}

/// A user.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UserRow {
    /// The password, if there is one.
    pub(crate) password: Option<PasswordHash>,
    /// The uid on the node's own socket.
    pub(crate) uid: Option<u32>,
    /// Whether it may log in.
    pub(crate) enabled: bool,
    /// When it was added.
    pub(crate) added: Time,
}

/// The line a caller's credentials must be on the right side of. Each of the domain's users has one
/// from the first day, so that one that is lost is missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    /// Those made at or before this time are over.
    pub(crate) revoked: Option<Time>,
    /// Those with an older membership must be made afresh.
    pub(crate) membership: u64,
}

/// A link: what its maker said of it. Who holds its secret finds it by [`LinkUses`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LinkRow {
    /// Who made it.
    pub(crate) by: CallerName,
    /// What it is for, and where that was.
    pub(crate) within: Within,
    /// Whether that is a directory.
    pub(crate) is_directory: bool,
    /// What it gives.
    pub(crate) gives: LinkGives,
    /// When it was made, by the stamp that withdrawals are compared with.
    pub(crate) made: Time,
    /// When it ends.
    pub(crate) expires: Time,
    /// How often it may be used.
    pub(crate) count: Option<u64>,
    /// When it was revoked, if it was.
    pub(crate) revoked: Option<Time>,
}

/// Whose a link is, and how often it was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LinkUses {
    /// Who made it.
    pub(crate) by: CallerId,
    /// How often it was used.
    pub(crate) used: u64,
    /// When that was last.
    pub(crate) last: Option<Time>,
}

/// A token: what its owner said of it. Who holds its secret finds it by [`TokenUse`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenRow {
    /// Who made it.
    pub(crate) by: CallerName,
    /// What they call it.
    pub(crate) name: String,
    /// What it is narrowed to.
    pub(crate) limits: Attenuation,
    /// When it was made, by the stamp that withdrawals are compared with.
    pub(crate) made: Time,
    /// When it ends.
    pub(crate) expires: Time,
    /// When it was revoked, if it was.
    pub(crate) revoked: Option<Time>,
}

/// Whose a token is, and when it was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenUse {
    /// Who made it.
    pub(crate) by: CallerId,
    /// When it was used last, as far as was written down.
    pub(crate) last: Option<Time>,
}

/// A row's key: the table's letter and what follows.
pub(crate) fn key(table: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = vec![table];
    parts.iter().for_each(|part| key.extend_from_slice(part));
    key
}

pub(crate) fn domain_key() -> Vec<u8> {
    key(b'm', &[b"domain"])
}

pub(crate) fn starts_key() -> Vec<u8> {
    key(b'm', &[b"starts"])
}

pub(crate) fn key_key(id: KeyId) -> Vec<u8> {
    key(b'k', &[&id.0.to_be_bytes()])
}

pub(crate) fn user_key(local: &str) -> Vec<u8> {
    key(b'u', &[local.as_bytes()])
}

pub(crate) fn uid_key(uid: u32) -> Vec<u8> {
    key(b'i', &[&uid.to_be_bytes()])
}

pub(crate) fn group_key(local: &str) -> Vec<u8> {
    key(b'g', &[local.as_bytes()])
}

pub(crate) fn member_key(group: CallerId, member: CallerId) -> Vec<u8> {
    key(b'e', &[&group.0.to_be_bytes(), &member.0.to_be_bytes()])
}

pub(crate) fn group_of_key(member: CallerId, group: CallerId) -> Vec<u8> {
    key(b'r', &[&member.0.to_be_bytes(), &group.0.to_be_bytes()])
}

pub(crate) fn name_key(id: CallerId) -> Vec<u8> {
    key(b'n', &[&id.0.to_be_bytes()])
}

pub(crate) fn line_key(id: CallerId) -> Vec<u8> {
    key(b'l', &[&id.0.to_be_bytes()])
}

pub(crate) fn count_key(group: CallerId) -> Vec<u8> {
    key(b's', &[&group.0.to_be_bytes()])
}

pub(crate) fn withdrawals_key() -> Vec<u8> {
    key(b'w', &[])
}

pub(crate) fn credential_key(id: CredentialId) -> Vec<u8> {
    key(b'c', &[&id.0.to_be_bytes()])
}

pub(crate) fn link_key(maker: CallerId, id: LinkId) -> Vec<u8> {
    key(b't', &[&maker.0.to_be_bytes(), &id.0.to_be_bytes()])
}

pub(crate) fn link_uses_key(id: LinkId) -> Vec<u8> {
    key(b'q', &[&id.0.to_be_bytes()])
}

pub(crate) fn token_key(owner: CallerId, id: TokenId) -> Vec<u8> {
    key(b'o', &[&owner.0.to_be_bytes(), &id.0.to_be_bytes()])
}

pub(crate) fn token_use_key(id: TokenId) -> Vec<u8> {
    key(b'p', &[&id.0.to_be_bytes()])
}

pub(crate) fn audit_head_key() -> Vec<u8> {
    key(b'a', &[])
}

/// Encodes a value.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|error| Error::internal("a row cannot be encoded").caused_by(error))
}

/// Decodes a value that fills the bytes.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok(_) => Err(damaged()),
        Err(error) => Err(damaged().caused_by(error)),
    }
}

fn damaged() -> Error {
    Error::corrupt("a row of auth is not as it was written").hint("weft fsck")
}

/// A checksum over a row. A row under another key than its own does not match either.
fn seal_of(key: &[u8], content: &[u8]) -> [u8; SEAL_BYTES] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(key.len() as u64).to_be_bytes());
    hasher.update(key);
    hasher.update(content);
    let hash = hasher.finalize();
    let (seal, _) = hash.as_bytes().split_first_chunk().expect("a hash has more than eight bytes");
    *seal
}

/// Returns the stored form of a row's content.
pub(crate) fn sealed(key: &[u8], content: &[u8]) -> Vec<u8> {
    [&seal_of(key, content)[..], content].concat()
}

/// Returns the content of a row. `Corrupt` if the row is not as it was written.
pub(crate) fn content<'v>(key: &[u8], value: &'v [u8]) -> Result<&'v [u8]> {
    let (seal, content) = value.split_first_chunk().ok_or_else(damaged)?;
    if *seal == seal_of(key, content) { Ok(content) } else { Err(damaged()) }
}

/// Reads a row. `Corrupt` if it is not as it was written.
pub(crate) fn opened<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T> {
    decode(content(key, value)?)
}

/// Returns the value under a key.
pub(crate) fn read<T: DeserializeOwned>(rows: &(impl Read + ?Sized), key: &[u8]) -> Result<Option<T>> {
    rows.get(key)?.map(|value| opened(key, &value)).transpose()
}

/// Sets the value under a key.
pub(crate) fn write<T: Serialize>(txn: &mut (impl Txn + ?Sized), key: &[u8], value: &T) -> Result<()> {
    txn.put(key, &sealed(key, &encode(value)?))
}

/// Calls `each` with every row whose key starts with `prefix`, in order: the key's rest and the
/// content; stops once it returns `false`.
pub(crate) fn each_below(
    rows: &(impl Read + ?Sized),
    prefix: &[u8],
    mut each: impl FnMut(&[u8], &[u8]) -> Result<bool>,
) -> Result<()> {
    for row in rows.scan(prefix, &prefix_end(prefix), Order::Rising) {
        let (key, value) = row?;
        if !each(&key[prefix.len()..], content(&key, &value)?)? {
            break;
        }
    }
    Ok(())
}

/// Remembers until when a credential is withdrawn.
pub(crate) fn withdraw(txn: &mut impl Txn, id: CredentialId, until: Time) -> Result<()> {
    let key = credential_key(id);
    if txn.get(&key)?.is_none() {
        txn.bump(&withdrawals_key(), 1)?;
    }
    write(txn, &key, &until)
}

/// Forgets a credential's withdrawal.
pub(crate) fn forget(txn: &mut impl Txn, id: CredentialId) -> Result<()> {
    let key = credential_key(id);
    if txn.get(&key)?.is_none() {
        return Ok(());
    }
    txn.bump(&withdrawals_key(), -1)?;
    txn.delete(&key)
}

/// Gives a caller a line, if it has none yet.
pub(crate) fn begin_line(txn: &mut impl Txn, id: CallerId) -> Result<()> {
    let key = line_key(id);
    if txn.get(&key)?.is_some() { Ok(()) } else { write(txn, &key, &Line::default()) }
}

/// The step from version 1, so many rows at a time. Tables come in the order of their letters: the domain's
/// row is sealed before that of a user is met, and so are all lines that there were.
fn seal_all(txn: &mut SpaceTxn<'_>, from: &[u8]) -> Result<Stepped> {
    let rows: Vec<Row> =
        txn.scan(from, &[], Order::Rising).take(limits::AUTH_STEP_ROWS).collect::<Result<_>>()?;
    let mut users = Vec::new();
    for (key, value) in &rows {
        match key.first() {
            // Counters of the engine's. The second is begun here.
            Some(b's' | b'w') => continue,
            Some(b'c') => txn.bump(&withdrawals_key(), 1)?,
            Some(b'u') => users.push(&key[1..]),
            _ => {}
        }
        txn.put(key, &sealed(key, value))?;
    }
    begin_lines(txn, &users)?;
    if let Some((last, _)) = rows.last().filter(|_| rows.len() == limits::AUTH_STEP_ROWS) {
        // The least key behind it.
        return Ok(Stepped::Until([last, &[0][..]].concat()));
    }
    if txn.get(&domain_key())?.is_some() && txn.get(&starts_key())?.is_none() {
        write(txn, &starts_key(), &0_u64)?;
    }
    Ok(Stepped::Done)
}

/// Gives users a line. One whose domain or name cannot be told is for `check`.
fn begin_lines(txn: &mut SpaceTxn<'_>, users: &[&[u8]]) -> Result<()> {
    let domain = match txn.get(&domain_key())? {
        Some(value) if !users.is_empty() => opened::<Domain>(&domain_key(), &value).ok(),
        _ => None,
    };
    let Some(domain) = domain else { return Ok(()) };
    for local in users.iter().filter_map(|local| std::str::from_utf8(local).ok()) {
        if let Ok(name) = CallerName::user(local, domain.id) {
            begin_line(txn, name.id())?;
        }
    }
    Ok(())
}

/// Reads an id out of a key's 16 bytes.
pub(crate) fn id_of(bytes: &[u8]) -> Result<u128> {
    let bytes = bytes.try_into().map_err(|_| Error::corrupt("a key of auth is not an id"))?;
    Ok(u128::from_be_bytes(bytes))
}

/// Reads two ids out of a key's 32 bytes.
pub(crate) fn pair_of(bytes: &[u8]) -> Result<(u128, u128)> {
    let (first, second) = bytes.split_at(bytes.len().min(size_of::<u128>()));
    Ok((id_of(first)?, id_of(second)?))
}

/// Reads a uid out of a key's 4 bytes.
pub(crate) fn uid_of(bytes: &[u8]) -> Result<u32> {
    let bytes = bytes.try_into().map_err(|_| Error::corrupt("a key of auth is no uid"))?;
    Ok(u32::from_be_bytes(bytes))
}

/// Returns the ids of the groups a caller is in.
pub(crate) fn groups_of(rows: &(impl Read + ?Sized), member: CallerId) -> Result<Vec<CallerId>> {
    let mut groups = Vec::new();
    each_below(rows, &key(b'r', &[&member.0.to_be_bytes()]), |rest, _| {
        groups.push(CallerId(id_of(rest)?));
        Ok(true)
    })?;
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use weft_conformance::file_system::site::Dice;
    use weft_conformance::fuzz::fuzz_within;
    use weft_core::attr::Version;
    use weft_core::proof::Signed;
    use weft_core::{FileId, RelPath, Rights, VolumeId};

    use super::*;

    /// What reading may take of memory: a list may be begun as if it were as long as it says, up to
    /// a mebibyte.
    const MEMORY_MAX: (usize, usize) = (2 << 20, 64);

    /// How a kind of row is made, and what must hold of what is read.
    type Kind = (fn(&mut Dice) -> Vec<u8>, fn(&[u8]));

    /// One for each kind of value in the tables.
    const KINDS: &[Kind] = &[
        (domain, reads_back::<Domain>),
        (key_row, reads_back::<KeyRow>),
        (content::<UserRow>, reads_back::<UserRow>),
        (content::<Line>, reads_back::<Line>),
        (link_row, reads_back::<LinkRow>),
        (content::<LinkUses>, reads_back::<LinkUses>),
        (token_row, reads_back::<TokenRow>),
        (content::<TokenUse>, reads_back::<TokenUse>),
        (|dice| written(&name(dice)), reads_back::<CallerName>),
        (content::<String>, reads_back::<String>),
        (content::<Time>, reads_back::<Time>),
        (content::<u64>, reads_back::<u64>),
        (content::<(u64, [u8; 32])>, reads_back::<(u64, [u8; 32])>),
    ];

    fn written<T: Serialize>(value: &T) -> Vec<u8> {
        encode(value).expect("plain data")
    }

    fn name(dice: &mut Dice) -> CallerName {
        let local = format!("user{}", dice.roll(1 << 40));
        CallerName::user(&local, DomainId([dice.roll(256) as u8; 32])).expect("a good name")
    }

    fn domain(dice: &mut Dice) -> Vec<u8> {
        let (founder, administrators) = (name(dice), name(dice));
        let id = DomainId([dice.roll(256) as u8; 32]);
        written(&Domain { id, founder, administrators, mark: [dice.roll(256) as u8; 32] })
    }

    fn key_row(dice: &mut Dice) -> Vec<u8> {
        let claims = vec![dice.roll(256) as u8; dice.roll(100) as usize];
        let statement =
            Signed::assemble(claims, KeyId(dice.roll(1 << 60).into()), [dice.roll(256) as u8; 64]);
        written(&KeyRow {
            purpose: Purpose::Capability,
            certificate: KeyCertificate { root: [dice.roll(256) as u8; 32], statement },
            current: dice.roll(2) == 0,
            ended: dice.roll(2) == 0,
            made: Time::from_nanos(dice.roll(1 << 60) as i64),
        })
    }

    fn link_row(dice: &mut Dice) -> Vec<u8> {
        let time = |dice: &mut Dice| Time::from_nanos(dice.roll(1 << 60) as i64);
        let within = Within {
            root: FileId::new(VolumeId(dice.roll(256) as u16), dice.roll(1 << 48), 1),
            version: (dice.roll(2) == 0).then(|| Version(dice.roll(1 << 60).into())),
            hint: RelPath::new(*dice.pick(&["", "a", "a/b c/é"])).expect("a path"),
        };
        written(&LinkRow {
            by: name(dice),
            within,
            is_directory: dice.roll(2) == 0,
            gives: *dice.pick(&[LinkGives::Read, LinkGives::Insert]),
            made: time(dice),
            expires: time(dice),
            count: (dice.roll(2) == 0).then(|| dice.roll(9)),
            revoked: (dice.roll(2) == 0).then(|| time(dice)),
        })
    }

    fn token_row(dice: &mut Dice) -> Vec<u8> {
        let time = |dice: &mut Dice| Time::from_nanos(dice.roll(1 << 60) as i64);
        let paths = (0..dice.roll(3)).map(|n| RelPath::new(format!("d/{n}")).expect("a path")).collect();
        let hosts = (0..dice.roll(3)).map(|_| "192.0.2.0/24".parse().expect("a network")).collect();
        let limits = Attenuation { rights: Rights::READ, paths, hosts, ..Attenuation::NONE };
        written(&TokenRow {
            by: name(dice),
            name: format!("rclone{}", dice.roll(9)),
            limits,
            made: time(dice),
            expires: time(dice),
            revoked: (dice.roll(2) == 0).then(|| time(dice)),
        })
    }

    /// Returns what some value is written as: whatever is read of bytes that chance made.
    fn content<T: Serialize + DeserializeOwned>(dice: &mut Dice) -> Vec<u8> {
        loop {
            // Letters make names, few distinct bytes small numbers and short lists.
            let among = *dice.pick(&[&b"abz\0\x01"[..], b"\0\x01\x02", b"\x01\x03abc@:/"]);
            let bytes: Vec<u8> = (0..400).map(|_| *dice.pick(among)).collect();
            if let Ok((value, _)) = postcard::take_from_bytes::<T>(&bytes) {
                return written(&value);
            }
        }
    }

    fn reads_back<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
        match decode::<T>(bytes) {
            Ok(value) => {
                let again = encode(&value).expect("it was just read");
                let second = decode::<T>(&again).expect("it was just written");
                assert_eq!(encode(&second).expect("it was just read"), again);
            }
            Err(error) => assert_eq!(error.kind(), weft_core::ErrorKind::Corrupt),
        }
    }

    #[test]
    fn mutated_rows_and_ids_are_refused_or_read_back() {
        let make = |dice: &mut Dice| {
            let number = dice.roll(KINDS.len() as u64) as u8;
            [vec![number], (KINDS[usize::from(number)].0)(dice)].concat()
        };
        fuzz_within(MEMORY_MAX, "row of auth", make, |bytes| {
            let Some((number, content)) = bytes.split_first() else { return };
            (KINDS[usize::from(*number) % KINDS.len()].1)(content);
            if let Ok(id) = id_of(content) {
                assert_eq!(id.to_be_bytes(), content);
            }
        });
    }
}
