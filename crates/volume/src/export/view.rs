//! One call's look at the machine: what is where, and what the caller may do with it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use weft_core::acl::{
    Ask, Because, Circumstance, Decision, Modes, Owned, Settled, Subject, decide, explain, narrow,
};
use weft_core::attr::{Attr, Before, Kind, Wcc};
use weft_core::form::{Call, Guard};
use weft_core::proof::{Granted, Objects};
use weft_core::{CallerId, Error, ErrorKind, FileId, Moment, Name, ObjectId, Result, Rights};
use weft_sys::beneath::{Facts, Held};
use weft_sys::folder::Sort;

use super::Volume;
use super::known::{above, join};
use super::opens::LastName;
use super::policies::{Bound, Policies};
use super::root::Rooted;
use super::user::{self, SEARCH, User};
use crate::granted::Wanted;

/// A call's look at one moment.
pub(super) struct View<'a> {
    pub(super) volume: &'a Arc<Volume>,
    pub(super) root: &'a Rooted,
    pub(super) call: &'a Call,
    /// The user of the machine whose rights limit the share, if any do.
    pub(super) user: Option<User>,
    pub(super) policies: Arc<Policies>,
    /// The count of policy changes just before the policies were taken.
    pub(super) seen: u64,
    pub(super) now: Moment,
    /// Where the one thing is that the caller is confined to, once that was looked for.
    pub(super) confined_to: OnceLock<Option<Vec<u8>>>,
}

/// Something that was found.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) id: FileId,
    pub(super) kind: Kind,
    /// Where it was found, or last had a name.
    pub(super) path: Vec<u8>,
    pub(super) held: Arc<Held>,
    pub(super) facts: Facts,
    /// What governs it.
    pub(super) bound: Arc<Bound>,
    /// Of a file that has no name any more: what of the caller's rights is left by whatever else governs it.
    pub(super) nameless: Option<Rights>,
}

impl Node {
    /// Returns the id under which its bytes are granted.
    pub(super) fn object(&self) -> ObjectId {
        ObjectId::of_file(self.id, 0)
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }

    pub(super) fn is_root(&self) -> bool {
        self.path.is_empty()
    }

    fn left(&self) -> Rights {
        self.nameless.unwrap_or(Rights::ALL)
    }
}

impl<'a> View<'a> {
    pub(super) fn of(volume: &'a Arc<Volume>, root: &'a Rooted, user: Option<User>, call: &'a Call) -> Self {
        let seen = volume.policy_changes.load(Ordering::Acquire);
        let (policies, now) = (volume.policies(), volume.sys.clock().moment());
        Self { volume, root, call, user, seen, policies, now, confined_to: OnceLock::new() }
    }

    /// Finds what is at a path, if the user whose rights limit the share may go there; to them nothing
    /// is where they may not. Whoever looks for policies looks whatever they may.
    pub(super) fn find(&self, path: &[u8]) -> Result<Held> {
        let Some(user) = &self.user else { return self.root.beneath.find(path) };
        let mut here = self.root.beneath.itself()?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            if user::access(user, &here, &here.facts()?) & SEARCH == 0 {
                return Err(hidden());
            }
            here = here.inside(name)?;
        }
        Ok(here)
    }

    /// Returns what was found at a path, which lies in something governed by `above`; nothing for
    /// what a share does not show.
    pub(super) fn node_of(&self, path: Vec<u8>, held: Held, above: &Arc<Bound>) -> Result<Option<Node>> {
        let facts = held.facts()?;
        Ok(self.seen(path, Arc::new(held), facts, above))
    }

    /// Takes in what is known of something that was found.
    pub(super) fn seen(
        &self,
        path: Vec<u8>,
        held: Arc<Held>,
        facts: Facts,
        above: &Arc<Bound>,
    ) -> Option<Node> {
        let kind = shown_kind(facts.sort).filter(|_| !facts.is_mount || path.is_empty())?;
        let id = self.id_at(&path, &facts);
        self.volume.known.see(id, &path, &facts);
        let bound = self.policies.at(&path, Some(id)).unwrap_or(above).clone();
        Some(Node { id, kind, path, held, facts, bound, nameless: None })
    }

    pub(super) fn id_at(&self, path: &[u8], facts: &Facts) -> FileId {
        if path.is_empty() { FileId::root_of(self.volume.id) } else { self.volume.known.id_of(facts) }
    }

    pub(super) fn root_node(&self) -> Result<Node> {
        let node = self.node_of(Vec::new(), self.root.beneath.itself()?, self.policies.root())?;
        node.ok_or_else(|| Error::internal("the share's root is no directory"))
    }

    /// Returns what an id is of. `Stale` if it is not where it was last seen, or that is forgotten.
    pub(super) fn node(&self, id: FileId) -> Result<Node> {
        if id == FileId::root_of(self.volume.id) {
            return self.root_node();
        }
        for path in self.volume.known.paths(id).iter() {
            if let Some(node) = self.node_at(id, path)? {
                return Ok(node);
            }
        }
        let Some(open) = self.volume.opens.held(id) else {
            let found = match self.by_handle(id)? {
                None => self.hinted(id)?,
                found => found,
            };
            return found.ok_or_else(|| stale(id));
        };
        if let Some(node) = self.where_held(id, &open.held)? {
            return Ok(node);
        }
        // Without a name it lives as long as somebody has it open; with one, it has left the share.
        let facts = open.held.facts()?;
        if facts.links > 0 {
            return Err(stale(id));
        }
        let (path, last) = match open.last {
            Some(LastName { path, bound }) => (path, Some(self.policies.now(&bound).clone())),
            // Somebody else has taken that away: where it was seen last, which may be after it was opened.
            None => (self.volume.known.paths(id).first().map_or(open.path, |path| path.to_vec()), None),
        };
        let above = self.governing_above(&path)?;
        let place = self.policies.at(&path, Some(id)).unwrap_or(&above).clone();
        let (bound, left) = self.strictest(place, last);
        Ok(Node { id, kind: Kind::File, path, held: open.held, facts, bound, nameless: Some(left) })
    }

    /// Returns what governs a file that has no name any more. Somebody may mean it by a policy of the place where it was,
    /// and something else may lie there by now: so both that and what governed it at `last` must give a right.
    fn strictest(&self, place: Arc<Bound>, last: Option<Arc<Bound>>) -> (Arc<Bound>, Rights) {
        let Some(last) = last else { return (place, Rights::ALL) };
        let [of_place, of_last] = [&place, &last].map(|bound| self.given_by(bound, Rights::ALL));
        (if of_last.contains(of_place) { place } else { last }, of_place & of_last)
    }

    /// Returns what an id is of that the machine finds by its handle, if it lies in the share.
    fn by_handle(&self, id: FileId) -> Result<Option<Node>> {
        if !self.volume.handles {
            return Ok(None);
        }
        let held = self.root.beneath.by_handle(id.serial(), id.generation())?;
        held.map_or(Ok(None), |held| self.where_held(id, &held))
    }

    /// Returns what an id is of that a credential is confined to, if it lies where that says it was.
    fn hinted(&self, id: FileId) -> Result<Option<Node>> {
        let within = self.call.caller.within().filter(|within| within.root == id);
        let hint = within.and_then(|within| self.below_places(&within.hint));
        hint.map_or(Ok(None), |path| self.node_at(id, &path))
    }

    /// Returns what an id is of, of which somebody holds on to the inode.
    pub(super) fn node_held(&self, id: FileId, held: &Held) -> Result<Node> {
        match self.node(id) {
            Err(error) if error.kind() == ErrorKind::Stale => self.where_held(id, held)?.ok_or(error),
            found => found,
        }
    }

    /// Returns what an id is of if it lies at a path.
    fn node_at(&self, id: FileId, path: &[u8]) -> Result<Option<Node>> {
        let Some(held) = found(self.find(path))? else { return Ok(None) };
        let facts = held.facts()?;
        if self.volume.known.id_of(&facts) != id {
            return Ok(None);
        }
        let above = self.governing_above(path)?;
        Ok(self.seen(path.to_vec(), Arc::new(held), facts, &above))
    }

    /// Returns what an id is of where the machine says that its inode lies now.
    fn where_held(&self, id: FileId, held: &Held) -> Result<Option<Node>> {
        match held.path_below(&self.volume.root.directory) {
            Some(path) => self.node_at(id, &path),
            None => Ok(None),
        }
    }

    /// Returns what governs the directory that a path lies in.
    fn governing_above(&self, path: &[u8]) -> Result<Arc<Bound>> {
        match above(path) {
            Some(dir) => self.governing(dir),
            None => Ok(self.policies.root().clone()),
        }
    }

    /// Returns what governs a directory: the innermost policy on the way there, each place looked at
    /// for an inode that brought its own.
    pub(super) fn governing(&self, path: &[u8]) -> Result<Arc<Bound>> {
        if self.policies.is_one() {
            return Ok(self.policies.root().clone());
        }
        for place in std::iter::successors(Some(path), |path| above(path)) {
            // Only what is not there has no policy of its own: whoever cannot look refuses.
            let facts = found(self.root.beneath.find(place))?.map(|held| held.facts()).transpose()?;
            if let Some(bound) = self.policies.at(place, facts.map(|facts| self.id_at(place, &facts))) {
                return Ok(bound.clone());
            }
        }
        Ok(self.policies.root().clone())
    }

    /// Returns the directory that something lies in; the root is its own.
    pub(super) fn parent(&self, node: &Node) -> Result<Node> {
        let Some(path) = above(&node.path) else { return Ok(node.clone()) };
        self.directory(path)
    }

    /// Returns the directory at a path.
    pub(super) fn directory(&self, path: &[u8]) -> Result<Node> {
        if path.is_empty() {
            return self.root_node();
        }
        let above = self.governing_above(path)?;
        let node = self.node_of(path.to_vec(), self.find(path)?, &above)?;
        node.filter(Node::is_directory).ok_or_else(hidden)
    }

    pub(super) fn attr(&self, node: &Node) -> Attr {
        self.attr_of(node.id, node.kind, &node.facts, &node.bound)
    }

    pub(super) fn attr_of(&self, id: FileId, kind: Kind, facts: &Facts, bound: &Bound) -> Attr {
        let (own, own_group) = match &self.user {
            Some(user) => (Some(user.uid), user.gid()),
            None => (Some(self.volume.own.0), Some(self.volume.own.1)),
        };
        Attr {
            id,
            kind,
            mode: facts.mode,
            links: facts.links,
            owner: self.shown_owner(facts.uid, own, "user"),
            group: self.shown_owner(facts.gid, own_group, "group"),
            size: if kind == Kind::Fifo { 0 } else { facts.size },
            used: facts.used,
            atime: facts.atime,
            mtime: facts.mtime,
            ctime: facts.ctime,
            btime: facts.btime.unwrap_or(facts.ctime),
            version: self.volume.versions.of(id, facts, self.root.stalls),
            change: facts.ctime.nanos() as u64,
            container: bound.container,
        }
    }

    /// What belongs to the user that the share is limited to, or else to the node's own, is shown as of who
    /// shared it; others have no name in Weft.
    fn shown_owner(&self, id: u32, own: Option<u32>, what: &str) -> CallerId {
        if Some(id) == own {
            return self.volume.owner;
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(
            &blake3::hash(format!("{what} {id} of the machine").as_bytes()).as_bytes()[..16],
        );
        CallerId(u128::from_be_bytes(bytes))
    }

    pub(super) fn before(&self, node: &Node) -> Before {
        Before::from(&self.attr(node))
    }

    /// Returns how something is now, with how it was.
    pub(super) fn wcc(&self, node: &Node, before: Option<Before>) -> Wcc {
        let lives = |facts: &Facts| facts.links > 0 || self.volume.opens.held(node.id).is_some();
        let after = node.held.facts().ok().filter(lives);
        Wcc { before, after: after.map(|facts| self.attr_of(node.id, node.kind, &facts, &node.bound)) }
    }

    fn circumstance(&self, who: &Subject<'_>) -> Circumstance {
        let peer = self.call.from.peer.filter(|_| who.name() == self.call.caller.name());
        Circumstance { now: self.now, peer }
    }

    /// Says what the policy gives somebody at a path.
    pub(super) fn settle_at(&self, path: &[u8], bound: &Bound, asked: Rights, who: &Subject<'_>) -> Settled {
        let settled = explain(bound.acl(), who, asked, &self.circumstance(who));
        settled.narrowed(self.within(path, who))
    }

    /// Decides over the policy of a place, and what the credential's paths leave.
    pub(super) fn decide(&self, node: &Node, asked: Rights) -> Decision {
        let ask = self.ask(&node.bound, asked);
        let decision = decide(node.bound.acl(), &self.call.caller, &ask);
        decision.narrowed(self.within_paths(&node.path) & node.left(), vec![node.object()])
    }

    fn ask(&self, bound: &Bound, rights: Rights) -> Ask {
        Ask {
            container: bound.container,
            epoch: bound.row.epoch,
            rights,
            objects: Objects::All,
            now: self.now,
            peer: self.call.from.peer,
        }
    }

    /// Returns proof of a right on a file's bytes. `Denied` or `NotFound` if the caller has it not.
    pub(super) fn grant(&self, node: &Node, op: Rights) -> Result<Granted> {
        let decision = self.decide(node, op);
        if !decision.is_allowed() {
            return Err(self.refusal_of(node, &decision));
        }
        let only = self.call.caller.is_confined();
        let bound = &node.bound;
        let (container, state, object) = (bound.container, bound.stand(), node.object());
        self.volume.granted.get(self.call, &Wanted { container, state, op, object, only }, self.now, || {
            let whole = || decide(bound.acl(), &self.call.caller, &self.ask(bound, op));
            self.volume.issuer.issue(&if only { decision } else { whole() })
        })
    }

    /// Returns what of `asked` the policy gives the caller at a path.
    pub(super) fn rights_at(&self, path: &[u8], bound: &Bound, asked: Rights) -> Rights {
        let allowed = self.given_by(bound, asked);
        if allowed.is_empty() { allowed } else { allowed & self.within_paths(path) }
    }

    /// Returns what of `asked` a policy gives the caller, wherever.
    fn given_by(&self, bound: &Bound, asked: Rights) -> Rights {
        let who = self.call.caller.subject();
        explain(bound.acl(), &who, asked, &self.circumstance(&who)).allowed()
    }

    /// Returns what of `asked` the policy gives the caller on something, as far as the user whose rights
    /// limit the share may do it too.
    pub(super) fn rights_of(&self, node: &Node, asked: Rights) -> Rights {
        let given = self.rights_at(&node.path, &node.bound, asked);
        if given.is_empty() { given } else { given & node.left() & self.left_to_user(node) }
    }

    fn left_to_user(&self, node: &Node) -> Rights {
        let Some(user) = &self.user else { return Rights::ALL };
        user.rights(node.kind, &node.facts, || node.held.has_acl())
    }

    /// Demands of the machine that it lets the user whose rights limit the share do something with a file.
    pub(super) fn need_access(&self, node: &Node, access: u16) -> Result<()> {
        let lets = |user: &User| user::access(user, &node.held, &node.facts) & access == access;
        if self.user.as_ref().is_none_or(lets) { Ok(()) } else { Err(self.not_the_users()) }
    }

    /// Demands that this user may take a name away from a directory which they may write.
    pub(super) fn need_unname(&self, dir: &Node, named: &Node) -> Result<()> {
        let may = |user: &User| user.may_unname(&dir.facts, &named.facts);
        if self.user.as_ref().is_none_or(may) { Ok(()) } else { Err(self.not_the_users()) }
    }

    fn not_the_users(&self) -> Error {
        let detail = "the machine refuses this to the user who shared the directory";
        Error::denied(detail).caller(self.call.caller.name())
    }

    /// Makes something in a directory: so that it belongs to the user whose rights limit the share, if any do.
    pub(super) fn making<T>(&self, dir: &Node, make: impl FnOnce() -> Result<T>) -> Result<T> {
        match &self.user {
            Some(user) => user.making(&dir.facts, make),
            None => make(),
        }
    }

    pub(super) fn rights(&self, node: &Node) -> Rights {
        self.rights_of(node, Rights::ALL)
    }

    /// Returns what the machine leaves: what it lets the node's user do of reading, writing and searching
    /// something, and the user whose rights limit the share. Of the node's it is asked only where it is
    /// shown: whoever acts is told by the act.
    pub(super) fn left_by_machine(&self, node: &Node) -> Rights {
        if node.kind == Kind::Symlink {
            return self.left_to_user(node);
        }
        let bits = [4, 2, 1].into_iter().filter(|bit| node.held.may(*bit)).sum::<u16>() << 6;
        let owned = Owned { kind: node.kind, mode: bits, owner: self.volume.owner, group: self.volume.owner };
        narrow(Modes::Owner, &owned, &self.call.caller.subject()) & self.left_to_user(node)
    }

    pub(super) fn has(&self, node: &Node, rights: Rights) -> bool {
        self.rights_of(node, rights) == rights
    }

    /// Demands rights. `Denied`, or `NotFound` if the caller may not even know that it exists.
    pub(super) fn need(&self, node: &Node, rights: Rights) -> Result<()> {
        if self.has(node, rights) { Ok(()) } else { Err(self.refusal(node, rights)) }
    }

    /// Demands any right at all.
    pub(super) fn need_any(&self, node: &Node) -> Result<()> {
        if self.rights(node).is_empty() { Err(self.refusal(node, Rights::ALL)) } else { Ok(()) }
    }

    pub(super) fn refusal(&self, node: &Node, asked: Rights) -> Error {
        self.refusal_of(node, &self.decide(node, asked))
    }

    pub(super) fn refusal_of(&self, node: &Node, decision: &Decision) -> Error {
        let denial = self.denial(node, decision);
        if self.may_know(node) { denial } else { hidden().caused_by(denial) }
    }

    /// Refuses as if there were nothing.
    pub(super) fn veiled(&self, node: &Node, asked: Rights) -> Error {
        hidden().caused_by(self.denial(node, &self.decide(node, asked)))
    }

    fn denial(&self, node: &Node, decision: &Decision) -> Error {
        let missing = decision.asked() - decision.allowed();
        if missing.is_empty() {
            return self.not_the_users();
        }
        let inside = self.within_paths(&node.path).contains(missing);
        let detail = decision.because(missing).refusal(missing, inside);
        Error::denied(detail).caller(self.call.caller.name())
    }

    /// Returns whether the caller may know of something: by some right on it, or by listing or
    /// traversing the directory it lies in. That there is a root is no secret.
    pub(super) fn may_know(&self, node: &Node) -> bool {
        if node.is_root() || !self.rights(node).is_empty() {
            return true;
        }
        if self.within_paths(&node.path).is_empty() {
            return false;
        }
        let Some(dir) = above(&node.path) else { return true };
        self.governing(dir).is_ok_and(|bound| self.sees_into(dir, &bound))
    }

    /// Returns whether the caller may know what names a directory holds.
    pub(super) fn sees_into(&self, path: &[u8], bound: &Bound) -> bool {
        self.rights_at(path, bound, Rights::LIST | Rights::TRAVERSE)
            .intersects(Rights::LIST | Rights::TRAVERSE)
    }

    /// Returns whether the caller may do what is the owner's.
    pub(super) fn owns(&self, node: &Node) -> bool {
        self.call.caller.name().id() == self.attr(node).owner || self.has(node, Rights::ACL_WRITE)
    }

    /// Tests a guard against what is there.
    pub(super) fn guard(&self, guard: &Guard, node: Option<&Node>) -> Result<()> {
        if *guard == Guard::NONE {
            return Ok(());
        }
        guard.judge(node.map(|node| self.attr(node)).as_ref())
    }

    /// Returns where a name in a directory lies.
    pub(super) fn below(&self, dir: &Node, name: &Name) -> Vec<u8> {
        join(&dir.path, name.as_bytes())
    }
}

/// Says in words what settled that a caller may read what lies at a path.
pub(super) fn settled_by(volume: &Arc<Volume>, call: &Call, path: &[u8]) -> String {
    let policies = volume.policies();
    let bound = policies.governing_path(path);
    let at = Circumstance { now: volume.sys.clock().moment(), peer: call.from.peer };
    let settled = explain(bound.acl(), &call.caller.subject(), Rights::READ, &at);
    let entry = |index| bound.acl().words(index).unwrap_or_default();
    match settled.because(Rights::READ) {
        because @ Because::Allowed(_) => because.words(Rights::READ, true, entry),
        because => because.words(Rights::READ, true, |_| "an entry of the ACL".to_owned()),
    }
}

/// What a share shows a kind of file as: devices and sockets are not shown.
pub(super) fn shown_kind(sort: Sort) -> Option<Kind> {
    match sort {
        Sort::File => Some(Kind::File),
        Sort::Directory => Some(Kind::Directory),
        Sort::Symlink => Some(Kind::Symlink),
        Sort::Fifo => Some(Kind::Fifo),
        Sort::Other => None,
    }
}

/// Takes what is not there for nothing, and no other failure.
fn found<T>(looked: Result<T>) -> Result<Option<T>> {
    match looked {
        Ok(found) => Ok(Some(found)),
        // A link or a file where a directory was.
        Err(error)
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotDirectory | ErrorKind::Loop) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Nothing there, or nothing this caller may know of.
pub(super) fn hidden() -> Error {
    Error::not_found("there is nothing, or nothing you may know of")
}

fn stale(id: FileId) -> Error {
    Error::new(ErrorKind::Stale, "it is not where it was last seen").about(id).hint("look its name up again")
}
