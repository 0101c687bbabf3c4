//! Proppatch: all of its steps are made, or none.

use weft_core::attr::{SetAttr, SetTime, TagEdit, TagMust, TagName};
use weft_core::form::{At, Guard, Want};
use weft_core::name_locks::{Reach, Touch};
use weft_core::{Error, ErrorKind, RelPath, Result, limits};

use super::multistatus::{self, begin_response, end_response, propstat};
use super::properties::Live;
use super::{dead, hold};
use crate::codec::condition::parse_date;
use crate::codec::webdav::fields::parse_seconds;
use crate::codec::webdav::request::{self, PropEdit};
use crate::codec::webdav::xml::{Element, QName};
use crate::exchange::{Exchange, Served};
use crate::map::{self, Act};
use crate::small_body;
use crate::status::Status;

/// What the steps come to.
#[derive(Default)]
struct Plan {
    /// Each property that is named, in order, and why it cannot be changed.
    steps: Vec<(QName, Option<Status>)>,
    set: SetAttr,
    /// Whether files of it may be run from now on.
    runs: Option<bool>,
    edits: Vec<TagEdit>,
}

/// Returns the attribute that an edit is of.
fn tag_of(edit: &TagEdit) -> &TagName {
    match edit {
        TagEdit::Put { name, .. } | TagEdit::Remove(name) => name,
    }
}

/// Changes properties.
pub async fn serve(mut x: Exchange<'_, '_>) -> Served {
    let edits = request::prop_patch(&small_body::received(&mut x, limits::DAV_XML_BYTES_MAX).await?)?;
    x.renew();
    let shown = hold::shown(&x).await?;
    let touches = vec![Touch { path: x.path.path.clone(), reach: Reach::Content }];
    let _permit = hold::permit(&x, &shown, touches)?;
    let mut plan = Plan::of(&edits);
    let walked = x.within(x.talk.http.services.fs.walk(&x.call, &x.at(), Want::default())).await;
    let attr = match walked {
        Ok(walked) => walked.attr,
        Err(error) => return Err(x.problem(&error, Act::Read).await.into()),
    };
    if let Some(runs) = plan.runs {
        plan.set.mode = Some(if runs { attr.mode | 0o100 } else { attr.mode & !0o111 });
    }
    let failed = plan.steps.iter().any(|(_, why)| why.is_some());
    if !failed && let Err(error) = x.within(apply(&x, &plan, &attr, shown.version)).await {
        if matches!(error.kind(), ErrorKind::Denied | ErrorKind::NotPermitted) && x.call.caller.is_anyone() {
            return Err(x.problem(&error, Act::Make).await.into());
        }
        let status = if error.kind() == ErrorKind::TooLarge {
            Status::NO_SPACE
        } else {
            map::status(error.kind(), Act::Make)
        };
        plan.steps.iter_mut().for_each(|(_, why)| *why = Some(status));
    }
    let is_directory = attr.kind == weft_core::attr::Kind::Directory;
    let text = plan.told(&x.path.path, is_directory);
    multistatus::reply(x.talk, text).await
}

/// Makes the change: attributes of the inode first, since those can be put back.
async fn apply(
    x: &Exchange<'_, '_>,
    plan: &Plan,
    attr: &weft_core::attr::Attr,
    version: Option<weft_core::form::VersionIs>,
) -> Result<()> {
    let (fs, at) = (&x.talk.http.services.fs, At::id(attr.id));
    let call = x.call.clone().durable();
    let guard = Guard { version, ctime: None };
    if !plan.set.is_empty() {
        fs.set(&call, &at, &plan.set, &guard).await?;
    }
    if plan.edits.is_empty() {
        return Ok(());
    }
    let services = &x.talk.http.services;
    let there = dead::tags(&services.sys, fs, &call, attr.id).await?;
    let is_there = |name: &TagName| there.iter().any(|(other, _)| other == name);
    // To take away what is not there is no error (RFC 4918, 14.23).
    let is_step = |edit: &&TagEdit| !matches!(edit, TagEdit::Remove(name) if !is_there(name));
    let edits: Vec<TagEdit> = plan.edits.iter().filter(is_step).cloned().collect();
    // Also where there is nothing to take away, the right to is needed.
    let tagged = fs.tag(&call, &at, &edits, &guard).await.map(|_| ());
    if tagged.is_err() && !plan.set.is_empty() {
        let before = SetAttr {
            mode: plan.set.mode.map(|_| attr.mode),
            mtime: plan.set.mtime.map(|_| SetTime::At(attr.mtime)),
            ..SetAttr::default()
        };
        let _ = fs.set(&call, &at, &before, &Guard::NONE).await;
    }
    tagged
}

impl Plan {
    fn of(edits: &[PropEdit]) -> Self {
        let mut plan = Self::default();
        for edit in edits {
            let (name, value) = match edit {
                PropEdit::Set(element) => (element.name.clone(), Some(element)),
                PropEdit::Remove(name) => (name.clone(), None),
            };
            let done = match Live::of(&name) {
                Some(live) => plan.live(live, value),
                None => plan.dead(&name, value),
            };
            plan.steps.push((name, done.err()));
        }
        plan
    }

    fn live(&mut self, live: Live, value: Option<&Element>) -> std::result::Result<(), Status> {
        let text = value.and_then(Element::plain_text).map(str::trim);
        let bad = Status::CONFLICT;
        match (live, text) {
            (Live::LastModified, Some(text)) => {
                self.set.mtime = Some(SetTime::At(parse_date(text).ok_or(bad)?));
            }
            (Live::LastModifiedSeconds, Some(text)) => {
                self.set.mtime = Some(SetTime::At(parse_seconds(text).ok_or(bad)?));
            }
            (Live::Executable, Some("T")) => self.runs = Some(true),
            (Live::Executable, Some("F")) => self.runs = Some(false),
            (Live::Executable, _) => return Err(bad),
            _ => return Err(Status::FORBIDDEN),
        }
        Ok(())
    }

    fn dead(&mut self, name: &QName, value: Option<&Element>) -> std::result::Result<(), Status> {
        let status = |error: Error| match error.kind() {
            ErrorKind::TooLong | ErrorKind::TooLarge => Status::NO_SPACE,
            _ => Status::CONFLICT,
        };
        let tag = dead::tag_of(name).map_err(status)?;
        let edit = match value {
            Some(element) => {
                let value = dead::value_of(element).map_err(status)?;
                TagEdit::Put { name: tag, value, must: TagMust::Any }
            }
            None => TagEdit::Remove(tag),
        };
        // Of several steps about one property the last counts.
        self.edits.retain(|other| tag_of(other) != tag_of(&edit));
        self.edits.push(edit);
        Ok(())
    }

    /// Returns what is answered: where one step fails, the others are told to have failed with it.
    fn told(&self, path: &RelPath, is_directory: bool) -> String {
        let mut text = String::from(multistatus::BEGIN);
        begin_response(path, is_directory, &mut text);
        let failed = self.steps.iter().any(|(_, why)| why.is_some());
        let status = |why: &Option<Status>| match (why, failed) {
            (Some(why), _) => *why,
            (None, true) => Status::FAILED_DEPENDENCY,
            (None, false) => Status::OK,
        };
        let mut left: Vec<(Status, &QName)> =
            self.steps.iter().map(|(name, why)| (status(why), name)).collect();
        while let Some((status, _)) = left.first().copied() {
            propstat(status, &mut text, |names| {
                left.retain(|(own, name)| {
                    let same = *own == status;
                    if same {
                        dead::write_name(name, names);
                    }
                    !same
                });
            });
        }
        end_response(&mut text);
        text
    }
}
