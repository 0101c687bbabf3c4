//! Laws of bytes: reading, writing, appending, holes, copies and limits.

use async_trait::async_trait;
use bytes::Bytes;
use weft_core::attr::SetAttr;
use weft_core::form::{
    At, BytesSource, Call, New, OpenFile, Piece, Range, Seek, Shape, Source, StageHint, Stopped, SyncScope,
    Want, WriteAt, digests_of,
};
use weft_core::{Error, ErrorKind, Result, Rights};

use super::Subject;
use super::site::*;

const MIB: u64 = 1 << 20;

/// Gives some bytes, then fails.
struct Breaks(Option<Bytes>);

#[async_trait]
impl Source for Breaks {
    async fn next(&mut self, _max: usize) -> Result<Option<Piece>> {
        match self.0.take() {
            Some(bytes) => Ok(Some(Piece::Bytes(bytes))),
            None => Err(Error::new(ErrorKind::Unavailable, "the other end went away")),
        }
    }

    fn length(&self) -> Option<u64> {
        None
    }

    fn stopped(&self) -> Stopped {
        Box::pin(std::future::pending())
    }
}

/// What was written is read, whole and by ranges, also across many pieces.
pub async fn what_was_written_is_read(subject: &dyn Subject) {
    let site = Site::of(subject);
    let bytes = pattern((3 * MIB + 12_345) as usize, 1);
    let id = site.file("f", &bytes).await;
    let file = site.open("f", Rights::READ).await.file;
    for (from, length) in [(0, None), (5, Some(10)), (MIB - 1, Some(2)), (3 * MIB, None), (1, Some(2 * MIB))]
    {
        let read = read_of(&*file, &site.call(), Range { at: from, length }).await.works();
        let end = length.map_or(bytes.len(), |length| (from + length) as usize);
        assert!(read[..] == bytes[from as usize..end], "{from} {length:?}");
    }
    let beyond = Range { at: bytes.len() as u64, length: Some(9) };
    assert!(read_of(&*file, &site.call(), beyond).await.works().is_empty());
    assert_eq!(site.attr(id).await.size, bytes.len() as u64);
}

/// Returns every digest that a file gives of its blocks.
async fn digests(file: &dyn OpenFile, call: &Call) -> Vec<[u8; 32]> {
    let mut all = Vec::new();
    loop {
        let more = file.digests(call, all.len() as u64).await.works();
        if more.is_empty() {
            return all;
        }
        all.extend(more);
    }
}

async fn of_bytes(bytes: &[u8]) -> Vec<[u8; 32]> {
    digests_of(&mut BytesSource::new(Bytes::copy_from_slice(bytes))).await.works()
}

/// The digests of a file are those of its bytes, a MiB each, however they came and wherever they lie.
pub async fn digests_are_those_of_each_block(subject: &dyn Subject) {
    let site = Site::of(subject);
    let small = pattern(3000, 1);
    for (name, size) in [("empty", 0), ("small", 3000), ("large", 2 * MIB + 5), ("many", 20 * MIB)] {
        let bytes = pattern(size as usize, 2);
        site.file(name, &bytes).await;
        let file = site.open(name, Rights::READ).await.file;
        assert_eq!(digests(&*file, &site.call()).await, of_bytes(&bytes).await, "{name}");
        assert!(file.digests(&site.call(), u64::MAX).await.works().is_empty(), "beyond the end");
    }
    // Few bytes, and many zeros behind them: between bytes too.
    for name in ["sparse", "holed"] {
        let id = site.file(name, &small).await;
        let longer = SetAttr { size: Some(3 * MIB + 7), ..SetAttr::default() };
        site.fs.set(&site.call(), &at(name), &longer, &free()).await.works();
        if name == "holed" {
            site.write(id, 2 * MIB + 9, &small).await;
        }
        let bytes = site.read(id).await;
        assert_eq!(bytes.len() as u64, 3 * MIB + 7);
        let file = site.open(name, Rights::READ).await.file;
        assert_eq!(digests(&*file, &site.call()).await, of_bytes(&bytes).await, "{name}");
    }
    // What is published lies sealed; what is then written in place does not at once.
    let (bytes, target) = (pattern((MIB + MIB / 2) as usize, 3), at("staged"));
    let stage = site.fs.stage(&site.call(), &target, &StageHint::default()).await.works();
    stage.put(&site.call(), 1, 0, &mut BytesSource::new(bytes.clone())).await.works();
    stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works();
    let file = site.open("staged", Rights::READ | Rights::WRITE).await.file;
    assert_eq!(digests(&*file, &site.call()).await, of_bytes(&bytes).await);
    write_to(&*file, &site.call(), WriteAt::Offset(MIB), b"other").await.works();
    let now = [&bytes[..MIB as usize], b"other", &bytes[MIB as usize + 5..]].concat();
    assert_eq!(digests(&*file, &site.call()).await, of_bytes(&now).await);
}

/// Who may not read bytes does not learn their digests, and a pinned open gives those of its version.
pub async fn digests_need_read_and_keep_to_a_pinned_version(subject: &dyn Subject) {
    let site = Site::of(subject);
    let bytes = pattern((2 * MIB) as usize, 1);
    let id = site.file("f", &bytes).await;
    let writer = site.open("f", Rights::WRITE).await.file;
    assert_eq!(writer.digests(&site.call(), 0).await.fails(), ErrorKind::Denied);
    let reader = site.user("reader");
    site.allow("f", &reader, Rights::READ).await;
    let call = site.call_of(&reader, 2);
    let opened = site.fs.open(&call, &at("f"), &pinned()).await.works();
    assert_eq!(digests(&*opened.file, &call).await, of_bytes(&bytes).await);
    let stage = site.fs.stage(&site.call(), &at("f"), &StageHint::default()).await.works();
    stage.put(&site.call(), 1, 0, &mut BytesSource::new(pattern(MIB as usize, 2))).await.works();
    stage.publish(&site.call(), &[], &SetAttr::default(), &free()).await.works();
    assert_eq!(digests(&*opened.file, &call).await, of_bytes(&bytes).await, "another version was published");
    let again = site.fs.open(&call, &at("f"), &pinned()).await.works();
    site.write(id, 5, b"changed").await;
    match again.file.digests(&call, 0).await {
        Ok(digests) => assert_eq!(digests, of_bytes(&pattern(MIB as usize, 2)).await, "one version or none"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict),
    }
    let free_open = site.fs.open(&call, &at("f"), &how(Rights::READ)).await.works();
    site.forbid("f", &reader).await;
    for file in [&opened.file, &free_open.file] {
        let refused = file.digests(&call, 0).await.fails();
        assert!(matches!(refused, ErrorKind::Denied | ErrorKind::NotFound), "{refused}");
    }
}

/// A source gives pieces no larger than asked, says what is left, and ends.
pub async fn a_source_gives_pieces_no_larger_than_asked(subject: &dyn Subject) {
    let site = Site::of(subject);
    site.file("f", &pattern(100_000, 2)).await;
    let file = site.open("f", Rights::READ).await.file;
    let mut source = file.read(&site.call(), Range { at: 1000, length: Some(60_000) }).await.works();
    let mut got = 0_u64;
    while let Some(piece) = source.next(7_000).await.works() {
        assert!((1..=7_000).contains(&piece.length()));
        got += piece.length() as u64;
        assert!(source.length().is_none_or(|left| left == 60_000 - got));
    }
    assert_eq!(got, 60_000);
    assert!(source.next(1).await.works().is_none(), "the end stays the end");
}

/// Overwriting changes what it covers and nothing else.
pub async fn overwriting_changes_only_what_it_covers(subject: &dyn Subject) {
    let site = Site::of(subject);
    let mut bytes = pattern(200_000, 3);
    let id = site.file("f", &bytes).await;
    for (at, length) in [(0_usize, 1_usize), (65_535, 2), (100, 70_000), (199_999, 1)] {
        let patch = pattern(length, at as u8);
        let written = site.write(id, at as u64, &patch).await;
        assert_eq!((written.at, written.bytes), (at as u64, length as u64));
        bytes[at..at + length].copy_from_slice(&patch);
        assert!(site.read(id).await == bytes);
    }
}

/// An append goes to the end, tells where that was, and needs only `append`.
pub async fn an_append_goes_to_the_end(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.file("f", b"12345").await;
    let file = site.open("f", Rights::APPEND).await.file;
    let written = write_to(&*file, &site.call(), WriteAt::End, b"678").await.works();
    assert_eq!((written.at, written.bytes), (5, 3));
    assert_eq!(site.read(id).await, &b"12345678"[..]);
    let over = write_to(&*file, &site.call(), WriteAt::Offset(0), b"x").await;
    assert_eq!(over.fails(), ErrorKind::Denied, "append is not write");
}

/// Writing beyond the end leaves zeros between, and truncating cuts and extends.
pub async fn gaps_and_extensions_read_as_zeros(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.file("f", b"abc").await;
    site.write(id, 10, b"z").await;
    assert_eq!(site.read(id).await, &b"abc\0\0\0\0\0\0\0z"[..]);
    let file = site.open("f", Rights::WRITE).await.file;
    file.shape(&site.call(), Shape::Truncate(2)).await.works();
    file.shape(&site.call(), Shape::Truncate(5)).await.works();
    assert_eq!(site.read(id).await, &b"ab\0\0\0"[..], "what was cut does not come back");
    let set = SetAttr { size: Some(1), ..SetAttr::default() };
    let set = site.fs.set(&site.call(), &at("f"), &set, &free()).await.works();
    assert_eq!(set.value.size, 1);
    assert_eq!(site.read(id).await, &b"a"[..]);
}

/// Holes are found, cost nothing, read as zeros; punching makes them.
pub async fn holes_are_found_and_cost_nothing(subject: &dyn Subject) {
    let site = Site::of(subject);
    if !site.supports().holes {
        return site.unsupported("holes");
    }
    let id = site.file("f", b"").await;
    let file = site.open("f", Rights::READ | Rights::WRITE).await.file;
    let mib = pattern(MIB as usize, 4);
    let call = site.call();
    write_to(&*file, &call, WriteAt::Offset(4 * MIB), &mib).await.works();
    file.shape(&call, Shape::Truncate(16 * MIB)).await.works();
    assert_eq!(file.seek(&call, 0, Seek::Data).await.works(), 4 * MIB);
    assert_eq!(file.seek(&call, 4 * MIB, Seek::Hole).await.works(), 5 * MIB);
    assert_eq!(file.seek(&call, 7, Seek::Hole).await.works(), 7);
    assert_eq!(file.seek(&call, 5 * MIB, Seek::Data).await.fails(), ErrorKind::NotFound);
    assert_eq!(file.seek(&call, 16 * MIB, Seek::Hole).await.fails(), ErrorKind::NotFound);
    assert!(site.attr(id).await.used < 4 * MIB, "holes take no space");
    write_to(&*file, &call, WriteAt::Offset(0), &mib).await.works();
    file.shape(&call, Shape::Punch { at: 4 * MIB, length: MIB }).await.works();
    assert_eq!(file.seek(&call, MIB, Seek::Data).await.fails(), ErrorKind::NotFound);
    assert_eq!(site.attr(id).await.size, 16 * MIB, "punching keeps the size");
    let zeros = read_of(&*file, &call, Range { at: 4 * MIB, length: Some(MIB) }).await.works();
    assert!(zeros.iter().all(|byte| *byte == 0));
}

/// Punching and zeroing clear exactly their range, at any byte.
pub async fn punching_and_zeroing_clear_exactly_their_range(subject: &dyn Subject) {
    let site = Site::of(subject);
    let mut bytes = pattern(300_000, 5);
    let id = site.file("f", &bytes).await;
    let file = site.open("f", Rights::WRITE).await.file;
    for (at, length) in [(1_u64, 3_u64), (65_530, 20), (100_000, 150_001)] {
        file.shape(&site.call(), Shape::Zero { at, length, keep_size: true }).await.works();
        bytes[at as usize..(at + length) as usize].fill(0);
        assert!(site.read(id).await == bytes);
    }
    file.shape(&site.call(), Shape::Zero { at: 299_999, length: 11, keep_size: false }).await.works();
    bytes[299_999] = 0;
    bytes.resize(300_010, 0);
    assert!(site.read(id).await == bytes);
    if site.supports().holes {
        file.shape(&site.call(), Shape::Punch { at: 10, length: 77_777 }).await.works();
        bytes[10..77_787].fill(0);
        assert!(site.read(id).await == bytes);
    }
}

/// Allocating keeps bytes, and grows the file only where asked.
pub async fn allocating_keeps_bytes(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.file("f", b"abc").await;
    let file = site.open("f", Rights::WRITE).await.file;
    file.shape(&site.call(), Shape::Allocate { at: 0, length: MIB, keep_size: true }).await.works();
    assert_eq!(site.read(id).await, &b"abc"[..]);
    file.shape(&site.call(), Shape::Allocate { at: 0, length: MIB, keep_size: false }).await.works();
    let read = site.read(id).await;
    assert!(read.len() as u64 == MIB && read.starts_with(b"abc") && read[3..].iter().all(|b| *b == 0));
}

/// A copy brings the bytes of a range, as far as the source goes.
pub async fn a_copy_brings_the_bytes_of_a_range(subject: &dyn Subject) {
    let site = Site::of(subject);
    let bytes = pattern((2 * MIB) as usize, 6);
    site.file("from", &bytes).await;
    let to = site.file("to", b"0123456789").await;
    let range = Range { at: MIB, length: Some(10 * MIB) };
    let copied = site.fs.copy(&site.call(), &at("from"), range, &at("to"), 4).await.works();
    assert_eq!(copied.bytes, MIB);
    assert_eq!(copied.file.before.map(|b| b.size), Some(10));
    let read = site.read(to).await;
    assert!(read[..4] == b"0123"[..] && read[4..] == bytes[MIB as usize..]);
    site.dir("d").await;
    let answer = site.fs.copy(&site.call(), &at("d"), Range::ALL, &at("to"), 0).await;
    assert_eq!(answer.fails(), ErrorKind::IsDirectory);
}

/// Bytes pulled before a source broke are written; the error is told.
pub async fn what_was_pulled_before_an_error_is_written(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.file("f", b"").await;
    let file = site.open("f", Rights::WRITE).await.file;
    let mut source = Breaks(Some(Bytes::from_static(b"before")));
    let answer = file.write(&site.call(), WriteAt::Offset(0), &mut source).await;
    assert_eq!(answer.fails(), ErrorKind::Unavailable);
    assert_eq!(site.read(id).await, &b"before"[..]);
}

/// A version changes with the bytes and only with them; the counter with anything.
pub async fn versions_change_with_bytes_and_counters_with_anything(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.file("f", b"one").await;
    let first = site.attr(id).await;
    site.write(id, 0, b"two").await;
    let second = site.attr(id).await;
    assert_ne!(first.version, second.version);
    assert!(second.change > first.change);
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    site.fs.set(&site.call(), &at("f"), &set, &free()).await.works();
    let third = site.attr(id).await;
    assert_eq!(second.version, third.version);
    assert!(third.change > second.change);
    site.write(id, 0, b"one").await;
    let fourth = site.attr(id).await;
    assert_ne!(fourth.version, second.version);
}

/// A write tells the file before and after, and the verifier that a sync tells too.
pub async fn a_write_tells_what_a_sync_confirms(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.file("f", b"abc").await;
    let written = site.write(id, 3, b"de").await;
    assert_eq!(written.file.before.map(|b| b.size), Some(3));
    assert_eq!(written.file.after.map(|a| (a.size, a.id)), Some((5, id)));
    let file = site.open("f", Rights::WRITE).await.file;
    let synced = file.sync(&site.call(), Range::ALL).await.works();
    assert_eq!(written.verifier, synced, "nothing was lost between the two");
    let volume = site.fs.sync(&site.call(), &at(""), SyncScope::Volume).await.works();
    let one = site.fs.sync(&site.call(), &at("f"), SyncScope::File).await.works();
    assert_eq!((volume, one), (synced, synced));
}

/// Offsets and sizes beyond the limit are `TooLarge`, whatever asks for them.
pub async fn sizes_beyond_the_limit_are_too_large(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.file("f", b"abc").await;
    let file = site.open("f", Rights::WRITE).await.file;
    let max = site.supports().file_bytes_max;
    let write = write_to(&*file, &site.call(), WriteAt::Offset(max), b"x").await;
    assert_eq!(write.fails(), ErrorKind::TooLarge);
    let write = write_to(&*file, &site.call(), WriteAt::Offset(u64::MAX), b"xy").await;
    assert_eq!(write.fails(), ErrorKind::TooLarge);
    let shape = file.shape(&site.call(), Shape::Truncate(max + 1)).await;
    assert_eq!(shape.fails(), ErrorKind::TooLarge);
    let set = SetAttr { size: Some(u64::MAX), ..SetAttr::default() };
    assert_eq!(site.fs.set(&site.call(), &at("f"), &set, &free()).await.fails(), ErrorKind::TooLarge);
    assert_eq!(site.read(id).await, &b"abc"[..]);
}

/// Only files have bytes: everything else says what it is.
pub async fn only_files_have_bytes(subject: &dyn Subject) {
    let site = Site::of(subject);
    let dir = site.dir("d").await;
    site.make("pipe", New::Fifo).await;
    let open = site.fs.open(&site.call(), &at("d"), &how(Rights::READ)).await.map(|o| o.attr);
    assert_eq!(open.fails(), ErrorKind::IsDirectory);
    let file = site.fs.file(&site.call(), dir, Rights::READ).await.map(|f| f.id());
    assert_eq!(file.fails(), ErrorKind::IsDirectory);
    site.fs.open(&site.call(), &at("pipe"), &how(Rights::READ)).await.map(|o| o.attr).fails();
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    assert_eq!(site.fs.set(&site.call(), &at("d"), &set, &free()).await.fails(), ErrorKind::IsDirectory);
    site.fs.walk(&site.call(), &At::id(dir), Want::default()).await.works();
}

/// A write of nothing changes nothing.
pub async fn a_write_of_nothing_changes_nothing(subject: &dyn Subject) {
    let site = Site::of(subject);
    let id = site.file("f", b"abc").await;
    let before = site.lasting(id).await;
    let file = site.open("f", Rights::WRITE).await.file;
    let written = file.write(&site.call(), WriteAt::Offset(9), &mut BytesSource::default()).await.works();
    assert_eq!(written.bytes, 0);
    let after = site.attr(id).await;
    assert_eq!((after.size, after.version), (before.size, before.version));
}
