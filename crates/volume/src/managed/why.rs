//! Explanations, made of the same decisions that allow and refuse.

use weft_core::acl::{Because, Settled, Subject};
use weft_core::form::{At, Follow, Why, WhyStep};
use weft_core::{CallerName, ContainerId, FileId, RelPath, Result, Rights};

use super::act::words;
use super::table::containers::Head;
use super::view::{Governing, Node, View, hidden};

impl View<'_> {
    /// Says in words what of a container's policy settled a right.
    pub(super) fn settled_by(&self, governing: &Governing, right: Rights) -> String {
        words(&self.explain_by(governing, right, &self.call.caller.subject()), right)
    }

    /// Explains for the caller itself; for somebody else, by name, to whoever may change the
    /// policy there.
    pub(super) fn why(&self, at: &At, need: Rights, who: Option<&CallerName>) -> Result<Why> {
        if self.other(who).is_some() {
            self.need(&self.existing(at)?, Rights::ACL_WRITE)?;
        }
        self.judged_for(who, |who| {
            let mut why = self.on_the_way(at, who)?;
            if !why.allowed {
                return Ok(why);
            }
            let node = self.existing(at)?;
            if !self.may_know(&node)? {
                return Err(hidden());
            }
            why.add(self.explain(&node, at, need, who)?);
            Ok(why)
        })
    }

    /// Explains only the way that an address takes through this volume: for one that leads out of it.
    pub(super) fn why_may_pass(&self, at: &At, who: Option<&CallerName>) -> Result<Why> {
        self.judged_for(who, |who| self.on_the_way(at, who))
    }

    /// Returns whom an explanation is about if that is not the caller.
    fn other<'n>(&self, who: Option<&'n CallerName>) -> Option<&'n CallerName> {
        who.filter(|who| *who != self.call.caller.name())
    }

    fn judged_for<T>(
        &self,
        who: Option<&CallerName>,
        judge: impl FnOnce(&Subject<'_>) -> Result<T>,
    ) -> Result<T> {
        match self.other(who) {
            Some(who) => judge(&Subject::named(who, &self.volume.groups.groups_of(who)?)),
            None => judge(&self.call.caller.subject()),
        }
    }

    /// Explains each directory that an address passes, up to the first that may not be passed. Of
    /// somebody else, only those whose policy the caller may change.
    fn on_the_way(&self, at: &At, who: &Subject<'_>) -> Result<Why> {
        let caller = &self.call.caller;
        let mut why = Why::begin(caller, who);
        for (dir, place) in self.passed(at)? {
            let told = who.name() == caller.name() || self.has(&dir, Rights::ACL_WRITE)?;
            if told && !why.add(self.explain(&dir, &place, Rights::TRAVERSE, who)?) {
                break;
            }
        }
        Ok(why)
    }

    /// Says what settled that the caller may read a file, as [`View::why`] does in its last step.
    pub(super) fn read_settled_by(&self, file: FileId) -> Result<String> {
        let node = self.node(file)?;
        let weighed = self.weigh(&node, Rights::READ, &self.call.caller.subject())?;
        let Because::Allowed(entry) = weighed.settled.because(Rights::READ) else {
            return Ok(weighed.words(Rights::READ));
        };
        let Governing { container, head, .. } = weighed.governing;
        let key = Told { container, head, entry, shown: weighed.shown };
        let told = &self.volume.told;
        if let Some(words) = told.get(&key) {
            return Ok(words.to_string());
        }
        let words = weighed.words(Rights::READ);
        told.insert(key, words.as_str().into());
        Ok(words)
    }

    /// Returns the directories that an address passes, first to last, up to and with
    /// the first that may not be passed.
    fn passed(&self, at: &At) -> Result<Vec<(Node, At)>> {
        self.node(at.base)?;
        let mut passed = Vec::new();
        let mut here = RelPath::EMPTY;
        for name in at.path.names() {
            let dir = At { base: at.base, path: here.clone(), follow: Follow::Last };
            let Ok(Some(node)) = self.locate(&dir).map(|place| place.node) else { break };
            if self.joined(&node)?.is_some() {
                break;
            }
            let may_pass = self.has(&node, Rights::TRAVERSE)?;
            passed.push((node, dir));
            if !may_pass {
                break;
            }
            here = here.join(&name)?;
        }
        Ok(passed)
    }

    fn explain(&self, node: &Node, place: &At, need: Rights, who: &Subject<'_>) -> Result<WhyStep> {
        let weighed = self.weigh(node, need, who)?;
        Ok(WhyStep {
            // Not the path there is, which an id alone does not tell.
            place: place.to_string(),
            container: node.inode.container,
            needed: need,
            allowed: weighed.settled.allowed(),
            because: need.each().map(|(_, right)| weighed.words(right)).collect(),
        })
    }

    fn weigh(&self, node: &Node, need: Rights, who: &Subject<'_>) -> Result<Weighed> {
        let settled = self.settle(node, need, who)?;
        let governing = self.governing(node.inode.container)?;
        let shown = self.has(node, Rights::ACL_READ)?;
        let left = self.within(node, who)?;
        Ok(Weighed { settled, governing, shown, left })
    }
}

/// What settled some rights on an inode, and how much of that the caller may be told.
struct Weighed {
    settled: Settled,
    governing: Governing,
    /// Whether the entries may be shown.
    shown: bool,
    /// What the credential's paths leave.
    left: Rights,
}

/// The words for a right to read that an entry gave: of one policy they never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Told {
    container: ContainerId,
    head: Head,
    entry: u16,
    shown: bool,
}

impl Weighed {
    /// Says what settled one of the rights; which entry it was only to those who may read it.
    fn words(&self, right: Rights) -> String {
        let rules = self.shown.then_some(&*self.governing.rules);
        let entry = |index| rules.and_then(|rules| rules.acl.words(index)).unwrap_or_else(untold);
        self.settled.because(right).words(right, self.left.contains(right), entry)
    }
}

/// An entry of which its reader is told no more.
fn untold() -> String {
    "an entry of the ACL".to_owned()
}
