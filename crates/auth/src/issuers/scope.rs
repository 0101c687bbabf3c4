//! What the scopes of a token come to here: rights, each at a path.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER_PERMISSIVE;
use weft_core::proof::Scope;
use weft_core::{Error, ErrorKind, Name, RelPath, Result, Rights, limits};

/// By whose rules a token says what its holder may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Profile {
    /// Those of the WLCG, version 1.
    Wlcg,
    /// SciTokens, version 2.
    SciTokens,
}

/// What looking takes, and what all who may do something at a path may do there.
const LOOK: Rights = Rights::from_bits(Rights::TRAVERSE.bits() | Rights::ATTR_READ.bits());
const READ: Rights = Rights::from_bits(LOOK.bits() | Rights::READ.bits() | Rights::LIST.bits());
/// A new name, and nothing of what is there.
const CREATE: Rights = Rights::from_bits(LOOK.bits() | Rights::INSERT.bits());
const MODIFY: Rights = Rights::from_bits(
    CREATE.bits()
        | Rights::WRITE.bits()
        | Rights::APPEND.bits()
        | Rights::REMOVE.bits()
        | Rights::RENAME.bits()
        | Rights::ATTR_WRITE.bits()
        | Rights::LOCK.bits(),
);

impl Profile {
    /// Returns what an authorization of that name allows; none for what is nothing of storage.
    fn rights(self, name: &str) -> Option<Rights> {
        Some(match (self, name) {
            // Staging is reading what must be brought first, which nothing here must.
            (Self::Wlcg, "storage.read" | "storage.stage") | (Self::SciTokens, "read") => READ,
            (Self::Wlcg, "storage.create") => CREATE,
            (Self::Wlcg, "storage.modify") | (Self::SciTokens, "write") => MODIFY,
            (Self::Wlcg, "storage.poll") => LOOK,
            _ => return None,
        })
    }
}

/// Returns whether a token says itself what it may do, with files or otherwise: then its groups are nothing.
pub(super) fn says_anything(profile: Profile, text: &str) -> bool {
    text.split(' ').any(|word| {
        let name = word.split_once(':').map_or(word, |(name, _)| name);
        profile.rights(name).is_some() || name.starts_with("storage.") || name.starts_with("compute.")
    })
}

/// Returns what somebody may do at a base who is let in by a group: all that a token can say, as far as they may.
pub(super) fn of_member(base: &RelPath) -> Scope {
    Scope { path: base.clone(), rights: READ | MODIFY }
}

/// Reads the scopes of a token, whose paths begin at `base`. Words that are nothing of storage, or name no path,
/// give nothing. Fails with `Unauthenticated` on a path that is not one, `TooLarge` if there are too many.
pub(super) fn scopes(profile: Profile, text: &str, base: &RelPath) -> Result<Vec<Scope>> {
    let mut found: BTreeMap<RelPath, Rights> = BTreeMap::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let Some((name, path)) = word.split_once(':') else { continue };
        let Some(rights) = profile.rights(name) else { continue };
        *found.entry(below(base, path)?).or_default() |= rights;
        if found.len() > limits::SCOPES_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "the token names more paths than a token may"));
        }
    }
    Ok(found.into_iter().map(|(path, rights)| Scope { path, rights }).collect())
}

/// Returns where a scope's path leads below a base. It is read as it stands: nothing in it is resolved, so that
/// nothing leads out.
fn below(base: &RelPath, path: &str) -> Result<RelPath> {
    let wrong = || Error::new(ErrorKind::Unauthenticated, "a scope of the token names no path");
    let rest = path.strip_prefix('/').ok_or_else(wrong)?;
    if rest.is_empty() {
        return Ok(base.clone());
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    rest.split('/').try_fold(base.clone(), |at, coded| {
        let name = Name::new(decoded(coded).ok_or_else(wrong)?).map_err(|error| wrong().caused_by(error))?;
        at.join(&name).map_err(|error| wrong().caused_by(error))
    })
}

/// Undoes the coding of a name, once; none where it is broken.
fn decoded(coded: &str) -> Option<Vec<u8>> {
    let mut pieces = coded.split('%');
    let mut name = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        name.extend(HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok()?);
        name.extend(rest.as_bytes());
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use weft_conformance::file_system::site::Dice;
    use weft_conformance::fuzz::fuzz;

    use super::*;

    fn read(profile: Profile, text: &str, base: &str) -> Result<Vec<(String, Rights)>> {
        let base = RelPath::try_from(base).expect("a path");
        let found = scopes(profile, text, &base)?;
        Ok(found.into_iter().map(|scope| (scope.path.to_string(), scope.rights)).collect())
    }

    #[test]
    fn each_authorization_gives_its_rights_at_its_path_below_the_base() {
        use Profile::{SciTokens, Wlcg};
        let one = |path: &str, rights| vec![(path.to_owned(), rights)];
        for (profile, text, expected) in [
            (Wlcg, "storage.read:/", one("exp", READ)),
            (Wlcg, "storage.read:/x", one("exp/x", READ)),
            (Wlcg, "storage.read:/x/", one("exp/x", READ)),
            (Wlcg, "storage.stage:/x", one("exp/x", READ)),
            (Wlcg, "storage.poll:/x", one("exp/x", LOOK)),
            (Wlcg, "storage.create:/x", one("exp/x", CREATE)),
            (Wlcg, "storage.modify:/x", one("exp/x", MODIFY)),
            (Wlcg, "storage.read:/a%20b", one("exp/a b", READ)),
            (Wlcg, " openid  storage.read:/x offline_access", one("exp/x", READ)),
            (SciTokens, "read:/x", one("exp/x", READ)),
            (SciTokens, "write:/x", one("exp/x", MODIFY)),
            // Nothing of storage, another profile's, and what names no path.
            (Wlcg, "read:/x compute.read storage.read STORAGE.READ:/x storage.readx:/x", vec![]),
            (SciTokens, "storage.read:/x read write queue:/x", vec![]),
            (Wlcg, "", vec![]),
        ] {
            assert_eq!(read(profile, text, "exp").expect("good"), expected, "{text}");
        }
        let both = read(Wlcg, "storage.read:/x storage.create:/x storage.modify:/y", "").expect("good");
        assert_eq!(both, [("x".to_owned(), READ | CREATE), ("y".to_owned(), MODIFY)]);
    }

    #[test]
    fn creating_is_neither_overwriting_nor_removing_and_nothing_changes_policies() {
        let change = Rights::WRITE | Rights::APPEND | Rights::REMOVE | Rights::RENAME | Rights::ATTR_WRITE;
        assert!(!CREATE.intersects(change | Rights::READ | Rights::LIST));
        assert!(!READ.intersects(change | Rights::INSERT));
        assert!(MODIFY.contains(CREATE) && !MODIFY.contains(Rights::READ));
        assert_eq!(LOOK, Rights::TRAVERSE | Rights::ATTR_READ);
        let others = Rights::ACL_READ | Rights::ACL_WRITE | Rights::AUDIT_READ | Rights::EXECUTE;
        assert!(!(READ | MODIFY).intersects(others | Rights::MIGRATE | Rights::LOT | Rights::MAINTAIN));
    }

    #[test]
    fn a_path_that_leads_elsewhere_or_is_none_refuses_the_token() {
        for path in [
            "x",
            "",
            "..",
            "/..",
            "/../y",
            "/x/../y",
            "/x/./y",
            "/.",
            "//",
            "//x",
            "/x//y",
            "/x//",
            "/%2e%2e/y",
            "/%2E%2E",
            "/x%2fy",
            "/x%2F..%2Fy",
            "/x%00",
            "/%",
            "/%2",
            "/%zz",
            "/x%2",
            "/%+f",
        ] {
            for (profile, name) in [(Profile::Wlcg, "storage.read"), (Profile::SciTokens, "write")] {
                let text = format!("{name}:/good {name}:{path}");
                let error = read(profile, &text, "exp").expect_err(path);
                assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{path}");
            }
        }
        // Undone once: what is coded twice is a name with a `%` in it.
        let twice = read(Profile::Wlcg, "storage.read:/%252e%252e", "exp").expect("a name");
        assert_eq!(twice, [("exp/%2e%2e".to_owned(), READ)]);
    }

    #[test]
    fn there_are_no_more_scopes_than_a_token_may_have() {
        let many =
            |count: usize| (0..count).map(|n| format!("storage.read:/{n}")).collect::<Vec<_>>().join(" ");
        assert_eq!(
            read(Profile::Wlcg, &many(limits::SCOPES_MAX), "").expect("good").len(),
            limits::SCOPES_MAX
        );
        let error = read(Profile::Wlcg, &many(limits::SCOPES_MAX + 1), "").expect_err("too many");
        assert_eq!(error.kind(), ErrorKind::TooLarge);
    }

    #[test]
    fn no_mutated_scope_leads_out_of_the_base_or_gives_more_than_its_words() {
        let base = RelPath::try_from("exp/here").expect("a path");
        let make = |dice: &mut Dice| {
            let words =
                ["storage.read:/", "storage.create:/a/b", "storage.modify:/%2e", "write:/../x", "read:/a//"];
            let count = 1 + dice.roll(4);
            (0..count).map(|_| *dice.pick(&words)).collect::<Vec<_>>().join(" ").into_bytes()
        };
        fuzz("scopes", make, |bytes| {
            let text = String::from_utf8_lossy(bytes);
            for profile in [Profile::Wlcg, Profile::SciTokens] {
                let Ok(found) = scopes(profile, &text, &base) else { continue };
                for scope in found {
                    assert!(scope.path.is_within(&base), "{}", scope.path);
                    assert!((READ | MODIFY).contains(scope.rights));
                    assert!(
                        !scope.rights.intersects(Rights::WRITE)
                            || text.contains("modify:")
                            || text.contains("write:")
                    );
                }
            }
        });
    }
}
