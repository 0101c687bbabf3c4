//! The repository as paths and bytes: what every rule reads.

use std::path::Path;
use std::process::Command;

/// One file git knows or would add.
#[derive(Clone, Debug)]
pub struct File {
    /// Its path from the root, with `/`.
    pub path: String,
    /// Its bytes; for a symbolic link, its target.
    pub bytes: Vec<u8>,
    /// Whether it is a symbolic link.
    pub symlink: bool,
}

impl File {
    /// Returns the contents of a text file; `None` for a link or binary bytes.
    pub fn text(&self) -> Option<&str> {
        match self.symlink || self.bytes.contains(&0) {
            true => None,
            false => std::str::from_utf8(&self.bytes).ok(),
        }
    }

    /// Returns what follows the last dot of the name.
    pub fn extension(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.').map_or("", |(_, extension)| extension)
    }
}

/// The files of a repository, sorted by path, and what cargo says of its packages.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    files: Vec<File>,
    /// The answer of `cargo metadata --no-deps`.
    pub metadata: serde_json::Value,
    /// `xtask/ratchet.txt` as it stands in the last commit and the one before it.
    pub ratchet_before: Vec<String>,
}

impl Tree {
    /// Reads the work tree at `root`.
    pub fn load(root: &Path) -> Result<Self, String> {
        let listed = output(root, "git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
        let mut tree = Self::default();
        for path in String::from_utf8_lossy(&listed).split('\0').filter(|path| !path.is_empty()) {
            tree.files.extend(read(root, path)?);
        }
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        tree.files.dedup_by(|a, b| a.path == b.path);
        let cargo = ["metadata", "--no-deps", "--format-version", "1", "--offline"];
        tree.metadata = serde_json::from_slice(&output(root, env!("CARGO"), &cargo)?)
            .map_err(|e| format!("cannot read cargo's metadata: {e}"))?;
        for commit in ["HEAD", "HEAD^"] {
            let old = output(root, "git", &["show", &format!("{commit}:{}", crate::tidy::RATCHET)]);
            tree.ratchet_before.extend(old.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()));
        }
        Ok(tree)
    }

    /// Makes a tree of the given texts, for tests.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| File {
            path: (*path).to_owned(),
            bytes: text.as_bytes().to_vec(),
            symlink: false,
        };
        Self { files: files.iter().map(file).collect(), ..Self::default() }
    }

    /// Returns every file.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// Returns the file at `path`.
    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Returns the contents of the text file at `path`.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.file(path).and_then(File::text)
    }

    /// Returns the Rust sources and their texts.
    pub fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        let rust = self.files.iter().filter(|file| file.extension() == "rs");
        rust.filter_map(|file| Some((file.path.as_str(), file.text()?)))
    }

    /// Returns the manifests of the workspace's members and their texts.
    pub fn manifests(&self) -> impl Iterator<Item = (&str, &str)> {
        let manifests = self.files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
        manifests.filter_map(|file| Some((file.path.as_str(), file.text()?)))
    }
}

/// Reads one listed file; `None` if it was deleted but not yet from git's index.
fn read(root: &Path, path: &str) -> Result<Option<File>, String> {
    let place = root.join(path);
    let Ok(kind) = std::fs::symlink_metadata(&place) else { return Ok(None) };
    let symlink = kind.is_symlink();
    let bytes = match symlink {
        true => std::fs::read_link(&place).map(|target| target.to_string_lossy().into_owned().into_bytes()),
        false => std::fs::read(&place),
    };
    let bytes = bytes.map_err(|e| format!("cannot read {path}: {e}"))?;
    Ok(Some(File { path: path.to_owned(), bytes, symlink }))
}

fn output(root: &Path, program: &str, words: &[&str]) -> Result<Vec<u8>, String> {
    let done = Command::new(program).current_dir(root).args(words).output();
    let done = done.map_err(|e| format!("cannot run {program}: {e}"))?;
    match done.status.success() {
        true => Ok(done.stdout),
        false => Err(format!("{program} {words:?}: {}", String::from_utf8_lossy(&done.stderr).trim())),
    }
}
