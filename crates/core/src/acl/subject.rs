//! Whom a policy is read for.

use std::ops::BitOr;
use std::sync::Arc;

use super::Circumstance;
use crate::caller::CallerName;
use crate::error::{Error, Result};
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
        self.left_by(|limit, rights| reach(limit, rights, path))
    }

    /// Fails with `Denied` if its credential leaves more of something at one of `to` than it does at all its places
    /// `from`: what is said of one place is not brought to another. Of a directory it counts for all below it.
    pub fn must_gain_nothing(&self, from: &[Vec<Name>], to: &[Vec<Name>], is_directory: bool) -> Result<()> {
        let had = from.iter().fold(Rights::NONE, |had, path| had | self.left_at(path));
        let has = to.iter().fold(Rights::NONE, |has, path| {
            has | match is_directory {
                true => self.left_by(|limit, rights| reach_below(limit, rights, path)),
                false => self.left_at(path),
            }
        });
        if (had | Rights::TRAVERSE).contains(has) {
            return Ok(());
        }
        let detail = format!("the credential gives `{}` at the new place, and not where it is", has - had);
        Err(Error::denied(detail).caller(self.name))
    }

    /// Returns what its credential leaves, if `reach` says how far what holds at and below a path does.
    fn left_by(&self, reach: impl Fn(&RelPath, Rights) -> Rights) -> Rights {
        let mut left = Rights::ALL;
        if !self.limits.paths.is_empty() {
            let given = self.limits.paths.iter().map(|limit| reach(limit, Rights::ALL));
            left = given.fold(Rights::NONE, BitOr::bitor);
        }
        if let Confines::Scopes(scopes) = self.confines {
            let given = scopes.iter().map(|scope| reach(&scope.path, scope.rights));
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

/// Returns the most that rights which hold at and below `limit` come to anywhere at or below a path.
fn reach_below(limit: &RelPath, rights: Rights, path: &[Name]) -> Rights {
    if limit.names().zip(path).all(|(name, own)| name == *own) { rights } else { Rights::NONE }
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
        asked(paths, scopes, |who| who.left_at(&names(at)))
    }

    fn asked<T>(paths: &[&str], scopes: Option<&[(&str, Rights)]>, ask: impl FnOnce(&Subject<'_>) -> T) -> T {
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
        ask(&who)
    }

    #[test]
    fn another_place_gives_no_right_that_the_first_did_not_nor_to_what_is_below() {
        let (write, read) = (Rights::WRITE | Rights::INSERT | Rights::REMOVE, Rights::READ);
        let scopes = Some(&[("w", write), ("w/pub", read), ("ro", read), ("both", write | read)][..]);
        for (from, to, file, directory) in [
            ("w/a", "w/b", true, true),
            ("w/a", "w/pub/a", false, false),
            ("w/a", "ro/a", false, false),
            ("w/pub/a", "w/a", true, true),
            ("w/pub/a", "both/a", true, true),
            ("both/a", "w/pub/a", true, true),
            ("ro/a", "both/a", false, false),
            // What is below it may come to lie at `w/pub`.
            ("w/a", "w", true, false),
            ("both/a", "w", true, true),
            ("w/a", "else/a", true, true),
        ] {
            for (is_directory, expected) in [(false, file), (true, directory)] {
                let asked = asked(&[], scopes, |who| {
                    who.must_gain_nothing(&[names(from)], &[names(to)], is_directory).is_ok()
                });
                assert_eq!(asked, expected, "{from} to {to}, a directory: {is_directory}");
            }
        }
        let several = |who: &Subject<'_>| {
            who.must_gain_nothing(&[names("w/a"), names("ro/a")], &[names("ro/b")], false).is_ok()
        };
        assert!(asked(&[], scopes, several), "one of its names has it");
        let inside =
            |who: &Subject<'_>| who.must_gain_nothing(&[names("a/b")], &[names("a/c")], true).is_ok();
        assert!(asked(&["a", "a/c/d"], None, inside));
        assert!(asked(&[], None, inside));
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
