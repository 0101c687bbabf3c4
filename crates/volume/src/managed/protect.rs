//! Policy: showing it, editing it, and splitting a subtree off into a container of its
//! own. An edit writes the container's rows, whatever the container holds.

use weft_core::acl::{Acl, AclEntry};
use weft_core::attr::Changed;
use weft_core::drop_box::is_for_anyone;
use weft_core::form::{At, ChangeKind, Protected, Scope};
use weft_core::policy::{Policy, PolicyEdit};
use weft_core::{ContainerId, Error, ErrorKind, FileId, Result, Rights, limits};

use super::act::{Act, Deed};
use super::drop_box::Boxing;
use super::rename::Epochs;
use super::split::Below;
use super::table::containers::{self, Head, Rules};
use super::table::drops;
use super::table::splits::{self, Split};
use super::table::{entries, inodes};
use super::view::{Node, View};

/// Containers above with their mended ACLs, and those that are not the caller's to change.
type Above = (Vec<(ContainerId, Acl)>, Vec<ContainerId>);

impl View<'_> {
    pub(super) fn policy(&self, at: &At) -> Result<Policy> {
        let node = self.existing(at)?;
        self.need(&node, Rights::ACL_READ)?;
        containers::policy(self.read, self.home(&node)?)
    }

    /// Returns the containers of the directories above a place, innermost first, each with
    /// one of those directories.
    fn containers_above(&self, place: &Node) -> Result<Vec<(ContainerId, Node)>> {
        let mut above: Vec<(ContainerId, Node)> = Vec::new();
        for back in entries::names_of(self.read, place.serial()) {
            for dir in self.lineage(&self.node_at(back?.parent)?)? {
                if above.iter().all(|(known, _)| *known != dir.inode.container) {
                    above.push((dir.inode.container, dir));
                }
            }
        }
        Ok(above)
    }

    /// Returns whether the caller may change a container's policy as it reaches: at its root, below
    /// which all its members lie. At a member alone a credential limited to paths may, too.
    fn governs(&self, root: &Node) -> Result<bool> {
        self.has(root, Rights::ACL_WRITE)
    }

    /// Returns the root of a container, or in its place a member that is left without.
    fn root_of(&self, rules: &Rules, member: &Node) -> Node {
        self.node_at(rules.root).unwrap_or_else(|_| member.clone())
    }

    /// Returns the ACLs of the containers above, mended so that whoever the entries give anything
    /// may pass there, as far as the caller may change them; and those that it may not.
    fn traverse_above(&self, root: &Node, gained: &[AclEntry]) -> Result<Above> {
        let (mut mended, mut untouched) = (Vec::new(), Vec::new());
        if gained.is_empty() {
            return Ok((mended, untouched));
        }
        for (container, dir) in self.containers_above(root)? {
            let rules = containers::rules(self.read, container)?;
            if !self.has(&dir, Rights::ACL_WRITE)? || !self.governs(&self.root_of(&rules, &dir))? {
                untouched.push(container);
            } else if let Some(new) = rules.acl.with_way_to(gained)? {
                mended.push((container, new));
            }
        }
        Ok((mended, untouched))
    }
}

impl Act<'_, '_> {
    /// Edits policy. `below` was found just before: what the subtree holds.
    pub(super) fn protect(
        &mut self,
        at: &At,
        scope: Scope,
        (edit, boxing): (&PolicyEdit, Boxing),
        below: Below,
        number: u64,
    ) -> Result<(Changed<Protected>, Epochs)> {
        let view = self.view();
        let mut node = view.existing(at)?;
        view.need(&node, Rights::ACL_WRITE)?;
        let enclosing = view.home(&node)?;
        let rules = containers::rules(self.txn, enclosing)?;
        check_edit(edit, &rules.acl)?;
        let made = scope == Scope::Subtree && rules.root != node.serial();
        if made && view.containers_above(&node)?.len() >= limits::CONTAINER_DEPTH_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "at most 64 containers lie on one path"));
        }
        let root = if made { node.clone() } else { view.root_of(&rules, &node) };
        if !view.governs(&root)? {
            return Err(reaches_beyond().caller(self.call.caller.name()));
        }
        let (traverse, untouched_above) = match &edit.acl {
            Some(acl) => view.traverse_above(&root, &acl.gained_over(&rules.acl))?,
            None => Default::default(),
        };
        let before = self.before(&node)?;
        let mut epochs = Epochs::new();
        let (mut container, mut members_left) = (enclosing, 0);
        if made {
            container = ContainerId::new(self.volume.id, number);
            self.catch_up(&mut node)?;
            members_left = self.split(&node, enclosing, container, rules, below, &mut epochs)?;
            node = self.view().node(node.id)?;
        }
        self.edit(container, edit, &mut epochs)?;
        self.box_up(&root, container, boxing)?;
        self.must_stay_bounded(container)?;
        let traverse_added = self.mend(traverse)?;
        self.touch(&mut node)?;
        let mut also = traverse_added.clone();
        also.push(enclosing);
        let deed = Deed::of(ChangeKind::Policy, "protect", &node, (&node, Rights::ACL_WRITE));
        self.record(&Deed { also, ..deed })?;
        let value = Protected { container, made, members_left, traverse_added, untouched_above };
        let file = self.wcc(node.id, before)?;
        Ok((Changed { value, file, parents: [None, None] }, epochs))
    }

    /// A drop-box keeps a limit on bytes for as long as it is one.
    fn must_stay_bounded(&self, container: ContainerId) -> Result<()> {
        let lifted = containers::rules(self.txn, container)?.bytes_max.is_none();
        if lifted && drops::find(self.txn, container)?.is_some() {
            return Err(Error::invalid("a drop-box has a limit on bytes").hint("weft dropbox end PATH"));
        }
        Ok(())
    }

    /// Writes mended ACLs. Returns whose they are.
    fn mend(&mut self, mended: Vec<(ContainerId, Acl)>) -> Result<Vec<ContainerId>> {
        let mut changed = Vec::new();
        for (container, acl) in mended {
            let (mut head, mut rules) =
                (containers::head(self.txn, container)?, containers::rules(self.txn, container)?);
            head.serial += 1;
            rules.acl = acl;
            containers::put(self.txn, container, head, &rules)?;
            changed.push(container);
        }
        Ok(changed)
    }

    /// Lets whoever was given something beyond a junction pass on the way to it, as far as the caller
    /// may change that. Returns the containers that were changed, and those that were not the
    /// caller's to change.
    pub(super) fn let_pass(
        &mut self,
        junction: FileId,
        gained: &[AclEntry],
    ) -> Result<(Vec<ContainerId>, Vec<ContainerId>)> {
        let view = self.view();
        let node = view.node(junction)?;
        let (mended, untouched) = view.traverse_above(&node, gained)?;
        let Some((nearest, _)) = mended.first() else { return Ok((Vec::new(), untouched)) };
        let by = view.root_of(&containers::rules(self.txn, *nearest)?, &node);
        let changed = self.mend(mended)?;
        let deed = Deed::of(ChangeKind::Policy, "protect", &node, (&by, Rights::ACL_WRITE));
        self.record(&Deed { also: changed.clone(), ..deed })?;
        Ok((changed, untouched))
    }

    /// Makes a container with the enclosing one's policy. Few members move at once; of
    /// many only the top does, and the others follow. Returns how many are to follow.
    fn split(
        &mut self,
        top: &Node,
        old: ContainerId,
        new: ContainerId,
        rules: Rules,
        below: Below,
        epochs: &mut Epochs,
    ) -> Result<u64> {
        let mut rules = Rules { root: top.serial(), ..rules };
        if drops::find(self.txn, old)?.is_some() {
            // What the box takes is bounded; what leaves it is not.
            rules.acl.entries.retain(|entry| !is_for_anyone(entry));
        }
        containers::put(self.txn, new, Head { serial: 0, epoch: 0, leaving: false }, &rules)?;
        // What was issued for the members under the old policy must not outlive it.
        epochs.push(self.begin_epoch(old)?);
        match below {
            Below::Few => {
                let members = self.view().members_below(top, limits::SPLIT_MEMBERS_MAX)?;
                // Nobody has looked for hard links in that many.
                for mut member in members.ok_or_else(grew)? {
                    self.rehome(&mut member, new)?;
                }
                Ok(0)
            }
            Below::Many { members, .. } => {
                let mut head = containers::head(self.txn, old)?;
                (head.leaving, head.serial) = (true, head.serial + 1);
                let from = containers::rules(self.txn, old)?;
                containers::put(self.txn, old, head, &from)?;
                splits::begin(self.txn, old, &Split { root: top.serial(), into: new })?;
                let inode = inodes::load(self.txn, top.serial())?;
                self.rehome(&mut Node { id: top.id, inode }, new)?;
                Ok(members)
            }
        }
    }

    fn edit(&mut self, container: ContainerId, edit: &PolicyEdit, epochs: &mut Epochs) -> Result<()> {
        let mut head = containers::head(self.txn, container)?;
        let mut rules = containers::rules(self.txn, container)?;
        if let Some(acl) = &edit.acl {
            rules.acl = Acl { version: rules.acl.version + 1, entries: acl.entries.clone() };
        }
        rules.modes = edit.modes.unwrap_or(rules.modes);
        rules.bytes_max = edit.bytes_max.unwrap_or(rules.bytes_max);
        rules.audit_reads = edit.audit_reads.unwrap_or(rules.audit_reads);
        head.serial += 1;
        containers::put(self.txn, container, head, &rules)?;
        if edit.acl.is_some() || edit.modes.is_some() {
            epochs.push(self.begin_epoch(container)?);
        }
        Ok(())
    }
}

fn grew() -> Error {
    Error::new(ErrorKind::Busy, "the subtree grew while it was looked through").hint("try again")
}

fn reaches_beyond() -> Error {
    Error::denied("the container's policy reaches beyond the paths that the credential is limited to")
}

fn check_edit(edit: &PolicyEdit, old: &Acl) -> Result<()> {
    let Some(acl) = &edit.acl else { return Ok(()) };
    if acl.version != old.version {
        return Err(Error::new(ErrorKind::Conflict, "the ACL was changed since it was read"));
    }
    acl.check()
}
