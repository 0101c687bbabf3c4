//! Files, directories and links, as any program uses them.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;

use crate::bed::{Bed, can_mount};

#[test]
fn what_is_written_is_read_back_and_named() {
    if !can_mount("what_is_written_is_read_back_and_named") {
        return;
    }
    let bed = Bed::new();
    fs::create_dir(bed.join("d")).expect("made");
    fs::write(bed.join("d/f"), b"hello").expect("written");
    assert_eq!(fs::read(bed.join("d/f")).expect("read"), b"hello");
    let stat = fs::metadata(bed.join("d/f")).expect("there");
    assert_eq!((stat.len(), stat.nlink(), stat.uid()), (5, 1, rustix::process::getuid().as_raw()));
    fs::rename(bed.join("d/f"), bed.join("g")).expect("renamed");
    assert!(!bed.join("d/f").exists());
    let mut file = fs::OpenOptions::new().read(true).write(true).open(bed.join("g")).expect("opened");
    file.seek(SeekFrom::End(0)).expect("sought");
    file.write_all(&[b'x'; 300_000]).expect("written");
    file.rewind().expect("sought");
    let mut all = Vec::new();
    file.read_to_end(&mut all).expect("read");
    assert_eq!(all.len(), 300_005);
    let names: Vec<_> =
        fs::read_dir(bed.path()).expect("listed").map(|e| e.expect("an entry").file_name()).collect();
    assert_eq!(names.len(), 2);
    fs::remove_dir(bed.join("d")).expect("removed");
    bed.runtime.block_on(async { bed.mount().unmount().await }).expect_err("the file is open");
    drop(file);
    bed.runtime.block_on(async { bed.mount().unmount().await }).expect("unmounted");
}
