//! Whom a policy is read for.

use std::ops::BitOr;
use std::sync::Arc;

use super::Circumstance;
use crate::caller::CallerName;
use crate::id::CallerId;
use crate::name::{Name, RelPath};
use crate::proof::{Attenuation, Confines, CredentialClaims, Within};
use crate::rights::Rights;

static WHOLE: Attenuation = Attenuation::NONE;

/// What of somebody decides what an ACL and mode bits give: all that is looked at, and no proof
/// of anything. A [`Caller`](crate::proof::Caller) is one; so is a name that a policy is only
/// explained for.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    name: &'a CallerName,
    groups: Groups<'a>,
    attributes: &'a [(String, String)],
    limits: &'a Attenuation,
    confines: &'a Confines,
}

/// Groups in rising order.
#[derive(Clone, Debug)]
enum Groups<'a> {
    Said(&'a [CallerId]),
    Changed(Arc<[CallerId]>),
}

impl<'a> Subject<'a> {
    /// Returns whom a credential speaks of, in the groups that it says or in those that its caller is in since. They
    /// are in rising order.
    pub(crate) fn of(claims: &'a CredentialClaims, changed: Option<Arc<[CallerId]>>) -> Self {
        let CredentialClaims { caller: name, groups, attributes, limits, confines, .. } = claims;
        let groups = changed.map_or(Groups::Said(groups), Groups::Changed);
        Self { name, groups, attributes, limits, confines }
    }

    /// Returns somebody by name, as it would come with a credential that was not narrowed and
    /// carries no attributes. The groups are in rising order.
    pub fn named(name: &'a CallerName, groups: &'a [CallerId]) -> Self {
        Self {
            name,
            groups: Groups::Said(groups),
            attributes: &[],
            limits: &WHOLE,
            confines: &Confines::Everywhere,
        }
    }

    /// Returns who it is.
    pub fn name(&self) -> &'a CallerName {
        self.name
    }

    /// Returns the groups it is in.
    pub fn groups(&self) -> &[CallerId] {
        match &self.groups {
            Groups::Said(groups) => groups,
            Groups::Changed(groups) => groups,
        }
    }

    /// Returns whether the id is its own or that of one of its groups.
    pub fn is_or_is_in(&self, id: CallerId) -> bool {
        self.name.id() == id || self.groups().binary_search(&id).is_ok()
    }

    /// Returns an attribute its credential carries.
    pub fn attribute(&self, name: &str) -> Option<&'a str> {
        self.attributes.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Returns what its credential was narrowed to.
    pub fn limits(&self) -> &'a Attenuation {
        self.limits
    }

    /// Returns the one thing that its credential is confined to, if it is a link's.
    pub fn within(&self) -> Option<&'a Within> {
        match self.confines {
            Confines::Within(within) => Some(within),
            Confines::Everywhere | Confines::Scopes(_) => None,
        }
    }

    /// Returns whether its credential reaches some places only.
    pub fn is_confined(&self) -> bool {
        !self.limits.paths.is_empty() || *self.confines != Confines::Everywhere
    }

    /// Returns whether what its credential leaves differs by path.
    pub fn is_confined_by_path(&self) -> bool {
        !self.limits.paths.is_empty() || matches!(self.confines, Confines::Scopes(_))
    }

    /// Returns what its credential leaves of the rights on something at a path from the root of the tree: of
    /// paths everything at and below them, of scopes what those say that reach so far, on the way to either
    /// `traverse`, elsewhere nothing. What it leaves at one of the names of a thing, it leaves of the thing.
    pub fn left_at(&self, path: &[Name]) -> Rights {
        let mut left = Rights::ALL;
        if !self.limits.paths.is_empty() {
            left = self
                .limits
                .paths
                .iter()
                .map(|limit| reach(limit, Rights::ALL, path))
                .fold(Rights::NONE, BitOr::bitor);
        }
        if let Confines::Scopes(scopes) = self.confines {
            let given = scopes.iter().map(|scope| reach(&scope.path, scope.rights, path));
            left = left & given.fold(Rights::NONE, BitOr::bitor);
        }
        left
    }

    /// Returns the rights its credential may carry in these circumstances: none from an address
    /// or at a time it was not made for.
    pub fn rights_at(&self, at: &Circumstance) -> Rights {
        let limits = self.limits;
        if limits.admits_host(at.peer) && at.now.wall >= limits.from { limits.rights } else { Rights::NONE }
    }
}

/// Returns what rights that hold at and below `limit` come to at a path: compared name by name, never by letters.
fn reach(limit: &RelPath, rights: Rights, path: &[Name]) -> Rights {
    let mut at = path.iter();
    for name in limit.names() {
        match at.next() {
            Some(own) if *own == name => {}
            Some(_) => return Rights::NONE,
            None => return Rights::TRAVERSE,
        }
    }
    rights
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::DomainId;
    use crate::proof::Scope;

    fn names(path: &str) -> Vec<Name> {
        path.split('/')
            .filter(|name| !name.is_empty())
            .map(|name| Name::try_from(name).expect("a name"))
            .collect()
    }

    fn left(paths: &[&str], scopes: Option<&[(&str, Rights)]>, at: &str) -> Rights {
        let name = CallerName::user("cms", DomainId([1; 32])).expect("a name");
        let path = |text: &str| RelPath::try_from(text).expect("a path");
        let limits =
            Attenuation { paths: paths.iter().map(|text| path(text)).collect(), ..Attenuation::NONE };
        let scope = |(at, rights): &(&str, Rights)| Scope { path: path(at), rights: *rights };
        let confines =
            scopes.map_or(Confines::Everywhere, |all| Confines::Scopes(all.iter().map(scope).collect()));
        let who = Subject {
            name: &name,
            groups: Groups::Said(&[]),
            attributes: &[],
            limits: &limits,
            confines: &confines,
        };
        assert_eq!(who.is_confined_by_path(), !paths.is_empty() || scopes.is_some());
        assert_eq!(who.is_confined(), who.is_confined_by_path());
        who.left_at(&names(at))
    }

    #[test]
    fn scopes_give_their_own_rights_at_their_own_paths_and_never_their_union() {
        let (read, insert) = (Rights::READ | Rights::TRAVERSE, Rights::INSERT);
        let scopes = Some(&[("data", read), ("data/in", insert), ("out/box", insert)][..]);
        for (at, expected) in [
            ("", Rights::TRAVERSE),
            ("data", read),
            ("data/x/y", read),
            ("data/in", read | insert),
            ("data/in/x", read | insert),
            ("data/input", read),
            ("database", Rights::NONE),
            ("out", Rights::TRAVERSE),
            ("out/box", insert),
            ("out/boxes", Rights::NONE),
            ("other", Rights::NONE),
        ] {
            assert_eq!(left(&[], scopes, at), expected, "{at}");
        }
    }

    #[test]
    fn no_scope_is_no_right_and_narrowing_by_path_takes_from_scopes() {
        assert_eq!(left(&[], Some(&[]), ""), Rights::NONE);
        assert_eq!(left(&[], None, "a"), Rights::ALL);
        let scopes = Some(&[("a", Rights::READ)][..]);
        assert_eq!(left(&["a/b"], scopes, "a/b/c"), Rights::READ);
        assert_eq!(left(&["a/b"], scopes, "a/c"), Rights::NONE);
        assert_eq!(left(&["c"], scopes, "a"), Rights::NONE);
        assert_eq!(left(&["c", "a"], scopes, "a"), Rights::READ);
    }
}
