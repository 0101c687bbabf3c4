//! `cargo xtask deb`: the Debian package, made by `dpkg-deb` from `packaging/` and a built program.
//!
//! The program writes its own man pages and completions (`weft manual`), so that they say what it
//! understands. What is packed is looked at again as a stranger would: unpacked, run, compared with what
//! Debian asks of a package. Nothing here needs root: `dpkg-deb --root-owner-group` gives the files away.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where each file of the package comes from, where it goes, and its mode.
const FILES: &[(&str, &str, u32)] = &[
    ("packaging/weft.service", "usr/lib/systemd/system/weft.service", 0o644),
    ("packaging/weft-mount.service", "usr/lib/systemd/user/weft-mount.service", 0o644),
    ("packaging/debian/copyright", "usr/share/doc/weft/copyright", 0o644),
    ("packaging/debian/lintian-overrides", "usr/share/lintian/overrides/weft", 0o644),
    ("docs/guides/operating.md", "usr/share/doc/weft/operating.md", 0o644),
    ("docs/guides/configuring.md", "usr/share/doc/weft/configuring.md", 0o644),
    ("docs/guides/mounting.md", "usr/share/doc/weft/mounting.md", 0o644),
];
/// Links, and where they lead: mount(8) calls the program by the first two.
const LINKS: &[(&str, &str)] = &[
    ("usr/sbin/mount.weft", "../bin/weft"),
    ("usr/sbin/mount.fuse.weft", "../bin/weft"),
    ("usr/share/man/man8/mount.fuse.weft.8.gz", "mount.weft.8.gz"),
];
/// What runs when it is installed and removed.
const SCRIPTS: &[&str] = &["postinst", "prerm", "postrm"];
/// Completions, as the program writes them, and where shells look.
const COMPLETIONS: &[(&str, &str)] = &[
    ("weft.bash", "usr/share/bash-completion/completions/weft"),
    ("_weft", "usr/share/zsh/vendor-completions/_weft"),
    ("weft.fish", "usr/share/fish/vendor_completions.d/weft.fish"),
];

/// The list of changes that Debian asks for.
const CHANGELOG: &str = "usr/share/doc/weft/changelog.gz";
/// Characters of a line of it, at most.
const CHANGELOG_WIDTH: usize = 78;

/// Makes the package of a program that is built, or builds it first; returns whether it is good.
pub fn make(root: &Path, words: &[&str]) -> Result<bool, String> {
    let program = match words {
        [] => build(root)?,
        [program] => PathBuf::from(program),
        _ => return Err("usage: cargo xtask deb [PROGRAM]".to_owned()),
    };
    let place = root.join("target/deb");
    let (tree, version) = (place.join("tree"), version(root)?);
    let _ = fs::remove_dir_all(&place);
    fill(root, &program, &place, &tree)?;
    control(root, &program, &tree, &version)?;
    let package = place.join(format!("weft_{version}_{}.deb", architecture()?));
    run(Command::new("dpkg-deb").args(["--root-owner-group", "-Zxz", "--build"]).arg(&tree).arg(&package))?;
    println!("wrote {}", package.display());
    let faults = check(&package, &place.join("unpacked"), &version)?;
    faults.iter().for_each(|fault| println!("{fault}"));
    Ok(faults.is_empty())
}

fn build(root: &Path) -> Result<PathBuf, String> {
    let words = ["build", "--locked", "--profile", "dist", "--package", "weft"];
    run(Command::new(env!("CARGO")).current_dir(root).args(words))?;
    Ok(root.join("target/dist/weft"))
}

/// Puts every file where it goes.
fn fill(root: &Path, program: &Path, place: &Path, tree: &Path) -> Result<(), String> {
    put(program, &tree.join("usr/bin/weft"), 0o755)?;
    // What is stripped is of use to nobody who cannot build it again.
    run(Command::new("strip").arg(tree.join("usr/bin/weft")))?;
    for (from, to, mode) in FILES {
        put(&root.join(from), &tree.join(to), *mode)?;
    }
    let manual = place.join("manual");
    run(Command::new(program).arg("manual").arg(&manual))?;
    for (from, to) in COMPLETIONS {
        put(&manual.join("completions").join(from), &tree.join(to), 0o644)?;
    }
    for page in listed(&manual.join("man"))? {
        let name = page.file_name().and_then(|name| name.to_str()).ok_or("a page has a name")?;
        let section = name.rsplit_once('.').ok_or_else(|| format!("{name} says no section"))?.1;
        let to = tree.join(format!("usr/share/man/man{section}")).join(name);
        put(&page, &to, 0o644)?;
        compress(&to)?;
    }
    for (link, target) in LINKS {
        let at = tree.join(link);
        directory(at.parent().unwrap_or(tree))?;
        symlink(target, &at).map_err(|e| format!("cannot make {link}: {e}"))?;
    }
    let changelog = tree.join(CHANGELOG).with_extension("");
    write(&changelog, changes(root)?.as_bytes(), 0o644)?;
    compress(&changelog)?;
    let example = output(Command::new(program).args(["config", "example"]))?;
    write(&tree.join("etc/weft/weft.toml"), example.as_bytes(), 0o644)
}

/// Returns what is new, as Debian has it: the first line of each fragment, as of the last commit.
fn changes(root: &Path) -> Result<String, String> {
    let mut titles = Vec::new();
    for fragment in listed(&root.join("changelog/unreleased"))? {
        let text = fs::read_to_string(&fragment).map_err(|e| format!("no {}: {e}", fragment.display()))?;
        titles.push(text.lines().next().unwrap_or_default().to_owned());
    }
    let maintainer = control_field(root, "Maintainer")?;
    let git = ["log", "-1", "--format=%cd", "--date=format:%a, %d %b %Y %H:%M:%S %z"];
    let date = output(Command::new("git").current_dir(root).args(git))?;
    Ok(changelog(&version(root)?, &titles, &maintainer, date.trim()))
}

fn changelog(version: &str, titles: &[String], maintainer: &str, date: &str) -> String {
    let entries: String = titles.iter().map(|title| wrapped(title)).collect();
    format!("weft ({version}) unstable; urgency=medium\n\n{entries}\n -- {maintainer}  {date}\n")
}

/// Returns an entry of the list of changes, in lines that are not too long.
fn wrapped(title: &str) -> String {
    let (mut lines, mut line) = (String::new(), "  *".to_owned());
    for word in title.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > CHANGELOG_WIDTH {
            lines += &(line + "\n");
            line = "   ".to_owned();
        }
        line = line + " " + word;
    }
    lines + &line + "\n"
}

/// Returns what the template of the package's control says of a field that is not filled in.
fn control_field(root: &Path, name: &str) -> Result<String, String> {
    let path = root.join("packaging/debian/control");
    let control = fs::read_to_string(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let line = control.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    Ok(line.ok_or_else(|| format!("{} has no {name}", path.display()))?.to_owned())
}

/// Writes what `dpkg` reads.
fn control(root: &Path, program: &Path, tree: &Path, version: &str) -> Result<(), String> {
    let debian = root.join("packaging/debian");
    let template = fs::read_to_string(debian.join("control")).map_err(|e| format!("no control: {e}"))?;
    let kib = output(Command::new("du").args(["-sk", "--apparent-size"]).arg(tree))?;
    let kib = kib.split_whitespace().next().unwrap_or("0").to_owned();
    let symbols = output(Command::new("objdump").arg("-T").arg(program))?;
    let filled = filled(&template, version, &architecture()?, &kib, &glibc(&symbols));
    write(&tree.join("DEBIAN/control"), filled.as_bytes(), 0o644)?;
    put(&debian.join("conffiles"), &tree.join("DEBIAN/conffiles"), 0o644)?;
    for script in SCRIPTS {
        put(&debian.join(script), &tree.join("DEBIAN").join(script), 0o755)?;
    }
    let sums = "find usr -type f -print0 | sort -z | xargs -0 md5sum";
    let sums = output(Command::new("sh").current_dir(tree).args(["-c", sums]))?;
    write(&tree.join("DEBIAN/md5sums"), sums.as_bytes(), 0o644)
}

fn filled(template: &str, version: &str, architecture: &str, kib: &str, glibc: &str) -> String {
    [("@VERSION@", version), ("@ARCHITECTURE@", architecture), ("@SIZE@", kib), ("@GLIBC@", glibc)]
        .iter()
        .fold(template.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// Returns the newest version of the C library that a program asks for, of the symbols that it takes from it.
fn glibc(symbols: &str) -> String {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let numbers: Option<Vec<u32>> = rest[..end].split('.').map(|number| number.parse().ok()).collect();
        numbers
    });
    let newest = versions.max().unwrap_or_else(|| vec![2, 36]);
    newest.iter().map(u32::to_string).collect::<Vec<_>>().join(".")
}

/// Looks at a package as a stranger would.
fn check(package: &Path, unpacked: &Path, version: &str) -> Result<Vec<String>, String> {
    let contents = output(Command::new("dpkg-deb").arg("--contents").arg(package))?;
    let mut faults = listing_faults(&contents);
    let told = output(Command::new("dpkg-deb").args(["--field"]).arg(package))?;
    for field in ["Package: weft", &format!("Version: {version}"), "Depends: libc6", "Description: "] {
        if !told.contains(field) {
            faults.push(format!("control does not say `{field}`"));
        }
    }
    if told.contains('@') && told.contains("@VERSION@") {
        faults.push("control holds what was to be filled in".to_owned());
    }
    run(Command::new("dpkg-deb").arg("--extract").arg(package).arg(unpacked))?;
    let program = unpacked.join("usr/bin/weft");
    let said = output(Command::new(&program).arg("--version"))?;
    if said.trim() != format!("weft {version}") {
        faults.push(format!("the program says that it is `{}`", said.trim()));
    }
    let settings = unpacked.join("etc/weft/weft.toml");
    let checked = Command::new(&program).args(["config", "check", "--config"]).arg(&settings).output();
    if !checked.map_err(|e| e.to_string())?.status.success() {
        faults.push("the configuration it ships has a mistake".to_owned());
    }
    Ok(faults)
}

/// What is wrong with the files of a package, as `dpkg-deb --contents` lists them.
fn listing_faults(contents: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let rows: Vec<(&str, &str, &str)> = contents.lines().filter_map(row).collect();
    for (mode, owner, path) in &rows {
        if *owner != "root/root" {
            faults.push(format!("{path} belongs to {owner}"));
        }
        let wanted = match *path {
            path if path.ends_with('/') => "drwxr-xr-x",
            "./usr/bin/weft" => "-rwxr-xr-x",
            path if LINKS.iter().any(|(link, _)| path.strip_prefix("./") == Some(link)) => "lrwxrwxrwx",
            _ => "-rw-r--r--",
        };
        if *mode != wanted {
            faults.push(format!("{path} has the mode {mode}, not {wanted}"));
        }
        if path.contains("/man/")
            && !path.ends_with('/')
            && ![".1.gz", ".8.gz"].iter().any(|end| path.ends_with(end))
        {
            faults.push(format!("{path} is no compressed page"));
        }
    }
    let has = |wanted: &str| rows.iter().any(|(_, _, path)| path.strip_prefix("./") == Some(wanted));
    let files = FILES.iter().map(|(_, to, _)| *to).chain(COMPLETIONS.iter().map(|(_, to)| *to));
    let files = files.chain(LINKS.iter().map(|(link, _)| *link));
    let pages = ["usr/share/man/man1/weft.1.gz", "usr/share/man/man8/mount.weft.8.gz"];
    let made = ["usr/bin/weft", "etc/weft/weft.toml", CHANGELOG].into_iter().chain(pages);
    for wanted in files.chain(made) {
        if !has(wanted) {
            faults.push(format!("{wanted} is not in it"));
        }
    }
    faults
}

/// Returns mode, owner and path of a line of a listing.
fn row(line: &str) -> Option<(&str, &str, &str)> {
    let mut words = line.split_whitespace();
    Some((words.next()?, words.next()?, words.nth(3)?))
}

fn version(root: &Path) -> Result<String, String> {
    let text = fs::read_to_string(root.join("Cargo.toml")).map_err(|e| e.to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix("version = \""));
    Ok(line.ok_or("the workspace has no version")?.trim_end_matches('"').to_owned())
}

fn architecture() -> Result<String, String> {
    Ok(output(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned())
}

fn put(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    let bytes = fs::read(from).map_err(|e| format!("cannot read {}: {e}", from.display()))?;
    write(to, &bytes, mode)
}

fn write(to: &Path, bytes: &[u8], mode: u32) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("cannot write {}: {e}", to.display());
    directory(to.parent().unwrap_or(to))?;
    fs::write(to, bytes).map_err(failed)?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).map_err(failed)
}

/// Makes a directory of the package, and those above it.
fn directory(dir: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("cannot make {}: {e}", dir.display());
    fs::create_dir_all(dir).map_err(failed)?;
    let mut made = dir.to_owned();
    // Whatever the umask was.
    while made.file_name().is_some_and(|name| name != "tree") {
        fs::set_permissions(&made, fs::Permissions::from_mode(0o755)).map_err(failed)?;
        made.pop();
    }
    fs::set_permissions(&made, fs::Permissions::from_mode(0o755)).map_err(failed)
}

/// Compresses a file, as manuals and lists of changes are kept, without its name and time in it.
fn compress(path: &Path) -> Result<(), String> {
    run(Command::new("gzip").args(["-9", "-n"]).arg(path))
}

fn listed(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(dir).map_err(|e| format!("cannot list {}: {e}", dir.display()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    Ok(paths)
}

fn run(command: &mut Command) -> Result<(), String> {
    output(command).map(drop)
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("cannot run {command:?}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_the_files_of_a_package_is_found() {
        let good = "drwxr-xr-x root/root         0 2026-11-23 07:00 ./usr/bin/\n\
                    -rwxr-xr-x root/root       100 2026-11-23 07:00 ./usr/bin/weft\n";
        let wrong_files = |listing: &str| {
            listing_faults(listing)
                .into_iter()
                .filter(|fault| !fault.ends_with("is not in it"))
                .collect::<Vec<_>>()
        };
        assert_eq!(wrong_files(good), Vec::<String>::new());
        for (from, to, fault) in [
            ("-rwxr-xr-x", "-rwxrwxr-x", "./usr/bin/weft has the mode -rwxrwxr-x, not -rwxr-xr-x"),
            (
                "./usr/bin/weft",
                "./usr/sbin/mount.weft",
                "./usr/sbin/mount.weft has the mode -rwxr-xr-x, not lrwxrwxrwx",
            ),
            ("drwxr-xr-x root/root", "drwxr-xr-x me/me", "./usr/bin/ belongs to me/me"),
            (
                "./usr/bin/weft",
                "./usr/share/man/man1/weft.1",
                "./usr/share/man/man1/weft.1 is no compressed page",
            ),
        ] {
            let found = wrong_files(&good.replace(from, to));
            assert!(found.iter().any(|found| found == fault), "{found:?}");
        }
        assert!(listing_faults(good).contains(&"etc/weft/weft.toml is not in it".to_owned()));
    }

    #[test]
    fn the_c_library_is_the_newest_that_any_symbol_asks_for() {
        assert_eq!(glibc("a GLIBC_2.4 x\nb (GLIBC_2.34) y\nc GLIBC_2.17"), "2.34");
        assert_eq!(glibc("none"), "2.36");
    }

    #[test]
    fn changes_are_listed_as_debian_has_them_in_lines_that_are_not_too_long() {
        let titles = ["Added: a word".to_owned(), format!("Fixed: {}", "longer ".repeat(20))];
        let text = changelog("1.2", &titles, "A <a@b>", "Mon, 02 Nov 2026 08:00:00 +0000");
        assert!(
            text.starts_with("weft (1.2) unstable; urgency=medium\n\n  * Added: a word\n  * Fixed: longer ")
        );
        assert!(text.ends_with(" longer\n\n -- A <a@b>  Mon, 02 Nov 2026 08:00:00 +0000\n"), "{text}");
        assert!(text.lines().all(|line| line.len() <= CHANGELOG_WIDTH), "{text}");
        assert_eq!(text.matches("longer").count(), 20);
    }

    #[test]
    fn a_template_is_filled_in_everywhere() {
        let text = filled("@VERSION@ @ARCHITECTURE@ @SIZE@ @GLIBC@ @VERSION@", "1", "amd64", "7", "2.36");
        assert_eq!(text, "1 amd64 7 2.36 1");
    }
}
