//! Explanations, made of the same decisions that allow and refuse.

use super::act::Act;
use crate::acl::{Settled, Subject};
use crate::caller::CallerName;
use crate::error::Result;
use crate::form::{At, Why, WhyStep};
use crate::id::FileId;
use crate::name::RelPath;
use crate::rights::Rights;

impl Act<'_> {
    pub(super) fn why(&self, at: &At, need: Rights, who: Option<&CallerName>) -> Result<Why> {
        let caller = &self.call.caller;
        let other = who.filter(|who| *who != caller.name());
        let groups = match other {
            Some(who) => {
                let id = self.existing(at)?;
                self.need(id, Rights::ACL_WRITE)?;
                self.model.groups.groups_of(who)?
            }
            None => Vec::new(),
        };
        let who = other.map_or_else(|| caller.subject(), |who| Subject::named(who, &groups));
        let mut why = Why::begin(caller, &who);
        for (dir, place) in self.passed(at)? {
            let told = other.is_none() || self.has(dir, Rights::ACL_WRITE)?;
            if told && !why.add(self.explain(dir, &place, Rights::TRAVERSE, &who)?) {
                return Ok(why);
            }
        }
        let id = self.existing(at)?;
        if !self.may_know(id) {
            return Err(super::act::hidden());
        }
        why.add(self.explain(id, at, need, &who)?);
        Ok(why)
    }

    /// Returns the directories that an address passes, first to last, up to and with
    /// the first that may not be passed.
    fn passed(&self, at: &At) -> Result<Vec<(FileId, At)>> {
        self.state.inode(at.base)?;
        let mut passed = Vec::new();
        let mut here = RelPath::EMPTY;
        for name in at.path.names() {
            let dir = At { base: at.base, path: here.clone(), follow: crate::form::Follow::Last };
            let Ok(Some(id)) = self.locate(&dir).map(|place| place.id) else { break };
            passed.push((id, dir));
            if !self.has(id, Rights::TRAVERSE)? {
                break;
            }
            here = here.join(&name)?;
        }
        Ok(passed)
    }

    fn explain(&self, id: FileId, place: &At, need: Rights, who: &Subject<'_>) -> Result<WhyStep> {
        let settled = self.settle(id, need, who)?;
        let because =
            need.each().map(|(_, right)| self.reason(id, &settled, right, who)).collect::<Result<_>>()?;
        Ok(WhyStep {
            place: place.to_string(),
            container: self.state.inode(id)?.container,
            needed: need,
            allowed: settled.allowed(),
            because,
        })
    }

    /// Says what settled one right; which entry it was only to those who may read it.
    fn reason(&self, id: FileId, settled: &Settled, right: Rights, who: &Subject<'_>) -> Result<String> {
        let policy = self.state.container(self.state.inode(id)?.container)?;
        let shown = self.has(id, Rights::ACL_READ)?;
        let entry = |index| {
            let words = shown.then(|| policy.acl.words(index)).flatten();
            words.unwrap_or_else(|| "an entry of the ACL".to_owned())
        };
        let inside = self.within(id, who).contains(right);
        Ok(settled.because(right).words(right, inside, entry))
    }
}
