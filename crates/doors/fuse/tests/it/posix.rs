//! What POSIX and Linux promise of files, one law a test.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, SeekFrom as Sought, Timespec,
    Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags,
};
use rustix::io::Errno;
use weft_core::limits;

use crate::bed::mounted;
use crate::raw::Mapping;
use crate::told;

/// Returns the error number of what must fail.
fn number<T>(answer: std::io::Result<T>) -> Option<Errno> {
    answer.err().and_then(|error| Errno::from_io_error(&error))
}

mounted! {
    fn an_unlinked_file_lives_until_it_is_closed(bed) {
        let mut file = File::options().read(true).write(true).create_new(true).open(bed.join("f")).expect("made");
        file.write_all(b"still here").expect("written");
        fs::remove_file(bed.join("f")).expect("removed");
        assert_eq!(fs::read_dir(bed.path()).expect("listed").count(), 0);
        assert_eq!(file.metadata().expect("there").nlink(), 0);
        file.set_len(5).expect("cut");
        file.set_permissions(fs::Permissions::from_mode(0o600)).expect("changed");
        file.rewind().expect("sought");
        let mut text = String::new();
        file.read_to_string(&mut text).expect("read");
        assert_eq!(text, "still");
        file.sync_all().expect("synced");
    }

    fn a_file_renamed_over_lives_until_it_is_closed(bed) {
        fs::write(bed.join("old"), "old").expect("written");
        fs::write(bed.join("new"), "new").expect("written");
        let mut file = File::open(bed.join("old")).expect("opened");
        fs::rename(bed.join("new"), bed.join("old")).expect("renamed");
        let mut text = String::new();
        file.read_to_string(&mut text).expect("read");
        assert_eq!((text.as_str(), fs::read_to_string(bed.join("old")).expect("read").as_str()), ("old", "new"));
    }

    fn an_exclusive_open_refuses_what_is_there_and_a_truncating_one_cuts_it(bed) {
        fs::write(bed.join("f"), vec![1; 100_000]).expect("written");
        assert_eq!(number(File::create_new(bed.join("f"))), Some(Errno::EXIST));
        let reader = File::open(bed.join("f")).expect("opened");
        let file = File::create(bed.join("f")).expect("cut");
        assert_eq!((file.metadata().expect("there").len(), reader.metadata().expect("there").len()), (0, 0));
        // What is written behind a hole reads as zeros before it, for the older open too.
        file.write_all_at(b"x", 10_000).expect("written");
        let mut bytes = vec![9; 10_001];
        reader.read_exact_at(&mut bytes, 0).expect("read");
        assert!(bytes[..10_000].iter().all(|byte| *byte == 0) && bytes[10_000] == b'x');
    }

    fn appends_of_two_opens_never_overwrite_each_other(bed) {
        let open = || OpenOptions::new().append(true).create(true).open(bed.join("log")).expect("opened");
        std::thread::scope(|scope| {
            for writer in 0..4_u8 {
                let mut file = open();
                scope.spawn(move || {
                    for line in 0..200 {
                        file.write_all(format!("{writer} {line:04}\n").as_bytes()).expect("written");
                    }
                });
            }
        });
        let log = fs::read_to_string(bed.join("log")).expect("read");
        let lines: HashSet<&str> = log.lines().collect();
        assert_eq!((log.lines().count(), lines.len()), (800, 800));
        assert!(lines.iter().all(|line| line.len() == 6), "no line is torn");
    }

    fn renaming_can_refuse_to_replace_or_exchange(bed) {
        let rename = |how| rustix::fs::renameat_with(CWD, bed.join("a"), CWD, bed.join("b"), how);
        fs::write(bed.join("a"), "a").expect("written");
        assert_eq!(rename(RenameFlags::EXCHANGE), Err(Errno::NOENT));
        fs::create_dir(bed.join("b")).expect("made");
        assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
        let whiteout = rustix::fs::renameat_with(CWD, bed.join("a"), CWD, bed.join("c"), RenameFlags::WHITEOUT);
        assert_eq!(whiteout, Err(Errno::INVAL));
        rename(RenameFlags::EXCHANGE).expect("exchanged");
        assert!(bed.join("a").is_dir() && bed.join("b").is_file());
        assert_eq!(number(fs::rename(bed.join("a"), bed.join("a/below"))), Some(Errno::INVAL));
    }

    fn times_are_set_to_the_nanosecond_to_now_or_not_at_all(bed) {
        fs::write(bed.join("f"), "x").expect("written");
        let set = |atime, mtime| {
            let times = Timestamps { last_access: atime, last_modification: mtime };
            rustix::fs::utimensat(CWD, bed.join("f"), &times, AtFlags::empty()).expect("set");
            fs::metadata(bed.join("f")).expect("there")
        };
        let at = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        let stat = set(at(1, 2), at(1_700_000_000, 999_999_999));
        assert_eq!((stat.atime(), stat.atime_nsec()), (1, 2));
        assert_eq!((stat.mtime(), stat.mtime_nsec()), (1_700_000_000, 999_999_999));
        let stat = set(at(0, UTIME_OMIT), at(0, UTIME_NOW));
        assert_eq!((stat.atime(), stat.atime_nsec()), (1, 2));
        let age = UNIX_EPOCH.elapsed().expect("after 1970").as_secs() as i64 - stat.mtime();
        assert!((0..60).contains(&age), "now is now");
        // Before 1970 there was time as well.
        assert_eq!(set(at(-5, 7), at(0, UTIME_OMIT)).atime(), -5);
    }

    fn a_write_clears_set_id_bits_and_a_chmod_keeps_them(bed) {
        let file = File::create(bed.join("f")).expect("made");
        file.set_permissions(fs::Permissions::from_mode(0o6755)).expect("changed");
        assert_eq!(file.metadata().expect("there").mode() & 0o7777, 0o6755);
        // Root writes as root and keeps them, as on any file system.
        if !rustix::process::getuid().is_root() {
            file.write_all_at(b"x", 0).expect("written");
            assert_eq!(file.metadata().expect("there").mode() & 0o7777, 0o755);
        }
    }

    fn hard_links_are_counted_and_directories_have_none(bed) {
        fs::write(bed.join("a"), "one").expect("written");
        fs::hard_link(bed.join("a"), bed.join("b")).expect("linked");
        fs::write(bed.join("b"), "two").expect("written");
        assert_eq!(fs::read_to_string(bed.join("a")).expect("read"), "two");
        assert_eq!(fs::metadata(bed.join("a")).expect("there").nlink(), 2);
        let inode = |name| fs::metadata(bed.join(name)).expect("there").ino();
        assert_eq!(inode("a"), inode("b"));
        fs::remove_file(bed.join("a")).expect("removed");
        assert_eq!(fs::metadata(bed.join("b")).expect("there").nlink(), 1);
        fs::create_dir(bed.join("d")).expect("made");
        assert_eq!(number(fs::hard_link(bed.join("d"), bed.join("e"))), Some(Errno::PERM));
    }

    fn symbolic_links_are_resolved_by_the_kernel(bed) {
        fs::create_dir(bed.join("d")).expect("made");
        fs::write(bed.join("d/f"), "there").expect("written");
        symlink("d/f", bed.join("relative")).expect("linked");
        symlink("/proc/self/comm", bed.join("absolute")).expect("linked");
        symlink("loop", bed.join("loop")).expect("linked");
        assert_eq!(fs::read_to_string(bed.join("relative")).expect("read"), "there");
        assert_eq!(fs::read_link(bed.join("relative")).expect("read"), Path::new("d/f"));
        assert!(!fs::read_to_string(bed.join("absolute")).expect("this machine's own").is_empty());
        assert_eq!(number(fs::read(bed.join("loop"))), Some(Errno::LOOP));
        assert_eq!(fs::symlink_metadata(bed.join("relative")).expect("there").len(), 3);
    }

    fn fifos_pass_bytes_and_devices_are_refused(bed) {
        let make = |name, kind| rustix::fs::mknodat(CWD, bed.join(name), kind, Mode::RUSR | Mode::WUSR, 0);
        make("fifo", FileType::Fifo).expect("made");
        make("file", FileType::RegularFile).expect("made");
        assert_eq!(make("device", FileType::CharacterDevice), Err(Errno::PERM));
        assert_eq!(make("socket", FileType::Socket), Err(Errno::PERM));
        assert_eq!(make("fifo", FileType::Fifo), Err(Errno::EXIST));
        let (fifo, sent) = (bed.join("fifo"), vec![7; 100_000]);
        let received = std::thread::scope(|scope| {
            scope.spawn(|| fs::write(&fifo, &sent).expect("written"));
            fs::read(&fifo).expect("read")
        });
        assert_eq!(received, sent);
    }

    fn names_are_bytes_of_any_kind_and_end_at_255(bed) {
        let all: Vec<u8> = (1..=255_u8).filter(|byte| *byte != b'/').collect();
        let name = |bytes: &[u8]| bed.path().join(OsStr::from_bytes(bytes));
        fs::write(name(&all), "x").expect("254 different bytes");
        fs::write(name(&[0xff; 255]), "y").expect("not UTF-8");
        assert_eq!(number(fs::write(name(&[b'a'; 256]), "z")), Some(Errno::NAMETOOLONG));
        let names: HashSet<Vec<u8>> = fs::read_dir(bed.path())
            .expect("listed")
            .map(|entry| entry.expect("an entry").file_name().as_bytes().to_vec())
            .collect();
        assert_eq!(names, HashSet::from([all, vec![0xff; 255]]));
    }

    fn what_is_there_throughout_a_listing_comes_once_whatever_comes_and_goes(bed) {
        const STAY: usize = 3000;
        for i in 0..STAY {
            fs::write(bed.join(&format!("stay{i}")), "").expect("made");
            fs::write(bed.join(&format!("go{i}")), "").expect("made");
        }
        let mut seen = Vec::new();
        for (place, entry) in fs::read_dir(bed.path()).expect("listed").enumerate() {
            let name = entry.expect("an entry").file_name().into_string().expect("as made");
            if name.starts_with("stay") {
                seen.push(name);
            }
            if place < STAY {
                fs::remove_file(bed.join(&format!("go{place}"))).expect("removed");
                fs::write(bed.join(&format!("come{place}")), "").expect("made");
            }
        }
        let distinct: HashSet<&String> = seen.iter().collect();
        assert_eq!((seen.len(), distinct.len()), (STAY, STAY));
    }

    fn a_directory_can_be_read_again_and_shows_what_it_has_become(bed) {
        let dir = File::open(bed.path()).expect("opened");
        let mut listing = rustix::fs::Dir::read_from(&dir).expect("listed");
        let count = |listing: &mut rustix::fs::Dir| listing.by_ref().count();
        assert_eq!(count(&mut listing), 2, "dot and dots");
        fs::write(bed.join("new"), "").expect("made");
        listing.rewind();
        assert_eq!(count(&mut listing), 3);
    }

    fn sixty_four_threads_make_names_in_one_directory(bed) {
        std::thread::scope(|scope| {
            for thread in 0..64 {
                let bed = &bed;
                scope.spawn(move || {
                    for i in 0..20 {
                        fs::write(bed.join(&format!("{thread}-{i}")), [thread as u8]).expect("made");
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(bed.path()).expect("listed").count(), 64 * 20);
        assert_eq!(fs::read(bed.join("63-19")).expect("read"), [63]);
    }

    fn user_attributes_are_set_listed_probed_and_removed(bed) {
        let path = bed.join("f");
        fs::write(&path, "").expect("made");
        let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
        let get = |name: &str, room: usize| {
            let mut value = vec![0; room];
            rustix::fs::getxattr(&path, name, &mut value[..]).map(|n| value[..n.min(room)].to_vec())
        };
        assert_eq!(get("user.a", 10), Err(Errno::NODATA));
        assert_eq!(set("user.a", b"1", XattrFlags::REPLACE), Err(Errno::NODATA));
        set("user.a", b"one", XattrFlags::CREATE).expect("set");
        assert_eq!(set("user.a", b"2", XattrFlags::CREATE), Err(Errno::EXIST));
        set("user.b", &[7; 60 << 10], XattrFlags::empty()).expect("as long as may be");
        assert_eq!(set("user.c", &[7; 61 << 10], XattrFlags::empty()), Err(Errno::TOOBIG));
        assert_eq!(get("user.a", 10).as_deref(), Ok(&b"one"[..]));
        assert_eq!(get("user.a", 2), Err(Errno::RANGE));
        assert_eq!(rustix::fs::getxattr_query(&path, "user.b"), Ok(60 << 10));
        let mut names = [0_u8; 100];
        let length = rustix::fs::listxattr(&path, &mut names[..]).expect("listed");
        assert_eq!(&names[..length], b"user.a\0user.b\0");
        rustix::fs::removexattr(&path, "user.a").expect("removed");
        assert_eq!(rustix::fs::removexattr(&path, "user.a"), Err(Errno::NODATA));
        for other in ["security.selinux", "trusted.a", "system.posix_acl_access", "weft.a"] {
            assert_eq!(get(other, 10), Err(Errno::OPNOTSUPP), "{other}");
        }
    }

    fn space_is_allocated_punched_and_zeroed_and_holes_are_found(bed) {
        const MIB: u64 = 1 << 20;
        let file = File::options().read(true).write(true).create(true).truncate(true).open(bed.join("f")).expect("made");
        let allocate = |mode, at, length| rustix::fs::fallocate(&file, mode, at, length);
        let size = || file.metadata().expect("there").len();
        allocate(FallocateFlags::KEEP_SIZE, 0, MIB).expect("allocated");
        assert_eq!(size(), 0);
        file.write_all_at(&vec![1; 3 << 20], 0).expect("written");
        allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, MIB, MIB).expect("punched");
        allocate(FallocateFlags::ZERO_RANGE, 3 * MIB - 10, 20).expect("zeroed");
        assert_eq!(size(), 3 * MIB + 10);
        for mode in [FallocateFlags::PUNCH_HOLE, FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
            assert_eq!(allocate(mode, 0, MIB), Err(Errno::OPNOTSUPP), "{mode:?}");
        }
        let mut bytes = vec![9; 3 << 20];
        file.read_exact_at(&mut bytes, 0).expect("read");
        let ones = bytes.iter().filter(|byte| **byte == 1).count() as u64;
        assert_eq!(ones, 2 * MIB - 10);
        let seek = |from| rustix::fs::seek(&file, from);
        assert_eq!(seek(Sought::Hole(0)), Ok(MIB));
        assert_eq!(seek(Sought::Data(MIB)), Ok(2 * MIB));
        assert_eq!(seek(Sought::Data(9 * MIB)), Err(Errno::NXIO));
        assert_eq!(seek(Sought::Hole(9 * MIB)), Err(Errno::NXIO));
        assert_eq!(told::get(bed.path(), "user.weft.why"), Err(Errno::NODATA), "it says all by its number");
    }

    fn copies_within_the_mount_stay_within_it(bed) {
        let bytes: Vec<u8> = (0..2_000_000_u32).map(|i| ((i * 7) >> 3) as u8).collect();
        fs::write(bed.join("a"), &bytes).expect("written");
        let from = File::open(bed.join("a")).expect("opened");
        let to = File::options().read(true).write(true).create_new(true).open(bed.join("b")).expect("made");
        let (mut at, mut to_at) = (1000, 500);
        let copied = rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut to_at), 5_000_000);
        let copied = copied.expect("copied");
        assert_eq!(copied, bytes.len() - 1000);
        let mut made = Vec::new();
        (&to).read_to_end(&mut made).expect("read");
        assert!(made[..500].iter().all(|byte| *byte == 0) && made[500..] == bytes[1000..]);
        // A mode that no longer lets it be opened does not take the opens their rights.
        to.set_permissions(fs::Permissions::from_mode(0o000)).expect("changed");
        let copied = rustix::fs::copy_file_range(&from, Some(&mut 0), &to, Some(&mut 0), 100);
        assert_eq!(copied, Ok(100));
    }

    fn a_large_copy_is_made_in_parts_and_each_part_is_told(bed) {
        let most = limits::MOUNT_COPY_BYTES_MAX as usize;
        let from = File::options().read(true).write(true).create_new(true).open(bed.join("a")).expect("made");
        from.set_len(most as u64 + 10).expect("made long");
        from.write_all_at(b"end", most as u64 + 7).expect("written");
        let to = File::options().read(true).write(true).create_new(true).open(bed.join("b")).expect("made");
        let (mut at, mut to_at) = (0, 0);
        let mut copy = || rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut to_at), most * 4);
        assert_eq!([copy(), copy(), copy()], [Ok(most), Ok(10), Ok(0)]);
        let mut end = [0; 3];
        to.read_exact_at(&mut end, most as u64 + 7).expect("read");
        assert_eq!(&end, b"end");
    }

    fn what_is_written_through_a_mapping_is_in_the_file_and_the_other_way_round(bed) {
        let path = bed.join("f");
        fs::write(&path, vec![0; 100_000]).expect("written");
        let file = File::options().read(true).write(true).open(&path).expect("opened");
        let mapping = Mapping::new(&file, true);
        mapping.write(70_000, 5);
        let mut byte = [0];
        file.read_exact_at(&mut byte, 70_000).expect("read");
        assert_eq!(byte, [5], "before it is written back");
        file.write_all_at(&[6], 10).expect("written");
        assert_eq!(mapping.read(10), 6);
        mapping.sync();
        drop((mapping, file));
        let bytes = bed.stored("f");
        assert_eq!((bytes[70_000], bytes[10]), (5, 6));
    }

    fn space_and_name_length_are_told(bed) {
        let before = rustix::fs::statvfs(bed.path()).expect("told");
        fs::write(bed.join("f"), vec![1; 8 << 20]).expect("written");
        let after = rustix::fs::statvfs(bed.path()).expect("told");
        assert_eq!(before.f_namemax, 255);
        assert!(before.f_bfree * before.f_frsize - after.f_bfree * after.f_frsize >= 8 << 20);
        assert!(after.f_bfree <= after.f_blocks);
    }

    fn owner_and_group_change_only_to_what_they_are(bed) {
        fs::write(bed.join("f"), "").expect("made");
        let stat = fs::metadata(bed.join("f")).expect("there");
        let chown = |uid, gid| std::os::unix::fs::chown(bed.join("f"), uid, gid);
        chown(Some(stat.uid()), Some(stat.gid())).expect("as it is");
        chown(None, None).expect("nothing");
        // An ordinary user is refused by the kernel, root by the door: both EPERM.
        assert_eq!(number(chown(Some(12345), None)), Some(Errno::PERM));
        assert_eq!(number(chown(None, Some(12345))), Some(Errno::PERM));
    }

    fn reads_and_writes_past_the_page_cache_are_the_same(bed) {
        let direct = OFlags::DIRECT.bits() as i32;
        let file = File::options().read(true).write(true).create(true).truncate(true).custom_flags(direct)
            .open(bed.join("f")).expect("made");
        file.write_all_at(&vec![3; 1 << 20], 4096).expect("written");
        let cached = fs::read(bed.join("f")).expect("read");
        assert_eq!((cached.len(), cached[0], cached[4096]), ((1 << 20) + 4096, 0, 3));
        let mut bytes = vec![0; 4096];
        file.read_exact_at(&mut bytes, 4096).expect("read");
        assert_eq!(bytes, vec![3; 4096]);
    }

    fn a_program_runs_from_the_mount(bed) {
        fs::copy("/bin/true", bed.join("true")).expect("copied");
        let status = std::process::Command::new(bed.join("true")).status().expect("it runs");
        assert!(status.success());
        // Without the right to read it, it still runs.
        fs::set_permissions(bed.join("true"), fs::Permissions::from_mode(0o100)).expect("changed");
        let status = std::process::Command::new(bed.join("true")).status().expect("it runs");
        assert!(status.success());
        fs::set_permissions(bed.join("true"), fs::Permissions::from_mode(0o600)).expect("changed");
        let refused = number(std::process::Command::new(bed.join("true")).status());
        assert_eq!(refused, Some(Errno::ACCESS));
    }

    fn a_large_file_is_written_and_read_in_pieces_of_any_size(bed) {
        let mut file = File::create(bed.join("f")).expect("made");
        let mut expected = Vec::new();
        for (i, size) in [1, 4095, 4096, 131_073, 1 << 20, (1 << 20) + 1, 3_000_000].into_iter().enumerate() {
            let part = vec![i as u8 + 1; size];
            file.write_all(&part).expect("written");
            expected.extend(part);
        }
        drop(file);
        let mut file = File::open(bed.join("f")).expect("opened");
        let mut all = Vec::new();
        file.read_to_end(&mut all).expect("read");
        assert!(all == expected);
        file.seek(SeekFrom::End(-10)).expect("sought");
        assert_eq!(file.read(&mut [0; 100]).expect("read"), 10);
    }

    fn a_removed_directory_that_is_open_can_still_be_looked_at(bed) {
        fs::create_dir(bed.join("d")).expect("made");
        let dir = File::open(bed.join("d")).expect("opened");
        fs::remove_dir(bed.join("d")).expect("removed");
        assert_eq!(dir.metadata().expect("there").nlink(), 0);
        dir.sync_all().expect("that it is gone can be made durable");
        assert!(rustix::fs::fstatfs(&dir).expect("there").f_blocks > 0);
        assert_eq!(rustix::fs::openat(&dir, "x", OFlags::CREATE, Mode::RUSR).err(), Some(Errno::NOENT));
    }

    fn a_removed_directory_or_fifo_that_is_open_still_takes_attributes(bed) {
        let path = bed.join("x");
        let directory = |path: &Path| rustix::fs::mkdir(path, Mode::RWXU);
        let fifo = |path: &Path| rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0);
        for make in [directory, fifo] as [fn(&Path) -> Result<(), Errno>; 2] {
            make(&path).expect("made");
            let open = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&path).expect("opened");
            let remove = if open.metadata().expect("there").is_dir() { fs::remove_dir } else { fs::remove_file };
            open.set_permissions(fs::Permissions::from_mode(0o711)).expect("set");
            remove(&path).expect("removed");
            assert_eq!(open.metadata().expect("there").mode() & 0o7777, 0o711);
            open.set_permissions(fs::Permissions::from_mode(0o750)).expect("set");
            open.set_modified(UNIX_EPOCH + Duration::from_secs(7)).expect("set");
            let found = open.metadata().expect("there");
            assert_eq!((found.nlink(), found.mode() & 0o7777, found.mtime()), (0, 0o750, 7));
        }
    }

    fn timestamps_follow_what_is_done(bed) {
        fs::create_dir(bed.join("d")).expect("made");
        let mtime = |name: &str| fs::metadata(bed.join(name)).expect("there").modified().expect("a time");
        let before = mtime("d");
        std::thread::sleep(Duration::from_millis(5)); // clocks have to move on
        fs::write(bed.join("d/f"), "1").expect("written");
        assert!(mtime("d") > before);
        let (dir, file) = (mtime("d"), mtime("d/f"));
        std::thread::sleep(Duration::from_millis(5));
        fs::write(bed.join("d/f"), "2").expect("written");
        assert!(mtime("d/f") > file && mtime("d") == dir, "a file's bytes are not its directory's names");
    }
}
