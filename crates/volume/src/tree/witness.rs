//! What the audit asks and sessions tell: of each volume what is its own.

use weft_core::form::{At, Call};
use weft_core::service::{AuditSubject, SessionWatcher};
use weft_core::{ContainerId, FileId, SessionId, StageId, VolumeId};

use super::Tree;
use crate::audited::Witness;

impl Tree {
    /// Asks the volume that something is of; nothing if it is not in the tree.
    fn asked<T>(&self, volume: VolumeId, ask: impl FnOnce(&dyn Witness) -> T) -> Option<T> {
        Some(match self.member_of(volume).ok()? {
            Some(joined) => ask(&*joined.member),
            None => ask(&self.root),
        })
    }
}

impl Witness for Tree {
    fn are_recorded(&self, container: ContainerId) -> bool {
        self.asked(container.volume(), |volume| volume.are_recorded(container)).unwrap_or(true)
    }

    fn container_of(&self, call: &Call, file: FileId) -> Option<ContainerId> {
        self.asked(file.volume(), |volume| volume.container_of(call, file)).flatten()
    }

    fn settled_by(&self, call: &Call, file: FileId) -> Option<String> {
        self.asked(file.volume(), |volume| volume.settled_by(call, file)).flatten()
    }

    fn found(&self, call: &Call, at: &At) -> AuditSubject {
        let here = self.asked(at.base.volume(), |volume| volume.found(call, at));
        let here = here.unwrap_or_else(|| AuditSubject {
            object: at.path.is_empty().then_some(at.base),
            ..AuditSubject::default()
        });
        if !super::is_root(at.base.volume()) {
            return here;
        }
        let Ok(Some(across)) = self.root.across_whenever(call, at) else { return here };
        let Some(joined) = self.member_at(across.junction) else { return here };
        let there = joined.member.found(call, &across.rest);
        if !across.rest.path.is_empty() {
            return there;
        }
        // The junction itself: its name is the root's, and whoever has that directory may know.
        let mut subject = AuditSubject { place: here.place, ..there };
        here.container.into_iter().chain(here.also).for_each(|container| subject.touch(container));
        subject
    }

    fn meant_for(&self, call: &Call, stage: StageId) -> Option<At> {
        let of_member = || self.members().values().find_map(|joined| joined.member.meant_for(call, stage));
        self.root.meant_for(call, stage).or_else(of_member)
    }
}

impl SessionWatcher for Tree {
    fn ended(&self, session: SessionId) {
        self.root.ended(session);
        self.members().values().for_each(|joined| joined.member.ended(session));
    }
}
