//! Where an address leads: names, symbolic links, and rights at every step.
//!
//! Most addresses pass no symbolic link. Those the kernel resolves in one step; where that fails, for
//! whatever reason, the address is walked name by name, and only that walk says what is wrong.

use weft_core::attr::Kind;
use weft_core::form::{At, Follow};
use weft_core::{Error, ErrorKind, FileId, Name, Result, Rights, limits};

use super::known::{above, join};
use super::stages::is_reserved;
use super::user::SEARCH;
use super::view::{Node, View, hidden};

/// Where an address led.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The directory and name it was found under; none for an id or the root.
    pub(super) above: Option<(Node, Name)>,
    /// What is there.
    pub(super) node: Option<Node>,
}

/// A name in a directory, and what it stands for.
pub(super) struct Spot {
    pub(super) dir: Node,
    pub(super) name: Name,
    pub(super) held: Option<Node>,
}

impl Spot {
    /// Returns the right that publishing here needs, and on what.
    pub(super) fn published_by(&self) -> (&Node, Rights) {
        match &self.held {
            Some(node) => (node, Rights::WRITE),
            None => (&self.dir, Rights::INSERT),
        }
    }
}

/// One step of a path or of a symbolic link's target.
enum Step {
    Into(Name),
    Up,
    Here,
}

impl View<'_> {
    /// Finds what is at an address; `NotFound` if nothing is.
    pub(super) fn existing(&self, at: &At) -> Result<Node> {
        if at.path.is_empty() && at.follow == Follow::Never {
            return self.node(at.base);
        }
        match self.straight(at)? {
            Some(node) => Ok(node),
            None => self.locate(at)?.node.ok_or_else(hidden),
        }
    }

    /// Finds what is at an address without looking at each step, where nothing stands in the way of
    /// that: one policy for all, no user of the machine whose rights differ from step to step, a right to pass that
    /// it gives, no link, and something at the end.
    fn straight(&self, at: &At) -> Result<Option<Node>> {
        let Some(path) = self.straight_path(at)? else { return Ok(None) };
        let Ok(held) = self.root.beneath.find(&path) else { return Ok(None) };
        let node = self.node_of(path, held, self.policies.root())?;
        Ok(node.filter(|node| node.kind != Kind::Symlink || at.follow == Follow::Never))
    }

    /// Returns the path that is at an address, where none of its steps needs a look of its own.
    pub(super) fn straight_path(&self, at: &At) -> Result<Option<Vec<u8>>> {
        if !self.goes_straight()
            || !self.rights_at(&[], self.policies.root(), Rights::TRAVERSE).contains(Rights::TRAVERSE)
            || at.path.names().any(|name| is_reserved(&name))
        {
            return Ok(None);
        }
        // A file that is open has no path any more, or a former one that something else has.
        if at.path.is_empty() && at.base != FileId::root_of(self.volume.id) {
            return Ok(None);
        }
        let base = match at.base == FileId::root_of(self.volume.id) {
            true => Vec::new(),
            false => self.node(at.base)?.path,
        };
        Ok(Some(join_path(&base, at.path.as_bytes())))
    }

    /// Returns whether what the caller may do is the same wherever in the share it is.
    pub(super) fn goes_straight(&self) -> bool {
        self.policies.is_one() && self.user.is_none() && !self.call.caller.is_confined()
    }

    /// Finds a directory and a name in it, where nothing stands in the way of the directory as of what is
    /// found straight, and what has the name is no link.
    fn straight_spot(&self, at: &At) -> Result<Option<Spot>> {
        let Some((above, name)) = at.path.split_last() else { return Ok(None) };
        let above = At { path: above, follow: Follow::Never, ..at.clone() };
        let Some(dir) = self.straight(&above)?.filter(Node::is_directory) else { return Ok(None) };
        let held = self.child(&dir, &name)?;
        let spot = Spot { dir, name, held };
        Ok(Some(spot).filter(|spot| spot.held.as_ref().is_none_or(|node| node.kind != Kind::Symlink)))
    }

    /// Finds where an address leads. Fails with `Stale` if its base is gone; what the path does not
    /// lead to is a place without a node, if its directory is there.
    pub(super) fn locate(&self, at: &At) -> Result<Place> {
        let mut place = Place { above: None, node: Some(self.node(at.base)?) };
        // The next step last.
        let mut steps: Vec<Step> = at.path.names().map(Step::Into).collect();
        steps.reverse();
        let mut links = 0;
        loop {
            if let Some(link) = place.node.as_ref().filter(|node| node.kind == Kind::Symlink)
                && (!steps.is_empty() || at.follow == Follow::Last)
            {
                links += 1;
                if links > limits::LINK_STEPS_MAX {
                    return Err(Error::new(ErrorKind::Loop, "more than 40 symbolic links are in the way"));
                }
                let dir = self.parent(link)?;
                steps.extend(steps_of(&link.held.target()?)?);
                place = Place { above: None, node: Some(dir) };
                continue;
            }
            let Some(step) = steps.pop() else { return Ok(place) };
            place = self.step(place.node.ok_or_else(hidden)?, step)?;
        }
    }

    fn step(&self, dir: Node, step: Step) -> Result<Place> {
        if !dir.is_directory() {
            return Err(if self.may_know(&dir) {
                not_directory()
            } else {
                self.veiled(&dir, Rights::TRAVERSE)
            });
        }
        let name = match step {
            Step::Into(name) => name,
            Step::Here => return Ok(Place { above: None, node: Some(dir) }),
            Step::Up => {
                self.need(&dir, Rights::TRAVERSE)?;
                let path = above(&dir.path).ok_or_else(leads_out)?;
                return Ok(Place { above: None, node: Some(self.directory(path)?) });
            }
        };
        let node = self.child(&dir, &name)?;
        if !self.has(&dir, Rights::TRAVERSE) {
            let seen = self.has(&dir, Rights::LIST)
                || node.as_ref().is_some_and(|node| !self.rights(node).is_empty());
            // The same is decided, and recorded, whether the name is there or not.
            return Err(if seen {
                self.refusal(&dir, Rights::TRAVERSE)
            } else {
                self.veiled(&dir, Rights::TRAVERSE)
            });
        }
        if let Some(node) = &node
            && self.within_paths(&node.path).is_empty()
        {
            return Err(self.veiled(node, Rights::ALL));
        }
        Ok(Place { above: Some((dir, name)), node })
    }

    /// Returns what a name in a directory stands for, and asks for no right.
    pub(super) fn child(&self, dir: &Node, name: &Name) -> Result<Option<Node>> {
        if is_reserved(name) || self.need_access(dir, SEARCH).is_err() {
            return Ok(None);
        }
        match dir.held.inside(name.as_bytes()) {
            Ok(held) => self.node_of(join(&dir.path, name.as_bytes()), held, &dir.bound),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Finds the directory and name an address stands for, whether anything is there or not.
    /// `Invalid` if it is an id alone.
    pub(super) fn spot(&self, at: &At) -> Result<Spot> {
        if let Some(spot) = self.straight_spot(at)? {
            return Ok(spot);
        }
        let place = self.locate(at)?;
        let (dir, name) = place.above.ok_or_else(|| Error::invalid("the address has no name to act on"))?;
        Ok(Spot { dir, name, held: place.node })
    }
}

/// Returns the steps of a link's target, the first one last.
fn steps_of(target: &[u8]) -> Result<Vec<Step>> {
    if target.starts_with(b"/") {
        return Err(leads_out());
    }
    let parts = target.rsplit(|byte| *byte == b'/');
    let step = |part: &[u8]| match part {
        b"" | b"." => Ok(Step::Here),
        b".." => Ok(Step::Up),
        name => Name::new(name.to_vec()).map(Step::Into),
    };
    parts.map(step).collect()
}

/// A link of the machine may lead anywhere on it; a share ends at its root.
fn leads_out() -> Error {
    Error::not_found("a symbolic link leads out of the share")
}

fn join_path(dir: &[u8], path: &[u8]) -> Vec<u8> {
    if path.is_empty() { dir.to_vec() } else { join(dir, path) }
}

pub(super) fn not_directory() -> Error {
    Error::new(ErrorKind::NotDirectory, "it is not a directory")
}
