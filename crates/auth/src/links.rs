//! Links: secrets that stand for their maker, confined to one thing.
//!
//! A link is found by its [`secret`]. It is read whole at each use, so
//! what ended it (its time, its count, its maker) ends it at once; what is kept of it meanwhile is the
//! caller that was signed for it, which is a lease like any.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_core::form::{Origin, one_machine};
use weft_core::proof::{Attenuation, Caller, Confines, EvidenceKind, Within};
use weft_core::service::{LinkGives, LinkGrant, LinkRecord, NewLink, Portion, Secret};
use weft_core::{
    CallerId, CallerKind, CallerName, Clock, Error, ErrorKind, FileId, LinkId, Result, Tick, Time, limits,
};
use weft_kv::{Ack, Order, Read, SpaceTxn, Txn, prefix_end};
use weft_sys::Random;

use crate::home::{Home, Mint, sooner};
use crate::secret;
use crate::tables::{self, Line, LinkRow, LinkUses};

/// What a link is made for.
#[derive(Clone, Debug)]
pub struct LinkTarget {
    /// The file or directory, with its version if the link is for that alone.
    pub within: Within,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// The links of the home domain, in its tables.
pub struct TableLinks {
    home: Arc<Home>,
    resumes: Mutex<HashMap<Resume, Rest>>,
}

/// What may still go out uncounted.
#[derive(Clone, Copy)]
struct Rest {
    /// As of when.
    at: Tick,
    bytes: u64,
}

/// A download that may go on without being counted anew: of a file, by a link, from a machine.
type Resume = (LinkId, FileId, Option<IpAddr>);

/// Sets links' secrets apart.
const PURPOSE: &str = "weft link id v1";

/// Returns the id of the link that has a secret; none for what cannot be one.
pub(crate) fn id_of(text: &Secret) -> Option<LinkId> {
    secret::id_of(text.expose(), PURPOSE).map(LinkId)
}

fn fresh(random: &dyn Random) -> (LinkId, Secret) {
    let (id, secret) = secret::fresh(random, PURPOSE);
    (LinkId(id), secret)
}

/// Returns the link that a caller came by, if it came by one.
fn link_of(caller: &Caller) -> Option<LinkId> {
    let claims = caller.claims();
    let is_link = claims.evidence == EvidenceKind::Link && matches!(claims.confines, Confines::Within(_));
    claims.parents.first().filter(|_| is_link).map(|id| LinkId(id.0))
}

impl TableLinks {
    pub(crate) fn new(home: Arc<Home>) -> Self {
        Self { home, resumes: Mutex::default() }
    }

    /// Returns whom a secret lets its holder act for. `NotFound` for a secret of no link; `Expired` or
    /// `Revoked` for one of a link that has ended.
    pub(crate) async fn caller_of(&self, secret: &Secret, from: Origin) -> Result<(Caller, bool)> {
        let home = &self.home;
        let id = id_of(secret).ok_or_else(none_such)?;
        let _gate = home.gate.read().await;
        let rows = home.space.snapshot()?;
        let (row, uses) = find(&rows, id)?.ok_or_else(none_such)?;
        if let Some((kind, why)) = self.ended(&rows, &row, &uses)? {
            let goes_on = why == USED_UP && self.may_go_on(id, from);
            if !goes_on {
                return Err(Error::new(kind, why).about(id));
            }
        }
        if let Some(caller) = home.remembered.link(id)
            && home.live(&caller).is_ok()
        {
            return Ok((caller, false));
        }
        let issued = home.steady.stamp();
        let mint = Mint {
            parents: vec![id.credential()],
            delegates: vec![CallerName::new(CallerKind::Link, &id.to_string(), home.domain.id)?],
            limits: Attenuation { rights: row.gives.rights(), ..Attenuation::NONE },
            issued,
            expires: issued.plus(limits::CREDENTIAL_LIFE).min(sooner(row.expires)),
            confines: Confines::Within(row.within.clone()),
            ..home.login(EvidenceKind::Link)
        };
        let caller = home.mint(&rows, &row.by, mint)?;
        home.remembered.keep_link(id, &caller);
        Ok((caller, true))
    }

    /// Returns why a link works no more, if auth knows.
    fn ended(
        &self,
        rows: &impl Read,
        row: &LinkRow,
        uses: &LinkUses,
    ) -> Result<Option<(ErrorKind, &'static str)>> {
        let line: Line = tables::read(rows, &tables::line_key(row.by.id()))?.unwrap_or_default();
        let enabled = self.home.user(rows, &row.by)?.is_some_and(|user| user.enabled);
        let now = self.home.steady.now();
        Ok(if row.revoked.is_some() {
            Some((ErrorKind::Revoked, "the link was revoked"))
        } else if !enabled || line.revoked.is_some_and(|at| row.made <= at) {
            Some((ErrorKind::Revoked, "what its maker held was ended"))
        } else if now >= row.expires {
            Some((ErrorKind::Expired, "the link has run out"))
        } else if row.count.is_some_and(|count| uses.used >= count) {
            Some((ErrorKind::Expired, USED_UP))
        } else {
            None
        })
    }

    /// Counts a use: see `Authority::count_use`.
    pub(crate) async fn count_use(
        &self,
        caller: &Caller,
        from: Origin,
        file: FileId,
        portion: Portion,
    ) -> Result<()> {
        let Some(id) = link_of(caller) else { return Ok(()) };
        let resume = (id, file, from.peer.map(one_machine));
        if !portion.first && self.goes_on(&resume, portion.bytes) {
            return Ok(());
        }
        let (maker, now) = (caller.name().id(), self.home.steady.now());
        let act = move |txn: &mut SpaceTxn<'_>| {
            let (row, mut uses) =
                find(txn, id)?.filter(|(row, _)| row.by.id() == maker).ok_or_else(none_such)?;
            if row.revoked.is_some() {
                return Err(Error::new(ErrorKind::Revoked, "the link was revoked"));
            }
            if row.count.is_some_and(|count| uses.used >= count) {
                return Err(Error::new(ErrorKind::Expired, USED_UP));
            }
            (uses.used, uses.last) = (uses.used.saturating_add(1), Some(now));
            tables::write(txn, &tables::link_uses_key(id), &uses)?;
            Ok(row.count.is_some())
        };
        let (limited, _) = self.home.space.write(Ack::Applied, act).await?;
        if limited {
            // A node that is killed must not forget it once a byte is out.
            self.home.space.flush().await?;
        }
        self.begin(resume, portion.of.saturating_mul(limits::LINK_RESUMED_LENGTHS));
        Ok(())
    }

    fn resumes(&self) -> MutexGuard<'_, HashMap<Resume, Rest>> {
        self.resumes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, resume: Resume, bytes: u64) {
        let mut resumes = self.resumes();
        if resumes.len() >= limits::LINK_RESUMES_MAX {
            let mut ages: Vec<Tick> = resumes.values().map(|rest| rest.at).collect();
            ages.sort_unstable();
            let middle = ages[ages.len() / 2];
            resumes.retain(|_, rest| rest.at > middle);
        }
        let at = self.home.steady.tick();
        let rest = resumes.entry(resume).or_insert(Rest { at, bytes: 0 });
        *rest = Rest { at, bytes: rest.bytes.saturating_add(bytes) };
    }

    /// Returns whether so many bytes of a download may go on uncounted, and if so for as long again.
    fn goes_on(&self, resume: &Resume, bytes: u64) -> bool {
        let now = self.home.steady.tick();
        let mut resumes = self.resumes();
        match resumes.get_mut(resume) {
            Some(rest) if now.since(rest.at) < limits::LINK_RESUMED_WITHIN && bytes <= rest.bytes => {
                *rest = Rest { at: now, bytes: rest.bytes - bytes };
                true
            }
            _ => false,
        }
    }

    /// Returns whether any download by a link may go on from where a request comes.
    fn may_go_on(&self, id: LinkId, from: Origin) -> bool {
        let (now, machine) = (self.home.steady.tick(), from.peer.map(one_machine));
        let is_one = |(resume, rest): (&Resume, &Rest)| {
            resume.0 == id && resume.2 == machine && now.since(rest.at) < limits::LINK_RESUMED_WITHIN
        };
        self.resumes().iter().any(is_one)
    }

    /// Makes a link. Whoever asks must have seen to it that the caller has the rights that it gives.
    pub async fn make(&self, caller: &Caller, target: LinkTarget, new: &NewLink) -> Result<LinkGrant> {
        let (id, secret) = fresh(self.home.sys.random());
        let said = format!("link {id}: {} of {}, {}", new.gives, target.within.root, words(new));
        let answer = self.put(caller, id, target, new).await.map_err(|error| error.op("make a link"));
        let record = self.home.tell_edit(caller, "make-link", answer, said).await?;
        Ok(LinkGrant { record, secret })
    }

    async fn put(
        &self,
        caller: &Caller,
        id: LinkId,
        target: LinkTarget,
        new: &NewLink,
    ) -> Result<LinkRecord> {
        let home = &self.home;
        home.demand_somebody(caller)?;
        check(new)?;
        let _gate = home.gate.read().await;
        if home.user(&home.space.snapshot()?, caller.name())?.is_none() {
            return Err(Error::not_permitted("links are made by the domain's users").caller(caller.name()));
        }
        // A caller whose revocation came first has an earlier stamp than the link would get.
        home.live(caller)?;
        let made = home.steady.stamp();
        let row = LinkRow {
            by: caller.name().clone(),
            within: target.within,
            is_directory: target.is_directory,
            gives: new.gives,
            made,
            expires: made.plus(new.life),
            count: new.count,
            revoked: None,
        };
        let uses = LinkUses { by: row.by.id(), used: 0, last: None };
        let kept = row.clone();
        let act = move |txn: &mut SpaceTxn<'_>| {
            let prefix = tables::key(b't', &[&kept.by.id().0.to_be_bytes()]);
            if txn.scan(&prefix, &prefix_end(&prefix), Order::Rising).count() >= limits::LINKS_OWNED_MAX {
                return Err(Error::new(ErrorKind::TooLarge, "a user has at most 1 000 links")
                    .hint("one that has ended is forgotten after a week: weft link ls, weft link revoke"));
            }
            tables::write(txn, &tables::link_key(kept.by.id(), id), &kept)?;
            tables::write(txn, &tables::link_uses_key(id), &uses)
        };
        home.space.write(Ack::Durable, act).await?;
        Ok(record(id, &row, &uses, None))
    }

    /// Returns links: see `Links::links`.
    pub fn list(
        &self,
        caller: &Caller,
        all: bool,
        after: Option<(CallerId, LinkId)>,
    ) -> Result<Vec<LinkRecord>> {
        if all {
            self.home.demand_administrator(caller)?;
        } else {
            self.home.demand_somebody(caller)?;
        }
        let rows = self.home.space.snapshot()?;
        let prefix = match all {
            true => tables::key(b't', &[]),
            false => tables::key(b't', &[&caller.name().id().0.to_be_bytes()]),
        };
        let from = match after {
            // The least key behind it.
            Some((maker, id)) => [tables::link_key(maker, id), vec![0]].concat().max(prefix.clone()),
            None => prefix.clone(),
        };
        let mut found = Vec::new();
        for row in rows.scan(&from, &prefix_end(&prefix), Order::Rising).take(limits::ACCOUNTS_PAGE_MAX) {
            let (key, value) = row?;
            let (_, id) = tables::pair_of(&key[1..])?;
            found.push(self.shown(&rows, LinkId(id), &tables::opened(&key, &value)?)?);
        }
        Ok(found)
    }

    fn shown(&self, rows: &impl Read, id: LinkId, row: &LinkRow) -> Result<LinkRecord> {
        let uses = tables::read(rows, &tables::link_uses_key(id))?;
        let uses = uses.ok_or_else(|| Error::corrupt("a link has no count of its uses").hint("weft fsck"))?;
        Ok(record(id, row, &uses, self.ended(rows, row, &uses)?.map(|(_, why)| why.to_owned())))
    }

    /// Ends a link: see `Links::end_link`.
    pub async fn end(self: &Arc<Self>, caller: &Caller, id: LinkId) -> Result<LinkRecord> {
        let (links, by) = (self.clone(), caller.clone());
        let change = async move {
            let answer = links.take_back(&by, id).await.map_err(|error| error.op("revoke a link"));
            links.home.tell_edit(&by, "revoke-link", answer, format!("link {id}")).await
        };
        self.home.to_the_end(change).await
    }

    async fn take_back(&self, caller: &Caller, id: LinkId) -> Result<LinkRecord> {
        let home = &self.home;
        home.demand_somebody(caller)?;
        let _gate = home.gate.write().await;
        let rows = home.space.snapshot()?;
        let own = |row: &LinkRow| row.by == *caller.name() || home.is_administrator(caller);
        let (row, uses) = find(&rows, id)?.filter(|(row, _)| own(row)).ok_or_else(none_such)?;
        let now = home.steady.now();
        let row = LinkRow { revoked: row.revoked.or(Some(now)), ..row };
        let until = now.plus(limits::CREDENTIAL_LIFE).plus(limits::CLOCK_SKEW_MAX);
        let kept = row.clone();
        let act = move |txn: &mut SpaceTxn<'_>| {
            tables::write(txn, &tables::link_key(kept.by.id(), id), &kept)?;
            tables::withdraw(txn, id.credential(), until)
        };
        home.space.write(Ack::Durable, act).await?;
        home.revocations.end_credential(id.credential(), until);
        let ended = self.ended(&home.space.snapshot()?, &row, &uses)?;
        Ok(record(id, &row, &uses, ended.map(|(_, why)| why.to_owned())))
    }
}

/// What is said of a link that was used as often as it may be.
const USED_UP: &str = "the link was used as often as it may be";

fn none_such() -> Error {
    Error::not_found("there is no such link")
}

/// Finds a link and how often it was used.
fn find(rows: &(impl Read + ?Sized), id: LinkId) -> Result<Option<(LinkRow, LinkUses)>> {
    let Some(uses) = tables::read::<LinkUses>(rows, &tables::link_uses_key(id))? else { return Ok(None) };
    let row: Option<LinkRow> = tables::read(rows, &tables::link_key(uses.by, id))?;
    Ok(row.map(|row| (row, uses)))
}

/// Checks what a link is to be.
fn check(new: &NewLink) -> Result<()> {
    if new.life.is_zero() {
        return Err(Error::invalid("a link lasts for some time"));
    }
    if new.life > limits::LINK_LIFE_MAX {
        return Err(Error::invalid("a link lasts for at most 366 days"));
    }
    if new.count == Some(0) {
        return Err(Error::invalid("a link is used at least once"));
    }
    if new.pin && new.gives != LinkGives::Read {
        return Err(Error::invalid("only what is read has a version to keep to"));
    }
    Ok(())
}

/// Says of a link what its maker chose, for the log.
fn words(new: &NewLink) -> String {
    let often =
        new.count.map_or_else(|| "as often as one likes".to_owned(), |count| format!("{count} times"));
    format!("for {} s, {often}{}", new.life.as_secs(), if new.pin { ", this version" } else { "" })
}

fn record(id: LinkId, row: &LinkRow, uses: &LinkUses, ended: Option<String>) -> LinkRecord {
    LinkRecord {
        id,
        by: row.by.clone(),
        file: row.within.root,
        path: row.within.hint.clone(),
        is_directory: row.is_directory,
        gives: row.gives,
        version: row.within.version,
        made: row.made,
        expires: row.expires,
        count: row.count,
        used: uses.used,
        last: uses.last,
        ended,
    }
}

/// Forgets, a page at a time, links that have ended long ago.
pub(crate) async fn forget_ended(home: &Home) -> Result<()> {
    let long_ago = |at: Time| at.plus(limits::LINK_KEPT) < home.steady.now();
    let mut gone = Vec::new();
    tables::each_below(&home.space.snapshot()?, b"t", |rest, value| {
        let row: LinkRow = tables::decode(value)?;
        if long_ago(row.revoked.unwrap_or(row.expires).min(row.expires)) {
            gone.push(tables::pair_of(rest)?);
        }
        Ok(gone.len() < limits::ACCOUNTS_PAGE_MAX)
    })?;
    if gone.is_empty() {
        return Ok(());
    }
    let act = move |txn: &mut SpaceTxn<'_>| {
        gone.iter().try_for_each(|(maker, id)| {
            txn.delete(&tables::link_key(CallerId(*maker), LinkId(*id)))?;
            txn.delete(&tables::link_uses_key(LinkId(*id)))
        })
    };
    home.space.write(Ack::Applied, act).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use weft_conformance::file_system::site::Dice;
    use weft_conformance::fuzz::fuzz;

    use super::*;

    #[test]
    fn a_secret_has_160_bits_reads_as_one_link_and_no_other_spelling_does() {
        let sys = weft_sys::Sys::simulated(7);
        let (id, secret) = fresh(sys.random());
        let text = secret.expose().to_owned();
        assert_eq!((text.len(), id_of(&secret)), (32, Some(id)));
        assert_ne!(fresh(sys.random()).0, id);
        for other in [text.to_uppercase(), format!("{text} "), text[..31].to_owned(), format!("{text}a")] {
            assert_eq!(id_of(&Secret::new(other.clone())), None, "{other}");
        }
    }

    #[test]
    fn a_mutated_secret_is_none_or_another_links() {
        let good = |dice: &mut Dice| {
            let letters: Vec<u8> = (b'a'..=b'z').chain(b'2'..=b'7').collect();
            (0..32).map(|_| *dice.pick(&letters)).collect()
        };
        fuzz("secret of a link", good, |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            if let Some(id) = id_of(&Secret::new(text)) {
                assert_eq!(text.len(), 32);
                assert!(secret::tells_nothing(id.0, text));
            }
        });
    }
}
