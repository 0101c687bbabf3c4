//! A shared directory with programs of the machine at work in it: what each side does the other sees at
//! once, policies hold whatever is moved, and nothing leads out.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use weft_conformance::file_system::Subject;
use weft_conformance::file_system::site::{
    Dice, Outcome, Site as Laws, at, free, how, name, pinned, read_of, who, write_to,
};
use weft_core::acl::AclEntry;
use weft_core::attr::{Kind, SetAttr, SetTime, TagEdit, TagMust, TagName};
use weft_core::form::{
    At, BytesSource, Cursor, Expect, New, PageMax, Range, Replace, StageHint, Want, WriteAt,
};
use weft_core::{ErrorKind, FileId, RelPath, Rights, Time};
use weft_sys::beneath::coarse_now;
use weft_sys::{Beneath, DiskFile};

use super::export::Site;

/// A share whose files are found by handle, or by their last path alone: what is so only with handles is said
/// by the second.
async fn both_ways(seed: u64) -> [(Site, bool); 2] {
    let site = Site::with_handles(seed).await;
    let finds = site.finds_by_handle();
    if !finds {
        weft_conformance::run::not_run("both_sides::handles", "no file is found by its handle here");
    }
    [(Site::fresh(seed).await, false), (site, finds)]
}

/// Whose file an id is of, asked by nothing but the id.
async fn by_id(site: &Site, id: FileId) -> Result<Bytes, ErrorKind> {
    let laws = Laws::of(site);
    let file = laws.fs.file(&laws.call(), id, Rights::READ).await.map_err(|e| e.kind())?;
    Ok(read_of(&*file, &laws.call(), Range::ALL).await.works())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_is_of_its_file_or_of_nothing_wherever_that_was_moved() {
    for (site, finds) in both_ways(21).await {
        let (laws, home) = (Laws::of(&site), site.home.path());
        let found = |bytes: &'static str| if finds { Ok(Bytes::from(bytes)) } else { Err(ErrorKind::Stale) };
        fs::create_dir_all(home.join("d/e")).expect("made");
        fs::write(home.join("d/e/f"), "one").expect("written");
        let id = laws.find("d/e/f").await.works();
        // Renamed on the machine, and what it lies in.
        fs::rename(home.join("d/e/f"), home.join("d/e/g")).expect("renamed");
        assert_eq!(by_id(&site, id).await, found("one"), "a file");
        fs::rename(home.join("d"), home.join("c")).expect("renamed");
        assert_eq!(by_id(&site, id).await, found("one"), "a directory above it");
        assert_eq!(laws.find("c/e/g").await.works(), id);
        assert!(site.restart().await);
        assert_eq!(by_id(&site, id).await, found("one"), "a restart");
        assert_eq!(Laws::of(&site).find("c/e/g").await.works(), id, "it is the same id in any case");
        // Out of the share: there to the machine, and to nobody through it.
        let away = tempfile::tempdir_in(home.parent().expect("it lies in one")).expect("a directory");
        fs::rename(home.join("c/e"), away.path().join("e")).expect("one file system");
        assert_eq!(by_id(&site, id).await, Err(ErrorKind::Stale), "out of the share");
        assert!(site.restart().await);
        assert_eq!(by_id(&site, id).await, Err(ErrorKind::Stale), "after a restart too");
        fs::rename(away.path().join("e"), home.join("e")).expect("one file system");
        assert_eq!(by_id(&site, id).await, found("one"), "and back");
        // Another in its place is another; of one that is gone, nothing is left.
        fs::write(home.join("new"), "two").expect("written");
        fs::rename(home.join("new"), home.join("e/g")).expect("renamed");
        assert_eq!(by_id(&site, id).await, Err(ErrorKind::Stale), "replaced");
        assert_ne!(Laws::of(&site).find("e/g").await.works(), id);
    }
}

/// A policy does not depend on how a file is found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_found_by_handle_is_under_the_policy_of_where_it_lies() {
    let [_, (site, finds)] = both_ways(22).await;
    let (laws, home) = (Laws::of(&site), site.home.path());
    let alice = laws.user("alice");
    laws.allow("", &alice, Rights::READING).await;
    fs::create_dir(home.join("private")).expect("made");
    fs::write(home.join("f"), "open").expect("written");
    laws.seal("private").await;
    let id = laws.find("f").await.works();
    fs::rename(home.join("f"), home.join("private/f")).expect("renamed");
    let call = laws.call_of(&alice, 2);
    let read = laws.fs.file(&call, id, Rights::READ).await.map(drop);
    assert_eq!(read.fails(), if finds { ErrorKind::NotFound } else { ErrorKind::Stale });
    assert_eq!(by_id(&site, id).await.is_ok(), finds);
}

/// Reads and writes a file of the tree whole.
async fn put(laws: &Laws<'_>, path: &str, bytes: &[u8]) -> FileId {
    let stage = laws.fs.stage(&laws.call(), &at(path), &StageHint::default()).await.works();
    stage.put(&laws.call(), 1, 0, &mut BytesSource::new(bytes.to_vec())).await.works();
    stage.publish(&laws.call(), &[], &SetAttr::default(), &free()).await.works().value.id
}

async fn get(laws: &Laws<'_>, path: &str) -> Bytes {
    let opened = laws.open(path, Rights::READ).await;
    read_of(&*opened.file, &laws.call(), Range::ALL).await.works()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_programs_of_the_machine_do_is_seen_at_once() {
    let site = Site::fresh(1).await;
    let (laws, home) = (Laws::of(&site), site.home.path());
    fs::create_dir_all(home.join("d/e")).expect("made");
    fs::write(home.join("d/e/f"), "one").expect("written");
    let (d, f) = (laws.find("d").await.works(), laws.find("d/e/f").await.works());
    assert_eq!(get(&laws, "d/e/f").await, "one");
    fs::write(home.join("d/e/f"), "longer").expect("written");
    assert_eq!((laws.attr(f).await.size, laws.read(f).await), (6, Bytes::from("longer")));
    fs::set_permissions(home.join("d/e/f"), fs::Permissions::from_mode(0o604)).expect("mine");
    assert_eq!(laws.attr(f).await.mode, 0o604);
    fs::rename(home.join("d/e/f"), home.join("d/g")).expect("renamed");
    assert_eq!(laws.find("d/e/f").await.fails(), ErrorKind::NotFound);
    assert_eq!(laws.fs.walk(&laws.call(), &At::id(f), Want::default()).await.fails(), ErrorKind::Stale);
    assert_eq!(laws.find("d/g").await.works(), f, "it is the same file under its new name");
    assert_eq!(laws.attr(f).await.size, 6, "and its id is good again");
    // The directory is another one now.
    fs::rename(home.join("d"), home.join("old")).expect("renamed");
    fs::create_dir(home.join("d")).expect("made");
    assert_eq!(laws.names(laws.find("d").await.works()).await, []);
    assert_ne!(laws.find("d").await.works(), d);
    assert_eq!(laws.find("old").await.works(), d);
    fs::remove_dir_all(home.join("old")).expect("removed");
    assert_eq!(laws.find("old/g").await.fails(), ErrorKind::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_done_through_the_tree_is_done_to_the_files() {
    let site = Site::fresh(2).await;
    let (laws, home) = (Laws::of(&site), site.home.path());
    laws.dir("d").await;
    put(&laws, "d/f", b"first").await;
    assert_eq!(fs::read(home.join("d/f")).expect("there"), b"first");
    fs::set_permissions(home.join("d/f"), fs::Permissions::from_mode(0o640)).expect("mine");
    let tag = |value: &'static [u8]| TagEdit::Put {
        name: TagName::new("a").works(),
        value: Bytes::from_static(value),
        must: TagMust::Any,
    };
    laws.fs.tag(&laws.call(), &at("d/f"), &[tag(b"1")], &free()).await.works();
    let before = laws.find("d/f").await.works();
    put(&laws, "d/f", b"second").await;
    let there = fs::metadata(home.join("d/f")).expect("there");
    assert_eq!((there.mode() & 0o7777, there.len()), (0o640, 6), "what replaces a file looks like it");
    assert_eq!(laws.fs.tags(&laws.call(), &at("d/f"), None).await.works().tags.len(), 1);
    assert_ne!(laws.find("d/f").await.works(), before, "but is another file, as is declared");
    fs::hard_link(home.join("d/f"), home.join("d/g")).expect("linked");
    let stage = laws.fs.stage(&laws.call(), &at("d/f"), &StageHint::default()).await;
    assert_eq!(stage.map(|s| s.id()).fails(), ErrorKind::TooManyLinks, "the other name would keep old bytes");
    let opened = laws.open("d/f", Rights::WRITE).await;
    write_to(&*opened.file, &laws.call(), WriteAt::Offset(0), b"S").await.works();
    assert_eq!(fs::read(home.join("d/g")).expect("there"), b"Second");
    laws.fs.rename(&laws.call(), &at("d"), &at("e"), Replace::Any, &free()).await.works();
    laws.fs.remove(&laws.call(), &at("e/g"), Expect::Any, &free()).await.works();
    let names: Vec<_> = fs::read_dir(home.join("e")).expect("there").collect();
    assert_eq!(names.len(), 1, "nothing is left of what was staged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_link_and_no_name_leads_out_of_a_share() {
    let site = Site::fresh(3).await;
    let (laws, home) = (Laws::of(&site), site.home.path());
    let away = tempfile::tempdir().expect("a directory");
    fs::write(away.path().join("secret"), "secret").expect("written");
    fs::create_dir(home.join("d")).expect("made");
    symlink(away.path(), home.join("absolute")).expect("made");
    symlink(format!("../{}", away.path().file_name().expect("named").display()), home.join("up"))
        .expect("made");
    symlink("../../etc", home.join("d/up")).expect("made");
    symlink("/proc/self/root", home.join("magic")).expect("made");
    for link in ["absolute", "up", "d/up", "magic"] {
        assert_eq!(
            laws.fs.walk(&laws.call(), &at(link), Want::default()).await.works().attr.kind,
            Kind::Symlink
        );
        for path in [format!("{link}/secret"), format!("{link}/passwd")] {
            assert_eq!(laws.find(&path).await.fails(), ErrorKind::NotFound, "{path}");
            let made = laws.fs.make(&laws.call(), &at(&path), New::Directory, &SetAttr::default()).await;
            assert_eq!(made.fails(), ErrorKind::NotFound, "{path}");
        }
        let followed = laws.fs.open(&laws.call(), &at(link).following(), &how(Rights::READ)).await;
        assert_eq!(followed.map(|opened| opened.attr).fails(), ErrorKind::NotFound, "{link}");
    }
    assert_eq!(fs::read_dir(away.path()).expect("there").count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_types, reason = "a socket is put in the way")]
async fn devices_and_sockets_are_not_there_and_pipes_keep_nobody_waiting() {
    let site = Site::fresh(4).await;
    let (laws, home) = (Laws::of(&site), site.home.path());
    let _socket = std::os::unix::net::UnixListener::bind(home.join("socket")).expect("made");
    laws.make("pipe", New::Fifo).await;
    assert!(fs::metadata(home.join("pipe")).expect("there").file_type().is_fifo());
    assert_eq!(laws.find("socket").await.fails(), ErrorKind::NotFound);
    assert_eq!(laws.names(FileId::ROOT).await, [name("pipe")]);
    for need in [Rights::READ, Rights::WRITE] {
        let opened = laws.fs.open(&laws.call(), &at("pipe"), &how(need)).await;
        assert_eq!(opened.map(|opened| opened.attr).fails(), ErrorKind::Invalid);
    }
}

/// The container that governs what is at a path.
async fn governs(laws: &Laws<'_>, path: &str) -> weft_core::ContainerId {
    laws.attr(laws.find(path).await.works()).await.container
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_guards_its_place_and_goes_along_with_what_lay_there() {
    let site = Site::fresh(5).await;
    let (laws, home) = (Laws::of(&site), site.home.path());
    let alice = laws.user("alice");
    laws.allow("", &alice, Rights::READING).await;
    fs::create_dir(home.join("private")).expect("made");
    fs::write(home.join("private/f"), "secret").expect("written");
    let own = laws.seal("private").await.container;
    let call = laws.call_of(&alice, 2);
    assert_eq!(laws.find_as(&call, "private/f").await.fails(), ErrorKind::NotFound);
    // Moved on the machine, where nobody asks Weft.
    fs::rename(home.join("private"), home.join("public")).expect("renamed");
    assert_eq!(governs(&laws, "public/f").await, own);
    assert_eq!(laws.find_as(&call, "public/f").await.fails(), ErrorKind::NotFound);
    // Made anew in its place: no more open than what was there.
    fs::create_dir(home.join("private")).expect("made");
    fs::write(home.join("private/g"), "secret").expect("written");
    assert_eq!(governs(&laws, "private/g").await, own);
    assert_eq!(laws.find_as(&call, "private/g").await.fails(), ErrorKind::NotFound);
    fs::write(home.join("open"), "open").expect("written");
    laws.find_as(&call, "open").await.works();
    // A file with a policy of its own that an editor saves by renaming another over it.
    let mine = laws.seal("open").await.container;
    fs::write(home.join("open.new"), "newer").expect("written");
    fs::rename(home.join("open.new"), home.join("open")).expect("renamed");
    assert_eq!(governs(&laws, "open").await, mine);
    assert_eq!(
        laws.fs.open(&call, &at("open"), &how(Rights::READ)).await.map(|o| o.attr).fails(),
        ErrorKind::Denied
    );
    // Moved through Weft, policy and place go together, and the old place is free of it.
    laws.fs.rename(&laws.call(), &at("open"), &at("closed"), Replace::Any, &free()).await.works();
    fs::write(home.join("open"), "open again").expect("written");
    assert_eq!(governs(&laws, "closed").await, mine);
    assert_eq!(governs(&laws, "open").await, governs(&laws, "").await);
    laws.find_as(&call, "open").await.works();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_sees_one_version_or_says_that_it_cannot() {
    let site = Site::fresh(6).await;
    let (laws, home) = (Laws::of(&site), site.home.path());
    let (old, new) = (vec![b'o'; 3 << 20], vec![b'n'; 3 << 20]);
    fs::write(home.join("f"), &old).expect("written");
    let begin = || async {
        let opened = laws.fs.open(&laws.call(), &at("f"), &pinned()).await.works();
        let mut source = opened.file.read(&laws.call(), Range::ALL).await.works();
        source.next(1000).await.works();
        (opened, source)
    };
    // Another file in its place: the one that is being read lives on.
    let (_opened, mut source) = begin().await;
    fs::write(home.join("g"), &new).expect("written");
    fs::rename(home.join("g"), home.join("f")).expect("renamed");
    let rest = weft_core::form::collect(&mut *source, 4 << 20).await.works();
    assert!(rest.len() == old.len() - 1000 && rest.iter().all(|byte| *byte == b'o'));
    // Written in place: the end never comes as if nothing had been.
    let (_opened, mut source) = begin().await;
    fs::write(home.join("f"), &old).expect("written");
    assert_eq!(weft_core::form::collect(&mut *source, 4 << 20).await.fails(), ErrorKind::Conflict);
    // Cut.
    let (_opened, mut source) = begin().await;
    fs::write(home.join("f"), "short").expect("written");
    assert_eq!(weft_core::form::collect(&mut *source, 4 << 20).await.fails(), ErrorKind::Conflict);
}

/// The directory as a program of the machine has it.
fn top_of(site: &Site) -> Beneath {
    Beneath::open(&site.home.path().canonicalize().expect("there")).expect("it opens")
}

/// Whether files that are looked at get another stamp at their next change, be it within a tick of the clock.
fn is_stamped_finely(top: &Beneath) -> bool {
    let (held, file) = top.itself().expect("there").make_open(b"stamped", 0o600).expect("made");
    let stamp = || {
        file.write_at(b"x", 0).expect("written");
        held.facts().expect("there").ctime
    };
    top.may_stamp_finely() && (0..100).all(|_| stamp() != stamp())
}

/// Puts a file and changes it, a hundred times over: returns how often it had a version that lasts before a tick of
/// the clock was over.
async fn put_and_change(site: &Site) -> u32 {
    let (laws, top, mut soon) = (Laws::of(site), top_of(site), 0);
    for round in 0..100 {
        let stage = laws.fs.stage(&laws.call(), &at("f"), &StageHint::default()).await.works();
        stage.put(&laws.call(), 1, 0, &mut BytesSource::new(&b"of Weft"[..])).await.works();
        let mtime = (round % 2 == 0).then_some(SetTime::At(Time::EPOCH));
        let set = SetAttr { mtime, ..SetAttr::default() };
        let published = stage.publish(&laws.call(), &[], &set, &free()).await.works();
        let (id, attr) = (published.value.id, published.value.attr.expect("asked for"));
        soon += u32::from(coarse_now() <= attr.ctime);
        let first = attr.version;
        assert_eq!(laws.attr(id).await.version, first, "at once, round {round}");
        while round % 10 == 0 && coarse_now() <= attr.ctime {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(laws.attr(id).await.version, first, "when the tick is over, round {round}");
        let file = top.find(b"f").and_then(|held| held.open(true)).expect("there");
        file.write_at(b"another", 0).expect("written");
        let second = laws.attr(id).await.version;
        assert_ne!(second, first, "written by a program, round {round}");
        laws.write(id, 0, b"of Weft").await;
        assert!(![first, second].contains(&laws.attr(id).await.version), "through Weft, round {round}");
    }
    soon
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_published_has_a_version_that_lasts_and_another_after_every_write() {
    put_and_change(&Site::fresh(9).await).await;
    match Site::in_memory(9).await {
        Some(site) if is_stamped_finely(&top_of(&site)) => {
            assert!(put_and_change(&site).await > 0, "nobody waits for the tick where stamps are finer");
        }
        _ => weft_conformance::run::not_run("both_sides::stamps", "no file is stamped finer than by ticks"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn staged_bytes_are_nobodys_business_and_leave_nothing_behind() {
    let site = Site::fresh(7).await;
    let (laws, home) = (Laws::of(&site), site.home.path());
    laws.dir("d").await;
    let stage = laws.fs.stage(&laws.call(), &at("d/f"), &StageHint::default()).await.works();
    stage.put(&laws.call(), 1, 0, &mut BytesSource::new(&b"half"[..])).await.works();
    let staged =
        fs::read_dir(home.join("d")).expect("there").next().expect("its bytes").expect("read").file_name();
    let staged = staged.into_string().expect("text");
    assert_eq!(laws.names(laws.find("d").await.works()).await, []);
    assert_eq!(laws.find(&format!("d/{staged}")).await.fails(), ErrorKind::NotFound);
    let made =
        laws.fs.make(&laws.call(), &at(&format!("d/{staged}")), New::Directory, &SetAttr::default()).await;
    assert_eq!(made.fails(), ErrorKind::NotPermitted);
    // A process that was killed leaves them; whoever lists the directory after that does not see them.
    fs::write(home.join("d").join(staged.replace(&staged[29..33], "ffff")), "left behind").expect("written");
    assert_eq!(laws.names(laws.find("d").await.works()).await, []);
    assert_eq!(fs::read_dir(home.join("d")).expect("there").count(), 1, "only what is still being staged");
    laws.fs.remove(&laws.call(), &at("d"), Expect::Directory, &free()).await.works();
    assert_eq!(
        stage.publish(&laws.call(), &[], &SetAttr::default(), &free()).await.fails(),
        ErrorKind::Stale
    );
    stage.discard(&laws.call()).await.works();
}

/// What is in a directory as a program of the machine sees it: kind, mode, and bytes or target.
fn of_machine(top: &Path) -> BTreeMap<PathBuf, (Kind, u16, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut todo = vec![top.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).expect("it is there") {
            let path = entry.expect("read").path();
            let there = fs::symlink_metadata(&path).expect("it is there");
            let mode = (there.mode() & 0o7777) as u16;
            let known = if there.is_dir() {
                todo.push(path.clone());
                (Kind::Directory, mode, Vec::new())
            } else if there.is_symlink() {
                let target = fs::read_link(&path).expect("a link");
                (Kind::Symlink, mode, target.into_os_string().into_encoded_bytes())
            } else {
                (Kind::File, mode, fs::read(&path).expect("a file"))
            };
            found.insert(path.strip_prefix(top).expect("below").to_path_buf(), known);
        }
    }
    found
}

/// The same as the tree shows it: by ids from listings, page by page.
async fn of_tree(laws: &Laws<'_>) -> BTreeMap<PathBuf, (Kind, u16, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut todo = vec![(FileId::ROOT, PathBuf::new())];
    while let Some((dir, above)) = todo.pop() {
        let mut from = Some(if above.as_os_str().len() % 2 == 0 { Cursor::Start } else { Cursor::ByName });
        while let Some(cursor) = from {
            let want = Want { attr: true, rights: false };
            let page = laws.fs.list(&laws.call(), &At::id(dir), cursor, PageMax::new(3), want).await.works();
            for entry in page.entries {
                let path = above.join(entry.name.to_string());
                let attr = entry.attr.expect("it may be seen");
                assert_eq!((attr.id, attr.kind), (entry.id, entry.kind));
                let bytes = match entry.kind {
                    Kind::Directory => {
                        todo.push((entry.id, path.clone()));
                        Vec::new()
                    }
                    Kind::Symlink => match laws.fs.target(&laws.call(), &At::id(entry.id)).await.works() {
                        weft_core::form::LinkTarget::Symlink(target) => target.to_vec(),
                        other => panic!("{other:?}"),
                    },
                    _ => laws.read(entry.id).await.to_vec(),
                };
                assert!(
                    found.insert(path.clone(), (entry.kind, attr.mode, bytes)).is_none(),
                    "{path:?} twice"
                );
            }
            from = page.next;
        }
    }
    found
}

/// One step of somebody on the machine. What cannot be done is not.
fn local(home: &Path, dice: &mut Dice, path: &Path, other: &Path) {
    let (path, other) = (home.join(path), home.join(other));
    let _ = match dice.roll(8) {
        0 => fs::create_dir(&path),
        1 | 2 => fs::write(&path, format!("local {}", dice.roll(1000))),
        3 => fs::rename(&path, &other),
        4 => fs::remove_file(&path),
        5 => fs::remove_dir_all(&path),
        6 => symlink(other.file_name().expect("named"), &path),
        _ if path.is_dir() => Ok(()),
        _ => fs::set_permissions(&path, fs::Permissions::from_mode(0o600 + dice.roll(0o100) as u32)),
    };
}

/// One step through the tree.
async fn remote(laws: &Laws<'_>, dice: &mut Dice, path: &Path, other: &Path) {
    let of = |path: &Path| At::root(RelPath::try_from(path.to_str().expect("text")).works());
    let (path, other, call) = (of(path), of(other), laws.call());
    let none = SetAttr::default();
    let outcome = match dice.roll(8) {
        0 => laws.fs.make(&call, &path, New::Directory, &none).await.map(drop),
        1 => match laws.fs.stage(&call, &path, &StageHint::default()).await {
            Ok(stage) => {
                let bytes = format!("published {}", dice.roll(1000));
                stage.put(&call, 1, 0, &mut BytesSource::new(bytes)).await.works();
                stage.publish(&call, &[], &none, &free()).await.map(drop)
            }
            Err(error) => Err(error),
        },
        2 => match laws.fs.open(&call, &path, &how(Rights::WRITE)).await {
            Ok(opened) => write_to(&*opened.file, &call, WriteAt::Offset(2), b"written").await.map(drop),
            Err(error) => Err(error),
        },
        3 => {
            let onto = *dice.pick(&[Replace::Any, Replace::Never, Replace::Exchange]);
            laws.fs.rename(&call, &path, &other, onto, &free()).await.map(drop)
        }
        4 | 5 => laws.fs.remove(&call, &path, Expect::Any, &free()).await.map(drop),
        6 => laws.fs.make(&call, &path, New::Symlink(Bytes::from_static(b"a")), &none).await.map(drop),
        _ => {
            let set = SetAttr { mode: Some(0o700 + dice.roll(0o100) as u16), ..none };
            laws.fs.set(&call, &path, &set, &free()).await.map(drop)
        }
    };
    if let Err(error) = outcome {
        assert!(!matches!(error.kind(), ErrorKind::Internal | ErrorKind::Corrupt), "{error:?}");
    }
}

/// Both sides act in turn, and after every few steps an onlooker compares what each sees.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sides_that_act_in_turn_see_the_same_tree() {
    let (seeds, steps) = if weft_conformance::full() { (200, 2000) } else { (8, 400) };
    for seed in 1..=seeds {
        let site = Site::fresh(seed).await;
        let (laws, home, mut dice) = (Laws::of(&site), site.home.path(), Dice::new(seed));
        let names = ["a", "b", "c", "dd"];
        for step in 0..steps {
            let mut place = || {
                let depth = 1 + dice.roll(3);
                (0..depth).map(|_| *dice.pick(&names)).collect::<PathBuf>()
            };
            let (path, other) = (place(), place());
            match dice.roll(2) {
                0 => local(home, &mut dice, &path, &other),
                _ => remote(&laws, &mut dice, &path, &other).await,
            }
            if dice.roll(4) == 0 {
                assert_eq!(of_tree(&laws).await, of_machine(home), "seed {seed}, step {step}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_went_away_is_said_to_be_and_is_taken_up_when_it_is_back() {
    let site = Site::fresh(9).await;
    let (laws, home) = (Laws::of(&site), site.home.path());
    fs::write(home.join("f"), "here").expect("written");
    laws.find("f").await.works();
    let aside = home.with_extension("aside");
    fs::rename(home, &aside).expect("renamed");
    Subject::pass(&site, weft_core::limits::EXPORT_ROOT_HELD * 2).await;
    assert_eq!(laws.find("f").await.fails(), ErrorKind::Unavailable);
    // An empty mount point is not an empty share.
    fs::create_dir(home).expect("made");
    let error = laws.find("f").await.expect_err("it is another directory");
    assert!(
        error.kind() == ErrorKind::Unavailable && error.to_string().contains("another directory"),
        "{error}"
    );
    assert!(site.export().away().await.is_some());
    fs::remove_dir(home).expect("empty");
    fs::rename(&aside, home).expect("renamed");
    assert_eq!(get(&laws, "f").await, "here");
    assert_eq!(site.export().away().await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_granted_is_not_seen_by_any_way_in() {
    let site = Site::fresh(10).await;
    let (laws, home) = (Laws::of(&site), site.home.path());
    let alice = laws.user("alice");
    fs::create_dir_all(home.join("d/secret")).expect("made");
    fs::write(home.join("d/secret/f"), "secret").expect("written");
    let id = laws.find("d/secret/f").await.works();
    laws.grant("d", vec![AclEntry::allow(who(&alice), Rights::LIST | Rights::TRAVERSE)]).await;
    laws.seal("d/secret").await;
    let call = laws.call_of(&alice, 2);
    for kind in [
        laws.find_as(&call, "d/secret/f").await.fails(),
        laws.fs.file(&call, id, Rights::READ).await.map(|f| f.id()).fails(),
        laws.fs.walk(&call, &At::id(id), Want::default()).await.fails(),
        laws.fs.open(&call, &At::id(id), &how(Rights::READ)).await.map(|o| o.attr).fails(),
    ] {
        assert!(matches!(kind, ErrorKind::Denied | ErrorKind::NotFound), "{kind:?}");
    }
    let want = Want { attr: true, rights: false };
    let page = laws.fs.list(&call, &at("d"), Cursor::ByName, PageMax::MAX, want).await.works();
    assert_eq!((page.entries.len(), page.entries[0].attr), (1, None), "its name may be listed, and no more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_callers_write_runs_as_the_nodes_user() {
    let site = Site::fresh(11).await;
    let (laws, home) = (Laws::of(&site), site.home.path());
    fs::write(home.join("tool"), "theirs").expect("written");
    fs::set_permissions(home.join("tool"), fs::Permissions::from_mode(0o6755)).expect("mine");
    put(&laws, "tool", b"a caller's").await;
    assert_eq!(fs::metadata(home.join("tool")).expect("there").mode() & 0o7777, 0o755);
    let runs = SetAttr { mode: Some(0o4755), ..SetAttr::default() };
    let set = laws.fs.set(&laws.call(), &at("tool"), &runs, &free()).await;
    assert_eq!(set.fails(), ErrorKind::NotPermitted);
    let made = laws.fs.make(&laws.call(), &at("new"), New::File { verifier: None }, &runs).await;
    assert_eq!(made.fails(), ErrorKind::NotPermitted);
    let stage = laws.fs.stage(&laws.call(), &at("tool"), &StageHint::default()).await.works();
    assert_eq!(stage.publish(&laws.call(), &[], &runs, &free()).await.fails(), ErrorKind::NotPermitted);
    assert!(!home.join("new").exists());
}

/// Two places with policies of their own, of which one is moved onto the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_moved_onto_a_place_keeps_its_own_policy_for_good() {
    for seed in 20..26 {
        let site = Site::fresh(seed).await;
        let (laws, home) = (Laws::of(&site), site.home.path());
        let alice = laws.user("alice");
        laws.allow("", &alice, Rights::LIST | Rights::TRAVERSE).await;
        laws.dir("e").await;
        for file in ["e/a", "e/b"] {
            fs::write(home.join(file), "secret").expect("written");
        }
        let secret = laws.seal("e/a").await.container;
        laws.allow("e/b", &alice, Rights::READING).await;
        laws.fs.rename(&laws.call(), &at("e/a"), &at("e/b"), Replace::Any, &free()).await.works();
        laws.fs.rename(&laws.call(), &at("e"), &at("f"), Replace::Any, &free()).await.works();
        for _ in 0..2 {
            let laws = Laws::of(&site);
            assert_eq!(governs(&laws, "f/b").await, secret);
            let opened = laws.fs.open(&laws.call_of(&alice, 2), &at("f/b"), &how(Rights::READ)).await;
            assert_eq!(opened.map(|opened| opened.attr).fails(), ErrorKind::Denied);
            Subject::restart(&site).await;
        }
    }
}

/// What an editor puts aside, and what is moved after it was put anew, stay under the policy they had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_moved_away_stays_guarded_whatever_comes_to_its_place() {
    let site = Site::fresh(12).await;
    let (laws, home) = (Laws::of(&site), site.home.path());
    let alice = laws.user("alice");
    laws.allow("", &alice, Rights::READING).await;
    fs::write(home.join("f"), "secret").expect("written");
    let secret = laws.seal("f").await.container;
    fs::rename(home.join("f"), home.join("f~")).expect("renamed");
    fs::write(home.join("f"), "secret too").expect("written");
    laws.grant("f", vec![AclEntry::allow(who(&alice), Rights::ATTR_READ)]).await;
    let refused = |path: &'static str| {
        let (laws, alice) = (&laws, &alice);
        async move {
            let opened = laws.fs.open(&laws.call_of(alice, 2), &at(path), &how(Rights::READ)).await;
            assert_eq!(opened.map(|opened| opened.attr).fails(), ErrorKind::Denied, "{path}");
        }
    };
    assert_eq!(governs(&laws, "f~").await, secret);
    assert_ne!(governs(&laws, "f").await, secret);
    refused("f~").await;
    refused("f").await;
    // A published file is another inode: it takes the policy of its place along, too.
    put(&laws, "f", b"third").await;
    fs::rename(home.join("f"), home.join("g")).expect("renamed");
    put(&laws, "f", b"fourth").await;
    for path in ["f", "f~", "g"] {
        refused(path).await;
    }
    Subject::restart(&site).await;
    for path in ["f", "f~", "g"] {
        let fs = Subject::fs(&site);
        let opened = fs.open(&laws.call_of(&alice, 2), &at(path), &how(Rights::READ)).await;
        assert_eq!(opened.map(|opened| opened.attr).fails(), ErrorKind::Denied, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_file_is_read_wherever_it_is_moved_within_the_share_and_nowhere_else() {
    let site = Site::fresh(13).await;
    let (laws, home) = (Laws::of(&site), site.home.path());
    fs::create_dir(home.join("d")).expect("made");
    fs::write(home.join("f"), "bytes").expect("written");
    let opened = laws.open("f", Rights::READ).await;
    let read = || async { read_of(&*opened.file, &laws.call(), Range::ALL).await };
    fs::rename(home.join("f"), home.join("d/g")).expect("renamed");
    assert_eq!(read().await.works(), "bytes");
    let away = tempfile::tempdir_in(home.parent().expect("it lies somewhere")).expect("a directory");
    fs::rename(home.join("d/g"), away.path().join("g")).expect("renamed");
    assert_eq!(read().await.fails(), ErrorKind::Stale, "it is no part of the share any more");
    fs::rename(away.path().join("g"), home.join("h")).expect("renamed");
    assert_eq!(read().await.works(), "bytes");
    fs::remove_file(home.join("h")).expect("removed");
    assert_eq!(read().await.works(), "bytes", "open without a name, it lives");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobodys_file_is_taken_for_staged_bytes() {
    let site = Site::fresh(14).await;
    let (laws, home) = (Laws::of(&site), site.home.path());
    laws.dir("d").await;
    for name in [".weft-stage-notes", ".weft-stage-0000000000000001-00000000000000000000000000000002-1"] {
        fs::write(home.join("d").join(name), "theirs").expect("written");
    }
    assert_eq!(laws.names(laws.find("d").await.works()).await, []);
    let removed = laws.fs.remove(&laws.call(), &at("d"), Expect::Any, &free()).await;
    assert_eq!(removed.fails(), ErrorKind::NotEmpty);
    assert_eq!(fs::read_dir(home.join("d")).expect("there").count(), 2);
}
