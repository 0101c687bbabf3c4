//! Explanations, made of the same decisions that allow and refuse.

use super::act::{Act, Bits};
use crate::acl::{Because, Decision};
use crate::caller::CallerName;
use crate::error::{Error, Result};
use crate::form::{At, Why, WhyStep};
use crate::id::FileId;
use crate::name::{Name, RelPath};
use crate::rights::Rights;

impl Act<'_> {
    pub(super) fn why(&self, at: &At, need: Rights, who: Option<&CallerName>) -> Result<Why> {
        let caller = &self.call.caller;
        if who.is_some_and(|who| who != caller.name()) {
            let id = self.existing(at)?;
            self.need(id, Rights::ACL_READ)?;
            return Err(Error::unsupported("deciding for others needs their credential")
                .hint("ask them to run `weft why`"));
        }
        let mut why = Why {
            allowed: true,
            caller: caller.name().clone(),
            evidence: format!("{:?}, credential {}", caller.claims().evidence, caller.credential()),
            steps: Vec::new(),
        };
        let passed = self.passed(at)?;
        for (dir, path) in passed {
            why.steps.push(self.explain(dir, &path, Rights::TRAVERSE)?);
            if why.steps.last().is_some_and(|step| step.allowed != step.needed) {
                why.allowed = false;
                return Ok(why);
            }
        }
        let id = self.existing(at)?;
        if !self.may_know(id) {
            return Err(super::act::hidden());
        }
        let path = self.paths_of(id).into_iter().next().unwrap_or_default();
        let step = self.explain(id, &path, need)?;
        why.allowed = step.allowed == step.needed;
        why.steps.push(step);
        Ok(why)
    }

    /// Returns the directories that an address passes, first to last, up to and with
    /// the first that may not be passed.
    fn passed(&self, at: &At) -> Result<Vec<(FileId, Vec<Name>)>> {
        self.state.inode(at.base)?;
        let mut passed = Vec::new();
        let mut here = RelPath::EMPTY;
        for name in at.path.names() {
            let dir = At { base: at.base, path: here.clone(), follow: crate::form::Follow::Last };
            let Ok(Some(id)) = self.locate(&dir).map(|place| place.id) else { break };
            passed.push((id, self.paths_of(id).into_iter().next().unwrap_or_default()));
            if !self.has(id, Rights::TRAVERSE)? {
                break;
            }
            here = here.join(&name)?;
        }
        Ok(passed)
    }

    fn explain(&self, id: FileId, path: &[Name], need: Rights) -> Result<WhyStep> {
        let decision = self.decide(id, need, Bits::Count)?;
        let in_full = self.has(id, Rights::ACL_READ)?;
        let because = need.each().map(|(_, right)| self.reason(id, &decision, right, in_full)).collect();
        Ok(WhyStep {
            place: path.iter().fold(String::from("/"), |text, name| {
                if text == "/" { format!("/{name}") } else { format!("{text}/{name}") }
            }),
            container: decision.container(),
            needed: need,
            allowed: decision.allowed(),
            because,
        })
    }

    /// Says what settled one right; which entry it was only to those who may read it.
    fn reason(&self, id: FileId, decision: &Decision, right: Rights, in_full: bool) -> String {
        let entry = |index: u16| {
            let container = self.state.container(decision.container()).ok()?;
            let entry = container.acl.entries.get(usize::from(index)).filter(|_| in_full)?;
            let when: Vec<String> = entry.when.iter().map(ToString::to_string).collect();
            let when = if when.is_empty() { String::new() } else { format!(" when {}", when.join(" and ")) };
            Some(format!("entry {index} ({:?}: {}{when})", entry.who, entry.rights))
        };
        let entry = |index| entry(index).unwrap_or_else(|| "an entry of the ACL".to_owned());
        match decision.because(right) {
            Because::NoEntry => format!("{right}: no entry gives it"),
            Because::Allowed(index) => format!("{right}: {} gives it", entry(index)),
            Because::Withheld(index) => format!("{right}: {} withholds it", entry(index)),
            Because::Narrowed => format!("{right}: the credential was narrowed and does not carry it"),
            Because::Mode if !self.within_paths(id).contains(right) => {
                format!("{right}: the credential is limited to other paths")
            }
            Because::Mode => format!("{right}: the mode bits withhold it"),
        }
    }
}
