use std::fs;
use std::process::Command;

use weft_conformance::fuzz::fuzz;
use weft_conformance::run::not_run;

use super::*;

fn rules(lines: &str) -> Rules {
    let mut rules = Rules::default();
    rules.add_lines(Verdict::Exclude, lines.as_bytes()).expect("good rules");
    rules
}

#[test]
fn patterns_match_as_rsync_documents_them() {
    for (pattern, path, is_directory, out) in [
        ("*.o", "a/b/c.o", false, true),
        ("*.o", "a.o/b", false, false),
        ("/a", "a", false, true),
        ("/a", "b/a", false, false),
        ("a/b", "x/a/b", false, true),
        ("a/b", "x/a/b/c", false, false),
        ("/a/*", "a/b", false, true),
        ("/a/*", "a/b/c", false, false),
        ("/a/**", "a/b/c", false, true),
        ("**/c", "a/b/c", false, true),
        ("**/c", "c", false, true),
        ("d/", "d", true, true),
        ("d/", "d", false, false),
        ("d/***", "x/d", true, true),
        ("d/***", "x/d/e/f", false, true),
        ("d/***", "xd/e", false, false),
        ("?.c", "a.c", false, true),
        ("?.c", "ab.c", false, false),
        ("[a-c]?", "bz", false, true),
        ("[!a-c]?", "bz", false, false),
        ("[]x]", "]", false, true),
        ("[a", "[a", false, true),
        ("\\*", "*", false, true),
        ("\\*", "a", false, false),
        ("a*b*c", "a/b/c", false, false),
        ("a**b*c", "a/b/bxc", false, true),
    ] {
        assert_eq!(rules(pattern).leaves_out(path.as_bytes(), is_directory), out, "{pattern} {path}");
    }
}

#[test]
fn the_first_rule_that_matches_decides() {
    let rules = rules("# of mine\n\n+ keep.o\n; nothing\n*.o\n- z\n");
    for (path, out) in [("keep.o", false), ("a/keep.o", false), ("a.o", true), ("z", true), ("y", false)] {
        assert_eq!(rules.leaves_out(path.as_bytes(), false), out, "{path}");
    }
    assert!(Rules::default().add(Verdict::Exclude, b"/").is_err());
}

/// What is taken of one tree by a set of rules, and by rsync.
#[test]
fn what_is_taken_of_a_tree_is_what_rsync_takes() {
    if Command::new("rsync").arg("--version").output().is_err() {
        not_run("what_is_taken_of_a_tree_is_what_rsync_takes", "rsync");
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let paths =
        ["a/b/c.o", "a/b/d.c", "a/c.o", "b/a/b/x", "b/keep/k.o", "c.o", "d/e/f/g", "d/e.c", "x]", "keep/y"];
    for path in paths {
        let path = dir.path().join("from").join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        fs::write(path, "").expect("written");
    }
    for lines in [
        "*.o",
        "/a",
        "a/b",
        "a/b/",
        "/a/*",
        "/a/**",
        "**/c.o",
        "b/***",
        "/d/***",
        "+ keep/***\n*.o",
        "+ k.o\n*.o",
        "[x-z]*",
        "e",
        "e/",
        "e.?",
        "+ /a/\n+ /a/b/\n+ /a/b/**\n*",
        "d/e/f",
        "**e**",
        "*/e",
        "/*/e",
    ] {
        let to = dir.path().join("to");
        let _ = fs::remove_dir_all(&to);
        let list = dir.path().join("rules");
        fs::write(&list, lines).expect("written");
        let done = Command::new("rsync")
            .arg("-r")
            .arg("--exclude-from")
            .arg(&list)
            .arg(dir.path().join("from/"))
            .arg(&to)
            .status()
            .expect("it runs");
        assert!(done.success());
        let rules = rules(lines);
        for path in paths {
            let ends = path.match_indices('/').map(|(at, _)| (at, true)).chain([(path.len(), false)]);
            let out = ends.into_iter().any(|(end, is_dir)| rules.leaves_out(&path.as_bytes()[..end], is_dir));
            assert_eq!(!out, to.join(path).exists(), "{lines:?} {path}");
        }
    }
}

#[test]
fn no_pattern_and_no_path_takes_long_or_panics() {
    let made: [&[u8]; 3] = [b"a**b*[c-d]?\\*\0a/b/bxc", b"+ /a/***\n*\0a/b", b"[!]\0x"];
    fuzz(
        "rules",
        |dice| made[dice.roll(3) as usize].to_vec(),
        |bytes| {
            let (lines, path) = bytes.split_at(bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len()));
            let mut rules = Rules::default();
            if rules.add_lines(Verdict::Exclude, lines).is_ok() {
                rules.leaves_out(path, false);
            }
        },
    );
}
