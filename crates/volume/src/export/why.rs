//! Explanations, made of the same decisions that allow and refuse.

use weft_core::acl::{Settled, Subject};
use weft_core::form::{At, Follow, Why, WhyStep};
use weft_core::{CallerName, RelPath, Result, Rights};

use super::view::{Node, View, hidden};

impl View<'_> {
    /// Explains for the caller itself; for somebody else, by name, to whoever may change the policy there.
    pub(super) fn why(&self, at: &At, need: Rights, who: Option<&CallerName>) -> Result<Why> {
        let caller = &self.call.caller;
        let other = who.filter(|who| *who != caller.name());
        let groups = match other {
            Some(who) => {
                self.need(&self.existing(at)?, Rights::ACL_WRITE)?;
                self.volume.groups.groups_of(who)?
            }
            None => Vec::new(),
        };
        let who = other.map_or_else(|| caller.subject(), |who| Subject::named(who, &groups));
        let mut why = Why::begin(caller, &who);
        for (dir, place) in self.passed(at)? {
            let told = other.is_none() || self.has(&dir, Rights::ACL_WRITE);
            if told && !why.add(self.explain(&dir, &place, Rights::TRAVERSE, &who)) {
                return Ok(why);
            }
        }
        let node = self.existing(at)?;
        if !self.may_know(&node) {
            return Err(hidden());
        }
        why.add(self.explain(&node, at, need, &who));
        Ok(why)
    }

    /// Returns the directories that an address passes, first to last, up to and with the first that may
    /// not be passed.
    fn passed(&self, at: &At) -> Result<Vec<(Node, At)>> {
        self.node(at.base)?;
        let mut passed = Vec::new();
        let mut here = RelPath::EMPTY;
        for name in at.path.names() {
            let dir = At { base: at.base, path: here.clone(), follow: Follow::Last };
            let Ok(Some(node)) = self.locate(&dir).map(|place| place.node) else { break };
            let may_pass = self.has(&node, Rights::TRAVERSE);
            passed.push((node, dir));
            if !may_pass {
                break;
            }
            here = here.join(&name)?;
        }
        Ok(passed)
    }

    fn explain(&self, node: &Node, place: &At, need: Rights, who: &Subject<'_>) -> WhyStep {
        let given = self.settle_at(&node.path, &node.bound, need, who);
        let left = self.left_by_machine(node);
        let settled = given.clone().narrowed(left);
        let rules = self.has(node, Rights::ACL_READ).then_some(node.bound.acl());
        let entry =
            |index| rules.and_then(|acl| acl.words(index)).unwrap_or_else(|| "an entry of the ACL".into());
        let inside = self.within(&node.path, who);
        let whose = if self.user.is_some() { "who shared the directory" } else { "whom the node runs as" };
        let words = |right: Rights| match given.allowed().contains(right) && !left.contains(right) {
            true => format!("{right}: the machine refuses it to the user {whose}"),
            false => because(&settled, right, inside, entry),
        };
        WhyStep {
            // Not the path there is, which an id alone does not tell.
            place: place.to_string(),
            container: node.bound.container,
            needed: need,
            allowed: settled.allowed(),
            because: need.each().map(|(_, right)| words(right)).collect(),
        }
    }
}

fn because(settled: &Settled, right: Rights, inside: Rights, entry: impl Fn(u16) -> String) -> String {
    settled.because(right).words(right, inside.contains(right), entry)
}
