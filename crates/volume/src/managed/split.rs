//! Moving a subtree of many members from one container to another: in batches, behind,
//! gone on with after a restart. Until a member is moved both policies bind it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_core::form::{Ack, At, Call, Protected, Scope};
use weft_core::policy::PolicyEdit;
use weft_core::{ContainerId, Error, ErrorKind, FileId, Result, Rights, limits};

use super::Volume;
use super::act::{Act, fingerprint};
use super::drop_box::Boxing;
use super::left::Left;
use super::rename::torn;
use super::table::containers;
use super::table::entries;
use super::table::inodes;
use super::table::splits::{self, Split};
use super::view::{Node, View};

/// Entries that one transaction of a split looks at.
const BATCH: usize = 1_000;

/// How far a split has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    More,
    /// Another split goes on in its subtree, and what that has not come to yet is still
    /// under this one's old container.
    Waits,
    Ended,
}

/// How much lies below a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Below {
    /// What one transaction can move; it will look for itself.
    Few,
    /// More than that.
    Many {
        members: u64,
        /// What [`Volume::ties`] was before anybody looked.
        ties: u64,
    },
}

impl View<'_> {
    /// Returns how much of a place's container lies at and below it, and refuses to
    /// tear hard links apart. Memory is bounded by the directories on the way and by
    /// the files with several names.
    fn below(&self, top: &Node, ties: u64) -> Result<Below> {
        if self.members_below(top, limits::SPLIT_MEMBERS_MAX)?.is_some() {
            return Ok(Below::Few);
        }
        let own = splits::with_lagging(self.read, top.inode.container)?;
        let mut members = 1;
        let mut dirs = BTreeSet::from([top.serial()]);
        let mut linked = BTreeSet::new();
        let mut todo = vec![top.serial()];
        while let Some(dir) = todo.pop() {
            for entry in entries::after_cookie(self.read, dir, 0) {
                let (_, link) = entry?;
                let inode = inodes::load(self.read, link.inode)?;
                if !own.contains(&inode.container) {
                    continue;
                }
                members += 1;
                if inode.is_directory() {
                    dirs.insert(link.inode);
                    todo.push(link.inode);
                } else if inode.links > 1 {
                    linked.insert(link.inode);
                }
            }
        }
        let mut outside = Vec::new();
        for file in linked {
            for back in entries::names_of(self.read, file) {
                let back = back?;
                if !dirs.contains(&back.parent) && outside.len() < limits::REFUSAL_NAMES_MAX {
                    outside.push(back.name.to_string());
                }
            }
        }
        torn(outside)?;
        Ok(Below::Many { members, ties })
    }
}

impl Volume {
    /// Edits policy. What must follow the commit does, whoever goes away meanwhile.
    pub(super) async fn protect(
        self: &Arc<Self>,
        call: &Call,
        at: &At,
        scope: Scope,
        edit: &PolicyEdit,
        boxing: Boxing,
    ) -> Result<weft_core::attr::Changed<Protected>> {
        let print = match boxing {
            Boxing::Keep => fingerprint(call, &("protect", at, scope, edit))?,
            boxing => fingerprint(call, &("protect", at, scope, edit, boxing))?,
        };
        let (volume, again) = (self.clone(), call.clone());
        let (at, edit) = (at.clone(), edit.clone());
        self.undropped(call, async move {
            let number = volume.number().await?;
            for _ in 0..limits::SPLIT_SURVEYS_MAX {
                let below = volume.below(&again, &at, scope).await?;
                let (at, edit) = (at.clone(), edit.clone());
                // A policy counts from its reply on, and the issuer is told only what is on
                // disk: so it always is.
                let answer = volume.change_whenever(&again, Ack::Durable, move |act| {
                    if !act.volume.is_as_surveyed(below) {
                        return Ok(None);
                    }
                    let mut epochs = Vec::new();
                    let answer = act.once(&print, |act| {
                        let (answer, begun) = act.protect(&at, scope, (&edit, boxing), below, number)?;
                        epochs = begun;
                        Ok(answer)
                    })?;
                    Ok(Some((answer, epochs)))
                });
                if let Some((answer, epochs)) = answer.await? {
                    volume.policy_has_changed(&epochs);
                    volume.to_tidy.notify_one();
                    return Ok(answer);
                }
            }
            let detail = "files are linked and renamed all the time while what lies below is looked through";
            Err(Error::new(ErrorKind::Busy, detail))
        })
        .await
    }

    /// Returns whether no file can have got a name elsewhere since a subtree was looked through.
    fn is_as_surveyed(&self, below: Below) -> bool {
        match below {
            Below::Few => true,
            Below::Many { ties, .. } => ties == self.ties.load(Ordering::Acquire),
        }
    }

    /// Returns how much a change of policy is about. Looking through a subtree takes as long as it
    /// is large: off the threads that serve everybody, and one at a time.
    async fn below(self: &Arc<Self>, call: &Call, at: &At, scope: Scope) -> Result<Below> {
        if scope != Scope::Subtree {
            return Ok(Below::Few);
        }
        let _alone = self.surveying.lock().await;
        // Counted in the order of transactions: what was counted here, the look below shows.
        let count = |act: &mut Act<'_, '_>| Ok(act.volume.ties.load(Ordering::Acquire));
        let ties = self.change_whenever(call, Ack::Applied, count).await?;
        let (volume, call, at) = (self.clone(), call.clone(), at.clone());
        let look = move || {
            volume.look(&call, |view| match view.existing(&at) {
                Ok(node) if view.has(&node, Rights::ACL_WRITE)? => {
                    let own = view.governing(view.home(&node)?)?.rules.root == node.serial();
                    if own { Ok(Below::Few) } else { view.below(&node, ties) }
                }
                // What is refused is refused in the transaction.
                _ => Ok(Below::Few),
            })
        };
        self.sys.blocking(look).await?
    }

    /// Goes on with every split there is, to the end.
    pub(super) async fn split_all(self: &Arc<Self>) -> Result<Left> {
        loop {
            let (mut left, mut ended) = (Left::default(), false);
            for (from, split) in splits::all(&self.space.snapshot()?)? {
                let done = self.split_through(from, split).await;
                ended |= left.take(done);
            }
            if !ended || left.count == 0 {
                return Ok(left);
            }
            // One that has ended may have been what another waited for.
        }
    }

    /// Goes on with one split. `false` if it has to wait for another.
    async fn split_through(self: &Arc<Self>, from: ContainerId, split: Split) -> Result<bool> {
        let call = self.own_call();
        loop {
            let step = self.change_whenever(&call, Ack::Applied, move |act| act.split_on(from, split));
            match step.await? {
                Step::More => {}
                Step::Waits => return Ok(false),
                Step::Ended => break,
            }
        }
        // Leases and kept proofs still speak of two policies.
        self.space.flush().await?;
        self.policy_has_changed(&[]);
        self.relabel_all().await?.report();
        Ok(true)
    }
}

impl Act<'_, '_> {
    /// Moves some members.
    fn split_on(&mut self, from: ContainerId, split: Split) -> Result<Step> {
        let Some((dir, cookie)) = splits::next(self.txn, &split)? else {
            if !splits::out_of(self.txn, split.into)?.is_empty() {
                return Ok(Step::Waits);
            }
            self.end_split(from, &split)?;
            return Ok(Step::Ended);
        };
        let there = inodes::find(self.txn, dir)?;
        if there.is_none_or(|inode| inode.container != split.into) {
            // It has left the subtree since, and took all below it along.
            splits::pop(self.txn, &split, dir)?;
            return Ok(Step::More);
        }
        let own = splits::with_lagging(self.txn, from)?;
        let batch: Vec<_> =
            entries::after_cookie(self.txn, dir, cookie).take(BATCH).collect::<Result<_>>()?;
        let Some(last) = batch.last().map(|(_, link)| link.cookie) else {
            splits::pop(self.txn, &split, dir)?;
            return Ok(Step::More);
        };
        splits::push(self.txn, &split, dir, last)?;
        for (_, link) in batch {
            let inode = inodes::load(self.txn, link.inode)?;
            if !own.contains(&inode.container) {
                continue;
            }
            if inode.is_directory() {
                splits::push(self.txn, &split, link.inode, 0)?;
            }
            let id = FileId::new(self.volume.id, link.inode, inode.generation);
            self.rehome(&mut Node { id, inode }, split.into)?;
        }
        Ok(Step::More)
    }

    /// Brings an inode that a split has not come to yet to where it belongs, before its
    /// place changes: the split would look for it where it was, and for what is below it.
    pub(super) fn catch_up(&mut self, node: &mut Node) -> Result<()> {
        let Some(split) = self.view().going(node)? else { return Ok(()) };
        if node.inode.is_directory() {
            splits::push(self.txn, &split, node.serial(), 0)?;
        }
        self.rehome(node, split.into)
    }

    fn end_split(&mut self, from: ContainerId, split: &Split) -> Result<()> {
        splits::end(self.txn, from, split)?;
        if splits::out_of(self.txn, from)?.is_empty() {
            let mut head = containers::head(self.txn, from)?;
            (head.leaving, head.serial) = (false, head.serial + 1);
            let rules = containers::rules(self.txn, from)?;
            containers::put(self.txn, from, head, &rules)?;
        }
        Ok(())
    }
}
