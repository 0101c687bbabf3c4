//! Telling the kernel what others changed, and dropping what it may no longer show.
//!
//! The kernel believes names and attributes for long and keeps pages until it is told,
//! so that a mount is as quick as a local file system; in exchange this task follows the
//! volume's change feed and tells it. What is told of:
//!
//! ```text
//!   change by another session ─▶ that name, its directory's listing, that node, its pages; later what was shown already
//!                                ([`crate::telling`])
//!   change by this one        ─▶ the note of its directory's listing: the kernel knows what was made, but where it failed to
//!                                the program
//!   a directory may have moved ─▶ listings, attributes, pages of open files that may not be read any more: below it other rights
//!                                may hold, and above it another may be the first that may not be passed
//!   a file moved elsewhere    ─▶ its pages, where it is open and may not be read there
//!   a directory's own rights  ─▶ its name and with it those below, if it may not be passed any more
//!   policy                    ─▶ everything: rights are checked anew on next use; names, as above
//!   number rose, nothing seen ─▶ attributes, listings; pages of open files that may not be read any more; names of the topmost
//!                                directory of each container, if it may not be passed any more
//!   a read or write refused   ─▶ the container's nodes and pages (mappings fault, then fail)
//!   feed lost                 ─▶ everything
//!   each 20 s                 ─▶ listings of open directories: who begins one anew is shown nothing older, whatever was not told
//!                                of; pages of open files that may not be read any more: a right ends by the clock, and with
//!                                a group, and nobody tells of either
//! ```
//!
//! Its calls also keep the session alive.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use weft_core::form::{Change, ChangeKind, ChangeSeq, Changes};
use weft_core::{ContainerId, ErrorKind, FileId, Name, limits};

use crate::abi::opcode;
use crate::abi::request::Header;
use crate::door::Door;
use crate::remembered::Head;
use crate::telling::Again;

/// A position that surely lies ahead: it is answered with the present one.
const AHEAD: ChangeSeq = ChangeSeq(u64::MAX >> 1);

impl Door {
    /// Notes that a request was refused for want of a right, so that what the kernel
    /// keeps does not go on showing what the caller may not see.
    pub(crate) fn note_refusal(&self, header: &Header, kind: ErrorKind) {
        let container = match kind {
            ErrorKind::Revoked | ErrorKind::Expired | ErrorKind::Unauthenticated => None,
            // It may not even be known any more.
            ErrorKind::Denied | ErrorKind::NotFound
                if matches!(header.opcode, opcode::READ | opcode::WRITE | opcode::FSYNC) =>
            {
                match self.mounted.nodes.container(header.node) {
                    Some(container) => Some(container),
                    None => return,
                }
            }
            _ => return,
        };
        // A full queue means that dropping is under way already.
        let _ = self.refused.try_send(container);
    }
}

impl Door {
    /// Returns the nodes of one container, or of all, of which the kernel may keep something for this door's user. In a
    /// shared mount that is only what they have open and may have mapped.
    fn kept(&self, container: Option<ContainerId>) -> Vec<u64> {
        let nodes = &self.mounted.nodes;
        if !self.mounted.is_shared {
            return nodes.all(container);
        }
        let open = self.handles.each_node().into_iter().map(|(node, ..)| node);
        open.filter(|node| container.is_none() || nodes.container(*node) == container).collect()
    }

    /// Has the kernel drop what it keeps of the listings of open directories: in a shared mount it keeps none.
    fn drop_open_listings(&self) {
        if !self.mounted.is_shared {
            let open = self.mounted.nodes.open_directories();
            open.iter().for_each(|node| self.mounted.drop_kept(*node, true));
        }
    }

    /// Has what a change may have made old of listings be asked for by who opens those directories from now on.
    fn note_old_listings(&self, change: &Change) {
        let nodes = &self.mounted.nodes;
        let directories = change.names().map(|(directory, _)| *directory);
        directories.chain([change.file]).filter_map(|file| nodes.node(file)).for_each(|node| {
            nodes.listing_is_old(node);
        });
    }

    /// Returns whether other rights may hold below a directory by a change: it came to another one (that it changed places with what
    /// the change names is not told), or the root did, whose names are not seen.
    fn may_have_moved(&self, change: &Change) -> bool {
        moves(change) || change.kind == ChangeKind::Attr && change.file == self.mounted.root
    }

    /// Bounds by what nobody tells of how old a listing is that is begun anew where its directory stays open, and for how long
    /// bytes of an open file are shown that may not be read any more.
    async fn sweep(self: &Arc<Self>) {
        loop {
            tokio::time::sleep(limits::MOUNT_LISTING_KEPT).await;
            self.tell_kernel(Self::drop_open_listings).await;
            self.end_unseen(|_| true, self.mounted.patience).await;
        }
    }
}

/// Returns whether something came to another directory by a change.
fn moves(change: &Change) -> bool {
    let directory = |place: &Option<(FileId, Name)>| place.as_ref().map(|(directory, _)| *directory);
    change.kind == ChangeKind::Rename && directory(&change.place) != directory(&change.to)
}

/// Follows a mount until it ends.
pub(crate) struct Watcher {
    door: Arc<Door>,
    refused: mpsc::Receiver<Option<ContainerId>>,
    ended: watch::Receiver<bool>,
    since: ChangeSeq,
    due: Due,
    again: Again,
    /// When something large may be dropped again.
    drop_from: Instant,
    /// When the feed may be asked again.
    ask_from: Instant,
}

/// What is to be dropped, as soon as the last time is long enough ago: a program that
/// goes on trying what is refused must not cost everybody's cache each time.
#[derive(Default)]
struct Due {
    /// All attributes, and whatever of open files may not be seen any more.
    look: bool,
    /// Whatever of open files may not be seen any more, of all of them and of some, by their nodes.
    open: bool,
    files: HashSet<u64>,
    /// One container's nodes, or all.
    drop: Option<Option<ContainerId>>,
}

impl Due {
    fn is_any(&self) -> bool {
        self.look || self.open || self.drop.is_some() || !self.files.is_empty()
    }

    /// Notes what a change makes doubtful of what the kernel knows.
    fn note(&mut self, change: &Change, door: &Door) {
        let (nodes, is_own) = (&door.mounted.nodes, change.session == door.who().1);
        let node = nodes.node(change.file);
        match (change.kind, node) {
            // Of which container it is, is not known where the kernel does not know what it was set at.
            (ChangeKind::Policy, node) => {
                door.doubt_passing(nodes.came_to(node.and_then(|node| nodes.container(node))));
            }
            (ChangeKind::Rename, Some(node)) if moves(change) && nodes.may_be_directory(node) => {
                self.open = true;
                // What this mount itself moved, it knows where it is.
                self.look |= !is_own;
                door.doubt_passing([node]);
            }
            (ChangeKind::Rename, Some(node)) if moves(change) => drop(self.files.insert(node)),
            // What this mount changes it doubts where it matters.
            (ChangeKind::Attr, Some(node)) if !is_own && nodes.may_be_directory(node) => {
                door.doubt_passing([node]);
            }
            _ => {}
        }
    }

    fn add(&mut self, container: Option<ContainerId>) {
        self.drop = match self.drop {
            Some(other) if other != container => Some(None),
            _ => Some(container),
        };
    }
}

impl Watcher {
    pub(crate) fn new(
        door: Arc<Door>,
        refused: mpsc::Receiver<Option<ContainerId>>,
        ended: watch::Receiver<bool>,
    ) -> Self {
        let now = Instant::now();
        // Up to where the process before this one has told.
        let since = door.remembered().head(Head::Feed).checked_sub(1).map_or(AHEAD, ChangeSeq);
        let (due, again) = (Due::default(), Again::default());
        Self { door, refused, ended, since, due, again, drop_from: now, ask_from: now }
    }

    pub(crate) async fn run(mut self) {
        let (mut ended, door) = (self.ended.clone(), self.door.clone());
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => {}
            () = self.follow() => {}
            () = door.sweep() => {}
        }
    }

    async fn follow(&mut self) {
        let mut asked = None;
        loop {
            self.again.add(self.door.mounted.nodes.take_unheard_of(), Instant::now());
            let again = self.again.from();
            // Whatever else is done meanwhile, the answer is waited for still: on a long line it may always be.
            let answer = asked.get_or_insert_with(|| Box::pin(self.ask()));
            tokio::select! {
                biased;
                () = sleep_until(self.drop_from), if self.due.is_any() => self.pay().await,
                () = sleep_until(again.unwrap_or(self.ask_from)), if again.is_some() => self.again.tell(&self.door).await,
                Some(container) = self.refused.recv() => self.due.add(container),
                answer = answer => {
                    asked = None;
                    match answer {
                        Ok(page) => self.take_in(page).await,
                        Err(error) => self.lost(error.kind()).await,
                    }
                }
            }
        }
    }

    /// Asks what has changed, once that may be asked.
    fn ask(&self) -> impl Future<Output = weft_core::Result<Changes>> + Send + use<> {
        let (door, since, from) = (self.door.clone(), self.since, self.ask_from);
        async move {
            sleep_until(from).await;
            let call = door.call_within(limits::CALL_DEADLINE);
            door.fs.watch(&call, &door.root(), since).await
        }
    }

    async fn take_in(&mut self, page: Changes) {
        let (since, next) = (self.since, page.next);
        self.since = next;
        if since == AHEAD {
            // Before any of them counts again.
            self.door.mounted.nodes.listings_are_old();
        }
        self.door.watching.store(true, Ordering::Relaxed);
        if since == AHEAD {
            // What changed before the feed's place was known was not told.
            self.door.doubt_passing(self.door.mounted.nodes.tops());
            self.drop_nodes(None).await;
            return self.told_up_to(next);
        }
        if since == next {
            return;
        }
        // First, and for nobody to wait: what follows waits for the kernel.
        page.changes.iter().for_each(|change| self.door.note_old_listings(change));
        let moved = page.changes.iter().any(|change| self.door.may_have_moved(change));
        let unseen = next.0.saturating_sub(since.0) > page.changes.len() as u64;
        self.due.look |= unseen;
        page.changes.iter().for_each(|change| self.due.note(change, &self.door));
        if moved || unseen {
            self.door.mounted.nodes.listings_are_old();
        }
        if moved {
            self.door.tell_kernel(Door::drop_open_listings).await;
        }
        let session = self.door.call().session;
        if page.changes.iter().any(|change| change.kind == ChangeKind::Policy) {
            self.drop_nodes(None).await;
        }
        // Names too: to drop a node leaves the names that lead to it.
        self.tell(page.changes.into_iter().filter(|change| change.session != session).collect()).await;
        self.ask_from = Instant::now() + limits::MOUNT_WATCH_REST;
        self.told_up_to(next);
    }

    /// Notes that the kernel knows what there was to tell.
    fn told_up_to(&self, next: ChangeSeq) {
        self.door.remembered().set(Head::Feed, next.0.saturating_add(1));
    }

    /// The feed broke: nothing that is kept is certain until it is found again, and
    /// what is kept then is dropped once more.
    async fn lost(&mut self, kind: ErrorKind) {
        let was = self.door.watching.swap(false, Ordering::Relaxed);
        self.door.mounted.fresh.drop_all();
        self.since = AHEAD;
        self.door.remembered().set(Head::Feed, 0);
        if was || matches!(kind, ErrorKind::Revoked | ErrorKind::Expired | ErrorKind::Unauthenticated) {
            self.drop_nodes(None).await;
        }
        let unable = kind == ErrorKind::Unsupported;
        let rest = if unable { limits::CALL_DEADLINE } else { limits::MOUNT_DROP_REST };
        self.ask_from = Instant::now() + rest;
    }

    /// Drops what is due.
    async fn pay(&mut self) {
        let due = std::mem::take(&mut self.due);
        self.drop_from = Instant::now() + limits::MOUNT_DROP_REST;
        if due.look {
            self.door.doubt_passing(self.door.mounted.nodes.tops());
            self.drop_attributes().await;
        }
        if due.look || due.open || !due.files.is_empty() {
            let all = due.look || due.open;
            // What is not answered soon the next sweep looks at: the feed is not followed meanwhile.
            self.door.end_unseen(|node| all || due.files.contains(&node), limits::MOUNT_ANSWERS_WITHIN).await;
        }
        if let Some(container) = due.drop {
            self.drop_nodes(container).await;
        }
    }

    /// Tells the kernel of changes.
    async fn tell(&mut self, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        self.door.mounted.fresh.changed_elsewhere(&changes);
        if self.door.mounted.is_shared {
            let tell = move |door: &Door| changes.iter().for_each(|change| tell_of_shared(door, change));
            return self.door.tell_kernel(tell).await;
        }
        self.again.tell_others(&self.door, changes).await;
    }

    /// Something changed that may not be seen from here; perhaps the right to see.
    async fn drop_attributes(&self) {
        self.door.mounted.fresh.drop_all();
        let drop = move |door: &Door| {
            let kept = if door.mounted.is_shared { Vec::new() } else { door.mounted.nodes.all(None) };
            kept.iter().for_each(|node| door.mounted.expire_node(*node, None));
            door.drop_open_listings();
        };
        self.door.tell_kernel(drop).await;
    }

    /// Has the kernel drop all it keeps of one container, or of all: for this door's user.
    async fn drop_nodes(&self, container: Option<ContainerId>) {
        self.door.mounted.fresh.drop_all();
        self.door.mounted.nodes.listings_are_old();
        let drop = move |door: &Door| {
            door.kept(container).iter().for_each(|node| door.mounted.drop_kept(*node, true));
        };
        self.door.tell_kernel(drop).await;
    }
}

/// Tells the kernel of a shared mount, which keeps no names and no attributes. To drop a name would take it from
/// under whoever works below it.
fn tell_of_shared(door: &Door, change: &Change) {
    if matches!(change.kind, ChangeKind::Write | ChangeKind::Policy)
        && let Some(node) = door.mounted.nodes.node(change.file)
        && door.handles.of_node(node).is_some()
    {
        door.mounted.drop_kept(node, true);
    }
}
