//! `weft cp`: what goes where, and how much at a time. The copying is the client's.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use clap::Args;
use futures_util::stream::{FuturesUnordered, StreamExt};
use weft_client::Client;
use weft_client::copy::{From, How, Outcome, Progress, download, upload};
use weft_client::tree::Walk;
use weft_core::attr::{Kind, SetAttr};
use weft_core::form::{At, LinkTarget, New, Want};
use weft_core::{Error, ErrorKind, FileId, Name, RelPath, Result};
use weft_sys::fault;

use crate::context::Context;
use crate::output::{note, out};
use crate::paths::Side;
use crate::{paths, progress, show};

mod standard;
mod within;

/// Files copied at the same time: enough to share flushes, few enough for one disk.
const AT_ONCE: usize = 8;

/// Options of `weft cp`. Paths of the tree are written `weft:/a/b`, all others are of
/// this machine, `-` is standard input or output.
#[derive(Args)]
pub struct CpArgs {
    /// What to copy, then where to
    #[arg(required = true, num_args = 2.., allow_hyphen_values = true)]
    paths: Vec<OsString>,
    /// Copy directories and what is in them
    #[arg(short, long)]
    recursive: bool,
    /// Copy even what has the same size and modification time on both sides
    #[arg(long)]
    force: bool,
    /// Only say what would be copied
    #[arg(long)]
    dry_run: bool,
}

pub fn run(context: &Context, args: &CpArgs) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        let (target, sources) = args.paths.split_last().expect("at least two paths are required");
        let several = sources.len() > 1;
        for source in sources {
            let job = Job { context, client: &client, args, several };
            let done = match (Side::parse(source)?, Side::parse(target)?) {
                (Side::Local(from), Side::Tree(to)) => job.upload(&from, to).await,
                (Side::Tree(from), Side::Local(to)) => job.download(from, &to).await,
                (Side::Standard, Side::Tree(to)) => standard::from_input(&job, to).await,
                (Side::Tree(from), Side::Tree(to)) => within::copy(&job, from, to).await,
                (Side::Tree(_), Side::Standard) => {
                    Err(Error::invalid("use `weft cat` to write to standard output"))
                }
                _ => Err(Error::invalid("one side must be in the tree")
                    .hint("write paths of the tree as weft:/a/b")),
            };
            done.map_err(|e| e.op("copy").about(source.to_string_lossy()))?;
        }
        Ok(())
    })
}

/// One source and what was asked of it.
struct Job<'a> {
    context: &'a Context,
    client: &'a Client,
    args: &'a CpArgs,
    several: bool,
}

/// One file to copy into the tree.
struct Up {
    from: PathBuf,
    dir: FileId,
    name: Name,
    bytes: u64,
}

/// One file to copy out of the tree.
struct Down {
    from: FileId,
    shown: String,
    to: PathBuf,
    bytes: u64,
}

impl Job<'_> {
    fn how(&self) -> How {
        How { force: self.args.force }
    }

    fn refuse_directory(&self) -> Result<()> {
        if self.args.recursive {
            return Ok(());
        }
        Err(Error::new(ErrorKind::IsDirectory, "it is a directory").hint("weft cp -r copies directories"))
    }

    async fn upload(&self, from: &Path, to: RelPath) -> Result<()> {
        let metadata = std::fs::metadata(from).map_err(|e| fault::error(e, "read", from.display()))?;
        let (parent, name) = self.target(&to, from.file_name().map(OsStrExt::as_bytes)).await?;
        if !metadata.is_dir() {
            let file = Up { from: from.into(), dir: parent, name, bytes: metadata.len() };
            return self.upload_all(vec![file]).await;
        }
        self.refuse_directory()?;
        let found = progress::counting(self.context, "found", self.args.dry_run);
        let mut files = Vec::new();
        let mut waiting = vec![(from.to_path_buf(), parent, name)];
        while let Some((path, parent, name)) = waiting.pop() {
            let dir = self.make_directory(parent, &name, &path).await?;
            for entry in sorted(&path)? {
                let (path, name) =
                    (entry.path(), Name::new(Bytes::copy_from_slice(entry.file_name().as_bytes()))?);
                let unreadable = |e| fault::error(e, "read", path.display());
                let kind = entry.file_type().map_err(unreadable)?;
                found.add(1);
                if kind.is_dir() {
                    waiting.push((path, dir, name));
                } else if kind.is_symlink() {
                    self.make_link(dir, name, &path).await?;
                } else if kind.is_file() {
                    let bytes = entry.metadata().map_err(unreadable)?.len();
                    files.push(Up { from: path, dir, name, bytes });
                } else {
                    found
                        .beside(|| note!("passed over {}: neither file, directory nor link", path.display()));
                }
            }
        }
        drop(found);
        self.upload_all(files).await
    }

    /// Returns the directory and name that a source goes to: a target that is a
    /// directory takes it under its own name.
    async fn target(&self, to: &RelPath, own_name: Option<&[u8]>) -> Result<(FileId, Name)> {
        let (fs, call) = (self.client.fs(), self.client.call());
        let at = At::root(to.clone()).following();
        match fs.walk(&call, &at, Want::default()).await {
            Ok(walked) if walked.attr.kind == Kind::Directory => {
                let name = own_name.ok_or_else(|| Error::invalid("the source has no name of its own"))?;
                Ok((walked.attr.id, Name::new(Bytes::copy_from_slice(name))?))
            }
            Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
            _ if self.several => {
                Err(Error::new(ErrorKind::NotDirectory, "several things can only be copied into a directory"))
            }
            _ => {
                let (parent, name) = to.split_last().ok_or_else(|| Error::invalid("the root has no name"))?;
                let walked = fs.walk(&call, &At::root(parent).following(), Want::default()).await?;
                Ok((walked.attr.id, name))
            }
        }
    }

    async fn make_directory(&self, parent: FileId, name: &Name, from: &Path) -> Result<FileId> {
        let (fs, at) = (self.client.fs(), At::name(parent, name.clone()));
        if self.args.dry_run {
            out!("{}/", from.display())?;
            return Ok(parent);
        }
        match fs.make(&self.client.call(), &at, New::Directory, &SetAttr::default()).await {
            Ok(made) => Ok(made.value.id),
            Err(e) if e.kind() == ErrorKind::Exists => {
                Ok(fs.walk(&self.client.call(), &at, Want::default()).await?.attr.id)
            }
            Err(e) => Err(e.said_of(from.display())),
        }
    }

    async fn make_link(&self, dir: FileId, name: Name, from: &Path) -> Result<()> {
        let target = std::fs::read_link(from).map_err(|e| fault::error(e, "read", from.display()))?;
        if self.args.dry_run {
            out!("{}", from.display())?;
            return Ok(());
        }
        let new = New::Symlink(Bytes::copy_from_slice(target.as_os_str().as_bytes()));
        match self.client.fs().make(&self.client.call(), &At::name(dir, name), new, &SetAttr::default()).await
        {
            Err(e) if e.kind() == ErrorKind::Exists => Ok(()),
            outcome => outcome.map(drop).map_err(|e| e.said_of(from.display())),
        }
    }

    async fn upload_all(&self, files: Vec<Up>) -> Result<()> {
        let total = files.iter().map(|f| f.bytes).sum();
        if self.args.dry_run {
            return files.iter().try_for_each(|file| out!("{}", file.from.display()));
        }
        let shared = Arc::new(Progress::default());
        let copies = files.into_iter().map(|file| {
            let shared = shared.clone();
            async move {
                let done = upload(self.client, &file.from, file.dir, &file.name, self.how(), &shared).await;
                done.map_err(|e| e.said_of(file.from.display()))
            }
        });
        let tally = progress::watch(self.context, shared.clone(), total, all(copies)).await?;
        tally.say(total);
        Ok(())
    }

    async fn download(&self, from: RelPath, to: &Path) -> Result<()> {
        let at = At::root(from.clone()).following();
        let attr = self.client.fs().walk(&self.client.call(), &at, Want::default()).await?.attr;
        let into = if to.is_dir() {
            let (_, name) =
                from.split_last().ok_or_else(|| Error::invalid("the root has no name; name the target"))?;
            to.join(std::ffi::OsStr::from_bytes(name.as_bytes()))
        } else if self.several {
            return Err(Error::new(
                ErrorKind::NotDirectory,
                "several things can only be copied into a directory",
            ));
        } else {
            to.to_path_buf()
        };
        if attr.kind != Kind::Directory {
            let file = Down { from: attr.id, shown: paths::show(&from), to: into, bytes: attr.size };
            return self.download_all(vec![file]).await;
        }
        self.refuse_directory()?;
        let count = progress::counting(self.context, "found", self.args.dry_run);
        let mut walk = Walk::start(self.client, &At::id(attr.id), &paths::show(&from)).await?;
        let mut files = Vec::new();
        while let Some(found) = walk.next().await? {
            count.add(1);
            let local = found
                .path
                .names()
                .fold(into.clone(), |path, name| path.join(std::ffi::OsStr::from_bytes(name.as_bytes())));
            let unwritable = |e| fault::error(e, "write", local.display());
            match found.attr.kind {
                _ if self.args.dry_run => out!("{}", walk.show(&found.path))?,
                Kind::Directory => std::fs::create_dir_all(&local).map_err(unwritable)?,
                Kind::File => {
                    let (from, shown) = (found.attr.id, walk.show(&found.path));
                    files.push(Down { from, shown, to: local, bytes: found.attr.size });
                }
                Kind::Symlink => {
                    let target = self.client.fs().target(&self.client.call(), &At::id(found.attr.id)).await;
                    let target = target.map_err(|e| e.said_of(walk.show(&found.path)))?;
                    if let (LinkTarget::Symlink(target), false) = (target, local.is_symlink()) {
                        std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(&target), &local)
                            .map_err(unwritable)?;
                    }
                }
                Kind::Fifo | Kind::Reference => {
                    let shown = walk.show(&found.path);
                    count.beside(|| note!("passed over {shown}: neither file, directory nor link"));
                }
            }
        }
        drop(count);
        self.download_all(files).await?;
        walk.whole()
    }

    async fn download_all(&self, files: Vec<Down>) -> Result<()> {
        if self.args.dry_run {
            return Ok(());
        }
        let total = files.iter().map(|f| f.bytes).sum();
        let shared = Arc::new(Progress::default());
        let copies = files.into_iter().map(|file| {
            let shared = shared.clone();
            async move {
                let from = From { at: &At::id(file.from), shown: &file.shown };
                let done = download(self.client, from, &file.to, self.how(), &shared).await;
                done.map_err(|e| e.about(file.to.display()))
            }
        });
        let tally = progress::watch(self.context, shared.clone(), total, all(copies)).await?;
        tally.say(total);
        Ok(())
    }
}

fn sorted(dir: &Path) -> Result<Vec<std::fs::DirEntry>> {
    let unreadable = |e| fault::error(e, "read", dir.display());
    let mut entries = std::fs::read_dir(dir)
        .map_err(unreadable)?
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(unreadable)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    Ok(entries)
}

/// What several copies came to.
#[derive(Default)]
struct Tally {
    copied: u64,
    unchanged: u64,
    resumed: u64,
}

impl Tally {
    fn say(&self, total: u64) {
        let mut text = format!("copied {} files, {}", self.copied, show::size(total));
        if self.unchanged > 0 {
            text.push_str(&format!("; {} were there already", self.unchanged));
        }
        if self.resumed > 0 {
            text.push_str(&format!("; {} did not have to be sent again", show::size(self.resumed)));
        }
        note!("{text}");
    }
}

/// Runs copies, a few at a time. After the first failure no more are begun, but those
/// under way end: what they have done is not lost.
async fn all(copies: impl Iterator<Item = impl Future<Output = Result<Outcome>>>) -> Result<Tally> {
    let (mut copies, mut running) = (copies.fuse(), FuturesUnordered::new());
    let (mut tally, mut failed) = (Tally::default(), None);
    loop {
        while failed.is_none() && running.len() < AT_ONCE {
            match copies.next() {
                Some(copy) => running.push(copy),
                None => break,
            }
        }
        match running.next().await {
            None => return failed.map_or(Ok(tally), Err),
            Some(Ok(Outcome::Copied { resumed })) => {
                tally.copied += 1;
                tally.resumed += resumed;
            }
            Some(Ok(Outcome::Unchanged)) => tally.unchanged += 1,
            Some(Err(error)) => failed = failed.or(Some(error)),
        }
    }
}
