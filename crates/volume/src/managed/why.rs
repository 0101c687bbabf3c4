//! Explanations, made of the same decisions that allow and refuse.

use weft_core::acl::{Because, Decision, decide};
use weft_core::form::{At, Follow, Why, WhyStep};
use weft_core::{CallerName, Error, Name, RelPath, Result, Rights};

use super::act::words;
use super::table::containers::Rules;
use super::view::{Bits, Governing, Node, View, hidden};

impl View<'_> {
    /// Says in words what of a container's policy settled a right.
    pub(super) fn settled_by(&self, governing: &Governing, right: Rights) -> String {
        words(&decide(&governing.rules.acl, &self.call.caller, &self.ask(governing, right)), right)
    }

    pub(super) fn why(&self, at: &At, need: Rights, who: Option<&CallerName>) -> Result<Why> {
        let caller = &self.call.caller;
        if who.is_some_and(|who| who != caller.name()) {
            let node = self.existing(at)?;
            self.need(&node, Rights::ACL_READ)?;
            return Err(Error::unsupported("deciding for others needs their credential")
                .hint("ask them to run `weft why`"));
        }
        let mut why = Why {
            allowed: true,
            caller: caller.name().clone(),
            evidence: format!("{:?}, credential {}", caller.claims().evidence, caller.credential()),
            steps: Vec::new(),
        };
        for dir in self.passed(at)? {
            let step = self.explain(&dir, Rights::TRAVERSE)?;
            why.allowed = step.allowed == step.needed;
            why.steps.push(step);
            if !why.allowed {
                return Ok(why);
            }
        }
        let node = self.existing(at)?;
        if !self.may_know(&node)? {
            return Err(hidden());
        }
        let step = self.explain(&node, need)?;
        why.allowed = step.allowed == step.needed;
        why.steps.push(step);
        Ok(why)
    }

    /// Returns the directories that an address passes, first to last, up to and with
    /// the first that may not be passed.
    fn passed(&self, at: &At) -> Result<Vec<Node>> {
        self.node(at.base)?;
        let mut passed = Vec::new();
        let mut here = RelPath::EMPTY;
        for name in at.path.names() {
            let dir = At { base: at.base, path: here.clone(), follow: Follow::Last };
            let Ok(Some(node)) = self.locate(&dir).map(|place| place.node) else { break };
            let may_pass = self.has(&node, Rights::TRAVERSE)?;
            passed.push(node);
            if !may_pass {
                break;
            }
            here = here.join(&name)?;
        }
        Ok(passed)
    }

    fn explain(&self, node: &Node, need: Rights) -> Result<WhyStep> {
        let decision = self.decide(node, need, Bits::Count)?;
        let governing = self.governing(node.inode.container)?;
        let rules = self.has(node, Rights::ACL_READ)?.then_some(&*governing.rules);
        let left = self.within_paths(node)?;
        let because = need.each().map(|(_, right)| reason(&decision, right, rules, left)).collect();
        let path = self.paths_of(node)?.into_iter().next().unwrap_or_default();
        Ok(WhyStep {
            place: shown(&path),
            container: decision.container(),
            needed: need,
            allowed: decision.allowed(),
            because,
        })
    }
}

fn shown(path: &[Name]) -> String {
    let mut text = String::new();
    for name in path {
        text.push('/');
        text.push_str(&name.to_string());
    }
    if text.is_empty() { "/".to_owned() } else { text }
}

/// Says what settled one right; which entry it was only to those who may read it.
fn reason(decision: &Decision, right: Rights, rules: Option<&Rules>, left: Rights) -> String {
    let entry = |index: u16| {
        let entry = rules.and_then(|rules| rules.acl.entries.get(usize::from(index)));
        let Some(entry) = entry else { return "an entry of the ACL".to_owned() };
        let when: Vec<String> = entry.when.iter().map(ToString::to_string).collect();
        let when = if when.is_empty() { String::new() } else { format!(" when {}", when.join(" and ")) };
        format!("entry {index} ({:?}: {}{when})", entry.who, entry.rights)
    };
    match decision.because(right) {
        Because::NoEntry => format!("{right}: no entry gives it"),
        Because::Allowed(index) => format!("{right}: {} gives it", entry(index)),
        Because::Withheld(index) => format!("{right}: {} withholds it", entry(index)),
        Because::Narrowed => format!("{right}: the credential was narrowed and does not carry it"),
        Because::Mode if !left.contains(right) => {
            format!("{right}: the credential is limited to other paths")
        }
        Because::Mode => format!("{right}: the mode bits withhold it"),
    }
}
