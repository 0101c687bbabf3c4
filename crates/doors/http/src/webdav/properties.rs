//! What is known of a resource, as properties (RFC 4918, 15, and RFC 4331 for space).

use std::fmt::Write;

use bytes::Bytes;
use weft_core::attr::{Attr, Kind, TagName};
use weft_core::form::{LockKind, Space};
use weft_core::name_locks::NameLock;
use weft_core::{CallerName, RelPath};

use super::multistatus::href;
use crate::codec::condition::{entity_tag, format_date, format_time};
use crate::codec::webdav::xml::{DAV, QName};
use crate::get::media_type;

/// The namespace in which Apache's module, and the clients that follow it, know what may be run.
const APACHE: &str = "http://apache.org/dav/props/";

/// A property that Weft keeps itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    /// When it was made.
    CreationDate,
    /// How many bytes it has.
    ContentLength,
    /// What its name suggests that they are.
    ContentType,
    /// Its entity tag.
    Tag,
    /// When its bytes last changed. May be set.
    LastModified,
    /// The same in seconds since 1970, as some clients set it. Never shown unasked.
    LastModifiedSeconds,
    /// Whether it is a directory.
    ResourceType,
    /// How it may be locked.
    SupportedLock,
    /// The locks that cover it.
    LockDiscovery,
    /// Bytes that may still be written there. Never shown unasked.
    QuotaAvailable,
    /// Bytes that lie there. Never shown unasked.
    QuotaUsed,
    /// Whether it may be run. May be set.
    Executable,
}

impl Live {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::CreationDate,
        Self::ContentLength,
        Self::ContentType,
        Self::Tag,
        Self::LastModified,
        Self::LastModifiedSeconds,
        Self::ResourceType,
        Self::SupportedLock,
        Self::LockDiscovery,
        Self::QuotaAvailable,
        Self::QuotaUsed,
        Self::Executable,
    ];

    fn local(self) -> &'static str {
        match self {
            Self::CreationDate => "creationdate",
            Self::ContentLength => "getcontentlength",
            Self::ContentType => "getcontenttype",
            Self::Tag => "getetag",
            Self::LastModified => "getlastmodified",
            Self::LastModifiedSeconds => "lastmodified",
            Self::ResourceType => "resourcetype",
            Self::SupportedLock => "supportedlock",
            Self::LockDiscovery => "lockdiscovery",
            Self::QuotaAvailable => "quota-available-bytes",
            Self::QuotaUsed => "quota-used-bytes",
            Self::Executable => "executable",
        }
    }

    /// Returns its name.
    pub fn name(self) -> QName {
        QName::new(if self == Self::Executable { APACHE } else { DAV }, self.local())
    }

    /// Returns the prefix that it is written with.
    fn prefix(self) -> &'static str {
        if self == Self::Executable { "A" } else { "D" }
    }

    /// Returns what binds the prefix, where the answer as a whole does not.
    fn binding(self) -> &'static str {
        if self == Self::Executable { " xmlns:A=\"http://apache.org/dav/props/\"" } else { "" }
    }

    /// Returns the property of that name.
    pub fn of(name: &QName) -> Option<Self> {
        Self::ALL.into_iter().find(|live| live.local() == name.local && live.name() == *name)
    }

    /// Returns whether it is told to who asks for everything.
    pub fn is_told(self) -> bool {
        !matches!(self, Self::LastModifiedSeconds | Self::QuotaAvailable | Self::QuotaUsed)
    }
}

/// A resource, and what was found out about it.
pub struct Resource<'r> {
    /// Its path.
    pub path: &'r RelPath,
    /// What it is.
    pub kind: Kind,
    /// Its attributes; none if the caller may not see them.
    pub attr: Option<&'r Attr>,
    /// Its own attributes, where they were asked for.
    pub tags: &'r [(TagName, Bytes)],
    /// The locks that cover it, where they were asked for.
    pub locks: &'r [NameLock],
    /// The space at it, where that was asked for.
    pub space: Option<Space>,
    /// Who asks: a token is told to its holder alone.
    pub asker: &'r CallerName,
}

impl Resource<'_> {
    /// Writes a property. Nothing, and `false`, if it has none of that name.
    pub fn write(&self, live: Live, out: &mut String) -> bool {
        let Some(value) = self.value(live) else { return false };
        let (prefix, local) = (live.prefix(), live.local());
        let _ = write!(out, "<{prefix}:{local}{}>{value}</{prefix}:{local}>", live.binding());
        true
    }

    /// Writes the name of a property, if the resource has it.
    pub fn write_name(&self, live: Live, out: &mut String) -> bool {
        if self.value(live).is_none() {
            return false;
        }
        let _ = write!(out, "<{}:{}{}/>", live.prefix(), live.local(), live.binding());
        true
    }

    fn value(&self, live: Live) -> Option<String> {
        let file = self.attr.filter(|attr| attr.kind == Kind::File);
        match live {
            Live::ResourceType => {
                let is_directory = self.kind == Kind::Directory;
                Some(if is_directory { "<D:collection/>".to_owned() } else { String::new() })
            }
            Live::CreationDate => self.attr.map(|attr| format_time(attr.btime)),
            Live::LastModified => self.attr.map(|attr| format_date(attr.mtime)),
            Live::LastModifiedSeconds => self.attr.map(|attr| attr.mtime.seconds().to_string()),
            Live::ContentLength => file.map(|attr| attr.size.to_string()),
            Live::Tag => file.map(|attr| entity_tag(attr).replace('"', "&quot;")),
            Live::Executable => file.map(|attr| if attr.mode & 0o100 != 0 { "T" } else { "F" }.to_owned()),
            Live::ContentType => {
                let (_, name) = self.path.split_last().filter(|_| file.is_some())?;
                Some(media_type(name.as_bytes()).into_owned())
            }
            Live::SupportedLock => Some(SUPPORTED.to_owned()),
            Live::LockDiscovery => {
                let mut all = String::new();
                self.locks.iter().for_each(|lock| active_lock(lock, self.asker, &mut all));
                Some(all)
            }
            Live::QuotaAvailable => self.space.map(|space| space.bytes_free.to_string()),
            Live::QuotaUsed => {
                self.space.map(|space| space.bytes_total.saturating_sub(space.bytes_free).to_string())
            }
        }
    }
}

const SUPPORTED: &str = "<D:lockentry><D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/></D:locktype>\
    </D:lockentry><D:lockentry><D:lockscope><D:shared/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>";

/// Writes a lock. Its token is told to who took it, and never to `anyone`, who is many.
pub fn active_lock(lock: &NameLock, asker: &CallerName, out: &mut String) {
    let scope = match lock.wanted.kind {
        LockKind::Exclusive => "exclusive",
        LockKind::Shared => "shared",
    };
    let depth = if lock.wanted.deep { "infinity" } else { "0" };
    let _ = write!(
        out,
        "<D:activelock><D:locktype><D:write/></D:locktype><D:lockscope><D:{scope}/></D:lockscope>\
         <D:depth>{depth}</D:depth>"
    );
    // It was written from what was read, so it is well-formed.
    out.push_str(std::str::from_utf8(&lock.wanted.owner).unwrap_or(""));
    let _ = write!(out, "<D:timeout>Second-{}</D:timeout>", lock.wanted.lasts.as_secs());
    if lock.holder == *asker && *asker != CallerName::ANYONE {
        let _ = write!(out, "<D:locktoken><D:href>{}</D:href></D:locktoken>", lock.token);
    }
    let _ = write!(
        out,
        "<D:lockroot><D:href>{}</D:href></D:lockroot></D:activelock>",
        href(&lock.wanted.path, false)
    );
}
