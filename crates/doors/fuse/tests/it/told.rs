//! What a mount tells of itself and of a file, by attributes that Weft itself answers.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use weft_core::Rights;
use weft_core::acl::Edited;

use crate::bed::{Bed, can_mount, mounted};
use crate::faulty::Faulty;

fn get(path: impl AsRef<Path>, name: &str) -> Result<String, Errno> {
    let mut value = vec![0; 64 << 10];
    let length = rustix::fs::getxattr(path.as_ref(), name, &mut value[..])?;
    Ok(String::from_utf8(value[..length].to_vec()).expect("text"))
}

fn set(path: impl AsRef<Path>, name: &str, value: &str) -> Result<(), Errno> {
    rustix::fs::setxattr(path.as_ref(), name, value.as_bytes(), XattrFlags::empty())
}

/// Returns the value of a line of `key: value`.
fn line<'a>(said: &'a str, key: &str) -> Option<&'a str> {
    said.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))
}

mounted! {
    fn what_weft_says_of_a_file_is_read_by_name_and_listed_nowhere(bed) {
        let file = bed.join("f");
        fs::write(&file, "x").expect("written");
        set(&file, "user.mine", "x").expect("set");
        let walked = bed.walked("f");
        assert_eq!(get(&file, "user.weft.id").as_deref(), Ok(&*walked.attr.id.to_string()));
        assert_eq!(get(&file, "user.weft.container").as_deref(), Ok(&*walked.attr.container.to_string()));
        let rights = get(&file, "user.weft.rights").map(|rights| Rights::parse(&rights).expect("rights"));
        assert_eq!(rights.ok(), walked.rights);
        assert_eq!(get(&file, "user.weft.why"), Err(Errno::NODATA), "nothing has failed");
        let standing = get(&file, "user.weft.mount").expect("told");
        assert_eq!(line(&standing, "for"), Some(&*bed.domain.name("alice").to_string()), "{standing}");
        assert_eq!(line(&standing, "pid"), Some(&*std::process::id().to_string()), "{standing}");
        assert_eq!(line(&standing, "node"), Some("answers"), "{standing}");
        bed.tag("f", "weft.acl", "by another door");
        let mut names = [0_u8; 1000];
        let length = rustix::fs::listxattr(&file, &mut names[..]).expect("listed");
        assert_eq!(&names[..length], b"user.mine\0");
        for name in ["id", "container", "rights", "why", "mount"].map(|name| format!("user.weft.{name}")) {
            assert_eq!(set(&file, &name, "7"), Err(Errno::PERM), "{name}");
            assert_eq!(rustix::fs::removexattr(&file, &*name), Err(Errno::PERM), "{name}");
        }
        assert_eq!(rustix::fs::removexattr(&file, "user.weft.acl"), Err(Errno::PERM));
    }

    fn an_acl_is_read_and_written_as_an_attribute_by_whoever_may(bed) {
        fs::create_dir(bed.join("d")).expect("made");
        fs::write(bed.join("d/f"), "x").expect("written");
        let (directory, name) = (bed.join("d"), "user.weft.acl");
        let before = get(&directory, name).expect("alice may read it");
        set(&directory, name, &format!("{before}allow bob read\n")).expect("alice may change it");
        let after = get(bed.join("d/f"), name).expect("the same governs what lies below");
        let home = bed.domain.name("alice").domain().expect("a domain");
        let (old, new) = (Edited::read(&before, home).expect("an ACL"), Edited::read(&after, home).expect("an ACL"));
        assert_eq!(new.entries.len(), old.entries.len() + 1, "{after}");
        let again = bed.mount_again("bob", 2);
        assert_eq!(fs::read_to_string(again.join("d/f")).expect("bob may read it now"), "x");
        assert_eq!(get(again.join("d"), name), Err(Errno::ACCESS), "and not the ACL");
        assert_eq!(set(again.join("d"), name, &format!("{after}allow bob all\n")), Err(Errno::ACCESS));
        assert_eq!(set(&directory, name, &before), Err(Errno::BUSY), "it was edited since");
        let create = rustix::fs::setxattr(&directory, name, after.as_bytes(), XattrFlags::CREATE);
        assert_eq!(create, Err(Errno::EXIST));
        for wrong in ["", "allow bob read", "allow alice fly", "hello", "version 1 2"] {
            assert_eq!(set(&directory, name, wrong), Err(Errno::INVAL), "{wrong}");
        }
        let said = get(&directory, "user.weft.why").expect("told");
        assert!(line(&said, "because").is_some_and(|because| because.starts_with("user.weft.acl: line 1: ")), "{said}");
        assert_eq!(get(&directory, name).as_deref(), Ok(&*after));
        let without_bob: String = after.lines().filter(|l| !l.contains("bob") && !l.starts_with("version"))
            .map(|l| format!("{l}\n")).collect();
        set(&directory, name, &without_bob).expect("without a version it holds of the one there is");
        assert!(!get(&directory, name).expect("read").contains("bob"));
    }

    fn a_refusal_is_explained_afterwards_at_the_file_and_at_the_root(bed) {
        fs::create_dir(bed.join("d")).expect("made");
        fs::write(bed.join("d/f"), "x").expect("written");
        bed.allow(&[("bob", Rights::READING)]);
        let again = bed.mount_again("bob", 2);
        let why = |name: &str| get(again.join(name), "user.weft.why");
        assert!(fs::metadata(again.join("d/none")).is_err());
        assert_eq!((why("d"), why(".")), (Err(Errno::NODATA), Err(Errno::NODATA)), "that it is not there says all");
        for times in ["1", "2"] {
            assert!(fs::write(again.join("d/f"), "y").is_err());
            let said = why("d/f").expect("told");
            let told = ["failed", "kind", "times"].map(|key| line(&said, key));
            assert_eq!(told, [Some("open"), Some("denied"), Some(times)], "{said}");
            assert!(line(&said, "because").is_some_and(|because| because.contains("write")), "{said}");
            let inode = fs::metadata(again.join("d/f")).expect("there").ino();
            assert_eq!(line(&said, "inode"), Some(&*inode.to_string()), "{said}");
            assert_eq!((why("."), why("d")), (Ok(said), Err(Errno::NODATA)));
        }
        assert!(fs::write(again.join("d/new"), "y").is_err());
        let said = why("d").expect("what is to be made is refused where it is to lie");
        assert!(line(&said, "because").is_some_and(|because| because.contains("new")), "{said}");
        assert_eq!(line(&why(".").expect("the last one"), "failed"), line(&said, "failed"));
        assert_eq!(line(&why("d/f").expect("as before"), "failed"), Some("open"));
    }
}

#[test]
fn a_call_that_was_not_answered_in_time_is_told_of() {
    if !can_mount("a_call_that_was_not_answered_in_time_is_told_of") {
        return;
    }
    let faulty = |inner| Arc::new(Faulty { inner, lost: Arc::default(), deaf: false, busy: Arc::default() });
    let bed = Bed::with(move |inner| faulty(inner), Duration::from_millis(100));
    assert!(fs::metadata(bed.join("stuck-walk")).is_err());
    let said = get(bed.path(), "user.weft.why").expect("told");
    assert_eq!((line(&said, "failed"), line(&said, "kind")), (Some("lookup"), Some("deadline")), "{said}");
}
