//! Laws of what a right reaches: it works on bytes wherever they lie, by an entry that gives no
//! more or a credential that carries no more, and it ends with the condition it rests on.

use std::time::Duration;

use async_trait::async_trait;
use weft_core::acl::{AclEntry, Condition};
use weft_core::attr::SetAttr;
use weft_core::form::{
    BytesSource, Call, FileSystem, Piece, Range, Seek, Shape, Source, StageHint, Stopped, WriteAt,
};
use weft_core::proof::{Attenuation, Caller, CredentialClaims};
use weft_core::{ErrorKind, Result, Rights};

use super::Subject;
use super::rights::{CUT, PASS, Trying, prepare};
use super::site::*;

const PIECE: usize = 1 << 20;

/// Where bytes lie depends on how many they are.
const SIZES: [usize; 2] = [100, 256 << 10];

/// Ways to exercise one right on bytes: what it needs, and the act on `d`, which holds the file `f`.
type Exercise = (&'static str, Rights, for<'a> fn(&'a dyn FileSystem, &'a Call, &'a [u8]) -> Trying<'a>);

async fn write_by(
    fs: &dyn FileSystem,
    call: &Call,
    need: Rights,
    place: WriteAt,
    bytes: &[u8],
) -> Result<()> {
    let opened = fs.open(call, &at("d/f"), &how(need)).await?;
    write_to(&*opened.file, call, place, bytes).await?;
    opened.file.sync(call, Range::ALL).await?;
    opened.file.close(call).await
}

async fn publish_at(fs: &dyn FileSystem, call: &Call, path: &str, bytes: &[u8]) -> Result<()> {
    let stage = fs.stage(call, &at(path), &StageHint::default()).await?;
    // In two goes, and in two parts: what is staged is gone on with and joined.
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    stage.put(call, 1, 0, &mut BytesSource::new(first.to_vec())).await?;
    stage.put(call, 1, first.len() as u64, &mut BytesSource::new(rest.to_vec())).await?;
    stage.put(call, 2, 0, &mut BytesSource::new(bytes.to_vec())).await?;
    stage.publish(call, &[], &SetAttr::default(), &free()).await.map(drop)
}

const EXERCISES: &[Exercise] = &[
    ("read", Rights::READ, |fs, call, bytes| Box::pin(read_by(fs, call, Rights::READ, bytes.len()))),
    ("execute", Rights::EXECUTE, |fs, call, bytes| Box::pin(read_by(fs, call, Rights::EXECUTE, bytes.len()))),
    ("append", Rights::APPEND, |fs, call, bytes| {
        Box::pin(write_by(fs, call, Rights::APPEND, WriteAt::End, bytes))
    }),
    ("append by write", Rights::WRITE, |fs, call, bytes| {
        Box::pin(write_by(fs, call, Rights::WRITE, WriteAt::End, bytes))
    }),
    ("write", Rights::WRITE, |fs, call, bytes| {
        Box::pin(write_by(fs, call, Rights::WRITE, WriteAt::Offset(0), bytes))
    }),
    ("cut", Rights::WRITE, |fs, call, _| {
        Box::pin(async move { fs.set(call, &at("d/f"), &CUT, &free()).await.map(drop) })
    }),
    ("extend", Rights::WRITE, |fs, call, bytes| {
        Box::pin(async move {
            let file = fs.open(call, &at("d/f"), &how(Rights::WRITE)).await?.file;
            let length = bytes.len() as u64;
            file.shape(call, Shape::Allocate { at: length, length, keep_size: false }).await?;
            file.seek(call, 0, Seek::Hole).await?;
            file.close(call).await
        })
    }),
    ("publish over", Rights::WRITE, |fs, call, bytes| Box::pin(publish_at(fs, call, "d/f", bytes))),
    ("publish", Rights::INSERT, |fs, call, bytes| Box::pin(publish_at(fs, call, "d/n", bytes))),
];

async fn read_by(fs: &dyn FileSystem, call: &Call, need: Rights, length: usize) -> Result<()> {
    let opened = fs.open(call, &at("d/f"), &how(need)).await?;
    let bytes = read_of(&*opened.file, call, Range::ALL).await?;
    assert_eq!(bytes.len(), length);
    opened.file.close(call).await
}

async fn prepare_bytes(site: &Site<'_>, user: &Caller, entries: Vec<AclEntry>, bytes: &[u8]) {
    prepare(site, user, Rights::NONE).await;
    let id = site.find("d/f").await.works();
    site.write(id, 0, bytes).await;
    site.grant("d", entries).await;
}

/// A right works on bytes of any size, whether the ACL gives that right alone or the credential
/// carries that right alone; and with every other right it does not.
pub async fn a_right_reaches_bytes_of_any_size_and_no_further(subject: &dyn Subject) {
    let site = Site::of(subject);
    let alice = site.user("alice");
    let narrowed = |rights: Rights| {
        let limits = Attenuation { rights, ..Attenuation::default() };
        let claims = CredentialClaims { limits, ..subject.domain().claims("alice") };
        subject.domain().caller_with(&claims)
    };
    for (size, (name, right, act)) in
        SIZES.into_iter().flat_map(|size| EXERCISES.iter().map(move |e| (size, e)))
    {
        let bytes = pattern(size, 1);
        let (with, without) = (PASS | *right, Rights::ALL - *right);
        for (caller, acl, good) in [
            (alice.clone(), with, true),
            (narrowed(with), Rights::ALL, true),
            (alice.clone(), without, false),
            (narrowed(without), Rights::ALL, false),
        ] {
            let limited = caller.limits().rights;
            prepare_bytes(&site, &alice, vec![AclEntry::allow(who(&alice), acl)], &bytes).await;
            let answer = act(&*site.fs, &site.call_of(&caller, 2), &bytes).await;
            let kind = answer.as_ref().map_err(|e| e.kind());
            let expected = if good { Ok(&()) } else { Err(ErrorKind::Denied) };
            assert_eq!(kind, expected, "{name} of {size} bytes, ACL {acl}, credential {limited}: {answer:?}");
        }
    }
}

/// A condition on the entry that gives a right ends whatever carries it out at the next piece,
/// also where another right is what the bytes are reached by.
pub async fn a_condition_ends_what_carries_a_right_out(subject: &dyn Subject) {
    let site = Site::of(subject);
    let alice = site.user("alice");
    let span = Duration::from_millis(if subject.time_is_moved() { 600 } else { 1500 });
    for right in [Rights::EXECUTE, Rights::APPEND, Rights::WRITE, Rights::INSERT] {
        prepare_bytes(&site, &alice, vec![AclEntry::allow(who(&alice), PASS)], &pattern(3 << 20, 1)).await;
        let when = vec![Condition::Until(subject.domain().clock().now().plus(span))];
        site.grant("d", vec![AclEntry { when, ..AclEntry::allow(who(&alice), right) }]).await;
        let before = site.attr(site.find("d/f").await.works()).await;
        let call = site.call_of(&alice, 2);
        let kind = if right == Rights::EXECUTE {
            let opened = site.fs.open(&call, &at("d/f"), &how(right)).await.works();
            let mut source = opened.file.read(&call, Range::ALL).await.works();
            source.next(1000).await.works();
            subject.pass(span).await;
            // What was on its way still comes: a piece at most.
            let mut more = 0;
            loop {
                match source.next(PIECE).await {
                    Ok(piece) => more += piece.expect("there are more").length(),
                    Err(error) => break error.kind(),
                }
                assert!(more <= PIECE, "{more} bytes came after its end");
            }
        } else {
            let mut slow = Passing { subject, span, given: 0 };
            if right == Rights::INSERT {
                let stage = site.fs.stage(&call, &at("d/n"), &StageHint::default()).await.works();
                stage.put(&call, 1, 0, &mut slow).await.map(drop).fails()
            } else {
                let place = if right == Rights::APPEND { WriteAt::End } else { WriteAt::Offset(0) };
                let opened = site.fs.open(&call, &at("d/f"), &how(right)).await.works();
                opened.file.write(&call, place, &mut slow).await.map(drop).fails()
            }
        };
        assert!(matches!(kind, ErrorKind::Denied | ErrorKind::Revoked), "{right}: {kind:?}");
        let after = site.attr(site.find("d/f").await.works()).await;
        let grown = after.size - before.size;
        assert!(grown <= PIECE as u64, "{right}: {grown} bytes came after its end");
    }
}

/// Three pieces, time passing before the second.
struct Passing<'a> {
    subject: &'a dyn Subject,
    span: Duration,
    given: u32,
}

#[async_trait]
impl Source for Passing<'_> {
    async fn next(&mut self, _: usize) -> Result<Option<Piece>> {
        self.given += 1;
        match self.given {
            1 => {}
            2 => self.subject.pass(self.span).await,
            3 => {}
            _ => return Ok(None),
        }
        Ok(Some(Piece::Bytes(pattern(PIECE, 2).into())))
    }

    fn length(&self) -> Option<u64> {
        Some(3 * PIECE as u64)
    }

    fn stopped(&self) -> Stopped {
        Box::pin(std::future::pending())
    }
}
