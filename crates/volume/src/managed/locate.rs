//! Where an address leads: names, symbolic links, and rights at every step.

use weft_core::attr::Kind;
use weft_core::form::{At, Follow, LinkTarget};
use weft_core::service::AuditSubject;
use weft_core::{Error, ErrorKind, FileId, Name, Result, Rights, limits};

use super::table::entries::{self, Link};
use super::table::inodes;
use super::view::{Node, View, hidden};

/// Where an address led.
#[derive(Clone)]
pub(super) struct Place {
    /// The directory and name it was found under; none for an id or the root.
    pub(super) above: Option<(Node, Name)>,
    /// What is there.
    pub(super) node: Option<Node>,
    /// The name's row, if there is such a name.
    pub(super) link: Option<Link>,
}

/// A name in a directory, and what it leads to.
pub(super) struct Spot {
    pub(super) dir: Node,
    pub(super) name: Name,
    pub(super) held: Option<(Node, Link)>,
}

/// Where following an address ended.
pub(super) enum Led {
    /// Where it leads.
    To(Place),
    /// At a junction that is in the way, with the steps that are left beyond it.
    Beyond(Place, Vec<Step>),
}

/// One step of a path or of a symbolic link's target.
pub(super) enum Step {
    Into(Name),
    Up,
    Here,
}

impl Spot {
    /// Returns the right that publishing here needs, and on what: `write` on what is there, or
    /// else `insert` on the directory.
    pub(super) fn published_by(&self) -> (&Node, Rights) {
        match &self.held {
            Some((node, _)) => (node, Rights::WRITE),
            None => (&self.dir, Rights::INSERT),
        }
    }
}

impl Place {
    fn at(node: Node) -> Self {
        Self { above: None, node: Some(node), link: None }
    }
}

impl View<'_> {
    /// Finds where an address leads. Fails with `Stale` if its base is gone; what the
    /// path does not lead to is a place without a node, if its directory is there.
    pub(super) fn locate(&self, at: &At) -> Result<Place> {
        match self.lead(at)? {
            Led::To(place) => Ok(place),
            Led::Beyond(junction, _) => Err(self.not_here(&junction.node.ok_or_else(hidden)?)),
        }
    }

    /// Follows an address as far as this volume goes, and asks for rights at every step.
    pub(super) fn lead(&self, at: &At) -> Result<Led> {
        self.led_by(at, |dir, step| self.step(dir, step))
    }

    /// Finds where an address leads, or as far as the caller may go on it, with what is hidden there:
    /// for what is recorded of a refusal, never for an answer. What lies behind the directory that
    /// refused is not looked at: the record is its owner's, and whoever owns another place on the
    /// way must not learn from it what there is.
    fn unveiled(&self, at: &At) -> Result<Place> {
        let mut reached = None;
        let led = self.led_by(at, |dir, step| {
            if dir.inode.is_directory() && !self.has(&dir, Rights::TRAVERSE)? {
                reached = Some(match step {
                    Step::Into(name) => Place { above: Some((dir, name)), node: None, link: None },
                    Step::Up | Step::Here => Place::at(dir),
                });
                return Err(hidden());
            }
            let place = self.step_unasked(dir, step)?;
            reached = Some(place.clone());
            Ok(place)
        });
        match led {
            Ok(Led::To(place) | Led::Beyond(place, _)) => Ok(place),
            Err(error) => reached.ok_or(error),
        }
    }

    /// Says what an address leads to, or how far, for a record.
    pub(super) fn subject_at(&self, at: &At) -> Result<AuditSubject> {
        let Place { above, node, .. } = self.unveiled(at)?;
        let mut subject = AuditSubject::default();
        if let Some(node) = &node {
            subject.object = Some(node.id);
            subject.touch(node.inode.container);
        }
        subject.place = match &above {
            Some((dir, name)) => {
                subject.touch(dir.inode.container);
                Some((dir.id, name.clone()))
            }
            None => {
                let names = node.map(|node| self.names_told(&node)).transpose()?.unwrap_or_default();
                names.into_iter().next().map(|(dir, name)| (dir.id, name))
            }
        };
        Ok(subject)
    }

    /// Follows an address: names by `step`, symbolic links as they say.
    fn led_by(&self, at: &At, mut step_by: impl FnMut(Node, Step) -> Result<Place>) -> Result<Led> {
        let mut place = Place::at(self.node(at.base)?);
        let mut names = at.path.names();
        let mut name = names.next();
        // Steps of symbolic links' targets, the next one last.
        let mut detour: Vec<Step> = Vec::new();
        let mut links = 0;
        loop {
            let more = name.is_some() || !detour.is_empty();
            if let Some(link) = place.node.as_ref().filter(|node| node.inode.kind == Kind::Symlink)
                && (more || at.follow == Follow::Last)
            {
                links += 1;
                if links > limits::LINK_STEPS_MAX {
                    return Err(Error::new(ErrorKind::Loop, "more than 40 symbolic links are in the way"));
                }
                let start = self.follow(link, place.above.as_ref(), &mut detour)?;
                place = Place::at(start);
                continue;
            }
            if let Some(node) = place.node.as_ref().filter(|_| more)
                && self.joined(node)?.is_some()
            {
                let named = name.into_iter().chain(names).map(Step::Into);
                return Ok(Led::Beyond(place, detour.into_iter().rev().chain(named).collect()));
            }
            let step = match detour.pop() {
                Some(step) => step,
                None => match std::mem::replace(&mut name, names.next()) {
                    Some(name) => Step::Into(name),
                    None => return Ok(Led::To(place)),
                },
            };
            place = step_by(place.node.ok_or_else(hidden)?, step)?;
        }
    }

    fn step(&self, dir: Node, step: Step) -> Result<Place> {
        if !dir.inode.is_directory() {
            return Err(if self.may_know(&dir)? {
                not_directory()
            } else {
                self.veiled(&dir, Rights::TRAVERSE)
            });
        }
        if matches!(step, Step::Up) {
            self.need(&dir, Rights::TRAVERSE)?;
        }
        let place = self.step_unasked(dir, step)?;
        let Some((dir, _)) = &place.above else { return Ok(place) };
        if !self.has(dir, Rights::TRAVERSE)? {
            let held = place.node.as_ref();
            let seen = self.has(dir, Rights::LIST)?
                || held.is_some_and(|node| self.rights(node).is_ok_and(|rights| !rights.is_empty()));
            // The same is decided, and recorded, whether the name is there or not.
            return Err(if seen {
                self.refusal(dir, Rights::TRAVERSE)
            } else {
                self.veiled(dir, Rights::TRAVERSE)
            });
        }
        if let Some(node) = &place.node
            && self.within_paths(node)?.is_empty()
        {
            return Err(self.veiled(node, Rights::ALL));
        }
        Ok(place)
    }

    /// Takes a step and asks for no right.
    fn step_unasked(&self, dir: Node, step: Step) -> Result<Place> {
        if !dir.inode.is_directory() {
            return Err(not_directory());
        }
        let name = match step {
            Step::Into(name) => name,
            Step::Up => return Ok(Place::at(self.parent(&dir)?)),
            Step::Here => return Ok(Place::at(dir)),
        };
        let link = entries::find(self.read, dir.serial(), &name)?;
        let node = link.map(|link| self.node_at(link.inode)).transpose()?;
        Ok(Place { above: Some((dir, name)), node, link })
    }

    /// Adds the steps of a symbolic link's target. Returns where they start.
    fn follow(&self, link: &Node, above: Option<&(Node, Name)>, detour: &mut Vec<Step>) -> Result<Node> {
        let LinkTarget::Symlink(target) = inodes::target(self.read, link.serial())? else {
            return Err(Error::corrupt("a symbolic link has another kind's target").about(link.id));
        };
        let absolute = target.starts_with(b"/");
        let path = &target[usize::from(absolute)..];
        for part in path.rsplit(|b| *b == b'/') {
            detour.push(match part {
                b"" | b"." => Step::Here,
                b".." => Step::Up,
                name => Step::Into(Name::new(target.slice_ref(name))?),
            });
        }
        match above {
            Some((dir, _)) if !absolute => Ok(dir.clone()),
            _ => match entries::name_of(self.read, link.serial())?.filter(|_| !absolute) {
                Some(back) => self.node_at(back.parent),
                None => self.node_at(FileId::ROOT.serial()),
            },
        }
    }

    /// Finds what is at an address; `NotFound` if nothing is, `Unavailable` if it is another volume.
    pub(super) fn existing(&self, at: &At) -> Result<Node> {
        let node = self.locate(at)?.node.ok_or_else(hidden)?;
        self.must_be_here(&node)?;
        Ok(node)
    }

    /// Finds the directory and name an address stands for, whether anything is there
    /// or not. `Invalid` if it is an id alone.
    pub(super) fn spot(&self, at: &At) -> Result<Spot> {
        let place = self.locate(at)?;
        let (dir, name) = place.above.ok_or_else(|| Error::invalid("the address has no name to act on"))?;
        Ok(Spot { dir, name, held: place.node.zip(place.link) })
    }
}

pub(super) fn not_directory() -> Error {
    Error::new(ErrorKind::NotDirectory, "it is not a directory")
}
