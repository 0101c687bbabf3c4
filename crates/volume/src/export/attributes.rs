//! Attributes, the system's and the user's, and space.
//!
//! A user attribute is an extended attribute of the machine, in its namespace for users: others see it
//! there, and it goes where the file goes.

use weft_core::acl::Modes;
use weft_core::attr::{Attr, Changed, Kind, SetAttr, TagEdit, TagMust, TagName};
use weft_core::form::{At, Guard, Space, TagPage};
use weft_core::{Error, ErrorKind, Result, Rights, limits};

use super::audit::Deed;
use super::names::{check_size, mode_of, not_given, set_times};
use super::user::{READ, WRITE};
use super::view::{Node, View};

/// The machine's name space for attributes of users.
const USER: &[u8] = b"user.";

impl View<'_> {
    /// Checks everything about `set`, so that nothing fails half-way that can be foreseen.
    fn may_set(&self, node: &Node, set: &SetAttr) -> Result<()> {
        let only_size = set.size.is_some() && SetAttr { size: None, ..set.clone() }.is_empty();
        let mut need = if only_size { Rights::NONE } else { Rights::ATTR_WRITE };
        if set.size.is_some() {
            need |= Rights::WRITE;
        }
        self.need(node, need)
    }

    fn may_change(&self, node: &Node, set: &SetAttr) -> Result<()> {
        set.mode.map_or(Ok(()), |mode| self.need_mode(&node.facts, mode_of(node.kind, mode)?))?;
        if let Some(size) = set.size {
            must_have_bytes(node)?;
            check_size(size)?;
        }
        let shown = self.attr(node);
        if set.owner.is_some_and(|owner| owner != shown.owner)
            || set.group.is_some_and(|group| group != shown.group)
        {
            return Err(not_given());
        }
        if Modes::Owner.leave_to_owner(shown.mode, set) && !self.owns(node) {
            return Err(Error::not_permitted("only the owner, or who may change the ACL, may do that"));
        }
        Ok(())
    }

    pub(super) fn set(&self, at: &At, set: &SetAttr, guard: &Guard) -> Result<(Changed<Attr>, Deed)> {
        let node = self.existing(at)?;
        self.may_set(&node, set)?;
        self.guard(guard, Some(&node))?;
        self.may_change(&node, set)?;
        let before = self.before(&node);
        self.apply(&node, set)?;
        let right = if set.size.is_some() { Rights::WRITE } else { Rights::ATTR_WRITE };
        let deed = Deed::of(self, "set", &node, (&node, right)).of_file(&node);
        let file = self.wcc(&node, Some(before));
        let value = self.attr(&self.again(&node)?);
        Ok((Changed { value, file, parents: [None, None] }, deed))
    }

    pub(super) fn apply(&self, node: &Node, set: &SetAttr) -> Result<()> {
        if let Some(size) = set.size {
            node.held.open(true)?.set_length(size)?;
            self.volume.versions.written(node.id);
        }
        if let Some(mode) = set.mode {
            node.held.set_mode(mode)?;
        }
        set_times(&node.held, set, self)
    }

    /// Looks at something that was found once more.
    pub(super) fn again(&self, node: &Node) -> Result<Node> {
        Ok(Node { facts: node.held.facts()?, ..node.clone() })
    }

    pub(super) fn tags(&self, at: &At, from: Option<&TagName>) -> Result<TagPage> {
        let node = self.existing(at)?;
        self.need(&node, Rights::ATTR_READ)?;
        self.need_access(&node, READ)?;
        let mut tags = Vec::new();
        let link = node.kind == Kind::Symlink;
        let names = if link { Vec::new() } else { node.held.tags(&node.facts)? };
        let names = names.into_iter().filter_map(|name| Some(name.strip_prefix(USER)?.to_vec()));
        let names = names.filter(|name| from.is_none_or(|from| &name[..] > from.as_bytes()));
        for name in names {
            if let Some(value) = node.held.tag(&named(&name))? {
                tags.push((TagName::new(name)?, value.into()));
            }
        }
        Ok(TagPage { tags, next: None })
    }

    pub(super) fn tag(&self, at: &At, edits: &[TagEdit], guard: &Guard) -> Result<(Changed<()>, Deed)> {
        let node = self.existing(at)?;
        self.need(&node, Rights::ATTR_WRITE)?;
        self.need_access(&node, WRITE)?;
        self.guard(guard, Some(&node))?;
        let before = self.before(&node);
        let mut bytes = 0;
        let mut undo = Vec::new();
        for edit in edits {
            match self.edit_tag(&node, edit) {
                Ok((old, more)) => {
                    undo.push(old);
                    bytes += more;
                }
                Err(error) => {
                    // All of the edits or none: what was there is put back, the last first.
                    for (name, old) in undo.into_iter().rev() {
                        node.held.set_tag(&name, old.as_deref())?;
                    }
                    return Err(error);
                }
            }
        }
        let mut deed = Deed::of(self, "tag", &node, (&node, Rights::ATTR_WRITE)).of_file(&node);
        deed.bytes = bytes as u64;
        let file = self.wcc(&node, Some(before));
        Ok((Changed { value: (), file, parents: [None, None] }, deed))
    }

    /// Makes one edit. Returns what was there before, and how many bytes there are now.
    fn edit_tag(&self, node: &Node, edit: &TagEdit) -> Result<(Undo, usize)> {
        let no_attribute = || Error::new(ErrorKind::NoAttribute, "there is no such user attribute");
        match edit {
            TagEdit::Put { name, value, must } => {
                if value.len() > limits::TAG_VALUE_BYTES_MAX {
                    return Err(Error::new(ErrorKind::TooLarge, "a user attribute has at most 60 KiB"));
                }
                let name = named(name.as_bytes());
                let old = node.held.tag(&name)?;
                match (must, old.is_some()) {
                    (TagMust::BeNew, true) => Err(Error::exists("the user attribute is there already")),
                    (TagMust::Exist, false) => Err(no_attribute()),
                    _ => {
                        node.held.set_tag(&name, Some(value)).map_err(too_large)?;
                        Ok(((name, old), value.len()))
                    }
                }
            }
            TagEdit::Remove(name) => {
                let name = named(name.as_bytes());
                let old = node.held.tag(&name)?.ok_or_else(no_attribute)?;
                node.held.set_tag(&name, None)?;
                Ok(((name, Some(old)), 0))
            }
        }
    }

    pub(super) fn space(&self, at: &At) -> Result<Space> {
        let node = self.existing(at)?;
        self.need_any(&node)?;
        let holds = self.root.beneath.holds()?;
        Ok(Space { bytes_total: holds.bytes_total, bytes_free: holds.bytes_free, files: holds.files })
    }
}

/// The machine's name of an attribute, and what it was.
type Undo = (Vec<u8>, Option<Vec<u8>>);

fn named(name: &[u8]) -> Vec<u8> {
    [USER, name].concat()
}

/// Many file systems keep all attributes of a file in one block.
fn too_large(error: Error) -> Error {
    if error.kind() != ErrorKind::NoSpace {
        return error;
    }
    Error::new(ErrorKind::TooLarge, "the file system has no room for so many attributes of one file")
        .caused_by(error)
}

/// Checks that something is a file with bytes.
pub(super) fn must_have_bytes(node: &Node) -> Result<()> {
    match node.kind {
        Kind::File => Ok(()),
        Kind::Directory => Err(Error::new(ErrorKind::IsDirectory, "it is a directory")),
        _ => Err(Error::invalid("it is not a file with bytes of its own")),
    }
}
