//! Which door a request goes through.
//!
//! A mount of one user has one. A shared one has a door for each user of the machine who said who they are, one for
//! its own user, and one for all others, who are anyone:
//!
//! ```text
//!   uid of whoever calls ─▶ own │ admitted: 1001, 1002 … │ anyone        each its own line, session, locks,
//!   open file ────────────▶ the door it was opened at                    open files, failures, feed of changes
//! ```
//!
//! What is done with an open file goes through the door it was opened at, whoever does it: so a descriptor that is
//! handed to another process goes on being what it was, as on any other file system, and so does what the kernel itself
//! writes of a mapping. The number of an open file says which door that is.
//!
//! How to get it wrong: have a door answer for an open file of another, whose session the file system knows nothing of.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::io::Errno;
use tokio::sync::{mpsc, watch};
use weft_core::{Error, ErrorKind, Result, limits};

use crate::door::Door;
use crate::handles::{self, Handles};
use crate::look::look_at_unwatched;
use crate::mounted::Mounted;
use crate::passing::look_at_doubtful;
use crate::remembered::Remembered;
use crate::takeover::Opened;
use crate::watch::Watcher;
use crate::{LocalUser, OVERFLOW_ID};

/// The doors of one mount.
pub(crate) struct Doors {
    pub(crate) mounted: Arc<Mounted>,
    own: Arc<Door>,
    others: Option<Others>,
}

/// Of a shared mount.
struct Others {
    anyone: Arc<Door>,
    admitted: RwLock<Admitted>,
}

#[derive(Default)]
struct Admitted {
    by_uid: HashMap<u32, Open>,
}

/// A door that can be shut before the mount ends.
struct Open {
    door: Arc<Door>,
    shut: watch::Sender<bool>,
}

/// The numbers of the doors that stand as long as the mount.
const OWN: u64 = 0;
pub(crate) const ANYONE: u64 = 1;

impl Doors {
    /// Opens the doors of a mount: its own user's, and, if it is shared, the one for whoever has not said who they are.
    /// They are used until `ended` says so.
    pub(crate) fn new(
        mounted: Arc<Mounted>,
        (own, files): (LocalUser, &HashMap<u64, Opened>),
        anyone: Option<LocalUser>,
        ended: &watch::Receiver<bool>,
    ) -> Result<Arc<Self>> {
        let handles = (OWN, mounted.last_handle.clone());
        let handles = Handles::taken_up(handles, &mounted.nodes, &mounted.remembered, files);
        let own = open(&mounted, OWN, own, (handles, mounted.remembered.clone()), ended.clone());
        let others = match anyone {
            Some(anyone) => Some(Others {
                anyone: open_anew(&mounted, ANYONE, anyone, ended.clone())?,
                admitted: RwLock::default(),
            }),
            None => None,
        };
        own.give_up_forgotten();
        let doors = Arc::new(Self { mounted, own, others });
        tokio::spawn(doors.clone().forget_windows(ended.clone()));
        if doors.others.is_some() {
            tokio::spawn(doors.clone().shut_at_the_end(ended.clone()));
        }
        Ok(doors)
    }

    /// Returns the door that a request goes through. `EBADF` for an open file whose door was shut.
    pub(crate) fn of(&self, uid: u32, handle: Option<u64>) -> std::result::Result<Arc<Door>, Errno> {
        let Some(others) = &self.others else { return Ok(self.own.clone()) };
        let admitted = others.read();
        if let Some(number) = handle.map(handles::door_of) {
            let mut doors = [&self.own, &others.anyone].into_iter().chain(admitted.doors());
            return doors.find(|door| door.number() == number).cloned().ok_or(Errno::BADF);
        }
        if uid == self.own.uid() {
            return Ok(self.own.clone());
        }
        Ok(admitted.by_uid.get(&uid).map_or(&others.anyone, |open| &open.door).clone())
    }

    /// Opens a door for a user of the machine, in place of the one there was.
    ///
    /// `Unsupported` if the mount is not shared, `NotPermitted` for its own user and for [`OVERFLOW_ID`], `Busy` if
    /// [`limits::MOUNT_USERS_MAX`] have one.
    pub(crate) fn admit(&self, user: LocalUser) -> Result<()> {
        let others = self.others()?;
        if user.uid == self.own.uid() {
            return Err(Error::not_permitted(
                "who serves the mount is known by the credential it was mounted with",
            ));
        }
        if user.uid == OVERFLOW_ID {
            // What is nobody's here would be shown as theirs.
            return Err(Error::not_permitted("that uid stands for everybody whom the mount does not know"));
        }
        let (uid, ids, caller) = (user.uid, user.ids(), user.calls.who().0.name().id());
        let (shut, shutting) = watch::channel(false);
        let before = {
            let mut admitted = others.write();
            if admitted.by_uid.len() >= limits::MOUNT_USERS_MAX && !admitted.by_uid.contains_key(&uid) {
                return Err(Error::new(ErrorKind::Busy, "as many users as there may be use the mount"));
            }
            let door = open_anew(&self.mounted, admitted.free_number(), user, shutting)?;
            admitted.by_uid.insert(uid, Open { door, shut })
        };
        if let Some(before) = &before {
            self.shut(before);
        }
        self.mounted.owners.show(caller, ids);
        if let Some(before) = before {
            before.door.close_all();
        }
        Ok(())
    }

    /// Shuts the door of a user: what they have open there is closed. Returns whether there was one.
    pub(crate) fn dismiss(&self, uid: u32) -> Result<bool> {
        let open = self.others()?.write().by_uid.remove(&uid);
        let was = open.is_some();
        if let Some(open) = open {
            self.shut(&open);
            open.door.close_all();
        }
        Ok(was)
    }

    /// What a user may do may be less than it was: nothing that is kept for them is shown any longer.
    pub(crate) fn look_again(&self, uid: u32) {
        if let Some(others) = &self.others
            && let Some(open) = others.read().by_uid.get(&uid)
        {
            // A full queue means that dropping is under way already.
            let _ = open.door.refused.try_send(None);
        }
    }

    /// Drops windows of files that are open and not read any more, until the mount has ended: they hold descriptors, and
    /// room that others could use.
    async fn forget_windows(self: Arc<Self>, mut ended: watch::Receiver<bool>) {
        let forget = async {
            loop {
                self.mounted.ahead_room.taken().await;
                tokio::time::sleep(limits::MOUNT_AHEAD_KEPT).await;
                let now = self.mounted.clock.tick();
                self.each(|door| door.handles.each(|handle| handle.ahead.forget_old(now)));
            }
        };
        tokio::select! {
            () = forget => {}
            _ = ended.wait_for(|ended| *ended) => {}
        }
    }

    /// Shows each door.
    fn each(&self, mut show: impl FnMut(&Door)) {
        show(&self.own);
        if let Some(others) = &self.others {
            show(&others.anyone);
            others.read().doors().for_each(|door| show(door));
        }
    }

    /// Shuts a door, through which nobody is shown any more. What is open there is still to be closed.
    fn shut(&self, Open { door, shut }: &Open) {
        let _ = shut.send(true);
        let (caller, _) = door.who();
        self.mounted.owners.hide(caller.name().id(), door.ids());
    }

    async fn shut_at_the_end(self: Arc<Self>, mut ended: watch::Receiver<bool>) {
        // An error says that its threads are gone, which is an end as well.
        let _ = ended.wait_for(|ended| *ended).await;
        if let Some(others) = &self.others {
            let open: Vec<Open> = others.write().by_uid.drain().map(|(_, open)| open).collect();
            for Open { shut, .. } in open {
                let _ = shut.send(true);
            }
        }
    }

    fn others(&self) -> Result<&Others> {
        let one = || Error::new(ErrorKind::Unsupported, "the mount is of one user");
        self.others.as_ref().ok_or_else(|| one().hint("mount it with --shared"))
    }
}

impl Others {
    fn read(&self) -> RwLockReadGuard<'_, Admitted> {
        // Every change leaves the table whole, so a panic elsewhere cannot spoil it.
        self.admitted.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Admitted> {
        self.admitted.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admitted {
    fn doors(&self) -> impl Iterator<Item = &Arc<Door>> {
        self.by_uid.values().map(|open| &open.door)
    }

    /// Returns the lowest number that no door has. What was open at one that had it before is found at none.
    fn free_number(&self) -> u64 {
        let taken: HashSet<u64> = self.doors().map(|door| door.number()).collect();
        (ANYONE + 1..).find(|number| !taken.contains(number)).unwrap_or(u64::MAX)
    }
}

/// Opens a door at which nothing is open. Nobody takes up what is remembered of it.
fn open_anew(
    mounted: &Arc<Mounted>,
    number: u64,
    user: LocalUser,
    ended: watch::Receiver<bool>,
) -> Result<Arc<Door>> {
    let remembered = Arc::new(Remembered::new()?);
    let handles =
        Handles::of_door((number, mounted.last_handle.clone()), &mounted.nodes, &remembered, |_| None);
    Ok(open(mounted, number, user, (handles, remembered), ended))
}

/// Opens a door, and follows what others change for as long as it is open.
fn open(
    mounted: &Arc<Mounted>,
    number: u64,
    user: LocalUser,
    held: (Handles, Arc<Remembered>),
    ended: watch::Receiver<bool>,
) -> Arc<Door> {
    let (refused, refusals) = mpsc::channel(limits::MOUNT_REFUSALS_MAX);
    let door = Arc::new(Door::new(mounted.clone(), number, user, held, refused));
    tokio::spawn(look_at_unwatched(door.clone(), ended.clone()));
    tokio::spawn(look_at_doubtful(door.clone(), ended.clone()));
    tokio::spawn(Watcher::new(door.clone(), refusals, ended).run());
    door
}
