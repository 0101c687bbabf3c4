//! How much, and for how long, a link still gives out after its end.
//!
//! What is promised: a download that is running stops, with at most one piece more and within a second; where the
//! link was revoked, who has stopped reading is told within the same time. (Where it ran out, such a reader gets
//! nothing more either, and is cut off as any that reads nothing for so long.) The clock is simulated, so what is
//! measured is what waits and is waited for, and not how fast a machine is.

use weft_auth::LinkTarget;
use weft_core::proof::Within;
use weft_core::service::{LinkGives, LinkGrant, LinkRecord, NewLink, Portion};
use weft_core::{FileId, Tick};
use weft_sys::Task;

use super::*;

/// Within this time of its end nothing more comes by a link.
const BOUND: Duration = Duration::from_secs(1);
/// What the readers here take at a time, and how long they then do something else.
const STEP: usize = limits::PIECE_BYTES_MAX / 16;
const PACE: Duration = Duration::from_millis(50);

/// A download by a link that goes its way, and another whose reader has stopped.
struct Downloads {
    running: Task<Run>,
    stopped: Task<(Tick, ErrorKind)>,
}

/// How a download went.
struct Run {
    /// When it was given how many bytes.
    given: Vec<(Tick, usize)>,
    /// When it was refused, and why; none if it came to its end.
    refused: Option<(Tick, ErrorKind)>,
}

impl Run {
    /// Returns how many bytes came later than at a time.
    fn given_after(&self, end: Tick) -> usize {
        self.given.iter().filter(|(at, _)| *at > end).map(|(_, bytes)| bytes).sum()
    }

    fn bytes(&self) -> usize {
        self.given.iter().map(|(_, bytes)| bytes).sum()
    }
}

async fn run(sys: Sys, mut source: Box<dyn Source>) -> Run {
    let mut given = Vec::new();
    loop {
        let next = source.next(STEP).await;
        let now = sys.clock().tick();
        match next {
            Ok(Some(piece)) => given.push((now, piece.length())),
            Ok(None) => return Run { given, refused: None },
            Err(error) => return Run { given, refused: Some((now, error.kind())) },
        }
        sys.sleep(PACE).await;
    }
}

impl Node {
    async fn id_of(&self, path: &str) -> FileId {
        let call = self.call(&self.machine.admin().await, 1);
        self.volume.walk(&call, &at(path), Want::default()).await.expect("it is there").attr.id
    }

    /// Makes a link of alice's.
    async fn link(&self, path: &str, life: Duration, count: Option<u64>) -> LinkGrant {
        let hint = RelPath::try_from(path).expect("a good path");
        let within = Within { root: self.id_of(path).await, version: None, hint };
        let new = NewLink { gives: LinkGives::Read, life, count, pin: false };
        let target = LinkTarget { within, is_directory: false };
        self.machine.auth.links().make(&self.alice().await, target, &new).await.expect("she may")
    }

    /// Returns whom a link lets its holder act for.
    async fn by(&self, link: &LinkGrant) -> Result<Caller> {
        self.machine.auth.authority().authenticate(&Evidence::Link(link.secret.clone()), HERE).await
    }

    async fn use_of(&self, holder: &Caller, link: &LinkRecord) -> Result<()> {
        let portion = Portion { first: true, bytes: LARGE as u64, of: LARGE as u64 };
        self.machine.auth.authority().count_use(holder, HERE, link.file, portion).await
    }

    async fn downloads(&self, holder: &Caller, link: &LinkRecord) -> Downloads {
        let at = At::id(link.file);
        let running = self.reading_at(holder, &at).await.expect("it gives that");
        let mut stopped = self.reading_at(holder, &at).await.expect("it gives that");
        stopped.next(STEP).await.expect("it gives that").expect("there is more");
        let (one, other) = (self.sys.clone(), self.sys.clone());
        let running = self.sys.spawn(run(one, running));
        let stopped = self.sys.spawn(async move {
            let why = stopped.stopped().await;
            (other.clock().tick(), why.kind())
        });
        Downloads { running, stopped }
    }
}

impl Run {
    /// Checks that it ended within the bound of a time, with at most a piece more.
    fn ended_within_the_bound(&self, end: Tick, why: ErrorKind) {
        let (at, kind) = self.refused.expect("it came to its end though the link has ended");
        assert!(!self.given.is_empty() && self.bytes() < LARGE, "{} bytes", self.bytes());
        assert!(self.given_after(end) <= limits::PIECE_BYTES_MAX, "{} bytes after", self.given_after(end));
        is_within_the_bound("the running one is refused", end, at);
        assert_eq!(kind, why);
    }
}

fn is_within_the_bound(what: &str, end: Tick, at: Tick) {
    let after = at.since(end);
    println!("{what} {after:?} after the end");
    assert!(at >= end && after < BOUND, "{what} {after:?} after the end");
}

#[test]
fn a_revoked_link_gives_no_more_than_a_piece_within_a_second_of_the_answer() {
    on_a_node(async |node| {
        let (grant, other) = (node.link("d/large", HOUR, None).await, node.link("d/large", HOUR, None).await);
        let (holder, bystander) = (node.by(&grant).await.expect("it stands"), node.by(&other).await);
        let going = node.downloads(&holder, &grant.record).await;
        let beside = node.downloads(&bystander.expect("it stands"), &other.record).await;
        node.sys.sleep(10 * PACE + PACE / 2).await;
        let alice = node.alice().await;
        node.machine.auth.links().end(&alice, grant.record.id).await.expect("it is hers");
        let answered = node.sys.clock().tick();
        assert_eq!(kind(node.by(&grant).await), Some(ErrorKind::Revoked));
        assert!(node.reading_at(&holder, &At::id(grant.record.file)).await.is_err(), "it begins anew");
        going.running.await.expect("it runs").ended_within_the_bound(answered, ErrorKind::Revoked);
        let (told, why) = going.stopped.await.expect("it waits");
        is_within_the_bound("the stopped one is told", answered, told);
        assert_eq!(why, ErrorKind::Revoked);
        let beside = beside.running.await.expect("it runs");
        assert_eq!((beside.bytes(), beside.refused), (LARGE, None), "another link's goes on");
    });
}

#[test]
fn a_link_that_runs_out_gives_no_more_than_a_piece_within_a_second_of_its_time() {
    on_a_node(async |node| {
        let life = 10 * PACE + PACE / 2;
        let grant = node.link("d/large", life, None).await;
        let ends = node.sys.clock().tick().plus(life);
        let holder = node.by(&grant).await.expect("it stands");
        let going = node.downloads(&holder, &grant.record).await;
        going.running.await.expect("it runs").ended_within_the_bound(ends, ErrorKind::Expired);
        assert_eq!(kind(node.by(&grant).await), Some(ErrorKind::Expired));
    });
}

/// The last use is brought to its end, however long that takes; another does not begin at the moment when the last
/// one is counted.
#[test]
fn a_link_that_was_used_up_begins_nothing_at_once_and_brings_to_its_end_what_began() {
    on_a_node(async |node| {
        let grant = node.link("d/large", HOUR, Some(1)).await;
        let holder = node.by(&grant).await.expect("it stands");
        node.use_of(&holder, &grant.record).await.expect("the one use");
        let counted = node.sys.clock().tick();
        let going = node.downloads(&holder, &grant.record).await;
        assert_eq!(kind(node.use_of(&holder, &grant.record).await), Some(ErrorKind::Expired));
        let elsewhere = weft_core::form::Origin { peer: Some([192, 0, 2, 1].into()), ..HERE };
        let evidence = Evidence::Link(grant.secret.clone());
        let late = node.machine.auth.authority().authenticate(&evidence, elsewhere).await;
        assert_eq!(kind(late), Some(ErrorKind::Expired), "from elsewhere");
        assert_eq!(node.sys.clock().tick(), counted, "all of it at the same moment");
        let run = going.running.await.expect("it runs");
        assert_eq!((run.bytes(), run.refused), (LARGE, None));
        node.sys.sleep(limits::LINK_RESUMED_WITHIN).await;
        assert_eq!(kind(node.by(&grant).await), Some(ErrorKind::Expired), "nor goes anything on for ever");
    });
}
