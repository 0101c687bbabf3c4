use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use weft_conformance::file_system::site::Dice;
use weft_conformance::fuzz::fuzz;

use super::*;

fn read(list: &str) -> std::result::Result<Options, String> {
    let read = Options::read(&[list.into()], false);
    read.map(|(options, _)| options)
        .map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

#[test]
fn what_a_line_of_fstab_asks_for_is_what_is_done() {
    let none = Options::default;
    let user = |user: &str| Options { user: Some(user.into()), ..none() };
    let without = |writing, programs| Options { without: Without { writing, programs }, ..none() };
    for (list, wanted) in [
        ("", none()),
        (",,", none()),
        ("defaults", none()),
        ("rw,noauto,nofail,_netdev,nosuid,nodev,noatime,async", none()),
        ("user,noexec,nosuid,nodev", without(false, true)),
        ("x-systemd.automount,x-systemd.requires=weft.service,X-mount.mkdir=0700,comment=mine", none()),
        ("setuid=alice", user("alice")),
        ("setuid=alice,setuid=bob", user("bob")),
        ("setuid=1000", user("1000")),
        ("setuid=a=b", user("a=b")),
        ("ro", without(true, false)),
        ("ro,rw", none()),
        ("rw,ro,noexec", without(true, true)),
        ("noexec,exec", none()),
        ("node=/var/lib/weft", Options { node: Some("/var/lib/weft".into()), ..none() }),
        ("node=\"/a,b\",ro", Options { node: Some("/a,b".into()), ..without(true, false) }),
        ("ro,node=\"/a,b", Options { node: Some("/a,b".into()), ..without(true, false) }),
        ("token_file=/etc/weft/alice", Options { token_file: Some("/etc/weft/alice".into()), ..none() }),
        ("memory=64", Options { memory: Some(64), ..none() }),
    ] {
        assert_eq!(read(list), Ok(wanted), "{list}");
    }
}

#[test]
fn what_is_not_known_or_would_be_untrue_is_refused_by_name_and_without_its_value() {
    for (list, said) in [
        ("nonsense", "cannot take the option nonsense: it is not known"),
        ("nonsense=x", "cannot take the option nonsense: it is not known"),
        ("RO", "cannot take the option RO: it is not known"),
        (" ro", "cannot take the option  ro: it is not known"),
        ("ro=1", "cannot take the option ro: it is not known"),
        ("setuid", "cannot take the option setuid: it is not known"),
        ("=", "cannot take the option : it is not known"),
        ("x", "cannot take the option x: it is not known"),
        ("a\u{1b}[2J", "cannot take the option a\\x1b[2J: it is not known"),
        ("setuid=", "cannot take the option setuid: it says nothing"),
        ("node=data", "cannot take the option node: its path does not start with `/`"),
        ("memory=63", "cannot take the option memory: it is not a number of MiB from 64 on"),
        ("memory=1G", "cannot take the option memory: it is not a number of MiB from 64 on"),
        ("token_file=", "cannot take the option token_file: its path does not start with `/`"),
        ("user=alice", "mount(8) takes user=NAME for leave to anybody"),
        ("uid=1000", "cannot take the option uid: files are shown as"),
        ("password=geheim", "cannot take the option password: everybody can read it there"),
        ("allow_other", "cannot take the option allow_other: everybody let in would act as"),
        ("suid", "cannot take the option suid"),
        ("dev", "cannot take the option dev"),
        ("sync", "cannot take the option sync"),
        ("relatime", "cannot take the option relatime"),
        ("remount,ro", "cannot take the option remount"),
        ("foo,ro,bar=1", "option foo: it is not known\ncannot take the option bar"),
    ] {
        let refused = read(list).expect_err(list);
        assert!(refused.contains(said), "{list}: {refused}");
        assert!(!refused.contains("geheim"), "{refused}");
    }
}

#[test]
fn only_what_is_not_known_is_overlooked_where_that_is_asked_for() {
    let sloppy = |list: &str| Options::read(&[list.into()], true);
    let (options, strange) = sloppy("foo,ro,bar=1").expect("overlooked");
    assert!(options.without.writing);
    assert_eq!(strange, ["foo", "bar"]);
    assert_eq!(sloppy("foo,allow_other,suid").expect_err("untrue").len(), 2);
}

#[test]
fn lists_that_follow_one_another_are_one() {
    let (options, _) = Options::read(&["ro,setuid=a".into(), "rw".into()], false).expect("read");
    assert_eq!(options, Options { user: Some("a".into()), ..Options::default() });
}

#[test]
fn the_manual_says_each_option_and_what_becomes_of_it() {
    let manual = manual();
    for said in ["\nsetuid=: the user", "\nallow_other, allow_root: refused, since", "token_file=FILE names"]
    {
        assert!(manual.contains(said), "{said}: {manual}");
    }
}

#[test]
fn mutated_options_are_taken_or_refused_by_name() {
    let make = |dice: &mut Dice| {
        let lists = [
            "rw,setuid=alice,node=/var/lib/weft,token_file=/etc/t,_netdev",
            "ro,noexec,x-systemd.automount,comment=\"a,b\"",
            "defaults,user,suid,nonsense=1",
        ];
        dice.pick(&lists).as_bytes().to_vec()
    };
    fuzz("options of fstab", make, |bytes| {
        let lists = [OsString::from_vec(bytes.to_vec())];
        match Options::read(&lists, false) {
            Ok((options, strange)) => {
                assert!(strange.is_empty());
                assert!(
                    [options.node, options.token_file].into_iter().flatten().all(|path| path.is_absolute())
                );
            }
            Err(mistakes) => assert!(!mistakes.is_empty() && mistakes.iter().all(|e| e.subject().is_some())),
        }
    });
}
