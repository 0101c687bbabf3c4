//! Links: what is asked for by a secret in the path, without an account.
//!
//! ```text
//!   /.weft/link/SECRET/NAME       a file: curl -O and browsers find its name in the target
//!   /.weft/link/SECRET/           a directory's listing; what it names is relative to it
//!   /.weft/link/SECRET/a/b.txt    what lies below
//!   PUT /.weft/link/SECRET/NAME   drops a file, if the link is to a drop-box
//! ```
//!
//! The secret stands in the path, so that relative names in a listing carry it along, and so that programs
//! which know nothing of links follow them. It is taken out of logs here, and answers keep browsers from
//! telling it to other sites. Who asks is decided by the authority, what they get by the file system, as
//! for any other caller; an Authorization field says nothing here.

use bytes::Bytes;
use weft_core::attr::{Kind, SetAttr};
use weft_core::form::{At, Call, Guard, Opened, Origin, StageHint, Want};
use weft_core::service::{Evidence, LinkGives, Portion, Secret};
use weft_core::{Error, ErrorKind, FileId, Name, RelPath};

use crate::answer::Problem;
use crate::codec::head::{Head, Method};
use crate::codec::range::Wanted;
use crate::codec::target::{Path, decode_value, encode_name};
use crate::exchange::{Exchange, Served, Talk};
use crate::identity::{Identity, Shown};
use crate::map::{self, Act};
use crate::status::Status;
use crate::{get, list, page, put};

/// What every link begins with. It is this door's: what the tree itself holds there is not reached.
const PREFIX: &str = "/.weft/link/";

/// How often a path may have been coded on its way here.
const CODED_MAX: usize = 3;

/// What links can be asked.
const ALLOW: &str = "GET, HEAD, PUT, OPTIONS";

/// What each answer to a link says: its address is a secret, and its answer one person's.
pub const RULES: &str = "Referrer-Policy: no-referrer\r\nCache-Control: private\r\nX-Robots-Tag: noindex\r\n";

/// A target that is a link's.
pub struct Target {
    secret: Secret,
    /// What stands behind the secret, from its `/` on; none if nothing does.
    rest: Option<Bytes>,
}

/// Where a request by a link begins.
pub struct Followed {
    /// What the link is for.
    root: FileId,
    /// The target of the link itself: it holds the secret.
    prefix: String,
    /// The file's name, if the link is for a file.
    name: Option<Name>,
}

/// Reads a target; none if it is no link's. However its letters are coded it is one: else it would be a
/// path of the tree, to be looked up, told of and logged as one.
pub fn target(path: &Bytes) -> Option<Target> {
    // Nearly all that is asked for goes on elsewhere after this look.
    let [b'/', b'.' | b'%', ..] = path[..] else { return None };
    let mut parts = path[1..].splitn(3, |byte| *byte == b'/');
    for name in [".weft", "link"] {
        if decode_value(parts.next()?).ok()? != name.as_bytes() {
            return None;
        }
    }
    let behind = parts.next()?;
    let end = behind.iter().position(|byte| *byte == b'/');
    let secret = &behind[..end.unwrap_or(behind.len())];
    let secret = decode_value(secret).unwrap_or_else(|_| secret.to_vec());
    let rest = end.map(|end| path.slice(path.len() - behind.len() + end..));
    // What is no text is no secret either.
    Some(Target { secret: Secret::new(String::from_utf8_lossy(&secret)), rest })
}

/// Returns a target's path as logs may show it: what was meant for a link holds its secret, even where it is
/// written so that it is none.
pub fn shown(path: &Bytes) -> Bytes {
    if target(path).is_some() || is_meant(path) {
        return Bytes::from_static(b"/.weft/link/...");
    }
    path.clone()
}

/// Returns whether `.weft` and `link` follow each other in a path, coded once or several times.
fn is_meant(path: &[u8]) -> bool {
    let mut plain = path.to_vec();
    for _ in 0..CODED_MAX {
        plain = percent_encoding::percent_decode(&plain).collect();
    }
    let names = plain.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    let names: Vec<&[u8]> = names.collect();
    names
        .windows(2)
        .any(|pair| pair[0].eq_ignore_ascii_case(b".weft") && pair[1].eq_ignore_ascii_case(b"link"))
}

/// Serves what a link leads to.
pub async fn serve(
    talk: &mut Talk<'_>,
    head: &Head,
    identity: &mut Identity,
    origin: Origin,
    target: Target,
) -> Served {
    if !matches!(head.method, Method::Get | Method::Head | Method::Put) {
        let why = "by a link one reads, or drops files, and no more";
        let problem = Problem::new(Status::METHOD_NOT_ALLOWED, ErrorKind::Unsupported, why);
        return Err(problem.with("Allow", ALLOW).into());
    }
    let prefix = format!("{PREFIX}{}", target.secret.expose());
    let evidence = Evidence::Link(target.secret);
    let call = identity.call_by(talk.http, &evidence, origin, talk.trace).await;
    let call = call.map_err(|error| problem(&error))?;
    let root = call.caller.within().map(|within| within.root).ok_or_else(nothing)?;
    let (path, name) = match head.method {
        Method::Put => (named(target.rest)?, None),
        _ => path_of(talk, &call, root, target.rest).await?,
    };
    let linked = Some(Followed { root, prefix, name });
    let x = Exchange { talk, head, path, call, shown: Shown::Nothing, linked };
    if x.head.method == Method::Put {
        return drop_file(x).await;
    }
    // A browser is shown where to put files; nothing is told of what is there.
    if x.path.path.is_empty() && x.call.caller.limits().rights == LinkGives::Insert.rights() {
        return Box::pin(page::drop::serve(x)).await;
    }
    if x.path.is_directory { Box::pin(list::serve(x)).await } else { get::serve(x).await }
}

/// Returns the path below the root that is asked for, and the file's name if the root is one.
async fn path_of(
    talk: &Talk<'_>,
    call: &Call,
    root: FileId,
    rest: Option<Bytes>,
) -> Served<(Path, Option<Name>)> {
    let services = &talk.http.services;
    let walked =
        services.sys.within(call.until, services.fs.walk(call, &At::id(root), Want::default())).await;
    let kind = walked.map_err(|error| problem(&error))?.attr.kind;
    let asked = match rest {
        Some(rest) => Path::decode(rest).map_err(|error| Problem::of(&error, Act::Read))?,
        None => Path { path: RelPath::EMPTY, is_directory: false },
    };
    if kind == Kind::Directory {
        return Ok((asked, None));
    }
    // Only by its own name: no name of the caller's choosing decides what a browser takes it for.
    let name = call.caller.within().and_then(|within| within.hint.split_last()).map(|(_, name)| name);
    let fits = match asked.path.split_last() {
        None => true,
        Some((above, last)) => above.is_empty() && !asked.is_directory && Some(&last) == name.as_ref(),
    };
    if !fits {
        return Err(nothing().into());
    }
    Ok((Path { path: RelPath::EMPTY, is_directory: false }, name))
}

/// Returns the one name that a file is dropped under.
fn named(rest: Option<Bytes>) -> Served<Path> {
    let path = Path::decode(rest.ok_or_else(nothing)?).map_err(|error| Problem::of(&error, Act::Make))?;
    let is_one = path.path.split_last().is_some_and(|(above, _)| above.is_empty()) && !path.is_directory;
    if is_one { Ok(path) } else { Err(nothing().into()) }
}

/// Takes the body of a request as a file that is dropped. Whatever is there, the answer is the same: no
/// name is looked up for it, no lock or condition asked about.
pub async fn drop_file(mut x: Exchange<'_, '_>) -> Served {
    let expected = put::expected_digests(x.head)?;
    let (services, at) = (&x.talk.http.services, x.at());
    let hint = StageHint { length: x.talk.progress.left(), brief: true };
    let stage = match x.within(services.fs.stage(&x.call, &at, &hint)).await {
        Ok(stage) => stage,
        Err(error) => return Err(problem(&error).into()),
    };
    if let Err(failed) = put::receive(&mut x, &stage, expected).await {
        put::discard(&services.sys, &x.call, &stage).await;
        return Err(failed);
    }
    if let Some(root) = x.linked.as_ref().map(|linked| linked.root) {
        x.renew();
        let counted = services.authority.count_use(&x.call.caller, x.call.from, root, Portion::DROPPED);
        if let Err(error) = x.within(counted).await {
            put::discard(&services.sys, &x.call, &stage).await;
            return Err(problem(&error).into());
        }
    }
    let sys = services.sys.clone();
    let publish = |call: Call| async move {
        let set = SetAttr::default();
        put::publish_or_drop(&sys, &call, &stage, &set, Guard::NONE).await
    };
    match put::to_its_end(x.talk.http, &x.call, publish).await {
        Ok(_) => x.talk.reply(Status::CREATED, |answer| _ = answer.fixed(RULES), None).await,
        Err(error) => Err(problem(&error).into()),
    }
}

impl Followed {
    /// Returns where a path of the link leads.
    pub fn at(&self, path: &RelPath) -> At {
        At { path: path.clone(), ..At::id(self.root) }.following()
    }

    /// Returns a path of the link as a target.
    pub fn encode(&self, path: &Path) -> String {
        format!("{}{}", self.prefix, path.encode())
    }

    /// Returns the name that what is asked for has.
    pub fn name(&self, path: &Path) -> Option<Name> {
        self.name.clone().or_else(|| path.path.split_last().map(|(_, name)| name))
    }
}

/// Counts a use of the link that a request came by, before any byte of the file goes out.
pub async fn count(x: &Exchange<'_, '_>, opened: &Opened, wanted: &Wanted) -> Served {
    if x.linked.is_none() || x.talk.is_head {
        return Ok(());
    }
    let of = opened.attr.size;
    let portion = match wanted {
        Wanted::Whole => Portion { first: true, bytes: of, of },
        Wanted::One(stretch) => Portion { first: stretch.at == 0, bytes: stretch.length, of },
        Wanted::Several(stretches) => Portion {
            first: stretches.iter().any(|stretch| stretch.at == 0),
            bytes: stretches.iter().map(|stretch| stretch.length).sum(),
            of,
        },
        Wanted::Nothing => return Ok(()),
    };
    let counted =
        x.talk.http.services.authority.count_use(&x.call.caller, x.call.from, opened.attr.id, portion);
    x.within(counted).await.map_err(|error| problem(&error).into())
}

/// Returns the problem of an error that a request by a link met. Whoever holds a link is told that it has
/// ended, and of what it is not for nothing: not even that it is there.
pub fn problem(error: &Error) -> Problem {
    match error.kind() {
        ErrorKind::Expired | ErrorKind::Revoked => {
            Problem::new(Status::GONE, error.kind(), "the link has ended")
        }
        ErrorKind::NotFound
        | ErrorKind::Denied
        | ErrorKind::NotPermitted
        | ErrorKind::Unauthenticated
        | ErrorKind::NotDirectory
        | ErrorKind::Stale => nothing(),
        ErrorKind::NoSpace | ErrorKind::NoQuota => {
            Problem::new(Status::NO_SPACE, error.kind(), "no more is taken for now")
        }
        ErrorKind::Busy | ErrorKind::Unavailable | ErrorKind::Deadline => {
            let why = "this cannot be answered just now; try again later";
            Problem::new(map::status(error.kind(), Act::Read), error.kind(), why).with("Retry-After", "1")
        }
        // What an error says names what its maker knows of.
        _ => Problem::new(map::status(error.kind(), Act::Read), error.kind(), "this cannot be answered"),
    }
    .with("Referrer-Policy", "no-referrer")
}

fn nothing() -> Problem {
    Problem::new(Status::NOT_FOUND, ErrorKind::NotFound, "there is no such link, or nothing there by it")
}

/// Returns the target of a link, for whoever made it: `name` is a file's own, none for a directory.
pub fn encode(secret: &Secret, name: Option<&Name>) -> String {
    format!("{PREFIX}{}/{}", secret.expose(), name.map(encode_name).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &'static str) -> Option<(String, Option<String>)> {
        let target = target(&Bytes::from_static(path.as_bytes()))?;
        let rest = target.rest.map(|rest| String::from_utf8(rest.to_vec()).expect("text"));
        Some((target.secret.expose().to_owned(), rest))
    }

    #[test]
    fn the_secret_is_what_stands_between_two_slashes() {
        let some = |secret: &str, rest: Option<&str>| Some((secret.to_owned(), rest.map(str::to_owned)));
        assert_eq!(read("/.weft/link/abc/f"), some("abc", Some("/f")));
        assert_eq!(read("/.weft/link/abc/"), some("abc", Some("/")));
        assert_eq!(read("/.weft/link/abc"), some("abc", None));
        assert_eq!(read("/.weft/link/"), some("", None));
        assert_eq!(read("/%2eweft/l%69nk/a%62c/%66"), some("abc", Some("/%66")), "however it is coded");
        for other in ["/.weft/link", "/.weft/links/abc", "/a/.weft/link/abc", "/.Weft/link/abc", "/"] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn logs_never_show_a_secret() {
        for path in [
            "/.weft/link/abc/f",
            "/.weft/link/abc",
            "/.weft/link//abc",
            "/%2eweft/link/abc/f",
            "/%2Eweft/%6cink/abc",
            "/.weft%2flink/abc",
            "/%252eweft/link/abc",
            "//.weft/link/abc",
            "/.weft/./link/abc",
            "/x/../.weft/link/abc",
            "/.WEFT/link/abc",
        ] {
            let shown = shown(&Bytes::from_static(path.as_bytes()));
            assert!(!shown.windows(3).any(|part| part == b"abc"), "{path}");
        }
        assert_eq!(shown(&Bytes::from_static(b"/pdb/abc")), "/pdb/abc");
    }
}
