//! The user of the machine whom a share is limited to: what that user may do is worked out from what the
//! machine says of each file, since the node's own user may do other things, and often more.
//!
//! Where the machine does not say enough, less is allowed: of a file with an access list only its owner's
//! bits are believed, which no list takes from; of a user whose groups are not known, what a file
//! gives its group counts only as far as others have it too. Nothing else is asked: no
//! capability that a user's programs may have, and no label.

use std::sync::{Arc, Mutex, PoisonError};

use weft_core::attr::Kind;
use weft_core::{Error, ErrorKind, Result, Rights, Tick, limits};
use weft_sys::Sys;
use weft_sys::beneath::{Facts, Held};
use weft_sys::users::{self, Member};

use super::names::SET_ID;

/// Reading, writing, and searching or executing, as mode bits have them.
pub(super) const READ: u16 = 4;
pub(super) const WRITE: u16 = 2;
pub(super) const SEARCH: u16 = 1;

const STICKY: u16 = 0o1000;

/// A user of the machine, as far as is known of them.
#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) uid: u32,
    /// The groups they are in; none if the machine does not say.
    member: Option<Arc<Member>>,
}

impl User {
    /// Returns whether the user is in a group; nothing if that is not known.
    fn is_in(&self, gid: u32) -> Option<bool> {
        self.member.as_ref().map(|member| member.groups.contains(&gid))
    }

    /// Returns the group that what they make is of.
    pub(super) fn gid(&self) -> Option<u32> {
        self.member.as_ref().map(|member| member.gid)
    }

    /// Returns what the machine lets them do with something, as mode bits.
    pub(super) fn access(&self, facts: &Facts, has_acl: impl FnOnce() -> bool) -> u16 {
        let [owner, group, others] = [6, 3, 0].map(|shift| facts.mode >> shift & 7);
        if self.uid == facts.uid {
            return owner;
        }
        if has_acl() {
            return 0;
        }
        match self.is_in(facts.gid) {
            Some(true) => group,
            Some(false) => others,
            None => group & others,
        }
    }

    /// Returns which rights those leave on something.
    pub(super) fn rights(&self, kind: Kind, facts: &Facts, has_acl: impl FnOnce() -> bool) -> Rights {
        let (access, mut taken) = (self.access(facts, has_acl), Rights::NONE);
        let (reads, writes) = (access & READ != 0, access & WRITE != 0);
        match kind {
            Kind::Directory => {
                let searches = access & SEARCH != 0;
                taken |= unless(searches, Rights::TRAVERSE);
                taken |= unless(searches && reads, Rights::LIST);
                taken |= unless(searches && writes, Rights::INSERT | Rights::REMOVE | Rights::RENAME);
            }
            Kind::File | Kind::Fifo => {
                taken |= unless(reads, Rights::READ);
                // Who executes through Weft is given the bytes.
                taken |= unless(reads && access & SEARCH != 0, Rights::EXECUTE);
                taken |= unless(writes, Rights::WRITE | Rights::APPEND);
            }
            Kind::Symlink | Kind::Reference => {}
        }
        Rights::ALL - (taken | unless(self.uid == facts.uid, Rights::ATTR_WRITE))
    }

    /// Returns whether they may take a name away from a directory that they may write: of a sticky one only
    /// the owner may, or who owns what has the name.
    pub(super) fn may_unname(&self, dir: &Facts, named: &Facts) -> bool {
        dir.mode & STICKY == 0 || [dir.uid, named.uid].contains(&self.uid)
    }

    /// Returns whether what they made may take the place of a file and look like it: whose it is and which
    /// group's, they could not give to others themselves.
    pub(super) fn may_stand_for(&self, old: &Facts, made: &Facts) -> bool {
        old.uid == self.uid && (old.gid == made.gid || self.is_in(old.gid) == Some(true))
    }

    /// Returns whether they may give these mode bits to something of theirs: files that are made in a
    /// directory of a group would be of that group.
    pub(super) fn may_set_mode(&self, facts: &Facts, mode: u16) -> bool {
        mode & SET_ID & !facts.mode == 0 || self.is_in(facts.gid) == Some(true)
    }

    /// Makes something in a directory so that it is theirs. In a directory where they are let by its group
    /// it is of that group; as well where the machine does not say which is theirs.
    pub(super) fn making<T>(&self, dir: &Facts, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let by_group = dir.uid != self.uid && self.is_in(dir.gid) == Some(true);
        let gid = self.gid().filter(|_| !by_group).unwrap_or(dir.gid);
        users::making_as(self.uid, gid, make)
    }
}

fn unless(held: bool, rights: Rights) -> Rights {
    if held { Rights::NONE } else { rights }
}

/// Who is limited to, and what the machine last said of their groups.
pub(super) struct Known {
    uid: u32,
    asked: Mutex<Option<(User, Tick)>>,
    /// The list of users is asked once at a time: it may not answer.
    asking: Arc<tokio::sync::Semaphore>,
}

impl Known {
    pub(super) fn of(uid: u32) -> Self {
        Self { uid, asked: Mutex::default(), asking: Arc::new(tokio::sync::Semaphore::new(1)) }
    }

    /// Returns the user as known now. A list of users that does not answer is waited for once a while.
    pub(super) async fn now(&self, sys: &Sys) -> User {
        let now = sys.clock().tick();
        let kept = self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((user, since)) = kept
            && now.since(since) < limits::MACHINE_GROUPS_KEPT
        {
            return user;
        }
        let user = User { uid: self.uid, member: self.ask(sys).await.ok().flatten().map(Arc::new) };
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some((user.clone(), now));
        user
    }

    async fn ask(&self, sys: &Sys) -> Result<Option<Member>> {
        let busy = |e| Error::new(ErrorKind::Unavailable, "the list of users is being asked").caused_by(e);
        let (turn, uid) = (self.asking.clone().try_acquire_owned().map_err(busy)?, self.uid);
        let look = move || {
            let member = users::member(uid);
            drop(turn);
            member
        };
        let until = weft_core::Deadline::within(sys.clock(), limits::EXPORT_PROBE);
        sys.within(until, async { sys.blocking(look).await? }).await
    }
}

/// Checks that a user of the machine may count as whose files are: root may do everything, and the one who
/// stands for those unknown here is nobody.
pub(super) fn must_be_somebody(uid: u32) -> Result<()> {
    if [0, users::NOBODY, u32::MAX].contains(&uid) {
        return Err(Error::not_permitted(
            "root, and who stands for nobody, own nothing that they could share",
        ));
    }
    Ok(())
}

/// Returns what the machine lets a user do with something that is held.
pub(super) fn access(user: &User, held: &Held, facts: &Facts) -> u16 {
    user.access(facts, || held.has_acl())
}

#[cfg(test)]
pub(super) mod tests;
