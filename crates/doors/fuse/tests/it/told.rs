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

/// Returns an extended attribute that is text.
pub fn get(path: impl AsRef<Path>, name: &str) -> Result<String, Errno> {
    let mut value = vec![0; 64 << 10];
    let length = rustix::fs::getxattr(path.as_ref(), name, &mut value[..])?;
    Ok(String::from_utf8(value[..length].to_vec()).expect("text"))
}

/// Sets one.
pub fn set(path: impl AsRef<Path>, name: &str, value: &str) -> Result<(), Errno> {
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
        assert_eq!(get(&directory, name).as_deref(), Ok(&*before));
        set(&directory, name, &format!("{before}allow bob read\n")).expect("alice may change it");
        let after = get(&directory, name).expect("read again");
        let entries = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        let below = get(bed.join("d/f"), name).expect("the same governs what lies below");
        assert_eq!(entries(&below), entries(&after));
        let home = bed.domain.name("alice").domain().expect("a domain");
        let (old, new) =
            [&before, &after].map(|text| Edited::read(text, home).expect("an ACL")).into();
        assert_eq!(new.entries.len(), old.entries.len() + 1, "{after}");
        let again = bed.mount_again("bob", 2);
        assert_eq!(fs::read_to_string(again.join("d/f")).expect("bob may read it now"), "x");
        assert_eq!(get(again.join("d"), name), Err(Errno::ACCESS), "and not the ACL");
        assert_eq!(set(&directory, name, &before), Err(Errno::BUSY), "it was edited since");
        let create = rustix::fs::setxattr(&directory, name, after.as_bytes(), XattrFlags::CREATE);
        assert_eq!(create, Err(Errno::EXIST));
        let edition = after.lines().next().expect("the first line");
        for wrong in ["", "allow alice fly", "hello", "edition 1"] {
            assert_eq!(set(&directory, name, &format!("{edition}\n{wrong}")), Err(Errno::INVAL), "{wrong}");
        }
        let said = get(&directory, "user.weft.why").expect("told");
        let told = ["name", "because"].map(|key| line(&said, key).expect("said"));
        assert!(told[0] == name && told[1].starts_with("line 2: "), "{said}");
        let long = "deny bob insert,remove,rename,lock,attr-read when until 1\n".repeat(250);
        let entries = after.strip_prefix(edition).expect("it begins with it");
        let long = format!("{edition}{entries}{}", long.replace("insert,remove,rename,lock,attr-read", "ildk"));
        assert!(long.len() < 60_000);
        set(&directory, name, &long).expect("as long as can be shown");
        let shown = get(&directory, name).expect("it is shown");
        assert!(shown.len() > long.len());
        let when = ["attribute a=bbbbbbbb"; 8].join(" and ");
        let edition = shown.lines().next().expect("the first line");
        let longer = format!("{edition}{entries}{}", format!("deny bob rlidk when {when}\n").repeat(250));
        assert!(longer.len() < 64 << 10);
        assert_eq!(set(&directory, name, &longer), Err(Errno::TOOBIG), "it could not be shown");
    }

    fn an_acl_that_a_copy_brings_along_is_not_taken(bed) {
        let name = "user.weft.acl";
        for directory in ["d", "e"] {
            fs::create_dir(bed.join(directory)).expect("made");
            let shown = get(bed.join(directory), name).expect("shown");
            set(bed.join(directory), name, &format!("{shown}allow bob read\n")).expect("its own now");
        }
        let (shown, other) = (get(bed.join("d"), name).expect("shown"), get(bed.join("e"), name).expect("shown"));
        let entries: String = shown.lines().skip(1).map(|line| format!("{line}\n")).collect();
        let forged = format!("edition {:032x}\n{entries}", 1);
        for copied in [&entries, &forged] {
            assert_eq!(set(bed.join("d"), name, copied), Err(Errno::PERM));
        }
        assert_eq!(set(bed.join("e"), name, &shown), Err(Errno::PERM), "another file's");
        fs::write(bed.join("d/f"), "x").expect("written");
        let of_file = get(bed.join("d/f"), name).expect("shown");
        fs::rename(bed.join("d/f"), bed.join("e/f")).expect("moved");
        assert_eq!(set(bed.join("e/f"), name, &of_file), Err(Errno::BUSY), "another container's, as young");
        let again = bed.mount_again("alice", 2);
        assert_eq!(set(again.join("d"), name, &shown), Err(Errno::PERM), "another mount showed it");
        assert_eq!(get(bed.join("e"), name), Ok(other));
        set(bed.join("d"), name, &shown).expect("what was shown here and changed by nobody");
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
        assert_eq!((line(&said, "name"), line(&said, "kind")), (Some("new"), Some("denied")), "{said}");
        assert_eq!(line(&why(".").expect("the last one"), "failed"), line(&said, "failed"));
        assert_eq!(line(&why("d/f").expect("as before"), "failed"), Some("open"));
        fs::rename(bed.join("d/f"), bed.join("d/g")).expect("by alice, elsewhere");
        assert_eq!(line(&why("d/g").expect("the file is the same"), "failed"), Some("open"));
        fs::create_dir(bed.join("e")).expect("made");
        assert!(fs::rename(again.join("d/g"), again.join("e/g")).is_err());
        assert_eq!(why("e").as_ref().map(|said| line(said, "name")), Ok(Some("g to g")), "told at both");
        assert_eq!(why("d"), why("e"));
    }
}

#[test]
fn a_call_that_was_not_answered_in_time_is_told_of() {
    if !can_mount("a_call_that_was_not_answered_in_time_is_told_of") {
        return;
    }
    let faulty = |inner| Arc::new(Faulty::new(inner));
    let bed = Bed::with(move |inner| faulty(inner), Duration::from_millis(100));
    assert!(fs::metadata(bed.join("stuck-walk")).is_err());
    let said = get(bed.path(), "user.weft.why").expect("told");
    assert_eq!((line(&said, "failed"), line(&said, "kind")), (Some("lookup"), Some("deadline")), "{said}");
}
