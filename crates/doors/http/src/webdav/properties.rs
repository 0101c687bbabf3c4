//! What is known of a resource, as properties (RFC 4918, 15, and RFC 4331 for space).

use std::fmt::Write;

use bytes::Bytes;
use weft_core::attr::{Attr, Kind, TagName};
use weft_core::form::{LockKind, Space};
use weft_core::name_locks::NameLock;
use weft_core::{CallerName, RelPath};

use super::multistatus::write_href;
use crate::codec::condition::{format_date, format_time, write_tag};
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
        let start = out.len();
        for part in ["<", live.prefix(), ":", live.local(), live.binding(), ">"] {
            out.push_str(part);
        }
        if !self.write_value(live, out) {
            out.truncate(start);
            return false;
        }
        for part in ["</", live.prefix(), ":", live.local(), ">"] {
            out.push_str(part);
        }
        true
    }

    /// Writes the name of a property, if the resource has it.
    pub fn write_name(&self, live: Live, out: &mut String) -> bool {
        let start = out.len();
        let has_it = self.write_value(live, out);
        out.truncate(start);
        if has_it {
            let _ = write!(out, "<{}:{}{}/>", live.prefix(), live.local(), live.binding());
        }
        has_it
    }

    /// Writes the value of a property. `false` if the resource has none of that name.
    fn write_value(&self, live: Live, out: &mut String) -> bool {
        match live {
            Live::ResourceType => out.push_str(match self.kind {
                Kind::Directory => "<D:collection/>",
                _ => "",
            }),
            Live::SupportedLock => out.push_str(SUPPORTED),
            Live::LockDiscovery => self.locks.iter().for_each(|lock| active_lock(lock, self.asker, out)),
            Live::QuotaAvailable | Live::QuotaUsed => {
                let Some(space) = self.space else { return false };
                let used = space.bytes_total.saturating_sub(space.bytes_free);
                let bytes = if live == Live::QuotaUsed { used } else { space.bytes_free };
                let _ = write!(out, "{bytes}");
            }
            Live::CreationDate | Live::LastModified | Live::LastModifiedSeconds => {
                let Some(attr) = self.attr else { return false };
                write_time(live, attr, out);
            }
            Live::ContentLength | Live::Tag | Live::Executable | Live::ContentType => {
                let Some(file) = self.attr.filter(|attr| attr.kind == Kind::File) else { return false };
                return self.write_of_file(live, file, out);
            }
        }
        true
    }

    fn write_of_file(&self, live: Live, file: &Attr, out: &mut String) -> bool {
        match live {
            Live::ContentLength => _ = write!(out, "{}", file.size),
            Live::Executable => out.push(if file.mode & 0o100 != 0 { 'T' } else { 'F' }),
            Live::ContentType => {
                let Some((_, name)) = self.path.split_last() else { return false };
                out.push_str(&media_type(name.as_bytes()));
            }
            _ => write_tag(file, "&quot;", out),
        }
        true
    }
}

fn write_time(live: Live, attr: &Attr, out: &mut String) {
    match live {
        Live::CreationDate => out.push_str(&format_time(attr.btime)),
        Live::LastModified => out.push_str(&format_date(attr.mtime)),
        _ => _ = write!(out, "{}", attr.mtime.seconds()),
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
    out.push_str("<D:lockroot>");
    write_href(&lock.wanted.path, false, out);
    out.push_str("</D:lockroot></D:activelock>");
}
