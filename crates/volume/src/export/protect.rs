//! Policy: showing it, editing it, and giving a place one of its own. The files are not touched: what
//! governs them is kept beside them, in one row for each place that has a policy.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::MutexGuard;
use weft_core::acl::{Acl, AclEntry, Modes};
use weft_core::attr::Changed;
use weft_core::form::{Ack, At, Call, Protected, Scope};
use weft_core::policy::{Policy, PolicyEdit};
use weft_core::{ContainerId, Deadline, Error, ErrorKind, FileId, Result, Rights, limits};
use weft_kv::{SpaceTxn, Txn};

use super::Volume;
use super::audit::Deed;
use super::known::{above, moved};
use super::policies::{Bound, Policies};
use super::rename::{Move, Moved};
use super::table::{self, BoundRow};
use super::view::{Node, View};
use crate::managed::AUDITS;

/// What an edit makes of the policies.
struct Edited {
    node: Node,
    container: ContainerId,
    row: BoundRow,
    made: bool,
    /// Whether it takes the place of the enclosing one, which goes along with what lay there.
    replaced: bool,
    /// The container that governed the place before.
    enclosing: Arc<Bound>,
    deed: Deed,
    /// Containers of the export above which are to let the same callers pass, with their new rows.
    above: Vec<(ContainerId, BoundRow)>,
    untouched: Vec<ContainerId>,
    gained: Vec<AclEntry>,
}

/// Containers above with their mended policies, and those that are not the caller's to change.
type Above = (Vec<(ContainerId, BoundRow)>, Vec<ContainerId>);

impl View<'_> {
    pub(super) fn policy(&self, at: &At) -> Result<Policy> {
        let node = self.existing(at)?;
        self.need(&node, Rights::ACL_READ)?;
        Ok(node.bound.policy())
    }

    fn edit(&self, at: &At, scope: Scope, edit: &PolicyEdit) -> Result<Edited> {
        let node = self.existing(at)?;
        self.need(&node, Rights::ACL_WRITE)?;
        if node.nameless.is_some() {
            // What governs it may be a policy that is bound nowhere any more.
            return Err(Error::not_found("the file has no name left"));
        }
        let enclosing = node.bound.clone();
        check_edit(edit, enclosing.acl())?;
        let at_place = enclosing.row.path == node.path;
        let own = at_place || (!node.is_root() && enclosing.row.inode == node.id);
        let made = scope == Scope::Subtree && !own;
        if !made {
            self.must_govern(&enclosing)?;
        }
        // What lay there when it was made may lie elsewhere by now, and keeps the policy that it had.
        let replaced = !made && at_place && !node.is_root() && enclosing.row.inode != node.id;
        let mut row = enclosing.row.clone();
        let mut container = enclosing.container;
        if made || replaced {
            container = self.new_container(&node)?;
            row = BoundRow {
                path: node.path.clone(),
                guards: true,
                inode: node.id,
                serial: 0,
                epoch: 0,
                ..row
            };
        }
        must_be_kept(edit)?;
        let gained = edit.acl.as_ref().map(|acl| acl.gained_over(enclosing.acl())).unwrap_or_default();
        if let Some(acl) = &edit.acl {
            row.acl = Acl { version: row.acl.version + 1, entries: acl.entries.clone() };
            row.epoch += 1;
        }
        row.audit_reads = edit.audit_reads.unwrap_or(row.audit_reads);
        row.serial += 1;
        let (above, untouched) = self.above_let_pass(&row.path, container, &gained)?;
        let deed = Deed::of(self, "protect", &node, (&node, Rights::ACL_WRITE));
        Ok(Edited {
            node,
            container,
            row,
            made: made || replaced,
            replaced,
            enclosing,
            deed,
            above,
            untouched,
            gained,
        })
    }

    /// A credential limited to paths edits no policy that reaches beyond them.
    fn must_govern(&self, bound: &Bound) -> Result<()> {
        if self.rights_at(&bound.row.path, bound, Rights::ACL_WRITE) == Rights::ACL_WRITE {
            return Ok(());
        }
        let detail = "the container's policy reaches beyond the paths that the credential is limited to";
        Err(Error::denied(detail).caller(self.call.caller.name()))
    }

    /// Returns a number for a place's own container.
    fn new_container(&self, node: &Node) -> Result<ContainerId> {
        if self.policies.count() >= limits::EXPORT_CONTAINERS_MAX {
            let detail = "a share has at most 10000 places with policies of their own";
            return Err(Error::new(ErrorKind::TooLarge, detail).hint("share parts of it by themselves"));
        }
        let depth = std::iter::successors(Some(&node.path[..]), |path| above(path));
        let above = depth.filter(|path| self.policies.at(path, None).is_some()).count();
        if above >= limits::CONTAINER_DEPTH_MAX {
            return Err(Error::new(ErrorKind::TooLong, "at most 64 containers lie on one path"));
        }
        self.policies.free_number(self.volume.id)
    }

    /// Returns the policies of the places above, mended so that whoever was given something may pass
    /// there, as far as the caller may change them; and those that it may not.
    fn above_let_pass(&self, path: &[u8], own: ContainerId, gained: &[AclEntry]) -> Result<Above> {
        let (mut mended, mut untouched) = (Vec::new(), Vec::new());
        if gained.is_empty() {
            return Ok((mended, untouched));
        }
        let mut seen = vec![own];
        for dir in std::iter::successors(above(path), |path| above(path)) {
            let bound = self.governing(dir)?;
            if seen.contains(&bound.container) {
                continue;
            }
            seen.push(bound.container);
            if self.rights_at(&bound.row.path, &bound, Rights::ACL_WRITE).is_empty() {
                untouched.push(bound.container);
            } else if let Some(acl) = bound.acl().with_way_to(gained)? {
                let serial = bound.row.serial + 1;
                mended.push((bound.container, BoundRow { acl, serial, ..bound.row.clone() }));
            }
        }
        Ok((mended, untouched))
    }
}

impl Volume {
    pub(super) async fn protect(
        self: &Arc<Self>,
        call: &Call,
        at: &At,
        scope: Scope,
        edit: &PolicyEdit,
    ) -> Result<Changed<Protected>> {
        let _alone = self.editing_alone(call.until).await?;
        let (place, change) = (at.clone(), edit.clone());
        let edited = self.look(call, move |view| view.edit(&place, scope, &change)).await?;
        let Edited { node, container, row, made, replaced, enclosing, mut deed, above, untouched, gained } =
            edited;
        let mut rows = above;
        let mut traverse_added: Vec<_> = rows.iter().map(|(container, _)| *container).collect();
        let mut epochs = vec![(container, row.epoch)];
        if made {
            // What was issued for the members under the old policy must not outlive it.
            let (serial, epoch) = (enclosing.row.serial + 1, enclosing.row.epoch + 1);
            let guards = enclosing.row.guards && !replaced;
            match rows.iter_mut().find(|(above, _)| *above == enclosing.container) {
                Some((_, row)) => (row.epoch, row.guards) = (epoch, guards),
                None => {
                    let old = BoundRow { serial, epoch, guards, ..enclosing.row.clone() };
                    rows.push((enclosing.container, old));
                }
            }
            epochs.push((enclosing.container, epoch));
        }
        rows.push((container, row));
        deed.about.touch(enclosing.container);
        rows.iter().for_each(|(container, _)| deed.about.touch(*container));
        let record = self.record_of(call, &deed)?;
        self.put_policies(rows, record).await?;
        epochs.into_iter().for_each(|(container, epoch)| self.issuer.begin_epoch(container, epoch));
        let (passed, mut untouched_above) = self.anchor.let_pass(call, &gained).await?;
        traverse_added.extend(passed);
        untouched_above.splice(0..0, untouched);
        let file =
            self.look_whenever(call, move |view| Ok(view.wcc(&node, Some(view.before(&node))))).await?;
        let value = Protected { container, made, members_left: 0, traverse_added, untouched_above };
        Ok(Changed { value, file, parents: [None, None] })
    }

    /// Writes policies, and has everybody decide by them from now on.
    async fn put_policies(&self, rows: Vec<(ContainerId, BoundRow)>, record: Option<Vec<u8>>) -> Result<()> {
        let kept = rows.clone();
        let write = move |txn: &mut SpaceTxn<'_>| {
            kept.iter().try_for_each(|(container, row)| table::put_bound(txn, *container, row))?;
            record.as_ref().map_or(Ok(()), |record| txn.note(AUDITS, record))
        };
        self.space.write(Ack::Durable, write).await?;
        let mut policies = Policies::clone(&self.policies());
        rows.into_iter().for_each(|(container, row)| policies.put(container, row));
        self.use_policies(policies);
        Ok(())
    }

    /// Waits until nobody else edits policies, or moves what they are bound to.
    pub(super) async fn editing_alone(&self, until: Deadline) -> Result<MutexGuard<'_, ()>> {
        self.sys.within(until, async { Ok(self.editing.lock().await) }).await
    }

    fn use_policies(&self, policies: Policies) {
        let policies = Arc::new(policies);
        *self.policies.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = policies;
        self.policy_changes.fetch_add(1, Ordering::AcqRel);
        self.policy_changed.notify_waiters();
    }

    /// Moves policies along with the places they are bound to. They count at once, since the names have
    /// moved already.
    pub(super) async fn policies_moved(&self, places: &Moved) -> Result<()> {
        let policies = self.policies();
        let mut rows = Vec::new();
        for Move { from, to, .. } in places {
            for bound in policies.bound_below(from) {
                let path = moved(&bound.row.path, from, to);
                rows.push((bound.container, BoundRow { path, ..bound.row.clone() }));
            }
        }
        self.rebind(rows).await
    }

    /// Binds policies to other places or inodes. What was bound there ends.
    async fn rebind(&self, rows: Vec<(ContainerId, BoundRow)>) -> Result<()> {
        let mut policies = Policies::clone(&self.policies());
        let ousted = policies.ousted_by(&rows);
        ousted.iter().for_each(|container| policies.remove(*container));
        // All old places first: two may have been exchanged.
        rows.iter().for_each(|(container, _)| policies.remove(*container));
        rows.iter().for_each(|(container, row)| policies.put(*container, row.clone()));
        // Whoever had a right by where a file was decides anew, also where nothing is bound.
        self.use_policies(policies);
        if rows.is_empty() {
            return Ok(());
        }
        let write = move |txn: &mut SpaceTxn<'_>| {
            ousted.iter().try_for_each(|container| table::erase_bound(txn, *container))?;
            rows.iter().try_for_each(|(container, row)| table::put_bound(txn, *container, row))
        };
        self.space.write(Ack::Durable, write).await.map(drop)
    }

    /// Binds the policy of a place to what has just been made there, so that it goes along with it. What
    /// lay there when it was made may lie elsewhere, and keeps it too.
    pub(super) async fn bind_fresh(&self, until: Deadline, path: &[u8], id: FileId) -> Result<()> {
        let is_others = |bound: &&Arc<Bound>| bound.row.inode != id;
        if self.policies().at(path, None).filter(is_others).is_none() {
            return Ok(());
        }
        // One at a time: numbers are given out, and rows put together, by those that there are.
        let _alone = self.editing_alone(until).await?;
        let policies = self.policies();
        let Some(bound) = policies.at(path, None).filter(is_others) else { return Ok(()) };
        let own = BoundRow { inode: id, ..bound.row.clone() };
        let old = BoundRow { guards: false, ..bound.row.clone() };
        let fresh = policies.free_number(self.id)?;
        self.rebind(vec![(bound.container, old), (fresh, own)]).await
    }
}

/// Modes and room are the machine's on a share.
fn must_be_kept(edit: &PolicyEdit) -> Result<()> {
    if edit.modes.is_none_or(|modes| modes == Modes::default()) && !matches!(edit.bytes_max, Some(Some(_))) {
        return Ok(());
    }
    let detail = "modes and room on a share are the machine's: it has neither classes nor a limit";
    Err(Error::new(ErrorKind::Unsupported, detail))
}

fn check_edit(edit: &PolicyEdit, old: &Acl) -> Result<()> {
    let Some(acl) = &edit.acl else { return Ok(()) };
    if acl.version != old.version {
        return Err(Error::new(ErrorKind::Conflict, "the ACL was changed since it was read"));
    }
    acl.check()
}
