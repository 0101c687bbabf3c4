//! Where our mount and its peers stand side by side, and take turns.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::figure::Size;
use crate::node::Node;
use crate::peer::minio;
use crate::peer::mounts::{self, Mounted};
use crate::place::Place;
use crate::report::{Better, Report};
use crate::rounds::in_turn;

/// Rounds of the whole size: a tree of 50 000 files takes minutes for each side.
const ROUNDS_MAX: usize = 5;

/// Files of a tree for who asks a server several times for each.
const FILES_OF_SLOW_MAX: u64 = 500;

/// What a mount is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// libfuse's `passthrough_hp`.
    Passthrough,
    Bindfs,
    Rclone,
    Mergerfs,
    Sshfs,
    /// Of Apache.
    Davfs2,
    /// Of MinIO.
    S3fs,
    /// The directory itself, without a mount.
    Bare,
}

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Self::Passthrough => "passthrough_hp",
            Self::Bindfs => "bindfs",
            Self::Rclone => "rclone",
            Self::Mergerfs => "mergerfs",
            Self::Sshfs => "sshfs",
            Self::Davfs2 => "davfs2",
            Self::S3fs => "s3fs",
            Self::Bare => "bare",
        }
    }

    /// Returns of how many files a tree may be that it is to unpack or walk.
    fn files_max(self) -> u64 {
        match self {
            Self::Passthrough => mounts::files_max(),
            Self::Davfs2 | Self::S3fs => FILES_OF_SLOW_MAX,
            Self::Bindfs | Self::Rclone | Self::Mergerfs | Self::Sshfs | Self::Bare => u64::MAX,
        }
    }

    /// Whether a test takes it along. libfuse's example is not: it takes the network and a compiler's minute to build.
    fn is_in_tests(self) -> bool {
        match self {
            Self::Passthrough => false,
            Self::S3fs => minio::is_here(),
            _ => true,
        }
    }
}

/// Returns who is compared on trees of how many files: those who can on `count`, others on as many as they can.
pub fn by_files(count: u64) -> Vec<(u64, Vec<Peer>)> {
    let mut groups: Vec<(u64, Vec<Peer>)> = Vec::new();
    for peer in all() {
        let files = count.min(peer.files_max());
        match groups.iter_mut().find(|(of, _)| *of == files) {
            Some((_, peers)) => peers.push(peer),
            None => groups.push((files, vec![peer])),
        }
    }
    groups
}

/// What people would take instead.
pub const CHOICES: [Peer; 6] =
    [Peer::Bindfs, Peer::Mergerfs, Peer::Rclone, Peer::Sshfs, Peer::Davfs2, Peer::S3fs];

/// Returns all that files are made and walked beside: what FUSE can do, the choices, the directory itself.
pub fn all() -> Vec<Peer> {
    [&[Peer::Passthrough][..], &CHOICES, &[Peer::Bare]].concat()
}

/// A directory to work in.
enum Side {
    Mounted(Mounted),
    Bare(PathBuf),
}

impl Side {
    fn at(&self) -> &Path {
        match self {
            Self::Mounted(mounted) => mounted.at(),
            Self::Bare(directory) => directory,
        }
    }
}

/// A node with a mount, and where peers work.
pub struct Scene {
    pub ours: Mounted,
    pub node: Node,
    pub place: Place,
    round: Cell<u32>,
}

impl Scene {
    pub fn new() -> Result<Self> {
        let place = Place::new()?;
        let node = Node::start(place.path())?;
        let ours = mounts::weft(node.folder(), place.path().join("weft"))?;
        Ok(Self { ours, node, place, round: Cell::new(0) })
    }

    fn peer(&self, peer: Peer) -> Result<Side> {
        let shown = self.place.folder(&format!("below-{}", peer.name()))?;
        let at = self.place.path().join(peer.name());
        Ok(Side::Mounted(match peer {
            Peer::Passthrough => mounts::passthrough(&shown, at)?,
            Peer::Bindfs => mounts::bindfs(&shown, at)?,
            Peer::Rclone => mounts::rclone(&shown, at, &self.place.folder("rclone-cache")?)?,
            Peer::Mergerfs => mounts::mergerfs(&shown, at)?,
            Peer::Sshfs => mounts::sshfs(&shown, at, self.place.path())?,
            Peer::Davfs2 => mounts::davfs2(&shown, at, self.place.path())?,
            Peer::S3fs => mounts::s3fs(&shown, at, self.place.path())?,
            Peer::Bare => return Ok(Side::Bare(shown)),
        }))
    }

    /// Returns a name that no round has had.
    pub fn fresh(&self) -> String {
        let round = self.round.replace(self.round.get() + 1);
        format!("round-{round}")
    }

    /// Has ours and each peer do the same, in turn. `prepare` is done once on each side. A peer that fails is left out, with
    /// what it said; in the small size, for tests, that is a failure.
    pub fn compare(
        &self,
        report: &mut Report,
        size: Size,
        (name, unit): (&str, &str),
        peers: &[Peer],
        prepare: impl Fn(&Path) -> Result<()>,
        work: impl Fn(&Path) -> Result<f64>,
    ) -> Result<()> {
        prepare(self.ours.at())?;
        let mut sides = Vec::new();
        for peer in peers.iter().filter(|peer| size != Size::Small || peer.is_in_tests()) {
            let figure = format!("{name}.{}", peer.name());
            let side = self.peer(*peer).and_then(|side| prepare(side.at()).map(|()| side));
            let side = unless_it_fails(report, size, &figure, side)?;
            sides.extend(side.map(|side| (*peer, figure, side)));
        }
        // What the one before has left for the disk to do is done: nobody pays for another's.
        let work = |at: &Path| {
            rustix::fs::sync();
            work(at).map_err(|error| format!("at {}: {error}", at.display()).into())
        };
        let turns = sides.iter().map(|(_, _, side)| || work(side.at())).collect();
        let (ours, theirs) = in_turn(size.rounds().min(ROUNDS_MAX), || work(self.ours.at()), turns)?;
        for ((peer, figure, _), theirs) in sides.iter().zip(theirs) {
            if let Some(theirs) = unless_it_fails(report, size, figure, theirs)? {
                report.compare(figure, unit, Better::More, peer.name(), &(ours.clone(), theirs));
            }
        }
        Ok(())
    }
}

/// Returns what a peer came to; none of one that this machine lacks, or that failed where that is no failure, which is said.
fn unless_it_fails<T>(
    report: &mut Report,
    size: Size,
    figure: &str,
    came_to: Result<T>,
) -> Result<Option<T>> {
    match report.peer(figure, came_to) {
        Err(why) if size != Size::Small => {
            report.note(&format!("{figure} not measured: {why}"));
            Ok(None)
        }
        answer => answer,
    }
}
