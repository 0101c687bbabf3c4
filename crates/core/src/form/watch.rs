//! The change feed (request-form law 16).

use serde::{Deserialize, Serialize};

use crate::id::{CallerId, FileId, SessionId};
use crate::name::Name;

/// A position in a volume's feed. Rises; survives restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChangeSeq(pub u64);

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeKind {
    /// An inode was made.
    Make,
    /// An inode got another name.
    Link,
    /// A name moved.
    Rename,
    /// A name went.
    Remove,
    /// Attributes or user attributes changed.
    Attr,
    /// Bytes changed.
    Write,
    /// A container's policy changed.
    Policy,
}

impl ChangeKind {
    /// Returns whether it is names that came, went or moved.
    pub fn is_of_names(self) -> bool {
        matches!(self, Self::Make | Self::Link | Self::Rename | Self::Remove)
    }
}

/// One change, as far as its reader may know of it: what a listing or a lookup would show
/// it there. What it may not know is absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its place in the feed.
    pub seq: ChangeSeq,
    /// What happened.
    pub kind: ChangeKind,
    /// To which inode.
    pub file: FileId,
    /// In which directory and under which name: for a rename, from. None where the reader
    /// may not list the directory.
    pub place: Option<(FileId, Name)>,
    /// For a rename, to; likewise.
    pub to: Option<(FileId, Name)>,
    /// Who did it.
    pub caller: CallerId,
    /// In which session, so that a cache can tell its own changes.
    pub session: SessionId,
}

impl Change {
    /// Returns the names that came, went or moved, each with its directory, as far as its reader may know.
    pub fn names(&self) -> impl Iterator<Item = &(FileId, Name)> {
        [&self.place, &self.to].into_iter().flatten().filter(|_| self.kind.is_of_names())
    }

    /// Returns whether there are more of them than the reader may know.
    pub fn hides_names(&self) -> bool {
        let names = match self.kind {
            ChangeKind::Rename => 2,
            kind => usize::from(kind.is_of_names()),
        };
        self.names().count() < names
    }
}

/// One page of the feed, filtered by the reader's rights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// The changes.
    pub changes: Vec<Change>,
    /// What to ask for next. It rises even if everything was filtered out.
    pub next: ChangeSeq,
}
